// SPDX-License-Identifier: MIT
//
// Loss scaling with subnormal gradients and sums: several ranks have the bits of one, on devices
// that flush such numbers to zero and on devices that do not. No device may be opened here before
// the ranks are.
#include <cfloat>
#include <cstring>

#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{

// One block, whose gradient of a micro-batch is its parameter times a factor of the micro-batch and
// the loss scale: with this scale leaves and partial sums lie around the smallest normal number.
const float tiny = 0x1p-124f;

struct Tiny {
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
const rf_block_ops tiny_ops = {Tiny::forward, Tiny::no_input, Tiny::weight, Tiny::sizes};

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
    ASSERT_RF(rf_plan_build({&block, 1}, &mesh, &policy, rank, &plan));
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

// Asks the device itself: the library keeps the answer of an earlier test for its driver.
void halve_smallest(rf_device *device, bool *flushes)
{
    float x[4] = {FLT_MIN, FLT_MIN, FLT_MIN, FLT_MIN};
    rf_buffer *buffer = nullptr;
    rf_stream *stream = nullptr;
    rf_tensor t;
    ASSERT_RF(rf_buffer_create(device, sizeof(x), RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &buffer));
    ASSERT_RF(rf_tensor_view(buffer, 0, rf_shape1(4), RF_F32, &t));
    ASSERT_RF(rf_tensor_write(t, x, sizeof(x)));
    ASSERT_RF(rf_stream_create(device, "halve", &stream));
    ASSERT_RF(rf_scale(stream, t, t, 0.5f));
    ASSERT_RF(rf_stream_wait(stream));
    ASSERT_RF(rf_tensor_read(t, x, sizeof(x)));
    *flushes = x[0] == 0;
    rf_stream_destroy(stream);
    rf_buffer_destroy(buffer);
}

// Ranks are processes of their own; their driver is started with the processor's mode set as
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
        halve_smallest(device, &all[rank].device_flushes);
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
        // Some drivers, such as SwiftShader, set the mode of their threads themselves.
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
