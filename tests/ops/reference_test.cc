/* SPDX-License-Identifier: MIT
 *
 * The gradients of the fp64 references against central differences, for twenty random shapes each.
 * No device is involved.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "support/reference_ops.h"

namespace
{
using namespace reference;

struct Random {
    std::mt19937 engine{20261121};
    Doubles normal(size_t n)
    {
        std::normal_distribution<double> d;
        Doubles v(n);
        for (double &x : v)
            x = d(engine);
        return v;
    }
    int64_t pick(std::initializer_list<int64_t> from)
    {
        return from.begin()[std::uniform_int_distribution<size_t>(0, from.size() - 1)(engine)];
    }
};

double dot(const Doubles &a, const Doubles &b)
{
    double s = 0;
    for (size_t i = 0; i < a.size(); i++)
        s += a[i] * b[i];
    return s;
}

double total(const Doubles &a)
{
    return dot(a, Doubles(a.size(), 1));
}

/* Central differences of f at x. With h = 1e-5 the truncation is ~1e-10 and the rounding ~1e-11,
 * both times the size of f's derivatives, which are below 100 here: 1e-7 holds. */
void expect_gradient(Doubles x, const Doubles &gradient,
                     const std::function<double(const Doubles &)> &f)
{
    const double h = 1e-5;
    ASSERT_EQ(x.size(), gradient.size());
    for (size_t i = 0; i < x.size(); i++) {
        double keep = x[i];
        x[i] = keep + h;
        double up = f(x);
        x[i] = keep - h;
        double down = f(x);
        x[i] = keep;
        double slope = (up - down) / (2 * h);
        ASSERT_NEAR(gradient[i], slope, 1e-7 * (1 + std::fabs(slope))) << "element " << i;
    }
}

TEST(ReferenceGradients, EmbeddingMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t V = random.pick({1, 2, 5, 7}), C = random.pick({1, 3, 4}),
                T = random.pick({1, 2, 5});
        int64_t n = T * random.pick({1, 2, 3});
        Tokens tokens(n);
        for (int32_t &t : tokens)
            t = (int32_t)random.pick({0, 1, 2, 3, 4, 5, 6}) % (int32_t)V;
        Doubles wte = random.normal(V * C), wpe = random.normal(T * C), w = random.normal(n * C);
        EmbeddingGrad g = embedding_backward(w, tokens, V, C, T);
        expect_gradient(wte, g.dwte, [&](const Doubles &x) {
            return dot(w, embedding(tokens, x, wpe, V, C, T));
        });
        expect_gradient(wpe, g.dwpe, [&](const Doubles &x) {
            return dot(w, embedding(tokens, wte, x, V, C, T));
        });
    }
}

TEST(ReferenceGradients, LayerNormMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t rows = random.pick({1, 2, 3, 5}), C = random.pick({1, 2, 3, 7, 16});
        /* A large eps: with a small one, rows of nearly equal elements have too much curvature for
         * differences. */
        double eps = 0.1;
        Doubles x = random.normal(rows * C), gamma = random.normal(C), beta = random.normal(C);
        Doubles w = random.normal(rows * C);
        LayerNormGrad g = layernorm_backward(w, x, gamma, eps);
        auto loss = [&](const Doubles &a, const Doubles &b, const Doubles &c) {
            return dot(w, layernorm(a, b, c, eps).out);
        };
        expect_gradient(x, g.dx, [&](const Doubles &v) { return loss(v, gamma, beta); });
        expect_gradient(gamma, g.dgamma, [&](const Doubles &v) { return loss(x, v, beta); });
        expect_gradient(beta, g.dbeta, [&](const Doubles &v) { return loss(x, gamma, v); });
    }
}

TEST(ReferenceGradients, RmsNormMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t rows = random.pick({1, 2, 3, 5}), C = random.pick({1, 2, 3, 7, 16});
        double eps = 0.1; /* as for LayerNorm */
        Doubles x = random.normal(rows * C), gamma = random.normal(C), w = random.normal(rows * C);
        LayerNormGrad g = rmsnorm_backward(w, x, gamma, eps);
        expect_gradient(x, g.dx,
                        [&](const Doubles &v) { return dot(w, rmsnorm(v, gamma, eps).out); });
        expect_gradient(gamma, g.dgamma,
                        [&](const Doubles &v) { return dot(w, rmsnorm(x, v, eps).out); });
    }
}

TEST(ReferenceGradients, SoftmaxMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t rows = random.pick({1, 2, 3}), C = random.pick({1, 2, 5, 17});
        Doubles x = random.normal(rows * C), w = random.normal(rows * C);
        expect_gradient(x, softmax_backward(w, x, C),
                        [&](const Doubles &v) { return dot(w, softmax(v, C)); });
    }
}

TEST(ReferenceGradients, AttentionMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        AttentionSize s{random.pick({1, 2}), random.pick({1, 2, 5, 7}), 1, random.pick({1, 3, 4})};
        s.kv_heads = random.pick({1, 2});
        s.H = s.kv_heads * random.pick({1, 2, 3});
        s.full = round % 2;
        s.keys = s.full ? random.pick({1, 2, 5, 7}) : s.T + random.pick({0, 1, 4});
        s.scale = random.pick({0, 1}) ? 0.3 : 0;
        Doubles q = random.normal(s.B * s.T * s.H * s.D), w = random.normal(q.size());
        Doubles k = random.normal(s.B * s.keys * s.kv_heads * s.D), v = random.normal(k.size());
        AttentionGrad g = attend_backward(w, attend(q, k, v, s).out, q, k, v, s);
        auto loss = [&](const Doubles &a, const Doubles &b, const Doubles &c) {
            return dot(w, attend(a, b, c, s).out);
        };
        expect_gradient(q, g.dq, [&](const Doubles &x) { return loss(x, k, v); });
        expect_gradient(k, g.dk, [&](const Doubles &x) { return loss(q, x, v); });
        expect_gradient(v, g.dv, [&](const Doubles &x) { return loss(q, k, x); });
    }
}

TEST(ReferenceGradients, RotaryMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        RotarySize s{random.pick({1, 2}),
                     random.pick({1, 2, 5}),
                     random.pick({1, 3}),
                     random.pick({2, 4, 6, 8}),
                     10000,
                     random.pick({0, 1000}),
                     round % 2 == 1};
        Doubles x = random.normal(s.B * s.T * s.H * s.D), w = random.normal(x.size());
        expect_gradient(x, rotary_backward(w, s),
                        [&](const Doubles &v) { return dot(w, rotary(v, s)); });
    }
}

TEST(ReferenceGradients, GeluMatchesFiniteDifferences)
{
    Random random;
    for (double x : random.normal(200))
        EXPECT_NEAR(gelu_slope(2 * x), (gelu(2 * x + 1e-5) - gelu(2 * x - 1e-5)) / 2e-5, 1e-9);
}

TEST(ReferenceGradients, ActivationsMatchFiniteDifferences)
{
    Random random;
    for (int kind = 0; kind < RF_ACTIVATION_COUNT; kind++)
        for (double x : random.normal(200)) {
            auto f = [&](double v) { return activation((rf_activation)kind, v); };
            /* ReLU has no slope at 0; no x is that near. */
            EXPECT_NEAR(activation_slope((rf_activation)kind, 2 * x),
                        (f(2 * x + 1e-5) - f(2 * x - 1e-5)) / 2e-5, 1e-9)
                << kind << " at " << 2 * x;
        }
}

TEST(ReferenceGradients, GatedUnitsMatchFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        auto kind = (rf_activation)(round % RF_ACTIVATION_COUNT);
        size_t n = (size_t)random.pick({1, 2, 3, 7, 16, 31});
        Doubles gate = random.normal(n), up = random.normal(n), w = random.normal(n);
        GluGrad g = glu_backward(kind, w, gate, up);
        expect_gradient(gate, g.dgate, [&](const Doubles &x) { return dot(w, glu(kind, x, up)); });
        expect_gradient(up, g.dup, [&](const Doubles &x) { return dot(w, glu(kind, gate, x)); });
    }
}

TEST(ReferenceGradients, CrossEntropyMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t rows = random.pick({1, 2, 3}), V = random.pick({1, 2, 5, 17});
        Tokens targets(rows);
        for (int32_t &t : targets)
            t = (int32_t)(random.pick({0, 1, 2, 3, 4, 16}) % (V + 1)) - 1; /* -1: ignored */
        Doubles logits = random.normal(rows * V);
        double smoothing = round % 2 ? 0.1 : 0, z_loss = round % 3 ? 0.01 : 0;
        expect_gradient(logits, cross_entropy(logits, targets, V, smoothing, z_loss).dlogits,
                        [&](const Doubles &x) {
                            return total(cross_entropy(x, targets, V, smoothing, z_loss).losses);
                        });
    }
}

TEST(ReferenceGradients, LmHeadMatchesFiniteDifferences)
{
    Random random;
    for (int round = 0; round < 20; round++) {
        int64_t n = random.pick({1, 2, 3}), V = random.pick({1, 2, 7}), C = random.pick({1, 3, 4});
        Tokens targets(n);
        for (int32_t &t : targets)
            t = (int32_t)(random.pick({0, 1, 2, 3, 6}) % (V + 1)) - 1;
        Doubles x = random.normal(n * C), w = random.normal(V * C);
        LmHead g = lm_head(x, w, targets, V, C);
        expect_gradient(
            x, g.dx, [&](const Doubles &v) { return total(lm_head(v, w, targets, V, C).losses); });
        expect_gradient(
            w, g.dw, [&](const Doubles &v) { return total(lm_head(x, v, targets, V, C).losses); });
    }
}

} // namespace
