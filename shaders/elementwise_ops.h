/* SPDX-License-Identifier: MIT
 *
 * The operations of elementwise.comp, included by it and by src/ops/elementwise.c: number, name,
 * and the value of a result item, vec4 or float. PAIR: of a and b; SINGLE: of a. pc.factor is an
 * argument of the launcher; LESS(a, 0.0) selects in mix(). What no expression can say is a function
 * of ITEMs before them. Numbers are specialization constants, so unused operations are removed.
 */
#ifdef FUNCTIONS
#undef FUNCTIONS
ITEM most_of(ITEM a, ITEM b)
{
#if VEC
    return most(a, b);
#else
    return most(vec4(a), vec4(b)).x;
#endif
}
#else
PAIR(0, add, a + b)
PAIR(1, mul, a * b)
PAIR(2, maximum, most_of(a, b))
SINGLE(3, scale, a * pc.factor)
SINGLE(4, copy, a) /* casts: LOAD and STORE convert */
#endif
