/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --explain: rank 0's sends and receives in a step, and the declaration that causes
 * each. Transfers that differ only in numbers, as those of layers do, are one row.
 */
#include <ctype.h>
#include <string.h>

#include "plan.h"

enum { REASON = 400, ROWS = 512 };

struct row {
    const struct rf_instruction *first;
    char reason[REASON], key[REASON];
    int times;
    uint64_t bytes; /* of the operands, for all occurrences */
};

/* Without numbers. */
static void make_key(const char *reason, char key[REASON])
{
    size_t at = 0;
    for (; *reason; reason++)
        if (!isdigit((unsigned char)*reason))
            key[at++] = *reason;
    key[at] = 0;
}

static const char *axis_of(const struct rf_mesh *mesh, enum rf_lane lane)
{
    switch (lane) {
    case RF_LANE_DATA:
        return "dp";
    case RF_LANE_SHARD:
        return "shard";
    case RF_LANE_REPLICATE:
        return "copies";
    case RF_LANE_TENSOR:
        return mesh->cp > 1 ? "cp" : "tp";
    case RF_LANE_JOB:
        return "all";
    case RF_LANE_PIPELINE:
    case RF_LANE_SEND_OUT:
    case RF_LANE_RECV_OUT:
    case RF_LANE_SEND_GRAD:
    case RF_LANE_RECV_GRAD:
    case RF_LANE_SEND_OUT_BACK:
    case RF_LANE_RECV_OUT_BACK:
    case RF_LANE_SEND_GRAD_BACK:
    case RF_LANE_RECV_GRAD_BACK:
        return "pp";
    default:
        return rf_lane_name(lane);
    }
}

static void add(struct row *rows, int *count, const struct rf_plan *plan,
                const struct rf_instruction *i)
{
    const struct rf_transfer *t = rf_plan_transfer(plan, i);
    char reason[REASON], key[REASON];
    int k = 0;
    make_key(rf_instruction_reason(plan, i, reason, sizeof(reason)), key);
    while (k < *count && (strcmp(rows[k].key, key) != 0 || rows[k].first->verb != i->verb ||
                          rows[k].first->phase != i->phase || rows[k].first->lane != i->lane ||
                          rows[k].first->call != i->call))
        k++;
    if (k == ROWS)
        return;
    if (k == *count) {
        rows[(*count)++].first = i;
        memcpy(rows[k].reason, reason, sizeof(reason));
        memcpy(rows[k].key, key, sizeof(key));
    }
    rows[k].times++;
    rows[k].bytes += t->count * rf_dtype_bytes(t->dtype);
}

int plan_explain(const struct tool_command *command, const struct rf_plan *plan,
                 const struct rf_mesh *mesh, int ranks)
{
    struct row *rows = calloc(ROWS, sizeof(*rows));
    int count = 0, used = 0;
    char bytes[24];
    if (!rows)
        return tool_error(command, "out of memory for the reasons of transfers");
    const struct rf_instruction *list = rf_plan_instructions(plan, &count);
    for (int k = 0; k < count && ranks > 1; k++)
        if (rf_plan_transfer(plan, &list[k]))
            add(rows, &used, plan, &list[k]);
    printf("\nWhat rank 0 exchanges in a step, and because of what:\n%6s %10s %-6s %-19s %s\n",
           "times", "bytes", "axis", "operation", "because");
    for (int k = 0; k < used; k++) {
        const struct rf_transfer *t = rf_plan_transfer(plan, rows[k].first);
        printf("%6d %10s %-6s %-19s %s\n", rows[k].times,
               tool_bytes_text(rows[k].bytes, bytes, sizeof(bytes)),
               axis_of(mesh, rows[k].first->lane), rf_coll_op_name(t->op), rows[k].reason);
    }
    if (!used)
        printf("  none: there is one rank\n");
    free(rows);
    return TOOL_OK;
}
