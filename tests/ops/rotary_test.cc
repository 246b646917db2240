/* SPDX-License-Identifier: MIT
 *
 * Rotary embedding, forward and backward.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
struct Case {
    int64_t B, T, H, D;
    double theta;
    int64_t position;
    int shift;
    rf_rotary_scaling scaling = {};
};
const Case cases[] = {
    {1, 1, 1, 2, 10000, 0, 0},
    {2, 3, 2, 8, 10000, 0, 0},
    {1, 131, 3, 64, 10000, 7, 0},
    {2, 17, 1, 6, 10000, 100, 0},
    {1, 5, 2, 10, 500000, 0, 0},
    {2, 7, 4, 128, 500000, 131072, 0},
    {1, 9, 2, 256, 10000, 4096, 0},
    {1, 13, 2, 16, 1, 3, 0},
    {1, 11, 2, 32, 10000, 5, 1},
    {1, 3, 1, 64, 1e6, 2147483000, 0},
    // Llama 3.1 and 3.2; one pair between the limits, and all of them; no scaling; far positions.
    {1, 9, 2, 128, 500000, 120000, 0, {8, 1, 4, 8192}},
    {2, 7, 2, 64, 500000, 8190, 0, {32, 1, 4, 8192}},
    {1, 5, 2, 6, 10000, 77, 0, {4, 1, 4, 256}},
    {1, 6, 1, 32, 2, 5000, 0, {2.5, 0.001, 4096, 4096}},
    {1, 6, 1, 16, 10000, 300, 0, {1, 1, 2, 64}},
    {1, 3, 1, 64, 500000, 2147483000, 0, {8, 1, 4, 8192}},
};
/* Sines and cosines are accurate to about 1e-7, times two numbers near 1, up to 4. */
const double TOLERANCE = 2e-6;

class Rotary : public TypedOpTest
{
  protected:
    static rf_rotary_opts options(const Case &c, bool halves)
    {
        rf_rotary_opts opts = {};
        opts.theta = c.theta;
        opts.position = c.position;
        opts.halves = halves;
        opts.scaling = c.scaling;
        return opts;
    }
    static rf_shape shape(const Case &c)
    {
        return rf_shape3(c.B, c.T, c.H * c.D);
    }
    static rf_heads heads(rf_tensor tensor, const Case &c)
    {
        return rf_heads_in(tensor, c.D, 0, c.H);
    }
    static reference::RotarySize size(const Case &c, bool halves)
    {
        const rf_rotary_scaling &s = c.scaling;
        return {c.B,    c.T,      c.H,   c.D,    c.theta,           c.position,
                halves, s.factor, s.low, s.high, (double)s.original};
    }
    static std::string name(const Case &c, const char *what, bool halves)
    {
        return std::string(what) + " of T " + std::to_string(c.T) + " D " + std::to_string(c.D) +
               (halves ? " halves" : " neighbours");
    }
};
ALL_TYPES(Rotary);

TEST_P(Rotary, ForwardAndBackwardMatchTheReference)
{
    for (const Case &c : cases)
        for (bool halves : {false, true}) {
            Floats data = rounded(normal(rf_shape_count(shape(c))));
            rf_rotary_opts opts = options(c, halves);
            rf_tensor x = in(shape(c), data, c.shift), forth = out(shape(c)), back = out(shape(c));
            ASSERT_OK(rf_rotary(stream, heads(forth, c), heads(x, c), &opts));
            ASSERT_OK(rf_rotary_backward(stream, heads(back, c), heads(x, c), &opts));
            Doubles want = reference::rotary(wide(data), size(c, halves));
            Doubles want_back = reference::rotary_backward(wide(data), size(c, halves));
            expect_near(read(forth), want, tolerance(TOLERANCE), name(c, "out", halves));
            expect_near(read(back), want_back, tolerance(TOLERANCE), name(c, "dx", halves));
        }
}

TEST_P(Rotary, InPlaceAndInPackedRowsGivesTheSameBits)
{
    for (int64_t D : {16, 6}) {
        const Case c = {2, 19, 3, D, 10000, 5, 0};
        rf_rotary_opts opts = options(c, true);
        Floats data = rounded(normal(rf_shape_count(shape(c))));
        rf_tensor x = in(shape(c), data), apart = out(shape(c));
        ASSERT_OK(rf_rotary(stream, heads(apart, c), heads(x, c), &opts));
        Floats want = read(apart);
        ASSERT_OK(rf_rotary(stream, heads(x, c), heads(x, c), &opts));
        expect_same_bits(read(x), want, "in place");

        /* Rows of heads and as many others, which must not change. */
        const int64_t C = c.H * D;
        Floats packed;
        for (int64_t i = 0; i < c.B * c.T; i++) {
            packed.insert(packed.end(), C, 7.0f);
            packed.insert(packed.end(), data.begin() + i * C, data.begin() + (i + 1) * C);
        }
        rf_tensor qkv = in(rf_shape3(c.B, c.T, 2 * C), packed);
        rf_heads part = rf_heads_in(qkv, D, c.H, c.H);
        ASSERT_OK(rf_rotary(stream, part, part, &opts));
        for (int64_t i = 0; i < c.B * c.T; i++)
            std::copy(want.begin() + i * C, want.begin() + (i + 1) * C,
                      packed.begin() + (2 * i + 1) * C);
        expect_same_bits(read(qkv), packed, "packed");
    }
}

TEST_P(Rotary, PositionsGoOnWhereAnotherCallEnds)
{
    const Case all = {1, 40, 2, 32, 10000, 1000, 0};
    Case rest = all;
    rest.T = 7;
    rest.position = 1033;
    Floats data = rounded(normal(rf_shape_count(shape(all))));
    rf_tensor x = in(shape(all), data), whole = out(shape(all)), part = out(shape(rest));
    rf_rotary_opts opts = options(all, false), later = options(rest, false);
    ASSERT_OK(rf_rotary(stream, heads(whole, all), heads(x, all), &opts));
    rf_tensor tail = {}, lines = {};
    ASSERT_OK(rf_tensor_reshape(x, rf_shape2(40, 64), &lines));
    ASSERT_OK(rf_tensor_rows(lines, 33, 7, &tail));
    ASSERT_OK(rf_rotary(stream, heads(part, rest), heads(tail, rest), &later));
    Floats want = read(whole);
    want.erase(want.begin(), want.begin() + 33 * 64);
    expect_same_bits(read(part), want, "rows 33 to 39");
}

TEST_P(Rotary, TenRunsGiveTheSameBits)
{
    const Case c = {2, 70, 4, 64, 10000, 0, 0};
    rf_tensor x = in(shape(c), rounded(normal(rf_shape_count(shape(c)))));
    Floats first;
    for (int i = 0; i < 10; i++) {
        rf_tensor result = out(shape(c));
        ASSERT_OK(rf_rotary(stream, heads(result, c), heads(x, c), nullptr));
        Floats got = read(result);
        if (i == 0)
            first = got;
        expect_same_bits(got, first, "out");
    }
}

TEST_P(Rotary, WrongOperandsAreNamed)
{
    rf_tensor x = out(rf_shape3(2, 3, 24)), y = out(rf_shape3(2, 3, 24)), none = {};
    rf_heads in = rf_heads_in(x, 4, 0, 6), to = rf_heads_in(y, 4, 0, 6);
    rf_rotary_opts opts = {};
    EXPECT_OK(rf_rotary(stream, to, in, &opts));
    EXPECT_FAILS(RF_EINVAL, "x has no buffer",
                 rf_rotary(stream, to, rf_heads_in(none, 4, 0, 6), &opts));
    EXPECT_FAILS(RF_EINVAL, "does not lie within",
                 rf_rotary(stream, to, rf_heads_in(x, 4, 1, 6), &opts));
    EXPECT_FAILS(RF_EINVAL, "(2, 3, 5, 4)", rf_rotary(stream, rf_heads_in(y, 4, 0, 5), in, &opts));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap x",
                 rf_rotary(stream, rf_heads_in(x, 4, 0, 4), rf_heads_in(x, 4, 1, 4), &opts));
    EXPECT_FAILS(RF_EINVAL, "not pairs",
                 rf_rotary(stream, rf_heads_in(y, 3, 0, 8), rf_heads_in(x, 3, 0, 8), &opts));
    opts.theta = 0.5;
    EXPECT_FAILS(RF_EINVAL, "theta is 0.5", rf_rotary(stream, to, in, &opts));
    opts.theta = 0;
    opts.position = -1;
    EXPECT_FAILS(RF_EINVAL, "position -1", rf_rotary_backward(stream, to, in, &opts));
    opts.position = 0;
    for (rf_rotary_scaling wrong : {rf_rotary_scaling{0.5, 1, 4, 8192},
                                    {8, 4, 4, 8192},
                                    {8, 0, 4, 8192},
                                    {8, 1, 4, 0},
                                    {8, 1, 9000, 8192}}) {
        opts.scaling = wrong;
        EXPECT_FAILS(RF_EINVAL, "scaling by", rf_rotary(stream, to, in, &opts));
    }
}
} // namespace
