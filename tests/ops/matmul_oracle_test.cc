/* SPDX-License-Identifier: MIT
 *
 * The fp64 product itself: against products computed by hand, and its gradients against finite
 * differences.
 */
#include <gtest/gtest.h>

#include <cmath>

#include "support/oracle.h"

using Doubles = std::vector<double>;

TEST(MatmulOracle, EveryFormGivesTheProductByHand)
{
    const Doubles a = {1, 2, 3, 4, 5, 6}, a_transposed = {1, 4, 2, 5, 3, 6};
    const Doubles b = {7, 8, 9, 10, 11, 12}, b_transposed = {7, 9, 11, 8, 10, 12};
    const Doubles product = {58, 64, 139, 154};
    EXPECT_EQ(oracle::matmul(a, b, 2, 2, 3, false, false), product);
    EXPECT_EQ(oracle::matmul(a, b_transposed, 2, 2, 3, false, true), product);
    EXPECT_EQ(oracle::matmul(a_transposed, b, 2, 2, 3, true, false), product);
    EXPECT_EQ(oracle::matmul(a_transposed, b_transposed, 2, 2, 3, true, true), product);
}

/* For L = sum(dC * A B): dA = dC B^T and dB = A^T dC. L is linear in each element, so the central
 * difference is exact up to rounding. */
TEST(MatmulOracle, GradientsAreThoseOfFiniteDifferences)
{
    const int64_t m = 3, n = 5, k = 4;
    std::mt19937 engine(3);
    std::normal_distribution<double> normal;
    auto random = [&](int64_t count) {
        Doubles data(count);
        for (double &x : data)
            x = normal(engine);
        return data;
    };
    Doubles a = random(m * k), b = random(k * n), dc = random(m * n);
    auto loss = [&] {
        const Doubles c = oracle::matmul(a, b, m, n, k, false, false);
        double sum = 0;
        for (size_t i = 0; i < c.size(); i++)
            sum += dc[i] * c[i];
        return sum;
    };
    auto check = [&](Doubles &x, const Doubles &gradient) {
        for (size_t i = 0; i < x.size(); i++) {
            const double kept = x[i], step = 1e-3;
            x[i] = kept + step;
            const double above = loss();
            x[i] = kept - step;
            const double below = loss();
            x[i] = kept;
            EXPECT_NEAR((above - below) / (2 * step), gradient[i], 1e-10);
        }
    };
    check(a, oracle::matmul(dc, b, m, k, n, false, true));
    check(b, oracle::matmul(a, dc, k, n, m, true, false));
}

TEST(MatmulOracle, ExactDataIsExactInFp32)
{
    std::mt19937 engine(4);
    const std::vector<float> a = oracle::exact(1024, engine), b = oracle::exact(1024, engine);
    float single = 0;
    double full = 0;
    for (size_t i = 0; i < a.size(); i++) {
        single += a[i] * b[i];
        full += (double)a[i] * b[i];
    }
    EXPECT_EQ((double)single, full);
}
