// SPDX-License-Identifier: MIT
//
// Parameters that blocks see in 16 bits: a copy of f32 masters, which are trained as without it;
// and a GPT whose activations have 16 bits, too.
#include <cmath>
#include <cstring>

#include "folder.h"
#include "support/half.h"
#include "world.h"

namespace
{

const int64_t columns = 5;

// A block with a vector w: its output is a copy of w, so in w's type; the gradient of w is w's
// master's own, made in f32.
struct Copier {
    static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
    {
        rf_tensor flat = out;
        flat.shape = rf_shape1(columns);
        int rc = rf_fill(ctx->stream, ctx->losses, 1);
        return rc < 0 ? rc : rf_copy(ctx->stream, flat, ctx->params[0]);
    }
    static int no_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
    {
        return rf_fill(ctx->stream, ctx->grads[0], 0.37f);
    }
    static int sizes(const void *self, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->out = rf_shape2(rows, columns);
        out->dtype = *(const rf_dtype *)self;
        return 0;
    }
};
const rf_block_ops copier = {Copier::forward, Copier::no_input, Copier::weight, Copier::sizes};

class One
{
  public:
    explicit One(rf_dtype dtype) : dtype(dtype)
    {
        param.name = "w";
        param.shape = rf_shape1(columns);
        param.dtype = dtype;
        param.init_std = 1;
        block.name = "copier";
        block.ops = &copier;
        block.self = &this->dtype;
        block.params = &param;
        block.param_count = 1;
        rf_policy policy = {};
        policy.batch = policy.micro_batches = policy.seq = 1;
        rf_mesh mesh = {1, 1, 1};
        EXPECT_RF(rf_plan_build({&block, 1}, &mesh, &policy, 0, &plan));
        EXPECT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
    }
    ~One()
    {
        rf_run_close(run);
        rf_plan_destroy(plan);
    }
    void step()
    {
        const int32_t zero = 0;
        EXPECT_RF(rf_run_step(run, &zero, &zero, 0.01f, nullptr));
    }
    std::vector<float> master()
    {
        std::vector<float> w(columns);
        EXPECT_RF(rf_run_read_param(run, "w", w.data(), 4 * columns));
        return w;
    }
    // The value that the block saw, by its output.
    std::vector<float> seen()
    {
        const int32_t zero = 0;
        std::vector<float> out(columns);
        EXPECT_RF(rf_run_forward(run, &zero, out.data(), 4 * columns));
        return out;
    }
    std::vector<float> rounded()
    {
        std::vector<float> w = master();
        bool bf16 = dtype == RF_BF16;
        return dtype == RF_F32 ? w : oracle::from_half(oracle::to_half(w, bf16), bf16);
    }

    rf_dtype dtype;
    rf_param_desc param = {};
    rf_block block = {};
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
};

} // namespace

TEST(Mixed, BlocksSeeMastersRoundedAndMastersAreThoseOfAnF32Run)
{
    One plain(RF_F32), f16(RF_F16), bf16(RF_BF16);
    for (int i = 0; i < 6; i++) {
        for (One *one : {&plain, &f16, &bf16}) {
            EXPECT_EQ(one->seen(), one->rounded()) << rf_dtype_name(one->dtype) << " step " << i;
            EXPECT_EQ(one->master(), plain.master());
        }
        for (One *one : {&plain, &f16, &bf16})
            one->step();
    }
    EXPECT_NE(bf16.seen(), plain.seen());
}

TEST(Mixed, TheCopyFollowsWhatIsWrittenAndLoaded)
{
    Folder folder;
    One first(RF_BF16), second(RF_BF16);
    std::vector<float> values = {0.1f, 1.001f, -3.14159f, 65537, 1e-20f};
    ASSERT_RF(rf_run_write_param(first.run, "w", values.data(), 4 * columns));
    EXPECT_EQ(first.seen(), first.rounded());
    first.step();
    rf_progress progress = {1, 0, 1};
    ASSERT_RF(rf_run_save(first.run, folder.path().c_str(), &progress));
    ASSERT_RF(rf_run_load(second.run, folder.path().c_str(), nullptr));
    EXPECT_EQ(second.seen(), first.seen());
    EXPECT_EQ(second.master(), first.master());
    // Files hold masters, so a run with another type can continue with them.
    One other(RF_F32);
    ASSERT_RF(rf_run_load(other.run, folder.path().c_str(), nullptr));
    EXPECT_EQ(other.master(), first.master());
}

TEST(Mixed, BytesAreAsPlannedAndTheCopyTakesHalfOfTheMasters)
{
    rf_bytes plain, planned, measured;
    One f32(RF_F32);
    rf_run_measured(f32.run, &plain);
    One bf16(RF_BF16);
    bf16.step();
    rf_run_planned(bf16.run, &planned);
    rf_run_measured(bf16.run, &measured);
    EXPECT_EQ(planned.params, measured.params);
    EXPECT_EQ(planned.activations, measured.activations);
    EXPECT_EQ(planned.params, plain.params + 256); // 64 elements, 128 bytes, padded
    EXPECT_EQ(planned.grads, plain.grads);
    EXPECT_EQ(planned.optimizer, plain.optimizer);
}

TEST(Mixed, TwoTypesOfSixteenBitsAreRefused)
{
    rf_dtype type = RF_F32;
    rf_param_desc params[2] = {};
    params[0].name = "a";
    params[1].name = "b";
    params[0].shape = params[1].shape = rf_shape1(3);
    params[0].dtype = RF_F16;
    params[1].dtype = RF_BF16;
    rf_block block = {};
    block.name = "both";
    block.ops = &copier;
    block.self = &type;
    block.params = params;
    block.param_count = 2;
    rf_policy policy = {};
    policy.batch = policy.seq = 1;
    rf_mesh mesh = {1, 1, 1};
    rf_plan *plan = nullptr;
    EXPECT_EQ(rf_plan_build({&block, 1}, &mesh, &policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "parameter b has the type bf16, others have f16"),
              nullptr);
    params[1].dtype = RF_I32;
    EXPECT_EQ(rf_plan_build({&block, 1}, &mesh, &policy, 0, &plan), RF_ENOTSUP);
}

// ---- a GPT in 16 bits ---------------------------------------------------------------------------

namespace
{

// Types of operands and of the residual stream.
struct Types {
    rf_dtype dtype, residual;
    float loss_scale;
};
const Types mixtures[] = {
    {RF_BF16, RF_F32, 0}, {RF_BF16, RF_BF16, 0}, {RF_F16, RF_F32, 1024}, {RF_F16, RF_F16, 1024}};
const Types all_f32 = {RF_F32, RF_F32, 0};

std::string text(const Types &types)
{
    return std::string(rf_dtype_name(types.dtype)) + " on " + rf_dtype_name(types.residual);
}

Training gpt(const Types &types, int steps)
{
    Training t;
    t.model.dtype = types.dtype;
    t.model.residual = types.residual;
    t.policy.loss_scale = types.loss_scale;
    t.steps = steps;
    return t;
}

struct Gradients {
    std::vector<std::string> names;
    std::vector<std::vector<float>> of; // for every parameter
};

Gradients first_gradients(const Types &types, int head_rows)
{
    Gradients g;
    Training t = gpt(types, 1);
    t.model.head_rows = head_rows;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_plan_param &param = run->plan->params[i];
            if (param.owner != i)
                continue;
            std::vector<float> values((size_t)param.count);
            EXPECT_RF(rf_run_read_grad(run, param.desc->name, values.data(), 4 * values.size()));
            g.names.push_back(param.desc->name);
            g.of.push_back(values);
        }
    };
    train(t, 1);
    return g;
}

// The norm of the difference divided by the norm, for one parameter.
double distance(const Gradients &got, const Gradients &want, size_t i, double scale)
{
    double difference = 0, norm = 0;
    for (size_t k = 0; k < want.of[i].size(); k++) {
        difference += std::pow(got.of[i][k] / scale - want.of[i][k], 2);
        norm += std::pow(want.of[i][k], 2);
    }
    EXPECT_GT(norm, 0) << want.names[i];
    return std::sqrt(difference / norm);
}

} // namespace

// Rounding to 8 or 11 bits at every store: errors of 2^-9 and 2^-12 each; some dozens of them add
// up like noise.
TEST(MixedGpt, GradientsOfEveryParameterAreThoseOfF32UpToTheRounding)
{
    const Gradients want = first_gradients(all_f32, 0);
    ASSERT_EQ(want.of.size(), 28u);
    for (const Types &types : mixtures)
        for (int head_rows : {0, 5}) {
            const Gradients got = first_gradients(types, head_rows);
            ASSERT_EQ(got.names, want.names);
            for (size_t i = 0; i < want.of.size(); i++)
                EXPECT_LT(distance(got, want, i, types.loss_scale ? types.loss_scale : 1),
                          types.dtype == RF_BF16 ? 3e-2 : 4e-3)
                    << want.names[i] << " in " << text(types);
        }
}

TEST(MixedGpt, GradientsAreNearerToF32WithAResidualStreamInF32)
{
    const Gradients want = first_gradients(all_f32, 0), f32 = first_gradients(mixtures[0], 0),
                    same = first_gradients(mixtures[1], 0);
    double with = 0, without = 0;
    for (size_t i = 0; i < want.of.size(); i++) {
        with += distance(f32, want, i, 1);
        without += distance(same, want, i, 1);
    }
    EXPECT_LT(with, 0.8 * without);
}

TEST(MixedGpt, LossesFollowThoseOfF32)
{
    const Seen want = train(gpt(all_f32, 20), 1)[0];
    for (const Types &types : mixtures) {
        const Seen got = train(gpt(types, 20), 1)[0];
        for (size_t i = 0; i < want.loss.size(); i++)
            EXPECT_NEAR(got.loss[i], want.loss[i], 0.01 * want.loss[i])
                << text(types) << " step " << i;
    }
}

TEST(MixedGpt, TreeOrderGivesTheSameBitsOnAnyNumberOfRanks)
{
    for (const Types &types : {mixtures[0], mixtures[3]}) { // each type, and each stream
        Training t = gpt(types, 3);
        t.policy.loss_scale = types.dtype == RF_F16 ? 65536 : 0;
        t.policy.clip = 1;
        const std::string alone = train(t, 1)[0].sha;
        for (int ranks : {2, 3})
            for (const Seen &seen : train(t, ranks))
                EXPECT_EQ(seen.sha, alone) << text(types) << ", " << ranks << " ranks";
    }
}

// bf16 has the exponents of f32: a power of two passes through every product and sum unrounded.
TEST(MixedGpt, ALossScaleThatIsAPowerOfTwoChangesNoBitInBf16)
{
    for (rf_dtype residual : {RF_F32, RF_BF16}) {
        const Training plain = gpt({RF_BF16, residual, 0}, 4);
        const Training scaled = gpt({RF_BF16, residual, 4096}, 4);
        EXPECT_EQ(train(plain, 1)[0].sha, train(scaled, 1)[0].sha) << rf_dtype_name(residual);
    }
}

// 1e30 overflows in f16 when a gradient becomes an operand, even if the stream can hold it.
TEST(MixedGpt, AGradientThatOverflowsAsAnOperandSkipsTheStep)
{
    for (rf_dtype residual : {RF_F32, RF_F16}) {
        const Seen seen = train(gpt({RF_F16, residual, 1e30f}, 1), 1)[0];
        EXPECT_TRUE(seen.stats[0].skipped) << rf_dtype_name(residual);
        EXPECT_LT(seen.stats[0].loss_scale, 1e30f) << rf_dtype_name(residual);
    }
}

TEST(MixedGpt, EvaluationGivesTheLossOfTrainingOnTheSameTokens)
{
    for (const Types &types : mixtures) {
        Training t = gpt(types, 2);
        t.after = [&](rf_run *run, rf_comm *, int) {
            std::vector<int32_t> tokens, targets;
            rf_step_stats stats = {};
            double loss = 0;
            t.batch(2, tokens, targets);
            ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 8, &loss));
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0.01f, &stats));
            EXPECT_EQ(loss, stats.loss) << text(types);
        };
        train(t, 1);
    }
}

TEST(MixedGpt, BytesAreAsPlannedAndActivationsAreAboutHalf)
{
    const Seen plain = train(gpt(all_f32, 1), 1)[0];
    uint64_t activations[2];
    for (rf_dtype residual : {RF_F32, RF_F16}) {
        const Seen half = train(gpt({RF_F16, residual, 1024}, 1), 1)[0];
        EXPECT_EQ(memcmp(&half.planned, &half.measured, sizeof(rf_bytes)), 0);
        EXPECT_LT(half.measured.activations, 0.7 * (double)plain.measured.activations);
        EXPECT_EQ(half.measured.grads, plain.measured.grads);
        activations[residual != RF_F32] = half.measured.activations;
    }
    // For 16 tokens and 32 channels: three outputs and two sums in the middle of layers, and a
    // gradient, each of 2 bytes more; and the gradient kept for the weights. Another gradient
    // reuses released memory.
    EXPECT_EQ(activations[0], activations[1] + (3 + 2 + 1 + 1) * 2 * 16 * 32);
}
