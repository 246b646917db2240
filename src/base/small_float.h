/* SPDX-License-Identifier: MIT
 *
 * Floating-point numbers of 4 and 8 bits, by the table in shaders/small_float.h, which also has the
 * conversions for kernels. E4M3 has no infinity, and its largest number is 448 (e4m3fn); E5M2 is
 * like f16, up to 57344; E2M1 has neither infinity nor NaN, up to 6; E8M0 has powers of two from
 * 2^-127 to 2^127 and NaN, and no sign.
 */
#ifndef RF_BASE_SMALL_FLOAT_H
#define RF_BASE_SMALL_FLOAT_H

#include <stdbool.h>
#include <stdint.h>

enum rf_small_float { RF_E4M3 = 0, RF_E5M2, RF_E2M1, RF_E8M0, RF_SMALL_FLOAT_COUNT };

enum rf_rounding {
    RF_ROUND_NEAREST = 0, /* ties to the even code */
    RF_ROUND_DOWN,        /* towards 0 */
    RF_ROUND_UP,          /* away from 0 */
    RF_ROUND_RANDOM       /* away from 0 with the probability given by the dropped bits */
};

/* "e4m3", ...; NULL for other numbers. */
const char *rf_small_float_name(enum rf_small_float format);
/* The value of a code. Bits above those of the format are ignored. */
float rf_small_float_value(enum rf_small_float format, uint8_t code);
/* The code of x. Above the largest number, and for infinity: the largest number if `saturate`, else
 * infinity, or NaN, or the largest number, the first of them that the format has. NaN is NaN, or
 * the largest number of E2M1. random: 32 bits for RF_ROUND_RANDOM. */
uint8_t rf_small_float_code(enum rf_small_float format, float x, enum rf_rounding rounding,
                            bool saturate, uint32_t random);

#endif
