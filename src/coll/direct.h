/* SPDX-License-Identifier: MIT
 *
 * What direct.c needs to know of a reduction: who contributes how many parts, who owns which chunk,
 * and in which order it is folded. Used by direct.c and forest.c.
 */
#ifndef RF_COLL_DIRECT_H
#define RF_COLL_DIRECT_H

#include "sched.h"

struct rf_direct {
    size_t count;
    int ranks;
    size_t element_bytes;
    /* The chunk of IN that `rank` owns. */
    struct rf_piece (*chunk)(const struct rf_direct *plan, int rank);
    const int *part_counts; /* [rank]; NULL: one each */
    const uint8_t *levels;  /* of all parts, in index order; NULL: all 0 */
    size_t stride_bytes;    /* between the parts of one rank in IN */
    bool tree;              /* pairwise by index; else rank, rank+1, ... from the owner on */
    enum rf_sums { RF_SUMS_STAY, RF_SUMS_TO_ALL, RF_SUMS_TO_ROOT } sums;
    int root;
    const size_t *counts; /* [rank], elements of each chunk; NULL: by rf_chunk or equal */
};

void rf_direct_build(struct rf_sched *sched, const struct rf_coll_desc *desc,
                     const struct rf_direct *plan);
/* Chunks of `count` elements, the first few one longer. */
struct rf_piece rf_direct_ragged_chunk(const struct rf_direct *plan, int rank);
/* Chunks of counts[] elements, or of `count` each. */
struct rf_piece rf_direct_share_chunk(const struct rf_direct *plan, int rank);

#endif
