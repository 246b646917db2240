/* SPDX-License-Identifier: MIT
 *
 * Pass: pipelines. Which rank has which blocks, and in which order it calls them.
 */
#include "stages.h"

#include "../base/base.h"
#include "passes.h"

static struct rf_pipeline pipeline_of(const struct rf_plan *plan, int micro_batches)
{
    return (struct rf_pipeline){.kind = plan->policy.pipeline,
                                .ranks = plan->mesh.pp,
                                .micro_batches = micro_batches > 0 ? micro_batches : 1,
                                .chunks = plan->policy.chunks};
}

int rf_pass_stages(struct rf_plan *plan)
{
    const size_t blocks = (size_t)plan->block_count;
    struct rf_pipeline p = pipeline_of(plan, 1);
    if (plan->mesh.pp == 1)
        p = (struct rf_pipeline){.kind = RF_PIPELINE_1F1B, .ranks = 1, .micro_batches = 1};
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    const int stages = rf_pipeline_stages(&p);
    int *first = rf_alloc(((size_t)stages + 1) * sizeof(*first));
    plan->stage_of = rf_alloc((blocks + 1) * sizeof(*plan->stage_of));
    plan->home_of = rf_alloc((blocks + 1) * sizeof(*plan->home_of));
    int rc = first && plan->stage_of && plan->home_of
                 ? rf_pipeline_split(&p, NULL, plan->block_count, first)
                 : rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int stage = 0; rc == 0 && stage < stages; stage++)
        for (int b = first[stage]; b < first[stage + 1]; b++) {
            plan->stage_of[b] = stage;
            plan->home_of[b] = rf_pipeline_rank_of(&p, stage);
        }
    rf_free(first);
    return rc;
}

int rf_plan_stage(const struct rf_plan *plan, int chunk)
{
    struct rf_pipeline p = pipeline_of(plan, 1);
    return plan->mesh.pp == 1 || rf_pipeline_check(&p) < 0
               ? 0
               : rf_pipeline_stage(&p, plan->pp_rank, chunk);
}

bool rf_plan_goes_back(const struct rf_plan *plan, int block)
{
    return plan->policy.pipeline == RF_PIPELINE_ZBV && plan->stage_of[block] >= plan->mesh.pp;
}

/* One rank: each micro-batch forward and back before the next, which keeps the least. */
static struct rf_pipeline order_of(const struct rf_plan *plan, int micro_batches, bool training)
{
    struct rf_pipeline p = pipeline_of(plan, micro_batches);
    if (plan->mesh.pp == 1)
        p.kind = RF_PIPELINE_NAIVE;
    else if (!training && p.kind != RF_PIPELINE_INTERLEAVED && p.kind != RF_PIPELINE_ZBV)
        p.kind = RF_PIPELINE_GPIPE;
    return p;
}

int rf_plan_calls(const struct rf_plan *plan, int micro_batches, bool training,
                  struct rf_pipeline_call **out, int *count)
{
    struct rf_pipeline p = order_of(plan, micro_batches, training);
    *count = 0;
    *out = NULL;
    if (micro_batches == 0)
        return 0;
    RETURN_IF_ERROR(rf_pipeline_check(&p));
    const int all = rf_pipeline_call_count(&p);
    struct rf_pipeline_call *calls = rf_alloc((size_t)all * sizeof(*calls));
    if (!calls)
        return rf_fail(RF_ENOMEM, "plan: out of memory for %d micro-batches", micro_batches);
    rf_pipeline_order(&p, plan->pp_rank, calls);
    for (int k = 0; k < all; k++)
        if (training || calls[k].verb == RF_VERB_FORWARD)
            calls[(*count)++] = calls[k];
    *out = calls;
    return 0;
}

/* Calls of all ranks, one after the other; NULL: out of memory. */
static struct rf_pipeline_call **all_calls(const struct rf_pipeline *p)
{
    const size_t count = (size_t)rf_pipeline_call_count(p), ranks = (size_t)p->ranks;
    struct rf_pipeline_call *calls = rf_alloc(ranks * count * sizeof(*calls));
    struct rf_pipeline_call **of_ranks = rf_alloc(ranks * sizeof(struct rf_pipeline_call *));
    for (size_t r = 0; calls && of_ranks && r < ranks; r++) {
        of_ranks[r] = calls + r * count;
        rf_pipeline_order(p, (int)r, of_ranks[r]);
    }
    if (calls && of_ranks)
        return of_ranks;
    rf_free(calls);
    rf_free(of_ranks);
    return NULL;
}

double rf_plan_bubble(const struct rf_plan *plan)
{
    struct rf_pipeline p = order_of(plan, plan->local_micro_batches, true);
    const struct rf_pipeline_run_opts opts = {
        .forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1};
    double makespan_s = 0;
    if (plan->mesh.pp == 1 || plan->policy.forward_only || rf_pipeline_check(&p) < 0)
        return 0;
    struct rf_pipeline_call **calls = all_calls(&p);
    if (!calls)
        return 0;
    int rc = rf_pipeline_run(&p, (const struct rf_pipeline_call *const *)calls, &opts, NULL,
                             &makespan_s);
    const double busy_s = rf_pipeline_call_count(&p);
    rf_free(calls[0]);
    rf_free(calls);
    return rc < 0 ? 0 : 1 - busy_s / makespan_s;
}
