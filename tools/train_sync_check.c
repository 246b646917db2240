/* SPDX-License-Identifier: MIT
 *
 * The option --sync of `ringforge train`: what can be checked of it before a rank is started.
 */
#include <ringforge/rounds.h>
#include <ringforge/store.h>
#include <string.h>

#include "train.h"

/* What no --sync can be combined with, and why. */
static int check_others(const struct tool_command *command, const struct train_options *o)
{
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {o->audit != 0, "audit", "workers differ between two exchanges"},
        {o->setup.compression.form != RF_FORM_F32 && o->setup.mesh.dp == 1, "compress",
         "a worker of one data-parallel rank sends no gradients; use the rule's form=NAME"},
        {o->setup.policy.pipeline == RF_PIPELINE_2BW, "schedule 2bw",
         "parameters are exchanged between steps, and its steps overlap"},
    };
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        if (others[k].given)
            return tool_usage_error(command, "--sync is not for --%s: %s", others[k].name,
                                    others[k].why);
    return TOOL_OK;
}

/* ---- stores ---------------------------------------------------------------------------------- */

bool train_store_on(const struct train_options *o)
{
    return strncmp(o->sync, "server", 6) == 0 || strncmp(o->sync, "hogwild", 7) == 0;
}

int train_store_servers(const struct train_options *o)
{
    struct rf_store_opts opts = {0};
    if (!train_store_on(o) || rf_store_text_read(o->sync, &opts) < 0 ||
        !rf_store_has_servers(opts.rule))
        return 0;
    return opts.servers ? opts.servers : 1;
}

void train_store_policy(const struct train_options *o, struct rf_policy *policy)
{
    if (!train_store_on(o))
        return;
    policy->optimizer = (struct rf_optimizer_opts){.kind = RF_SGD};
    policy->clip = 0;
}

/* What a store cannot be combined with, and why. */
static int check_store_others(const struct tool_command *command, const struct train_options *o,
                              const struct rf_store_opts *store)
{
    const struct rf_policy *p = &o->setup.policy;
    const bool shared = !rf_store_has_servers(store->rule);
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {setup_ranks(&o->setup) > 1, "mesh", "a worker of a store is one rank"},
        {o->accept != 0, "accept", "its servers are connected at the start"},
        {o->join != NULL, "join", "its servers are connected at the start"},
        {o->coordinator != NULL, "coordinator", "its clients make rounds, such as fedavg:H"},
        {p->loss_scale != 0, "loss-scale",
         "gradients of a store have none; use --dtype bf16 or f32"},
        {p->offload != 0, "offload", "the store has the optimizer's state"},
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
            return tool_usage_error(command, "--sync %s is not for --%s: %s", o->sync,
                                    others[k].name, others[k].why);
    return TOOL_OK;
}

/* Data-parallel training adds each use of a tied parameter up over all ranks before it adds the
 * uses, and a worker pushes the sum of its own uses. */
int train_store_check_model(const struct tool_command *command, const struct train_options *o,
                            const struct model *model)
{
    struct rf_store_opts store = {0};
    if (!train_store_on(o) || rf_store_text_read(o->sync, &store) < 0 ||
        store.rule != RF_STORE_SYNC || o->setup.policy.order != RF_ORDER_TREE)
        return TOOL_OK;
    for (int b = 0; b < model->count; b++)
        for (int k = 0; k < model->blocks[b].param_count; k++) {
            const struct rf_param_desc *param = model->blocks[b].params + k;
            if (param->tied_to && !(param->flags & RF_PARAM_FROZEN))
                return tool_usage_error(command,
                                        "--sync %s is not for --order tree: %s is tied to %s, and "
                                        "the bits would not be those of data-parallel training; "
                                        "use --order ring",
                                        o->sync, param->name, param->tied_to);
        }
    return TOOL_OK;
}

static int check_store(const struct tool_command *command, const struct train_options *o,
                       int workers)
{
    struct rf_store_opts store = {0};
    if (rf_store_text_read(o->sync, &store) < 0)
        return tool_usage_error(command, "--sync %s: %s", o->sync, rf_last_error()->message);
    const int servers = train_store_servers(o);
    if (workers < 1)
        return tool_usage_error(command,
                                "--sync %s: %d of the ranks %s the store; start at least %d ranks",
                                o->sync, servers, servers == 1 ? "serves" : "serve", servers + 1);
    const int status = check_others(command, o);
    return status == TOOL_OK ? check_store_others(command, o, &store) : status;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool train_sync_on(const struct train_options *o)
{
    return strcmp(o->sync, "none") != 0;
}

int train_sync_check(const struct tool_command *command, const struct train_options *o, int workers)
{
    struct rf_rounds_text text;
    if (train_store_on(o))
        return check_store(command, o, workers);
    if (rf_rounds_text_read(o->sync, workers, &text) < 0)
        return tool_usage_error(command, "--sync %s: %s", o->sync, rf_last_error()->message);
    int status = check_others(command, o);
    if (status == TOOL_OK && rf_option(text.rule.proximal, 0) != 0 && !o->coordinator)
        status = tool_usage_error(command,
                                  "--sync %s has a proximal term, which belongs to clients "
                                  "of a --coordinator",
                                  o->sync);
    if (status == TOOL_OK && o->accept && text.rule.mixing.weights)
        status = tool_usage_error(command,
                                  "--sync %s has a row of its matrix for each worker, and none for "
                                  "newcomers: leave out --accept, or use graph=NAME",
                                  o->sync);
    if (status == TOOL_OK && o->coordinator)
        status = train_client_check(command, o, workers * setup_ranks(&o->setup), &text.rule);
    rf_rounds_text_free(&text);
    return status;
}
