#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = f(a[i], b[i]). OP selects f of elementwise_ops.h when a pipeline is created. Each
 * invocation does UNROLL items. LOAD and STORE are for casts, where one side does not have the
 * build's type. FILL: builds that only write pc.factor.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "most.glsl"

#ifndef FILL
#define FILL 0
#endif
layout(constant_id = 1) const uint OP = 0;

/* The same as in src/ops/elementwise.c. */
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

#define SINGLE(number, name, result)
#define PAIR(number, name, result) || OP == number
const bool HAS_B = false
#include "elementwise_ops.h"
    ;
#undef PAIR
#undef SINGLE

#define FUNCTIONS
#include "elementwise_ops.h"

#define PAIR(number, name, result)                                                                 \
    if (OP == number)                                                                              \
        return result;
#define SINGLE PAIR
ITEM apply(ITEM a, ITEM b)
{
#include "elementwise_ops.h"
    return a;
}

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    ITEM result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
#if FILL
        result[k] = ITEM(pc.factor);
#else
        ITEM a = LOAD(FROM(a), item), b = a;
        if (HAS_B)
            b = load_item(FROM(b), item);
        result[k] = apply(a, b);
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
