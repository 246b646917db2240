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
        {o->accept != 0, "accept", "workers do not take newcomers in"},
        {o->join != NULL, "join", "workers do not take newcomers in"},
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

bool train_sync_on(const struct train_options *o)
{
    return strcmp(o->sync, "none") != 0;
}

int train_sync_check(const struct tool_command *command, const struct train_options *o, int workers)
{
    struct rf_rounds_text text;
    if (rf_rounds_text_read(o->sync, workers, &text) < 0)
        return tool_usage_error(command, "--sync %s: %s", o->sync, rf_last_error()->message);
    rf_rounds_text_free(&text);
    if (o->elastic && o->save_every)
        return tool_usage_error(command, "--sync with --elastic saves at the end only: leave out "
                                         "--save-every");
    return check_others(command, o);
}
