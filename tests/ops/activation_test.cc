/* SPDX-License-Identifier: MIT
 *
 * Activations and gated units, forward and backward, each kind in each type.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
const int64_t sizes[] = {1, 2, 4, 7, 64, 257, 1024, 1031, 40000};

struct Row {
    rf_activation kind;
    const char *name;
    double forward, slope; /* tolerances in f32 */
};
/* A few roundings, and exp of an argument whose error grows with it. */
const Row rows[] = {{RF_ACT_NONE, "none", 0, 0},
                    {RF_ACT_GELU, "gelu", 2e-6, 4e-6},
                    {RF_ACT_GELU_ERF, "gelu_erf", 2e-6, 2e-6},
                    {RF_ACT_RELU, "relu", 0, 0},
                    {RF_ACT_SILU, "silu", 1e-6, 2e-6},
                    {RF_ACT_SIGMOID, "sigmoid", 1e-6, 1e-6},
                    {RF_ACT_TANH, "tanh", 1e-6, 1e-6}};

class Activation : public TypedOpTest
{
  protected:
    /* Ordinary values and both far ends. */
    Floats inputs(int64_t n)
    {
        const float ends[] = {0, -0.0f, 20, -20, 1e4f, -1e4f, 1e-20f, -5, 5};
        Floats x = normal(n, 2);
        for (int64_t i = 0; i < n && i < 9; i++)
            x[n - 1 - i] = ends[i];
        return rounded(x);
    }
};
ALL_TYPES(Activation);

TEST_P(Activation, MatchesTheReferenceAlsoInPlace)
{
    ASSERT_EQ(std::size(rows), (size_t)RF_ACTIVATION_COUNT);
    for (const Row &row : rows)
        for (int64_t n : sizes)
            for (int mode : {0, 1, 2}) { /* apart, apart and not aligned, in place */
                Floats x = inputs(n);
                Doubles want;
                for (float v : x)
                    want.push_back(reference::activation(row.kind, v));
                rf_tensor from = in(rf_shape1(n), x);
                rf_tensor y = mode == 2 ? from : out(rf_shape1(n), mode);
                ASSERT_OK(rf_activate(stream, row.kind, y, from));
                expect_near(read(y), want, tolerance(row.forward), row.name);
            }
}

TEST_P(Activation, BackwardMatchesTheReferenceAlsoInPlace)
{
    for (const Row &row : rows)
        for (int64_t n : sizes)
            for (int mode : {0, 1, 2, 3}) { /* apart, not aligned, dx = dout, dx = x */
                Floats x = inputs(n), dout = rounded(normal(n));
                Doubles want;
                for (int64_t i = 0; i < n; i++)
                    want.push_back(reference::activation_slope(row.kind, x[i]) * dout[i]);
                rf_tensor tx = in(rf_shape1(n), x), d = in(rf_shape1(n), dout);
                rf_tensor dx = mode == 2 ? d : mode == 3 ? tx : out(rf_shape1(n), mode);
                ASSERT_OK(rf_activate_backward(stream, row.kind, dx, d, tx));
                expect_near(read(dx), want, tolerance(row.slope), row.name);
            }
}

/* Far left of zero, results keep their leading digits until they are below the resolution of a
 * result near zero. The argument of GELU's exp is -85 at -9.9; its roundings and exp itself
 * (Vulkan: 2 units in the last place for each 1) contribute about 1e-5 of the result. */
TEST_P(Activation, SmallResultsAreRelativelyAccurate)
{
    Floats x = {-1e-3f, -0.5f, -1, -2, -3, -4, 1e-4f, 1e-3f};
    if (type() != RF_F16) /* it has no such numbers */
        x.insert(x.end(), {-5, -5.5f, -6, -7, -8, -9, -9.5f, -9.9f});
    x = rounded(x);
    const rf_shape shape = rf_shape1((int64_t)x.size());
    for (const Row &row : rows) {
        rf_tensor y = out(shape);
        ASSERT_OK(rf_activate(stream, row.kind, y, in(shape, x)));
        Floats got = read(y);
        for (size_t i = 0; i < x.size(); i++) {
            double want = reference::activation(row.kind, x[i]);
            double error = tolerance(x[i] < -4 ? 1e-4 : 1e-5) * std::fabs(want);
            EXPECT_NEAR(got[i], want, error) << row.name << " " << x[i];
        }
    }
}

TEST_P(Activation, NotANumberSurvivesAndInfinityIsPassedOn)
{
    const float inf = std::numeric_limits<float>::infinity();
    for (const Row &row : rows) {
        rf_tensor y = out(rf_shape1(2)), x = typed(rf_shape1(2), type(), {NAN, inf});
        ASSERT_OK(rf_activate(stream, row.kind, y, x));
        Floats got = read(y);
        EXPECT_TRUE(std::isnan(got[0])) << row.name << ": " << got[0];
        EXPECT_EQ(got[1], row.kind == RF_ACT_SIGMOID || row.kind == RF_ACT_TANH ? 1.0f : inf)
            << row.name;
    }
}

class Glu : public TypedOpTest
{
  protected:
    struct Size {
        int64_t rows, columns;
        int shift;
    };
    static inline const Size shapes[] = {{1, 1, 0},  {1, 4, 0},   {3, 5, 0},  {7, 64, 0},
                                         {5, 64, 1}, {31, 48, 0}, {2, 257, 0}};
    struct Data {
        Floats gate, up, dout;
    };
    Data data(const Size &s)
    {
        int64_t n = s.rows * s.columns;
        return {rounded(normal(n, 2)), rounded(normal(n)), rounded(normal(n))};
    }
    /* (rows, columns) twice to (rows, 2 columns). */
    static Floats joined(const Floats &a, const Floats &b, const Size &s)
    {
        Floats both;
        for (int64_t i = 0; i < s.rows; i++) {
            both.insert(both.end(), &a[i * s.columns], &a[i * s.columns] + s.columns);
            both.insert(both.end(), &b[i * s.columns], &b[i * s.columns] + s.columns);
        }
        return both;
    }
};
ALL_TYPES(Glu);

TEST_P(Glu, MatchesTheReferenceFromTwoTensorsAndFromHalves)
{
    for (const Row &row : rows)
        for (const Size &s : shapes) {
            Data d = data(s);
            Doubles want = reference::glu(row.kind, wide(d.gate), wide(d.up));
            rf_shape one = rf_shape2(s.rows, s.columns), two = rf_shape2(s.rows, 2 * s.columns);
            rf_tensor apart = out(one, s.shift), halves = out(one, s.shift);
            rf_tensor gate = in(one, d.gate), up = in(one, d.up, s.shift);
            ASSERT_OK(rf_glu(stream, row.kind, apart, gate, up));
            ASSERT_OK(rf_glu(stream, row.kind, halves, in(two, joined(d.gate, d.up, s)), {}));
            expect_near(read(apart), want, tolerance(4e-6), row.name);
            expect_same_bits(read(halves), read(apart), row.name);
            ASSERT_OK(rf_glu(stream, row.kind, up, gate, up));
            expect_same_bits(read(up), read(apart), row.name);
        }
}

TEST_P(Glu, BackwardGivesBothGradientsAlsoInPlace)
{
    for (const Row &row : rows)
        for (const Size &s : shapes) {
            Data d = data(s);
            auto want = reference::glu_backward(row.kind, wide(d.dout), wide(d.gate), wide(d.up));
            rf_shape one = rf_shape2(s.rows, s.columns), two = rf_shape2(s.rows, 2 * s.columns);
            rf_tensor gate = in(one, d.gate), up = in(one, d.up), dout = in(one, d.dout);
            rf_tensor dgate = out(one, s.shift), dup = out(one);
            ASSERT_OK(rf_glu_backward(stream, row.kind, gate, up, {dout, dgate, dup}));
            /* Three factors; up and dout may be a few units. */
            expect_near(read(dgate), want.dgate, tolerance(1e-5), row.name);
            expect_near(read(dup), want.dup, tolerance(1e-5), row.name);
            Floats both = joined(read(dgate), read(dup), s);

            rf_tensor halves = in(two, joined(d.gate, d.up, s), s.shift);
            ASSERT_OK(rf_glu_backward(stream, row.kind, halves, {}, {dout, halves, {}}));
            Floats in_halves = read(halves);
            ASSERT_OK(rf_glu_backward(stream, row.kind, gate, up, {dout, gate, up}));
            Floats in_place = joined(read(gate), read(up), s);
            if (s.shift == 0) {
                expect_same_bits(in_halves, both, row.name);
                expect_same_bits(in_place, both, row.name);
            } else { /* different builds: on some drivers exp of four differs from exp of one */
                Doubles all = wide(both);
                expect_near(in_halves, all, tolerance(1e-6), row.name);
                expect_near(in_place, all, tolerance(1e-6), row.name);
            }
        }
}

TEST_P(Glu, TenRunsGiveTheSameBits)
{
    const Size s = {13, 37, 0};
    Data d = data(s);
    rf_shape one = rf_shape2(s.rows, s.columns);
    rf_tensor gate = in(one, d.gate), up = in(one, d.up);
    Floats first;
    for (int run = 0; run < 10; run++) {
        rf_tensor y = out(one);
        ASSERT_OK(rf_glu(stream, RF_ACT_SILU, y, gate, up));
        first = run == 0 ? read(y) : first;
        expect_same_bits(read(y), first, "swiglu");
    }
}

TEST_P(Glu, WrongOperandsAreNamed)
{
    rf_tensor a = out(rf_shape2(2, 8)), b = out(rf_shape2(2, 8)), c = out(rf_shape2(2, 8));
    rf_tensor both = out(rf_shape2(2, 16)), odd = out(rf_shape2(2, 9));
    rf_tensor ids = blank_i32(16), left, middle;
    ASSERT_OK(rf_tensor_rows(out(rf_shape2(3, 8)), 0, 2, &left));
    middle = left;
    middle.offset += 8 * rf_dtype_bytes(type());
    EXPECT_FAILS(RF_EINVAL, "glu: unknown activation 77",
                 rf_glu(stream, (rf_activation)77, a, b, c));
    EXPECT_FAILS(RF_EINVAL, "glu: gate", rf_glu(stream, RF_ACT_SILU, a, odd, c));
    EXPECT_FAILS(RF_EINVAL, "expected (2, 16)", rf_glu(stream, RF_ACT_SILU, a, b, {}));
    EXPECT_FAILS(RF_EINVAL, "glu: out is i32", rf_glu(stream, RF_ACT_SILU, ids, b, c));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap gate",
                 rf_glu(stream, RF_ACT_SILU, left, middle, c));
    EXPECT_FAILS(RF_EINVAL, "dgate must not overlap up",
                 rf_glu_backward(stream, RF_ACT_SILU, b, c, {a, c, out(rf_shape2(2, 8))}));
    EXPECT_FAILS(RF_EINVAL, "glu_backward: dup",
                 rf_glu_backward(stream, RF_ACT_SILU, b, c, {a, out(rf_shape2(2, 8)), odd}));
    EXPECT_FAILS(RF_EINVAL, "glu_backward: up",
                 rf_glu_backward(stream, RF_ACT_SILU, b, odd, {a, both, {}}));
    EXPECT_FAILS(RF_EINVAL, "dgate must not overlap dout",
                 rf_glu_backward(stream, RF_ACT_SILU, b, out(rf_shape2(2, 8)), {a, a, c}));
    EXPECT_FAILS(RF_EINVAL, "activate: unknown activation",
                 rf_activate(stream, RF_ACTIVATION_COUNT, a, b));
    EXPECT_FAILS(RF_EINVAL, "activate: x", rf_activate(stream, RF_ACT_RELU, a, odd));
    EXPECT_FAILS(RF_EINVAL, "overlap", rf_activate(stream, RF_ACT_RELU, left, middle));
    EXPECT_FAILS(RF_EINVAL, "activate_backward: dout",
                 rf_activate_backward(stream, RF_ACT_RELU, a, odd, b));
}
} // namespace
