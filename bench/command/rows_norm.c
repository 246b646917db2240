/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: normalization, embedding, loss, and the sums over rows for
 * gradients of parameters.
 */
#include <math.h>

#include "kernel.h"

static const double eps = 1e-5;

/* ---- layer norm: N rows of C ----------------------------------------------------------------- */

struct moments {
    double mean, rstd;
};
static struct moments moments_of(const struct bench_case *c, int x, int64_t row)
{
    const int64_t channels = c->dim[1];
    struct moments m = {0, 0};
    double squares = 0;
    for (int64_t i = 0; i < channels; i++)
        m.mean += bench_v(c, x, row * channels + i) / (double)channels;
    for (int64_t i = 0; i < channels; i++)
        squares += pow(bench_v(c, x, row * channels + i) - m.mean, 2) / (double)channels;
    m.rstd = 1 / sqrt(squares + eps);
    return m;
}

enum { LN_OUT, LN_MEAN, LN_RSTD, LN_X, LN_GAMMA, LN_BETA };
static void plan_layernorm(struct bench_case *c)
{
    const struct rf_shape rows = rf_shape2(c->dim[0], c->dim[1]), per_row = rf_shape1(c->dim[0]);
    bench_add(c, rows, BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add(c, rows, BENCH_RANDOM, BENCH_READ);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_POSITIVE, BENCH_READ);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_RANDOM, BENCH_READ);
    c->flops = 8 * (double)c->dim[0] * (double)c->dim[1];
}
static int launch_layernorm(struct bench_case *c)
{
    return rf_norm(c->stream, &(struct rf_norm_args){.eps = (float)eps,
                                                     .x = bench_t(c, LN_X),
                                                     .gamma = bench_t(c, LN_GAMMA),
                                                     .beta = bench_t(c, LN_BETA),
                                                     .out = bench_t(c, LN_OUT),
                                                     .mean = bench_t(c, LN_MEAN),
                                                     .rstd = bench_t(c, LN_RSTD)});
}
static double want_layernorm(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const struct moments m = moments_of(c, LN_X, at[0]);
    *scale = k == LN_RSTD ? 0 : 1;
    if (k != LN_OUT)
        return k == LN_MEAN ? m.mean : m.rstd;
    const double x = bench_v(c, LN_X, at[0] * c->dim[1] + at[1]);
    return (x - m.mean) * m.rstd * bench_v(c, LN_GAMMA, at[1]) + bench_v(c, LN_BETA, at[1]);
}

enum { LI_DX, LI_DOUT, LI_X, LI_MEAN, LI_RSTD, LI_GAMMA };
static void plan_layernorm_backward_input(struct bench_case *c)
{
    const struct rf_shape rows = rf_shape2(c->dim[0], c->dim[1]), per_row = rf_shape1(c->dim[0]);
    bench_add(c, rows, BENCH_NOTHING, BENCH_WRITE);
    bench_add(c, rows, BENCH_RANDOM, BENCH_READ);
    bench_add(c, rows, BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_POSITIVE, BENCH_READ);
    c->flops = 12 * (double)c->dim[0] * (double)c->dim[1];
}
static int prepare_layernorm_backward_input(struct bench_case *c)
{
    return rf_norm(c->stream, &(struct rf_norm_args){.eps = (float)eps,
                                                     .x = bench_t(c, LI_X),
                                                     .gamma = bench_t(c, LI_GAMMA),
                                                     .beta = bench_t(c, LI_GAMMA),
                                                     .out = bench_t(c, LI_DX),
                                                     .mean = bench_t(c, LI_MEAN),
                                                     .rstd = bench_t(c, LI_RSTD)});
}
static int launch_layernorm_backward_input(struct bench_case *c)
{
    return rf_norm_backward_input(c->stream, &(struct rf_norm_args){.x = bench_t(c, LI_X),
                                                                    .gamma = bench_t(c, LI_GAMMA),
                                                                    .mean = bench_t(c, LI_MEAN),
                                                                    .rstd = bench_t(c, LI_RSTD),
                                                                    .dout = bench_t(c, LI_DOUT),
                                                                    .dx = bench_t(c, LI_DX)});
}
static double want_layernorm_backward_input(const struct bench_case *c, int k, const int64_t *at,
                                            double *scale)
{
    const int64_t channels = c->dim[1], first = at[0] * channels;
    const struct moments m = moments_of(c, LI_X, at[0]);
    double mean_g = 0, mean_gx = 0, g_here = 0, x_here = 0;
    for (int64_t i = 0; i < channels; i++) {
        const double x = (bench_v(c, LI_X, first + i) - m.mean) * m.rstd;
        const double g = bench_v(c, LI_DOUT, first + i) * bench_v(c, LI_GAMMA, i);
        mean_g += g / (double)channels;
        mean_gx += g * x / (double)channels;
        if (i == at[1]) {
            g_here = g;
            x_here = x;
        }
    }
    *scale = m.rstd * (fabs(g_here) + fabs(mean_g) + fabs(x_here * mean_gx));
    return m.rstd * (g_here - mean_g - x_here * mean_gx);
}

enum { LW_DGAMMA, LW_DBETA, LW_DOUT, LW_X, LW_MEAN, LW_RSTD, LW_SCRATCH, LW_OUT };
static void plan_layernorm_backward_weight(struct bench_case *c)
{
    const struct rf_shape rows = rf_shape2(c->dim[0], c->dim[1]), per_row = rf_shape1(c->dim[0]);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_RANDOM, BENCH_UPDATE);
    bench_add(c, rf_shape1(c->dim[1]), BENCH_RANDOM, BENCH_UPDATE);
    bench_add(c, rows, BENCH_RANDOM, BENCH_READ);
    bench_add(c, rows, BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add_typed(c, per_row, RF_F32, BENCH_NOTHING, BENCH_READ, 0);
    bench_add_scratch(c, rf_norm_scratch(c->dim[0], c->dim[1]), RF_F32);
    bench_add(c, rows, BENCH_NOTHING, BENCH_SCRATCH);
    c->flops = 5 * (double)c->dim[0] * (double)c->dim[1];
}
static int prepare_layernorm_backward_weight(struct bench_case *c)
{
    return rf_norm(c->stream, &(struct rf_norm_args){.eps = (float)eps,
                                                     .x = bench_t(c, LW_X),
                                                     .gamma = bench_t(c, LW_DGAMMA),
                                                     .beta = bench_t(c, LW_DBETA),
                                                     .out = bench_t(c, LW_OUT),
                                                     .mean = bench_t(c, LW_MEAN),
                                                     .rstd = bench_t(c, LW_RSTD)});
}
static int launch_layernorm_backward_weight(struct bench_case *c)
{
    return rf_norm_backward_weight(c->stream,
                                   &(struct rf_norm_args){.x = bench_t(c, LW_X),
                                                          .mean = bench_t(c, LW_MEAN),
                                                          .rstd = bench_t(c, LW_RSTD),
                                                          .dout = bench_t(c, LW_DOUT),
                                                          .dgamma = bench_t(c, LW_DGAMMA),
                                                          .dbeta = bench_t(c, LW_DBETA),
                                                          .scratch = bench_t(c, LW_SCRATCH)});
}
static double want_layernorm_backward_weight(const struct bench_case *c, int k, const int64_t *at,
                                             double *scale)
{
    const int64_t channels = c->dim[1];
    double sum = bench_v(c, k, at[0]);
    *scale = fabs(sum);
    for (int64_t row = 0; row < c->dim[0]; row++) {
        double term = bench_v(c, LW_DOUT, row * channels + at[0]);
        if (k == LW_DGAMMA) /* the kernel's own statistics, or this would take N times as long */
            term *= (bench_v(c, LW_X, row * channels + at[0]) - bench_v(c, LW_MEAN, row)) *
                    bench_v(c, LW_RSTD, row);
        sum += term;
        *scale += fabs(term);
    }
    return sum;
}

/* ---- bias ------------------------------------------------------------------------------------ */

enum { BG_DBIAS, BG_DOUT, BG_SCRATCH };
static void plan_bias_grad(struct bench_case *c)
{
    bench_add(c, rf_shape1(c->dim[1]), BENCH_RANDOM, BENCH_UPDATE);
    bench_add(c, rf_shape2(c->dim[0], c->dim[1]), BENCH_RANDOM, BENCH_READ);
    bench_add_scratch(c, rf_bias_grad_scratch(c->dim[0], c->dim[1]), RF_F32);
    c->flops = (double)c->dim[0] * (double)c->dim[1];
}
static int launch_bias_grad(struct bench_case *c)
{
    return rf_bias_grad(c->stream, bench_t(c, BG_DBIAS), bench_t(c, BG_DOUT),
                        bench_t(c, BG_SCRATCH));
}
static double want_bias_grad(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    double sum = bench_v(c, BG_DBIAS, at[0]);
    *scale = fabs(sum);
    for (int64_t row = 0; row < c->dim[0]; row++) {
        sum += bench_v(c, BG_DOUT, row * c->dim[1] + at[0]);
        *scale += fabs(bench_v(c, BG_DOUT, row * c->dim[1] + at[0]));
    }
    return sum;
}

/* ---- embedding: N rows of sequences of T, C channels, V ids ---------------------------------- */

enum { EM_OUT, EM_TOKENS, EM_WTE, EM_WPE };
static void plan_embedding(struct bench_case *c)
{
    const int64_t n = c->dim[0], T = c->dim[1], C = c->dim[2], V = c->dim[3];
    bench_add(c, rf_shape2(n, C), BENCH_NOTHING, BENCH_WRITE);
    bench_add_typed(c, rf_shape1(n), RF_I32, BENCH_INDICES, BENCH_READ, V);
    c->operand[bench_add(c, rf_shape2(V, C), BENCH_RANDOM, BENCH_READ)].touched = n * C;
    bench_add(c, rf_shape2(T, C), BENCH_RANDOM, BENCH_READ);
    c->flops = (double)n * (double)C;
}
static int launch_embedding(struct bench_case *c)
{
    return rf_embedding(c->stream, &(struct rf_embedding_args){.T = c->dim[1],
                                                               .tokens = bench_t(c, EM_TOKENS),
                                                               .wte = bench_t(c, EM_WTE),
                                                               .wpe = bench_t(c, EM_WPE),
                                                               .out = bench_t(c, EM_OUT)});
}
static double want_embedding(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const int64_t token = c->operand[EM_TOKENS].words[at[0]];
    return bench_v(c, EM_WTE, token * c->dim[2] + at[1]) +
           bench_v(c, EM_WPE, at[0] % c->dim[1] * c->dim[2] + at[1]);
}

enum { EB_DWTE, EB_DWPE, EB_DOUT, EB_TOKENS, EB_SCRATCH };
static void plan_embedding_backward(struct bench_case *c)
{
    const int64_t n = c->dim[0], T = c->dim[1], C = c->dim[2], V = c->dim[3];
    c->operand[bench_add(c, rf_shape2(V, C), BENCH_RANDOM, BENCH_UPDATE)].touched = n * C;
    bench_add(c, rf_shape2(T, C), BENCH_RANDOM, BENCH_UPDATE);
    bench_add(c, rf_shape2(n, C), BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, rf_shape1(n), RF_I32, BENCH_INDICES, BENCH_READ, V);
    bench_add_scratch(c, rf_embedding_scratch(n, V), RF_I32);
    c->flops = 2 * (double)n * (double)C;
}
static int launch_embedding_backward(struct bench_case *c)
{
    return rf_embedding_backward(c->stream,
                                 &(struct rf_embedding_args){.T = c->dim[1],
                                                             .tokens = bench_t(c, EB_TOKENS),
                                                             .dout = bench_t(c, EB_DOUT),
                                                             .dwte = bench_t(c, EB_DWTE),
                                                             .dwpe = bench_t(c, EB_DWPE),
                                                             .scratch = bench_t(c, EB_SCRATCH)});
}
static double want_embedding_backward(const struct bench_case *c, int k, const int64_t *at,
                                      double *scale)
{
    double sum = bench_v(c, k, at[0] * c->dim[2] + at[1]);
    *scale = fabs(sum);
    for (int64_t row = 0; row < c->dim[0]; row++) {
        if ((k == EB_DWTE ? c->operand[EB_TOKENS].words[row] : row % c->dim[1]) != at[0])
            continue;
        sum += bench_v(c, EB_DOUT, row * c->dim[2] + at[1]);
        *scale += fabs(bench_v(c, EB_DOUT, row * c->dim[2] + at[1]));
    }
    return sum;
}

/* ---- loss: N rows of V, in place, as in training --------------------------------------------- */

enum { CE_LOGITS, CE_LOSSES, CE_TARGETS, CE_SCRATCH };
static void plan_cross_entropy(struct bench_case *c)
{
    bench_add(c, rf_shape2(c->dim[0], c->dim[1]), BENCH_RANDOM, BENCH_UPDATE);
    bench_add_typed(c, rf_shape1(c->dim[0]), RF_F32, BENCH_NOTHING, BENCH_WRITE, 0);
    bench_add_typed(c, rf_shape1(c->dim[0]), RF_I32, BENCH_INDICES, BENCH_READ, c->dim[1]);
    bench_add_scratch(c, c->dim[0], RF_F32);
    c->flops = 6 * (double)c->dim[0] * (double)c->dim[1];
}
static int launch_cross_entropy(struct bench_case *c)
{
    return rf_cross_entropy(c->stream,
                            &(struct rf_cross_entropy_args){.logits = bench_t(c, CE_LOGITS),
                                                            .targets = bench_t(c, CE_TARGETS),
                                                            .losses = bench_t(c, CE_LOSSES),
                                                            .lse = bench_t(c, CE_SCRATCH),
                                                            .dlogits = bench_t(c, CE_LOGITS)});
}
static double want_cross_entropy(const struct bench_case *c, int k, const int64_t *at,
                                 double *scale)
{
    const int64_t first = at[0] * c->dim[1], target = c->operand[CE_TARGETS].words[at[0]];
    double sum = 0;
    for (int64_t v = 0; v < c->dim[1]; v++)
        sum += exp(bench_v(c, CE_LOGITS, first + v)); /* of -1 to 1 */
    if (k == CE_LOSSES) {
        *scale = 1;
        return log(sum) - bench_v(c, CE_LOGITS, first + target);
    }
    const double p = exp(bench_v(c, CE_LOGITS, first + at[1])) / sum;
    *scale = p + (at[1] == target);
    return p - (at[1] == target);
}

/* ---- the rows -------------------------------------------------------------------------------- */

#define ROW(NAME, DIMS, SHAPES, ...)                                                               \
    const struct bench_kernel bench_row_##NAME = {.name = #NAME,                                   \
                                                  .dims = DIMS,                                    \
                                                  .shapes = SHAPES,                                \
                                                  .plan = plan_##NAME,                             \
                                                  .launch = launch_##NAME,                         \
                                                  .want = want_##NAME,                             \
                                                  __VA_ARGS__}
ROW(layernorm, "NxC", "nxC", .samples = 64);
ROW(layernorm_backward_input, "NxC", "nxC", .samples = 64,
    .prepare = prepare_layernorm_backward_input);
ROW(layernorm_backward_weight, "NxC", "nxC", .prepare = prepare_layernorm_backward_weight);
ROW(bias_grad, "NxC", "nxC nxF", .samples = 0);
ROW(embedding, "NxTxCxV", "nxTxCxV", .samples = 0);
ROW(embedding_backward, "NxTxCxV", "nxTxCxV", .samples = 0);
ROW(cross_entropy, "NxV", "nxV", .samples = 16);
