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
               const rf_cross_entropy_opts &opts = {})
    {
        rf_tensor x = typed(rf_shape2(c.rows, c.V), type(), logits, c.shift);
        rf_tensor d = in_place ? x : out(rf_shape2(c.rows, c.V)), losses = blank(rf_shape1(c.rows));
        EXPECT_OK(rf_cross_entropy(stream, {.logits = x,
                                            .targets = i32(rf_shape1(c.rows), targets),
                                            .losses = losses,
                                            .lse = blank(rf_shape1(c.rows)),
                                            .dlogits = d,
                                            .opts = opts}));
        return {read(losses), read(d)};
    }
    static std::string name(const Case &c, const char *what)
    {
        return std::string(what) + " of " + std::to_string(c.rows) + " x " + std::to_string(c.V);
    }
};

ALL_TYPES_AND_TEAMS(CrossEntropy);

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

/* As in the softmax: the number of columns costs no digit. exp and log have errors of a few units
 * in the last place. */
TEST_F(OpTest, CrossEntropyOfFiftyThousandColumnsIsAccurateToAMillionth)
{
    const int64_t rows = 4, columns = 50257;
    for (int64_t V : {columns, columns / 16 * 16}) {
        Floats logits = normal(rows * V, 1);
        for (int64_t k = 0; k < V; k++) {
            logits[V + k] = k ? 0 : 0.7f; /* equal terms, which round the same way */
            logits[2 * V + k] = k ? 0 : 2.3f;
            /* The error of a sum shrinks with it when a larger logit follows. */
            logits[3 * V + k] = k == V - 1 ? 14 : k ? 0 : 0.9f;
        }
        const Ints targets = {7, 0, 1, 2};
        auto want = reference::cross_entropy(wide(logits), targets, V);
        for (bool teams : {false, true}) {
            rf_device_force_teams(device, teams);
            rf_tensor losses = blank(rf_shape1(rows));
            ASSERT_OK(rf_cross_entropy(stream, {.logits = f32(rf_shape2(rows, V), logits),
                                                .targets = i32(rf_shape1(rows), targets),
                                                .losses = losses,
                                                .lse = blank(rf_shape1(rows))}));
            for (int64_t row = 0; row < rows; row++)
                EXPECT_NEAR(read(losses)[row], want.losses[row], 1e-6 + 1e-7 * want.losses[row])
                    << "row " << row << " of " << V << (teams ? ", teams" : "");
        }
    }
}

TEST_P(CrossEntropy, LossOnlyLeavesTheLogitsAlone)
{
    const Case c = {5, 37, 0};
    Floats logits = rounded(normal(c.rows * c.V));
    Ints targets = below(c.rows, (int32_t)c.V);
    rf_tensor x = in(rf_shape2(c.rows, c.V), logits), losses = blank(rf_shape1(c.rows));
    ASSERT_OK(rf_cross_entropy(stream, {.logits = x,
                                        .targets = i32(rf_shape1(c.rows), targets),
                                        .losses = losses,
                                        .lse = blank(rf_shape1(c.rows))}));
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

/* Sizes for every build: aligned rows and others, short ones, and ones that whole subgroups write.
 */
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
            std::fill_n(logits.begin() + 4 * V + 1, V - 1, -inf); /* certain of column 0 */
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
            Result got = run(c, logits, targets, true, opts);
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
    Result scaled = run(c, logits, targets, false, opts);
    expect_same_bits(scaled.losses, plain.losses, "losses");
    for (size_t i = 0; i < plain.dlogits.size(); i++) {
        float want = 1024 * plain.dlogits[i];
        /* f16 keeps more digits of numbers that are not subnormal any more. */
        EXPECT_NEAR(scaled.dlogits[i], want, 1e-3 + step_of(type()) * std::fabs(want));
    }
    opts.scale = RF_ZERO;
    EXPECT_EQ(run(c, logits, targets, false, opts).dlogits, Floats(plain.dlogits.size()));
}

/* The combined results of ranks that each hold some columns, with the exchanges made here. */
class CrossEntropyOfParts : public TypedOpTest
{
  protected:
    struct Result {
        Floats losses, dlogits;
    };
    Result run(int64_t rows, int64_t V, int parts, const Floats &logits, const Ints &targets,
               const rf_cross_entropy_opts &opts = {})
    {
        std::vector<rf_cross_entropy_args> part(parts);
        const rf_tensor aims = i32(rf_shape1(rows), targets);
        Floats greatest(rows, -INFINITY), sums(2 * rows);
        for (int k = 0; k < parts; k++) {
            const int64_t first = k * V / parts, columns = (k + 1) * V / parts - first;
            Floats own;
            for (int64_t row = 0; row < rows; row++)
                own.insert(own.end(), &logits[row * V + first], &logits[row * V + first] + columns);
            part[k] = {.logits = typed(rf_shape2(rows, columns), type(), own, k % 2),
                       .targets = aims,
                       .first = first,
                       .vocabulary = V,
                       .most = blank(rf_shape1(rows)),
                       .total = blank(rf_shape1(rows)),
                       .wanted = blank(rf_shape1(rows))};
            EXPECT_OK(rf_cross_entropy_part_rows(stream, part[k]));
            const Floats most = read(part[k].most);
            for (int64_t row = 0; row < rows; row++)
                greatest[row] = std::max(greatest[row], most[row]);
        }
        const rf_tensor top = f32(rf_shape1(rows), greatest);
        for (int k = 0; k < parts; k++) {
            const rf_tensor own = blank(rf_shape2(2, rows));
            EXPECT_OK(rf_cross_entropy_part_sums(stream, {.most = part[k].most,
                                                          .total = part[k].total,
                                                          .wanted = part[k].wanted,
                                                          .greatest = top,
                                                          .sums = own}));
            const Floats more = read(own);
            for (int64_t i = 0; i < 2 * rows; i++)
                sums[i] += more[i];
        }
        const rf_tensor all = f32(rf_shape2(2, rows), sums), losses = blank(rf_shape1(rows)),
                        lse = blank(rf_shape1(rows));
        EXPECT_OK(rf_cross_entropy_part_losses(stream, {.targets = aims,
                                                        .losses = losses,
                                                        .lse = lse,
                                                        .vocabulary = V,
                                                        .greatest = top,
                                                        .sums = all}));
        Result result = {read(losses), Floats(rows * V)};
        for (int k = 0; k < parts; k++) {
            EXPECT_OK(rf_cross_entropy_part_gradient(stream, {.logits = part[k].logits,
                                                              .targets = aims,
                                                              .lse = lse,
                                                              .dlogits = part[k].logits,
                                                              .opts = opts,
                                                              .first = part[k].first,
                                                              .vocabulary = V}));
            const Floats own = read(part[k].logits);
            const int64_t columns = (int64_t)own.size() / rows;
            for (int64_t row = 0; row < rows; row++)
                std::copy_n(&own[row * columns], columns, &result.dlogits[row * V + part[k].first]);
        }
        return result;
    }
    /* The result of one rank. */
    Result whole(int64_t rows, int64_t V, const Floats &logits, const Ints &targets)
    {
        const rf_tensor x = typed(rf_shape2(rows, V), type(), logits),
                        losses = blank(rf_shape1(rows));
        EXPECT_OK(rf_cross_entropy(stream, {.logits = x,
                                            .targets = i32(rf_shape1(rows), targets),
                                            .losses = losses,
                                            .lse = blank(rf_shape1(rows)),
                                            .dlogits = x}));
        return {read(losses), read(x)};
    }
};

ALL_TYPES_AND_TEAMS(CrossEntropyOfParts);

TEST_P(CrossEntropyOfParts, IsThatOfTheWholeForPartsOfAnySize)
{
    for (int64_t V : {4, 16, 257, 1030, 50257})
        for (int parts : {1, 2, 3, 4}) {
            if (V > 10000 && parts != 3)
                continue;
            const int64_t rows = V > 10000 ? 3 : 17;
            Floats logits = rounded(normal(rows * V, 3));
            Ints targets = below(rows, (int32_t)V);
            targets[0] = 0;
            targets[1] = (int32_t)V - 1;
            targets[2] = -1;
            const auto want = reference::cross_entropy(wide(logits), targets, V);
            const Result got = run(rows, V, parts, logits, targets),
                         one = whole(rows, V, logits, targets);
            const std::string what = std::to_string(V) + " in " + std::to_string(parts);
            expect_near(got.losses, want.losses, 1e-6, "losses of " + what);
            expect_near(got.dlogits, want.dlogits, tolerance(5e-6), "dlogits of " + what);
            expect_near(got.losses, wide(one.losses), 4e-7, "losses beside the whole of " + what);
            EXPECT_EQ(got.losses[2], 0.0f);
            if (parts == 1) {
                expect_same_bits(got.losses, one.losses, "losses of one part");
                expect_same_bits(got.dlogits, one.dlogits, "dlogits of one part");
            }
        }
}

TEST_P(CrossEntropyOfParts, HasNoNumbersExactlyWhereTheWholeHasNone)
{
    const float inf = INFINITY;
    for (int64_t V : {10, 64, 1003})
        for (int parts : {2, 3}) {
            const int64_t rows = 10;
            Floats logits = rounded(normal(rows * V));
            std::fill_n(logits.begin(), 2 * V, -inf); /* rows 0 and 1 */
            logits[2 * V + V / 2] = inf;
            logits[3 * V + V - 1] = NAN;
            logits[4 * V] = NAN;
            std::fill_n(logits.begin() + 5 * V + 1, V - 1, -inf); /* certain of column 0 */
            logits[6 * V + V - 1] = logits[6 * V] = inf;
            for (int64_t k = 0; k < V; k++)
                logits[7 * V + k] = (k < V / 2 ? -3e4f : 3e4f) + (type() == RF_F32 ? 3e38f : 0);
            const Ints targets = {1, -1, 0, 0, 0, 0, 0, (int32_t)V - 1, (int32_t)V, INT32_MAX};
            const Result got = run(rows, V, parts, logits, targets),
                         want = whole(rows, V, logits, targets);
            for (int64_t row = 0; row < rows; row++) {
                EXPECT_EQ(std::isnan(got.losses[row]), std::isnan(want.losses[row])) << row;
                for (int64_t k = row * V; k < (row + 1) * V; k++)
                    ASSERT_EQ(std::isnan(got.dlogits[k]), std::isnan(want.dlogits[k]))
                        << V << " in " << parts << " row " << row;
            }
        }
}

TEST_P(CrossEntropyOfParts, ScalesGradientsAndNotLosses)
{
    const int64_t rows = 9, V = 37;
    const Floats logits = rounded(normal(rows * V));
    const Ints targets = below(rows, (int32_t)V);
    rf_tensor four = f32(rf_shape1(1), {4});
    rf_cross_entropy_opts opts = {};
    opts.scale = 256;
    opts.device_scale = &four;
    const Result plain = run(rows, V, 3, logits, targets),
                 scaled = run(rows, V, 3, logits, targets, opts);
    expect_same_bits(scaled.losses, plain.losses, "losses");
    for (size_t i = 0; i < plain.dlogits.size(); i++)
        EXPECT_NEAR(scaled.dlogits[i], 1024 * plain.dlogits[i],
                    1e-3 + step_of(type()) * std::fabs(1024 * plain.dlogits[i]));
}

TEST_P(CrossEntropyOfParts, WrongOperandsAreNamed)
{
    const rf_tensor three = blank(rf_shape1(3)), logits = out(rf_shape2(3, 8)),
                    targets = blank_i32(3);
    using A = rf_cross_entropy_args;
    const A rows = {.logits = logits,
                    .targets = targets,
                    .first = 4,
                    .vocabulary = 12,
                    .most = blank(rf_shape1(3)),
                    .total = blank(rf_shape1(3)),
                    .wanted = three};
    EXPECT_FAILS(RF_EINVAL, "columns 5 to 12 are no part of a vocabulary of 12",
                 rf_cross_entropy_part_rows(stream, with(rows, &A::first, 5)));
    EXPECT_FAILS(RF_EINVAL, "z_loss has no use",
                 rf_cross_entropy_part_gradient(
                     stream, {.logits = logits, .targets = targets, .opts = {.z_loss = 1}}));
    const A sums = {.most = rows.most,
                    .total = rows.total,
                    .wanted = three,
                    .greatest = blank(rf_shape1(3)),
                    .sums = blank(rf_shape1(3))};
    EXPECT_FAILS(RF_EINVAL, "sums is f32 (3), expected 6",
                 rf_cross_entropy_part_sums(stream, sums));
    EXPECT_FAILS(RF_EINVAL, "lse has no use",
                 rf_cross_entropy_part_sums(stream, with(sums, &A::lse, three)));
    EXPECT_FAILS(RF_EINVAL, "losses must not overlap lse",
                 rf_cross_entropy_part_losses(stream, {.targets = targets,
                                                       .losses = three,
                                                       .lse = three,
                                                       .vocabulary = 12,
                                                       .greatest = blank(rf_shape1(3)),
                                                       .sums = blank(rf_shape1(6))}));
    EXPECT_FAILS(RF_EINVAL, "most must not overlap wanted",
                 rf_cross_entropy_part_rows(stream, with(rows, &A::most, three)));
}

TEST_P(CrossEntropy, WrongOperandsAreNamed)
{
    rf_tensor two = blank(rf_shape1(2)), logits = blank(rf_shape2(3, 8)),
              four = blank(rf_shape1(4)), losses = blank(rf_shape1(3));
    using A = rf_cross_entropy_args;
    const A good = {.logits = logits,
                    .targets = blank_i32(3),
                    .losses = losses,
                    .lse = blank(rf_shape1(3)),
                    .dlogits = logits};
    EXPECT_FAILS(RF_EINVAL, "smoothing is 1",
                 rf_cross_entropy(stream, with(good, &A::opts, {.smoothing = 1})));
    EXPECT_FAILS(RF_EINVAL, "device_scale is f32 (2)",
                 rf_cross_entropy(stream, with(good, &A::opts, {.device_scale = &two})));
    EXPECT_FAILS(RF_EINVAL, "losses is f32 (4), expected 3",
                 rf_cross_entropy(stream, with(good, &A::losses, four)));
    EXPECT_FAILS(RF_EINVAL, "targets is f32",
                 rf_cross_entropy(stream, with(good, &A::targets, losses)));
    EXPECT_FAILS(RF_EINVAL, "logits is f32 (3, 8), expected (4, 8)",
                 rf_cross_entropy(stream, with(good, &A::targets, blank_i32(4))));
    EXPECT_FAILS(RF_EINVAL, "losses must not overlap lse",
                 rf_cross_entropy(stream, with(good, &A::lse, losses)));
    EXPECT_FAILS(RF_EINVAL, "dlogits", rf_cross_entropy(stream, with(good, &A::dlogits, four)));
    EXPECT_FAILS(RF_EINVAL, "vocabulary has no use",
                 rf_cross_entropy(stream, with(good, &A::vocabulary, 8)));
    EXPECT_FAILS(RF_EINVAL, "most has no use", rf_cross_entropy(stream, with(good, &A::most, two)));
}
} // namespace
