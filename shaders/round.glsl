/* SPDX-License-Identifier: MIT
 *
 * Stochastic rounding of pairs of f32 to 16 bits: up with the probability given by the dropped
 * bits, so the mean is the value. `random`: 32 bits for each. Infinity and NaN are kept. Above the
 * largest finite f16 or bf16 the next number is infinity. Include after convert.glsl.
 */
uint to_bf16_random(vec2 v, uvec2 random)
{
    uvec2 u = floatBitsToUint(v);
    uvec2 h = (u + (random >> 16)) >> 16;
    uint nearest = to_bf16(v);
    h = mix(h, uvec2(nearest & 0xffffu, nearest >> 16),
            greaterThanEqual(u & 0x7fffffffu, uvec2(0x7f800000u)));
    return h.x | (h.y << 16);
}

uint to_f16_random(vec2 v, uvec2 random)
{
    uvec2 u = floatBitsToUint(v);
    uvec2 sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    uvec2 normal = (a + (random >> 19) - 0x38000000u) >> 13;
    /* Subnormal f16 numbers are multiples of 2^-24. */
    precise vec2 count = abs(v) * 16777216.0;
    precise vec2 whole = floor(min(count, vec2(2048.0)));
    precise vec2 chance = vec2(random >> 8) * 5.9604644775390625e-8;
    uvec2 small = uvec2(whole) + mix(uvec2(0), uvec2(1), lessThan(chance, count - whole));
    uvec2 h = mix(normal, small, lessThan(a, uvec2(0x38800000u))) | sign;
    uint nearest = to_f16(v);
    h = mix(h, uvec2(nearest & 0xffffu, nearest >> 16),
            greaterThanEqual(a, uvec2(0x47800000u)));
    return h.x | (h.y << 16);
}
