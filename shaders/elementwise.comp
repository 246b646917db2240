#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = f(a[i], b[i]). OP chooses f at build time. Each lane does UNROLL items. LOAD and STORE are
 * for casts, where one side has not the build's type.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#if OP == OP_MAXIMUM
#include "most.glsl"
#endif

/* As in src/ops/elementwise.c. */
#if WIDE
#define UNROLL 16
#else
#define UNROLL 4
#endif
#ifndef LOAD
#define LOAD load_item
#endif
#ifndef STORE
#define STORE store_item
#define PACKS (TYPE != TYPE_F32)
#else
#define PACKS 0
#endif

#include "push/elementwise.h"
#if WIDE && PACKS
WRITTEN_PAIRS(0, out)
#else
WRITTEN(0, out)
#endif
VIEW(0, a)
VIEW(1, b)

ITEM apply(ITEM a, ITEM b)
{
#if OP == OP_MAXIMUM && VEC
    return most(a, b);
#elif OP == OP_MAXIMUM
    return most(vec4(a), vec4(b)).x;
#elif OP == OP_ADD
    return a + b;
#elif OP == OP_MUL
    return a * b;
#elif OP == OP_SCALE
    return a * pc.factor;
#elif OP == OP_CAST || OP == OP_FILL
    return a;
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
#elif OP == OP_ADD || OP == OP_MUL || OP == OP_MAXIMUM
        result[k] = apply(LOAD(FROM(a), item), load_item(FROM(b), item));
#else
        ITEM a = LOAD(FROM(a), item);
        result[k] = apply(a, a);
#endif
    }
#if WIDE
    uint from = UNIFORM_GROUP(gl_WorkGroupID.x) * UNROLL * gl_WorkGroupSize.x;
    [[unroll]] for (uint k = 0; k < UNROLL; k++)
#if PACKS
        PUT_PAIRS(out, from + k * gl_WorkGroupSize.x, 1,
                  uvec2(pack2(result[k].xy), pack2(result[k].zw)))
#else
        PUT(out, from + k * gl_WorkGroupSize.x, 1, result[k])
#endif
#else
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item < pc.items)
            STORE(pc.out_, item, result[k]);
    }
#endif
}
