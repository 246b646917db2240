#version 450
/* SPDX-License-Identifier: MIT
 *
 * out = a + bias + residual, with bias added to every row. Each invocation does UNROLL items. LOAD
 * and STORE are set if a, residual and out are f32 while bias has the build's type.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define UNROLL 4 /* the same as in src/ops/add_bias.c */
#ifndef LOAD
#define LOAD load_item
#define STORE store_item
#endif

#include "push/add_bias.h"
VIEW(0, a)
VIEW(1, bias)
VIEW(2, residual)

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    ITEM result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
        ITEM sum = LOAD(FROM(a), item) + load_item(FROM(bias), item % pc.row_items);
        result[k] = sum + LOAD(FROM(residual), item);
    }
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item < pc.items)
            STORE(pc.out_, item, result[k]);
    }
}
