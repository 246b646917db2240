#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = f(x[i]), or with BACKWARD out[i] = dout[i] f'(x[i]). Each invocation does UNROLL items.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"

/* The same as in src/ops/elementwise.c. */
#if WIDE
#define UNROLL 16
#else
#define UNROLL 4
#endif

#include "push/activation.h"
WRITTEN(0, out)
VIEW(0, x)
#if BACKWARD
VIEW(1, dout)
#endif

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    ITEM result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
        ITEM x = load_item(FROM(x), item);
#if BACKWARD
        result[k] = load_item(FROM(dout), item) * slope(x);
#else
        result[k] = activation(x);
#endif
    }
#if WIDE
    uint from = UNIFORM_GROUP(gl_WorkGroupID.x) * UNROLL * gl_WorkGroupSize.x;
    [[unroll]] for (uint k = 0; k < UNROLL; k++)
        PUT(out, from + k * gl_WorkGroupSize.x, 1, result[k])
#else
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item < pc.items)
            store_item(pc.out_, item, result[k]);
    }
#endif
}
