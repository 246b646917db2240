/* SPDX-License-Identifier: MIT
 *
 * The costs of blocks. Each block is called as in a step, on a device that counts launches and runs
 * none. So a user's block has a cost without a formula. Nothing is timed here, and no driver is
 * called. work.c computes the cost of a step from these.
 */
#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/frozen.h"
#include "../plan/plan.h"

struct counter {
    const struct rf_plan *plan;
    struct rf_device *device;
    struct rf_stream *stream;
    struct rf_buffer *memory[2]; /* by enum rf_memory */
    uint64_t used[2];
    struct rf_tensor *params, *grads; /* of the block being called */
    bool *overwrite_grad;
};

static void counter_close(struct counter *c)
{
    rf_free(c->params);
    rf_free(c->grads);
    rf_free(c->overwrite_grad);
    rf_stream_destroy(c->stream);
    rf_buffer_destroy(c->memory[RF_MEMORY_DEVICE]);
    rf_buffer_destroy(c->memory[RF_MEMORY_HOST]);
    rf_device_close(c->device);
}

/* Device memory without a limit, because only addresses are used; host memory for values that a run
 * maps. */
static int counter_open(struct counter *c, const struct rf_plan *plan)
{
    const uint64_t mapped = 5 * rf_plan_aligned((uint64_t)plan->rows * sizeof(int32_t)) +
                            rf_plan_aligned(RF_SCALAR_WORDS * sizeof(float));
    int most = 1;
    for (int b = 0; b < plan->block_count; b++)
        most = plan->blocks[b].param_count > most ? plan->blocks[b].param_count : most;
    *c = (struct counter){.plan = plan};
    c->params = rf_alloc((size_t)most * sizeof(*c->params));
    c->grads = rf_alloc((size_t)most * sizeof(*c->grads));
    c->overwrite_grad = rf_alloc((size_t)most * sizeof(*c->overwrite_grad));
    if (!c->params || !c->grads || !c->overwrite_grad)
        return rf_fail(RF_ENOMEM, "costs: out of memory");
    RETURN_IF_ERROR(rf_device_open_counting(&c->device));
    const uint64_t capacity = rf_device_get_info(c->device)->max_allocation_bytes;
    RETURN_IF_ERROR(rf_buffer_create(c->device, capacity, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                     &c->memory[RF_MEMORY_DEVICE]));
    RETURN_IF_ERROR(rf_buffer_create(c->device, mapped, RF_MEMORY_HOST, RF_CATEGORY_OTHER,
                                     &c->memory[RF_MEMORY_HOST]));
    return rf_stream_create(c->device, "costs", &c->stream);
}

/* An empty tensor has no buffer, like in a run. */
static struct rf_tensor take(struct counter *c, enum rf_memory memory, struct rf_shape shape,
                             enum rf_dtype dtype)
{
    const uint64_t bytes = rf_plan_aligned((uint64_t)rf_shape_count(shape) * rf_dtype_bytes(dtype));
    const struct rf_tensor tensor = {
        .buffer = c->memory[memory], .offset = c->used[memory], .shape = shape, .dtype = dtype};
    c->used[memory] += bytes;
    return bytes ? tensor : (struct rf_tensor){0};
}

static struct rf_tensor take_bytes(struct counter *c, uint64_t bytes)
{
    return take(c, RF_MEMORY_DEVICE, rf_shape1((int64_t)rf_plan_aligned(bytes)), RF_U8);
}

static struct rf_tensor take_out(struct counter *c, int block)
{
    const struct rf_block_sizes *sizes = rf_plan_part_sizes(c->plan, block, 0);
    return take(c, RF_MEMORY_DEVICE, sizes->out, sizes->dtype);
}

static struct rf_tensor take_mapped(struct counter *c, enum rf_dtype dtype)
{
    return take(c, RF_MEMORY_HOST, rf_shape1(c->plan->rows), dtype);
}

/* ---- calls of a block ------------------------------------------------------------------------ */

struct call {
    const struct rf_block *block;
    struct rf_ctx ctx;
    struct rf_tensor in, out, dout, din;
    struct rf_tensor exchanges[RF_CALL_COUNT][RF_MAX_EXCHANGES]; /* by enum rf_call */
};

static void take_params(struct counter *c, int block)
{
    const struct rf_plan *plan = c->plan;
    const int first = plan->first_param[block];
    for (int i = 0; i < plan->blocks[block].param_count; i++) {
        const struct rf_plan_param *param = &plan->params[first + i];
        const struct rf_param_cut part = rf_cut_part(&param->cut, 0);
        struct rf_shape shape = rf_cut_shape(&part);
        if (param->raw)
            shape.dim[0] *= (int64_t)sizeof(float);
        c->params[i] = take(c, RF_MEMORY_DEVICE, shape, param->desc->dtype);
        c->grads[i] = (struct rf_tensor){0};
        if (rf_plan_trains(plan, first + i))
            c->grads[i] = take(c, RF_MEMORY_DEVICE, rf_cut_shape(&part), RF_F32);
    }
}

/* The same context as in train/block.c, for the first of this rank's parts. */
static void make_call(struct counter *c, int block, struct call *call)
{
    const struct rf_plan *plan = c->plan;
    const struct rf_block_sizes *sizes = rf_plan_part_sizes(plan, block, 0);
    const bool last = block + 1 == plan->block_count, packed = plan->policy.packed;
    const struct rf_tensor none = {0};
    c->used[RF_MEMORY_DEVICE] = c->used[RF_MEMORY_HOST] = 0;
    take_params(c, block);
    *call = (struct call){
        .block = &plan->blocks[block],
        .ctx = {.stream = c->stream,
                .rows = plan->rows,
                .seq = rf_plan_seq(plan),
                .evaluate = plan->policy.forward_only,
                .param_count = plan->blocks[block].param_count,
                .params = c->params,
                .saved = take_bytes(c, sizes->saved),
                .saved_for_weight = take_bytes(c, sizes->saved_for_weight),
                .scratch = take_bytes(c, sizes->scratch),
                .workspace = take(c, RF_MEMORY_DEVICE,
                                  rf_shape1((int64_t)(plan->policy.workspace_bytes / 4)), RF_F32),
                .scalars = take(c, RF_MEMORY_HOST, rf_shape1(RF_SCALAR_WORDS), RF_F32),
                .targets = take_mapped(c, RF_I32),
                .losses = take_mapped(c, RF_F32),
                .starts = packed ? take_mapped(c, RF_I32) : none,
                .positions = packed ? take_mapped(c, RF_I32) : none,
                .tensor = rf_plan_tensor_part(plan, 0),
                .context = rf_plan_context_part(plan)},
        .in = block == 0 ? take_mapped(c, RF_I32) : take_out(c, block - 1),
        .out = take_out(c, block)};
    call->dout = last ? call->out : take_out(c, block);
    if (block > 0)
        call->din = take_out(c, block - 1);
    for (int half = RF_CALL_FORWARD; half < RF_CALL_COUNT; half++)
        for (int k = 0; k < RF_MAX_EXCHANGES; k++) {
            const struct rf_exchange *x = rf_plan_exchange(plan, block, (enum rf_call)half, k);
            if (x)
                call->exchanges[half][k] = take(c, RF_MEMORY_DEVICE, x->shape, x->dtype);
        }
    if (plan->policy.loss_scale != 0) {
        call->ctx.loss_scale = call->ctx.scalars;
        call->ctx.loss_scale.shape = rf_shape1(1);
    }
}

static int run_phase(const struct call *call, enum rf_call half, int phase)
{
    const struct rf_block *b = call->block;
    struct rf_ctx ctx = call->ctx;
    ctx.phase = phase;
    ctx.exchanged = phase > 0 ? call->exchanges[half][phase - 1] : (struct rf_tensor){0};
    if (phase < RF_MAX_EXCHANGES)
        ctx.exchange = call->exchanges[half][phase];
    switch (half) {
    case RF_CALL_FORWARD:
        return b->ops->forward(&ctx, b->self, call->in, call->out);
    case RF_CALL_BACKWARD_INPUT:
        return b->ops->backward_input(&ctx, b->self, call->in, call->dout, call->din);
    case RF_CALL_INVERT:
        return b->ops->invert(&ctx, b->self, call->in, call->out);
    default:
        return b->ops->backward_weight(&ctx, b->self, call->in, call->dout);
    }
}

static int run_half(const struct call *call, enum rf_call half)
{
    int phase = 0;
    RETURN_IF_ERROR(run_phase(call, half, phase));
    for (; phase < RF_MAX_EXCHANGES && call->exchanges[half][phase].buffer; phase++)
        RETURN_IF_ERROR(run_phase(call, half, phase + 1));
    return 0;
}

static int count_half(struct counter *c, const struct call *call, enum rf_call half,
                      struct rf_work *out)
{
    static const char *const names[] = {"forward", "backward_input", "backward_weight", "invert"};
    struct rf_work before, after;
    rf_device_work(c->device, &before);
    int rc = run_half(call, half);
    if (rc < 0 && rf_last_error()->status != rc)
        return rf_fail(rc, "%s of block %s failed while its launches were counted: %s", names[half],
                       call->block->name, rf_status_text(rc));
    if (rc < 0)
        return rc;
    rf_device_work(c->device, &after);
    const uint64_t parts = (uint64_t)rf_plan_parts(c->plan); /* parts are of about the same size */
    *out = (struct rf_work){.launches = (after.launches - before.launches) * parts,
                            .unranged = (after.unranged - before.unranged) * parts,
                            .flops = (after.flops - before.flops) * parts,
                            .repeated = (after.repeated - before.repeated) * parts,
                            .read = (after.read - before.read) * parts,
                            .written = (after.written - before.written) * parts};
    return 0;
}

static int count_block(struct counter *c, int block, struct rf_block_cost *out)
{
    const int first = c->plan->first_param[block];
    struct call call;
    make_call(c, block, &call);
    RETURN_IF_ERROR(count_half(c, &call, RF_CALL_FORWARD, &out->forward));
    if (c->plan->policy.forward_only || !rf_plan_has_backward(c->plan, block))
        return 0;
    if (rf_plan_inverts(c->plan, block))
        RETURN_IF_ERROR(count_half(c, &call, RF_CALL_INVERT, &out->invert));
    call.ctx.din_unused = rf_plan_ends_backward(c->plan, block);
    call.ctx.grads = c->grads;
    call.ctx.overwrite_grad = c->overwrite_grad;
    for (int writes = 0; writes < 2; writes++) {
        for (int i = 0; i < call.ctx.param_count; i++)
            c->overwrite_grad[i] = writes && c->plan->params[first + i].overwrite_grad;
        RETURN_IF_ERROR(count_half(c, &call, RF_CALL_BACKWARD_INPUT, &out->backward_input[writes]));
        if (rf_plan_block_trains(c->plan, block))
            RETURN_IF_ERROR(
                count_half(c, &call, RF_CALL_BACKWARD_WEIGHT, &out->backward_weight[writes]));
    }
    return 0;
}

int rf_block_costs(const struct rf_plan *plan, struct rf_block_cost *out)
{
    struct counter c;
    if (!plan || !out)
        return rf_fail(RF_EINVAL,
                       "rf_block_costs: a plan and memory for a cost of each block are needed");
    int rc = counter_open(&c, plan);
    for (int b = 0; rc == 0 && b < plan->block_count; b++) {
        out[b] = (struct rf_block_cost){0};
        rc = count_block(&c, b, &out[b]);
    }
    counter_close(&c);
    return rc;
}
