/* SPDX-License-Identifier: MIT
 *
 * The operations of elementwise.comp, read by it and by src/ops/elementwise.c: number, name, and what
 * an element of the result is. PAIR: of a and b; SINGLE: of a. pc.factor is a number that the
 * launcher gives. Numbers are specialization constants, so what is not asked for is not there.
 */
PAIR(0, add, a + b)
PAIR(1, mul, a * b)
PAIR(2, maximum, most_of(a, b))
SINGLE(3, scale, a * pc.factor)
SINGLE(4, copy, a) /* casts: LOAD and STORE do what is to be done */
