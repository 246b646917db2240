/* SPDX-License-Identifier: MIT
 *
 * The host's part of a step's block of scalars. Called by train/verbs.c.
 */
#ifndef RF_OPTIM_SCALARS_H
#define RF_OPTIM_SCALARS_H

#include <ringforge/ops.h>

struct rf_step_values {
    float lr, clip;
    int64_t tokens; /* of the global batch; at least one is assumed */
    int64_t update; /* from 1 */
    uint64_t seed;
};
/* Members that the device keeps in the block are unchanged. */
void rf_step_scalars_set(struct rf_step_scalars *block, const struct rf_step_values *values);
/* Sets only the key of stochastic rounding. */
void rf_step_scalars_seed(struct rf_step_scalars *block, uint64_t seed);

#endif
