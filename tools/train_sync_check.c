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
    struct rf_store_opts store = {0};
    if (train_store_on(o) && rf_store_text_read(o->sync, &store) == 0)
        setup_store_policy(&store, policy);
}

/* What a store cannot be combined with, and why. */
static int check_store_others(const struct tool_command *command, const struct train_options *o,
                              const struct rf_store_opts *store)
{
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {o->accept != 0, "accept", "its servers are connected at the start"},
        {o->join != NULL, "join", "its servers are connected at the start"},
        {o->coordinator != NULL, "coordinator", "its clients make rounds, such as fedavg:H"},
    };
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        if (others[k].given)
            return tool_usage_error(command, "--sync %s is not for --%s: %s", o->sync,
                                    others[k].name, others[k].why);
    return setup_check_store(command, &o->setup, o->sync, store);
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
        status = train_client_check(command, o, workers, &text.rule);
    rf_rounds_text_free(&text);
    return status;
}
