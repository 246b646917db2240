/* SPDX-License-Identifier: MIT
 *
 * Forward passes without an update: the mean loss of held-out text, and logits for sampling.
 */
#include "../base/base.h"
#include "../coll/reduce.h"
#include "run.h"

static int forward_all(struct rf_run *run, int local, int64_t global)
{
    const struct rf_plan *plan = run->plan;
    bool varies = false;
    for (int block = 0; block < plan->block_count; block++)
        varies |= plan->blocks[block].varies;
    RETURN_IF_ERROR(
        rf_segment_begin(run, &run->segments[plan->instruction_count + local], global, varies));
    for (int block = 0; block < plan->block_count && run->mode != RF_SEGMENT_REPLAY; block++)
        RETURN_IF_ERROR(rf_run_block_forward(run, block, local, global, true));
    return rf_segment_end(run, NULL);
}

/* Micro-batches [first, end) of the call, as many at once as the input buffers hold. */
static int evaluate_share(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                          int64_t first, int64_t end)
{
    const struct rf_plan *plan = run->plan;
    while (first < end) {
        int count = plan->local_micro_batches;
        if (count > end - first)
            count = (int)(end - first);
        rf_run_load_inputs(run, tokens + first * plan->rows, targets + first * plan->rows, count);
        for (int local = 0; local < count; local++)
            RETURN_IF_ERROR(forward_all(run, local, first + local));
        RETURN_IF_ERROR(rf_stream_wait(run->stream));
        for (int local = 0; local < count; local++)
            rf_run_take_loss(run, local, first + local);
        first += count;
    }
    return 0;
}

int rf_run_evaluate(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                    int64_t micro_batches, double *loss)
{
    if (!run || !tokens || !targets || !loss || micro_batches < 1)
        return rf_fail(RF_EINVAL, "evaluate: a run, tokens, targets, a place for the loss and at "
                                  "least one micro-batch are needed");
    const struct rf_plan *plan = run->plan;
    const int64_t ranks = plan->mesh.dp, rank = plan->rank;
    int64_t counted = 0;
    uint64_t sent = 0;
    double sum = 0;
    int stop = 0; /* is for steps */
    int rc = rf_run_check_batch(run, tokens, targets, micro_batches * plan->rows);
    if (rc < 0)
        return rf_run_refuse(run, rc);
    RETURN_IF_ERROR(rf_run_reserve_shares(run, micro_batches));
    RETURN_IF_ERROR(rf_plan_loss_bytes(plan, micro_batches, &sent));
    rc = evaluate_share(run, tokens, targets, micro_batches * rank / ranks,
                        micro_batches * (rank + 1) / ranks);
    if (rc == 0)
        rc = rf_run_share_losses(run, micro_batches, &sum, &counted, &stop);
    if (rc < 0)
        return rf_run_give_up(run, rc);
    run->planned_sent += sent;
    *loss = counted > 0 ? sum / (double)counted : 0;
    return 0;
}

static int forward_one(struct rf_run *run, const int32_t *tokens)
{
    rf_run_load_inputs(run, tokens, NULL, 1);
    RETURN_IF_ERROR(forward_all(run, 0, 0));
    return rf_stream_wait(run->stream);
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

int rf_run_forward(struct rf_run *run, const int32_t *tokens, float *logits, uint64_t logits_bytes)
{
    if (!run || !tokens || !logits)
        return rf_fail(RF_EINVAL, "forward: a run, tokens and a place for the logits are needed");
    if (run->plan->sizes[run->plan->block_count - 1].classes)
        return rf_fail(RF_ENOTSUP, "forward: the last block never has all logits; make the model "
                                   "without chunks (GPT-2: head_rows 0)");
    struct rf_tensor out = rf_run_out(run, run->plan->block_count - 1);
    const uint64_t bytes = (uint64_t)rf_tensor_count(out) * sizeof(float);
    if (logits_bytes != bytes)
        return rf_fail(RF_EINVAL, "forward: the logits are %llu bytes, not %llu",
                       (unsigned long long)bytes, (unsigned long long)logits_bytes);
    RETURN_IF_ERROR(rf_run_check_batch(run, tokens, NULL, run->plan->rows));
    int rc = forward_one(run, tokens);
    if (rc < 0) {
        rf_segment_give_up(run);
        return rc;
    }
    return read_f32(out, logits);
}
