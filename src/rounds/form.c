/* SPDX-License-Identifier: MIT
 *
 * The forms in which f32 values travel between workers. A form is a row of the table below: its
 * bytes, and how values are written and read. What a form loses is the business of the caller, who
 * adds it to what is sent next (error feedback, Seide et al. 2014).
 */
#include "form.h"

#include <math.h>
#include <ringforge/quantize.h>

#include "base/base.h"

struct form {
    const char *name;
    bool is_exact;
    uint64_t (*bytes)(float fraction, int64_t count);
    int (*encode)(float fraction, const float *values, int64_t count, void *to, float *scratch);
    int (*decode)(float fraction, const void *from, int64_t count, float *values);
};

/* ---- f32 and bf16 ---------------------------------------------------------------------------- */

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

/* ---- blocks of 64 with scales: quantize.h ---------------------------------------------------- */

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

/* ---- the largest values, with their numbers -------------------------------------------------- */

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

/* ---- signs, with one magnitude for each block (Bernstein et al. 2018; Karimireddy et al. 2019)
 * ---- */

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

static const struct form forms[RF_FORM_COUNT] = {
    [RF_FORM_F32] = {"f32", true, f32_bytes, f32_encode, f32_decode},
    [RF_FORM_BF16] = {"bf16", false, bf16_bytes, bf16_encode, bf16_decode},
    [RF_FORM_INT8] = {"int8", false, int8_bytes, int8_encode, int8_decode},
    [RF_FORM_NF4] = {"nf4", false, nf4_bytes, nf4_encode, nf4_decode},
    [RF_FORM_TOP] = {"top", false, top_bytes, top_encode, top_decode},
    [RF_FORM_SIGN] = {"sign", false, sign_bytes, sign_encode, sign_decode},
};

const char *rf_form_name(enum rf_form form)
{
    return (unsigned)form < RF_FORM_COUNT ? forms[form].name : NULL;
}

int rf_form_find(const char *name)
{
    for (int form = 0; name && form < RF_FORM_COUNT; form++)
        if (strcmp(forms[form].name, name) == 0)
            return form;
    return -1;
}

bool rf_form_is_exact(enum rf_form form)
{
    return forms[form].is_exact;
}

uint64_t rf_form_bytes(enum rf_form form, float fraction, int64_t count)
{
    return count > 0 ? forms[form].bytes(fraction, count) : 0;
}

int rf_form_encode(enum rf_form form, float fraction, const float *values, int64_t count, void *to,
                   float *scratch)
{
    return count > 0 ? forms[form].encode(fraction, values, count, to, scratch) : RF_OK;
}

int rf_form_decode(enum rf_form form, float fraction, const void *from, int64_t count,
                   float *values)
{
    return count > 0 ? forms[form].decode(fraction, from, count, values) : RF_OK;
}
