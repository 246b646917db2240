/* SPDX-License-Identifier: MIT
 *
 * layernorm_backward_input.comp.
 */
#include "push.h"

PUSH_BEGIN(layernorm_backward_input)
    word64 dx, dout, x, mean, rstd, gamma;
    uint rows, channels;
    TEXELS_4(dout, x, gamma, dx)
PUSH_END(layernorm_backward_input)
