#version 450
/* SPDX-License-Identifier: MIT
 *
 * Copies the keys and values of new tokens into a cache (sequences, length, key heads, size). With
 * ROTATE the queries, in place, and the keys are rotated first: pair (i, i + D/2) by the cosine and
 * sine at i and i + D/2 in row `position` of a table. An item is PAIRS pairs of one head.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint ROTATE = 0;
const uint PAIRS = VEC != 0 ? 4 : 1;

#include "push/cache_append.h"

void main()
{
    uint item = flat_index(), across = pc.size / 2 / PAIRS, half_size = pc.size / 2;
    if (item >= pc.items)
        return;
    uint copied = 2 * pc.key_heads, heads = ROTATE != 0 ? pc.heads + copied : copied;
    uint pair = item % across * PAIRS, line = item / across;
    uint row = line / heads, head = line % heads + (ROTATE != 0 ? 0 : pc.heads);
    uint sequence = min(Uints(pc.sequence).at[row], pc.sequences - 1);
    uint position = min(Uints(pc.position).at[row], pc.cached - 1);
    uint from = row * pc.columns + head * pc.size + pair;
#if VEC
    vec4 a = load4(pc.qkv, from), b = load4(pc.qkv, from + half_size);
#else
    float a = load1(pc.qkv, from), b = load1(pc.qkv, from + half_size);
#endif
    if (ROTATE != 0 && head < pc.heads + pc.key_heads) {
        uint at = position * pc.size + pair;
#if VEC
        vec4 c = load4_f32(pc.angles, at), s = load4_f32(pc.angles, at + half_size);
        precise vec4 first = a * c - b * s, second = b * c + a * s;
#else
        float c = load1_f32(pc.angles, at), s = load1_f32(pc.angles, at + half_size);
        precise float first = a * c - b * s, second = b * c + a * s;
#endif
        a = first;
        b = second;
    }
    bool query = head < pc.heads, value = head >= pc.heads + pc.key_heads;
    uint key = (head - pc.heads) % pc.key_heads;
    uint slot = ((sequence * pc.cached + position) * pc.key_heads + key) * pc.size + pair;
    uvec2 base = query ? pc.qkv : value ? pc.values : pc.keys;
    uint to = query ? from : slot;
#if VEC
    store4(base, to, a);
    store4(base, to + half_size, b);
#else
    store1(base, to, a);
    store1(base, to + half_size, b);
#endif
}
