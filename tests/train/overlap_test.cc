// SPDX-License-Identifier: MIT
//
// Communication runs under the backward pass: which rank may be how far ahead, shown by blocks that
// wait for each other. (Times are `ringforge bench overlap`'s.)
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

namespace
{

enum { BLOCKS = 4 };

// How far the backward pass of each rank has come, in blocks.
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
    // False: not within the time that a test may take.
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
    return rf_fill(ctx->stream, ctx->losses, 1.0f);
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

// One step on two ranks, a bucket for each block.
void take_step(bool no_overlap,
               const std::function<void(int rank, Progress &progress)> &in_backward)
{
    Progress progress;
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 2;
    policy.seq = 4;
    policy.bucket_bytes = policy.first_bucket_bytes = 65536 * 4;
    policy.no_overlap = no_overlap;
    policy.optimizer.kind = RF_SGD;
    rank_device(0), rank_device(1);
    ranks::run({}, [&](rf_comm *comm, int rank) {
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
        ASSERT_RF(rf_plan_build(blocks.data(), BLOCKS, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        const int32_t words[8] = {0, 1, 2, 3, 0, 1, 2, 3};
        rf_step_stats stats = {};
        EXPECT_EQ(rf_run_step(run, words, words, 0.1f, &stats), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(stats.loss, 1.0);
        rf_run_close(run);
        rf_plan_destroy(plan);
    });
    EXPECT_EQ(progress.entered(0), BLOCKS);
    EXPECT_EQ(progress.entered(1), BLOCKS);
}

} // namespace

// Rank 1 stays in its first block until rank 0 is in its last: so rank 0's first buckets, which
// need rank 1, are all under way while it computes on.
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
        // This rank's earlier buckets have been reduced, so the other has done those blocks.
        EXPECT_GE(progress.entered(1 - rank), progress.entered(rank) - 1);
    });
}
