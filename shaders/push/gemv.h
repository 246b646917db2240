/* SPDX-License-Identifier: MIT
 *
 * gemv.comp.
 */
#include "push.h"

PUSH_BEGIN(gemv)
    word64 out_, x, w, bias, residual;
    TEXELS_2(x, w)
    uint rows, columns, terms;     /* terms: of each sum */
    uint blocks, largest, offset_; /* of a quantised w, in words: see quantized.glsl */
PUSH_END(gemv)
