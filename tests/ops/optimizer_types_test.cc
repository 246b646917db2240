/* SPDX-License-Identifier: MIT
 *
 * The optimizers with 16-bit gradients, 16-bit copies of f32 parameters, and 16-bit parameters;
 * rounded to the nearest or stochastically.
 */
#include "optimizer_fixture.h"

extern "C" {
#include "base/base.h"
}

namespace
{
const uint64_t seed = 0x123456789abcdef0;

class OptimizerTypes : public OptimizerTest, public ::testing::WithParamInterface<rf_dtype>
{
  protected:
    static rf_dtype type()
    {
        return GetParam();
    }
    static bool bf16()
    {
        return type() == RF_BF16;
    }
    static Floats rounded(const Floats &data)
    {
        return rounded_to(type(), data);
    }

    /* Stochastic rounding by arithmetic on the part between two neighbours. */
    static float rounded_by(float x, uint32_t random)
    {
        if (!std::isfinite(x) || x == 0)
            return x;
        const oracle::HalfForm form = oracle::half_form(bf16());
        int exponent = std::max(std::ilogb(x), form.least);
        double count = std::ldexp(std::fabs((double)x), form.mantissa - exponent);
        double low = std::floor(count), rest = count - low;
        bool up;
        if (bf16())
            up = std::floor(rest * 65536) + (random >> 16) >= 65536;
        else if (std::ilogb(x) >= form.least)
            up = std::floor(rest * 8192) + (random >> 19) >= 8192;
        else
            up = (random >> 8) * 0x1p-24 < rest;
        double value = std::ldexp(low + up, exponent - form.mantissa);
        if (value >= std::ldexp(1.0, form.most + 1))
            value = HUGE_VAL;
        return (float)std::copysign(value, x);
    }
    static uint32_t random_of(uint64_t element, uint32_t updates)
    {
        uint32_t words[4];
        rf_philox(seed, element / 4, (uint64_t)0x726f756e << 32 | updates, words);
        return words[element % 4];
    }
};
INSTANTIATE_TEST_SUITE_P(Type, OptimizerTypes, ::testing::Values(RF_F16, RF_BF16),
                         [](const auto &info) { return rf_dtype_name(info.param); });

TEST_P(OptimizerTypes, GradientsMayHaveSixteenBits)
{
    /* The same numbers in f32 and in 16 bits give the same bits. */
    const int64_t n = 325;
    for (const Rule &rule : all_rules()) {
        const Floats p = normal(n), g = rounded(normal(n));
        for (int shift : {0, 1, 2, 5}) {
            Flat wide = flat(rule.opts, p, alternating(n), {0, n, shift}), small = wide;
            small = flat(rule.opts, p, alternating(n), {0, n, shift});
            set(wide.scalars, 0.01f, 0.5f);
            set(small.scalars, 0.01f, 0.5f);
            ASSERT_OK(step(rule.opts, wide, f32(rf_shape1(n), g, shift)));
            ASSERT_OK(step(rule.opts, small, typed(rf_shape1(n), type(), g, shift)));
            expect_same_bits(contents(small), contents(wide), rule.name);
        }
    }
}

TEST_P(OptimizerTypes, TheNormOfSixteenBitGradientsIsThatOfTheirValues)
{
    const int64_t n = 5000;
    const Floats g = rounded(normal(n));
    const Ints table = {0, 1024, 1024, 1000, 2048, 1024, 3072, 1024, 4096, 904};
    for (int shift : {0, 1, 3, 7}) {
        rf_tensor chunks = i32(rf_shape2(5, 2), table),
                  scratch = blank(rf_shape1(rf_sum_squares_scratch(5)));
        rf_tensor out = blank(rf_shape1(1)), wide = blank(rf_shape1(1));
        ASSERT_OK(
            rf_sum_squares(stream, out, typed(rf_shape1(n), type(), g, shift), chunks, scratch));
        ASSERT_OK(rf_sum_squares(stream, wide, f32(rf_shape1(n), g), chunks, scratch));
        expect_same_bits(read(out), read(wide), "sum of squares");
    }
}

TEST_P(OptimizerTypes, ACopyHoldsTheParametersRounded)
{
    const int64_t n = 325;
    for (const Rule &rule : all_rules()) {
        const Floats p = normal(n, 10), g = normal(n);
        for (int shift : {0, 1, 2, 7}) {
            Flat f = flat(rule.opts, p, alternating(n), {0, n, shift}, RF_F32, type());
            Flat without = flat(rule.opts, p, alternating(n), {0, n, shift});
            for (Flat *x : {&f, &without}) {
                set(x->scalars, 0.01f);
                ASSERT_OK(step(rule.opts, *x, f32(rf_shape1(n), g, shift)));
            }
            const Floats master = read(f.part.param);
            expect_same_bits(master, read(without.part.param), rule.name + " masters");
            expect_same_bits(read(f.part.copy), rounded(master), rule.name + " copy");
        }
    }
}

TEST_P(OptimizerTypes, AStochasticCopyIsAFunctionOfSeedElementAndUpdateOnly)
{
    /* From subnormal numbers of the type to infinity. With lr 0 the parameters stay. */
    const int64_t n = 64 * 40;
    Floats p = normal(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = std::ldexp(p[i], (int)(i % 40) - 28);
    p[5] = 65504;
    p[6] = -65535; /* between the largest f16 and infinity */
    p[7] = 65537;
    p[8] = 0;
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    o.stochastic_rounding = true;
    const uint64_t far = (uint64_t)1 << 33; /* its counters need more than 32 bits */
    struct Shard {
        Place at;
        uint64_t base;
    };
    for (Shard s : {Shard{{0, n, 0}, 0}, Shard{{0, 64, 1}, 0}, Shard{{64, 448, 2}, 0},
                    Shard{{512, 449, 3}, 0}, Shard{{960, 64, 7}, 0}, Shard{{0, 192, 0}, far},
                    Shard{{64, 75, 0}, far}}) {
        Flat f = flat(o, p, Ints(n / 64), s.at, RF_F32, type());
        f.part.first += s.base;
        for (uint32_t t = 1; t <= 2; t++) {
            set(f.scalars, 0, 1, 0, seed);
            ASSERT_OK(step(o, f, f32(rf_shape1(s.at.count), Floats(s.at.count), s.at.shift)));
            Floats want;
            for (int64_t i = s.at.first; i < s.at.first + s.at.count; i++)
                want.push_back(rounded_by(p[i], random_of(s.base + (uint64_t)i, t)));
            expect_same_bits(read(f.part.copy), rounded(want), "copy");
            expect_same_bits(want, rounded(want), "the oracle's");
        }
    }
}

// Runs of any length: whole quads in place, quads between two runs, and a run of one element.
TEST_P(OptimizerTypes, ATableOfPlacesSaysWhatEachElementDraws)
{
    const int64_t n = 64 * 5 + 7;
    const uint64_t first = 640;
    const std::vector<uint64_t> lengths = {64, 5, 1, 58, 8, 100, 91};
    Floats p = normal(n);
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    o.stochastic_rounding = true;
    std::vector<uint64_t> number;
    std::vector<rf_place_run> runs;
    uint64_t at = first;
    for (size_t k = 0; k < lengths.size(); k++) {
        const uint64_t begin = (k + 1) * 100000000000 - k; // the numbers alone are not in order
        for (uint64_t e = 0; e < lengths[k]; e++)
            number.push_back(begin + e);
        runs.push_back({at + lengths[k], begin - at});
        at += lengths[k];
    }
    const Ints table = place_table(runs, first, n);
    for (int shift : {0, 1, 3}) {
        Flat f = flat(o, p, Ints(n / 64 + 1), {0, n, shift}, RF_F32, type());
        f.part.first = first;
        f.part.places = i32(rf_shape1((int64_t)table.size()), table);
        for (uint32_t t = 1; t <= 2; t++) {
            set(f.scalars, 0, 1, 0, seed);
            ASSERT_OK(step(o, f, f32(rf_shape1(n), Floats(n), shift)));
            Floats want;
            for (size_t i = 0; i < (size_t)n; i++)
                want.push_back(rounded_by(p[i], random_of(number[i], t)));
            expect_same_bits(read(f.part.copy), want, "copy");
        }
        const Floats copy = read(f.part.copy);
        Flat before = flat(o, p, Ints(n / 64 + 1), {0, n, shift}, RF_F32, type());
        before.part.first = first;
        before.part.places = f.part.places;
        set(before.scalars, 0, 1, 0, seed);
        ASSERT_OK(step(o, before, f32(rf_shape1(n), Floats(n), shift)));
        const Floats older = read(before.part.copy);
        ASSERT_OK(rf_fill(stream, f.part.copy, 0));
        ASSERT_OK(rf_optimizer_copy(stream, &o, &f.part, f.scalars, false));
        expect_same_bits(read(f.part.copy), copy, "the copy of the last update");
        ASSERT_OK(rf_optimizer_copy(stream, &o, &f.part, f.scalars, true));
        expect_same_bits(read(f.part.copy), older, "the copy of the update before");
        ASSERT_OK(rf_optimizer_copy(stream, &o, &f.part, before.scalars, true));
        expect_same_bits(read(f.part.copy), rounded(p), "before the first update");
    }
    Flat f = flat(o, p, Ints(n / 64 + 1), {0, n, 0}, RF_F32, type());
    f.part.places = i32(rf_shape1(6), Ints(6));
    set(f.scalars, 0, 1, 0, seed);
    EXPECT_EQ(step(o, f, f32(rf_shape1(n), Floats(n))), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("places has 6 words"), std::string::npos)
        << rf_last_error()->message;
}

TEST_P(OptimizerTypes, StochasticRoundingHasTheValueAsItsMean)
{
    const int64_t n = 1 << 16;
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    o.stochastic_rounding = true;
    for (float part : {0.25f, 0.5f, 0.9f}) {
        const double step_size = step_of(type());
        const float x = (float)(1 + part * step_size);
        Flat f = flat(o, Floats(n, x), Ints(n / 64), {0, n, 0}, RF_F32, type());
        set(f.scalars, 0, 1, 0, seed);
        ASSERT_OK(step(o, f, f32(rf_shape1(n), Floats(n))));
        double sum = 0;
        for (float y : read(f.part.copy)) {
            ASSERT_TRUE(y == 1 || y == (float)(1 + step_size)) << y;
            sum += (y - 1) / step_size;
        }
        const double chance = (x - 1.0) / step_size;
        EXPECT_NEAR(sum / n, chance, 3 * std::sqrt(chance * (1 - chance) / n));
    }
}

TEST_P(OptimizerTypes, SixteenBitParametersMoveByWhatIsSmallerThanTheirSteps)
{
    /* 200 steps of an eighth of the distance of neighbours: rounding to nearest would not move any.
     */
    const int64_t n = 4096;
    const double move = step_of(type()) / 8;
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    for (bool stochastic : {false, true}) {
        o.stochastic_rounding = stochastic;
        Flat f = flat(o, Floats(n, 1), Ints(n / 64), {0, n, 0}, type());
        rf_tensor g = f32(rf_shape1(n), Floats(n, -1));
        for (int t = 0; t < 200; t++) {
            set(f.scalars, (float)move, 1, 0, seed);
            ASSERT_OK(step(o, f, g));
        }
        double mean = 0;
        for (float x : read(f.part.param))
            mean += (x - 1) / (double)n;
        if (stochastic)
            /* The variance of a step is at most 1/8 of the distance squared. */
            EXPECT_NEAR(mean, 200 * move, 3 * 8 * move * std::sqrt(200 / 8.0 / n));
        else
            EXPECT_EQ(mean, 0);
    }
}

TEST_P(OptimizerTypes, SixteenBitParametersFollowTheReference)
{
    const int64_t n = 325;
    for (const Rule &rule : all_rules()) {
        const Floats p = rounded(normal(n)), g = normal(n);
        for (int shift : {0, 1, 2}) {
            Flat f = flat(rule.opts, p, alternating(n), {0, n, shift}, type());
            set(f.scalars, 0.01f);
            ASSERT_OK(step(rule.opts, f, f32(rf_shape1(n), g, shift)));
            Doubles want = wide(p);
            for (int64_t i = 0; i < n; i++) {
                reference::OptimizerState state;
                reference::optimizer_step(rule.opts, 0.01, 1, i / 64 % 2 == 0, g[i], &want[i],
                                          &state);
            }
            expect_near(read(f.part.param), want, 0.5 * step_of(type()) + 1e-5, rule.name);
        }
    }
}

TEST_P(OptimizerTypes, MastersAreThoseOfAnF32OptimizerFedTheSameGradients)
{
    const int64_t n = 256;
    rf_optimizer_opts o = all_rules()[0].opts;
    const Floats p = normal(n);
    Flat mixed = flat(o, p, alternating(n), {0, n, 0}, RF_F32, type());
    Flat plain = flat(o, p, alternating(n), {0, n, 0});
    for (int t = 0; t < 20; t++) {
        const Floats g = rounded(normal(n));
        set(mixed.scalars, 0.01f);
        set(plain.scalars, 0.01f);
        ASSERT_OK(step(o, mixed, typed(rf_shape1(n), type(), g)));
        ASSERT_OK(step(o, plain, f32(rf_shape1(n), g)));
    }
    expect_same_bits(read(mixed.part.param), read(plain.part.param), "masters");
}
} // namespace
