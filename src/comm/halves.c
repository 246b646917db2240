/* SPDX-License-Identifier: MIT
 *
 * Sends and receives: a state machine for each, advanced in one loop until all have ended, so that
 * ranks may exchange in any order without a deadlock. Called by send_recv.c and group.c.
 */
#include <ringforge/ringforge.h>

#include "point_to_point.h"

static bool is_short(const struct rf_half *half)
{
    return half->bytes <= RF_P2P_SHORT;
}

static int again(int status)
{
    return status == RF_EAGAIN ? 0 : status;
}

/* ---- data that the host cannot reach ----------------------------------------------------------
 */

/* One turn of the copies between half->kept and half->remote; 1: all bytes have been moved. */
static int move(struct rf_p2p *p2p, struct rf_half *half, char *kept)
{
    while (half->moved < half->bytes) {
        const size_t left = half->bytes - half->moved;
        const size_t bytes = left < RF_P2P_PIECE ? left : RF_P2P_PIECE;
        if (!half->slot) {
            int rc = rf_slot_take(p2p->comm, half->remote, !half->is_send, bytes, &half->slot);
            if (rc < 0)
                return again(rc);
            if (!half->is_send)
                memcpy(rf_slot_map(half->slot), kept + half->moved, bytes);
            RETURN_IF_ERROR(
                rf_slot_copy(half->slot, half->remote, half->remote_at + half->moved, bytes));
        }
        int rc = rf_slot_ended(half->slot);
        if (rc <= 0)
            return rc;
        if (half->is_send)
            memcpy(kept + half->moved, rf_slot_map(half->slot), bytes);
        rf_slot_give(half->slot);
        half->slot = NULL;
        half->moved += bytes;
        p2p->activity++;
    }
    return 1;
}

bool rf_p2p_must_fetch(const struct rf_p2p *p2p, const struct rf_half *half)
{
    return half->is_send && half->remote && (is_short(half) || half->peer == p2p->comm->rank);
}

int rf_p2p_fetch(struct rf_p2p *p2p, struct rf_half *half)
{
    if (!rf_p2p_must_fetch(p2p, half))
        return 1;
    if (!half->kept)
        half->kept = rf_alloc(half->bytes);
    if (!half->kept)
        return rf_fail(RF_ENOMEM, "no memory for a message of %zu bytes", half->bytes);
    int rc = move(p2p, half, half->kept);
    if (rc <= 0)
        return rc;
    half->buffer = half->kept;
    half->remote = NULL;
    return 1;
}

/* ---- sends ------------------------------------------------------------------------------------
 */

int rf_p2p_keep_own(struct rf_p2p *p2p, struct rf_half *half)
{
    if (half->state != RF_HALF_START)
        return 0;
    half->contract.sequence = p2p->peers[half->peer].sent++;
    const struct rf_envelope envelope = {.kind = RF_ENVELOPE_DATA,
                                         .tag = half->tag,
                                         .id = half->contract.sequence,
                                         .contract = half->contract};
    half->state = RF_HALF_DONE;
    return rf_p2p_keep(p2p, &envelope, half->buffer, half->bytes);
}

static enum rf_envelope_kind envelope_kind(const struct rf_half *half)
{
    if (is_short(half))
        return RF_ENVELOPE_DATA;
    return rf_half_must_cut(half) ? RF_ENVELOPE_ANNOUNCE_CUT : RF_ENVELOPE_ANNOUNCE;
}

/* Until the envelope of a short message is gone. */
static int finish_short(struct rf_half *half)
{
    const struct rf_p2p_context *context = &half->lane->contexts[RF_USE_FIRST];
    if (context->in_flight)
        return 0;
    if (context->status < 0)
        return context->status;
    half->state = RF_HALF_DONE;
    return 0;
}

/* START: the envelope; WAIT (long): the pieces that the peer asks for. */
static int advance_send(struct rf_p2p *p2p, struct rf_half *half)
{
    if (half->peer == p2p->comm->rank)
        return rf_p2p_keep_own(p2p, half);
    if (!half->lane)
        RETURN_IF_ERROR(rf_p2p_take_lane(p2p, half->peer, &half->lane));
    struct rf_p2p_lane *lane = half->lane;
    if (half->state == RF_HALF_START) {
        struct rf_envelope *envelope = (struct rf_envelope *)lane->outgoing;
        size_t data = is_short(half) ? half->bytes : 0;
        lane->id = p2p->peers[half->peer].sent;
        half->contract.sequence = lane->id;
        *envelope = (struct rf_envelope){.kind = envelope_kind(half),
                                         .tag = half->tag,
                                         .id = lane->id,
                                         .contract = half->contract};
        if (data > 0)
            memcpy(envelope + 1, half->buffer, data);
        int rc = rf_p2p_send_envelope(p2p, lane, sizeof(*envelope) + data);
        if (rc < 0)
            return again(rc);
        half->state = is_short(half) ? RF_HALF_LAST : RF_HALF_WAIT;
    }
    return is_short(half) ? finish_short(half) : rf_p2p_send_pieces(p2p, half);
}

/* ---- receives ---------------------------------------------------------------------------------
 */

/* The data of a message have come with its envelope. */
static int take_data(struct rf_half *half, struct rf_taken *taken)
{
    if (taken->bytes != half->bytes)
        return rf_fail_rank(RF_ECORRUPT, half->peer,
                            "a message from rank %d has %zu bytes instead of %zu", half->peer,
                            taken->bytes, half->bytes);
    if (half->remote && half->bytes > 0) {
        half->kept = taken;
        half->state = RF_HALF_STORE;
        return 0;
    }
    if (half->bytes > 0)
        memcpy(half->buffer, taken + 1, half->bytes);
    half->state = RF_HALF_DONE;
    return 0;
}

static int matched(struct rf_p2p *p2p, struct rf_half *half, struct rf_taken *taken)
{
    int rc = 0;
    half->contract.sequence = taken->envelope.id;
    struct rf_contract theirs = taken->envelope.contract;
    if (!rf_contract_equal(&half->contract, &theirs)) {
        rf_free(taken);
        return rf_comm_fail_mismatch(p2p->comm, p2p->comm->rank, &half->contract, half->peer,
                                     &theirs);
    }
    if (!rf_envelope_announces(&taken->envelope)) {
        rc = take_data(half, taken);
    } else {
        rc = rf_p2p_take_lane(p2p, half->peer, &half->lane);
        if (rc == 0) {
            half->lane->id = taken->envelope.id;
            half->lane->cut =
                taken->envelope.kind == RF_ENVELOPE_ANNOUNCE_CUT || rf_half_must_cut(half);
        }
        half->state = RF_HALF_WAIT;
    }
    if (half->state != RF_HALF_STORE)
        rf_free(taken);
    return rc;
}

/* START: until the envelope is there; WAIT (long): ask for the pieces; STORE: copy what has come
 * with the envelope. */
static int advance_recv(struct rf_p2p *p2p, struct rf_half *half)
{
    if (half->state == RF_HALF_START) {
        struct rf_taken *taken = rf_p2p_take(p2p, half->peer, half->tag);
        if (!taken) {
            half->contract.sequence = p2p->peers[half->peer].taken; /* the envelope waited for */
            const struct rf_p2p_context *slot = &p2p->slots[half->peer];
            return slot->in_flight ? 0 : slot->status; /* this rank's own is never posted */
        }
        RETURN_IF_ERROR(matched(p2p, half, taken));
    }
    if (half->state == RF_HALF_WAIT)
        return rf_p2p_recv_pieces(p2p, half);
    if (half->state == RF_HALF_STORE) {
        int rc = move(p2p, half, (char *)((struct rf_taken *)half->kept + 1));
        if (rc <= 0)
            return rc;
        half->state = RF_HALF_DONE;
    }
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------
 */

/* It has ended well. */
static void release(struct rf_half *half)
{
    rf_p2p_give_lane(half->lane);
    half->lane = NULL;
    rf_free(half->kept);
    half->kept = NULL;
}

int rf_p2p_advance(struct rf_p2p *p2p, struct rf_half *halves, size_t count, bool *full,
                   struct rf_half **open)
{
    *open = NULL;
    for (size_t i = 0; i < count; i++) {
        struct rf_half *half = &halves[i];
        if (half->state == RF_HALF_DONE)
            continue;
        int rc = 0;
        if (!half->is_send)
            rc = advance_recv(p2p, half);
        else if (!*full || half->state != RF_HALF_START)
            rc = advance_send(p2p, half);
        if (rc < 0) {
            *open = half;
            return rc;
        }
        /* No room for its envelope: those behind it must not overtake it. */
        *full = *full || (half->is_send && half->state == RF_HALF_START);
        if (half->state == RF_HALF_DONE)
            release(half);
        if (!*open && half->state != RF_HALF_DONE)
            *open = half;
    }
    return 0;
}

static int run_to_end(struct rf_comm *comm, struct rf_half *halves, size_t count, double timeout_s)
{
    struct rf_p2p *p2p = comm->p2p;
    struct rf_watch watch;
    struct rf_half *open;
    rf_watch_begin(comm, &watch, &halves[count - 1].contract, timeout_s, NULL);
    for (;;) {
        bool full = false;
        int rc = rf_p2p_advance(p2p, halves, count, &full, &open);
        if (rc == 0 && !open)
            return 0;
        if (rc == 0) {
            watch.peer = open->peer;
            watch.mine = &open->contract;
            watch.may_send = full;
            rc = rf_p2p_poll(p2p);
        }
        if (rc == 0)
            rc = rf_watch_turn(comm, &watch, p2p->activity);
        if (rc < 0)
            return comm->failed ? rc : rf_comm_fail_operation(comm, rc, -1, &open->contract);
    }
}

int rf_p2p_exchange(struct rf_comm *comm, struct rf_half *halves, size_t count, double timeout_s)
{
    uint64_t start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    if (count == 0)
        return 0;
    RETURN_IF_ERROR(run_to_end(comm, halves, count, timeout_s));
    rf_p2p_trim(comm->p2p);
    if (start_ns > 0)
        rf_comm_trace(comm, halves[0].is_send ? RF_COLL_SEND : RF_COLL_RECV, halves[0].bytes,
                      start_ns);
    return 0;
}
