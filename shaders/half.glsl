/* SPDX-License-Identifier: MIT
 *
 * What access.glsl does for f32, for elements of 16 bits, two in a word; included by common.glsl.
 * VEC builds move four at a time, from multiples of 8 bytes. Others may start at any element: a word
 * at an end then belongs to two writers, so single elements are put in by atomics that leave the
 * other half alone.
 */
#include "convert.glsl"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };

vec4 load_quad(uvec2 base, uint i)
{
    uvec2 words = Pairs(base).at[i];
    return vec4(unpack2(words.x), unpack2(words.y));
}
void store_quad(uvec2 base, uint i, vec4 v)
{
    Pairs(base).at[i] = uvec2(pack2(v.xy), pack2(v.zw));
}

float load1(uvec2 base, uint e)
{
    uint at = e + ((base.x >> 1) & 1u);
    uint word = Uints(uvec2(base.x & ~3u, base.y)).at[at >> 1];
    return unpack2((at & 1u) != 0 ? word >> 16 : word & 0xffffu).x;
}
void store1(uvec2 base, uint e, float v)
{
    uint at = e + ((base.x >> 1) & 1u), shift = 16 * (at & 1u);
    Uints words = Uints(uvec2(base.x & ~3u, base.y));
    uint bits = pack2(vec2(v, 0.0)) & 0xffffu;
    atomicAnd(words.at[at >> 1], ~(0xffffu << shift));
    atomicOr(words.at[at >> 1], bits << shift);
}

vec4 load4(uvec2 base, uint e)
{
#if VEC
    return load_quad(base, e >> 2);
#else
    return vec4(load1(base, e), load1(base, e + 1), load1(base, e + 2), load1(base, e + 3));
#endif
}
void store4(uvec2 base, uint e, vec4 v)
{
#if VEC
    store_quad(base, e >> 2, v);
#else
    store1(base, e, v.x);
    store1(base, e + 1, v.y);
    store1(base, e + 2, v.z);
    store1(base, e + 3, v.w);
#endif
}

vec4 load4_within(uvec2 base, uint row, uint column, uint limit, float fill)
{
    uvec4 c = row + min(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit - 1));
    vec4 v = vec4(load1(base, c.x), load1(base, c.y), load1(base, c.z), load1(base, c.w));
    return mix(vec4(fill), v, within(column, limit));
}
void store4_within(uvec2 base, uint row, uint column, uint limit, vec4 v)
{
    if (column < limit)
        store1(base, row + column, v.x);
    if (column + 1 < limit)
        store1(base, row + column + 1, v.y);
    if (column + 2 < limit)
        store1(base, row + column + 2, v.z);
    if (column + 3 < limit)
        store1(base, row + column + 3, v.w);
}

ITEM load_item(uvec2 base, uint item)
{
#if VEC
    return load_quad(base, item);
#else
    return load1(base, item);
#endif
}
void store_item(uvec2 base, uint item, ITEM v)
{
#if VEC
    store_quad(base, item, v);
#else
    store1(base, item, v);
#endif
}
