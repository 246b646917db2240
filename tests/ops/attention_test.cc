/* SPDX-License-Identifier: MIT
 *
 * Attention, forward and backward, on every path that this device supports, in every type.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

extern "C" {
#include "ops/attention_forms.h"
}

namespace
{
struct Case {
    int64_t B, T, keys, H, K, D; /* queries (B,T,H,D), keys and values (B,keys,K,D) */
    bool full;
    float scale;
    int shift;
};
/* Few head sizes, as each is compiled separately, which takes CPU drivers up to 20 s for tiles:
 * most tests share 64. */
const Case cases[] = {
    {1, 1, 1, 1, 1, 64, false, 0, 0},     {2, 3, 3, 2, 1, 64, false, 0, 0},
    {1, 17, 31, 4, 2, 64, false, 0, 0},   {1, 67, 67, 6, 2, 64, false, 0.2f, 0},
    {1, 131, 137, 2, 2, 64, false, 0, 0}, {2, 1, 40, 2, 1, 64, false, 0, 0},
    {2, 13, 29, 3, 3, 64, true, 0, 0},    {1, 29, 13, 4, 1, 64, true, 0.3f, 0},
    {1, 70, 131, 2, 1, 64, true, 0, 0},   {1, 19, 19, 2, 2, 5, false, 0, 0},
    {1, 7, 1, 2, 1, 5, true, 0, 0},       {1, 40, 40, 2, 1, 5, false, 0, 1},
};
/* Fewer still: CPU drivers compile matrix units for seconds. */
const Case unit_cases[] = {
    {1, 67, 70, 4, 2, 64, false, 0, 0},
    {2, 33, 13, 2, 1, 40, true, 0.2f, 0},
    {1, 40, 40, 2, 1, 16, false, 0, 1},
};
/* Forms of tiles (attention_forms.c), each with workgroups that end within a tile, heads that end
 * within a quad, or sums in several pairs. */
const struct FormCase {
    size_t form;
    bool every_type;
    Case c;
} form_cases[] = {
    {0, false, {1, 67, 70, 4, 2, 40, false, 0, 0}},
    {3, false, {1, 67, 70, 4, 2, 40, false, 0, 0}},
    {6, false, {1, 67, 70, 4, 2, 40, false, 0, 0}},
    {7, false, {1, 70, 67, 2, 2, 80, true, 0, 0}},
    {8, false, {2, 33, 65, 2, 1, 33, true, 0.2f, 0}},
    {9, true, {1, 67, 70, 4, 2, 40, false, 0, 1}},
    {10, false, {1, 35, 35, 2, 2, 128, false, 0, 0}},
};
/* Scores are sums of up to 128 products of numbers near 1 and pass through exp: about 1e-6. */
const double TOLERANCE = 1e-5;
const char *const paths[] = {"rows", "tiled"};

class Attention : public TypedOpTest
{
  protected:
    struct Inputs {
        Floats q, k, v, dout;
    };
    Inputs random_inputs(const Case &c)
    {
        size_t queries = c.B * c.T * c.H * c.D, keys = c.B * c.keys * c.K * c.D;
        return {rounded(normal(queries)), rounded(normal(keys)), rounded(normal(keys)),
                rounded(normal(queries))};
    }
    struct Result {
        Floats out, lse, dq, dk, dv;
    };
    static rf_heads dense(rf_tensor tensor, const Case &c, bool keys)
    {
        return rf_heads_in(tensor, c.D, 0, keys ? c.K : c.H);
    }
    static rf_shape queries_of(const Case &c)
    {
        return rf_shape3(c.B, c.T, c.H * c.D);
    }
    static rf_shape keys_of(const Case &c)
    {
        return rf_shape3(c.B, c.keys, c.K * c.D);
    }
    /* Every operand a tensor of its own. */
    Result run(const Case &c, const Inputs &data, const char *path)
    {
        rf_attention_args args = {};
        args.q = dense(in(queries_of(c), data.q, c.shift), c, false);
        args.k = dense(in(keys_of(c), data.k), c, true);
        args.v = dense(in(keys_of(c), data.v), c, true);
        args.out = dense(out(queries_of(c), c.shift), c, false);
        args.lse = blank(rf_shape3(c.B, c.H, c.T));
        args.full = c.full;
        args.scale = c.scale;
        args.path = path;
        rf_attention_grads grads = {};
        grads.dout = dense(in(queries_of(c), data.dout), c, false);
        grads.dq = dense(out(queries_of(c)), c, false);
        grads.dk = dense(out(keys_of(c)), c, true);
        grads.dv = dense(out(keys_of(c)), c, true);
        grads.delta = blank(rf_shape3(c.B, c.H, c.T));
        EXPECT_OK(rf_attend(stream, &args));
        EXPECT_OK(rf_attend_backward(stream, &args, &grads));
        return {read(args.out.tensor), read(args.lse), read(grads.dq.tensor), read(grads.dk.tensor),
                read(grads.dv.tensor)};
    }
    static std::string name(const Case &c, const char *what, const char *path)
    {
        return std::string(what) + " on path " + path + " of B " + std::to_string(c.B) + " T " +
               std::to_string(c.T) + " keys " + std::to_string(c.keys) + " H " +
               std::to_string(c.H) + " K " + std::to_string(c.K) + " D " + std::to_string(c.D) +
               (c.full ? " full" : " causal");
    }
    static reference::AttentionSize size(const Case &c)
    {
        return {c.B, c.T, c.H, c.D, c.keys, c.K, c.full, c.scale};
    }
    static void expect_right(const Case &c, const Inputs &data, const Result &got,
                             double backward_tolerance, const char *path,
                             double forward_tolerance = 0)
    {
        const double least = std::max(tolerance(TOLERANCE), forward_tolerance);
        Doubles q = wide(data.q), k = wide(data.k), v = wide(data.v);
        auto want = reference::attend(q, k, v, size(c));
        expect_near(got.out, want.out, least, name(c, "out", path));
        expect_near(got.lse, want.lse, TOLERANCE, name(c, "lse", path));
        auto grad = reference::attend_backward(wide(data.dout), wide(got.out), q, k, v, size(c));
        double most = std::max(least, backward_tolerance);
        expect_near(got.dq, grad.dq, most, name(c, "dq", path));
        expect_near(got.dk, grad.dk, most, name(c, "dk", path));
        expect_near(got.dv, grad.dv, most, name(c, "dv", path));
    }
    bool has_units() const
    {
        const rf_device_info *info = rf_device_get_info(device);
        for (uint32_t i = 0; i < info->matrix_shape_count; i++)
            if (info->matrix_shapes[i].operand == type() && info->cooperative_matrix &&
                !info->matrix_shapes[i].invocations)
                return true;
        return false;
    }
    /* Weights are rounded to the type: half a step of each, times values and gradients of up to 4,
     * plus, in dq and dk, those of the scores' gradients, which are differences of such terms. */
    void expect_right_on_units(const Case &c, const Inputs &data, const char *path)
    {
        expect_right(c, data, run(c, data, path), 8 * step_of(type()), path, 2 * step_of(type()));
    }
    bool can_run(const Case &c, const Inputs &data, const char *path)
    {
        rf_attention_args args = {};
        args.q = dense(in(queries_of(c), data.q), c, false);
        args.k = dense(in(keys_of(c), data.k), c, true);
        args.v = dense(in(keys_of(c), data.v), c, true);
        args.out = dense(out(queries_of(c)), c, false);
        args.lse = blank(rf_shape3(c.B, c.H, c.T));
        args.path = path;
        return rf_attend(stream, &args) == 0;
    }
};
ALL_TYPES(Attention);
class AttentionOfF32 : public Attention
{
  protected:
    void expect_sizes_right(int64_t first, int64_t last)
    {
        for (int64_t D = first; D <= last; D += 8) {
            const Case c = {1, 9, 11, 2, 1, D, false, 0, 0};
            Inputs data = random_inputs(c);
            bool tiled_too = !is_cpu() || D == 40;
            for (const char *path : paths)
                if (tiled_too || strcmp(path, "tiled") != 0)
                    expect_right(c, data, run(c, data, path), 0, path);
        }
    }
    static bool is_cpu()
    {
        return rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    }
};
INSTANTIATE_TEST_SUITE_P(Type, AttentionOfF32, ::testing::Values(RF_F32),
                         [](const auto &) { return "f32"; });

TEST_P(Attention, ForwardAndBackwardMatchTheReference)
{
    for (const Case &c : cases) {
        Inputs data = random_inputs(c);
        for (const char *path : paths)
            expect_right(c, data, run(c, data, path), 0, path);
    }
}

/* In parts, as each size is compiled separately. */
TEST_P(AttentionOfF32, HeadSizesFrom32To56MatchTheReference)
{
    expect_sizes_right(32, 56);
}
TEST_P(AttentionOfF32, HeadSizesFrom64To88MatchTheReference)
{
    expect_sizes_right(64, 88);
}
TEST_P(AttentionOfF32, HeadSizesFrom96To128MatchTheReference)
{
    expect_sizes_right(96, 128);
}

/* Chosen or not. CPU drivers compile fully unrolled forms for half a minute. */
TEST_P(Attention, FormsOfTilesMatchTheReference)
{
    const rf_device_info *info = rf_device_get_info(device);
    for (const FormCase &f : form_cases) {
        const rf_attention_form *form = &rf_attention_forms[f.form];
        if ((type() != RF_F32 && !f.every_type) || !rf_attention_form_fits(info, form, f.c.D) ||
            (info->kind == RF_DEVICE_CPU && form->step == 16))
            continue;
        const std::string path = "tiled:" + std::to_string(f.form);
        Inputs data = random_inputs(f.c);
        expect_right(f.c, data, run(f.c, data, path.c_str()), 0, path.c_str());
    }
}

/* The forms of one tile assign work to invocations differently; the order of sums is the same. */
TEST_P(AttentionOfF32, WhatIsUnrolledOrSplitChangesNoBit)
{
    const Case c = {1, 67, 70, 2, 1, 40, false, 0, 0};
    Inputs data = random_inputs(c);
    Result want = run(c, data, "tiled:2");
    expect_right(c, data, want, 0, "tiled:2");
    for (const char *path : {"tiled:1", "tiled:4", "tiled:5"}) {
        Result got = run(c, data, path);
        expect_same_bits(got.out, want.out, name(c, "out", path));
        expect_same_bits(got.dq, want.dq, name(c, "dq", path));
        expect_same_bits(got.dk, want.dk, name(c, "dk", path));
        expect_same_bits(got.dv, want.dv, name(c, "dv", path));
    }
}

TEST_P(AttentionOfF32, PathsThatNameNoFormAreRefused)
{
    const Case c = {1, 3, 3, 1, 1, 16, false, 0, 0};
    Inputs data = random_inputs(c);
    rf_attention_args args = {};
    args.q = dense(in(queries_of(c), data.q), c, false);
    args.k = dense(in(keys_of(c), data.k), c, true);
    args.v = dense(in(keys_of(c), data.v), c, true);
    args.out = dense(out(queries_of(c)), c, false);
    args.lse = blank(rf_shape3(c.B, c.H, c.T));
    for (const char *path : {"tiled:", "tiled:99", "tiled:-1", "tiled:1x", "rows:0", "tile"}) {
        args.path = path;
        EXPECT_FAILS(RF_EINVAL, "unknown path", rf_attend(stream, &args));
    }
}

/* Heads that only tiles support: in forms that keep few sums, and in the chosen one. */
TEST_P(AttentionOfF32, HeadsOf256MatchTheReference)
{
    const Case c = {1, 9, 11, 2, 1, 256, false, 0, 0};
    Inputs data = random_inputs(c);
    for (const char *path : {(const char *)nullptr, "tiled:9"})
        expect_right(c, data, run(c, data, path), 0, path ? path : "chosen");
}

TEST_P(Attention, OnMatrixUnitsMatchesTheReference)
{
    const char *path = "units";
    for (const Case &c : unit_cases) {
        Inputs data = random_inputs(c);
        if (!has_units()) {
            rf_attention_args args = {};
            args.q = dense(in(queries_of(c), data.q), c, false);
            args.k = dense(in(keys_of(c), data.k), c, true);
            args.v = dense(in(keys_of(c), data.v), c, true);
            args.out = dense(out(queries_of(c)), c, false);
            args.lse = blank(rf_shape3(c.B, c.H, c.T));
            args.full = c.full;
            args.path = path;
            EXPECT_FAILS(RF_ENOTSUP, "path \"units\" does not run on", rf_attend(stream, &args));
            break;
        }
        expect_right_on_units(c, data, path);
    }
}

/* The forms for which this device has matrix units and memory. */
TEST_P(Attention, FormsOnMatrixUnitsMatchTheReference)
{
    if (!has_units())
        GTEST_SKIP() << "this device has no matrix units for " << rf_dtype_name(type());
    const Case c = {1, 67, 70, 2, 1, 40, false, 0, 1};
    const Inputs data = random_inputs(c);
    size_t ran = 0;
    for (size_t form = 0; form < rf_attention_form_count; form++) {
        const std::string path = "units:" + std::to_string(form);
        if (can_run(c, data, path.c_str())) {
            ran++;
            expect_right_on_units(c, data, path.c_str());
        } else {
            EXPECT_NE(std::string(rf_last_error()->message).find("matrix units"),
                      std::string::npos);
        }
    }
    EXPECT_GT(ran, 0u);
}

/* Path "tiled" is left to GPUs: CPU drivers compile its builds for half a minute. */
TEST_P(AttentionOfF32, AlignmentChangesNoBit)
{
    const Case aligned = {1, 19, 19, 2, 1, 64, false, 0, 0};
    Case shifted = aligned;
    shifted.shift = 1;
    const Inputs data = random_inputs(aligned);
    for (const char *path : paths) {
        if (is_cpu() && strcmp(path, "rows") != 0)
            continue;
        Result want = run(aligned, data, path), got = run(shifted, data, path);
        expect_same_bits(got.out, want.out, name(aligned, "out", path));
        expect_same_bits(got.lse, want.lse, name(aligned, "lse", path));
        expect_same_bits(got.dq, want.dq, name(aligned, "dq", path));
        expect_same_bits(got.dk, want.dk, name(aligned, "dk", path));
        expect_same_bits(got.dv, want.dv, name(aligned, "dv", path));
    }
}

TEST_P(AttentionOfF32, LargeScoresNeitherOverflowNorLosePrecision)
{
    /* Integer q and k and a scale of 1/4: scores of thousands are exact, so the result is held to
     * the same tolerance as ordinary ones. */
    const Case c = {1, 50, 50, 2, 2, 64, false, 1 / 4.0f, 0};
    Inputs data = random_inputs(c);
    data.q = whole(data.q.size(), 30);
    data.k = whole(data.k.size(), 30);
    /* exp(s - lse) carries the rounding of lse, up to 2.5e-4 at 4096 and above. */
    for (const char *path : paths)
        expect_right(c, data, run(c, data, path), 2e-2, path);
}

TEST_P(AttentionOfF32, AScaleOfZeroWeighsAllKeysAlike)
{
    const Case zero = {1, 7, 7, 2, 1, 64, false, RF_ZERO, 0};
    Case tiny = zero;
    tiny.scale = 1e-30f;
    const Inputs data = random_inputs(zero);
    for (const char *path : paths) // exp of 1e-30 and of 0 may differ in the last bit
        expect_near(run(zero, data, path).out, wide(run(tiny, data, path).out), 1e-6, path);
}

TEST_P(Attention, LaterTokensChangeNoBitOfEarlierRows)
{
    /* The longer sequence is also cut into workgroups in another way. */
    const Case longer = {1, 131, 131, 2, 1, 64, false, 0, 0};
    const Case shorter = {1, 7, 7, 2, 1, 64, false, 0, 0};
    Inputs data = random_inputs(longer), head;
    auto first = [&](const Floats &all, int64_t heads) {
        return Floats(all.begin(), all.begin() + shorter.T * heads * shorter.D);
    };
    head = {first(data.q, 2), first(data.k, 1), first(data.v, 1), first(data.dout, 2)};
    for (const char *path : paths) {
        Floats out = run(longer, data, path).out, out_head = run(shorter, head, path).out;
        out.resize(out_head.size());
        expect_same_bits(out, out_head, name(longer, "out", path));
    }
}

TEST_P(Attention, TenRunsGiveTheSameBits)
{
    const Case c = {2, 70, 70, 4, 2, 64, false, 0, 0};
    Inputs data = random_inputs(c);
    for (const char *path : paths) {
        Result first = run(c, data, path);
        for (int i = 1; i < 10; i++) {
            Result again = run(c, data, path);
            expect_same_bits(again.out, first.out, "out");
            expect_same_bits(again.dq, first.dq, "dq");
            expect_same_bits(again.dk, first.dk, "dk");
            expect_same_bits(again.dv, first.dv, "dv");
        }
    }
}

/* q, k, v packed in rows, and each head on its own, against a tensor for each. */
TEST_P(Attention, StridesDoNotChangeBits)
{
    const Case c = {2, 19, 19, 4, 2, 64, false, 0, 0};
    Inputs data = random_inputs(c);
    for (const char *path : paths) {
        Result want = run(c, data, path);
        const int64_t rows = c.B * c.T, all = (c.H + 2 * c.K) * c.D;
        const Floats *parts[] = {&data.q, &data.k, &data.v};
        const int64_t width[] = {c.H * c.D, c.K * c.D, c.K * c.D};
        Floats packed;
        for (int64_t i = 0; i < rows; i++)
            for (int p = 0; p < 3; p++)
                packed.insert(packed.end(), parts[p]->begin() + i * width[p],
                              parts[p]->begin() + (i + 1) * width[p]);
        rf_tensor qkv = in(rf_shape3(c.B, c.T, all), packed);
        rf_tensor dqkv = out(rf_shape3(c.B, c.T, all));
        /* (B,H,T,D) */
        rf_tensor mixed = out(rf_shape4(c.B, c.H, c.T, c.D));
        Floats turned(data.dout.size());
        for (int64_t b = 0; b < c.B; b++)
            for (int64_t t = 0; t < c.T; t++)
                for (int64_t h = 0; h < c.H; h++)
                    for (int64_t d = 0; d < c.D; d++)
                        turned[((b * c.H + h) * c.T + t) * c.D + d] =
                            data.dout[((b * c.T + t) * c.H + h) * c.D + d];
        rf_attention_args args = {};
        args.q = rf_heads_in(qkv, c.D, 0, c.H);
        args.k = rf_heads_in(qkv, c.D, c.H, c.K);
        args.v = rf_heads_in(qkv, c.D, c.H + c.K, c.K);
        args.out = {mixed, 0, c.B, c.T, c.H, c.D, c.H * c.T * c.D, c.D, c.T * c.D};
        args.lse = blank(rf_shape3(c.B, c.H, c.T));
        args.path = path;
        rf_attention_grads grads = {};
        grads.dout = args.out;
        grads.dout.tensor = in(mixed.shape, turned);
        grads.dq = rf_heads_in(dqkv, c.D, 0, c.H);
        grads.dk = rf_heads_in(dqkv, c.D, c.H, c.K);
        grads.dv = rf_heads_in(dqkv, c.D, c.H + c.K, c.K);
        grads.delta = blank(rf_shape3(c.B, c.H, c.T));
        ASSERT_OK(rf_attend(stream, &args));
        ASSERT_OK(rf_attend_backward(stream, &args, &grads));
        Floats got = read(dqkv), expected;
        const Floats *gradients[] = {&want.dq, &want.dk, &want.dv};
        for (int64_t i = 0; i < rows; i++)
            for (int p = 0; p < 3; p++)
                expected.insert(expected.end(), gradients[p]->begin() + i * width[p],
                                gradients[p]->begin() + (i + 1) * width[p]);
        expect_same_bits(got, expected, name(c, "packed dq, dk, dv", path));
        expect_same_bits(read(args.lse), want.lse, name(c, "lse", path));
    }
}

TEST_P(AttentionOfF32, WrongHeadsAreNamed)
{
    rf_tensor qkv = blank(rf_shape3(2, 3, 32)), dqkv = blank(rf_shape3(2, 3, 32));
    rf_tensor mixed = blank(rf_shape3(2, 3, 16)), dmixed = blank(rf_shape3(2, 3, 16));
    rf_attention_args good = {};
    good.q = rf_heads_in(qkv, 4, 0, 4);
    good.k = rf_heads_in(qkv, 4, 4, 2);
    good.v = rf_heads_in(qkv, 4, 6, 2);
    good.out = rf_heads_in(mixed, 4, 0, 4);
    good.lse = blank(rf_shape3(2, 4, 3));
    rf_attention_grads grads = {};
    grads.dout = rf_heads_in(dmixed, 4, 0, 4);
    grads.dq = rf_heads_in(dqkv, 4, 0, 4);
    grads.dk = rf_heads_in(dqkv, 4, 4, 2);
    grads.dv = rf_heads_in(dqkv, 4, 6, 2);
    grads.delta = blank(rf_shape3(2, 4, 3));
    EXPECT_OK(rf_attend(stream, &good));
    EXPECT_OK(rf_attend_backward(stream, &good, &grads));

    rf_attention_args bad = good;
    bad.v = rf_heads_in(qkv, 4, 7, 2);
    EXPECT_FAILS(RF_EINVAL, "does not lie within f32 (2, 3, 32)", rf_attend(stream, &bad));
    bad = good;
    bad.k.rows = bad.v.rows = 4;
    EXPECT_FAILS(RF_EINVAL, "does not lie within", rf_attend(stream, &bad));
    bad = good;
    bad.v = rf_heads_in(qkv, 4, 6, 1);
    EXPECT_FAILS(RF_EINVAL, "v is f32 (2, 3, 1, 4), expected f32 (2, 3, 2, 4)",
                 rf_attend(stream, &bad));
    bad = good;
    bad.k = rf_heads_in(qkv, 4, 4, 3);
    bad.v = rf_heads_in(qkv, 4, 5, 3);
    EXPECT_FAILS(RF_EINVAL, "4 heads of q are not a multiple of 3", rf_attend(stream, &bad));
    bad = good;
    bad.k.rows = bad.v.rows = 2;
    EXPECT_FAILS(RF_EINVAL, "at least as many keys", rf_attend(stream, &bad));
    bad.full = true;
    EXPECT_OK(rf_attend(stream, &bad));
    bad = good;
    bad.out = rf_heads_in(qkv, 4, 4, 4);
    EXPECT_FAILS(RF_EINVAL, "out must not overlap k", rf_attend(stream, &bad));
    bad = good;
    bad.out.row_stride = 8;
    EXPECT_FAILS(RF_EINVAL, "out has strides by which its elements overlap",
                 rf_attend(stream, &bad));
    bad = good;
    bad.path = "quick";
    EXPECT_FAILS(RF_EINVAL, "unknown path \"quick\"", rf_attend(stream, &bad));

    rf_attention_grads wrong = grads;
    wrong.dv = grads.dk;
    EXPECT_FAILS(RF_EINVAL, "dk must not overlap dv", rf_attend_backward(stream, &good, &wrong));
    wrong = grads;
    wrong.dq = rf_heads_in(dmixed, 4, 0, 4);
    EXPECT_FAILS(RF_EINVAL, "dq must have the strides of q",
                 rf_attend_backward(stream, &good, &wrong));
    wrong = grads;
    wrong.delta = good.lse;
    EXPECT_FAILS(RF_EINVAL, "delta must not overlap lse",
                 rf_attend_backward(stream, &good, &wrong));
}
} // namespace
