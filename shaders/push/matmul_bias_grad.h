/* SPDX-License-Identifier: MIT
 *
 * matmul_bias_grad.comp.
 */
#include "push.h"

PUSH_BEGIN(matmul_bias_grad)
    word64 x, out_;
    uint rows, columns, accumulate;
    uint strips, groups_x; /* strips: workgroups beside each other */
    TEXELS_1(x)
PUSH_END(matmul_bias_grad)
