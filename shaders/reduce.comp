#version 450
/* SPDX-License-Identifier: MIT
 *
 * First level of a reduction: one chunk of at most 1024 elements per invocation, as 16 running
 * values that are joined pairwise. A short chunk is padded with neutral elements. With KIND_SQUARES
 * the chunks come from a table, and a chunk whose sum f32 cannot represent is summed again
 * (squares.glsl). Otherwise chunk i starts at element 1024 i. KIND_MAX: NaN if any element is NaN.
 * KIND_NONFINITE: 1 if any element is infinite or NaN, otherwise 0.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#include "push/reduce.h"
VIEW(0, x)

#include "reduce.glsl"

float joined_terms(uint first, uint count, float scale)
{
    uint whole = count & ~15u;
    precise vec4 part[4];
    [[unroll]] for (uint k = 0; k < 4; k++)
        part[k] = vec4(START);
    for (uint e = 0; e < whole; e += 16) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            vec4 v = load4(FROM(x), first + e + 4 * k);
            part[k] = JOIN(part[k], term(v, scale));
        }
    }
    if (whole < count) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            vec4 v = load4_within(FROM(x), first, whole + 4 * k, count, 0.0);
            v = mix(vec4(START), term(v, scale), within(whole + 4 * k, count));
            part[k] = JOIN(part[k], v);
        }
    }
    precise vec4 joined = JOIN(JOIN(part[0], part[1]), JOIN(part[2], part[3]));
    return FINISH(joined);
}

void main()
{
    uint index = flat_index();
    uint chunk = min(index, pc.chunks - 1);
    uint first, count;
    bool fits = find_chunk(chunk, first, count);
    float result = joined_terms(first, count, 1.0);
#if KIND == KIND_SQUARES
    if (!is_finite(result)) {
        float small = joined_terms(first, count, SHRINK);
        result = is_finite(small) ? -small : result;
    }
#endif
    result = fits ? result : uintBitsToFloat(0x7fc00000u);
    if (index < pc.chunks)
        Floats(pc.out_).at[chunk] = result;
}
