/* SPDX-License-Identifier: MIT
 *
 * Losses and token counts: taken from mapped memory, summed in double per micro-batch, and shared
 * so that every rank adds the same numbers in the same order: the mean loss does not depend on the
 * ranks.
 */
#include "../base/base.h"
#include "run.h"

int rf_plan_loss_bytes(const struct rf_plan *plan, int64_t micro_batches, uint64_t *out)
{
    *out = 0;
    if (plan->mesh.dp == 1)
        return 0;
    return rf_coll_sent_bytes(RF_COLL_ALL_REDUCE, plan->rank, plan->mesh.dp,
                              2 * (size_t)micro_batches, RF_F64, RF_ORDER_RING, 0, out);
}

int rf_run_check_batch(const struct rf_run *run, const int32_t *targets, int64_t count)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_block_sizes *last = &plan->sizes[plan->block_count - 1];
    int64_t vocab = last->out.ndim > 0 ? last->out.dim[last->out.ndim - 1] : 1;
    if (last->classes)
        vocab = last->classes;
    for (int64_t i = 0; i < count; i++)
        if (targets[i] >= vocab)
            return rf_fail(RF_EINVAL,
                           "target %d at position %lld is not below the vocabulary of %lld",
                           targets[i], (long long)i, (long long)vocab);
    return 0;
}

void rf_run_load_inputs(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                        int micro_batches)
{
    size_t count = (size_t)run->plan->rows * (size_t)micro_batches;
    memcpy(run->tokens, tokens, count * sizeof(*tokens));
    if (targets)
        memcpy(run->targets, targets, count * sizeof(*targets));
    else
        memset(run->targets, 0xff, count * sizeof(*targets)); /* -1: all ignored */
}

void rf_run_take_loss(struct rf_run *run, int local, int64_t global)
{
    const int64_t rows = run->plan->rows;
    double sum = 0, count = 0;
    for (int64_t i = local * rows; i < (local + 1) * rows; i++)
        if (run->targets[i] >= 0) {
            sum += (double)run->losses[i];
            count += 1;
        }
    run->shares[2 * global] = sum;
    run->shares[2 * global + 1] = count;
}

int rf_run_reserve_shares(struct rf_run *run, int64_t micro_batches)
{
    if (micro_batches > run->share_room) {
        double *grown = rf_realloc(run->shares, 2 * (size_t)micro_batches * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "run: out of host memory for %lld losses",
                           (long long)micro_batches);
        run->shares = grown;
        run->share_room = micro_batches;
    }
    memset(run->shares, 0, 2 * (size_t)micro_batches * sizeof(*run->shares));
    return 0;
}

int rf_run_share_losses(struct rf_run *run, int64_t micro_batches, double *sum, int64_t *tokens)
{
    double count = 0;
    if (run->plan->mesh.dp > 1) {
        /* Every entry is zero but on one rank, so the sums are exact in any order. */
        RETURN_IF_ERROR(rf_all_reduce(
            run->comm, run->shares, run->shares, 2 * (size_t)micro_batches, RF_F64, RF_SUM,
            &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = "losses"}));
    }
    *sum = 0;
    for (int64_t i = 0; i < micro_batches; i++) {
        *sum += run->shares[2 * i];
        count += run->shares[2 * i + 1];
    }
    *tokens = (int64_t)count;
    return 0;
}
