// SPDX-License-Identifier: MIT
//
// Communication runs under the backward pass: blocks whose backward is a timed wait, on a link of
// known speed, so that the time a step must take can be computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{

struct Timed {
    int blocks;
    int64_t elements; // of each block's parameter
    double compute_s; // of each block's backward pass
    double latency_s, bytes_per_s;
    uint64_t bucket_bytes;
    bool no_overlap;
};

double compute_s; // one set of ranks at a time

int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return rf_fill(ctx->stream, ctx->losses, 1.0f);
}
int backward_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
{
    rf_sleep_ns((uint64_t)(compute_s * 1e9));
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
const rf_block_ops timed_ops = {forward, backward_input, backward_weight, sizes};

struct Times {
    double step_s, exposed_s;
};

// Adds three steps on two ranks to the best so far: other programs can only add time.
void take_steps(const Timed &timed, Times &best)
{
    StubBlocks stubs;
    for (int i = 0; i < timed.blocks; i++)
        stubs.add("block" + std::to_string(i), {timed.elements});
    std::vector<rf_block> blocks(stubs.blocks(), stubs.blocks() + stubs.count());
    for (rf_block &block : blocks) {
        block.ops = &timed_ops;
        block.varies = true; // computes on the host
    }
    compute_s = timed.compute_s;
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 2;
    policy.seq = 4;
    policy.bucket_bytes = policy.first_bucket_bytes = timed.bucket_bytes;
    policy.no_overlap = timed.no_overlap;
    policy.optimizer.kind = RF_SGD;
    ranks::World world;
    world.faults.latency_s = timed.latency_s;
    world.faults.bytes_per_s = timed.bytes_per_s;
    rank_device(0), rank_device(1);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        rf_mesh mesh = {2, 1, 1};
        ASSERT_RF(rf_plan_build(blocks.data(), timed.blocks, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        const int32_t words[8] = {0, 1, 2, 3, 0, 1, 2, 3};
        for (int i = 0; i < 4; i++) {
            rf_step_stats stats = {};
            ASSERT_RF(rf_run_step(run, words, words, 0.1f, &stats));
            EXPECT_EQ(stats.loss, 1.0);
            if (rank == 0 && i > 0) { // the first compiles kernels
                best.step_s = std::min(best.step_s, (double)stats.step_ns * 1e-9);
                best.exposed_s = std::min(best.exposed_s, (double)stats.exposed_comm_ns * 1e-9);
            }
        }
        rf_run_close(run);
        rf_plan_destroy(plan);
    });
}

bool within(double value, double wanted)
{
    return std::fabs(value - wanted) <= 0.05 * wanted;
}

// The best steps: of as many as a busy machine needs to show what it can do, at most 15.
void expect_times(const Timed &timed, double step_s, double exposed_s)
{
    Times best = {1e9, 1e9};
    for (int i = 0; i < 5; i++) {
        take_steps(timed, best);
        if (within(best.step_s, step_s) && within(best.exposed_s, exposed_s))
            return;
    }
    ADD_FAILURE() << "step " << best.step_s << " s, computed " << step_s << "; exposed "
                  << best.exposed_s << " s, computed " << exposed_s;
}

// A ring of two: two messages of half a bucket each way.
double bucket_s(const Timed &t, double bytes)
{
    return 2 * t.latency_s + bytes / t.bytes_per_s;
}

double predicted_s(const Timed &t)
{
    const double bytes = (double)t.elements * 4;
    const int per_bucket = std::max(1, (int)((double)t.bucket_bytes / bytes));
    double end = 0;
    for (int block = 0; block < t.blocks; block += per_bucket) {
        const int there = std::min(per_bucket, t.blocks - block);
        end = std::max(end, (block + there) * t.compute_s) + bucket_s(t, there * bytes);
    }
    return end;
}

} // namespace

TEST(Overlap, OnlyTheLastBucketIsExposedAndWithoutOverlapTheSumIs)
{
    Timed timed = {4, 65536, 0.1, 0, 65536 * 4 / 0.08, 65536 * 4, false};
    ASSERT_NEAR(bucket_s(timed, 65536 * 4), 0.08, 1e-9);
    expect_times(timed, 4 * 0.1 + 0.08, 0.08);
    timed.no_overlap = true;
    expect_times(timed, 4 * (0.1 + 0.08), 4 * 0.08);
}

TEST(Overlap, TheBestBucketSizeIsThatOfTheLatencyAndBandwidthModel)
{
    // 16 blocks of 512 KiB (from there on two ranks use the ring); small buckets pay latency for
    // each, one large bucket hides nothing.
    Timed timed = {16, 131072, 0.012, 0.010, 131072 * 4 / 0.003, 0, false};
    int best_predicted = 0, best_measured = 0;
    std::vector<double> predicted, measured;
    for (int notch = 0; notch < 5; notch++) { // 512 KiB to 8 MiB
        timed.bucket_bytes = (uint64_t)(524288 << notch);
        predicted.push_back(predicted_s(timed));
        Times best = {1e9, 1e9};
        take_steps(timed, best);
        measured.push_back(best.step_s);
        if (predicted[(size_t)notch] < predicted[(size_t)best_predicted])
            best_predicted = notch;
        if (measured[(size_t)notch] < measured[(size_t)best_measured])
            best_measured = notch;
        printf("bucket %4d KiB: predicted %.1f ms, measured %.1f ms\n", 512 << notch,
               predicted.back() * 1e3, measured.back() * 1e3);
    }
    EXPECT_GT(best_predicted, 0); // the model has its minimum inside, or this would show nothing
    EXPECT_LT(best_predicted, 4);
    EXPECT_LE(std::abs(best_measured - best_predicted), 1);
}
