/* SPDX-License-Identifier: MIT
 *
 * The scalars of one update; see scalars.h.
 */
#include "scalars.h"

#include <math.h>

void rf_step_scalars_fill(const struct rf_optimizer_opts *opts, float lr, int64_t tokens,
                          float clip, int64_t update, struct rf_step_scalars *out)
{
    *out = (struct rf_step_scalars){
        .lr = lr,
        .inv_tokens = (float)(1.0 / (double)(tokens > 0 ? tokens : 1)),
        .clip = clip,
        .step = (float)update,
        .bias1 = (float)(1.0 - pow(opts->beta1, (double)update)),
        .bias2 = (float)(1.0 - pow(opts->beta2, (double)update)),
    };
}
