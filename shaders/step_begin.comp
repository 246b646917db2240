#version 450
/* SPDX-License-Identifier: MIT
 *
 * Begins an update in the step's block of scalars. From the sum of squares of the raw gradients
 * (squares.glsl) it computes their norm, the factors by which the optimizer multiplies them, and
 * whether the update is skipped. If not, it computes the update's number and the bias corrections.
 * One invocation.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "squares.glsl"
#include "step_scalars.glsl"

#include "push/step_begin.h"

/* Upper half of the product of two fractions of 2^64 (x: low word). */
uvec2 multiply(uvec2 a, uvec2 b)
{
    uint high, low, cross0, cross1, rest, carry0, carry1;
    umulExtended(a.y, b.y, high, low);
    umulExtended(a.x, b.y, cross0, rest);
    umulExtended(a.y, b.x, cross1, rest);
    low = uaddCarry(low, cross0, carry0);
    low = uaddCarry(low, cross1, carry1);
    return uvec2(low, high + carry0 + carry1);
}

/* 1 - beta^t in integer arithmetic: no driver's pow() is accurate enough for beta near 1, and a run
 * that continues from a checkpoint must get the same bits. */
float correction(float beta, uint t)
{
    float scaled = beta * 4294967296.0, high = floor(scaled);
    uvec2 factor = uvec2(uint((scaled - high) * 4294967296.0), uint(high));
    uvec2 power = uvec2(0);
    bool any = false;
    for (; t != 0; t >>= 1) {
        if ((t & 1u) != 0) {
            power = any ? multiply(power, factor) : factor;
            any = true;
        }
        factor = multiply(factor, factor);
    }
    if (power == uvec2(0))
        return 1.0;
    uvec2 rest = ~power;
    rest.x += 1;
    rest.y += rest.x == 0 ? 1 : 0;
    precise float result = float(rest.y) * 2.3283064365386963e-10 +
                           float(rest.x) * 5.421010862427522e-20;
    return result;
}

/* 1 / x, exact for powers of two, whatever the accuracy of the device's division. */
float inverse_of(float x)
{
    uint bits = floatBitsToUint(x);
    bool power_of_two = (bits & 0x807fffffu) == 0 && bits >= 0x00800000u && bits < 0x7e800000u;
    return power_of_two ? uintBitsToFloat(0x7f000000u - bits) : 1.0 / x;
}

const float HALF = 281474976710656.0; /* 2^48: the root of a sum in large form is 2^96 too small */
const float MOST = 3.402823466e38;

void main()
{
    StepScalars s = StepScalars(pc.scalars);
    float inv_tokens = s.inv_tokens, clip = s.clip, scale = s.loss_scale;
    float sum_squares = Floats(pc.sum_squares).at[0];
    uint updates = s.updates;

    precise float whole = inv_tokens * (scale == 0.0 ? 1.0 : inverse_of(scale));
    /* For a sum in large form the norm is part * HALF, otherwise part. The same holds for the clip
     * ratio. */
    bool large = is_large(sum_squares);
    float half_ = large ? HALF : 1.0, tiny = large ? 1e-6 / HALF : 1e-6;
    precise float part = sqrt(large ? -sum_squares : sum_squares) * half_ * whole;
    precise float norm = part * half_;
    precise float ratio = clip / (part + tiny);
    bool clips = clip > 0.0 && ratio < half_;
    precise float factor = (clips ? ratio : 1.0) * whole;
    float prescale = clips && large ? 1.0 / HALF : 1.0;
    /* By bits: a compiler may assume that there are no NaNs. */
    bool skip = !is_finite(part) || !is_finite(sum_squares) || !(large || is_finite(norm));
    norm = large && !skip && !is_finite(norm) ? MOST : norm;
    uint t = skip ? updates : updates + 1;
    bool correct = pc.correct_bias != 0;
    float bias1 = correct ? correction(pc.beta1, max(t, 1)) : 1.0;
    float bias2 = correct ? correction(pc.beta2, max(t, 1)) : 1.0;
    if (flat_index() == 0) {
        s.norm = norm;
        s.factor = factor;
        s.prescale = prescale;
        s.skipped = skip ? 1 : 0;
        s.updates = t;
        s.bias1 = bias1;
        s.bias2 = bias2;
    }
}
