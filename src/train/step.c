/* SPDX-License-Identifier: MIT
 *
 * One optimizer step: inputs in, the list of the plan, numbers out.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "run.h"

int rf_run_step(struct rf_run *run, const int32_t *tokens, const int32_t *targets, float lr,
                struct rf_step_stats *stats)
{
    if (!run || !tokens || !targets)
        return rf_fail(RF_EINVAL, "step: a run, tokens and targets are needed");
    const struct rf_plan *plan = run->plan;
    const int64_t rows = plan->rows;
    if (plan->policy.forward_only)
        return rf_fail(RF_EINVAL, "step: this run was planned with forward_only; it cannot train");
    int rc = rf_run_check_batch(run, tokens, targets, rows * plan->policy.micro_batches);
    if (rc < 0)
        return rf_run_refuse(run, rc);
    RETURN_IF_ERROR(rf_run_reserve_shares(run, plan->policy.micro_batches));

    const uint64_t start = rf_now_ns();
    const uint64_t sent = rf_run_sent(run);
    struct rf_pass pass = {
        .run = run, .list = RF_LIST_STEP, .tokens = tokens, .targets = targets, .lr = lr};
    run->record_ns = 0;
    run->recorded = run->replayed = 0;
    rc = rf_run_execute(&pass);
    if (rc < 0)
        return rf_run_give_up(run, rc);
    run->step++;
    run->planned_sent += plan->bytes.sent;
    pass.stats.sent_bytes = rf_run_sent(run) - sent;
    pass.stats.step_ns = rf_now_ns() - start;
    pass.stats.record_ns = run->record_ns;
    pass.stats.recorded = run->recorded;
    pass.stats.replayed = run->replayed;
    if (stats)
        *stats = pass.stats;
    return 0;
}
