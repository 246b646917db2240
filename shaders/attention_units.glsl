/* SPDX-License-Identifier: MIT
 *
 * The products of attention_tiled.glsl on matrix units: 16-bit operands, f32 sums. Weights are
 * rounded to the type of the operands. Chunks of shared memory are 16 bytes, eight elements; a row of
 * them has one more, which shifts rows to other banks. Results pass through shared memory, too.
 */
layout(constant_id = 5) const uint FRAGMENT_M = 16;
layout(constant_id = 6) const uint FRAGMENT_N = 16;
layout(constant_id = 7) const uint FRAGMENT_K = 16;
layout(constant_id = 8) const uint SUBGROUPS = 8; /* of a workgroup; divides the fragments of a tile */
layout(constant_id = 11) const uint ROLLED = 0; /* 1: fewer registers, addresses are recomputed */
#include "cooperative.glsl"

const uint CHUNKS = TILE / 8, PITCH = CHUNKS + 1; /* of a row of 16-bit elements */
const uint FRAGMENTS_N = TILE / FRAGMENT_N, FRAGMENTS = TILE / FRAGMENT_M * FRAGMENTS_N;
const uint EACH = FRAGMENTS / SUBGROUPS;
const uint LOADS = (TILE * CHUNKS + LANES - 1) / LANES; /* some lanes may have none */

/* TILE. With ROLLED, an expression that no compiler can evaluate, so that loops stay loops. */
uint span()
{
    return ROLLED != 0 ? min(TILE, pc.queries | TILE) : TILE;
}

shared uvec4 half_a[TILE * PITCH], half_b[TILE * PITCH];
shared uvec4 result[TILE * TILE / 4]; /* f32, by rows */
shared float slices[TILE * ACROSS];   /* for JOIN_ROWS */

/* Weights lie in half_a, by index, then row. */
void set_weights(uint index, uint row, vec4 w)
{
    uint at = index * PITCH + row / 8, word = row / 2 % 4;
    half_a[at][word] = pack2(w.xy);
    if (EACH_M == 4)
        half_a[at][word + 1] = pack2(w.zw);
}
/* As in attention_shares.glsl; here products need the memory of the weights. */
#define SET_ASIDE(s)
#define ASIDE(s, r, c) s[(r) * 4 + (c)]

/* The bits of four elements of a row, zero beyond D; rows past the end repeat the last one. */
uvec2 row_bits(Rows rows, uint row, uint d)
{
    uint at = rows.start + min(row, rows.count - 1) * rows.stride, column = 4 * min(d, D4 - 1);
#if VEC
    return mix(uvec2(0), Pairs(rows.base).at[(at + column) >> 2], bvec2(d < D4));
#else
    uvec4 c = at + min(uvec4(column) + uvec4(0, 1, 2, 3), uvec4(D - 1));
    uvec4 e = uvec4(load_bits(rows.base, c.x), load_bits(rows.base, c.y),
                    load_bits(rows.base, c.z), load_bits(rows.base, c.w));
    e = mix(uvec4(0), e & 0xffffu, within(4 * d, D));
    return e.xz | e.yw << 16;
#endif
}
/* Eight elements of a row, as they are. */
uvec4 chunk_load(Rows rows, uint row, uint chunk)
{
    return uvec4(row_bits(rows, row, 2 * chunk), row_bits(rows, row, 2 * chunk + 1));
}
#define STAGE(to, rows, row0, column)                                                          \
    [[unroll]] for (uint i = 0; i < LOADS; i++) {                                              \
        uint at = i * LANES + gl_LocalInvocationID.x;                                          \
        if (at < TILE * CHUNKS)                                                                \
            to[at / CHUNKS * PITCH + at % CHUNKS] =                                            \
                chunk_load(rows, (row0) + at / CHUNKS, (column) / 8 + at % CHUNKS);            \
    }
/* Fragment i of this subgroup: its first row and column. */
uvec2 place_of(uint i)
{
    uint at = i * SUBGROUPS + gl_SubgroupID;
    return uvec2(at / FRAGMENTS_N * FRAGMENT_M, at % FRAGMENTS_N * FRAGMENT_N);
}
#define KEEP_RESULT(sum)                                                                       \
    [[unroll]] for (uint i = 0; i < EACH; i++)                                                 \
        matrix_store(result[(place_of(i).x * TILE + place_of(i).y) / 4], sum[i], ROWS,         \
                     TILE / 4, SHARED);

/* s[r][c] = row a0 + m + r of a times row b0 + EACH_N n + c of b. */
void dots(Rows a, uint a0, Rows b, uint b0, out float s[16])
{
    MATRIX_SUM sum[EACH];
    [[unroll]] for (uint i = 0; i < EACH; i++)
        sum[i] = matrix_splat(0.0);
    for (uint d = 0; d < D; d += TILE) {
        barrier();
        STAGE(half_a, a, a0, d)
        STAGE(half_b, b, b0, d)
        barrier();
        for (uint k = 0; k < span(); k += FRAGMENT_K)
            [[unroll]] for (uint i = 0; i < EACH; i++)
                sum[i] = matrix_multiply_add(
                    matrix_load_a(half_a[place_of(i).x * PITCH + k / 8], ROWS, PITCH, SHARED),
                    matrix_load_b(half_b[place_of(i).y * PITCH + k / 8], COLUMNS, PITCH, SHARED),
                    sum[i]);
    }
    barrier();
    KEEP_RESULT(sum)
    barrier();
    [[unroll]] for (uint r = 0; r < EACH_M; r++)
        [[unroll]] for (uint c = 0; c < EACH_N; c++) {
            uint at = (my_m() + r) * TILE + my_n() * EACH_N + c;
            s[r * 4 + c] = uintBitsToFloat(result[at / 4][at % 4]);
        }
    barrier();
}

/* As in attention_shares.glsl: in parts of TILE columns, EACH_N of an invocation. */
#define MIX_ROWS(b, b0, total)                                                                 \
    [[unroll]] for (uint part = 0; part < (2 * PAIRS + EACH_N - 1) / EACH_N; part++) {         \
        barrier();                                                                             \
        STAGE(half_b, b, b0, part * TILE)                                                      \
        barrier();                                                                             \
        MATRIX_SUM sums[EACH];                                                                 \
        [[unroll]] for (uint i = 0; i < EACH; i++)                                             \
            sums[i] = matrix_splat(0.0);                                                       \
        for (uint k = 0; k < span(); k += FRAGMENT_K)                                          \
            [[unroll]] for (uint i = 0; i < EACH; i++)                                         \
                sums[i] = matrix_multiply_add(                                                 \
                    matrix_load_a(half_a[k * PITCH + place_of(i).x / 8], COLUMNS, PITCH,       \
                                  SHARED),                                                     \
                    matrix_load_b(half_b[k * PITCH + place_of(i).y / 8], ROWS, PITCH, SHARED), \
                    sums[i]);                                                                  \
        KEEP_RESULT(sums)                                                                      \
        barrier();                                                                             \
        [[unroll]] for (uint r = 0; r < EACH_M; r++)                                           \
            [[unroll]] for (uint c = 0; c < EACH_N; c++)                                       \
                if (EACH_N * part + c < 2 * PAIRS) {                                           \
                    uint column = c / 2 * 2 * ACROSS + 2 * my_n() + c % 2;                     \
                    total[r * 2 * PAIRS + EACH_N * part + c] += uintBitsToFloat(               \
                        result[((my_m() + r) * TILE + column) / 4][column % 4]);               \
                }                                                                              \
    }                                                                                          \
    barrier();
