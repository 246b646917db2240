/* SPDX-License-Identifier: MIT
 *
 * All passes of attention. PUSH_FIRST, PUSH_SECOND: the pass's names of the last two operands.
 */
#include "push.h"

PUSH_BEGIN(attention)
    OPERANDS_8(at, q, k, v, dout, lse, delta, PUSH_FIRST, PUSH_SECOND)
    STRIDES(q)
    STRIDES(k)
    STRIDES(v)
    STRIDES(out)
    uint queries, keys, group;
    float scale;
PUSH_END(attention)
