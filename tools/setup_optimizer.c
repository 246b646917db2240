/* SPDX-License-Identifier: MIT
 *
 * The optimizer's options of training commands: which of them a rule has, and their values in use.
 * Called by setup.c, and by train_settings.c for what checkpoints keep.
 */
#include <math.h>
#include <string.h>

#include "setup.h"
#include "tool.h"

/* A number of the optimizer; negative if its option is not given. */
struct rule_number {
    const char *name;
    bool has;
    const double *given;
    double otherwise, below;
};
enum { RULE_NUMBERS = 6 };

static void list_rule(const struct setup *s, enum rf_optimizer kind,
                      struct rule_number rows[RULE_NUMBERS])
{
    const struct rf_optimizer_info *info = rf_optimizer_get_info(kind);
    const struct rule_number all[] = {
        {"beta1", info->beta1 != 0, &s->beta1, info->beta1, 1},
        {"beta2", info->beta2 != 0, &s->beta2, info->corrects_bias ? 0.95 : info->beta2, 1},
        {"eps", info->eps != 0, &s->eps, info->eps, INFINITY},
        {"momentum", info->takes_momentum, &s->momentum, info->momentum, 1},
        {"dampening", info->takes_dampening, &s->dampening, 0, 1},
        {"weight-decay", true, &s->weight_decay, info->decoupled ? 0.1 : 0, INFINITY},
    };
    _Static_assert(sizeof(all) == RULE_NUMBERS * sizeof(all[0]), "a row each");
    memcpy(rows, all, sizeof(all));
}

bool setup_in_use(const struct setup *s, const void *value, float *out)
{
    struct rule_number rows[RULE_NUMBERS];
    const int kind = rf_optimizer_find(s->optimizer);
    if (value == &s->loss_scale) {
        *out = (float)(s->loss_scale >= 0             ? s->loss_scale
                       : strcmp(s->dtype, "f16") == 0 ? SETUP_F16_SCALE
                                                      : 0);
        return true;
    }
    if (kind < 0)
        return false;
    list_rule(s, (enum rf_optimizer)kind, rows);
    for (int i = 0; i < RULE_NUMBERS; i++)
        if (rows[i].given == value && rows[i].has) {
            *out = (float)(*rows[i].given >= 0 ? *rows[i].given : rows[i].otherwise);
            return true;
        }
    return false;
}

int setup_check_optimizer(const struct tool_command *command, struct setup *s)
{
    const enum rf_optimizer kind = (enum rf_optimizer)rf_optimizer_find(s->optimizer);
    const struct rf_optimizer_info *info = rf_optimizer_get_info(kind);
    const bool adam = info->corrects_bias;
    struct rf_optimizer_opts *to = &s->policy.optimizer;
    float *const numbers[RULE_NUMBERS] = {&to->beta1,    &to->beta2,     &to->eps,
                                          &to->momentum, &to->dampening, &to->weight_decay};
    struct rule_number reals[RULE_NUMBERS];
    const struct {
        const char *name;
        bool has, given;
    } flags[] = {{"eps-inside", info->eps != 0, s->eps_inside},
                 {"no-bias-correction", adam, s->no_bias_correction},
                 {"centered", info->takes_centered, s->centered}};
    *to = (struct rf_optimizer_opts){.kind = kind,
                                     .eps_inside = s->eps_inside,
                                     .no_bias_correction = s->no_bias_correction,
                                     .centered = s->centered,
                                     .stochastic_rounding = s->stochastic};
    list_rule(s, kind, reals);
    for (int i = 0; i < RULE_NUMBERS; i++) {
        const double value = *reals[i].given;
        const bool given = value >= 0;
        if (given && !reals[i].has)
            return tool_usage_error(command, "--optimizer %s has no --%s", s->optimizer,
                                    reals[i].name);
        if (given && value >= reals[i].below)
            return tool_usage_error(command, "--%s has to be less than %g, not %g", reals[i].name,
                                    reals[i].below, value);
        /* The library takes 0 as unset. */
        if (value == 0 && numbers[i] == &to->eps)
            return tool_usage_error(command, "--eps has to be more than 0");
        *numbers[i] = (float)(given ? value : reals[i].otherwise);
        if (value == 0 && reals[i].otherwise != 0 && numbers[i] != &to->weight_decay)
            *numbers[i] = RF_ZERO;
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (flags[i].given && !flags[i].has)
            return tool_usage_error(command, "--optimizer %s has no --%s", s->optimizer,
                                    flags[i].name);
    if (!rf_optimizer_can_store(to, s->state_type))
        return tool_usage_error(command,
                                "--optimizer %s%s has no states in %s; use --optimizer-state "
                                "f32, or another optimizer",
                                s->optimizer, s->centered ? " --centered" : "", s->states);
    return TOOL_OK;
}
