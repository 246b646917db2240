// SPDX-License-Identifier: MIT
//
// The plan is the truth: measurements at the allocator and in the transport equal the plan, to the
// byte; and undeclared allocations are noticed.
#include "world.h"

extern "C" {
#include "base/base.h"
}

TEST(Bytes, MeasuredEqualsPlannedForEveryRankAndOrder)
{
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int ranks = 1; ranks <= 3; ranks++) {
            Training t;
            t.policy.order = order;
            t.policy.bucket_bytes = 30000;
            t.steps = 2;
            t.after = [&](rf_run *run, rf_comm *, int) {
                std::vector<int32_t> tokens, targets;
                double loss = 0;
                t.batch(9, tokens, targets);
                ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 5, &loss));
            };
            std::vector<Seen> seen = train(t, ranks);
            for (int rank = 0; rank < ranks; rank++) {
                const Seen &s = seen[(size_t)rank];
                expect_planned(s, std::string(rf_order_name(order)) + " rank " +
                                      std::to_string(rank) + " of " + std::to_string(ranks));
                EXPECT_EQ(s.planned.sent > 0, ranks > 1);
                EXPECT_EQ(s.stats[0].sent_bytes, s.stats[1].sent_bytes);
            }
        }
}

TEST(Bytes, AWorkspaceIsPlannedAndUsedAndChangesOnlyRoundings)
{
    Training t;
    t.model = {1, 32, 2, 64, 61};
    t.policy.batch = 16;
    t.policy.seq = 64;
    t.policy.micro_batches = 1; // sums over 1024 tokens
    std::vector<Seen> seen;
    for (uint64_t bytes : {0, 1 << 20, 20000, 1 << 20}) {
        t.policy.workspace_bytes = bytes;
        seen.push_back(train(t, 1)[0]);
        expect_planned(seen.back(), std::to_string(bytes));
        EXPECT_EQ(seen.back().planned.scratch - seen[0].planned.scratch, (bytes + 255) / 256 * 256);
        for (int step = 0; step < t.steps; step++)
            EXPECT_NEAR(seen.back().loss[(size_t)step], seen[0].loss[(size_t)step], 1e-4);
    }
    EXPECT_NE(seen[1].sha, seen[0].sha);
    EXPECT_NE(seen[2].sha, seen[0].sha);
    EXPECT_EQ(seen[3].sha, seen[1].sha);
}

TEST(Bytes, AnUndeclaredAllocationOrMessageBreaksTheEquality)
{
    Training t;
    t.steps = 1;
    t.after = [](rf_run *run, rf_comm *comm, int rank) {
        rf_buffer *buffer = nullptr;
        double word = 1;
        ASSERT_RF(rf_buffer_create(rank_device(rank), 256, RF_MEMORY_DEVICE,
                                   RF_CATEGORY_ACTIVATIONS, &buffer));
        rf_buffer_destroy(buffer); // the high-water mark includes it
        ASSERT_RF(rf_all_reduce(comm, &word, &word, 1, RF_F64, RF_SUM, nullptr));
        (void)run;
    };
    for (const Seen &s : train(t, 2)) {
        EXPECT_EQ(s.measured.activations, s.planned.activations + 256);
        EXPECT_GT(s.measured.sent, s.planned.sent);
        EXPECT_EQ(s.measured.params, s.planned.params);
    }
}

namespace
{

struct Policy {
    int ranks, zero, shard, offload, recompute;
    rf_order order;
    std::string text() const
    {
        return std::to_string(ranks) + " ranks, zero=" + std::to_string(zero) +
               ", offload=" + std::to_string(offload) + ", recompute=" + std::to_string(recompute);
    }
};

// On the host, in the last ones of several steps: the number of allocations and the peak of bytes.
struct Allocated {
    uint64_t count, largest;
};

// After a run has been opened nothing is allocated on a device.
Allocated allocated_in_steps(const Policy &p)
{
    constexpr int warm = 3, steps = 6; // recordings are made in the first two
    Training t;
    Allocated out = {};
    t.policy.zero = p.zero;
    t.policy.offload = p.offload;
    t.policy.recompute = p.recompute;
    t.policy.order = p.order;
    t.policy.micro_batches = 4;
    t.shard = p.shard;
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        rf_memory_stats opened, now;
        std::vector<int32_t> tokens, targets;
        t.batch(0, tokens, targets);
        rf_device_memory(rank_device(rank), &opened);
        for (int step = 0; step < steps; step++) {
            if (step == warm && rank == 0) {
                rf_alloc_largest();
                rf_alloc_fail_at(0);
            }
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0.01f, nullptr));
            rf_device_memory(rank_device(rank), &now);
            EXPECT_EQ(now.allocations, opened.allocations) << p.text() << ", step " << step;
        }
        if (rank == 0)
            out = {rf_alloc_fail_at(0), rf_alloc_largest()};
    };
    for (const Seen &s : train(t, p.ranks))
        expect_planned(s, p.text());
    return out;
}

} // namespace

TEST(Bytes, AreThoseOfTheOpeningBecauseNoStepAllocatesOnADeviceOrForOneRankOnTheHost)
{
    const int all = RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS;
    const Policy policies[] = {
        {1, 0, 0, 0, 0, RF_ORDER_RING},
        {1, 0, 0, 0, RF_RECOMPUTE_AUTO, RF_ORDER_TREE},
        {1, 0, 0, RF_OFFLOAD_PARAMS, 0, RF_ORDER_RING},
        {1, 0, 0, RF_OFFLOAD_OPTIMIZER, 1, RF_ORDER_TREE},
        {2, 0, 0, 0, 0, RF_ORDER_RING},
        {2, 1, 0, 0, 1, RF_ORDER_TREE},
        {2, 2, 0, 0, 0, RF_ORDER_TREE},
        {2, 3, 0, 0, 2, RF_ORDER_RING},
        {2, 3, 0, all, 1, RF_ORDER_TREE},
        {4, 3, 2, 0, 0, RF_ORDER_RING},
    };
    for (const Policy &p : policies) {
        if (p.ranks > 2 && !getenv("RF_TEST_ALL")) // kernels of two more devices
            continue;
        const Allocated a = allocated_in_steps(p);
        if (p.ranks > 1) // the communicator copies its calls, and messages that arrive early
            continue;
        EXPECT_EQ(a.count, 0u) << p.text() << ", of at most " << a.largest << " bytes";
    }
}
