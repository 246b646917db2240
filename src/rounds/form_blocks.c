/* SPDX-License-Identifier: MIT
 *
 * The forms int8 and nf4: blocks of 64 with scales (quantize.h).
 */
#include <ringforge/quantize.h>

#include "base/base.h"
#include "form.h"

#define BLOCKS(name, kind)                                                                         \
    static uint64_t name##_bytes(float fraction, int64_t count)                                    \
    {                                                                                              \
        return rf_quantized_bytes(kind, count);                                                    \
    }                                                                                              \
    static int name##_encode(float fraction, const float *values, int64_t count, void *to,         \
                             float *scratch)                                                       \
    {                                                                                              \
        return rf_quantize(kind, values, count, to);                                               \
    }                                                                                              \
    static int name##_decode(float fraction, const void *from, int64_t count, float *values)       \
    {                                                                                              \
        return rf_dequantize((struct rf_quantized){kind, from, count}, 0, count, values);          \
    }                                                                                              \
    const struct rf_form_row rf_form_##name = {#name, false, name##_bytes, name##_encode,          \
                                               name##_decode}

BLOCKS(int8, RF_INT8);
BLOCKS(nf4, RF_NF4);
