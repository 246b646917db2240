#version 450
/* SPDX-License-Identifier: MIT
 *
 * One level of a pairwise reduction: each invocation joins 64 adjacent values as a binary tree, by
 * sums or, with MOST, by the maximum. After the end there are neutral elements, so any number of
 * levels forms the pairwise tree over the index.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#if MOST
#include "most.glsl"
#define START LEAST
#define JOIN(a, b) most(vec4(a), vec4(b)).x
#define FINISH(v) most4(v)
#else
#define START 0.0
#define JOIN(a, b) ((a) + (b))
#define FINISH(v) join4(v)
#endif

#include "push/reduce_fold.h"

void main()
{
    uint index = flat_index();
    uint first = min(index, pc.results - 1) * 64, count = pc.count;
    precise float part[16];
    [[unroll]] for (uint k = 0; k < 16; k++) {
        uint e = first + 4 * k;
        part[k] = FINISH(load4_within(FROM(x), 0, e, count, START));
    }
    [[unroll]] for (uint width = 8; width > 0; width /= 2) {
        [[unroll]] for (uint k = 0; k < width; k++)
            part[k] = JOIN(part[2 * k], part[2 * k + 1]);
    }
    if (index < pc.results)
        Floats(pc.out_).at[index] = part[0];
}
