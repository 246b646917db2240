/* SPDX-License-Identifier: MIT
 *
 * Implementation of each verb; see verbs.h.
 */
#include "verbs.h"

#include <math.h>
#include <ringforge/host_step.h>
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../optim/scalars.h"
#include "operands.h"

#define NOT_A_NUMBER 0x7fc00000u

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool training(const struct rf_execution *p)
{
    return rf_list_trains((int)p->list);
}

/* Sets the scalars of an update or, for a slot, those that blocks of another step read. */
static void set_scalars(const struct rf_execution *p, int slot, float lr, int64_t update)
{
    const struct rf_run *run = p->run;
    char *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    rf_step_scalars_set((struct rf_step_scalars *)(void *)(scalars + slot * RF_SCALARS_STRIDE),
                        &(struct rf_step_values){.lr = lr,
                                                 .clip = run->plan->policy.clip,
                                                 .tokens = p->stats.tokens,
                                                 .update = update,
                                                 .seed = run->seed});
}

/* For the kernels of this step. Called again when the number of tokens is known. */
static void fill_scalars(const struct rf_execution *p)
{
    const struct rf_run *run = p->run;
    set_scalars(p, 0, run->under_way ? run->lr : p->lr, run->updates + 1);
}

/* Moves the inputs and losses of the step in progress, which the next step would overwrite. */
static void keep(const struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_operands from = rf_plan_ins(p->run->plan, i, RF_ROLE_FROM);
    const struct rf_operands to = rf_plan_outs(p->run->plan, i, RF_ROLE_TO);
    for (int k = 0; k < from.count; k++) {
        const struct rf_tensor copy = rf_run_value(p->run, to.values[k]);
        memcpy(rf_tensor_map(copy), rf_tensor_map(rf_run_value(p->run, from.values[k])),
               rf_tensor_bytes(copy));
    }
}

static int load(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_operands inputs = rf_plan_outs(plan, i, RF_ROLE_INPUT);
    keep(p, i);
    for (int k = 0; k < inputs.count; k++) {
        const int micro_batch = plan->values[inputs.values[k]].micro_batch;
        const int local = rf_plan_local(plan, micro_batch);
        rf_run_load_inputs(p->run, p->tokens, p->targets, training(p) ? micro_batch : local, local);
    }
    if (!training(p))
        return 0;
    fill_scalars(p);
    if (rf_plan_outs(plan, i, RF_ROLE_STEP_SCALARS).count > 0)
        set_scalars(p, RF_SCALARS_NOW, p->lr, p->run->updates + 1 + p->run->under_way);
    return 0;
}

/* ---- blocks and gradients -------------------------------------------------------------------- */

static int block(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const int64_t micro_batch =
        training(p) ? i->micro_batch : p->first + rf_plan_local(plan, i->micro_batch);
    return rf_run_call_block(p->run, i, micro_batch, !training(p));
}

static int fill(const struct rf_execution *p, struct rf_tensor t, uint32_t word)
{
    return rf_stream_fill(p->run->stream, t.buffer, t.offset, rf_tensor_bytes(t), word);
}

/* Poisons gradients to check blocks: one that should be overwritten, and is not, stays NaN. */
static int poison_overwritten(struct rf_execution *p, int value)
{
    const struct rf_plan *plan = p->run->plan;
    for (int k = 0; k < plan->param_count; k++)
        if (plan->params[k].overwrite_grad &&
            plan->params[k].grad_piece == plan->values[value].piece)
            RETURN_IF_ERROR(fill(p, rf_run_grad_in(p->run, value, k), NOT_A_NUMBER));
    return 0;
}

/* Zeroes the parts that blocks do not overwrite: the adjacent pieces of a slot, or a single piece.
 */
static int zero(struct rf_execution *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_tensor all = out_span(p, i, RF_ROLE_GRAD);
    uint64_t first = UINT64_MAX;
    for (int k = 0; k < i->outs; k++) {
        const uint64_t at = plan->pieces[plan->values[outs(p, i)[k]].piece].first;
        first = at < first ? at : first;
    }
    for (int k = 0; all.buffer && k < plan->cleared_count; k++) {
        struct rf_plan_span span = plan->cleared[k];
        struct rf_tensor part = all;
        if (!rf_plan_clip(&span, first, rf_tensor_bytes(all) / sizeof(float)))
            continue;
        part.offset += (span.first - first) * sizeof(float);
        part.shape = rf_shape1((int64_t)(span.count * sizeof(float)));
        RETURN_IF_ERROR(fill(p, part, 0));
    }
    for (int k = 0; run->check_replay && k < i->outs; k++)
        RETURN_IF_ERROR(poison_overwritten(p, outs(p, i)[k]));
    return 0;
}

/* Zeroes a whole piece: no block overwrites any of it. */
static int zero_whole(struct rf_execution *p, const struct rf_instruction *i)
{
    for (int k = 0; k < i->outs; k++)
        RETURN_IF_ERROR(fill(p, rf_run_value(p->run, outs(p, i)[k]), 0));
    return 0;
}

static int copy_over(struct rf_execution *p, struct rf_tensor to, struct rf_tensor from)
{
    return to.buffer
               ? rf_stream_copy(p->run->stream, (struct rf_buffer_place){to.buffer, to.offset},
                                (struct rf_buffer_place){from.buffer, from.offset},
                                rf_tensor_bytes(to))
               : 0;
}

static int hold(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_operands from = rf_plan_ins(p->run->plan, i, RF_ROLE_FROM);
    const struct rf_operands to = rf_plan_outs(p->run->plan, i, RF_ROLE_TO);
    for (int k = 0; k < to.count; k++)
        RETURN_IF_ERROR(
            copy_over(p, rf_run_value(p->run, to.values[k]), rf_run_value(p->run, from.values[k])));
    return 0;
}

static int add_to(struct rf_execution *p, struct rf_tensor sum, struct rf_tensor term)
{
    return sum.buffer && term.buffer ? rf_add(p->run->stream, sum, sum, term) : 0;
}

/* Where in the sum, this rank's shard of the owner's gradients, a tied use's shard belongs. */
static struct rf_tensor place_of_use(const struct rf_execution *p, struct rf_tensor sum,
                                     int owners_grad, int uses_grad)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_plan_piece *uses = &plan->pieces[plan->values[uses_grad].piece];
    const struct rf_plan_piece *owners = &plan->pieces[plan->values[owners_grad].piece];
    const struct rf_plan_param *owner = &plan->params[plan->params[uses->use].owner];
    sum.offset += (owner->grad_first + uses->borders[plan->shard] - owners->first -
                   owners->borders[plan->shard]) *
                  sizeof(float);
    sum.shape = rf_shape1((int64_t)uses->counts[plan->shard]);
    return sum;
}

/* Adds gradients to a sum: whole pieces, this rank's shard of one, or that of a tied use. */
static int add(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const int sum = rf_plan_outs(plan, i, RF_ROLE_SUM).values[0];
    const struct rf_operands shards = rf_plan_ins(plan, i, RF_ROLE_SHARD_TERM);
    const struct rf_operands uses = rf_plan_ins(plan, i, RF_ROLE_USE_TERM);
    if (shards.count > 0)
        return add_to(p, shard(p, sum), shard(p, shards.values[0]));
    if (uses.count > 0)
        return add_to(p, place_of_use(p, shard(p, sum), sum, uses.values[0]),
                      shard(p, uses.values[0]));
    return add_to(p, as_f32(out_span(p, i, RF_ROLE_SUM)), as_f32(in_span(p, i, RF_ROLE_TERM)));
}

/* ---- host instructions ----------------------------------------------------------------------- */

static int broadcast(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    const uint64_t start = rf_now_ns();
    const bool weights = i->ins + i->outs > 0 && rf_plan_roles(p->run->plan, i)[0] == RF_ROLE_PARAM;
    const struct rf_coll_opts opts = {
        .order = t->order, .label = weights ? "weights" : "scalars", .algorithm = t->algorithm};
    /* The root reads what the other ranks write. */
    struct rf_tensor all = rf_run_span(p->run, (struct rf_operands){ins(p, i), i->ins + i->outs});
    all = rf_as(all, t->dtype);
    all.shape = rf_shape1((int64_t)t->count);
    RETURN_IF_ERROR(rf_broadcast_tensor(p->run->comm, all, t->root, &opts));
    p->stats.exposed_comm_ns += rf_now_ns() - start;
    return 0;
}

/* Reads the losses of this rank's micro-batches, and adds them over the ranks. */
static int loss(struct rf_execution *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const uint64_t computed = rf_now_ns();
    double sum = 0;
    const struct rf_operands losses = rf_plan_ins(plan, i, RF_ROLE_LOSSES);
    for (int k = 0; k < losses.count; k++) {
        const struct rf_value *v = &plan->values[losses.values[k]];
        rf_run_take_loss(run, (int)(v->offset / v->bytes), v->micro_batch);
        p->stats.local_tokens += (int64_t)run->loss_sums[2 * v->micro_batch + 1];
    }
    RETURN_IF_ERROR(
        rf_run_sum_losses(run, plan->policy.micro_batches, &sum, &p->stats.tokens, &p->stats.stop));
    if (rf_run_ranks(run) > 1)
        p->stats.exposed_comm_ns += rf_now_ns() - computed;
    p->stats.loss = p->stats.tokens > 0 ? sum / (double)p->stats.tokens : 0;
    fill_scalars(p);
    return 0;
}

/* ---- update ---------------------------------------------------------------------------------- */

static struct rf_tensor exact_of(struct rf_tensor partials)
{
    partials = rf_as(partials, RF_I32);
    partials.shape = rf_shape1(RF_EXACT_WORDS);
    return partials;
}

/* A shard's padding may be in a block of states, and has the memory of other values. */
static int clear_padding(struct rf_execution *p, int grad)
{
    const struct rf_plan *plan = p->run->plan;
    const uint64_t count = plan->pieces[plan->values[grad].piece].counts[plan->shard];
    struct rf_tensor rest = rf_run_value(p->run, grad);
    if (plan->shards == 1 || count == rf_plan_padded(plan, count)) /* RF_VERB_ZERO cleared it */
        return 0;
    rest.offset += count * sizeof(float);
    rest.shape = rf_shape1((int64_t)((rf_plan_padded(plan, count) - count) * sizeof(float)));
    return fill(p, rest, 0);
}

/* Offsets in the table of chunks are relative to the start of the piece's shard. */
static int squares(struct rf_execution *p, const struct rf_instruction *i)
{
    const int grad = rf_plan_ins(p->run->plan, i, RF_ROLE_GRAD).values[0];
    const struct rf_plan_piece *piece = &p->run->plan->pieces[p->run->plan->values[grad].piece];
    const int64_t count = (int64_t)piece->chunks;
    RETURN_IF_ERROR(clear_padding(p, grad));
    if (count == 0)
        return 0;
    struct rf_tensor chunks = rf_as(in_span(p, i, RF_ROLE_CHUNKS), RF_I32);
    struct rf_tensor sums = as_f32(out_span(p, i, RF_ROLE_SQUARES));
    chunks.offset += piece->first_chunk * sizeof(struct rf_norm_chunk);
    chunks.shape = rf_shape2(count, 2);
    sums.shape = rf_shape1(count);
    return rf_square_chunks(p->run->stream, sums, shard(p, grad), chunks);
}

/* Offsets in the table of chunks are relative to the start of the gradients' memory. If the pieces
 * were squared one by one, only the sum is left. */
static int norm_partial(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const int64_t count = (int64_t)plan->chunk_count;
    const struct rf_tensor exact = exact_of(out_span(p, i, RF_ROLE_PARTIALS));
    struct rf_tensor grads = p->run->regions[RF_REGION_GRADS];
    struct rf_tensor sums = as_f32(out_span(p, i, RF_ROLE_SQUARES)), scratch = sums;
    if (count == 0) /* all shards of this rank are empty, or other ranks count them */
        return fill(p, exact, 0);
    const bool squared = rf_plan_in_backward(plan);
    struct rf_tensor chunks = in_span(p, i, RF_ROLE_CHUNKS);
    grads.shape = rf_shape1((int64_t)(plan->stage >= 2 ? rf_plan_grad_elements(plan, plan->shard)
                                                       : plan->train_elements));
    grads.dtype = RF_F32;
    sums.shape = rf_shape1(count);
    scratch = rf_as(scratch, RF_I32);
    scratch.offset += rf_tensor_bytes(sums);
    scratch.shape = rf_shape1(rf_add_squares_scratch(count));
    if (!squared) {
        chunks = rf_as(chunks, RF_I32);
        chunks.shape = rf_shape2(count, 2);
        RETURN_IF_ERROR(rf_square_chunks(p->run->stream, sums, grads, chunks));
    }
    return rf_add_squares(p->run->stream, exact, sums, scratch);
}

static int norm(struct rf_execution *p, const struct rf_instruction *i)
{
    struct rf_tensor sum = rf_as(out_span(p, i, RF_ROLE_NORM), RF_F32);
    sum.shape = rf_shape1(1);
    return rf_round_squares(p->run->stream, sum, exact_of(in_span(p, i, RF_ROLE_PARTIALS)));
}

/* In the backward pass the norm is not known yet, and 0 takes its place. */
static int begin_step(struct rf_execution *p, const struct rf_instruction *i)
{
    const bool unknown = rf_plan_in_backward(p->run->plan);
    struct rf_tensor sum =
        rf_as(unknown ? out_span(p, i, RF_ROLE_NORM) : in_span(p, i, RF_ROLE_NORM), RF_F32);
    sum.shape = rf_shape1(1);
    if (unknown)
        RETURN_IF_ERROR(fill(p, sum, 0));
    return rf_step_begin(p->run->stream, &p->run->plan->policy.optimizer, scalars(p, i), sum);
}

/* The first in memory of adjacent pieces. */
static const struct rf_plan_piece *first_piece(const struct rf_plan *plan,
                                               struct rf_operands params)
{
    const struct rf_plan_piece *first = &plan->pieces[plan->values[params.values[0]].piece];
    for (int k = 1; k < params.count; k++) {
        const struct rf_plan_piece *piece = &plan->pieces[plan->values[params.values[k]].piece];
        if (piece->first < first->first)
            first = piece;
    }
    return first;
}

/* Keeps the version before this update, because the micro-batches of the next step, which has
 * begun, still use it. */
static int keep_version(struct rf_execution *p, const struct rf_instruction *i)
{
    RETURN_IF_ERROR(
        copy_over(p, out_span(p, i, RF_ROLE_PARAM_BEFORE), out_span(p, i, RF_ROLE_PARAM)));
    return copy_over(p, out_span(p, i, RF_ROLE_COPY_BEFORE), out_span(p, i, RF_ROLE_COPY));
}

static int step(struct rf_execution *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_operands params = rf_plan_outs(plan, i, RF_ROLE_PARAM);
    struct rf_optimizer_part part = {.param = typed(p, params),
                                     .copy = typed(p, rf_plan_outs(plan, i, RF_ROLE_COPY)),
                                     .grad = as_f32(in_span(p, i, RF_ROLE_GRAD)),
                                     .decay = rf_as(in_span(p, i, RF_ROLE_DECAY), RF_I32)};
    if (!part.param.buffer) /* an empty shard */
        return 0;
    if (rf_plan_in_backward(plan)) /* temporary values are as large as the largest shard */
        part.grad.shape = part.param.shape;
    const struct rf_plan_piece *piece = first_piece(plan, params);
    part.first = piece->first + piece->borders[plan->shard];
    part.decay.offset +=
        rf_plan_state_first(plan, (int)(piece - plan->pieces)) / RF_FLAT_GRAIN * sizeof(uint32_t);
    part.decay.shape = rf_shape1(rf_tensor_count(part.param) / RF_FLAT_GRAIN);
    part.places = rf_run_places(run, (int)(piece - plan->pieces));
    const enum rf_dtype states = rf_plan_state_type(plan, (int)(piece - plan->pieces));
    for (int k = 0; k < RF_STATE_COUNT; k++) {
        const struct rf_tensor state = out_span(p, i, rf_state_role(k));
        part.state[k] = state.buffer ? rf_as(state, states) : state;
    }
    RETURN_IF_ERROR(keep_version(p, i));
    return rf_optimizer_step(run->stream, &plan->policy.optimizer, &part, scalars(p, i));
}

/* Starting a thread costs some microseconds. */
enum { LEAST_OF_A_THREAD = 65536 };

/* The elements of this rank's shard that an update is of: a block of its states, or all. */
static struct rf_plan_span updated_span(const struct rf_execution *p,
                                        const struct rf_instruction *i, int piece)
{
    const struct rf_plan *plan = p->run->plan;
    struct rf_plan_span span = {0, plan->pieces[piece].counts[plan->shard]};
    for (int k = 0; rf_plan_states_on_disk(plan) && k < RF_STATE_COUNT; k++) {
        const struct rf_operands state = rf_plan_ins(plan, i, rf_state_role(k));
        if (state.count == 0)
            continue;
        const int number = rf_block_of_slot(plan->values[state.values[0]].slot);
        const struct rf_plan_span block = rf_plan_disk_span(plan, piece, number);
        rf_plan_clip(&span, block.first, block.count);
        break;
    }
    return span;
}

static void *element_at(struct rf_tensor values, uint64_t bytes)
{
    return values.buffer ? (char *)rf_tensor_map(values) + bytes : NULL;
}

static int host_step(struct rf_execution *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const int param = rf_plan_outs(plan, i, RF_ROLE_PARAM).values[0];
    const int piece = plan->values[param].piece;
    const struct rf_plan_piece *q = &plan->pieces[piece];
    const struct rf_plan_span span = updated_span(p, i, piece);
    struct rf_host_part part = {.count = (int64_t)span.count,
                                .first = q->first + q->borders[plan->shard] + span.first,
                                .param_type = type_of(p, param),
                                .grad_type = RF_F32,
                                .copy_type = plan->copy_type,
                                .state_type = rf_plan_state_type(plan, piece),
                                .flush = run->flush};
    if (part.count == 0)
        return 0;
    const uint64_t grain = (rf_plan_state_first(plan, piece) + span.first) / RF_FLAT_GRAIN;
    part.param = element_at(rf_run_value(run, param), span.first * rf_dtype_bytes(part.param_type));
    part.grad = element_at(in_span(p, i, RF_ROLE_GRAD), span.first * sizeof(float));
    part.decay = element_at(in_span(p, i, RF_ROLE_DECAY), grain * sizeof(*part.decay));
    part.places = element_at(rf_run_places(run, piece),
                             span.first / RF_FLAT_GRAIN * 2 * sizeof(*part.places));
    part.copy = element_at(out_span(p, i, RF_ROLE_COPY), span.first * sizeof(uint16_t));
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)k))
            part.state[k] = rf_tensor_map(out_span(p, i, rf_state_role(k)));
    const int64_t threads = part.count / LEAST_OF_A_THREAD + 1;
    return rf_host_step_threads(&plan->policy.optimizer, &part,
                                rf_tensor_map(in_span(p, i, RF_ROLE_SCALARS)),
                                threads < run->host_threads ? (int)threads : run->host_threads);
}

static int end_step(struct rf_execution *p, const struct rf_instruction *i)
{
    return rf_loss_scale_update(p->run->stream, &p->run->plan->policy.loss_scaling, scalars(p, i));
}

/* Casts parameters to their 16-bit copies, gradients to the type in which they are sent, or back.
 * Operands of a role are adjacent. Padding may be omitted. */
static int cast(struct rf_execution *p, const struct rf_instruction *i)
{
    static const enum rf_role casts[][2] = {{RF_ROLE_PARAM, RF_ROLE_COPY},
                                            {RF_ROLE_GRAD, RF_ROLE_SENT},
                                            {RF_ROLE_RECEIVED, RF_ROLE_GRAD}};
    const struct rf_plan *plan = p->run->plan;
    int k = 0;
    while (k < 2 && rf_plan_ins(plan, i, casts[k][0]).count == 0)
        k++;
    struct rf_tensor in = typed(p, rf_plan_ins(plan, i, casts[k][0]));
    struct rf_tensor out = typed(p, rf_plan_outs(plan, i, casts[k][1]));
    if (!in.buffer || !out.buffer) /* an empty shard */
        return 0;
    const int64_t count = rf_tensor_count(in), capacity = rf_tensor_count(out);
    in.shape = out.shape = rf_shape1(count < capacity ? count : capacity);
    if (casts[k][1] == RF_ROLE_COPY)
        return rf_run_round_copies(p->run, in, out, false);
    const float factor = rf_plan_send_factor(plan);
    return factor == 1 ? rf_cast(p->run->stream, out, in)
                       : rf_scale(p->run->stream, out, in,
                                  casts[k][1] == RF_ROLE_SENT ? factor : 1 / factor);
}

/* The device has decided whether this step is skipped. All ranks have the same gradients, so all
 * decide the same. */
static float late_norm(const struct rf_run *run, struct rf_step_scalars scalars)
{
    const float *sum = rf_tensor_map(run->regions[RF_REGION_NORM]);
    return rf_host_step_begin(&run->plan->policy.optimizer, &scalars, *sum) < 0 ? NAN
                                                                                : scalars.norm;
}

void rf_take_scalars(struct rf_execution *p)
{
    struct rf_run *run = p->run;
    if (!training(p) || p->list == RF_LIST_FILL)
        return;
    const struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    p->stats.grad_norm = rf_plan_in_backward(run->plan) ? late_norm(run, *scalars) : scalars->norm;
    p->stats.skipped = scalars->skipped != 0;
    p->stats.loss_scale = scalars->loss_scale;
    run->updates = scalars->updates;
}

const struct rf_verb_row rf_verbs[RF_VERB_COUNT] = {
    [RF_VERB_LOAD] = {.act = load},
    [RF_VERB_ZERO] = {.record = zero},
    [RF_VERB_ZERO_WHOLE] = {.record = zero_whole},
    [RF_VERB_FORWARD] = {.record = block},
    [RF_VERB_RECOMPUTE] = {.record = block},
    [RF_VERB_INVERT] = {.record = block},
    [RF_VERB_BACKWARD_INPUT] = {.record = block},
    [RF_VERB_BACKWARD_WEIGHT] = {.record = block},
    [RF_VERB_MERGE] = {.record = add},
    [RF_VERB_HOLD] = {.record = hold},
    [RF_VERB_REDUCE] = {.start = rf_start_reduce},
    [RF_VERB_LOSS] = {.act = loss},
    [RF_VERB_TIE] = {.record = add},
    [RF_VERB_SQUARES] = {.record = squares},
    [RF_VERB_NORM_PARTIAL] = {.record = norm_partial},
    [RF_VERB_NORM_SHARE] = {.start = rf_start_norm_share},
    [RF_VERB_NORM] = {.record = norm},
    [RF_VERB_GATHER] = {.start = rf_start_gather},
    [RF_VERB_BEGIN_STEP] = {.record = begin_step},
    [RF_VERB_STEP] = {.record = step},
    [RF_VERB_END_STEP] = {.record = end_step},
    [RF_VERB_BROADCAST] = {.act = broadcast},
    [RF_VERB_CAST] = {.record = cast},
    [RF_VERB_FETCH] = {.start = rf_start_copy},
    [RF_VERB_EVICT] = {.start = rf_start_copy},
    [RF_VERB_HOST_STEP] = {.act = host_step},
    [RF_VERB_EXCHANGE] = {.start = rf_start_exchange},
    [RF_VERB_SEND] = {.start = rf_start_message},
    [RF_VERB_RECV] = {.start = rf_start_message},
    [RF_VERB_READ] = {.start = rf_start_disk},
    [RF_VERB_WRITE] = {.start = rf_start_disk},
};
