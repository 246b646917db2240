/* SPDX-License-Identifier: MIT
 *
 * The description of a reduction for direct.c: the number of parts of each rank, the owner of each
 * chunk, and the order of folding. Used by direct.c, forest.c and prefix.c.
 */
#ifndef RF_COLL_DIRECT_H
#define RF_COLL_DIRECT_H

#include "algorithm.h"

/* The segment size of sums in tree order. Not the transport's, so that a plan knows the temporary
 * memory without a network. */
enum { RF_TREE_SEGMENT = 256 * 1024 };

/* An operand that the owner holds in OUT, before all parts: one part for each of its chunks. */
struct rf_direct_held {
    size_t offset; /* bytes, of where the chunk begins */
    int level;
};
/* One of an owner's sums: of operands [first, first + count), counting the held ones and then all
 * parts. */
struct rf_direct_sum {
    uint32_t first, count;
    size_t offset; /* in OUT, as above */
};

struct rf_direct {
    size_t count;
    int ranks;
    size_t element_bytes;
    /* The chunk of IN that `rank` owns. */
    struct rf_byte_range (*chunk)(const struct rf_direct *plan, int rank);
    const int *part_counts; /* [rank]; NULL: one each */
    const uint8_t *levels;  /* of all parts, in index order; NULL: all 0 */
    size_t stride_bytes;    /* between the parts of one rank in IN */
    bool tree;              /* pairwise by index; otherwise rank, rank+1, ... from the owner on */
    enum rf_sums { RF_SUMS_STAY, RF_SUMS_TO_ALL, RF_SUMS_TO_ROOT } sums;
    int root;
    const size_t *counts; /* [rank], elements of each chunk; NULL: by rf_chunk or equal */
    const struct rf_direct_held *held;
    const struct rf_direct_sum *several; /* each is written after the ones before it; NULL: one, of
                                          * all operands. The caller keeps ownership */
    uint32_t held_count, several_count;
};

void rf_direct_build(struct rf_sched *sched, const struct rf_coll_desc *desc,
                     const struct rf_direct *plan);
/* Chunks of `count` elements, the first few one longer. */
struct rf_byte_range rf_direct_ragged_chunk(const struct rf_direct *plan, int rank);
/* Chunks of counts[] elements, or of `count` each. */
struct rf_byte_range rf_direct_share_chunk(const struct rf_direct *plan, int rank);

#endif
