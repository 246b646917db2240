/* SPDX-License-Identifier: MIT
 *
 * What each verb does. A verb is recorded on the stream, or starts a transfer, or acts on the host.
 */
#ifndef RF_TRAIN_VERBS_H
#define RF_TRAIN_VERBS_H

#include "run.h"

struct rf_verb_row {
    int (*record)(struct rf_pass *, const struct rf_instruction *);
    /* Asynchronous, after a point; says when it has ended. */
    int (*start)(struct rf_pass *, const struct rf_instruction *, struct rf_point after,
                 struct rf_point *done);
    int (*act)(struct rf_pass *, const struct rf_instruction *); /* blocks */
};
/* verbs_transfer.c */
#define RF_STARTS(name)                                                                            \
    RF_MUST_CHECK int rf_start_##name(struct rf_pass *p, const struct rf_instruction *i,           \
                                      struct rf_point after, struct rf_point *done)
RF_STARTS(reduce);
RF_STARTS(gather);
RF_STARTS(exchange);
RF_STARTS(message);
RF_STARTS(copy);
RF_STARTS(norm_share);

extern const struct rf_verb_row rf_verbs[RF_VERB_COUNT];

/* What the device said in the step's scalars, into the pass's stats. Nothing in evaluation. */
void rf_take_scalars(struct rf_pass *pass);

#endif
