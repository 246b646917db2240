/* SPDX-License-Identifier: MIT
 *
 * Pass: the forward and backward passes of this rank's micro-batches, one after the other, and the
 * lists of evaluation. It defines what each call of a block reads and writes, except the gradients
 * of parameters, which gradients.c adds. If all ranks take part in every round, a rank without a
 * micro-batch has a phantom: its calls without operands.
 */
#include "../../base/base.h"
#include "../plan/exchange.h"
#include "../plan/frozen.h"
#include "../plan/list.h"
#include "passes.h"
#include "stages.h"

static int of_micro_batch(struct rf_writer *w, enum rf_value_kind kind, int micro_batch)
{
    return rf_value_of(w->plan, kind, -1, micro_batch, w->behind ? RF_SLOT_BEFORE : -1, -1);
}

static int of_block(struct rf_writer *w, enum rf_value_kind kind, int block, int micro_batch)
{
    return rf_value_of(w->plan, kind, block, micro_batch, -1, -1);
}

static int single(struct rf_writer *w, enum rf_value_kind kind)
{
    return rf_value_of(w->plan, kind, -1, -1, -1, -1);
}

static int scalars(struct rf_writer *w, int slot)
{
    return rf_value_of(w->plan, RF_VALUE_SCALARS, -1, -1, slot, -1);
}

/* The scalars that blocks read. */
static int block_scalars(struct rf_writer *w)
{
    const int slot = w->behind ? RF_SCALARS_BEFORE : RF_SCALARS_NOW;
    return scalars(w, rf_plan_lags(w->plan) ? slot : -1);
}

static void write_kept(struct rf_writer *w, int value, bool out)
{
    if (out)
        rf_write_out(w, RF_ROLE_TO, value);
    else
        rf_write_in(w, RF_ROLE_FROM, value);
}

/* Moves the inputs and losses of the step in progress while the next one is loaded. */
static void keep(struct rf_writer *w, int count, bool out)
{
    w->behind = out;
    for (int local = 0; local < count; local++) {
        const int m = rf_plan_micro_batch(w->plan, local);
        write_kept(w, of_micro_batch(w, RF_VALUE_TOKENS, m), out);
        write_kept(w, of_micro_batch(w, RF_VALUE_TARGETS, m), out);
        if (rf_plan_has_losses(w->plan))
            write_kept(w, of_micro_batch(w, RF_VALUE_LOSSES, m), out);
    }
    write_kept(w, block_scalars(w), out);
    w->behind = 0;
}

/* Loads inputs and, in training, the scalars that kernels read. */
static void load(struct rf_writer *w, int count, enum rf_list_id id)
{
    const bool under_way = rf_plan_lags(w->plan) && (id == RF_LIST_STEP || id == RF_LIST_DRAIN);
    rf_write(w, RF_VERB_LOAD, RF_LANE_HOST, -1, -1);
    for (int outs = 0; under_way && outs < 2; outs++)
        keep(w, count, outs);
    for (int local = 0; id != RF_LIST_DRAIN && local < count; local++)
        rf_write_out(w, RF_ROLE_INPUT,
                     of_micro_batch(w, RF_VALUE_TOKENS, rf_plan_micro_batch(w->plan, local)));
    for (int local = 0; id != RF_LIST_DRAIN && local < count; local++)
        rf_write_out(w, RF_ROLE_TARGETS,
                     of_micro_batch(w, RF_VALUE_TARGETS, rf_plan_micro_batch(w->plan, local)));
    if (under_way)
        rf_write_out(w, RF_ROLE_SCALARS, single(w, RF_VALUE_SCALARS));
    if (!w->plan->policy.forward_only && id != RF_LIST_DRAIN)
        rf_write_out(w, rf_plan_lags(w->plan) ? RF_ROLE_STEP_SCALARS : RF_ROLE_SCALARS,
                     block_scalars(w));
}

/* A piece of parameters in this form, in the version that the calls being written read. */
static int param_value(struct rf_writer *w, enum rf_value_kind kind, int piece)
{
    const bool older = w->older && w->plan->pieces[piece].trained;
    if (older && kind == RF_VALUE_PARAM)
        return rf_value_of(w->plan, RF_VALUE_STATE, -1, -1, RF_STATE_BEFORE, piece);
    return rf_value_of(w->plan, kind, -1, -1, older ? RF_SLOT_BEFORE : -1, piece);
}

/* Reads the pieces with the block's parameters in f32, or those in 16 bits, each once. */
static void read_params(struct rf_writer *w, int block, bool narrow)
{
    const struct rf_plan *plan = w->plan;
    const struct rf_plan_param *params = &plan->params[plan->first_param[block]];
    for (int k = 0, next = 0; k < plan->blocks[block].param_count; k++) {
        if (rf_plan_narrow(&params[k]) != narrow || params[k].operand != next)
            continue;
        rf_write_in(w, narrow ? RF_ROLE_COPY : RF_ROLE_PARAM,
                    param_value(w, narrow ? RF_VALUE_COPY : RF_VALUE_PARAM, params[k].piece));
        next++;
    }
}

/* The operands of every call of a block. */
static void read_block(struct rf_writer *w, enum rf_verb verb, int block, int micro_batch)
{
    if (verb == RF_VERB_INVERT)
        rf_write_in(w, RF_ROLE_OUTPUT, of_block(w, RF_VALUE_OUT, block, micro_batch));
    else
        rf_write_in(w, RF_ROLE_INPUT,
                    block == 0 ? of_micro_batch(w, RF_VALUE_TOKENS, micro_batch)
                               : of_block(w, RF_VALUE_OUT, block - 1, micro_batch));
    read_params(w, block, false);
    read_params(w, block, true);
    rf_write_in(w, RF_ROLE_TARGETS, of_micro_batch(w, RF_VALUE_TARGETS, micro_batch));
    if (!w->plan->policy.forward_only)
        rf_write_in(w, RF_ROLE_SCALARS, block_scalars(w));
}

static void write_scratch(struct rf_writer *w)
{
    rf_write_out(w, RF_ROLE_SCRATCH, single(w, RF_VALUE_SCRATCH));
    rf_write_out(w, RF_ROLE_WORKSPACE, single(w, RF_VALUE_WORKSPACE));
}

/* The output of the last block has its own gradient. */
static int dout(struct rf_writer *w, int block, int micro_batch)
{
    bool last = block + 1 == w->plan->block_count;
    return of_block(w, last ? RF_VALUE_OUT : RF_VALUE_DOUT, block, micro_batch);
}

/* One phase of a call of a block, and the exchange before it. */
struct phase {
    enum rf_verb verb;
    int block, micro_batch, number;
};

static int exchange_value(struct rf_writer *w, const struct phase *p, int number)
{
    return rf_value_of(w->plan, RF_VALUE_EXCHANGE, p->block, p->micro_batch,
                       rf_exchange_slot(rf_call_of(p->verb), number), -1);
}

static bool is_last_block(const struct rf_writer *w, int block)
{
    return block + 1 == w->plan->block_count;
}

static void write_losses(struct rf_writer *w, const struct phase *p, bool out)
{
    const int value =
        is_last_block(w, p->block) ? of_micro_batch(w, RF_VALUE_LOSSES, p->micro_batch) : -1;
    if (value < 0)
        return;
    if (out)
        rf_write_out(w, RF_ROLE_LOSSES, value);
    else
        rf_write_in(w, RF_ROLE_LOSSES, value);
}

/* Adds an operand. unread: it may stay unread, because no backward pass needs it. */
static void write_unread(struct rf_writer *w, enum rf_role role, int value, bool out, bool unread)
{
    if (unread && value >= 0)
        w->plan->values[value].may_stay_unread = true;
    if (out)
        rf_write_out(w, role, value);
    else
        rf_write_in(w, role, value);
}

/* The values that a call produces, and keeps between its phases. */
static void made(struct rf_writer *w, const struct phase *p, bool out)
{
    const struct rf_plan *plan = w->plan;
    const int b = p->block, m = p->micro_batch;
    if (p->verb == RF_VERB_FORWARD) {
        write_unread(w, RF_ROLE_OUTPUT, of_block(w, RF_VALUE_OUT, b, m), out, false);
        write_unread(w, RF_ROLE_SAVED, of_block(w, RF_VALUE_SAVED, b, m), out,
                     !rf_plan_has_backward(plan, b) || rf_plan_inverts(plan, b));
    } else if (p->verb == RF_VERB_INVERT) {
        write_unread(w, RF_ROLE_INPUT, of_block(w, RF_VALUE_OUT, b - 1, m), out, false);
        write_unread(w, RF_ROLE_SAVED, of_block(w, RF_VALUE_SAVED, b, m), out, false);
    } else if (p->verb == RF_VERB_BACKWARD_INPUT) {
        if (b > 0)
            write_unread(w, RF_ROLE_INPUT_GRAD, dout(w, b - 1, m), out,
                         rf_plan_ends_backward(plan, b));
        write_unread(w, RF_ROLE_SAVED_FOR_WEIGHT, of_block(w, RF_VALUE_SAVED_FOR_WEIGHT, b, m), out,
                     !rf_plan_block_trains(plan, b));
    }
    if (p->verb == RF_VERB_FORWARD || p->verb == RF_VERB_BACKWARD_INPUT)
        write_losses(w, p, out);
}

static void write_phase(struct rf_writer *w, const struct phase *p)
{
    const struct rf_plan *plan = w->plan;
    const int b = p->block, m = p->micro_batch;
    const bool ends = !rf_plan_exchange(plan, b, rf_call_of(p->verb), p->number);
    rf_write(w, p->verb, RF_LANE_COMPUTE, b, m);
    rf_write_phase(w, p->number);
    if (m == RF_PHANTOM)
        return;
    read_block(w, p->verb, b, m);
    if (p->verb == RF_VERB_BACKWARD_INPUT || p->verb == RF_VERB_BACKWARD_WEIGHT) {
        rf_write_in(w, RF_ROLE_SAVED, of_block(w, RF_VALUE_SAVED, b, m));
        rf_write_in(w, RF_ROLE_OUTPUT_GRAD, dout(w, b, m));
    }
    if (p->verb == RF_VERB_BACKWARD_WEIGHT)
        rf_write_in(w, RF_ROLE_SAVED_FOR_WEIGHT, of_block(w, RF_VALUE_SAVED_FOR_WEIGHT, b, m));
    if (p->number > 0) {
        made(w, p, false);
        rf_write_in(w, RF_ROLE_EXCHANGED, exchange_value(w, p, p->number - 1));
    }
    if (p->verb == RF_VERB_BACKWARD_INPUT) /* carried to the weight half, if there is one */
        write_unread(w, RF_ROLE_OUTPUT_GRAD, dout(w, b, m), true, !rf_plan_block_trains(plan, b));
    made(w, p, true);
    if (!ends)
        rf_write_out(w, RF_ROLE_EXCHANGE, exchange_value(w, p, p->number));
    write_scratch(w);
}

/* The exchange between phase p->number and the next one, over the tensor ranks. */
static void write_exchange(struct rf_writer *w, const struct phase *p)
{
    const struct rf_exchange *x =
        rf_plan_exchange(w->plan, p->block, rf_call_of(p->verb), p->number);
    const bool parts = x->kind == RF_EXCHANGE_GATHER || x->kind == RF_EXCHANGE_SCATTER;
    const int value = exchange_value(w, p, p->number);
    if (rf_plan_tensor_ranks(w->plan) == 1) /* this rank has all parts */
        return;
    rf_write(w, RF_VERB_EXCHANGE, RF_LANE_TENSOR, p->block, p->micro_batch);
    rf_write_phase(w, p->number);
    rf_write_call(w, p->verb);
    rf_write_in(w, RF_ROLE_FROM, value);
    rf_write_out(w, RF_ROLE_TO, value);
    rf_write_transfer(
        w, (struct rf_transfer){.op = x->kind == RF_EXCHANGE_GATHER    ? RF_COLL_ALL_GATHER
                                      : x->kind == RF_EXCHANGE_SCATTER ? RF_COLL_REDUCE_SCATTER
                                                                       : RF_COLL_ALL_REDUCE,
                                .count = (size_t)rf_shape_count(x->shape) /
                                         (size_t)(parts ? rf_plan_tensor_ranks(w->plan) : 1),
                                .dtype = rf_exchange_type(w->plan, x),
                                .order = rf_exchange_order(w->plan)});
}

/* A weight half that is delayed until the gradients of the next block are being exchanged: compute
 * would otherwise wait for the exchange. -1: none. */
struct delayed_half {
    int block, micro_batch;
};

static void call(struct rf_writer *w, enum rf_verb verb, int block, int micro_batch,
                 struct delayed_half *later)
{
    struct phase p = {verb, block, micro_batch, 0};
    for (;; p.number++) {
        write_phase(w, &p);
        if (micro_batch == RF_PHANTOM ||
            !rf_plan_exchange(w->plan, block, rf_call_of(verb), p.number))
            return;
        write_exchange(w, &p);
        if (later && later->block >= 0) {
            const struct delayed_half now = *later;
            later->block = -1;
            call(w, RF_VERB_BACKWARD_WEIGHT, now.block, now.micro_batch, NULL);
        }
    }
}

/* Sends a value of this micro-batch to the rank that has the other block, or receives it from
 * there. */
static void message(struct rf_writer *w, enum rf_verb verb, enum rf_lane lane,
                    enum rf_value_kind kind, int block, int other, int micro_batch)
{
    const struct rf_plan *plan = w->plan;
    const struct rf_block_sizes *sizes = &plan->sizes[block];
    const bool sends = verb == RF_VERB_SEND;
    const int back = rf_plan_goes_back(plan, block) ? RF_LANE_SEND_OUT_BACK - RF_LANE_SEND_OUT : 0;
    if (micro_batch == RF_PHANTOM) /* the peer's is a phantom, too */
        return;
    rf_write(w, verb, (enum rf_lane)((int)lane + back), block, micro_batch);
    const enum rf_role role = kind == RF_VALUE_OUT ? RF_ROLE_OUTPUT : RF_ROLE_OUTPUT_GRAD;
    if (sends)
        rf_write_in(w, role, of_block(w, kind, block, micro_batch));
    else
        rf_write_out(w, role, of_block(w, kind, block, micro_batch));
    rf_write_transfer(
        w, (struct rf_transfer){.op = sends ? RF_COLL_SEND : RF_COLL_RECV,
                                .count = (size_t)rf_shape_count(sizes->out),
                                .dtype = sizes->dtype,
                                .peer = rf_plan_rank_at(plan, plan->home_of[other], plan->dp_rank),
                                .tag = rf_message_tag((int)lane + back)});
}

/* Whether block `b` belongs to the stage. */
static bool is_of(const struct rf_plan *plan, int b, int stage)
{
    return b >= 0 && b < plan->block_count && plan->stage_of[b] == stage;
}

/* The blocks of a stage, and messages if the block before or after them is on another rank. */
static void forward_pass(struct rf_writer *w, int stage, int m)
{
    const struct rf_plan *plan = w->plan;
    for (int b = 0; b < plan->block_count; b++) {
        if (!is_of(plan, b, stage))
            continue;
        if (b > 0 && !rf_plan_holds(plan, b - 1))
            message(w, RF_VERB_RECV, RF_LANE_RECV_OUT, RF_VALUE_OUT, b - 1, b - 1, m);
        call(w, RF_VERB_FORWARD, b, m, NULL);
        if (b + 1 < plan->block_count && !rf_plan_holds(plan, b + 1))
            message(w, RF_VERB_SEND, RF_LANE_SEND_OUT, RF_VALUE_OUT, b, b + 1, m);
    }
}

/* Whether weight halves are delayed until tensor ranks exchange. Not if parameters are gathered for
 * a block, because they would be dropped and gathered again. */
static bool delays_weights(const struct rf_plan *plan, bool input, bool weight)
{
    return rf_plan_tensor_ranks(plan) > 1 && !plan->units && input && weight;
}

/* The first of the backward passes that are left to the next list; the next rank has already done
 * it. */
static int first_left(const struct rf_plan *plan)
{
    return rf_plan_micro_batch(plan, plan->local_micro_batches - rf_plan_leftovers(plan));
}

/* Whether an earlier list has received its gradient: a message arrives in the list in which it is
 * sent. */
static bool has_arrived(const struct rf_writer *w, int m)
{
    return w->behind && m == first_left(w->plan);
}

/* One half of the backward pass, or both. A gradient is sent before the half that no rank waits
 * for. Blocks before the first one with a trained parameter have neither. */
static void backward_pass(struct rf_writer *w, int stage, int m, bool input, bool weight)
{
    const struct rf_plan *plan = w->plan;
    struct delayed_half later = {-1, m};
    for (int b = plan->block_count - 1; b >= 0; b--) {
        if (!is_of(plan, b, stage) || !rf_plan_has_backward(plan, b))
            continue;
        const bool trains = weight && rf_plan_block_trains(plan, b);
        if (input && b + 1 < plan->block_count && !rf_plan_holds(plan, b + 1) && !has_arrived(w, m))
            message(w, RF_VERB_RECV, RF_LANE_RECV_GRAD, RF_VALUE_DOUT, b, b + 1, m);
        if (input && rf_plan_inverts(plan, b))
            call(w, RF_VERB_INVERT, b, m, NULL);
        if (input)
            call(w, RF_VERB_BACKWARD_INPUT, b, m, &later);
        if (input && !rf_plan_ends_backward(plan, b) && !rf_plan_holds(plan, b - 1))
            message(w, RF_VERB_SEND, RF_LANE_SEND_GRAD, RF_VALUE_DOUT, b - 1, b - 1, m);
        if (later.block >= 0) /* nothing was exchanged */
            call(w, RF_VERB_BACKWARD_WEIGHT, later.block, m, NULL);
        later.block = -1;
        if (trains && delays_weights(plan, input, weight))
            later.block = b;
        else if (trains)
            call(w, RF_VERB_BACKWARD_WEIGHT, b, m, NULL);
    }
    if (later.block >= 0)
        call(w, RF_VERB_BACKWARD_WEIGHT, later.block, m, NULL);
}

/* Whether both halves of a block follow each other, which keeps the least memory. Not if another
 * rank waits for the gradient of the stage's input: it is sent before all weight halves. But
 * recomputation, sharded gradients and parameters that are gathered for a block are chosen to save
 * memory, and would need the memory of a whole stage for this order. Tensor ranks exchange during
 * weight halves. */
static bool halves_alternate(const struct rf_plan *plan, int stage)
{
    int first = 0;
    while (plan->stage_of[first] != stage)
        first++;
    return first == 0 || rf_plan_holds(plan, first - 1) || plan->policy.recompute != 0 ||
           plan->policy.invert || plan->stage >= 2 || plan->units ||
           delays_weights(plan, true, true);
}

static void write_calls(struct rf_writer *w, const struct rf_pipeline_call *calls, int count,
                        int micro_batches)
{
    const struct rf_plan *plan = w->plan;
    for (int k = 0; k < count; k++) {
        const int local = calls[k].micro_batch;
        const int m = local < micro_batches ? rf_plan_micro_batch(plan, local) : RF_PHANTOM;
        const int stage = rf_plan_stage(plan, calls[k].chunk);
        w->behind = calls[k].behind;
        w->older = w->fills || w->behind;
        const bool both = calls[k].verb == RF_VERB_BACKWARD_INPUT && k + 1 < count &&
                          calls[k + 1].verb == RF_VERB_BACKWARD_WEIGHT &&
                          calls[k + 1].chunk == calls[k].chunk &&
                          calls[k + 1].micro_batch == local && halves_alternate(plan, stage);
        if (calls[k].verb == RF_VERB_FORWARD)
            forward_pass(w, stage, m);
        else
            backward_pass(w, stage, m, calls[k].verb == RF_VERB_BACKWARD_INPUT,
                          both || calls[k].verb == RF_VERB_BACKWARD_WEIGHT);
        k += both;
    }
}

/* Receives the gradient for the first backward pass of the next list. */
static void receive_left(struct rf_writer *w)
{
    const struct rf_plan *plan = w->plan;
    int b = plan->block_count - 1;
    while (!rf_plan_holds(plan, b))
        b--;
    w->behind = 0;
    if (rf_plan_leftovers(plan) > 0 && rf_plan_has_backward(plan, b))
        message(w, RF_VERB_RECV, RF_LANE_RECV_GRAD, RF_VALUE_DOUT, b, b + 1, first_left(plan));
}

/* A training list of a pipeline without a flush. If no step is in progress, the newest update is
 * that of the previous step, which this step must not see. */
static int write_lag_list(struct rf_plan *plan, enum rf_list_id id)
{
    struct rf_list list = {0};
    struct rf_writer w = {.plan = plan, .list = &list, .fills = id == RF_LIST_FILL};
    struct rf_pipeline_call *calls = NULL;
    int count = 0;
    RETURN_IF_ERROR(rf_plan_lag_calls(plan, id, &calls, &count));
    load(&w, plan->local_micro_batches, id);
    write_calls(&w, calls, count, plan->local_micro_batches);
    if (id != RF_LIST_DRAIN)
        receive_left(&w);
    rf_free(calls);
    return rf_write_end(&w, &plan->lists[id]);
}

/* The backward passes that are left to a list must run before their micro-batches are used again,
 * and likewise those of the other data-parallel ranks. */
static int check_micro_batches(const struct rf_plan *plan)
{
    int least = plan->local_micro_batches;
    for (int r = 0; r < plan->mesh.dp; r++) {
        const int count = plan->first_micro_batch[r + 1] - plan->first_micro_batch[r];
        least = count < least ? count : least;
    }
    return rf_plan_check_lag(plan, least);
}

static int write_list(struct rf_plan *plan, enum rf_list_id id, int micro_batches, int rounds,
                      bool training)
{
    struct rf_list list = {0};
    struct rf_writer w = {.plan = plan, .list = &list};
    struct rf_pipeline_call *calls = NULL;
    int count = 0;
    RETURN_IF_ERROR(rf_plan_calls(plan, rounds, training, &calls, &count));
    if (micro_batches > 0)
        load(&w, micro_batches, id);
    write_calls(&w, calls, count, micro_batches);
    rf_free(calls);
    return rf_write_end(&w, &plan->lists[id]);
}

int rf_pass_expand(struct rf_plan *plan)
{
    const int mine = plan->local_micro_batches;
    const int rounds = plan->round_robin ? rf_plan_rounds(plan) : mine;
    if (rf_plan_lags(plan))
        RETURN_IF_ERROR(check_micro_batches(plan));
    for (int id = RF_LIST_STEP; rf_plan_lags(plan) && rf_list_trains(id); id++)
        RETURN_IF_ERROR(write_lag_list(plan, (enum rf_list_id)id));
    if (!rf_plan_lags(plan))
        RETURN_IF_ERROR(write_list(plan, RF_LIST_STEP, mine, rounds, !plan->policy.forward_only));
    RETURN_IF_ERROR(write_list(plan, RF_LIST_EVALUATE, mine, mine, false));
    RETURN_IF_ERROR(write_list(plan, RF_LIST_EVALUATE_ONE, 1, 1, false));
    return write_list(plan, RF_LIST_EVALUATE_NONE, 0, 1, false);
}
