/* SPDX-License-Identifier: MIT
 *
 * f16 and bf16 by arithmetic on exact values, without the bit operations of the shaders: the
 * reference for the 16-bit builds of the kernels. Rounds to nearest, ties to even.
 */
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace oracle
{

struct HalfForm {
    int mantissa, least, most; /* bits after the point; exponents of normal numbers */
};
inline HalfForm half_form(bool bf16)
{
    return bf16 ? HalfForm{7, -126, 127} : HalfForm{10, -14, 15};
}

inline float from_half(uint16_t bits, bool bf16)
{
    HalfForm form = half_form(bf16);
    int whole = bits & 0x7fff, exponent = whole >> form.mantissa;
    int rest = whole & ((1 << form.mantissa) - 1);
    double value = exponent == 0 ? std::ldexp(rest, form.least - form.mantissa)
                                 : std::ldexp((1 << form.mantissa) + rest,
                                              exponent - 1 + form.least - form.mantissa);
    if (exponent - 1 + form.least > form.most)
        value = rest ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
    return (float)(bits & 0x8000 ? -value : value);
}

inline uint16_t to_half(float x, bool bf16)
{
    HalfForm form = half_form(bf16);
    uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    int infinity = (form.most + 1 - form.least + 1) << form.mantissa;
    if (std::isnan(x))
        return (uint16_t)(sign | infinity | 1 << (form.mantissa - 1));
    if (x == 0)
        return sign;
    if (std::isinf(x))
        return (uint16_t)(sign | infinity);
    int exponent = std::ilogb(x) < form.least ? form.least : std::ilogb(x);
    double steps = std::nearbyint(std::ldexp(std::fabs((double)x), form.mantissa - exponent));
    int bits = ((exponent - form.least) << form.mantissa) + (int)steps;
    return (uint16_t)(sign | (bits < infinity ? bits : infinity));
}

inline std::vector<uint16_t> to_half(const std::vector<float> &data, bool bf16)
{
    std::vector<uint16_t> halves;
    for (float x : data)
        halves.push_back(to_half(x, bf16));
    return halves;
}
inline std::vector<float> from_half(const std::vector<uint16_t> &halves, bool bf16)
{
    std::vector<float> data;
    for (uint16_t bits : halves)
        data.push_back(from_half(bits, bf16));
    return data;
}

} // namespace oracle
