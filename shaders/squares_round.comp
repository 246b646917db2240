#version 450
/* SPDX-License-Identifier: MIT
 *
 * Rounds an exact sum (exact_squares.glsl), whose words may be up to 2^31, once to the nearest
 * number in the form of squares.glsl, ties to even. One invocation.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "exact_squares.glsl"

#include "push/squares_round.h"

void main()
{
    Uints x = Uints(pc.x);
    /* The highest word that is not 0 and the two below it. `rest`: whether lower words are not 0.
     */
    uint top = 0, high = 0, middle = 0, low = 0, rest = 0;
    uint before = 0, second = 0, third = 0, any = 0, carry = 0; /* the words below word i */
    [[unroll]] for (uint i = 0; i < NUMBER_WORDS; i++) {
        uint sum = x.at[i] + carry, word = sum & WORD_MASK;
        bool higher = word != 0;
        carry = sum >> WORD_BITS;
        top = higher ? i : top;
        high = higher ? word : high;
        middle = higher ? before : middle;
        low = higher ? second : low;
        rest = higher ? third | any : rest;
        any |= third;
        third = second;
        second = before;
        before = word;
    }
    uint upper = high << WORD_BITS | middle; /* then the bits of low */
    int highest = int(WORD_BITS) + findMSB(max(upper, 1u << WORD_BITS)); /* bit of the three words */
    int first = int(WORD_BITS) * (int(top) - 2); /* bit of the sum that is their bit 0 */
    int last = max(first + highest - 23, 0);     /* bit of the sum that is the result's last one */
    uint cut = uint(last - first);               /* 1 to 12, or 24: then low is 0, too */
    uint number = cut > WORD_BITS ? upper >> WORD_BITS : upper << (WORD_BITS - cut) | low >> cut;
    uint lost = cut > WORD_BITS ? 0 : low & (1u << cut) - 1u, half_ = 1u << (cut - 1u);
    bool up = lost > half_ || (lost == half_ && (rest != 0 || (number & 1u) != 0));
    uint bits = (uint(last) << 23) + number + (up ? 1 : 0);
    uint large = bits - (LARGE_BITS << 23);
    large = large < 0x7f800000u ? large | 0x80000000u : 0x7f800000u;
    bits = bits < 0x7f800000u ? bits : large;
    bits = x.at[INFINITE] != 0 ? 0x7f800000u : bits;
    bits = x.at[NOT_A_NUMBER] != 0 ? 0x7fc00000u : bits;
    if (flat_index() == 0)
        Uints(pc.out_).at[0] = bits;
}
