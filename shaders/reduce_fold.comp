#version 450
/* SPDX-License-Identifier: MIT
 *
 * One level of a pairwise sum: each lane joins 64 neighbours as a binary tree. Beyond the end there
 * are zeros, so any number of levels of this makes the pairwise tree over the index.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uvec2 out_, x;
    uint count, results;
} pc;

void main()
{
    uint index = flat_index();
    uint first = min(index, pc.results - 1) * 64, count = pc.count;
    precise float part[16];
    [[unroll]] for (uint k = 0; k < 16; k++) {
        uint e = first + 4 * k;
        part[k] = join4(load4_within(FROM(x), 0, e, count, 0.0));
    }
    [[unroll]] for (uint width = 8; width > 0; width /= 2) {
        [[unroll]] for (uint k = 0; k < width; k++)
            part[k] = part[2 * k] + part[2 * k + 1];
    }
    if (index < pc.results)
        Floats(pc.out_).at[index] = part[0];
}
