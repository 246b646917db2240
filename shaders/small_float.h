/* SPDX-License-Identifier: MIT
 *
 * Floating-point numbers of 4 and 8 bits, for C (src/base/small_float.c) and GLSL: a row for each
 * format (OCP's 8-bit and microscaling formats), and conversions by a row. They use integers only,
 * so they have the same bits everywhere.
 *
 *   sign       the bit of the sign; 0: none, and the sign of a number is dropped
 *   mantissa   its bits, without the leading one
 *   top        the highest code without a sign
 *   largest    the code of the largest number
 *   infinity   its code; 0: none
 *   nan        the first code of NaN; 0: none. `top` is the one that is written
 *   subnormal  exponent 0 is that of subnormal numbers and of 0
 */
/*       name  text   sign  mantissa bias top largest infinity nan subnormal */
#define SMALL_FLOATS(ROW)                                                                          \
    ROW(E4M3, "e4m3", 0x80, 3, 7, 0x7f, 0x7e, 0, 0x7f, true)                                       \
    ROW(E5M2, "e5m2", 0x80, 2, 15, 0x7f, 0x7b, 0x7c, 0x7d, true)                                   \
    ROW(E2M1, "e2m1", 8, 1, 1, 7, 7, 0, 0, true)                                                   \
    ROW(E8M0, "e8m0", 0, 0, 127, 0xff, 0xfe, 0, 0xff, false)

/* Rounding between two levels: to the nearest, ties to the even code; towards 0; away from 0; away
 * from 0 with the probability given by the dropped bits. */
#define ROUND_NEAREST 0u
#define ROUND_DOWN 1u
#define ROUND_UP 2u
#define ROUND_RANDOM 3u

struct small_float {
    uint sign, mantissa, bias, top, largest, infinity, nan;
    bool subnormal;
};
#ifdef __STDC__
#define SMALL_FLOAT struct small_float
#define SMALL_FLOAT_FUNCTION static inline
#define SMALL_FLOAT_ROW(name, text, ...) {__VA_ARGS__},
#else
#define SMALL_FLOAT small_float
#define SMALL_FLOAT_FUNCTION
#define BITS_OF_FLOAT floatBitsToUint
#define SMALL_FLOAT_ROW(name, text, sign, mantissa, bias, top, largest, infinity, nan, subnormal)  \
    const small_float name =                                                                       \
        small_float(sign, mantissa, bias, top, largest, infinity, nan, subnormal);
SMALL_FLOATS(SMALL_FLOAT_ROW)
#endif

/* The bits of the f32 that has the value of a code. */
SMALL_FLOAT_FUNCTION uint small_float_value(SMALL_FLOAT f, uint code)
{
    const uint size = code & f.top, sign = (code & f.sign) != 0u ? 0x80000000u : 0u;
    const uint exponent = size >> f.mantissa;
    const float number = size;
    if (f.nan != 0u && size >= f.nan)
        return sign | 0x7fc00000u;
    if (f.infinity != 0u && size == f.infinity)
        return sign | 0x7f800000u;
    if (size == 0u)
        return f.subnormal ? sign : 0x400000u; /* 2^-127 is subnormal in f32 */
    if (f.subnormal && exponent == 0u)
        return sign | (BITS_OF_FLOAT(number) - ((f.bias + f.mantissa - 1u) << 23));
    return sign | ((exponent + 127u - f.bias) << 23) |
           ((size & ((1u << f.mantissa) - 1u)) << (23u - f.mantissa));
}

/* The code of the f32 that has these bits. Above the largest number, and for infinity, it is that
 * of the largest number if `saturate`; otherwise infinity, or NaN, or the largest number: the first
 * of them that the format has. NaN is NaN, or the largest number of a format without it. `random`
 * is 32 bits for ROUND_RANDOM. */
SMALL_FLOAT_FUNCTION uint small_float_code(SMALL_FLOAT f, uint bits, uint rounding, bool saturate,
                                           uint random)
{
    const uint size = bits & 0x7fffffffu, sign = bits >> 31 != 0u ? f.sign : 0u;
    const uint beyond = f.infinity != 0u ? f.infinity : f.nan != 0u ? f.top : f.largest;
    if (size > 0x7f800000u)
        return sign | (f.nan != 0u ? f.top : f.largest);
    /* exponent: biased by 127 and the format's bias; that of its code 1 << mantissa is 128. */
    uint exponent = (size >> 23) + f.bias, digits = (size & 0x7fffffu) | 0x800000u;
    if (size < 0x800000u) { /* subnormal in f32; E8M0 has one level there, its lowest */
        exponent = f.subnormal ? 1u + f.bias : f.bias;
        digits = f.subnormal ? size : size < 0x400000u ? 0x800000u : 2u * size;
    }
    const uint base = f.subnormal && exponent < 128u ? 128u : exponent;
    uint shift = 23u - f.mantissa + (base - exponent);
    if (shift > 31u) { /* less than 2^-7 of the lowest level: keeps whether it is 0 */
        const uint rest = digits >> (shift > 62u ? 31u : shift - 31u);
        digits = digits != 0u && rest == 0u ? 1u : rest;
        shift = 31u;
    }
    const uint mask = (1u << shift) - 1u, first = (base - 128u) << f.mantissa;
    const uint added = rounding == ROUND_NEAREST ? (mask >> 1) + ((first + (digits >> shift)) & 1u)
                       : rounding == ROUND_DOWN  ? 0u
                       : rounding == ROUND_UP    ? mask
                                                 : random >> (32u - shift);
    const uint code = first + ((digits + added) >> shift);
    return sign | (code <= f.largest ? code : saturate ? f.largest : beyond);
}

/* The bits of the smallest power of two by which numbers up to `most` are divided so that none is
 * above `limit` (both bits, without a sign); 2^-126 at least; 1 for 0; NaN if `most` is not finite. */
SMALL_FLOAT_FUNCTION uint power_scale(uint limit, uint most)
{
    const uint exponent =
        (most >> 23) + 127u + ((most & 0x7fffffu) > (limit & 0x7fffffu) ? 1u : 0u);
    if (most > 0x7f7fffffu)
        return 0x7fc00000u;
    if (most == 0u)
        return 0x3f800000u;
    return (exponent > limit >> 23 ? exponent - (limit >> 23) : 1u) << 23;
}
