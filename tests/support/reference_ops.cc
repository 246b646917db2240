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

/* Element of q (part 0), k (1) or v (2) in qkv (B,T,3,H,D). */
static size_t at(const AttentionSize &s, int64_t b, int64_t t, int part, int64_t h, int64_t d)
{
    return (((b * s.T + t) * 3 + part) * s.H + h) * s.D + d;
}
static size_t out_at(const AttentionSize &s, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return ((b * s.T + t) * s.H + h) * s.D + d;
}

/* Softmax weights of query t over keys 0..t, and their log-sum-exp. */
static Doubles weights(const Doubles &qkv, const AttentionSize &s, int64_t b, int64_t h, int64_t t,
                       double *lse)
{
    Doubles p(t + 1);
    double top = -INFINITY, total = 0;
    for (int64_t j = 0; j <= t; j++) {
        for (int64_t d = 0; d < s.D; d++)
            p[j] += qkv[at(s, b, t, 0, h, d)] * qkv[at(s, b, j, 1, h, d)] / std::sqrt(s.D);
        top = std::max(top, p[j]);
    }
    for (double v : p)
        total += std::exp(v - top);
    *lse = top + std::log(total);
    for (double &v : p)
        v = std::exp(v - top) / total;
    return p;
}

Attention attention(const Doubles &qkv, AttentionSize s)
{
    Attention r{Doubles(s.B * s.T * s.H * s.D), Doubles(s.B * s.H * s.T)};
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t t = 0; t < s.T; t++) {
                Doubles p = weights(qkv, s, b, h, t, &r.lse[(b * s.H + h) * s.T + t]);
                for (int64_t j = 0; j <= t; j++)
                    for (int64_t d = 0; d < s.D; d++)
                        r.out[out_at(s, b, t, h, d)] += p[j] * qkv[at(s, b, j, 2, h, d)];
            }
    return r;
}

Doubles attention_backward(const Doubles &dout, const Doubles &qkv, AttentionSize s)
{
    Doubles g(qkv.size());
    const double scale = 1 / std::sqrt((double)s.D);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++)
            for (int64_t t = 0; t < s.T; t++) {
                double lse, delta = 0;
                Doubles p = weights(qkv, s, b, h, t, &lse), dp(t + 1);
                for (int64_t j = 0; j <= t; j++) {
                    for (int64_t d = 0; d < s.D; d++) {
                        dp[j] += dout[out_at(s, b, t, h, d)] * qkv[at(s, b, j, 2, h, d)];
                        g[at(s, b, j, 2, h, d)] += p[j] * dout[out_at(s, b, t, h, d)];
                    }
                    delta += p[j] * dp[j];
                }
                for (int64_t j = 0; j <= t; j++)
                    for (int64_t d = 0; d < s.D; d++) {
                        double ds = p[j] * (dp[j] - delta) * scale;
                        g[at(s, b, t, 0, h, d)] += ds * qkv[at(s, b, j, 1, h, d)];
                        g[at(s, b, j, 1, h, d)] += ds * qkv[at(s, b, t, 0, h, d)];
                    }
            }
    return g;
}

static const double root = std::sqrt(2 / M_PI), cube = 0.044715;

double gelu(double x)
{
    return 0.5 * x * (1 + std::tanh(root * (x + cube * x * x * x)));
}

double gelu_slope(double x)
{
    double t = std::tanh(root * (x + cube * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * cube * x * x);
}

CrossEntropy cross_entropy(const Doubles &logits, const Tokens &targets, int64_t V)
{
    CrossEntropy r{Doubles(targets.size()), Doubles(logits.size())};
    for (size_t i = 0; i < targets.size(); i++) {
        if (targets[i] < 0)
            continue;
        const double *x = &logits[i * V];
        double top = *std::max_element(x, x + V), total = 0;
        for (int64_t c = 0; c < V; c++)
            total += std::exp(x[c] - top);
        r.losses[i] = top + std::log(total) - x[targets[i]];
        for (int64_t c = 0; c < V; c++)
            r.dlogits[i * V + c] = std::exp(x[c] - top) / total - (c == targets[i] ? 1 : 0);
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
