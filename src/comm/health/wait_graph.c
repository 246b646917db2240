/* SPDX-License-Identifier: MIT
 *
 * See wait_graph.h. A rank becomes known if another rank waits for it.
 */
#include "wait_graph.h"

#include <ringforge/ringforge.h>

static int find(const struct rf_wait_graph *graph, int rank)
{
    int at = 0;
    while (at < graph->count && graph->known[at].rank != rank)
        at++;
    return at < graph->count ? at : -1;
}

void rf_wait_graph_add(struct rf_wait_graph *graph, const struct rf_comm *comm, int rank,
                       int waiter)
{
    if (rank < 0 || rank == comm->rank || graph->count == RF_QUERY_RANKS || find(graph, rank) >= 0)
        return;
    graph->known[graph->count++] = (struct rf_wait_graph_rank){.rank = rank, .waiter = waiter};
    graph->start_ns = rf_now_ns();
    graph->elapsed_ns = 0;
}

void rf_wait_graph_reply(struct rf_comm *comm, int rank, const int32_t *job_ranks, uint32_t count)
{
    struct rf_wait_graph *graph = comm->wait.graph;
    const int at = graph ? find(graph, rank) : -1;
    if (at < 0)
        return;
    graph->known[at].replied = true;
    for (uint32_t i = 0; i < count; i++) {
        const int local = rf_comm_rank_from_job(comm, job_ranks[i]);
        rf_wait_graph_add(graph, comm, local, at);
        if (local < 0 && graph->elsewhere < 0) {
            graph->elsewhere = rank;
            graph->elsewhere_for = job_ranks[i];
        }
    }
}

int rf_wait_graph_unanswered(const struct rf_wait_graph *graph)
{
    for (int at = 0; at < graph->count; at++)
        if (!graph->known[at].replied)
            return at;
    return -1;
}
