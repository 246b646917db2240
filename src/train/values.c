/* SPDX-License-Identifier: MIT
 *
 * Returns values of the plan as tensors in the run's memory. Called by the executor and by block.c.
 */
#include "../base/base.h"
#include "run.h"

struct rf_tensor rf_as(struct rf_tensor bytes, enum rf_dtype dtype)
{
    bytes.shape = rf_shape1(rf_tensor_count(bytes) / (int64_t)rf_dtype_bytes(dtype));
    bytes.dtype = dtype;
    return bytes;
}

struct rf_tensor rf_run_value(const struct rf_run *run, int value)
{
    const struct rf_value *v = &run->plan->values[value];
    if (v->bytes == 0) /* it has no memory */
        return (struct rf_tensor){0};
    struct rf_tensor t = run->regions[v->region];
    if (!t.buffer)
        return (struct rf_tensor){0};
    t.offset += v->offset;
    t.shape = rf_shape1((int64_t)v->bytes);
    return t;
}

struct rf_tensor rf_run_span(const struct rf_run *run, struct rf_operands operands)
{
    struct rf_tensor span = {0};
    for (int k = 0; k < operands.count; k++) {
        struct rf_tensor t = rf_run_value(run, operands.values[k]);
        if (!t.buffer)
            continue;
        if (!span.buffer) {
            span = t;
            continue;
        }
        /* Pieces are in the order of their reduction, so offsets may ascend or descend. */
        const uint64_t end = span.offset + rf_tensor_bytes(span);
        const uint64_t first = t.offset < span.offset ? t.offset : span.offset;
        const uint64_t last = t.offset + rf_tensor_bytes(t);
        span.offset = first;
        span.shape = rf_shape1((int64_t)((last > end ? last : end) - first));
    }
    return span;
}

struct rf_tensor rf_run_grad_in(const struct rf_run *run, int value, int param)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_plan_param *p = &plan->params[param];
    struct rf_tensor t = rf_run_value(run, value);
    t.offset += (p->grad_first - plan->pieces[p->grad_piece].first) * sizeof(float);
    t.shape = rf_cut_shape(&p->cut);
    t.dtype = RF_F32;
    return t;
}

struct rf_tensor rf_run_scalars(const struct rf_run *run)
{
    struct rf_tensor scalars = run->regions[RF_REGION_SCALARS];
    if (!scalars.buffer)
        return scalars;
    scalars.shape = rf_shape1(RF_SCALAR_WORDS);
    scalars.dtype = RF_F32;
    return scalars;
}
