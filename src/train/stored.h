/* SPDX-License-Identifier: MIT
 *
 * Reads and writes parameters and states of a run's memory as f32, whatever their stored type.
 * Checkpoints, hashes and callers use f32. Used by params.c, init.c, save*.c and load*.c.
 */
#ifndef RF_TRAIN_STORED_H
#define RF_TRAIN_STORED_H

#include "run.h"

/* Converts in place: values of `dtype` at the end of the memory of `count` f32 to these, and f32 to
 * values of `dtype` at its begin. */
void rf_stored_widen(float *values, size_t count, enum rf_dtype dtype);
void rf_stored_narrow(float *values, size_t count, enum rf_dtype dtype);

/* Reads all elements of a tensor (f32, f16 or bf16). Blocking. */
RF_MUST_CHECK int rf_stored_read(struct rf_tensor stored, float *values);

/* Rounds to nearest. Overwrites `values`. Blocking. */
RF_MUST_CHECK int rf_stored_write(struct rf_tensor stored, float *values);

#endif
