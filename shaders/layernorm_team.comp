#version 450
/* SPDX-License-Identifier: MIT
 *
 * layernorm.comp with a row for each team of lanes (team.glsl). A lane keeps its part of the row,
 * up to KEEP quads, and reads the rest again.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"
#include "team.glsl"

layout(constant_id = 3) const uint RMS = 0;  /* about zero, without mean */
layout(constant_id = 4) const uint BETA = 1; /* 0: no beta */
layout(constant_id = 5) const uint RESIDUAL = 0;

#include "push/layernorm.h"

/* The quad of the input at column c; arbitrary values past the row's end. */
vec4 input4(uint base, uint c)
{
    vec4 v = row4_x(pc.x, base, c, pc.channels);
    if (RESIDUAL != 0)
        v = rounded_x(v + row4_x(pc.residual, base, c, pc.channels));
    return v;
}

void add_deviation(vec4 v, float mean, uint c, inout vec4 squares, inout vec4 rest)
{
    precise vec4 d = mix(vec4(0.0), v - mean, within(c, pc.channels));
    precise vec4 square = squares + d * d, sum = rest + d;
    squares = square;
    if (RMS == 0)
        rest = sum;
}

void finish(vec4 v, float mean, float rstd, uint base, uint c)
{
    uint channels = pc.channels;
    if (c >= channels)
        return;
    precise vec4 y = (v - mean) * rstd * row4_x(pc.gamma, 0, c, channels);
    if (BETA != 0)
        y = y + row4_x(pc.beta, 0, c, channels);
    if (RESIDUAL != 0)
        put4_x(pc.sum, base, c, channels, v);
    put4(pc.out_, base, c, channels, y);
}

void main()
{
    uint index = team_index(), row = min(index, pc.rows - 1), lane = team_lane();
    uint channels = pc.channels, base = row * channels;
    const uint stride = 4 * TEAM, kept = KEEP * stride;
    float count = float(channels), eps = pc.eps;

    vec4 v[KEEP];
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        v[k] = input4(base, 4 * lane + k * stride);
    precise float mean = 0.0;
    if (RMS == 0) {
        precise vec4 sum = vec4(0.0);
        [[unroll]] for (uint k = 0; k < KEEP; k++)
            sum += mix(vec4(0.0), v[k], within(4 * lane + k * stride, channels));
        for (uint c = 4 * lane + kept; c < channels; c += stride)
            sum += mix(vec4(0.0), input4(base, c), within(c, channels));
        mean = team_sum(vec2(join4(sum), 0.0)).x / count;
    }

    vec4 squares = vec4(0.0), rest = vec4(0.0);
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        add_deviation(v[k], mean, 4 * lane + k * stride, squares, rest);
    for (uint c = 4 * lane + kept; c < channels; c += stride)
        add_deviation(input4(base, c), mean, c, squares, rest);
    precise vec2 both = team_sum(vec2(join4(squares), join4(rest))) / count;
    precise float variance = both.x;
    if (RMS == 0) {
        precise float shift = both.y;
        mean += shift;
        variance -= shift * shift;
        variance = at_least_0(variance);
    }
    precise float rstd = 1.0 / sqrt(variance + eps);

    if (index >= pc.rows)
        return;
    if (lane == 0) {
        if (RMS == 0)
            Floats(pc.mean).at[row] = mean;
        Floats(pc.rstd).at[row] = rstd;
    }
    [[unroll]] for (uint k = 0; k < KEEP; k++)
        finish(v[k], mean, rstd, base, 4 * lane + k * stride);
    for (uint c = 4 * lane + kept; c < channels; c += stride)
        finish(input4(base, c), mean, rstd, base, c);
}
