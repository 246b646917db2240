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
    if (ask->sequence >= comm->history.next_sequence)
        return false;
    const struct rf_task *task = rf_worker_find(comm->async, ask->sequence);
    if (task)
        return task->state == RF_TASK_RUNNING &&
               (ask->begun || rf_exec_receives_posted(task->exec));
    if (comm->history.running && comm->history.running->sequence == ask->sequence)
        return ask->begun || rf_exec_receives_posted(comm->executors.blocking);
    return true; /* it has ended */
}

int rf_flow_control_asked(struct rf_comm *comm, int peer, uint64_t sequence, bool begun)
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

int rf_flow_control_answer(struct rf_comm *comm)
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

int rf_flow_control_ask(struct rf_comm *comm, struct rf_task *task, bool oldest)
{
    if (oldest && !comm->links.transport->stalls) {
        if (task->blocked)
            rf_exec_unblock(task->exec);
        return 0;
    }
    if (!task->blocked) {
        task->blocked = rf_alloc((size_t)comm->size * sizeof(*task->blocked));
        if (!task->blocked)
            return rf_fail(RF_ENOMEM, "no memory to ask %d ranks", comm->size);
        rf_sched_receivers(task->cached->sched, task->blocked);
        task->blocked[comm->rank] = false;
    }
    task->asked_begun = oldest;
    for (int peer = 0; peer < comm->size; peer++)
        if (task->blocked[peer])
            RETURN_IF_ERROR(rf_p2p_say(comm->p2p, peer,
                                       oldest ? RF_ENVELOPE_ASK_BEGUN : RF_ENVELOPE_ASK_READY,
                                       task->record.contract.sequence));
    return 0;
}

void rf_flow_control_answered(struct rf_comm *comm, int peer, uint64_t sequence)
{
    struct rf_task *task = rf_worker_find(comm->async, sequence);
    if (task && task->blocked)
        task->blocked[peer] = false;
}
