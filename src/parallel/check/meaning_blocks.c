/* SPDX-License-Identifier: MIT
 *
 * Effects of the calls of blocks, and of sums of gradients. A sum records the micro-batches of each
 * block that it includes, for both halves: each must be included exactly once. In tree order the
 * shape of the sum is checked, too.
 */
#include "meaning.h"

#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/frozen.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

static int read_params(const struct rf_at *a)
{
    const struct rf_plan *plan = a->plan;
    for (int k = 0; k < plan->blocks[a->i->block].param_count; k++) {
        const struct rf_plan_param *p = &plan->params[plan->first_param[a->i->block] + k];
        const enum rf_value_kind kind = rf_plan_narrow(p) ? RF_VALUE_COPY : RF_VALUE_PARAM;
        bool before = false;
        for (int other = 0; other < k && !before; other++)
            before = p[other - k].piece == p->piece &&
                     rf_plan_narrow(&p[other - k]) == rf_plan_narrow(p);
        if (before)
            continue;
        int value = rf_token_operand(a, false, kind, -1, -1, p->piece);
        if (value < 0 && kind == RF_VALUE_PARAM && rf_plan_lags(plan))
            value = rf_token_operand(a, false, RF_VALUE_STATE, -1, -1, p->piece);
        RETURN_IF_ERROR(rf_token_demand(a, value, RF_TOKEN_HELD));
        RETURN_IF_ERROR(rf_lag_check_version(a, value));
    }
    return 0;
}

/* The seed is there from the beginning. In the backward pass the update may have begun. */
static int read_scalars(const struct rf_at *a)
{
    const int value = rf_token_operand(a, false, RF_VALUE_SCALARS, -1, -1, -1);
    const bool begun = value >= 0 && rf_plan_in_backward(a->plan) &&
                       a->i->verb != RF_VERB_FORWARD && a->tokens[value].state == RF_TOKEN_BEGUN;
    return rf_token_demand(a, value, begun ? RF_TOKEN_BEGUN : RF_TOKEN_HELD);
}

static int begin_block(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    const int from = i->verb == RF_VERB_INVERT ? i->block : i->block - 1;
    const int local = i->micro_batch < 0 ? -1 : rf_plan_local(a->plan, i->micro_batch);
    if (i->block < 0 || i->micro_batch < 0 || local < 0 || local >= a->plan->local_micro_batches ||
        rf_plan_micro_batch(a->plan, local) != i->micro_batch)
        return rf_check_fail(a->plan, i, "calls a block of another rank");
    RETURN_IF_ERROR(from < 0 ? rf_token_read(a, RF_VALUE_TOKENS, -1, i->micro_batch, RF_TOKEN_HELD)
                             : rf_token_read(a, RF_VALUE_OUT, from, i->micro_batch, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_TARGETS, -1, i->micro_batch, RF_TOKEN_HELD));
    if (!a->plan->policy.forward_only)
        RETURN_IF_ERROR(read_scalars(a));
    return read_params(a);
}

static bool is_last(const struct rf_at *a)
{
    return a->i->block + 1 == a->plan->block_count;
}

static int end_block(const struct rf_at *a)
{
    RETURN_IF_ERROR(rf_token_write(a, RF_VALUE_SCRATCH, -1, -1, RF_TOKEN_HELD));
    return rf_token_write(a, RF_VALUE_WORKSPACE, -1, -1, RF_TOKEN_HELD);
}

int rf_meaning_forward(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    RETURN_IF_ERROR(begin_block(a));
    RETURN_IF_ERROR(rf_phase_value(a, RF_VALUE_OUT, i->block, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_phase_value(a, RF_VALUE_SAVED, i->block, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    if (is_last(a) && i->verb == RF_VERB_RECOMPUTE)
        return rf_check_fail(a->plan, i, "would overwrite its gradient");
    if (is_last(a))
        RETURN_IF_ERROR(rf_phase_value(a, RF_VALUE_LOSSES, -1, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_phase_exchanges(a));
    return end_block(a);
}

int rf_meaning_invert(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    if (!rf_plan_inverts(a->plan, i->block))
        return rf_check_fail(a->plan, i, "inverts a block that is not reversible");
    RETURN_IF_ERROR(begin_block(a));
    RETURN_IF_ERROR(rf_phase_value(a, RF_VALUE_OUT, i->block - 1, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_phase_value(a, RF_VALUE_SAVED, i->block, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    RETURN_IF_ERROR(rf_phase_exchanges(a));
    return end_block(a);
}

uint8_t *rf_token_count_of(const struct rf_at *a, struct rf_token *t, int block, int micro_batch,
                           int half)
{
    return &t->counts[((size_t)block * (size_t)a->plan->policy.micro_batches +
                       (size_t)micro_batch) *
                          2 +
                      (size_t)half];
}

/* Whether a sum includes another micro-batch of this block. */
static bool has_others(const struct rf_at *a, struct rf_token *t)
{
    for (int m = 0; m < a->plan->policy.micro_batches; m++)
        for (int half = 0; half < 2; half++)
            if (m != a->i->micro_batch && *rf_token_count_of(a, t, a->i->block, m, half))
                return true;
    return false;
}

static int add_leaf(const struct rf_at *a, int value, int half)
{
    struct rf_token *t = &a->tokens[value];
    const int m = a->i->micro_batch;
    const bool tree = a->plan->policy.order == RF_ORDER_TREE;
    if (t->state == RF_TOKEN_CLEARED) {
        t->state = RF_TOKEN_SUM;
        t->read = true;
        t->low = m;
        t->high = m + 1;
    }
    if (m >= t->high)
        t->high = m + 1;
    if (m < t->low || ((tree || a->plan->stage >= 2) && t->high - t->low > 1))
        return rf_check_fail(a->plan, a->i, "adds to the sum of micro-batches %d to %d", t->low,
                             t->high - 1);
    if ((*rf_token_count_of(a, t, a->i->block, m, half))++)
        return rf_check_fail(a->plan, a->i, "adds the same gradient twice");
    return 0;
}

/* A gradient that the call does not read is overwritten by the block if it declares that, so the
 * sum must not include anything yet; and vice versa. */
static int add_gradients(const struct rf_at *a, int half)
{
    char text[RF_CHECK_TEXT];
    const struct rf_plan *plan = a->plan;
    const int first = plan->first_param[a->i->block];
    for (int k = 0; k < plan->blocks[a->i->block].param_count; k++) {
        const int piece = plan->params[first + k].grad_piece;
        bool before = piece < 0;
        for (int other = 0; other < k && !before; other++)
            before = plan->params[first + other].grad_piece == piece;
        if (before)
            continue;
        const int out = rf_token_operand(a, true, RF_VALUE_GRAD, -1, -1, piece);
        const int in = rf_token_operand(a, false, RF_VALUE_GRAD, -1, -1, piece);
        if (out < 0 || (in >= 0 && in != out))
            return rf_check_fail(plan, a->i, "lacks gradients of %s",
                                 rf_check_piece(plan, a->i, piece, text));
        if (has_others(a, &a->tokens[out]) != (in >= 0))
            return rf_check_fail(plan, a->i,
                                 in < 0 ? "overwrites earlier gradients"
                                        : "adds to gradients that were not cleared");
        if (a->tokens[out].state != RF_TOKEN_CLEARED && a->tokens[out].state != RF_TOKEN_SUM)
            return rf_check_fail(plan, a->i, "adds to gradients without a sum");
        if (rf_plan_ends_call(plan, a->i))
            RETURN_IF_ERROR(add_leaf(a, out, half));
    }
    return 0;
}

int rf_meaning_backward(const struct rf_at *a)
{
    const struct rf_instruction *i = a->i;
    const int b = i->block, m = i->micro_batch, half = i->verb == RF_VERB_BACKWARD_WEIGHT;
    const enum rf_value_kind dout = is_last(a) ? RF_VALUE_OUT : RF_VALUE_DOUT;
    RETURN_IF_ERROR(begin_block(a));
    const int saved = rf_token_operand(a, false, RF_VALUE_SAVED, b, m, -1);
    RETURN_IF_ERROR(rf_token_demand(a, saved, RF_TOKEN_HELD));
    if (rf_plan_inverts(a->plan, b) && a->tokens[saved].call != RF_VERB_INVERT)
        return rf_check_fail(a->plan, i, "uses what the forward pass left, and not the inverse's");
    if (half) {
        RETURN_IF_ERROR(rf_token_read(a, dout, b, m, RF_TOKEN_CARRIED));
        RETURN_IF_ERROR(rf_token_read(a, RF_VALUE_SAVED_FOR_WEIGHT, b, m, RF_TOKEN_HELD));
    } else {
        RETURN_IF_ERROR(rf_phase_value(a, dout, b, RF_TOKEN_HELD, RF_TOKEN_CARRIED));
        if (b > 0)
            RETURN_IF_ERROR(
                rf_phase_value(a, RF_VALUE_DOUT, b - 1, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
        RETURN_IF_ERROR(
            rf_phase_value(a, RF_VALUE_SAVED_FOR_WEIGHT, b, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
        if (is_last(a))
            RETURN_IF_ERROR(
                rf_phase_value(a, RF_VALUE_LOSSES, -1, RF_TOKEN_NOTHING, RF_TOKEN_HELD));
    }
    RETURN_IF_ERROR(rf_phase_exchanges(a));
    RETURN_IF_ERROR(add_gradients(a, half));
    return end_block(a);
}

/* Checks that all operands are gradients. */
int rf_token_check_gradients(const struct rf_at *a, enum rf_value_kind kind)
{
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        if (a->plan->values[a->plan->operands[a->i->first_operand + k]].kind != kind)
            return rf_check_fail(a->plan, a->i, "operand %d is not a gradient", k);
    rf_token_use_all(a);
    return 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static int clear(const struct rf_at *a, enum rf_token_state state)
{
    RETURN_IF_ERROR(rf_token_check_gradients(a, RF_VALUE_GRAD));
    for (int k = 0; k < a->i->outs; k++) {
        const int value = a->plan->operands[a->i->first_operand + a->i->ins + k];
        rf_token_put(a, value, state);
        memset(a->tokens[value].counts, 0, rf_token_count_bytes(a->plan));
    }
    return 0;
}

int rf_meaning_zero(const struct rf_at *a)
{
    return clear(a, RF_TOKEN_CLEARED);
}

int rf_meaning_zero_whole(const struct rf_at *a)
{
    return clear(a, RF_TOKEN_ZEROS);
}

/* Checks that a piece's sum has both halves of all its micro-batches, for every block with a part
 * of the piece. */
int rf_token_check_whole(const struct rf_at *a, int value)
{
    const struct rf_plan *plan = a->plan;
    struct rf_token *t = &a->tokens[value];
    RETURN_IF_ERROR(rf_token_demand(a, value, RF_TOKEN_SUM));
    for (int k = 0; k < plan->param_count; k++)
        for (int m = t->low; m < t->high; m++)
            for (int half = 0; half < 2; half++)
                if (plan->params[k].grad_piece == plan->values[value].piece &&
                    *rf_token_count_of(a, t, plan->params[k].block, m, half) != 1)
                    return rf_check_fail(plan, a->i, "the sum lacks micro-batch %d of block %d", m,
                                         plan->params[k].block);
    return 0;
}

/* Whether these are siblings in the tree over all micro-batches. Its right edge may be cut off. */
static bool siblings(const struct rf_plan *plan, const struct rf_token *left,
                     const struct rf_token *right)
{
    const int64_t width = left->high - left->low, count = right->high - right->low;
    return left->high == right->low && (width & (width - 1)) == 0 && left->low % (2 * width) == 0 &&
           count <= width && (count == width || right->high == plan->policy.micro_batches);
}

static int merge_one(const struct rf_at *a, int left, int right)
{
    struct rf_token *l = &a->tokens[left], *r = &a->tokens[right];
    RETURN_IF_ERROR(rf_token_check_whole(a, left));
    RETURN_IF_ERROR(rf_token_check_whole(a, right));
    if (a->plan->values[left].piece != a->plan->values[right].piece || !siblings(a->plan, l, r))
        return rf_check_fail(a->plan, a->i, "adds micro-batches %d to %d and %d to %d", l->low,
                             l->high - 1, r->low, r->high - 1);
    for (size_t k = 0; k < rf_token_count_bytes(a->plan); k++)
        l->counts[k] = (uint8_t)(l->counts[k] + r->counts[k]);
    l->high = r->high;
    r->state = RF_TOKEN_NOTHING; /* a sum is used once */
    return 0;
}

/* The addition of a round's sum to a shard. */
static int merge_round(const struct rf_at *a, int shard, int part)
{
    struct rf_token *sum = &a->tokens[shard], *more = &a->tokens[part];
    if (a->plan->values[shard].kind != RF_VALUE_GRAD_SHARD ||
        a->plan->values[shard].piece != a->plan->values[part].piece)
        return rf_check_fail(a->plan, a->i, "adds to another piece");
    rf_token_use_all(a);
    RETURN_IF_ERROR(rf_token_demand(a, shard, RF_TOKEN_SUM));
    RETURN_IF_ERROR(rf_token_demand(a, part, RF_TOKEN_SUM));
    for (size_t k = 0; k < rf_token_count_bytes(a->plan); k++)
        sum->counts[k] = (uint8_t)(sum->counts[k] + more->counts[k]);
    more->state = RF_TOKEN_NOTHING;
    return rf_token_complete(a, shard);
}

int rf_token_complete(const struct rf_at *a, int value)
{
    const struct rf_plan *plan = a->plan;
    struct rf_token *t = &a->tokens[value];
    bool all = true;
    for (int k = 0; k < plan->param_count; k++)
        for (int m = 0; m < plan->policy.micro_batches; m++)
            for (int half = 0; half < 2; half++) {
                if (plan->params[k].grad_piece != plan->values[value].piece)
                    continue;
                const int times = *rf_token_count_of(a, t, plan->params[k].block, m, half);
                if (times > 1)
                    return rf_check_fail(plan, a->i, "adds micro-batch %d of block %d twice", m,
                                         plan->params[k].block);
                all &= times == 1;
            }
    t->state = all ? RF_TOKEN_TOTAL : RF_TOKEN_SUM;
    t->ties = t->homes = 0;
    t->normed = t->summed = false;
    return 0;
}

int rf_meaning_merge(const struct rf_at *a)
{
    const int *operands = a->plan->operands + a->i->first_operand;
    const int n = a->i->outs;
    if (n < 1 || a->i->ins != 2 * n)
        return rf_check_fail(a->plan, a->i, "has %d operands", a->i->ins);
    if (n == 1 && operands[0] == operands[2] &&
        a->plan->values[operands[1]].kind == RF_VALUE_GRAD_PART)
        return merge_round(a, operands[0], operands[1]);
    RETURN_IF_ERROR(rf_token_check_gradients(a, RF_VALUE_GRAD));
    for (int k = 0; k < n; k++) {
        if (operands[k] != operands[2 * n + k])
            return rf_check_fail(a->plan, a->i, "does not add in place");
        RETURN_IF_ERROR(merge_one(a, operands[k], operands[n + k]));
    }
    return 0;
}
