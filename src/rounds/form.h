/* SPDX-License-Identifier: MIT
 *
 * The forms in which f32 values travel between workers. A form is a file form_NAME.c, which is one
 * row, and its place in the table of form.c. fraction: of RF_FORM_TOP, the share of the values that
 * is sent.
 */
#ifndef RF_ROUNDS_FORM_H
#define RF_ROUNDS_FORM_H

#include <ringforge/rounds.h>

/* ---- messages of a range of the values ------------------------------------------------------- */

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

/* ---- factors of all values ------------------------------------------------------------------- */

/* Whether the form has no messages, but factors: f32 numbers, whose means over the ranks are made
 * by all-reduce, in RF_FORM_SUMS phases. */
bool rf_form_has_factors(enum rf_form form);
#define RF_FORM_SUMS 2

struct rf_form_factors {
    const struct rf_round_shape *shapes; /* of the values, one after the other */
    int shape_count;
    int rank;       /* of the approximation */
    uint64_t round; /* number of the exchange */
    const float *value;
    float *feedback;   /* what is lost of `value`; NULL: is not kept */
    const float *warm; /* what an exchange keeps for the next, in the place of its matrix */
    float *next_warm;  /* written in the last phase */
    float *mean;
    float *sums[RF_FORM_SUMS];
};

/* The f32 numbers of sums[phase]. */
int64_t rf_form_factor_values(enum rf_form form, const struct rf_form_factors *factors, int phase);

/* Phase 0 writes sums[0]; phase 1 writes sums[1] and feedback; phase 2 writes mean and next_warm.
 * Between two of them the caller replaces the sums of the first one by their means over the ranks.
 * Errors: RF_EINVAL (a value is not finite). */
int rf_form_phase(enum rf_form form, const struct rf_form_factors *factors, int phase);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Either the first three functions, or the last two. */
struct rf_form_row {
    const char *name;
    bool is_exact;
    uint64_t (*bytes)(float fraction, int64_t count);
    int (*encode)(float fraction, const float *values, int64_t count, void *to, float *scratch);
    int (*decode)(float fraction, const void *from, int64_t count, float *values);
    int64_t (*factor_values)(const struct rf_form_factors *factors, int phase);
    int (*phase)(const struct rf_form_factors *factors, int phase);
};
extern const struct rf_form_row rf_form_f32, rf_form_bf16, rf_form_int8, rf_form_nf4, rf_form_top,
    rf_form_sign, rf_form_powersgd;

#endif
