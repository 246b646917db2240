/* SPDX-License-Identifier: MIT
 *
 * One call of one block: makes its context from the run's regions. Called by the executor and by
 * evaluation; knows nothing of the order of calls.
 */
#include <stddef.h>

#include "../base/base.h"
#include "run.h"

static struct rf_tensor input_rows(const struct rf_run *run, enum rf_region_id region, int local,
                                   enum rf_dtype dtype)
{
    const int64_t rows = run->plan->rows;
    return (struct rf_tensor){.buffer = run->regions[region].buffer,
                              .offset = run->regions[region].offset + (uint64_t)(local * rows * 4),
                              .shape = rf_shape1(rows),
                              .dtype = dtype};
}

static struct rf_tensor as_f32(struct rf_tensor region, struct rf_shape shape)
{
    region.shape = shape;
    region.dtype = RF_F32;
    return region;
}

static struct rf_tensor as_out(const struct rf_run *run, struct rf_tensor region, int block)
{
    region.shape = run->plan->sizes[block].out;
    region.dtype = run->plan->sizes[block].dtype;
    return region;
}

struct rf_tensor rf_run_out(const struct rf_run *run, int block)
{
    int id = run->plan->policy.forward_only ? RF_REGION_DOUT0 + block % 2 : RF_REGION_OUT(block);
    return as_out(run, run->regions[id], block);
}

static struct rf_tensor block_in(const struct rf_run *run, int block, int local)
{
    return block == 0 ? input_rows(run, RF_REGION_TOKENS, local, RF_I32)
                      : rf_run_out(run, block - 1);
}

struct rf_tensor rf_run_scalars(const struct rf_run *run)
{
    struct rf_tensor scalars = run->regions[RF_REGION_SCALARS];
    return scalars.buffer ? as_f32(scalars, rf_shape1(RF_SCALAR_WORDS)) : scalars;
}

static struct rf_tensor loss_scale(const struct rf_run *run)
{
    struct rf_tensor scalars = rf_run_scalars(run);
    if (!scalars.buffer || run->plan->policy.loss_scale == 0)
        return (struct rf_tensor){0};
    scalars.offset += offsetof(struct rf_step_scalars, loss_scale);
    scalars.shape = rf_shape1(1);
    return scalars;
}

static struct rf_tensor workspace(const struct rf_run *run)
{
    struct rf_tensor region = run->regions[RF_REGION_WORKSPACE];
    const uint64_t count = run->plan->policy.workspace_bytes / sizeof(float);
    return region.buffer ? as_f32(region, rf_shape1((int64_t)count)) : region;
}

static struct rf_ctx make_ctx(const struct rf_run *run, int block, int local, int64_t global)
{
    const struct rf_plan *plan = run->plan;
    int saved = plan->policy.forward_only ? 0 : block;
    return (struct rf_ctx){.stream = run->stream,
                           .step = run->step,
                           .micro_batch = global,
                           .seed = run->seed,
                           .rows = plan->rows,
                           .seq = plan->policy.seq,
                           .param_count = plan->blocks[block].param_count,
                           .params = run->seen + run->block_param[block],
                           .saved = run->regions[RF_REGION_SAVED(saved)],
                           .handoff = run->regions[RF_REGION_HANDOFF],
                           .scratch = run->regions[RF_REGION_SCRATCH],
                           .workspace = workspace(run),
                           .scalars = rf_run_scalars(run),
                           .loss_scale = loss_scale(run),
                           .targets = input_rows(run, RF_REGION_TARGETS, local, RF_I32),
                           .losses = input_rows(run, RF_REGION_LOSSES, local, RF_F32)};
}

int rf_run_block_forward(struct rf_run *run, int block, int local, int64_t global, bool evaluate)
{
    const struct rf_block *b = &run->plan->blocks[block];
    struct rf_ctx ctx = make_ctx(run, block, local, global);
    ctx.evaluate = evaluate;
    return b->ops->forward(&ctx, b->self, block_in(run, block, local), rf_run_out(run, block));
}

int rf_run_block_backward(struct rf_run *run, int block, int local, int slot, bool weight)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_block *b = &plan->blocks[block];
    struct rf_ctx ctx = make_ctx(run, block, local, plan->first_micro_batch[plan->rank] + local);
    struct rf_tensor in = block_in(run, block, local), dout = {0}, din = {0};
    const bool first = plan->policy.order == RF_ORDER_TREE || local == 0;

    ctx.fresh = run->fresh + (first ? plan->param_count : 0) + run->block_param[block];
    ctx.grads = run->grads + slot * plan->param_count + run->block_param[block];
    /* Gradients between blocks take turns in two buffers. */
    if (block + 1 == plan->block_count)
        dout = rf_run_out(run, block);
    else
        dout = as_out(run, run->regions[RF_REGION_DOUT0 + block % 2], block);
    if (block > 0)
        din = as_out(run, run->regions[RF_REGION_DOUT0 + (block - 1) % 2], block - 1);
    if (weight)
        return b->ops->backward_weight(&ctx, b->self, in, dout);
    return b->ops->backward_input(&ctx, b->self, in, dout, din);
}
