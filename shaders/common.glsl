/* SPDX-License-Identifier: MIT
 *
 * What every training kernel shares: memory through raw device addresses, groups of four elements,
 * and flat indices. Included first, by every .comp file; macros that choose a build come from
 * the shader lists (training.cmake):
 *   VEC=1  every row starts at a multiple of 16 bytes and has a multiple of 4 elements
 *   VEC=0  any alignment and any size
 * Both builds add in the same order, so they give the same bits.
 */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

#ifndef VEC
#define VEC 1
#endif

/* Lanes of a workgroup. No kernel's result depends on it. */
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vec4s { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Uints { uint at[]; };

/* Workgroup number of a launch with rf_flat_groups(). */
uint flat_group()
{
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}
uint flat_index()
{
    return flat_group() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}

/* Four elements from element e; with VEC, e is a multiple of 4. */
vec4 load4(uvec2 base, uint e)
{
#if VEC
    return Vec4s(base).at[e >> 2];
#else
    Floats f = Floats(base);
    return vec4(f.at[e], f.at[e + 1], f.at[e + 2], f.at[e + 3]);
#endif
}
void store4(uvec2 base, uint e, vec4 v)
{
#if VEC
    Vec4s(base).at[e >> 2] = v;
#else
    Floats f = Floats(base);
    f.at[e] = v.x;
    f.at[e + 1] = v.y;
    f.at[e + 2] = v.z;
    f.at[e + 3] = v.w;
#endif
}

bvec4 within(uint column, uint limit)
{
    return lessThan(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit));
}
/* Four elements of a row that starts at element `row` and has `limit` columns; `fill` beyond its end.
 * Never reads outside the row. */
vec4 load4_within(uvec2 base, uint row, uint column, uint limit, float fill)
{
    Floats f = Floats(base);
    uvec4 c = min(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit - 1));
    vec4 v = vec4(f.at[row + c.x], f.at[row + c.y], f.at[row + c.z], f.at[row + c.w]);
    return mix(vec4(fill), v, within(column, limit));
}
void store4_within(uvec2 base, uint row, uint column, uint limit, vec4 v)
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

/* One item of a flat kernel: four elements with VEC, else one. */
#if VEC
#define ITEM vec4
#define ITEM_ELEMENTS 4
ITEM load_item(uvec2 base, uint item)
{
    return Vec4s(base).at[item];
}
void store_item(uvec2 base, uint item, ITEM v)
{
    Vec4s(base).at[item] = v;
}
#else
#define ITEM float
#define ITEM_ELEMENTS 1
ITEM load_item(uvec2 base, uint item)
{
    return Floats(base).at[item];
}
void store_item(uvec2 base, uint item, ITEM v)
{
    Floats(base).at[item] = v;
}
#endif

/* The order in which the four parts of a sum are joined. */
float join4(vec4 v)
{
    precise float s = (v.x + v.y) + (v.z + v.w);
    return s;
}
float max4(vec4 v)
{
    return max(max(v.x, v.y), max(v.z, v.w));
}
