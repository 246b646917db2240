/* SPDX-License-Identifier: MIT
 *
 * The optimizers' rules for one element in plain fp64, after torch.optim's documentation: the
 * reference for optimizer.comp.
 */
#pragma once

#include <ringforge/ops.h>

#include <algorithm>
#include <cmath>

namespace reference
{

struct OptimizerState {
    double m = 0, v = 0, a = 0, u = 0;

    double of(int k) const /* enum rf_optimizer_state */
    {
        return k == RF_STATE_M ? m : k == RF_STATE_V ? v : k == RF_STATE_A ? a : u;
    }
};

/* t starts at 1. decays: whether weight decay applies. */
inline void optimizer_step(const rf_optimizer_opts &o, double lr, int t, bool decays, double g,
                           double *p, OptimizerState *s)
{
    const double beta1 = o.beta1, beta2 = o.beta2, decay = decays ? o.weight_decay : 0.0;
    auto root = [&](double x) {
        return o.eps_inside ? std::sqrt(x + o.eps) : std::sqrt(x) + o.eps;
    };
    if (o.kind == RF_ADAMW || o.kind == RF_LION)
        *p *= 1 - lr * decay;
    else
        g += decay * *p;
    switch (o.kind) {
    case RF_ADAMW:
    case RF_ADAM: {
        s->m = beta1 * s->m + (1 - beta1) * g;
        s->v = beta2 * s->v + (1 - beta2) * g * g;
        double bias1 = o.no_bias_correction ? 1 : 1 - std::pow(beta1, t);
        double bias2 = o.no_bias_correction ? 1 : 1 - std::pow(beta2, t);
        *p -= lr * (s->m / bias1) / root(s->v / bias2);
        break;
    }
    case RF_SGD:
        *p -= lr * g;
        break;
    case RF_MOMENTUM:
        s->m = t == 1 ? g : o.momentum * s->m + (1 - o.dampening) * g;
        *p -= lr * s->m;
        break;
    case RF_NESTEROV:
        s->m = t == 1 ? g : o.momentum * s->m + g;
        *p -= lr * (g + o.momentum * s->m);
        break;
    case RF_ADAGRAD:
        s->v += g * g;
        *p -= lr * g / root(s->v);
        break;
    case RF_RMSPROP: {
        s->v = beta2 * s->v + (1 - beta2) * g * g;
        s->a = o.centered ? beta2 * s->a + (1 - beta2) * g : 0;
        double d = g / root(std::max(s->v - s->a * s->a, 0.0));
        s->m = o.momentum != 0 ? o.momentum * s->m + d : d;
        *p -= lr * s->m;
        break;
    }
    case RF_LION: {
        double c = beta1 * s->m + (1 - beta1) * g;
        *p -= lr * ((c > 0) - (c < 0));
        s->m = beta2 * s->m + (1 - beta2) * g;
        break;
    }
    default:
        break;
    }
}

} // namespace reference
