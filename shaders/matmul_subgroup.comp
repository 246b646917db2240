// SPDX-License-Identifier: MIT
//
// out (M,N) = A B, one tile of 32 rows (LOW: of 8) by 8*LANES columns per subgroup, for CPU
// drivers: without shared memory and barriers. An invocation holds 8 columns of B. Values of A are
// distributed by subgroupShuffle with a constant index. Mesa's CPU driver processes the lanes one
// by one for every element that is read or written through an address, so with LONGS this is done
// in 64-bit halves of a quad. It gathers texels without a branch, so with VIEWS (and LONGS) f32
// operands are read through texel views. TRANS_A: a is (K,M). TRANS_B: b is (N,K). QUANTIZED: b is
// in 8 bits, or with QUANTIZED_NF4 in 4 (quantized.glsl), read by address; its rows consist of
// whole blocks.
//
// Every index is clamped into its tensor, so tiles at the edges need no special code. Elements that
// are computed twice there are not stored twice.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef LONGS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;        // the subgroup size, equal to constant 0
layout(constant_id = 2) const bool A_WIDE = true;    // a's rows consist of whole 16-byte quads
layout(constant_id = 3) const bool B_WIDE = true;    // b's, too
layout(constant_id = 4) const bool OUT_WIDE = true;  // and those of out and tensors with its layout
layout(constant_id = 5) const bool RAGGED = false;   // K is not a multiple of 4 * STEP
layout(constant_id = 6) const uint OPERAND_TYPE = 0; // see matmul.glsl
layout(constant_id = 7) const uint RESULT_TYPE = 0;
layout(constant_id = 8) const bool ACTIVATES = true; // see matmul_epilogue.glsl
#ifdef LONGS
layout(constant_id = 9) const uint STEP = 2;         // quads of k per round: 1 or 2
#define SECOND_QUAD(adds)                                                                          \
    if (STEP > 1) {                                                                                \
        adds                                                                                       \
    }
#else
// Not a specialization constant: SwiftShader without 64-bit integers needs six times as long to
// compile a branch that is never taken.
const uint STEP = 1;
#define SECOND_QUAD(adds)
#endif

#ifdef LOW /* a quarter of the instructions: the compiler takes longer than small products */
const uint ROWS = 8;
#define EACH_ROW ROW4(0) ROW4(4)
#else
const uint ROWS = 32;
#define EACH_ROW ROW16(0) ROW16(16)
#endif
#ifdef TRANS_B
const bool B_ALONG_K = true;
#else
const bool B_ALONG_K = false;
#endif
const uint QUADS = 2;  // of columns, per lane
const uint PICKED = 2; // rows at a time when storing
#ifdef TRANS_A
const uint A_ROWS = (ROWS + 4 * LANES - 1) / (4 * LANES); // quads of rows per lane
const uint A_COUNT = 4 * STEP * A_ROWS;
#else
const uint A_ROWS = (ROWS + LANES - 1) / LANES; // rows per lane
const uint A_COUNT = STEP * A_ROWS;
#endif

#define FINISHED (PICKED * QUADS)
#include "matmul.glsl"
#include "matmul_epilogue.glsl"

#ifdef QUANTIZED
#define LEVELS LANES
#include "quantized.glsl"
// A factor for each row of b of a round, if rows are along the lanes; else for each column.
#ifdef TRANS_B
float scales[4 * QUADS];
#define SCALE(q, row, c) scales[4 * (q) + (c)]
#elif defined(QUANTIZED_FP4) // blocks are shorter than the columns of a subgroup
float scales[4 * STEP * QUADS];
#define SCALE(q, row, c) scales[(row) * QUADS + (q)]
#else
float scales[QUADS];
#define SCALE(q, row, c) subgroupShuffle(scales[q], row)
#endif
// The words of a round. Along k it begins at an even quad if it has two; otherwise lane l has word l
// of the tile's columns in each row of b.
#if defined(TRANS_B) && defined(NIBBLES)
uint packed_words[4 * QUADS];
#define LOAD_B(q, row, c, quad, at)                                                                \
    (unscaled_half(packed_words[4 * (q) + (c)], quad) * SCALE(q, row, c))
#elif defined(NIBBLES)
uint packed_words[4 * STEP];
#define LOAD_B(q, row, c, quad, at)                                                                \
    (unscaled_half(subgroupShuffle(packed_words[row], (q) * LANES / 2 + lane / 2), lane) *         \
     SCALE(q, row, c))
#else
#define LOAD_B(q, row, c, quad, at) (unscaled_quad(quad) * SCALE(q, row, c))
#endif
#else
#define LOAD_B(q, row, c, quad, at) LOAD(b, B_WIDE, quad, at)
#endif

#ifdef VIEWS
layout(set = 0, binding = 0) uniform samplerBuffer view_a;
layout(set = 0, binding = 1) uniform samplerBuffer view_b;
#define LOAD(t, wide, quad, at) texels(view_##t, pc.t##_first, wide, quad, at)
#else
#define LOAD(t, wide, quad, at) load_four(pc.t, OPERAND_TYPE, wide, quad, at)
#endif

// Unrolled by hand, because Mesa does not unroll loops of this size.
#ifdef TRANS_A
#define SPREAD(m, i) subgroupShuffle(a[i * A_ROWS + m / (4 * LANES)][m % 4], m % (4 * LANES) / 4)
#else
#define SPREAD(m, i) subgroupShuffle(a[i / 4 * A_ROWS + m / LANES][i % 4], m % LANES)
#endif
#define ADD(m, i)                                                                                  \
    {                                                                                              \
        const vec4 x = vec4(SPREAD((m), i));                                                       \
        sum[m][0] = fma(x, b[i][0], sum[m][0]);                                                    \
        sum[m][1] = fma(x, b[i][1], sum[m][1]);                                                    \
    }
#define ROW(m)                                                                                     \
    ADD(m, 0) ADD(m, 1) ADD(m, 2) ADD(m, 3)                                                        \
    SECOND_QUAD(ADD(m, 4) ADD(m, 5) ADD(m, 6) ADD(m, 7))
#define ROW4(m) ROW(m) ROW(m + 1) ROW(m + 2) ROW(m + 3)
#define ROW16(m) ROW4(m) ROW4(m + 4) ROW4(m + 8) ROW4(m + 12)

void main()
{
    const uint lane = gl_SubgroupInvocationID;
    const uint tile = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    const uvec2 place = tile_place(tile);
    const uint row0 = place.x * ROWS;
    const uint column0 = place.y * (4 * QUADS * LANES) + lane * 4;
    const uint step = 4 * LANES; // from one quad of columns of an invocation to its next

    const uint K = part_of_k(), a_row = pc.a_row, b_row = B_ROW(B_ALONG_K);
#ifdef QUANTIZED
    fill_tables(lane, LANES);
    subgroupBarrier();
#endif
    const uint a_start = gl_WorkGroupID.z * A_STEP;
    const uint b_start = gl_WorkGroupID.z * B_STEP(B_ALONG_K);

    // The offsets of an invocation's values, without the part that k adds.
    uint a_quad[A_ROWS], b_quad[4 * QUADS];
#if defined(QUANTIZED) && defined(TRANS_B)
    uint before[4 * QUADS];
#endif
    uvec4 a_at[A_ROWS], b_at[QUADS];
    [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
#ifdef TRANS_A
        uint row = row0 + (r * LANES + lane) * 4;
        a_quad[r] = a_start / 4 + min(row / 4, pc.M / 4 - 1);
        a_at[r] = a_start + four(row, pc.M - 1);
#else
        uint row = min(row0 + r * LANES + lane, pc.M - 1);
        a_quad[r] = (a_start + row * a_row) / (A_WIDE ? 4 : 1);
#endif
    }
    [[unroll]] for (uint q = 0; q < QUADS; q++) {
        uint column = column0 + q * step;
#ifdef TRANS_B
#ifdef QUANTIZED
        [[unroll]] for (uint c = 0; c < 4; c++)
            before[4 * q + c] = blocks_before(min(column + c, pc.N - 1));
#endif
        [[unroll]] for (uint c = 0; c < 4; c++)
            b_quad[4 * q + c] = (b_start + min(column + c, pc.N - 1) * b_row) / (B_WIDE ? 4 : 1);
#else
        b_quad[q] = b_start / 4 + min(column / 4, pc.N / 4 - 1);
        b_at[q] = b_start + four(column, pc.N - 1);
#endif
    }

    vec4 sum[ROWS][QUADS];
    [[unroll]] for (uint m = 0; m < ROWS; m++)
        [[unroll]] for (uint q = 0; q < QUADS; q++)
            sum[m][q] = vec4(0);

    for (uint k0 = 0; k0 < K; k0 += 4 * STEP) {
        vec4 a[A_COUNT], b[4 * STEP][QUADS];
#ifdef QUANTIZED
#ifdef TRANS_B
#ifdef NIBBLES
        [[unroll]] for (uint c = 0; c < 4 * QUADS; c++)
            packed_words[c] = PACKED.at[(b_quad[c] + k0 / 4) / 2];
#endif
        if (k0 % EVERY == 0)
            [[unroll]] for (uint c = 0; c < 4 * QUADS; c++)
                scales[c] = scale_of(b_quad[c] + k0 / 4, before[c]);
#else
        // All lanes have the same block of a row of b; each finds the factor of another row.
        const uint row = min(k0 + lane % (4 * STEP), K - 1);
#ifdef NIBBLES
        [[unroll]] for (uint i = 0; i < 4 * STEP; i++)
            packed_words[i] =
                PACKED.at[(b_start + (RAGGED ? min(k0 + i, K - 1) : k0 + i) * b_row) / 8 +
                          min(place.y * LANES + lane, pc.N / 8 - 1)];
#endif
        const uint part = gl_WorkGroupID.z * pc.part;
#ifdef QUANTIZED_FP4
        [[unroll]] for (uint i = 0; i < 4 * STEP; i++)
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                const uint kk = RAGGED ? min(k0 + i, K - 1) : k0 + i;
                scales[i * QUADS + q] =
                    scale_of(kk * (b_row / 4) + b_quad[q], blocks_before(kk + part));
            }
#else
        [[unroll]] for (uint q = 0; q < QUADS; q++)
            scales[q] = scale_of(row * (b_row / 4) + b_quad[q], blocks_before(row + part));
#endif
#endif
#endif
        [[unroll]] for (uint s = 0; s < STEP; s++) {
            // After the end of K, a is zero, and reads are clamped to the tensor.
            const uint k = k0 + 4 * s, quad = RAGGED ? min(k / 4, max(K / 4, 1) - 1) : k / 4;
            const uvec4 along = four(k, K - 1);
            const bvec4 inside = lessThan(uvec4(k, k + 1, k + 2, k + 3), uvec4(K));
#ifdef TRANS_A
            [[unroll]] for (uint i = 0; i < 4; i++)
                [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
                    uint kk = RAGGED ? along[i] : k + i;
                    vec4 x = LOAD(a, A_WIDE, kk * (a_row / 4) + a_quad[r], kk * a_row + a_at[r]);
                    a[(4 * s + i) * A_ROWS + r] = RAGGED && !inside[i] ? vec4(0) : x;
                }
#else
            [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
                vec4 x = LOAD(a, A_WIDE, a_quad[r] + quad, a_quad[r] + along);
                a[s * A_ROWS + r] = RAGGED ? mix(vec4(0), x, inside) : x;
            }
#endif
#ifdef TRANS_B
            [[unroll]] for (uint q = 0; q < QUADS; q++)
                [[unroll]] for (uint c = 0; c < 4; c++) {
                    vec4 x = LOAD_B(q, 0, c, b_quad[4 * q + c] + quad, b_quad[4 * q + c] + along);
                    [[unroll]] for (uint i = 0; i < 4; i++)
                        b[4 * s + i][q][c] = x[i];
                }
#else
            [[unroll]] for (uint i = 0; i < 4; i++)
                [[unroll]] for (uint q = 0; q < QUADS; q++) {
                    uint kk = RAGGED ? along[i] : k + i;
                    b[4 * s + i][q] =
                        LOAD_B(q, 4 * s + i, 0, kk * (b_row / 4) + b_quad[q], kk * b_row + b_at[q]);
                }
#endif
        }
        // Row by row, so that the sums of a row are loaded and stored once per round.
        EACH_ROW
    }

    vec4 bias[FINISHED];
    [[unroll]] for (uint q = 0; q < QUADS; q++) {
        bias[q] = load_bias(column0 + q * step);
        [[unroll]] for (uint r = 1; r < PICKED; r++)
            bias[r * QUADS + q] = bias[q];
    }

    // Rolled, with sums selected by comparison, because an indexed array costs the CPU driver's
    // compiler a second.
    const bool mine = tile < pc.tiles_m * pc.tiles_n;
    const uint groups = mine ? (min(ROWS, pc.M - row0) + PICKED - 1) / PICKED : 0;
    for (uint group = 0; group < groups; group++) {
        vec4 x[FINISHED];
        Place at[FINISHED];
        [[unroll]] for (uint r = 0; r < PICKED; r++)
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                const uint i = r * QUADS + q;
                x[i] = sum[r][q];
                [[unroll]] for (uint g = 1; g < ROWS / PICKED; g++)
                    x[i] = mix(x[i], sum[g * PICKED + r][q], bvec4(group == g));
                at[i] = Place(row0 + group * PICKED + r, column0 + q * step);
            }
        finish(x, bias, at);
    }
}
