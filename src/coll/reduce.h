/* SPDX-License-Identifier: MIT
 *
 * Arithmetic on host memory beyond rf_reduce: 16-bit types to f32 and back, and folds of many
 * operands. Called by exec.c and reduce.c.
 */
#ifndef RF_COLL_REDUCE_H
#define RF_COLL_REDUCE_H

#include "coll.h"

/* Callers' buffers may have any alignment and any declared type. */
#define ANY_PLACE __attribute__((aligned(1), may_alias))
typedef float f32_place ANY_PLACE;
typedef double f64_place ANY_PLACE;
typedef uint32_t u32_place ANY_PLACE;
typedef int32_t i32_place ANY_PLACE;
typedef uint64_t u64_place ANY_PLACE;
typedef int64_t i64_place ANY_PLACE;

/* f16 and bf16 only. Pointers of 16-bit data need no alignment. */
void rf_widen(float *wide, const void *narrow, size_t count, enum rf_dtype dtype);
/* To nearest, ties to even; NaN stays NaN. */
void rf_narrow(void *narrow, const float *wide, size_t count, enum rf_dtype dtype);

/* For f32 or f64: low = the minimum of low (unless first), a and b; high = the maximum. If any is
 * NaN, the results are arbitrary. low and high overlap neither each other nor a and b. */
void rf_find_range(void *low, void *high, const void *a, const void *b, bool first, size_t count,
                   enum rf_dtype dtype);
/* x = the number between low and high that is nearest to it. NaN stays NaN. */
void rf_clamp(void *x, const void *low, const void *high, size_t count, enum rf_dtype dtype);

struct rf_fold_part {
    const void *data;
    int level; /* the operand is the sum of a subtree of 2^level leaves; for folds by tree only */
};

struct rf_fold {
    const struct rf_fold_part *parts;
    uint32_t part_count;
    enum rf_dtype dtype;
    enum rf_redop redop;
    bool tree;                         /* pairwise over the leaves; otherwise sequential */
    int divisor;                       /* 1 = none; the number of parts: their average */
    const struct rf_reduction *custom; /* for RF_CUSTOM; else NULL */
};

enum { RF_FOLD_BYTES = 2048 }; /* of a block, in the type of the arithmetic */

/* fold_parts.c. f32 for f16 and bf16; otherwise the type itself. */
enum rf_dtype rf_fold_type(const struct rf_fold *fold);
/* `count` elements of part i from this byte on, in that type: in place, or widened into `wide`. */
const void *rf_fold_part(const struct rf_fold *fold, uint32_t i, size_t offset, size_t count,
                         float *wide);

/* average.c. Averages of a block of at most RF_FOLD_BYTES, which starts at byte `offset` of each
 * part. sum: in floats, in the type of the arithmetic; it becomes the average. */
void rf_average_floats(void *sum, const struct rf_fold *fold, size_t offset, size_t count);
/* `to` is not one of the parts. */
void rf_average_integers(void *to, const struct rf_fold *fold, size_t offset, size_t count);

/* dst = the fold; dst may be one of the parts. */
void rf_fold(void *dst, const struct rf_fold *fold, size_t count);
/* The same into several places at once; each is one of the parts or overlaps none. past_caches:
 * together they exceed the caches. */
void rf_fold_to_all(unsigned char *const *places, int place_count, const struct rf_fold *fold,
                    size_t count, bool past_caches);

#endif
