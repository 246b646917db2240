/* SPDX-License-Identifier: MIT
 *
 * Lifetimes of the temporary values of a plan, from its lists. Used by lifetimes.c.
 */
#ifndef RF_PARALLEL_INTERVALS_H
#define RF_PARALLEL_INTERVALS_H

#include "../plan/plan.h"

/* A lifetime of a value: from an instruction that writes it without reading it to its last use, and
 * as long as another lane or rank may still read it. A value may have several. */
struct rf_interval {
    int value;
    int begin, end; /* instruction indices, over all lists */
};

/* Whether the value has memory only during its lifetimes: it is temporary, and has bytes. */
bool rf_value_is_placed(const struct rf_plan *plan, const struct rf_value *value);

/* The lifetimes of all placed values, in the order of their begins. The caller frees *out with
 * rf_free. */
RF_MUST_CHECK int rf_plan_intervals(const struct rf_plan *plan, struct rf_interval **out,
                                    int *count);

#endif
