/* SPDX-License-Identifier: MIT
 *
 * Arithmetic on host memory beyond rf_reduce: 16-bit types to f32 and back, and folds of many
 * operands. Called by exec.c and reduce.c.
 */
#ifndef RF_COLL_REDUCE_H
#define RF_COLL_REDUCE_H

#include "coll.h"

/* f16 and bf16 only. Pointers of 16-bit data need no alignment. */
void rf_widen(float *wide, const void *narrow, size_t count, enum rf_dtype dtype);
/* To nearest, ties to even; NaN stays NaN. */
void rf_narrow(void *narrow, const float *wide, size_t count, enum rf_dtype dtype);

struct rf_fold_part {
    const void *data;
    int level; /* it is the sum of a subtree of 2^level leaves; folds by tree only */
};

struct rf_fold {
    const struct rf_fold_part *parts;
    uint32_t part_count;
    enum rf_dtype dtype;
    enum rf_redop redop;
    bool tree;                         /* pairwise over the leaves; else one after the other */
    int divisor;                       /* 1 = none */
    const struct rf_reduction *custom; /* of RF_CUSTOM; else NULL */
};

/* dst = the fold; dst may be one of the parts. Reads every part once. */
void rf_fold(void *dst, const struct rf_fold *fold, size_t count);
/* The same into several places at once; each is a part or apart from all. past_caches: together
 * they are too much for the caches. */
void rf_fold_to_all(unsigned char *const *places, int place_count, const struct rf_fold *fold,
                    size_t count, bool past_caches);

#endif
