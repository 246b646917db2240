/* SPDX-License-Identifier: MIT
 *
 * Which rank waits for which, as far as a rank that sends wait queries (wait_query.c) has learnt.
 */
#ifndef RF_COMM_WAIT_GRAPH_H
#define RF_COMM_WAIT_GRAPH_H

#include "../communicator.h"

struct rf_wait_graph_rank {
    int rank;
    int waiter; /* index of a known rank that waits for this one; -1: the own rank does */
    bool replied;
};

struct rf_wait_graph {
    struct rf_wait_graph_rank known[RF_QUERY_RANKS];
    int count;
    int queried;                   /* the first so many have been sent a query */
    int elsewhere, elsewhere_for;  /* as in struct rf_stalled */
    uint64_t start_ns, elapsed_ns; /* since the last rank became known; elapsed: less long turns */
};

/* Adds a rank that the one at index `waiter` waits for; -1: the own rank does. */
void rf_wait_graph_add(struct rf_wait_graph *graph, const struct rf_comm *comm, int rank,
                       int waiter);

/* The index of the first rank that has not replied; -1: all have. */
int rf_wait_graph_unanswered(const struct rf_wait_graph *graph);

/* The reply of `rank`: it waits for these ranks of the job. Ignored where no query is under way. */
void rf_wait_graph_reply(struct rf_comm *comm, int rank, const int32_t *job_ranks, uint32_t count);

#endif
