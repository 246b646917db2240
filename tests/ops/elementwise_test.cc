/* SPDX-License-Identifier: MIT
 *
 * GELU, add, scale, copy, fill.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
const int64_t sizes[] = {1, 2, 4, 7, 64, 257, 1024, 1031, 40000};

class Elementwise : public OpTest
{
  protected:
    /* Ordinary values and both far ends. */
    Floats inputs(int64_t n)
    {
        const float ends[] = {0, -0.0f, 20, -20, 1e4f, -1e4f, 1e-20f, -5, 5};
        Floats x = normal(n, 2);
        for (int64_t i = 0; i < n && i < 9; i++)
            x[n - 1 - i] = ends[i];
        return x;
    }
};

TEST_F(Elementwise, GeluMatchesTheReference)
{
    for (int64_t n : sizes)
        for (int shift : {0, 1}) {
            Floats x = inputs(n);
            Doubles want;
            for (float v : x)
                want.push_back(reference::gelu(v));
            rf_tensor out = blank(rf_shape1(n), shift);
            ASSERT_OK(rf_gelu(stream, out, f32(rf_shape1(n), x)));
            /* A few roundings, and exp of an argument whose error grows with it. */
            expect_near(read(out), want, 2e-6, "gelu of " + std::to_string(n));
        }
}

TEST_F(Elementwise, GeluBackwardMatchesTheReferenceAlsoInPlace)
{
    for (int64_t n : sizes)
        for (bool in_place : {false, true}) {
            Floats x = inputs(n), dout = normal(n);
            Doubles want;
            for (int64_t i = 0; i < n; i++)
                want.push_back(reference::gelu_slope(x[i]) * dout[i]);
            rf_tensor d = f32(rf_shape1(n), dout), out = in_place ? d : blank(rf_shape1(n));
            ASSERT_OK(rf_gelu_backward(stream, out, d, f32(rf_shape1(n), x)));
            expect_near(read(out), want, 4e-6, "dgelu of " + std::to_string(n));
        }
}

TEST_F(Elementwise, AddIsExactAlsoInPlace)
{
    for (int64_t n : sizes)
        for (int mode : {0, 1, 2, 3}) { /* apart, out = a, out = b, apart and not aligned */
            Floats a = normal(n), b = normal(n), want(n);
            for (int64_t i = 0; i < n; i++)
                want[i] = a[i] + b[i];
            rf_tensor ta = f32(rf_shape1(n), a, mode == 3), tb = f32(rf_shape1(n), b);
            rf_tensor out = mode == 1 ? ta : mode == 2 ? tb : blank(rf_shape1(n));
            ASSERT_OK(rf_add(stream, out, ta, tb));
            expect_same_bits(read(out), want, "add " + std::to_string(n));
        }
}

TEST_F(Elementwise, ScaleIsExactAlsoInPlace)
{
    for (int64_t n : sizes) {
        Floats a = normal(n), want(n);
        for (int64_t i = 0; i < n; i++)
            want[i] = a[i] * 0.3f;
        rf_tensor t = f32(rf_shape1(n), a), out = blank(rf_shape1(n), 3);
        ASSERT_OK(rf_scale(stream, out, t, 0.3f));
        ASSERT_OK(rf_scale(stream, t, t, 0.3f));
        expect_same_bits(read(out), want, "scale");
        expect_same_bits(read(t), want, "scale in place");
    }
}

TEST_F(Elementwise, CopyAndFillTouchTheirTensorOnly)
{
    for (int64_t n : sizes) {
        Floats a = normal(n);
        rf_tensor out = blank(rf_shape1(n), 1), filled = blank(rf_shape1(n), 2);
        ASSERT_OK(rf_copy(stream, out, f32(rf_shape1(n), a, 3)));
        ASSERT_OK(rf_fill(stream, filled, -1.5f));
        expect_same_bits(read(out), a, "copy");
        expect_same_bits(read(filled), Floats(n, -1.5f), "fill");
    }
}

TEST_F(Elementwise, WrongOperandsAreNamed)
{
    rf_tensor a = blank(rf_shape1(8)), b = blank(rf_shape1(9)), none = {};
    rf_tensor ids = blank_i32(8), part, other;
    ASSERT_OK(rf_tensor_rows(b, 0, 8, &part));
    ASSERT_OK(rf_tensor_rows(b, 1, 8, &other));
    EXPECT_FAILS(RF_EINVAL, "gelu: x", rf_gelu(stream, a, b));
    EXPECT_FAILS(RF_EINVAL, "overlap", rf_gelu(stream, a, a));
    EXPECT_FAILS(RF_EINVAL, "gelu_backward: dout", rf_gelu_backward(stream, a, b, a));
    EXPECT_FAILS(RF_EINVAL, "add: b is f32 (9)", rf_add(stream, a, a, b));
    EXPECT_FAILS(RF_EINVAL, "add: out must not overlap a", rf_add(stream, part, other, a));
    EXPECT_FAILS(RF_EINVAL, "scale: a has no buffer", rf_scale(stream, a, none, 1));
    EXPECT_FAILS(RF_EINVAL, "expected f32", rf_scale(stream, a, ids, 1));
    EXPECT_FAILS(RF_EINVAL, "copy: a", rf_copy(stream, a, b));
    EXPECT_FAILS(RF_EINVAL, "copy: out must not overlap", rf_copy(stream, part, other));
    EXPECT_FAILS(RF_EINVAL, "fill: out", rf_fill(stream, ids, 1));
}
} // namespace
