/* SPDX-License-Identifier: MIT
 *
 * Sends and receives: a state machine for each, advanced in one loop until all have ended, so that
 * ranks may exchange in any order without a deadlock. Called by send_recv.c, group_run.c and
 * worker.c.
 */
#include <ringforge/ringforge.h>

#include "../p2p.h"

static bool is_short(const struct rf_p2p_op *p2p_op)
{
    return p2p_op->bytes <= RF_P2P_SHORT;
}

/* RF_EAGAIN: try again in the next turn. */
static int or_later(int status)
{
    return status == RF_EAGAIN ? 0 : status;
}

/* ---- data that the host cannot reach --------------------------------------------------------- */

/* One turn of the copies between host memory and p2p_op->remote. 1: all bytes have been copied. */
static int advance_copy(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, char *host)
{
    while (p2p_op->copied < p2p_op->bytes) {
        const size_t left = p2p_op->bytes - p2p_op->copied;
        const size_t bytes = left < RF_P2P_PIECE ? left : RF_P2P_PIECE;
        if (!p2p_op->slot) {
            int rc =
                rf_slot_take(p2p->comm, p2p_op->remote, !p2p_op->is_send, bytes, &p2p_op->slot);
            if (rc < 0)
                return or_later(rc);
            if (!p2p_op->is_send)
                memcpy(rf_slot_map(p2p_op->slot), host + p2p_op->copied, bytes);
            RETURN_IF_ERROR(rf_slot_copy(p2p_op->slot, p2p_op->remote,
                                         p2p_op->remote_offset + p2p_op->copied, bytes));
        }
        int rc = rf_slot_ended(p2p_op->slot);
        if (rc <= 0)
            return rc;
        if (p2p_op->is_send)
            memcpy(host + p2p_op->copied, rf_slot_map(p2p_op->slot), bytes);
        rf_slot_give(p2p_op->slot);
        p2p_op->slot = NULL;
        p2p_op->copied += bytes;
        p2p->activity++;
    }
    return 1;
}

bool rf_p2p_must_fetch(const struct rf_p2p *p2p, const struct rf_p2p_op *p2p_op)
{
    return p2p_op->is_send && p2p_op->remote &&
           (is_short(p2p_op) || p2p_op->peer == p2p->comm->rank);
}

int rf_p2p_fetch(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    if (!rf_p2p_must_fetch(p2p, p2p_op))
        return 1;
    if (!p2p_op->copy)
        p2p_op->copy = rf_alloc(p2p_op->bytes);
    if (!p2p_op->copy)
        return rf_fail(RF_ENOMEM, "no memory for a message of %zu bytes", p2p_op->bytes);
    int rc = advance_copy(p2p, p2p_op, p2p_op->copy);
    if (rc <= 0)
        return rc;
    p2p_op->buffer = p2p_op->copy;
    p2p_op->remote = NULL;
    return 1;
}

/* ---- sends ----------------------------------------------------------------------------------- */

int rf_p2p_send_to_self(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    if (p2p_op->state != RF_P2P_OP_START)
        return 0;
    p2p_op->contract.sequence = p2p->peers[p2p_op->peer].sent++;
    const struct rf_envelope envelope = {.kind = RF_ENVELOPE_EAGER,
                                         .tag = p2p_op->tag,
                                         .id = p2p_op->contract.sequence,
                                         .contract = p2p_op->contract};
    p2p_op->state = RF_P2P_OP_DONE;
    return rf_p2p_add_unexpected(p2p, &envelope, p2p_op->buffer, p2p_op->bytes);
}

static enum rf_envelope_kind envelope_kind(const struct rf_p2p_op *p2p_op)
{
    if (is_short(p2p_op))
        return RF_ENVELOPE_EAGER;
    return rf_p2p_op_needs_pieces(p2p_op) ? RF_ENVELOPE_READY_TO_SEND_PIECES
                                          : RF_ENVELOPE_READY_TO_SEND;
}

/* Waits until the envelope of a short message has been sent. */
static int finish_short(struct rf_p2p_op *p2p_op)
{
    const struct rf_p2p_context *context = &p2p_op->lane->contexts[RF_USE_ENVELOPE];
    if (context->in_flight)
        return 0;
    if (context->status < 0)
        return context->status;
    p2p_op->state = RF_P2P_OP_DONE;
    return 0;
}

/* START: posts the envelope. WAIT, for a long message: sends the pieces that the peer requests. */
static int advance_send(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    if (p2p_op->peer == p2p->comm->rank)
        return rf_p2p_send_to_self(p2p, p2p_op);
    if (!p2p_op->lane)
        RETURN_IF_ERROR(rf_p2p_take_lane(p2p, p2p_op->peer, &p2p_op->lane));
    struct rf_p2p_lane *lane = p2p_op->lane;
    if (p2p_op->state == RF_P2P_OP_START) {
        struct rf_envelope *envelope = (struct rf_envelope *)lane->outgoing;
        size_t data = is_short(p2p_op) ? p2p_op->bytes : 0;
        lane->id = p2p->peers[p2p_op->peer].sent;
        p2p_op->contract.sequence = lane->id;
        *envelope = (struct rf_envelope){.kind = envelope_kind(p2p_op),
                                         .tag = p2p_op->tag,
                                         .id = lane->id,
                                         .contract = p2p_op->contract};
        if (data > 0)
            memcpy(envelope + 1, p2p_op->buffer, data);
        int rc = rf_p2p_send_envelope(p2p, lane, sizeof(*envelope) + data);
        if (rc < 0)
            return or_later(rc);
        p2p_op->state = is_short(p2p_op) ? RF_P2P_OP_LAST : RF_P2P_OP_WAIT;
    }
    return is_short(p2p_op) ? finish_short(p2p_op) : rf_p2p_send_pieces(p2p, p2p_op);
}

/* ---- receives -------------------------------------------------------------------------------- */

/* Takes the data of a short message, which arrived with its envelope. */
static int take_eager_data(struct rf_p2p_op *p2p_op, struct rf_unexpected *message)
{
    if (message->bytes != p2p_op->bytes)
        return rf_fail_rank(RF_ECORRUPT, p2p_op->peer,
                            "a message from rank %d has %zu bytes instead of %zu", p2p_op->peer,
                            message->bytes, p2p_op->bytes);
    if (p2p_op->remote && p2p_op->bytes > 0) {
        p2p_op->copy = message;
        p2p_op->state = RF_P2P_OP_STORE;
        return 0;
    }
    if (p2p_op->bytes > 0)
        memcpy(p2p_op->buffer, message + 1, p2p_op->bytes);
    p2p_op->state = RF_P2P_OP_DONE;
    return 0;
}

static int matched(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, struct rf_unexpected *message)
{
    int rc = 0;
    p2p_op->contract.sequence = message->envelope.id;
    struct rf_contract theirs = message->envelope.contract;
    if (!rf_contract_equal(&p2p_op->contract, &theirs)) {
        rf_free(message);
        return rf_comm_fail_mismatch(p2p->comm, p2p->comm->rank, &p2p_op->contract, p2p_op->peer,
                                     &theirs);
    }
    if (!rf_envelope_announces(&message->envelope)) {
        rc = take_eager_data(p2p_op, message);
    } else {
        rc = rf_p2p_take_lane(p2p, p2p_op->peer, &p2p_op->lane);
        if (rc == 0) {
            p2p_op->lane->id = message->envelope.id;
            p2p_op->lane->in_pieces = message->envelope.kind == RF_ENVELOPE_READY_TO_SEND_PIECES ||
                                      rf_p2p_op_needs_pieces(p2p_op);
        }
        p2p_op->state = RF_P2P_OP_WAIT;
    }
    if (p2p_op->state != RF_P2P_OP_STORE)
        rf_free(message);
    return rc;
}

/* START: waits for the envelope. WAIT, for a long message: receives the pieces. STORE: copies short
 * data to device memory. */
static int advance_recv(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    if (p2p_op->state == RF_P2P_OP_START) {
        struct rf_unexpected *message = rf_p2p_match_unexpected(p2p, p2p_op->peer, p2p_op->tag);
        if (!message) {
            p2p_op->contract.sequence =
                p2p->peers[p2p_op->peer].received; /* the expected envelope */
            const struct rf_p2p_context *receive = &p2p->envelope_receives[p2p_op->peer];
            return receive->in_flight
                       ? 0
                       : receive->status; /* no receive from this rank itself is posted */
        }
        RETURN_IF_ERROR(matched(p2p, p2p_op, message));
    }
    if (p2p_op->state == RF_P2P_OP_WAIT)
        return rf_p2p_recv_pieces(p2p, p2p_op);
    if (p2p_op->state == RF_P2P_OP_STORE) {
        int rc = advance_copy(p2p, p2p_op, (char *)((struct rf_unexpected *)p2p_op->copy + 1));
        if (rc <= 0)
            return rc;
        p2p_op->state = RF_P2P_OP_DONE;
    }
    return 0;
}

/* ---- several at once ------------------------------------------------------------------------- */

static void release(struct rf_p2p_op *p2p_op)
{
    rf_p2p_give_lane(p2p_op->lane);
    p2p_op->lane = NULL;
    rf_free(p2p_op->copy);
    p2p_op->copy = NULL;
}

int rf_p2p_advance(struct rf_p2p *p2p, struct rf_p2p_op *p2p_ops, size_t count, bool *send_blocked,
                   struct rf_p2p_op **unfinished)
{
    *unfinished = NULL;
    for (size_t i = 0; i < count; i++) {
        struct rf_p2p_op *p2p_op = &p2p_ops[i];
        if (p2p_op->state == RF_P2P_OP_DONE)
            continue;
        int rc = 0;
        if (!p2p_op->is_send)
            rc = advance_recv(p2p, p2p_op);
        else if (!*send_blocked || p2p_op->state != RF_P2P_OP_START)
            rc = advance_send(p2p, p2p_op);
        if (rc < 0) {
            *unfinished = p2p_op;
            return rc;
        }
        /* Its envelope was not posted, and later ones must not overtake it. */
        *send_blocked = *send_blocked || (p2p_op->is_send && p2p_op->state == RF_P2P_OP_START);
        if (p2p_op->state == RF_P2P_OP_DONE)
            release(p2p_op);
        if (!*unfinished && p2p_op->state != RF_P2P_OP_DONE)
            *unfinished = p2p_op;
    }
    return 0;
}

static int run_to_end(struct rf_comm *comm, struct rf_p2p_op *p2p_ops, size_t count,
                      double timeout_s)
{
    struct rf_p2p *p2p = comm->p2p;
    struct rf_wait_monitor monitor;
    struct rf_p2p_op *unfinished;
    rf_wait_monitor_begin(comm, &monitor, &p2p_ops[count - 1].contract, timeout_s, NULL);
    for (;;) {
        bool send_blocked = false;
        int rc = rf_p2p_advance(p2p, p2p_ops, count, &send_blocked, &unfinished);
        if (rc == 0 && !unfinished)
            return 0;
        if (rc == 0) {
            monitor.peer = unfinished->peer;
            monitor.mine = &unfinished->contract;
            monitor.send_blocked = send_blocked;
            rc = rf_p2p_poll(p2p);
        }
        if (rc == 0)
            rc = rf_wait_monitor_turn(comm, &monitor, p2p->activity);
        if (rc < 0)
            return comm->failure.failed
                       ? rc
                       : rf_comm_fail_operation(comm, rc, -1, &unfinished->contract);
    }
}

int rf_p2p_exchange(struct rf_comm *comm, struct rf_p2p_op *p2p_ops, size_t count, double timeout_s)
{
    uint64_t start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    if (count == 0)
        return 0;
    RETURN_IF_ERROR(run_to_end(comm, p2p_ops, count, timeout_s));
    rf_p2p_trim(comm->p2p);
    if (start_ns > 0)
        rf_comm_trace(comm, p2p_ops[0].is_send ? RF_COLL_SEND : RF_COLL_RECV, p2p_ops[0].bytes,
                      start_ns);
    return 0;
}
