/* SPDX-License-Identifier: MIT
 *
 * The verbs that start a transfer, between ranks or between host and device; see verbs.h.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../parallel/plan/exchange.h"
#include "compress.h"
#include "operands.h"
#include "verbs.h"

/* The subtrees of a forest are a slot apart; `first` is the first one. */
static struct rf_tensor forest_parts(const struct rf_execution *p, int parts,
                                     struct rf_tensor first)
{
    const int64_t stride = (int64_t)p->run->plan->slot_elements;
    first.shape = rf_shape1((int64_t)(parts - 1) * stride + rf_tensor_count(first));
    return first;
}

/* A tensor without elements on the run's device. A rank with an empty shard still takes part. */
static struct rf_tensor nothing(const struct rf_execution *p, enum rf_dtype dtype)
{
    struct rf_tensor t = p->run->regions[RF_REGION_TOKENS];
    t.shape = rf_shape1(0);
    t.dtype = dtype;
    return t;
}

/* A round of sums to its owner: the rank's leaf, if it has one, and the memory for all sums. */
static int push_round(struct rf_execution *p, const struct rf_instruction *i,
                      const struct rf_coll_opts *opts)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, i);
    const struct rf_operands leaf = rf_plan_ins(plan, i, RF_ROLE_TERM);
    const struct rf_operands before = rf_plan_ins(plan, i, RF_ROLE_SUM);
    const int first =
        before.count ? before.values[0] : rf_plan_outs(plan, i, RF_ROLE_SUM).values[0];
    struct rf_tensor in = {0}, sums = shard(p, first);
    if (leaf.count > 0) {
        in = as_f32(rf_run_value(p->run, leaf.values[0]));
        in.shape = rf_shape1((int64_t)t->count);
    }
    sums.shape = rf_shape1(rf_tensor_count(sums) * plan->sum_slots);
    if (!sums.buffer)
        sums = nothing(p, RF_F32);
    const struct rf_coll_desc desc = {.op = t->op,
                                      .counts = t->counts,
                                      .leaves = (int)plan->policy.micro_batches,
                                      .round = t->round};
    return rf_tree_sum_tensor(p->run->comms[i->lane], &desc, in, sums, opts);
}

int rf_start_reduce(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
                    struct rf_point *done)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_transfer *t = rf_plan_transfer(plan, i);
    struct rf_comm *comm = p->run->comms[i->lane];
    const int first = ins(p, i)[0]; /* a term or, of a round without one, the sum */
    const struct rf_operands sum = rf_plan_outs(plan, i, RF_ROLE_SUM);
    char label[32];
    snprintf(label, sizeof(label), "gradients piece %d", plan->values[first].piece);
    const struct rf_coll_opts opts = {
        .order = t->order, .label = label, .algorithm = t->algorithm, .after = after, .done = done};
    const struct rf_coll_desc forest = {
        .op = t->op, .counts = t->counts, .forest = &plan->forest, .stride = plan->slot_elements};
    const struct rf_coll_desc sum_of = {.op = t->op,
                                        .counts =
                                            t->op == RF_COLL_REDUCE_SCATTER ? t->counts : NULL,
                                        .root = t->op == RF_COLL_REDUCE ? t->root : 0,
                                        .order = t->order};
    if (t->op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return push_round(p, i, &opts);
    struct rf_tensor in = typed(p, (struct rf_operands){&first, 1}), out = {0};
    in.shape = rf_shape1((int64_t)t->count);
    if (sum.count > 0)
        out = shard(p, sum.values[0]);
    if (sum.count > 0 && first == sum.values[0])
        in = out = out.buffer ? out : nothing(p, t->dtype);
    if (t->compressed) {
        RETURN_IF_ERROR(rf_run_wait(p, after));
        *done = (struct rf_point){0};
        return rf_compress_reduce(p->run, t->compressed - 1, in, out, &p->stats.exposed_comm_ns);
    }
    switch (t->op) {
    case RF_COLL_FOREST_ALL_REDUCE:
    case RF_COLL_FOREST_REDUCE_SCATTER:
        return rf_tree_sum_tensor(comm, &forest, forest_parts(p, i->ins, in), out, &opts);
    default:
        return rf_collective_tensor(comm, in, out, &sum_of, &opts);
    }
}

int rf_start_gather(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
                    struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor out = rf_run_value(p->run, outs(p, i)[0]);
    char label[32];
    snprintf(label, sizeof(label), "weights piece %d", p->run->plan->values[outs(p, i)[0]].piece);
    out.dtype = t->dtype;
    out.shape = rf_shape1((int64_t)t->count);
    return rf_collective_tensor(
        p->run->comms[i->lane], shard(p, ins(p, i)[0]), out,
        &(struct rf_coll_desc){.op = RF_COLL_ALL_GATHER, .counts = t->counts, .order = t->order},
        &(struct rf_coll_opts){.order = t->order, .label = label, .after = after, .done = done});
}

/* An exchange of the tensor ranks between two phases of a call, in place. */
int rf_start_exchange(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
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
    /* The sums of this rank's parts are at the first part's place. */
    whole.offset += rf_exchange_part_first(p->run->plan, x, 0, true);
    whole.dtype = t->dtype;
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

/* Sends a value to another rank, or receives it. */
int rf_start_message(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
                     struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor value = rf_run_value(p->run, ins(p, i)[0]); /* the only operand */
    struct rf_comm *comm = p->run->comms[i->lane];
    const bool sends = t->op == RF_COLL_SEND;
    const struct rf_value *v = &p->run->plan->values[ins(p, i)[0]];
    const uint8_t role = rf_plan_roles(p->run->plan, i)[0];
    char label[48];
    if (role == RF_ROLE_GRAD)
        snprintf(label, sizeof(label), "tied gradients");
    else
        snprintf(label, sizeof(label), "%s block %d micro-batch %d",
                 role == RF_ROLE_OUTPUT ? "output" : "gradient", v->block, v->micro_batch);
    const struct rf_coll_opts opts = {.label = label, .after = after, .done = done};
    value.dtype = t->dtype;
    value.shape = rf_shape1((int64_t)t->count);
    if (!value.buffer) /* an empty shard */
        value = nothing(p, t->dtype);
    return sends ? rf_send_tensor(comm, value, t->peer, t->tag, &opts)
                 : rf_recv_tensor(comm, value, t->peer, t->tag, &opts);
}

/* Copies between host and device memory, concurrently with compute. */
int rf_start_copy(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
                  struct rf_point *done)
{
    struct rf_stream *stream = p->run->copies[i->lane];
    const struct rf_tensor from = rf_run_value(p->run, ins(p, i)[0]);
    const struct rf_tensor to = rf_run_value(p->run, outs(p, i)[0]);
    const uint64_t capacity = rf_tensor_bytes(to), all = rf_tensor_bytes(from);
    if (after.timeline)
        RETURN_IF_ERROR(rf_stream_after(stream, after));
    if (from.buffer && to.buffer)
        RETURN_IF_ERROR(rf_stream_copy(stream, (struct rf_buffer_place){to.buffer, to.offset},
                                       (struct rf_buffer_place){from.buffer, from.offset},
                                       capacity < all ? capacity : all));
    return rf_stream_submit(stream, done);
}

int rf_start_norm_share(struct rf_execution *p, const struct rf_instruction *i,
                        struct rf_point after, struct rf_point *done)
{
    const struct rf_transfer *t = rf_plan_transfer(p->run->plan, i);
    struct rf_tensor partials = rf_run_value(p->run, outs(p, i)[0]);
    partials.dtype = t->dtype;
    partials.shape = rf_shape1((int64_t)t->count);
    return rf_all_reduce_tensor(
        p->run->comms[i->lane], partials, partials, RF_SUM,
        &(struct rf_coll_opts){.order = t->order, .label = "norm", .after = after, .done = done});
}

/* Copies a block of states between the disk and host memory. It waits for the host's lane only. */
int rf_start_disk(struct rf_execution *p, const struct rf_instruction *i, struct rf_point after,
                  struct rf_point *done)
{
    const struct rf_plan *plan = p->run->plan;
    const bool writes = i->verb == RF_VERB_WRITE;
    const int *disk = writes ? outs(p, i) : ins(p, i), *memory = writes ? ins(p, i) : outs(p, i);
    struct rf_disk_range ranges[RF_DISK_RANGES];
    char text[96];
    int count = 0;
    for (int k = 0; k < i->ins; k++) {
        const struct rf_value *v = &plan->values[disk[k]];
        if (v->bytes > 0) /* this rank's shard may end before the largest */
            ranges[count++] =
                (struct rf_disk_range){rf_tensor_map(rf_run_value(p->run, memory[k])),
                                       p->run->regions[v->region].offset + v->offset, v->bytes};
    }
    RETURN_IF_ERROR(rf_run_wait(p, after));
    return rf_disk_start(p->run->disk, writes, ranges, count,
                         rf_instruction_text(plan, i, text, sizeof(text)), done);
}
