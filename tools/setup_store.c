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
        {setup->compression.form != RF_FORM_F32, "compress", "gradients are pushed in f32"},
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
        {store->rule == RF_STORE_SYNC && p->order == RF_ORDER_TREE &&
             (setup->mesh.cp > 1 || (setup->mesh.tp > 1 && p->sequence_parallel)),
         "order tree",
         "the ranks of a worker that have parts of sequences add their gradients before those of "
         "other workers, and data-parallel training after them; use --order ring"},
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

int setup_store_ranges(const struct rf_plan *plan,
                       int (*next)(const struct rf_plan *plan, int index, int64_t *first,
                                   int64_t *count),
                       struct rf_store_keys *out)
{
    int64_t first, count;
    int all = 0;
    while (next(plan, all, &first, &count) == 0) {
        if (out)
            out[all] = rf_store_range(first, count);
        all++;
    }
    return all;
}
