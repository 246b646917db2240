/* SPDX-License-Identifier: MIT
 *
 * The forms f32 and bf16.
 */
#include <math.h>

#include "base/base.h"
#include "form.h"

static uint64_t f32_bytes(float fraction, int64_t count)
{
    return 4 * (uint64_t)count;
}

static int f32_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    memcpy(to, values, f32_bytes(fraction, count));
    return RF_OK;
}

static int f32_decode(float fraction, const void *from, int64_t count, float *values)
{
    memcpy(values, from, f32_bytes(fraction, count));
    return RF_OK;
}

static uint64_t bf16_bytes(float fraction, int64_t count)
{
    return 2 * (uint64_t)count;
}

/* To nearest, ties to even. */
static int bf16_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    uint16_t *out = to;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        out[i] = isnan(values[i]) ? (uint16_t)(bits >> 16 | 0x40)
                                  : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return RF_OK;
}

static int bf16_decode(float fraction, const void *from, int64_t count, float *values)
{
    const uint16_t *in = from;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(values + i, &bits, sizeof bits);
    }
    return RF_OK;
}

const struct rf_form_row rf_form_f32 = {"f32", true, f32_bytes, f32_encode, f32_decode};
const struct rf_form_row rf_form_bf16 = {"bf16", false, bf16_bytes, bf16_encode, bf16_decode};
