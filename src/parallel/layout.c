/* SPDX-License-Identifier: MIT
 *
 * Pass: the flat buffers. Parameters lie in reverse registration order, because backward finishes
 * them in that order, so a bucket is a contiguous piece; each starts at a multiple of 64 elements.
 * Frozen parameters come last in the parameter buffer; tied uses come last in a gradient slot,
 * since each use accumulates on its own.
 */
#include "../base/base.h"
#include "passes.h"

static int find_param(const struct rf_plan *plan, const char *name, int before)
{
    for (int i = 0; i < before; i++)
        if (strcmp(plan->params[i].desc->name, name) == 0)
            return i;
    return -1;
}

static int check_tie(struct rf_plan *plan, int index)
{
    struct rf_plan_param *param = &plan->params[index];
    const struct rf_param_desc *desc = param->desc;
    int owner = find_param(plan, desc->tied_to, index);
    if (owner < 0)
        return rf_fail(RF_EINVAL,
                       "parameter %s is tied to %s, which is not declared before it; tie it to an "
                       "earlier parameter",
                       desc->name, desc->tied_to);
    owner = plan->params[owner].owner;
    if (!rf_shape_equal(plan->params[owner].desc->shape, desc->shape))
        return rf_fail(RF_EINVAL, "parameter %s is tied to %s, but their shapes differ", desc->name,
                       desc->tied_to);
    param->owner = owner;
    return 0;
}

static int check_type(struct rf_plan *plan, const struct rf_param_desc *desc)
{
    if (desc->dtype == RF_F32)
        return 0;
    if (desc->dtype != RF_F16 && desc->dtype != RF_BF16)
        return rf_fail(RF_ENOTSUP, "parameter %s is %s: use f32, f16 or bf16", desc->name,
                       rf_dtype_name(desc->dtype));
    if (plan->copy_type != RF_F32 && plan->copy_type != desc->dtype)
        return rf_fail(RF_ENOTSUP, "parameter %s is %s, others are %s: use one type of 16 bits",
                       desc->name, rf_dtype_name(desc->dtype), rf_dtype_name(plan->copy_type));
    plan->copy_type = desc->dtype;
    return 0;
}

static int add_param(struct rf_plan *plan, int block, int index)
{
    const struct rf_param_desc *desc = &plan->blocks[block].params[index];
    int at = plan->param_count;
    struct rf_plan_param *param = &plan->params[at];
    if (!desc->name || !desc->name[0])
        return rf_fail(RF_EINVAL, "block %s: its parameter %d has no name",
                       plan->blocks[block].name, index);
    if (find_param(plan, desc->name, at) >= 0)
        return rf_fail(RF_EINVAL, "parameter %s is declared twice; names must be unique",
                       desc->name);
    RETURN_IF_ERROR(check_type(plan, desc));
    int64_t count = rf_shape_count(desc->shape);
    if (count < 1)
        return rf_fail(RF_EINVAL, "parameter %s has an empty or impossible shape", desc->name);
    *param = (struct rf_plan_param){.desc = desc,
                                    .block = block,
                                    .index = index,
                                    .owner = at,
                                    .count = count,
                                    .grad_first = RF_NO_GRAD};
    if (desc->tied_to)
        RETURN_IF_ERROR(check_tie(plan, at));
    plan->param_count++;
    return 0;
}

static int collect_params(struct rf_plan *plan)
{
    int total = 0;
    for (int b = 0; b < plan->block_count; b++) {
        if (!plan->blocks[b].ops || !plan->blocks[b].name)
            return rf_fail(RF_EINVAL, "block %d has no name or no operations", b);
        total += plan->blocks[b].param_count;
    }
    plan->params = rf_alloc((size_t)(total ? total : 1) * sizeof(*plan->params));
    if (!plan->params)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d parameters", total);
    for (int b = 0; b < plan->block_count; b++)
        for (int i = 0; i < plan->blocks[b].param_count; i++)
            RETURN_IF_ERROR(add_param(plan, b, i));
    return 0;
}

static bool frozen(const struct rf_plan *plan, int param)
{
    int owner = plan->params[param].owner;
    return plan->policy.forward_only || (plan->params[owner].desc->flags & RF_PARAM_FROZEN) != 0;
}

static uint64_t padded(int64_t count)
{
    return ((uint64_t)count + RF_FLAT_GRAIN - 1) / RF_FLAT_GRAIN * RF_FLAT_GRAIN;
}

static void place_params(struct rf_plan *plan)
{
    uint64_t at = 0;
    for (int pass = 0; pass < 2; pass++) { /* trained ones, then frozen ones */
        for (int i = plan->param_count - 1; i >= 0; i--) {
            struct rf_plan_param *param = &plan->params[i];
            if (param->owner != i || frozen(plan, i) != (pass == 1))
                continue;
            param->first = at;
            if (pass == 0)
                param->grad_first = at;
            at += padded(param->count);
            plan->logical_elements += param->count;
        }
        if (pass == 0)
            plan->train_elements = at;
    }
    plan->param_elements = at;
    at = plan->train_elements;
    for (int i = plan->param_count - 1; i >= 0; i--) {
        struct rf_plan_param *param = &plan->params[i];
        if (param->owner == i)
            continue;
        param->first = plan->params[param->owner].first;
        if (!frozen(plan, i)) {
            param->grad_first = at;
            at += padded(param->count);
        }
    }
    plan->slot_elements = at;
}

static void count_chunks(struct rf_plan *plan)
{
    for (int i = 0; i < plan->param_count; i++)
        if (plan->params[i].owner == i && plan->params[i].grad_first != RF_NO_GRAD)
            plan->chunk_count +=
                ((uint64_t)plan->params[i].count + RF_NORM_CHUNK - 1) / RF_NORM_CHUNK;
}

int rf_pass_layout(struct rf_plan *plan)
{
    RETURN_IF_ERROR(collect_params(plan));
    place_params(plan);
    count_chunks(plan);
    return 0;
}
