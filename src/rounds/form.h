/* SPDX-License-Identifier: MIT
 *
 * The forms in which f32 values travel between workers. A form is a row of the table in form.c.
 * fraction: of RF_FORM_TOP, the share of the values that is sent.
 */
#ifndef RF_ROUNDS_FORM_H
#define RF_ROUNDS_FORM_H

#include <ringforge/rounds.h>

/* Whether values arrive as they were. */
bool rf_form_is_exact(enum rf_form form);

/* The bytes of `count` values: a multiple of 4, but for bf16. */
uint64_t rf_form_bytes(enum rf_form form, float fraction, int64_t count);

/* Writes that many bytes to `to`, aligned to 4. scratch: room for `count` values. RF_EINVAL: a
 * value is not finite, and the form has no such value. */
int rf_form_encode(enum rf_form form, float fraction, const float *values, int64_t count, void *to,
                   float *scratch);

/* values = what the bytes say. They are another rank's, and may be any: RF_ECORRUPT if they are
 * none of this form. */
int rf_form_decode(enum rf_form form, float fraction, const void *from, int64_t count,
                   float *values);

#endif
