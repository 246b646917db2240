/* SPDX-License-Identifier: MIT
 *
 * The form sign: signs, with one magnitude for each block (Bernstein et al. 2018; Karimireddy et
 * al. 2019).
 */
#include <math.h>

#include "base/base.h"
#include "form.h"

enum { SIGN_BLOCK = 1024 };

static int64_t sign_blocks(int64_t count)
{
    return (count + SIGN_BLOCK - 1) / SIGN_BLOCK;
}

/* A scale for each block, then a bit for each value, both from the first on. */
static uint64_t sign_bytes(float fraction, int64_t count)
{
    return 4 * (uint64_t)(sign_blocks(count) + (count + 31) / 32);
}

static int sign_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    const int64_t blocks = sign_blocks(count);
    uint32_t *bits = (uint32_t *)to + blocks;
    memset(to, 0, sign_bytes(fraction, count));
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t from = block * SIGN_BLOCK;
        const int64_t end = from + SIGN_BLOCK < count ? from + SIGN_BLOCK : count;
        double sum = 0;
        for (int64_t i = from; i < end; i++) {
            sum += fabs((double)values[i]);
            bits[i / 32] |= (uint32_t)(values[i] >= 0) << i % 32;
        }
        if (!isfinite(sum))
            return rf_fail(RF_EINVAL,
                           "a value from number %lld on is not finite, and cannot be sent as "
                           "\"sign\"",
                           (long long)from);
        const float scale = (float)(sum / (double)(end - from));
        memcpy((float *)to + block, &scale, sizeof scale);
    }
    return RF_OK;
}

static int sign_decode(float fraction, const void *from, int64_t count, float *values)
{
    const uint32_t *bits = (const uint32_t *)from + sign_blocks(count);
    for (int64_t i = 0; i < count; i++) {
        const float scale = ((const float *)from)[i / SIGN_BLOCK];
        values[i] = bits[i / 32] >> i % 32 & 1 ? scale : -scale;
    }
    return RF_OK;
}

const struct rf_form_row rf_form_sign = {"sign", false, sign_bytes, sign_encode, sign_decode};
