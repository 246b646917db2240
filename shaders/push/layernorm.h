/* SPDX-License-Identifier: MIT
 *
 * layernorm.comp.
 */
#include "push.h"

PUSH_BEGIN(layernorm)
    word64 out_, mean, rstd, x, gamma, beta, residual, sum;
    uint rows, channels;
    float eps;
    TEXELS_4(x, gamma, beta, residual)
PUSH_END(layernorm)
