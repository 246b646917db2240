/* SPDX-License-Identifier: MIT
 *
 * Parameters and states in a run's memory, read and written as f32 whatever type they are stored
 * in: what checkpoints, hashes and callers see. Used by params.c, init.c, save*.c and load*.c.
 */
#ifndef RF_TRAIN_STORED_H
#define RF_TRAIN_STORED_H

#include "run.h"

/* All elements of a tensor (f32, f16 or bf16). Blocking. */
RF_MUST_CHECK int rf_stored_read(struct rf_tensor stored, float *values);

/* Rounds to nearest. What is in `values` is lost. Blocking. */
RF_MUST_CHECK int rf_stored_write(struct rf_tensor stored, float *values);

#endif
