/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --compare: the same model, batch and ranks with every stage of sharding in every
 * order, if a plan can be built; otherwise the reason why not.
 */
#include <string.h>

#include "plan.h"

enum { STAGES = 4, REASON_BYTES = 768 };
static const enum rf_order orders[] = {RF_ORDER_RING, RF_ORDER_TREE};

struct row {
    int zero;
    enum rf_order order;
    char reason[REASON_BYTES]; /* why there is no plan; empty: there is one */
    struct rf_bytes bytes;
    struct prediction prediction; /* sim NULL: unknown */
};

static uint64_t total(const struct rf_bytes *b)
{
    return b->params + b->grads + b->optimizer + b->activations + b->comm + b->scratch;
}

static int fill(const struct tool_command *command, const struct setup *setup,
                const struct model *model, const struct plan_rates *rates, struct row *row)
{
    struct rf_policy policy = setup->policy;
    struct rf_mesh mesh = setup->mesh;
    struct rf_plan *plan = NULL;
    policy.zero = row->zero;
    policy.order = row->order;
    policy.keep_gathered &= row->zero == 3; /* other stages would refuse it */
    policy.no_prefetch &= row->zero == 3;
    mesh.shard = row->zero ? mesh.shard : 0;
    if (rf_plan_build((struct rf_blocks){model->blocks, model->count}, &mesh, &policy, 0, &plan) <
        0) {
        snprintf(row->reason, sizeof(row->reason), "%s", rf_last_error()->message);
        return TOOL_OK;
    }
    rf_plan_bytes(plan, &row->bytes);
    struct rf_block_cost *costs =
        rates->known ? calloc((size_t)model->count, sizeof(*costs)) : NULL;
    int status = TOOL_OK;
    if (rates->known && !costs)
        status = tool_error(command, "out of memory for the costs of %d blocks", model->count);
    else if (rates->known && rf_block_costs(plan, costs) < 0)
        status = tool_library_error(command, -1);
    else if (rates->known)
        status = predict(command, plan, costs, setup, rates, &row->prediction);
    free(costs);
    rf_plan_destroy(plan);
    return status;
}

static void print_row(const struct row *row)
{
    const struct rf_bytes *b = &row->bytes;
    const uint64_t values[9] = {b->params,  b->grads, b->optimizer, b->activations, b->comm,
                                b->scratch, total(b), b->host,      b->sent};
    char text[24];
    printf("%4d %5s", row->zero, rf_order_name(row->order));
    for (int i = 0; i < 9; i++)
        printf(" %10s", tool_bytes_text(values[i], text, sizeof(text)));
    if (row->prediction.sim) {
        const struct rf_sim_result *r = &row->prediction.result;
        printf(" %10s", plan_time_text(r->step_s, text, sizeof(text)));
        printf(" %10s %s", plan_time_text(r->exposed_s, text, sizeof(text)),
               rf_bound_name(r->bound));
    }
    printf("\n");
}

/* Neighbours with the same reason share a line. */
static void print_refused(const struct row *rows, int count)
{
    for (int first = 0, end; first < count; first = end) {
        const struct row *row = &rows[first];
        for (end = first + 1; end < count && strcmp(rows[end].reason, row->reason) == 0; end++)
            ;
        if (!row->reason[0])
            continue;
        printf("refused:");
        for (int i = first; i < end; i++)
            printf(" zero %d %s%s", rows[i].zero, rf_order_name(rows[i].order),
                   i + 1 < end ? "," : ":");
        printf(" %s\n", row->reason);
    }
}

static void print_rows(const struct row *rows, int count, const struct setup *setup, bool times)
{
    printf("\nRank 0 with %lld micro-batches in all:\n%4s %5s %10s %10s %10s %10s %10s %10s %10s "
           "%10s %10s%s\n",
           (long long)setup->policy.micro_batches, "zero", "order", "params", "grads", "optimizer",
           "activation", "comm", "scratch", "total", "with host", "sent/step",
           times ? "       step    exposed bound by" : "");
    for (int i = 0; i < count; i++)
        if (!rows[i].reason[0])
            print_row(&rows[i]);
    print_refused(rows, count);
}

static void row_json(const struct row *row, cJSON *list)
{
    const struct rf_bytes *b = &row->bytes;
    const struct {
        const char *name;
        uint64_t value;
    } values[] = {{"params", b->params},
                  {"grads", b->grads},
                  {"optimizer", b->optimizer},
                  {"activations", b->activations},
                  {"comm", b->comm},
                  {"scratch", b->scratch},
                  {"total", total(b)},
                  {"host", b->host},
                  {"sent", b->sent}};
    cJSON *json = tool_json_new("zero=%d order=%s", row->zero, rf_order_name(row->order));
    cJSON_AddItemToArray(list, json);
    if (row->reason[0]) {
        cJSON_AddStringToObject(json, "reason", row->reason);
        return;
    }
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        cJSON_AddNumberToObject(json, values[i].name, (double)values[i].value);
    if (b->disk)
        tool_json_put(json, "disk=%g disk_moved=%g", (double)b->disk, (double)b->disk_moved);
    if (row->prediction.sim)
        prediction_json(&row->prediction, json);
}

int plan_compare(const struct tool_command *command, const struct setup *setup,
                 const struct model *model, const struct plan_rates *rates, bool print, cJSON *json)
{
    enum { ORDERS = sizeof(orders) / sizeof(orders[0]), ROWS = STAGES * ORDERS };
    struct row rows[ROWS];
    int status = TOOL_OK;
    memset(rows, 0, sizeof(rows));
    for (int i = 0; i < ROWS && status == TOOL_OK; i++) {
        rows[i].zero = i / ORDERS;
        rows[i].order = orders[i % ORDERS];
        status = fill(command, setup, model, rates, &rows[i]);
    }
    if (status == TOOL_OK && print)
        print_rows(rows, ROWS, setup, rates->known);
    cJSON *list = status == TOOL_OK && json ? cJSON_AddArrayToObject(json, "compare") : NULL;
    for (int i = 0; i < ROWS; i++) {
        if (list)
            row_json(&rows[i], list);
        prediction_free(&rows[i].prediction);
    }
    return status;
}
