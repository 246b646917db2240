/* SPDX-License-Identifier: MIT
 *
 * Softmax over rows, forward and backward.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
struct Case {
    int64_t rows, C;
    int shift;
};
const Case cases[] = {{1, 1, 0},   {1, 4, 0},    {3, 5, 0},  {7, 64, 0},   {9, 48, 1},
                      {33, 17, 0}, {2, 1031, 0}, {70, 2, 0}, {3, 4101, 0}, {3, 4104, 0}};

class Softmax : public TypedOpTest
{
  protected:
    static std::string name(const Case &c)
    {
        return std::to_string(c.rows) + " x " + std::to_string(c.C);
    }
};
ALL_TYPES_AND_TEAMS(Softmax);

TEST_P(Softmax, MatchesTheReferenceAlsoInPlace)
{
    for (const Case &c : cases) {
        rf_shape shape = rf_shape2(c.rows, c.C);
        Floats x = rounded(normal(c.rows * c.C, 4));
        rf_tensor from = in(shape, x), y = out(shape, c.shift);
        ASSERT_OK(rf_softmax(stream, y, from));
        /* exp of differences up to a few tens, each rounded to 2e-6. */
        expect_near(read(y), reference::softmax(wide(x), c.C), tolerance(3e-6), name(c));
        ASSERT_OK(rf_softmax(stream, from, from));
        expect_same_bits(read(from), read(y), name(c) + " in place");
    }
}

TEST_P(Softmax, BackwardMatchesTheReferenceAlsoInPlace)
{
    for (const Case &c : cases) {
        rf_shape shape = rf_shape2(c.rows, c.C);
        Floats x = normal(c.rows * c.C), dout = rounded(normal(c.rows * c.C));
        Doubles exact = reference::softmax(wide(x), c.C), want(exact.size());
        /* From the stored result. */
        Floats y = rounded(Floats(exact.begin(), exact.end()));
        for (size_t i = 0; i < y.size(); i++) {
            double sum = 0;
            for (size_t k = i / c.C * c.C; k < (i / c.C + 1) * c.C; k++)
                sum += (double)y[k] * dout[k];
            want[i] = y[i] * (dout[i] - sum);
        }
        rf_tensor d = in(shape, dout), dx = out(shape, c.shift), result = in(shape, y);
        ASSERT_OK(rf_softmax_backward(stream, dx, d, result));
        expect_near(read(dx), want, tolerance(2e-6), name(c));
        if (type() == RF_F32)
            expect_near(read(dx), reference::softmax_backward(wide(dout), wide(x), c.C), 2e-6,
                        name(c));
        ASSERT_OK(rf_softmax_backward(stream, d, d, result));
        expect_same_bits(read(d), read(dx), name(c) + " in place");
    }
}

/* Rows as long as a vocabulary: sums of that many terms must not lose digits, for any terms. */
TEST_F(OpTest, SoftmaxOverFiftyThousandColumnsAddsUpToOneWithinAMillionth)
{
    const int64_t rows = 4, columns = 50257;
    for (int64_t C :
         {columns, columns / 4 * 4}) { /* the builds for any row, and for aligned ones */
        Floats x = normal(rows * C, 4);
        for (int64_t k = 0; k < C; k++) {
            x[C + k] = 0.1f * x[k];      /* all of one size */
            x[2 * C + k] = k ? 0 : 0.7f; /* equal terms, which round the same way */
            x[3 * C + k] = k ? 0 : 2.3f;
        }
        rf_tensor y = blank(rf_shape2(rows, C));
        ASSERT_OK(rf_softmax(stream, y, f32(rf_shape2(rows, C), x)));
        Floats got = read(y);
        for (int64_t row = 0; row < rows; row++) {
            double sum = 0;
            for (int64_t k = 0; k < C; k++)
                sum += got[row * C + k];
            EXPECT_NEAR(sum, 1, 1e-6) << "row " << row << " of " << C;
        }
    }
}

TEST_P(Softmax, ExtremesStayFiniteAndMasksAreZero)
{
    const float inf = std::numeric_limits<float>::infinity();
    Floats x = rounded({6e4f, 6e4f, -6e4f, -inf, 0, -inf, -inf, -inf, -inf, -inf, -inf, -inf});
    rf_tensor y = out(rf_shape2(3, 4));
    ASSERT_OK(rf_softmax(stream, y, typed(rf_shape2(3, 4), type(), x)));
    Floats got = read(y);
    EXPECT_EQ(Floats(got.begin(), got.begin() + 8), Floats({0.5f, 0.5f, 0, 0, 1, 0, 0, 0}));
    EXPECT_TRUE(std::isnan(got[8]));
}

TEST_P(Softmax, TenRunsGiveTheSameBits)
{
    rf_shape shape = rf_shape2(19, 37);
    Floats x = rounded(normal(19 * 37)), first;
    rf_tensor from = in(shape, x);
    for (int run = 0; run < 10; run++) {
        rf_tensor y = out(shape);
        ASSERT_OK(rf_softmax(stream, y, from));
        first = run == 0 ? read(y) : first;
        expect_same_bits(read(y), first, "softmax");
    }
}

TEST_P(Softmax, WrongOperandsAreNamed)
{
    rf_tensor a = out(rf_shape2(2, 4)), b = out(rf_shape2(2, 5)), ids = blank_i32(8);
    EXPECT_FAILS(RF_EINVAL, "softmax: x", rf_softmax(stream, a, b));
    EXPECT_FAILS(RF_EINVAL, "out is i32", rf_softmax(stream, ids, a));
    EXPECT_FAILS(RF_EINVAL, "softmax_backward: dout", rf_softmax_backward(stream, a, b, a));
    EXPECT_FAILS(RF_EINVAL, "dx must not overlap out",
                 rf_softmax_backward(stream, a, out(rf_shape2(2, 4)), a));
}
} // namespace
