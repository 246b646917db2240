/* SPDX-License-Identifier: MIT
 *
 * elementwise.comp.
 */
#include "push.h"

PUSH_BEGIN(elementwise)
    word64 out_, a, b;
    uint items;
    float factor;
    TEXELS_2(a, b)
    DIGITS
PUSH_END(elementwise)
