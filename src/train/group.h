/* SPDX-License-Identifier: MIT
 *
 * A run of several ranks as one worker: which trained elements of the whole model a rank has, and
 * in which order. Used by group.c, and not beyond it.
 */
#ifndef RF_TRAIN_GROUP_H
#define RF_TRAIN_GROUP_H

#include "run.h"

/* Values that are consecutive among those of a rank, and among those of the whole model. */
struct rf_group_run {
    int64_t mine, all, count;
};
struct rf_group_runs { /* zero: empty */
    struct rf_group_run *list;
    size_t count, capacity;
    int64_t values; /* of all of them */
};
/* Adds a run at the end, or makes the last one longer. */
RF_MUST_CHECK int rf_group_add(struct rf_group_runs *runs, int64_t mine, int64_t all,
                               int64_t count);
void rf_group_runs_free(struct rf_group_runs *runs);

/* The values that a rank has: parameters, as rf_run_rounds_params; or gradients: of its shards, in
 * the same order, and then those of the uses that are apart, which are behind the parameters of the
 * whole model, too. */
enum rf_group_kind { RF_GROUP_PARAMS, RF_GROUP_GRADS, RF_GROUP_KINDS };
RF_MUST_CHECK int rf_group_runs_of(const struct rf_plan *plan, enum rf_group_kind kind,
                                   struct rf_group_runs *out);
/* Reads this rank's gradients. Blocking. */
RF_MUST_CHECK int rf_group_read_grads(const struct rf_run *run, float *to);

/* Of the runs, those of which `taken` has none, and marks them there: an entry, 0 or 1, for each
 * value of the whole model. */
RF_MUST_CHECK int rf_group_claim(const struct rf_group_runs *runs, uint8_t *taken,
                                 struct rf_group_runs *out);

#endif
