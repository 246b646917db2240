// SPDX-License-Identifier: MIT
//
// out (M,N) = A B by tiles in shared memory and in registers, for GPUs; right on every device. A
// workgroup computes TILE_M x TILE_N elements, an invocation SHARE_M x SHARE_N of them. The next
// slices of A and B are read into registers while the current ones are multiplied. TRANS_A: a is
// (K,M). TRANS_B: b is (N,K). Indices are clamped into the tensors; what lies past K counts as zero.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x_id = 0) in; // TILE_M / SHARE_M * TILE_N / SHARE_N
layout(constant_id = 1) const uint TILE_M = 64;
layout(constant_id = 2) const uint TILE_N = 64;
layout(constant_id = 3) const uint SHARE_M = 4; // multiples of 4
layout(constant_id = 4) const uint SHARE_N = 4;

const uint DEPTH = 16; // of a slice, in k
const uint ACROSS_M = TILE_M / SHARE_M, ACROSS_N = TILE_N / SHARE_N;
const uint LANES = ACROSS_M * ACROSS_N;
const uint LOADS_A = TILE_M * DEPTH / LANES, LOADS_B = TILE_N * DEPTH / LANES;
const uint PITCH_M = TILE_M + 4, PITCH_N = TILE_N + 4; // shifts each row to other banks
const uint BIAS = 1, ACCUMULATE = 2, GELU = 4, PRE = 8;

layout(push_constant) uniform Push
{
    uvec2 a, b, out_address, bias, pre;
    uint M, N, K, flags;
    uint tiles_m, tiles_n, groups_x, rows_first; // rows_first: the next tile is below, not beside
    uint a_first, b_first, out_first;            // not used here
} pc;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };

shared float slice_a[DEPTH * PITCH_M];
shared float slice_b[DEPTH * PITCH_N];

// Element `i` of a slice, in the order in which memory holds it: neighbours in memory go to
// neighbouring invocations.
uvec2 place(uint i, bool along_k, uint tile)
{
    return along_k ? uvec2(i % DEPTH, i / DEPTH) : uvec2(i / tile, i % tile); // k, row or column
}

float load_a(uint i, uint row0, uint k0)
{
#ifdef TRANS_A
    const uvec2 at = place(i, false, TILE_M);
    const uint k = k0 + at.x, row = min(row0 + at.y, pc.M - 1);
    float x = Floats(pc.a).at[min(k, pc.K - 1) * pc.M + row];
#else
    const uvec2 at = place(i, true, TILE_M);
    const uint k = k0 + at.x, row = min(row0 + at.y, pc.M - 1);
    float x = Floats(pc.a).at[row * pc.K + min(k, pc.K - 1)];
#endif
    return k < pc.K ? x : 0.0;
}

float load_b(uint i, uint column0, uint k0)
{
#ifdef TRANS_B
    const uvec2 at = place(i, true, TILE_N);
    const uint k = k0 + at.x, column = min(column0 + at.y, pc.N - 1);
    float x = Floats(pc.b).at[column * pc.K + min(k, pc.K - 1)];
#else
    const uvec2 at = place(i, false, TILE_N);
    const uint k = k0 + at.x, column = min(column0 + at.y, pc.N - 1);
    float x = Floats(pc.b).at[min(k, pc.K - 1) * pc.N + column];
#endif
    return k < pc.K ? x : 0.0;
}

float gelu(float x)
{
    // 0.5 x (1 + tanh(u)) without overflow into NaN at either end.
    const float u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    return x - x / (exp(2.0 * u) + 1.0);
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
    const uint tile_m = pc.rows_first != 0 ? tile % pc.tiles_m : tile / pc.tiles_n;
    const uint tile_n = pc.rows_first != 0 ? tile / pc.tiles_m : tile % pc.tiles_n;
    const uint row0 = tile_m * TILE_M, column0 = tile_n * TILE_N;

    float next_a[LOADS_A], next_b[LOADS_B];
    float sum[SHARE_M][SHARE_N];
    [[unroll]] for (uint i = 0; i < SHARE_M; i++)
        [[unroll]] for (uint j = 0; j < SHARE_N; j++)
            sum[i][j] = 0;
    [[unroll]] for (uint i = 0; i < LOADS_A; i++)
        next_a[i] = load_a(i * LANES + id, row0, 0);
    [[unroll]] for (uint i = 0; i < LOADS_B; i++)
        next_b[i] = load_b(i * LANES + id, column0, 0);

    for (uint k0 = 0; k0 < pc.K; k0 += DEPTH) {
        [[unroll]] for (uint i = 0; i < LOADS_A; i++) {
#ifdef TRANS_A
            const uvec2 at = place(i * LANES + id, false, TILE_M);
#else
            const uvec2 at = place(i * LANES + id, true, TILE_M);
#endif
            slice_a[at.x * PITCH_M + at.y] = next_a[i];
        }
        [[unroll]] for (uint i = 0; i < LOADS_B; i++) {
#ifdef TRANS_B
            const uvec2 at = place(i * LANES + id, true, TILE_N);
#else
            const uvec2 at = place(i * LANES + id, false, TILE_N);
#endif
            slice_b[at.x * PITCH_N + at.y] = next_b[i];
        }
        barrier();
        // Past the end these read the last slice again, into registers that nobody uses.
        [[unroll]] for (uint i = 0; i < LOADS_A; i++)
            next_a[i] = load_a(i * LANES + id, row0, k0 + DEPTH);
        [[unroll]] for (uint i = 0; i < LOADS_B; i++)
            next_b[i] = load_b(i * LANES + id, column0, k0 + DEPTH);
        for (uint k = 0; k < DEPTH; k++) {
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
    [[unroll]] for (uint i = 0; i < SHARE_M; i++)
        [[unroll]] for (uint j = 0; j < SHARE_N; j++) {
            const uint row = row0 + share(i, lane_m, ACROSS_M);
            const uint column = column0 + share(j, lane_n, ACROSS_N);
            if (row >= pc.M || column >= pc.N)
                continue;
            const uint at = row * pc.N + column;
            float x = sum[i][j];
            if ((pc.flags & BIAS) != 0)
                x += Floats(pc.bias).at[column];
            if ((pc.flags & ACCUMULATE) != 0)
                x += Floats(pc.out_address).at[at];
            if ((pc.flags & PRE) != 0)
                Floats(pc.pre).at[at] = x;
            Floats(pc.out_address).at[at] = (pc.flags & GELU) != 0 ? gelu(x) : x;
        }
}
