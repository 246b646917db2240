/* SPDX-License-Identifier: MIT
 *
 * Converts pairs of 16-bit floats in a word, element 0 in its low half, with integer arithmetic: it
 * needs no 16-bit types, and has the same bits on all devices. Conversion to 16 bits rounds to
 * nearest, ties to even. NaN stays NaN (quiet), infinity stays infinity, and f16 overflows to
 * infinity at 65520. Subnormal f16 numbers are written and read. bf16 numbers are subnormal if
 * their f32 numbers are, which arithmetic may flush to zero. TYPE is that of common.glsl.
 */
vec2 from_f16(uint word)
{
    uvec2 h = uvec2(word & 0xffffu, word >> 16);
    uvec2 sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
    /* Shifting and adding to the exponent is correct for normal numbers. Subnormal ones are
     * multiples of 2^-24, and the highest exponent stays the highest. */
    vec2 normal = uintBitsToFloat((rest << 13) + 0x38000000u);
    vec2 small = vec2(rest) * 5.9604644775390625e-8;
    vec2 special = uintBitsToFloat((rest << 13) | 0x7f800000u);
    vec2 v = mix(normal, small, lessThan(rest, uvec2(0x400u)));
    v = mix(v, special, greaterThanEqual(rest, uvec2(0x7c00u)));
    return uintBitsToFloat(floatBitsToUint(v) | sign);
}

uint to_f16(vec2 v)
{
    uvec2 u = floatBitsToUint(v);
    uvec2 sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    uvec2 normal = a - 0x38000000u;
    normal = (normal + 0xfffu + ((normal >> 13) & 1u)) >> 13;
    /* Next to 1/2 the last bit of an f32 is 2^-24, f16's smallest step, so the addition rounds. */
    precise vec2 beside = uintBitsToFloat(min(a, uvec2(0x38800000u))) + 0.5;
    uvec2 small = floatBitsToUint(beside) - 0x3f000000u;
    uvec2 special = mix(uvec2(0x7c00u), 0x7e00u | ((a >> 13) & 0x1ffu),
                        greaterThan(a, uvec2(0x7f800000u)));
    uvec2 h = mix(normal, small, lessThan(a, uvec2(0x38800000u)));
    h = mix(h, special, greaterThanEqual(a, uvec2(0x47800000u))) | sign;
    return h.x | (h.y << 16);
}

vec2 from_bf16(uint word)
{
    return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u));
}

uint to_bf16(vec2 v)
{
    uvec2 u = floatBitsToUint(v);
    uvec2 rounded = u + 0x7fffu + ((u >> 16) & 1u);
    bvec2 is_nan = greaterThan(u & 0x7fffffffu, uvec2(0x7f800000u));
    rounded = mix(rounded, u | 0x400000u, is_nan) >> 16;
    return rounded.x | (rounded.y << 16);
}

/* Stores may have a different type (casts). */
#ifndef STORE_TYPE
#define STORE_TYPE TYPE
#endif
#if TYPE == TYPE_F16
#define unpack2 from_f16
#elif TYPE == TYPE_BF16
#define unpack2 from_bf16
#endif
#if STORE_TYPE == TYPE_F16
#define pack2 to_f16
#elif STORE_TYPE == TYPE_BF16
#define pack2 to_bf16
#endif
