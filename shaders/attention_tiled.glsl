/* SPDX-License-Identifier: MIT
 *
 * What the attention kernels for GPUs share (path "tiled"; right on every device). A workgroup owns
 * TILE rows (queries, or keys in the key pass) and walks the other side in tiles of TILE rows. Of a
 * tile of scores an invocation computes 4 x 4; of its sums (rows of D elements) 4 rows, in pairs of
 * elements that are 2 ACROSS apart. Two products are all there is: dots() of rows with rows, through
 * slices in shared memory, and mix() of rows, weighted by what is in shared memory.
 */
#include "attention.glsl"

layout(constant_id = 2) const uint TILE = 64; /* 32 or 64 */
layout(constant_id = 5) const uint ROLLED = 0;
const uint ACROSS = TILE / 4;        /* invocations beside each other */
const uint LANES = ACROSS * ACROSS;  /* of a workgroup */
const uint DEPTH = 16;               /* of a slice */
const uint PITCH = TILE + 4;         /* shifts each row of a slice to other banks */
const uint PAIRS = (D + 2 * ACROSS - 1) / (2 * ACROSS);
const uint PITCH_D = 2 * ACROSS * PAIRS;
const uint DOT_LOADS = TILE * DEPTH / 4 / LANES;
const uint MIX_LOADS = (DEPTH * D4 + LANES - 1) / LANES;
const uint DOT_SHARED = 2 * DEPTH * PITCH, MIX_SHARED = DEPTH * PITCH_D;

shared float slices[DOT_SHARED > MIX_SHARED ? DOT_SHARED : MIX_SHARED];
shared float weights[TILE * TILE]; /* by contracted index, then row: see weight_at() */

/* DEPTH; where ROLLED something that no compiler knows to be DEPTH, so that loops stay loops: CPU
 * drivers else compile them for a second. */
uint depth()
{
    return ROLLED != 0 ? min(DEPTH, pc.queries | DEPTH) : DEPTH;
}

/* This invocation's first row of a tile, its place beside others, and its first column. */
uint my_m()
{
    return gl_LocalInvocationID.x / ACROSS * 4;
}
uint my_n()
{
    return gl_LocalInvocationID.x % ACROSS;
}

/* Rows of one head: `count` of them, `stride` elements apart, from element `start`. */
struct Rows {
    uvec2 base;
    uint start, stride, count;
};

/* Four elements of a row, zero beyond D; rows past the end repeat the last one. */
vec4 row_load(Rows rows, uint row, uint d)
{
    uint at = rows.start + min(row, rows.count - 1) * rows.stride;
    return d < D4 ? head_load(rows.base, at, min(d, D4 - 1)) : vec4(0.0);
}

/* Where four rows of the weights lie together. Rows are rotated by the index, so that neighbours who
 * write the transposed form meet in no bank. */
uint weight_at(uint index, uint row)
{
    return index * TILE + ((row + (index & ~3u)) & (TILE - 1));
}

/* An invocation's quad i of a slice of rows: row, quad. */
uvec2 dot_place(uint i)
{
    uint at = i * LANES + gl_LocalInvocationID.x;
    return uvec2(at / (DEPTH / 4), at % (DEPTH / 4));
}
void dot_keep(uint first, uint i, vec4 v)
{
    uvec2 at = dot_place(i);
    [[unroll]] for (uint c = 0; c < 4; c++)
        slices[first + (at.y * 4 + c) * PITCH + at.x] = v[c];
}

/* s[r][c] = row a0 + m + r of a times row b0 + 4 n + c of b. */
void dots(Rows a, uint a0, Rows b, uint b0, out float s[16])
{
    uint m = my_m(), n = DEPTH * PITCH + my_n() * 4;
    vec4 next_a[DOT_LOADS], next_b[DOT_LOADS];
    [[unroll]] for (uint i = 0; i < 16; i++)
        s[i] = 0.0;
    [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
        uvec2 at = dot_place(i);
        next_a[i] = row_load(a, a0 + at.x, at.y);
        next_b[i] = row_load(b, b0 + at.x, at.y);
    }
    for (uint d = 0; d < D; d += DEPTH) {
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
            dot_keep(0, i, next_a[i]);
            dot_keep(DEPTH * PITCH, i, next_b[i]);
        }
        barrier();
        [[unroll]] for (uint i = 0; i < DOT_LOADS; i++) {
            uvec2 at = dot_place(i);
            next_a[i] = row_load(a, a0 + at.x, at.y + (d + DEPTH) / 4);
            next_b[i] = row_load(b, b0 + at.x, at.y + (d + DEPTH) / 4);
        }
        for (uint k = 0; k < depth(); k++) {
            float x[4], y[4];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                x[i] = slices[k * PITCH + m + i];
                y[i] = slices[k * PITCH + n + i];
            }
            [[unroll]] for (uint r = 0; r < 4; r++)
                [[unroll]] for (uint c = 0; c < 4; c++)
                    s[r * 4 + c] = fma(x[r], y[c], s[r * 4 + c]);
        }
    }
}

uvec2 mix_place(uint i)
{
    uint at = i * LANES + gl_LocalInvocationID.x;
    return uvec2(at / D4, at % D4);
}

void mix_keep(uint i, vec4 v)
{
    uvec2 at = mix_place(i);
    if (at.x < DEPTH) {
        [[unroll]] for (uint c = 0; c < 4; c++)
            slices[at.x * PITCH_D + at.y * 4 + c] = v[c];
    }
}

/* Row m + r of sum (8 PAIRS floats) += the weights of that row times the rows of b from b0. The
 * weights may have been written just before; afterwards they may be in use until the next barrier.
 * A macro, as glslang cannot pass arrays whose size is specialized. */
#define MIX_ROWS(b, b0, sum)                                                                \
    {                                                                                       \
        uint m_ = my_m(), n_ = my_n() * 2;                                                  \
        vec4 next[MIX_LOADS];                                                               \
        [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                     \
            next[i] = row_load(b, (b0) + mix_place(i).x, mix_place(i).y);                   \
        for (uint k0 = 0; k0 < TILE; k0 += DEPTH) {                                         \
            barrier();                                                                      \
            [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                 \
                mix_keep(i, next[i]);                                                       \
            barrier();                                                                      \
            [[unroll]] for (uint i = 0; i < MIX_LOADS; i++)                                 \
                next[i] = row_load(b, (b0) + k0 + DEPTH + mix_place(i).x, mix_place(i).y);  \
            for (uint k = 0; k < depth(); k++) {                                              \
                float w[4];                                                                 \
                [[unroll]] for (uint r = 0; r < 4; r++)                                     \
                    w[r] = weights[weight_at(k0 + k, m_) + r];                              \
                [[unroll]] for (uint c = 0; c < 2 * PAIRS; c++) {                           \
                    float x = slices[k * PITCH_D + c / 2 * 2 * ACROSS + n_ + c % 2];        \
                    [[unroll]] for (uint r = 0; r < 4; r++)                                 \
                        sum[r * 2 * PAIRS + c] = fma(w[r], x, sum[r * 2 * PAIRS + c]);      \
                }                                                                           \
            }                                                                               \
        }                                                                                   \
    }

/* Four numbers of each invocation, one a row, joined over the invocations that share the row, in
 * their order. The slices are used for it. */
#define JOIN_ROWS(values, join)                                          \
    barrier();                                                           \
    [[unroll]] for (uint r = 0; r < 4; r++)                              \
        slices[(my_m() + r) * ACROSS + my_n()] = values[r];              \
    barrier();                                                           \
    [[unroll]] for (uint r = 0; r < 4; r++) {                            \
        values[r] = slices[(my_m() + r) * ACROSS];                       \
        [[unroll]] for (uint i = 1; i < ACROSS; i++)                     \
            values[r] = join(values[r], slices[(my_m() + r) * ACROSS + i]); \
    }
float plus(float a, float b)
{
    precise float s = a + b;
    return s;
}

/* A pair of elements of a row that starts at element `row`, without what is past D. */
void pair_store(uvec2 base, uint row, uint column, vec2 v)
{
#if VEC && TYPE != TYPE_F32
    if (column < D)
        Uints(base).at[(row + column) >> 1] = pack2(v);
#else
    if (column < D)
        store1(base, row + column, v.x);
    if (column + 1 < D)
        store1(base, row + column + 1, v.y);
#endif
}
/* Stores an invocation's part of the sums, each of its rows r times `factor`. */
#define ROWS_STORE(rows, row0, sum, factor)                                                 \
    [[unroll]] for (uint r = 0; r < 4; r++) {                                               \
        uint row = (row0) + my_m() + r, at = r * 2 * PAIRS;                                 \
        if (row < rows.count) {                                                             \
            [[unroll]] for (uint p = 0; p < PAIRS; p++)                                     \
                pair_store(rows.base, rows.start + row * rows.stride, (p * ACROSS + my_n()) * 2,\
                           vec2(sum[at + 2 * p], sum[at + 2 * p + 1]) * (factor));          \
        }                                                                                   \
    }
