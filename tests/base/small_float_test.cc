/* SPDX-License-Identifier: MIT
 *
 * Floats of 4 and 8 bits: every code, and every f16 and bf16 number, beside levels in fp64 that are
 * made from the definitions of the formats.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/half.h"

extern "C" {
#include "base/small_float.h"
}

namespace
{

const float infinity = std::numeric_limits<float>::infinity();

/* The magnitudes by code, without NaN and infinity; of exponents and mantissas. */
struct Format {
    rf_small_float format;
    int exponents, mantissas, bias, numbers; /* numbers: codes from 0 that are numbers */
    unsigned sign;
    bool subnormal;
    unsigned above, nan; /* the codes of what is beyond the largest number, and of NaN */
};
const Format formats[] = {{RF_E4M3, 16, 8, 7, 127, 0x80, true, 0x7f, 0x7f},
                          {RF_E5M2, 32, 4, 15, 124, 0x80, true, 0x7c, 0x7f},
                          {RF_E2M1, 4, 2, 1, 8, 0x8, true, 7, 7},
                          {RF_E8M0, 256, 1, 127, 255, 0, false, 0xff, 0xff}};

std::vector<double> levels_of(const Format &f)
{
    std::vector<double> levels;
    for (int e = 0; e < f.exponents; e++)
        for (int m = 0; m < f.mantissas && (int)levels.size() < f.numbers; m++) {
            const bool small = f.subnormal && e == 0;
            const double part = (double)m / f.mantissas + (small ? 0 : 1);
            levels.push_back(std::ldexp(part, (small ? 1 : e) - f.bias));
        }
    return levels;
}

class SmallFloat : public ::testing::TestWithParam<Format>
{
  protected:
    const std::vector<double> levels = levels_of(GetParam());

    unsigned code(float x, bool saturate, rf_rounding rounding = RF_ROUND_NEAREST,
                  uint32_t random = 0) const
    {
        return rf_small_float_code(GetParam().format, x, rounding, saturate, random);
    }
    /* The code that the definition demands: the last level that is not above, the next one, or by
     * the distances to both. */
    unsigned expected(float x, bool saturate, rf_rounding rounding) const
    {
        const Format &f = GetParam();
        const unsigned sign = std::signbit(x) ? f.sign : 0, last = (unsigned)levels.size() - 1;
        const double size = std::fabs((double)x);
        if (std::isnan(x))
            return sign | f.nan;
        size_t low = std::upper_bound(levels.begin(), levels.end(), size) - levels.begin();
        if (low == 0)
            return sign; /* E8M0 has no 0 */
        low--;
        /* The step continues beyond the last level. */
        const double next = low < last        ? levels[low + 1]
                            : f.mantissas > 1 ? 2 * levels[low] - levels[low - 1]
                                              : 2 * levels[low];
        const double below = size - levels[low], above = next - size;
        bool up = rounding == RF_ROUND_UP     ? below > 0
                  : rounding == RF_ROUND_DOWN ? false
                                              : below > above || (below == above && low % 2 == 1);
        up = up || std::isinf(x) || size >= next;
        if (low + up > last)
            return sign | (saturate ? last : f.above);
        return sign | (unsigned)(low + up);
    }
    void compare(float x) const
    {
        for (bool saturate : {false, true})
            for (rf_rounding rounding : {RF_ROUND_NEAREST, RF_ROUND_DOWN, RF_ROUND_UP})
                ASSERT_EQ(code(x, saturate, rounding), expected(x, saturate, rounding))
                    << x << ", rounding " << rounding << ", saturate " << saturate;
    }
};
INSTANTIATE_TEST_SUITE_P(Format, SmallFloat, ::testing::ValuesIn(formats),
                         [](const auto &info) { return rf_small_float_name(info.param.format); });

TEST_P(SmallFloat, EveryCodeHasItsValueAndComesBack)
{
    const Format &f = GetParam();
    const unsigned codes = f.sign ? 2 * f.sign : 256;
    for (unsigned c = 0; c < codes; c++) {
        const float x = rf_small_float_value(f.format, (uint8_t)c);
        const unsigned size = c & ~f.sign;
        EXPECT_EQ(std::signbit(x), f.sign && (c & f.sign)) << c;
        if (size < levels.size()) {
            EXPECT_EQ(std::fabs((double)x), levels[size]) << c;
        } else if (f.format == RF_E5M2 && size == 0x7c) {
            EXPECT_EQ(std::fabs(x), infinity);
        } else {
            EXPECT_TRUE(std::isnan(x)) << c;
            continue;
        }
        EXPECT_EQ(code(x, false), c);
    }
    EXPECT_EQ(rf_small_float_value(RF_E2M1, 0xf5), rf_small_float_value(RF_E2M1, 5));
}

TEST_P(SmallFloat, EveryHalfIsRoundedToTheLevelsOfTheDefinition)
{
    for (bool bf16 : {false, true})
        for (int h = 0; h < 65536; h++)
            ASSERT_NO_FATAL_FAILURE(compare(oracle::from_half((uint16_t)h, bf16)));
}

/* f32 numbers on both sides of every border, and of subnormal numbers. */
TEST_P(SmallFloat, NumbersBesideBordersAreRoundedToTheirSide)
{
    std::vector<float> all = {0x1p-149f, 0x1p-140f, 0x1p-127f, 0x1.8p-127f,
                              0x1p-126f, 3.4e38f,   infinity,  NAN};
    for (size_t i = 0; i + 1 < levels.size(); i++) {
        all.push_back((float)levels[i]);
        all.push_back((float)((levels[i] + levels[i + 1]) / 2));
    }
    for (float x : all)
        for (float near : {x, std::nextafterf(x, infinity), std::nextafterf(x, 0)}) {
            ASSERT_NO_FATAL_FAILURE(compare(near));
            ASSERT_NO_FATAL_FAILURE(compare(-near));
        }
}

/* Numbers between levels, of subnormal ones, and far below the smallest one. */
TEST_P(SmallFloat, StochasticRoundingHasTheMeanOfTheNumber)
{
    const Format &f = GetParam();
    for (double x : {1.0625, 1.5, 1.8125, 3.3, 5.75, 0.3, 0.03125, 0.0001}) {
        const int words = 4096;
        double sum = 0, squares = 0;
        if (!f.subnormal && x < 0.25)
            continue;
        for (int i = 0; i < words; i++) {
            /* Equidistant in the upper bits of any length. */
            const uint32_t random = (uint32_t)i * 2654435769u;
            const unsigned c = code((float)x, true, RF_ROUND_RANDOM, random);
            const double value = rf_small_float_value(f.format, (uint8_t)c);
            sum += value;
            squares += value * value;
        }
        const double mean = sum / words, variance = squares / words - mean * mean;
        EXPECT_NEAR(mean, x, 3 * std::sqrt(variance / words) + 1e-3 * x / words) << x;
    }
}

} // namespace
