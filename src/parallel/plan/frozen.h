/* SPDX-License-Identifier: MIT
 *
 * The blocks with a backward pass if parameters are frozen, and those that it inverts. Used by
 * passes that write calls of blocks, and by train/block.c.
 */
#ifndef RF_PARALLEL_FROZEN_H
#define RF_PARALLEL_FROZEN_H

#include "plan.h"

/* Whether a block has a trained parameter; otherwise its backward_weight is not needed. */
static inline bool rf_plan_block_trains(const struct rf_plan *plan, int block)
{
    for (int k = 0; k < plan->blocks[block].param_count; k++)
        if (rf_plan_trains(plan, plan->first_param[block] + k))
            return true;
    return false;
}

/* Whether gradients pass through a block. */
static inline bool rf_plan_has_backward(const struct rf_plan *plan, int block)
{
    return block >= plan->first_back;
}

/* Whether the backward pass computes the block's input and what it keeps from its output. */
static inline bool rf_plan_inverts(const struct rf_plan *plan, int block)
{
    return plan->policy.invert && !plan->policy.forward_only && plan->blocks[block].ops->invert &&
           rf_plan_has_backward(plan, block);
}

/* Whether the gradient of a block's input is not read. */
static inline bool rf_plan_ends_backward(const struct rf_plan *plan, int block)
{
    return block <= plan->first_back;
}

#endif
