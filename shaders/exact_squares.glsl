/* SPDX-License-Identifier: MIT
 *
 * Exact sums of numbers in the form of squares.glsl. A sum is an integer in units of the smallest
 * f32, 2^-149, stored as words of 12 bits, the lowest first. Its largest term is below 2^320; the
 * words above leave room for 2^46 terms. Two more words tell whether a term was infinite or NaN.
 * The sum does not depend on the order of its terms. Included by the kernels that compute and round
 * it; optim/host_squares.c does the same in host memory.
 */
const uint WORD_BITS = 12, WORD_MASK = 4095;
const uint NUMBER_WORDS = 43; /* of the integer */
const uint INFINITE = 43, NOT_A_NUMBER = 44;
const uint ALL_WORDS = 45; /* RF_EXACT_WORDS */
const uint LARGE_BITS = 192; /* a sum in large form is minus the sum over 2^192 */
