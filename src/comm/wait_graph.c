/* SPDX-License-Identifier: MIT
 *
 * See wait_graph.h. Ranks become known as ones that another one waits for, and are to say for whom
 * they wait themselves.
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

void rf_wait_graph_add(struct rf_wait_graph *graph, const struct rf_comm *comm, int rank, int from)
{
    if (rank < 0 || rank == comm->rank || graph->count == RF_ASK_RANKS || find(graph, rank) >= 0)
        return;
    graph->known[graph->count++] = (struct rf_wait_graph_rank){.rank = rank, .from = from};
    graph->start_ns = rf_now_ns();
    graph->patience_ns = 0;
}

void rf_wait_graph_answered(struct rf_comm *comm, int rank, const int32_t *in_job, uint32_t count)
{
    struct rf_wait_graph *graph = comm->wait.graph;
    const int at = graph ? find(graph, rank) : -1;
    if (at < 0)
        return;
    graph->known[at].answered = true;
    for (uint32_t i = 0; i < count; i++) {
        const int here = rf_comm_from_job(comm, in_job[i]);
        rf_wait_graph_add(graph, comm, here, at);
        if (here < 0 && graph->away < 0) {
            graph->away = rank;
            graph->away_for = in_job[i];
        }
    }
}

int rf_wait_graph_silent(const struct rf_wait_graph *graph)
{
    for (int at = 0; at < graph->count; at++)
        if (!graph->known[at].answered)
            return at;
    return -1;
}
