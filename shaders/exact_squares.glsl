/* SPDX-License-Identifier: MIT
 *
 * Sums of numbers in the form of squares.glsl, exactly: an integer in units of the smallest f32,
 * 2^-149, as words of 12 bits, the lowest first. Its largest term is below 2^320; the words above
 * leave room for 2^46 of them. Two more words say whether a term was infinite or NaN.
 * The sum does not depend on the order of its terms. Included by the kernels that make and round it;
 * optim/host_squares.c does the same in memory of the host.
 */
const uint WORD_BITS = 12, WORD_MASK = 4095;
const uint NUMBER_WORDS = 43; /* of the integer */
const uint INFINITE = 43, NOT_A_NUMBER = 44;
const uint ALL_WORDS = 45; /* RF_EXACT_WORDS */
const uint LARGE_BITS = 192; /* a large sum is minus itself over 2^192 */
