// SPDX-License-Identifier: MIT
//
// Every algorithm gives the exact result on every rank and element, for every number of ranks, odd
// sizes, in and out of place, with and without segments, over the simulator's network.
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "simulator.h"
#include "values.h"

using namespace values;

namespace
{

struct Algorithm {
    enum rf_coll_op op;
    const char *name;
    enum rf_order order;
};

// The whole table, so that a new algorithm needs no line here: every sum in each order that it
// promises, else in any. "fused" needs memory that ranks share (tests/comm), "hierarchical" hosts
// (hosts_test.cc).
std::vector<Algorithm> algorithms_of(int ranks)
{
    std::vector<Algorithm> found;
    const struct rf_algorithm *algorithm;
    for (int number = 1; (algorithm = rf_coll_at(number)); number++) {
        struct rf_coll_desc desc = {};
        desc.op = algorithm->op == RF_COLL_NONE ? RF_COLL_BARRIER : algorithm->op;
        desc.ranks = ranks;
        desc.count = desc.op != RF_COLL_BARRIER;
        desc.shared = algorithm->shares_memory && !algorithm->fallback;
        if (rf_coll_is_point(desc.op) || rf_coll_adds_leaves(desc.op))
            continue;
        for (int order = RF_ORDER_TREE; order >= RF_ORDER_ANY; order--) {
            desc.order = (enum rf_order)order;
            const bool again = !found.empty() && found.back().op == desc.op &&
                               strcmp(found.back().name, algorithm->name) == 0;
            if (order == RF_ORDER_ANY ? rf_coll_reduces(desc.op) && again
                                      : !rf_coll_reduces(desc.op))
                continue;
            if (!rf_why_not(algorithm, &desc))
                found.push_back({desc.op, algorithm->name, desc.order});
        }
    }
    return found;
}

std::string text(const Algorithm &algorithm, const struct rf_coll_desc &desc, bool in_place)
{
    return std::string(rf_coll_op_name(algorithm.op)) + " " + algorithm.name + " " +
           rf_order_name(algorithm.order) + " ranks " + std::to_string(desc.ranks) + " count " +
           std::to_string(desc.count) + " segment " + std::to_string(desc.segment_bytes) +
           (in_place ? " in place" : "");
}

std::vector<size_t> counts_for(int ranks)
{
    size_t n = static_cast<size_t>(ranks);
    if (ranks > 17)
        return {1, n - 1, n + 1, 500};
    return {1, 13, n - 1, n, n + 1, 1000, (1 << 12) + 1};
}

template <class Run> void for_every_case(int ranks, Run run)
{
    if (ranks == 1)
        return; // no algorithm does anything; the table's choice is tested below
    for (const Algorithm &algorithm : algorithms_of(ranks)) {
        const bool shared = strcmp(algorithm.name, "shared") == 0;
        for (size_t count : counts_for(ranks)) {
            for (int variant = 0; variant < 4; variant++) {
                struct rf_coll_desc desc = {};
                desc.op = algorithm.op;
                desc.ranks = ranks;
                desc.count = algorithm.op == RF_COLL_BARRIER ? 0 : count;
                desc.order = algorithm.order;
                desc.root = (ranks - 1) / 2;
                desc.shared = shared;
                desc.redop = redop_for(desc, algorithm.name);
                bool cut = algorithm.op == RF_COLL_ALL_REDUCE || algorithm.op == RF_COLL_REDUCE;
                size_t piece = cut ? count / size_t(ranks) : count;
                desc.segment_bytes = variant & 1 ? 1 + piece * 4 / 3 : 0; // a few per piece
                if (desc.count == 0 && algorithm.op != RF_COLL_BARRIER)
                    continue;
                run(algorithm, desc, (variant & 2) != 0);
            }
        }
    }
}

class Schedules : public testing::TestWithParam<int>
{
};
// The time grows with the square, so of more than 12 ranks only the powers of 2, their neighbours,
// and a few others are tested. RF_TEST_ALL=1: all up to 33.
std::vector<int> rank_counts()
{
    std::vector<int> some = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 21, 31, 32, 33};
    if (getenv("RF_TEST_ALL")) {
        some.resize(33);
        std::iota(some.begin(), some.end(), 1);
    }
    return some;
}
INSTANTIATE_TEST_SUITE_P(Ranks, Schedules, testing::ValuesIn(rank_counts()),
                         testing::PrintToStringParamName());

TEST_P(Schedules, AreExactInAnyOrderThatTheirDependenciesAllow)
{
    uint32_t seed = 1;
    for_every_case(
        GetParam(), [&](const Algorithm &algorithm, struct rf_coll_desc desc, bool in_place) {
            desc.dtype = RF_I64;
            for (int repeat = desc.count > 1000 ? 1 : 0; repeat < 2; repeat++) {
                sim::World world(desc, algorithm.name, in_place);
                ASSERT_EQ(world.error, "") << text(algorithm, desc, in_place);
                fill<int64_t>(world, desc);
                ASSERT_EQ(sim::run_any_order(
                              world, seed++, [](int64_t a, int64_t b) { return a + b; },
                              [&](int64_t a) { return a / desc.ranks; }),
                          "")
                    << text(algorithm, desc, in_place);
                ASSERT_EQ(check<int64_t>(world, desc), "") << text(algorithm, desc, in_place);
            }
        });
}

// A step marked as an exchange lies in IN of the peer, and this rank sends that peer at least half
// as much.
TEST(Schedules, ExchangesAreOfDataThatBothRanksHadBefore)
{
    // Bytes from rank to rank of an all_to_all: of similar length in both directions only between 0
    // and 1.
    const std::vector<std::vector<size_t>> bytes = {{8, 40, 90}, {30, 8, 0}, {9, 70, 8}};
    for (int ranks : {2, 3})
        for (bool to_all : {false, true}) {
            std::set<std::pair<int, int>> marked;
            for (int rank = 0; rank < ranks; rank++) {
                std::vector<size_t> out, in;
                for (size_t r = 0; r < (size_t)ranks; r++) {
                    out.push_back(to_all ? bytes[(size_t)rank][r] : bytes[r][1]);
                    in.push_back(bytes[r][(size_t)rank]);
                }
                struct rf_coll_desc desc = {};
                desc.op = to_all ? RF_COLL_ALL_TO_ALL : RF_COLL_ALL_GATHER;
                desc.rank = rank;
                desc.ranks = ranks;
                desc.dtype = RF_U8;
                desc.counts = out.data();
                desc.recv_counts = to_all ? in.data() : nullptr;
                rf_sched *sched = nullptr;
                ASSERT_EQ(rf_sched_build_as(&desc, to_all ? "pairs" : "flat", &sched), 0)
                    << rf_last_error()->message;
                for (uint32_t i = 0; i < sched->count; i++) {
                    const rf_step &step = sched->steps[i];
                    if (step.verb == RF_STEP_SEND) {
                        EXPECT_EQ(step.a.space, (unsigned)RF_SPACE_IN);
                    }
                    if (step.exchange) {
                        EXPECT_EQ(step.verb, RF_STEP_RECV);
                        marked.insert({step.peer, rank});
                    }
                }
                rf_sched_destroy(sched);
            }
            // An all_gather of 40, 8 and 70 bytes: rank 1 sends too little for an exchange.
            using Pairs = std::set<std::pair<int, int>>;
            const Pairs gathered =
                ranks == 2 ? Pairs{{1, 0}} : Pairs{{1, 0}, {1, 2}, {0, 2}, {2, 0}};
            Pairs sent_to_all = {{0, 1}, {1, 0}};
            if (ranks == 3) // rank 0 gets 9 for its 90 bytes
                sent_to_all.insert({2, 0});
            EXPECT_EQ(marked, to_all ? sent_to_all : gathered);
        }
}

// Its segments do not depend on the description: long ones, so that places are reused.
TEST(Schedules, SharedIsExactInManySegmentsWhateverOthersCanReach)
{
    uint32_t seed = 1;
    for (enum rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_ALL_GATHER})
        for (int ranks : {2, 3, 5})
            for (bool in_place : {false, true})
                for (size_t count : {size_t(200003), size_t(ranks) * 32768 * 4}) {
                    struct rf_coll_desc desc = {};
                    desc.op = op;
                    desc.ranks = ranks;
                    desc.count = op == RF_COLL_ALL_GATHER ? count / 2 : count;
                    desc.order = RF_ORDER_RING;
                    desc.dtype = RF_I64;
                    desc.shared = true;
                    sim::World world(desc, "shared", in_place);
                    ASSERT_EQ(world.error, "");
                    fill<int64_t>(world, desc);
                    ASSERT_EQ(sim::run_any_order(
                                  world, seed++, [](int64_t a, int64_t b) { return a + b; },
                                  [](int64_t a) { return a; }),
                              "")
                        << ranks << " ranks, " << count << (in_place ? " in place" : "");
                    ASSERT_EQ(check<int64_t>(world, desc), "") << ranks << " ranks, " << count;
                    sim::World again(desc, "shared", in_place);
                    fill<int64_t>(again, desc);
                    ASSERT_EQ(sim::run_executor(again, seed++), "") << ranks << " ranks";
                    ASSERT_EQ(check<int64_t>(again, desc), "") << ranks << " ranks, " << count;
                }
}

TEST_P(Schedules, AreExactWhenTheExecutorRunsThem)
{
    uint32_t seed = 1;
    for_every_case(
        GetParam(), [&](const Algorithm &algorithm, struct rf_coll_desc desc, bool in_place) {
            desc.dtype = RF_I32;
            sim::World world(desc, algorithm.name, in_place);
            ASSERT_EQ(world.error, "") << text(algorithm, desc, in_place);
            fill<int32_t>(world, desc);
            ASSERT_EQ(sim::run_executor(world, seed++), "") << text(algorithm, desc, in_place);
            ASSERT_EQ(check<int32_t>(world, desc), "") << text(algorithm, desc, in_place);
        });
}

TEST_P(Schedules, OfTheTablesChoiceAreExactForEverySizeAndType)
{
    int ranks = GetParam();
    for (enum rf_coll_op op :
         {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_BROADCAST,
          RF_COLL_BARRIER, RF_COLL_REDUCE, RF_COLL_GATHER, RF_COLL_SCATTER, RF_COLL_ALL_TO_ALL}) {
        for (size_t count : {size_t(0), size_t(1), size_t(97), size_t(5000), size_t(60000)}) {
            if ((count > 5000 && ranks > 5) || (count > 97 && ranks > 17))
                continue;
            for (enum rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
                struct rf_coll_desc desc = {};
                desc.op = op;
                desc.ranks = ranks;
                desc.count = count;
                desc.order = order;
                desc.dtype = RF_F32;
                desc.segment_bytes = 4096;
                sim::World world(desc, "", order == RF_ORDER_RING);
                ASSERT_EQ(world.error, "");
                fill<float>(world, desc);
                ASSERT_EQ(sim::run_executor(world, 3), "") << rf_coll_op_name(op) << count;
                ASSERT_EQ(check<float>(world, desc), "") << rf_coll_op_name(op) << count;
            }
        }
    }
}

// Pieces of any length, including empty ones, and all empty but one.
TEST_P(Schedules, WithACountForEachRankAreExact)
{
    int ranks = GetParam();
    const std::pair<enum rf_coll_op, const char *> forms[] = {
        {RF_COLL_ALL_GATHER, "flat"},  {RF_COLL_ALL_GATHER, "ring"},
        {RF_COLL_ALL_GATHER, "bruck"}, {RF_COLL_GATHER, "flat"},
        {RF_COLL_GATHER, "tree"},      {RF_COLL_SCATTER, "flat"},
        {RF_COLL_SCATTER, "tree"},     {RF_COLL_REDUCE_SCATTER, "direct"},
        {RF_COLL_ALL_GATHER, ""},      {RF_COLL_GATHER, ""},
        {RF_COLL_SCATTER, ""},         {RF_COLL_REDUCE_SCATTER, ""}};
    uint32_t seed = 1;
    for (auto [op, name] : forms)
        for (int variant = 0; variant < 6; variant++) {
            if (ranks == 1 && *name)
                continue;
            std::vector<size_t> counts;
            for (int r = 0; r < ranks; r++)
                counts.push_back(variant < 4 ? size_t(r * 5 + variant * 3) % 7 * 13
                                             : size_t(r == variant % ranks ? 100 : 0));
            struct rf_coll_desc desc = {};
            desc.op = op;
            desc.ranks = ranks;
            desc.counts = counts.data();
            for (size_t count : counts)
                desc.count += count;
            desc.root = variant * 5 % ranks;
            desc.dtype = RF_I32;
            desc.segment_bytes = variant & 1 ? 64 : 0;
            sim::World world(desc, name, (variant & 2) != 0);
            ASSERT_EQ(world.error, "") << rf_coll_op_name(op) << " " << name;
            fill<int32_t>(world, desc);
            ASSERT_EQ(sim::run_executor(world, seed++), "") << rf_coll_op_name(op) << " " << name;
            ASSERT_EQ(check<int32_t>(world, desc), "")
                << rf_coll_op_name(op) << " " << name << " ranks " << ranks << " variant "
                << variant;
        }
}

TEST(Schedules, GatherAndScatterServeEveryRoot)
{
    for (enum rf_coll_op op : {RF_COLL_GATHER, RF_COLL_SCATTER, RF_COLL_REDUCE})
        for (const char *algorithm : {"flat", "tree", "direct"})
            for (int ranks = 2; ranks <= 9; ranks++)
                for (int root = 0; root < ranks; root++) {
                    if ((op == RF_COLL_REDUCE) == (strcmp(algorithm, "tree") == 0) ||
                        (op != RF_COLL_REDUCE && strcmp(algorithm, "direct") == 0))
                        continue;
                    struct rf_coll_desc desc = {};
                    desc.op = op;
                    desc.ranks = ranks;
                    desc.count = 33;
                    desc.root = root;
                    desc.segment_bytes = 64;
                    sim::World world(desc, algorithm, root % 2 == 0);
                    ASSERT_EQ(world.error, "");
                    fill<float>(world, desc);
                    ASSERT_EQ(sim::run_executor(world, 2), "") << ranks << " ranks, root " << root;
                    ASSERT_EQ(check<float>(world, desc), "")
                        << rf_coll_op_name(op) << " " << algorithm << " " << ranks
                        << " ranks, root " << root;
                }
}

template <class T> std::vector<T> result(enum rf_coll_op op, std::vector<std::vector<T>> in, int of)
{
    struct rf_coll_desc desc = {};
    desc.op = op;
    desc.ranks = static_cast<int>(in.size());
    desc.count = in[0].size();
    sim::World world(desc, "", false);
    for (size_t r = 0; r < in.size(); r++)
        memcpy(world.ranks[r]->in(), in[r].data(), in[r].size() * sizeof(T));
    EXPECT_EQ(sim::run_executor(world, 1), "");
    std::vector<T> out(world.ranks[of]->layout.out_bytes / sizeof(T));
    memcpy(out.data(), world.ranks[of]->out(), out.size() * sizeof(T));
    return out;
}

TEST(Schedules, SumOneTwoThreeAndOneZeroOneIsTwoTwoFour)
{
    for (int rank : {0, 1})
        EXPECT_EQ(result<float>(RF_COLL_ALL_REDUCE, {{1, 2, 3}, {1, 0, 1}}, rank),
                  (std::vector<float>{2, 2, 4}));
}

TEST(Schedules, GatherOneTwoAndThreeFourInRankOrder)
{
    for (int rank : {0, 1})
        EXPECT_EQ(result<float>(RF_COLL_ALL_GATHER, {{1, 2}, {3, 4}}, rank),
                  (std::vector<float>{1, 2, 3, 4}));
}

TEST(Schedules, BroadcastReachesAllFromEveryRoot)
{
    for (const char *algorithm : {"tree", "chain"}) {
        for (int ranks = 2; ranks <= 9; ranks++) {
            for (int root = 0; root < ranks; root++) {
                struct rf_coll_desc desc = {};
                desc.op = RF_COLL_BROADCAST;
                desc.ranks = ranks;
                desc.count = 101;
                desc.root = root;
                desc.segment_bytes = 64;
                sim::World world(desc, algorithm, true);
                ASSERT_EQ(world.error, "");
                fill<float>(world, desc);
                ASSERT_EQ(sim::run_executor(world, 2), "") << ranks << " ranks, root " << root;
                ASSERT_EQ(check<float>(world, desc), "") << ranks << " ranks, root " << root;
            }
        }
    }
}

TEST(Schedules, NobodyLeavesABarrierBeforeTheLastHasCome)
{
    auto none = [](int64_t a, int64_t) { return a; };
    auto same = [](int64_t a) { return a; };
    for (int ranks = 2; ranks <= 17; ranks++) {
        for (int late = 0; late < ranks; late++) {
            struct rf_coll_desc desc = {};
            desc.op = RF_COLL_BARRIER;
            desc.ranks = ranks;
            sim::World world(desc, "dissemination", false);
            ASSERT_EQ(world.error, "");
            sim::Network network(ranks, static_cast<uint32_t>(late) + 1);
            std::vector<std::unique_ptr<sim::AnyOrder>> runners;
            for (int r = 0; r < ranks; r++)
                runners.push_back(std::make_unique<sim::AnyOrder>(world.scheds[r], network,
                                                                  *world.ranks[r], none, same));
            auto run_all_but = [&](int missing) {
                for (int turn = 0; turn < 100 * ranks; turn++)
                    if (turn % ranks != missing)
                        for (int i = 0; i < 8; i++)
                            runners[turn % ranks]->turn();
            };
            run_all_but(late);
            for (auto &runner : runners)
                ASSERT_FALSE(runner->done()) << ranks << " ranks, rank " << late << " is late";
            run_all_but(-1);
            for (auto &runner : runners)
                ASSERT_TRUE(runner->done()) << ranks << " ranks, rank " << late << " was late";
        }
    }
}

TEST(Schedules, SendAndReceiveMoveOneMessageAndSendToSelfCopies)
{
    struct rf_coll_desc send = {}, recv = {}, self = {};
    send.op = RF_COLL_SEND;
    send.ranks = 2;
    send.count = 10;
    send.root = 1;
    recv = send;
    recv.op = RF_COLL_RECV;
    recv.rank = 1;
    recv.root = 0;
    self = send;
    self.root = 0;
    struct rf_sched *scheds[3] = {};
    ASSERT_EQ(rf_sched_build(&send, &scheds[0]), 0);
    ASSERT_EQ(rf_sched_build(&recv, &scheds[1]), 0);
    ASSERT_EQ(rf_sched_build(&self, &scheds[2]), 0);
    EXPECT_EQ(rf_sched_sent_bytes(scheds[0]), 40u);
    EXPECT_EQ(rf_sched_sent_bytes(scheds[2]), 0u);

    sim::Network network(2, 1);
    float from[10], to[10] = {}, copy[10] = {};
    for (int i = 0; i < 10; i++)
        from[i] = static_cast<float>(i);
    struct rf_exec_args args[3] = {{from, nullptr}, {nullptr, to}, {from, copy}};
    struct rf_exec *execs[3] = {};
    int done = 0;
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(rf_exec_create(network.transport(i % 2), &execs[i]), 0);
        ASSERT_EQ(rf_exec_start(execs[i], scheds[i], &args[i]), 0);
    }
    for (int turn = 0; turn < 1000 && done != 7; turn++)
        for (int i = 0; i < 3; i++)
            if (!(done & 1 << i) && rf_exec_progress(execs[i]) == 1)
                done |= 1 << i;
    EXPECT_EQ(done, 7);
    EXPECT_EQ(memcmp(from, to, sizeof(to)), 0);
    EXPECT_EQ(memcmp(from, copy, sizeof(copy)), 0);
    for (int i = 0; i < 3; i++) {
        rf_exec_destroy(execs[i]);
        rf_sched_destroy(scheds[i]);
    }
}

} // namespace
