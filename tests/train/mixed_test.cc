// SPDX-License-Identifier: MIT
//
// Parameters that blocks see in 16 bits: a copy of f32 masters, which are trained as without it;
// and a GPT whose activations are in 16 bits, too.
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
        EXPECT_RF(rf_plan_build(&block, 1, &mesh, &policy, 0, &plan));
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
    // What the block saw, by its output.
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
    // Files hold masters, so a run in another type goes on with them.
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
    EXPECT_EQ(rf_plan_build(&block, 1, &mesh, &policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "parameter b is bf16, others are f16"), nullptr);
    params[1].dtype = RF_I32;
    EXPECT_EQ(rf_plan_build(&block, 1, &mesh, &policy, 0, &plan), RF_ENOTSUP);
}

// ---- a GPT in 16 bits ---------------------------------------------------------------------------

namespace
{

Training gpt(rf_dtype dtype, int steps)
{
    Training t;
    t.model.dtype = dtype;
    t.steps = steps;
    return t;
}

struct Gradients {
    std::vector<std::vector<float>> of; // in the order of names
};
const char *const names[] = {"wte.weight",
                             "wpe.weight",
                             "blocks.0.ln1.weight",
                             "blocks.0.ln1.bias",
                             "blocks.0.attention.qkv.weight",
                             "blocks.0.attention.qkv.bias",
                             "blocks.0.attention.proj.weight",
                             "blocks.1.ln2.weight",
                             "blocks.1.mlp.fc.weight",
                             "blocks.1.mlp.fc.bias",
                             "blocks.1.mlp.proj.weight",
                             "blocks.1.mlp.proj.bias",
                             "ln_f.weight",
                             "ln_f.bias"};

Gradients first_gradients(rf_dtype dtype, int head_rows, float loss_scale)
{
    Gradients g;
    Training t = gpt(dtype, 1);
    t.model.head_rows = head_rows;
    t.policy.loss_scale = loss_scale;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (const char *name : names) {
            int param = rf_run_find_param(run, name);
            std::vector<float> values((size_t)run->plan->params[param].count);
            EXPECT_RF(rf_run_read_grad(run, name, values.data(), 4 * values.size()));
            g.of.push_back(values);
        }
    };
    train(t, 1);
    return g;
}

// The norm of the difference over the norm, per parameter.
void expect_close(const Gradients &got, const Gradients &want, double scale, double most)
{
    ASSERT_EQ(got.of.size(), want.of.size());
    for (size_t i = 0; i < want.of.size(); i++) {
        double difference = 0, norm = 0;
        for (size_t k = 0; k < want.of[i].size(); k++) {
            difference += std::pow(got.of[i][k] / scale - want.of[i][k], 2);
            norm += std::pow(want.of[i][k], 2);
        }
        EXPECT_LT(std::sqrt(difference / norm), most) << names[i];
        EXPECT_GT(norm, 0) << names[i];
    }
}

} // namespace

// Rounding to 8 or 11 bits at every store: errors of 2^-9 and 2^-12 each, of which some dozens add
// up like noise.
TEST(MixedGpt, GradientsOfEveryParameterAreThoseOfF32UpToTheRounding)
{
    const Gradients want = first_gradients(RF_F32, 0, 0);
    expect_close(first_gradients(RF_BF16, 0, 0), want, 1, 3e-2);
    expect_close(first_gradients(RF_F16, 0, 1024), want, 1024, 4e-3);
    expect_close(first_gradients(RF_BF16, 5, 0), want, 1, 3e-2);
    expect_close(first_gradients(RF_F16, 5, 1024), want, 1024, 4e-3);
}

TEST(MixedGpt, LossesFollowThoseOfF32)
{
    const Seen want = train(gpt(RF_F32, 20), 1)[0];
    for (rf_dtype dtype : {RF_BF16, RF_F16}) {
        Training t = gpt(dtype, 20);
        t.policy.loss_scale = dtype == RF_F16 ? 1024 : 0;
        const Seen got = train(t, 1)[0];
        for (size_t i = 0; i < want.loss.size(); i++)
            EXPECT_NEAR(got.loss[i], want.loss[i], 0.01 * want.loss[i])
                << rf_dtype_name(dtype) << " step " << i;
    }
}

TEST(MixedGpt, TreeOrderGivesTheSameBitsOnAnyNumberOfRanks)
{
    for (rf_dtype dtype : {RF_BF16, RF_F16}) {
        Training t = gpt(dtype, 3);
        t.policy.loss_scale = dtype == RF_F16 ? 65536 : 0;
        t.policy.clip = 1;
        const std::string alone = train(t, 1)[0].sha;
        for (int ranks : {2, 3})
            for (const Seen &seen : train(t, ranks))
                EXPECT_EQ(seen.sha, alone) << rf_dtype_name(dtype) << " on " << ranks;
    }
}

// bf16 has the exponents of f32: a power of two passes through every product and sum unrounded.
TEST(MixedGpt, ALossScaleThatIsAPowerOfTwoChangesNoBitInBf16)
{
    Training plain = gpt(RF_BF16, 4), scaled = gpt(RF_BF16, 4);
    scaled.policy.loss_scale = 4096;
    EXPECT_EQ(train(plain, 1)[0].sha, train(scaled, 1)[0].sha);
}

TEST(MixedGpt, BytesAreAsPlannedAndActivationsAreAboutHalf)
{
    const Seen plain = train(gpt(RF_F32, 1), 1)[0], half = train(gpt(RF_F16, 1), 1)[0];
    EXPECT_EQ(memcmp(&half.planned, &half.measured, sizeof(rf_bytes)), 0);
    EXPECT_LT(half.measured.activations, 0.6 * (double)plain.measured.activations);
    EXPECT_EQ(half.measured.grads, plain.measured.grads);
}
