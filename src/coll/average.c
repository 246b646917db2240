/* SPDX-License-Identifier: MIT
 *
 * Averages of a block: they lie between the least and the greatest operand, whatever the type. The
 * sum of the operands may overflow the type, so partial sums of an average are neither sent nor
 * kept in the type if they can overflow. Called by fold.c.
 */
#include "reduce.h"

#include <math.h>
#include <string.h>

/* ---- integers: the exact average, without its fraction --------------------------------------- */

enum { CHUNK = 256 };

/* Totals of up to 2^19 numbers are exact in f64. Multiplying is faster than dividing. This factor
 * exceeds 1 / divisor by 2^-53 to 2^-50 of it after all roundings. So no whole quotient falls below
 * itself, and no other one reaches the next whole number, which is at least 1 / divisor away. */
static double factor_of(const struct rf_fold *fold)
{
    return 1.0 / fold->divisor * (1 + 0x1p-51);
}

#define INTEGERS(name, type, place, total_type)                                                    \
    static void name(void *to, const struct rf_fold *fold, size_t offset, size_t count)            \
    {                                                                                              \
        place *out = to;                                                                           \
        const double factor = factor_of(fold);                                                     \
        total_type total[CHUNK];                                                                   \
        for (size_t done = 0; done < count; done += CHUNK) {                                       \
            const size_t n = count - done < CHUNK ? count - done : CHUNK;                          \
            memset(total, 0, sizeof(total));                                                       \
            for (uint32_t p = 0; p < fold->part_count; p++) {                                      \
                const unsigned char *data = (const unsigned char *)fold->parts[p].data + offset;   \
                const place *x = (const place *)data + done;                                       \
                for (size_t i = 0; i < n; i++)                                                     \
                    total[i] += x[i];                                                              \
            }                                                                                      \
            for (size_t i = 0; i < n; i++)                                                         \
                out[done + i] = (type)(int32_t)((double)total[i] * factor);                        \
        }                                                                                          \
    }
INTEGERS(average_i8, int8_t, int8_t, int32_t)
INTEGERS(average_u8, uint8_t, uint8_t, int32_t)
INTEGERS(average_i32, int32_t, i32_place, double)
#undef INTEGERS

static const i64_place *i64_of(const struct rf_fold *fold, uint32_t p, size_t offset)
{
    return (const i64_place *)((const unsigned char *)fold->parts[p].data + offset);
}

/* Whether no sum of the parts overflows 64 bits, because all parts have that many bits to spare. */
static bool sums_fit(const struct rf_fold *fold, size_t offset, size_t count)
{
    const int spare = 32 - __builtin_clz(fold->part_count);
    const uint64_t half = 1ull << (63 - spare);
    uint64_t above = 0;
    for (uint32_t p = 0; p < fold->part_count; p++) {
        const i64_place *x = i64_of(fold, p, offset);
        for (size_t i = 0; i < count; i++)
            above |= (uint64_t)x[i] + half;
    }
    return above >> (64 - spare) == 0;
}

static void average_i64(void *to, const struct rf_fold *fold, size_t offset, size_t count)
{
    i64_place *out = to;
    if (sums_fit(fold, offset, count)) {
        memcpy(to, i64_of(fold, 0, offset), count * sizeof(*out));
        for (uint32_t p = 1; p < fold->part_count; p++)
            rf_combine(to, to, i64_of(fold, p, offset), count, RF_I64, RF_SUM);
        for (size_t i = 0; i < count; i++)
            out[i] /= fold->divisor;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        __extension__ __int128 total = 0;
        for (uint32_t p = 0; p < fold->part_count; p++)
            total += i64_of(fold, p, offset)[i];
        out[i] = (int64_t)(total / fold->divisor);
    }
}

void rf_average_integers(void *to, const struct rf_fold *fold, size_t offset, size_t count)
{
    switch (fold->dtype) {
    case RF_I8:
        average_i8(to, fold, offset, count);
        break;
    case RF_U8:
        average_u8(to, fold, offset, count);
        break;
    case RF_I32:
        average_i32(to, fold, offset, count);
        break;
    default:
        average_i64(to, fold, offset, count);
        break;
    }
}

/* ---- floats: the sum, divided ---------------------------------------------------------------- */

/* The average of one element in f64. f32 is widened; f64 is added as fractions, whose sums do not
 * overflow. */
static double average_again(const struct rf_fold *fold, size_t offset)
{
    const bool is_f64 = rf_fold_type(fold) == RF_F64;
    const double fraction = is_f64 ? 0x1p-32 : 1;
    double total = 0;
    for (uint32_t p = 0; p < fold->part_count; p++) {
        float wide;
        const void *x = rf_fold_part(fold, p, offset, 1, &wide);
        total += fraction * (is_f64 ? *(const f64_place *)x : *(const f32_place *)x);
    }
    return total / (fraction * fold->divisor);
}

/* divide: returns whether all are finite (no exponent is all ones). again: recomputes those that
 * are not, but could be. */
#define FLOATS(type, bits, exponent)                                                               \
    static bool divide_##type(type##_place *x, size_t count, int divisor)                          \
    {                                                                                              \
        const bits##_place *u = (const bits##_place *)x;                                           \
        bits##_place full = 0;                                                                     \
        for (size_t i = 0; i < count; i++) {                                                       \
            x[i] /= (type##_place)divisor;                                                         \
            full |= (u[i] & exponent) + (exponent & -exponent);                                    \
        }                                                                                          \
        return (full & 2 * exponent & ~exponent) == 0;                                             \
    }                                                                                              \
    static void again_##type(type##_place *x, const struct rf_fold *fold, size_t offset,           \
                             size_t count)                                                         \
    {                                                                                              \
        for (size_t i = 0; i < count; i++, offset += rf_dtype_bytes(fold->dtype)) {                \
            const double average = isfinite(x[i]) ? (double)NAN : average_again(fold, offset);     \
            x[i] = isnan(average) ? x[i] : (type##_place)average;                                  \
        }                                                                                          \
    }
FLOATS(f32, u32, 0x7f800000u)
FLOATS(f64, u64, 0x7ff0000000000000u)
#undef FLOATS

/* A sum is rounded, so even the average of equal numbers may be another number. Half of a sum of
 * two is exact enough, and the final rounding of 16-bit types is coarser than that of f32 before
 * it. No average is below that of its least operand alone, because rounding is monotonic. */
static bool may_leave(const struct rf_fold *fold)
{
    return fold->part_count > (rf_dtype_bytes(fold->dtype) == 2 ? 1024 : 2);
}

/* Between the least and the greatest operand. */
static void clamp(void *x, const struct rf_fold *fold, size_t offset, size_t count)
{
    _Alignas(64) unsigned char low[RF_FOLD_BYTES], high[RF_FOLD_BYTES];
    float wide[2][RF_FOLD_BYTES / sizeof(float)];
    for (uint32_t p = 0; p < fold->part_count; p += 2) {
        const uint32_t second = p + 1 < fold->part_count ? p + 1 : p;
        const void *a = rf_fold_part(fold, p, offset, count, wide[0]);
        const void *b = rf_fold_part(fold, second, offset, count, wide[1]);
        rf_find_range(low, high, a, b, p == 0, count, rf_fold_type(fold));
    }
    rf_clamp(x, low, high, count, rf_fold_type(fold));
}

void rf_average_floats(void *sum, const struct rf_fold *fold, size_t offset, size_t count)
{
    const bool is_f64 = rf_fold_type(fold) == RF_F64;
    const bool finite =
        is_f64 ? divide_f64(sum, count, fold->divisor) : divide_f32(sum, count, fold->divisor);
    if (!finite && is_f64)
        again_f64(sum, fold, offset, count);
    else if (!finite)
        again_f32(sum, fold, offset, count);
    if (!finite || may_leave(fold))
        clamp(sum, fold, offset, count);
}
