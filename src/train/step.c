/* SPDX-License-Identifier: MIT
 *
 * One optimizer step: loads the inputs, runs the list of the plan, returns the statistics.
 */
#include <math.h>
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "run.h"

/* Whether an instruction that has begun writes state of the next step. An update writes shards;
 * whole parameters are written only if only rank 0 updates. */
static bool began_update(const struct rf_execution *p)
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

void rf_run_mark_inconsistent(struct rf_run *run, const char *call)
{
    const struct rf_error why = *rf_last_error();
    run->inconsistent = why;
    snprintf(run->inconsistent.message, sizeof(run->inconsistent.message),
             "a %s has failed halfway: %.600s", call, why.message);
}

int rf_run_check_whole(const struct rf_run *run, const char *call)
{
    const struct rf_error *why = &run->inconsistent;
    if (why->status == 0)
        return 0;
    return rf_fail_rank(
        RF_EABORT, why->rank,
        "%s: parameters may be of two steps; open another run and load a checkpoint, as %.640s",
        call, why->message);
}

int rf_run_check_idle(const struct rf_run *run, const char *call)
{
    RETURN_IF_ERROR(rf_run_check_whole(run, call));
    return run->under_way
               ? rf_fail(RF_EINVAL,
                         "%s: a step is in progress (pipeline 2bw); call rf_run_drain first", call)
               : 0;
}

/* Called after an error. A step of 2bw that is in progress is lost, with the results of its
 * micro-batches. */
static int give_up(struct rf_execution *p, int rc)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    rc = rf_run_give_up(run, rc);
    run->step -= run->under_way;
    run->under_way = false;
    if (began_update(p)) {
        rf_run_mark_inconsistent(run, "step");
        run->ahead = p->updated && plan->shards == 1 && !plan->policy.update_on_rank_0;
    }
    return rc;
}

/* With RF_CHECK_REPLAY, gradients that blocks must overwrite are NaN beforehand. An overflow is
 * expected only with a loss scale. */
static int check_norm(const struct rf_execution *p)
{
    const struct rf_run *run = p->run;
    if (rf_plan_in_backward(run->plan) && !isfinite(p->stats.grad_norm))
        return rf_fail(RF_EINVAL,
                       "step: a gradient is infinite or NaN, and parameters are updated already "
                       "(update_in_backward); load a checkpoint, and use a smaller learning rate, "
                       "or leave update_in_backward out, so that such steps are skipped");
    if (!run->check_replay || run->plan->policy.loss_scale != 0 || !run->plan->trains ||
        isfinite(p->stats.grad_norm))
        return 0;
    return rf_fail(RF_EINVAL,
                   "RF_CHECK_REPLAY: the norm of the gradients is not finite: a block does not "
                   "write a gradient that it declares RF_PARAM_OVERWRITE_GRAD, or gradients "
                   "overflow; they overflow if the norm is not finite without RF_CHECK_REPLAY");
}

/* Runs a list of training, and sets the step to which its results belong. */
static int run_list(struct rf_execution *p, struct rf_step_stats *stats)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const bool ends = p->list != RF_LIST_FILL;
    rf_run_clear_loss_sums(run, plan->policy.micro_batches);
    const uint64_t start = rf_now_ns();
    const uint64_t sent = rf_run_sent(run);
    const struct rf_disk_use disk = rf_disk_used(run->disk);
    run->record_ns = 0;
    run->recorded = run->replayed = 0;
    int rc = rf_run_execute(p);
    if (rc == 0 && ends)
        rc = check_norm(p);
    if (rc < 0)
        return give_up(p, rc);
    run->planned_sent += run->list_sent[p->list];
    run->planned_disk += run->list_disk[p->list];
    p->stats.of_step = ends ? run->step - run->under_way : -1;
    p->stats.version_lag = rf_plan_lags(plan);
    p->stats.sent_bytes = rf_run_sent(run) - sent;
    p->stats.disk_ns = rf_disk_used(run->disk).busy_ns - disk.busy_ns;
    p->stats.step_ns = rf_now_ns() - start;
    p->stats.record_ns = run->record_ns;
    p->stats.recorded = run->recorded;
    p->stats.replayed = run->replayed;
    if (stats)
        *stats = p->stats;
    return 0;
}

int rf_run_step(struct rf_run *run, const int32_t *tokens, const int32_t *targets, float lr,
                struct rf_step_stats *stats)
{
    if (!run || !tokens || !targets)
        return rf_fail(RF_EINVAL, "step: a run, tokens and targets are needed");
    const struct rf_plan *plan = run->plan;
    if (plan->policy.forward_only)
        return rf_fail(RF_EINVAL, "step: this run was planned with forward_only; it cannot train");
    RETURN_IF_ERROR(rf_run_check_whole(run, "step"));
    const bool fills = rf_plan_lags(plan) && !run->under_way;
    const enum rf_list_id list = fills ? RF_LIST_FILL : RF_LIST_STEP;
    int rc = rf_run_check_batch(run, tokens, targets,
                                rf_plan_whole_rows(plan) * plan->policy.micro_batches);
    if (rc < 0)
        return rf_run_refuse(run, rc, list);
    struct rf_execution execution = {
        .run = run, .list = list, .tokens = tokens, .targets = targets, .lr = lr};
    RETURN_IF_ERROR(run_list(&execution, stats));
    run->step++;
    run->under_way = rf_plan_lags(plan);
    run->lr = lr;
    return 0;
}

int rf_run_drain(struct rf_run *run, struct rf_step_stats *stats)
{
    if (!run)
        return rf_fail(RF_EINVAL, "drain: a run is needed");
    RETURN_IF_ERROR(rf_run_check_whole(run, "drain"));
    if (!run->under_way) {
        if (stats)
            *stats = (struct rf_step_stats){.of_step = -1, .version_lag = rf_plan_lags(run->plan)};
        return 0;
    }
    struct rf_execution execution = {.run = run, .list = RF_LIST_DRAIN};
    RETURN_IF_ERROR(run_list(&execution, stats));
    run->under_way = false;
    return 0;
}
