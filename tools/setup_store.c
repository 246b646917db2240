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

void setup_store_policy(const struct rf_store_opts *store, struct rf_policy *policy)
{
    policy->optimizer = (struct rf_optimizer_opts){.kind = RF_SGD};
    policy->clip = 0;
    policy->uses_apart = store->rule == RF_STORE_SYNC;
}

int setup_store_terms(const struct rf_plan *plan, struct rf_store_keys **out)
{
    int64_t first, count;
    int terms = 0;
    while (rf_plan_trained_use(plan, terms, &first, &count) == 0)
        terms++;
    *out = calloc((size_t)terms + 1, sizeof(**out));
    for (int k = 0; *out && k < terms; k++)
        if (rf_plan_trained_use(plan, k, &first, &count) == 0)
            (*out)[k] = rf_store_range(first, count);
    return *out ? terms : -1;
}
