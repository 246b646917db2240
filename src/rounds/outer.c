/* SPDX-License-Identifier: MIT
 *
 * The outer optimizer of rounds, and of a coordinator.
 */
#include "outer.h"

#include "base/base.h"

int rf_rounds_outer_step(const struct rf_rounds_rule *rule, const struct rf_host_part *update,
                         struct rf_step_scalars *scalars)
{
    static const struct rf_optimizer_opts sgd = {.kind = RF_SGD};
    const struct rf_optimizer_opts *outer = rule->outer ? rule->outer : &sgd;
    scalars->lr = rf_option(rule->outer_lr, 1);
    scalars->inv_tokens = 1;
    RETURN_IF_ERROR(rf_host_step_begin(outer, scalars, 0));
    return rf_host_step(outer, update, 0, update->count, scalars);
}
