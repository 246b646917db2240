/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: matrix products.
 */
#include <math.h>

#include "kernel.h"

/* ---- matmul: M rows of K, times K rows of N -------------------------------------------------- */

enum { MM_OUT, MM_A, MM_B };
static void plan_matmul(struct bench_case *c)
{
    const int64_t m = c->dim[0], k = c->dim[1], n = c->dim[2];
    bench_add(c, rf_shape2(m, n), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, c->transpose_a ? rf_shape2(k, m) : rf_shape2(m, k), BENCH_RANDOM, BENCH_READ);
    bench_add(c, c->transpose_b ? rf_shape2(n, k) : rf_shape2(k, n), BENCH_RANDOM, BENCH_READ);
    c->flops = 2 * (double)m * (double)k * (double)n;
}
static struct rf_matmul_opts matmul_opts(const struct bench_case *c)
{
    return (struct rf_matmul_opts){.path = c->path,
                                   .split = c->split,
                                   .transpose_a = c->transpose_a,
                                   .transpose_b = c->transpose_b};
}
static int launch_matmul(struct bench_case *c)
{
    const struct rf_matmul_opts opts = matmul_opts(c);
    return rf_matmul(c->stream, bench_t(c, MM_OUT), bench_t(c, MM_A), bench_t(c, MM_B), &opts);
}
static const char *path_matmul(const struct bench_case *c)
{
    struct rf_matmul_opts opts = matmul_opts(c);
    opts.m = c->dim[0];
    opts.k = c->dim[1];
    opts.n = c->dim[2];
    return rf_matmul_path(c->device, c->dtype, &opts);
}
static double want_matmul(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const int64_t m = c->dim[0], kk = c->dim[1], n = c->dim[2];
    double sum = 0;
    for (int64_t i = 0; i < kk; i++) {
        const double product = bench_v(c, MM_A, c->transpose_a ? i * m + at[0] : at[0] * kk + i) *
                               bench_v(c, MM_B, c->transpose_b ? at[1] * kk + i : i * n + at[1]);
        sum += product;
        *scale += fabs(product);
    }
    return sum;
}
static int loop_matmul(const struct bench_case *c, int samples, double *seconds, double *work)
{
    return bench_loop_time(c->dim[0], c->dim[1], c->dim[2], samples, seconds, work);
}

/* ---- the same with what a feed-forward layer does to it -------------------------------------- */

enum { MG_OUT, MG_A, MG_B, MG_BIAS, MG_PRE };
static void plan_matmul_gelu(struct bench_case *c)
{
    const int64_t m = c->dim[0], k = c->dim[1], n = c->dim[2];
    bench_add(c, rf_shape2(m, n), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rf_shape2(m, k), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape2(n, k), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape1(n), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape2(m, n), BENCH_NOTHING, BENCH_WRITE);
    c->flops = 2 * (double)m * (double)k * (double)n;
}
static int launch_matmul_gelu(struct bench_case *c)
{
    const struct rf_tensor bias = bench_t(c, MG_BIAS), pre = bench_t(c, MG_PRE);
    const struct rf_matmul_opts opts = {
        .path = c->path, .transpose_b = true, .bias = &bias, .act = RF_ACT_GELU, .pre = &pre};
    return rf_matmul(c->stream, bench_t(c, MG_OUT), bench_t(c, MG_A), bench_t(c, MG_B), &opts);
}
static double want_matmul_gelu(const struct bench_case *c, int operand, const int64_t *at,
                               double *scale)
{
    const int64_t k = c->dim[1];
    double x = bench_v(c, MG_BIAS, at[1]);
    *scale = fabs(x);
    for (int64_t i = 0; i < k; i++) {
        const double product = bench_v(c, MG_A, at[0] * k + i) * bench_v(c, MG_B, at[1] * k + i);
        x += product;
        *scale += fabs(product);
    }
    if (operand == MG_PRE)
        return x;
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* ---- Z products of a batch ------------------------------------------------------------------- */

static void plan_matmul_batch(struct bench_case *c)
{
    const int64_t z = c->dim[0], m = c->dim[1], k = c->dim[2], n = c->dim[3];
    bench_add(c, rf_shape3(z, m, n), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rf_shape3(z, m, k), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape3(z, k, n), BENCH_RANDOM, BENCH_READ);
    c->flops = 2 * (double)z * (double)m * (double)k * (double)n;
}
static int launch_matmul_batch(struct bench_case *c)
{
    const int64_t z = c->dim[0], m = c->dim[1], k = c->dim[2], n = c->dim[3];
    const struct rf_matmul_opts opts = {.path = c->path,
                                        .batch = z,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .a_layout = {.step = m * k},
                                        .b_layout = {.step = k * n}};
    return rf_matmul(c->stream, bench_t(c, MM_OUT), bench_t(c, MM_A), bench_t(c, MM_B), &opts);
}
static double want_matmul_batch(const struct bench_case *c, int operand, const int64_t *at,
                                double *scale)
{
    const int64_t m = c->dim[1], k = c->dim[2], n = c->dim[3];
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
        const double product = bench_v(c, MM_A, (at[0] * m + at[1]) * k + i) *
                               bench_v(c, MM_B, (at[0] * k + i) * n + at[2]);
        sum += product;
        *scale += fabs(product);
    }
    return sum;
}

/* ---- the rows -------------------------------------------------------------------------------- */

const struct bench_kernel bench_row_matmul = {.name = "matmul",
                                              .dims = "MxKxN",
                                              .shapes = "nxCx3C nxCxF nxFxC nxCxV",
                                              .plan = plan_matmul,
                                              .launch = launch_matmul,
                                              .want = want_matmul,
                                              .path = path_matmul,
                                              .loop = loop_matmul};
const struct bench_kernel bench_row_matmul_gelu = {.name = "matmul_gelu",
                                                   .dims = "MxKxN",
                                                   .shapes = "nxCxF",
                                                   .plan = plan_matmul_gelu,
                                                   .launch = launch_matmul_gelu,
                                                   .want = want_matmul_gelu};
const struct bench_kernel bench_row_matmul_batch = {.name = "matmul_batch",
                                                    .dims = "ZxMxKxN",
                                                    .shapes = "HxTxDxT",
                                                    .plan = plan_matmul_batch,
                                                    .launch = launch_matmul_batch,
                                                    .want = want_matmul_batch};
