#version 450
/* SPDX-License-Identifier: MIT
 *
 * LayerNorm forward, one row per lane: mean, then variance about it, then the result.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint UNROLL = 1; /* channels are a multiple of 4 * UNROLL, or it is 1 */

layout(push_constant) uniform Push {
    uvec2 out_, mean, rstd, x, gamma, beta;
    uint rows, channels;
    float eps;
    uint x_first, gamma_first, beta_first;
} pc;
VIEW(0, x)
VIEW(1, gamma)
VIEW(2, beta)

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    bool live = index < pc.rows;
    uint channels = pc.channels, whole = channels & ~3u, base = row * channels;
    float count = float(channels), eps = pc.eps;
    uvec2 result = pc.out_;

    precise vec4 sum = vec4(0.0);
    for (uint c = 0; c < whole; c += 4 * UNROLL) {
        [[unroll]] for (uint k = 0; k < UNROLL; k++)
            sum += load4(FROM(x), base + c + 4 * k);
    }
#if !VEC
    if (whole < channels)
        sum += load4_within(FROM(x), base, whole, channels, 0.0);
#endif
    precise float mean = join4(sum) / count;

    precise vec4 squares = vec4(0.0);
    for (uint c = 0; c < whole; c += 4 * UNROLL) {
        [[unroll]] for (uint k = 0; k < UNROLL; k++) {
            precise vec4 d = load4(FROM(x), base + c + 4 * k) - mean;
            squares += d * d;
        }
    }
#if !VEC
    if (whole < channels) {
        precise vec4 d = load4_within(FROM(x), base, whole, channels, mean) - mean;
        squares += d * d;
    }
#endif
    precise float rstd = 1.0 / sqrt(join4(squares) / count + eps);

    if (live) {
        Floats(pc.mean).at[row] = mean;
        Floats(pc.rstd).at[row] = rstd;
        for (uint c = 0; c < whole; c += 4 * UNROLL) {
            [[unroll]] for (uint k = 0; k < UNROLL; k++) {
                uint at = c + 4 * k;
                precise vec4 y = (load4(FROM(x), base + at) - mean) * rstd * load4(FROM(gamma), at) +
                                 load4(FROM(beta), at);
                store4(result, base + at, y);
            }
        }
#if !VEC
        if (whole < channels) {
            precise vec4 y = (load4_within(FROM(x), base, whole, channels, 0.0) - mean) * rstd *
                                 load4_within(FROM(gamma), 0, whole, channels, 0.0) +
                             load4_within(FROM(beta), 0, whole, channels, 0.0);
            store4_within(result, base, whole, channels, y);
        }
#endif
    }
}
