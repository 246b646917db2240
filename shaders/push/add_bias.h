/* SPDX-License-Identifier: MIT
 *
 * add_bias.comp.
 */
#include "push.h"

PUSH_BEGIN(add_bias)
    word64 out_, a, bias, residual;
    uint items, row_items;
    TEXELS_3(a, bias, residual)
PUSH_END(add_bias)
