/* SPDX-License-Identifier: MIT
 *
 * layernorm_backward_weight.comp.
 */
#include "push.h"

PUSH_BEGIN(layernorm_backward_weight)
    word64 partial, dout, x, mean, rstd;
    uint rows, row_items, blocks;
    TEXELS_4(dout, x, mean, rstd)
PUSH_END(layernorm_backward_weight)
