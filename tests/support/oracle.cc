/* SPDX-License-Identifier: MIT
 *
 * See oracle.h.
 */
#include "oracle.h"

namespace oracle
{

std::vector<double> matmul(const std::vector<double> &a, const std::vector<double> &b, int64_t m,
                           int64_t n, int64_t k, bool transpose_a, bool transpose_b)
{
    std::vector<double> out(m * n, 0.0);
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++) {
            const double x = transpose_a ? a.at(l * m + i) : a.at(i * k + l);
            for (int64_t j = 0; j < n; j++)
                out[i * n + j] += x * (transpose_b ? b[j * k + l] : b[l * n + j]);
        }
    return out;
}

std::vector<double> column_sums(const std::vector<double> &x, int64_t columns)
{
    std::vector<double> sums(columns, 0.0);
    for (size_t i = 0; i < x.size(); i++)
        sums[i % columns] += x[i];
    return sums;
}

std::vector<float> exact(size_t count, std::mt19937 &engine)
{
    std::uniform_int_distribution<int> distribution(-128, 128);
    std::vector<float> data(count);
    for (float &x : data)
        x = (float)distribution(engine) / 128.0f;
    return data;
}

} // namespace oracle
