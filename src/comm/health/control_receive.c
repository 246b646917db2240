/* SPDX-License-Identifier: MIT
 *
 * Receives the events of the control link: messages of other ranks, deaths and aborts. Passes each
 * to the file that handles it.
 */
#include "control_message.h"
#include "wait_graph.h"

static int received_waiting(struct rf_comm *comm, int rank,
                            const struct rf_control_message *message)
{
    struct rf_peer_state *peer = &comm->peers.states[rank];
    if (rf_contract_is_p2p(&message->record.contract)) {
        peer->p2p = message->record.contract;
        peer->p2p_started = message->started;
        peer->has_p2p = true;
        return comm->history.running ? rf_compare_p2p(comm, rank, comm->history.running, NULL) : 0;
    }
    peer->waiting = message->record;
    peer->has_waiting = true;
    const struct rf_call_record *own =
        rf_call_history_find(&comm->history, message->record.contract.sequence);
    if (!own) {
        comm->peers.announced += message->record.contract.sequence >= comm->history.next_sequence;
        return 0;
    }
    RETURN_IF_ERROR(rf_compare_calls(comm, own, rank, &message->record));
    if (message->reply_from == comm->rank)
        rf_comm_send_waiting(comm, &own->contract, -1);
    return 0;
}

/* Handles the history of a rank that has made different calls. The first difference is the record
 * with equal chain hashes and different calls. */
static int received_history(struct rf_comm *comm, int rank,
                            const struct rf_control_message *message)
{
    struct rf_peer_state *peer = &comm->peers.states[rank];
    uint32_t count =
        message->history.count < RF_MESSAGE_RECORDS ? message->history.count : RF_MESSAGE_RECORDS;
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_call_record *theirs = &message->history.record[i];
        const struct rf_call_record *own =
            rf_call_history_find(&comm->history, theirs->contract.sequence);
        if (!own)
            continue;
        if (own->chain_hash != theirs->chain_hash)
            peer->history_differs = true;
        else if (!rf_call_record_equal(own, theirs))
            return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs->contract);
    }
    if (!message->history.last || !peer->history_differs)
        return 0;
    uint64_t oldest =
        comm->history.next_sequence > RF_HISTORY ? comm->history.next_sequence - RF_HISTORY : 0;
    return rf_comm_fail_text(comm, RF_EMISMATCH, rank, NULL,
                             "rank %d and rank %d called different things before operation %llu of "
                             "this communicator, too long ago to say which; every rank must make "
                             "the same calls in the same order",
                             comm->rank, rank, (unsigned long long)oldest);
}

static int received_leaving(struct rf_comm *comm, int rank,
                            const struct rf_control_message *message)
{
    struct rf_peer_state *peer = &comm->peers.states[rank];
    peer->has_left = true;
    peer->left_after = message->started;
    peer->last =
        (struct rf_call_record){.chain_hash = message->last.chain_hash, .hash = message->last.hash};
    peer->last.contract =
        (struct rf_contract){.sequence = message->started > 0 ? message->started - 1 : 0,
                             .count = message->last.count,
                             .op = message->last.op,
                             .dtype = message->last.dtype,
                             .redop = message->last.redop,
                             .order = message->last.order,
                             .root = message->last.root,
                             .algorithm = message->last.algorithm};
    return comm->peers.leaving ? rf_compare_last(comm, rank) : 0;
}

static void received_left_out(struct rf_comm *comm, const struct rf_control_message *message)
{
    uint32_t count =
        message->left_out.count < RF_MESSAGE_RANKS ? message->left_out.count : RF_MESSAGE_RANKS;
    for (uint32_t i = 0; i < count; i++)
        comm->failure.left_out = comm->failure.left_out || message->left_out.rank[i] == comm->rank;
}

static int received_message(struct rf_comm *comm, const struct rf_event *event)
{
    struct rf_control_message message = {.kind = 0};
    if (event->bytes < offsetof(struct rf_control_message, record) ||
        event->bytes > sizeof(message) || event->rank < 0 || event->rank >= comm->size)
        return 0; /* not from a communicator of this version */
    memcpy(&message, event->payload, event->bytes);
    if (event->bytes != rf_control_message_bytes(&message))
        return 0;
    if (message.kind == RF_MESSAGE_WAITING)
        return received_waiting(comm, event->rank, &message);
    if (message.kind == RF_MESSAGE_HISTORY)
        return received_history(comm, event->rank, &message);
    if (message.kind == RF_MESSAGE_PROBE || message.kind == RF_MESSAGE_DEADLOCK)
        return rf_deadlock_receive(comm, event->rank, &message.probe,
                                   message.kind == RF_MESSAGE_DEADLOCK);
    if (message.kind == RF_MESSAGE_LEFT_OUT)
        received_left_out(comm, &message);
    if (message.kind == RF_MESSAGE_WAIT_REPLY)
        rf_wait_graph_reply(comm, event->rank, message.ranks.rank,
                            message.ranks.count < RF_REPLY_RANKS ? message.ranks.count
                                                                 : RF_REPLY_RANKS);
    if (message.kind == RF_MESSAGE_GAVE_UP)
        comm->peers.states[event->rank].gave_up = true;
    if (message.kind == RF_MESSAGE_FAILURE) {
        message.failure.message[RF_FAILURE_TEXT - 1] = 0;
        return rf_comm_fail(comm, &message.failure, false);
    }
    return message.kind == RF_MESSAGE_LEAVING ? received_leaving(comm, event->rank, &message) : 0;
}

/* The control link reports this failure to every rank, so it is not sent on. */
static int fail_on_event(struct rf_comm *comm, int status, int rank, const char *what,
                         const char *text)
{
    struct rf_failure failure = {
        .status = status,
        .rank = rank,
        .rank_a = -1,
        .rank_b = -1,
        .sequence = comm->history.next_sequence > 0 ? comm->history.next_sequence - 1 : 0};
    snprintf(failure.message, sizeof(failure.message), "rank %d %s: %.200s", rank, what, text);
    return rf_comm_fail(comm, &failure, false);
}

int rf_comm_receive_event(struct rf_comm *comm, const struct rf_event *event)
{
    switch (event->kind) {
    case RF_EVENT_MESSAGE:
        return received_message(comm, event);
    case RF_EVENT_DEAD:
        return fail_on_event(comm, RF_EPEER, event->rank, "died or left without notice",
                             event->text);
    case RF_EVENT_ABORT:
        return fail_on_event(comm, RF_EABORT, event->rank, "aborted the communicator", event->text);
    default:
        return 0; /* RF_EVENT_LEFT: the leaver's own message was handled before */
    }
}

int rf_comm_events(struct rf_comm *comm)
{
    if (comm->failure.failed)
        return rf_fail_error(&comm->failure.error);
    if (atomic_load_explicit(&comm->failure.abort_requested, memory_order_acquire)) {
        comm->links.control->ops->abort(comm->links.control, comm->failure.abort_reason);
        return fail_on_event(comm, RF_EABORT, comm->rank, "aborted the communicator",
                             comm->failure.abort_reason);
    }
    struct rf_event event;
    while (comm->links.control->ops->next_event(comm->links.control, &event) == 1) {
        int rc = rf_comm_receive_event(comm, &event);
        if (rc < 0)
            return rc;
    }
    return 0;
}
