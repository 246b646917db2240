/* SPDX-License-Identifier: MIT
 *
 * Builds a plan by calling the passes in order. Called by users and by train/run.c. It does not run
 * plans.
 */
#include "../../base/base.h"
#include "passes.h"
#include "stages.h"

/* ---- plans built for passes ------------------------------------------------------------------ */

/* The bytes with a changed policy. */
static bool needs(const struct rf_plan *plan, const struct rf_policy *policy, struct rf_bytes *out)
{
    struct rf_plan *other = NULL;
    if (rf_plan_build((struct rf_blocks){plan->blocks, plan->block_count}, &plan->mesh, policy,
                      plan->rank, &other) < 0)
        return false;
    *out = other->bytes;
    rf_plan_destroy(other);
    return true;
}

int rf_pass_fit(struct rf_plan *plan)
{
    return rf_plan_fit(plan, needs);
}

/* The arithmetic of a micro-batch in each block, forward and backward. The costs of blocks do not
 * depend on the mesh, so they are counted on a plan of one rank and one micro-batch. */
static int count_costs(const struct rf_plan *plan, double *costs)
{
    const int blocks = plan->block_count;
    const bool again = plan->policy.recompute != 0;
    struct rf_policy policy = plan->policy;
    struct rf_plan *one = NULL;
    policy.stages = RF_STAGES_EVEN;
    policy.pipeline = RF_PIPELINE_1F1B;
    policy.batch /= policy.micro_batches;
    policy.micro_batches = 1;
    policy.zero = policy.offload = policy.disk = policy.recompute = 0;
    policy.device_bytes = 0;
    policy.keep_gathered = policy.no_prefetch = false;
    RETURN_IF_ERROR(
        rf_plan_build((struct rf_blocks){plan->blocks, blocks}, NULL, &policy, 0, &one));
    struct rf_block_cost *all = rf_alloc((size_t)blocks * sizeof(*all));
    int rc = all ? rf_block_costs(one, all)
                 : rf_fail(RF_ENOMEM, "plan: out of memory for the costs of %d blocks", blocks);
    for (int b = 0; rc == 0 && b < blocks; b++)
        costs[b] = (double)all[b].forward.flops * (again ? 2 : 1) +
                   (double)all[b].backward_input[0].flops + (double)all[b].backward_weight[0].flops;
    rf_free(all);
    rf_plan_destroy(one);
    return rc;
}

/* Costs for stages of equal cost; no effect if no block declares any. */
int rf_pass_stage_costs(struct rf_plan *plan)
{
    double sum = 0;
    if (plan->policy.stages != RF_STAGES_COST || plan->policy.stage_blocks || plan->mesh.pp == 1)
        return 0;
    RETURN_IF_ERROR(rf_plan_check_stages(plan)); /* before building a plan to count */
    double *costs = rf_alloc((size_t)plan->block_count * sizeof(*costs));
    int rc = costs ? count_costs(plan, costs)
                   : rf_fail(RF_ENOMEM, "plan: out of memory for %d blocks", plan->block_count);
    for (int b = 0; rc == 0 && b < plan->block_count; b++)
        sum += costs[b];
    if (rc == 0 && sum > 0)
        plan->stage_costs = costs;
    else
        rf_free(costs);
    return rc;
}

/* ---- building -------------------------------------------------------------------------------- */

int rf_plan_build_until(struct rf_blocks blocks, const struct rf_mesh *mesh,
                        const struct rf_policy *policy, int rank, rf_plan_pass *last,
                        struct rf_plan **out)
{
#define PASS_ROW(name) rf_pass_##name,
    static rf_plan_pass *const passes[] = {RF_PASSES(PASS_ROW)};
#undef PASS_ROW

    if (!blocks.list || blocks.count < 1 || !policy || !out)
        return rf_fail(RF_EINVAL, "plan: blocks, a policy and a place for the result are needed");
    struct rf_plan *plan = rf_alloc(sizeof(*plan));
    if (!plan)
        return rf_fail(RF_ENOMEM, "plan: out of memory");
    plan->blocks = blocks.list;
    plan->block_count = blocks.count;
    plan->mesh = mesh ? *mesh : (struct rf_mesh){0};
    plan->policy = *policy;
    plan->rank = rank;
    bool done = false;
    for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]) && !done; i++) {
        int rc = passes[i](plan);
        done = passes[i] == last;
        if (rc < 0) {
            rf_plan_destroy(plan);
            return rc;
        }
    }
    *out = plan;
    return 0;
}

int rf_plan_build(struct rf_blocks blocks, const struct rf_mesh *mesh,
                  const struct rf_policy *policy, int rank, struct rf_plan **out)
{
    return rf_plan_build_until(blocks, mesh, policy, rank, NULL, out);
}

void rf_plan_destroy(struct rf_plan *plan)
{
    if (!plan)
        return;
    rf_free(plan->first_micro_batch);
    rf_free(plan->stage_costs);
    rf_free(plan->stage_of);
    rf_free(plan->home_of);
    rf_free(plan->stage_blocks);
    rf_free(plan->params);
    rf_free(plan->cleared);
    rf_free(plan->first_param);
    for (int k = 0; plan->pieces && k < plan->piece_count; k++) {
        rf_free(plan->pieces[k].borders);
        rf_free(plan->pieces[k].counts);
    }
    rf_free(plan->pieces);
    rf_free(plan->sizes);
    rf_free(plan->part_sizes);
    rf_free(plan->regions);
    rf_values_free(plan);
    rf_free(plan->operands);
    rf_free(plan->roles);
    rf_free(plan->waits);
    rf_free(plan->transfers);
    for (int id = 0; id < RF_LIST_COUNT; id++)
        rf_free(plan->lists[id].instructions);
    rf_free(plan);
}
