/* SPDX-License-Identifier: MIT
 *
 * The step that a value belongs to, and the version of the weights. Pipelines without a flush (2bw)
 * have two of each; in other pipelines everything belongs to one step.
 */
#include "meaning.h"

#include "../../base/base.h"

int rf_lag_step(const struct rf_at *a)
{
    return a->m->begun - a->i->behind;
}

/* Whether a kind of values belongs to a step: inputs, activations, and the scalars that blocks
 * read. */
static bool is_of_step(const struct rf_value *v)
{
    return v->micro_batch >= 0 || (v->kind == RF_VALUE_SCALARS && v->slot > 0);
}

int rf_lag_check_steps(const struct rf_at *a)
{
    char text[RF_CHECK_TEXT];
    const int *operands = a->plan->operands + a->i->first_operand;
    for (int k = 0; a->i->verb != RF_VERB_LOAD && k < a->i->ins; k++) {
        const struct rf_token *t = &a->tokens[operands[k]];
        if (is_of_step(&a->plan->values[operands[k]]) && t->state != RF_TOKEN_NOTHING &&
            t->step != rf_lag_step(a))
            return rf_check_fail(a->plan, a->i, "finds %s of another step",
                                 rf_check_value(a->plan, a->i, operands[k], text));
    }
    return 0;
}

void rf_lag_mark_steps(const struct rf_at *a)
{
    const int *outs = a->plan->operands + a->i->first_operand + a->i->ins;
    for (int k = 0; a->i->verb != RF_VERB_LOAD && k < a->i->outs; k++)
        if (is_of_step(&a->plan->values[outs[k]]))
            a->tokens[outs[k]].step = rf_lag_step(a);
}

/* ---- versions -------------------------------------------------------------------------------- */

/* The number of updates of this value of parameters. */
static int version_of(const struct rf_at *a, const struct rf_value *v)
{
    const int updates = a->m->updates[a->plan->rank][v->piece];
    const bool before = v->kind == RF_VALUE_STATE || v->slot == RF_SLOT_BEFORE;
    return before && updates > 0 ? updates - 1 : updates;
}

int rf_lag_check_version(const struct rf_at *a, int value)
{
    const struct rf_value *v = &a->plan->values[value];
    const int step = rf_lag_step(a), wanted = step > 0 ? step - 1 : 0;
    if (!rf_plan_lags(a->plan) || !a->plan->pieces[v->piece].trained)
        return 0;
    if (v->kind == RF_VALUE_STATE && v->slot != RF_STATE_BEFORE)
        return rf_check_fail(a->plan, a->i, "uses a state of the optimizer as parameters");
    const int version = version_of(a, v);
    if (version == wanted)
        return 0;
    if (a->i->verb == RF_VERB_FORWARD)
        return rf_check_fail(a->plan, a->i,
                             "sees version %d of the weights: in step %d it must be version %d, "
                             "one update behind the newest",
                             version, step, wanted);
    return rf_check_fail(a->plan, a->i,
                         "sees version %d of the weights, but its forward pass saw version %d",
                         version, wanted);
}
