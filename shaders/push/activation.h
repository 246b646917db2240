/* SPDX-License-Identifier: MIT
 *
 * activation.comp.
 */
#include "push.h"

PUSH_BEGIN(activation)
    word64 out_, x, dout;
    uint items;
    float unused;
    TEXELS_2(x, dout)
    DIGITS
PUSH_END(activation)
