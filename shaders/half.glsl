/* SPDX-License-Identifier: MIT
 *
 * The functions of access.glsl for 16-bit elements, two in a word; included by common.glsl. VEC
 * builds access four at a time, at multiples of 8 bytes. Other builds may start at any element.
 */
#include "convert.glsl"
#include "words.glsl"

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
    return unpack2(load_bits(base, e)).x;
}
void store1(uvec2 base, uint e, float v)
{
    store_bits(base, e, pack2(vec2(v, 0.0)));
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
#if VIEWS && VEC
/* Through a view with texels of two floats, whose bits are four elements. */
vec4 load_item(SOURCE, uint item)
{
    uvec2 words = floatBitsToUint(TEXEL(item).xy);
    return vec4(unpack2(words.x), unpack2(words.y));
}
#endif
void store_item(uvec2 base, uint item, ITEM v)
{
#if VEC
    store_quad(base, item, v);
#else
    store1(base, item, v);
#endif
}
