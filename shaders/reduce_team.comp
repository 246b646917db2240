#version 450
/* SPDX-License-Identifier: MIT
 *
 * reduce.comp for GPUs, with the same bits: each of four adjacent lanes has four of a chunk's 16
 * running values, so the four read 16 adjacent elements at a time. A chunk that starts on a whole
 * quad of an aligned buffer is read by quads.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#include "push/reduce.h"
#include "reduce.glsl"

const uint LANES = 128; /* RF_TEAM_LANES */
/* The number of quads that a lane reads before it adds them. Fewer for single elements: each is a
 * load of its own, and SwiftShader's compiler needs time and memory quadratic in their number. */
const uint QUADS_AT_ONCE = 8;
const uint SINGLES_AT_ONCE = 2;

shared vec4 parts[LANES];

#if TYPE == TYPE_F32
#define QUAD_BYTES 16
#define LOAD_QUAD(e) Vec4s(pc.x).at[(e) >> 2]
#else
#define QUAD_BYTES 8
#define LOAD_QUAD(e) load_quad(pc.x, (e) >> 2)
#endif
#define LOAD_SINGLES(e) load4(pc.x, e)

/* The lane's four running values over the chunk's whole blocks of 16 elements. */
#define JOIN_BLOCKS(name, LOAD, AT_ONCE)                                                           \
    vec4 name(uint first, uint whole, float scale)                                                 \
    {                                                                                              \
        precise vec4 part = vec4(START);                                                           \
        for (uint e = 4 * (gl_LocalInvocationID.x % 4); e < whole; e += 16 * AT_ONCE) {            \
            vec4 v[AT_ONCE];                                                                       \
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++)                                          \
                v[k] = LOAD(first + (e + 16 * k < whole ? e + 16 * k : e));                        \
            [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {                                        \
                precise vec4 next = JOIN(part, term(v[k], scale));                                 \
                part = e + 16 * k < whole ? next : part;                                           \
            }                                                                                      \
        }                                                                                          \
        return part;                                                                               \
    }
JOIN_BLOCKS(join_quads, LOAD_QUAD, QUADS_AT_ONCE)
JOIN_BLOCKS(join_singles, LOAD_SINGLES, SINGLES_AT_ONCE)

vec4 lane_terms(uint first, uint count, float scale)
{
    uint whole = count & ~15u, column = whole + 4 * (gl_LocalInvocationID.x % 4);
    bool aligned = pc.x.x % QUAD_BYTES == 0 && first % 4 == 0;
    precise vec4 part;
    if (aligned)
        part = join_quads(first, whole, scale);
    else
        part = join_singles(first, whole, scale);
    if (whole < count) {
        vec4 v = load4_within(pc.x, first, column, count, 0.0);
        v = mix(vec4(START), term(v, scale), within(column, count));
        part = JOIN(part, v);
    }
    return part;
}

/* The sum of the chunk, for all of its lanes. */
float joined(vec4 part)
{
    uint lane = gl_LocalInvocationID.x, first = lane & ~3u;
    parts[lane] = part;
    barrier();
    precise vec4 sum =
        JOIN(JOIN(parts[first], parts[first + 1]), JOIN(parts[first + 2], parts[first + 3]));
    barrier();
    return FINISH(sum);
}

void main()
{
    uint index = flat_index() / 4;
    uint chunk = min(index, pc.chunks - 1);
    uint first, count;
    bool fits = find_chunk(chunk, first, count);
    vec4 part = lane_terms(first, count, 1.0);
    float result = joined(part);
#if KIND == KIND_SQUARES
    bool again = !is_finite(result);
    if (again)
        part = lane_terms(first, count, SHRINK);
    float small = joined(part);
    result = again && is_finite(small) ? -small : result;
#endif
    result = fits ? result : uintBitsToFloat(0x7fc00000u);
    if (index < pc.chunks && gl_LocalInvocationID.x % 4 == 0)
        Floats(pc.out_).at[chunk] = result;
}
