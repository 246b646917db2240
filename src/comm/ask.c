/* SPDX-License-Identifier: MIT
 *
 * Who stands still. At a deadline a rank asks those it waits for, over the control link, for whom
 * they wait, and then those; whoever waits says so, in whichever communicator of the family it
 * waits, and whoever says nothing is the one to name. A question reaches a rank though nobody
 * listens to the communicator in which it is asked: the link's thread notes it, and the family's
 * wait monitors look there. Called by wait_monitor.c and spread.c, which fail the communicator.
 */
#include <ringforge/ringforge.h>

#include "family.h"
#include "p2p.h"
#include "wait_graph.h"

#define ASK_AGAIN_NS 100000000ull
#define NAP_NS 100000ull
/* A turn that took longer does not count as more: this rank's core is busy, and so may be those of
 * the ranks that are to answer. */
#define LONGEST_TURN_NS 5000000ull

/* ---- answers --------------------------------------------------------------------------------- */

bool rf_ask_is_asked(const struct rf_comm *comm)
{
    return atomic_load_explicit(&comm->membership.family->questions, memory_order_acquire) !=
           comm->wait.answered_questions;
}

void rf_ask_answer(struct rf_comm *comm, const int *waits, int count)
{
    struct rf_family *family = comm->membership.family;
    int in_job[RF_TELL_RANKS], told = 0;
    if (!rf_ask_is_asked(comm))
        return;
    for (int i = 0; i < count && told < RF_TELL_RANKS; i++)
        if (waits[i] >= 0)
            in_job[told++] = rf_comm_in_job(comm, waits[i]);
    const uint64_t asks = atomic_load(&family->questions);
    pthread_mutex_lock(&family->lock);
    for (struct rf_comm *each = family->first; each; each = each->membership.next)
        if (atomic_load(&each->wait.last_question) > comm->wait.answered_questions)
            rf_comm_send_answer(each, in_job, told);
    pthread_mutex_unlock(&family->lock);
    comm->wait.answered_questions = asks;
}

/* ---- questions ------------------------------------------------------------------------------- */

static void ask_all(struct rf_comm *comm, struct rf_wait_graph *ask)
{
    int ranks[RF_TELL_RANKS], count = 0;
    for (int at = 0; at < ask->count && count < RF_TELL_RANKS; at++)
        if (!ask->known[at].answered)
            ranks[count++] = ask->known[at].rank;
    rf_comm_send_question(comm, ranks, count);
    ask->asked = ask->count;
}

static int listen(struct rf_comm *comm, struct rf_wait_graph *ask, const int *waits, int count)
{
    uint64_t asked_ns = 0, last_ns = rf_now_ns();
    while (rf_wait_graph_silent(ask) >= 0 && ask->patience_ns < RF_ASK_NS &&
           last_ns < ask->start_ns + 3 * RF_ASK_NS) {
        if (ask->asked < ask->count || last_ns - asked_ns > ASK_AGAIN_NS) {
            ask_all(comm, ask);
            asked_ns = last_ns;
        }
        rf_ask_answer(comm, waits, count);
        rf_sleep_ns(NAP_NS);
        const uint64_t now = rf_now_ns(), turn = now - last_ns;
        ask->patience_ns += turn < LONGEST_TURN_NS ? turn : LONGEST_TURN_NS;
        last_ns = now;
        RETURN_IF_ERROR(rf_comm_events(comm));
    }
    return 0;
}

int rf_ask(struct rf_comm *comm, const int *waits, int count, struct rf_silent *out)
{
    struct rf_wait_graph ask = {.away = -1, .away_for = -1};
    for (int i = 0; i < count; i++)
        rf_wait_graph_add(&ask, comm, waits[i], -1);
    comm->wait.graph = &ask;
    const int rc = listen(comm, &ask, waits, count);
    comm->wait.graph = NULL;
    if (rc < 0)
        return rc;
    int at = rf_wait_graph_silent(&ask);
    *out = (struct rf_silent){.rank = -1, .first = -1, .away = ask.away, .away_for = ask.away_for};
    if (at < 0)
        return 0;
    out->rank = ask.known[at].rank;
    while (ask.known[at].from >= 0)
        at = ask.known[at].from;
    out->first = ask.known[at].rank;
    return 0;
}
