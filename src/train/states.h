/* SPDX-License-Identifier: MIT
 *
 * States in 8 bits in a checkpoint: a tensor of bytes that has the blocks of all tensor parts of a
 * parameter, one part after the other. spans.c lists them; load*.c reads states of any type.
 */
#ifndef RF_TRAIN_STATES_H
#define RF_TRAIN_STATES_H

#include "load.h"

/* The number of parts of such a tensor, and the 32-bit words before part `part`; at the end, of all
 * parts. */
int rf_states_parts(const struct rf_param_cut *cut);
uint64_t rf_states_words(const struct rf_param_cut *cut, int part);

#define RF_STATES_NOTE "state_parts" /* of the file, if it has states in 8 bits */

/* Makes the tables of a load, and reads the note of its checkpoint, if this rank sees it. */
RF_MUST_CHECK int rf_states_open(const struct rf_run *run, struct rf_load *load);
/* Whether a tensor of the optimizer's part is a state, and not an array beside it. */
bool rf_states_are(const struct rf_listed *listed);
/* The type of a state in the checkpoint is f32 or, with blocks that fit the parameter, u8. Rank 0
 * sets *converts if this run has it in another form. */
RF_MUST_CHECK int rf_states_check(const struct rf_run *run, const struct rf_load *load, int tensor,
                                  bool *converts);
/* Reads bytes [at, at + bytes) of a state of the listing, whatever its form in the checkpoint. */
RF_MUST_CHECK int rf_states_read(struct rf_load *load, int tensor, uint64_t at, uint64_t bytes,
                                 uint8_t *out);

#endif
