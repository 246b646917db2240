// SPDX-License-Identifier: MIT
//
// out (M,N) = A B, one tile of 32 rows by 8*LANES columns per subgroup, for CPU drivers: no shared
// memory, no barrier. A lane holds 8 columns of B; values of A are spread by subgroupShuffle with a
// constant index. Mesa's CPU driver walks the lanes for every element that is read or written
// through an address, so with LONGS that is done in 64-bit halves of a quad; it gathers texels
// without a branch, so with VIEWS (and LONGS) operands are read through texel views. TRANS_A: a is
// (K,M). TRANS_B: b is (N,K).
//
// Every index is clamped into its tensor, so tiles at the edges need no code of their own; what is
// computed twice there is not stored.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#ifdef LONGS
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;        // the subgroup size, as constant 0
layout(constant_id = 2) const bool A_WIDE = true;    // a's rows are whole 16-byte quads
layout(constant_id = 3) const bool B_WIDE = true;    // b's too
layout(constant_id = 4) const bool OUT_WIDE = true;  // and those of out and pre
layout(constant_id = 5) const bool RAGGED = false;   // 4 * STEP does not divide K
layout(constant_id = 6) const uint STEP = 2;         // quads of k per round: 1 or 2

const uint ROWS = 32;
const uint QUADS = 2;  // of columns, per lane
const uint PICKED = 2; // rows at a time when storing
#ifdef TRANS_A
const uint A_ROWS = (ROWS + 4 * LANES - 1) / (4 * LANES); // quads of rows per lane
const uint A_COUNT = 4 * STEP * A_ROWS;
#else
const uint A_ROWS = (ROWS + LANES - 1) / LANES; // rows per lane
const uint A_COUNT = STEP * A_ROWS;
#endif
const uint BIAS = 1, ACCUMULATE = 2, GELU = 4, PRE = 8;

layout(push_constant) uniform Push
{
    uvec2 a, b, out_address, bias, pre;
    uint M, N, K, flags;
    uint tiles_m, tiles_n, groups_x, rows_first; // rows_first: the next tile is below, not beside
    uint a_first, b_first, out_first;            // VIEWS: first texel
    uint k_first, k_end;                         // the part of K to add up
} pc;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { vec4 at[]; };

#ifdef LONGS
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Longs { u64vec2 at[]; };
vec4 quad_at(uvec2 address, uint i)
{
    u64vec2 x = Longs(address).at[i];
    return vec4(uintBitsToFloat(unpackUint2x32(x.x)), uintBitsToFloat(unpackUint2x32(x.y)));
}
void set_quad(uvec2 address, uint i, vec4 x)
{
    Longs(address).at[i] = u64vec2(packUint2x32(floatBitsToUint(x.xy)),
                                   packUint2x32(floatBitsToUint(x.zw)));
}
#else
vec4 quad_at(uvec2 address, uint i)
{
    return Quads(address).at[i];
}
void set_quad(uvec2 address, uint i, vec4 x)
{
    Quads(address).at[i] = x;
}
#endif

#ifdef VIEWS
layout(set = 0, binding = 0) uniform samplerBuffer view_a;
layout(set = 0, binding = 1) uniform samplerBuffer view_b;
layout(set = 0, binding = 2) uniform samplerBuffer view_out;
#define QUAD_A(i) texelFetch(view_a, int(pc.a_first + (i)))
#define QUAD_B(i) texelFetch(view_b, int(pc.b_first + (i)))
#define QUAD_OUT(i) texelFetch(view_out, int(pc.out_first + (i)))
#define ONE_A(i) QUAD_A(i).x
#define ONE_B(i) QUAD_B(i).x
#define ONE_OUT(i) QUAD_OUT(i).x
#else
#define QUAD_A(i) quad_at(pc.a, i)
#define QUAD_B(i) quad_at(pc.b, i)
#define QUAD_OUT(i) quad_at(pc.out_address, i)
#define ONE_A(i) Floats(pc.a).at[i]
#define ONE_B(i) Floats(pc.b).at[i]
#define ONE_OUT(i) Floats(pc.out_address).at[i]
#endif

vec4 load_a(uint quad, uvec4 at)
{
    return A_WIDE ? QUAD_A(quad) : vec4(ONE_A(at.x), ONE_A(at.y), ONE_A(at.z), ONE_A(at.w));
}

vec4 load_b(uint quad, uvec4 at)
{
    return B_WIDE ? QUAD_B(quad) : vec4(ONE_B(at.x), ONE_B(at.y), ONE_B(at.z), ONE_B(at.w));
}

// Four neighbours from `first`, none past `last`.
uvec4 four(uint first, uint last)
{
    return min(uvec4(first, first + 1, first + 2, first + 3), uvec4(last));
}

vec4 load_out(uint row, uint column)
{
    if (OUT_WIDE)
        return QUAD_OUT(row * (pc.N / 4) + min(column, pc.N - 1) / 4);
    uvec4 at = row * pc.N + four(column, pc.N - 1);
    return vec4(ONE_OUT(at.x), ONE_OUT(at.y), ONE_OUT(at.z), ONE_OUT(at.w));
}

void store(uvec2 address, uint row, uint column, vec4 x)
{
    if (OUT_WIDE) {
        if (row < pc.M && column < pc.N)
            set_quad(address, row * (pc.N / 4) + column / 4, x);
    } else {
        [[unroll]] for (uint c = 0; c < 4; c++)
            if (row < pc.M && column + c < pc.N)
                Floats(address).at[row * pc.N + column + c] = x[c];
    }
}

vec4 gelu(vec4 x)
{
    // tanh(u) = 1 - 2 / (exp(2u) + 1): exact at both ends without overflow into NaN.
    vec4 u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    return x - x / (exp(2.0 * u) + 1.0);
}

// Unrolled here, since Mesa leaves loops of this size rolled.
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
    if (STEP > 1) {                                                                                \
        ADD(m, 4) ADD(m, 5) ADD(m, 6) ADD(m, 7)                                                    \
    }
#define ROW4(m) ROW(m) ROW(m + 1) ROW(m + 2) ROW(m + 3)
#define ROW16(m) ROW4(m) ROW4(m + 4) ROW4(m + 8) ROW4(m + 12)
#define EACH_ROW ROW16(0) ROW16(16)

void main()
{
    const uint lane = gl_SubgroupInvocationID;
    const uint tile = gl_WorkGroupID.y * pc.groups_x + gl_WorkGroupID.x;
    const uint tile_m = pc.rows_first != 0 ? tile % pc.tiles_m : tile / pc.tiles_n;
    const uint tile_n = pc.rows_first != 0 ? tile / pc.tiles_m : tile % pc.tiles_n;
    const uint row0 = tile_m * ROWS;
    const uint column0 = tile_n * (4 * QUADS * LANES) + lane * 4;
    const uint step = 4 * LANES; // from one quad of columns of a lane to its next

    // Where a lane's values lie, without the part that k adds.
    uint a_quad[A_ROWS], b_quad[4 * QUADS];
    uvec4 a_at[A_ROWS], b_at[QUADS];
    [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
#ifdef TRANS_A
        uint row = row0 + (r * LANES + lane) * 4;
        a_quad[r] = min(row / 4, pc.M / 4 - 1);
        a_at[r] = four(row, pc.M - 1);
#else
        uint row = min(row0 + r * LANES + lane, pc.M - 1);
        a_quad[r] = row * (A_WIDE ? pc.K / 4 : pc.K);
#endif
    }
    [[unroll]] for (uint q = 0; q < QUADS; q++) {
        uint column = column0 + q * step;
#ifdef TRANS_B
        [[unroll]] for (uint c = 0; c < 4; c++)
            b_quad[4 * q + c] = min(column + c, pc.N - 1) * (B_WIDE ? pc.K / 4 : pc.K);
#else
        b_quad[q] = min(column / 4, pc.N / 4 - 1);
        b_at[q] = four(column, pc.N - 1);
#endif
    }

    vec4 sum[ROWS][QUADS];
    [[unroll]] for (uint m = 0; m < ROWS; m++)
        [[unroll]] for (uint q = 0; q < QUADS; q++)
            sum[m][q] = vec4(0);

    for (uint k0 = pc.k_first; k0 < pc.k_end; k0 += 4 * STEP) {
        vec4 a[A_COUNT], b[4 * STEP][QUADS];
        [[unroll]] for (uint s = 0; s < STEP; s++) {
            // Behind the end of K, a is zero, and what is read lies within its tensor.
            const uint k = k0 + 4 * s, quad = RAGGED ? min(k / 4, max(pc.K / 4, 1) - 1) : k / 4;
            const uvec4 along = four(k, pc.K - 1);
            const bvec4 inside = lessThan(uvec4(k, k + 1, k + 2, k + 3), uvec4(pc.K));
#ifdef TRANS_A
            [[unroll]] for (uint i = 0; i < 4; i++)
                [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
                    uint kk = RAGGED ? along[i] : k + i;
                    vec4 x = load_a(kk * (pc.M / 4) + a_quad[r], kk * pc.M + a_at[r]);
                    a[(4 * s + i) * A_ROWS + r] = RAGGED && !inside[i] ? vec4(0) : x;
                }
#else
            [[unroll]] for (uint r = 0; r < A_ROWS; r++) {
                vec4 x = load_a(a_quad[r] + quad, a_quad[r] + along);
                a[s * A_ROWS + r] = RAGGED ? mix(vec4(0), x, inside) : x;
            }
#endif
#ifdef TRANS_B
            [[unroll]] for (uint q = 0; q < QUADS; q++)
                [[unroll]] for (uint c = 0; c < 4; c++) {
                    vec4 x = load_b(b_quad[4 * q + c] + quad, b_quad[4 * q + c] + along);
                    [[unroll]] for (uint i = 0; i < 4; i++)
                        b[4 * s + i][q][c] = x[i];
                }
#else
            [[unroll]] for (uint i = 0; i < 4; i++)
                [[unroll]] for (uint q = 0; q < QUADS; q++) {
                    uint kk = RAGGED ? along[i] : k + i;
                    b[4 * s + i][q] = load_b(kk * (pc.N / 4) + b_quad[q], kk * pc.N + b_at[q]);
                }
#endif
        }
        // Row by row, so that a row's sums are loaded and stored once a round.
        EACH_ROW
    }

    vec4 bias[QUADS];
    [[unroll]] for (uint q = 0; q < QUADS; q++) {
        uvec4 at = four(column0 + q * step, pc.N - 1);
        vec4 x = vec4(Floats(pc.bias).at[at.x], Floats(pc.bias).at[at.y], Floats(pc.bias).at[at.z],
                      Floats(pc.bias).at[at.w]);
        bias[q] = mix(vec4(0), x, bvec4((pc.flags & BIAS) != 0));
    }

    // Loops that run or do not, since the CPU driver executes both sides of a branch; and rolled,
    // picking sums by comparison, since an indexed array costs its compiler a second.
    const bool mine = tile < pc.tiles_m * pc.tiles_n;
    const uint groups = mine ? (min(ROWS, pc.M - row0) + PICKED - 1) / PICKED : 0;
    const bool activate = (pc.flags & GELU) != 0;
    for (uint group = 0; group < (activate ? 0 : groups); group++)
        [[unroll]] for (uint r = 0; r < PICKED; r++)
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                const uint row = row0 + group * PICKED + r, column = column0 + q * step;
                vec4 x = sum[r][q];
                [[unroll]] for (uint g = 1; g < ROWS / PICKED; g++)
                    x = mix(x, sum[g * PICKED + r][q], bvec4(group == g));
                x += bias[q];
                vec4 before = load_out(min(row, pc.M - 1), column);
                x += mix(vec4(0), before, bvec4((pc.flags & ACCUMULATE) != 0));
                store(pc.out_address, row, column, x);
            }
    for (uint group = 0; group < (activate ? groups : 0); group++)
        [[unroll]] for (uint r = 0; r < PICKED; r++)
            [[unroll]] for (uint q = 0; q < QUADS; q++) {
                const uint row = row0 + group * PICKED + r, column = column0 + q * step;
                vec4 x = sum[r][q];
                [[unroll]] for (uint g = 1; g < ROWS / PICKED; g++)
                    x = mix(x, sum[g * PICKED + r][q], bvec4(group == g));
                x += bias[q];
                if ((pc.flags & PRE) != 0)
                    store(pc.pre, row, column, x);
                store(pc.out_address, row, column, gelu(x));
            }
}
