/* SPDX-License-Identifier: MIT
 *
 * The option --sync of `ringforge train`: what can be checked of it before a rank is started.
 */
#include <ringforge/rounds.h>
#include <string.h>

#include "train.h"

/* What --sync cannot be combined with, and why. */
static int check_others(const struct tool_command *command, const struct train_options *o)
{
    const struct {
        bool given;
        const char *name, *why;
    } others[] = {
        {o->elastic, "elastic", "the workers that are left do not meet again in this version"},
        {o->audit != 0, "audit", "workers differ between two exchanges"},
        {o->setup.policy.pipeline == RF_PIPELINE_2BW, "schedule 2bw",
         "parameters are exchanged between steps, and its steps overlap"},
    };
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        if (others[k].given)
            return tool_usage_error(command, "--sync is not for --%s: %s", others[k].name,
                                    others[k].why);
    return TOOL_OK;
}

/* A checkpoint has the parameters of the first worker, and nothing of the rounds. */
static int check_saves(const struct tool_command *command, const struct train_options *o,
                       const struct rf_rounds_rule *rule)
{
    const bool meet = rule->mixing.graph == RF_GRAPH_ALL && rule->delay == 0 && rule->parts <= 1;
    const bool state = rule->outer || rule->form != RF_FORM_F32;
    if (o->save_every && (!meet || o->save_every % rule->every != 0))
        return tool_usage_error(command,
                                "--save-every %lld with --sync %s: workers have one model to save "
                                "only behind an exchange of all parameters with all workers, "
                                "without a delay; use a multiple of %lld with such a rule, or save "
                                "at the end",
                                (long long)o->save_every, o->sync, (long long)rule->every);
    if (o->resume && state)
        return tool_usage_error(command,
                                "--resume with --sync %s: checkpoints do not have what its outer "
                                "optimizer and its form keep from round to round; use local:H, or "
                                "begin from the weights by --export and --from",
                                o->sync);
    return TOOL_OK;
}

bool train_sync_on(const struct train_options *o)
{
    return strcmp(o->sync, "none") != 0;
}

int train_sync_check(const struct tool_command *command, const struct train_options *o, int workers)
{
    struct rf_rounds_text text;
    if (rf_rounds_text_read(o->sync, workers, &text) < 0)
        return tool_usage_error(command, "--sync %s: %s", o->sync, rf_last_error()->message);
    int status = check_others(command, o);
    if (status == TOOL_OK && rf_option(text.rule.proximal, 0) != 0 && !o->coordinator)
        status = tool_usage_error(command,
                                  "--sync %s has a proximal term, which belongs to clients "
                                  "of a --coordinator",
                                  o->sync);
    if (status == TOOL_OK)
        status = o->coordinator
                     ? train_client_check(command, o, workers * setup_ranks(&o->setup), &text.rule)
                     : check_saves(command, o, &text.rule);
    rf_rounds_text_free(&text);
    return status;
}
