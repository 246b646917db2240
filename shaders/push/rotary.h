/* SPDX-License-Identifier: MIT
 *
 * rotary.comp.
 */
#include "push.h"

PUSH_BEGIN(rotary)
    word64 out_, x;
    uvec2 turn;     /* 1 / (2 pi), as 64 bits behind the point: high, low word */
    uvec2 power[7]; /* theta^(-2/D), squared, squared again, ... */
    STRIDES(out)
    STRIDES(x)
    uint rows, heads, size, position, items; /* items: rows of all batches, times those of a row */
PUSH_END(rotary)
