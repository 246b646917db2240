/* SPDX-License-Identifier: MIT
 *
 * Effects of verbs in pipelines without a flush (2bw): the values that one list leaves to the next,
 * and the sums that are held until the update of their step.
 */
#include "meaning.h"

#include "../../base/base.h"

/* ---- values left to the next list ------------------------------------------------------------ */

/* The operand index of a value that was not requested yet; -1: none. */
static int place_of(const struct rf_at *a, bool out, enum rf_value_kind kind, int micro_batch,
                    int slot)
{
    const int begin = out ? a->i->ins : 0, end = out ? a->i->ins + a->i->outs : a->i->ins;
    for (int k = begin; k < end; k++) {
        const struct rf_value *v = &a->plan->values[a->plan->operands[a->i->first_operand + k]];
        if (a->m->used[k] || v->kind != kind || v->micro_batch != micro_batch || v->slot != slot)
            continue;
        a->m->used[k] = true;
        return k;
    }
    return -1;
}

static int write_slot(const struct rf_at *a, enum rf_value_kind kind, int micro_batch, int slot)
{
    const int k = place_of(a, true, kind, micro_batch, slot);
    if (k < 0)
        return rf_check_fail(a->plan, a->i, "lacks a result");
    const int value = a->plan->operands[a->i->first_operand + k];
    rf_token_put(a, value, RF_TOKEN_HELD);
    a->tokens[value].step = a->m->begun;
    return 0;
}

/* Copies from one slot to another. Operands are copied in order. */
static int keep(const struct rf_at *a, enum rf_value_kind kind, int micro_batch, int from, int to)
{
    const int in = place_of(a, false, kind, micro_batch, from);
    const int out = place_of(a, true, kind, micro_batch, to);
    if (in < 0 || out != a->i->ins + in)
        return rf_check_fail(a->plan, a->i, "does not keep what the previous step needs");
    const int *operands = a->plan->operands + a->i->first_operand;
    RETURN_IF_ERROR(rf_token_demand(a, operands[in], RF_TOKEN_HELD));
    if (a->tokens[operands[in]].step != a->m->begun - 1)
        return rf_check_fail(a->plan, a->i, "keeps a value of another step");
    rf_token_put(a, operands[out], RF_TOKEN_HELD);
    a->tokens[operands[out]].step = a->m->begun - 1;
    a->tokens[operands[in]].state = RF_TOKEN_NOTHING;
    return 0;
}

/* Copies all micro-batches of the step in progress. */
static int keep_all(const struct rf_at *a)
{
    static const enum rf_value_kind kinds[] = {RF_VALUE_TOKENS, RF_VALUE_TARGETS, RF_VALUE_LOSSES};
    const int count = rf_plan_has_losses(a->plan) ? 3 : 2;
    for (int local = 0; local < a->plan->local_micro_batches; local++)
        for (int k = 0; k < count; k++)
            RETURN_IF_ERROR(
                keep(a, kinds[k], rf_plan_micro_batch(a->plan, local), -1, RF_SLOT_BEFORE));
    return keep(a, RF_VALUE_SCALARS, -1, RF_SCALARS_NOW, RF_SCALARS_BEFORE);
}

int rf_lag_load(const struct rf_at *a)
{
    if (a->m->list != RF_LIST_FILL) {
        RETURN_IF_ERROR(keep_all(a));
        RETURN_IF_ERROR(write_slot(a, RF_VALUE_SCALARS, -1, -1));
    }
    if (a->m->list == RF_LIST_DRAIN)
        return 0;
    for (int local = 0; local < a->plan->local_micro_batches; local++) {
        const int m = rf_plan_micro_batch(a->plan, local);
        RETURN_IF_ERROR(write_slot(a, RF_VALUE_TOKENS, m, -1));
        RETURN_IF_ERROR(write_slot(a, RF_VALUE_TARGETS, m, -1));
    }
    return write_slot(a, RF_VALUE_SCALARS, -1, RF_SCALARS_NOW);
}

/* Copies sums, each whole, to the slots from which they are reduced and updated. */
int rf_meaning_hold(const struct rf_at *a)
{
    const int *ins = a->plan->operands + a->i->first_operand, *outs = ins + a->i->ins;
    if (!rf_plan_lags(a->plan) || a->i->ins != a->i->outs || a->i->ins < 1)
        return rf_check_fail(a->plan, a->i, "has %d operands", a->i->ins);
    RETURN_IF_ERROR(rf_token_check_gradients(a, RF_VALUE_GRAD));
    for (int k = 0; k < a->i->ins; k++) {
        const struct rf_value *from = &a->plan->values[ins[k]], *to = &a->plan->values[outs[k]];
        struct rf_token *in = &a->tokens[ins[k]], *out = &a->tokens[outs[k]];
        if (from->piece != to->piece || to->slot != k || from->slot != a->i->ins + k)
            return rf_check_fail(a->plan, a->i, "holds a sum in the wrong slot");
        RETURN_IF_ERROR(rf_token_check_whole(a, ins[k]));
        rf_token_put(a, outs[k], RF_TOKEN_SUM);
        memcpy(out->counts, in->counts, rf_token_count_bytes(a->plan));
        out->low = in->low;
        out->high = in->high;
        in->state = RF_TOKEN_NOTHING; /* a sum is used once */
    }
    return 0;
}

void rf_meaning_next(struct rf_meaning *m)
{
    for (int rank = 0; rank < m->ranks; rank++)
        for (int v = 0; v < m->plans[rank]->value_count; v++)
            if (m->tokens[rank][v].state == RF_TOKEN_UPDATED)
                m->tokens[rank][v].state = RF_TOKEN_HELD;
    m->begun += m->list != RF_LIST_DRAIN;
}
