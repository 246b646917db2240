/* SPDX-License-Identifier: MIT
 *
 * Exact sums of sums of squares, against integers of 640 bits on the host: every result is the
 * correctly rounded one, bit by bit.
 */
#include "op_fixture.h"

#include <algorithm>

extern "C" {
#include <ringforge/host_step.h>
}

namespace
{
/* The exact value of a sum in words, in units of 2^-149, bit by bit. */
struct Exact {
    std::vector<uint64_t> bit = std::vector<uint64_t>(640); /* the count of each */
    bool infinite = false, nan = false;

    void add(float x)
    {
        nan = nan || std::isnan(x);
        infinite = infinite || std::isinf(x);
        if (!std::isfinite(x))
            return;
        int exponent = 0;
        uint64_t number = (uint64_t)std::ldexp(std::frexp(std::fabs(x), &exponent), 24);
        int at = exponent - 24 + 149 + (std::signbit(x) ? 192 : 0);
        for (; at < (std::signbit(x) ? 192 : 0); at++) /* subnormal */
            number >>= 1;
        for (int k = 0; k < 24; k++)
            bit[(size_t)(at + k)] += number >> k & 1;
    }
    float rounded()
    {
        for (size_t k = 0; k + 1 < bit.size(); k++) {
            bit[k + 1] += bit[k] / 2;
            bit[k] %= 2;
        }
        if (nan || infinite)
            return nan ? NAN : INFINITY;
        for (int large = 0; large < 2; large++) {
            int top = 639, last;
            while (top > 0 && !bit[(size_t)top])
                top--;
            last = std::max(top - 23, 0);
            uint64_t number = 0;
            for (int k = top; k >= last; k--)
                number = 2 * number + bit[(size_t)k];
            const bool half = last > 0 && bit[(size_t)last - 1];
            const bool more = last > 1 && std::count(bit.begin(), bit.begin() + last - 1, 1) > 0;
            number += half && (more || number % 2);
            const double value = std::ldexp((double)number, last - 149 - 192 * large);
            if (value <= 0x1.fffffep127)
                return large ? -(float)value : (float)value;
        }
        return INFINITY;
    }
};

class Squares : public OpTest
{
  protected:
    /* A power of two between 2^low and 2^high, with random bits behind it. */
    float any(int low, int high)
    {
        const int exponent = low + (int)(random_() % (unsigned)(high - low + 1));
        return std::ldexp(1 + (float)(random_() % (1u << 23)) * 0x1p-23f, exponent);
    }
    rf_tensor added(const Floats &sums)
    {
        const int64_t n = (int64_t)sums.size();
        rf_tensor exact = blank_i32(RF_EXACT_WORDS), x = f32(rf_shape1(n), sums);
        EXPECT_OK(rf_add_squares(stream, exact, x, blank_i32(rf_add_squares_scratch(n))));
        return exact;
    }
    float rounded(rf_tensor exact)
    {
        rf_tensor out = blank(rf_shape1(1));
        EXPECT_OK(rf_round_squares(stream, out, exact));
        return read(out)[0];
    }
    static Ints words_of(rf_tensor exact)
    {
        const Floats words = read(exact);
        Ints out(words.size());
        std::memcpy(out.data(), words.data(), 4 * out.size());
        return out;
    }
    void expect_exact(const Floats &sums, const std::string &what)
    {
        Exact want;
        for (float x : sums)
            want.add(x);
        const float expected = want.rounded(), by_lanes = rounded(added(sums));
        rf_device_force_teams(device, true); /* larger workgroups, as on GPUs */
        const float by_teams = rounded(added(sums));
        rf_device_force_teams(device, false);
        const float host = rf_host_join_squares(sums.data(), (int64_t)sums.size());
        for (float got : {by_lanes, by_teams, host})
            if (std::isnan(expected))
                EXPECT_TRUE(std::isnan(got)) << what;
            else
                EXPECT_EQ(bits_of(got), bits_of(expected))
                    << what << ": " << got << " and " << expected;
    }

    std::mt19937 random_{7};
};

TEST_F(Squares, OneNumberIsItself)
{
    for (uint32_t bits : {0u, 1u, 2u, 0x7fffffu, 0x800000u, 0x800001u, 0xffffffu, 0x1000000u,
                          0x3f800000u, 0x3fffffffu, 0x7f000000u, 0x7f7fffffu})
        EXPECT_EQ(bits_of(rounded(added({float_of(bits)}))), bits) << bits;
    for (int exponent = -149; exponent < 128; exponent++)
        expect_exact({std::ldexp(1.0f, exponent)}, std::to_string(exponent));
    for (int k = 0; k < 200; k++) {
        expect_exact({any(-148, 127)}, "any");
        expect_exact({-any(-64, 127)}, "any large one");
    }
    expect_exact({-0x1p-149f}, "a large one that f32 holds");
    expect_exact({-0.0f}, "minus zero");
    expect_exact({}, "none");
}

TEST_F(Squares, SumsOfAnySizeAndCountAreCorrectlyRounded)
{
    const int ranges[][2] = {{-148, -126}, {-148, 127}, {-20, 20}, {0, 0}, {100, 127}};
    for (int count : {2, 3, 63, 64, 65, 1000, 4096, 4097, 16384, 16385, 100000})
        for (auto range : ranges) {
            Floats x((size_t)count), large;
            for (float &v : x)
                v = any(range[0], range[1]);
            for (float v : x)
                large.push_back(random_() % 2 ? -std::fabs(v) : v);
            const std::string what = std::to_string(count) + " from 2^" + std::to_string(range[0]);
            expect_exact(x, what);
            expect_exact(large, what + ", some of them large");
        }
}

TEST_F(Squares, HalvesGoToTheEvenNumberAndWhatIsFarBelowStillCounts)
{
    for (int shift = 0; shift < 30; shift++) { /* at word boundaries */
        const float one = std::ldexp(1.0f, shift - 10), half = one * 0x1p-24f;
        expect_exact({one, half}, "half, even");
        expect_exact({one, 2 * half, half}, "half, odd");
        expect_exact({one, half, float_of(1)}, "a little more than half");
        expect_exact({one, half * 0x1.fffffep-1f}, "a little less than half");
        expect_exact({std::ldexp(0x1.fffffep0f, shift), std::ldexp(1.0f, shift - 24)}, "a carry");
    }
}

TEST_F(Squares, TheLimitsOfF32AndOfItsSecondHalf)
{
    const float most = float_of(0x7f7fffffu);
    expect_exact({most, 0x1p103f}, "half of the last place: beyond f32");
    expect_exact({most, 0x1p102f}, "less");
    expect_exact({0x1p127f, 0x1p127f}, "2^128");
    expect_exact({-0x1p-65f, 0x1p126f}, "one that f32 would hold");
    expect_exact({-most}, "the largest");
    expect_exact({-most, -most}, "beyond 2^320");
    expect_exact(Floats(4096, -most), "far beyond");
    expect_exact(Floats(16385, most), "many of the largest");
    expect_exact(Floats(100000, float_of(1)), "many of the smallest");
}

TEST_F(Squares, WhatIsNotFiniteSurvivesWhereverItIs)
{
    for (int count : {1, 64, 5000, 16385})
        for (float bad : {INFINITY, NAN})
            for (int at : {0, count / 2, count - 1}) {
                Floats x((size_t)count, 1.5f);
                x[(size_t)at] = bad;
                expect_exact(x, std::to_string(at));
                x[(size_t)(count - 1 - at)] = INFINITY;
                expect_exact(x, std::to_string(at) + " and infinity");
            }
    expect_exact(Floats(20000, INFINITY), "all of them");
}

/* The words of all ranks are added as integers, in any order, without a carry. */
TEST_F(Squares, SumsOfManyRanksAreThatOfOne)
{
    Floats all;
    Ints words(RF_EXACT_WORDS);
    for (int rank = 0; rank < 40; rank++) {
        Floats own((size_t)(random_() % 9000));
        for (float &v : own)
            v = rank % 7 ? any(-140, 127) : -any(-64, 100);
        const Ints of_rank = words_of(added(own));
        for (size_t k = 0; k < of_rank.size(); k++) {
            ASSERT_GE(of_rank[k], 0);
            ASSERT_LT(of_rank[k], 1 << 14);
            words[k] += of_rank[k];
        }
        all.insert(all.end(), own.begin(), own.end());
    }
    Exact want;
    for (float x : all)
        want.add(x);
    const float expected = want.rounded();
    EXPECT_EQ(bits_of(rounded(i32(rf_shape1(RF_EXACT_WORDS), words))), bits_of(expected));
    EXPECT_EQ(bits_of(rounded(added(all))), bits_of(expected));
}

TEST_F(Squares, WordsOf131072RanksDoNotOverflow)
{
    Ints words = words_of(added(Floats(4096, float_of(0x7f7fffffu))));
    for (int32_t &word : words) {
        ASSERT_LT((int64_t)word << 17, INT32_MAX);
        word <<= 17;
    }
    EXPECT_EQ(rounded(i32(rf_shape1(RF_EXACT_WORDS), words)), -0x1.fffffep-36f);
}

TEST_F(Squares, WrongOperandsAreNamed)
{
    rf_tensor exact = blank_i32(RF_EXACT_WORDS), few = blank_i32(8), x = blank(rf_shape1(5000)),
              scratch = blank_i32(2 * RF_EXACT_WORDS), one = blank(rf_shape1(1));
    EXPECT_FAILS(RF_EINVAL, "add_squares: exact is i32 (8), expected 45",
                 rf_add_squares(stream, few, x, scratch));
    EXPECT_FAILS(RF_EINVAL, "sums is i32", rf_add_squares(stream, exact, few, scratch));
    EXPECT_FAILS(RF_EINVAL, "scratch is i32 (45), expected 90",
                 rf_add_squares(stream, exact, x, exact));
    EXPECT_FAILS(RF_EINVAL, "must not overlap", rf_add_squares(stream, exact, one, exact));
    EXPECT_FAILS(RF_EINVAL, "round_squares: exact is f32", rf_round_squares(stream, one, x));
    EXPECT_FAILS(RF_EINVAL, "out is f32 (5000)", rf_round_squares(stream, x, exact));
}
} // namespace
