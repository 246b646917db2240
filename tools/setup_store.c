/* SPDX-License-Identifier: MIT
 *
 * What `train` and `plan` refuse with a store.
 */
#include <ringforge/store.h>

#include "setup.h"

int setup_check_store(const struct tool_command *command, const struct setup *setup,
                      const char *rule, const struct rf_store_opts *store)
{
    const struct rf_policy *p = &setup->policy;
    const bool shared = !rf_store_has_servers(store->rule);
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {setup_ranks(setup) > 1, "mesh", "a worker of a store is one rank"},
        {p->loss_scale != 0, "loss-scale",
         "gradients of a store have none; use --dtype bf16 or f32"},
        {p->offload != 0, "offload", "the store has the optimizer's state"},
        {p->update_in_backward, "update-in-backward", "the store updates the weights"},
        {p->state_dtype != RF_F32, "optimizer-state",
         "the store has the optimizer's states, in f32"},
        {p->optimizer.stochastic_rounding, "stochastic-rounding", "parameters of a store are f32"},
        {store->rule == RF_STORE_SYNC && p->clip != 0, "clip",
         "no rank has the norm of the whole gradient; use --clip 0"},
        {store->rule == RF_STORE_SYNC && p->order == RF_ORDER_TREE &&
             (p->micro_batches & (p->micro_batches - 1)) != 0,
         "order tree",
         "the bits are those of data-parallel training only if the micro-batches of a worker are a "
         "power of two; use --order ring, or such --micro-batches"},
        {shared && p->optimizer.kind != RF_SGD, "optimizer other than sgd",
         "ranks add to the parameters what SGD does; use --optimizer sgd"},
        {shared && p->optimizer.weight_decay != 0, "weight-decay",
         "ranks add to the parameters and decay nothing; use --weight-decay 0"},
    };
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        if (others[k].given)
            return tool_usage_error(command, "--sync %s is not for --%s: %s", rule, others[k].name,
                                    others[k].why);
    return TOOL_OK;
}

/* Data-parallel training adds each use of a tied parameter up over all ranks before it adds the
 * uses, and a worker pushes the sum of its own uses. */
int setup_check_store_model(const struct tool_command *command, const struct setup *setup,
                            const char *rule, const struct model *model)
{
    struct rf_store_opts store = {0};
    if (rf_store_text_read(rule, &store) < 0 || store.rule != RF_STORE_SYNC ||
        setup->policy.order != RF_ORDER_TREE)
        return TOOL_OK;
    for (int b = 0; b < model->count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++) {
            const struct rf_param_desc *param = model->blocks[b].params + k;
            if (param->tied_to && !(param->flags & RF_PARAM_FROZEN))
                return tool_usage_error(command,
                                        "--sync %s is not for --order tree: %s is tied to %s, and "
                                        "the bits would not be those of data-parallel training; "
                                        "use --order ring",
                                        rule, param->name, param->tied_to);
        }
    return TOOL_OK;
}
