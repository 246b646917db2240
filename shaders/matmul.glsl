/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by all paths of rf_matmul: the arguments from the host, and the part of a
 * batch or of k that a workgroup computes. Included by matmul_*.comp, which declare two constants
 * first, each TYPE_F32, TYPE_F16 or TYPE_BF16: OPERAND_TYPE of a, b and bias, RESULT_TYPE of out,
 * pre and residual.
 */
#include "elements.glsl"

/* The same as in src/ops/matmul.h. */
const uint BIAS = 1, RESIDUAL = 2, WRITE_PRE = 4, BACKWARD = 8;
const uint RELU = 16, GELU = 32, SILU = 64;
const uint ROWS_FIRST = 128; /* the next tile is in the next row, not in the next column */
const uint SPLIT_K = 256;    /* z counts parts of k, not products of a batch */

#include "push/matmul.h"

#ifdef QUANTIZED /* for quantized.glsl; see push/matmul.h */
#define PACKED Words(pc.b)
#define PACKED_BLOCKS pc.b_first
#define PACKED_LARGEST (PACKED_BLOCKS + (pc.b_row + 3) / 4)
#ifdef QUANTIZED_FP4
#define PACKED_OFFSET (PACKED_BLOCKS + pc.b_row)
#else
#define PACKED_OFFSET (PACKED_LARGEST + (pc.b_row + 255) / 256)
#endif
#define PACKED_FIRST pc.b_step
#define PACKED_GAP pc.a_step
#define A_STEP pc.part
#define B_STEP(trans) (pc.part * ((trans) ? 1 : pc.N))
#define B_ROW(trans) ((trans) ? pc.K : pc.N)
#else
#define A_STEP pc.a_step
#define B_STEP(trans) pc.b_step
#define B_ROW(trans) pc.b_row
#endif

uint part_of_k()
{
    const uint first = gl_WorkGroupID.z * pc.part;
    return (pc.flags & SPLIT_K) != 0 ? min(pc.part, pc.K - first) : pc.K;
}

/* The row and column of a tile, counted in tiles. */
uvec2 tile_place(uint tile)
{
    return (pc.flags & ROWS_FIRST) != 0 ? uvec2(tile % pc.tiles_m, tile / pc.tiles_m)
                                        : uvec2(tile / pc.tiles_n, tile % pc.tiles_n);
}
