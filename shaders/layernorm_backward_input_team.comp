#version 450
/* SPDX-License-Identifier: MIT
 *
 * layernorm_backward_input.comp with a row for each team of lanes (team.glsl). A lane keeps its
 * values of g and h, up to KEEP quads, and recomputes the rest.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"
#include "team.glsl"

layout(constant_id = 3) const uint ACCUMULATE = 0;
layout(constant_id = 4) const uint RMS = 0;

#include "push/layernorm_backward_input.h"

/* g and h at column c; arbitrary values past the row's end. */
void terms(uint base, uint c, float mean, float rstd, out vec4 g, out vec4 h)
{
    uint channels = pc.channels;
    precise vec4 g_ = row4_x(pc.gamma, 0, c, channels) * row4(pc.dout, base, c, channels);
    precise vec4 h_ = (row4_x(pc.x, base, c, channels) - mean) * rstd;
    g = g_;
    h = h_;
}

void add_terms(vec4 g, vec4 h, uint c, inout vec4 sum_g, inout vec4 sum_gh)
{
    bvec4 inside = within(c, pc.channels);
    precise vec4 gh = g * h;
    precise vec4 next_g = sum_g + mix(vec4(0.0), g, inside);
    precise vec4 next_gh = sum_gh + mix(vec4(0.0), gh, inside);
    sum_g = next_g;
    sum_gh = next_gh;
}

void finish(vec4 g, vec4 h, float rstd, float mean_g, float mean_gh, uint base, uint c)
{
    uint channels = pc.channels;
    if (c >= channels)
        return;
    precise vec4 d = rstd * (g - mean_g - h * mean_gh);
    if (ACCUMULATE != 0)
        d = row4_x(pc.dx, base, c, channels) + d;
    put4_x(pc.dx, base, c, channels, d);
}

void main()
{
    uint index = team_index(), row = min(index, pc.rows - 1), lane = team_lane();
    uint channels = pc.channels, base = row * channels;
    const uint stride = 4 * TEAM, kept = KEEP * stride;
    float count = float(channels);
    float mean = 0.0, rstd = Floats(pc.rstd).at[row];
    if (RMS == 0)
        mean = Floats(pc.mean).at[row];

    vec4 g[KEEP], h[KEEP], sum_g = vec4(0.0), sum_gh = vec4(0.0);
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        terms(base, 4 * lane + k * stride, mean, rstd, g[k], h[k]);
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        add_terms(g[k], h[k], 4 * lane + k * stride, sum_g, sum_gh);
    vec4 one_g, one_h;
    for (uint c = 4 * lane + kept; c < channels; c += stride) {
        terms(base, c, mean, rstd, one_g, one_h);
        add_terms(one_g, one_h, c, sum_g, sum_gh);
    }
    precise vec2 means = team_sum(vec2(join4(sum_g), join4(sum_gh))) / count;
    if (RMS != 0)
        means.x = 0.0;

    if (index >= pc.rows)
        return;
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        finish(g[k], h[k], rstd, means.x, means.y, base, 4 * lane + k * stride);
    for (uint c = 4 * lane + kept; c < channels; c += stride) {
        terms(base, c, mean, rstd, one_g, one_h);
        finish(one_g, one_h, rstd, means.x, means.y, base, c);
    }
}
