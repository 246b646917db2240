#version 450
/* SPDX-License-Identifier: MIT
 *
 * Rounds a matrix to numbers of a small format (small_float.h), each block of it with a scale of
 * its own: out = code * scale, which every type can hold. A lane has a strip: of a row, or with
 * DOWN of a column. FINDS: takes the largest magnitudes of blocks, or with WHOLE that of the
 * matrix, into pc.most, which begins as 0. WRITES: writes the numbers, by pc.most. Both: blocks are
 * single strips, and pc.most is not used. A block with a number that is not finite becomes NaN.
 *
 * Scales are powers of two; with TWO_LEVEL numbers of E4M3 times a power of two for the matrix, by
 * its largest magnitude in pc.whole. RANDOM: rounds up or down at random. TRANSFORMS: only writes
 * each 16 rows times an orthogonal matrix.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "philox.glsl"
#include "small_float.h"
#include "step_scalars.glsl"
#include "push/round_operand.h"

layout(constant_id = 1) const uint FORMAT = 0;
layout(constant_id = 2) const bool DOWN = false;
layout(constant_id = 3) const bool FINDS = true;
layout(constant_id = 4) const bool WRITES = true;
layout(constant_id = 5) const bool WHOLE = false;
layout(constant_id = 6) const bool TWO_LEVEL = false;
layout(constant_id = 7) const bool RANDOM = false;
layout(constant_id = 8) const bool TRANSFORMS = false;

#if VEC
#define BITS uvec4
#else
#define BITS uint
#endif

/* By members: Mesa 22.3 crashes if a function returns one of several constant structs. */
#define PICK(member) (FORMAT == 0 ? E4M3.member : FORMAT == 1 ? E5M2.member : E2M1.member)
small_float row_of_format()
{
    return small_float(PICK(sign), PICK(mantissa), PICK(bias), PICK(top), PICK(largest),
                       PICK(infinity), PICK(nan), true);
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The least number of E4M3 by which `most` can be divided to be at most 6, E2M1's largest; both
 * times `power`. Products with 6 are exact. */
float level_scale(uint most, float power)
{
    const float size = uintBitsToFloat(most);
    uint code = small_float_code(E4M3, floatBitsToUint(size / power * 0.16666667), ROUND_DOWN, true,
                                 0u);
    if (code > 0 && 6.0 * uintBitsToFloat(small_float_value(E4M3, code - 1)) * power >= size)
        code--;
    else if (6.0 * uintBitsToFloat(small_float_value(E4M3, code)) * power < size)
        code++;
    return uintBitsToFloat(small_float_value(E4M3, code)) * power;
}

/* x over the block's scale, and the scale. */
float divided(float x, uint most, out float scale)
{
    const small_float f = row_of_format();
    if (TWO_LEVEL) {
        const float power = uintBitsToFloat(
            power_scale(floatBitsToUint(6.0 * 448.0), Uints(pc.whole).at[0]));
        scale = most == 0 ? 1.0 : level_scale(most, power);
        return x / scale;
    }
    const uint bits = power_scale(small_float_value(f, f.largest), most);
    scale = uintBitsToFloat(bits);
    /* The exponents of a power of two and of its inverse add up to 254. */
    return x * uintBitsToFloat((254u << 23) - bits);
}

float rounded_one(float x, uint most, uint random)
{
    const small_float f = row_of_format();
    float scale;
    precise const float part = divided(x, most, scale);
    const uint code = small_float_code(f, floatBitsToUint(part),
                                       RANDOM ? ROUND_RANDOM : ROUND_NEAREST, true, random);
    precise const float value = uintBitsToFloat(small_float_value(f, code)) * scale;
    const bool bad = (TWO_LEVEL ? Uints(pc.whole).at[0] : most) > 0x7f7fffffu;
    return bad ? uintBitsToFloat(0x7fc00000u) : value;
}

ITEM rounded_item(ITEM x, BITS most, uint item)
{
    uvec4 words = uvec4(0);
    if (RANDOM) {
        StepScalars s = StepScalars(pc.scalars);
        words = philox(uvec2(s.seed0, s.seed1), uvec4(item * ITEM_ELEMENTS / 4,
                                                      floatBitsToUint(s.step_), pc.site, pc.turn));
    }
#if VEC
    return ITEM(rounded_one(x.x, most.x, words.x), rounded_one(x.y, most.y, words.y),
                rounded_one(x.z, most.z, words.z), rounded_one(x.w, most.w, words.w));
#else
    return rounded_one(x, most, words[item % 4]);
#endif
}

/* ---- strips ---------------------------------------------------------------------------------- */

/* The largest magnitudes of a strip, as bits, whose order is that of the magnitudes. */
BITS most_of(uint first, uint step, uint count)
{
    BITS most = BITS(0);
    for (uint k = 0; k < count; k++)
        most = max(most, floatBitsToUint(load_item(pc.x, first + k * step)) & 0x7fffffffu);
#if VEC
    if (!DOWN || WHOLE)
        most = BITS(max(max(most.x, most.y), max(most.z, most.w)));
#endif
    return most;
}

void note(uint cell, BITS most)
{
#if VEC
    atomicMax(Uints(pc.most).at[cell], most.x);
    if (DOWN && !WHOLE) {
        atomicMax(Uints(pc.most).at[cell + 1], most.y);
        atomicMax(Uints(pc.most).at[cell + 2], most.z);
        atomicMax(Uints(pc.most).at[cell + 3], most.w);
    }
#else
    atomicMax(Uints(pc.most).at[cell], most);
#endif
}

BITS noted(uint cell)
{
#if VEC
    const uvec4 at = DOWN ? cell + uvec4(0, 1, 2, 3) : uvec4(cell);
    return uvec4(Uints(pc.most).at[at.x], Uints(pc.most).at[at.y], Uints(pc.most).at[at.z],
                 Uints(pc.most).at[at.w]);
#else
    return Uints(pc.most).at[cell];
#endif
}

/* No loop over widths: Mesa does not unroll one that doubles its counter, and then spends seconds
 * on the array. */
#define BUTTERFLIES(width)                                                                         \
    [[unroll]] for (uint k = 0; k < 16; k++)                                                       \
        if ((k & width) == 0) {                                                                    \
            const ITEM a = group[k], b = group[k + width];                                         \
            group[k] = a + b;                                                                      \
            group[k + width] = a - b;                                                              \
        }

/* A Hadamard matrix times signs, over 4: the signs are any that stay the same. Rows that are not a
 * whole group stay as they are. */
void transform(uint first, uint step, uint count)
{
    if (count < 16) {
        for (uint k = 0; k < count; k++)
            store_item(pc.out_, first + k * step, load_item(pc.x, first + k * step));
        return;
    }
    ITEM group[16];
    [[unroll]] for (uint k = 0; k < 16; k++)
        group[k] = load_item(pc.x, first + k * step) * ((0x9d2cu >> k & 1u) != 0 ? -0.25 : 0.25);
    BUTTERFLIES(1)
    BUTTERFLIES(2)
    BUTTERFLIES(4)
    BUTTERFLIES(8)
    [[unroll]] for (uint k = 0; k < 16; k++)
        store_item(pc.out_, first + k * step, group[k]);
}

void main()
{
    const uint s = flat_index();
    if (s >= pc.strips)
        return;
    const uint across = DOWN ? pc.items : (pc.items + pc.strip - 1) / pc.strip;
    const uint row = DOWN ? s / across * pc.strip : s / across;
    const uint item = DOWN ? s % across : s % across * pc.strip;
    const uint count = min(pc.strip, DOWN ? pc.rows - row : pc.items - item);
    const uint first = row * pc.items + item, step = DOWN ? pc.items : 1;
    const uint cell =
        row / pc.block_rows * pc.cells + (DOWN ? item * ITEM_ELEMENTS : item / pc.block_items);
    if (TRANSFORMS) {
        transform(first, step, count);
        return;
    }
    BITS most = BITS(0);
    if (FINDS)
        most = most_of(first, step, count);
    if (!WRITES) {
        note(WHOLE ? 0 : cell, most);
        return;
    }
    if (!FINDS)
        most = noted(cell);
    for (uint k = 0; k < count; k++)
        store_item(pc.out_, first + k * step,
                   rounded_item(load_item(pc.x, first + k * step), most, first + k * step));
}
