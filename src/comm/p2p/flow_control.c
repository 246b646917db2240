/* SPDX-License-Identifier: MIT
 *
 * Flow control of collectives that overtake others, unless the transport accepts every message that
 * arrives before its receive. On other transports such a message may block all later messages, and
 * the receiver may need one of those before it posts the receive. So a collective that overtakes
 * others first sends a request to each peer, by point-to-point envelopes, whose receives are always
 * posted. It sends to a peer once the peer has replied that all its receives are posted.
 *
 * The oldest collective sends requests only if one message can block all later ones (libfabric's
 * native TCP): its caller may since have sent a message that the peer needs before it begins.
 */
#include "../worker.h"

static bool is_ready_for(const struct rf_comm *comm, const struct rf_ready_request *request)
{
    if (request->sequence >= comm->history.next_sequence)
        return false;
    const struct rf_task *task = rf_async_find(comm->async, request->sequence);
    if (task)
        return task->state == RF_TASK_RUNNING &&
               (request->begun || rf_exec_receives_posted(task->exec));
    if (comm->history.running && comm->history.running->sequence == request->sequence)
        return request->begun || rf_exec_receives_posted(comm->executors.blocking);
    return true; /* it has ended */
}

int rf_flow_control_request_received(struct rf_comm *comm, int peer, uint64_t sequence, bool begun)
{
    struct rf_p2p *p2p = comm->p2p;
    if (p2p->ready_request_count == p2p->ready_request_capacity) {
        const size_t capacity = 2 * p2p->ready_request_capacity + 8;
        struct rf_ready_request *grown = rf_realloc(p2p->ready_requests, capacity * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "no memory for the requests of %zu ranks", capacity);
        p2p->ready_requests = grown;
        p2p->ready_request_capacity = capacity;
    }
    p2p->ready_requests[p2p->ready_request_count++] =
        (struct rf_ready_request){peer, begun, sequence};
    return 0;
}

int rf_flow_control_reply(struct rf_comm *comm)
{
    struct rf_p2p *p2p = comm->p2p;
    size_t kept = 0;
    for (size_t i = 0; i < p2p->ready_request_count; i++) {
        const struct rf_ready_request request = p2p->ready_requests[i];
        if (!is_ready_for(comm, &request))
            p2p->ready_requests[kept++] = request;
        else
            RETURN_IF_ERROR(
                rf_p2p_send_control(p2p, request.peer, RF_ENVELOPE_GO_AHEAD, request.sequence));
    }
    p2p->ready_request_count = kept;
    return 0;
}

int rf_flow_control_request(struct rf_comm *comm, struct rf_task *task, bool oldest)
{
    const struct rf_transport *transport = comm->links.transport;
    if (transport->takes_early || (oldest && !transport->stalls)) {
        if (task->blocked)
            rf_exec_unblock(task->exec);
        return 0;
    }
    if (!task->blocked) {
        task->blocked = rf_alloc((size_t)comm->size * sizeof(*task->blocked));
        if (!task->blocked)
            return rf_fail(RF_ENOMEM, "no memory for requests to %d ranks", comm->size);
        rf_sched_receivers(task->cached->sched, task->blocked);
        task->blocked[comm->rank] = false;
    }
    task->awaits_begun = oldest;
    for (int peer = 0; peer < comm->size; peer++)
        if (task->blocked[peer])
            RETURN_IF_ERROR(rf_p2p_send_control(
                comm->p2p, peer, oldest ? RF_ENVELOPE_AWAIT_BEGUN : RF_ENVELOPE_AWAIT_POSTED,
                task->record.contract.sequence));
    return 0;
}

void rf_flow_control_reply_received(struct rf_comm *comm, int peer, uint64_t sequence)
{
    struct rf_task *task = rf_async_find(comm->async, sequence);
    if (task && task->blocked)
        task->blocked[peer] = false;
}
