/* SPDX-License-Identifier: MIT
 *
 * f16 and bf16 to f32 and back. Called by reduce.c and fold.c.
 */
#include <string.h>

#include "reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Callers' 16-bit data may lie at any address. */
typedef uint16_t unaligned_u16 __attribute__((aligned(1), may_alias));

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u)
        return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) /* subnormal; normal in f32, and exact even if f32 subnormals are flushed */
        return float_of(sign | bits_of((float)rest * 0x1p-24f));
    return float_of(sign | ((rest << 13) + 0x38000000u)); /* the exponent's bias differs by 112 */
}

static inline uint16_t f32_to_f16(float x)
{
    uint32_t bits = bits_of(x), rest = bits & 0x7fffffffu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    if (rest >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) /* subnormal: 0.5 has the ulp of the smallest one */
        return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - bits_of(0.5f)));
    return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
}

/* No branch, so that loops over it vectorise. */
static inline uint16_t f32_to_bf16(float x)
{
    uint32_t bits = bits_of(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16 | 0x40u) : rounded);
}

#if defined(__x86_64__)
static bool has_f16c(void)
{
    /* AVX2 implies F16C, which clang 14 cannot query by name. */
    return __builtin_cpu_supports("avx2");
}

/* These process whole groups of eight and return the number of elements. */
__attribute__((target("avx,f16c"))) static size_t
widen_eights(float *wide, const unsigned char *narrow, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(wide + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(narrow + 2 * i))));
    return i;
}

__attribute__((target("avx,f16c"))) static size_t narrow_eights(unsigned char *narrow,
                                                                const float *wide, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(narrow + 2 * i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(wide + i),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return i;
}
#else
static bool has_f16c(void)
{
    return false;
}

static size_t widen_eights(float *wide, const unsigned char *narrow, size_t count)
{
    return 0;
}

static size_t narrow_eights(unsigned char *narrow, const float *wide, size_t count)
{
    return 0;
}
#endif

void rf_widen(float *wide, const void *narrow, size_t count, enum rf_dtype dtype)
{
    const unaligned_u16 *from = narrow;
    if (dtype == RF_BF16) {
        for (size_t i = 0; i < count; i++)
            wide[i] = float_of((uint32_t)from[i] << 16);
        return;
    }
    size_t done = has_f16c() ? widen_eights(wide, narrow, count) : 0;
    for (size_t i = done; i < count; i++)
        wide[i] = f16_to_f32(from[i]);
}

void rf_narrow(void *narrow, const float *wide, size_t count, enum rf_dtype dtype)
{
    unaligned_u16 *to = narrow;
    if (dtype == RF_BF16) {
        for (size_t i = 0; i < count; i++)
            to[i] = f32_to_bf16(wide[i]);
        return;
    }
    size_t done = has_f16c() ? narrow_eights(narrow, wide, count) : 0;
    for (size_t i = done; i < count; i++)
        to[i] = f32_to_f16(wide[i]);
}
