/* SPDX-License-Identifier: MIT
 *
 * Shapes and tolerances of the tests of norms.
 */
#ifndef RF_TESTS_OPS_NORM_CASES_H
#define RF_TESTS_OPS_NORM_CASES_H

#include <cstdint>

namespace norm_cases
{

struct Case {
    int64_t rows, C;
    int shift;
};
const Case cases[] = {{1, 1, 0},    {1, 4, 0},    {3, 5, 0},    {7, 64, 0},   {31, 48, 1},
                      {33, 257, 0}, {64, 128, 0}, {5, 768, 0},  {100, 20, 0}, {67, 2, 0},
                      {2, 16, 2},   {5, 1030, 1}, {3, 4100, 0}, {2, 4099, 1}};
const float EPS = 1e-5f;
/* Means and variances of some hundred numbers near 1: a few roundings of 6e-8, times rstd up to
 * some tens. */
const double TOLERANCE = 2e-5;
/* Rows of two elements: rstd reaches hundreds, and the gradient is a difference that almost
 * cancels. */
inline double dx_tolerance(const Case &c)
{
    return c.C == 2 ? 1e-3 : TOLERANCE;
}

} // namespace norm_cases

using namespace norm_cases;

#endif
