/* SPDX-License-Identifier: MIT
 *
 * Forward passes without an update: the mean loss of held-out text, and logits for sampling.
 */
#include "../base/base.h"
#include "../coll/reduce.h"
#include "../parallel/plan/traffic.h"
#include "run.h"

/* Bytes that this rank sends to share the losses of `micro_batches`. */
static int sent_bytes(const struct rf_plan *plan, int64_t micro_batches, uint64_t *out)
{
    return rf_transfer_sent(plan,
                            &(struct rf_transfer){.op = RF_COLL_ALL_REDUCE,
                                                  .count = rf_plan_loss_elements(micro_batches),
                                                  .dtype = RF_F64,
                                                  .order = RF_ORDER_RING,
                                                  .group = rf_plan_loss_lane(plan)},
                            out);
}

/* Evaluates micro-batches [first, end) of the call, as many at once as a step has. rounds > 0: one
 * at a time, in that many rounds, because the ranks gather parameters together. */
static int evaluate_share(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                          int64_t first, int64_t end, int64_t rounds)
{
    const struct rf_plan *plan = run->plan;
    while (first < end || rounds > 0) {
        const bool all = rounds == 0 && end - first >= plan->local_micro_batches;
        const int count = all ? plan->local_micro_batches : first < end;
        struct rf_execution execution = {.run = run,
                                         .list = all     ? RF_LIST_EVALUATE
                                                 : count ? RF_LIST_EVALUATE_ONE
                                                         : RF_LIST_EVALUATE_NONE,
                                         .tokens = tokens + first * rf_plan_whole_rows(plan),
                                         .targets = targets + first * rf_plan_whole_rows(plan),
                                         .first = first};
        RETURN_IF_ERROR(rf_run_execute(&execution));
        run->planned_sent += run->list_sent[execution.list];
        for (int local = 0; rf_plan_has_losses(plan) && local < count; local++)
            rf_run_take_loss(run, local, first + local);
        first += count;
        rounds -= rounds > 0;
    }
    return 0;
}

int rf_run_evaluate(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                    int64_t micro_batches, double *loss)
{
    if (!run || !tokens || !targets || !loss || micro_batches < 1)
        return rf_fail(RF_EINVAL, "evaluate: a run, tokens, targets, a pointer for the loss and at "
                                  "least one micro-batch are needed");
    const struct rf_plan *plan = run->plan;
    const int64_t ranks = plan->mesh.dp, rank = plan->dp_rank;
    int64_t counted = 0;
    uint64_t sent = 0;
    double sum = 0;
    int stop = 0; /* only steps use it */
    RETURN_IF_ERROR(rf_run_check_idle(run, "evaluate"));
    int rc = rf_run_check_batch(run, tokens, targets, micro_batches * rf_plan_whole_rows(plan));
    if (rc < 0)
        return rf_run_refuse(run, rc, RF_LIST_EVALUATE_ONE);
    RETURN_IF_ERROR(rf_run_begin_call(run, "evaluate"));
    RETURN_IF_ERROR(rf_run_reserve_loss_sums(run, micro_batches));
    rf_run_clear_loss_sums(run, micro_batches);
    RETURN_IF_ERROR(sent_bytes(plan, micro_batches, &sent));
    rc = evaluate_share(run, tokens, targets, micro_batches * rank / ranks,
                        micro_batches * (rank + 1) / ranks,
                        rf_plan_shards_params(plan) ? (micro_batches + ranks - 1) / ranks : 0);
    if (rc == 0)
        rc = rf_run_sum_losses(run, micro_batches, &sum, &counted, &stop);
    if (rc < 0)
        return rf_run_give_up(run, rc);
    run->planned_sent += sent;
    if (counted == 0)
        return rf_fail(RF_EINVAL,
                       "evaluate: no target is a token, so there is no loss; give text of "
                       "which something is to be predicted");
    *loss = sum / (double)counted;
    return 0;
}

static int read_f32(struct rf_tensor out, float *to)
{
    const size_t count = (size_t)rf_tensor_count(out);
    if (out.dtype == RF_F32)
        return rf_tensor_read(out, to, count * sizeof(float));
    void *narrow = rf_alloc(count * sizeof(uint16_t));
    if (!narrow)
        return rf_fail(RF_ENOMEM, "forward: out of host memory");
    int rc = rf_tensor_read(out, narrow, count * sizeof(uint16_t));
    if (rc == 0)
        rf_widen(to, narrow, count, out.dtype);
    rf_free(narrow);
    return rc;
}

/* The logits of all tensor ranks. Each part of the last block has some of their columns. */
struct logits {
    struct rf_tensor own; /* this rank's output of the list; NULL buffer: none */
    int64_t rows, columns;
    bool parts;     /* several parts have some of the columns each */
    size_t *counts; /* of each part, then of each tensor rank; freed with rf_free */
};

static struct rf_tensor last_output(const struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_list *list = &plan->lists[RF_LIST_EVALUATE_ONE];
    const struct rf_block_sizes *sizes = &plan->sizes[plan->block_count - 1];
    struct rf_tensor out = {0};
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        if (i->verb != RF_VERB_FORWARD || i->block + 1 != plan->block_count)
            continue;
        out = rf_run_span(run, rf_plan_outs(plan, i, RF_ROLE_OUTPUT));
        out.shape = sizes->out;
        out.dtype = sizes->dtype;
    }
    return out;
}

static int64_t columns_of(struct rf_shape shape)
{
    return shape.ndim > 1 ? shape.dim[shape.ndim - 1] : 1;
}

/* If a rank's output is smaller than the block's output on one rank, it has some columns of it. */
static int find_logits(const struct rf_run *run, struct logits *out)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_block *last = &plan->blocks[plan->block_count - 1];
    struct rf_block_sizes whole = {0}, part;
    struct logits l = {.own = last_output(run)};
    uint64_t sum = 0;
    RETURN_IF_ERROR(last->ops->sizes(last->self, plan->rows, plan->policy.seq, &whole));
    if (whole.classes)
        return rf_fail(RF_ENOTSUP, "forward: the last block never has all logits; make the model "
                                   "without chunks (GPT-2: head_rows 0)");
    l.columns = columns_of(whole.out);
    l.rows = rf_shape_count(whole.out) / l.columns;
    l.parts = !rf_shape_equal(whole.out, rf_plan_part_sizes(plan, plan->block_count - 1, 0)->out);
    const int parts = rf_plan_all_parts(plan);
    l.counts = rf_alloc((size_t)(parts + plan->mesh.tp) * sizeof(*l.counts));
    int rc = l.counts ? 0 : rf_fail(RF_ENOMEM, "forward: out of host memory");
    for (int k = 0; rc == 0 && k < parts; k++) {
        rc = rf_plan_sizes_of(plan, last, k, &part);
        l.counts[k] = rc == 0 ? (size_t)(l.rows * columns_of(part.out)) : 0;
        l.counts[parts + k / rf_plan_parts(plan)] += l.counts[k];
        sum += l.counts[k];
    }
    if (rc == 0 && l.parts && sum != (uint64_t)(l.rows * l.columns))
        rc = rf_fail(RF_ENOTSUP,
                     "forward: the last block gives %d tensor ranks %llu logits of %lld together; "
                     "it must give each all rows of its columns",
                     parts, (unsigned long long)sum, (long long)(l.rows * l.columns));
    if (rc < 0)
        rf_free(l.counts);
    else
        *out = l;
    return rc;
}

/* Reads the output of each part of this rank, one after the other. */
static int read_parts(const struct rf_run *run, const struct logits *l, float *to)
{
    const struct rf_plan *plan = run->plan;
    const int last = plan->block_count - 1;
    for (int k = 0; k < (l->parts ? rf_plan_parts(plan) : 1); k++) {
        const struct rf_tensor part = rf_run_part_of_output(plan, last, k, l->own);
        RETURN_IF_ERROR(read_f32(part, to));
        to += rf_tensor_count(part);
    }
    return 0;
}

static int gather_parts(struct rf_run *run, const struct logits *l, const float *own, float *all)
{
    const struct rf_plan *plan = run->plan;
    const size_t *counts = l->counts + rf_plan_all_parts(plan);
    const struct rf_transfer t = {.op = RF_COLL_ALL_GATHER,
                                  .count = (size_t)(l->rows * l->columns),
                                  .dtype = RF_F32,
                                  .order = RF_ORDER_RING,
                                  .counts = counts,
                                  .group = RF_LANE_TENSOR};
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = "logits"};
    uint64_t sent = 0;
    if (plan->mesh.tp == 1) /* all parts are on this rank */
        return 0;
    RETURN_IF_ERROR(rf_transfer_sent(plan, &t, &sent));
    run->planned_sent += sent;
    const struct rf_coll_desc gather = {
        .op = t.op, .counts = counts, .dtype = t.dtype, .order = opts.order};
    return rf_collective(run->comms[RF_LANE_TENSOR], own, all, &gather, &opts);
}

/* Puts the columns of all parts side by side. */
static int join_columns(struct rf_run *run, const struct logits *l, float *logits)
{
    const struct rf_plan *plan = run->plan;
    const int parts = rf_plan_all_parts(plan);
    float *all = rf_alloc((size_t)(l->rows * l->columns) * sizeof(*all)), *from = all;
    if (!all)
        return rf_fail(RF_ENOMEM, "forward: out of host memory");
    for (int k = 0; k < plan->tp_rank; k++)
        from += l->counts[parts + k];
    int rc = read_parts(run, l, from);
    if (rc == 0)
        rc = gather_parts(run, l, from, all);
    from = all;
    for (int k = 0; rc == 0 && k < parts; k++) {
        const size_t width = l->counts[k] / (size_t)l->rows;
        for (int64_t row = 0; row < l->rows; row++, from += width)
            memcpy(logits + row * l->columns, from, width * sizeof(*logits));
        logits += width;
    }
    rf_free(all);
    return rc;
}

/* Sends logits from the rank that has the last block to the others of its pipeline. */
static int spread_logits(struct rf_run *run, float *logits, uint64_t bytes)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_transfer t = {.op = RF_COLL_BROADCAST,
                                  .count = bytes / sizeof(float),
                                  .dtype = RF_F32,
                                  .order = RF_ORDER_RING,
                                  .root = plan->home_of[plan->block_count - 1],
                                  .group = RF_LANE_PIPELINE};
    uint64_t sent = 0;
    if (plan->mesh.pp == 1)
        return 0;
    RETURN_IF_ERROR(rf_transfer_sent(plan, &t, &sent));
    run->planned_sent += sent;
    return rf_broadcast(run->comms[RF_LANE_PIPELINE], logits, t.count, RF_F32, t.root,
                        &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = "logits"});
}

static int forward(struct rf_run *run, const int32_t *tokens, const struct logits *l, float *logits)
{
    run->planned_sent += run->list_sent[RF_LIST_EVALUATE_ONE];
    RETURN_IF_ERROR(rf_run_execute(
        &(struct rf_execution){.run = run, .list = RF_LIST_EVALUATE_ONE, .tokens = tokens}));
    if (l->own.buffer)
        RETURN_IF_ERROR(l->parts ? join_columns(run, l, logits) : read_parts(run, l, logits));
    return spread_logits(run, logits, (uint64_t)(l->rows * l->columns) * sizeof(float));
}

int rf_run_forward(struct rf_run *run, const int32_t *tokens, float *logits, uint64_t logits_bytes)
{
    if (!run || !tokens || !logits)
        return rf_fail(RF_EINVAL, "forward: a run, tokens and memory for the logits are needed");
    const bool together = rf_plan_params_sharded(run->plan);
    struct logits l;
    if (rf_plan_shares_sequences(run->plan))
        return rf_fail(RF_ENOTSUP,
                       "forward: with cp=%d each rank has only the logits of its part of the "
                       "sequences, and this version does not gather them; use cp=1",
                       run->plan->mesh.cp);
    RETURN_IF_ERROR(find_logits(run, &l));
    const uint64_t bytes = (uint64_t)(l.rows * l.columns) * sizeof(float);
    int rc = logits_bytes == bytes
                 ? rf_run_check_idle(run, "forward")
                 : rf_fail(RF_EINVAL, "forward: the logits are %llu bytes, not %llu",
                           (unsigned long long)bytes, (unsigned long long)logits_bytes);
    if (rc == 0) {
        rc = rf_run_check_batch(run, tokens, NULL, run->plan->rows);
        if (rc < 0 && together) /* the other ranks would wait for this one */
            rc = rf_run_refuse(run, rc, RF_LIST_EVALUATE_ONE);
        else if (rc == 0 && together)
            rc = rf_run_begin_call(run, "forward");
        if (rc == 0) {
            rc = forward(run, tokens, &l, logits);
            if (rc < 0 && together)
                rc = rf_run_give_up(run, rc);
            else if (rc < 0)
                rf_segment_give_up(run);
        }
    }
    rf_free(l.counts);
    return rc;
}
