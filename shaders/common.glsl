/* SPDX-License-Identifier: MIT
 *
 * What every training kernel shares: memory through raw device addresses, groups of four elements,
 * and flat indices. Included first, by every .comp file; macros that choose a build come from the
 * shader lists (training.cmake):
 *   VEC=1  every row starts at a multiple of 16 bytes and has a multiple of 4 elements
 *   VEC=0  any alignment and any size
 *   VIEWS=1  for CPU drivers with 64-bit integers: reads through texel views, which Mesa gathers
 *            without a branch, and writes 64 bits at a time, since it walks the lanes for every
 *            write; see matmul_subgroup.comp
 * All builds add in the same order, so they give the same bits.
 *
 * VIEW(n, t) declares the view of the tensor at pc.t as binding n; pc.t_first is its first texel.
 * FROM(t) is what the loads below take. Texels are four floats with VEC, else one.
 */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

#ifndef VEC
#define VEC 1
#endif
#ifndef VIEWS
#define VIEWS 0
#endif
#if VIEWS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
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

#if VIEWS
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Longs { u64vec2 at[]; };
#define SOURCE samplerBuffer view, uint first_
#define THIS view, first_
#define VIEW(n, t) layout(set = 0, binding = n) uniform samplerBuffer view_##t;
#define FROM(t) view_##t, pc.t##_first
#define TEXEL(i) texelFetch(view, int(first_ + (i)))
#define ONE(e) TEXEL(e).x
#define QUAD(i) TEXEL(i)
void set_quad(uvec2 base, uint i, vec4 v)
{
    Longs(base).at[i] = u64vec2(packUint2x32(floatBitsToUint(v.xy)),
                                packUint2x32(floatBitsToUint(v.zw)));
}
#else
#define SOURCE uvec2 base
#define THIS base
#define VIEW(n, t)
#define FROM(t) pc.t
#define ONE(e) Floats(base).at[e]
#define QUAD(i) Vec4s(base).at[i]
void set_quad(uvec2 base, uint i, vec4 v)
{
    Vec4s(base).at[i] = v;
}
#endif

/* Four elements from element e; with VEC, e is a multiple of 4. */
vec4 load4(SOURCE, uint e)
{
#if VEC
    return QUAD(e >> 2);
#else
    return vec4(ONE(e), ONE(e + 1), ONE(e + 2), ONE(e + 3));
#endif
}
void store4(uvec2 base, uint e, vec4 v)
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

bvec4 within(uint column, uint limit)
{
    return lessThan(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit));
}
/* Four elements of a row that starts at element `row` and has `limit` columns; `fill` beyond its end.
 * Never reads outside the row. */
vec4 load4_within(SOURCE, uint row, uint column, uint limit, float fill)
{
#if VIEWS && VEC
    vec4 v = QUAD((row + min(column, limit - 4)) >> 2);
#else
    uvec4 c = row + min(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit - 1));
    vec4 v = vec4(ONE(c.x), ONE(c.y), ONE(c.z), ONE(c.w));
#endif
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

/* From a tensor of single values, whose texels are always one float. */
float load1(SOURCE, uint e)
{
    return ONE(e);
}

/* One item of a flat kernel: four elements with VEC, else one. */
#if VEC
#define ITEM vec4
#define ITEM_ELEMENTS 4
#else
#define ITEM float
#define ITEM_ELEMENTS 1
#endif
ITEM load_item(uvec2 base, uint item)
{
#if VEC
    return Vec4s(base).at[item];
#else
    return Floats(base).at[item];
#endif
}
#if VIEWS
ITEM load_item(SOURCE, uint item)
{
#if VEC
    return QUAD(item);
#else
    return ONE(item);
#endif
}
#endif
void store_item(uvec2 base, uint item, ITEM v)
{
#if VEC
    set_quad(base, item, v);
#else
    Floats(base).at[item] = v;
#endif
}

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
