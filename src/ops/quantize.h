/* SPDX-License-Identifier: MIT
 *
 * The interface of quantize_codes.c and quantize_small.c for quantize.c, which divides tensors into
 * blocks: the second level of RF_NF4 and its levels; and the kinds with numbers of 4 and 8 bits.
 */
#ifndef RF_OPS_QUANTIZE_H
#define RF_OPS_QUANTIZE_H

#include <ringforge/quantize.h>
#include <stdbool.h>

#define RF_NF4_GROUP 256 /* blocks that share a number of the second level */

extern const float rf_nf4_levels[16];

/* The value of a code of the 8-bit dynamic map. */
float rf_dynamic_value(uint8_t code);

/* Codes, largest magnitudes of their groups and offset of `count` blocks. Overwrites `absmax`. */
void rf_nf4_compress(float *absmax, int64_t count, uint8_t *codes, float *largest, float *offset);

/* Whether a part of a matrix has the numbers of all blocks. */
bool rf_numbers_are_whole(enum rf_quantization kind);

/* ---- quantize_small.c: RF_FP8, RF_MXFP4, RF_NVFP4 -------------------------------------------- */

/* Elements that share a scale. */
int rf_small_block(enum rf_quantization kind);
/* Writes `count` values, at most RF_QUANTIZE_BLOCK, from element `first` on, a multiple of that.
 * scale: the tensor's. */
void rf_small_write(enum rf_quantization kind, const float *values, int count, int64_t first,
                    float scale, uint8_t *bytes, const struct rf_quantized_layout *layout);
float rf_small_read(enum rf_quantization kind, uint64_t index, const uint8_t *bytes,
                    const struct rf_quantized_layout *layout);

#endif
