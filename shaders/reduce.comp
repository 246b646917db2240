#version 450
/* SPDX-License-Identifier: MIT
 *
 * First level of a sum: one chunk of at most 1024 elements per lane, as 16 running sums that are
 * joined pairwise; a short chunk counts as filled up with zeros. With SQUARES the chunks come
 * from a table and squares are summed; else chunk i starts at element 1024 i.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uvec2 out_, x, table;
    uint chunks, count;
    uint x_first;
} pc;
VIEW(0, x)

const uint CHUNK = 1024;

#if SQUARES
#define TERM(v) ((v) * (v))
#else
#define TERM(v) (v)
#endif

void main()
{
    uint index = flat_index();
    uint chunk = min(index, pc.chunks - 1);
#if SQUARES
    uint first = Uints(pc.table).at[2 * chunk];
    uint count = min(Uints(pc.table).at[2 * chunk + 1], CHUNK);
    bool fits = first <= pc.count && count <= pc.count - first;
    count = fits ? count : 0; /* a table that points outside is refused by a result that is NaN */
#else
    uint first = chunk * CHUNK;
    uint count = min(CHUNK, pc.count - first);
    bool fits = true;
#endif
    uint whole = count & ~15u;
    precise vec4 sum[4];
    [[unroll]] for (uint k = 0; k < 4; k++)
        sum[k] = vec4(0.0);
    for (uint e = 0; e < whole; e += 16) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            vec4 v = load4(FROM(x), first + e + 4 * k);
            sum[k] += TERM(v);
        }
    }
    if (whole < count) {
        [[unroll]] for (uint k = 0; k < 4; k++) {
            vec4 v = load4_within(FROM(x), first, whole + 4 * k, count, 0.0);
            sum[k] += TERM(v);
        }
    }
    precise vec4 joined = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    float result = fits ? join4(joined) : uintBitsToFloat(0x7fc00000u);
    if (index < pc.chunks)
        Floats(pc.out_).at[chunk] = result;
}
