/* SPDX-License-Identifier: MIT
 *
 * Sums of squares of any finite f32 numbers in one word. A sum that f32 holds is kept as it is, and a
 * larger one as minus the sum over 2^192: no sum of squares is negative. Included by the kernels that
 * make such sums, and by step_begin.comp, which takes the root. All scales are powers of two,
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
