/* SPDX-License-Identifier: MIT
 *
 * The messages that this rank sends to the others over the control link: the operation in which
 * this rank waits, wait queries and replies (wait_query.c), failures, and this rank's last call
 * when it leaves.
 */
#include "control_message.h"
#include "../family.h"
#include "../task.h"

/* A message that cannot be sent is only logged: the control link reports a broken connection. */
static void send_message(struct rf_comm *comm, const struct rf_control_message *message)
{
    if (comm->size > 1 && comm->links.control->ops->notify(comm->links.control, message,
                                                           rf_control_message_bytes(message)) < 0)
        rf_log("comm", 2, "a message to the other ranks could not be sent: %s",
               rf_last_error()->message);
}

void rf_comm_send_waiting(struct rf_comm *comm, const struct rf_contract *mine, int reply_from)
{
    const struct rf_call_record *own =
        rf_contract_is_p2p(mine) ? NULL : rf_call_history_find(&comm->history, mine->sequence);
    struct rf_control_message message = {
        .kind = RF_MESSAGE_WAITING,
        .reply_from = reply_from,
        .started = comm->history.next_sequence + rf_async_queued(comm->async),
        .record = own ? *own : (struct rf_call_record){.contract = *mine}};
    send_message(comm, &message);
}

void rf_comm_send_failure(struct rf_comm *comm, const struct rf_failure *failure)
{
    struct rf_control_message message = {
        .kind = RF_MESSAGE_FAILURE, .reply_from = -1, .failure = *failure};
    send_message(comm, &message);
}

void rf_comm_send_gave_up(struct rf_comm *comm)
{
    struct rf_control_message message = {.kind = RF_MESSAGE_GAVE_UP, .reply_from = -1};
    send_message(comm, &message);
}

static void send_ranks(struct rf_comm *comm, enum rf_control_message_kind kind, const int *ranks,
                       int count)
{
    struct rf_control_message message = {.kind = kind, .reply_from = -1};
    for (int i = 0; i < count && i < RF_REPLY_RANKS; i++)
        message.ranks.rank[message.ranks.count++] = ranks[i];
    send_message(comm, &message);
}

void rf_comm_send_wait_query(struct rf_comm *comm, const int *ranks, int count)
{
    send_ranks(comm, RF_MESSAGE_WAIT_QUERY, ranks, count);
}

void rf_comm_send_wait_reply(struct rf_comm *comm, const int *job_ranks, int count)
{
    send_ranks(comm, RF_MESSAGE_WAIT_REPLY, job_ranks, count);
}

void rf_wait_query_received(void *listener, const void *payload, size_t bytes)
{
    struct rf_comm *comm = listener;
    struct rf_control_message message = {.kind = 0};
    if (bytes != sizeof(message))
        return;
    memcpy(&message.kind, payload, sizeof(message.kind));
    if (message.kind != RF_MESSAGE_WAIT_QUERY)
        return;
    memcpy(&message, payload, sizeof(message));
    for (uint32_t i = 0; i < message.ranks.count && i < RF_REPLY_RANKS; i++)
        if (message.ranks.rank[i] == comm->rank)
            atomic_store(&comm->wait.last_query,
                         atomic_fetch_add(&comm->membership.family->wait_queries, 1) + 1);
}

void rf_comm_send_leaving(struct rf_comm *comm)
{
    struct rf_control_message message = {
        .kind = RF_MESSAGE_LEAVING, .reply_from = -1, .started = comm->history.next_sequence};
    const struct rf_call_record *record =
        comm->history.next_sequence > 0
            ? rf_call_history_find(&comm->history, comm->history.next_sequence - 1)
            : NULL;
    const struct rf_contract *last = record ? &record->contract : NULL;
    if (comm->history.last_p2p.op != RF_COLL_NONE &&
        comm->history.last_p2p_after == comm->history.next_sequence)
        last = &comm->history.last_p2p;
    message.last.chain_hash = record ? record->chain_hash : 0;
    message.last.hash = record ? record->hash : 0;
    if (last) {
        message.last.count = last->count;
        message.last.root = last->root;
        message.last.op = last->op;
        message.last.dtype = last->dtype;
        message.last.redop = last->redop;
        message.last.order = last->order;
        message.last.algorithm = last->algorithm;
    }
    send_message(comm, &message);
}

void rf_comm_send_left_out(struct rf_comm *comm, const int *members, int count)
{
    struct rf_control_message message = {.kind = RF_MESSAGE_LEFT_OUT, .reply_from = -1};
    for (int r = 0, next = 0; r < comm->size; r++) {
        if (next < count && members[next] == r)
            next++;
        else if (message.left_out.count < RF_MESSAGE_RANKS)
            message.left_out.rank[message.left_out.count++] = r;
    }
    if (message.left_out.count > 0)
        send_message(comm, &message);
}

void rf_comm_send_history(struct rf_comm *comm)
{
    if (comm->history.sent)
        return;
    comm->history.sent = true;
    uint64_t oldest =
        comm->history.next_sequence > RF_HISTORY ? comm->history.next_sequence - RF_HISTORY : 0;
    for (uint64_t end = comm->history.next_sequence; end > oldest;) {
        uint64_t begin = end - oldest > RF_MESSAGE_RECORDS ? end - RF_MESSAGE_RECORDS : oldest;
        struct rf_control_message message = {
            .kind = RF_MESSAGE_HISTORY, .reply_from = -1, .started = comm->history.next_sequence};
        message.history.last = begin == oldest;
        for (uint64_t i = begin; i < end; i++)
            message.history.record[message.history.count++] = comm->history.records[i % RF_HISTORY];
        send_message(comm, &message);
        end = begin;
    }
}

void rf_comm_send_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found)
{
    struct rf_control_message message = {
        .kind = found ? RF_MESSAGE_DEADLOCK : RF_MESSAGE_PROBE, .reply_from = -1, .probe = *probe};
    send_message(comm, &message);
}
