/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy: losses and gradient.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
struct Case {
    int64_t rows, V;
    int shift;
};
const Case cases[] = {{1, 1, 0},    {1, 2, 0},     {3, 5, 0},    {17, 16, 0}, {7, 257, 0},
                      {5, 1003, 1}, {2, 50257, 0}, {64, 260, 0}, {9, 64, 2},  {130, 4, 0}};

class CrossEntropy : public TypedOpTest
{
  protected:
    struct Result {
        Floats losses, dlogits;
    };
    Result run(const Case &c, const Floats &logits, const Ints &targets, bool in_place,
               const rf_cross_entropy_opts *opts = nullptr)
    {
        rf_tensor x = typed(rf_shape2(c.rows, c.V), type(), logits, c.shift);
        rf_tensor d = in_place ? x : out(rf_shape2(c.rows, c.V)), losses = blank(rf_shape1(c.rows));
        EXPECT_OK(rf_cross_entropy(stream, losses, d, x, i32(rf_shape1(c.rows), targets),
                                   blank(rf_shape1(c.rows)), opts));
        return {read(losses), read(d)};
    }
    static std::string name(const Case &c, const char *what)
    {
        return std::string(what) + " of " + std::to_string(c.rows) + " x " + std::to_string(c.V);
    }
};

ALL_TYPES(CrossEntropy);

TEST_P(CrossEntropy, MatchesTheReferenceAlsoInPlace)
{
    for (const Case &c : cases) {
        Floats logits = rounded(normal(c.rows * c.V, 3));
        Ints targets = below(c.rows, (int32_t)c.V);
        targets[c.rows / 2] = (int32_t)c.V - 1;
        if (c.rows > 2)
            targets[1] = -1;
        auto want = reference::cross_entropy(wide(logits), targets, c.V);
        Result got = run(c, logits, targets, false);
        /* Up to 3142 partial sums of exponentials are added one after another. */
        expect_near(got.losses, want.losses, 1e-5, name(c, "losses"));
        expect_near(got.dlogits, want.dlogits, tolerance(5e-6), name(c, "dlogits"));
        Result again = run(c, logits, targets, true);
        expect_same_bits(again.losses, got.losses, name(c, "losses"));
        expect_same_bits(again.dlogits, got.dlogits, name(c, "dlogits in place"));
    }
}

/* As in the softmax: no digit is lost by the number of columns. exp and log have some units in the
 * last place of their own. */
TEST_F(OpTest, CrossEntropyOfFiftyThousandColumnsIsAccurateToAMillionth)
{
    const int64_t rows = 3, columns = 50257;
    for (int64_t V : {columns, columns / 16 * 16}) {
        Floats logits = normal(rows * V, 1);
        for (int64_t k = 0; k < V; k++) {
            logits[V + k] = k ? 0 : 0.7f; /* all the same term, which rounds the same way */
            logits[2 * V + k] = k ? 0 : 2.3f;
        }
        const Ints targets = {7, 0, 1};
        auto want = reference::cross_entropy(wide(logits), targets, V);
        rf_tensor losses = blank(rf_shape1(rows));
        ASSERT_OK(rf_cross_entropy(stream, losses, {}, f32(rf_shape2(rows, V), logits),
                                   i32(rf_shape1(rows), targets), blank(rf_shape1(rows)), nullptr));
        for (int64_t row = 0; row < rows; row++)
            EXPECT_NEAR(read(losses)[row], want.losses[row], 1e-6 + 1e-7 * want.losses[row])
                << "row " << row << " of " << V;
    }
}

TEST_P(CrossEntropy, LossOnlyLeavesTheLogitsAlone)
{
    const Case c = {5, 37, 0};
    Floats logits = rounded(normal(c.rows * c.V));
    Ints targets = below(c.rows, (int32_t)c.V);
    rf_tensor x = in(rf_shape2(c.rows, c.V), logits), losses = blank(rf_shape1(c.rows));
    ASSERT_OK(rf_cross_entropy(stream, losses, rf_tensor{}, x, i32(rf_shape1(c.rows), targets),
                               blank(rf_shape1(c.rows)), nullptr));
    expect_near(read(losses), reference::cross_entropy(wide(logits), targets, c.V).losses, 1e-5,
                "losses");
    expect_same_bits(read(x), logits, "logits");
}

TEST_P(CrossEntropy, ExtremeLogitsStayFinite)
{
    const Case c = {3, 40, 0};
    Floats logits = rounded(Floats(c.rows * c.V, -1e4f));
    logits[7] = 1e4f;       /* row 0: certain, and right */
    logits[c.V + 9] = 1e4f; /* row 1: certain, and wrong */
    for (int64_t k = 0; k < c.V; k++)
        logits[2 * c.V + k] = 1e4f; /* row 2: all alike */
    logits = rounded(logits);
    Ints targets = {7, 3, 0};
    auto want = reference::cross_entropy(wide(logits), targets, c.V);
    Result got = run(c, logits, targets, true);
    expect_near(got.losses, want.losses, 1e-6, "losses");
    /* log-sum-exp of 1e4 is stored to 1e-3. */
    expect_near(got.dlogits, want.dlogits, 1e-3, "dlogits");
}

/* Sizes of every build: aligned rows and others, short ones and such that whole subgroups write. */
const int64_t widths[] = {10, 64, 1003, 4096};

TEST_P(CrossEntropy, ATargetBeyondTheVocabularyIsNotANumberInLossAndGradient)
{
    for (int64_t V : widths)
        for (bool in_place : {false, true}) {
            const Case c = {4, V, 0};
            Floats logits = rounded(normal(c.rows * V));
            Result got = run(c, logits, {-100, (int32_t)V, (int32_t)V - 1, INT32_MAX}, in_place);
            for (int64_t row = 0; row < c.rows; row++) {
                const bool beyond = row % 2 == 1;
                EXPECT_EQ(std::isnan(got.losses[row]), beyond) << V << " row " << row;
                for (int64_t k = 0; k < V; k++)
                    ASSERT_EQ(std::isnan(got.dlogits[row * V + k]), beyond) << V << " row " << row;
            }
            EXPECT_EQ(got.losses[0], 0.0f); /* ignored */
            EXPECT_EQ(Floats(got.dlogits.begin(), got.dlogits.begin() + V), Floats(V));
        }
}

TEST_P(CrossEntropy, ARowWithoutASoftmaxIsNotFiniteInLossAndGradientUnlessItIsIgnored)
{
    const float inf = INFINITY;
    for (int64_t V : widths)
        for (bool in_place : {false, true}) {
            const Case c = {5, V, 0};
            Floats logits = rounded(normal(c.rows * V));
            std::fill_n(logits.begin(), 2 * V, -inf); /* rows 0 and 1 */
            logits[2 * V + V / 2] = inf;
            logits[3 * V + V - 1] = NAN;
            std::fill_n(logits.begin() + 4 * V + 1, V - 1, -inf); /* sure of column 0 */
            Result got = run(c, logits, {1, -1, 0, 0, 0}, in_place);
            for (int64_t row : {0, 2, 3}) {
                EXPECT_FALSE(std::isfinite(got.losses[row])) << V << " row " << row;
                for (int64_t k = 0; k < V; k++)
                    ASSERT_FALSE(std::isfinite(got.dlogits[row * V + k])) << V << " row " << row;
            }
            for (int64_t row : {1, 4}) {
                EXPECT_NEAR(got.losses[row], 0, 1e-6) << V << " row " << row;
                for (int64_t k = 0; k < V; k++)
                    ASSERT_NEAR(got.dlogits[row * V + k], 0, 1e-6) << V << " row " << row;
            }
        }
}

TEST_P(CrossEntropy, TenRunsGiveTheSameBits)
{
    const Case c = {19, 257, 0};
    Floats logits = rounded(normal(c.rows * c.V));
    Ints targets = below(c.rows, (int32_t)c.V);
    Result first = run(c, logits, targets, true);
    for (int i = 1; i < 10; i++) {
        Result again = run(c, logits, targets, true);
        expect_same_bits(again.losses, first.losses, "losses");
        expect_same_bits(again.dlogits, first.dlogits, "dlogits");
    }
}

TEST_P(CrossEntropy, SmoothingAndZLossMatchTheReference)
{
    for (const Case &c : cases)
        for (auto [smoothing, z_loss] : {std::pair(0.1f, 0.0f), {0.0f, 1e-2f}, {0.25f, 1e-3f}}) {
            Floats logits = rounded(normal(c.rows * c.V, 2));
            Ints targets = below(c.rows, (int32_t)c.V);
            if (c.rows > 2)
                targets[1] = -1;
            auto want = reference::cross_entropy(wide(logits), targets, c.V, smoothing, z_loss);
            rf_cross_entropy_opts opts = {};
            opts.smoothing = smoothing;
            opts.z_loss = z_loss;
            Result got = run(c, logits, targets, true, &opts);
            expect_near(got.losses, want.losses, 2e-5, name(c, "losses"));
            expect_near(got.dlogits, want.dlogits, tolerance(1e-5), name(c, "dlogits"));
        }
}

TEST_P(CrossEntropy, ScalesGradientsAndNotLosses)
{
    const Case c = {19, 37, 0};
    Floats logits = rounded(normal(c.rows * c.V));
    Ints targets = below(c.rows, (int32_t)c.V);
    targets[3] = -1;
    Result plain = run(c, logits, targets, false);
    rf_tensor four = f32(rf_shape1(1), {4});
    rf_cross_entropy_opts opts = {};
    opts.scale = 256;
    opts.device_scale = &four;
    Result scaled = run(c, logits, targets, false, &opts);
    expect_same_bits(scaled.losses, plain.losses, "losses");
    for (size_t i = 0; i < plain.dlogits.size(); i++) {
        float want = 1024 * plain.dlogits[i];
        /* f16 keeps more digits of what is no longer subnormal. */
        EXPECT_NEAR(scaled.dlogits[i], want, 1e-3 + step_of(type()) * std::fabs(want));
    }
}

TEST_P(CrossEntropy, WrongOperandsAreNamed)
{
    rf_cross_entropy_opts bad = {};
    bad.smoothing = 1;
    EXPECT_FAILS(RF_EINVAL, "smoothing is 1",
                 rf_cross_entropy(stream, blank(rf_shape1(3)), {}, blank(rf_shape2(3, 8)),
                                  blank_i32(3), blank(rf_shape1(3)), &bad));
    rf_tensor two = blank(rf_shape1(2));
    bad.smoothing = 0;
    bad.device_scale = &two;
    EXPECT_FAILS(RF_EINVAL, "device_scale is f32 (2)",
                 rf_cross_entropy(stream, blank(rf_shape1(3)), {}, blank(rf_shape2(3, 8)),
                                  blank_i32(3), blank(rf_shape1(3)), &bad));
    rf_tensor logits = blank(rf_shape2(3, 8)), losses = blank(rf_shape1(3)), none = {};
    rf_tensor scratch = blank(rf_shape1(3)), targets = blank_i32(3), four = blank(rf_shape1(4));
    EXPECT_FAILS(RF_EINVAL, "losses is f32 (4), expected 3",
                 rf_cross_entropy(stream, four, logits, logits, targets, scratch, nullptr));
    EXPECT_FAILS(RF_EINVAL, "targets is f32",
                 rf_cross_entropy(stream, losses, logits, logits, losses, scratch, nullptr));
    EXPECT_FAILS(RF_EINVAL, "logits is f32 (3, 8), expected (4, 8)",
                 rf_cross_entropy(stream, four, logits, logits, blank_i32(4), four, nullptr));
    EXPECT_FAILS(RF_EINVAL, "losses must not overlap scratch",
                 rf_cross_entropy(stream, losses, none, logits, targets, losses, nullptr));
    EXPECT_FAILS(RF_EINVAL, "dlogits",
                 rf_cross_entropy(stream, losses, four, logits, targets, scratch, nullptr));
}
} // namespace
