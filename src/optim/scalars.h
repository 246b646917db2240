/* SPDX-License-Identifier: MIT
 *
 * The scalars that optimizer kernels read: computed in double on the host, once per step. Called by
 * train/execute.c.
 */
#ifndef RF_OPTIM_SCALARS_H
#define RF_OPTIM_SCALARS_H

#include <ringforge/ops.h>

/* update: from 1. tokens: of the global batch; at least one is assumed. */
void rf_step_scalars_fill(const struct rf_optimizer_opts *opts, float lr, int64_t tokens,
                          float clip, int64_t update, struct rf_step_scalars *out);

#endif
