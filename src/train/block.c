/* SPDX-License-Identifier: MIT
 *
 * One call of one block: makes its context from the operands of an instruction. Called by the
 * executor; knows nothing of the order of calls.
 */
#include <stddef.h>

#include "../base/base.h"
#include "run.h"

struct call {
    const struct rf_run *run;
    const struct rf_instruction *i;
    const int *ins, *outs;
};

static struct rf_tensor in_of(const struct call *c, enum rf_value_kind kind)
{
    int value = rf_run_find(c->run, c->ins, c->i->ins, kind);
    return value < 0 ? (struct rf_tensor){0} : rf_run_value(c->run, value);
}

static struct rf_tensor out_of(const struct call *c, enum rf_value_kind kind)
{
    int value = rf_run_find(c->run, c->outs, c->i->outs, kind);
    return value < 0 ? (struct rf_tensor){0} : rf_run_value(c->run, value);
}

/* The output of `block`, or its gradient, among these operands. */
static struct rf_tensor output(const struct call *c, const int *operands, int count,
                               enum rf_value_kind kind, int block)
{
    const struct rf_plan *plan = c->run->plan;
    for (int k = 0; k < count; k++) {
        const struct rf_value *v = &plan->values[operands[k]];
        if (v->kind != kind || v->block != block)
            continue;
        struct rf_tensor t = rf_run_value(c->run, operands[k]);
        t.shape = plan->sizes[block].out;
        t.dtype = plan->sizes[block].dtype;
        return t;
    }
    return (struct rf_tensor){0};
}

static struct rf_tensor input(const struct call *c)
{
    return c->i->block == 0 ? rf_as(in_of(c, RF_VALUE_TOKENS), RF_I32)
                            : output(c, c->ins, c->i->ins, RF_VALUE_OUT, c->i->block - 1);
}

/* The value of a piece among these operands, or -1. */
static int of_piece(const struct call *c, const int *operands, int count, enum rf_value_kind kind,
                    int piece)
{
    for (int k = 0; k < count; k++) {
        const struct rf_value *v = &c->run->plan->values[operands[k]];
        if (v->kind == kind && v->piece == piece)
            return operands[k];
    }
    return -1;
}

/* A parameter as its block sees it: in the value of its piece. */
static struct rf_tensor param_of(const struct call *c, const struct rf_plan_param *param)
{
    const enum rf_dtype dtype = param->desc->dtype;
    const enum rf_value_kind kind = dtype == RF_F32 ? RF_VALUE_PARAM : RF_VALUE_COPY;
    int value = of_piece(c, c->ins, c->i->ins, kind, param->piece);
    if (value < 0)
        return (struct rf_tensor){0};
    struct rf_tensor t = rf_run_value(c->run, value);
    t.offset +=
        (param->first - c->run->plan->pieces[param->piece].first) * (uint64_t)rf_dtype_bytes(dtype);
    t.shape = rf_cut_shape(&param->cut);
    t.dtype = dtype;
    return t;
}

/* A gradient that the call writes and does not read had no value before. */
static void take_params(const struct call *c)
{
    const struct rf_run *run = c->run;
    const struct rf_plan *plan = run->plan;
    const int first = plan->first_param[c->i->block];
    for (int k = 0; k < plan->blocks[c->i->block].param_count; k++) {
        const struct rf_plan_param *param = &plan->params[first + k];
        int out = of_piece(c, c->outs, c->i->outs, RF_VALUE_GRAD, param->grad_piece);
        int in = of_piece(c, c->ins, c->i->ins, RF_VALUE_GRAD, param->grad_piece);
        run->call_params[k] = param_of(c, param);
        run->call_grads[k] = (struct rf_tensor){0};
        if (out >= 0)
            run->call_grads[k] = rf_run_grad_in(run, out, first + k);
        run->call_fresh[k] = out >= 0 && in < 0 && param->written;
    }
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

/* The losses are those of the micro-batch, also where this call does not write them. */
static struct rf_tensor losses(const struct rf_run *run, struct rf_tensor targets)
{
    struct rf_tensor t = run->regions[RF_REGION_LOSSES];
    t.offset += targets.offset - run->regions[RF_REGION_TARGETS].offset;
    t.shape = targets.shape;
    t.dtype = RF_F32;
    return t;
}

static bool is_forward(const struct rf_instruction *i)
{
    return i->verb == RF_VERB_FORWARD || i->verb == RF_VERB_RECOMPUTE;
}

/* Of the exchange with this number of the call, among these operands. */
static struct rf_tensor exchange(const struct call *c, const int *operands, int count, int number)
{
    const struct rf_plan *plan = c->run->plan;
    const int slot = rf_exchange_slot(rf_call_of(c->i->verb), number);
    for (int k = 0; k < count; k++) {
        const struct rf_value *v = &plan->values[operands[k]];
        if (v->kind != RF_VALUE_EXCHANGE || v->slot != slot)
            continue;
        struct rf_tensor t = rf_run_value(c->run, operands[k]);
        t.shape = rf_plan_exchange_of(plan, v)->shape;
        t.dtype = rf_plan_exchange_of(plan, v)->dtype;
        return t;
    }
    return (struct rf_tensor){0};
}

static struct rf_ctx make_ctx(const struct call *c, int64_t micro_batch)
{
    const struct rf_run *run = c->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_tensor targets = rf_as(in_of(c, RF_VALUE_TARGETS), RF_I32);
    const bool forward = is_forward(c->i);
    struct rf_tensor workspace = out_of(c, RF_VALUE_WORKSPACE);
    if (workspace.buffer) {
        workspace.shape = rf_shape1((int64_t)(plan->policy.workspace_bytes / sizeof(float)));
        workspace.dtype = RF_F32;
    }
    take_params(c);
    return (struct rf_ctx){.stream = run->stream,
                           .step = run->step,
                           .micro_batch = micro_batch,
                           .seed = run->seed,
                           .rows = plan->rows,
                           .seq = plan->policy.seq,
                           .param_count = plan->blocks[c->i->block].param_count,
                           .params = run->call_params,
                           .grads = run->call_grads,
                           .fresh = run->call_fresh,
                           .saved = forward ? out_of(c, RF_VALUE_SAVED) : in_of(c, RF_VALUE_SAVED),
                           .handoff = c->i->verb == RF_VERB_BACKWARD_WEIGHT
                                          ? in_of(c, RF_VALUE_HANDOFF)
                                          : out_of(c, RF_VALUE_HANDOFF),
                           .scratch = out_of(c, RF_VALUE_SCRATCH),
                           .workspace = workspace,
                           .scalars = rf_run_scalars(run),
                           .loss_scale = loss_scale(run),
                           .targets = targets,
                           .losses = losses(run, targets),
                           .tensor = rf_plan_tensor_part(plan),
                           .phase = c->i->phase,
                           .exchanged = exchange(c, c->ins, c->i->ins, c->i->phase - 1),
                           .exchange = exchange(c, c->outs, c->i->outs, c->i->phase)};
}

int rf_run_call_block(struct rf_run *run, const struct rf_instruction *i, int64_t micro_batch,
                      bool evaluate)
{
    const struct rf_block *b = &run->plan->blocks[i->block];
    const int *operands = rf_plan_operands(run->plan, i);
    const struct call c = {.run = run, .i = i, .ins = operands, .outs = operands + i->ins};
    struct rf_ctx ctx = make_ctx(&c, micro_batch);
    ctx.evaluate = evaluate;
    if (is_forward(i))
        return b->ops->forward(&ctx, b->self, input(&c),
                               output(&c, c.outs, i->outs, RF_VALUE_OUT, i->block));
    /* The last block's output carries its own gradient. */
    const bool last = i->block + 1 == run->plan->block_count;
    struct rf_tensor dout =
        output(&c, c.ins, i->ins, last ? RF_VALUE_OUT : RF_VALUE_DOUT, i->block);
    if (i->verb == RF_VERB_BACKWARD_WEIGHT)
        return b->ops->backward_weight(&ctx, b->self, input(&c), dout);
    return b->ops->backward_input(&ctx, b->self, input(&c), dout,
                                  output(&c, c.outs, i->outs, RF_VALUE_DOUT, i->block - 1));
}
