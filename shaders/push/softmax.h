/* SPDX-License-Identifier: MIT
 *
 * softmax.comp.
 */
#include "push.h"

PUSH_BEGIN(softmax)
    word64 out_, x, dout; /* BACKWARD: dx, y, dout */
    uint rows, columns;
    TEXELS_2(x, dout)
PUSH_END(softmax)
