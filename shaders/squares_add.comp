#version 450
/* SPDX-License-Identifier: MIT
 *
 * Exact sums (exact_squares.glsl): a workgroup of at least 64 invocations adds EACH sums of squares
 * or, with ROWS, the sums of EACH workgroups, to a row of words. Words of a result are below 2^14,
 * so the results of 2^17 ranks or workgroups can be added without a carry. The workgroup has COPIES
 * of the row, which it adds at the end: most numbers fall into the same few words, and atomics on
 * one word are serialised.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exact_squares.glsl"

layout(constant_id = 1) const uint COPIES = 1;  /* with ROWS: workgroup / 64 */
layout(constant_id = 2) const uint AT_ONCE = 1; /* reads of a lane before it adds them */

#include "push/squares_add.h"

const uint STRIDE = 65; /* of copies, in words: the same word of each is in another bank */
shared uint words[COPIES * STRIDE];

#if !ROWS
/* EACH is 4096. Each sum adds less than 2^12 to a word, which has 32 bits. */
void add_number(uint bits, uint copy)
{
    uint exponent = bits >> 23 & 255u, part = bits & 0x7fffffu;
    uint number = exponent == 0 ? part : exponent < 255 ? part | 0x800000u : 0u;
    uint at = max(exponent, 1u) - 1u + (bits >> 31) * LARGE_BITS;
    uint word = copy + at / WORD_BITS, shift = at % WORD_BITS;
    atomicAdd(words[word], number << shift & WORD_MASK);
    atomicAdd(words[word + 1], number >> (WORD_BITS - shift) & WORD_MASK);
    atomicAdd(words[word + 2], number >> (2 * WORD_BITS - shift));
    if (exponent == 255)
        atomicAdd(words[copy + (part == 0 ? INFINITE : NOT_A_NUMBER)], 1u);
}
#endif

void main()
{
    uint lane = gl_LocalInvocationID.x, group = flat_group();
    uint first = min(group * pc.each, pc.count), end = min(first + pc.each, pc.count);
    uint lanes = gl_WorkGroupSize.x, source[AT_ONCE];
#if ROWS
    uint total = 0, column = min(lane % 64, ALL_WORDS - 1);
    for (uint row = first + lane / 64; row < end; row += AT_ONCE * COPIES) {
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            source[k] = Uints(pc.x).at[min(row + k * COPIES, end - 1) * ALL_WORDS + column];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            total += row + k * COPIES < end ? source[k] : 0;
    }
    words[lane / 64 * STRIDE + lane % 64] = total;
#else
    for (uint i = lane; i < COPIES * STRIDE; i += lanes)
        words[i] = 0;
    barrier();
    for (uint i = first + lane; i < end; i += AT_ONCE * lanes) {
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            source[k] = Uints(pc.x).at[min(i + k * lanes, end - 1)];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            if (i + k * lanes < end)
                add_number(source[k], lane % COPIES * STRIDE);
    }
#endif
    barrier();
    if (COPIES > 1) {
        if (lane < 64)
            [[unroll]] for (uint k = 1; k < COPIES; k++)
                words[lane] += words[k * STRIDE + lane];
        barrier();
    }
    lane = min(lane, 63u);
    /* Bits above a word's 12 bits go to the next two words. */
    uint own = words[lane], below = words[max(lane, 1) - 1], second = words[max(lane, 2) - 2];
    uint sum = own & WORD_MASK;
    sum += lane >= 1 ? below >> WORD_BITS & WORD_MASK : 0;
    sum += lane >= 2 ? second >> 2 * WORD_BITS : 0;
    uint word = lane < NUMBER_WORDS ? sum : min(own, 1);
    if (gl_LocalInvocationID.x < ALL_WORDS && group < pc.results)
        Uints(pc.out_).at[group * ALL_WORDS + lane] = word;
}
