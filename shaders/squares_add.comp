#version 450
/* SPDX-License-Identifier: MIT
 *
 * Exact sums (exact_squares.glsl): a workgroup of 64 invocations adds EACH sums of squares or, with
 * ROWS, the sums of EACH workgroups, to a row of words. Words of a result are below 2^14, so 2^17
 * of them can be added without a carry: those of ranks, or of as many workgroups.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exact_squares.glsl"

#include "push/squares_add.h"

shared uint words[64];

#if !ROWS
/* EACH is 4096. Each sum adds less than 2^12 to a word, which has 32 bits. */
void add_number(uint bits)
{
    uint exponent = bits >> 23 & 255u, part = bits & 0x7fffffu;
    uint number = exponent == 0 ? part : exponent < 255 ? part | 0x800000u : 0u;
    uint at = max(exponent, 1u) - 1u + (bits >> 31) * LARGE_BITS;
    uint word = at / WORD_BITS, shift = at % WORD_BITS;
    atomicAdd(words[word], number << shift & WORD_MASK);
    atomicAdd(words[word + 1], number >> (WORD_BITS - shift) & WORD_MASK);
    atomicAdd(words[word + 2], number >> (2 * WORD_BITS - shift));
    if (exponent == 255)
        atomicAdd(words[part == 0 ? INFINITE : NOT_A_NUMBER], 1u);
}
#endif

void main()
{
    uint lane = gl_LocalInvocationID.x, group = flat_group();
    uint first = min(group * pc.each, pc.count), end = min(first + pc.each, pc.count);
#if ROWS
    uint total = 0;
    for (uint row = first; row < end; row++)
        total += Uints(pc.x).at[row * ALL_WORDS + min(lane, ALL_WORDS - 1)];
    words[lane] = total;
#else
    words[lane] = 0;
    barrier();
    for (uint i = first + lane; i < end; i += gl_WorkGroupSize.x)
        add_number(Uints(pc.x).at[i]);
#endif
    barrier();
    /* Bits above a word's 12 bits go to the next two words. */
    uint own = words[lane], below = words[max(lane, 1) - 1], second = words[max(lane, 2) - 2];
    uint sum = own & WORD_MASK;
    sum += lane >= 1 ? below >> WORD_BITS & WORD_MASK : 0;
    sum += lane >= 2 ? second >> 2 * WORD_BITS : 0;
    uint word = lane < NUMBER_WORDS ? sum : min(own, 1);
    if (lane < ALL_WORDS && group < pc.results)
        Uints(pc.out_).at[group * ALL_WORDS + lane] = word;
}
