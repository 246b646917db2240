/* SPDX-License-Identifier: MIT
 *
 * Sums of squares of any finite f32 numbers in one word. A sum that f32 holds is kept as it is, and a
 * larger one as minus the sum over 2^192: no sum of squares is negative. Included by the kernels that
 * make and join such sums, and by step_begin.comp, which takes the root. All scales are powers of two,
 * so they cost no accuracy.
 */
const float SHRINK = 1.262177448353618888658765704452e-29; /* 2^-96, of what is squared */

bool is_finite(float x)
{
    return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
}
/* Whether it is one of the larger ones: between -0 and minus infinity. By bits, since a compiler may
 * take it that there are no NaNs. */
bool is_large(float sum)
{
    return floatBitsToUint(sum) - 0x80000001u < 0x7f7fffffu;
}
/* Of vectors and without a branch: SwiftShader loses a term of the same by single numbers. */
vec4 join_squares(vec4 a, vec4 b)
{
    const uvec4 first = uvec4(0x80000001u), range = uvec4(0x7f7fffffu), top = uvec4(0x7f800000u);
    precise vec4 plain = a + b;
    precise vec4 a_once = a * SHRINK, a_twice = a_once * SHRINK; /* f32 has no 2^-192 */
    precise vec4 b_once = b * SHRINK, b_twice = b_once * SHRINK;
    uvec4 a_bits = floatBitsToUint(a), b_bits = floatBitsToUint(b);
    bvec4 a_large = lessThan(a_bits - first, range), b_large = lessThan(b_bits - first, range);
    precise vec4 small = mix(a_twice, -a, a_large) + mix(b_twice, -b, b_large);
    bvec4 over = equal(floatBitsToUint(plain) & top, top);
    bvec4 known = lessThan(max(a_bits & top, b_bits & top), top);
    vec4 large = mix(plain, -small, a_large);
    large = mix(large, -small, b_large);
    large = mix(large, -small, over);
    return mix(plain, large, known);
}
float join4_squares(vec4 v)
{
    vec4 two = join_squares(v, v.yxwz);
    return join_squares(two, two.zwxy).x;
}
