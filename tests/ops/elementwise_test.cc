/* SPDX-License-Identifier: MIT
 *
 * Add, multiply, scale, cast, copy, fill.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
const int64_t sizes[] = {1, 2, 4, 7, 64, 257, 1024, 1031, 40000};

class Elementwise : public TypedOpTest
{
};
ALL_TYPES(Elementwise);

/* The operations of one operand or two, and what an element of the result is: to the bit, or within
 * an error in f32, relative to 1 + |want|, for those that call functions. */
struct Operation {
    std::string name;
    int (*call)(rf_stream *stream, rf_tensor out, rf_tensor a, rf_tensor b);
    double (*want)(float a, float b);
    double error;
};
const Operation operations[] = {
    {"add", rf_add, [](float a, float b) -> double { return a + b; }, 0},
    {"mul", rf_mul, [](float a, float b) -> double { return a * b; }, 0},
    {"maximum", rf_maximum, [](float a, float b) -> double { return std::max(a, b); }, 0},
};

TEST_P(Elementwise, OperationsMatchTheReferenceAlsoInPlace)
{
    for (int64_t n : sizes)
        for (int mode : {0, 1, 2, 3}) { /* apart, out = a, out = b, apart and not aligned */
            const Floats a = rounded(normal(n)), b = rounded(normal(n));
            for (const Operation &op : operations) {
                Doubles want(n);
                for (int64_t i = 0; i < n; i++)
                    want[i] = op.want(a[i], b[i]);
                rf_tensor ta = in(rf_shape1(n), a, mode == 3), tb = in(rf_shape1(n), b);
                rf_tensor to = mode == 1 ? ta : mode == 2 ? tb : out(rf_shape1(n));
                ASSERT_OK(op.call(stream, to, ta, tb));
                const std::string what = op.name + " " + std::to_string(n);
                if (op.error > 0)
                    expect_near(read(to), want, tolerance(op.error), what);
                else
                    expect_same_bits(read(to), rounded(Floats(want.begin(), want.end())), what);
            }
        }
}

TEST_P(Elementwise, TheLargerOfTwoIsExactAlsoInPlaceAndNaNWhereOneIs)
{
    const auto put = [&](rf_tensor t, int64_t at, float value) {
        t.offset += (uint64_t)at * rf_dtype_bytes(t.dtype);
        t.shape = rf_shape1(1);
        ASSERT_OK(rf_fill(stream, t, value));
    };
    for (int64_t n : sizes)
        for (int mode : {0, 1, 2, 3}) { /* apart, out = a, out = b, apart and not aligned */
            Floats a = rounded(normal(n)), b = rounded(normal(n)), larger(n);
            a[0] = -INFINITY;
            for (int64_t i = 0; i < n; i++)
                larger[i] = std::max(a[i], b[i]);
            rf_tensor ta = in(rf_shape1(n), a, mode == 3), tb = in(rf_shape1(n), b);
            rf_tensor to = mode == 1 ? ta : mode == 2 ? tb : out(rf_shape1(n));
            if (n > 3) {
                put(ta, n / 2, NAN);
                put(tb, n / 2 + 1, NAN);
                larger[n / 2] = larger[n / 2 + 1] = NAN;
            }
            ASSERT_OK(rf_maximum(stream, to, ta, tb));
            const Floats got = read(to);
            for (int64_t i = 0; i < n; i++)
                ASSERT_TRUE(std::isnan(larger[i]) ? std::isnan(got[i]) : got[i] == larger[i])
                    << "element " << i << " of " << n << ": " << got[i];
        }
}

// Values are multiples of 1/8, so sums of three are exact in f32: there is one rounding.
TEST_P(Elementwise, RowsWithABiasAndAResidualAreRoundedOnceAlsoInPlaceAndWithABiasOfAnyType)
{
    auto eighths = [&](int64_t n) {
        Floats data = normal(n);
        for (float &x : data)
            x = std::round(x * 64) / 8;
        return data;
    };
    for (rf_dtype type : {GetParam().type, RF_F32}) // of the rows; the bias is of the test's type
        for (int64_t columns : {1, 3, 4, 12, 37, 256})
            for (int64_t rows : {1, 5, 130})
                for (int mode : {0, 1, 2, 3}) { /* apart, out = a, out = residual, not aligned */
                    const int64_t n = rows * columns;
                    const rf_shape shape = rf_shape2(rows, columns);
                    const Floats a = rounded_to(type, eighths(n)), r = rounded_to(type, eighths(n)),
                                 bias = rounded(eighths(columns));
                    Floats want(n);
                    for (int64_t i = 0; i < n; i++)
                        want[i] = (float)((double)a[i] + (double)bias[i % columns] + (double)r[i]);
                    rf_tensor ta = typed(shape, type, a), tr = typed(shape, type, r, mode == 3),
                              tb = in(rf_shape1(columns), bias);
                    rf_tensor to = mode == 1 ? ta : mode == 2 ? tr : typed_blank(shape, type);
                    ASSERT_OK(rf_add_bias(stream, to, ta, tb, tr));
                    expect_same_bits(read(to), rounded_to(type, want),
                                     "add_bias " + std::to_string(n));
                }
}

TEST_F(OpTest, RowsWithABiasRefuseABiasOfAnotherTypeOrLength)
{
    rf_tensor f = blank(rf_shape2(3, 8)), h = typed_blank(rf_shape2(3, 8), RF_F16),
              bias = blank(rf_shape1(8)), half = typed_blank(rf_shape1(8), RF_BF16);
    EXPECT_FAILS(RF_EINVAL, "add_bias: bias", rf_add_bias(stream, f, f, f, f));
    EXPECT_FAILS(RF_EINVAL, "must be of out's type, f16", rf_add_bias(stream, h, h, bias, h));
    EXPECT_FAILS(RF_EINVAL, "must be of out's type, f16", rf_add_bias(stream, h, h, half, h));
    EXPECT_FAILS(RF_EINVAL, "add_bias: residual", rf_add_bias(stream, f, f, bias, bias));
    EXPECT_FAILS(RF_EINVAL, "add_bias: a is", rf_add_bias(stream, f, h, bias, f));
}

TEST_P(Elementwise, ScaleIsExactAlsoInPlace)
{
    for (int64_t n : sizes) {
        Floats a = rounded(normal(n)), want(n);
        for (int64_t i = 0; i < n; i++)
            want[i] = a[i] * 0.3f;
        rf_tensor t = in(rf_shape1(n), a), scaled = out(rf_shape1(n), 3);
        ASSERT_OK(rf_scale(stream, scaled, t, 0.3f));
        ASSERT_OK(rf_scale(stream, t, t, 0.3f));
        expect_same_bits(read(scaled), rounded(want), "scale");
        expect_same_bits(read(t), rounded(want), "scale in place");
        for (rf_dtype to : float_types) { // and to another type
            rf_tensor other = typed_blank(rf_shape1(n), to);
            ASSERT_OK(rf_scale(stream, other, in(rf_shape1(n), a), 0.3f));
            expect_same_bits(read(other), rounded_to(to, want), "scale to another type");
        }
    }
}

/* As GPUs copy: any bits, including NaN and subnormal numbers. */
TEST_P(Elementwise, CopiesByAKernelKeepEveryBit)
{
    for (int64_t n : {8, 64, 1024, 40000}) {
        const size_t bytes = (size_t)n * rf_dtype_bytes(type());
        std::vector<uint32_t> bits(bytes / 4), got(bytes / 4);
        std::mt19937 random(3);
        for (uint32_t &word : bits)
            word = random() & 1 ? random() : random() | 0x7f800000u;
        bits[0] = 0x00000001, bits[1] = 0x7fa12345;
        rf_tensor from = words(rf_shape1(n), type(), bits.data(), 0), to = out(rf_shape1(n));
        rf_device_force_teams(device, true);
        ASSERT_OK(rf_copy(stream, to, from));
        rf_device_force_teams(device, false);
        ASSERT_OK(rf_stream_wait(stream));
        ASSERT_OK(rf_tensor_read(to, got.data(), bytes));
        EXPECT_EQ(got, bits) << n;
    }
}

TEST_P(Elementwise, CopyAndFillTouchTheirTensorOnly)
{
    for (int64_t n : sizes) {
        Floats a = rounded(normal(n));
        rf_tensor copy = out(rf_shape1(n), 4), from = in(rf_shape1(n), a, 8);
        ASSERT_OK(rf_copy(stream, copy, from));
        expect_same_bits(read(copy), a, "copy");
        for (int shift : {0, 2, 3}) {
            rf_tensor filled = out(rf_shape1(n), shift);
            ASSERT_OK(rf_fill(stream, filled, -1.5f));
            expect_same_bits(read(filled), Floats(n, -1.5f), "fill");
        }
    }
}

/* Every 16-bit value, there and back; a NaN may return as another NaN. */
TEST_P(Elementwise, CastsEveryHalfExactly)
{
    if (type() == RF_F32)
        return;
    bool bf16 = type() == RF_BF16;
    std::vector<uint16_t> halves(65536);
    for (size_t i = 0; i < halves.size(); i++)
        halves[i] = (uint16_t)i;
    rf_tensor packed = words(rf_shape1(65536), type(), halves.data(), 0);
    rf_tensor wide = blank(rf_shape1(65536)), again = out(rf_shape1(65536));
    ASSERT_OK(rf_cast(stream, wide, packed));
    ASSERT_OK(rf_cast(stream, again, wide));
    Floats values = read(wide), back = read(again);
    for (size_t i = 0; i < halves.size(); i++) {
        float want = oracle::from_half(halves[i], bf16);
        ASSERT_TRUE(std::isnan(want) ? std::isnan(values[i]) : bits_of(values[i]) == bits_of(want))
            << i << ": " << values[i] << " for " << want;
        ASSERT_TRUE(std::isnan(want) ? std::isnan(back[i]) : bits_of(back[i]) == bits_of(want))
            << i << ": " << back[i] << " for " << want;
    }
}

/* Random bit patterns, those around every tie, and the limits. */
TEST_P(Elementwise, CastRoundsToTheNearestEven)
{
    Floats x = {0.0f,          -0.0f,         HUGE_VALF, -HUGE_VALF,   NAN,           65504,
                65519.996f,    65520,         -65520,    3.4e38f,      5.9604645e-8f, 2.9802322e-8f,
                2.9802326e-8f, 8.9406967e-8f, 6.1e-5f,   6.1035156e-5f};
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)engine();
        x.push_back(float_of(bits));
        uint32_t exponent = 0x38000000u + (bits & 0x0f800000u); /* the range of f16 */
        for (uint32_t tie : {0x1000u, 0x8000u})
            for (int off : {-1, 0, 1})
                x.push_back(float_of(exponent + (bits >> 9 & ~(2 * tie - 1)) + tie + off));
    }
    for (float &v : x) /* f32 subnormals may be flushed */
        v = std::fpclassify(v) == FP_SUBNORMAL ? 0.0f : v;
    Floats want = rounded(x);
    for (int shift : {0, 1}) {
        rf_tensor to = out(rf_shape1(x.size()), shift);
        ASSERT_OK(rf_cast(stream, to, f32(rf_shape1(x.size()), x)));
        Floats got = read(to);
        for (size_t i = 0; i < x.size(); i++)
            ASSERT_TRUE(std::isnan(x[i]) ? std::isnan(got[i]) : bits_of(got[i]) == bits_of(want[i]))
                << x[i] << " became " << got[i] << ", not " << want[i];
    }
}

TEST_P(Elementwise, WhetherSubnormalNumbersAreFlushedIsKnownOfTheDevice)
{
    const Floats least(3, std::numeric_limits<float>::min()), x = {1e-40f, 1e-40f, 1e-40f};
    const char *before = getenv("RF_FLUSH_SUBNORMALS");
    const std::string kept = before ? before : "";
    bool flushes = true;
    setenv("RF_FLUSH_SUBNORMALS", "auto", 1);
    EXPECT_OK(rf_device_flushes_subnormals(device, &flushes));
    for (const Floats &a : {least, x}) {
        rf_tensor to = typed_blank(rf_shape1(3), RF_F32, 0);
        ASSERT_OK(rf_scale(stream, to, f32(rf_shape1(3), a), 0.5f));
        EXPECT_TRUE(flushes || read(to)[0] == a[0] / 2);
    }
    for (const char *forced : {"1", "0"}) {
        setenv("RF_FLUSH_SUBNORMALS", forced, 1);
        EXPECT_OK(rf_device_flushes_subnormals(device, &flushes));
        EXPECT_EQ(flushes, forced[0] == '1');
    }
    setenv("RF_FLUSH_SUBNORMALS", "yes", 1);
    EXPECT_FAILS(RF_EINVAL, "it has to be auto, 0 or 1",
                 rf_device_flushes_subnormals(device, &flushes));
    setenv("RF_FLUSH_SUBNORMALS", kept.c_str(), 1);
}

TEST_P(Elementwise, CastsBetweenAnyTwoTypesAtAnyPlace)
{
    for (int64_t n : sizes)
        for (rf_dtype from : float_types)
            for (int shift : {0, 1, 2, 3}) {
                Floats a = rounded_to(from, normal(n));
                rf_tensor source = typed(rf_shape1(n), from, a, shift);
                rf_tensor to = out(rf_shape1(n), 3 - shift);
                ASSERT_OK(rf_cast(stream, to, source));
                expect_same_bits(read(to), rounded(a), "cast");
            }
}

TEST_P(Elementwise, WrongOperandsAreNamed)
{
    rf_tensor a = blank(rf_shape1(8)), b = blank(rf_shape1(9)), none = {};
    rf_tensor ids = blank_i32(8), part, other;
    ASSERT_OK(rf_tensor_rows(b, 0, 8, &part));
    ASSERT_OK(rf_tensor_rows(b, 1, 8, &other));
    EXPECT_FAILS(RF_EINVAL, "add: b is f32 (9)", rf_add(stream, a, a, b));
    EXPECT_FAILS(RF_EINVAL, "mul: a is f32 (9)", rf_mul(stream, a, b, a));
    EXPECT_FAILS(RF_EINVAL, "add: out must not overlap a", rf_add(stream, part, other, a));
    EXPECT_FAILS(RF_EINVAL, "scale: a has no buffer", rf_scale(stream, a, none, 1));
    EXPECT_FAILS(RF_EINVAL, "expected f32", rf_scale(stream, a, ids, 1));
    EXPECT_FAILS(RF_EINVAL, "cast: a", rf_cast(stream, a, b));
    EXPECT_FAILS(RF_EINVAL, "cast: out is i32", rf_cast(stream, ids, a));
    EXPECT_FAILS(RF_EINVAL, "copy: a", rf_copy(stream, a, b));
    EXPECT_FAILS(RF_EINVAL, "copy: out must not overlap", rf_copy(stream, part, other));
    EXPECT_FAILS(RF_EINVAL, "fill: out", rf_fill(stream, ids, 1));
}
} // namespace
