/* SPDX-License-Identifier: MIT
 *
 * Gradients that are sent in another form (rf_policy.compress): rounds of each piece, which keep
 * what the form has lost, and their part of checkpoints. Used by run.c, verbs_transfer.c, save.c
 * and load.c. Without such a policy, functions do nothing.
 */
#ifndef RF_TRAIN_COMPRESS_H
#define RF_TRAIN_COMPRESS_H

#include "spans.h"

/* Collective. */
RF_MUST_CHECK int rf_compress_open(struct rf_run *run);
void rf_compress_close(struct rf_run *run);

/* out = the sum over the ranks of `in`, both f32 and a piece. They may be the same. Blocking;
 * collective. *wait_ns: increased by the time for the network. */
RF_MUST_CHECK int rf_compress_reduce(struct rf_run *run, int piece, struct rf_tensor in,
                                     struct rf_tensor out, uint64_t *wait_ns);

/* Adds to a listing of the optimizer's part what each rank keeps, compress.PIECE.ARRAY.RANK, and
 * the spans of this rank. */
RF_MUST_CHECK int rf_compress_list(const struct rf_run *run, struct rf_listing *list);
RF_MUST_CHECK int rf_compress_spans(const struct rf_run *run, const struct rf_listing *list,
                                    struct rf_spans *out);
/* Whether a tensor of a file, or of a listing, is one of those. */
bool rf_compress_names(const char *name);

/* After a load of step `step`: what the form has lost is not known, and 0. */
void rf_compress_forget(struct rf_run *run);
RF_MUST_CHECK int rf_compress_set_step(struct rf_run *run, int64_t step);

#endif
