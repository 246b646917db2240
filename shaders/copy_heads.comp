#version 450
/* SPDX-License-Identifier: MIT
 *
 * out (B,T,H,D) = x, or += x, each with its own strides. An item is four adjacent elements of a
 * head, or one with VEC=0.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint ACCUMULATE = 0;
const uint WIDTH = VEC != 0 ? 4 : 1;

#include "push/copy_heads.h"

void main()
{
    uint item = flat_index(), across = pc.size / WIDTH;
    if (item >= pc.items)
        return;
    uint head = item / across, line = head / pc.heads, batch = line / pc.rows, row = line % pc.rows;
    uint d = item % across * WIDTH;
    head %= pc.heads;
    uint from = batch * pc.x_batch + row * pc.x_row + head * pc.x_head + d;
    uint to = batch * pc.out_batch + row * pc.out_row + head * pc.out_head + d;
#if VEC
    vec4 v = load4(pc.x, from);
    if (ACCUMULATE != 0)
        v += load4(pc.out_, to);
    store4(pc.out_, to, v);
#else
    float v = load1(pc.x, from);
    if (ACCUMULATE != 0)
        v += load1(pc.out_, to);
    store1(pc.out_, to, v);
#endif
}
