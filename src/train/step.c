/* SPDX-License-Identifier: MIT
 *
 * One optimizer step: inputs in, the list of the plan, numbers out.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "run.h"

/* Whether an instruction that has begun writes what a step leaves to the next one: shards are what
 * an update writes, and whole parameters only what rank 0 has updated alone. */
static bool began_update(const struct rf_pass *p)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_list *list = &plan->lists[p->list];
    int place[RF_LANE_COUNT] = {0};
    for (int k = 0; k < list->count; k++) {
        const struct rf_instruction *i = &list->instructions[k];
        const int *outs = rf_plan_operands(plan, i) + i->ins;
        if (place[i->lane]++ >= p->next[i->lane])
            continue;
        for (int o = 0; o < i->outs; o++) {
            const enum rf_value_kind kind = plan->values[outs[o]].kind;
            if (kind == rf_plan_stored(plan) || kind == RF_VALUE_STATE ||
                (i->verb == RF_VERB_BROADCAST && kind != RF_VALUE_SCALARS))
                return true;
        }
    }
    return false;
}

void rf_run_spoil(struct rf_run *run, const char *call)
{
    const struct rf_error why = *rf_last_error();
    run->spoiled = why;
    snprintf(run->spoiled.message, sizeof(run->spoiled.message), "a %s has failed halfway: %.600s",
             call, why.message);
}

int rf_run_check_whole(const struct rf_run *run, const char *call)
{
    const struct rf_error *why = &run->spoiled;
    if (why->status == 0)
        return 0;
    return rf_fail_rank(RF_EABORT, why->rank,
                        "%s: parameters may be of two steps; open another run and load a "
                        "checkpoint, as %.640s",
                        call, why->message);
}

int rf_run_step(struct rf_run *run, const int32_t *tokens, const int32_t *targets, float lr,
                struct rf_step_stats *stats)
{
    if (!run || !tokens || !targets)
        return rf_fail(RF_EINVAL, "step: a run, tokens and targets are needed");
    const struct rf_plan *plan = run->plan;
    const int64_t rows = plan->rows;
    if (plan->policy.forward_only)
        return rf_fail(RF_EINVAL, "step: this run was planned with forward_only; it cannot train");
    RETURN_IF_ERROR(rf_run_check_whole(run, "step"));
    int rc = rf_run_check_batch(run, tokens, targets, rows * plan->policy.micro_batches);
    if (rc < 0)
        return rf_run_refuse(run, rc, RF_LIST_STEP);
    RETURN_IF_ERROR(rf_run_reserve_shares(run, plan->policy.micro_batches));

    const uint64_t start = rf_now_ns();
    const uint64_t sent = rf_run_sent(run);
    struct rf_pass pass = {
        .run = run, .list = RF_LIST_STEP, .tokens = tokens, .targets = targets, .lr = lr};
    run->record_ns = 0;
    run->recorded = run->replayed = 0;
    rc = rf_run_execute(&pass);
    if (rc < 0) {
        rc = rf_run_give_up(run, rc);
        if (began_update(&pass)) {
            rf_run_spoil(run, "step");
            run->ahead = pass.updated && plan->shards == 1 && !plan->policy.update_on_rank_0;
        }
        return rc;
    }
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
