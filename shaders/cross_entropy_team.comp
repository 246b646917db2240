#version 450
/* SPDX-License-Identifier: MIT
 *
 * cross_entropy.comp with a row for each team of lanes (team.glsl). A lane has a running maximum of
 * its own; the sums of exponentials are then scaled to the largest of them.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "team.glsl"

layout(constant_id = 3) const uint SMOOTHED = 0; /* as in cross_entropy.comp */
layout(constant_id = 4) const uint PART = 0;

#include "push/cross_entropy.h"
#include "cross_entropy.glsl"

/* The logits at column c of a row; beyond its end NOTHING. */
vec4 logits4(uint base, uint c)
{
#if VEC
    vec4 v = load4(pc.logits, base + min(c, pc.vocabulary - 4));
    return c < pc.vocabulary ? v : vec4(NOTHING);
#else
    return load4_within(pc.logits, base, c, pc.vocabulary, NOTHING);
#endif
}

void main()
{
    uint index = team_index(), row = min(index, pc.rows - 1), lane = team_lane();
    uint vocabulary = pc.vocabulary, base = row * vocabulary;
    const uint stride = 4 * TEAM;
    Target target = find_target(row, base);

    vec4 x[4];
    for (uint c = 4 * lane; c < vocabulary; c += 4 * stride) {
        [[unroll]] for (uint k = 0; k < 4; k++)
            x[k] = logits4(base, c + k * stride);
        add_block(x, c, stride, vocabulary);
    }
    float top = team_max(greatest);
    precise float share = greatest == top ? total : total * exp(greatest - top);
    precise vec2 sums = team_sum(vec2(share, join4(plain)));
    greatest = top;
    total = sums.x;
    finish(row, index < pc.rows && lane == 0, target, sums.y);
}
