/* SPDX-License-Identifier: MIT
 *
 * Sums of squares of any finite f32 numbers in one word. A sum that f32 can represent is stored
 * unchanged. A larger one is stored as minus the sum over 2^192; no sum of squares is negative.
 * Included by the kernels that compute such sums, and by step_begin.comp, which takes the root. All
 * scales are powers of two, so they cost no accuracy.
 */
const float SHRINK = 1.262177448353618888658765704452e-29; /* 2^-96, before squaring */

bool is_finite(float x)
{
    return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
}
/* Whether the sum is in the large form: between -0 and minus infinity. Tested by bits, because a
 * compiler may assume that there are no NaNs. */
bool is_large(float sum)
{
    return floatBitsToUint(sum) - 0x80000001u < 0x7f7fffffu;
}
