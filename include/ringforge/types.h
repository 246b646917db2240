/* SPDX-License-Identifier: MIT
 *
 * The few types that every part of the library speaks: element types, reductions, the order of a
 * sum, and points in time.
 */
#ifndef RINGFORGE_TYPES_H
#define RINGFORGE_TYPES_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rf_dtype { RF_F32 = 0, RF_F64, RF_F16, RF_BF16, RF_I32, RF_I64, RF_U8, RF_I8, RF_DTYPE_COUNT };

/* Integer averages truncate, integer overflow wraps, min and max propagate NaN. */
enum rf_redop {
    RF_SUM = 0,
    RF_AVG,
    RF_MIN,
    RF_MAX,
    RF_PROD,
    RF_REDOP_COUNT,
    RF_CUSTOM = RF_REDOP_COUNT /* the caller's own: struct rf_reduction in comm.h */
};

/* The order in which a sum is folded, which is a part of the result for floats.
 * ANY: whatever is fastest for the size. RING: chunk c is folded c, c+1, ... around the ring: same
 * bits from run to run, on every transport and for every message size. TREE: pairwise over the
 * global micro-batch index: same bits for every number of ranks (training only; for a plain
 * collective it is pairwise over the rank). */
enum rf_order { RF_ORDER_ANY = 0, RF_ORDER_RING, RF_ORDER_TREE };

/* A point in time: `timeline` has reached `value`. A NULL timeline is always reached. */
struct rf_timeline;
struct rf_point {
    struct rf_timeline *timeline;
    uint64_t value;
};

RF_EXPORT size_t rf_dtype_bytes(enum rf_dtype dtype);     /* 0 for an unknown type */
RF_EXPORT const char *rf_dtype_name(enum rf_dtype dtype); /* "f32", ...; "?" for an unknown type */
RF_EXPORT const char *rf_redop_name(enum rf_redop redop); /* "sum", ... */
RF_EXPORT const char *rf_order_name(enum rf_order order); /* "any", "ring", "tree" */

#ifdef __cplusplus
}
#endif
#endif
