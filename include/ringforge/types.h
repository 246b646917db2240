/* SPDX-License-Identifier: MIT
 *
 * Types that every part of the library uses: element types, reductions, the order of a sum, and
 * points on timelines.
 */
#ifndef RINGFORGE_TYPES_H
#define RINGFORGE_TYPES_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rf_dtype { RF_F32 = 0, RF_F64, RF_F16, RF_BF16, RF_I32, RF_I64, RF_U8, RF_I8, RF_DTYPE_COUNT };

/* An average lies between its least and its greatest operand, even if the sum overflows the type.
 * An average of integers is exact, truncated towards zero. Sums and products of integers wrap.
 * Minimum and maximum propagate NaN. */
enum rf_redop {
    RF_SUM = 0,
    RF_AVG,
    RF_MIN,
    RF_MAX,
    RF_PROD,
    RF_REDOP_COUNT,
    RF_CUSTOM = RF_REDOP_COUNT /* user-defined: struct rf_reduction in collectives.h */
};

/* The order of the additions of a sum. For floating-point types the bits of the result depend on
 * it. */
enum rf_order {
    RF_ORDER_ANY = 0, /* the fastest for the size */
    /* Chunk c is summed in the order of ranks c, c + 1, ... around the ring. The bits are the same
     * in every run, on every transport and for every message size. */
    RF_ORDER_RING,
    /* Pairwise by index. In training the index is the global micro-batch, so the bits are the same
     * for every number of ranks. In a plain collective it is the rank. */
    RF_ORDER_TREE
};

/* The value 0 of a numeric option means unset: the default in its comment applies. RF_ZERO, the
 * negative zero, means the number 0, for every such option. */
#define RF_ZERO (-0.0f)

/* The value of an option. */
static inline float rf_option(float option, float otherwise)
{
    return option != 0 ? option : __builtin_signbit(option) ? 0.0f : otherwise;
}

/* A counter that only grows (device.h). */
struct rf_timeline;

/* The event that `timeline` reaches `value`. A point with a NULL timeline is always reached. */
struct rf_point {
    struct rf_timeline *timeline;
    uint64_t value;
};

/* Targets that are not tokens. All negative ones are ignored. */
enum {
    RF_TARGET_NONE = -1,
    /* The token is the last of its document: with rf_policy.packed another one follows. */
    RF_TARGET_LAST = -2
};

/* 0 for an unknown type. */
RF_EXPORT size_t rf_dtype_bytes(enum rf_dtype dtype);

/* "f32", ...; "?" for an unknown type. */
RF_EXPORT const char *rf_dtype_name(enum rf_dtype dtype);

/* "sum", ... */
RF_EXPORT const char *rf_redop_name(enum rf_redop redop);

/* "any", "ring", "tree" */
RF_EXPORT const char *rf_order_name(enum rf_order order);

#ifdef __cplusplus
}
#endif
#endif
