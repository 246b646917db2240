/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: kernels over flat ranges of elements, and reductions.
 */
#include <math.h>

#include "kernel.h"

enum { OUT = 0, A = 1, B = 2 };

static struct rf_shape all(const struct bench_case *c)
{
    return c->dim[1] ? rf_shape2(c->dim[0], c->dim[1]) : rf_shape1(c->dim[0]);
}

static double count(const struct bench_case *c)
{
    return (double)c->dim[0] * (c->dim[1] ? (double)c->dim[1] : 1);
}

static int64_t flat(const struct bench_case *c, const int64_t *at)
{
    return c->dim[1] ? at[0] * c->dim[1] + at[1] : at[0];
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static void plan_fill(struct bench_case *c)
{
    bench_add(c, all(c), BENCH_NOTHING, BENCH_WRITE);
}
static void plan_unary(struct bench_case *c, double flops)
{
    bench_add(c, all(c), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, all(c), BENCH_RANDOM, BENCH_READ);
    c->flops = flops * count(c);
}
static void plan_copy(struct bench_case *c)
{
    plan_unary(c, 0);
}
static void plan_scale(struct bench_case *c)
{
    plan_unary(c, 1);
}
static void plan_gelu(struct bench_case *c)
{
    plan_unary(c, 9);
}
static void plan_binary(struct bench_case *c)
{
    plan_unary(c, 1);
    bench_add(c, all(c), BENCH_RANDOM, BENCH_READ);
}
static void plan_gelu_backward(struct bench_case *c)
{
    plan_unary(c, 17);
    bench_add(c, all(c), BENCH_RANDOM, BENCH_READ);
}
static void plan_cast(struct bench_case *c)
{
    bench_add(c, all(c), BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, all(c), c->dtype == RF_F32 ? RF_BF16 : RF_F32, BENCH_RANDOM, BENCH_READ, 0);
}

static int launch_fill(struct bench_case *c)
{
    return rf_fill(c->stream, bench_t(c, OUT), 0.75f);
}
static int launch_copy(struct bench_case *c)
{
    return rf_copy(c->stream, bench_t(c, OUT), bench_t(c, A));
}
static int launch_cast(struct bench_case *c)
{
    return rf_cast(c->stream, bench_t(c, OUT), bench_t(c, A));
}
static int launch_scale(struct bench_case *c)
{
    return rf_scale(c->stream, bench_t(c, OUT), bench_t(c, A), 0.75f);
}
static int launch_add(struct bench_case *c)
{
    return rf_add(c->stream, bench_t(c, OUT), bench_t(c, A), bench_t(c, B));
}
static int launch_gelu(struct bench_case *c)
{
    return rf_activate(c->stream, RF_ACT_GELU, bench_t(c, OUT), bench_t(c, A));
}
static int launch_gelu_backward(struct bench_case *c)
{
    return rf_activate_backward(c->stream, RF_ACT_GELU, bench_t(c, OUT), bench_t(c, A),
                                bench_t(c, B));
}

static double want_fill(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return 0.75;
}
static double want_copy(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return bench_v(c, A, flat(c, at));
}
static double want_scale(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return 0.75 * bench_v(c, A, flat(c, at));
}
static double want_add(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return bench_v(c, A, flat(c, at)) + bench_v(c, B, flat(c, at));
}

static const double gelu_root = 0.79788456080286535588; /* sqrt(2 / pi) */

static double want_gelu(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const double x = bench_v(c, A, flat(c, at));
    *scale = fabs(x);
    return 0.5 * x * (1 + tanh(gelu_root * (x + 0.044715 * x * x * x)));
}
static double want_gelu_backward(const struct bench_case *c, int k, const int64_t *at,
                                 double *scale)
{
    const double d = bench_v(c, A, flat(c, at)), x = bench_v(c, B, flat(c, at));
    const double t = tanh(gelu_root * (x + 0.044715 * x * x * x));
    *scale = fabs(d);
    return d * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_root * (1 + 3 * 0.044715 * x * x));
}

/* ---- reductions ------------------------------------------------------------------------------ */

enum { X = 1, CHUNKS = 2, SCRATCH = 3 };

static void plan_sum(struct bench_case *c)
{
    bench_add_typed(c, rf_shape1(1), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, all(c), BENCH_RANDOM, BENCH_READ);
    bench_add_scratch(c, 0, RF_F32); /* replaces the chunks */
    bench_add_scratch(c, rf_sum_scratch(c->dim[0]), RF_F32);
    c->flops = count(c);
}
static void plan_sum_squares(struct bench_case *c)
{
    const int64_t chunks = (c->dim[0] + 1023) / 1024;
    bench_add_typed(c, rf_shape1(1), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, all(c), BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, rf_shape2(chunks, 2), RF_I32, BENCH_CHUNKS, BENCH_READ, c->dim[0]);
    bench_add_scratch(c, rf_sum_squares_scratch(chunks), RF_F32);
    c->flops = 2 * count(c);
}
static int launch_sum(struct bench_case *c)
{
    return rf_sum(c->stream, bench_t(c, OUT), bench_t(c, X), bench_t(c, SCRATCH));
}
static int launch_sum_squares(struct bench_case *c)
{
    return rf_sum_squares(c->stream, bench_t(c, OUT), bench_t(c, X), bench_t(c, CHUNKS),
                          bench_t(c, SCRATCH));
}
static double want_sum(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double sum = 0;
    for (int64_t i = 0; i < c->dim[0]; i++) {
        sum += bench_v(c, X, i);
        *scale += fabs(bench_v(c, X, i));
    }
    return sum;
}
static double want_sum_squares(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double sum = 0;
    for (int64_t i = 0; i < c->dim[0]; i++)
        sum += bench_v(c, X, i) * bench_v(c, X, i);
    return sum;
}

/* ---- the rows -------------------------------------------------------------------------------- */

#define FLAT(NAME, SHAPES, PLAN)                                                                   \
    const struct bench_kernel bench_row_##NAME = {.name = #NAME,                                   \
                                                  .dims = "NxC",                                   \
                                                  .shapes = SHAPES,                                \
                                                  .plan = PLAN,                                    \
                                                  .launch = launch_##NAME,                         \
                                                  .want = want_##NAME}
#define want_cast want_copy
FLAT(fill, "nxC", plan_fill);
FLAT(copy, "nxC", plan_copy);
FLAT(cast, "nxC", plan_cast);
FLAT(scale, "nxC", plan_scale);
FLAT(add, "nxC", plan_binary);
FLAT(gelu, "nxF", plan_gelu);
FLAT(gelu_backward, "nxF", plan_gelu_backward);

#define BUFFER(NAME)                                                                               \
    const struct bench_kernel bench_row_##NAME = {.name = #NAME,                                   \
                                                  .dims = "P",                                     \
                                                  .shapes = "P",                                   \
                                                  .plan = plan_##NAME,                             \
                                                  .launch = launch_##NAME,                         \
                                                  .want = want_##NAME}
BUFFER(sum);
BUFFER(sum_squares);
