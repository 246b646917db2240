/* SPDX-License-Identifier: MIT
 *
 * The operations of elementwise.comp, included by it and by src/ops/elementwise.c: number, name,
 * and the value of a result element. PAIR: of a and b; SINGLE: of a. pc.factor is an argument of
 * the launcher. Numbers are specialization constants, so unused operations are removed.
 */
PAIR(0, add, a + b)
PAIR(1, mul, a * b)
PAIR(2, maximum, most_of(a, b))
SINGLE(3, scale, a * pc.factor)
SINGLE(4, copy, a) /* casts: LOAD and STORE convert */
