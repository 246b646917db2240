// SPDX-License-Identifier: MIT
//
// The executor: every message is checked for its contract and size, errors name the peer, a failed
// run can be discarded, memory is reused, and failed allocations fail cleanly.
#include <gtest/gtest.h>

#include "simulator.h"

namespace
{

struct rf_coll_desc all_reduce(int rank, size_t count)
{
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_ALL_REDUCE;
    desc.rank = rank;
    desc.ranks = 2;
    desc.count = count;
    return desc;
}

// Two executors on one network that accepts every message at once: a rank's messages are posted
// before the other can fail and stop.
class Exec : public testing::Test
{
  protected:
    Exec() : network(2, 1, false)
    {
        for (int r = 0; r < 2; r++)
            EXPECT_EQ(rf_exec_create(network.transport(r), &exec[r]), 0);
    }
    ~Exec() override
    {
        for (int r = 0; r < 2; r++) {
            rf_exec_destroy(exec[r]);
            rf_sched_destroy(sched[r]);
        }
    }
    void start(int rank, size_t count, uint32_t contract, uint32_t sequence = 1)
    {
        rf_sched_destroy(sched[rank]);
        sched[rank] = nullptr;
        struct rf_coll_desc desc = all_reduce(rank, count);
        ASSERT_EQ(rf_sched_build(&desc, &sched[rank]), 0);
        in[rank].assign(count, static_cast<float>(rank + 1));
        out[rank].assign(count, 0);
        struct rf_exec_args args = {in[rank].data(), out[rank].data(), 3, sequence, contract};
        ASSERT_EQ(rf_exec_start(exec[rank], sched[rank], &args), 0);
    }
    // Turns until both have completed.
    void finish(int turns = 10000)
    {
        status[0] = status[1] = 0;
        for (int turn = 0; turn < turns; turn++)
            for (int r = 0; r < 2; r++)
                if (status[r] == 0)
                    status[r] = rf_exec_progress(exec[r]);
    }
    sim::Network network;
    struct rf_exec *exec[2] = {};
    struct rf_sched *sched[2] = {};
    std::vector<float> in[2], out[2];
    int status[2] = {};
};

TEST_F(Exec, SumsAndSaysThatItIsDone)
{
    start(0, 100, 7);
    start(1, 100, 7);
    EXPECT_NE(rf_exec_waiting_for(exec[0]), 0);
    finish();
    EXPECT_EQ(status[0], 1);
    EXPECT_EQ(status[1], 1);
    EXPECT_EQ(out[0], std::vector<float>(100, 3));
    EXPECT_EQ(out[1], std::vector<float>(100, 3));
    EXPECT_EQ(rf_exec_waiting_for(exec[0]), -1);
}

// A rank polls the network between the pieces of a long copy, and a run that is discarded within
// one leaves nothing behind for the next run.
TEST_F(Exec, CopiesItsOwnPartPieceByPiece)
{
    const size_t count = 100000;
    for (int run = 0; run < 2; run++) {
        for (int r = 0; r < 2; r++) {
            rf_sched_destroy(sched[r]);
            struct rf_coll_desc desc = all_reduce(r, count);
            desc.op = RF_COLL_ALL_GATHER;
            ASSERT_EQ(rf_sched_build(&desc, &sched[r]), 0);
            in[r].assign(count, static_cast<float>(10 * run + r + 1));
            out[r].assign(2 * count, 0);
            struct rf_exec_args args = {in[r].data(), out[r].data(), 3, (uint32_t)run + 1, 7};
            ASSERT_EQ(rf_exec_start(exec[r], sched[r], &args), 0);
        }
        EXPECT_EQ(rf_exec_progress(exec[0]), 0);
        EXPECT_EQ(out[0].front(), in[0].front());
        EXPECT_EQ(out[0][count - 1], 0) << "more than a piece was copied in one turn";
        if (run == 0) {
            for (int r = 0; r < 2; r++) {
                struct rf_transport *transport = network.transport(r);
                transport->ops->cancel_all(transport);
                rf_exec_reset(exec[r]);
            }
            network.next_run();
            continue;
        }
        finish();
        for (int r = 0; r < 2; r++) {
            EXPECT_EQ(status[r], 1);
            EXPECT_EQ(std::vector<float>(out[r].begin(), out[r].begin() + count), in[0]);
            EXPECT_EQ(std::vector<float>(out[r].begin() + count, out[r].end()), in[1]);
        }
    }
}

TEST_F(Exec, NamesThePeerWithAnotherContract)
{
    start(0, 100, 7);
    start(1, 100, 8);
    finish();
    EXPECT_EQ(status[0], RF_EMISMATCH);
    EXPECT_EQ(status[1], RF_EMISMATCH);
    EXPECT_EQ(rf_exec_mismatch_peer(exec[0]), 1);
    EXPECT_EQ(rf_exec_mismatch_peer(exec[1]), 0);
    EXPECT_EQ(rf_last_error()->status, RF_EMISMATCH);
}

TEST_F(Exec, AcceptsAnEmptyLabelAndRefusesAnotherOne)
{
    start(0, 100, 0x00000007);
    start(1, 100, 0x12000007);
    finish();
    EXPECT_EQ(status[0], 1);
    EXPECT_EQ(status[1], 1);
    network.next_run();
    start(0, 100, 0x13000007);
    start(1, 100, 0x12000007);
    finish();
    EXPECT_EQ(status[0], RF_EMISMATCH);
}

TEST_F(Exec, NamesThePeerWhoseMessageHasAnotherSize)
{
    start(0, 100, 7);
    start(1, 50, 7); // too short for rank 0, too long for rank 1
    finish();
    EXPECT_EQ(status[0], RF_EMISMATCH);
    EXPECT_EQ(status[1], RF_EMISMATCH);
    EXPECT_EQ(rf_exec_mismatch_peer(exec[0]), 1);
    EXPECT_EQ(rf_exec_mismatch_peer(exec[1]), 0);
}

TEST_F(Exec, PassesOnTheTransportsError)
{
    network.meddle = [](struct rf_completion &completion) {
        completion.status = rf_fail(RF_EPEER, "rank %d is gone", completion.peer);
    };
    start(0, 100, 7);
    start(1, 100, 7);
    finish();
    EXPECT_EQ(status[0], RF_EPEER);
    EXPECT_EQ(rf_exec_mismatch_peer(exec[0]), -1);
    EXPECT_EQ(rf_exec_progress(exec[0]), RF_EPEER) << "it stays failed until it is reset";
}

TEST_F(Exec, SaysForWhomItWaitsAndRunsAgainAfterAReset)
{
    start(0, 100, 7);
    finish(100);
    EXPECT_EQ(status[0], 0);
    EXPECT_EQ(rf_exec_waiting_for(exec[0]), 1);
    struct rf_transport *transport = network.transport(0);
    transport->ops->cancel_all(transport);
    rf_exec_reset(exec[0]);
    EXPECT_EQ(rf_exec_waiting_for(exec[0]), -1);
    network.next_run();
    start(0, 100, 7, 2);
    start(1, 100, 7, 2);
    finish();
    EXPECT_EQ(status[0], 1);
    EXPECT_EQ(out[0], std::vector<float>(100, 3));
}

TEST_F(Exec, ActivityMovesWithMessagesAndOnlyThen)
{
    start(0, 100, 7);
    for (int turn = 0; turn < 100; turn++)
        EXPECT_EQ(rf_exec_progress(exec[0]), 0);
    uint64_t before = rf_exec_activity(exec[0]);
    EXPECT_GE(before, 2u);
    for (int turn = 0; turn < 100; turn++)
        EXPECT_EQ(rf_exec_progress(exec[0]), 0);
    EXPECT_EQ(rf_exec_activity(exec[0]), before);
    start(1, 100, 7);
    finish();
    EXPECT_GT(rf_exec_activity(exec[0]), before);
}

TEST_F(Exec, AllocatesNothingOnceItHasSeenItsLargestSchedule)
{
    for (int r = 0; r < 2; r++) {
        struct rf_coll_desc desc = all_reduce(r, 5000);
        ASSERT_EQ(rf_sched_build(&desc, &sched[r]), 0);
        in[r].assign(5000, 1);
        out[r].assign(5000, 0);
    }
    for (uint32_t run = 0; run < 3; run++) {
        rf_alloc_fail_at(run == 0 ? 0 : 1);
        for (int r = 0; r < 2; r++) {
            struct rf_exec_args args = {in[r].data(), out[r].data(), 3, run, 7};
            ASSERT_EQ(rf_exec_start(exec[r], sched[r], &args), 0);
        }
        finish();
        ASSERT_EQ(status[0], 1);
        ASSERT_EQ(status[1], 1);
        uint64_t allocations = rf_alloc_fail_at(0);
        EXPECT_EQ(allocations, run == 0 ? allocations : 0u);
    }
}

TEST_F(Exec, TwoOfOneTransportEachGetTheirOwnCompletions)
{
    // Ranks 0 and 1 run two collectives at once; each executor's turns process messages of both.
    struct rf_exec *second[2] = {};
    struct rf_sched *other[2] = {};
    float a[2] = {1, 2}, b[2] = {};
    start(0, 100, 7);
    start(1, 100, 7);
    for (int r = 0; r < 2; r++) {
        struct rf_coll_desc desc = all_reduce(r, 1);
        struct rf_exec_args args = {&a[r], &b[r], 4, 1, 9};
        ASSERT_EQ(rf_exec_create(network.transport(r), &second[r]), 0);
        ASSERT_EQ(rf_sched_build(&desc, &other[r]), 0);
        ASSERT_EQ(rf_exec_start(second[r], other[r], &args), 0);
    }
    int later[2] = {};
    for (int turn = 0; turn < 10000; turn++) {
        for (int r = 0; r < 2; r++) {
            if (status[r] == 0)
                status[r] = rf_exec_progress(exec[r]);
            if (later[r] == 0)
                later[r] = rf_exec_progress(second[r]);
        }
    }
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(status[r], 1);
        EXPECT_EQ(later[r], 1);
        EXPECT_EQ(b[r], 3);
        EXPECT_EQ(out[r], std::vector<float>(100, 3));
        rf_exec_destroy(second[r]);
        rf_sched_destroy(other[r]);
    }
}

TEST(ExecAlone, RunsOneRankWithoutATransport)
{
    struct rf_coll_desc desc = all_reduce(0, 5);
    desc.ranks = 1;
    struct rf_sched *sched = nullptr;
    struct rf_exec *exec = nullptr;
    float in[5] = {1, 2, 3, 4, 5}, out[5] = {};
    ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
    ASSERT_EQ(rf_exec_create(nullptr, &exec), 0);
    struct rf_exec_args args = {in, out};
    ASSERT_EQ(rf_exec_start(exec, sched, &args), 0);
    int status = 0;
    for (int turn = 0; turn < 10 && status == 0; turn++)
        status = rf_exec_progress(exec);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(memcmp(in, out, sizeof(in)), 0);
    rf_exec_destroy(exec);
    rf_sched_destroy(sched);
}

// The caller of rf_exec_progress yields its core after a turn without activity, so work must count
// as activity.
TEST(ExecAlone, EveryPieceOfWorkCountsAsActivity)
{
    const size_t count = 1000;
    int first[] = {0, 7}; // subtrees of 4, 2 and 1
    struct rf_forest forest = {7, 1, first};
    struct rf_coll_desc desc = all_reduce(0, count);
    desc.op = RF_COLL_FOREST_ALL_REDUCE;
    desc.ranks = 1;
    desc.forest = &forest;
    desc.stride = count;
    struct rf_sched *sched = nullptr;
    struct rf_exec *exec = nullptr;
    std::vector<float> in(3 * count, 1), out(count);
    ASSERT_EQ(rf_sched_build(&desc, &sched), 0) << rf_last_error()->message;
    ASSERT_EQ(rf_exec_create(nullptr, &exec), 0);
    struct rf_exec_args args = {in.data(), out.data()};
    ASSERT_EQ(rf_exec_start(exec, sched, &args), 0);
    uint64_t before = rf_exec_activity(exec);
    int status = 0, turns = 0;
    for (; status == 0 && turns < 1000; turns++) {
        status = rf_exec_progress(exec);
        EXPECT_NE(rf_exec_activity(exec), before) << "turn " << turns;
        before = rf_exec_activity(exec);
    }
    EXPECT_EQ(status, 1);
    EXPECT_EQ(out, std::vector<float>(count, 3));
    rf_exec_destroy(exec);
    rf_sched_destroy(sched);
}

TEST(Allocation, FailingAnywhereInABuildIsAnErrorAndLeaksNothing)
{
    int first[] = {0, 3, 8};
    struct rf_forest forest = {8, 2, first};
    for (enum rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER,
                               RF_COLL_FOREST_ALL_REDUCE}) {
        for (size_t count : {size_t(3), size_t(1) << 20}) {
            struct rf_coll_desc desc = all_reduce(0, count);
            desc.op = op;
            desc.forest = &forest;
            desc.stride = count;
            desc.segment_bytes = 8192;
            for (uint64_t nth = 1;; nth++) {
                struct rf_sched *sched = nullptr;
                rf_alloc_fail_at(nth);
                int status = rf_sched_build(&desc, &sched);
                rf_alloc_fail_at(0);
                rf_sched_destroy(sched);
                if (status == 0)
                    break;
                ASSERT_EQ(status, RF_ENOMEM);
                ASSERT_LT(nth, 1000u);
            }
        }
    }
}

TEST(Allocation, FailingAnywhereInAStartIsAnErrorAndTheExecutorCanTryAgain)
{
    for (uint64_t nth = 1;; nth++) {
        sim::Network network(2, 1, false);
        struct rf_coll_desc desc = all_reduce(0, 100000);
        struct rf_sched *sched = nullptr;
        struct rf_exec *exec = nullptr;
        std::vector<float> data(100000);
        ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
        ASSERT_EQ(rf_exec_create(network.transport(0), &exec), 0);
        struct rf_exec_args args = {data.data(), data.data()};
        rf_alloc_fail_at(nth);
        int status = rf_exec_start(exec, sched, &args);
        rf_alloc_fail_at(0);
        if (status < 0) {
            EXPECT_EQ(status, RF_ENOMEM);
            EXPECT_EQ(rf_exec_start(exec, sched, &args), 0);
        }
        network.transport(0)->ops->cancel_all(network.transport(0));
        rf_exec_destroy(exec);
        rf_sched_destroy(sched);
        if (status == 0)
            break;
    }
}

} // namespace
