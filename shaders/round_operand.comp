#version 450
/* SPDX-License-Identifier: MIT
 *
 * Rounds a matrix to numbers of a small format (small_float.h), each block of it with a scale of
 * its own: out = code * scale, which every type can hold. A lane has a strip: of a row, or with
 * DOWN of a column. FINDS: takes the largest magnitudes of blocks, into pc.most, which begins as 0.
 * WRITES: writes the numbers, by pc.most. Both: blocks are single strips, and pc.most is not used.
 * A block with a number that is not finite becomes NaN.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "small_float.h"
#include "push/round_operand.h"

layout(constant_id = 1) const uint FORMAT = 0;
layout(constant_id = 2) const bool DOWN = false;
layout(constant_id = 3) const bool FINDS = true;
layout(constant_id = 4) const bool WRITES = true;

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

float rounded_one(float x, uint most)
{
    const small_float f = row_of_format();
    const uint scale = small_float_scale(f, most);
    /* The exponents of a power of two and of its inverse add up to 254. */
    const float inverse = uintBitsToFloat((254u << 23) - scale);
    precise const float part = x * inverse;
    const uint code = small_float_code(f, floatBitsToUint(part), ROUND_NEAREST, true, 0u);
    precise const float value =
        uintBitsToFloat(small_float_value(f, code)) * uintBitsToFloat(scale);
    return most > 0x7f7fffffu ? uintBitsToFloat(0x7fc00000u) : value;
}

ITEM rounded_item(ITEM x, BITS most)
{
#if VEC
    return ITEM(rounded_one(x.x, most.x), rounded_one(x.y, most.y), rounded_one(x.z, most.z),
                rounded_one(x.w, most.w));
#else
    return rounded_one(x, most);
#endif
}

/* The largest magnitudes of a strip, as bits, whose order is that of the magnitudes. */
BITS most_of(uint first, uint step, uint count)
{
    BITS most = BITS(0);
    for (uint k = 0; k < count; k++)
        most = max(most, floatBitsToUint(load_item(pc.x, first + k * step)) & 0x7fffffffu);
#if VEC
    if (!DOWN)
        most = BITS(max(max(most.x, most.y), max(most.z, most.w)));
#endif
    return most;
}

void note(uint cell, BITS most)
{
#if VEC
    atomicMax(Uints(pc.most).at[cell], most.x);
    if (DOWN) {
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
    BITS most = BITS(0);
    if (FINDS)
        most = most_of(first, step, count);
    if (!WRITES) {
        note(cell, most);
        return;
    }
    if (!FINDS)
        most = noted(cell);
    for (uint k = 0; k < count; k++)
        store_item(pc.out_, first + k * step,
                   rounded_item(load_item(pc.x, first + k * step), most));
}
