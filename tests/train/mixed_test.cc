// SPDX-License-Identifier: MIT
//
// Parameters that blocks see in 16 bits: a copy of f32 masters, which are trained as without it.
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
