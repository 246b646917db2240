/* SPDX-License-Identifier: MIT
 *
 * What this rank says to others over the control link: "I wait in this operation", "for whom do you
 * wait?" (ask.c), "this communicator has failed, because", "I leave".
 */
#include "control_message.h"
#include "family.h"
#include "task.h"

/* A message that cannot be sent is not worth another error: the link reports its own death. */
static void send_message(struct rf_comm *comm, const struct rf_control_message *message)
{
    if (comm->size > 1 && comm->links.control->ops->notify(comm->links.control, message,
                                                           rf_control_message_bytes(message)) < 0)
        rf_log("comm", 2, "could not tell the other ranks: %s", rf_last_error()->message);
}

void rf_comm_send_waiting(struct rf_comm *comm, const struct rf_contract *mine, int asked)
{
    const struct rf_call_record *own =
        rf_contract_is_p2p(mine) ? NULL : rf_call_history_find(&comm->history, mine->sequence);
    struct rf_control_message message = {
        .kind = RF_MESSAGE_WAITING,
        .asked = asked,
        .started = comm->history.next_sequence + rf_async_queued(comm->async),
        .record = own ? *own : (struct rf_call_record){.contract = *mine}};
    send_message(comm, &message);
}

void rf_comm_send_failure(struct rf_comm *comm, const struct rf_failure *failure)
{
    struct rf_control_message message = {
        .kind = RF_MESSAGE_FAILURE, .asked = -1, .failure = *failure};
    send_message(comm, &message);
}

void rf_comm_send_gave_up(struct rf_comm *comm)
{
    struct rf_control_message message = {.kind = RF_MESSAGE_GAVE_UP, .asked = -1};
    send_message(comm, &message);
}

static void send_ranks(struct rf_comm *comm, enum rf_control_message_kind kind, const int *ranks,
                       int count)
{
    struct rf_control_message message = {.kind = kind, .asked = -1};
    for (int i = 0; i < count && i < RF_TELL_RANKS; i++)
        message.ranks.rank[message.ranks.count++] = ranks[i];
    send_message(comm, &message);
}

void rf_comm_send_question(struct rf_comm *comm, const int *ranks, int count)
{
    send_ranks(comm, RF_MESSAGE_QUESTION, ranks, count);
}

void rf_comm_send_answer(struct rf_comm *comm, const int *in_job, int count)
{
    send_ranks(comm, RF_MESSAGE_ANSWER, in_job, count);
}

void rf_comm_overhear(void *listener, const void *payload, size_t bytes)
{
    struct rf_comm *comm = listener;
    struct rf_control_message message = {.kind = 0};
    if (bytes != sizeof(message))
        return;
    memcpy(&message.kind, payload, sizeof(message.kind));
    if (message.kind != RF_MESSAGE_QUESTION)
        return;
    memcpy(&message, payload, sizeof(message));
    for (uint32_t i = 0; i < message.ranks.count && i < RF_TELL_RANKS; i++)
        if (message.ranks.rank[i] == comm->rank)
            atomic_store(&comm->wait.last_question,
                         atomic_fetch_add(&comm->membership.family->questions, 1) + 1);
}

void rf_comm_send_leaving(struct rf_comm *comm)
{
    struct rf_control_message message = {
        .kind = RF_MESSAGE_LEAVING, .asked = -1, .started = comm->history.next_sequence};
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
    struct rf_control_message message = {.kind = RF_MESSAGE_LEFT_OUT, .asked = -1};
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
            .kind = RF_MESSAGE_HISTORY, .asked = -1, .started = comm->history.next_sequence};
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
        .kind = found ? RF_MESSAGE_CIRCLE : RF_MESSAGE_PROBE, .asked = -1, .probe = *probe};
    send_message(comm, &message);
}

/* ---- leaving --------------------------------------------------------------------------------- */
