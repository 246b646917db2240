/* SPDX-License-Identifier: MIT
 *
 * copy_heads.comp.
 */
#include "push.h"

PUSH_BEGIN(copy_heads)
    word64 out_, x;
    STRIDES(out)
    STRIDES(x)
    uint rows, heads, size, items; /* items: heads of all rows, times those of a head */
PUSH_END(copy_heads)
