/* SPDX-License-Identifier: MIT
 *
 * Blocks of floating-point numbers of 4 and 8 bits times scales: RF_FP8, RF_MXFP4 and RF_NVFP4, as
 * quantize.h says.
 */
#include "quantize.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../base/small_float.h"

#define LARGEST_E4M3 448.0F
#define LARGEST_E2M1 6.0F

int rf_small_block(enum rf_quantization kind)
{
    return kind == RF_MXFP4 ? 32 : kind == RF_NVFP4 ? 16 : RF_QUANTIZE_BLOCK;
}

static uint8_t code_of(enum rf_small_float format, float x)
{
    return rf_small_float_code(format, x, RF_ROUND_NEAREST, true, 0);
}

static float largest_of(const float *values, int count)
{
    float largest = 0;
    for (int i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    return largest;
}

/* Writes the scale of a block, and returns it. */
static float put_scale(enum rf_quantization kind, float largest, float tensor, uint8_t *scales,
                       int64_t block)
{
    if (kind == RF_MXFP4) {
        int exponent = 0;
        frexpf(largest, &exponent); /* largest = m 2^exponent, 0.5 <= m < 1 */
        exponent = largest > 0 && exponent - 3 > -126 ? exponent - 3 : -126;
        scales[block] = (uint8_t)(exponent + 127);
        return ldexpf(1, exponent);
    }
    if (kind == RF_NVFP4) {
        scales[block] = code_of(RF_E4M3, largest / LARGEST_E2M1 / tensor);
        return rf_small_float_value(RF_E4M3, scales[block]) * tensor;
    }
    const float scale =
        largest > 0 && largest / LARGEST_E4M3 < FLT_MIN ? FLT_MIN : largest / LARGEST_E4M3;
    memcpy(scales + 4 * block, &scale, sizeof(scale));
    return scale;
}

void rf_small_write(enum rf_quantization kind, const float *values, int count, int64_t first,
                    float tensor, uint8_t *bytes, const struct rf_quantized_layout *layout)
{
    const int block = rf_small_block(kind);
    for (int from = 0; from < count; from += block) {
        const int n = count - from < block ? count - from : block;
        const float scale = put_scale(kind, largest_of(values + from, n), tensor,
                                      bytes + layout->blocks, (first + from) / block);
        for (int i = from; i < from + n; i++) {
            const int64_t at = first + i;
            const float x = scale > 0 ? values[i] / scale : 0;
            if (kind == RF_FP8)
                bytes[at] = code_of(RF_E4M3, x);
            else
                bytes[at / 2] |= (uint8_t)(code_of(RF_E2M1, x) << (at % 2 ? 4 : 0));
        }
    }
}

static float f32_at(const uint8_t *bytes)
{
    float x;
    memcpy(&x, bytes, sizeof(x));
    return x;
}

float rf_small_read(enum rf_quantization kind, uint64_t index, const uint8_t *bytes,
                    const struct rf_quantized_layout *layout)
{
    const uint64_t block = index / (uint64_t)rf_small_block(kind);
    const uint8_t *scales = bytes + layout->blocks;
    if (kind == RF_FP8)
        return rf_small_float_value(RF_E4M3, bytes[index]) * f32_at(scales + 4 * block);
    const float x = rf_small_float_value(RF_E2M1, bytes[index / 2] >> (index % 2 ? 4 : 0) & 15);
    if (kind == RF_MXFP4)
        return x * rf_small_float_value(RF_E8M0, scales[block]);
    return x * (rf_small_float_value(RF_E4M3, scales[block]) * f32_at(bytes + layout->offset));
}
