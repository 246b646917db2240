/* SPDX-License-Identifier: MIT
 *
 * reduce.comp.
 */
#include "push.h"

PUSH_BEGIN(reduce)
    word64 out_, x, table;
    uint chunks, count;
    TEXELS_1(x)
PUSH_END(reduce)
