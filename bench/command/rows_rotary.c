/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: the rotary embedding of B sequences of T, H heads of D, forward
 * (rotates) and backward (rotates back).
 */
#include <math.h>

#include "kernel.h"

enum { OUT, X };

static struct rf_heads heads(const struct bench_case *c, int operand)
{
    return rf_heads_in(bench_t(c, operand), c->dim[3], 0, c->dim[2]);
}

static void plan(struct bench_case *c)
{
    const struct rf_shape shape = rf_shape3(c->dim[0], c->dim[1], c->dim[2] * c->dim[3]);
    bench_add(c, shape, BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, shape, BENCH_RANDOM, BENCH_READ);
    c->flops = 3 * (double)c->dim[0] * (double)c->dim[1] * (double)c->dim[2] * (double)c->dim[3];
}

static int launch_rotary(struct bench_case *c)
{
    return rf_rotary(c->stream, heads(c, OUT), heads(c, X), NULL);
}
static int launch_rotary_backward(struct bench_case *c)
{
    return rf_rotary_backward(c->stream, heads(c, OUT), heads(c, X), NULL);
}

/* Element at[2] of row at[1], rotated with its pair forwards (1) or back (-1). */
static double turned(const struct bench_case *c, const int64_t *at, double direction, double *scale)
{
    const int64_t D = c->dim[3], row = (at[0] * c->dim[1] + at[1]) * c->dim[2] * D;
    const int64_t first = at[2] / 2 * 2, pair = at[2] % D / 2;
    const double angle = direction * (double)at[1] * pow(10000, -2.0 * (double)pair / (double)D);
    const double x = bench_v(c, X, row + first), y = bench_v(c, X, row + first + 1);
    *scale = fabs(x) + fabs(y);
    return at[2] == first ? x * cos(angle) - y * sin(angle) : x * sin(angle) + y * cos(angle);
}
static double want_rotary(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return turned(c, at, 1, scale);
}
static double want_rotary_backward(const struct bench_case *c, int k, const int64_t *at,
                                   double *scale)
{
    return turned(c, at, -1, scale);
}

#define ROW(NAME)                                                                                  \
    const struct bench_kernel bench_row_##NAME = {.name = #NAME,                                   \
                                                  .dims = "BxTxHxD",                               \
                                                  .shapes = "BxTxHxD",                             \
                                                  .plan = plan,                                    \
                                                  .launch = launch_##NAME,                         \
                                                  .want = want_##NAME}
ROW(rotary);
ROW(rotary_backward);
