/* SPDX-License-Identifier: MIT
 *
 * The form top: the largest values, with their numbers (Aji, Heafield 2017).
 */
#include <math.h>

#include "base/base.h"
#include "form.h"

static int64_t kept(float fraction, int64_t count)
{
    const double wanted = ceil((double)fraction * (double)count);
    return wanted < 1 ? count > 0 : wanted > (double)count ? count : (int64_t)wanted;
}

static uint64_t top_bytes(float fraction, int64_t count)
{
    return 8 * (uint64_t)kept(fraction, count);
}

/* The k-th largest of n numbers (Hoare 1961). Reorders them. */
static float select_largest(float *values, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        const float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                const float value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return values[k - 1];
}

/* Pairs of u32 and f32 in ascending order. Of values of equal magnitude the first are sent. */
static int top_encode(float fraction, const float *values, int64_t count, void *to, float *scratch)
{
    const int64_t wanted = kept(fraction, count);
    uint32_t *out = to;
    int64_t above = 0;
    if (wanted == 0)
        return RF_OK;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return rf_fail(RF_EINVAL, "value %lld is not finite, and cannot be sent as \"top\"",
                           (long long)i);
        scratch[i] = fabsf(values[i]);
    }
    const float least = select_largest(scratch, count, wanted);
    for (int64_t i = 0; i < count; i++)
        above += fabsf(values[i]) > least;
    for (int64_t i = 0, equal = wanted - above; i < count; i++) {
        if (fabsf(values[i]) < least || (fabsf(values[i]) == least && equal-- <= 0))
            continue;
        *out++ = (uint32_t)i;
        memcpy(out++, values + i, sizeof *values);
    }
    return RF_OK;
}

static int top_decode(float fraction, const void *from, int64_t count, float *values)
{
    const uint32_t *in = from;
    int64_t next = 0;
    memset(values, 0, (size_t)count * sizeof *values);
    for (int64_t k = 0; k < kept(fraction, count); k++) {
        const int64_t at = in[2 * k];
        if (at < next || at >= count)
            return rf_fail(RF_ECORRUPT,
                           "pair %lld of the largest values has the number %lld; numbers ascend "
                           "and are below %lld",
                           (long long)k, (long long)at, (long long)count);
        memcpy(values + at, in + 2 * k + 1, sizeof *values);
        next = at + 1;
    }
    return RF_OK;
}

const struct rf_form_row rf_form_top = {"top", false, top_bytes, top_encode, top_decode};
