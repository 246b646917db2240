/* SPDX-License-Identifier: MIT
 *
 * Which rank waits for which, as known to a rank that sends wait queries (wait_query.c).
 */
#ifndef RF_COMM_WAIT_GRAPH_H
#define RF_COMM_WAIT_GRAPH_H

#include "../communicator.h"

struct rf_wait_graph_rank {
    int rank;
    int waiter; /* index of a known rank that waits for this one; -1: this rank itself */
    bool replied;
};

struct rf_wait_graph {
    struct rf_wait_graph_rank known[RF_QUERY_RANKS];
    int count;
    int queried;                   /* number of leading ranks that have been sent a query */
    int elsewhere, elsewhere_for;  /* as in struct rf_stalled */
    uint64_t start_ns, elapsed_ns; /* since the last rank became known; elapsed: minus long turns */
};

/* Adds a rank that the one at index `waiter` waits for; -1: this rank itself. */
void rf_wait_graph_add(struct rf_wait_graph *graph, const struct rf_comm *comm, int rank,
                       int waiter);

/* The index of the first rank that has not replied; -1: all replied. */
int rf_wait_graph_unanswered(const struct rf_wait_graph *graph);

/* Handles the reply of `rank`: it waits for these ranks of the job. Ignored if no query is in
 * progress. */
void rf_wait_graph_reply(struct rf_comm *comm, int rank, const int32_t *job_ranks, uint32_t count);

#endif
