// SPDX-License-Identifier: MIT
//
// out (M,N) = A B by tiles in shared memory and in registers, for GPUs; correct on every device. A
// workgroup computes TILE_M x TILE_N elements, an invocation SHARE_M x SHARE_N of them. The next
// slices of A and B are read into registers while the current ones are multiplied. TRANS_A: a is
// (K,M). TRANS_B: b is (N,K). Indices are clamped into the tensors; elements past K count as zero.
// QUANTIZED: b is in 8 bits, or with QUANTIZED_NF4 in 4 (quantized.glsl).
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require

layout(local_size_x_id = 0) in; // TILE_M / SHARE_M * TILE_N / SHARE_N
layout(constant_id = 1) const uint TILE_M = 64;
layout(constant_id = 2) const uint TILE_N = 64;
layout(constant_id = 3) const uint SHARE_M = 4; // multiples of 4
layout(constant_id = 4) const uint SHARE_N = 4;
layout(constant_id = 5) const bool A_WIDE = true; // a's rows consist of whole quads
layout(constant_id = 6) const bool B_WIDE = true;
layout(constant_id = 7) const bool OUT_WIDE = true;  // those of out and of tensors with its layout
layout(constant_id = 8) const uint OPERAND_TYPE = 0; // see matmul.glsl
layout(constant_id = 9) const uint RESULT_TYPE = 0;
layout(constant_id = 10) const bool ACTIVATES = true; // see matmul_epilogue.glsl
layout(constant_id = 11) const uint UNROLL = 1;       // k of a round of the inner loop; divides DEPTH

#define FINISHED 1
#include "matmul.glsl"
#include "matmul_epilogue.glsl"

const uint DEPTH = 16; // of a slice, in k
const uint ACROSS_M = TILE_M / SHARE_M, ACROSS_N = TILE_N / SHARE_N;
const uint LANES = ACROSS_M * ACROSS_N;
const uint LOADS_A = TILE_M * DEPTH / 4 / LANES, LOADS_B = TILE_N * DEPTH / 4 / LANES; // quads
const uint PITCH_M = TILE_M + 4, PITCH_N = TILE_N + 4; // shifts each row to other banks

#ifdef QUANTIZED
#include "quantized.glsl"
#endif

shared float slice_a[DEPTH * PITCH_M];
shared float slice_b[DEPTH * PITCH_N];

#ifdef TRANS_A
const bool A_ALONG_K = false;
#else
const bool A_ALONG_K = true;
#endif
#ifdef TRANS_B
const bool B_ALONG_K = true;
#else
const bool B_ALONG_K = false;
#endif

// Quad `i` of a slice, in memory order: neighbours in memory belong to neighbouring invocations.
// Returns k and the row (column) of its first element.
uvec2 place(uint i, bool along_k, uint tile)
{
    return along_k ? uvec2(i % (DEPTH / 4) * 4, i / (DEPTH / 4))
                   : uvec2(i / (tile / 4), i % (tile / 4) * 4);
}

// The place of four elements from (k, line) on in a tensor, along k or along the lines: the index
// of the quad, if rows consist of whole quads, and of each element, clamped.
uint quad_at(uint start, uint pitch, bool along_k, uint k, uint line, uint K, uint lines,
             out uvec4 each)
{
    const uint outer = along_k ? min(line, lines - 1) : min(k, K - 1);
    const uint inner = along_k ? k : line, last = (along_k ? K : lines) - 1;
    const uint from = start + outer * pitch;
    each = from + four(inner, last);
    return (from + min(inner, last)) / 4;
}

// The same elements; zeros past K.
vec4 within_k(vec4 x, bool along_k, uint k, uint K)
{
    return mix(vec4(0), x,
               along_k ? lessThan(uvec4(k, k + 1, k + 2, k + 3), uvec4(K)) : bvec4(k < K));
}

vec4 load_quad(uvec2 base, uint start, uint pitch, bool wide, bool along_k, uint k, uint line, uint K,
               uint lines)
{
    uvec4 each;
    const uint quad = quad_at(start, pitch, along_k, k, line, K, lines, each);
    return within_k(load_four(base, OPERAND_TYPE, wide, quad, each), along_k, k, K);
}

#ifdef QUANTIZED
vec4 load_quantized(uint start, uint k, uint line, uint K)
{
    uvec4 each;
    const uint quad = quad_at(start, B_ROW(B_ALONG_K), B_ALONG_K, k, line, K, pc.N, each);
    const uint row = B_ALONG_K ? min(line, pc.N - 1) : gl_WorkGroupID.z * pc.part + min(k, K - 1);
    const uint before = blocks_before(row);
    return within_k(B_WIDE ? quantized_quad(quad, before) : quantized_four(each, before), B_ALONG_K,
                    k, K);
}
#define LOAD_B(k, line) load_quantized(b_start, k, line, K)
#else
#define LOAD_B(k, line)                                                                            \
    load_quad(pc.b, b_start, pc.b_row, B_WIDE, B_ALONG_K, k, line, K, pc.N)
#endif

// Register `i` of an invocation's quads of a slice.
#define READ_A(i, k0)                                                                              \
    {                                                                                              \
        const uvec2 at = place(i * LANES + id, A_ALONG_K, TILE_M);                                 \
        next_a[i] = load_quad(pc.a, a_start, pc.a_row, A_WIDE, A_ALONG_K, k0 + at.x, row0 + at.y,  \
                              K, pc.M);                                                            \
    }
#define READ_B(i, k0)                                                                              \
    {                                                                                              \
        const uvec2 at = place(i * LANES + id, B_ALONG_K, TILE_N);                                 \
        next_b[i] = LOAD_B(k0 + at.x, column0 + at.y);                                             \
    }
#define WRITE(slice, quads, i, along_k, tile, pitch)                                               \
    {                                                                                              \
        const uvec2 at = place(i * LANES + id, along_k, tile);                                     \
        [[unroll]] for (uint c = 0; c < 4; c++)                                                    \
            slice[(at.x + (along_k ? c : 0)) * pitch + at.y + (along_k ? 0 : c)] = quads[i][c];    \
    }

// An invocation's rows and columns come in fours, the fours ACROSS apart: its neighbours read
// neighbouring fours of a slice.
uint share(uint i, uint lane, uint across)
{
    return i / 4 * 4 * across + lane * 4 + i % 4;
}

void main()
{
    const uint id = gl_LocalInvocationID.x;
    const uint lane_m = id / ACROSS_N, lane_n = id % ACROSS_N;
    const uint tile = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    const uvec2 corner = tile_place(tile);
    const uint row0 = corner.x * TILE_M, column0 = corner.y * TILE_N, K = part_of_k();
    const uint a_start = gl_WorkGroupID.z * A_STEP;
    const uint b_start = gl_WorkGroupID.z * B_STEP(B_ALONG_K);

#ifdef QUANTIZED
    fill_tables(id, LANES);
    barrier();
#endif
    vec4 next_a[LOADS_A], next_b[LOADS_B];
    float sum[SHARE_M][SHARE_N];
    [[unroll]] for (uint i = 0; i < SHARE_M; i++)
        [[unroll]] for (uint j = 0; j < SHARE_N; j++)
            sum[i][j] = 0;
    [[unroll]] for (uint i = 0; i < LOADS_A; i++)
        READ_A(i, 0)
    [[unroll]] for (uint i = 0; i < LOADS_B; i++)
        READ_B(i, 0)

    for (uint k0 = 0; k0 < K; k0 += DEPTH) {
        [[unroll]] for (uint i = 0; i < LOADS_A; i++)
            WRITE(slice_a, next_a, i, A_ALONG_K, TILE_M, PITCH_M)
        [[unroll]] for (uint i = 0; i < LOADS_B; i++)
            WRITE(slice_b, next_b, i, B_ALONG_K, TILE_N, PITCH_N)
        barrier();
        // Past the end these read the last slice again, into unused registers.
        [[unroll]] for (uint i = 0; i < LOADS_A; i++)
            READ_A(i, k0 + DEPTH)
        [[unroll]] for (uint i = 0; i < LOADS_B; i++)
            READ_B(i, k0 + DEPTH)
        for (uint first = 0; first < DEPTH; first += UNROLL)
            [[unroll]] for (uint next = 0; next < UNROLL; next++) {
                const uint k = first + next;
                float a[SHARE_M], b[SHARE_N];
                [[unroll]] for (uint i = 0; i < SHARE_M; i++)
                    a[i] = slice_a[k * PITCH_M + share(i, lane_m, ACROSS_M)];
                [[unroll]] for (uint j = 0; j < SHARE_N; j++)
                    b[j] = slice_b[k * PITCH_N + share(j, lane_n, ACROSS_N)];
                [[unroll]] for (uint i = 0; i < SHARE_M; i++)
                    [[unroll]] for (uint j = 0; j < SHARE_N; j++)
                        sum[i][j] = fma(a[i], b[j], sum[i][j]);
            }
        barrier();
    }

    if (tile >= pc.tiles_m * pc.tiles_n)
        return;
    [[unroll]] for (uint j = 0; j < SHARE_N; j += 4) {
        const uint column = column0 + share(j, lane_n, ACROSS_N);
        vec4 bias[1];
        bias[0] = load_bias(column);
        [[unroll]] for (uint i = 0; i < SHARE_M; i++) {
            vec4 x[1];
            Place at[1];
            x[0] = vec4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            at[0] = Place(row0 + share(i, lane_m, ACROSS_M), column);
            finish(x, bias, at);
        }
    }
}
