/* SPDX-License-Identifier: MIT
 *
 * Effects of ties, the norm and the update.
 */
#include "meaning.h"

#include "../../base/base.h"

/* The sum to which this shard belongs. */
static int whole_of(const struct rf_at *a, int shard)
{
    for (int k = 0; k < a->plan->value_count; k++)
        if (a->plan->values[k].kind == RF_VALUE_GRAD && a->plan->values[k].slot == 0 &&
            a->plan->values[k].piece == a->plan->values[shard].piece)
            return k;
    return -1;
}

static int uses_of(const struct rf_plan *plan, int piece)
{
    int uses = 0;
    for (int k = 0; !rf_plan_leaves_apart(plan) && k < plan->piece_count; k++)
        if (plan->pieces[k].use >= 0 &&
            plan->params[plan->params[plan->pieces[k].use].owner].grad_piece == piece)
            uses++;
    return uses;
}

/* Turns this rank's shard into the total of all micro-batches. On one rank no reduction does this.
 */
static int make_total(const struct rf_at *a, int shard)
{
    struct rf_token *t = &a->tokens[shard];
    const int whole = whole_of(a, shard);
    if (t->state == RF_TOKEN_TOTAL || a->plan->mesh.dp > 1)
        return rf_token_demand(a, shard, RF_TOKEN_TOTAL);
    if (whole < 0)
        return rf_check_fail(a->plan, a->i, "takes a shard of a sum that is not there");
    RETURN_IF_ERROR(rf_token_check_whole(a, whole));
    if (a->tokens[whole].low != 0 || a->tokens[whole].high != a->plan->policy.micro_batches)
        return rf_check_fail(a->plan, a->i, "takes micro-batches %d to %d for all",
                             a->tokens[whole].low, a->tokens[whole].high - 1);
    *t = (struct rf_token){.state = RF_TOKEN_TOTAL, .read = true, .counts = t->counts};
    return 0;
}

/* ---- parameters that ranks with other blocks use, too ---------------------------------------- */

/* The parameter of a piece, by its first use on any rank. */
static int logical_of(const struct rf_plan *plan, int piece)
{
    for (int i = 0; i < plan->param_count; i++)
        if (plan->params[i].owner == i && plan->params[i].piece == piece)
            return plan->params[i].logical;
    return -1;
}

/* The number of other ranks of the pipeline that use it. */
static int others_of(const struct rf_plan *plan, int piece)
{
    const int logical = logical_of(plan, piece);
    int others = 0;
    for (int home = 0; logical >= 0 && !rf_plan_leaves_apart(plan) && home < plan->mesh.pp; home++)
        others += home != plan->pp_rank && rf_plan_uses(plan, logical, home);
    return others;
}

static bool is_home(const struct rf_plan *plan, int piece)
{
    const int logical = logical_of(plan, piece);
    return logical >= 0 && rf_plan_holds(plan, plan->params[logical].block);
}

/* Gradients of this rank's blocks go to the rank with the first use. That rank sends back the whole
 * sum. */
int rf_meaning_send_shared(const struct rf_at *a, int value)
{
    struct rf_token *t = &a->tokens[value];
    const int piece = a->plan->values[value].piece, others = others_of(a->plan, piece);
    RETURN_IF_ERROR(make_total(a, value));
    const bool home = is_home(a->plan, piece);
    if (others == 0 || t->ties != uses_of(a->plan, piece) || (!home && t->normed) ||
        t->homes != (home ? others : 0))
        return rf_check_fail(a->plan, a->i, "sends gradients that are not complete");
    if (!home)
        t->homes = -1;
    return 0;
}

int rf_meaning_take_shared(const struct rf_at *a, int value, const struct rf_at *from, int sent)
{
    const int piece = a->plan->values[value].piece;
    const int theirs = from->plan->values[sent].piece;
    const bool tied = a->plan->values[value].kind == RF_VALUE_GRAD_TIED;
    struct rf_token *t = &a->tokens[value];
    if (logical_of(a->plan, piece) < 0 ||
        logical_of(a->plan, piece) != logical_of(from->plan, theirs) ||
        tied != is_home(a->plan, piece) || tied == is_home(from->plan, theirs))
        return rf_check_fail(a->plan, a->i, "receives gradients of another parameter");
    if (tied ? a->plan->values[value].slot != from->plan->pp_rank : t->homes != -1)
        return rf_check_fail(a->plan, a->i, "receives gradients that it has not asked for");
    t->read = true;
    rf_token_put(a, value, RF_TOKEN_TOTAL);
    t->ties = uses_of(a->plan, piece);
    t->homes = others_of(a->plan, piece);
    t->normed = t->summed = false;
    return 0;
}

/* Adds gradients from another rank. */
static int tie_shared(const struct rf_at *a, int sum, int more)
{
    const int piece = a->plan->values[sum].piece;
    if (a->plan->values[sum].kind != RF_VALUE_GRAD_SHARD || a->plan->values[more].piece != piece)
        return rf_check_fail(a->plan, a->i, "adds gradients of another parameter");
    rf_token_use_all(a);
    RETURN_IF_ERROR(make_total(a, sum));
    RETURN_IF_ERROR(rf_token_demand(a, more, RF_TOKEN_TOTAL));
    if (a->tokens[sum].ties != uses_of(a->plan, piece))
        return rf_check_fail(a->plan, a->i, "adds before this rank's own uses are added");
    a->tokens[sum].homes++;
    a->tokens[more].state = RF_TOKEN_NOTHING;
    return 0;
}

int rf_meaning_tie(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const int *operands = plan->operands + a->i->first_operand;
    if (a->i->ins != 2 || a->i->outs != 1 || operands[0] != operands[2])
        return rf_check_fail(plan, a->i, "does not add in place");
    if (plan->values[operands[1]].kind == RF_VALUE_GRAD_TIED)
        return tie_shared(a, operands[0], operands[1]);
    RETURN_IF_ERROR(rf_token_check_gradients(a, RF_VALUE_GRAD_SHARD));
    const int use = plan->pieces[plan->values[operands[1]].piece].use;
    if (use < 0 ||
        plan->params[plan->params[use].owner].grad_piece != plan->values[operands[0]].piece)
        return rf_check_fail(plan, a->i, "adds gradients that are not tied");
    RETURN_IF_ERROR(make_total(a, operands[0]));
    RETURN_IF_ERROR(make_total(a, operands[1]));
    a->tokens[operands[0]].ties++;
    a->tokens[operands[1]].state = RF_TOKEN_NOTHING;
    return 0;
}

int rf_meaning_tensor_sum(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, a->i);
    const int *operands = plan->operands + a->i->first_operand;
    if (a->i->ins != 1 || a->i->outs != 1 || operands[0] != operands[1] ||
        plan->values[operands[0]].kind != RF_VALUE_GRAD_SHARD)
        return rf_check_fail(plan, a->i, "does not add in place");
    const int piece = plan->values[operands[0]].piece;
    struct rf_token *sum = &a->tokens[operands[0]];
    if (t->op != RF_COLL_ALL_REDUCE || t->dtype != RF_F32 || t->order != RF_ORDER_RING ||
        t->counts || t->count != plan->pieces[piece].counts[plan->shard])
        return rf_check_fail(plan, a->i, "transfers %zu elements", t->count);
    rf_token_use_all(a);
    RETURN_IF_ERROR(make_total(a, operands[0]));
    if (!plan->pieces[piece].sums_tensor || sum->summed)
        return rf_check_fail(plan, a->i, "adds gradients that are equal on all tensor ranks");
    if (sum->ties != uses_of(plan, piece) || sum->homes != others_of(plan, piece) || sum->normed)
        return rf_check_fail(plan, a->i, "comes before all uses are added, or after the norm");
    sum->summed = true;
    return 0;
}

/* Checks that this rank's shard of a piece has the gradients of all micro-batches and uses. */
static int read_total(const struct rf_at *a, int piece, bool norm)
{
    char text[RF_CHECK_TEXT];
    const int value = rf_token_operand(a, false, RF_VALUE_GRAD_SHARD, -1, -1, piece);
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks the gradients of %s",
                             rf_check_piece(a->plan, a->i, piece, text));
    if (norm)
        RETURN_IF_ERROR(make_total(a, value));
    RETURN_IF_ERROR(rf_token_demand(a, value, RF_TOKEN_TOTAL));
    if (a->tokens[value].ties != uses_of(a->plan, piece) ||
        a->tokens[value].homes != others_of(a->plan, piece) || a->tokens[value].normed == norm)
        return rf_check_fail(a->plan, a->i, "%s lacks a tied use or the norm",
                             rf_check_piece(a->plan, a->i, piece, text));
    if (a->tokens[value].summed != a->plan->pieces[piece].sums_tensor)
        return rf_check_fail(a->plan, a->i, "%s was not added over the tensor ranks",
                             rf_check_piece(a->plan, a->i, piece, text));
    a->tokens[value].normed = true;
    return 0;
}

int rf_meaning_norm_lanes(const struct rf_plan *plan, enum rf_lane lanes[3])
{
    int count = 0;
    if (plan->shards > 1)
        lanes[count++] = plan->shard_lane;
    if (rf_plan_tensor_ranks(plan) > 1)
        lanes[count++] = RF_LANE_TENSOR;
    if (plan->mesh.pp > 1)
        lanes[count++] = RF_LANE_PIPELINE;
    return count;
}

/* The squares of a piece that is updated in the backward pass. */
int rf_meaning_squares(const struct rf_at *a)
{
    const int piece =
        a->i->ins > 0 ? a->plan->values[rf_plan_operands(a->plan, a->i)[0]].piece : -1;
    if (piece < 0 || !rf_plan_in_backward(a->plan))
        return rf_check_fail(a->plan, a->i, "adds the squares of no piece");
    RETURN_IF_ERROR(read_total(a, piece, true));
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_CHUNKS, -1, -1, RF_TOKEN_HELD));
    const int out = rf_token_operand(a, true, RF_VALUE_SQUARES, -1, -1, piece);
    if (out < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    rf_token_put(a, out, RF_TOKEN_HELD);
    return 0;
}

/* The squares of all pieces, or their gradients. */
static int read_squares(const struct rf_at *a)
{
    const bool squared = rf_plan_in_backward(a->plan);
    for (int piece = 0; piece < a->plan->trained_pieces; piece++)
        if (a->plan->pieces[piece].use < 0)
            RETURN_IF_ERROR(squared ? rf_token_demand(a,
                                                      rf_token_operand(a, false, RF_VALUE_SQUARES,
                                                                       -1, -1, piece),
                                                      RF_TOKEN_HELD)
                                    : read_total(a, piece, true));
    return squared ? 0 : rf_token_read(a, RF_VALUE_CHUNKS, -1, -1, RF_TOKEN_HELD);
}

int rf_meaning_norm_partial(const struct rf_at *a)
{
    RETURN_IF_ERROR(read_squares(a));
    RETURN_IF_ERROR(rf_token_write(a, RF_VALUE_SQUARES, -1, -1, RF_TOKEN_NOTHING));
    enum rf_lane lanes[3];
    const bool alone = rf_meaning_norm_lanes(a->plan, lanes) == 0;
    return rf_token_write(a, RF_VALUE_PARTIALS, -1, -1,
                          alone ? RF_TOKEN_HELD : RF_TOKEN_OWN_CHUNKS);
}

int rf_meaning_norm(const struct rf_at *a)
{
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_PARTIALS, -1, -1, RF_TOKEN_HELD));
    return rf_token_write(a, RF_VALUE_NORM, -1, -1, RF_TOKEN_HELD);
}

int rf_meaning_begin_step(const struct rf_at *a)
{
    if (rf_plan_in_backward(a->plan)) /* it sets the norm to 0, which is known at the end */
        RETURN_IF_ERROR(rf_token_write(a, RF_VALUE_NORM, -1, -1, RF_TOKEN_NOTHING));
    else
        RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_NORM, -1, -1, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_KNOWN));
    return rf_token_write(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_BEGUN);
}

/* The operand with this kind, slot and piece. */
static int operand_of_slot(const struct rf_at *a, bool out, enum rf_value_kind kind, int slot,
                           int piece)
{
    const int begin = out ? a->i->ins : 0, end = out ? a->i->ins + a->i->outs : a->i->ins;
    for (int k = begin; k < end; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct rf_value *v = &a->plan->values[value];
        if (!a->m->used[k] && v->kind == kind && v->slot == slot && v->piece == piece) {
            a->m->used[k] = true;
            return value;
        }
    }
    return -1;
}

/* before: the content that it reads; RF_TOKEN_NOTHING: it reads none. */
static int update(const struct rf_at *a, int piece, enum rf_value_kind kind, int slot,
                  enum rf_token_state before)
{
    char text[RF_CHECK_TEXT];
    const int value = operand_of_slot(a, true, kind, slot, piece);
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks results of %s",
                             rf_check_piece(a->plan, a->i, piece, text));
    if (before != RF_TOKEN_NOTHING)
        RETURN_IF_ERROR(rf_token_demand(a, operand_of_slot(a, false, kind, slot, piece), before));
    rf_token_put(a, value, RF_TOKEN_UPDATED);
    return 0;
}

/* block: of states on a disk, in the order of which a piece is updated; -1: all of the piece. */
static int update_piece(const struct rf_at *a, int piece, int block)
{
    const struct rf_plan *plan = a->plan;
    int *updates = &a->m->updates[plan->rank][piece]; /* of blocks */
    if (block >= 0 && *updates % rf_plan_disk_blocks(plan, piece) != block)
        return rf_check_fail(plan, a->i, "updates block %d before the one before it", block);
    const enum rf_value_kind states = block < 0 ? RF_VALUE_STATE : RF_VALUE_HOST_STATE;
    const int slot = block < 0 ? 0 : block * RF_STATE_STRIDE;
    RETURN_IF_ERROR(
        update(a, piece, rf_plan_stored(plan), -1, block > 0 ? RF_TOKEN_UPDATED : RF_TOKEN_HELD));
    for (int k = 0; k < RF_PLAN_STATES; k++)
        if (rf_plan_has_state(plan, k))
            RETURN_IF_ERROR(update(a, piece, states, slot + k, RF_TOKEN_HELD));
    ++*updates;
    if (rf_plan_step_copies(plan) && rf_plan_lags(plan))
        RETURN_IF_ERROR(update(a, piece, RF_VALUE_COPY, RF_SLOT_BEFORE, RF_TOKEN_NOTHING));
    if (rf_plan_step_copies(plan))
        return update(a, piece, RF_VALUE_COPY_SHARD, -1, RF_TOKEN_NOTHING);
    return 0;
}

/* The block of the states that are updated; -1: all states of the piece. */
static int block_of(const struct rf_at *a)
{
    for (int k = 0; k < a->i->ins; k++) {
        const struct rf_value *v = &a->plan->values[a->plan->operands[a->i->first_operand + k]];
        if (v->kind == RF_VALUE_HOST_STATE)
            return rf_block_of_slot(v->slot);
    }
    return -1;
}

/* Copies a block of a piece's states: all of them, with what is to come before the copy. */
static int copy_block(const struct rf_at *a, enum rf_value_kind from, enum rf_value_kind to,
                      enum rf_token_state state)
{
    const struct rf_plan *plan = a->plan;
    const struct rf_value *first =
        a->i->ins > 0 ? &plan->values[plan->operands[a->i->first_operand]] : NULL;
    if (!first || first->kind != from || !rf_plan_states_on_disk(plan))
        return rf_check_fail(plan, a->i, "copies no states");
    const int piece = first->piece, slot = first->slot - rf_state_of_slot(first->slot);
    for (int k = 0; k < RF_PLAN_STATES; k++) {
        if (!rf_plan_has_state(plan, k))
            continue;
        RETURN_IF_ERROR(
            rf_token_demand(a, operand_of_slot(a, false, from, slot + k, piece), state));
        const int out = operand_of_slot(a, true, to, slot + k, piece);
        if (out < 0)
            return rf_check_fail(plan, a->i, "lacks a result");
        rf_token_put(a, out, state);
    }
    return 0;
}

int rf_meaning_read(const struct rf_at *a)
{
    return copy_block(a, RF_VALUE_STATE, RF_VALUE_HOST_STATE, RF_TOKEN_HELD);
}

int rf_meaning_write(const struct rf_at *a)
{
    return copy_block(a, RF_VALUE_HOST_STATE, RF_VALUE_STATE, RF_TOKEN_UPDATED);
}

/* The table of places, if there is one. */
static int read_places(const struct rf_at *a)
{
    return a->plan->place_runs ? rf_token_read(a, RF_VALUE_PLACES, -1, -1, RF_TOKEN_HELD) : 0;
}

/* Updates all pieces whose states have the type of the first one's, or one. */
int rf_meaning_step(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const int first = a->i->ins > 0 ? plan->values[plan->operands[a->i->first_operand]].piece : -1;
    const bool alone = rf_plan_updates_pieces(plan);
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_DECAY, -1, -1, RF_TOKEN_HELD));
    RETURN_IF_ERROR(read_places(a));
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_BEGUN));
    for (int piece = 0; piece < plan->trained_pieces; piece++) {
        if (plan->pieces[piece].use >= 0 || (alone && piece != first) ||
            (first >= 0 && plan->pieces[piece].coded != plan->pieces[first].coded))
            continue;
        RETURN_IF_ERROR(read_total(a, piece, false));
        RETURN_IF_ERROR(update_piece(a, piece, -1));
    }
    return 0;
}

/* Updates one piece on the host. It reads the gradients that were copied to the host, if there are
 * any. */
int rf_meaning_host_step(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    const int piece = a->i->ins > 0 ? plan->values[plan->operands[a->i->first_operand]].piece : -1;
    if (piece < 0 || piece >= plan->trained_pieces ||
        !(plan->policy.offload & RF_OFFLOAD_OPTIMIZER))
        return rf_check_fail(plan, a->i, "updates a piece on the host that is not updated there");
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_DECAY, -1, -1, RF_TOKEN_HELD));
    RETURN_IF_ERROR(read_places(a));
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_BEGUN));
    if (rf_plan_evicts(plan))
        RETURN_IF_ERROR(rf_token_demand(
            a, rf_token_operand(a, false, RF_VALUE_HOST_GRAD, -1, -1, piece), RF_TOKEN_TOTAL));
    else
        RETURN_IF_ERROR(read_total(a, piece, false));
    return update_piece(a, piece, block_of(a));
}

/* Copies a gradient with all its tied uses. */
int rf_meaning_evict(const struct rf_at *a)
{
    if (rf_meaning_is_spill(a))
        return rf_meaning_spill(a);
    char text[RF_CHECK_TEXT];
    const int shard = rf_token_operand(a, false, RF_VALUE_GRAD_SHARD, -1, -1, -1);
    if (shard < 0)
        return rf_check_fail(a->plan, a->i, "lacks an operand");
    const int piece = a->plan->values[shard].piece;
    RETURN_IF_ERROR(make_total(a, shard));
    if (a->tokens[shard].ties != uses_of(a->plan, piece) ||
        a->tokens[shard].homes != others_of(a->plan, piece))
        return rf_check_fail(a->plan, a->i, "%s lacks a tied use",
                             rf_check_piece(a->plan, a->i, piece, text));
    const int out = rf_token_operand(a, true, RF_VALUE_HOST_GRAD, -1, -1, piece);
    if (out < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    rf_token_put(a, out, RF_TOKEN_TOTAL);
    return 0;
}

/* Fetches the parameters of one piece, in one form. */
int rf_meaning_fetch(const struct rf_at *a)
{
    if (rf_meaning_is_spill(a))
        return rf_meaning_spill(a);
    int shard = rf_token_operand(a, false, RF_VALUE_PARAM_SHARD, -1, -1, -1);
    const bool copy = shard < 0;
    if (copy)
        shard = rf_token_operand(a, false, RF_VALUE_COPY_SHARD, -1, -1, -1);
    RETURN_IF_ERROR(rf_token_demand(a, shard, RF_TOKEN_HELD));
    const int whole = rf_token_operand(a, true, copy ? RF_VALUE_COPY : RF_VALUE_PARAM, -1, -1,
                                       a->plan->values[shard].piece);
    if (whole < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    rf_token_put(a, whole, RF_TOKEN_HELD);
    return 0;
}

int rf_meaning_end_step(const struct rf_at *a)
{
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_BEGUN));
    return rf_token_write(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_SCALED);
}

/* Gradients change their type for the transfer, and back afterwards. Their content stays the same.
 */
static int cast_sum(const struct rf_at *a, int from, int to)
{
    const struct rf_value *values = a->plan->values;
    const bool whole = values[from].kind == RF_VALUE_GRAD;
    const bool narrows = whole || values[from].kind == RF_VALUE_GRAD_SHARD;
    struct rf_token *in = &a->tokens[from], *out = &a->tokens[to];
    const enum rf_value_kind narrow = whole || (!narrows && a->plan->shards == 1)
                                          ? RF_VALUE_GRAD_NARROW
                                          : RF_VALUE_GRAD_NARROW_SHARD;
    const bool wide =
        values[to].kind == RF_VALUE_GRAD_SHARD || values[to].kind == RF_VALUE_GRAD_PART;
    if (a->i->ins != 1 || a->i->outs != 1 || values[from].piece != values[to].piece ||
        (narrows ? values[to].kind != narrow : values[from].kind != narrow || !wide))
        return rf_check_fail(a->plan, a->i, "casts to gradients of another piece, or to none");
    if (in->state != RF_TOKEN_ZEROS && in->state != RF_TOKEN_SUM && in->state != RF_TOKEN_TOTAL)
        return rf_check_fail(a->plan, a->i, "casts gradients without a sum");
    rf_token_use_all(a);
    const struct rf_token before = *in;
    in->state = RF_TOKEN_NOTHING; /* a sum is used once */
    in->read = true;
    rf_token_put(a, to, before.state);
    uint8_t *counts = out->counts;
    memcpy(counts, before.counts, rf_token_count_bytes(a->plan));
    *out = before;
    out->counts = counts;
    out->read = false;
    return 0;
}

int rf_meaning_cast(const struct rf_at *a)
{
    const int *operands = a->plan->operands + a->i->first_operand;
    if (a->i->ins > 0 && a->i->outs > 0 && rf_token_is_sum(a->plan->values[operands[0]].kind) &&
        rf_token_is_sum(a->plan->values[operands[a->i->ins]].kind))
        return cast_sum(a, operands[0], operands[a->i->ins]);
    /* With random numbers of the update: rank 0's scalars determine them. */
    if (a->plan->policy.optimizer.stochastic_rounding)
        RETURN_IF_ERROR(
            rf_token_read(a, RF_VALUE_SCALARS, -1, -1,
                          a->plan->policy.loss_scale != 0 ? RF_TOKEN_SCALED : RF_TOKEN_BEGUN));
    RETURN_IF_ERROR(read_places(a));
    for (int piece = 0; piece < a->plan->trained_pieces; piece++) {
        if (a->plan->pieces[piece].use >= 0)
            continue;
        RETURN_IF_ERROR(rf_token_demand(
            a, rf_token_operand(a, false, RF_VALUE_PARAM, -1, -1, piece), RF_TOKEN_UPDATED));
        const int copy = rf_token_operand(a, true, RF_VALUE_COPY, -1, -1, piece);
        if (copy < 0)
            return rf_check_fail(a->plan, a->i, "lacks a result");
        rf_token_put(a, copy, RF_TOKEN_UPDATED);
    }
    return 0;
}
