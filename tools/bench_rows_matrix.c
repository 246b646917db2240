/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: matrix products and attention.
 */
#include <math.h>

#include "bench_kernel.h"

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
    const struct rf_matmul_opts opts = matmul_opts(c);
    return rf_matmul_path(c->device, c->dtype, c->dim[0], c->dim[2], c->dim[1], &opts);
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

/* ---- causal attention: B sequences of T, H heads of D ---------------------------------------- */

/* Where row `row` of head h of q (0), k (1) or v (2) begins, in qkv of sequence b. */
static int64_t place(const struct bench_case *c, int which, int64_t b, int64_t h, int64_t row)
{
    const int64_t channels = c->dim[2] * c->dim[3];
    return ((b * c->dim[1] + row) * 3 + which) * channels + h * c->dim[3];
}
static double dot(const struct bench_case *c, int x, int64_t at_x, int y, int64_t at_y)
{
    double sum = 0;
    for (int64_t d = 0; d < c->dim[3]; d++)
        sum += bench_v(c, x, at_x + d) * bench_v(c, y, at_y + d);
    return sum;
}
/* The weights of row i over the rows up to it; returns the log of their sum before they were
 * divided by it. */
static double weights(const struct bench_case *c, int qkv, int64_t b, int64_t h, int64_t i,
                      double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] =
            dot(c, qkv, place(c, 0, b, h, i), qkv, place(c, 1, b, h, j)) / sqrt((double)c->dim[3]);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j <= i; j++)
        p[j] /= sum;
    return most + log(sum);
}

enum { AT_OUT, AT_LSE, AT_QKV };
static double pairs(const struct bench_case *c) /* of a query and a key */
{
    return (double)c->dim[0] * (double)c->dim[2] * (double)c->dim[1] * ((double)c->dim[1] + 1) / 2;
}
static void plan_attention(struct bench_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], H = c->dim[2], D = c->dim[3];
    bench_add(c, rf_shape3(B, T, H * D), BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, rf_shape3(B, T, 3 * H * D), BENCH_RANDOM, BENCH_READ);
    c->flops = 4 * pairs(c) * (double)D;
}
static int launch_attention(struct bench_case *c)
{
    return rf_attention(c->stream, bench_t(c, AT_OUT), bench_t(c, AT_LSE), bench_t(c, AT_QKV),
                        c->dim[2]);
}
static double want_attention(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double *p = malloc((size_t)c->dim[1] * sizeof(*p)), sum = 0;
    const int64_t D = c->dim[3];
    if (!p)
        return NAN;
    if (k == AT_LSE) {
        *scale = 1;
        sum = weights(c, AT_QKV, at[0], at[1], at[2], p);
    } else {
        weights(c, AT_QKV, at[0], at[2] / D, at[1], p);
        for (int64_t j = 0; j <= at[1]; j++) {
            const double v = bench_v(c, AT_QKV, place(c, 2, at[0], at[2] / D, j) + at[2] % D);
            sum += p[j] * v;
            *scale += p[j] * fabs(v);
        }
    }
    free(p);
    return sum;
}

enum { AB_DQKV, AB_DOUT, AB_OUT, AB_LSE, AB_QKV, AB_DELTA };
static void plan_attention_backward(struct bench_case *c)
{
    const int64_t B = c->dim[0], T = c->dim[1], H = c->dim[2], D = c->dim[3];
    bench_add(c, rf_shape3(B, T, 3 * H * D), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rf_shape3(B, T, H * D), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape3(B, T, H * D), BENCH_NOTHING, BENCH_READ);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add(c, rf_shape3(B, T, 3 * H * D), BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_SCRATCH, 0);
    c->flops = 10 * pairs(c) * (double)D;
}
static int prepare_attention_backward(struct bench_case *c)
{
    return rf_attention(c->stream, bench_t(c, AB_OUT), bench_t(c, AB_LSE), bench_t(c, AB_QKV),
                        c->dim[2]);
}
static int launch_attention_backward(struct bench_case *c)
{
    return rf_attention_backward(c->stream, bench_t(c, AB_DQKV), bench_t(c, AB_DOUT),
                                 bench_t(c, AB_OUT), bench_t(c, AB_LSE), bench_t(c, AB_QKV),
                                 c->dim[2], bench_t(c, AB_DELTA));
}
/* What row i gives to the gradient of element d of row j of k (1) or v (2), or to that of its own
 * query (0), where it is the sum over all j. */
static double contribution(const struct bench_case *c, int which, int64_t b, int64_t h, int64_t i,
                           int64_t j, int64_t d, double *p, double *scale)
{
    const int64_t D = c->dim[3], row = ((b * c->dim[1] + i) * c->dim[2] + h) * D;
    double delta = 0, sum = 0;
    weights(c, AB_QKV, b, h, i, p);
    if (which == 2) {
        *scale += fabs(p[j] * bench_v(c, AB_DOUT, row + d));
        return p[j] * bench_v(c, AB_DOUT, row + d);
    }
    for (int64_t t = 0; t <= i; t++)
        delta += p[t] * dot(c, AB_DOUT, row, AB_QKV, place(c, 2, b, h, t));
    for (int64_t t = which ? j : 0; t <= (which ? j : i); t++) {
        const double dp = dot(c, AB_DOUT, row, AB_QKV, place(c, 2, b, h, t));
        const double other = bench_v(c, AB_QKV, place(c, which ? 0 : 1, b, h, which ? i : t) + d);
        sum += p[t] * (dp - delta) * other / sqrt((double)D);
        *scale += p[t] * (fabs(dp) + fabs(delta)) * fabs(other) / sqrt((double)D);
    }
    return sum;
}
static double want_attention_backward(const struct bench_case *c, int k, const int64_t *at,
                                      double *scale)
{
    const int64_t D = c->dim[3], channels = c->dim[2] * D;
    const int which = (int)(at[2] / channels);
    const int64_t h = at[2] % channels / D, d = at[2] % D, j = at[1];
    double *p = malloc((size_t)c->dim[1] * sizeof(*p)), sum = 0;
    if (!p)
        return NAN;
    for (int64_t i = j; i < (which ? c->dim[1] : j + 1); i++)
        sum += contribution(c, which, at[0], h, i, j, d, p, scale);
    free(p);
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
const struct bench_kernel bench_row_attention = {.name = "attention",
                                                 .dims = "BxTxHxD",
                                                 .shapes = "BxTxHxD",
                                                 .samples = 64,
                                                 .plan = plan_attention,
                                                 .launch = launch_attention,
                                                 .want = want_attention};
const struct bench_kernel bench_row_attention_backward = {.name = "attention_backward",
                                                          .dims = "BxTxHxD",
                                                          .shapes = "BxTxHxD",
                                                          .samples = 12,
                                                          .plan = plan_attention_backward,
                                                          .prepare = prepare_attention_backward,
                                                          .launch = launch_attention_backward,
                                                          .want = want_attention_backward};
