/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm, alone and of a sum, forward and backward.
 */
#include "norm_cases.h"
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{

class LayerNorm : public TypedOpTest
{
  protected:
    struct Inputs {
        Floats x, gamma, beta, dout;
    };
    Inputs inputs(const Case &c)
    {
        Inputs in = {normal(c.rows * c.C), rounded(normal(c.C)), rounded(normal(c.C)),
                     rounded(normal(c.rows * c.C))};
        for (int64_t i = 0; i < c.rows;
             i++) /* rows with large means: the variance must not cancel */
            for (int64_t k = 0; k < c.C; k++)
                in.x[i * c.C + k] += 3.0f * (float)(i % 4);
        in.x = rounded(in.x);
        return in;
    }
    rf_norm_args forward(const Case &c, const Inputs &data, bool rms = false)
    {
        const rf_shape rows = rf_shape2(c.rows, c.C), row = rf_shape1(c.C), n = rf_shape1(c.rows);
        const rf_norm_args args = {.rms = rms,
                                   .eps = EPS,
                                   .x = typed(rows, type(), data.x, c.shift), /* may have NaNs */
                                   .gamma = in(row, data.gamma),
                                   .beta = rms ? rf_tensor{} : in(row, data.beta),
                                   .out = out(rows, c.shift),
                                   .mean = rms ? rf_tensor{} : blank(n),
                                   .rstd = blank(n)};
        EXPECT_OK(rf_norm(stream, &args));
        return args;
    }
    int input(const rf_norm_args &forward, rf_tensor dx, rf_tensor dout, bool accumulate = false)
    {
        return norm_input(stream, forward, dx, dout, accumulate);
    }
    int weight(const rf_norm_args &forward, rf_tensor dgamma, rf_tensor dbeta, rf_tensor dout)
    {
        const int64_t rows = forward.rstd.shape.dim[0], C = rf_tensor_count(forward.gamma);
        return norm_weight(stream, forward, dgamma, dbeta, dout,
                           blank(rf_shape1(rf_norm_scratch(rows, C))));
    }
    static std::string name(const Case &c, const char *what)
    {
        return std::string(what) + " of " + std::to_string(c.rows) + " x " + std::to_string(c.C);
    }
};
ALL_TYPES_AND_TEAMS(LayerNorm);

TEST_P(LayerNorm, ForwardMatchesTheReference)
{
    for (const Case &c : cases) {
        Inputs data = inputs(c);
        auto want = reference::layernorm(wide(data.x), wide(data.gamma), wide(data.beta), EPS);
        rf_norm_args got = forward(c, data);
        expect_near(read(got.mean), want.mean, TOLERANCE, name(c, "mean"));
        expect_near(read(got.rstd), want.rstd, TOLERANCE, name(c, "rstd"));
        expect_near(read(got.out), want.out, tolerance(TOLERANCE), name(c, "out"));
    }
}

/* The difference of x to its mean, with a mean of 1e4: f32 has steps of 1e-3 there, so no result
 * can be nearer than half a step; the variance has no such limit. */
TEST_F(OpTest, LayerNormFarFromZeroIsAsAccurateAsItsMean)
{
    const int64_t rows = 8;
    const double half_step = 0x1p-11;
    for (auto [C, teams] :
         {std::pair<int64_t, bool>{767, false}, {4096, false}, {767, true}, {4096, true}}) {
        rf_device_force_teams(device, teams);
        Floats x = normal(rows * C), gamma(C, 1.0f), beta(C, 0.0f);
        for (float &v : x)
            v += 1e4f;
        auto want = reference::layernorm(wide(x), wide(gamma), wide(beta), EPS);
        rf_tensor y = blank(rf_shape2(rows, C)), mean = blank(rf_shape1(rows)),
                  rstd = blank(rf_shape1(rows));
        ASSERT_OK(rf_norm(stream, {.eps = EPS,
                                   .x = f32(rf_shape2(rows, C), x),
                                   .gamma = f32(rf_shape1(C), gamma),
                                   .beta = f32(rf_shape1(C), beta),
                                   .out = y,
                                   .mean = mean,
                                   .rstd = rstd}));
        expect_near(read(rstd), want.rstd, 1e-6, "rstd");
        Floats means = read(mean), got = read(y);
        for (int64_t row = 0; row < rows; row++) {
            EXPECT_NEAR(means[row], want.mean[row], 1.05 * half_step) << C;
            for (int64_t k = row * C; k < (row + 1) * C; k++)
                ASSERT_NEAR(got[k], want.out[k], 1.2 * half_step) << C << " row " << row;
        }
    }
}

TEST_F(OpTest, LayerNormOfAConstantRowIsBeta)
{
    const int64_t C = 300;
    int run = 0;
    for (float value : {0.1f, -7777.7f, 1e7f, 0.1f, -7777.7f, 1e7f}) {
        rf_device_force_teams(device, run++ >= 3);
        Floats beta = normal(C);
        rf_tensor y = blank(rf_shape2(1, C)), mean = blank(rf_shape1(1)),
                  rstd = blank(rf_shape1(1));
        ASSERT_OK(rf_norm(stream, {.eps = EPS,
                                   .x = f32(rf_shape2(1, C), Floats(C, value)),
                                   .gamma = f32(rf_shape1(C), normal(C)),
                                   .beta = f32(rf_shape1(C), beta),
                                   .out = y,
                                   .mean = mean,
                                   .rstd = rstd}));
        EXPECT_EQ(read(mean)[0], value);
        EXPECT_EQ(read(y), beta);
    }
}

TEST_P(LayerNorm, InputGradientMatchesTheReference)
{
    for (const Case &c : cases) {
        Inputs data = inputs(c);
        auto want =
            reference::layernorm_backward(wide(data.dout), wide(data.x), wide(data.gamma), EPS);
        rf_norm_args s = forward(c, data);
        rf_tensor dout = in(rf_shape2(c.rows, c.C), data.dout), dx = out(rf_shape2(c.rows, c.C));
        ASSERT_OK(input(s, dx, dout));
        Floats apart = read(dx);
        expect_near(apart, want.dx, tolerance(dx_tolerance(c)), name(c, "dx"));

        ASSERT_OK(input(s, dout, dout));
        expect_same_bits(read(dout), apart, name(c, "dx in place"));
    }
}

TEST_P(LayerNorm, InputGradientAccumulatesOntoTheResidual)
{
    for (const Case &c : cases) {
        Inputs data = inputs(c);
        rf_norm_args s = forward(c, data);
        Floats residual = rounded(normal(c.rows * c.C));
        rf_tensor dout = in(rf_shape2(c.rows, c.C), data.dout), dx = out(rf_shape2(c.rows, c.C));
        rf_tensor sum = in(rf_shape2(c.rows, c.C), residual);
        ASSERT_OK(input(s, dx, dout));
        ASSERT_OK(input(s, sum, dout, true));
        Doubles want =
            reference::layernorm_backward(wide(data.dout), wide(data.x), wide(data.gamma), EPS).dx;
        Floats apart = read(dx);
        for (size_t i = 0; i < apart.size(); i++) {
            want[i] += residual[i];
            apart[i] += residual[i];
        }
        expect_near(read(sum), want, tolerance(dx_tolerance(c)), name(c, "accumulated dx"));
        if (type() == RF_F32)
            expect_same_bits(read(sum), apart, name(c, "accumulated dx"));
    }
}

TEST_P(LayerNorm, WeightGradientAccumulatesAndMatchesTheReference)
{
    for (const Case &c : cases) {
        Inputs data = inputs(c);
        auto want =
            reference::layernorm_backward(wide(data.dout), wide(data.x), wide(data.gamma), EPS);
        rf_norm_args s = forward(c, data);
        Floats before = whole(2 * c.C);
        for (int64_t k = 0; k < c.C; k++) {
            want.dgamma[k] += before[k];
            want.dbeta[k] += before[c.C + k];
        }
        rf_tensor dgamma = f32(rf_shape1(c.C), Floats(before.begin(), before.begin() + c.C));
        rf_tensor dbeta = f32(rf_shape1(c.C), Floats(before.begin() + c.C, before.end()), c.shift);
        ASSERT_OK(weight(s, dgamma, dbeta, in(rf_shape2(c.rows, c.C), data.dout)));
        expect_near(read(dgamma), want.dgamma, TOLERANCE, name(c, "dgamma"));
        expect_near(read(dbeta), want.dbeta, TOLERANCE, name(c, "dbeta"));
    }
}

TEST_P(LayerNorm, WithoutBetaItIsThatOfABetaOfZero)
{
    for (const Case &c : cases) {
        Inputs data = inputs(c);
        data.beta = Floats(c.C);
        const rf_norm_args beta = forward(c, data);
        rf_norm_args bare = with(beta, &rf_norm_args::beta, {});
        bare.out = out(rf_shape2(c.rows, c.C), c.shift);
        ASSERT_OK(rf_norm(stream, bare));
        EXPECT_EQ(read(bare.out), read(beta.out)) << name(c, "out"); /* except zeros' signs */
        const rf_shape row = rf_shape1(c.C);
        rf_tensor dout = in(rf_shape2(c.rows, c.C), data.dout), dgamma = f32(row, Floats(c.C)),
                  dbeta = f32(row, Floats(c.C)), gamma_alone = f32(row, Floats(c.C)),
                  beta_alone = f32(row, Floats(c.C));
        ASSERT_OK(weight(beta, dgamma, dbeta, dout));
        ASSERT_OK(weight(beta, gamma_alone, {}, dout));
        expect_same_bits(read(gamma_alone), read(dgamma), name(c, "dgamma"));
        ASSERT_OK(weight(beta, {}, beta_alone, dout));
        expect_same_bits(read(beta_alone), read(dbeta), name(c, "dbeta"));
    }
}

TEST_P(LayerNorm, OfASumIsThatOfTheStoredSumAlsoInPlace)
{
    for (const Case &c : cases)
        for (int mode : {0, 1, 2}) { /* apart, sum = x, sum = residual */
            Inputs data = inputs(c);
            rf_shape shape = rf_shape2(c.rows, c.C);
            Floats residual = rounded(normal(c.rows * c.C)), sum(c.rows * c.C);
            for (size_t i = 0; i < sum.size(); i++)
                sum[i] = data.x[i] + residual[i];
            sum = rounded(sum);
            rf_tensor x = in(shape, data.x, c.shift), r = in(shape, residual),
                      stored = mode == 1   ? x
                               : mode == 2 ? r
                                           : out(shape);
            const rf_norm_args args = {.eps = EPS,
                                       .x = x,
                                       .residual = r,
                                       .gamma = in(rf_shape1(c.C), data.gamma),
                                       .beta = in(rf_shape1(c.C), data.beta),
                                       .out = out(shape),
                                       .sum = stored,
                                       .mean = blank(rf_shape1(c.rows)),
                                       .rstd = blank(rf_shape1(c.rows))};
            ASSERT_OK(rf_norm(stream, args));
            expect_same_bits(read(stored), sum, name(c, "sum"));
            data.x = sum;
            const rf_norm_args apart = forward(c, data);
            expect_same_bits(read(args.out), read(apart.out), name(c, "out"));
            expect_same_bits(read(args.mean), read(apart.mean), name(c, "mean"));
            expect_same_bits(read(args.rstd), read(apart.rstd), name(c, "rstd"));
        }
}

TEST_P(LayerNorm, AlignmentDoesNotChangeBits)
{
    for (int64_t C : {64, 20, 4100}) {
        Case c = {7, C, 0}, shifted = {7, C, 1};
        Inputs data = inputs(c);
        rf_norm_args s = forward(c, data), moved = forward(shifted, data);
        expect_same_bits(read(s.out), read(moved.out), "out");
        const rf_shape shape = rf_shape2(c.rows, C), row = rf_shape1(C);
        Floats dx[2], dgamma[2];
        for (int shift : {0, 1}) {
            rf_tensor d = in(shape, data.dout, shift), to = out(shape, shift),
                      sum = f32(row, Floats(C), shift);
            rf_norm_args from = s;
            from.x = in(shape, data.x, shift);
            from.gamma = in(row, data.gamma, shift);
            ASSERT_OK(input(from, to, d));
            ASSERT_OK(norm_weight(stream, from, sum, {}, d,
                                  blank(rf_shape1(rf_norm_scratch(c.rows, C)), shift)));
            dx[shift] = read(to);
            dgamma[shift] = read(sum);
        }
        expect_same_bits(dx[0], dx[1], "dx");
        expect_same_bits(dgamma[0], dgamma[1], "dgamma");
    }
}

TEST_P(LayerNorm, ARowDoesNotDependOnTheOthers)
{
    for (int64_t C : {20, 768}) {
        const Case all = {9, C, 0}, one = {1, C, 0};
        Inputs data = inputs(all);
        rf_norm_args s = forward(all, data);
        rf_tensor dx = out(rf_shape2(all.rows, C));
        ASSERT_OK(input(s, dx, in(rf_shape2(all.rows, C), data.dout)));
        const Floats y = read(s.out), gradient = read(dx);
        for (int64_t row : {0, 4, 8}) {
            auto part = [&](const Floats &from) {
                return Floats(from.begin() + row * C, from.begin() + (row + 1) * C);
            };
            Inputs own = data;
            own.x = part(data.x);
            rf_norm_args alone = forward(one, own);
            expect_same_bits(read(alone.out), part(y), "out");
            rf_tensor own_dx = out(rf_shape2(1, C));
            ASSERT_OK(input(alone, own_dx, in(rf_shape2(1, C), part(data.dout))));
            expect_same_bits(read(own_dx), part(gradient), "dx");
        }
    }
}

TEST_P(LayerNorm, NotANumberStaysInItsRow)
{
    for (int64_t C : {21, 768}) {
        const Case c = {6, C, 0};
        Inputs data = inputs(c);
        const Floats clean = read(forward(c, data).out);
        for (float bad : {NAN, INFINITY}) {
            data.x[2 * C + C / 3] = bad;
            rf_norm_args s = forward(c, data);
            const Floats y = read(s.out);
            for (int64_t i = 0; i < c.rows * C; i++)
                if (i / C == 2)
                    ASSERT_TRUE(std::isnan(y[i])) << bad << " of " << C << ", element " << i;
                else
                    ASSERT_EQ(y[i], clean[i]) << bad << " of " << C << ", element " << i;
            rf_tensor dx = out(rf_shape2(c.rows, C));
            ASSERT_OK(input(s, dx, in(rf_shape2(c.rows, C), data.dout)));
            const Floats gradient = read(dx);
            for (int64_t i = 0; i < c.rows * C; i++)
                ASSERT_EQ(std::isnan(gradient[i]), i / C == 2) << bad << ", element " << i;
        }
    }
}

TEST_P(LayerNorm, TenRunsGiveTheSameBits)
{
    const Case c = {200, 64, 0};
    Inputs data = inputs(c);
    rf_norm_args s = forward(c, data);
    Floats first;
    for (int run = 0; run < 10; run++) {
        rf_tensor both = f32(rf_shape2(2, c.C), Floats(2 * c.C)), dgamma, dbeta;
        ASSERT_OK(rf_tensor_rows(both, 0, 1, &dgamma));
        ASSERT_OK(rf_tensor_rows(both, 1, 1, &dbeta));
        ASSERT_OK(weight(s, dgamma, dbeta, in(rf_shape2(c.rows, c.C), data.dout)));
        Floats got = read(both);
        if (run == 0)
            first = got;
        expect_same_bits(got, first, "dgamma, dbeta");
    }
}

class RmsNorm : public LayerNorm
{
};
ALL_TYPES_AND_TEAMS(RmsNorm);

TEST_P(RmsNorm, ForwardMatchesTheReferenceAlsoOfASum)
{
    for (const Case &c : cases) {
        rf_shape shape = rf_shape2(c.rows, c.C);
        Inputs data = inputs(c);
        auto want = reference::rmsnorm(wide(data.x), wide(data.gamma), EPS);
        rf_norm_args args = forward(c, data, true);
        expect_near(read(args.out), want.out, tolerance(TOLERANCE), name(c, "out"));
        expect_near(read(args.rstd), want.rstd, TOLERANCE, name(c, "rstd"));

        Floats residual = rounded(normal(c.rows * c.C)), sum = data.x;
        for (size_t i = 0; i < sum.size(); i++)
            sum[i] += residual[i];
        sum = rounded(sum);
        args.residual = in(shape, residual);
        args.sum = args.x;
        ASSERT_OK(rf_norm(stream, args));
        data.x = sum;
        const rf_norm_args again = forward(c, data, true);
        expect_same_bits(read(args.sum), sum, name(c, "sum"));
        expect_same_bits(read(args.out), read(again.out), name(c, "out of a sum"));
    }
}

TEST_P(RmsNorm, BackwardMatchesTheReferenceAndAddsToTheResidual)
{
    for (const Case &c : cases) {
        rf_shape shape = rf_shape2(c.rows, c.C);
        Inputs data = inputs(c);
        auto want =
            reference::rmsnorm_backward(wide(data.dout), wide(data.x), wide(data.gamma), EPS);
        const rf_norm_args s = forward(c, data, true);
        rf_tensor dout = in(shape, data.dout), dx = out(shape);
        ASSERT_OK(input(s, dx, dout));
        expect_near(read(dx), want.dx, tolerance(dx_tolerance(c)), name(c, "dx"));

        Floats before = whole(c.C), residual = rounded(normal(c.rows * c.C));
        rf_tensor dgamma = f32(rf_shape1(c.C), before), sum = in(shape, residual);
        for (int64_t k = 0; k < c.C; k++)
            want.dgamma[k] += before[k];
        for (size_t i = 0; i < residual.size(); i++)
            want.dx[i] += residual[i];
        ASSERT_OK(input(s, sum, dout, true));
        expect_near(read(sum), want.dx, tolerance(dx_tolerance(c)), name(c, "accumulated dx"));
        ASSERT_OK(weight(s, dgamma, {}, dout));
        expect_near(read(dgamma), want.dgamma, TOLERANCE, name(c, "dgamma"));
    }
}

TEST_P(RmsNorm, TenRunsGiveTheSameBits)
{
    const Case c = {67, 37, 0};
    Inputs data = inputs(c);
    rf_shape shape = rf_shape2(c.rows, c.C);
    rf_tensor dout = in(shape, data.dout);
    Floats first;
    for (int run = 0; run < 10; run++) {
        rf_tensor dx = out(shape), dgamma = f32(rf_shape1(c.C), Floats(c.C));
        const rf_norm_args s = forward(c, data, true);
        ASSERT_OK(input(s, dx, dout));
        ASSERT_OK(weight(s, dgamma, {}, dout));
        Floats all = read(s.out);
        for (rf_tensor t : {dx, dgamma}) {
            Floats more = read(t);
            all.insert(all.end(), more.begin(), more.end());
        }
        first = run == 0 ? all : first;
        expect_same_bits(all, first, "out, dx, dgamma");
    }
}

TEST_P(RmsNorm, WrongOperandsAreNamed)
{
    rf_tensor x = out(rf_shape2(3, 8)), y = out(rf_shape2(3, 8)), r = out(rf_shape2(3, 8));
    rf_tensor sum = out(rf_shape2(3, 8)), rstd = blank(rf_shape1(3)), gamma = out(rf_shape1(8));
    rf_tensor seven = out(rf_shape2(3, 7));
    const rf_norm_args good = {
        .rms = true, .eps = EPS, .x = x, .gamma = gamma, .out = y, .rstd = rstd};
    rf_norm_args sums = good;
    sums.residual = r;
    sums.sum = sum;
    using A = rf_norm_args;
    EXPECT_FAILS(RF_EINVAL, "rmsnorm: out", rf_norm(stream, with(good, &A::out, seven)));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm: rstd", rf_norm(stream, with(good, &A::rstd, gamma)));
    EXPECT_FAILS(RF_EINVAL, "residual_rmsnorm: residual",
                 rf_norm(stream, with(sums, &A::residual, seven)));
    EXPECT_FAILS(RF_EINVAL, "residual_rmsnorm: residual has no buffer",
                 rf_norm(stream, with(sums, &A::residual, {})));
    EXPECT_FAILS(RF_EINVAL, "residual_rmsnorm: sum has no buffer",
                 rf_norm(stream, with(sums, &A::sum, {})));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap sum", rf_norm(stream, with(sums, &A::out, sum)));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap residual",
                 rf_norm(stream, with(sums, &A::out, r)));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm_backward_input: dx must not overlap x",
                 input(good, x, y, true));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm_backward_weight: scratch",
                 norm_weight(stream, good, gamma, {}, y, rstd));
}

TEST_P(LayerNorm, WrongOperandsAreNamed)
{
    rf_tensor x = blank(rf_shape2(3, 8)), out = blank(rf_shape2(3, 8));
    rf_tensor mean = blank(rf_shape1(3)), rstd = blank(rf_shape1(3));
    rf_tensor gamma = blank(rf_shape1(8)), beta = blank(rf_shape1(8)), seven = blank(rf_shape1(7));
    rf_tensor scratch = blank(rf_shape1(rf_norm_scratch(3, 8)));
    using A = rf_norm_args;
    const A good = {
        .eps = EPS, .x = x, .gamma = gamma, .beta = beta, .out = out, .mean = mean, .rstd = rstd};
    EXPECT_FAILS(RF_EINVAL, "x is f32 (3, 8), expected rows of 7",
                 rf_norm(stream, with(good, &A::gamma, seven)));
    EXPECT_FAILS(RF_EINVAL, "beta is f32 (7)", rf_norm(stream, with(good, &A::beta, seven)));
    EXPECT_FAILS(RF_EINVAL, "mean has no buffer", rf_norm(stream, with(good, &A::mean, {})));
    EXPECT_FAILS(RF_EINVAL, "rstd", rf_norm(stream, with(good, &A::rstd, seven)));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap x", rf_norm(stream, with(good, &A::out, x)));
    EXPECT_FAILS(RF_EINVAL, "mean must not overlap rstd",
                 rf_norm(stream, with(good, &A::rstd, mean)));
    EXPECT_FAILS(RF_EINVAL, "dx must not overlap x", input(good, x, out));
    EXPECT_FAILS(RF_EINVAL, "gamma has no buffer", input(with(good, &A::gamma, {}), out, out));
    EXPECT_FAILS(RF_EINVAL, "scratch is f32 (7), expected 16",
                 norm_weight(stream, good, gamma, beta, out, seven));
    EXPECT_FAILS(RF_EINVAL, "dgamma must not overlap dbeta",
                 norm_weight(stream, good, gamma, gamma, out, scratch));
}

TEST_P(LayerNorm, FieldsThatACallDoesNotUseAreRefused)
{
    using A = rf_norm_args;
    const rf_tensor x = blank(rf_shape2(3, 8)), C = blank(rf_shape1(8)), n = blank(rf_shape1(3));
    const struct {
        const char *name;
        rf_tensor A::*field;
        const char *calls; /* that use it: f, i and w, as in the header; R: not for RMSNorm */
    } fields[] = {
        {"residual", &A::residual, "f"}, {"gamma", &A::gamma, "fi"},   {"beta", &A::beta, "fR"},
        {"out", &A::out, "f"},           {"sum", &A::sum, "f"},        {"mean", &A::mean, "fiwR"},
        {"dout", &A::dout, "iw"},        {"dx", &A::dx, "i"},          {"dgamma", &A::dgamma, "w"},
        {"dbeta", &A::dbeta, "wR"},      {"scratch", &A::scratch, "w"}};
    const struct {
        char letter;
        int (*call)(rf_stream *, const A *);
    } calls[] = {{'f', rf_norm}, {'i', rf_norm_backward_input}, {'w', rf_norm_backward_weight}};
    for (bool rms : {false, true})
        for (const auto &c : calls)
            for (const auto &f : fields) {
                const std::string used = f.calls, text = std::string(f.name) + " has no use";
                A args = {.rms = rms, .x = x, .rstd = n};
                args.*f.field = C;
                const bool refused = used.find(c.letter) == std::string::npos ||
                                     (rms && used.find('R') != std::string::npos);
                EXPECT_EQ(c.call(stream, &args), RF_EINVAL); /* some field is always missing */
                EXPECT_EQ(std::string(rf_last_error()->message).find(text) != std::string::npos,
                          refused)
                    << c.letter << f.name << ": " << rf_last_error()->message;
            }
    EXPECT_FAILS(RF_EINVAL, "eps has no use", rf_norm_backward_input(stream, {.eps = EPS, .x = x}));
    EXPECT_FAILS(RF_EINVAL, "accumulate_dx has no use",
                 rf_norm(stream, {.x = x, .accumulate_dx = true}));
}
} // namespace
