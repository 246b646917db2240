/* SPDX-License-Identifier: MIT
 *
 * The content of every value on every rank, and the operands of the current instruction: see
 * meaning.h.
 */
#include "meaning.h"

#include "../../base/base.h"

size_t rf_token_count_bytes(const struct rf_plan *plan)
{
    return (size_t)plan->block_count * (size_t)plan->policy.micro_batches * 2;
}

int rf_meaning_open(const struct rf_plan *const *plans, int ranks, struct rf_meaning **out)
{
    struct rf_meaning *m = *out = rf_alloc(sizeof(*m));
    if (!m)
        return rf_fail(RF_ENOMEM, "check: out of memory");
    m->plans = plans;
    m->tokens = rf_alloc((size_t)ranks * sizeof(*m->tokens));
    m->updates = rf_alloc((size_t)ranks * sizeof(*m->updates));
    m->sum = rf_alloc(rf_token_count_bytes(plans[0]));
    if (!m->tokens || !m->updates || !m->sum)
        return rf_fail(RF_ENOMEM, "check: out of memory");
    for (m->ranks = 0; m->ranks < ranks; m->ranks++) {
        const struct rf_plan *plan = plans[m->ranks];
        struct rf_token *tokens = m->tokens[m->ranks] =
            rf_alloc(((size_t)plan->value_count + 1) * sizeof(*tokens));
        m->updates[m->ranks] = rf_alloc(((size_t)plan->piece_count + 1) * sizeof(int));
        if (!tokens || !m->updates[m->ranks])
            return rf_fail(RF_ENOMEM, "check: out of memory");
        for (int v = 0; v < plan->value_count; v++) {
            const enum rf_value_kind kind = plan->values[v].kind;
            if (rf_value_is_temporary(plan, kind))
                ;
            else if (kind == RF_VALUE_PARAM || kind == RF_VALUE_PARAM_SHARD ||
                     kind == RF_VALUE_COPY || kind == RF_VALUE_COPY_SHARD ||
                     kind == RF_VALUE_STATE || kind == RF_VALUE_CHUNKS || kind == RF_VALUE_DECAY ||
                     kind == RF_VALUE_PLACES)
                tokens[v].state = RF_TOKEN_HELD;
            const bool sum = rf_token_is_sum(kind);
            if (sum)
                tokens[v].counts = rf_alloc(rf_token_count_bytes(plan));
            if (sum && !tokens[v].counts)
                return rf_fail(RF_ENOMEM, "check: out of memory");
        }
    }
    return 0;
}

void rf_meaning_close(struct rf_meaning *m)
{
    if (!m)
        return;
    for (int rank = 0; m->tokens && rank < m->ranks; rank++) {
        for (int v = 0; m->tokens[rank] && v < m->plans[rank]->value_count; v++)
            rf_free(m->tokens[rank][v].counts);
        rf_free(m->tokens[rank]);
    }
    for (int rank = 0; m->updates && rank < m->ranks; rank++)
        rf_free(m->updates[rank]);
    rf_free(m->updates);
    rf_free(m->tokens);
    rf_free(m->sum);
    rf_free(m->used);
    rf_free(m);
}

static bool overlap(const struct rf_value *a, const struct rf_value *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

bool rf_token_is_sum(enum rf_value_kind kind)
{
    return kind == RF_VALUE_GRAD || kind == RF_VALUE_GRAD_SHARD || kind == RF_VALUE_GRAD_PART ||
           kind == RF_VALUE_GRAD_NARROW || kind == RF_VALUE_GRAD_NARROW_SHARD;
}

bool rf_token_is_param(enum rf_value_kind kind)
{
    return kind == RF_VALUE_PARAM || kind == RF_VALUE_PARAM_SHARD || kind == RF_VALUE_COPY ||
           kind == RF_VALUE_COPY_SHARD;
}

/* All values except intermediate ones, those for the host, and parameters: blocks read one of their
 * two forms, and all pieces have both. Ranks have all inputs, and without a flush new inputs arrive
 * before the end. */
static bool must_be_read(const struct rf_plan *plan, const struct rf_value *value)
{
    const enum rf_value_kind kind = value->kind;
    const bool input = kind == RF_VALUE_TOKENS || kind == RF_VALUE_TARGETS;
    return !plan->policy.forward_only && !(input && rf_plan_lags(plan)) &&
           !value->may_stay_unread && kind != RF_VALUE_SCRATCH && kind != RF_VALUE_WORKSPACE &&
           kind != RF_VALUE_SQUARES && kind != RF_VALUE_LOSSES && kind != RF_VALUE_SCALARS &&
           !rf_token_is_param(kind);
}

/* Whether a value of parameters is inside another one: a shard inside its piece, or a piece inside
 * its only shard. */
static bool within(const struct rf_value *part, const struct rf_value *whole)
{
    return part->region == whole->region && part->piece == whole->piece &&
           part->offset >= whole->offset &&
           part->offset + part->bytes <= whole->offset + whole->bytes;
}

static void lose(const struct rf_at *a, int value)
{
    struct rf_token *t = &a->tokens[value];
    if (t->state != RF_TOKEN_NOTHING && !t->read && must_be_read(a->plan, &a->plan->values[value]))
        a->m->unread = value;
    t->state = RF_TOKEN_NOTHING;
}

void rf_token_put(const struct rf_at *a, int value, enum rf_token_state state)
{
    const struct rf_value *v = &a->plan->values[value];
    for (int other = 0; other < a->plan->value_count; other++)
        if (other == value || overlap(v, &a->plan->values[other]))
            lose(a, other);
    for (int other = 0; other < a->plan->value_count; other++)
        if (other == value ||
            (rf_token_is_param(v->kind) && rf_token_is_param(a->plan->values[other].kind) &&
             within(&a->plan->values[other], v))) {
            a->tokens[other].state = state;
            a->tokens[other].read = a->tokens[other].gathered = false;
        }
}

/* Checks that an instruction has exactly the operands that it needs, each once. */
int rf_token_begin_operands(const struct rf_at *a)
{
    struct rf_meaning *m = a->m;
    const int count = a->i->ins + a->i->outs;
    if (count > m->used_capacity) {
        bool *grown = rf_realloc(m->used, (size_t)count * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "check: out of memory");
        m->used = grown;
        m->used_capacity = count;
    }
    for (int k = 0; k < count; k++)
        m->used[k] = false;
    m->unread = -1;
    return 0;
}

int rf_token_end_operands(const struct rf_at *a)
{
    char text[RF_CHECK_TEXT];
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        if (!a->m->used[k])
            return rf_check_fail(a->plan, a->i, "has an operand %d that it does not use", k);
    if (a->m->unread >= 0)
        return rf_check_fail(a->plan, a->i, "overwrites %s, which was not read",
                             rf_check_value(a->plan, a->i, a->m->unread, text));
    return 0;
}

void rf_token_use_all(const struct rf_at *a)
{
    for (int k = 0; k < a->i->ins + a->i->outs; k++)
        a->m->used[k] = true;
}

/* The operand with this key (-1: any) that was not used yet; -1: none. */
int rf_token_operand(const struct rf_at *a, bool out, enum rf_value_kind kind, int block,
                     int micro_batch, int piece)
{
    const int begin = out ? a->i->ins : 0, end = out ? a->i->ins + a->i->outs : a->i->ins;
    for (int k = begin; k < end; k++) {
        const int value = a->plan->operands[a->i->first_operand + k];
        const struct rf_value *v = &a->plan->values[value];
        if (!a->m->used[k] && v->kind == kind && (block < 0 || v->block == block) &&
            (micro_batch < 0 || v->micro_batch == micro_batch) &&
            (piece < 0 || v->piece == piece)) {
            a->m->used[k] = true;
            return value;
        }
    }
    return -1;
}

int rf_token_demand(const struct rf_at *a, int value, enum rf_token_state state)
{
    char text[RF_CHECK_TEXT];
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks an operand");
    if (a->tokens[value].state != state)
        return rf_check_fail(a->plan, a->i, "finds in %s not what it needs (%d, not %d)",
                             rf_check_value(a->plan, a->i, value, text),
                             (int)a->tokens[value].state, (int)state);
    a->tokens[value].read = true;
    return 0;
}

int rf_token_read(const struct rf_at *a, enum rf_value_kind kind, int block, int micro_batch,
                  enum rf_token_state state)
{
    return rf_token_demand(a, rf_token_operand(a, false, kind, block, micro_batch, -1), state);
}

int rf_token_write(const struct rf_at *a, enum rf_value_kind kind, int block, int micro_batch,
                   enum rf_token_state state)
{
    int value = rf_token_operand(a, true, kind, block, micro_batch, -1);
    if (value < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    rf_token_put(a, value, state);
    return 0;
}
