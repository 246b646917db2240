/* SPDX-License-Identifier: MIT
 *
 * Pass: the forward and backward passes of this rank's micro-batches, one after the other, and the
 * lists of evaluation. Says what each call of a block reads and writes; gradients of parameters are
 * gradients.c's. Where all ranks take part in every round, a rank without a micro-batch has a
 * phantom: its calls without operands.
 */
#include "../base/base.h"
#include "list.h"
#include "passes.h"

static int of_micro_batch(struct rf_writer *w, enum rf_value_kind kind, int micro_batch)
{
    return rf_value_of(w->plan, kind, -1, micro_batch, -1, -1);
}

static int of_block(struct rf_writer *w, enum rf_value_kind kind, int block, int micro_batch)
{
    return rf_value_of(w->plan, kind, block, micro_batch, -1, -1);
}

static int single(struct rf_writer *w, enum rf_value_kind kind)
{
    return rf_value_of(w->plan, kind, -1, -1, -1, -1);
}

/* Inputs, and with training the scalars that kernels read. */
static void load(struct rf_writer *w, int count)
{
    rf_write(w, RF_VERB_LOAD, RF_LANE_HOST, -1, -1);
    for (int local = 0; local < count; local++) {
        const int m = rf_plan_micro_batch(w->plan, local);
        rf_write_out(w, of_micro_batch(w, RF_VALUE_TOKENS, m));
        rf_write_out(w, of_micro_batch(w, RF_VALUE_TARGETS, m));
    }
    if (!w->plan->policy.forward_only)
        rf_write_out(w, single(w, RF_VALUE_SCALARS));
}

/* The pieces that hold the block's parameters in this form, each once. */
static void read_params(struct rf_writer *w, int block, enum rf_value_kind kind)
{
    const struct rf_plan *plan = w->plan;
    const int first = plan->first_param[block];
    for (int i = 0; i < plan->blocks[block].param_count; i++) {
        const struct rf_plan_param *param = &plan->params[first + i];
        bool before = (param->desc->dtype == RF_F32) != (kind == RF_VALUE_PARAM);
        for (int k = 0; k < i && !before; k++) {
            const struct rf_plan_param *other = &plan->params[first + k];
            before = other->piece == param->piece &&
                     (other->desc->dtype == RF_F32) == (kind == RF_VALUE_PARAM);
        }
        if (!before)
            rf_write_in(w, rf_value_of(w->plan, kind, -1, -1, -1, param->piece));
    }
}

/* What every call of a block reads. */
static void read_block(struct rf_writer *w, int block, int micro_batch)
{
    rf_write_in(w, block == 0 ? of_micro_batch(w, RF_VALUE_TOKENS, micro_batch)
                              : of_block(w, RF_VALUE_OUT, block - 1, micro_batch));
    read_params(w, block, RF_VALUE_PARAM);
    read_params(w, block, RF_VALUE_COPY);
    rf_write_in(w, of_micro_batch(w, RF_VALUE_TARGETS, micro_batch));
    if (!w->plan->policy.forward_only)
        rf_write_in(w, single(w, RF_VALUE_SCALARS));
}

static void write_scratch(struct rf_writer *w)
{
    rf_write_out(w, single(w, RF_VALUE_SCRATCH));
    rf_write_out(w, single(w, RF_VALUE_WORKSPACE));
}

static void forward(struct rf_writer *w, int block, int micro_batch)
{
    rf_write(w, RF_VERB_FORWARD, RF_LANE_COMPUTE, block, micro_batch);
    if (micro_batch == RF_PHANTOM)
        return;
    read_block(w, block, micro_batch);
    rf_write_out(w, of_block(w, RF_VALUE_OUT, block, micro_batch));
    rf_write_out(w, of_block(w, RF_VALUE_SAVED, block, micro_batch));
    if (block + 1 == w->plan->block_count)
        rf_write_out(w, of_micro_batch(w, RF_VALUE_LOSSES, micro_batch));
    write_scratch(w);
}

/* The last block's output carries its own gradient. */
static int dout(struct rf_writer *w, int block, int micro_batch)
{
    bool last = block + 1 == w->plan->block_count;
    return of_block(w, last ? RF_VALUE_OUT : RF_VALUE_DOUT, block, micro_batch);
}

static void backward_input(struct rf_writer *w, int block, int micro_batch)
{
    rf_write(w, RF_VERB_BACKWARD_INPUT, RF_LANE_COMPUTE, block, micro_batch);
    if (micro_batch == RF_PHANTOM)
        return;
    read_block(w, block, micro_batch);
    rf_write_in(w, of_block(w, RF_VALUE_SAVED, block, micro_batch));
    rf_write_in(w, dout(w, block, micro_batch));
    rf_write_out(w, dout(w, block, micro_batch));
    if (block > 0)
        rf_write_out(w, dout(w, block - 1, micro_batch));
    rf_write_out(w, of_block(w, RF_VALUE_HANDOFF, block, micro_batch));
    if (block + 1 == w->plan->block_count)
        rf_write_out(w, of_micro_batch(w, RF_VALUE_LOSSES, micro_batch));
    write_scratch(w);
}

static void backward_weight(struct rf_writer *w, int block, int micro_batch)
{
    rf_write(w, RF_VERB_BACKWARD_WEIGHT, RF_LANE_COMPUTE, block, micro_batch);
    if (micro_batch == RF_PHANTOM)
        return;
    read_block(w, block, micro_batch);
    rf_write_in(w, of_block(w, RF_VALUE_SAVED, block, micro_batch));
    rf_write_in(w, dout(w, block, micro_batch));
    rf_write_in(w, of_block(w, RF_VALUE_HANDOFF, block, micro_batch));
    write_scratch(w);
}

static int write_list(struct rf_plan *plan, enum rf_list_id id, int micro_batches, int rounds,
                      bool training)
{
    struct rf_list list = {0};
    struct rf_writer w = {.plan = plan, .list = &list};
    if (micro_batches > 0)
        load(&w, micro_batches);
    for (int k = 0; k < rounds; k++) {
        const int m = k < micro_batches ? rf_plan_micro_batch(plan, k) : RF_PHANTOM;
        for (int block = 0; block < plan->block_count; block++)
            forward(&w, block, m);
        for (int block = plan->block_count - 1; training && block >= 0; block--) {
            backward_input(&w, block, m);
            backward_weight(&w, block, m);
        }
    }
    return rf_write_end(&w, &plan->lists[id]);
}

int rf_pass_expand(struct rf_plan *plan)
{
    const int mine = plan->local_micro_batches;
    const int rounds = plan->dealt ? rf_plan_rounds(plan) : mine;
    RETURN_IF_ERROR(write_list(plan, RF_LIST_STEP, mine, rounds, !plan->policy.forward_only));
    RETURN_IF_ERROR(write_list(plan, RF_LIST_EVALUATE, mine, mine, false));
    RETURN_IF_ERROR(write_list(plan, RF_LIST_EVALUATE_ONE, 1, 1, false));
    return write_list(plan, RF_LIST_EVALUATE_NONE, 0, 1, false);
}
