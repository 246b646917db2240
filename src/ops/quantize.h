/* SPDX-License-Identifier: MIT
 *
 * The interface of quantize_codes.c for quantize.c, which divides tensors into blocks: the second
 * level of RF_NF4, and the levels of both.
 */
#ifndef RF_OPS_QUANTIZE_H
#define RF_OPS_QUANTIZE_H

#include <ringforge/quantize.h>

#define RF_NF4_GROUP 256 /* blocks that share a number of the second level */

extern const float rf_nf4_levels[16];

/* The value of a code of the 8-bit dynamic map. */
float rf_dynamic_value(uint8_t code);

/* Codes, largest magnitudes of their groups and offset of `count` blocks. Overwrites `absmax`. */
void rf_nf4_compress(float *absmax, int64_t count, uint8_t *codes, float *largest, float *offset);

#endif
