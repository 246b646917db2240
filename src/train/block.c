/* SPDX-License-Identifier: MIT
 *
 * Calls one block: makes its context from the operands of an instruction. The executor calls this
 * file; the order of calls is not decided here. If this rank has several parts of a block, the
 * block is called once for each part, with that part of every operand.
 */
#include <stddef.h>

#include "../base/base.h"
#include "../parallel/plan/exchange.h"
#include "../parallel/plan/frozen.h"
#include "run.h"

struct call {
    const struct rf_run *run;
    const struct rf_instruction *i;
    int part; /* from 0 */
};

/* Bytes [first, first + bytes) of a region. */
static struct rf_tensor bytes_of(struct rf_tensor region, uint64_t first, uint64_t bytes)
{
    if (!region.buffer)
        return region;
    region.offset += first;
    region.shape = rf_shape1((int64_t)bytes);
    return region;
}

/* This part's bytes of the memory that a block keeps. Those of lower parts precede them. */
static struct rf_tensor kept(const struct call *c, struct rf_tensor region, bool for_weight)
{
    const struct rf_plan *plan = c->run->plan;
    uint64_t first = 0, bytes = 0;
    if (rf_plan_parts(plan) == 1)
        return region;
    for (int k = 0; k <= c->part; k++) {
        const struct rf_block_sizes *sizes = rf_plan_part_sizes(plan, c->i->block, k);
        first += k > 0 ? rf_plan_aligned(bytes) : 0;
        bytes = for_weight ? sizes->saved_for_weight : sizes->saved;
    }
    return bytes > 0 ? bytes_of(region, first, bytes) : (struct rf_tensor){0};
}

/* The only operand that is read, or written, with this role; a NULL buffer: there is none. */
static struct rf_tensor in_of(const struct call *c, enum rf_role role)
{
    return rf_run_span(c->run, rf_plan_ins(c->run->plan, c->i, role));
}

static struct rf_tensor out_of(const struct call *c, enum rf_role role)
{
    return rf_run_span(c->run, rf_plan_outs(c->run->plan, c->i, role));
}

struct rf_tensor rf_run_part_of_output(const struct rf_plan *plan, int block, int part,
                                       struct rf_tensor output)
{
    for (int k = 0; k <= part; k++) {
        const struct rf_block_sizes *sizes = rf_plan_part_sizes(plan, block, k);
        output.shape = sizes->out;
        output.dtype = sizes->dtype;
        output.offset += k < part ? rf_plan_aligned(rf_tensor_bytes(output)) : 0;
    }
    return output;
}

/* This part of an output of `block`, or of its gradient. */
static struct rf_tensor part_of_output(const struct call *c, int block, struct rf_tensor all)
{
    return all.buffer ? rf_run_part_of_output(c->run->plan, block, c->part, all) : all;
}

static struct rf_tensor input(const struct call *c)
{
    const struct rf_tensor all = in_of(c, RF_ROLE_INPUT);
    return c->i->block == 0 ? rf_as(all, RF_I32) : part_of_output(c, c->i->block - 1, all);
}

static struct rf_tensor part_of_param(const struct call *c, const struct rf_plan_param *param,
                                      struct rf_tensor all)
{
    const struct rf_param_cut part = rf_cut_part(&param->cut, c->part);
    all.offset += rf_cut_part_first(&param->cut, c->part) * rf_dtype_bytes(all.dtype);
    all.shape = rf_cut_shape(&part);
    return all;
}

/* A parameter as its block uses it: in the value of its piece. */
static struct rf_tensor param_of(const struct call *c, const struct rf_plan_param *param,
                                 struct rf_operands pieces)
{
    const enum rf_dtype dtype = param->desc->dtype;
    struct rf_tensor t = rf_run_value(c->run, pieces.values[param->operand]);
    const uint64_t element = param->raw ? sizeof(float) : rf_dtype_bytes(dtype);
    t.offset += (param->first - c->run->plan->pieces[param->piece].first) * element;
    t.dtype = dtype;
    if (!param->raw)
        return part_of_param(c, param, t);
    t.dtype = RF_F32; /* as words */
    t = part_of_param(c, param, t);
    t.dtype = RF_U8;
    t.shape.dim[0] *= (int64_t)element;
    return t;
}

/* Parts have equal gradients of parameters that are not sharded, so only the first part's gradient
 * is used. */
static bool is_spare(const struct call *c, const struct rf_plan_param *param)
{
    return c->part > 0 && param->cut.split.kind == RF_SPLIT_NONE;
}

/* Memory for a gradient that is not used. */
static struct rf_tensor spare(const struct call *c, const struct rf_plan_param *param, uint64_t *at)
{
    const struct rf_tensor scratch = out_of(c, RF_ROLE_SCRATCH);
    const uint64_t first = rf_tensor_bytes(scratch) - rf_plan_spare_bytes(c->run->plan) + *at;
    struct rf_tensor t = scratch;
    t.offset += first;
    t.dtype = RF_F32;
    t.shape = rf_cut_shape(&param->cut);
    *at += rf_plan_aligned(rf_tensor_bytes(t));
    return t;
}

/* A gradient that the call writes without reading it had no value before. */
static void take_params(const struct call *c)
{
    const struct rf_run *run = c->run;
    const struct rf_plan *plan = run->plan;
    const int first = plan->first_param[c->i->block];
    const struct rf_operands wide = rf_plan_ins(plan, c->i, RF_ROLE_PARAM);
    const struct rf_operands narrow = rf_plan_ins(plan, c->i, RF_ROLE_COPY);
    const struct rf_operands grads = rf_plan_outs(plan, c->i, RF_ROLE_GRAD);
    const bool adds = rf_plan_ins(plan, c->i, RF_ROLE_GRAD).count > 0;
    uint64_t spared = 0;
    for (int k = 0; k < plan->blocks[c->i->block].param_count; k++) {
        const struct rf_plan_param *param = &plan->params[first + k];
        const int out =
            grads.count && param->grad_operand >= 0 ? grads.values[param->grad_operand] : -1;
        run->call_params[k] = param_of(c, param, rf_plan_narrow(param) ? narrow : wide);
        run->call_grads[k] = (struct rf_tensor){0};
        if (out >= 0 && is_spare(c, param))
            run->call_grads[k] = spare(c, param, &spared);
        else if (out >= 0)
            run->call_grads[k] = part_of_param(c, param, rf_run_grad_in(run, out, first + k));
        run->call_overwrite_grad[k] = out >= 0 && !adds && param->overwrite_grad;
    }
}

/* What blocks read. There is none in a forward pass alone. */
static struct rf_tensor scalars(const struct call *c)
{
    struct rf_tensor t = in_of(c, RF_ROLE_SCALARS);
    if (!t.buffer)
        return t;
    t.shape = rf_shape1(RF_SCALAR_WORDS);
    t.dtype = RF_F32;
    return t;
}

static struct rf_tensor loss_scale(const struct rf_plan *plan, struct rf_tensor scalars)
{
    if (!scalars.buffer || plan->policy.loss_scale == 0)
        return (struct rf_tensor){0};
    scalars.offset += offsetof(struct rf_step_scalars, loss_scale);
    scalars.shape = rf_shape1(1);
    return scalars;
}

/* The starts (part 0) or positions (part 1) of the documents of the micro-batch. */
static struct rf_tensor documents(const struct rf_run *run, struct rf_tensor targets, int part)
{
    struct rf_tensor t = run->regions[RF_REGION_STARTS];
    if (!run->starts)
        return (struct rf_tensor){0};
    t.offset += 2 * (targets.offset - run->regions[RF_REGION_TARGETS].offset) +
                (uint64_t)part * rf_tensor_bytes(targets);
    t.shape = targets.shape;
    t.dtype = RF_I32;
    return t;
}

static bool is_forward(const struct rf_instruction *i)
{
    return i->verb == RF_VERB_FORWARD || i->verb == RF_VERB_RECOMPUTE || i->verb == RF_VERB_INVERT;
}

/* An exchange of this call. */
struct exchanged {
    const struct rf_exchange *exchange; /* NULL: none */
    struct rf_tensor value;
};

static struct exchanged exchanged(const struct call *c, struct rf_operands operands)
{
    const struct rf_plan *plan = c->run->plan;
    if (operands.count == 0)
        return (struct exchanged){0};
    return (struct exchanged){rf_plan_exchange_of(plan, &plan->values[operands.values[0]]),
                              rf_run_value(c->run, operands.values[0])};
}

/* The tensor that this phase writes, and the one that the phase before it wrote. */
static struct exchanged given(const struct call *c)
{
    return exchanged(c, rf_plan_outs(c->run->plan, c->i, RF_ROLE_EXCHANGE));
}

static struct exchanged got(const struct call *c)
{
    return exchanged(c, rf_plan_ins(c->run->plan, c->i, RF_ROLE_EXCHANGED));
}

/* Part `part` of an exchange: as a block writes it or, if `sum`, as it is added. */
static struct rf_tensor part_of_exchange(const struct call *c, const struct exchanged *x, int part,
                                         bool sum)
{
    const struct rf_plan *plan = c->run->plan;
    struct rf_tensor t = x->value;
    if (!x->exchange)
        return (struct rf_tensor){0};
    t.offset += rf_exchange_part_first(plan, x->exchange, part, sum);
    t.shape = x->exchange->shape;
    t.dtype = sum ? rf_exchange_type(plan, x->exchange) : x->exchange->dtype;
    return t;
}

static struct rf_ctx make_ctx(const struct call *c, int64_t micro_batch)
{
    const struct rf_run *run = c->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_tensor targets = rf_as(in_of(c, RF_ROLE_TARGETS), RF_I32);
    const struct rf_tensor losses = out_of(c, RF_ROLE_LOSSES), step = scalars(c);
    const struct rf_tensor scratch = out_of(c, RF_ROLE_SCRATCH);
    const struct exchanged from = got(c), to = given(c);
    const bool forward = is_forward(c->i);
    struct rf_tensor workspace = out_of(c, RF_ROLE_WORKSPACE);
    if (workspace.buffer) {
        workspace.shape = rf_shape1((int64_t)(plan->policy.workspace_bytes / sizeof(float)));
        workspace.dtype = RF_F32;
    }
    take_params(c);
    return (struct rf_ctx){
        .stream = run->stream,
        .step = run->step - c->i->behind,
        .micro_batch = micro_batch,
        .seed = run->seed,
        .rows = plan->rows,
        .seq = rf_plan_seq(plan),
        .param_count = plan->blocks[c->i->block].param_count,
        .params = run->call_params,
        .grads = run->call_grads,
        .overwrite_grad = run->call_overwrite_grad,
        .din_unused = !forward && rf_plan_ends_backward(plan, c->i->block),
        .saved = kept(c, forward ? out_of(c, RF_ROLE_SAVED) : in_of(c, RF_ROLE_SAVED), false),
        .saved_for_weight =
            kept(c,
                 c->i->verb == RF_VERB_BACKWARD_WEIGHT ? in_of(c, RF_ROLE_SAVED_FOR_WEIGHT)
                                                       : out_of(c, RF_ROLE_SAVED_FOR_WEIGHT),
                 true),
        .scratch = bytes_of(scratch, 0, rf_tensor_bytes(scratch) - rf_plan_spare_bytes(plan)),
        .workspace = workspace,
        .scalars = step,
        .loss_scale = loss_scale(plan, step),
        .targets = targets,
        .losses = losses.buffer ? rf_as(losses, RF_F32) : losses,
        .starts = documents(run, targets, 0),
        .positions = documents(run, targets, 1),
        .tensor = rf_plan_tensor_part(plan, c->part),
        .context = rf_plan_context_part(plan),
        .phase = c->i->phase,
        .exchanged = part_of_exchange(c, &from, 0, false),
        .exchange = part_of_exchange(c, &to, c->part, false)};
}

static int call_part(const struct call *c, int64_t micro_batch, bool evaluate)
{
    const struct rf_instruction *i = c->i;
    const struct rf_block *b = &c->run->plan->blocks[i->block];
    struct rf_ctx ctx = make_ctx(c, micro_batch);
    ctx.evaluate = evaluate;
    if (i->verb == RF_VERB_INVERT)
        return b->ops->invert(&ctx, b->self,
                              part_of_output(c, i->block - 1, out_of(c, RF_ROLE_INPUT)),
                              part_of_output(c, i->block, in_of(c, RF_ROLE_OUTPUT)));
    if (is_forward(i))
        return b->ops->forward(&ctx, b->self, input(c),
                               part_of_output(c, i->block, out_of(c, RF_ROLE_OUTPUT)));
    const struct rf_tensor dout = part_of_output(c, i->block, in_of(c, RF_ROLE_OUTPUT_GRAD));
    if (i->verb == RF_VERB_BACKWARD_WEIGHT)
        return b->ops->backward_weight(&ctx, b->self, input(c), dout);
    return b->ops->backward_input(&ctx, b->self, input(c), dout,
                                  part_of_output(c, i->block - 1, out_of(c, RF_ROLE_INPUT_GRAD)));
}

/* Adds the tensors that the parts of this rank write for an exchange into the first part's. The sum
 * is a subtree of the tree over all ranks. */
static int join_parts(const struct call *c)
{
    struct rf_stream *stream = c->run->stream;
    const int parts = rf_plan_parts(c->run->plan);
    const struct exchanged x = given(c);
    if (!x.exchange || !rf_exchange_adds(x.exchange))
        return 0;
    for (int k = 0; rf_exchange_widens(c->run->plan, x.exchange) && k < parts; k++)
        RETURN_IF_ERROR(
            rf_cast(stream, part_of_exchange(c, &x, k, true), part_of_exchange(c, &x, k, false)));
    for (int step = 1; step < parts; step *= 2)
        for (int k = 0; k + step < parts; k += 2 * step) {
            const struct rf_tensor to = part_of_exchange(c, &x, k, true);
            const struct rf_tensor more = part_of_exchange(c, &x, k + step, true);
            RETURN_IF_ERROR(x.exchange->kind == RF_EXCHANGE_MAX ? rf_maximum(stream, to, to, more)
                                                                : rf_add(stream, to, to, more));
        }
    return 0;
}

/* Rounds the sum to the type of the exchange. */
static int round_sum(const struct call *c)
{
    const struct exchanged x = got(c);
    if (!x.exchange || !rf_exchange_widens(c->run->plan, x.exchange))
        return 0;
    return rf_cast(c->run->stream, part_of_exchange(c, &x, 0, false),
                   part_of_exchange(c, &x, 0, true));
}

int rf_run_call_block(struct rf_run *run, const struct rf_instruction *i, int64_t micro_batch,
                      bool evaluate)
{
    struct call c = {.run = run, .i = i};
    RETURN_IF_ERROR(round_sum(&c));
    for (; c.part < rf_plan_parts(run->plan); c.part++)
        RETURN_IF_ERROR(call_part(&c, micro_batch, evaluate));
    return join_parts(&c);
}
