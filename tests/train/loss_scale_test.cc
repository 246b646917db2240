// SPDX-License-Identifier: MIT
//
// Dynamic loss scaling in runs: a power of two changes no bit, an infinite gradient on one rank
// gives a skipped step and the same new scale on all, and a checkpoint keeps the scale.
#include <cmath>
#include <cstring>

#include "folder.h"
#include "support/ranks.h"
#include "world.h"

namespace
{

// One block with one parameter, whose gradient is 1 for each micro-batch, times the scale.
struct Linear {
    static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
    {
        return rf_fill(ctx->stream, ctx->losses, 1);
    }
    static int no_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
    {
        // grads += scale, by a copy of it and a sum.
        rf_tensor grad = ctx->grads[0], copy = {}, scale = ctx->loss_scale;
        uint64_t at = 0;
        int rc = rf_suballocate(ctx->scratch, &at, rf_shape1(1), RF_F32, &copy);
        if (rc == 0)
            rc = scale.buffer ? rf_copy(ctx->stream, copy, scale) : rf_fill(ctx->stream, copy, 1);
        return rc < 0 ? rc : rf_add(ctx->stream, grad, grad, copy);
    }
    static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->scratch = rf_suballocate_bytes(rf_shape1(1), RF_F32);
        out->out = rf_shape2(rows, 4);
        return 0;
    }
};
const rf_block_ops linear = {Linear::forward, Linear::no_input, Linear::weight, Linear::sizes};

class Scaled
{
  public:
    Scaled(int rank, rf_comm *comm, float scale, bool scales = true, float growth = 2)
        : rank(rank), ranks(comm ? rf_comm_size(comm) : 1)
    {
        param.name = "w";
        param.shape = rf_shape1(1);
        param.init_value = 3;
        block.name = "linear";
        block.ops = &linear;
        block.params = &param;
        block.param_count = 1;
        block.scales_loss = scales;
        rf_policy policy = {};
        policy.batch = policy.micro_batches = ranks;
        policy.seq = 1;
        policy.loss_scale = scale;
        policy.loss_scaling = {growth, 0.5f, 2};
        rf_mesh mesh = {ranks, 1, 1};
        status = rf_plan_build({&block, 1}, &mesh, &policy, rank, &plan);
        if (status == 0) {
            EXPECT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        }
    }
    ~Scaled()
    {
        rf_run_close(run);
        rf_plan_destroy(plan);
    }
    rf_step_stats step()
    {
        std::vector<int32_t> zeros((size_t)ranks);
        rf_step_stats stats = {};
        EXPECT_RF(rf_run_step(run, zeros.data(), zeros.data(), 0.01f, &stats));
        return stats;
    }
    float value()
    {
        float w = 0;
        EXPECT_RF(rf_run_read_param(run, "w", &w, 4));
        return w;
    }
    rf_step_scalars *scalars()
    {
        return (rf_step_scalars *)rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    }

    int rank, ranks, status = 0;
    rf_param_desc param = {};
    rf_block block = {};
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
};

} // namespace

TEST(LossScale, OfPowersOfTwoChangesNoBit)
{
    Scaled plain(0, nullptr, 0, false), scaled(0, nullptr, 1024);
    float scale = 1024;
    for (int i = 0; i < 9; i++) {
        rf_step_stats a = plain.step(), b = scaled.step();
        EXPECT_EQ(a.grad_norm, 1);
        EXPECT_EQ(b.grad_norm, 1);
        EXPECT_EQ(plain.value(), scaled.value());
        scale *= i % 2 ? 2.0f : 1.0f;
        EXPECT_EQ(a.loss_scale, 0);
        EXPECT_EQ(b.loss_scale, scale) << i;
    }
    EXPECT_LT(plain.value(), 3);
}

TEST(LossScale, AnInfiniteGradientOnOneRankSkipsTheStepAndHalvesTheScaleOnAll)
{
    for (int bad = 0; bad < 3; bad++) {
        for (int r = 0; r < 3; r++)
            rank_device(r);
        ranks::World world;
        world.size = 3;
        world.watchdog_s = 120;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Scaled s(rank, comm, 256);
            EXPECT_FALSE(s.step().skipped);
            const float w = s.value();
            if (rank == bad)
                s.scalars()->loss_scale = INFINITY;
            rf_step_stats stats = s.step();
            EXPECT_TRUE(stats.skipped);
            EXPECT_EQ(s.value(), w);
            EXPECT_EQ(s.run->updates, 1);
            EXPECT_EQ(s.scalars()->good_steps, 0u);
            if (rank == bad)
                s.scalars()->loss_scale = 128;
            else
                EXPECT_EQ(stats.loss_scale, 128);
            EXPECT_FALSE(s.step().skipped);
            EXPECT_EQ(s.run->updates, 2);
            EXPECT_LT(s.value(), w);
        });
    }
}

TEST(LossScale, ACheckpointGoesOnWithIt)
{
    Folder folder;
    rf_progress progress = {3, 0, 3};
    Scaled first(0, nullptr, 100, true, 1.7f), second(0, nullptr, 8, true, 1.7f);
    for (int i = 0; i < 3; i++)
        first.step();
    ASSERT_RF(rf_run_save(first.run, folder.path().c_str(), &progress));
    ASSERT_RF(rf_run_load(second.run, folder.path().c_str(), nullptr));
    EXPECT_EQ(second.scalars()->good_steps, 1u);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(second.step().loss_scale, first.step().loss_scale);
        EXPECT_EQ(second.value(), first.value());
    }
}

TEST(LossScale, IsRefusedWhereNobodyMultipliesByIt)
{
    Scaled none(0, nullptr, 1024, false);
    EXPECT_EQ(none.status, RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "linear, does not multiply"), nullptr)
        << rf_last_error()->message;
    Scaled negative(0, nullptr, -1);
    EXPECT_EQ(negative.status, RF_EINVAL);
}
