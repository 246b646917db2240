/* SPDX-License-Identifier: MIT
 *
 * The larger of two numbers, or NaN if either is NaN: GLSL's max may drop NaN. For reductions.
 */
#define LEAST uintBitsToFloat(0xff800000u) /* minus infinity */

vec4 most(vec4 a, vec4 b)
{
    uvec4 large = max(floatBitsToUint(a) & 0x7fffffffu, floatBitsToUint(b) & 0x7fffffffu);
    return mix(max(a, b), uintBitsToFloat(uvec4(0x7fc00000u)),
               greaterThan(large, uvec4(0x7f800000u)));
}
float most4(vec4 v)
{
    vec4 two = most(v, v.yxwz);
    return most(two, two.zwxy).x;
}
