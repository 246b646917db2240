/* SPDX-License-Identifier: MIT
 *
 * The data of long messages. The receiver requests a piece once it has posted its receive. If both
 * hosts reach the memory, a message is one piece. Otherwise it consists of pieces of RF_P2P_PIECE
 * bytes, which go through slots of staging memory: while one is in transfer, another one is copied.
 * Called by p2p_op.c.
 *
 * A send takes a slot only for a piece that its receiver has requested, so it always gives the slot
 * back. Receives have separate slots (comm_staging.c). So ranks whose slots are all in use never
 * wait for each other's slots.
 */
#include "../p2p.h"

static uint64_t piece_count(const struct rf_p2p_op *p2p_op)
{
    return p2p_op->lane->in_pieces ? (p2p_op->bytes + RF_P2P_PIECE - 1) / RF_P2P_PIECE : 1;
}

static size_t piece_begin(uint64_t piece)
{
    return (size_t)piece * RF_P2P_PIECE;
}

static size_t piece_bytes(const struct rf_p2p_op *p2p_op, uint64_t piece)
{
    const size_t left = p2p_op->bytes - piece_begin(piece);
    return p2p_op->lane->in_pieces && left > RF_P2P_PIECE ? RF_P2P_PIECE : left;
}

static void *piece_data(const struct rf_p2p_op *p2p_op, const struct rf_p2p_piece *state,
                        uint64_t piece)
{
    return state->slot ? rf_slot_map(state->slot) : (char *)p2p_op->buffer + piece_begin(piece);
}

/* 1: the posted operation has ended; 0: not yet. */
static int has_ended(const struct rf_p2p_context *context)
{
    if (context->in_flight)
        return 0;
    return context->status < 0 ? context->status : 1;
}

/* RF_EAGAIN: try again in the next turn. */
static int or_later(int status)
{
    return status == RF_EAGAIN ? 0 : status;
}

static void end_piece(struct rf_p2p *p2p, struct rf_p2p_piece *state)
{
    rf_slot_give(state->slot);
    state->slot = NULL;
    state->state = RF_PIECE_ENDED;
    p2p->activity++;
}

/* Takes a slot if the piece needs one. RF_EAGAIN: none is free. */
static int open_piece(struct rf_p2p *p2p, const struct rf_p2p_op *p2p_op,
                      struct rf_p2p_piece *state, uint64_t piece)
{
    if (!p2p_op->remote)
        return 0;
    return rf_slot_take(p2p->comm, p2p_op->remote, !p2p_op->is_send, piece_bytes(p2p_op, piece),
                        &state->slot);
}

static int send_piece(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, uint64_t piece)
{
    struct rf_p2p_lane *lane = p2p_op->lane;
    struct rf_p2p_piece *state = &lane->pieces[piece % RF_P2P_PIECES];
    const size_t bytes = piece_bytes(p2p_op, piece);
    int rc = 0;
    if (state->state == RF_PIECE_IDLE) {
        if (piece >= lane->requested)
            return 0;
        rc = open_piece(p2p, p2p_op, state, piece);
        if (rc == 0 && state->slot)
            rc = rf_slot_copy(state->slot, p2p_op->remote,
                              p2p_op->remote_offset + piece_begin(piece), bytes);
        if (rc < 0)
            return or_later(rc);
        state->state = state->slot ? RF_PIECE_COPIED : RF_PIECE_READY;
    }
    if (state->state == RF_PIECE_COPIED) {
        rc = rf_slot_ended(state->slot);
        if (rc <= 0)
            return rc;
        state->state = RF_PIECE_READY;
    }
    if (state->state == RF_PIECE_READY) {
        rc = rf_p2p_send_data(p2p, lane, piece, piece_data(p2p_op, state, piece), bytes);
        if (rc < 0)
            return or_later(rc);
        state->state = RF_PIECE_POSTED;
    }
    if (state->state == RF_PIECE_POSTED) {
        rc = has_ended(rf_p2p_data_context(lane, piece));
        if (rc <= 0)
            return rc;
        end_piece(p2p, state);
    }
    return 0;
}

/* Requests a piece whose receive is posted. Pieces are requested in order. */
static int request_piece(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, uint64_t piece)
{
    struct rf_p2p_lane *lane = p2p_op->lane;
    if (piece != lane->requested || lane->contexts[RF_USE_ENVELOPE].in_flight)
        return RF_EAGAIN;
    *(struct rf_envelope *)lane->outgoing = (struct rf_envelope){
        .kind = lane->in_pieces ? RF_ENVELOPE_CLEAR_TO_SEND_PIECE : RF_ENVELOPE_CLEAR_TO_SEND,
        .tag = p2p_op->tag,
        .id = lane->id};
    RETURN_IF_ERROR(rf_p2p_send_envelope(p2p, lane, sizeof(struct rf_envelope)));
    lane->requested++;
    return 0;
}

static int recv_piece(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, uint64_t piece)
{
    struct rf_p2p_lane *lane = p2p_op->lane;
    struct rf_p2p_piece *state = &lane->pieces[piece % RF_P2P_PIECES];
    const size_t bytes = piece_bytes(p2p_op, piece);
    int rc = 0;
    if (state->state == RF_PIECE_IDLE) {
        rc = open_piece(p2p, p2p_op, state, piece);
        if (rc < 0)
            return or_later(rc);
        state->state = RF_PIECE_READY;
    }
    if (state->state == RF_PIECE_READY) {
        rc = rf_p2p_recv_data(p2p, lane, piece, piece_data(p2p_op, state, piece), bytes);
        if (rc < 0)
            return or_later(rc);
        state->state = RF_PIECE_POSTED;
    }
    if (state->state == RF_PIECE_POSTED) {
        rc = request_piece(p2p, p2p_op, piece);
        if (rc < 0)
            return or_later(rc);
        state->state = RF_PIECE_REQUESTED;
    }
    if (state->state == RF_PIECE_REQUESTED) {
        rc = has_ended(rf_p2p_data_context(lane, piece));
        if (rc <= 0)
            return rc;
        if (state->slot)
            RETURN_IF_ERROR(rf_slot_copy(state->slot, p2p_op->remote,
                                         p2p_op->remote_offset + piece_begin(piece), bytes));
        state->state = RF_PIECE_COPIED;
    }
    if (state->state == RF_PIECE_COPIED) {
        rc = state->slot ? rf_slot_ended(state->slot) : 1;
        if (rc <= 0)
            return rc;
        end_piece(p2p, state);
    }
    return 0;
}

static int run_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op,
                      int (*turn)(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op, uint64_t piece))
{
    struct rf_p2p_lane *lane = p2p_op->lane;
    const uint64_t first = lane->ended, count = piece_count(p2p_op);
    for (uint64_t piece = first; piece < count && piece < first + RF_P2P_PIECES; piece++)
        RETURN_IF_ERROR(turn(p2p, p2p_op, piece));
    while (lane->ended < count && lane->pieces[lane->ended % RF_P2P_PIECES].state == RF_PIECE_ENDED)
        lane->pieces[lane->ended++ % RF_P2P_PIECES].state = RF_PIECE_IDLE;
    if (lane->ended < count)
        return 0;
    const int rc = has_ended(&lane->contexts[RF_USE_ENVELOPE]);
    if (rc > 0)
        p2p_op->state = RF_P2P_OP_DONE;
    return rc < 0 ? rc : 0;
}

int rf_p2p_send_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    return run_pieces(p2p, p2p_op, send_piece);
}

int rf_p2p_recv_pieces(struct rf_p2p *p2p, struct rf_p2p_op *p2p_op)
{
    return run_pieces(p2p, p2p_op, recv_piece);
}
