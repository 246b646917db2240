/* SPDX-License-Identifier: MIT
 *
 * 16-bit floats as bits in a uint, for devices without them and wherever rounding must be to nearest
 * even, which drivers' own conversions do not promise. NaN stays NaN; subnormals are kept.
 */
uint bf16_from(float x)
{
    const uint u = floatBitsToUint(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
float bf16_to(uint bits)
{
    return uintBitsToFloat(bits << 16);
}

uint f16_from(float x)
{
    const uint u = floatBitsToUint(x), sign = u >> 16 & 0x8000u, size = u & 0x7fffffffu;
    /* Below 2^-14 the last bit is worth 2^-24: adding 1/2 puts it last in fp32, too, and rounds. */
    const uint small = floatBitsToUint(uintBitsToFloat(size) + 0.5) - 0x3f000000u;
    const uint normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    uint bits = size < 0x38800000u ? small : normal;
    bits = size >= 0x477ff000u ? 0x7c00u : bits; /* rounds to 2^16 or more */
    bits = size > 0x7f800000u ? 0x7e00u : bits;
    return sign | bits;
}
float f16_to(uint bits)
{
    /* By hand: unpackHalf2x16 may flush subnormals. */
    const uint size = bits & 0x7fffu;
    const uint small = floatBitsToUint(float(size) * 5.9604644775390625e-8);
    uint u = size < 0x400u ? small : (size << 13) + 0x38000000u;
    u = size >= 0x7c00u ? size << 13 | 0x7f800000u : u;
    return uintBitsToFloat(u | (bits & 0x8000u) << 16);
}

#if BF16
#define narrow_from bf16_from
#define narrow_to bf16_to
#else
#define narrow_from f16_from
#define narrow_to f16_to
#endif
