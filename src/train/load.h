/* SPDX-License-Identifier: MIT
 *
 * A load in progress. Shared by load.c, which finds, verifies and checks a checkpoint, and
 * load_read.c, which then reads it into the run's memory.
 */
#ifndef RF_TRAIN_LOAD_H
#define RF_TRAIN_LOAD_H

#include "spans.h"

struct rf_load {
    struct rf_checkpoint checkpoint; /* open on ranks that see it */
    struct rf_checkpoint_state state;
    bool forgets;            /* what a form has lost of gradients (compress.h) */
    bool sees;               /* this rank sees the same checkpoint as rank 0 */
    uint8_t *all_see;        /* by rank */
    int verifier, verifiers; /* this rank's index among those that see the same files */
    struct rf_listing listings[RF_PART_COUNT];
    struct rf_spans spans[RF_PART_COUNT];
    uint8_t *buffer; /* one piece */
    struct rf_span_reader reader;
    const struct rf_run *run;
    struct rf_codes *codes; /* of states in 8 bits: without signs and with them */
    int state_parts;        /* of the checkpoint: RF_STATES_NOTE */
};

/* load_read.c. Fills this rank's spans from the files, or from rank 0, which reads the files for
 * ranks that do not see them. Collective. An error of one rank is returned on all. */
RF_MUST_CHECK int rf_load_read(struct rf_run *run, struct rf_load *load);

#endif
