/* SPDX-License-Identifier: MIT
 *
 * fp64 references of the training operations; see reference_ops.h.
 */
#include "reference_ops.h"

#include <algorithm>
#include <cmath>

namespace reference
{

static int64_t row_of(int32_t token, int64_t V)
{
    return token >= 0 && token < V ? token : 0;
}

Doubles embedding(const Tokens &tokens, const Doubles &wte, const Doubles &wpe, int64_t V,
                  int64_t C, int64_t T)
{
    Doubles out(tokens.size() * C);
    for (size_t i = 0; i < tokens.size(); i++)
        for (int64_t c = 0; c < C; c++)
            out[i * C + c] = wte[row_of(tokens[i], V) * C + c] +
                             (wpe.empty() ? 0.0 : wpe[((int64_t)i % T) * C + c]);
    return out;
}

EmbeddingGrad embedding_backward(const Doubles &dout, const Tokens &tokens, int64_t V, int64_t C,
                                 int64_t T)
{
    EmbeddingGrad g{Doubles(V * C), Doubles(T * C)};
    for (size_t i = 0; i < tokens.size(); i++)
        for (int64_t c = 0; c < C; c++) {
            g.dwte[row_of(tokens[i], V) * C + c] += dout[i * C + c];
            g.dwpe[((int64_t)i % T) * C + c] += dout[i * C + c];
        }
    return g;
}

LayerNorm layernorm(const Doubles &x, const Doubles &gamma, const Doubles &beta, double eps)
{
    const size_t C = gamma.size(), rows = x.size() / C;
    LayerNorm r{Doubles(x.size()), Doubles(rows), Doubles(rows)};
    for (size_t i = 0; i < rows; i++) {
        double mean = 0, variance = 0;
        for (size_t c = 0; c < C; c++)
            mean += x[i * C + c] / C;
        for (size_t c = 0; c < C; c++)
            variance += (x[i * C + c] - mean) * (x[i * C + c] - mean) / C;
        r.mean[i] = mean;
        r.rstd[i] = 1 / std::sqrt(variance + eps);
        for (size_t c = 0; c < C; c++)
            r.out[i * C + c] = (x[i * C + c] - mean) * r.rstd[i] * gamma[c] + beta[c];
    }
    return r;
}

LayerNormGrad layernorm_backward(const Doubles &dout, const Doubles &x, const Doubles &gamma,
                                 double eps)
{
    const size_t C = gamma.size(), rows = x.size() / C;
    const LayerNorm forward = layernorm(x, gamma, Doubles(C), eps);
    LayerNormGrad g{Doubles(x.size()), Doubles(C), Doubles(C)};
    for (size_t i = 0; i < rows; i++) {
        double sum = 0, sum_h = 0;
        for (size_t c = 0; c < C; c++) {
            double d = dout[i * C + c], h = (x[i * C + c] - forward.mean[i]) * forward.rstd[i];
            g.dgamma[c] += d * h;
            g.dbeta[c] += d;
            sum += d * gamma[c];
            sum_h += d * gamma[c] * h;
        }
        for (size_t c = 0; c < C; c++) {
            double h = (x[i * C + c] - forward.mean[i]) * forward.rstd[i];
            g.dx[i * C + c] =
                forward.rstd[i] * (dout[i * C + c] * gamma[c] - sum / C - h * sum_h / C);
        }
    }
    return g;
}

LayerNorm rmsnorm(const Doubles &x, const Doubles &gamma, double eps)
{
    const size_t C = gamma.size(), rows = x.size() / C;
    LayerNorm r{Doubles(x.size()), {}, Doubles(rows)};
    for (size_t i = 0; i < rows; i++) {
        double square = 0;
        for (size_t c = 0; c < C; c++)
            square += x[i * C + c] * x[i * C + c] / C;
        r.rstd[i] = 1 / std::sqrt(square + eps);
        for (size_t c = 0; c < C; c++)
            r.out[i * C + c] = x[i * C + c] * r.rstd[i] * gamma[c];
    }
    return r;
}

LayerNormGrad rmsnorm_backward(const Doubles &dout, const Doubles &x, const Doubles &gamma,
                               double eps)
{
    const size_t C = gamma.size(), rows = x.size() / C;
    const Doubles rstd = rmsnorm(x, gamma, eps).rstd;
    LayerNormGrad g{Doubles(x.size()), Doubles(C), {}};
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t c = 0; c < C; c++) {
            g.dgamma[c] += dout[i * C + c] * x[i * C + c] * rstd[i];
            sum += dout[i * C + c] * gamma[c] * x[i * C + c];
        }
        for (size_t c = 0; c < C; c++)
            g.dx[i * C + c] =
                rstd[i] * (dout[i * C + c] * gamma[c] - x[i * C + c] * sum * rstd[i] * rstd[i] / C);
    }
    return g;
}

Doubles softmax(const Doubles &x, int64_t C)
{
    Doubles y(x.size());
    for (size_t row = 0; row < x.size(); row += C) {
        double top = *std::max_element(&x[row], &x[row] + C), total = 0;
        for (int64_t c = 0; c < C; c++)
            total += y[row + c] = std::exp(x[row + c] - top);
        for (int64_t c = 0; c < C; c++)
            y[row + c] /= total;
    }
    return y;
}

Doubles softmax_backward(const Doubles &dout, const Doubles &x, int64_t C)
{
    Doubles y = softmax(x, C), dx(x.size());
    for (size_t row = 0; row < x.size(); row += C) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += y[row + c] * dout[row + c];
        for (int64_t c = 0; c < C; c++)
            dx[row + c] = y[row + c] * (dout[row + c] - sum);
    }
    return dx;
}

static AttentionSize whole(AttentionSize s)
{
    s.keys = s.keys ? s.keys : s.T;
    s.kv_heads = s.kv_heads ? s.kv_heads : s.H;
    s.scale = s.scale != 0 ? s.scale : 1 / std::sqrt((double)s.D);
    return s;
}
static size_t query_at(const AttentionSize &s, int64_t b, int64_t t, int64_t h)
{
    return ((b * s.T + t) * s.H + h) * s.D;
}
static size_t key_at(const AttentionSize &s, int64_t b, int64_t j, int64_t h)
{
    return ((b * s.keys + j) * s.kv_heads + h / (s.H / s.kv_heads)) * s.D;
}
static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Softmax weights of query t over the keys that it sees, and their log-sum-exp. */
static Doubles weights(const Doubles &q, const Doubles &k, const AttentionSize &s, int64_t b,
                       int64_t h, int64_t t, double *lse)
{
    Doubles p(s.full ? s.keys : t + 1 + s.keys - s.T);
    double top = -INFINITY, total = 0;
    for (size_t j = 0; j < p.size(); j++) {
        if (!s.starts.empty() && (int64_t)j < s.starts[b * s.T + t]) {
            p[j] = -INFINITY;
            continue;
        }
        p[j] = s.scale * dot(&q[query_at(s, b, t, h)], &k[key_at(s, b, j, h)], s.D);
        top = std::max(top, p[j]);
    }
    for (double v : p)
        total += std::exp(v - top);
    *lse = top + std::log(total);
    for (double &v : p)
        v = std::exp(v - top) / total;
    return p;
}

Attention attend(const Doubles &q, const Doubles &k, const Doubles &v, AttentionSize size)
{
    const AttentionSize s = whole(size);
    Attention r{Doubles(q.size()), Doubles(s.B * s.H * s.T)};
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t t = 0; t < s.T; t++) {
                Doubles p = weights(q, k, s, b, h, t, &r.lse[(b * s.H + h) * s.T + t]);
                for (size_t j = 0; j < p.size(); j++)
                    for (int64_t d = 0; d < s.D; d++)
                        r.out[query_at(s, b, t, h) + d] += p[j] * v[key_at(s, b, j, h) + d];
            }
    return r;
}

AttentionGrad attend_backward(const Doubles &dout, const Doubles &out, const Doubles &q,
                              const Doubles &k, const Doubles &v, AttentionSize size)
{
    const AttentionSize s = whole(size);
    AttentionGrad g{Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t t = 0; t < s.T; t++) {
                const size_t at = query_at(s, b, t, h);
                double lse, delta = dot(&dout[at], &out[at], s.D);
                Doubles p = weights(q, k, s, b, h, t, &lse);
                for (size_t j = 0; j < p.size(); j++) {
                    const size_t key = key_at(s, b, j, h);
                    double ds = p[j] * (dot(&dout[at], &v[key], s.D) - delta) * s.scale;
                    for (int64_t d = 0; d < s.D; d++) {
                        g.dv[key + d] += p[j] * dout[at + d];
                        g.dq[at + d] += ds * k[key + d];
                        g.dk[key + d] += ds * q[at + d];
                    }
                }
            }
    return g;
}

// The angle of a pair per token, in radians.
static long double pair_angle(const RotarySize &s, int64_t pair)
{
    const long double angle = powl(s.theta, -2.0L * pair / s.D),
                      turns = s.original * angle / (2 * acosl(-1.0L)); // in the first training
    if (s.factor == 0 || turns > s.high)
        return angle;
    const long double share = std::max(0.0L, (turns - s.low) / ((long double)s.high - s.low));
    return angle * ((1 - share) / s.factor + share);
}

static Doubles turned(const Doubles &x, const RotarySize &s, int direction)
{
    Doubles out(x.size());
    for (int64_t line = 0; line < s.B * s.T * s.H; line++)
        for (int64_t i = 0; i < s.D / 2; i++) {
            long double row = s.position + line / s.H % s.T;
            long double angle = direction * row * pair_angle(s, i);
            double c = cosl(angle), sine = sinl(angle);
            int64_t a = line * s.D + (s.halves ? i : 2 * i);
            int64_t b = a + (s.halves ? s.D / 2 : 1);
            out[a] = x[a] * c - x[b] * sine;
            out[b] = x[b] * c + x[a] * sine;
        }
    return out;
}

Doubles rotary(const Doubles &x, RotarySize size)
{
    return turned(x, size, 1);
}

Doubles rotary_backward(const Doubles &dout, RotarySize size)
{
    return turned(dout, size, -1);
}

static const double root = std::sqrt(2 / M_PI), cube = 0.044715;

static double logistic(double x)
{
    return 1 / (1 + std::exp(-x));
}

// (1 + tanh u) / 2 by the logistic function, because the sum cancels far left of zero.
double gelu(double x)
{
    return x * logistic(2 * root * (x + cube * x * x * x));
}

double gelu_slope(double x)
{
    double t = std::tanh(root * (x + cube * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * cube * x * x);
}

static double normal_below(double x)
{
    return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

double activation(rf_activation kind, double x)
{
    switch (kind) {
    case RF_ACT_NONE:
        return x;
    case RF_ACT_GELU:
        return gelu(x);
    case RF_ACT_GELU_ERF:
        return x * normal_below(x);
    case RF_ACT_RELU:
        return x > 0 ? x : 0;
    case RF_ACT_SILU:
        return x * logistic(x);
    case RF_ACT_SIGMOID:
        return logistic(x);
    default:
        return std::tanh(x);
    }
}

double activation_slope(rf_activation kind, double x)
{
    double s = logistic(x), t = std::tanh(x);
    switch (kind) {
    case RF_ACT_NONE:
        return 1;
    case RF_ACT_GELU:
        return gelu_slope(x);
    case RF_ACT_GELU_ERF:
        return normal_below(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case RF_ACT_RELU:
        return x > 0 ? 1 : 0;
    case RF_ACT_SILU:
        return s + x * s * (1 - s);
    case RF_ACT_SIGMOID:
        return s * (1 - s);
    default:
        return 1 - t * t;
    }
}

Doubles glu(rf_activation kind, const Doubles &gate, const Doubles &up)
{
    Doubles out(gate.size());
    for (size_t i = 0; i < out.size(); i++)
        out[i] = activation(kind, gate[i]) * up[i];
    return out;
}

GluGrad glu_backward(rf_activation kind, const Doubles &dout, const Doubles &gate,
                     const Doubles &up)
{
    GluGrad g{Doubles(gate.size()), Doubles(gate.size())};
    for (size_t i = 0; i < gate.size(); i++) {
        g.dgate[i] = dout[i] * up[i] * activation_slope(kind, gate[i]);
        g.dup[i] = dout[i] * activation(kind, gate[i]);
    }
    return g;
}

CrossEntropy cross_entropy(const Doubles &logits, const Tokens &targets, int64_t V,
                           double smoothing, double z_loss)
{
    CrossEntropy r{Doubles(targets.size()), Doubles(logits.size())};
    for (size_t i = 0; i < targets.size(); i++) {
        if (targets[i] < 0)
            continue;
        const double *x = &logits[i * V];
        double top = *std::max_element(x, x + V), total = 0;
        for (int64_t c = 0; c < V; c++)
            total += std::exp(x[c] - top);
        double lse = top + std::log(total);
        r.losses[i] = z_loss * lse * lse;
        for (int64_t c = 0; c < V; c++) {
            double want = smoothing / V + (c == targets[i] ? 1 - smoothing : 0);
            r.losses[i] += want * (lse - x[c]);
            r.dlogits[i * V + c] = std::exp(x[c] - lse) * (1 + 2 * z_loss * lse) - want;
        }
    }
    return r;
}

LmHead lm_head(const Doubles &x, const Doubles &w, const Tokens &targets, int64_t V, int64_t C)
{
    const size_t n = targets.size();
    Doubles logits(n * V);
    for (size_t i = 0; i < n; i++)
        for (int64_t v = 0; v < V; v++)
            for (int64_t c = 0; c < C; c++)
                logits[i * V + v] += x[i * C + c] * w[v * C + c];
    CrossEntropy loss = cross_entropy(logits, targets, V);
    LmHead r{loss.losses, Doubles(n * C), Doubles(V * C)};
    for (size_t i = 0; i < n; i++)
        for (int64_t v = 0; v < V; v++)
            for (int64_t c = 0; c < C; c++) {
                r.dx[i * C + c] += loss.dlogits[i * V + v] * w[v * C + c];
                r.dw[v * C + c] += loss.dlogits[i * V + v] * x[i * C + c];
            }
    return r;
}

void adamw(double *param, double *m, double *v, double grad, int step, const Adam &o)
{
    *param -= o.lr * o.weight_decay * *param;
    *m = o.beta1 * *m + (1 - o.beta1) * grad;
    *v = o.beta2 * *v + (1 - o.beta2) * grad * grad;
    double mean = *m / (1 - std::pow(o.beta1, step)), square = *v / (1 - std::pow(o.beta2, step));
    *param -= o.lr * mean / (std::sqrt(square) + o.eps);
}

} // namespace reference
