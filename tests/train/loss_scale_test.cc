// SPDX-License-Identifier: MIT
//
// Dynamic loss scaling in runs: with a power of two it changes no bit, an infinite gradient on one
// rank is a skipped step and the same new scale on all, and a checkpoint goes on with it.
#include <cmath>
#include <cstring>

#include "folder.h"
#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

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
        status = rf_plan_build(&block, 1, &mesh, &policy, rank, &plan);
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

// ---- subnormal gradients ------------------------------------------------------------------------

namespace
{

// One block, whose gradient of a micro-batch is its parameter times a factor of the micro-batch and
// the loss scale: with this scale leaves and partial sums lie around the smallest normal number.
const float tiny = 0x1p-124f;

struct Tiny {
    static int weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
    {
        const float factors[] = {1, -0.875f, 1.25f, -1.125f, 0.75f, -0.625f, 0.5f};
        rf_tensor grad = ctx->grads[0], part = {};
        uint64_t at = 0;
        int rc = rf_suballocate(ctx->scratch, &at, grad.shape, RF_F32, &part);
        if (rc == 0)
            rc = rf_scale(ctx->stream, part, ctx->params[0], tiny * factors[ctx->micro_batch]);
        return rc < 0 ? rc : rf_add(ctx->stream, grad, grad, part);
    }
    static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->scratch = rf_suballocate_bytes(rf_shape1(ELEMENTS), RF_F32);
        out->out = rf_shape2(rows, 4);
        return 0;
    }
    enum { ELEMENTS = 500 };
};
const rf_block_ops tiny_ops = {Linear::forward, Linear::no_input, Tiny::weight, Tiny::sizes};

struct Trained {
    bool done, flushes, device_flushes;
    float w[Tiny::ELEMENTS];
};

void train_tiny(rf_device *device, rf_comm *comm, int rank, int ranks, int zero, Trained *out)
{
    rf_param_desc param = {};
    rf_block block = {};
    rf_policy policy = {};
    rf_mesh mesh = {ranks, 1, 1};
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    param.name = "w";
    param.shape = rf_shape1(Tiny::ELEMENTS);
    param.init_std = 1;
    block.name = "tiny";
    block.ops = &tiny_ops;
    block.params = &param;
    block.param_count = 1;
    block.scales_loss = true;
    policy.batch = policy.micro_batches = 7;
    policy.seq = 1;
    policy.order = RF_ORDER_TREE;
    policy.zero = zero;
    policy.optimizer.kind = RF_SGD;
    policy.loss_scale = tiny;
    policy.loss_scaling = {2, 0.5f, 1000};
    ASSERT_RF(rf_plan_build(&block, 1, &mesh, &policy, rank, &plan));
    ASSERT_RF(rf_run_open(device, comm, plan, nullptr, &run));
    out->flushes = comm && rf_comm_flushes_subnormals(comm);
    for (int i = 0; i < 3; i++) {
        std::vector<int32_t> zeros(7);
        rf_step_stats stats = {};
        ASSERT_RF(rf_run_step(run, zeros.data(), zeros.data(), 0.5f, &stats));
    }
    ASSERT_RF(rf_run_read_param(run, "w", out->w, sizeof(out->w)));
    out->done = true;
    rf_run_close(run);
    rf_plan_destroy(plan);
}

// Ranks are processes of their own, whose driver is started with the processor's mode set as
// lavapipe of Mesa 26 sets it. Its threads inherit the mode.
std::vector<Trained> train_flushing(int ranks, int zero, bool flush)
{
    ranks::Shared shared((size_t)ranks * sizeof(Trained));
    Trained *all = shared.as<Trained>();
    ranks::World world;
    world.provider = "shm";
    world.size = ranks;
    world.watchdog_s = 120;
    world.before = [&](int) { setenv("RF_FLUSH_SUBNORMALS", flush ? "1" : "0", 1); };
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_device *device = nullptr;
        const uint64_t mode = rf_flush_begin(flush);
        const int rc = rf_device_open(nullptr, nullptr, &device);
        rf_flush_end(flush, mode);
        ASSERT_RF(rc);
        setenv("RF_FLUSH_SUBNORMALS", "auto", 1);
        ASSERT_RF(rf_device_flushes_subnormals(device, &all[rank].device_flushes));
        setenv("RF_FLUSH_SUBNORMALS", flush ? "1" : "0", 1);
        train_tiny(device, ranks > 1 ? comm : nullptr, rank, ranks, zero, &all[rank]);
        // The communicator needs the device until it is closed, and the process ends then.
    });
    return {all, all + ranks};
}

} // namespace

TEST(LossScale, SubnormalGradientsHaveTheBitsOfOneRankOnDevicesThatFlushAndThatDoNot)
{
    std::vector<Trained> one[2];
    std::vector<bool> modes;
    for (bool flush : {false, true}) {
        one[flush] = train_flushing(1, 0, flush);
        ASSERT_TRUE(one[flush][0].done);
        // Some drivers, SwiftShader for one, set the mode of their threads themselves.
        if (one[flush][0].device_flushes != flush)
            continue;
        modes.push_back(flush);
        for (int ranks = 2; ranks <= 3; ranks++)
            for (int zero : flush ? std::vector<int>{0, 2} : std::vector<int>{2})
                for (const Trained &seen : train_flushing(ranks, zero, flush)) {
                    ASSERT_TRUE(seen.done);
                    EXPECT_EQ(seen.flushes, flush);
                    EXPECT_EQ(memcmp(seen.w, one[flush][0].w, sizeof(seen.w)), 0)
                        << ranks << " ranks, zero " << zero << ", flush " << flush;
                }
    }
    ASSERT_FALSE(modes.empty());
    EXPECT_EQ(memcmp(one[0][0].w, one[1][0].w, sizeof(one[0][0].w)) != 0, modes.size() == 2)
        << "the mode must matter";
}
