/* SPDX-License-Identifier: MIT
 *
 * Gradients that are sent in another form: which values a piece sends, and their rule. Used by the
 * bytes of transfers (transfer.c) and by runs (train/compress.c).
 */
#ifndef RF_PARALLEL_COMPRESS_H
#define RF_PARALLEL_COMPRESS_H

#include <ringforge/rounds.h>

#include "plan.h"

/* The gradient of a parameter, inside its piece. */
struct rf_plan_sent {
    uint64_t first; /* element of the piece */
    int64_t count;
    struct rf_round_shape shape;
};

/* The gradients of a piece, in the order of their places: *out, freed with rf_free. */
RF_MUST_CHECK int rf_plan_sent_of(const struct rf_plan *plan, int piece, struct rf_plan_sent **out,
                                  int *count);

struct rf_rounds_rule rf_plan_compress_rule(const struct rf_policy *policy);

/* Bytes that this rank sends for a piece, and messages one after the other. Either may be NULL. */
RF_MUST_CHECK int rf_plan_compressed(const struct rf_plan *plan, int piece, uint64_t *bytes,
                                     uint64_t *rounds);

#endif
