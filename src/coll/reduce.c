/* SPDX-License-Identifier: MIT
 *
 * dst = a op b on host memory, at the speed of the memory. Called by exec.c and fold.c; the
 * device's own reductions live in ops.
 *
 * The loops are written once and compiled twice, plain and for AVX2; the choice is made per call.
 */
#include "reduce.h"

#include <string.h>

/* Inlined into both versions of `reduce`, so each is compiled for its instruction set. dst may be a
 * or b but not overlap them otherwise, so no iteration depends on another: ivdep. */
#define LOOPS static inline __attribute__((always_inline)) void

LOOPS reduce_f32(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    f32_place *d = dst;
    const f32_place *a = left, *b = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] < b[i]) | (a[i] != a[i]) ? a[i] : b[i]; /* the NaN, if any */
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] > b[i]) | (a[i] != a[i]) ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = a[i] * b[i];
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = a[i] + b[i];
    }
}

LOOPS reduce_f64(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    f64_place *d = dst;
    const f64_place *a = left, *b = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] < b[i]) | (a[i] != a[i]) ? a[i] : b[i]; /* the NaN, if any */
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] > b[i]) | (a[i] != a[i]) ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = a[i] * b[i];
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = a[i] + b[i];
    }
}

/* Sums and products of the unsigned counterpart wrap; overflow of the signed type is undefined. */
LOOPS reduce_i32(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    u32_place *d = dst;
    const u32_place *a = left, *b = right;
    const i32_place *sa = left, *sb = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] < sb[i] ? a[i] : b[i];
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] > sb[i] ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] * b[i]);
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] + b[i]);
    }
}

LOOPS reduce_i64(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    u64_place *d = dst;
    const u64_place *a = left, *b = right;
    const i64_place *sa = left, *sb = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] < sb[i] ? a[i] : b[i];
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] > sb[i] ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] * b[i]);
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (a[i] + b[i]);
    }
}

LOOPS reduce_i8(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    uint8_t *d = dst;
    const uint8_t *a = left, *b = right;
    const int8_t *sa = left, *sb = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] < sb[i] ? a[i] : b[i];
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] > sb[i] ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (uint8_t)(a[i] * b[i]);
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (uint8_t)(a[i] + b[i]);
    }
}

LOOPS reduce_u8(void *dst, const void *left, const void *right, size_t count, enum rf_redop redop)
{
    uint8_t *d = dst;
    const uint8_t *a = left, *b = right;
    const uint8_t *sa = left, *sb = right;
    if (redop == RF_MIN) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] < sb[i] ? a[i] : b[i];
    } else if (redop == RF_MAX) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = sa[i] > sb[i] ? a[i] : b[i];
    } else if (redop == RF_PROD) {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (uint8_t)(a[i] * b[i]);
    } else {
#pragma GCC ivdep
        for (size_t i = 0; i < count; i++)
            d[i] = (uint8_t)(a[i] + b[i]);
    }
}

LOOPS reduce_any(void *dst, const void *a, const void *b, size_t count, enum rf_dtype dtype,
                 enum rf_redop redop)
{
    switch (dtype) {
    case RF_F32:
        reduce_f32(dst, a, b, count, redop);
        break;
    case RF_F64:
        reduce_f64(dst, a, b, count, redop);
        break;
    case RF_I32:
        reduce_i32(dst, a, b, count, redop);
        break;
    case RF_I64:
        reduce_i64(dst, a, b, count, redop);
        break;
    case RF_I8:
        reduce_i8(dst, a, b, count, redop);
        break;
    default:
        reduce_u8(dst, a, b, count, redop);
    }
}

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define GREATEST(a, b) ((a) > (b) ? (a) : (b))

/* low, high and x do not overlap. */
#define RANGES(type)                                                                               \
    LOOPS range_##type(type##_place *restrict low, type##_place *restrict high,                    \
                       const type##_place *a, const type##_place *b, bool first, size_t count)     \
    {                                                                                              \
        if (first)                                                                                 \
            for (size_t i = 0; i < count; i++) {                                                   \
                low[i] = LEAST(a[i], b[i]);                                                        \
                high[i] = GREATEST(a[i], b[i]);                                                    \
            }                                                                                      \
        else                                                                                       \
            for (size_t i = 0; i < count; i++) {                                                   \
                const type##_place least = LEAST(a[i], b[i]), greatest = GREATEST(a[i], b[i]);     \
                low[i] = LEAST(least, low[i]);                                                     \
                high[i] = GREATEST(greatest, high[i]);                                             \
            }                                                                                      \
    }                                                                                              \
    LOOPS clamp_##type(type##_place *restrict x, const type##_place *low,                          \
                       const type##_place *high, size_t count)                                     \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            const type##_place above = x[i] < low[i] ? low[i] : x[i];                              \
            x[i] = above > high[i] ? high[i] : above;                                              \
        }                                                                                          \
    }
RANGES(f32)
RANGES(f64)
#undef RANGES

LOOPS range_any(void *low, void *high, const void *a, const void *b, bool first, size_t count,
                enum rf_dtype dtype)
{
    if (dtype == RF_F64)
        range_f64(low, high, a, b, first, count);
    else
        range_f32(low, high, a, b, first, count);
}

LOOPS clamp_any(void *x, const void *low, const void *high, size_t count, enum rf_dtype dtype)
{
    if (dtype == RF_F64)
        clamp_f64(x, low, high, count);
    else
        clamp_f32(x, low, high, count);
}

/* The functions that are compiled twice, as `suffix`. */
#define COMPILED(suffix, attribute)                                                                \
    attribute static void reduce_##suffix(void *dst, const void *a, const void *b, size_t count,   \
                                          enum rf_dtype dtype, enum rf_redop redop)                \
    {                                                                                              \
        reduce_any(dst, a, b, count, dtype, redop);                                                \
    }                                                                                              \
    attribute static void range_##suffix(void *low, void *high, const void *a, const void *b,      \
                                         bool first, size_t count, enum rf_dtype dtype)            \
    {                                                                                              \
        range_any(low, high, a, b, first, count, dtype);                                           \
    }                                                                                              \
    attribute static void clamp_##suffix(void *x, const void *low, const void *high, size_t count, \
                                         enum rf_dtype dtype)                                      \
    {                                                                                              \
        clamp_any(x, low, high, count, dtype);                                                     \
    }

COMPILED(plain, )
#if defined(__x86_64__)
COMPILED(avx2, __attribute__((target("avx2"))))

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define reduce_avx2 reduce_plain
#define range_avx2 range_plain
#define clamp_avx2 clamp_plain
static bool has_avx2(void)
{
    return false;
}
#endif

enum { BLOCK = 512 };

static void reduce_narrow(unsigned char *dst, const unsigned char *a, const unsigned char *b,
                          size_t count, enum rf_dtype dtype, enum rf_redop redop)
{
    float left[BLOCK], right[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        rf_widen(left, a + 2 * done, n, dtype);
        rf_widen(right, b + 2 * done, n, dtype);
        rf_combine(left, left, right, n, RF_F32, redop);
        rf_narrow(dst + 2 * done, left, n, dtype);
    }
}

void rf_combine(void *dst, const void *a, const void *b, size_t count, enum rf_dtype dtype,
                enum rf_redop redop)
{
    if (dtype == RF_F16 || dtype == RF_BF16)
        reduce_narrow(dst, a, b, count, dtype, redop);
    else if (has_avx2())
        reduce_avx2(dst, a, b, count, dtype, redop);
    else
        reduce_plain(dst, a, b, count, dtype, redop);
}

void rf_find_range(void *low, void *high, const void *a, const void *b, bool first, size_t count,
                   enum rf_dtype dtype)
{
    if (has_avx2())
        range_avx2(low, high, a, b, first, count, dtype);
    else
        range_plain(low, high, a, b, first, count, dtype);
}

void rf_clamp(void *x, const void *low, const void *high, size_t count, enum rf_dtype dtype)
{
    if (has_avx2())
        clamp_avx2(x, low, high, count, dtype);
    else
        clamp_plain(x, low, high, count, dtype);
}
