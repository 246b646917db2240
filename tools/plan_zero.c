/* SPDX-License-Identifier: MIT
 *
 * The table of Rajbhandari et al. 2020 (ZeRO, table 1): a rank's memory for a model's parameters,
 * by stage of sharding. Its bytes are those of mixed precision, 2 for a parameter, 2 for its
 * gradient and 12 for the optimizer (an f32 copy and two states); its elements are those of this
 * library's plans.
 */
#include "plan.h"

enum { PARAM_BYTES = 2, GRAD_BYTES = 2, OPTIMIZER_BYTES = 12 };

/* Elements of the values of this kind, each piece once. */
static double elements(const struct rf_plan *plan, enum rf_value_kind kind, int slot)
{
    int count = 0;
    double sum = 0;
    const struct rf_value *values = rf_plan_values(plan, &count);
    for (int k = 0; k < count; k++)
        if (values[k].kind == kind && (slot < 0 || values[k].slot == slot))
            sum += (double)values[k].bytes / sizeof(float);
    return sum;
}

/* Bytes held by rank 0 of a plan; all tensor ranks hold as much. */
static double held(const struct rf_plan *plan, int stage, int tensor_ranks)
{
    const double all = (double)rf_plan_param_count(plan) / tensor_ranks;
    const double shard = elements(plan, RF_VALUE_PARAM_SHARD, -1);
    return (stage >= 3 ? shard : all) * PARAM_BYTES + (stage >= 2 ? shard : all) * GRAD_BYTES +
           (stage >= 1 ? shard : all) * OPTIMIZER_BYTES;
}

int plan_zero(const struct tool_command *command, const struct setup *setup,
              const struct model *model, bool print, cJSON *json)
{
    double bytes[4];
    for (int stage = 0; stage < 4; stage++) {
        struct rf_policy policy = setup->policy;
        struct rf_plan *plan = NULL;
        policy.zero = stage;
        policy.order = RF_ORDER_RING;
        policy.offload = policy.disk = 0;
        policy.device_bytes = 0;
        policy.update_on_rank_0 = policy.keep_gathered = policy.no_prefetch = false;
        struct rf_mesh mesh = setup->mesh;
        mesh.shard = stage ? mesh.shard : 0;
        if (rf_plan_build((struct rf_blocks){model->blocks, model->count}, &mesh, &policy, 0,
                          &plan) < 0)
            return tool_library_error(command, -1);
        bytes[stage] = held(plan, stage, mesh.tp);
        rf_plan_destroy(plan);
    }
    cJSON *list = json ? cJSON_AddArrayToObject(json, "zero_bytes") : NULL;
    for (int stage = 0; list && stage < 4; stage++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(bytes[stage]));
    if (!print)
        return TOOL_OK;
    printf("\nIn mixed precision (2 bytes a parameter, 2 its gradient, 12 the optimizer) a rank "
           "holds\n");
    for (int stage = 0; stage < 4; stage++)
        printf("  --zero %d  %10.4g GB\n", stage, bytes[stage] / 1e9);
    return TOOL_OK;
}
