/* SPDX-License-Identifier: MIT
 *
 * rf_matmul on matrices that are parts of others, on batches of them, and with k split: against the
 * fp64 product of copies. Memory between the rows of out must not change.
 */
#include "op_fixture.h"

#include "support/oracle.h"

namespace
{

struct Form {
    const char *name;
    bool transpose_a, transpose_b;
};
const Form forms[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};

struct Case {
    const char *path;
    rf_dtype type;
};

class MatmulLayout : public OpTest, public ::testing::WithParamInterface<Case>
{
  protected:
    /* `count` matrices of (rows, columns) within numbers, at the places given by the layout. */
    static Doubles pick(const Floats &data, rf_layout layout, int64_t z, int64_t rows,
                        int64_t columns)
    {
        Doubles all;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                all.push_back(data.at(z * layout.step + i * layout.row + j));
        return all;
    }
    static int64_t extent(rf_layout layout, int64_t batch, int64_t rows, int64_t columns)
    {
        return (batch - 1) * layout.step + (rows - 1) * layout.row + columns;
    }
    void check(Form form, int64_t m, int64_t n, int64_t k, int64_t batch, rf_layout a, rf_layout b,
               rf_layout out, int shift)
    {
        const int64_t a_rows = form.transpose_a ? k : m, a_columns = form.transpose_a ? m : k;
        const int64_t b_rows = form.transpose_b ? n : k, b_columns = form.transpose_b ? k : n;
        const Floats x = oracle::exact(extent(a, batch, a_rows, a_columns), engine);
        const Floats y = oracle::exact(extent(b, batch, b_rows, b_columns), engine);
        Floats want(extent(out, batch, m, n), 99.0f);
        rf_tensor t = typed(rf_shape1(want.size()), GetParam().type, want, shift);
        rf_matmul_opts opts = {};
        opts.transpose_a = form.transpose_a;
        opts.transpose_b = form.transpose_b;
        opts.m = m;
        opts.n = n;
        opts.k = k;
        opts.batch = batch;
        opts.a_layout = a;
        opts.b_layout = b;
        opts.out_layout = out;
        opts.path = GetParam().path;
        const std::string text = std::string(form.name) + " " + std::to_string(m) + " x " +
                                 std::to_string(n) + " x " + std::to_string(k) + " batch " +
                                 std::to_string(batch) + " shift " + std::to_string(shift);
        ASSERT_OK(rf_matmul(stream, t, typed(rf_shape1(x.size()), GetParam().type, x, shift),
                            typed(rf_shape1(y.size()), GetParam().type, y, shift), &opts))
            << text;
        for (int64_t z = 0; z < batch; z++) {
            const Doubles product =
                oracle::matmul(pick(x, a, z, a_rows, a_columns), pick(y, b, z, b_rows, b_columns),
                               m, n, k, form.transpose_a, form.transpose_b);
            for (int64_t i = 0; i < m * n; i++)
                want[z * out.step + i / n * out.row + i % n] = (float)product[i];
        }
        expect_near(read(t), wide(rounded_to(GetParam().type, want)), 0, text);
    }
};

TEST_P(MatmulLayout, RowsMayHaveGapsAndBatchesAnyStep)
{
    for (Form form : forms)
        for (int shift : {0, 1}) {
            check(form, 20, 36, 12, 3, {48, 2000}, {52, 1904}, {40, 808}, shift); /* all in fours */
            check(form, 7, 33, 5, 4, {41, 333}, {39, 1301}, {35, 251}, shift);
            check(form, 35, 9, 17, 1, {37, 0}, {19, 0}, {9, 0}, shift);
        }
}

TEST_P(MatmulLayout, AMatrixMayServeTheWholeBatch)
{
    for (Form form : forms) {
        check(form, 9, 12, 20, 3, {24, 0}, {20, 400}, {12, 108}, 0);
        check(form, 9, 12, 20, 3, {24, 500}, {20, 0}, {12, 108}, 0);
    }
}

/* Scores of all heads of one sequence: q k^T out of (T,3C), and the weighted sum of v beside the
 * other heads' into (T,C). */
TEST_P(MatmulLayout, HeadsLieBesideEachOther)
{
    const int64_t T = 21, H = 3, D = 8, C = H * D;
    check(forms[1], T, T, D, H, {3 * C, D}, {3 * C, D}, {T, T * T}, 0);
    check(forms[0], T, D, T, H, {T, T * T}, {3 * C, D}, {C, D}, 0);
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const char *path : {"subgroup", "tiled"})
        for (rf_dtype type : float_types)
            all.push_back({path, type});
    return all;
}
INSTANTIATE_TEST_SUITE_P(All, MatmulLayout, ::testing::ValuesIn(cases()), [](const auto &info) {
    return std::string(info.param.path) + "_" + rf_dtype_name(info.param.type);
});

using MatmulBatch = OpTest;

TEST_F(MatmulBatch, SizesComeFromTheShapesWhereNoneAreGiven)
{
    const Floats a = oracle::exact(3 * 4 * 6, engine), b = oracle::exact(6 * 8, engine);
    rf_tensor out = blank(rf_shape3(3, 4, 8));
    rf_matmul_opts opts = {};
    opts.batch = 3;
    opts.a_layout.step = 24;
    ASSERT_OK(rf_matmul(stream, out, f32(rf_shape3(3, 4, 6), a), f32(rf_shape2(6, 8), b), &opts));
    expect_near(read(out), oracle::matmul(wide(a), wide(b), 12, 8, 6, false, false), 0, "3 of 4");
}

TEST_F(MatmulBatch, WhatDoesNotFitIsNamed)
{
    rf_tensor a = blank(rf_shape1(100)), b = blank(rf_shape1(100)), out = blank(rf_shape1(100));
    rf_matmul_opts opts = {};
    opts.m = opts.n = opts.k = 5;
    opts.batch = 4;
    opts.a_layout = opts.b_layout = opts.out_layout = {5, 25};
    EXPECT_OK(rf_matmul(stream, out, a, b, &opts));
    EXPECT_OK(rf_stream_wait(stream));
    opts.a_layout.step = 26;
    EXPECT_FAILS(RF_EINVAL, "a is f32 (100); 4 products of (5, 5)",
                 rf_matmul(stream, out, a, b, &opts));
    opts.a_layout.step = -1;
    EXPECT_FAILS(RF_EINVAL, "steps not be negative", rf_matmul(stream, out, a, b, &opts));
    opts.a_layout = {4, 25};
    EXPECT_FAILS(RF_EINVAL, "a has rows of 5, 4 elements apart",
                 rf_matmul(stream, out, a, b, &opts));
    opts.a_layout = {5, 25};
    opts.out_layout.step = 24;
    EXPECT_FAILS(RF_EINVAL, "products of the batch overlap in out",
                 rf_matmul(stream, out, a, b, &opts));
    opts.out_layout = {15, 4};
    opts.batch = 2;
    EXPECT_FAILS(RF_EINVAL, "overlap in out", rf_matmul(stream, out, a, b, &opts));
    opts.batch = 65536;
    EXPECT_FAILS(RF_EINVAL, "batch is 65536", rf_matmul(stream, out, a, b, &opts));
    opts.batch = 1;
    opts.k = 0;
    EXPECT_FAILS(RF_EINVAL, "give all three", rf_matmul(stream, out, a, b, &opts));
    opts.m = opts.n = 0;
    EXPECT_FAILS(RF_EINVAL, "needs m, n and k", rf_matmul(stream, out, a, b, &opts));
}

TEST_F(MatmulBatch, EpiloguesThatMakeNoSenseAreNamed)
{
    rf_tensor a = blank(rf_shape2(4, 6)), b = blank(rf_shape2(6, 8)), out = blank(rf_shape2(4, 8));
    rf_tensor pre = blank(rf_shape2(4, 8)), half = typed_blank(rf_shape2(4, 8), RF_F16);
    rf_matmul_opts opts = {};
    opts.act = RF_ACT_SILU;
    opts.act_backward = true;
    EXPECT_FAILS(RF_EINVAL, "act_backward needs", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.act = (rf_activation)9;
    EXPECT_FAILS(RF_EINVAL, "act is 9", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.residual = &half;
    EXPECT_FAILS(RF_EINVAL, "residual is f16", rf_matmul(stream, out, a, b, &opts));
    opts = {};
    opts.act = RF_ACT_RELU;
    opts.pre = &pre;
    opts.residual = &pre;
    EXPECT_FAILS(RF_EINVAL, "pre must not overlap residual", rf_matmul(stream, out, a, b, &opts));
    EXPECT_FAILS(RF_EINVAL, "out is bf16",
                 rf_matmul(stream, typed_blank(rf_shape2(4, 8), RF_BF16),
                           typed_blank(rf_shape2(4, 6), RF_F16),
                           typed_blank(rf_shape2(6, 8), RF_F16), nullptr));
}

/* Exact data: any split gives the same sums. Ten runs give the same bits for any data. */
TEST_F(MatmulBatch, PartsOfKAddUpInOneOrder)
{
    const Form all[] = {{"NN", false, false}, {"NT", false, true}, {"TN", true, false}};
    for (const char *path : {"subgroup", "tiled"})
        for (Form form : all)
            for (rf_dtype type : float_types) {
                const int64_t m = 9, n = 12, k = 1003;
                rf_matmul_opts opts = {};
                opts.transpose_a = form.transpose_a;
                opts.transpose_b = form.transpose_b;
                opts.path = path;
                const int64_t needed = matmul_scratch(device, type, m, n, k, opts);
                ASSERT_GE(needed, 2 * m * n);
                rf_tensor scratch = blank(rf_shape1(needed));
                const Floats a = oracle::exact(m * k, engine), b = oracle::exact(k * n, engine);
                const Floats before = whole(m * n), noise = rounded_to(type, normal(m * k));
                const rf_shape as = form.transpose_a ? rf_shape2(k, m) : rf_shape2(m, k);
                const rf_shape bs = form.transpose_b ? rf_shape2(n, k) : rf_shape2(k, n);
                rf_tensor out = typed(rf_shape2(m, n), type, before, 1), at = typed(as, type, a),
                          bt = typed(bs, type, b);
                opts.accumulate = true;
                const Doubles product =
                    oracle::matmul(wide(a), wide(b), m, n, k, form.transpose_a, form.transpose_b);
                Floats want(m * n);
                for (int64_t i = 0; i < m * n; i++)
                    want[i] = (float)(product[i] + before[i]);
                // As many parts as the scratch memory holds, fewer, and none.
                for (int64_t scratch_elements : {needed, needed - 1, 2 * m * n, 2 * m * n - 1}) {
                    rf_tensor part = blank(rf_shape1(scratch_elements));
                    rf_tensor sum = typed(rf_shape2(m, n), type, before, 1);
                    opts.scratch = &part;
                    ASSERT_OK(rf_matmul(stream, sum, at, bt, &opts));
                    expect_near(read(sum), wide(rounded_to(type, want)), 0,
                                std::string(path) + " " + form.name + " " + rf_dtype_name(type) +
                                    " scratch elements " + std::to_string(scratch_elements));
                    const bool used = read(part)[0] != -12345.0f;
                    EXPECT_EQ(used, scratch_elements >= 2 * m * n) << scratch_elements;
                }
                opts.scratch = &scratch;
                opts.accumulate = false;
                rf_tensor random = typed(as, type, noise);
                Floats first;
                for (int i = 0; i < 10; i++) {
                    ASSERT_OK(rf_matmul(stream, out, random, bt, &opts));
                    Floats got = read(out);
                    if (i == 0)
                        first = got;
                    expect_same_bits(got, first, "run " + std::to_string(i));
                }
            }
}

TEST_F(MatmulBatch, LargeOrShortProductsAreNotSplit)
{
    EXPECT_EQ(matmul_scratch(device, RF_F32, 4096, 4096, 8192), 0);
    EXPECT_EQ(matmul_scratch(device, RF_F32, 8, 8, 256), 0);
    rf_matmul_opts opts = {};
    opts.batch = 2;
    EXPECT_EQ(matmul_scratch(device, RF_F32, 8, 8, 8192, opts), 0);
}

} // namespace
