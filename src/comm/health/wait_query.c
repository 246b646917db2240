/* SPDX-License-Identifier: MIT
 *
 * The search for the rank that stalls the others. At a deadline a rank sends wait queries, over the
 * control link, to the ranks that it waits for, and then to those that they wait for. A waiting
 * rank replies, whichever communicator of the family it waits in. The rank that does not reply is
 * to blame.
 *
 * A query reaches a rank even if no call runs on the communicator that receives it: the thread of
 * the link counts it (rf_wait_query_received), and the wait monitors of the family check that
 * count. Called by wait_monitor.c and failure_broadcast.c, which fail the communicator.
 */
#include <ringforge/ringforge.h>

#include "../family.h"
#include "../p2p.h"
#include "wait_graph.h"

#define REPEAT_NS 100000000ull
#define NAP_NS 100000ull
/* A longer turn counts as this time: this rank's core is busy, and so may be the cores of the ranks
 * that must reply. */
#define LONGEST_TURN_NS 5000000ull

/* ---- replies --------------------------------------------------------------------------------- */

bool rf_wait_query_pending(const struct rf_comm *comm)
{
    return atomic_load_explicit(&comm->membership.family->wait_queries, memory_order_acquire) !=
           comm->wait.answered_queries;
}

void rf_wait_query_reply(struct rf_comm *comm, const int *waits, int count)
{
    struct rf_family *family = comm->membership.family;
    int job_ranks[RF_REPLY_RANKS], replied = 0;
    if (!rf_wait_query_pending(comm))
        return;
    for (int i = 0; i < count && replied < RF_REPLY_RANKS; i++)
        if (waits[i] >= 0)
            job_ranks[replied++] = rf_comm_job_rank(comm, waits[i]);
    const uint64_t queries = atomic_load(&family->wait_queries);
    pthread_mutex_lock(&family->lock);
    for (struct rf_comm *each = family->first; each; each = each->membership.next)
        if (atomic_load(&each->wait.last_query) > comm->wait.answered_queries)
            rf_comm_send_wait_reply(each, job_ranks, replied);
    pthread_mutex_unlock(&family->lock);
    comm->wait.answered_queries = queries;
}

/* ---- queries --------------------------------------------------------------------------------- */

static void send_queries(struct rf_comm *comm, struct rf_wait_graph *graph)
{
    int ranks[RF_REPLY_RANKS], count = 0;
    for (int at = 0; at < graph->count && count < RF_REPLY_RANKS; at++)
        if (!graph->known[at].replied)
            ranks[count++] = graph->known[at].rank;
    rf_comm_send_wait_query(comm, ranks, count);
    graph->queried = graph->count;
}

static int collect_replies(struct rf_comm *comm, struct rf_wait_graph *graph, const int *waits,
                           int count)
{
    uint64_t queried_ns = 0, last_ns = rf_now_ns();
    while (rf_wait_graph_unanswered(graph) >= 0 && graph->elapsed_ns < RF_QUERY_NS &&
           last_ns < graph->start_ns + 3 * RF_QUERY_NS) {
        if (graph->queried < graph->count || last_ns - queried_ns > REPEAT_NS) {
            send_queries(comm, graph);
            queried_ns = last_ns;
        }
        rf_wait_query_reply(comm, waits, count);
        rf_sleep_ns(NAP_NS);
        const uint64_t now = rf_now_ns(), turn = now - last_ns;
        graph->elapsed_ns += turn < LONGEST_TURN_NS ? turn : LONGEST_TURN_NS;
        last_ns = now;
        RETURN_IF_ERROR(rf_comm_events(comm));
    }
    return 0;
}

int rf_wait_query(struct rf_comm *comm, const int *waits, int count, struct rf_stalled *out)
{
    struct rf_wait_graph graph = {.elsewhere = -1, .elsewhere_for = -1};
    for (int i = 0; i < count; i++)
        rf_wait_graph_add(&graph, comm, waits[i], -1);
    comm->wait.graph = &graph;
    const int rc = collect_replies(comm, &graph, waits, count);
    comm->wait.graph = NULL;
    if (rc < 0)
        return rc;
    int at = rf_wait_graph_unanswered(&graph);
    *out = (struct rf_stalled){
        .rank = -1, .via = -1, .elsewhere = graph.elsewhere, .elsewhere_for = graph.elsewhere_for};
    if (at < 0)
        return 0;
    out->rank = graph.known[at].rank;
    while (graph.known[at].waiter >= 0)
        at = graph.known[at].waiter;
    out->via = graph.known[at].rank;
    return 0;
}
