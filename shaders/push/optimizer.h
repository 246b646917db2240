/* SPDX-License-Identifier: MIT
 *
 * optimizer.comp.
 */
#include "push.h"

PUSH_BEGIN(optimizer)
    word64 param, grad, m, v, copy, decay, scalars, places;
    uint items;
    uint first_block; /* of 64 elements, in the whole buffer; with places: words of that table */
    float beta1, beta2, eps, weight_decay, momentum, dampening;
    TEXELS_4(param, grad, m, v)
    DIGITS_OR_2(a, u) /* states beyond m and v */
PUSH_END(optimizer)
