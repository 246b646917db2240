/* SPDX-License-Identifier: MIT
 *
 * Losses and token counts. They are read from mapped memory, summed in double per micro-batch, and
 * shared so that every rank adds the same numbers in the same order. The mean loss therefore does
 * not depend on the number of ranks. The same message carries each rank's request to stop, so that
 * all stop after the same step.
 */
#include "../base/base.h"
#include "run.h"

/* The weights of reasons allow 65535 ranks with the next lower reason, so sums are exact. */
enum { REASON_MAX = 3, REASON_BITS = 16 };

static double stop_weight(int reason)
{
    reason = reason > REASON_MAX ? REASON_MAX : reason;
    return reason > 0 ? (double)(UINT64_C(1) << (REASON_BITS * (reason - 1))) : 0;
}

static int highest_reason(double weights)
{
    int reason = 0;
    while (reason < REASON_MAX && weights >= stop_weight(reason + 1))
        reason++;
    return reason;
}

static int check_tokens(const struct rf_run *run, const int32_t *tokens, int64_t count)
{
    const int64_t vocabulary = run->plan->sizes[0].vocabulary;
    for (int64_t i = 0; vocabulary > 0 && i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return rf_fail(RF_EINVAL,
                           "token %d at position %lld is outside the vocabulary of %lld: use ids "
                           "from 0 to %lld",
                           tokens[i], (long long)i, (long long)vocabulary,
                           (long long)vocabulary - 1);
    return 0;
}

int rf_run_check_batch(const struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                       int64_t count)
{
    const struct rf_plan *plan = run->plan;
    const struct rf_block_sizes *last = rf_plan_part_sizes(plan, plan->block_count - 1, 0);
    RETURN_IF_ERROR(check_tokens(run, tokens, count));
    int64_t vocab = last->out.ndim > 0 ? last->out.dim[last->out.ndim - 1] : 1;
    if (last->classes)
        vocab = last->classes;
    for (int64_t i = 0; targets && i < count; i++)
        if (targets[i] >= vocab)
            return rf_fail(RF_EINVAL,
                           "target %d at position %lld must be below the vocabulary of %lld",
                           targets[i], (long long)i, (long long)vocab);
    return 0;
}

/* Copies this rank's part of whole sequences: all of it, or two chunks (struct rf_context_part). */
static void take_rows(const struct rf_plan *plan, const int32_t *from, int32_t *to)
{
    const int64_t seq = rf_plan_seq(plan), chunk = seq / 2, whole = plan->policy.seq;
    const size_t bytes = (size_t)plan->rows * sizeof(*to);
    if (!rf_plan_cuts_sequences(plan)) {
        memcpy(to, from, bytes);
        return;
    }
    const struct rf_context_part part = rf_plan_context_part(plan);
    for (int64_t first = 0; first < plan->rows; first += seq, from += whole)
        for (int half = 0; half < 2; half++)
            memcpy(to + first + half * chunk, from + rf_context_first(&part, half, chunk),
                   (size_t)chunk * sizeof(*to));
}

/* The first token of each token's document, and the token's position in it. */
static void find_documents(const struct rf_plan *plan, const int32_t *targets, int32_t *starts)
{
    const int64_t seq = rf_plan_seq(plan);
    int32_t *const positions = starts + plan->rows;
    for (int64_t i = 0, start = 0; i < plan->rows; i++) {
        const int64_t at = i % seq;
        start = at == 0 ? 0 : targets[i - 1] == RF_TARGET_LAST ? at : start;
        starts[i] = (int32_t)start;
        positions[i] = (int32_t)(at - start);
    }
}

void rf_run_load_inputs(struct rf_run *run, const int32_t *tokens, const int32_t *targets,
                        int64_t from, int local)
{
    const struct rf_plan *plan = run->plan;
    const int64_t rows = plan->rows, first = from * rf_plan_whole_rows(plan);
    take_rows(plan, tokens + first, run->tokens + local * rows);
    if (targets)
        take_rows(plan, targets + first, run->targets + local * rows);
    else /* -1: ignore all */
        memset(run->targets + local * rows, 0xff, (size_t)rows * sizeof(*targets));
    if (run->starts)
        find_documents(plan, run->targets + local * rows, run->starts + 2 * local * rows);
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
    run->loss_sums[2 * global] = sum;
    run->loss_sums[2 * global + 1] = count;
}

int rf_run_reserve_loss_sums(struct rf_run *run, int64_t micro_batches)
{
    if (micro_batches > run->loss_capacity) {
        double *grown =
            rf_realloc(run->loss_sums, rf_plan_loss_elements(micro_batches) * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "run: out of host memory for %lld losses",
                           (long long)micro_batches);
        run->loss_sums = grown;
        run->loss_capacity = micro_batches;
    }
    return 0;
}

void rf_run_clear_loss_sums(struct rf_run *run, int64_t micro_batches)
{
    memset(run->loss_sums, 0, rf_plan_loss_elements(micro_batches) * sizeof(*run->loss_sums));
}

int rf_run_sum_losses(struct rf_run *run, int64_t micro_batches, double *sum, int64_t *tokens,
                      int *stop)
{
    double count = 0;
    double *weights = &run->loss_sums[2 * micro_batches];
    *weights = stop_weight(run->stop ? __atomic_load_n(run->stop, __ATOMIC_RELAXED) : 0);
    if (rf_run_ranks(run) > 1) {
        /* A loss is zero except on one rank, or on the ranks that have parts of its sequences.
         * Counts and weights are whole numbers. So the sums are either exact in any order, or sums
         * of f64 losses in the ring's order, which is the same on all ranks. */
        RETURN_IF_ERROR(rf_all_reduce(
            run->comm, run->loss_sums, run->loss_sums, rf_plan_loss_elements(micro_batches), RF_F64,
            RF_SUM, &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = "losses"}));
    }
    *sum = 0;
    for (int64_t i = 0; i < micro_batches; i++) {
        *sum += run->loss_sums[2 * i];
        count += run->loss_sums[2 * i + 1];
    }
    *tokens = (int64_t)count;
    *stop = highest_reason(*weights);
    return 0;
}
