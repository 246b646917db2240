/* SPDX-License-Identifier: MIT
 *
 * glu.comp.
 */
#include "push.h"

PUSH_BEGIN(glu)
    word64 out_, dup, dout, gate, up; /* out_: dgate with BACKWARD */
    uint items, row_items;
    uint gate_stride, up_stride, dgate_stride, dup_stride;
    TEXELS_3(gate, up, dout)
PUSH_END(glu)
