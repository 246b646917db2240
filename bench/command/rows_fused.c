/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: gated units, softmax, RMSNorm and norms of a sum.
 */
#include <math.h>

#include "kernel.h"

static const double eps = 1e-5;

static double size(const struct bench_case *c)
{
    return (double)c->dim[0] * (double)c->dim[1];
}
static struct rf_shape rows_of(const struct bench_case *c)
{
    return rf_shape2(c->dim[0], c->dim[1]);
}
static int64_t index_of(const struct bench_case *c, const int64_t *at)
{
    return at[0] * c->dim[1] + at[1];
}

/* ---- SwiGLU of two tensors ------------------------------------------------------------------- */

enum { GL_OUT, GL_GATE, GL_UP };
static void plan_swiglu(struct bench_case *c)
{
    bench_add(c, rows_of(c), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rows_of(c), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rows_of(c), BENCH_RANDOM, BENCH_READ);
    c->flops = 5 * size(c);
}
static int launch_swiglu(struct bench_case *c)
{
    return rf_glu(c->stream, RF_ACT_SILU, bench_t(c, GL_OUT), bench_t(c, GL_GATE),
                  bench_t(c, GL_UP));
}
static double want_swiglu(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const double gate = bench_v(c, GL_GATE, index_of(c, at));
    *scale = fabs(gate);
    return gate / (1 + exp(-gate)) * bench_v(c, GL_UP, index_of(c, at));
}

enum { GB_DGATE, GB_DUP, GB_DOUT, GB_GATE, GB_UP };
static void plan_swiglu_backward(struct bench_case *c)
{
    for (int i = 0; i < 5; i++)
        bench_add(c, rows_of(c), i < GB_DOUT ? BENCH_NOTHING : BENCH_RANDOM,
                  i < GB_DOUT ? BENCH_WRITE : BENCH_READ);
    c->flops = 12 * size(c);
}
static int launch_swiglu_backward(struct bench_case *c)
{
    return rf_glu_backward(c->stream, RF_ACT_SILU, bench_t(c, GB_GATE), bench_t(c, GB_UP),
                           &(struct rf_glu_grads){.dout = bench_t(c, GB_DOUT),
                                                  .dgate = bench_t(c, GB_DGATE),
                                                  .dup = bench_t(c, GB_DUP)});
}
static double want_swiglu_backward(const struct bench_case *c, int k, const int64_t *at,
                                   double *scale)
{
    const int64_t i = index_of(c, at);
    const double gate = bench_v(c, GB_GATE, i), dout = bench_v(c, GB_DOUT, i);
    const double s = 1 / (1 + exp(-gate));
    *scale = fabs(dout);
    return k == GB_DUP ? dout * gate * s : dout * bench_v(c, GB_UP, i) * (s + gate * s * (1 - s));
}

/* ---- softmax --------------------------------------------------------------------------------- */

enum { SM_OUT, SM_X };
static void plan_softmax(struct bench_case *c)
{
    bench_add(c, rows_of(c), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rows_of(c), BENCH_RANDOM, BENCH_READ);
    c->flops = 4 * size(c);
}
static int launch_softmax(struct bench_case *c)
{
    return rf_softmax(c->stream, bench_t(c, SM_OUT), bench_t(c, SM_X));
}
static double want_softmax(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double sum = 0;
    for (int64_t i = 0; i < c->dim[1]; i++)
        sum += exp(bench_v(c, SM_X, at[0] * c->dim[1] + i)); /* of -1 to 1 */
    return exp(bench_v(c, SM_X, index_of(c, at))) / sum;
}

/* ---- RMSNorm, alone and of x + residual ------------------------------------------------------ */

enum { RN_OUT, RN_RSTD, RN_X, RN_GAMMA, RN_RESIDUAL, RN_SUM };
static void plan_rmsnorm(struct bench_case *c)
{
    bench_add(c, rows_of(c), BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, rf_shape1(c->dim[0]), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, rows_of(c), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_POSITIVE, BENCH_READ);
    c->flops = 4 * size(c);
}
static int launch_rmsnorm(struct bench_case *c)
{
    return rf_norm(c->stream, &(struct rf_norm_args){.rms = true,
                                                     .eps = (float)eps,
                                                     .x = bench_t(c, RN_X),
                                                     .gamma = bench_t(c, RN_GAMMA),
                                                     .out = bench_t(c, RN_OUT),
                                                     .rstd = bench_t(c, RN_RSTD)});
}
static void plan_residual_rmsnorm(struct bench_case *c)
{
    plan_rmsnorm(c);
    bench_add(c, rows_of(c), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rows_of(c), BENCH_NOTHING, BENCH_WRITE);
    c->flops = 5 * size(c);
}
static int launch_residual_rmsnorm(struct bench_case *c)
{
    return rf_norm(c->stream, &(struct rf_norm_args){.rms = true,
                                                     .eps = (float)eps,
                                                     .x = bench_t(c, RN_X),
                                                     .residual = bench_t(c, RN_RESIDUAL),
                                                     .gamma = bench_t(c, RN_GAMMA),
                                                     .out = bench_t(c, RN_OUT),
                                                     .sum = bench_t(c, RN_SUM),
                                                     .rstd = bench_t(c, RN_RSTD)});
}
static double want_norm(const struct bench_case *c, int k, const int64_t *at, double *scale,
                        bool residual)
{
    const int64_t first = at[0] * c->dim[1];
    double squares = 0, x = 0;
    for (int64_t i = 0; i < c->dim[1]; i++) {
        double v = bench_v(c, RN_X, first + i);
        if (residual)
            v += bench_v(c, RN_RESIDUAL, first + i);
        squares += v * v / (double)c->dim[1];
        if (k != RN_RSTD && i == at[1])
            x = v;
    }
    const double rstd = 1 / sqrt(squares + eps);
    *scale = k == RN_RSTD ? 0 : 2;
    if (k != RN_OUT)
        return k == RN_RSTD ? rstd : x;
    return x * rstd * bench_v(c, RN_GAMMA, at[1]);
}
static double want_rmsnorm(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    return want_norm(c, k, at, scale, false);
}
static double want_residual_rmsnorm(const struct bench_case *c, int k, const int64_t *at,
                                    double *scale)
{
    return want_norm(c, k, at, scale, true);
}

/* ---- the rows -------------------------------------------------------------------------------- */

#define ROW(NAME, SHAPES, SAMPLES)                                                                 \
    const struct bench_kernel bench_row_##NAME = {.name = #NAME,                                   \
                                                  .dims = "NxC",                                   \
                                                  .shapes = SHAPES,                                \
                                                  .samples = SAMPLES,                              \
                                                  .plan = plan_##NAME,                             \
                                                  .launch = launch_##NAME,                         \
                                                  .want = want_##NAME}
ROW(swiglu, "nxF", 0);
ROW(swiglu_backward, "nxF", 0);
ROW(softmax, "nxC", 64);
ROW(rmsnorm, "nxC", 64);
ROW(residual_rmsnorm, "nxC", 64);
