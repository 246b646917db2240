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
extern const struct rf_verb_row rf_verbs[RF_VERB_COUNT];

/* What the device said in the step's scalars, into the pass's stats. Nothing in evaluation. */
void rf_take_scalars(struct rf_pass *pass);

#endif
