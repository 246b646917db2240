// SPDX-License-Identifier: MIT
//
// Blocks of users out of rows (ringforge/layer.h): beside the same block written by hand, beside
// finite differences, on tensor ranks; and what is refused.
#include <ringforge/layer.h>

#include <deque>
#include <random>

#include "tensor_ranks.h"

namespace
{

const int64_t ROWS = 12, SEQ = 6, WIDTH = 32, HIDDEN = 64;

// out = in + gelu(in A^T) B^T by hand, as a block of a user who wants no rows.
rf_tensor cut(rf_tensor region, uint64_t *at, int64_t rows)
{
    rf_tensor out = {};
    EXPECT_RF(rf_suballocate(region, at, rf_shape2(rows, HIDDEN), RF_F32, &out));
    return out;
}
int mlp(rf_ctx *ctx, void *, rf_tensor in, rf_tensor out)
{
    uint64_t at = 0;
    const rf_tensor before = cut(ctx->saved, &at, ctx->rows),
                    after = cut(ctx->saved, &at, ctx->rows);
    rf_matmul_opts first = {}, second = {};
    first.transpose_b = second.transpose_b = true;
    first.act = RF_ACT_GELU;
    first.pre = &before;
    second.residual = &in;
    const int rc = rf_matmul(ctx->stream, after, in, ctx->params[0], &first);
    return rc < 0 ? rc : rf_matmul(ctx->stream, out, after, ctx->params[1], &second);
}
int mlp_input(rf_ctx *ctx, void *, rf_tensor, rf_tensor dout, rf_tensor din)
{
    uint64_t at = 0, kept = 0;
    const rf_tensor before = cut(ctx->saved, &at, ctx->rows),
                    dbefore = cut(ctx->saved_for_weight, &kept, ctx->rows);
    rf_matmul_opts slope = {}, sum = {};
    slope.act = RF_ACT_GELU;
    slope.act_backward = true;
    slope.pre = &before;
    sum.residual = &dout;
    const int rc = rf_matmul(ctx->stream, dbefore, dout, ctx->params[1], &slope);
    return rc < 0 ? rc : rf_matmul(ctx->stream, din, dbefore, ctx->params[0], &sum);
}
int mlp_weight(rf_ctx *ctx, void *, rf_tensor in, rf_tensor dout)
{
    uint64_t at = 0, kept = 0;
    (void)cut(ctx->saved, &at, ctx->rows);
    const rf_tensor after = cut(ctx->saved, &at, ctx->rows),
                    dbefore = cut(ctx->saved_for_weight, &kept, ctx->rows);
    rf_matmul_opts first = {}, second = {};
    first.transpose_a = second.transpose_a = true;
    first.accumulate = !ctx->overwrite_grad[0];
    second.accumulate = !ctx->overwrite_grad[1];
    const int rc = rf_matmul(ctx->stream, ctx->grads[0], dbefore, in, &first);
    return rc < 0 ? rc : rf_matmul(ctx->stream, ctx->grads[1], dout, after, &second);
}
int mlp_sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    const uint64_t hidden = rf_suballocate_bytes(rf_shape2(rows, HIDDEN), RF_F32);
    *out = {};
    out->saved = 2 * hidden;
    out->saved_for_weight = hidden;
    out->out = rf_shape2(rows, WIDTH);
    return 0;
}

using Rows = std::vector<rf_layer_op>;

Rows mlp_rows()
{
    return {{.kind = RF_LAYER_LINEAR, .in = "in", .out = "a", .param = "up", .columns = HIDDEN},
            {.kind = RF_LAYER_ACT, .in = "a", .out = "b", .act = RF_ACT_GELU},
            {.kind = RF_LAYER_LINEAR, .in = "b", .out = "c", .param = "down", .columns = WIDTH},
            {.kind = RF_LAYER_ADD, .in = "in", .out = "d", .with = "c"}};
}

rf_layer_opts opts_of(int64_t channels)
{
    rf_layer_opts o = {};
    o.name = "block";
    o.prefix = "x.";
    o.channels = channels;
    return o;
}

TensorCase case_of(const rf_block &block, int64_t channels)
{
    TensorCase c;
    c.block = &block;
    c.rows = ROWS;
    c.seq = SEQ;
    c.columns = channels;
    c.in = tensor_numbers(ROWS * channels, 1, 1);
    c.dout = tensor_numbers(ROWS * channels, 1, 2);
    c.params = tensor_params(block);
    return c;
}

// A random block: branches with or without norms, each with an activation, a gate or attention.
struct Random {
    explicit Random(unsigned seed, bool attends)
    {
        std::mt19937 pick(seed);
        const auto one_of = [&](int count) { return (int)(pick() % (unsigned)count); };
        const int branches = 1 + one_of(2);
        std::string stream = "in", last = "in";
        const auto row = [&](rf_layer_op op, bool named) {
            names.push_back("v" + std::to_string(names.size()));
            op.in = (texts.push_back(last), texts.back().c_str());
            op.out = (texts.push_back(names.back()), texts.back().c_str());
            if (named)
                op.param =
                    (texts.push_back("p" + std::to_string(names.size())), texts.back().c_str());
            last = names.back();
            rows.push_back(op);
        };
        opts = opts_of(8 * (1 + one_of(3)));
        opts.rms = one_of(2);
        opts.heads = 4;
        opts.kv_heads = 2;
        opts.head_size = 4;
        for (int b = 0; b < branches; b++) {
            const int64_t hidden = 8 * (1 + one_of(4));
            const int kind = attends && b == 0 ? 2 : one_of(2);
            const bool post = one_of(2), pre = one_of(2);
            if (pre)
                row({.kind = RF_LAYER_NORM}, true);
            rf_layer_op up = {.kind = RF_LAYER_LINEAR};
            up.columns = kind == 2 ? 32 : kind == 1 ? 2 * hidden : hidden;
            up.bias = one_of(2);
            row(up, true);
            rf_layer_op middle = {.kind = kind == 2   ? RF_LAYER_ATTEND
                                          : kind == 1 ? RF_LAYER_GATE
                                                      : RF_LAYER_ACT};
            middle.act = one_of(2) ? RF_ACT_SIGMOID : RF_ACT_SILU;
            row(middle, false);
            rf_layer_op down = {.kind = RF_LAYER_LINEAR};
            down.columns = opts.channels;
            down.bias = !post && one_of(2);
            row(down, true);
            if (post)
                row({.kind = RF_LAYER_NORM}, true);
            rf_layer_op add = {.kind = RF_LAYER_ADD};
            add.with = (texts.push_back(stream), texts.back().c_str());
            row(add, false);
            stream = last;
        }
    }
    std::vector<std::string> names;
    std::deque<std::string> texts;
    Rows rows;
    rf_layer_opts opts;
};

double product(const std::vector<float> &a, const std::vector<float> &b)
{
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

} // namespace

TEST(LayerBlock, AnMlpOfFourRowsIsTheOneWrittenByHandBitForBit)
{
    const rf_layer_opts o = opts_of(WIDTH);
    rf_block rows = {};
    ASSERT_RF(rf_layer_block(mlp_rows().data(), 4, &o, &rows));
    ASSERT_EQ(rows.param_count, 2);
    EXPECT_STREQ(rows.params[1].name, "x.down.weight");
    EXPECT_STREQ(rows.config, "layer=identity-linear-act:gelu-linear-add norm=layer eps=1e-05");
    const rf_block_ops by_hand = {mlp, mlp_input, mlp_weight, mlp_sizes};
    rf_block hand = rows;
    hand.ops = &by_hand;
    const TensorSeen a = run_tensor_ranks(case_of(rows, WIDTH)),
                     b = run_tensor_ranks(case_of(hand, WIDTH));
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(a.din, b.din);
    EXPECT_EQ(a.grads, b.grads);
    rf_block_sizes mine = {}, theirs = {};
    ASSERT_RF(rows.ops->sizes(rows.self, ROWS, SEQ, &mine));
    ASSERT_RF(hand.ops->sizes(hand.self, ROWS, SEQ, &theirs));
    EXPECT_EQ(mine.saved, theirs.saved);
    EXPECT_EQ(mine.saved_for_weight, theirs.saved_for_weight);
    rf_layer_block_free(&rows);
}

TEST(LayerBlock, GradientsOfRandomBlocksAreThoseOfFiniteDifferences)
{
    for (unsigned seed = 0; seed < 6; seed++) {
        const Random r(seed, seed % 3 == 0);
        SCOPED_TRACE(seed);
        rf_block block = {};
        ASSERT_RF(rf_layer_block(r.rows.data(), (int)r.rows.size(), &r.opts, &block));
        const TensorCase whole = case_of(block, r.opts.channels);
        const TensorSeen seen = run_tensor_ranks(whole);
        // Along a random direction of the input and all parameters together.
        const double step = 1e-3;
        double value[2], grad = 0;
        for (int side = 0; side < 2; side++) {
            TensorCase c = whole;
            for (int p = -1; p < block.param_count; p++) { // -1: the input
                std::vector<float> &moved = p < 0 ? c.in : c.params[(size_t)p];
                const std::vector<float> along =
                    tensor_numbers((int64_t)moved.size(), 1, 101 + (uint64_t)p);
                for (size_t i = 0; i < moved.size(); i++)
                    moved[i] += (float)((side ? step : -step) * (double)along[i]);
                if (side)
                    grad += product(p < 0 ? seen.din : seen.grads[(size_t)p], along);
            }
            value[side] = product(run_tensor_ranks(c).out, c.dout);
        }
        const double slope = (value[1] - value[0]) / (2 * step);
        // Sums in f32, and the third derivative times the square of the step.
        EXPECT_NEAR(grad, slope, 0.01 * std::abs(slope) + 0.05);
        TensorCase c = whole;
        std::string where;
        c.ranks = seed % 2 ? 2 : 4;
        c.sequence = seed % 4 < 2;
        const TensorSeen shared = run_tensor_ranks(c);
        ASSERT_EQ(shared.status, 0) << shared.fault;
        EXPECT_LT(tensor_difference(block, seen, shared, &where), 2e-5) << where;
        EXPECT_TRUE(shared.unequal.empty());
        rf_layer_block_free(&block);
    }
}

TEST(LayerBlock, WhatMakesNoBlockIsRefusedByRow)
{
    const rf_layer_opts good = opts_of(WIDTH);
    rf_block block = {};
    const auto refused = [&](const Rows &rows, const rf_layer_opts &o) {
        EXPECT_EQ(rf_layer_block(rows.data(), (int)rows.size(), &o, &block), RF_EINVAL);
        EXPECT_EQ(block.self, nullptr);
        return std::string(rf_last_error()->message);
    };
    const auto with = [&](const std::function<void(Rows &)> &change) {
        Rows rows = mlp_rows();
        change(rows);
        return refused(rows, good);
    };
    const std::pair<std::function<void(Rows &)>, const char *> cases[] = {
        {[](Rows &r) { r[1].kind = (rf_layer_kind)77; }, "row 1 has the kind 77"},
        {[](Rows &r) { r[1].kind = (rf_layer_kind)0; }, "row 1 has the kind 0"},
        {[](Rows &r) { r[1].in = "z"; }, "row 1 (activation) takes z, which no row before it"},
        {[](Rows &r) { r[0].in = "c"; }, "row 0 (linear) takes c, which no row before it"},
        {[](Rows &r) { r[1].in = nullptr; }, "row 1 (activation) lacks the name of a value"},
        {[](Rows &r) { r[3].with = nullptr; }, "row 3 (add) lacks the name of a value"},
        {[](Rows &r) { r[2].out = nullptr; }, "row 2 (linear) lacks the name of its result"},
        {[](Rows &r) { r[2].out = "a"; }, "row 2 (linear) writes a, which row 0 has written"},
        {[](Rows &r) { r[0].out = "in"; }, "row 0 (linear) writes in, which is the block's input"},
        {[](Rows &r) { r.pop_back(); }, "row 2 (linear) cannot be the last: the second linear map"},
        {[](Rows &r) { r[2].in = "a"; }, "row 1 (activation) writes b, which no row takes"},
        {[](Rows &r) { r[3].with = "in", r[3].in = "c", r[0].in = "in", r[2].columns = 31; },
         "row 3 (add) adds c of 31 columns to in of 32"},
        {[](Rows &r) { r[0].columns = 0; }, "row 0 (linear) has 0 columns"},
        {[](Rows &r) { r[0].columns = 33, r[1].kind = RF_LAYER_GATE; },
         "row 1 (gate) takes a of 33 columns; their number must be even"},
        {[](Rows &r) { r[1].kind = RF_LAYER_ATTEND; }, "attention needs heads"},
        {[](Rows &r) { r[0].param = nullptr; }, "row 0 (linear) needs a name of its parameters"},
        {[](Rows &r) { r[2].param = "up"; }, "row 2 (linear) has the parameters up, as row 0"},
        {[](Rows &r) { r[1].act = RF_ACT_NONE; }, "an activation or a gate has an activation"},
        {[](Rows &r) { r[3].in = "c", r[3].with = "c"; },
         "row 3 (add) adds c to c; it must add the result of"},
        {[](Rows &r) {
             r.insert(r.begin() + 1,
                      {.kind = RF_LAYER_LINEAR, .in = "a", .out = "e", .param = "p", .columns = 8});
             r[2].in = "e";
         },
         "row 1 (linear) cannot be here: the first linear map"},
    };
    for (const auto &c : cases)
        EXPECT_NE(with(c.first).find(c.second), std::string::npos) << rf_last_error()->message;
    // A branch whose first row takes a value within another one.
    Rows crossed = mlp_rows();
    crossed.push_back(
        {.kind = RF_LAYER_LINEAR, .in = "c", .out = "e", .param = "more", .columns = WIDTH});
    crossed.push_back({.kind = RF_LAYER_ADD, .in = "d", .out = "f", .with = "e"});
    EXPECT_NE(refused(crossed, good).find("row 4 (linear) takes c; a branch begins with"),
              std::string::npos)
        << rf_last_error()->message;
    rf_layer_opts wrong = good;
    wrong.channels = 0;
    EXPECT_NE(refused(mlp_rows(), wrong).find("channels"), std::string::npos);
    wrong = good;
    wrong.residual = RF_F16;
    EXPECT_NE(refused(mlp_rows(), wrong).find("residual"), std::string::npos);
    EXPECT_NE(refused({}, good).find("1 to 15 rows"), std::string::npos);
    rf_layer_block_free(&block);
}
