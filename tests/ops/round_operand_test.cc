/* SPDX-License-Identifier: MIT
 *
 * Operands of products, rounded by every recipe: the levels nearest in fp64, with the scale of the
 * block's definition; sizes that are no multiple of a block; zeros, and numbers that are not
 * finite; the mean of random rounding; transforms.
 */
#include "op_fixture.h"

#include <algorithm>

extern "C" {
#include "base/small_float.h"
}

namespace
{

/* Elements of a block: of the other dimension, and along the lines; 0: all. */
struct Recipe {
    rf_recipe recipe;
    rf_small_float format, gradient;
    int block[2], weight[2];
    bool two_level, four_bits;
};
const Recipe recipes[] = {{RF_RECIPE_FP8, RF_E4M3, RF_E5M2, {0, 0}, {0, 0}},
                          {RF_RECIPE_FP8_E4M3, RF_E4M3, RF_E4M3, {0, 0}, {0, 0}},
                          {RF_RECIPE_FP8_ROWS, RF_E4M3, RF_E4M3, {1, 0}, {1, 0}},
                          {RF_RECIPE_FP8_BLOCKS, RF_E4M3, RF_E4M3, {1, 128}, {128, 128}},
                          {RF_RECIPE_MXFP8, RF_E4M3, RF_E4M3, {1, 32}, {1, 32}},
                          {RF_RECIPE_MXFP4, RF_E2M1, RF_E2M1, {1, 32}, {1, 32}, false, true},
                          {RF_RECIPE_NVFP4, RF_E2M1, RF_E2M1, {1, 16}, {16, 16}, true, true}};

class RoundOperand : public OpTest, public ::testing::WithParamInterface<TypeParam>
{
  protected:
    static Doubles levels_of(rf_small_float format)
    {
        Doubles levels;
        for (int c = 0; c < (format == RF_E2M1 ? 8 : 128); c++)
            if (std::isfinite(rf_small_float_value(format, (uint8_t)c)))
                levels.push_back(rf_small_float_value(format, (uint8_t)c));
        return levels;
    }
    static double nearest(const Doubles &levels, double x)
    {
        const size_t high =
            std::lower_bound(levels.begin(), levels.end(), std::fabs(x)) - levels.begin();
        if (high == 0)
            return std::copysign(0.0, x);
        const double up = levels[high] - std::fabs(x), down = std::fabs(x) - levels[high - 1];
        const bool takes_up = up < down || (up == down && high % 2 == 0);
        return std::copysign(levels[high - !takes_up], x);
    }
    static double power_scale(double most, double limit)
    {
        double scale = 0x1p-126;
        while (most / scale > limit && std::isfinite(most))
            scale *= 2;
        return scale;
    }
    /* most: of the block and of the matrix. */
    static double scale_of(const Recipe &r, const Doubles &levels, double most, double whole)
    {
        if (!r.two_level)
            return power_scale(most, levels.back());
        const double power = power_scale(whole, 6 * 448);
        for (double level : levels_of(RF_E4M3))
            if (6 * level * power >= most && level > 0)
                return level * power;
        return NAN;
    }
    static Floats expected(const Recipe &r, const rf_operand_opts &o, const Floats &x, int rows,
                           int columns)
    {
        const int *block = o.role == RF_OPERAND_WEIGHT ? r.weight : r.block;
        const Doubles levels = levels_of(o.role == RF_OPERAND_GRADIENT ? r.gradient : r.format);
        const int lines = block[0] ? block[0] : 1 << 20, along = block[1] ? block[1] : 1 << 20;
        const int down = o.columns ? along : lines, right = o.columns ? lines : along;
        double whole = 0;
        bool bad_whole = false;
        for (float value : x) {
            whole = std::max(whole, (double)std::fabs(value));
            bad_whole = bad_whole || !std::isfinite(value);
        }
        Floats out(x.size());
        for (int r0 = 0; r0 < rows; r0 += down)
            for (int c0 = 0; c0 < columns; c0 += right) {
                const int r1 = std::min(rows, r0 + down), c1 = std::min(columns, c0 + right);
                double most = 0;
                bool bad = r.two_level && bad_whole;
                for (int i = r0; i < r1; i++)
                    for (int j = c0; j < c1; j++) {
                        most = std::max(most, (double)std::fabs(x[i * columns + j]));
                        bad = bad || !std::isfinite(x[i * columns + j]);
                    }
                const double scale = bad ? NAN : scale_of(r, levels, most, whole);
                for (int i = r0; i < r1; i++)
                    for (int j = c0; j < c1; j++)
                        out[i * columns + j] =
                            bad ? NAN
                                : (float)(nearest(levels, x[i * columns + j] / scale) * scale);
            }
        return out;
    }
    /* The 16-row transform: rows of a Hadamard matrix by the parity of common bits, over 4. */
    static Floats transformed(const Floats &x, int rows, int columns)
    {
        Floats out = x;
        for (int first = 0; first + 16 <= rows; first += 16)
            for (int i = 0; i < 16; i++)
                for (int j = 0; j < columns; j++) {
                    double sum = 0;
                    for (int k = 0; k < 16; k++) {
                        const int minus = __builtin_popcount(i & k) + (0x9d2c >> k & 1);
                        sum += (minus % 2 ? -1 : 1) * (double)x[(first + k) * columns + j];
                    }
                    out[(first + i) * columns + j] = (float)(sum / 4);
                }
        return out;
    }
    /* Magnitudes that differ by row and by column, zeros of both signs, and a block of zeros. */
    static Floats numbers(int rows, int columns)
    {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        Floats x(rows * columns);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                const float size = std::ldexp(1.0f, (i * 5 + j / 8) % 13 - 6);
                x[i * columns + j] = (i / 40 + j / 40) % 4 == 1 ? 0.0f : normal(random) * size;
                if ((i + j) % 17 == 0)
                    x[i * columns + j] = -0.0f;
            }
        return x;
    }
    void compare(const Recipe &r, const rf_operand_opts &o, const Floats &data, int rows,
                 int columns, int shift, bool in_place)
    {
        const rf_shape shape = rf_shape2(rows, columns);
        const Floats x = rounded_to(GetParam(), data);
        rf_tensor in = typed(shape, GetParam(), x, shift);
        rf_tensor out = in_place ? in : typed_blank(shape, GetParam(), shift);
        const int64_t most = rf_round_operand_scratch(rows, columns, &o);
        rf_tensor scratch = blank(rf_shape1(most ? most : 1));
        ASSERT_OK(rf_round_operand(stream, out, in, &o, most ? &scratch : nullptr));
        ASSERT_OK(rf_stream_wait(stream));
        const bool transforms = r.four_bits && o.columns && o.role != RF_OPERAND_WEIGHT;
        const Floats from = transforms ? transformed(x, rows, columns) : x;
        const Floats got = read(out), want = expected(r, o, from, rows, columns);
        for (size_t i = 0; i < got.size(); i++) {
            if (std::isnan(want[i]))
                ASSERT_TRUE(std::isnan(got[i])) << i;
            else if (r.two_level && got[i] != want[i]) /* a quotient next to a border was rounded */
                ASSERT_NEAR(std::fabs(from[i] - got[i]), std::fabs(from[i] - want[i]),
                            1e-6 * std::fabs(from[i]));
            else
                ASSERT_EQ(bits_of(got[i]), bits_of(want[i]))
                    << rf_recipe_name(r.recipe) << " role " << o.role << " columns " << o.columns
                    << " " << rows << " x " << columns << " at " << i << ": " << x[i] << " -> "
                    << got[i] << ", not " << want[i];
        }
    }
    void compare_all(int rows, int columns, int shift, const Floats &data)
    {
        for (const Recipe &r : recipes)
            for (int role = 0; role < 3; role++)
                for (bool along_columns : {false, true}) {
                    const rf_operand_opts o = {r.recipe, (rf_operand_role)role, along_columns};
                    if (r.four_bits && (role == RF_OPERAND_GRADIENT || along_columns))
                        continue;
                    ASSERT_NO_FATAL_FAILURE(
                        compare(r, o, data, rows, columns, shift, (rows + role) % 2));
                }
    }
};
ALL_TYPES(RoundOperand);

TEST_P(RoundOperand, NumbersAreTheNearestProductsOfCodesAndScales)
{
    const struct {
        int rows, columns, shift;
    } sizes[] = {{1, 1, 0}, {5, 7, 1}, {64, 96, 0}, {131, 260, 0}, {33, 129, 1}, {300, 36, 0}};
    for (const auto &s : sizes)
        compare_all(s.rows, s.columns, s.shift, numbers(s.rows, s.columns));
}

TEST_P(RoundOperand, ABlockWithANumberThatIsNotFiniteIsNaNAndNoOther)
{
    for (float bad : {NAN, -INFINITY, INFINITY}) {
        Floats x = numbers(66, 132);
        x[35 * 132 + 70] = bad;
        compare_all(66, 132, 0, x);
    }
}

/* Sums of whole numbers are exact. */
TEST_P(RoundOperand, TransformsAreThoseOfTheDefinition)
{
    const struct {
        int rows, columns, shift;
    } sizes[] = {{15, 8, 0}, {16, 5, 1}, {77, 36, 0}};
    for (const auto &s : sizes)
        for (const Recipe &r : recipes)
            for (int role = 0; r.four_bits && role < 2; role++) {
                const rf_operand_opts o = {r.recipe, (rf_operand_role)role, true};
                ASSERT_NO_FATAL_FAILURE(compare(r, o, whole(s.rows * s.columns), s.rows, s.columns,
                                                s.shift, role == 0));
            }
}

/* A mean of `draws` has a deviation of that of one draw over their root; that of all elements adds
 * up likewise. */
TEST_P(RoundOperand, RandomRoundingKeepsTheMeanAndDependsOnStepSiteAndElement)
{
    const int rows = 6, columns = 36, draws = 100;
    const rf_shape shape = rf_shape2(rows, columns);
    const Floats x = rounded_to(GetParam(), normal(rows * columns));
    for (rf_recipe recipe : {RF_RECIPE_MXFP4, RF_RECIPE_NVFP4}) {
        Floats step(RF_SCALAR_WORDS);
        step[3] = 1;
        rf_tensor scalars = f32(rf_shape1(RF_SCALAR_WORDS), step);
        rf_operand_opts o = {recipe, RF_OPERAND_GRADIENT, false, &scalars};
        rf_tensor most = blank(rf_shape1(1 + rf_round_operand_scratch(rows, columns, &o)));
        rf_tensor in = typed(shape, GetParam(), x), out = typed_blank(shape, GetParam());
        Doubles sums(x.size()), squares(x.size());
        for (int draw = 0; draw < draws; draw++) {
            o.site = (uint32_t)draw % 10;
            o.micro_batch = (uint32_t)draw / 10;
            ASSERT_OK(rf_round_operand(stream, out, in, &o, &most));
            const Floats got = read(out);
            for (size_t i = 0; i < x.size(); i++) {
                sums[i] += got[i];
                squares[i] += (double)got[i] * got[i];
            }
        }
        double error = 0, variance = 0;
        for (size_t i = 0; i < x.size(); i++) {
            const double mean = sums[i] / draws;
            const double one = std::max(squares[i] / draws - mean * mean, 0.0) / draws;
            EXPECT_LE(std::fabs(mean - x[i]), 5 * std::sqrt(one) + 0.05) << i;
            error += mean - x[i];
            variance += one;
        }
        EXPECT_LE(std::fabs(error), 3 * std::sqrt(variance)) << rf_recipe_name(recipe);
        EXPECT_GT(variance, 0);
        const Floats before = read(out);
        rf_tensor odd = typed(shape, GetParam(), x, 1), other = typed_blank(shape, GetParam(), 1);
        ASSERT_OK(rf_round_operand(stream, other, odd, &o, &most));
        expect_same_bits(read(other), before, "at any element");
        step[3] = 2;
        rf_tensor later = f32(rf_shape1(RF_SCALAR_WORDS), step);
        o.scalars = &later;
        ASSERT_OK(rf_round_operand(stream, out, in, &o, &most));
        EXPECT_NE(read(out), before) << "in another step";
    }
}

/* The least and the largest numbers of the type, whose scales are at the limits. */
TEST_P(RoundOperand, ScalesReachTheLimitsOfTheType)
{
    if (GetParam() == RF_F16)
        return; /* a product may be above 65504 there: infinite, as the header says */
    for (float size : {0x1p-110f, 0x1.fp+127f, 448.0f, 448.5f, 57344.0f, 3e-3f}) {
        Floats x(34 * 40);
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (float)((i % 29) - 14.0) / 14 * size;
        compare_all(34, 40, 0, x);
    }
}

TEST_F(OpTest, RoundOperandRefusesWhatItCannotDo)
{
    rf_tensor x = blank(rf_shape2(4, 8));
    rf_operand_opts o = {RF_RECIPE_FP8, RF_OPERAND_INPUT, false};
    EXPECT_FAILS(RF_EINVAL, "scratch", rf_round_operand(stream, x, x, &o, nullptr));
    EXPECT_FAILS(RF_EINVAL, "overlap", rf_round_operand(stream, x, x, &o, &x));
    rf_operand_opts gradient = {RF_RECIPE_MXFP4, RF_OPERAND_GRADIENT, false};
    EXPECT_FAILS(RF_EINVAL, "scalars", rf_round_operand(stream, x, x, &gradient, nullptr));
    o.recipe = RF_RECIPE_NONE;
    EXPECT_FAILS(RF_EINVAL, "recipe", rf_round_operand(stream, x, x, &o, nullptr));
    EXPECT_EQ(rf_round_operand_scratch(4, 8, &o), 0);
    rf_tensor i = blank_i32(8);
    o.recipe = RF_RECIPE_MXFP8;
    EXPECT_FAILS(RF_EINVAL, "out", rf_round_operand(stream, i, i, &o, nullptr));
}

TEST(Recipe, NamesOfOtherLibrariesAreKnown)
{
    for (int r = 0; r < RF_RECIPE_COUNT; r++)
        EXPECT_EQ(rf_recipe_find(rf_recipe_name((rf_recipe)r)), r);
    EXPECT_EQ(rf_recipe_name(RF_RECIPE_COUNT), nullptr);
    EXPECT_EQ(rf_recipe_find("Float8CurrentScaling"), RF_RECIPE_FP8);
    EXPECT_EQ(rf_recipe_find("rowwise"), RF_RECIPE_FP8_ROWS);
    EXPECT_EQ(rf_recipe_find("MXFP8BlockScaling"), RF_RECIPE_MXFP8);
    EXPECT_EQ(rf_recipe_find("NVFP4BlockScaling"), RF_RECIPE_NVFP4);
    EXPECT_EQ(rf_recipe_block(RF_RECIPE_FP8_BLOCKS), 128);
    EXPECT_EQ(rf_recipe_block(RF_RECIPE_MXFP4), 32);
    for (rf_recipe whole : {RF_RECIPE_NONE, RF_RECIPE_FP8, RF_RECIPE_FP8_ROWS, RF_RECIPE_NVFP4})
        EXPECT_EQ(rf_recipe_block(whole), 0);
    EXPECT_EQ(rf_recipe_kept_layers(RF_RECIPE_NVFP4, 17), 3);
    EXPECT_EQ(rf_recipe_kept_layers(RF_RECIPE_NVFP4, 1), 0);
    EXPECT_EQ(rf_recipe_kept_layers(RF_RECIPE_MXFP8, 17), 0);
    EXPECT_EQ(rf_recipe_find("fp"), -1);
    EXPECT_EQ(rf_recipe_find(nullptr), -1);
}

} // namespace
