/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by all training kernels: memory access by device addresses, groups of four
 * elements, and flat indices. Every .comp file includes it first. The shader lists (training.cmake)
 * set the macros that select a build:
 *   VEC=1  every row starts at a multiple of 16 bytes and has a multiple of 4 elements
 *   VEC=0  any alignment and any size
 *   VIEWS=1  for CPU drivers with 64-bit integers: reads through texel views, which Mesa gathers
 *            without a branch, and writes 64 bits at a time, because it handles the lanes one by
 *            one for every write; see matmul_subgroup.comp
 *   TYPE=TYPE_F32, TYPE_F16 or TYPE_BF16  the type of the build's tensors; 16-bit elements are
 *            packed in words (half.glsl), so every device can use them. Arithmetic is f32. Rows of
 *            VEC builds then start at multiples of 8 bytes.
 *   WIDE=1  VIEWS, and writes by whole subgroups, each of which is a workgroup; see below
 * All builds add in the same order, so they give the same bits.
 *
 * load4, store4, load_item and so on are for tensors of the build's type; load4_f32 and so on for
 * tensors that are f32 in every build (statistics, scratch).
 *
 * VIEW(n, t) declares the view of the tensor at pc.t as binding n; pc.t_first is its first texel.
 * FROM(t) is the argument of the loads below. Texels are four floats with VEC, otherwise one.
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
#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_BF16 2
#ifndef TYPE
#define TYPE TYPE_F32
#endif
#ifndef WIDE
#define WIDE 0
#endif
#if VIEWS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#if WIDE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

/* Invocations of a workgroup. No kernel's result depends on it. */
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Vec4s { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Uints { uint at[]; };

/* The address to read for a tensor that may be absent (address 0): the tensor, or another one, from
 * the word in which that one begins. A branch around the read is not enough: Mesa 26's CPU driver
 * reads first and selects afterwards. */
uvec2 readable(uvec2 address, uvec2 other)
{
    return address == uvec2(0) ? uvec2(other.x & ~3u, other.y) : address;
}

/* The workgroup's index in a launch with rf_flat_groups(). */
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

#if WIDE
/* Mesa's CPU driver processes the lanes one by one for every value that is written to an address
 * (22.3: 30 cycles each). But it writes one value for all lanes at once to an element of a storage
 * buffer whose index is known to be uniform. So each lane writes the values of all lanes. The
 * driver recognizes sums of constants and push constants as uniform, and elements of an array,
 * because Vulkan demands that its index be uniform. Therefore the workgroup's index is composed of
 * digits from such an array, and nothing is written within a branch or a loop. On other drivers
 * this is correct, too, but slower. DIGITS is the last member of Push; src/ops/pick.c fills it and
 * counts the workgroups. */
#define DIGITS uint digit[4];
#define DIGITS_OR_2(a, b) DIGITS
#define DIGIT(g, i) (pc.digit[(g) >> (2 * i) & 3u] << (2 * i))
#define UNIFORM_GROUP(g)                                                                           \
    (DIGIT(g, 0) | DIGIT(g, 1) | DIGIT(g, 2) | DIGIT(g, 3) | DIGIT(g, 4) | DIGIT(g, 5) |           \
     DIGIT(g, 6) | DIGIT(g, 7))
#define WRITTEN_AS(type, n, t)                                                                     \
    layout(set = 0, binding = 6 + n, std430) writeonly buffer Written_##t                          \
    {                                                                                              \
        type at[];                                                                                 \
    }                                                                                              \
    written_##t;
#define WRITTEN(n, t) WRITTEN_AS(vec4, n, t)
#define WRITTEN_PAIRS(n, t) WRITTEN_AS(uvec2, n, t)
#define WRITTEN_FLOATS(n, t) WRITTEN_AS(float, n, t)
/* Writes quads first, first + stride, ... of t: v of each lane. */
#define PUT(t, first, stride, v)                                                                   \
    [[unroll]] for (uint l_ = 0; l_ < gl_WorkGroupSize.x; l_++)                                    \
        written_##t.at[(first) + l_ * (stride)] =                                                  \
            vec4(subgroupShuffle((v).x, l_), subgroupShuffle((v).y, l_),                           \
                 subgroupShuffle((v).z, l_), subgroupShuffle((v).w, l_));
/* The same for quads of 16-bit elements. */
#define PUT_PAIRS(t, first, stride, words)                                                         \
    [[unroll]] for (uint l_ = 0; l_ < gl_WorkGroupSize.x; l_++)                                    \
        written_##t.at[(first) + l_ * (stride)] =                                                  \
            uvec2(subgroupShuffle((words).x, l_), subgroupShuffle((words).y, l_));
/* Writes floats of a row from element `row`, columns first, ..., four of each lane. Lanes after the
 * row's end write to its last quad (VEC) or float, and must write the value that belongs there. */
#if VEC
#define WITHIN_ROW(column, c, columns) min(column, (columns)-4) + (c)
#else
#define WITHIN_ROW(column, c, columns) min((column) + (c), (columns)-1)
#endif
#define PUT_FLOATS(t, row, first, columns, v)                                                      \
    [[unroll]] for (uint l_ = 0; l_ < gl_WorkGroupSize.x; l_++)                                    \
        [[unroll]] for (uint c_ = 0; c_ < 4; c_++)                                                 \
            written_##t.at[(row) + WITHIN_ROW((first) + 4 * l_, c_, columns)] =                    \
                subgroupShuffle((v)[c_], l_);
#else
#define DIGITS
#define DIGITS_OR_2(a, b) word64 a, b;
#define WRITTEN(n, t)
#define WRITTEN_FLOATS(n, t)
#endif

bvec4 within(uint column, uint limit)
{
    return lessThan(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(limit));
}
/* One item of a flat kernel: four elements with VEC, otherwise one. LESS: for mix(). */
#if VEC
#define ITEM vec4
#define ITEM_ELEMENTS 4
#define LESS(a, b) lessThan(a, ITEM(b))
#else
#define ITEM float
#define ITEM_ELEMENTS 1
#define LESS(a, b) ((a) < (b))
#endif
#if TYPE == TYPE_F32
#define NAMED(name) name
#include "access.glsl"
#define load4_f32 load4
#define store4_f32 store4
#define load4_within_f32 load4_within
#define store4_within_f32 store4_within
#define load1_f32 load1
#define store1_f32 store1
#define load_item_f32 load_item
#define store_item_f32 store_item
#else
#define NAMED(name) name##_f32
#include "access.glsl"
#include "half.glsl"
#endif

/* The values after a store in the build's type. */
vec4 rounded(vec4 v)
{
#if TYPE == TYPE_F32
    return v;
#else
    return vec4(unpack2(pack2(v.xy)), unpack2(pack2(v.zw)));
#endif
}

/* Adds the four parts of a sum in a fixed order. */
float join4(vec4 v)
{
    precise float s = (v.x + v.y) + (v.z + v.w);
    return s;
}
float max4(vec4 v)
{
    return max(max(v.x, v.y), max(v.z, v.w));
}
