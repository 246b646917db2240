#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = x[i] * scale if word (first + i) of the Philox stream (seed, site) is at least
 * `threshold`, otherwise 0. Four words form a block. VEC builds need `first` to be a multiple of
 * four.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"

#define UNROLL 4

#include "push/dropout.h"
VIEW(0, x)

/* The word of element e and, with VEC, those of the next three. */
uvec4 random_at(uvec2 seed, uint e)
{
    uint low, carry;
    low = uaddCarry(pc.first_word.x, e, carry);
    uint high = pc.first_word.y + carry;
    uvec4 words = philox(seed, uvec4((low >> 2) | (high << 30), high >> 2, pc.site));
#if VEC
    return words;
#else
    return uvec4(words[low & 3u]);
#endif
}

void main()
{
    bool given = pc.device_seed != uvec2(0);
    Uints seeds = Uints(readable(pc.device_seed, pc.x));
    uvec2 seed = uvec2(seeds.at[0], seeds.at[given ? 1 : 0]);
    seed = given ? seed : pc.seed;
    uint first = flat_group() * UNROLL * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    ITEM result[UNROLL];
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = min(first + k * gl_WorkGroupSize.x, pc.items - 1);
        uvec4 words = random_at(seed, ITEM_ELEMENTS * item);
        ITEM x = pc.scale * load_item(FROM(x), item);
#if VEC
        result[k] = mix(x, vec4(0.0), lessThan(words, uvec4(pc.threshold)));
#else
        result[k] = words.x < pc.threshold ? 0.0 : x;
#endif
    }
    [[unroll]] for (uint k = 0; k < UNROLL; k++) {
        uint item = first + k * gl_WorkGroupSize.x;
        if (item < pc.items)
            store_item(pc.out_, item, result[k]);
    }
}
