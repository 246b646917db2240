/* SPDX-License-Identifier: MIT
 *
 * The kinds of reductions: how elements become terms and how these are joined. A chunk has at most
 * CHUNK elements, of which element i goes to running value i % 16. Included by reduce.comp and
 * reduce_team.comp, after common.glsl.
 */
const uint CHUNK = 1024;

#if KIND == KIND_SQUARES
#include "squares.glsl"
#endif
#if KIND == KIND_SUM || KIND == KIND_SQUARES
#define START 0.0
#define JOIN(a, b) ((a) + (b))
#define FINISH(v) join4(v)
#else
#include "most.glsl"
#define START LEAST
#define JOIN(a, b) most(a, b)
#define FINISH(v) most4(v)
#endif

/* scale: factor before squaring; see squares.glsl. */
vec4 term(vec4 v, float scale)
{
#if KIND == KIND_SQUARES
    precise vec4 scaled = v * scale, square = scaled * scaled;
    return square;
#elif KIND == KIND_NONFINITE
    return mix(vec4(0.0), vec4(1.0),
               equal(floatBitsToUint(v) & 0x7f800000u, uvec4(0x7f800000u)));
#else
    return v;
#endif
}

/* The begin of a chunk, and its number of elements; false: it is not inside the buffer, and has
 * none. */
bool find_chunk(uint chunk, out uint first, out uint count)
{
#if KIND == KIND_SQUARES
    first = Uints(pc.table).at[2 * chunk];
    count = min(Uints(pc.table).at[2 * chunk + 1], CHUNK);
    bool fits = first <= pc.count && count <= pc.count - first;
    count = fits ? count : 0; /* a chunk outside the buffer gives NaN */
    return fits;
#else
    first = chunk * CHUNK;
    count = min(CHUNK, pc.count - first);
    return true;
#endif
}
