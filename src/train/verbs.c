/* SPDX-License-Identifier: MIT
 *
 * What each verb does with its operands: see verbs.h.
 */
#include "verbs.h"

#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../optim/scalars.h"

#define NOT_A_NUMBER 0x7fc00000u

static const int *ins(const struct rf_pass *p, const struct rf_instruction *i)
{
    return rf_plan_operands(p->run->plan, i);
}

static const int *outs(const struct rf_pass *p, const struct rf_instruction *i)
{
    return ins(p, i) + i->ins;
}

static struct rf_tensor in_span(const struct rf_pass *p, const struct rf_instruction *i,
                                enum rf_value_kind kind)
{
    return rf_run_span(p->run, ins(p, i), i->ins, kind, -1);
}

static struct rf_tensor out_span(const struct rf_pass *p, const struct rf_instruction *i,
                                 enum rf_value_kind kind)
{
    return rf_run_span(p->run, outs(p, i), i->outs, kind, -1);
}

static struct rf_tensor as_f32(struct rf_tensor t)
{
    return t.buffer ? rf_as(t, RF_F32) : t;
}

/* All values of that kind, by its type. */
static struct rf_tensor typed(const struct rf_pass *p, struct rf_tensor t, enum rf_value_kind kind)
{
    return t.buffer ? rf_as(t, rf_plan_type(p->run->plan, kind)) : t;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool training(const struct rf_pass *p)
{
    return p->list == RF_LIST_STEP;
}

/* For kernels of this step; again when the tokens are known. */
static void fill_scalars(const struct rf_pass *p)
{
    const struct rf_run *run = p->run;
    rf_step_scalars_set(rf_tensor_map(run->regions[RF_REGION_SCALARS]),
                        &(struct rf_step_values){.lr = p->lr,
                                                 .clip = run->plan->policy.clip,
                                                 .tokens = p->stats.tokens,
                                                 .update = run->updates + 1,
                                                 .seed = run->seed});
}

static int load(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    for (int k = 0; k < i->outs; k++) {
        const struct rf_value *v = &plan->values[outs(p, i)[k]];
        if (v->kind != RF_VALUE_TOKENS)
            continue;
        const int local = rf_plan_local(plan, v->micro_batch);
        rf_run_load_inputs(p->run, p->tokens, p->targets, training(p) ? v->micro_batch : local,
                           local);
    }
    if (training(p))
        fill_scalars(p);
    return 0;
}

/* ---- blocks and gradients -------------------------------------------------------------------- */

static int block(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const int64_t micro_batch =
        training(p) ? i->micro_batch : p->first + rf_plan_local(plan, i->micro_batch);
    return rf_run_call_block(p->run, i, micro_batch, !training(p));
}

static int fill(const struct rf_pass *p, struct rf_tensor t, uint32_t word)
{
    return rf_stream_fill(p->run->stream, t.buffer, t.offset, rf_tensor_bytes(t), word);
}

/* A check of blocks: what they should have written and did not is no number. */
static int spoil_written(struct rf_pass *p, int value)
{
    const struct rf_plan *plan = p->run->plan;
    for (int k = 0; k < plan->param_count; k++)
        if (plan->params[k].written && plan->params[k].grad_piece == plan->values[value].piece)
            RETURN_IF_ERROR(fill(p, rf_run_grad_in(p->run, value, k), NOT_A_NUMBER));
    return 0;
}

/* All but what blocks write: of the pieces of a slot, side by side, or of one. */
static int zero(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_tensor all = out_span(p, i, RF_VALUE_GRAD);
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
        RETURN_IF_ERROR(spoil_written(p, outs(p, i)[k]));
    return 0;
}

/* The elements that a value of a shard has, without padding behind them; a NULL buffer: none. */
static struct rf_tensor shard(const struct rf_pass *p, int value)
{
    const struct rf_plan *plan = p->run->plan;
    const size_t count = plan->pieces[plan->values[value].piece].counts[plan->shard];
    struct rf_tensor t = rf_run_value(p->run, value);
    t.dtype = rf_plan_type(plan, plan->values[value].kind);
    t.shape = rf_shape1((int64_t)count);
    return count ? t : (struct rf_tensor){0};
}

static int merge(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_value *values = p->run->plan->values;
    const int *added = ins(p, i) + i->outs;
    if (values[added[0]].kind == RF_VALUE_GRAD_PART) { /* a round's part of a shard */
        struct rf_tensor sum = shard(p, outs(p, i)[0]), part = shard(p, added[0]);
        return sum.buffer ? rf_add(p->run->stream, sum, sum, part) : 0;
    }
    struct rf_tensor left = rf_as(out_span(p, i, RF_VALUE_GRAD), RF_F32);
    struct rf_tensor right =
        rf_as(rf_run_span(p->run, added, i->ins - i->outs, RF_VALUE_GRAD, -1), RF_F32);
    return left.buffer ? rf_add(p->run->stream, left, left, right) : 0;
}

/* The second operand is a tied use alone, of an owner in the first: what this rank has of it. */
static int tie(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_value *to = &plan->values[outs(p, i)[0]];
    if (plan->values[ins(p, i)[1]].kind == RF_VALUE_GRAD_TIED) { /* another rank's */
        struct rf_tensor all = shard(p, outs(p, i)[0]), more = shard(p, ins(p, i)[1]);
        return all.buffer ? rf_add(p->run->stream, all, all, more) : 0;
    }
    const struct rf_plan_piece *uses = &plan->pieces[plan->values[ins(p, i)[1]].piece];
    const struct rf_plan_piece *owners = &plan->pieces[to->piece];
    const struct rf_plan_param *owner = &plan->params[plan->params[uses->use].owner];
    struct rf_tensor use = shard(p, ins(p, i)[1]), sum = shard(p, outs(p, i)[0]);
    if (!use.buffer)
        return 0;
    sum.offset +=
        (owner->grad_first + uses->cuts[plan->shard] - owners->first - owners->cuts[plan->shard]) *
        sizeof(float);
    sum.shape = use.shape;
    return rf_add(p->run->stream, sum, sum, use);
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* The subtrees of a forest lie a slot apart, the first one at `first`. */
static struct rf_tensor forest_parts(const struct rf_pass *p, int parts, struct rf_tensor first)
{
    const int64_t stride = (int64_t)p->run->plan->slot_elements;
    first.shape = rf_shape1((int64_t)(parts - 1) * stride + rf_tensor_count(first));
    return first;
}

/* No elements, on the run's device: a rank whose shard is empty takes part all the same. */
static struct rf_tensor nothing(const struct rf_pass *p, enum rf_dtype dtype)
{
    struct rf_tensor t = p->run->regions[RF_REGION_TOKENS];
    t.shape = rf_shape1(0);
    t.dtype = dtype;
    return t;
}

/* A round of sums that its owner keeps: the rank's leaf, if it has one, and all places for sums. */
static int push_round(struct rf_pass *p, const struct rf_instruction *i,
                      const struct rf_coll_opts *opts)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, i);
    const int *operands = ins(p, i);
    const int leaf = rf_run_find(p->run, operands, i->ins, RF_VALUE_GRAD);
    const int parts = rf_run_find(p->run, operands, i->ins + i->outs, RF_VALUE_GRAD_PART);
    const int whole = parts < 0 ? outs(p, i)[0] : parts; /* one place, which is the shard */
    struct rf_tensor in = {0}, sums = shard(p, whole);
    if (leaf >= 0) {
        in = as_f32(rf_run_value(p->run, leaf));
        in.shape = rf_shape1((int64_t)t->count);
    }
    sums.shape = rf_shape1(rf_tensor_count(sums) * plan->sum_slots);
    if (!sums.buffer)
        sums = nothing(p, RF_F32);
    return rf_prefix_reduce_scatter_tensor(p->run->comms[i->lane], (int)plan->policy.micro_batches,
                                           t->round, in, sums, t->counts, opts);
}

static int start_reduce(struct rf_pass *p, const struct rf_instruction *i, struct rf_point after,
                        struct rf_point *done)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, i);
    struct rf_comm *comm = p->run->comms[i->lane];
    const struct rf_value *first = &plan->values[ins(p, i)[0]];
    struct rf_tensor in = typed(p, rf_run_value(p->run, ins(p, i)[0]), first->kind), out = {0};
    char label[32];
    snprintf(label, sizeof(label), "gradients piece %d", first->piece);
    const struct rf_coll_opts opts = {
        .order = t->order, .label = label, .algorithm = t->algorithm, .after = after, .done = done};
    in.shape = rf_shape1((int64_t)t->count);
    if (i->outs > 0)
        out = shard(p, outs(p, i)[0]);
    if (i->outs > 0 && ins(p, i)[0] == outs(p, i)[0])
        in = out = out.buffer ? out : nothing(p, t->dtype);
    switch (t->op) {
    case RF_COLL_PREFIX_REDUCE_SCATTER:
        return push_round(p, i, &opts);
    case RF_COLL_FOREST_ALL_REDUCE:
        return rf_forest_all_reduce_tensor(comm, &plan->forest, forest_parts(p, i->ins, in),
                                           plan->slot_elements, out, &opts);
    case RF_COLL_FOREST_REDUCE_SCATTER:
        return rf_forest_reduce_scatter_tensor(comm, &plan->forest, forest_parts(p, i->ins, in),
                                               plan->slot_elements, out, t->counts, &opts);
    case RF_COLL_REDUCE_SCATTER:
        return rf_reduce_scatter_v_tensor(comm, in, out, t->counts, RF_SUM, &opts);
    case RF_COLL_REDUCE:
        return rf_reduce_tensor(comm, in, out, RF_SUM, t->root, &opts);
    default:
        return rf_all_reduce_tensor(comm, in, out, RF_SUM, &opts);
    }
}

static int start_gather(struct rf_pass *p, const struct rf_instruction *i, struct rf_point after,
                        struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor out = rf_run_value(p->run, outs(p, i)[0]);
    char label[32];
    snprintf(label, sizeof(label), "weights piece %d", p->run->plan->values[outs(p, i)[0]].piece);
    out.dtype = t->dtype;
    out.shape = rf_shape1((int64_t)t->count);
    return rf_all_gather_v_tensor(
        p->run->comms[i->lane], shard(p, ins(p, i)[0]), out, t->counts,
        &(struct rf_coll_opts){.order = t->order, .label = label, .after = after, .done = done});
}

/* Of the tensor ranks, between two phases of a call: in place. */
static int start_exchange(struct rf_pass *p, const struct rf_instruction *i, struct rf_point after,
                          struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    const struct rf_value *v = &p->run->plan->values[ins(p, i)[0]];
    const struct rf_exchange *x = rf_plan_exchange_of(p->run->plan, v);
    struct rf_comm *comm = p->run->comms[i->lane];
    struct rf_tensor whole = rf_run_value(p->run, ins(p, i)[0]), part;
    char label[64];
    snprintf(label, sizeof(label), "%s block %d micro-batch %d exchange %d", rf_verb_name(i->call),
             v->block, v->micro_batch, v->slot % RF_MAX_EXCHANGES);
    const struct rf_coll_opts opts = {
        .order = t->order, .label = label, .after = after, .done = done};
    whole.dtype = x->dtype;
    whole.shape = rf_shape1(rf_shape_count(x->shape));
    part = whole;
    part.shape = rf_shape1((int64_t)t->count);
    part.offset += (uint64_t)p->run->plan->tp_rank * rf_tensor_bytes(part);
    switch (x->kind) {
    case RF_EXCHANGE_GATHER:
        return rf_all_gather_tensor(comm, part, whole, &opts);
    case RF_EXCHANGE_SCATTER:
        return rf_reduce_scatter_tensor(comm, whole, part, RF_SUM, &opts);
    default:
        return rf_all_reduce_tensor(comm, whole, whole,
                                    x->kind == RF_EXCHANGE_MAX ? RF_MAX : RF_SUM, &opts);
    }
}

/* A value to another rank, or from there. */
static int start_message(struct rf_pass *p, const struct rf_instruction *i, struct rf_point after,
                         struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor value = rf_run_value(p->run, ins(p, i)[0]); /* the only operand */
    struct rf_comm *comm = p->run->comms[i->lane];
    const bool sends = t->op == RF_COLL_SEND;
    const struct rf_value *v = &p->run->plan->values[ins(p, i)[0]];
    char label[48];
    if (v->piece >= 0)
        snprintf(label, sizeof(label), "tied gradients");
    else
        snprintf(label, sizeof(label), "%s block %d micro-batch %d",
                 v->kind == RF_VALUE_OUT ? "output" : "gradient", v->block, v->micro_batch);
    const struct rf_coll_opts opts = {.label = label, .after = after, .done = done};
    value.dtype = t->dtype;
    value.shape = rf_shape1((int64_t)t->count);
    if (!value.buffer) /* an empty shard */
        value = nothing(p, t->dtype);
    return sends ? rf_send_tensor(comm, value, t->peer, t->tag, &opts)
                 : rf_recv_tensor(comm, value, t->peer, t->tag, &opts);
}

/* Between memory of the host and of the device, beside what is computed. */
static int start_copy(struct rf_pass *p, const struct rf_instruction *i, struct rf_point after,
                      struct rf_point *done)
{
    struct rf_stream *stream = p->run->copies[i->lane];
    const struct rf_tensor from = rf_run_value(p->run, ins(p, i)[0]);
    const struct rf_tensor to = rf_run_value(p->run, outs(p, i)[0]);
    const uint64_t room = rf_tensor_bytes(to), all = rf_tensor_bytes(from);
    if (after.timeline)
        RETURN_IF_ERROR(rf_stream_after(stream, after));
    if (from.buffer && to.buffer)
        RETURN_IF_ERROR(rf_stream_copy(stream, to.buffer, to.offset, from.buffer, from.offset,
                                       room < all ? room : all));
    return rf_stream_submit(stream, done);
}

/* Other ranks' chunks are 0 here. */
static int start_norm_share(struct rf_pass *p, const struct rf_instruction *i,
                            struct rf_point after, struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor partials = as_f32(rf_run_value(p->run, outs(p, i)[0]));
    partials.shape = rf_shape1((int64_t)t->count);
    return rf_all_reduce_tensor(
        p->run->comms[i->lane], partials, partials, RF_SUM,
        &(struct rf_coll_opts){.order = t->order, .label = "norm", .after = after, .done = done});
}

static int broadcast(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    const struct rf_value *v = &p->run->plan->values[ins(p, i)[0]];
    const uint64_t start = rf_now_ns();
    const struct rf_coll_opts opts = {.order = t->order,
                                      .label = v->piece >= 0 ? "weights" : "scalars",
                                      .algorithm = t->algorithm};
    struct rf_tensor all = rf_run_span(p->run, ins(p, i), i->ins + i->outs, v->kind, -1);
    all = rf_as(all, t->dtype);
    all.shape = rf_shape1((int64_t)t->count);
    RETURN_IF_ERROR(rf_broadcast_tensor(p->run->comm, all, t->root, &opts));
    p->stats.exposed_comm_ns += rf_now_ns() - start;
    return 0;
}

/* Takes the losses of this rank's micro-batches, and shares them. */
static int loss(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const uint64_t computed = rf_now_ns();
    double sum = 0;
    const bool has = rf_plan_has_losses(plan);
    for (int local = 0; has && local < plan->local_micro_batches; local++) {
        const int64_t global = rf_plan_micro_batch(plan, local);
        rf_run_take_loss(run, local, global);
        p->stats.local_tokens += (int64_t)run->shares[2 * global + 1];
    }
    RETURN_IF_ERROR(rf_run_share_losses(run, plan->policy.micro_batches, &sum, &p->stats.tokens,
                                        &p->stats.stop));
    if (rf_run_ranks(run) > 1)
        p->stats.exposed_comm_ns += rf_now_ns() - computed;
    p->stats.loss = p->stats.tokens > 0 ? sum / (double)p->stats.tokens : 0;
    fill_scalars(p);
    return 0;
}

/* ---- update ---------------------------------------------------------------------------------- */

static struct rf_tensor partials_of(const struct rf_pass *p, struct rf_tensor partials)
{
    partials = as_f32(partials);
    partials.shape = rf_shape1(2 * (int64_t)p->run->plan->chunk_count);
    return partials;
}

/* The table of chunks counts from the start of the gradients' memory. */
static int norm_partial(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_tensor partials = partials_of(p, out_span(p, i, RF_VALUE_PARTIALS));
    struct rf_tensor grads = p->run->regions[RF_REGION_GRADS];
    if (!grads.buffer) /* all shards of this rank are empty */
        return rf_fill(p->run->stream, partials, 0.0f);
    struct rf_tensor chunks = rf_as(in_span(p, i, RF_VALUE_CHUNKS), RF_I32);
    grads.shape = rf_shape1((int64_t)(plan->stage >= 2 ? rf_plan_grad_elements(plan, plan->shard)
                                                       : plan->train_elements));
    grads.dtype = RF_F32;
    chunks.shape = rf_shape2((int64_t)plan->chunk_count, 2);
    return rf_square_chunks(p->run->stream, partials, grads, chunks);
}

static int norm(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_tensor sum = rf_as(out_span(p, i, RF_VALUE_NORM), RF_F32);
    sum.shape = rf_shape1(1);
    return rf_fold_squares(p->run->stream, sum, partials_of(p, in_span(p, i, RF_VALUE_PARTIALS)));
}

static int begin_step(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_tensor sum = rf_as(in_span(p, i, RF_VALUE_NORM), RF_F32);
    sum.shape = rf_shape1(1);
    return rf_step_begin(p->run->stream, &p->run->plan->policy.optimizer, rf_run_scalars(p->run),
                         sum);
}

/* What an update changes: f32 parameters, beside which it may write copies, or those in 16 bits. */
static enum rf_value_kind updated_kind(const struct rf_pass *p, const struct rf_instruction *i)
{
    const bool wide = rf_run_find(p->run, outs(p, i), i->outs, RF_VALUE_PARAM_SHARD) >= 0;
    return wide ? RF_VALUE_PARAM_SHARD : RF_VALUE_COPY_SHARD;
}

static struct rf_tensor updated_copy(const struct rf_pass *p, const struct rf_instruction *i)
{
    if (updated_kind(p, i) == RF_VALUE_COPY_SHARD)
        return (struct rf_tensor){0};
    return typed(p, out_span(p, i, RF_VALUE_COPY_SHARD), RF_VALUE_COPY_SHARD);
}

/* Of the pieces that an update writes side by side, the one that comes first in memory. */
static const struct rf_plan_piece *first_piece(const struct rf_pass *p,
                                               const struct rf_instruction *i)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_plan_piece *first = NULL;
    for (int k = 0; k < i->outs; k++) {
        const struct rf_value *v = &plan->values[outs(p, i)[k]];
        const struct rf_plan_piece *piece = v->piece < 0 ? NULL : &plan->pieces[v->piece];
        if (v->kind == updated_kind(p, i) && (!first || piece->first < first->first))
            first = piece;
    }
    return first;
}

static int step(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const enum rf_value_kind kind = updated_kind(p, i);
    struct rf_optimizer_part part = {.param = typed(p, out_span(p, i, kind), kind),
                                     .copy = updated_copy(p, i),
                                     .grad = as_f32(in_span(p, i, RF_VALUE_GRAD_SHARD)),
                                     .decay = rf_as(in_span(p, i, RF_VALUE_DECAY), RF_I32)};
    if (!part.param.buffer) /* an empty shard */
        return 0;
    const struct rf_plan_piece *piece = first_piece(p, i);
    part.first = piece->first + piece->cuts[plan->shard];
    part.decay.offset +=
        (plan->shards > 1 ? piece->shard_first : piece->first) / RF_FLAT_GRAIN * sizeof(uint32_t);
    part.decay.shape = rf_shape1(rf_tensor_count(part.param) / RF_FLAT_GRAIN);
    for (int k = 0; k < RF_STATE_COUNT; k++)
        part.state[k] = as_f32(rf_run_span(run, outs(p, i), i->outs, RF_VALUE_STATE, k));
    return rf_optimizer_step(run->stream, &plan->policy.optimizer, &part, rf_run_scalars(run));
}

/* Threads cost some microseconds each. */
enum { LEAST_OF_A_THREAD = 65536 };

static int host_step(struct rf_pass *p, const struct rf_instruction *i)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const int *operands = ins(p, i);
    const int piece = plan->values[operands[0]].piece;
    const struct rf_plan_piece *q = &plan->pieces[piece];
    struct rf_host_part part = {.count = (int64_t)q->counts[plan->shard],
                                .first = q->first + q->cuts[plan->shard],
                                .param_type = rf_plan_type(plan, updated_kind(p, i)),
                                .grad_type = RF_F32,
                                .copy_type = plan->copy_type};
    if (part.count == 0)
        return 0;
    struct rf_tensor decay = in_span(p, i, RF_VALUE_DECAY);
    const struct rf_tensor copy = updated_copy(p, i);
    decay.offset += rf_plan_state_first(plan, piece) / RF_FLAT_GRAIN * sizeof(uint32_t);
    part.param = rf_tensor_map(out_span(p, i, updated_kind(p, i)));
    part.grad = rf_tensor_map(rf_run_value(run, operands[0]));
    part.decay = rf_tensor_map(decay);
    part.copy = copy.buffer ? rf_tensor_map(copy) : NULL;
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)k))
            part.state[k] = rf_tensor_map(rf_run_span(run, outs(p, i), i->outs, RF_VALUE_STATE, k));
    const int64_t threads = part.count / LEAST_OF_A_THREAD + 1;
    return rf_host_step_threads(&plan->policy.optimizer, &part,
                                rf_tensor_map(run->regions[RF_REGION_SCALARS]),
                                threads < run->host_threads ? (int)threads : run->host_threads);
}

static int end_step(struct rf_pass *p, const struct rf_instruction *i)
{
    (void)i;
    return rf_loss_scale_update(p->run->stream, &p->run->plan->policy.loss_scaling,
                                rf_run_scalars(p->run));
}

/* Of one kind to another, side by side in both; padding need not come along. */
static int cast(struct rf_pass *p, const struct rf_instruction *i)
{
    const struct rf_value *values = p->run->plan->values;
    const enum rf_value_kind from = values[ins(p, i)[0]].kind, to = values[outs(p, i)[0]].kind;
    struct rf_tensor in = typed(p, in_span(p, i, from), from);
    struct rf_tensor out = typed(p, out_span(p, i, to), to);
    if (!in.buffer || !out.buffer) /* an empty shard */
        return 0;
    const int64_t count = rf_tensor_count(in), room = rf_tensor_count(out);
    in.shape = out.shape = rf_shape1(count < room ? count : room);
    return rf_cast(p->run->stream, out, in);
}

/* The device has decided by itself whether this step is skipped. All ranks hold the same gradients,
 * so all skip alike. */
void rf_take_scalars(struct rf_pass *p)
{
    struct rf_run *run = p->run;
    if (!training(p))
        return;
    const struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    p->stats.grad_norm = scalars->norm;
    p->stats.skipped = scalars->skipped != 0;
    p->stats.loss_scale = scalars->loss_scale;
    run->updates = scalars->updates;
}

const struct rf_verb_row rf_verbs[RF_VERB_COUNT] = {
    [RF_VERB_LOAD] = {.act = load},
    [RF_VERB_ZERO] = {.record = zero},
    [RF_VERB_FORWARD] = {.record = block},
    [RF_VERB_RECOMPUTE] = {.record = block},
    [RF_VERB_BACKWARD_INPUT] = {.record = block},
    [RF_VERB_BACKWARD_WEIGHT] = {.record = block},
    [RF_VERB_MERGE] = {.record = merge},
    [RF_VERB_REDUCE] = {.start = start_reduce},
    [RF_VERB_LOSS] = {.act = loss},
    [RF_VERB_TIE] = {.record = tie},
    [RF_VERB_NORM_PARTIAL] = {.record = norm_partial},
    [RF_VERB_NORM_SHARE] = {.start = start_norm_share},
    [RF_VERB_NORM] = {.record = norm},
    [RF_VERB_GATHER] = {.start = start_gather},
    [RF_VERB_BEGIN_STEP] = {.record = begin_step},
    [RF_VERB_STEP] = {.record = step},
    [RF_VERB_END_STEP] = {.record = end_step},
    [RF_VERB_BROADCAST] = {.act = broadcast},
    [RF_VERB_CAST] = {.record = cast},
    [RF_VERB_FETCH] = {.start = start_copy},
    [RF_VERB_EVICT] = {.start = start_copy},
    [RF_VERB_HOST_STEP] = {.act = host_step},
    [RF_VERB_EXCHANGE] = {.start = start_exchange},
    [RF_VERB_SEND] = {.start = start_message},
    [RF_VERB_RECV] = {.start = start_message},
};
