/* SPDX-License-Identifier: MIT
 *
 * The action of each verb: it is recorded on the stream, or starts a transfer, or runs on the host.
 */
#ifndef RF_TRAIN_VERBS_H
#define RF_TRAIN_VERBS_H

#include "run.h"

struct rf_verb_row {
    int (*record)(struct rf_execution *, const struct rf_instruction *);
    /* Asynchronous. Starts at the point `after`, and returns a point that is reached at its end. */
    int (*start)(struct rf_execution *, const struct rf_instruction *, struct rf_point after,
                 struct rf_point *done);
    int (*act)(struct rf_execution *, const struct rf_instruction *); /* blocks */
};
/* verbs_transfer.c */
#define RF_STARTS(name)                                                                            \
    RF_MUST_CHECK int rf_start_##name(struct rf_execution *p, const struct rf_instruction *i,      \
                                      struct rf_point after, struct rf_point *done)
RF_STARTS(reduce);
RF_STARTS(gather);
RF_STARTS(exchange);
RF_STARTS(message);
RF_STARTS(copy);
RF_STARTS(norm_share);
RF_STARTS(disk);

extern const struct rf_verb_row rf_verbs[RF_VERB_COUNT];

/* Copies the step's scalars from the device to the statistics of the pass. Does nothing in
 * evaluation. */
void rf_take_scalars(struct rf_execution *pass);

#endif
