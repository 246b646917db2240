/* SPDX-License-Identifier: MIT
 *
 * dst = a op b on host memory, at the speed of the memory. Called by exec.c and fold.c; the
 * device's own reductions live in ops.
 *
 * The loops are written once and compiled twice, plain and for AVX2; the choice is made per call.
 */
#include "reduce.h"

#include <string.h>

/* Callers' buffers may have any alignment and any declared type. */
#define ANY_PLACE __attribute__((aligned(1), may_alias))
typedef float f32_place ANY_PLACE;
typedef double f64_place ANY_PLACE;
typedef uint32_t u32_place ANY_PLACE;
typedef int32_t i32_place ANY_PLACE;
typedef uint64_t u64_place ANY_PLACE;
typedef int64_t i64_place ANY_PLACE;

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
            d[i] = (a[i] < b[i]) | (a[i] != a[i]) ? a[i] : b[i]; /* the NaN, if there is one */
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
            d[i] = (a[i] < b[i]) | (a[i] != a[i]) ? a[i] : b[i]; /* the NaN, if there is one */
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

/* Sums and products of the unsigned twin wrap where the signed type must not. */
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

static inline __attribute__((always_inline)) void reduce_any(void *dst, const void *a,
                                                             const void *b, size_t count,
                                                             enum rf_dtype dtype,
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

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void reduce_avx2(void *dst, const void *a, const void *b,
                                                        size_t count, enum rf_dtype dtype,
                                                        enum rf_redop redop)
{
    reduce_any(dst, a, b, count, dtype, redop);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define reduce_avx2 reduce_plain
static bool has_avx2(void)
{
    return false;
}
#endif

static void reduce_plain(void *dst, const void *a, const void *b, size_t count, enum rf_dtype dtype,
                         enum rf_redop redop)
{
    reduce_any(dst, a, b, count, dtype, redop);
}

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

static void divide_narrow(unsigned char *x, size_t count, enum rf_dtype dtype, int divisor)
{
    float wide[BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        rf_widen(wide, x + 2 * done, n, dtype);
        rf_divide(wide, n, RF_F32, divisor);
        rf_narrow(x + 2 * done, wide, n, dtype);
    }
}

void rf_divide(void *x, size_t count, enum rf_dtype dtype, int divisor)
{
    switch (dtype) {
    case RF_F32:
        for (size_t i = 0; i < count; i++)
            ((f32_place *)x)[i] /= (float)divisor;
        break;
    case RF_F64:
        for (size_t i = 0; i < count; i++)
            ((f64_place *)x)[i] /= divisor;
        break;
    case RF_I32:
        for (size_t i = 0; i < count; i++)
            ((i32_place *)x)[i] /= divisor;
        break;
    case RF_I64:
        for (size_t i = 0; i < count; i++)
            ((i64_place *)x)[i] /= divisor;
        break;
    case RF_I8:
        for (size_t i = 0; i < count; i++)
            ((int8_t *)x)[i] = (int8_t)(((int8_t *)x)[i] / divisor);
        break;
    case RF_U8:
        for (size_t i = 0; i < count; i++)
            ((uint8_t *)x)[i] = (uint8_t)(((uint8_t *)x)[i] / divisor);
        break;
    default:
        divide_narrow(x, count, dtype, divisor);
    }
}
