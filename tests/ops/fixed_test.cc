/* SPDX-License-Identifier: MIT
 *
 * Fixed point of 2^-16: rounding of every f16 and of values around ties and the limits beside fp64;
 * a difference undoes a sum to the bit; NaN stays NaN.
 */
#include "op_fixture.h"

#include <cmath>
#include <limits>

namespace
{
class Fixed : public OpTest
{
  protected:
    static Ints read_i32(rf_tensor t)
    {
        Ints seen((size_t)rf_tensor_count(t));
        EXPECT_OK(rf_stream_wait(stream));
        EXPECT_OK(rf_tensor_read(t, seen.data(), 4 * seen.size()));
        return seen;
    }
    /* In fp64, whose nearbyint rounds ties to even. */
    static int32_t of(float x)
    {
        const double scaled = std::nearbyint((double)x * 65536);
        return std::fabs(scaled) < 2147483648.0 ? (int32_t)scaled : INT32_MIN;
    }
};
} // namespace

TEST_F(Fixed, RoundsLikeFp64)
{
    Floats values;
    for (int k = 0; k < 65536; k++) {
        values.push_back((float)(k - 32768) / 131072.0f); // halves of a unit: ties
        values.push_back(std::ldexp((float)(k + 1), k % 48 - 32) * (k % 2 ? 1.0f : -1.0f));
    }
    for (float edge : {32767.0f, 32767.998f, 32768.0f, -32767.998f, -32768.0f, -40000.0f, INFINITY,
                       -INFINITY, std::nanf(""), 1e-30f, -0.0f})
        values.push_back(edge);
    const int64_t n = (int64_t)values.size();
    rf_tensor x = f32(rf_shape1(n), values), fixed = blank_i32(n), back = blank(rf_shape1(n));
    ASSERT_OK(rf_fixed_write(stream, fixed, x));
    ASSERT_OK(rf_fixed_read(stream, back, fixed));
    const Ints seen = read_i32(fixed);
    const Floats again = read(back);
    for (size_t k = 0; k < values.size(); k++) {
        ASSERT_EQ(seen[k], of(values[k])) << values[k];
        if (seen[k] == INT32_MIN)
            ASSERT_TRUE(std::isnan(again[k])) << values[k];
        else
            ASSERT_EQ(again[k], (float)((double)seen[k] / 65536)) << values[k];
    }
}

TEST_F(Fixed, ADifferenceUndoesASum)
{
    const int64_t n = 100003;
    Floats start = normal(n), term = normal(n);
    for (int64_t k = 0; k < n; k++) {
        start[(size_t)k] *= std::ldexp(1.0f, (int)(k % 13));
        term[(size_t)k] *= std::ldexp(1.0f, (int)(k % 14) - 4);
    }
    rf_tensor x = blank_i32(n), y = blank_i32(n), t = f32(rf_shape1(n), term);
    ASSERT_OK(rf_fixed_write(stream, x, f32(rf_shape1(n), start)));
    const Ints before = read_i32(x);
    ASSERT_OK(rf_fixed_add(stream, y, x, t, false));
    const Ints sum = read_i32(y);
    for (size_t k = 0; k < sum.size(); k++)
        ASSERT_EQ(sum[k], before[k] + of(term[k])) << k;
    ASSERT_OK(rf_fixed_add(stream, y, y, t, true));
    EXPECT_EQ(read_i32(y), before);
}

TEST_F(Fixed, WhatDoesNotFitIsNotANumber)
{
    const float big = 32767.5f, nan = std::nanf("");
    rf_tensor x = blank_i32(5), term = f32(rf_shape1(5), {1, nan, INFINITY, 32768, -1});
    ASSERT_OK(rf_fixed_write(stream, x, f32(rf_shape1(5), {big, 0, 0, 0, -big})));
    ASSERT_OK(rf_fixed_add(stream, x, x, term, false));
    for (int32_t word : read_i32(x))
        EXPECT_EQ(word, INT32_MIN);
    ASSERT_OK(rf_fixed_add(stream, x, x, f32(rf_shape1(5), Floats(5, 1)), true));
    for (int32_t word : read_i32(x))
        EXPECT_EQ(word, INT32_MIN);
}

TEST_F(Fixed, OperandsAreChecked)
{
    rf_tensor x = blank_i32(4), other = blank_i32(5), f = f32(rf_shape1(4), Floats(4, 1));
    EXPECT_FAILS(RF_EINVAL, "fixed_read: x", rf_fixed_read(stream, f, f));
    EXPECT_FAILS(RF_EINVAL, "fixed_write: out", rf_fixed_write(stream, f, f));
    EXPECT_FAILS(RF_EINVAL, "fixed_add: x", rf_fixed_add(stream, x, other, f, false));
    EXPECT_FAILS(RF_EINVAL, "fixed_add: term", rf_fixed_add(stream, x, x, x, false));
}
