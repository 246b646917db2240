/* SPDX-License-Identifier: MIT
 *
 * rf_matmul on matrix units against the fp64 product: every type, form, epilogue, tile and kind of
 * edge. Without such units the tests are skipped and name what is missing; the messages for a
 * device without them are tested everywhere.
 */
#include "op_fixture.h"

#include "support/oracle.h"
#include "support/reference_ops.h"

namespace
{

struct Size {
    int64_t m, n, k;
};
/* Whole chunks of eight, tails on every side, 1 and primes. */
const Size even[] = {{32, 64, 16}, {8, 8, 8}, {40, 72, 88}},
           odd[] = {{1, 1, 1},    {33, 65, 5},  {7, 31, 17},  {2, 3, 257},
                    {13, 127, 1}, {67, 89, 53}, {31, 33, 129}},
           mixed[] = {{1, 64, 32}, {36, 4, 40}, {96, 12, 100}, {32, 1, 8}};

struct Form {
    const char *name;
    bool transpose_a, transpose_b;
};
const Form forms[] = {
    {"NN", false, false}, {"NT", false, true}, {"TN", true, false}, {"TT", true, true}};

/* The builds of the shader. */
struct Build {
    rf_dtype operand, out;
    uint32_t split;
    rf_dtype split_type;
    const char *path = "cooperative";
};
const Build builds[] = {{RF_F16, RF_F32, 0, RF_F32},
                        {RF_F16, RF_F16, 0, RF_F32},
                        {RF_BF16, RF_F32, 0, RF_F32},
                        {RF_BF16, RF_BF16, 0, RF_F32},
                        {RF_F32, RF_F32, 1, RF_F16},
                        {RF_F32, RF_F32, 2, RF_F16},
                        {RF_F32, RF_F32, 3, RF_F16},
                        {RF_F32, RF_F32, 1, RF_BF16},
                        {RF_F32, RF_F32, 2, RF_BF16},
                        {RF_F32, RF_F32, 3, RF_BF16},
                        {RF_F16, RF_F32, 0, RF_F32, "workgroup"},
                        {RF_F16, RF_F16, 0, RF_F32, "workgroup"},
                        {RF_BF16, RF_F32, 0, RF_F32, "workgroup"},
                        {RF_BF16, RF_BF16, 0, RF_F32, "workgroup"}};

std::string name_of(const Build &b)
{
    std::string name = b.path == std::string("cooperative") ? "" : std::string(b.path) + "_";
    name += rf_dtype_name(b.operand);
    if (b.split)
        name += "_as_" + std::to_string(b.split) + "_" + rf_dtype_name(b.split_type);
    return name + "_to_" + rf_dtype_name(b.out);
}

class Cooperative : public OpTest, public ::testing::WithParamInterface<Build>
{
  protected:
    static const Build &build()
    {
        return GetParam();
    }
    static rf_matmul_opts options(Form form = forms[0])
    {
        rf_matmul_opts opts = {};
        opts.transpose_a = form.transpose_a;
        opts.transpose_b = form.transpose_b;
        opts.split = build().split;
        opts.split_type = build().split_type;
        opts.path = build().path;
        return opts;
    }
    void SetUp() override
    {
        OpTest::SetUp();
        rf_matmul_opts opts = options();
        rf_tensor a = typed(rf_shape2(1, 1), build().operand, {1});
        rf_tensor out = typed_blank(rf_shape2(1, 1), build().out);
        if (rf_matmul(stream, out, a, a, &opts) == RF_ENOTSUP)
            GTEST_SKIP() << rf_last_error()->message;
        EXPECT_OK(rf_stream_wait(stream));
    }
    struct Product {
        rf_tensor out, a, b;
        Doubles want;
        rf_matmul_opts opts;
        std::string text;
    };
    Product product(Size s, Form form, int shift = 0)
    {
        Product p = {};
        const Floats a = oracle::exact(s.m * s.k, engine), b = oracle::exact(s.k * s.n, engine);
        p.a = typed(form.transpose_a ? rf_shape2(s.k, s.m) : rf_shape2(s.m, s.k), build().operand,
                    a, shift);
        p.b = typed(form.transpose_b ? rf_shape2(s.n, s.k) : rf_shape2(s.k, s.n), build().operand,
                    b, shift);
        p.out = typed_blank(rf_shape2(s.m, s.n), build().out, shift);
        p.want =
            oracle::matmul(wide(a), wide(b), s.m, s.n, s.k, form.transpose_a, form.transpose_b);
        p.opts = options(form);
        p.text = std::string(form.name) + " " + std::to_string(s.m) + " x " + std::to_string(s.n) +
                 " x " + std::to_string(s.k) + " shift " + std::to_string(shift);
        return p;
    }
    static void run(const Product &p)
    {
        EXPECT_OK(rf_matmul(stream, p.out, p.a, p.b, &p.opts)) << p.text;
    }
    /* Sums of the test's data are exact in f32; 16-bit results are rounded once. */
    static double rounding()
    {
        return build().out == RF_F32 ? 0 : step_of(build().out) / 2;
    }
    static void check(const Product &p)
    {
        expect_near(read(p.out), p.want, rounding(), p.text);
    }
};

TEST_P(Cooperative, IsTheProductForEveryFormAndSize)
{
    for (Form form : forms) {
        std::vector<Size> sizes(std::begin(even), std::end(even));
        sizes.insert(sizes.end(), std::begin(odd), std::end(odd));
        /* Each of these needs another compilation by the driver, so not for every form. */
        if (!form.transpose_a && !form.transpose_b)
            sizes.insert(sizes.end(), std::begin(mixed), std::end(mixed));
        for (Size size : sizes) {
            Product p = product(size, form);
            run(p);
            check(p);
        }
    }
}

TEST_P(Cooperative, TensorsMayStartAnywhere)
{
    for (Form form : {forms[0], forms[3]})
        for (Size size : {Size{40, 72, 24}, Size{33, 65, 5}})
            for (int shift : {1, 2}) {
                Product p = product(size, form, shift);
                run(p);
                check(p);
            }
}

enum { ROWS = 13 }; /* of matmul_cooperative.c's table of tiles; the same ones transposed follow */

/* GPUs choose by size; every choice must be right for every size. CPU drivers compile the large
 * ones for many seconds, so only for the first build. */
TEST_P(Cooperative, EveryTileIsRight)
{
    const bool gpu = rf_device_get_info(device)->kind != RF_DEVICE_CPU;
    int ran = 0;
    for (int tile = 1; tile <= 2 * ROWS; tile++) {
        const bool first = name_of(build()) == "f16_to_f32", large = (tile - 1) % ROWS < 7;
        if (!gpu && (first ? large && tile > ROWS : large || tile > ROWS))
            continue;
        const std::string path = build().path + (":" + std::to_string(tile));
        for (Form form : {forms[0], forms[3]}) {
            Product p = product({150, 281, 77}, form);
            p.opts.path = path.c_str();
            p.text += " " + path;
            int rc = rf_matmul(stream, p.out, p.a, p.b, &p.opts);
            if (rc == RF_ENOTSUP)
                break; /* too large for this device */
            EXPECT_OK(rc) << p.text;
            check(p);
            ran++;
        }
    }
    EXPECT_GT(ran, 0);
}

TEST_P(Cooperative, TurnedSlicesGiveTheSameBits)
{
    if (build().path != std::string("cooperative"))
        GTEST_SKIP() << "this path has no slices";
    const Size s = {48, 72};
    for (Form form : {forms[0], forms[2]}) {
        const int64_t k = form.transpose_a ? 96 : 77; /* whole slices, and a tail */
        rf_tensor a = typed(form.transpose_a ? rf_shape2(k, s.m) : rf_shape2(s.m, k),
                            build().operand, normal(s.m * k));
        rf_tensor b = typed(rf_shape2(k, s.n), build().operand, normal(k * s.n));
        Floats got[2];
        for (int turned = 0; turned < 2; turned++) {
            const std::string path = "cooperative:" + std::to_string(10 + turned * ROWS);
            rf_matmul_opts opts = options(form);
            opts.path = path.c_str();
            rf_tensor out = typed_blank(rf_shape2(s.m, s.n), build().out);
            int rc = rf_matmul(stream, out, a, b, &opts);
            if (rc == RF_ENOTSUP)
                GTEST_SKIP() << rf_last_error()->message;
            ASSERT_OK(rc);
            got[turned] = read(out);
        }
        expect_same_bits(got[1], got[0], form.name);
    }
}

TEST_P(Cooperative, AddsABiasToEveryRow)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{1, 1, 1}}) {
            Product p = product(size, form);
            const Floats bias = whole(size.n);
            rf_tensor bias_tensor = typed(rf_shape1(size.n), build().operand, bias, 3);
            p.opts.bias = &bias_tensor;
            run(p);
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] += bias[i % size.n];
            check(p);
        }
}

/* GELU's exponential is the driver's: Vulkan allows 3 + 2|x| ULP, |x| < 40 here. */
TEST_P(Cooperative, AppliesGeluAndKeepsWhatWentIn)
{
    for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{5, 3, 300}})
        for (bool keep : {true, false}) {
            Product p = product(size, forms[1]);
            rf_tensor pre = typed_blank(rf_shape2(size.m, size.n), build().out);
            p.opts.pre = keep ? &pre : nullptr;
            p.opts.act = RF_ACT_GELU;
            run(p);
            if (keep)
                expect_near(read(pre), p.want, rounding(), p.text + " pre");
            for (double &x : p.want)
                x = reference::gelu(x);
            expect_near(read(p.out), p.want, 1e-5 + rounding(), p.text);
        }
}

TEST_P(Cooperative, AccumulateAdds)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}, Size{7, 2, 3}}) {
            Product p = product(size, form);
            const Floats before = whole(size.m * size.n);
            p.out = typed(rf_shape2(size.m, size.n), build().out, before);
            p.opts.accumulate = true;
            run(p);
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] += before[i];
            check(p);
        }
}

TEST_P(Cooperative, TenRunsGiveTheSameBits)
{
    const Size s = {45, 70, 333};
    rf_tensor a = typed(rf_shape2(s.m, s.k), build().operand, normal(s.m * s.k));
    rf_tensor b = typed(rf_shape2(s.k, s.n), build().operand, normal(s.k * s.n));
    rf_matmul_opts opts = options();
    Floats first;
    for (int i = 0; i < 10; i++) {
        rf_tensor out = typed_blank(rf_shape2(s.m, s.n), build().out);
        ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
        Floats got = read(out);
        if (i == 0)
            first = got;
        expect_same_bits(got, first, "run " + std::to_string(i));
    }
}

/* An infinity reaches the results of its row or column, and no others: it must not be multiplied by
 * the padding of tiles. */
TEST_P(Cooperative, InfinityStaysInItsRow)
{
    if (build().split > 1)
        GTEST_SKIP() << "an infinity times the second part of a number is not a number";
    const Size s = {11, 13, 9};
    Floats a(s.m * s.k, 1), b(s.k * s.n, 1);
    a[5 * s.k + 8] = HUGE_VALF;
    rf_matmul_opts opts = options();
    rf_tensor out = typed_blank(rf_shape2(s.m, s.n), build().out);
    ASSERT_OK(rf_matmul(stream, out, typed(rf_shape2(s.m, s.k), build().operand, a),
                        typed(rf_shape2(s.k, s.n), build().operand, b), &opts));
    const Floats got = read(out);
    for (int64_t i = 0; i < s.m * s.n; i++)
        EXPECT_EQ(got[i], i / s.n == 5 ? HUGE_VALF : 9.0f) << "element " << i;
}

/* Normal numbers, to which 16-bit operands are rounded first. Error of split operands: for n parts
 * of b bits, 2^(-n b) of each operand and as much of their product; f16's second part ends at
 * 2^-24, which matters for small elements. f32 sums add 16 eps of the root of the count, as on the
 * other paths. */
TEST_P(Cooperative, ErrorIsThatOfThePartsAndOfTheSum)
{
    const Size s = {45, 70, 333};
    const Floats a = rounded_to(build().operand, normal(s.m * s.k));
    const Floats b = rounded_to(build().operand, normal(s.k * s.n));
    rf_matmul_opts opts = options();
    rf_tensor out = typed_blank(rf_shape2(s.m, s.n), build().out);
    ASSERT_OK(rf_matmul(stream, out, typed(rf_shape2(s.m, s.k), build().operand, a),
                        typed(rf_shape2(s.k, s.n), build().operand, b), &opts));
    const Doubles want = oracle::matmul(wide(a), wide(b), s.m, s.n, s.k, false, false);
    const double root = std::sqrt((double)s.k);
    double parts = 0;
    if (build().split) {
        const int bits = build().split_type == RF_F16 ? 11 : 8;
        parts = 8 * root * std::ldexp(1, -bits * (int)build().split);
        parts += build().split_type == RF_F16 ? root * 0x1p-22 : 0;
    }
    const double scale = root * 16 * 1.2e-7 + parts;
    const Floats got = read(out);
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double error = std::fabs(got[i] - want[i]);
        worst = std::max(worst, error);
        ASSERT_LE(error, scale + (rounding() + 1e-6) * std::fabs(want[i])) << "element " << i;
    }
    RecordProperty("worst_error_over_root_k", std::to_string(worst / root));
}

INSTANTIATE_TEST_SUITE_P(Build, Cooperative, ::testing::ValuesIn(builds),
                         [](const auto &info) { return name_of(info.param); });

using MatrixUnits = OpTest;

TEST_F(MatrixUnits, ADeviceOpenedWithoutThemSaysSo)
{
    struct rf_device_opts hidden = {};
    hidden.hide_matrix_units = true;
    struct rf_device *plain = nullptr;
    ASSERT_OK(rf_device_open(nullptr, &hidden, &plain));
    const rf_device_info *info = rf_device_get_info(plain);
    EXPECT_FALSE(info->cooperative_matrix || info->workgroup_matrix);
    EXPECT_EQ(info->matrix_shape_count, 0u);
    EXPECT_NE(std::string(info->matrix_reason), "");
    rf_matmul_opts opts = {};
    opts.path = "cooperative";
    EXPECT_STREQ(matmul_path(plain, RF_F16, 64, 64, 64, opts), "none");
    rf_device_close(plain);
}

TEST_F(MatrixUnits, TheRecordHasAReasonExactlyWhereThereAreNone)
{
    const rf_device_info *info = rf_device_get_info(device);
    EXPECT_EQ(info->cooperative_matrix, info->matrix_reason[0] == '\0');
    for (uint32_t i = 0; i < info->matrix_shape_count; i++) {
        EXPECT_GE(info->matrix_shapes[i].m, 1);
        EXPECT_TRUE(info->matrix_shapes[i].operand == RF_F16 ||
                    info->matrix_shapes[i].operand == RF_BF16);
    }
}

TEST_F(MatrixUnits, EveryPathIsListedWithAReasonWhereItDoesNotRun)
{
    uint32_t count = 0;
    ASSERT_OK(rf_matmul_paths(device, nullptr, 0, &count));
    std::vector<rf_matmul_path_info> paths(count);
    ASSERT_OK(rf_matmul_paths(device, paths.data(), count, &count));
    bool f32 = false;
    for (const rf_matmul_path_info &p : paths) {
        EXPECT_EQ(p.usable, p.reason[0] == '\0') << p.name;
        f32 |= p.usable && p.type == RF_F32;
        rf_matmul_opts opts = {};
        opts.path = p.name;
        opts.split = p.split_only;
        std::string path = matmul_path(device, p.type, 64, 64, 64, opts);
        opts.split_type = RF_F16; /* the device may support either */
        path = path == "none" ? matmul_path(device, p.type, 64, 64, 64, opts) : path;
        EXPECT_EQ(path, p.usable ? p.name : "none");
    }
    EXPECT_TRUE(f32);
    EXPECT_FAILS(RF_EINVAL, "needs a device", rf_matmul_paths(nullptr, nullptr, 0, &count));
}

TEST_F(MatrixUnits, SplitThatMakesNoSenseIsNamed)
{
    rf_tensor a = blank(rf_shape2(8, 8)), b = blank(rf_shape2(8, 8)), out = blank(rf_shape2(8, 8));
    rf_matmul_opts opts = {};
    opts.split = 4;
    EXPECT_FAILS(RF_EINVAL, "split is 4", rf_matmul(stream, out, a, b, &opts));
    opts.split = 2;
    opts.split_type = RF_I32;
    EXPECT_FAILS(RF_EINVAL, "split_type is i32", rf_matmul(stream, out, a, b, &opts));
}

/* A request for matrix units on a device without them is not an error: plain f32 is more exact. */
TEST_F(MatrixUnits, SplitFallsBackToF32)
{
    const Floats a = normal(40 * 50), b = normal(50 * 30);
    rf_tensor out = blank(rf_shape2(40, 30));
    rf_matmul_opts opts = {};
    opts.split = 3;
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape2(40, 50), a), f32(rf_shape2(50, 30), b), &opts));
    expect_near(read(out), oracle::matmul(wide(a), wide(b), 40, 30, 50, false, false), 2e-5,
                "split or not");
}

} // namespace
