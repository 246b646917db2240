// SPDX-License-Identifier: MIT
//
// Communication overlaps with the backward pass: how far ahead which rank may be, shown by blocks
// that wait for each other; and exposed communication is reported. (`ringforge bench overlap`
// measures times.)
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

namespace
{

enum { BLOCKS = 4 };

// The progress of the backward pass of each rank, in blocks.
class Progress
{
  public:
    void enter(int rank)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        entered_[rank]++;
        changed_.notify_all();
    }
    int entered(int rank)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return entered_[rank];
    }
    // False: not within the time limit of a test.
    bool wait(int rank, int blocks)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(20),
                                 [&] { return entered_[rank] >= blocks; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int entered_[2] = {};
};

struct Rank {
    int rank;
    Progress *progress;
    std::function<void(int rank, Progress &progress)> in_backward;
};

int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return ctx->losses.buffer ? rf_fill(ctx->stream, ctx->losses, 1.0f) : 0; // the last block
}
int backward_input(rf_ctx *, void *self, rf_tensor, rf_tensor, rf_tensor)
{
    const Rank *rank = static_cast<const Rank *>(self);
    rank->progress->enter(rank->rank);
    rank->in_backward(rank->rank, *rank->progress);
    return 0;
}
int backward_weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return rf_fill(ctx->stream, ctx->grads[0], 1.0f);
}
int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 4);
    return 0;
}
const rf_block_ops gated_ops = {forward, backward_input, backward_weight, sizes};

// A micro-batch for each of two ranks, a bucket for each block.
rf_policy policy_of(int zero)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 2;
    policy.seq = 4;
    policy.bucket_bytes = policy.first_bucket_bytes = 65536 * 4;
    policy.zero = zero;
    policy.optimizer.kind = RF_SGD;
    return policy;
}

// The statistics of steps on rank 0.
std::vector<rf_step_stats>
take_steps(int steps, const rf_policy &policy, double bytes_per_s,
           const std::function<void(int rank, Progress &progress)> &in_backward)
{
    Progress progress;
    std::vector<rf_step_stats> seen;
    ranks::World world;
    world.faults.bytes_per_s = bytes_per_s;
    rank_device(0), rank_device(1);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Rank self = {rank, &progress, in_backward};
        StubBlocks stubs;
        for (int i = 0; i < BLOCKS; i++)
            stubs.add("block" + std::to_string(i), {65536});
        std::vector<rf_block> blocks(stubs.blocks(), stubs.blocks() + stubs.count());
        for (rf_block &block : blocks) {
            block.ops = &gated_ops;
            block.self = &self;
            block.varies = true; // waits on the host
        }
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        rf_mesh mesh = {2, 1, 1};
        ASSERT_RF(rf_plan_build({blocks.data(), BLOCKS}, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        const int32_t words[8] = {0, 1, 2, 3, 0, 1, 2, 3};
        for (int i = 0; i < steps; i++) {
            rf_step_stats stats = {};
            EXPECT_EQ(rf_run_step(run, words, words, 0.1f, &stats), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(stats.loss, 1.0);
            if (rank == 0)
                seen.push_back(stats);
        }
        rf_run_close(run);
        rf_plan_destroy(plan);
    });
    EXPECT_EQ(progress.entered(0), steps * BLOCKS);
    EXPECT_EQ(progress.entered(1), steps * BLOCKS);
    return seen;
}

void take_step(bool no_overlap,
               const std::function<void(int rank, Progress &progress)> &in_backward)
{
    rf_policy policy = policy_of(0);
    policy.no_overlap = no_overlap;
    take_steps(1, policy, 0, in_backward);
}

} // namespace

// Rank 1 stays in its first block until rank 0 is in its last: so rank 0's first buckets, which
// need rank 1, are all in flight while it computes.
TEST(Overlap, ABackwardPassGoesOnWhileItsBucketsWaitForAnotherRank)
{
    take_step(false, [](int rank, Progress &progress) {
        if (rank == 1 && progress.entered(1) == 1) {
            EXPECT_TRUE(progress.wait(0, BLOCKS)) << "rank 0 waited for the reduction of a bucket";
        }
    });
}

TEST(Overlap, SwitchedOffMeansThatNoRankIsABlockAhead)
{
    take_step(true, [](int rank, Progress &progress) {
        // This rank's earlier buckets have been reduced, so the other one has completed those
        // blocks.
        EXPECT_GE(progress.entered(1 - rank), progress.entered(rank) - 1);
    });
}

// Nothing is computed, so the link's time for a step's bytes is exposed: also if only the device
// waits for a transfer, and if the host waits at the end. The host may miss transfers that end
// before it has submitted the step.
TEST(Overlap, WhatTheLinkTakesIsReportedAsExposedInEveryStageOfSharding)
{
    const double bytes_per_s = 65536 * 2 / 0.005; // 5 ms for half of a block
    for (int zero = 0; zero < 4; zero++) {
        double most = 0;
        for (const rf_step_stats &stats :
             take_steps(3, policy_of(zero), bytes_per_s, [](int, Progress &) {})) {
            const double link_ns = 1e9 * (double)stats.sent_bytes / bytes_per_s;
            EXPECT_LE(stats.exposed_comm_ns, stats.step_ns);
            most = std::max(most, (double)stats.exposed_comm_ns / link_ns);
        }
        EXPECT_GT(most, 0.5) << "zero " << zero;
    }
}

// The host also waits in the middle of a recording.
TEST(Overlap, SwitchedOffItChangesNoBitOfAnyTechnique)
{
    struct Technique {
        int ranks, tp, zero, offload;
        rf_dtype dtype;
    };
    for (const Technique &k :
         {Technique{1, 1, 0, RF_OFFLOAD_ACTIVATIONS, RF_F32}, Technique{2, 1, 2, 0, RF_F32},
          Technique{2, 1, 1, 0, RF_BF16}, Technique{2, 2, 0, RF_OFFLOAD_OPTIMIZER, RF_F32}}) {
        Training t;
        t.model.layers = 1;
        t.steps = 2;
        t.policy.batch = t.policy.micro_batches = 2;
        t.model.dtype = k.dtype;
        t.policy.zero = k.zero;
        t.policy.offload = k.offload;
        t.tp = k.tp;
        const std::vector<Seen> beside = train(t, k.ranks);
        t.policy.no_overlap = true;
        const std::vector<Seen> apart = train(t, k.ranks);
        for (int rank = 0; rank < k.ranks; rank++)
            EXPECT_EQ(apart[(size_t)rank].sha, beside[0].sha)
                << "tp=" << k.tp << " zero=" << k.zero << " offload=" << k.offload;
    }
}
