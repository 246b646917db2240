/* SPDX-License-Identifier: MIT
 *
 * Answers to questions about a finished plan. Apart from passes/build.c, which calls every pass, so
 * that the file of a pass may also have the checker of its instructions, which asks such questions.
 */
#include "plan.h"

#include <string.h>

const struct rf_instruction *rf_plan_instructions(const struct rf_plan *plan, int *count)
{
    *count = plan->lists[RF_LIST_STEP].count;
    return plan->lists[RF_LIST_STEP].instructions;
}

int rf_plan_rank(const struct rf_plan *plan)
{
    return plan->rank;
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

const uint8_t *rf_plan_roles(const struct rf_plan *plan, const struct rf_instruction *instruction)
{
    return plan->roles + instruction->first_operand;
}

static struct rf_operands with_role(const struct rf_plan *plan, int first, int count,
                                    enum rf_role role)
{
    const uint8_t *roles = plan->roles + first;
    const uint8_t *at = count > 0 ? memchr(roles, (int)role, (size_t)count) : NULL;
    if (!at)
        return (struct rf_operands){0};
    const int begin = (int)(at - roles);
    int end = begin + 1;
    while (end < count && roles[end] == role)
        end++;
    return (struct rf_operands){plan->operands + first + begin, end - begin};
}

struct rf_operands rf_plan_ins(const struct rf_plan *plan, const struct rf_instruction *i,
                               enum rf_role role)
{
    return with_role(plan, i->first_operand, i->ins, role);
}

struct rf_operands rf_plan_outs(const struct rf_plan *plan, const struct rf_instruction *i,
                                enum rf_role role)
{
    return with_role(plan, i->first_operand + i->ins, i->outs, role);
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
    return rf_plan_shards_params(plan) || plan->mesh.pp > 1 || rf_plan_tensor_ranks(plan) > 1;
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

int rf_plan_version_lag(const struct rf_plan *plan)
{
    return rf_plan_lags(plan) ? 1 : 0;
}

int64_t rf_plan_param_count(const struct rf_plan *plan)
{
    return plan->logical_elements;
}
