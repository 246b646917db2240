/* SPDX-License-Identifier: MIT
 *
 * The scalars of one update; see scalars.h.
 */
#include "scalars.h"

void rf_step_scalars_seed(struct rf_step_scalars *block, uint64_t seed)
{
    block->seed[0] = (uint32_t)seed;
    block->seed[1] = (uint32_t)(seed >> 32);
}

void rf_step_scalars_set(struct rf_step_scalars *block, const struct rf_step_values *values)
{
    block->lr = values->lr;
    block->inv_tokens = (float)(1.0 / (double)(values->tokens > 0 ? values->tokens : 1));
    block->clip = values->clip;
    block->step = (float)values->update;
    rf_step_scalars_seed(block, values->seed);
}
