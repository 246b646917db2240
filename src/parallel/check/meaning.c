/* SPDX-License-Identifier: MIT
 *
 * The effects of verbs: dispatches each verb to its function in meaning*.c, and checks the state at
 * the end of a step.
 */
#include "meaning.h"

#include "../../base/base.h"

int rf_meaning_load(const struct rf_at *a)
{
    if (rf_plan_lags(a->plan))
        return rf_lag_load(a);
    for (int local = 0; local < a->plan->local_micro_batches; local++) {
        const int m = rf_plan_micro_batch(a->plan, local);
        RETURN_IF_ERROR(rf_token_write(a, RF_VALUE_TOKENS, -1, m, RF_TOKEN_HELD));
        RETURN_IF_ERROR(rf_token_write(a, RF_VALUE_TARGETS, -1, m, RF_TOKEN_HELD));
    }
    return a->plan->policy.forward_only
               ? 0
               : rf_token_write(a, RF_VALUE_SCALARS, -1, -1, RF_TOKEN_HELD);
}

#define CHECKER(verb, name, checker, work) [RF_VERB_##verb] = (checker),
static int (*const checkers[RF_VERB_COUNT])(const struct rf_at *) = {RF_VERBS(CHECKER)};
#undef CHECKER

int rf_meaning_run(struct rf_meaning *m, int rank, const struct rf_instruction *i)
{
    const struct rf_at a = {m, m->plans[rank], i, m->tokens[rank]};
    RETURN_IF_ERROR(rf_token_begin_operands(&a));
    RETURN_IF_ERROR(rf_lag_check_steps(&a));
    RETURN_IF_ERROR(checkers[i->verb](&a));
    rf_lag_mark_steps(&a);
    return rf_token_end_operands(&a);
}

void rf_meaning_begin(struct rf_meaning *m, enum rf_list_id list)
{
    m->list = list;
}

int rf_meaning_end(struct rf_meaning *m)
{
    char text[RF_CHECK_TEXT];
    if (m->list == RF_LIST_FILL) /* this list ends no step */
        return 0;
    for (int rank = 0; rank < m->ranks; rank++) {
        const struct rf_plan *plan = m->plans[rank];
        for (int k = 0; k < plan->value_count; k++) {
            const struct rf_value *v = &plan->values[k];
            const enum rf_token_state state = m->tokens[rank][k].state;
            const bool trained = v->piece >= 0 && plan->pieces[v->piece].trained;
            const bool kept = !rf_value_is_temporary(plan, v->kind) &&
                              (rf_token_is_param(v->kind) || v->kind == RF_VALUE_STATE);
            const enum rf_token_state scalars =
                plan->policy.loss_scale != 0 ? RF_TOKEN_SCALED : RF_TOKEN_BEGUN;
            if (plan->policy.forward_only)
                continue;
            if (v->kind == RF_VALUE_GRAD_PART && state == RF_TOKEN_SUM)
                return rf_fail(RF_EINVAL, "plan of rank %d: %s were not added", rank,
                               rf_check_value(plan, NULL, k, text));
            if ((kept && state != (trained ? RF_TOKEN_UPDATED : RF_TOKEN_HELD)) ||
                (v->kind == RF_VALUE_SCALARS && v->slot < 0 && plan->trains && state != scalars))
                return rf_fail(RF_EINVAL, "plan of rank %d: at the end %s was not updated (%d)",
                               rank, rf_check_value(plan, NULL, k, text), (int)state);
        }
        for (int k = 0; rf_plan_has_losses(plan) && k < plan->value_count; k++)
            if (plan->values[k].kind == RF_VALUE_LOSSES &&
                (m->list != RF_LIST_STEP || !rf_plan_lags(plan) ||
                 plan->values[k].slot == RF_SLOT_BEFORE) &&
                m->tokens[rank][k].state == RF_TOKEN_HELD && plan->policy.micro_batches > 0)
                return rf_fail(RF_EINVAL, "plan of rank %d: %s were not counted", rank,
                               rf_check_value(plan, NULL, k, text));
    }
    return 0;
}
