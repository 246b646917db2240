#version 450
/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm forward, one row per invocation: the mean, then the variance about it
 * (about zero with RMS), then the result. The sum of a row far from zero has large rounding errors.
 * So the pass for the variance, whose terms are small, also computes the error of the mean, and
 * both are corrected (Chan, Golub, LeVeque 1983). With RESIDUAL the input is x + residual, rounded
 * to its type, which is stored as sum.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"

layout(constant_id = 1) const uint UNROLL = 1; /* 1, or 4 * UNROLL divides channels */
layout(constant_id = 2) const uint RMS = 0;  /* about zero, without mean */
layout(constant_id = 3) const uint BETA = 1; /* 0: no beta */
layout(constant_id = 4) const uint RESIDUAL = 0;

#include "push/layernorm.h"
VIEW(0, x)
VIEW(1, gamma)
VIEW(2, beta)
VIEW(3, residual)

/* The input to normalize. */
vec4 input4(uint e)
{
    vec4 v = load4_x(FROM(x), e);
    if (RESIDUAL != 0)
        v = rounded_x(v + load4_x(FROM(residual), e));
    return v;
}
#if !VEC
vec4 input4_within(uint row, uint column, uint limit, float fill)
{
    vec4 v = load4_within_x(FROM(x), row, column, limit, fill);
    if (RESIDUAL != 0) {
        v = rounded_x(v + load4_within_x(FROM(residual), row, column, limit, 0.0));
        v = mix(vec4(fill), v, within(column, limit));
    }
    return v;
}
#endif

void main()
{
    uint index = flat_index();
    uint row = min(index, pc.rows - 1);
    bool live = index < pc.rows;
    uint channels = pc.channels, whole = channels & ~3u, base = row * channels;
    float count = float(channels), eps = pc.eps;
    uvec2 result = pc.out_;

    precise vec4 sum = vec4(0.0);
    if (RMS == 0) {
        for (uint c = 0; c < whole; c += 4 * UNROLL) {
            [[unroll]] for (uint k = 0; k < UNROLL; k++)
                sum += input4(base + c + 4 * k);
        }
#if !VEC
        if (whole < channels)
            sum += input4_within(base, whole, channels, 0.0);
#endif
    }
    precise float mean = join4(sum) / count;
    if (RMS != 0)
        mean = 0.0;

    precise vec4 squares = vec4(0.0), rest = vec4(0.0);
    for (uint c = 0; c < whole; c += 4 * UNROLL) {
        [[unroll]] for (uint k = 0; k < UNROLL; k++) {
            precise vec4 d = input4(base + c + 4 * k) - mean;
            squares += d * d;
            if (RMS == 0)
                rest += d;
        }
    }
#if !VEC
    if (whole < channels) {
        precise vec4 d = input4_within(base, whole, channels, mean) - mean;
        squares += d * d;
        if (RMS == 0)
            rest += d;
    }
#endif
    precise float variance = join4(squares) / count;
    if (RMS == 0) {
        precise float shift = join4(rest) / count;
        mean += shift;
        variance -= shift * shift;
        variance = at_least_0(variance);
    }
    precise float rstd = 1.0 / sqrt(variance + eps);

    if (live) {
        if (RMS == 0)
            Floats(pc.mean).at[row] = mean;
        Floats(pc.rstd).at[row] = rstd;
        for (uint c = 0; c < whole; c += 4 * UNROLL) {
            [[unroll]] for (uint k = 0; k < UNROLL; k++) {
                uint at = c + 4 * k;
                vec4 v = input4(base + at);
                precise vec4 y = (v - mean) * rstd * load4_x(FROM(gamma), at);
                if (BETA != 0)
                    y = y + load4_x(FROM(beta), at);
                if (RESIDUAL != 0)
                    store4_x(pc.sum, base + at, v);
                store4(result, base + at, y);
            }
        }
#if !VEC
        if (whole < channels) {
            vec4 v = input4_within(base, whole, channels, 0.0);
            precise vec4 y = (v - mean) * rstd * load4_within_x(FROM(gamma), 0, whole, channels, 0.0);
            if (BETA != 0)
                y = y + load4_within_x(FROM(beta), 0, whole, channels, 0.0);
            if (RESIDUAL != 0)
                store4_within_x(pc.sum, base, whole, channels, v);
            store4_within(result, base, whole, channels, y);
        }
#endif
    }
}
