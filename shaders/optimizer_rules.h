/* SPDX-License-Identifier: MIT
 *
 * The rule of each optimizer for a gradient. optimizer.comp and the host (src/optim/host_block.h)
 * include this inside a function. Number and name are those of enum rf_optimizer. Every operation
 * is rounded on its own.
 *
 *   g             in: the gradient, after factor and weight decay that is not decoupled
 *   d             out: the factor of the learning rate; initially g
 *   m, v, a, u    in and out: the states of the rule (src/ops/optimizer.c); otherwise 0
 *   first         whether this is the first of all updates
 *   bias1, bias2  1 - beta1^t, 1 - beta2^t
 *   beta1, beta2, momentum, extra0, extra1, and rest... = 1 - beta1, 1 - beta2, 1 - dampening
 *   NUMBER        the type of all of these that differ by element; ROOT, POSITIVE, SIGN, MAX
 */
RULES_ALIKE(0, ADAMW, 6, ADAM)
{
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
    d = (m / bias1) / ROOT(v / bias2);
}
RULE(1, SGD)
{
}
RULES_ALIKE(2, MOMENTUM, 3, NESTEROV)
{
    NUMBER next = momentum * m + rest * g;
    m = first ? g : next;
    d = m;
}
RULE(3, NESTEROV)
{
    d = g + momentum * m;
}
RULE(4, ADAGRAD)
{
    v = v + g * g;
    d = g / ROOT(v);
}
RULE(5, RMSPROP)
{
    v = beta2 * v + rest2 * (g * g);
    NUMBER spread = v;
    if (HAS_A) {
        a = a + rest2 * (g - a);
        spread = POSITIVE(v - a * a);
    }
    d = g / ROOT(spread);
    if (HAS_M) {
        m = momentum * m + d;
        d = m;
    }
}
RULE(7, LION)
{
    d = SIGN(beta1 * m + rest1 * g);
    m = beta2 * m + rest2 * g;
}
