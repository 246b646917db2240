/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: causal attention of B sequences of T tokens, H heads of queries
 * and K of keys and values, D elements each, packed in one tensor.
 */
#include <math.h>

#include "kernel.h"

enum { B_, T_, H_, K_, D_ }; /* places in c->dim */

/* Heads in a packed row: H of queries, K of keys, K of values. */
static int64_t packed(const struct bench_case *c)
{
    return c->dim[H_] + 2 * c->dim[K_];
}
/* The head of keys and values that query head h reads. */
static int64_t shared(const struct bench_case *c, int64_t h)
{
    return h / (c->dim[H_] / c->dim[K_]);
}
/* The start of row `row` in qkv of sequence b: of head h of the queries (0), or of the head of keys
 * (1) or values (2) that query head h reads. */
static int64_t place(const struct bench_case *c, int which, int64_t b, int64_t h, int64_t row)
{
    const int64_t first = which ? c->dim[H_] + (which - 1) * c->dim[K_] : 0;
    const int64_t head = first + (which ? shared(c, h) : h);
    return ((b * c->dim[T_] + row) * packed(c) + head) * c->dim[D_];
}
static struct rf_attention_args arguments(const struct bench_case *c, int out, int lse, int qkv)
{
    const int64_t H = c->dim[H_], K = c->dim[K_], D = c->dim[D_];
    return (struct rf_attention_args){.q = rf_heads_in(bench_t(c, qkv), D, 0, H),
                                      .k = rf_heads_in(bench_t(c, qkv), D, H, K),
                                      .v = rf_heads_in(bench_t(c, qkv), D, H + K, K),
                                      .out = rf_heads_in(bench_t(c, out), D, 0, H),
                                      .lse = bench_t(c, lse)};
}
static double dot(const struct bench_case *c, int x, int64_t at_x, int y, int64_t at_y)
{
    double sum = 0;
    for (int64_t d = 0; d < c->dim[D_]; d++)
        sum += bench_v(c, x, at_x + d) * bench_v(c, y, at_y + d);
    return sum;
}
/* The weights of row i over the rows up to it; returns the log of their sum before the division. */
static double weights(const struct bench_case *c, int qkv, int64_t b, int64_t h, int64_t i,
                      double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] =
            dot(c, qkv, place(c, 0, b, h, i), qkv, place(c, 1, b, h, j)) / sqrt((double)c->dim[D_]);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j <= i; j++)
        p[j] /= sum;
    return most + log(sum);
}

enum { AT_OUT, AT_LSE, AT_QKV };
static double pairs(const struct bench_case *c) /* pairs of a query and a key */
{
    return (double)c->dim[B_] * (double)c->dim[H_] * (double)c->dim[T_] * ((double)c->dim[T_] + 1) /
           2;
}
static void plan_attention(struct bench_case *c)
{
    const int64_t B = c->dim[B_], T = c->dim[T_], H = c->dim[H_], D = c->dim[D_];
    bench_add(c, rf_shape3(B, T, H * D), BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, rf_shape3(B, T, packed(c) * D), BENCH_RANDOM, BENCH_READ);
    c->flops = 4 * pairs(c) * (double)D;
}
static int launch_attention(struct bench_case *c)
{
    const struct rf_attention_args args = arguments(c, AT_OUT, AT_LSE, AT_QKV);
    return rf_attend(c->stream, &args);
}
static double want_attention(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double *p = malloc((size_t)c->dim[T_] * sizeof(*p)), sum = 0;
    const int64_t D = c->dim[D_];
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
    const int64_t B = c->dim[B_], T = c->dim[T_], H = c->dim[H_], D = c->dim[D_];
    bench_add(c, rf_shape3(B, T, packed(c) * D), BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rf_shape3(B, T, H * D), BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape3(B, T, H * D), BENCH_NOTHING, BENCH_READ);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add(c, rf_shape3(B, T, packed(c) * D), BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, rf_shape3(B, H, T), RF_F32, BENCH_NOTHING, BENCH_SCRATCH, 0);
    c->flops = 10 * pairs(c) * (double)D;
}
static int prepare_attention_backward(struct bench_case *c)
{
    const struct rf_attention_args args = arguments(c, AB_OUT, AB_LSE, AB_QKV);
    return rf_attend(c->stream, &args);
}
static int launch_attention_backward(struct bench_case *c)
{
    const int64_t H = c->dim[H_], K = c->dim[K_], D = c->dim[D_];
    const struct rf_attention_args args = arguments(c, AB_OUT, AB_LSE, AB_QKV);
    const struct rf_attention_grads grads = {.dout = rf_heads_in(bench_t(c, AB_DOUT), D, 0, H),
                                             .dq = rf_heads_in(bench_t(c, AB_DQKV), D, 0, H),
                                             .dk = rf_heads_in(bench_t(c, AB_DQKV), D, H, K),
                                             .dv = rf_heads_in(bench_t(c, AB_DQKV), D, H + K, K),
                                             .delta = bench_t(c, AB_DELTA)};
    return rf_attend_backward(c->stream, &args, &grads);
}
/* The contribution of row i to the gradient of element d of row j of k (1) or v (2), or to that of
 * its own query (0), which is the sum over all j. */
static double contribution(const struct bench_case *c, int which, int64_t b, int64_t h, int64_t i,
                           int64_t j, int64_t d, double *p, double *scale)
{
    const int64_t D = c->dim[D_], row = ((b * c->dim[T_] + i) * c->dim[H_] + h) * D;
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
    const int64_t D = c->dim[D_], H = c->dim[H_], K = c->dim[K_], d = at[2] % D, j = at[1];
    const int64_t head = at[2] / D; /* of the packed row */
    const int which = head < H ? 0 : head < H + K ? 1 : 2;
    /* The query heads that it serves. */
    const int64_t first = which ? (head - H) % K * (H / K) : head;
    double *p = malloc((size_t)c->dim[T_] * sizeof(*p)), sum = 0;
    if (!p)
        return NAN;
    for (int64_t h = first; h < first + (which ? H / K : 1); h++)
        for (int64_t i = j; i < (which ? c->dim[T_] : j + 1); i++)
            sum += contribution(c, which, at[0], h, i, j, d, p, scale);
    free(p);
    return sum;
}

const struct bench_kernel bench_row_attention = {.name = "attention",
                                                 .dims = "BxTxHxKxD",
                                                 .shapes = "BxTxHxKxD",
                                                 .samples = 64,
                                                 .plan = plan_attention,
                                                 .launch = launch_attention,
                                                 .want = want_attention};
const struct bench_kernel bench_row_attention_backward = {.name = "attention_backward",
                                                          .dims = "BxTxHxKxD",
                                                          .shapes = "BxTxHxKxD",
                                                          .samples = 12,
                                                          .plan = plan_attention_backward,
                                                          .prepare = prepare_attention_backward,
                                                          .launch = launch_attention_backward,
                                                          .want = want_attention_backward};
