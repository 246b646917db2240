/* SPDX-License-Identifier: MIT
 *
 * All paths of the matrix product, and the fold of split sums.
 */
#include "push.h"

PUSH_BEGIN(matmul)
    word64 a, b, out_, bias, pre, residual; /* accumulating: residual is out */
    uint M, N, K, flags;
    uint tiles_m, tiles_n, groups_x;
    uint a_row, b_row, out_row;    /* elements from a row to the next */
    uint a_step, b_step, out_step; /* and from one z to the next */
    uint part;                     /* SPLIT_K: k of a part; the last may be smaller */
    float alpha;
    /* First texels of views. */
    uint a_first, b_first, residual_first, pre_first;
    /* For a quantised b the sizes determine a_step, b_step and b_row. Then b_first is the number of
     * words from b to the numbers of blocks, b_row the number of these blocks, b_step the first one
     * of b, and a_step how many blocks are between two rows of b (rf_quantized_part). */
PUSH_END(matmul)
