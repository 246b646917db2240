/* SPDX-License-Identifier: MIT
 *
 * Runs the instruction list of a plan, one after the other. It decides nothing: what happens and in
 * which order is in the list. Compute is recorded on the run's stream; reductions run beside it,
 * each after the point its bucket was complete at. The host waits twice: for losses and reductions,
 * and for the update. What is recorded up to an instruction that acts on the host is a segment,
 * which is handed over there; see segment.c for when it is replayed.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../device/device.h"
#include "../optim/scalars.h"
#include "run.h"

#define NOT_A_NUMBER 0x7fc00000u

static struct rf_tensor slot_part(const struct rf_run *run, int slot, uint64_t first,
                                  uint64_t count)
{
    struct rf_tensor t = run->regions[RF_REGION_GRADS];
    t.offset += ((uint64_t)slot * run->plan->slot_elements + first) * sizeof(float);
    t.shape = rf_shape1((int64_t)count);
    t.dtype = RF_F32;
    return t;
}

static struct rf_tensor region_f32(const struct rf_run *run, int id, uint64_t first, int64_t count)
{
    struct rf_tensor t = run->regions[id];
    if (!t.buffer)
        return (struct rf_tensor){0};
    t.offset += first * sizeof(float);
    t.shape = rf_shape1(count);
    t.dtype = RF_F32;
    return t;
}

/* A check of blocks: what they should have written and did not is no number. */
static int spoil_written(const struct rf_run *run, int slot)
{
    for (int i = 0; i < run->plan->param_count; i++) {
        struct rf_tensor grad = run->grads[slot * run->plan->param_count + i];
        if (run->plan->params[i].written)
            RETURN_IF_ERROR(rf_stream_fill(run->stream, grad.buffer, grad.offset,
                                           rf_tensor_bytes(grad), NOT_A_NUMBER));
    }
    return 0;
}

static int zero_grads(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    for (int k = 0; k < run->plan->cleared_count; k++) {
        const struct rf_plan_span *span = &run->plan->cleared[k];
        struct rf_tensor part = slot_part(run, i->a, span->first, span->count);
        RETURN_IF_ERROR(
            rf_stream_fill(run->stream, part.buffer, part.offset, rf_tensor_bytes(part), 0));
    }
    return run->check_replay ? spoil_written(run, i->a) : 0;
}

static int forward(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    int64_t global = run->plan->first_micro_batch[run->plan->rank] + i->micro_batch;
    return rf_run_block_forward(run, i->block, i->micro_batch, global, false);
}

static int backward_input(struct rf_step_state *s, const struct rf_instruction *i)
{
    return rf_run_block_backward(s->run, i->block, i->micro_batch, i->a, false);
}

static int backward_weight(struct rf_step_state *s, const struct rf_instruction *i)
{
    return rf_run_block_backward(s->run, i->block, i->micro_batch, i->a, true);
}

static int merge(struct rf_step_state *s, const struct rf_instruction *i)
{
    const struct rf_plan *plan = s->run->plan;
    uint64_t first = 0, count = plan->slot_elements;
    if (i->bucket >= 0) {
        first = plan->buckets[i->bucket].first;
        count = plan->buckets[i->bucket].count;
    }
    if (count == 0)
        return 0;
    struct rf_tensor left = slot_part(s->run, i->a, first, count);
    return rf_add(s->run->stream, left, left, slot_part(s->run, i->b, first, count));
}

static int wait_reductions(struct rf_step_state *s)
{
    if (!s->reducing)
        return 0;
    s->reducing = false;
    return rf_comm_wait(s->run->comm);
}

/* For kernels of this step; again when the tokens are known. */
static void fill_scalars(const struct rf_step_state *s)
{
    const struct rf_run *run = s->run;
    const struct rf_policy *policy = &run->plan->policy;
    rf_step_scalars_set(rf_tensor_map(run->regions[RF_REGION_SCALARS]),
                        &(struct rf_step_values){.lr = s->lr,
                                                 .clip = policy->clip,
                                                 .tokens = s->stats.tokens,
                                                 .update = run->updates + 1,
                                                 .seed = run->seed});
}

static int tie(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_tensor owner = s->run->grads[i->a];
    return rf_add(s->run->stream, owner, owner, s->run->grads[i->b]);
}

static int reduce(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_plan_bucket *bucket = &plan->buckets[i->a];
    struct rf_tensor out = slot_part(run, 0, bucket->first, bucket->count);
    char label[32];
    snprintf(label, sizeof(label), "gradients bucket %d", i->a);
    struct rf_coll_opts opts = {.order = plan->policy.order, .label = label, .done = &s->reduced};

    opts.after = s->done;
    uint64_t start = 0;
    const bool alone = plan->policy.no_overlap || rf_device_checks_ranges(run->device);
    if (alone) {
        RETURN_IF_ERROR(rf_stream_wait(run->stream));
        start = rf_now_ns();
    }
    s->reducing = true;
    if (plan->policy.order == RF_ORDER_TREE) {
        int parts = rf_forest_nodes(&plan->forest, plan->rank, NULL);
        uint64_t span = (uint64_t)(parts - 1) * plan->slot_elements + bucket->count;
        RETURN_IF_ERROR(rf_forest_all_reduce_tensor(run->comm, &plan->forest,
                                                    slot_part(run, 0, bucket->first, span),
                                                    plan->slot_elements, out, &opts));
    } else if (plan->policy.update_on_rank_0) {
        const struct rf_tensor none = {0};
        opts.algorithm = RF_TO_RANK_0;
        RETURN_IF_ERROR(
            rf_reduce_tensor(run->comm, out, plan->rank == 0 ? out : none, RF_SUM, 0, &opts));
    } else {
        RETURN_IF_ERROR(rf_all_reduce_tensor(run->comm, out, out, RF_SUM, &opts));
    }
    if (alone) {
        RETURN_IF_ERROR(wait_reductions(s));
        s->stats.exposed_comm_ns += rf_now_ns() - start;
    }
    return 0;
}

static int share_losses(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    const struct rf_plan *plan = run->plan;
    int64_t first = plan->first_micro_batch[plan->rank];
    double sum = 0;
    RETURN_IF_ERROR(rf_stream_wait(run->stream));
    uint64_t computed = rf_now_ns();
    for (int local = 0; local < plan->local_micro_batches; local++) {
        rf_run_take_loss(run, local, first + local);
        s->stats.local_tokens += (int64_t)run->shares[2 * (first + local) + 1];
    }
    RETURN_IF_ERROR(wait_reductions(s));
    RETURN_IF_ERROR(rf_run_share_losses(run, plan->policy.micro_batches, &sum, &s->stats.tokens,
                                        &s->stats.stop));
    if (plan->mesh.dp > 1)
        s->stats.exposed_comm_ns += rf_now_ns() - computed;
    s->stats.loss = s->stats.tokens > 0 ? sum / (double)s->stats.tokens : 0;
    fill_scalars(s);
    return 0;
}

static int norm(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    const struct rf_plan *plan = run->plan;
    if (plan->chunk_count == 0)
        return 0;
    struct rf_tensor chunks = run->regions[RF_REGION_CHUNKS];
    chunks.shape = rf_shape2(plan->chunk_count, 2);
    chunks.dtype = RF_I32;
    struct rf_tensor sum = region_f32(run, RF_REGION_NORM, 0, 1);
    RETURN_IF_ERROR(
        rf_sum_squares(run->stream, sum, slot_part(run, 0, 0, plan->train_elements), chunks,
                       region_f32(run, RF_REGION_NORM_SCRATCH, 0, 2 * plan->chunk_count)));
    return rf_step_begin(run->stream, &plan->policy.optimizer, rf_run_scalars(run), sum);
}

static int step(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    const struct rf_plan *plan = run->plan;
    const int64_t count = (int64_t)plan->train_elements;
    if (count == 0)
        return 0;
    struct rf_tensor decay = run->regions[RF_REGION_DECAY];
    decay.shape = rf_shape1(count / RF_FLAT_GRAIN);
    decay.dtype = RF_I32;
    struct rf_optimizer_part part = {.param = region_f32(run, RF_REGION_PARAMS, 0, count),
                                     .grad = slot_part(run, 0, 0, plan->train_elements),
                                     .decay = decay};
    for (int k = 0; k < RF_STATE_COUNT; k++)
        part.state[k] = region_f32(run, RF_REGION_STATE + k, 0, count);
    if (plan->copy_type != RF_F32)
        part.copy = rf_run_copy(run, plan->train_elements);
    RETURN_IF_ERROR(
        rf_optimizer_step(run->stream, &plan->policy.optimizer, &part, rf_run_scalars(run)));
    if (plan->policy.loss_scale == 0)
        return 0;
    return rf_loss_scale_update(run->stream, &plan->policy.loss_scaling, rf_run_scalars(run));
}

static void take_scalars(struct rf_step_state *s)
{
    struct rf_run *run = s->run;
    const struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    s->stats.grad_norm = scalars->norm;
    s->stats.skipped = scalars->skipped != 0;
    s->stats.loss_scale = scalars->loss_scale;
    run->updates = scalars->updates;
}

/* The device has decided by itself whether this step is skipped. All ranks hold the same gradients,
 * so all skip alike. */
static int finish_step(struct rf_step_state *s, const struct rf_instruction *i)
{
    RETURN_IF_ERROR(rf_stream_wait(s->run->stream));
    take_scalars(s);
    return 0;
}

/* Ranks without an optimizer take its results, and what it said. */
static int spread(struct rf_step_state *s, const struct rf_instruction *i)
{
    struct rf_run *run = s->run;
    const struct rf_plan *plan = run->plan;
    const uint64_t start = rf_now_ns();
    struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = "step scalars"};
    RETURN_IF_ERROR(rf_broadcast(run->comm, rf_tensor_map(run->regions[RF_REGION_SCALARS]),
                                 sizeof(struct rf_step_scalars), RF_U8, 0, &opts));
    opts.label = "weights";
    opts.algorithm = RF_TO_RANK_0;
    if (plan->train_elements > 0)
        RETURN_IF_ERROR(rf_broadcast_tensor(
            run->comm, region_f32(run, RF_REGION_PARAMS, 0, (int64_t)plan->train_elements), 0,
            &opts));
    if (plan->rank != 0)
        RETURN_IF_ERROR(rf_run_refresh_copy(run));
    take_scalars(s);
    s->stats.exposed_comm_ns += rf_now_ns() - start;
    return 0;
}

/* What an instruction records, and what the host does once that has been handed over. */
struct verb {
    int (*record)(struct rf_step_state *, const struct rf_instruction *);
    int (*act)(struct rf_step_state *, const struct rf_instruction *);
};
static const struct verb verbs[RF_VERB_COUNT] = {
    [RF_VERB_ZERO_GRADS] = {zero_grads, NULL},
    [RF_VERB_FORWARD] = {forward, NULL},
    [RF_VERB_BACKWARD_INPUT] = {backward_input, NULL},
    [RF_VERB_BACKWARD_WEIGHT] = {backward_weight, NULL},
    [RF_VERB_MERGE] = {merge, NULL},
    [RF_VERB_TIE] = {tie, NULL},
    [RF_VERB_REDUCE] = {NULL, reduce},
    [RF_VERB_LOSS] = {NULL, share_losses},
    [RF_VERB_NORM] = {norm, NULL},
    [RF_VERB_STEP] = {step, finish_step},
    [RF_VERB_SPREAD] = {NULL, spread},
};

/* Whether what has been recorded is handed over at this instruction. After the last block's forward
 * pass it is, too, so that the device starts while the backward pass is being recorded. */
static bool hands_over(const struct rf_plan *plan, const struct rf_instruction *i)
{
    return verbs[i->verb].act || (i->verb == RF_VERB_FORWARD && i->block + 1 == plan->block_count);
}

/* The segment that begins at an instruction is named after the one that hands it over. */
static int begin_segment(struct rf_run *run, int first)
{
    const struct rf_plan *plan = run->plan;
    bool varies = false;
    int end = first;
    for (;; end++) {
        const struct rf_instruction *i = &plan->instructions[end];
        varies |= i->block >= 0 && plan->blocks[i->block].varies;
        if (end + 1 == plan->instruction_count || hands_over(plan, i))
            break;
    }
    return rf_segment_begin(run, &run->segments[end], 0, varies);
}

static int execute(struct rf_step_state *s, int at, const char *text)
{
    struct rf_run *run = s->run;
    const struct rf_instruction *i = &run->plan->instructions[at];
    const struct verb *verb = &verbs[i->verb];
    if (verb->record && !run->segment)
        RETURN_IF_ERROR(begin_segment(run, at));
    if (verb->record && run->mode != RF_SEGMENT_REPLAY) {
        rf_stream_push_label(run->stream, text);
        int rc = verb->record(s, i);
        rf_stream_pop_label(run->stream);
        RETURN_IF_ERROR(rc);
    }
    if (!hands_over(run->plan, i))
        return 0;
    RETURN_IF_ERROR(rf_segment_end(run, &s->done));
    return verb->act ? verb->act(s, i) : 0;
}

int rf_run_execute(struct rf_step_state *state)
{
    const struct rf_plan *plan = state->run->plan;
    char text[96];
    fill_scalars(state);
    for (int i = 0; i < plan->instruction_count; i++) {
        const struct rf_instruction *instruction = &plan->instructions[i];
        int rc = execute(state, i, rf_instruction_text(instruction, text, sizeof(text)));
        /* A block of the user's has no means to leave a sentence. */
        if (rc < 0 && rf_last_error()->status != rc)
            return rf_fail(rc, "%s failed: %s", text, rf_status_text(rc));
        if (rc < 0)
            return rc;
    }
    return 0;
}

int rf_run_give_up(struct rf_run *run, int status)
{
    const struct rf_error error = *rf_last_error();
    rf_segment_give_up(run);
    if (run->comm && rf_comm_size(run->comm) > 1) {
        /* The others must not wait for a rank that will not come. */
        rf_comm_abort(run->comm, error.message);
        if (rf_comm_wait(run->comm) < 0)
            rf_log("train", 2, "reductions were abandoned after an error");
    }
    if (rf_stream_wait(run->stream) < 0)
        rf_log("train", 2, "the stream failed too");
    return error.status == status ? rf_fail_error(&error) : status;
}
