/* SPDX-License-Identifier: MIT
 *
 * rf_matmul on every path with every pair of types, epilogue, layout and offset, against the fp64
 * product. Data are exact in all types and in fp32 sums, so results are the true value rounded once
 * to out's type.
 */
#include "op_fixture.h"

#include "support/oracle.h"
#include "support/reference_ops.h"

namespace
{

struct Size {
    int64_t m, n, k;
};
struct Form {
    const char *name;
    bool transpose_a, transpose_b;
};
const Form forms[] = {
    {"NN", false, false}, {"NT", false, true}, {"TN", true, false}, {"TT", true, true}};

struct Types {
    rf_dtype operand, result;
};
const Types pairs[] = {{RF_F32, RF_F32}, {RF_F32, RF_F16},   {RF_F32, RF_BF16}, {RF_F16, RF_F16},
                       {RF_F16, RF_F32}, {RF_BF16, RF_BF16}, {RF_BF16, RF_F32}};

struct Case {
    const char *path;
    Types types;
};
std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const char *path : {"subgroup", "tiled"})
        for (Types types : pairs)
            all.push_back({path, types});
    all.push_back(
        {"subgroup:1", {RF_F16, RF_F16}}); /* tall tiles; the others are low at these sizes */
    return all;
}

class MatmulTypes : public OpTest, public ::testing::WithParamInterface<Case>
{
  protected:
    struct Product {
        Size size;
        rf_tensor out, a, b;
        Doubles want; /* a b */
        rf_matmul_opts opts;
        std::string text;
    };
    static bool runs(Form form)
    {
        return !(form.transpose_a && form.transpose_b) || strcmp(GetParam().path, "tiled") == 0;
    }
    Product product(Size size, Form form, int shift = 0)
    {
        Product p = {};
        p.size = size;
        const Floats a = oracle::exact(size.m * size.k, engine);
        const Floats b = oracle::exact(size.k * size.n, engine);
        p.a =
            in(form.transpose_a ? rf_shape2(size.k, size.m) : rf_shape2(size.m, size.k), a, shift);
        p.b =
            in(form.transpose_b ? rf_shape2(size.n, size.k) : rf_shape2(size.k, size.n), b, shift);
        p.out = typed_blank(rf_shape2(size.m, size.n), GetParam().types.result, shift);
        p.want = oracle::matmul(wide(a), wide(b), size.m, size.n, size.k, form.transpose_a,
                                form.transpose_b);
        p.opts.transpose_a = form.transpose_a;
        p.opts.transpose_b = form.transpose_b;
        p.opts.path = GetParam().path;
        p.text = std::string(form.name) + " " + std::to_string(size.m) + " x " +
                 std::to_string(size.n) + " x " + std::to_string(size.k) + " shift " +
                 std::to_string(shift);
        return p;
    }
    rf_tensor in(rf_shape shape, const Floats &data, int shift = 0)
    {
        EXPECT_EQ(data, rounded_to(GetParam().types.operand, data));
        return typed(shape, GetParam().types.operand, data, shift);
    }
    rf_tensor like_out(rf_shape shape, const Floats &data, int shift = 0)
    {
        return typed(shape, GetParam().types.result, data, shift);
    }
    static Doubles once_rounded(const Doubles &data)
    {
        return wide(rounded_to(GetParam().types.result, Floats(data.begin(), data.end())));
    }
    /* The error of the exponential, and one rounding to out's type. */
    static double tolerance()
    {
        rf_dtype result = GetParam().types.result;
        return result == RF_F32 ? 1e-5 : 1e-5 + 0.5 * step_of(result);
    }
    void check(const Product &p)
    {
        EXPECT_OK(rf_matmul(stream, p.out, p.a, p.b, &p.opts)) << p.text;
        expect_near(read(p.out), once_rounded(p.want), 0, p.text);
    }
};

TEST_P(MatmulTypes, EveryFormAndSizeIsRoundedOnce)
{
    const Size sizes[] = {{1, 1, 1},    {2, 3, 257},   {33, 65, 5},  {31, 67, 17},
                          {64, 128, 8}, {36, 68, 100}, {13, 127, 1}, {1, 64, 40}};
    for (Form form : forms)
        for (Size size : sizes)
            if (runs(form))
                check(product(size, form));
}

TEST_P(MatmulTypes, TensorsMayStartAtAnyElement)
{
    for (Form form : forms)
        for (int shift = 1; shift < 8; shift++)
            if (runs(form))
                check(product(shift % 2 ? Size{9, 68, 12} : Size{35, 7, 5}, form, shift));
}

TEST_P(MatmulTypes, ScaleBiasAndResidualAreAddedBeforeTheRounding)
{
    for (Form form : forms)
        for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}}) {
            if (!runs(form))
                continue;
            Product p = product(size, form);
            const Floats bias = whole(size.n), residual = whole(size.m * size.n);
            rf_tensor bias_tensor = in(rf_shape1(size.n), bias, 3);
            rf_tensor residual_tensor = like_out(rf_shape2(size.m, size.n), residual, size.m % 2);
            p.opts.bias = &bias_tensor;
            p.opts.residual = &residual_tensor;
            p.opts.alpha = size.n == 5 ? RF_ZERO : -0.5f; /* zero itself, not unset */
            const double alpha = size.n == 5 ? 0 : -0.5;
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] = alpha * p.want[i] + bias[i % size.n] + residual[i];
            check(p);
        }
}

TEST_P(MatmulTypes, ResidualAndAccumulateMayBeOutItself)
{
    for (Form form : forms)
        for (bool accumulate : {true, false}) {
            if (!runs(form))
                continue;
            Product p = product({37, 70, 9}, form);
            const Floats before = whole(p.want.size());
            p.out = like_out(p.out.shape, before, 1);
            p.opts.accumulate = accumulate;
            p.opts.residual = accumulate ? nullptr : &p.out;
            for (size_t i = 0; i < p.want.size(); i++)
                p.want[i] += before[i];
            check(p);
        }
}

struct Activation {
    const char *name;
    rf_activation act;
    double (*of)(double);
};
double relu(double x)
{
    return x > 0 ? x : 0;
}
double silu(double x)
{
    return x / (1 + std::exp(-x));
}
const Activation activations[] = {{"relu", RF_ACT_RELU, relu},
                                  {"gelu", RF_ACT_GELU, reference::gelu},
                                  {"silu", RF_ACT_SILU, silu}};

TEST_P(MatmulTypes, ActivationsKeepWhatWentIn)
{
    for (Form form : forms)
        for (Activation act : activations)
            for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}}) {
                if (!runs(form))
                    continue;
                Product p = product(size, form);
                const Floats bias = whole(size.n);
                rf_tensor bias_tensor = in(rf_shape1(size.n), bias);
                rf_tensor pre = like_out(p.out.shape, Floats(p.want.size(), 77.0f));
                p.opts.bias = &bias_tensor;
                p.opts.pre = &pre;
                p.opts.act = act.act;
                EXPECT_OK(rf_matmul(stream, p.out, p.a, p.b, &p.opts)) << p.text;
                for (size_t i = 0; i < p.want.size(); i++)
                    p.want[i] += bias[i % size.n];
                expect_near(read(pre), once_rounded(p.want), 0, p.text + " pre");
                for (double &x : p.want)
                    x = act.of(x);
                expect_near(read(p.out), p.want, tolerance(), p.text + act.name);
            }
}

/* The derivative by central differences in fp64: their own error is under 1e-9 of curvature. */
TEST_P(MatmulTypes, BackwardMultipliesByTheDerivative)
{
    for (Form form : forms)
        for (Activation act : activations)
            for (Size size : {Size{33, 65, 5}, Size{40, 72, 8}}) {
                if (!runs(form))
                    continue;
                Product p = product(size, form);
                Floats at = rounded_to(GetParam().types.result, normal(p.want.size(), 2));
                rf_tensor pre = like_out(p.out.shape, at);
                p.opts.pre = &pre;
                p.opts.act = act.act;
                p.opts.act_backward = true;
                EXPECT_OK(rf_matmul(stream, p.out, p.a, p.b, &p.opts)) << p.text;
                for (size_t i = 0; i < p.want.size(); i++) {
                    const double x = at[i], step = std::min(1e-5, std::fabs(x) / 2);
                    p.want[i] *= x == 0 ? 0 : (act.of(x + step) - act.of(x - step)) / (2 * step);
                }
                expect_near(read(p.out), p.want, tolerance(), p.text + act.name);
            }
}

TEST_P(MatmulTypes, TenRunsGiveTheSameBits)
{
    const Size size = {45, 70, 333};
    rf_dtype operand = GetParam().types.operand;
    rf_tensor a = in(rf_shape2(size.m, size.k), rounded_to(operand, normal(size.m * size.k)));
    rf_tensor b = in(rf_shape2(size.k, size.n), rounded_to(operand, normal(size.k * size.n)));
    rf_matmul_opts opts = {};
    opts.path = GetParam().path;
    Floats first;
    for (int i = 0; i < 10; i++) {
        rf_tensor out = typed_blank(rf_shape2(size.m, size.n), GetParam().types.result);
        ASSERT_OK(rf_matmul(stream, out, a, b, &opts));
        Floats got = read(out);
        if (i == 0)
            first = got;
        expect_same_bits(got, first, "run " + std::to_string(i));
    }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTypes, ::testing::ValuesIn(cases()), [](const auto &info) {
    const std::string path = info.param.path;
    return (path == "subgroup:1" ? "tall" : path) + "_" + rf_dtype_name(info.param.types.operand) +
           "_" + rf_dtype_name(info.param.types.result);
});

} // namespace
