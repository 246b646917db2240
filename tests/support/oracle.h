/* SPDX-License-Identifier: MIT
 *
 * Matrix products in plain fp64, and data whose sums are exact in fp32: the reference for the
 * matmul kernels.
 */
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace oracle
{

/* out (m,n) = a b. With transpose_a, a is (k,m); with transpose_b, b is (n,k). */
std::vector<double> matmul(const std::vector<double> &a, const std::vector<double> &b, int64_t m,
                           int64_t n, int64_t k, bool transpose_a, bool transpose_b);
/* Sums of the columns of x (rows,columns). */
std::vector<double> column_sums(const std::vector<double> &x, int64_t columns);

/* Multiples of 1/128 within [-1, 1]. A product of two has 14 bits after the point, so sums of up to
 * 1024 products are exact in fp32 in any order, with or without fused multiply-add. */
std::vector<float> exact(size_t count, std::mt19937 &engine);

} // namespace oracle
