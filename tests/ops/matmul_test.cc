/* SPDX-License-Identifier: MIT
 *
 * rf_matmul on every path against the fp64 product: every form, epilogue and kind of edge. The
 * barrier checker is on, and guard words around every tensor show a write outside it.
 */
#include "op_fixture.h"

extern "C" {
#include "device/device.h"
}
#include "support/oracle.h"
#include "support/reference_ops.h"

namespace
{

struct Size {
    int64_t m, n, k;
};

/* 1, primes, multiples of every tile, and tails on each side of the tiles (32 by 64, 64 by 64), of
 * the quads in which aligned rows are read, and of rounds of one and of two quads; and sums that
 * are added up in parts of 1024. */
const Size sizes[] = {{1, 1, 1},     {1, 64, 32},   {32, 1, 7},    {32, 64, 4},    {64, 128, 64},
                      {33, 65, 5},   {31, 63, 17},  {36, 68, 12},  {96, 4, 100},   {2, 3, 257},
                      {13, 127, 1},  {67, 89, 53},  {128, 192, 8}, {100, 257, 20}, {35, 66, 24},
                      {3, 66, 2048}, {33, 4, 2049}, {9, 36, 3084}};

struct Form {
    const char *name;
    bool transpose_a, transpose_b;
};
const Form forms[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};

class Matmul : public OpTest, public ::testing::WithParamInterface<const char *>
{
  protected:
    /* The operands of one product, in memory and in fp64. */
    struct Product {
        Size size;
        Form form;
        rf_tensor out, a, b;
        Doubles want;
        rf_matmul_opts opts;
        std::string text;
    };
    Product product(Size size, Form form, int shift = 0)
    {
        Product p = {};
        p.size = size;
        p.form = form;
        const Floats a = oracle::exact(size.m * size.k, engine);
        const Floats b = oracle::exact(size.k * size.n, engine);
        p.a =
            f32(form.transpose_a ? rf_shape2(size.k, size.m) : rf_shape2(size.m, size.k), a, shift);
        p.b =
            f32(form.transpose_b ? rf_shape2(size.n, size.k) : rf_shape2(size.k, size.n), b, shift);
        p.out = blank(rf_shape2(size.m, size.n), shift);
        p.want = oracle::matmul(wide(a), wide(b), size.m, size.n, size.k, form.transpose_a,
                                form.transpose_b);
        p.opts.transpose_a = form.transpose_a;
        p.opts.transpose_b = form.transpose_b;
        p.opts.path = GetParam();
        p.text = std::string(form.name) + " " + std::to_string(size.m) + " x " +
                 std::to_string(size.n) + " x " + std::to_string(size.k) + " shift " +
                 std::to_string(shift);
        return p;
    }
    /* The parameter and, for the path with tiles of two heights, which takes the low ones for these
     * sizes, the tall ones. */
    static std::vector<const char *> heights()
    {
        if (strcmp(GetParam(), "subgroup") == 0)
            return {"subgroup:1", "subgroup:2"};
        return {GetParam()};
    }
    static void run(const Product &p)
    {
        EXPECT_OK(rf_matmul(stream, p.out, p.a, p.b, &p.opts)) << p.text;
    }
};

TEST_P(Matmul, IsTheProductForEveryFormAndSize)
{
    for (Form form : forms)
        for (Size size : sizes) {
            Product p = product(size, form);
            for (const char *path : heights()) {
                p.opts.path = path;
                run(p);
                expect_near(read(p.out), p.want, 0, p.text + path);
            }
        }
}

TEST_P(Matmul, TensorsMayStartAnywhere)
{
    for (Form form : forms)
        for (Size size : {Size{36, 68, 12}, Size{33, 65, 5}}) {
            Product p = product(size, form, 1);
            for (const char *path : heights()) {
                p.opts.path = path;
                run(p);
                expect_near(read(p.out), p.want, 0, p.text + path);
            }
        }
}

TEST_P(Matmul, AddsABiasToEveryRow)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{1, 1, 1}, Size{2, 8, 2050}}) {
            Product p = product(size, form);
            const Floats bias = whole(size.n);
            rf_tensor bias_tensor = f32(rf_shape1(size.n), bias, 3);
            p.opts.bias = &bias_tensor;
            run(p);
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] += bias[i % size.n];
            expect_near(read(p.out), p.want, 0, p.text);
        }
}

/* GELU's exponential is the driver's: Vulkan allows 3 + 2|x| ULP, |x| < 40 here. */
TEST_P(Matmul, AppliesGeluAndKeepsWhatWentIn)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{5, 3, 300}, Size{2, 3, 2060}})
            for (bool keep : {true, false})
                for (bool with_bias : {true, false}) {
                    Product p = product(size, form);
                    const Floats bias = with_bias ? whole(size.n) : Floats(size.n, 0);
                    rf_tensor bias_tensor = f32(rf_shape1(size.n), bias);
                    rf_tensor pre = blank(rf_shape2(size.m, size.n));
                    p.opts.bias = with_bias ? &bias_tensor : nullptr;
                    p.opts.pre = keep ? &pre : nullptr;
                    p.opts.act = RF_ACT_GELU;
                    run(p);
                    for (size_t i = 0; i < p.want.size(); i++)
                        p.want[i] += bias[i % size.n];
                    if (keep)
                        expect_near(read(pre), p.want, 0, p.text + " pre");
                    else
                        EXPECT_EQ(read(pre), Floats(p.want.size(), -12345.0f)) << p.text;
                    for (double &x : p.want)
                        x = reference::gelu(x);
                    expect_near(read(p.out), p.want, 1e-5, p.text);
                }
}

/* So its output need not be kept for the backward pass. Both limits, where the gate is closed and
 * open, and values between. */
TEST_P(Matmul, GeluOfWhatWentInIsTheSameBits)
{
    for (int64_t n : {16384, 1003}) {
        Floats x = normal(2 * n, 4);
        for (int64_t i = 0; i < n; i++)
            x[(size_t)i] = -14 + 28 * (float)i / (float)n;
        const float ends[] = {1e4f, -1e4f, 0.0f, -0.0f, 1e-30f, -1e-30f};
        std::copy(std::begin(ends), std::end(ends), x.end() - 6);
        rf_tensor out = blank(rf_shape2(2, n)), pre = blank(rf_shape2(2, n));
        rf_tensor again = blank(rf_shape2(2, n)), zero = f32(rf_shape2(2, 1), {0, 0});
        rf_tensor b = f32(rf_shape2(1, n), Floats(n, 0));
        rf_tensor bias = f32(rf_shape1(n), Floats(x.begin(), x.begin() + n));
        rf_matmul_opts opts = {};
        opts.act = RF_ACT_GELU;
        opts.path = GetParam();
        opts.bias = &bias;
        opts.pre = &pre;
        for (int half : {0, 1}) {
            bias = f32(rf_shape1(n), Floats(x.begin() + half * n, x.begin() + (half + 1) * n));
            ASSERT_OK(rf_matmul(stream, out, zero, b, &opts));
            ASSERT_OK(rf_activate(stream, RF_ACT_GELU, again, pre));
            const Floats want = read(out), got = read(again), in = read(pre);
            for (size_t i = 0; i < want.size(); i++)
                ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
                    << "of " << in[i] << ": " << got[i] << ", product " << want[i];
        }
    }
}

TEST_P(Matmul, GeluIsFiniteFarFromZero)
{
    rf_tensor a = f32(rf_shape2(4, 1), {1e4f, -1e4f, 30.0f, -30.0f}), b = f32(rf_shape2(1, 1), {1});
    rf_tensor out = blank(rf_shape2(4, 1));
    rf_matmul_opts opts = {};
    opts.act = RF_ACT_GELU;
    opts.path = GetParam();
    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_EQ(read(out), (Floats{1e4f, 0, 30.0f, 0}));
}

TEST_P(Matmul, AccumulateAdds)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{64, 64, 128}, Size{7, 2, 3},
                          Size{4, 5, 2056}}) {
            Product p = product(size, form);
            const Floats before = whole(size.m * size.n);
            p.out = f32(rf_shape2(size.m, size.n), before);
            p.opts.accumulate = true;
            run(p);
            run(p);
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] = before[i] + 2 * p.want[i];
            expect_near(read(p.out), p.want, 0, p.text);
        }
}

TEST_P(Matmul, DimensionsBeforeTheLastAreRows)
{
    Product p = product({24, 20, 12}, forms[1]);
    ASSERT_OK(rf_tensor_reshape(p.a, rf_shape3(2, 12, 12), &p.a));
    ASSERT_OK(rf_tensor_reshape(p.out, rf_shape4(2, 3, 4, 20), &p.out));
    run(p);
    expect_near(read(p.out), p.want, 0, p.text);
}

TEST_P(Matmul, TenRunsGiveTheSameBits)
{
    const Size size = {45, 70, 333};
    rf_tensor a = f32(rf_shape2(size.m, size.k), normal(size.m * size.k));
    rf_tensor b = f32(rf_shape2(size.k, size.n), normal(size.k * size.n));
    rf_matmul_opts opts = {};
    opts.path = GetParam();
    Floats first;
    for (int i = 0; i < 10; i++) {
        rf_tensor out = blank(rf_shape2(size.m, size.n));
        ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
        Floats got = read(out);
        if (i == 0)
            first = got;
        expect_same_bits(got, first, "run " + std::to_string(i));
    }
}

/* Products that are not exact in fp32: 333 products of normal numbers, each rounded, in sequence.
 * Errors grow like the root of the count; 16 eps leaves a margin. */
TEST_P(Matmul, RoundingStaysWithinAFewUlps)
{
    const Size size = {45, 70, 333};
    const Floats a = normal(size.m * size.k), b = normal(size.k * size.n);
    rf_tensor out = blank(rf_shape2(size.m, size.n));
    rf_matmul_opts opts = {};
    opts.path = GetParam();
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(size.m, size.k), a),
                        f32(rf_shape2(size.k, size.n), b), &opts));
    const Doubles want = oracle::matmul(wide(a), wide(b), size.m, size.n, size.k, false, false);
    const double scale = std::sqrt((double)size.k) * 16 * 1.2e-7;
    const Floats got = read(out);
    for (size_t i = 0; i < want.size(); i++)
        ASSERT_NEAR(got[i], want[i], scale + 1e-6 * std::fabs(want[i])) << "element " << i;
}

TEST_P(Matmul, AChainNeedsNoBarrierOfTheCaller)
{
    const int64_t n = 40;
    Floats shift_right(n * n, 0);
    for (int64_t i = 0; i < n; i++)
        shift_right[i * n + (i + 1) % n] = 1;
    rf_tensor shift = f32(rf_shape2(n, n), shift_right);
    const Floats x = whole(n);
    rf_tensor row[2] = {f32(rf_shape2(1, n), x), blank(rf_shape2(1, n))};
    rf_matmul_opts opts = {};
    opts.path = GetParam();
    for (int64_t i = 0; i < n; i++)
        ASSERT_OK(rf_matmul(stream, row[(i + 1) % 2], row[i % 2], shift, &opts));
    EXPECT_EQ(read(row[n % 2]), x);
}

INSTANTIATE_TEST_SUITE_P(Path, Matmul, ::testing::Values("subgroup", "tiled"),
                         [](const auto &info) { return std::string(info.param); });

using MatmulCall = OpTest;

/* A choice by size must not change a result: rows are added up alike in tiles of any height. */
TEST_F(MatmulCall, TilesOfEveryHeightGiveTheSameBits)
{
    if (rf_device_get_info(device)->kind != RF_DEVICE_CPU)
        GTEST_SKIP() << "the path is for CPU drivers";
    for (rf_dtype type : {RF_F32, RF_BF16})
        for (Form form : forms)
            for (Size size : {Size{45, 70, 333}, Size{33, 64, 64}}) {
                rf_tensor a =
                    typed(form.transpose_a ? rf_shape2(size.k, size.m) : rf_shape2(size.m, size.k),
                          type, normal(size.m * size.k));
                rf_tensor b =
                    typed(form.transpose_b ? rf_shape2(size.n, size.k) : rf_shape2(size.k, size.n),
                          type, normal(size.k * size.n));
                rf_tensor residual =
                    typed(rf_shape2(size.m, size.n), type, normal(size.m * size.n));
                rf_matmul_opts opts = {};
                opts.transpose_a = form.transpose_a;
                opts.transpose_b = form.transpose_b;
                opts.act = RF_ACT_GELU;
                opts.residual = &residual;
                Floats first;
                for (const char *path : {"subgroup:1", "subgroup:2", "subgroup"}) {
                    rf_tensor out = typed_blank(rf_shape2(size.m, size.n), type);
                    opts.path = path;
                    ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
                    const Floats got = read(out);
                    first = first.empty() ? got : first;
                    expect_same_bits(got, first, std::string(form.name) + " " + path);
                }
            }
}

TEST_F(MatmulCall, ATileThatThePathDoesNotHaveIsRefused)
{
    rf_matmul_opts opts = {};
    opts.path = "subgroup:3";
    rf_tensor square = f32(rf_shape2(4, 4), whole(16));
    EXPECT_EQ(rf_matmul(stream, blank(rf_shape2(4, 4)), square, square, &opts), RF_ENOTSUP);
    EXPECT_NE(std::string(rf_last_error()->message).find("tiles 1 (32 rows) and 2 (8 rows)"),
              std::string::npos)
        << rf_last_error()->message;
}

TEST_F(MatmulCall, BothTransposedRunsWithoutAChoiceOfPath)
{
    const Floats a = oracle::exact(12 * 34, engine), b = oracle::exact(56 * 12, engine);
    rf_tensor out = blank(rf_shape2(34, 56));
    rf_matmul_opts opts = {};
    opts.transpose_a = opts.transpose_b = true;
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(12, 34), a), f32(rf_shape2(56, 12), b), &opts));
    expect_near(read(out), oracle::matmul(wide(a), wide(b), 34, 56, 12, true, true), 0, "TT");
    opts.path = "subgroup";
    EXPECT_FAILS(
        RF_ENOTSUP, "subgroup",
        rf_matmul(stream, out, f32(rf_shape2(12, 34), a), f32(rf_shape2(56, 12), b), &opts));
}

/* Views of 64 Ki texels begin every 128 KiB (one float) or 512 KiB (a quad); the first operands are
 * longer than that, the others cross its multiples. */
TEST_F(MatmulCall, OperandsMayLieAnywhereInALargeBuffer)
{
    struct rf_device *small = nullptr;
    struct rf_stream *queue = nullptr;
    struct rf_buffer *buffer = nullptr;
    ASSERT_OK(rf_device_open(nullptr, nullptr, &small));
    rf_device_limit_views(small, 65536);
    ASSERT_OK(rf_stream_create(small, "views", &queue));
    ASSERT_OK(rf_buffer_create(small, 3 << 20, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &buffer));
    const int64_t bases[] = {0, 131072 - 1024, 131072, 524288 - 4096, 524288, 1048576 - 512};
    for (int64_t wide_rows : {512 * 300, 0})
        for (int64_t base : bases)
            for (int64_t k : {64, 63}) {
                const int64_t m = wide_rows ? wide_rows / 64 : 40, n = 36;
                const Floats a = oracle::exact(m * k, engine), b = oracle::exact(k * n, engine);
                rf_tensor at, bt, ot;
                const int64_t b_at = base + 4 * m * k, o_at = b_at + 4 * k * n;
                ASSERT_OK(rf_tensor_view(buffer, base, rf_shape2(m, k), RF_F32, &at));
                ASSERT_OK(rf_tensor_view(buffer, b_at, rf_shape2(k, n), RF_F32, &bt));
                ASSERT_OK(rf_tensor_view(buffer, o_at, rf_shape2(m, n), RF_F32, &ot));
                ASSERT_OK(rf_tensor_write(at, a.data(), 4 * a.size()));
                ASSERT_OK(rf_tensor_write(bt, b.data(), 4 * b.size()));
                ASSERT_OK(rf_matmul(queue, ot, at, bt, nullptr));
                ASSERT_OK(rf_stream_wait(queue));
                Floats got(m * n);
                ASSERT_OK(rf_tensor_read(ot, got.data(), 4 * got.size()));
                expect_near(got, oracle::matmul(wide(a), wide(b), m, n, k, false, false), 0,
                            "at " + std::to_string(base) + " k " + std::to_string(k));
            }
    rf_stream_destroy(queue);
    rf_buffer_destroy(buffer);
    rf_device_close(small);
}

TEST_F(MatmulCall, LargeTilesAreRightToo)
{
    const int64_t m = 1300, n = 1500, k = 3;
    const Floats a = oracle::exact(m * k, engine), b = oracle::exact(k * n, engine);
    rf_tensor out = blank(rf_shape2(m, n));
    rf_matmul_opts opts = {};
    opts.path = "tiled";
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(m, k), a), f32(rf_shape2(k, n), b), &opts));
    expect_near(read(out), oracle::matmul(wide(a), wide(b), m, n, k, false, false), 0, "tiled");
}

TEST_F(MatmulCall, PathIsTheOneThatTheDeviceSuits)
{
    const rf_device_info *info = rf_device_get_info(device);
    const bool few =
        info->subgroup_size == 4 || info->subgroup_size == 8 || info->subgroup_size == 16;
    const bool cpu = info->kind == RF_DEVICE_CPU && info->subgroup_shuffle && few;
    EXPECT_STREQ(matmul_path(device, RF_F32, 64, 64, 64), cpu ? "subgroup" : "tiled");
    rf_matmul_opts opts = {};
    opts.path = "tiled";
    EXPECT_STREQ(matmul_path(device, RF_F32, 64, 64, 64, opts), "tiled");
    opts.path = "abacus";
    EXPECT_STREQ(matmul_path(device, RF_F32, 64, 64, 64, opts), "none");
}

TEST_F(MatmulCall, SizesThatDoNotFitAreNamed)
{
    rf_tensor a = blank(rf_shape2(4, 6)), b = blank(rf_shape2(6, 8)), out = blank(rf_shape2(4, 8));
    rf_tensor short_bias = blank(rf_shape1(7)), short_pre = blank(rf_shape2(4, 7));
    EXPECT_FAILS(RF_EINVAL, "inner sizes differ",
                 rf_matmul(stream, out, a, blank(rf_shape2(5, 8)), nullptr));
    EXPECT_FAILS(RF_EINVAL, "f32 (5, 8)",
                 rf_matmul(stream, out, a, blank(rf_shape2(5, 8)), nullptr));
    EXPECT_FAILS(RF_EINVAL, "is (4, 8)", rf_matmul(stream, blank(rf_shape2(8, 4)), a, b, nullptr));
    rf_matmul_opts opts = {};
    opts.transpose_b = true;
    EXPECT_FAILS(RF_EINVAL, "b is f32 (6, 8) transposed", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.bias = &short_bias;
    EXPECT_FAILS(RF_EINVAL, "bias", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.act = RF_ACT_GELU;
    opts.pre = &short_pre;
    EXPECT_FAILS(RF_EINVAL, "pre", rf_matmul(stream, out, a, b, &opts));
    EXPECT_FAILS(RF_EINVAL, "a is i32",
                 rf_matmul(stream, out, i32(rf_shape2(4, 6), Ints(24)), b, nullptr));
}

TEST_F(MatmulCall, OptionsThatExcludeEachOtherAreNamed)
{
    rf_tensor a = blank(rf_shape2(4, 6)), b = blank(rf_shape2(6, 8)), out = blank(rf_shape2(4, 8));
    rf_tensor bias = blank(rf_shape1(8)), pre = blank(rf_shape2(4, 8));
    rf_matmul_opts opts = {};
    opts.accumulate = true;
    opts.bias = &bias;
    EXPECT_FAILS(RF_EINVAL, "accumulate", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.pre = &pre;
    EXPECT_FAILS(RF_EINVAL, "pre", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.path = "abacus";
    EXPECT_FAILS(RF_ENOTSUP, "abacus", rf_matmul(stream, out, a, b, &opts));
}

TEST_F(MatmulCall, OverlapsAreNamed)
{
    rf_tensor square = blank(rf_shape2(8, 8)), other = blank(rf_shape2(8, 8));
    rf_tensor row, top;
    ASSERT_OK(rf_tensor_rows(square, 0, 4, &top));
    ASSERT_OK(rf_tensor_view(square.buffer, square.offset, rf_shape1(8), RF_F32, &row));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap a",
                 rf_matmul(stream, square, square, other, nullptr));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap b",
                 rf_matmul(stream, square, other, square, nullptr));
    rf_matmul_opts opts = {};
    opts.bias = &row;
    EXPECT_FAILS(RF_EINVAL, "out must not overlap bias",
                 rf_matmul(stream, square, other, other, &opts));
    opts = {};
    opts.act = RF_ACT_GELU;
    opts.pre = &square;
    EXPECT_FAILS(RF_EINVAL, "out must not overlap pre",
                 rf_matmul(stream, square, other, other, &opts));
}

} // namespace
