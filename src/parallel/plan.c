/* SPDX-License-Identifier: MIT
 *
 * Builds a plan by running the passes in order, and answers questions about a finished one. Called
 * by users and by train/run.c. Nothing here runs a plan.
 */
#include "../base/base.h"
#include "passes.h"

int rf_plan_build(const struct rf_block *blocks, int block_count, const struct rf_mesh *mesh,
                  const struct rf_policy *policy, int rank, struct rf_plan **out)
{
    static int (*const passes[])(struct rf_plan *) = {
        rf_pass_policy,    rf_pass_stages, rf_pass_shares,    rf_pass_layout,    rf_pass_pieces,
        rf_pass_sizes,     rf_pass_expand, rf_pass_recompute, rf_pass_gradients, rf_pass_rounds,
        rf_pass_update,    rf_pass_gather, rf_pass_bytes,     rf_pass_spill,     rf_pass_place,
        rf_pass_lifetimes, rf_pass_edges,  rf_pass_sums,      rf_pass_fit,
    };

    if (!blocks || block_count < 1 || !policy || !out)
        return rf_fail(RF_EINVAL, "plan: blocks, a policy and a place for the result are needed");
    struct rf_plan *plan = rf_alloc(sizeof(*plan));
    if (!plan)
        return rf_fail(RF_ENOMEM, "plan: out of memory");
    plan->blocks = blocks;
    plan->block_count = block_count;
    plan->mesh = mesh ? *mesh : (struct rf_mesh){0};
    plan->policy = *policy;
    plan->rank = rank;
    for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
        int rc = passes[i](plan);
        if (rc < 0) {
            rf_plan_destroy(plan);
            return rc;
        }
    }
    *out = plan;
    return 0;
}

void rf_plan_destroy(struct rf_plan *plan)
{
    if (!plan)
        return;
    rf_free(plan->first_micro_batch);
    rf_free(plan->stage_of);
    rf_free(plan->home_of);
    rf_free(plan->stage_blocks);
    rf_free(plan->params);
    rf_free(plan->cleared);
    rf_free(plan->first_param);
    for (int k = 0; plan->pieces && k < plan->piece_count; k++) {
        rf_free(plan->pieces[k].cuts);
        rf_free(plan->pieces[k].counts);
    }
    rf_free(plan->pieces);
    rf_free(plan->sizes);
    rf_free(plan->regions);
    rf_values_free(plan);
    rf_free(plan->operands);
    rf_free(plan->waits);
    rf_free(plan->transfers);
    for (int id = 0; id < RF_LIST_COUNT; id++)
        rf_free(plan->lists[id].instructions);
    rf_free(plan);
}

const struct rf_instruction *rf_plan_instructions(const struct rf_plan *plan, int *count)
{
    *count = plan->lists[RF_LIST_STEP].count;
    return plan->lists[RF_LIST_STEP].instructions;
}

const struct rf_value *rf_plan_values(const struct rf_plan *plan, int *count)
{
    *count = plan->value_count;
    return plan->values;
}

const int *rf_plan_operands(const struct rf_plan *plan, const struct rf_instruction *instruction)
{
    return plan->operands + instruction->first_operand;
}

const struct rf_wait *rf_plan_waits(const struct rf_plan *plan,
                                    const struct rf_instruction *instruction)
{
    return plan->waits + instruction->first_wait;
}

const struct rf_transfer *rf_plan_transfer(const struct rf_plan *plan,
                                           const struct rf_instruction *instruction)
{
    return instruction->transfer < 0 ? NULL : &plan->transfers[instruction->transfer];
}

void rf_plan_bytes(const struct rf_plan *plan, struct rf_bytes *out)
{
    *out = plan->bytes;
}

bool rf_plan_params_sharded(const struct rf_plan *plan)
{
    return rf_plan_shards_params(plan) || plan->mesh.pp > 1 || plan->mesh.tp > 1;
}

const int *rf_plan_stage_blocks(const struct rf_plan *plan, int *count)
{
    *count = plan->stage_count;
    return plan->stage_blocks;
}

int rf_plan_recompute(const struct rf_plan *plan)
{
    return plan->policy.recompute;
}

int64_t rf_plan_param_count(const struct rf_plan *plan)
{
    return plan->logical_elements;
}
