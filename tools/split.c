/* SPDX-License-Identifier: MIT
 *
 * The option --stages of `train` and `plan`: how blocks are divided into the stages of a pipeline
 * (rf_policy.stages, stage_blocks).
 */
#include <string.h>

#include "setup.h"

static int bad_list(const struct tool_command *command, const char *text)
{
    return tool_usage_error(command,
                            "there is no --stages \"%s\"; use even, cost, or the number of blocks "
                            "of each stage, such as 3,4,4,1 (at most %d stages)",
                            text, SETUP_MOST_STAGES);
}

int stages_parse(const struct tool_command *command, const char *text, struct stage_list *out)
{
    *out = (struct stage_list){.split = RF_STAGES_EVEN};
    if (strcmp(text, "even") == 0)
        return TOOL_OK;
    if (strcmp(text, "cost") == 0) {
        out->split = RF_STAGES_COST;
        return TOOL_OK;
    }
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, ",");
        int64_t blocks = 0;
        const enum tool_number fault = tool_read_int(at, bytes, 1, SETUP_MOST_BLOCKS, &blocks);
        if (fault == TOOL_NUMBER_RANGE)
            return tool_number_error(command, "each number of --stages", at, bytes, fault, 1,
                                     SETUP_MOST_BLOCKS);
        if (fault != TOOL_NUMBER_OK || out->count == SETUP_MOST_STAGES)
            return bad_list(command, text);
        out->blocks[out->count++] = (int)blocks;
        at += bytes;
        if (!*at)
            return TOOL_OK;
    }
}
