#version 450
/* SPDX-License-Identifier: MIT
 *
 * Numbers of 32 bits in fixed point: words of 2^-16. MODE:
 *   0  out = x in f32
 *   1  out = term in fixed point, rounded to nearest, ties to even
 *   2  out = x + term, rounded like in 1
 *   3  out = x - term
 * 3 with the same term undoes 2. The lowest word stands for NaN: for a term that is not finite or
 * does not fit, and for a sum that does not fit. It stays NaN in all modes.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint MODE = 0;

#define UNROLL 4

#include "push/fixed.h"

const int NOT_A_NUMBER = int(0x80000000u);

int fixed_of(float x)
{
    float scaled = roundEven(x * 65536.0);
    return abs(scaled) < 2147483648.0 ? int(scaled) : NOT_A_NUMBER;
}

int sum_of(int x, int y)
{
    int sum = x + y;
    bool wraps = ((x ^ sum) & (y ^ sum)) < 0;
    return wraps || x == NOT_A_NUMBER || y == NOT_A_NUMBER ? NOT_A_NUMBER : sum;
}

void main()
{
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item >= pc.items)
            continue;
        int x = Ints(readable(pc.x, pc.term)).at[item], result;
        if (MODE == 0) {
            float value = x == NOT_A_NUMBER ? uintBitsToFloat(0x7fc00000u) : float(x) / 65536.0;
            result = floatBitsToInt(value);
        } else {
            int term = fixed_of(Floats(pc.term).at[item]);
            int other = term == NOT_A_NUMBER ? term : -term;
            result = MODE == 1 ? term : sum_of(x, MODE == 2 ? term : other);
        }
        Ints(pc.out_).at[item] = result;
    }
}
