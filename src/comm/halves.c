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

/* 1: the posted operation has ended; 0: not yet. */
static int ended(const struct rf_half *half, enum rf_p2p_use use)
{
    const struct rf_p2p_context *context = &half->lane->contexts[use];
    if (context->in_flight)
        return 0;
    return context->status < 0 ? context->status : 1;
}

static int again(int status)
{
    return status == RF_EAGAIN ? 0 : status;
}

/* The last state: until everything posted has ended. */
static int finish(struct rf_half *half, bool has_second)
{
    int first = ended(half, RF_USE_FIRST), second = has_second ? ended(half, RF_USE_SECOND) : 1;
    if (first < 0 || second < 0)
        return first < 0 ? first : second;
    if (first && second)
        half->state = RF_HALF_DONE;
    return 0;
}

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

/* START: the envelope; WAIT (long): until the peer asks. */
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
        *envelope =
            (struct rf_envelope){.kind = is_short(half) ? RF_ENVELOPE_DATA : RF_ENVELOPE_ANNOUNCE,
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
    if (half->state == RF_HALF_WAIT) {
        if (!lane->asked)
            return 0;
        int rc = rf_p2p_send_data(p2p, lane, half->buffer, half->bytes);
        if (rc < 0)
            return again(rc);
        half->state = RF_HALF_LAST;
    }
    return finish(half, !is_short(half));
}

static int matched(struct rf_p2p *p2p, struct rf_half *half, struct rf_taken *taken)
{
    const bool has_data = taken->envelope.kind == RF_ENVELOPE_DATA;
    half->contract.sequence = taken->envelope.id;
    struct rf_contract theirs = taken->envelope.contract;
    if (!rf_contract_equal(&half->contract, &theirs)) {
        rf_free(taken);
        return rf_comm_fail_mismatch(p2p->comm, p2p->comm->rank, &half->contract, half->peer,
                                     &theirs);
    }
    int rc = has_data ? 0 : rf_p2p_take_lane(p2p, half->peer, &half->lane);
    if (rc == 0 && !has_data)
        half->lane->id = taken->envelope.id;
    if (has_data && taken->bytes != half->bytes)
        rc = rf_fail_rank(RF_ECORRUPT, half->peer,
                          "a message from rank %d has %zu bytes instead of %zu", half->peer,
                          taken->bytes, half->bytes);
    else if (has_data && half->bytes > 0)
        memcpy(half->buffer, taken + 1, half->bytes);
    rf_free(taken);
    half->state = has_data ? RF_HALF_DONE : RF_HALF_WAIT;
    return rc;
}

/* START: until the envelope is there; WAIT (long): post the receive, then ask. */
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
        if (half->state == RF_HALF_DONE)
            return 0;
    }
    struct rf_p2p_lane *lane = half->lane;
    if (half->state == RF_HALF_WAIT) {
        if (!half->posted) {
            int rc = rf_p2p_recv_data(p2p, lane, half->buffer, half->bytes);
            if (rc < 0)
                return again(rc);
            half->posted = true;
        }
        *(struct rf_envelope *)lane->outgoing =
            (struct rf_envelope){.kind = RF_ENVELOPE_ASK, .tag = half->tag, .id = lane->id};
        int rc = rf_p2p_send_envelope(p2p, lane, sizeof(struct rf_envelope));
        if (rc < 0)
            return again(rc);
        half->state = RF_HALF_LAST;
    }
    return finish(half, true);
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
        if (half->state == RF_HALF_DONE && half->lane) {
            rf_p2p_give_lane(half->lane);
            half->lane = NULL;
        }
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
