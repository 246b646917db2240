/* SPDX-License-Identifier: MIT
 *
 * Kernels of text generation: products of few rows, the cache, attention to it.
 */
#include "op_fixture.h"

namespace
{
class Gemv : public TypedOpTest
{
};
ALL_TYPES(Gemv);

struct Size {
    int64_t rows, columns, terms;
    int shift;
};
const Size sizes[] = {{1, 1, 1, 0},     {1, 9, 128, 0}, {2, 33, 260, 0}, {3, 8, 131, 0},
                      {5, 70, 1024, 0}, {8, 16, 64, 1}, {11, 25, 96, 0}};

rf_tensor none()
{
    return rf_tensor{};
}

TEST_P(Gemv, MatchesTheReferenceWithBiasAndResidual)
{
    for (const Size &s : sizes)
        for (bool extra : {false, true}) {
            const Floats x = rounded(normal(s.rows * s.terms)),
                         w = rounded(normal(s.columns * s.terms)), b = rounded(normal(s.columns)),
                         r = rounded(normal(s.rows * s.columns));
            rf_tensor out = this->out(rf_shape2(s.rows, s.columns), s.shift);
            const rf_tensor bias = in(rf_shape1(s.columns), b),
                            residual = in(rf_shape2(s.rows, s.columns), r);
            rf_gemv_opts opts = {};
            opts.bias = &bias;
            opts.residual = &residual;
            ASSERT_OK(rf_gemv(stream, out, in(rf_shape2(s.rows, s.terms), x, s.shift),
                              in(rf_shape2(s.columns, s.terms), w, s.shift),
                              extra ? &opts : nullptr));
            Doubles want(s.rows * s.columns);
            for (int64_t i = 0; i < s.rows; i++)
                for (int64_t j = 0; j < s.columns; j++) {
                    double sum = extra ? (double)b[j] + r[i * s.columns + j] : 0;
                    for (int64_t k = 0; k < s.terms; k++)
                        sum += (double)x[i * s.terms + k] * w[j * s.terms + k];
                    want[i * s.columns + j] = sum;
                }
            /* Sums of up to 1024 products of numbers near 1. */
            expect_near(read(out), want, tolerance(3e-5), std::to_string(s.terms) + " terms");
        }
}

TEST_P(Gemv, WritesF32WithAnF32ResidualInPlace)
{
    const int64_t n = 3, N = 21, K = 100;
    const Floats x = rounded(normal(n * K)), w = rounded(normal(N * K)), r = normal(n * N);
    rf_tensor out = f32(rf_shape2(n, N), r);
    rf_gemv_opts opts = {};
    opts.residual = &out;
    ASSERT_OK(rf_gemv(stream, out, in(rf_shape2(n, K), x), in(rf_shape2(N, K), w), &opts));
    Doubles want(n * N);
    for (int64_t i = 0; i < n * N; i++) {
        want[i] = r[i];
        for (int64_t k = 0; k < K; k++)
            want[i] += (double)x[i / N * K + k] * w[i % N * K + k];
    }
    expect_near(read(out), want, 1e-5, "f32 sums");
}

TEST_P(Gemv, ARowHasTheSameBitsInEveryCall)
{
    for (int64_t K : {256, 90}) {
        const int64_t n = 13, N = 40;
        const Floats x = rounded(normal(n * K)), w = rounded(normal(N * K));
        rf_tensor all = out(rf_shape2(n, N)), rows = in(rf_shape2(n, K), x),
                  weight = in(rf_shape2(N, K), w);
        ASSERT_OK(rf_gemv(stream, all, rows, weight, nullptr));
        const Floats want = read(all);
        for (int64_t count : {1, 2, 3, 5, 8})
            for (int64_t first = 0; first + count <= n; first += count) {
                rf_tensor some = {}, part = out(rf_shape2(count, N));
                ASSERT_OK(rf_tensor_rows(rows, first, count, &some));
                ASSERT_OK(rf_gemv(stream, part, some, weight, nullptr));
                expect_same_bits(
                    read(part),
                    Floats(want.begin() + first * N, want.begin() + (first + count) * N),
                    std::to_string(count) + " rows");
            }
    }
}

/* ---- quantised weights ----------------------------------------------------------------------- */

class QuantizedGemv : public OpTest, public ::testing::WithParamInterface<rf_quantization>
{
  protected:
    /* Elements whose sizes vary from block to block; `values` gets the values that kernels compute
     * with. */
    rf_tensor packed(int64_t count)
    {
        Floats weights = normal(count);
        for (int64_t i = 0; i < count; i++)
            weights[i] *= 0.01F * (float)(1 + i / RF_QUANTIZE_BLOCK % 7);
        Floats bytes(rf_quantized_bytes(GetParam(), count) / 4);
        values = Floats(count);
        EXPECT_OK(rf_quantize(GetParam(), weights.data(), count, bytes.data()));
        EXPECT_OK(rf_dequantize({GetParam(), bytes.data(), count}, 0, count, values.data()));
        return words(rf_shape1((int64_t)bytes.size() * 4), RF_U8, bytes.data(), 0);
    }
    Floats values;
};
INSTANTIATE_TEST_SUITE_P(Kind, QuantizedGemv,
                         ::testing::Values(RF_NF4, RF_INT8, RF_FP8, RF_MXFP4, RF_NVFP4),
                         [](const auto &info) { return rf_quantization_name(info.param); });

/* Rows of x, columns, terms: rows of w begin inside blocks, bytes and words, the last block is of
 * any size, and 64 * 256 elements have a second group of blocks. */
const Size packed_sizes[] = {{1, 1, 1, 0},    {1, 9, 128, 0},  {2, 33, 260, 0},
                             {3, 8, 131, 0},  {5, 70, 300, 0}, {8, 17, 66, 1},
                             {16, 25, 96, 4}, {11, 7, 13, 3},  {4, 1, 65, 0}};

TEST_P(QuantizedGemv, MatchesTheReferenceInEveryTypeWithBiasAndResidual)
{
    for (rf_dtype type : {RF_F32, RF_F16, RF_BF16})
        for (rf_dtype to : {type, RF_F32})
            for (const Size &s : packed_sizes) {
                if (type != RF_F32 && s.rows != 5 && s.rows != 8)
                    continue; /* all others differ in the rows, which f32 covers */
                const rf_tensor w = packed(s.columns * s.terms);
                const Floats x = rounded_to(type, normal(s.rows * s.terms)),
                             b = rounded_to(type, normal(s.columns)),
                             r = rounded_to(to, normal(s.rows * s.columns));
                const rf_tensor bias = typed(rf_shape1(s.columns), type, b),
                                residual = typed(rf_shape2(s.rows, s.columns), to, r);
                rf_tensor out = typed_blank(rf_shape2(s.rows, s.columns), to, s.shift);
                rf_gemv_opts opts = {GetParam(), &bias, &residual};
                ASSERT_OK(rf_gemv(stream, out, typed(rf_shape2(s.rows, s.terms), type, x, s.shift),
                                  w, &opts));
                Doubles want(s.rows * s.columns);
                for (int64_t i = 0; i < s.rows; i++)
                    for (int64_t j = 0; j < s.columns; j++) {
                        double &sum = want[i * s.columns + j];
                        sum = (double)b[j] + r[i * s.columns + j];
                        for (int64_t k = 0; k < s.terms; k++)
                            sum += (double)x[i * s.terms + k] * values[j * s.terms + k];
                    }
                /* Sums of f32, rounded once to the type of out. */
                expect_near(read(out), want, 2e-6 + 0.51 * step_of(to),
                            std::string(rf_dtype_name(type)) + " to " + rf_dtype_name(to));
            }
}

TEST_P(QuantizedGemv, HasTheBitsOfTheUnpackedWeightsForAnyNumberOfRows)
{
    for (int64_t terms : {256, 90}) {
        const int64_t n = 13, N = 40;
        const rf_tensor w = packed(N * terms), plain = f32(rf_shape2(N, terms), values),
                        rows = f32(rf_shape2(n, terms), normal(n * terms)),
                        all = blank(rf_shape2(n, N));
        const rf_gemv_opts opts = {GetParam(), nullptr, nullptr};
        ASSERT_OK(rf_gemv(stream, all, rows, plain, nullptr));
        const Floats want = read(all);
        for (int64_t count : {1, 2, 3, 5, 8, 13})
            for (int64_t first = 0; first + count <= n; first += count) {
                rf_tensor some = {}, part = blank(rf_shape2(count, N));
                ASSERT_OK(rf_tensor_rows(rows, first, count, &some));
                ASSERT_OK(rf_gemv(stream, part, some, w, &opts));
                expect_same_bits(
                    read(part),
                    Floats(want.begin() + first * N, want.begin() + (first + count) * N),
                    std::to_string(count) + " rows");
            }
    }
}

TEST_F(OpTest, GemvRefusesWrongOperands)
{
    rf_tensor w = blank(rf_shape2(4, 8)), x = blank(rf_shape2(2, 8)), out = blank(rf_shape2(2, 4));
    rf_gemv_opts opts = {};
    EXPECT_FAILS(RF_EINVAL, "out", rf_gemv(stream, x, x, w, nullptr));
    EXPECT_FAILS(RF_EINVAL, "x", rf_gemv(stream, out, out, w, nullptr));
    EXPECT_FAILS(RF_EINVAL, "two dimensions",
                 rf_gemv(stream, out, x, blank(rf_shape1(32)), nullptr));
    opts.bias = &x;
    EXPECT_FAILS(RF_EINVAL, "bias", rf_gemv(stream, out, x, w, &opts));
    opts.bias = nullptr;
    opts.w_quantized = RF_NF4;
    const Floats nothing(6);
    const rf_tensor bytes = words(rf_shape1(24), RF_U8, nothing.data(), 0);
    EXPECT_FAILS(RF_EINVAL, "expected u8", rf_gemv(stream, out, x, w, &opts));
    EXPECT_FAILS(RF_EINVAL, "(4, 8) in nf4, below 2^31 elements, has 28 bytes",
                 rf_gemv(stream, out, x, bytes, &opts));
    opts.w_quantized = RF_QUANTIZATION_COUNT;
    EXPECT_FAILS(RF_EINVAL, "w_quantized", rf_gemv(stream, out, x, w, &opts));
}

/* ---- the cache ------------------------------------------------------------------------------- */

struct Shape {
    int64_t S, L, H, K, D;
};
const Shape shapes[] = {{2, 5, 2, 2, 8}, {3, 300, 4, 2, 16}, {1, 140, 3, 1, 10}, {2, 9, 2, 1, 128}};

class Cache : public TypedOpTest
{
  protected:
    /* A cache with arbitrary contents, and rows for it. */
    rf_cache cache(const Shape &s, const Ints &sequence, const Ints &position)
    {
        rf_cache c = {};
        c.keys = in(rf_shape4(s.S, s.L, s.K, s.D), keys = rounded(normal(s.S * s.L * s.K * s.D)));
        c.values =
            in(rf_shape4(s.S, s.L, s.K, s.D), values = rounded(normal(s.S * s.L * s.K * s.D)));
        c.sequence = i32(rf_shape1((int64_t)sequence.size()), sequence);
        c.position = i32(rf_shape1((int64_t)position.size()), position);
        return c;
    }
    static size_t at(const Shape &s, int64_t sequence, int64_t position, int64_t head)
    {
        return ((sequence * s.L + position) * s.K + head) * s.D;
    }
    Floats keys, values;
};
ALL_TYPES(Cache);

TEST_P(Cache, AppendRotatesAsRotaryDoes)
{
    for (const Shape &s : shapes)
        for (bool rotate : {false, true}) {
            const int64_t n = 3, columns = (s.H + 2 * s.K) * s.D;
            const Ints sequence = {0, (int32_t)s.S - 1, 0}, position = {4, 3, 0};
            const rf_cache c = cache(s, sequence, position);
            rf_rotary_opts opts = {};
            opts.theta = 500;
            rf_tensor angles = blank(rf_shape2(s.L, s.D));
            ASSERT_OK(rf_rotary_angles(stream, angles, &opts));
            const Floats data = rounded(normal(n * columns));
            rf_tensor qkv = in(rf_shape2(n, columns), data);
            ASSERT_OK(rf_cache_append(stream, &c, qkv, s.H, rotate ? angles : none()));
            Floats want = data;
            for (int64_t i = 0; i < n; i++) { /* rf_rotary at this row's position */
                rf_tensor row = in(rf_shape2(1, columns), Floats(data.begin() + i * columns,
                                                                 data.begin() + (i + 1) * columns));
                rf_heads turned = rf_heads_in(row, s.D, 0, s.H + s.K);
                opts.halves = true;
                opts.position = position[i];
                if (rotate) {
                    ASSERT_OK(rf_rotary(stream, turned, turned, &opts));
                }
                const Floats is = read(row);
                std::copy(is.begin(), is.end(), want.begin() + i * columns);
                for (int64_t k = 0; k < s.K; k++) {
                    std::copy_n(is.begin() + (s.H + k) * s.D, s.D,
                                keys.begin() + at(s, sequence[i], position[i], k));
                    std::copy_n(is.begin() + (s.H + s.K + k) * s.D, s.D,
                                values.begin() + at(s, sequence[i], position[i], k));
                }
            }
            expect_same_bits(read(c.keys), keys, "keys");
            expect_same_bits(read(c.values), values, "values");
            Floats got = read(qkv);
            for (int64_t i = 0; i < n; i++)
                for (int64_t e = 0; e < s.H * s.D; e++)
                    ASSERT_EQ(got[i * columns + e], want[i * columns + e]) << "query";
        }
}

Doubles attended(const Shape &s, const Floats &q, int64_t columns, const Floats &keys,
                 const Floats &values, const Ints &sequence, const Ints &position)
{
    Doubles out(sequence.size() * s.H * s.D);
    for (size_t i = 0; i < sequence.size(); i++)
        for (int64_t h = 0; h < s.H; h++) {
            Doubles score(position[i] + 1);
            double most = -1e300, sum = 0;
            for (int64_t p = 0; p <= position[i]; p++) {
                const size_t k = ((sequence[i] * s.L + p) * s.K + h / (s.H / s.K)) * s.D;
                for (int64_t e = 0; e < s.D; e++)
                    score[p] += (double)q[i * columns + h * s.D + e] * keys[k + e];
                score[p] /= std::sqrt((double)s.D);
                most = std::max(most, score[p]);
            }
            for (double &x : score)
                sum += x = std::exp(x - most);
            for (int64_t p = 0; p <= position[i]; p++)
                for (int64_t e = 0; e < s.D; e++)
                    out[(i * s.H + h) * s.D + e] +=
                        score[p] / sum *
                        values[((sequence[i] * s.L + p) * s.K + h / (s.H / s.K)) * s.D + e];
        }
    return out;
}

TEST_P(Cache, AttentionMatchesTheReferenceAndARowHasTheSameBitsInEveryCall)
{
    for (const Shape &s : shapes) {
        Ints sequence, position;
        for (int32_t p : {0, 3, 127, 128, 255, 299})
            if (p < s.L) {
                sequence.push_back(p % (int32_t)s.S);
                position.push_back(p);
            }
        const int64_t n = (int64_t)sequence.size(), columns = (s.H + 2 * s.K) * s.D;
        const rf_cache c = cache(s, sequence, position);
        const Floats q = rounded(normal(n * columns));
        rf_tensor rows = in(rf_shape2(n, columns), q), all = out(rf_shape2(n, s.H * s.D)),
                  scratch = blank(rf_shape1(rf_attend_cache_scratch(n, s.H, s.D, s.L)));
        ASSERT_OK(rf_attend_cache(
            stream, &c, {.q = rows, .out = all, .scratch = scratch, .heads = s.H, .most = s.L}));
        const Floats got = read(all);
        expect_near(got, attended(s, q, columns, keys, values, sequence, position), tolerance(1e-5),
                    "attention");
        for (int64_t i = 0; i < n; i++) {
            rf_cache one = c;
            rf_tensor row = {}, part = out(rf_shape2(1, s.H * s.D));
            ASSERT_OK(rf_tensor_rows(rows, i, 1, &row));
            ASSERT_OK(rf_tensor_rows(c.sequence, i, 1, &one.sequence));
            ASSERT_OK(rf_tensor_rows(c.position, i, 1, &one.position));
            ASSERT_OK(rf_attend_cache(stream, &one,
                                      {.q = row,
                                       .out = part,
                                       .scratch = scratch,
                                       .heads = s.H,
                                       .most = position[i] + 1}));
            expect_same_bits(read(part),
                             Floats(got.begin() + i * s.H * s.D, got.begin() + (i + 1) * s.H * s.D),
                             "one row");
        }
    }
}

TEST_F(OpTest, AttentionToACacheRefusesWrongOperands)
{
    rf_cache c = {};
    c.keys = blank(rf_shape4(1, 4, 2, 8));
    c.values = blank(rf_shape4(1, 4, 2, 8));
    c.sequence = i32(rf_shape1(1), {0});
    c.position = i32(rf_shape1(1), {0});
    rf_tensor q = blank(rf_shape2(1, 64)), out = blank(rf_shape2(1, 32)),
              scratch = blank(rf_shape1(64));
    EXPECT_OK(rf_attend_cache(stream, &c,
                              {.q = q, .out = out, .scratch = scratch, .heads = 4, .most = 4}));
    EXPECT_FAILS(RF_EINVAL, "do not divide",
                 rf_attend_cache(stream, &c,
                                 {.q = q, .out = out, .scratch = scratch, .heads = 3, .most = 4}));
    EXPECT_FAILS(RF_EINVAL, "most",
                 rf_attend_cache(stream, &c,
                                 {.q = q, .out = out, .scratch = scratch, .heads = 4, .most = 5}));
    EXPECT_FAILS(
        RF_EINVAL, "scratch",
        rf_attend_cache(stream, &c, {.q = q, .out = out, .scratch = out, .heads = 4, .most = 4}));
    EXPECT_FAILS(RF_EINVAL, "qkv", rf_cache_append(stream, &c, out, 4, none()));
}
} // namespace
