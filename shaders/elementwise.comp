#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = f(a[i], b[i]). OP chooses f at build time. Each lane does UNROLL items. LOAD and STORE are
 * for casts, where one side has not the build's type.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#define UNROLL 4
#ifndef LOAD
#define LOAD load_item
#endif
#ifndef STORE
#define STORE store_item
#endif

layout(push_constant) uniform Push {
    uvec2 out_, a, b;
    uint items;
    float factor;
    uint a_first, b_first;
} pc;
VIEW(0, a)
VIEW(1, b)

#if OP == OP_GELU || OP == OP_GELU_BACKWARD
/* gelu(x) = x s(2u) with the logistic s and u = sqrt(2/pi) (x + 0.044715 x^3), since
 * (1 + tanh u) / 2 = s(2u): this keeps its relative accuracy far left of zero. */
const float ROOT = 0.7978845608028654, CUBE = 0.044715;
ITEM gate(ITEM x)
{
    ITEM u2 = 2.0 * ROOT * (x + CUBE * x * x * x);
    return 1.0 / (1.0 + exp(min(-u2, ITEM(80.0))));
}
#endif

ITEM apply(ITEM a, ITEM b)
{
#if OP == OP_ADD
    return a + b;
#elif OP == OP_SCALE
    return a * pc.factor;
#elif OP == OP_CAST || OP == OP_FILL
    return a;
#elif OP == OP_GELU
    return a * gate(a);
#elif OP == OP_GELU_BACKWARD
    ITEM s = gate(a);
    return b * (s + a * s * (1.0 - s) * (2.0 * ROOT) * (1.0 + 3.0 * CUBE * a * a));
#endif
}

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    ITEM result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
#if OP == OP_FILL
        result[k] = ITEM(pc.factor);
#elif OP == OP_ADD || OP == OP_GELU_BACKWARD
        result[k] = apply(LOAD(FROM(a), item), load_item(FROM(b), item));
#else
        ITEM a = LOAD(FROM(a), item);
        result[k] = apply(a, a);
#endif
    }
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item < pc.items)
            STORE(pc.out_, item, result[k]);
    }
}
