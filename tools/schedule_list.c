/* SPDX-License-Identifier: MIT
 *
 * ringforge schedule --list: the algorithms, and those that support a call.
 */
#include "schedule.h"

enum { MOST_ALGORITHMS = 32 };

static int list_call(const struct tool_command *command, const struct rf_schedule_desc *desc)
{
    struct rf_schedule_algorithm_info infos[MOST_ALGORITHMS];
    uint32_t count;
    if (rf_schedule_algorithms(desc, infos, MOST_ALGORITHMS, &count) < 0)
        return tool_usage_error(command, "%s", rf_last_error()->message);
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_schedule_algorithm_info *a = &infos[i];
        printf("%-15s %c %-20s %s", rf_coll_op_name(desc->op), a->chosen ? '*' : ' ', a->name,
               a->note);
        if (a->why_not)
            printf("; does not support this call: %s", a->why_not);
        printf("\n");
    }
    return TOOL_OK;
}

/* The algorithms of every operation that has any. */
static int list_all(void)
{
    struct rf_schedule_algorithm_info infos[MOST_ALGORITHMS];
    for (int op = RF_COLL_NONE + 1; op <= RF_COLL_RECV; op++) {
        const struct rf_schedule_desc desc = {
            .op = (enum rf_coll_op)op, .ranks = 8, .count = 1, .root = 1};
        uint32_t count = 0;
        if (rf_schedule_algorithms(&desc, infos, MOST_ALGORITHMS, &count) < 0)
            continue;
        for (uint32_t i = 0; i < count; i++)
            printf("%-15s %-20s %s\n", rf_coll_op_name((enum rf_coll_op)op), infos[i].name,
                   infos[i].note);
    }
    return TOOL_OK;
}

int schedule_list(const struct tool_command *command, const struct schedule_call *call)
{
    return call ? list_call(command, &call->desc) : list_all();
}
