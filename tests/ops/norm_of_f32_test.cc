/* SPDX-License-Identifier: MIT
 *
 * Norms that read f32 and write 16 bits, forward and backward.
 */
#include "norm_cases.h"
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{

/* Rows in f32 between products of 16 bits: x, dx and the parameters are f32, out and dout are not.
 */
class NormOfF32 : public TypedOpTest
{
  protected:
    struct Inputs {
        Floats x, gamma, beta, dout, residual; /* only dout is of the type */
    };
    Inputs inputs(const Case &c)
    {
        return {normal(c.rows * c.C, 3), normal(c.C), normal(c.C), rounded(normal(c.rows * c.C)),
                normal(c.rows * c.C)};
    }
    static std::string name(const Case &c, const char *what)
    {
        return std::string(what) + " of " + std::to_string(c.rows) + " x " + std::to_string(c.C);
    }
    struct Results {
        Floats out, sum, mean, rstd, dx, accumulated, dgamma, dbeta;
    };
    /* With out and dout of `narrow`. */
    Results run(const Case &c, const Inputs &data, rf_dtype narrow, bool rms)
    {
        const rf_shape rows = rf_shape2(c.rows, c.C), row = rf_shape1(c.C), n = rf_shape1(c.rows);
        rf_tensor x = f32(rows, data.x), gamma = f32(row, data.gamma), beta = f32(row, data.beta),
                  r = f32(rows, data.residual, c.shift), out = typed_blank(rows, narrow, c.shift),
                  twin = typed_blank(rows, narrow), sum = blank(rows), mean = blank(n),
                  rstd = blank(n), dout = typed(rows, narrow, data.dout, c.shift),
                  dx = blank(rows, c.shift), onto = f32(rows, data.residual),
                  dgamma = f32(row, data.beta), dbeta = f32(row, data.gamma),
                  scratch = blank(rf_shape1(rf_norm_scratch(c.rows, c.C)));
        const rf_norm_args of_sum = {.rms = rms,
                                     .eps = EPS,
                                     .x = x,
                                     .residual = r,
                                     .gamma = gamma,
                                     .beta = rms ? rf_tensor{} : beta,
                                     .out = twin,
                                     .sum = sum,
                                     .mean = rms ? rf_tensor{} : mean,
                                     .rstd = rstd};
        rf_norm_args plain = with(of_sum, &rf_norm_args::out, out);
        plain.x = sum;
        plain.residual = plain.sum = {};
        EXPECT_OK(rf_norm(stream, of_sum));
        EXPECT_OK(rf_norm(stream, plain));
        EXPECT_OK(norm_input(stream, plain, dx, dout));
        EXPECT_OK(norm_input(stream, plain, onto, dout, true));
        EXPECT_OK(norm_weight(stream, plain, dgamma, rms ? rf_tensor{} : dbeta, dout, scratch));
        expect_same_bits(read(twin), read(out), name(c, "out of a sum"));
        return {read(out), read(sum),  read(mean),   read(rstd),
                read(dx),  read(onto), read(dgamma), read(dbeta)};
    }
};
INSTANTIATE_TEST_SUITE_P(Type, NormOfF32, ::testing::Values(RF_F16, RF_BF16),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Teams, NormOfF32,
                         ::testing::Values(TypeParam(RF_F16, true), TypeParam(RF_BF16, true)),
                         [](const auto &info) { return info.param.name(); });

TEST_P(NormOfF32, ForwardAndBackwardMatchTheReference)
{
    for (bool rms : {false, true})
        for (const Case &c : cases) {
            Inputs data = inputs(c);
            Floats sum = data.x;
            for (size_t i = 0; i < sum.size(); i++)
                sum[i] += data.residual[i];
            auto want =
                rms ? reference::rmsnorm(wide(sum), wide(data.gamma), EPS)
                    : reference::layernorm(wide(sum), wide(data.gamma), wide(data.beta), EPS);
            auto grad =
                rms ? reference::rmsnorm_backward(wide(data.dout), wide(sum), wide(data.gamma), EPS)
                    : reference::layernorm_backward(wide(data.dout), wide(sum), wide(data.gamma),
                                                    EPS);
            Results got = run(c, data, type(), rms);
            Doubles accumulated = grad.dx;
            for (size_t i = 0; i < sum.size(); i++)
                accumulated[i] += data.residual[i];
            for (int64_t k = 0; k < c.C; k++)
                grad.dgamma[k] += data.beta[k];
            expect_same_bits(got.sum, sum, name(c, "sum"));
            expect_near(got.rstd, want.rstd, TOLERANCE, name(c, "rstd"));
            expect_near(got.out, want.out, tolerance(dx_tolerance(c)), name(c, "out"));
            expect_near(got.dx, grad.dx, dx_tolerance(c), name(c, "dx"));
            expect_near(got.accumulated, accumulated, dx_tolerance(c), name(c, "accumulated dx"));
            expect_near(got.dgamma, grad.dgamma, dx_tolerance(c), name(c, "dgamma"));
            if (rms)
                continue;
            for (int64_t k = 0; k < c.C; k++)
                grad.dbeta[k] += data.gamma[k];
            expect_near(got.mean, want.mean, TOLERANCE, name(c, "mean"));
            expect_near(got.dbeta, grad.dbeta, TOLERANCE, name(c, "dbeta"));
        }
}

/* One rounding, at the store of out: everything else is as in a norm in f32. */
TEST_P(NormOfF32, IsTheNormOfF32RoundedOnceAtTheStore)
{
    for (bool rms : {false, true})
        for (const Case &c : {Case{33, 257, 1}, Case{7, 64, 0}}) {
            Inputs data = inputs(c);
            Results got = run(c, data, type(), rms), plain = run(c, data, RF_F32, rms);
            expect_same_bits(got.out, rounded(plain.out), name(c, "out"));
            expect_same_bits(got.mean, plain.mean, name(c, "mean"));
            expect_same_bits(got.rstd, plain.rstd, name(c, "rstd"));
            expect_same_bits(got.dx, plain.dx, name(c, "dx"));
            expect_same_bits(got.accumulated, plain.accumulated, name(c, "accumulated dx"));
            expect_same_bits(got.dgamma, plain.dgamma, name(c, "dgamma"));
            expect_same_bits(got.dbeta, plain.dbeta, name(c, "dbeta"));
        }
}

TEST_P(NormOfF32, WrongOperandsAreNamed)
{
    const rf_shape rows = rf_shape2(3, 8);
    rf_tensor x = blank(rows), y = out(rows), rstd = blank(rf_shape1(3));
    rf_tensor gamma = blank(rf_shape1(8)), narrow = out(rf_shape1(8)), over = y;
    rf_tensor scratch = blank(rf_shape1(rf_norm_scratch(3, 8)));
    const rf_norm_args good = {
        .rms = true, .eps = EPS, .x = x, .gamma = gamma, .out = y, .rstd = rstd};
    const rf_norm_args of_y = with(good, &rf_norm_args::x, y);
    EXPECT_FAILS(RF_EINVAL, "rmsnorm: x",
                 rf_norm(stream, with(good, &rf_norm_args::gamma, narrow)));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm: out",
                 rf_norm(stream, {.rms = true, .x = y, .gamma = narrow, .out = x, .rstd = rstd}));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm_backward_input: dx", norm_input(stream, good, y, y, true));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm_backward_input: dout",
                 norm_input(stream, with(of_y, &rf_norm_args::gamma, narrow), y, x, true));
    EXPECT_FAILS(RF_EINVAL, "rmsnorm_backward_weight: dout",
                 norm_weight(stream, of_y, narrow, {}, x, scratch));
    over.buffer = x.buffer; /* in place only if both are of one type */
    over.offset = x.offset;
    rf_tensor z = blank(rows);
    EXPECT_FAILS(RF_EINVAL, "dx must not overlap dout",
                 norm_input(stream, with(good, &rf_norm_args::x, z), x, over, true));
}

} // namespace
