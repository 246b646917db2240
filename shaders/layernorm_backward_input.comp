#version 450
/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm, gradient of the input, one row per invocation. With g = gamma * dout and h
 * = (x - mean) * rstd: dx = rstd * (g - mean(g) - h * mean(g * h)), or += with ACCUMULATE. dx may
 * be dout. RMS uses neither mean nor mean(g).
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"

layout(constant_id = 1) const uint UNROLL = 1;
layout(constant_id = 2) const uint ACCUMULATE = 0;
layout(constant_id = 3) const uint RMS = 0;

#include "push/layernorm_backward_input.h"
VIEW(0, dout)
VIEW(1, x)
VIEW(2, gamma)
VIEW(3, dx)

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    bool live = index < pc.rows;
    uint channels = pc.channels, whole = channels & ~3u, base = row * channels;
    uvec2 dx = pc.dx;
    float count = float(channels);
    float mean = 0.0, rstd = Floats(pc.rstd).at[row];
    if (RMS == 0)
        mean = Floats(pc.mean).at[row];

    precise vec4 sum_g = vec4(0.0), sum_gh = vec4(0.0);
    for (uint c = 0; c < whole; c += 4 * UNROLL) {
        [[unroll]] for (uint k = 0; k < UNROLL; k++) {
            uint at = c + 4 * k;
            precise vec4 g = load4_x(FROM(gamma), at) * load4(FROM(dout), base + at);
            precise vec4 h = (load4_x(FROM(x), base + at) - mean) * rstd;
            sum_g += g;
            sum_gh += g * h;
        }
    }
#if !VEC
    if (whole < channels) {
        precise vec4 g = load4_within_x(FROM(gamma), 0, whole, channels, 0.0) *
                         load4_within(FROM(dout), base, whole, channels, 0.0);
        precise vec4 h = (load4_within_x(FROM(x), base, whole, channels, 0.0) - mean) * rstd;
        sum_g += g;
        sum_gh += g * h;
    }
#endif
    precise float mean_g = join4(sum_g) / count, mean_gh = join4(sum_gh) / count;
    if (RMS != 0)
        mean_g = 0.0;

    if (live) {
        for (uint c = 0; c < whole; c += 4 * UNROLL) {
            [[unroll]] for (uint k = 0; k < UNROLL; k++) {
                uint at = c + 4 * k;
                precise vec4 g = load4_x(FROM(gamma), at) * load4(FROM(dout), base + at);
                precise vec4 h = (load4_x(FROM(x), base + at) - mean) * rstd;
                precise vec4 d = rstd * (g - mean_g - h * mean_gh);
                if (ACCUMULATE != 0)
                    d = load4_x(FROM(dx), base + at) + d;
                store4_x(dx, base + at, d);
            }
        }
#if !VEC
        if (whole < channels) {
            precise vec4 g = load4_within_x(FROM(gamma), 0, whole, channels, 0.0) *
                             load4_within(FROM(dout), base, whole, channels, 0.0);
            precise vec4 h = (load4_within_x(FROM(x), base, whole, channels, 0.0) - mean) * rstd;
            precise vec4 d = rstd * (g - mean_g - h * mean_gh);
            if (ACCUMULATE != 0)
                d = load4_within_x(FROM(dx), base, whole, channels, 0.0) + d;
            store4_within_x(dx, base, whole, channels, d);
        }
#endif
    }
}
