/* SPDX-License-Identifier: MIT
 *
 * The training operations in plain fp64 by their formulas, with hand-written gradients: the
 * reference for the kernels. tests/ops/reference_test.cc checks these gradients by finite
 * differences. Gradients of parameters are returned, not accumulated.
 */
#pragma once

#include <cstdint>
#include <vector>

#include <ringforge/ops_elementwise.h>

namespace reference
{

using Doubles = std::vector<double>;
using Tokens = std::vector<int32_t>;

/* out (n,C); wpe may be empty. Tokens outside the table read row 0. */
Doubles embedding(const Tokens &tokens, const Doubles &wte, const Doubles &wpe, int64_t V,
                  int64_t C, int64_t T);
struct EmbeddingGrad {
    Doubles dwte, dwpe; /* (V,C), (T,C) */
};
EmbeddingGrad embedding_backward(const Doubles &dout, const Tokens &tokens, int64_t V, int64_t C,
                                 int64_t T);

struct LayerNorm {
    Doubles out, mean, rstd;
};
LayerNorm layernorm(const Doubles &x, const Doubles &gamma, const Doubles &beta, double eps);
struct LayerNormGrad {
    Doubles dx, dgamma, dbeta;
};
LayerNormGrad layernorm_backward(const Doubles &dout, const Doubles &x, const Doubles &gamma,
                                 double eps);

/* x / sqrt(mean(x^2) + eps) * gamma; mean and dbeta stay empty. */
LayerNorm rmsnorm(const Doubles &x, const Doubles &gamma, double eps);
LayerNormGrad rmsnorm_backward(const Doubles &dout, const Doubles &x, const Doubles &gamma,
                               double eps);

/* Rows of C. */
Doubles softmax(const Doubles &x, int64_t C);
Doubles softmax_backward(const Doubles &dout, const Doubles &x, int64_t C);

struct AttentionSize {
    int64_t B, T, H, D;
    int64_t keys = 0, kv_heads = 0; /* 0: T, H */
    bool full = false;              /* otherwise causal, aligned at the end */
    double scale = 0;               /* 0: 1/sqrt(D) */
    Tokens starts = {};             /* (B,T): the first key of each query; empty: 0 */
};
struct Attention {
    Doubles out, lse; /* (B,T,H*D), (B,H,T) */
};
struct AttentionGrad {
    Doubles dq, dk, dv;
};
/* q (B,T,H,D), k and v (B,keys,kv_heads,D). */
Attention attend(const Doubles &q, const Doubles &k, const Doubles &v, AttentionSize size);
/* out: the stored result of the forward pass. */
AttentionGrad attend_backward(const Doubles &dout, const Doubles &out, const Doubles &q,
                              const Doubles &k, const Doubles &v, AttentionSize size);

struct RotarySize {
    int64_t B, T, H, D;
    double theta;
    int64_t position;
    bool halves;
    double factor = 0, low = 1, high = 4, original = 8192; // of scaled angles; factor 0: none
};
Doubles rotary(const Doubles &x, RotarySize size);
Doubles rotary_backward(const Doubles &dout, RotarySize size);

double gelu(double x);
double gelu_slope(double x);
double activation(rf_activation kind, double x);
double activation_slope(rf_activation kind, double x);
/* f(gate) * up, element by element. */
Doubles glu(rf_activation kind, const Doubles &gate, const Doubles &up);
struct GluGrad {
    Doubles dgate, dup;
};
GluGrad glu_backward(rf_activation kind, const Doubles &dout, const Doubles &gate,
                     const Doubles &up);

struct CrossEntropy {
    Doubles losses, dlogits;
};
CrossEntropy cross_entropy(const Doubles &logits, const Tokens &targets, int64_t V,
                           double smoothing = 0, double z_loss = 0);
struct LmHead {
    Doubles losses, dx, dw;
};
/* cross_entropy of x w^T, x (n,C), w (V,C). */
LmHead lm_head(const Doubles &x, const Doubles &w, const Tokens &targets, int64_t V, int64_t C);

struct Adam {
    double lr, beta1, beta2, eps, weight_decay;
};
/* One element; step starts at 1. Like torch.optim.AdamW: decay first, eps after the root. */
void adamw(double *param, double *m, double *v, double grad, int step, const Adam &options);

} // namespace reference
