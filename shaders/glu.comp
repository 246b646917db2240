#version 450
/* SPDX-License-Identifier: MIT
 *
 * Gated linear units: out = f(gate) up, and with BACKWARD dgate = dout up f'(gate), dup = dout
 * f(gate). Each invocation does UNROLL items. Rows of gate and up may be `stride` items apart, like
 * the halves of one tensor.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"

#define UNROLL 4

#include "push/glu.h"
VIEW(0, gate)
VIEW(1, up)
#if BACKWARD
VIEW(2, dout)
#endif

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint row_items = pc.row_items;
    ITEM result[UNROLL], second[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
        uint row = item / row_items, column = item - row * row_items;
        ITEM gate = load_item(FROM(gate), row * pc.gate_stride + column);
        ITEM up = load_item(FROM(up), row * pc.up_stride + column);
#if BACKWARD
        ITEM dout = load_item(FROM(dout), item);
        result[k] = dout * up * slope(gate);
        second[k] = dout * activation(gate);
#else
        result[k] = activation(gate) * up;
#endif
    }
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        uint row = item / row_items, column = item - row * row_items;
        if (item < pc.items) {
#if BACKWARD
            store_item(pc.out_, row * pc.dgate_stride + column, result[k]);
            store_item(pc.dup, row * pc.dup_stride + column, second[k]);
#else
            store_item(pc.out_, item, result[k]);
#endif
        }
    }
}
