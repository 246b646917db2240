#version 450
/* SPDX-License-Identifier: MIT
 *
 * Rotary embedding (Su et al. 2021): rotates pair i of row t by the angle (position + t)
 * theta^(-2i/D), or back. An item is PAIRS pairs of one row, in every head, so that each angle is
 * computed once. HALVES=0: pairs are adjacent elements (2i, 2i+1); HALVES=1: (i, i + D/2). In place
 * is allowed, because items are independent.
 *
 * Angles are fractions of a turn in 64-bit fixed point. Whole turns overflow and drop out, so
 * angles are as accurate at position 2^31 as at 1, with the same bits on every device. Vulkan's own
 * sin and cos may have errors of 2^-11.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint BACK = 0; /* 1: rotate back, for the gradient */
/* Scaled angles (struct rf_rotary_scaling): one more than SHIFT, or 0; fractions as high and low
 * word. GAIN: 1 / (WIDTH 2^SHIFT) - 1, where WIDTH is HIGH - LOW. */
layout(constant_id = 2) const uint SCALED = 0;
layout(constant_id = 3) const uint LOW_1 = 0;
layout(constant_id = 4) const uint LOW_0 = 0;
layout(constant_id = 5) const uint HIGH_1 = 0;
layout(constant_id = 6) const uint HIGH_0 = 0;
layout(constant_id = 7) const uint INVERSE_1 = 0; /* 1 / factor */
layout(constant_id = 8) const uint INVERSE_0 = 0;
layout(constant_id = 9) const uint GAIN_1 = 0;
layout(constant_id = 10) const uint GAIN_0 = 0;
const uint PAIRS = VEC != 0 ? 4 : 1;

#include "push/rotary.h"

/* The upper 64 bits of a product: fractions times fractions. */
uvec2 times(uvec2 a, uvec2 b)
{
    uint h1, l1, h2, l2, h3, l3, h0, l0, carry, more;
    umulExtended(a.x, b.x, h3, l3);
    umulExtended(a.x, b.y, h1, l1);
    umulExtended(a.y, b.x, h2, l2);
    umulExtended(a.y, b.y, h0, l0);
    uint middle = uaddCarry(h0, l1, carry);
    middle = uaddCarry(middle, l2, more);
    uint low = uaddCarry(l3, h1, l0);
    low = uaddCarry(low, h2, l1);
    low = uaddCarry(low, carry + more, l2);
    return uvec2(h3 + l0 + l1 + l2, low);
}

uvec2 plus(uvec2 a, uvec2 b)
{
    uint carry, low = uaddCarry(a.y, b.y, carry);
    return uvec2(a.x + b.x + carry, low);
}

uvec2 minus(uvec2 a, uvec2 b)
{
    uint borrow, low = usubBorrow(a.y, b.y, borrow);
    return uvec2(a.x - b.x - borrow, low);
}

bool less(uvec2 a, uvec2 b)
{
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

/* The angle of a token, scaled. Between the limits: step (inverse + (1 - inverse) share), where share
 * is (step - LOW) / WIDTH. */
uvec2 scaled(uvec2 step)
{
    const uvec2 low = uvec2(LOW_1, LOW_0), high = uvec2(HIGH_1, HIGH_0),
                inverse = uvec2(INVERSE_1, INVERSE_0), gain = uvec2(GAIN_1, GAIN_0);
    if (!less(step, high))
        return step;
    uvec2 slow = times(step, inverse);
    if (less(step, low))
        return slow;
    const uint shift = SCALED - 1;
    uvec2 share = minus(step, low);
    if (shift > 0 && shift < 32)
        share = uvec2(share.x << shift | share.y >> (32 - shift), share.y << shift);
    share = plus(share, times(share, gain));
    return plus(slow, times(minus(step, slow), share));
}

/* The angle of pair i in a row, as a 32-bit fraction of a turn. */
uint turns(uint i, uint row)
{
    uvec2 step = pc.turn;
    [[unroll]] for (uint bit = 0; bit < 7; bit++) {
        uvec2 smaller = times(step, pc.power[bit]);
        step = (i >> bit & 1u) != 0 ? smaller : step;
    }
    if (SCALED != 0)
        step = scaled(step);
    uint high, low;
    umulExtended(step.y, row, high, low);
    return step.x * row + high;
}

/* Cosine and sine of a fraction of a turn: polynomials within an eighth of a turn (Moshier's
 * Cephes, sinf and cosf, within 1e-7), extended by quarter turns. */
vec2 direction(uint turn)
{
    uint quarter = (turn + 0x20000000u) >> 30;
    int rest = int(turn - (quarter << 30));
    precise float x = float(rest) * (6.28318530717958648 / 4294967296.0), z = x * x;
    precise float s =
        x + x * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    precise float c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 +
                                               z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    vec2 v = (quarter & 1u) != 0 ? vec2(-s, c) : vec2(c, s);
    return (quarter & 2u) != 0 ? -v : v;
}

/* a, b: the first and second elements of four pairs, or of one. */
void turn_pairs(inout ITEM a, inout ITEM b, ITEM c, ITEM s)
{
    precise ITEM first = a * c - b * s, second = b * c + a * s;
    a = first;
    b = second;
}

void main()
{
    uint item = flat_index(), across = pc.size / 2 / PAIRS;
    if (item >= pc.items)
        return;
    uint pair = item % across * PAIRS, line = item / across;
    uint batch = line / pc.rows, row = line % pc.rows;
    uint from = batch * pc.x_batch + row * pc.x_row, to = batch * pc.out_batch + row * pc.out_row;
    ITEM c, s;
#if VEC
    [[unroll]] for (uint i = 0; i < 4; i++) {
        vec2 at = direction(turns(pair + i, pc.position + row));
        c[i] = at.x;
        s[i] = at.y;
    }
#else
    vec2 at = direction(turns(pair, pc.position + row));
    c = at.x;
    s = at.y;
#endif
    s = BACK != 0 ? -s : s;
#if HALVES
    uint first = pair, second = pair + pc.size / 2;
#else
    uint first = 2 * pair, second = first + PAIRS;
#endif
    for (uint head = 0; head < pc.heads; head++) {
#if VEC
        vec4 a = load4(pc.x, from + first), b = load4(pc.x, from + second);
#if !HALVES
        vec4 even = vec4(a.xz, b.xz), odd = vec4(a.yw, b.yw);
        turn_pairs(even, odd, c, s);
        a = vec4(even.x, odd.x, even.y, odd.y);
        b = vec4(even.z, odd.z, even.w, odd.w);
#else
        turn_pairs(a, b, c, s);
#endif
        store4(pc.out_, to + first, a);
        store4(pc.out_, to + second, b);
#else
        float a = load1(pc.x, from + first), b = load1(pc.x, from + second);
        turn_pairs(a, b, c, s);
        store1(pc.out_, to + first, a);
        store1(pc.out_, to + second, b);
#endif
        from += pc.x_head;
        to += pc.out_head;
    }
}
