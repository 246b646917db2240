/* SPDX-License-Identifier: MIT
 *
 * A collective that overtakes others must not send what the receiver does not wait for yet: on many
 * networks such a message stands in the way of all behind it, and those may be what the receiver
 * needs to get there. So it first asks, by envelopes of point to point, which are always taken in,
 * and sends to a peer when that has posted all its receives. The oldest collective asks only where
 * one message can stop all behind it (libfabric's net): its caller may have sent something since
 * that the receiver needs before it begins.
 */
#include "worker.h"

static bool can_take(const struct rf_comm *comm, const struct rf_ask *ask)
{
    if (ask->sequence >= comm->sequence)
        return false;
    const struct rf_task *task = rf_worker_find(comm->async, ask->sequence);
    if (task)
        return task->state == RF_TASK_RUNNING &&
               (ask->begun || rf_exec_receives_posted(task->exec));
    if (comm->running && comm->running->sequence == ask->sequence)
        return ask->begun || rf_exec_receives_posted(comm->exec);
    return true; /* it has ended */
}

int rf_ready_asked(struct rf_comm *comm, int peer, uint64_t sequence, bool begun)
{
    struct rf_p2p *p2p = comm->p2p;
    if (p2p->ask_count == p2p->ask_room) {
        const size_t room = 2 * p2p->ask_room + 8;
        struct rf_ask *grown = rf_realloc(p2p->asks, room * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "no memory for the questions of %zu ranks", room);
        p2p->asks = grown;
        p2p->ask_room = room;
    }
    p2p->asks[p2p->ask_count++] = (struct rf_ask){peer, begun, sequence};
    return 0;
}

int rf_ready_answer(struct rf_comm *comm)
{
    struct rf_p2p *p2p = comm->p2p;
    size_t kept = 0;
    for (size_t i = 0; i < p2p->ask_count; i++) {
        const struct rf_ask ask = p2p->asks[i];
        if (!can_take(comm, &ask))
            p2p->asks[kept++] = ask;
        else
            RETURN_IF_ERROR(rf_p2p_say(p2p, ask.peer, RF_ENVELOPE_READY, ask.sequence));
    }
    p2p->ask_count = kept;
    return 0;
}

int rf_ready_ask(struct rf_comm *comm, struct rf_task *task, bool oldest)
{
    if (oldest && !comm->wire->stalls) {
        if (task->closed)
            rf_exec_open(task->exec);
        return 0;
    }
    if (!task->closed) {
        task->closed = rf_alloc((size_t)comm->size * sizeof(*task->closed));
        if (!task->closed)
            return rf_fail(RF_ENOMEM, "no memory to ask %d ranks", comm->size);
        rf_sched_receivers(task->cached->sched, task->closed);
        task->closed[comm->rank] = false;
    }
    task->asked_begun = oldest;
    for (int peer = 0; peer < comm->size; peer++)
        if (task->closed[peer])
            RETURN_IF_ERROR(rf_p2p_say(comm->p2p, peer,
                                       oldest ? RF_ENVELOPE_ASK_BEGUN : RF_ENVELOPE_ASK_READY,
                                       task->past.contract.sequence));
    return 0;
}

void rf_ready_heard(struct rf_comm *comm, int peer, uint64_t sequence)
{
    struct rf_task *task = rf_worker_find(comm->async, sequence);
    if (task && task->closed)
        task->closed[peer] = false;
}

/* ---- envelopes without data ------------------------------------------------------------------ */

int rf_p2p_say(struct rf_p2p *p2p, int peer, enum rf_envelope_kind kind, uint64_t id)
{
    struct rf_say *say = rf_alloc(sizeof(*say)), **link = &p2p->says;
    if (!say)
        return rf_fail(RF_ENOMEM, "no memory for a message to rank %d", peer);
    say->peer = peer;
    say->envelope = (struct rf_envelope){.kind = kind, .id = id};
    while (*link)
        link = &(*link)->next;
    *link = say;
    return 0;
}

/* 1: it has gone; 0: not yet. */
static int advance_say(struct rf_p2p *p2p, struct rf_say *say)
{
    if (!say->lane) {
        RETURN_IF_ERROR(rf_p2p_take_lane(p2p, say->peer, &say->lane));
        memcpy(say->lane->outgoing, &say->envelope, sizeof(say->envelope));
        int rc = rf_p2p_send_envelope(p2p, say->lane, sizeof(say->envelope));
        if (rc < 0) {
            rf_p2p_give_lane(say->lane);
            say->lane = NULL;
            return rc == RF_EAGAIN ? 0 : rc;
        }
    }
    const struct rf_p2p_context *context = &say->lane->contexts[RF_USE_FIRST];
    if (context->in_flight)
        return 0;
    rf_p2p_give_lane(say->lane);
    return 1; /* if it failed, the peer's death is the control link's to tell */
}

int rf_p2p_advance_says(struct rf_p2p *p2p)
{
    for (struct rf_say **link = &p2p->says; *link;) {
        struct rf_say *say = *link;
        int rc = advance_say(p2p, say);
        if (rc < 0)
            return rc;
        if (rc == 0) {
            link = &say->next;
            continue;
        }
        *link = say->next;
        rf_free(say);
    }
    return 0;
}
