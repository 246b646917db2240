/* SPDX-License-Identifier: MIT
 *
 * step_begin.comp.
 */
#include "push.h"

PUSH_BEGIN(step_begin)
    word64 scalars, sum_squares;
    float beta1, beta2;
    uint correct_bias;
PUSH_END(step_begin)
