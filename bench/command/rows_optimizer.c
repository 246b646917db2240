/* SPDX-License-Identifier: MIT
 *
 * Rows of the kernel benchmarks: the optimizers, with f32 parameters and states, and gradients of
 * the measured type. If that has 16 bits, a 16-bit copy of the parameters is written, too.
 */
#include <math.h>

#include "kernel.h"

enum { PARAM = 0, GRAD, M, V, DECAY, SCALARS, COPY };

static struct rf_optimizer_opts options_of(const struct bench_case *c)
{
    const enum rf_optimizer kind = (enum rf_optimizer)rf_optimizer_find(c->kernel->name);
    const struct rf_optimizer_info *info = rf_optimizer_get_info(kind);
    return (struct rf_optimizer_opts){.kind = kind,
                                      .beta1 = info->beta1,
                                      .beta2 = info->beta2,
                                      .eps = info->eps,
                                      .weight_decay = 0.1f,
                                      .momentum = info->momentum};
}

static void plan(struct bench_case *c)
{
    static const double flops[RF_OPTIMIZER_COUNT] = {16, 5, 7, 9, 8, 10, 16, 11};
    const struct rf_shape all = rf_shape1(c->dim[0]), one = rf_shape1(1);
    const struct rf_optimizer_opts o = options_of(c);
    const bool m = rf_optimizer_has(&o, RF_STATE_M), v = rf_optimizer_has(&o, RF_STATE_V);
    bench_add_typed(c, all, RF_F32, BENCH_RANDOM, BENCH_UPDATE, 0);
    bench_add(c, all, BENCH_RANDOM, BENCH_READ);
    bench_add_typed(c, m ? all : one, RF_F32, BENCH_RANDOM, m ? BENCH_UPDATE : BENCH_SCRATCH, 0);
    bench_add_typed(c, v ? all : one, RF_F32, BENCH_POSITIVE, v ? BENCH_UPDATE : BENCH_SCRATCH, 0);
    bench_add_typed(c, rf_shape1((c->dim[0] + 63) / 64), RF_I32, BENCH_ONES, BENCH_READ, 0);
    bench_add_typed(c, rf_shape1(RF_SCALAR_WORDS), RF_F32, BENCH_SCALARS, BENCH_READ, 0);
    if (c->dtype != RF_F32)
        bench_add(c, all, BENCH_NOTHING, BENCH_WRITE);
    c->flops = flops[o.kind] * (double)c->dim[0];
}

static int launch(struct bench_case *c)
{
    const struct rf_optimizer_opts o = options_of(c);
    struct rf_optimizer_part part = {.param = bench_t(c, PARAM),
                                     .grad = bench_t(c, GRAD),
                                     .state = {bench_t(c, M), bench_t(c, V)},
                                     .decay = bench_t(c, DECAY)};
    if (c->dtype != RF_F32)
        part.copy = bench_t(c, COPY);
    return rf_optimizer_step(c->stream, &o, &part, bench_t(c, SCALARS));
}

static double want(const struct bench_case *c, int k, const int64_t *at, double *scale)
{
    const struct rf_optimizer_opts o = options_of(c);
    const struct rf_step_scalars *s = (const struct rf_step_scalars *)c->operand[SCALARS].host;
    const bool decoupled = rf_optimizer_get_info(o.kind)->decoupled;
    const double lr = (double)s->lr, decay = (double)o.weight_decay, p0 = bench_v(c, PARAM, at[0]);
    const double beta1 = (double)o.beta1, beta2 = (double)o.beta2, eps = (double)o.eps;
    const double p = decoupled ? p0 - lr * decay * p0 : p0;
    const double g = bench_v(c, GRAD, at[0]) * (double)s->factor + (decoupled ? 0 : decay * p0);
    double m = rf_optimizer_has(&o, RF_STATE_M) ? bench_v(c, M, at[0]) : 0;
    double v = rf_optimizer_has(&o, RF_STATE_V) ? bench_v(c, V, at[0]) : 0, d = g;
    switch (o.kind) {
    case RF_ADAM:
    case RF_ADAMW:
        m = beta1 * m + (1 - beta1) * g;
        v = beta2 * v + (1 - beta2) * g * g;
        d = m / (double)s->bias1 / (sqrt(v / (double)s->bias2) + eps);
        break;
    case RF_MOMENTUM:
    case RF_NESTEROV:
        m = (double)o.momentum * m + g;
        d = o.kind == RF_NESTEROV ? g + (double)o.momentum * m : m;
        break;
    case RF_ADAGRAD:
        v += g * g;
        d = g / (sqrt(v) + eps);
        break;
    case RF_RMSPROP:
        v = beta2 * v + (1 - beta2) * g * g;
        d = g / (sqrt(v) + eps);
        break;
    case RF_LION:
        d = beta1 * m + (1 - beta1) * g < 0 ? -1 : 1;
        m = beta2 * m + (1 - beta2) * g;
        break;
    default:
        break;
    }
    *scale = fabs(k == COPY ? p0 : bench_v(c, k, at[0]));
    return k == M ? m : k == V ? v : p - lr * d;
}

#define ROW(NAME)                                                                                  \
    const struct bench_kernel bench_row_##NAME = {                                                 \
        .name = #NAME, .dims = "P", .shapes = "P", .plan = plan, .launch = launch, .want = want}
ROW(adamw);
ROW(sgd);
ROW(momentum);
ROW(nesterov);
ROW(adagrad);
ROW(rmsprop);
ROW(adam);
ROW(lion);
