/* SPDX-License-Identifier: MIT
 *
 * Loads and stores of f32 elements, by address or through views; included by common.glsl. NAMED
 * adds a suffix to the names. half.glsl has the same functions for 16-bit elements.
 */

/* Four elements from element e; with VEC, e is a multiple of 4. */
vec4 NAMED(load4)(SOURCE, uint e)
{
#if VEC
    return QUAD(e >> 2);
#else
    return vec4(ONE(e), ONE(e + 1), ONE(e + 2), ONE(e + 3));
#endif
}
void NAMED(store4)(uvec2 base, uint e, vec4 v)
{
#if VEC
    set_quad(base, e >> 2, v);
#else
    Floats f = Floats(base);
    f.at[e] = v.x;
    f.at[e + 1] = v.y;
    f.at[e + 2] = v.z;
    f.at[e + 3] = v.w;
#endif
}

/* Four elements of a row that starts at element `row` and has `limit` columns. Elements beyond its
 * end are `fill`. Never reads outside the row. */
vec4 NAMED(load4_within)(SOURCE, uint row, uint column, uint limit, float fill)
{
#if VIEWS && VEC
    vec4 v = QUAD((row + min(column, limit - 4)) >> 2);
#else
    uvec4 c = row + min(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit - 1));
    vec4 v = vec4(ONE(c.x), ONE(c.y), ONE(c.z), ONE(c.w));
#endif
    return mix(vec4(fill), v, within(column, limit));
}
void NAMED(store4_within)(uvec2 base, uint row, uint column, uint limit, vec4 v)
{
    Floats f = Floats(base);
    if (column < limit)
        f.at[row + column] = v.x;
    if (column + 1 < limit)
        f.at[row + column + 1] = v.y;
    if (column + 2 < limit)
        f.at[row + column + 2] = v.z;
    if (column + 3 < limit)
        f.at[row + column + 3] = v.w;
}

/* Reads from a tensor of single values, whose texels are always one float. */
float NAMED(load1)(SOURCE, uint e)
{
    return ONE(e);
}

void NAMED(store1)(uvec2 base, uint e, float v)
{
    Floats(base).at[e] = v;
}

ITEM NAMED(load_item)(uvec2 base, uint item)
{
#if VEC
    return Vec4s(base).at[item];
#else
    return Floats(base).at[item];
#endif
}
#if VIEWS
ITEM NAMED(load_item)(SOURCE, uint item)
{
#if VEC
    return QUAD(item);
#else
    return ONE(item);
#endif
}
#endif
void NAMED(store_item)(uvec2 base, uint item, ITEM v)
{
#if VEC
    set_quad(base, item, v);
#else
    Floats(base).at[item] = v;
#endif
}
