/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the attention kernels for GPUs (path "tiled"; correct on every device). A
 * workgroup owns TILE rows (queries, or keys in the key pass) and walks the other side in tiles of
 * TILE rows. An invocation computes EACH_M x EACH_N scores of a tile, and EACH_M rows of the sums
 * (rows of D elements), in pairs of elements that are 2 ACROSS apart. There are two products, each
 * in two forms (attention_shares.glsl, attention_units.glsl): dots() of rows with rows, and
 * MIX_ROWS() of rows, weighted by shared memory.
 */
#include "attention.glsl"

layout(constant_id = 2) const uint TILE = 64;  /* 32 or 64 */
layout(constant_id = 3) const uint EACH_M = 4; /* 2 or 4 */
layout(constant_id = 9) const uint EACH_N = 4; /* 2 or 4 */
const uint ACROSS = TILE / EACH_N;             /* invocations beside each other */
const uint LANES = TILE / EACH_M * ACROSS;     /* of a workgroup */
const uint PAIRS = (D + 2 * ACROSS - 1) / (2 * ACROSS);

/* This invocation's first row of a tile, its place beside others, and its first column. */
uint my_m()
{
    return gl_LocalInvocationID.x / ACROSS * EACH_M;
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

#if UNITS
#include "attention_units.glsl"
#else
#include "attention_shares.glsl"
#endif

/* A tile of weights from every invocation's part s[r][c]: of row m + r, by index EACH_N n + c. */
void set_all_weights(float s[16])
{
    [[unroll]] for (uint c = 0; c < EACH_N; c++)
        set_weights(my_n() * EACH_N + c, my_m(), vec4(s[c], s[4 + c], s[8 + c], s[12 + c]));
}

/* Joins EACH_M numbers of each invocation, one per row, over the invocations that share the row, in
 * their order. Overwrites the slices. */
#define JOIN_ROWS(values, join)                                                     \
    barrier();                                                                      \
    [[unroll]] for (uint r = 0; r < EACH_M; r++)                                    \
        slices[(my_m() + r) * ACROSS + my_n()] = values[r];                         \
    barrier();                                                                      \
    [[unroll]] for (uint r = 0; r < EACH_M; r++) {                                  \
        values[r] = slices[(my_m() + r) * ACROSS];                                  \
        [[unroll]] for (uint i = 1; i < ACROSS; i++)                                \
            values[r] = join(values[r], slices[(my_m() + r) * ACROSS + i]);         \
    }
float plus(float a, float b)
{
    precise float s = a + b;
    return s;
}

/* Stores a pair of elements of a row that starts at element `row`, omitting elements past D. */
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
/* Stores an invocation's part of the sums, with its row r times `factor`. */
#define ROWS_STORE(rows, row0, sum, factor)                                                 \
    [[unroll]] for (uint r = 0; r < EACH_M; r++) {                                          \
        uint row = (row0) + my_m() + r, at = r * 2 * PAIRS;                                 \
        if (row < rows.count) {                                                             \
            [[unroll]] for (uint p = 0; p < PAIRS; p++)                                     \
                pair_store(rows.base, rows.start + row * rows.stride, (p * ACROSS + my_n()) * 2,\
                           vec2(sum[at + 2 * p], sum[at + 2 * p + 1]) * (factor));          \
        }                                                                                   \
    }
