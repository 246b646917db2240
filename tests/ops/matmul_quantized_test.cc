/* SPDX-License-Identifier: MIT
 *
 * Products with a quantised b: every kind, form, type and epilogue against fp64 products of
 * rf_dequantize's results, also for rows that begin inside blocks.
 */
#include <algorithm>
#include <string>

#include "op_fixture.h"
#include "support/oracle.h"

namespace
{

struct Size {
    int64_t m, k, n;
};

class Quantized : public OpTest, public ::testing::WithParamInterface<rf_quantization>
{
  protected:
    rf_tensor packed(const Floats &weights)
    {
        Floats bytes(rf_quantized_bytes(GetParam(), (int64_t)weights.size()) / 4);
        EXPECT_OK(rf_quantize(GetParam(), weights.data(), (int64_t)weights.size(), bytes.data()));
        values = Floats(weights.size());
        EXPECT_OK(rf_dequantize({GetParam(), bytes.data(), (int64_t)weights.size()}, 0,
                                (int64_t)weights.size(), values.data()));
        return words(rf_shape1((int64_t)bytes.size() * 4), RF_U8, bytes.data(), 0);
    }
    void expect_close(const Floats &got, const Doubles &want, const Doubles &magnitude,
                      rf_dtype type, int64_t k)
    {
        const double sum = (double)(k + 8) * step_of(RF_F32), stored = step_of(type) / 2;
        size_t wrong = 0;
        for (size_t i = 0; i < got.size() && wrong < 3; i++)
            if (!(std::fabs(got[i] - want[i]) <=
                  sum * magnitude[i] + 1.01 * stored * std::fabs(want[i]))) {
                ADD_FAILURE() << "element " << i << " is " << got[i] << ", not " << want[i];
                wrong++;
            }
    }
    static Doubles wide(const Floats &x)
    {
        return Doubles(x.begin(), x.end());
    }
    static Doubles magnitudes(const Floats &x)
    {
        Doubles y(x.begin(), x.end());
        for (double &v : y)
            v = std::fabs(v);
        return y;
    }
    /* out = a b, and with `adds` out += a b. */
    void check(Size s, bool transpose_b, rf_dtype type, bool adds, const char *path = nullptr)
    {
        SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.k) + "x" + std::to_string(s.n) +
                     (transpose_b ? " nt " : " nn ") + rf_dtype_name(type));
        const Floats a = rounded_to(type, normal(s.m * s.k));
        const Floats before = rounded_to(type, normal(s.m * s.n));
        rf_tensor w = packed(normal(s.n * s.k, 0.05F));
        rf_tensor out = typed(rf_shape2(s.m, s.n), type, before);
        rf_matmul_opts opts = {};
        opts.transpose_b = transpose_b;
        opts.accumulate = adds;
        opts.b_quantized = GetParam();
        opts.path = path;
        ASSERT_OK(rf_matmul(stream, out, typed(rf_shape2(s.m, s.k), type, a), w, &opts));
        Doubles want = oracle::matmul(wide(a), wide(values), s.m, s.n, s.k, false, transpose_b);
        Doubles most =
            oracle::matmul(magnitudes(a), magnitudes(values), s.m, s.n, s.k, false, transpose_b);
        for (size_t i = 0; adds && i < want.size(); i++) {
            want[i] += before[i];
            most[i] += std::fabs(before[i]);
        }
        expect_close(read(out), want, most, type, s.k);
    }
    /* 1; 0: the device has no units of this type, or the tile is too large. */
    int on_units(Size s, bool transpose_b, rf_dtype type, rf_dtype to, const char *path)
    {
        SCOPED_TRACE(std::to_string(s.k) + (transpose_b ? " nt " : " nn ") + rf_dtype_name(type) +
                     " to " + rf_dtype_name(to) + " " + path);
        const Floats a = rounded_to(type, normal(s.m * s.k));
        rf_tensor w = packed(normal(s.n * s.k, 0.05F)), out = typed_blank(rf_shape2(s.m, s.n), to);
        rf_matmul_opts opts = {};
        opts.transpose_b = transpose_b;
        opts.b_quantized = GetParam();
        opts.path = path;
        const int rc = rf_matmul(stream, out, typed(rf_shape2(s.m, s.k), type, a), w, &opts);
        if (rc == RF_ENOTSUP)
            return 0;
        EXPECT_OK(rc);
        const Floats rounded = rounded_to(type, values);
        expect_close(
            read(out), oracle::matmul(wide(a), wide(rounded), s.m, s.n, s.k, false, transpose_b),
            oracle::matmul(magnitudes(a), magnitudes(rounded), s.m, s.n, s.k, false, transpose_b),
            to, s.k);
        return 1;
    }
    Floats values;
    int ran = 0;
};
INSTANTIATE_TEST_SUITE_P(Kind, Quantized,
                         ::testing::Values(RF_NF4, RF_INT8, RF_FP8, RF_MXFP4, RF_NVFP4),
                         [](const auto &info) { return rf_quantization_name(info.param); });

TEST_P(Quantized, ProductsOfEveryFormAndTypeAreThoseOfTheUnpackedWeights)
{
    for (rf_dtype type : {RF_F16, RF_BF16})
        for (bool transpose_b : {false, true})
            check({7, 128, 72}, transpose_b, type, false);
    check({40, 320, 192}, true, RF_BF16, false);
    check({40, 320, 192}, false, RF_BF16, true);
    for (Size s : {Size{70, 128, 72}, Size{70, 192, 128}, Size{5, 64, 64}, Size{3, 36, 20},
                   Size{7, 13, 67}, Size{1, 1, 1}, Size{2, 300, 6}, Size{66, 65, 129}})
        for (bool transpose_b : {false, true})
            check(s, transpose_b, RF_F32, s.n == 72);
}

TEST_P(Quantized, EveryBlockOfALargerWeightIsFound)
{
    /* 5120 blocks: 20 groups of the second level. The path for CPU drivers has tall tiles, too. */
    const bool cpu = rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    for (const char *path : {(const char *)nullptr, cpu ? "subgroup:1" : "tiled"}) {
        check({4, 1024, 320}, true, RF_F32, false, path);
        check({40, 320, 1024}, false, RF_BF16, false, path);
    }
}

/* Weights are rounded to the type of the operands. Rows of weights are whole groups of 8; all other
 * sizes are odd. CPU drivers compile large tiles for seconds. */
TEST_P(Quantized, MatrixUnitsGiveTheProductOfTheRoundedWeights)
{
    const rf_device_info *info = rf_device_get_info(device);
    const bool cpu = info->kind == RF_DEVICE_CPU;
    if (!info->cooperative_matrix)
        GTEST_SKIP() << info->matrix_reason;
    for (rf_dtype type : {RF_F16, RF_BF16})
        for (bool transpose_b : {false, true})
            for (rf_dtype to : {type, RF_F32})
                for (int tile = 1; tile <= 28; tile++) {
                    const bool few = type == RF_F16 && to == type && (tile == 11 || tile == 24);
                    if (cpu && tile != 10 && !few)
                        continue;
                    const std::string path = "cooperative:" + std::to_string(tile);
                    ran += on_units(transpose_b ? Size{33, 72, 65} : Size{33, 67, 72}, transpose_b,
                                    type, to, path.c_str());
                    if (cpu ? tile == 10 && to == type : tile == 7)
                        ran += on_units(transpose_b ? Size{5, 1032, 3} : Size{3, 1027, 8},
                                        transpose_b, type, to, path.c_str());
                }
    EXPECT_GT(ran, 0);
}

TEST_P(Quantized, BiasActivationAndResidualFollow)
{
    const int64_t m = 9, k = 128, n = 40;
    const Floats a = normal(m * k), bias = normal(n), residual = normal(m * n);
    rf_tensor w = packed(normal(n * k, 0.1F)), out = blank(rf_shape2(m, n));
    rf_tensor bias_tensor = f32(rf_shape1(n), bias);
    rf_tensor residual_tensor = f32(rf_shape2(m, n), residual);
    rf_matmul_opts opts = {};
    opts.transpose_b = true;
    opts.b_quantized = GetParam();
    opts.bias = &bias_tensor;
    opts.residual = &residual_tensor;
    opts.act = RF_ACT_RELU;
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(m, k), a), w, &opts));
    Doubles want = oracle::matmul(wide(a), wide(values), m, n, k, false, true);
    Doubles most = oracle::matmul(magnitudes(a), magnitudes(values), m, n, k, false, true);
    for (int64_t i = 0; i < m * n; i++) {
        want[i] = std::max(want[i] + bias[i % n], 0.0) + residual[i];
        most[i] += std::fabs(bias[i % n]) + std::fabs(residual[i]);
    }
    expect_close(read(out), want, most, RF_F32, k);
}

TEST_P(Quantized, PartsOfALongKAddUp)
{
    const Size s = {2, 4096, 24};
    const Floats a = normal(s.m * s.k);
    rf_tensor w = packed(normal(s.n * s.k, 0.05F)), out = blank(rf_shape2(s.m, s.n));
    for (bool transpose_b : {false, true}) {
        rf_matmul_opts opts = {};
        opts.transpose_b = transpose_b;
        opts.b_quantized = GetParam();
        const int64_t elements = matmul_scratch(device, RF_F32, s.m, s.n, s.k, opts);
        ASSERT_GT(elements, 0);
        rf_tensor scratch = blank(rf_shape1(elements));
        opts.scratch = &scratch;
        ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(s.m, s.k), a), w, &opts));
        expect_close(
            read(out), oracle::matmul(wide(a), wide(values), s.m, s.n, s.k, false, transpose_b),
            oracle::matmul(magnitudes(a), magnitudes(values), s.m, s.n, s.k, false, transpose_b),
            RF_F32, s.k);
    }
}

/* As tensor ranks have them. */
TEST_P(Quantized, PartsOfAMatrixHaveTheValuesOfTheWhole)
{
    const int64_t rows = 160, columns = 256;
    const rf_device_info *info = rf_device_get_info(device);
    const Floats weights = normal(rows * columns, 0.05F);
    const struct rf_quantized_layout all = rf_quantized_layout(GetParam(), rows * columns);
    std::vector<uint8_t> bytes(all.bytes);
    ASSERT_OK(rf_quantize(GetParam(), weights.data(), rows * columns, bytes.data()));
    packed(weights); /* sets values */
    for (int along = 0; along < 2; along++) {
        rf_quantized_part part = {rows, columns, along ? 0 : 31, along ? 64 : 0, 0};
        const int64_t n = along ? rows : 96, k = along ? 128 : columns;
        const struct rf_quantized_sizes sizes =
            rf_quantized_sizes(GetParam(), n * k, rows * columns);
        part.numbers = sizes.elements + 12; /* with something between them */
        std::vector<uint8_t> own(part.numbers + sizes.numbers);
        Floats mine;
        for (int64_t r = 0; r < n; r++) {
            const int64_t at = (part.first_row + r) * columns + part.first_column;
            mine.insert(mine.end(), values.begin() + at, values.begin() + at + k);
            const auto take = [&](uint64_t from, uint64_t to, int64_t of_block) {
                std::copy_n(&bytes[from + (uint64_t)(at / 64 * of_block)], k / 64 * of_block,
                            &own[to + (uint64_t)(r * k / 64 * of_block)]);
            };
            const bool own_numbers = GetParam() == RF_INT8 || GetParam() == RF_FP8;
            take(0, 0, own_numbers ? 64 : 32);
            if (own_numbers)
                take(all.blocks, part.numbers, 4);
        }
        if (GetParam() != RF_INT8 && GetParam() != RF_FP8)
            std::copy(bytes.begin() + (ptrdiff_t)all.blocks, bytes.end(),
                      own.begin() + (ptrdiff_t)part.numbers);
        const rf_tensor b = words(rf_shape1((int64_t)own.size()), RF_U8, own.data(), 0);
        for (bool transpose_b : {false, true})
            for (int way = 0; way < 4; way++) {
                const Size s = {5, transpose_b ? k : n, transpose_b ? n : k};
                const rf_dtype type = way == 3 ? RF_F16 : RF_F32;
                const Floats a = rounded_to(type, normal(s.m * s.k));
                rf_tensor out = typed_blank(rf_shape2(s.m, s.n), type), scratch;
                rf_matmul_opts opts = {};
                opts.transpose_b = transpose_b;
                opts.b_quantized = GetParam();
                opts.b_part = part;
                opts.path = way == 1 ? "tiled" : way == 3 ? "cooperative:10" : nullptr;
                if (way == 3 && !info->cooperative_matrix)
                    continue;
                if (way == 2) {
                    scratch = blank(rf_shape1(8 * s.m * s.n));
                    opts.scratch = &scratch;
                }
                const int rc =
                    rf_matmul(stream, out, typed(rf_shape2(s.m, s.k), type, a), b, &opts);
                if (way == 3 && rc == RF_ENOTSUP)
                    continue;
                ASSERT_OK(rc);
                const Floats rounded = rounded_to(type, mine);
                expect_close(
                    read(out),
                    oracle::matmul(wide(a), wide(rounded), s.m, s.n, s.k, false, transpose_b),
                    oracle::matmul(magnitudes(a), magnitudes(rounded), s.m, s.n, s.k, false,
                                   transpose_b),
                    type, s.k);
            }
        rf_tensor out = blank(rf_shape2(5, n));
        rf_matmul_opts opts = {};
        opts.transpose_b = true;
        opts.b_quantized = GetParam();
        opts.b_part = part;
        (along ? opts.b_part.first_column : opts.b_part.first_row) += 128;
        const rf_tensor a = f32(rf_shape2(5, k), normal(5 * k));
        EXPECT_FAILS(RF_EINVAL, "b_part", rf_matmul(stream, out, a, b, &opts));
        opts.b_part = part;
        opts.b_part.columns += along ? 4 : 0;
        opts.b_part.numbers -= along ? 0 : 16;
        EXPECT_FAILS(RF_EINVAL, "b_part", rf_matmul(stream, out, a, b, &opts));
    }
}

TEST_P(Quantized, WhatDoesNotFitIsRefused)
{
    rf_tensor a = f32(rf_shape2(4, 64), normal(256)), out = blank(rf_shape2(4, 8));
    rf_tensor w = packed(normal(64 * 8));
    rf_matmul_opts opts = {};
    opts.b_quantized = GetParam();
    EXPECT_FAILS(RF_EINVAL, "b is",
                 rf_matmul(stream, out, a, f32(rf_shape2(64, 8), normal(512)), &opts));
    rf_tensor less = w;
    less.shape.dim[0] -= 4;
    EXPECT_FAILS(RF_EINVAL, "bytes", rf_matmul(stream, out, a, less, &opts));
    rf_tensor shifted = w;
    shifted.offset += 2;
    EXPECT_NE(rf_matmul(stream, out, a, shifted, &opts), RF_OK);
    opts.transpose_a = true;
    EXPECT_FAILS(RF_EINVAL, "quantised", rf_matmul(stream, out, a, w, &opts));
    opts.transpose_a = false;
    opts.path = "cooperative";
    EXPECT_EQ(rf_matmul(stream, out, a, w, &opts), RF_ENOTSUP); /* f32, or no units at all */
    opts.path = "workgroup";
    EXPECT_FAILS(RF_ENOTSUP, "unpack", rf_matmul(stream, out, a, w, &opts));
    opts.path = "subgroup";
    EXPECT_EQ(rf_matmul(stream, out, a, w, &opts), RF_ENOTSUP); /* rows of 8 elements */
    opts.path = nullptr;
    opts.b_quantized = (rf_quantization)7;
    EXPECT_FAILS(RF_EINVAL, "b_quantized", rf_matmul(stream, out, a, w, &opts));
}

} // namespace
