/* SPDX-License-Identifier: MIT
 *
 * The forms int8 and nf4: blocks of 64 with scales (quantize.h).
 */
#include <ringforge/quantize.h>

#include "base/base.h"
#include "form.h"

static uint64_t int8_bytes(float fraction, int64_t count)
{
    return rf_quantized_bytes(RF_INT8, count);
}

static int int8_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    return rf_quantize(RF_INT8, values, count, to);
}

static int int8_decode(float fraction, const void *from, int64_t count, float *values)
{
    return rf_dequantize((struct rf_quantized){RF_INT8, from, count}, 0, count, values);
}

static uint64_t nf4_bytes(float fraction, int64_t count)
{
    return rf_quantized_bytes(RF_NF4, count);
}

static int nf4_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    return rf_quantize(RF_NF4, values, count, to);
}

static int nf4_decode(float fraction, const void *from, int64_t count, float *values)
{
    return rf_dequantize((struct rf_quantized){RF_NF4, from, count}, 0, count, values);
}

const struct rf_form_row rf_form_int8 = {"int8", false, int8_bytes, int8_encode, int8_decode};
const struct rf_form_row rf_form_nf4 = {"nf4", false, nf4_bytes, nf4_encode, nf4_decode};
