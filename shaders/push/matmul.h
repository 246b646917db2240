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
    /* First texels of views; for a quantised b, b_first is the number of its elements. */
    uint a_first, b_first, residual_first, pre_first;
PUSH_END(matmul)
