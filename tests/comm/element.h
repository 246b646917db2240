/* SPDX-License-Identifier: MIT
 *
 * Elements of every type to and from double, rounded to nearest even. The expected results of
 * collectives are made with them.
 */
#ifndef RF_TESTS_COMM_ELEMENT_H
#define RF_TESTS_COMM_ELEMENT_H

#include <ringforge/types.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace element
{

inline uint16_t half_bits(double value)
{
    if (value == 0)
        return std::signbit(value) ? 0x8000 : 0;
    int exponent;
    std::frexp(value, &exponent);
    int scale = exponent < -13 ? -24 : exponent - 11; /* of the last bit */
    double mantissa = std::nearbyint(std::ldexp(std::fabs(value), -scale));
    double rounded = std::ldexp(mantissa, scale);
    uint16_t sign = value < 0 ? 0x8000 : 0;
    if (rounded >= 65520)
        return sign | 0x7c00;
    if (rounded < std::ldexp(1.0, -14))
        return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(rounded, 24)));
    std::frexp(rounded, &exponent);
    auto fraction = static_cast<uint16_t>(std::ldexp(rounded, 11 - exponent)) & 0x3ff;
    return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | fraction);
}

inline uint16_t bfloat_bits(double value)
{
    float f = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits += 0x7fff + ((bits >> 16) & 1);
    return static_cast<uint16_t>(bits >> 16);
}

template <typename T> void put(void *out, T value)
{
    memcpy(out, &value, sizeof(value));
}

inline void store(rf_dtype dtype, void *out, double value)
{
    switch (dtype) {
    case RF_F32:
        return put(out, static_cast<float>(value));
    case RF_F64:
        return put(out, value);
    case RF_F16:
        return put(out, half_bits(value));
    case RF_BF16:
        return put(out, bfloat_bits(value));
    case RF_I32:
        return put(out, static_cast<int32_t>(value));
    case RF_I64:
        return put(out, static_cast<int64_t>(value));
    case RF_U8:
        return put(out, static_cast<uint8_t>(value));
    default:
        return put(out, static_cast<int8_t>(value));
    }
}

inline bool is_integer(rf_dtype dtype)
{
    return dtype == RF_I32 || dtype == RF_I64 || dtype == RF_U8 || dtype == RF_I8;
}

/* Rank `rank`'s element i: small integers whose sums and products here are all exact. */
inline double input(rf_dtype dtype, rf_redop redop, int rank, size_t i)
{
    if (redop == RF_PROD)
        return static_cast<double>(1 + (i / 3 + static_cast<size_t>(rank) * 5) % 2);
    double value = static_cast<double>((i * 7 + static_cast<size_t>(rank) * 3) % 11);
    return dtype == RF_U8 ? value : value - 5;
}

inline double fold(rf_dtype dtype, rf_redop redop, int ranks, size_t i)
{
    double result = input(dtype, redop, 0, i);
    for (int rank = 1; rank < ranks; rank++) {
        double x = input(dtype, redop, rank, i);
        if (redop == RF_MIN)
            result = x < result ? x : result;
        else if (redop == RF_MAX)
            result = x > result ? x : result;
        else
            result = redop == RF_PROD ? result * x : result + x;
    }
    if (redop == RF_AVG)
        result = is_integer(dtype) ? std::trunc(result / ranks) : result / ranks;
    return result;
}

/* Elements [first, first + count) of one rank's input, or of the reduction. */
inline std::vector<uint8_t> inputs(rf_dtype dtype, rf_redop redop, int rank, size_t first,
                                   size_t count)
{
    size_t bytes = rf_dtype_bytes(dtype);
    std::vector<uint8_t> out(count * bytes + 1);
    for (size_t i = 0; i < count; i++)
        store(dtype, out.data() + i * bytes, input(dtype, redop, rank, first + i));
    return out;
}

inline std::vector<uint8_t> folds(rf_dtype dtype, rf_redop redop, int ranks, size_t first,
                                  size_t count)
{
    size_t bytes = rf_dtype_bytes(dtype);
    std::vector<uint8_t> out(count * bytes + 1);
    for (size_t i = 0; i < count; i++)
        store(dtype, out.data() + i * bytes, fold(dtype, redop, ranks, first + i));
    return out;
}

} // namespace element

#endif
