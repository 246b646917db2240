/* SPDX-License-Identifier: MIT
 *
 * Who waits for whom, as far as a rank that asks (ask.c) has been told.
 */
#ifndef RF_COMM_WAIT_GRAPH_H
#define RF_COMM_WAIT_GRAPH_H

#include "communicator.h"

struct rf_wait_graph_rank {
    int rank, from; /* from: the place of one that waits for it; -1: this rank does */
    bool answered;
};

struct rf_wait_graph {
    struct rf_wait_graph_rank known[RF_ASK_RANKS];
    int count, asked; /* asked: of the first ones */
    int away, away_for;
    uint64_t start_ns, patience_ns; /* both since the last one became known */
};

/* A rank that the one at place `from` waits for; -1: this rank does. */
void rf_wait_graph_add(struct rf_wait_graph *graph, const struct rf_comm *comm, int rank, int from);
/* The place of the first one that has said nothing; -1: all have. */
int rf_wait_graph_silent(const struct rf_wait_graph *graph);
/* `rank` says that it waits for these ranks of the job. Nothing, where nobody has asked. */
void rf_wait_graph_answered(struct rf_comm *comm, int rank, const int32_t *in_job, uint32_t count);

#endif
