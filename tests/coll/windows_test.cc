// SPDX-License-Identifier: MIT
//
// Long calls in windows, with and without staging memory: exact in any order that the dependencies
// allow, the same bits and messages as in one piece, and bounded memory.
#include <gtest/gtest.h>

#include "simulator.h"
#include "values.h"

using namespace values;

namespace
{

struct Form {
    enum rf_coll_op op;
    const char *algorithm;
    enum rf_order order;
};

const Form forms[] = {
    {RF_COLL_ALL_REDUCE, "ring", RF_ORDER_RING},
    {RF_COLL_ALL_REDUCE, "direct", RF_ORDER_RING},
    {RF_COLL_ALL_REDUCE, "direct", RF_ORDER_TREE},
    {RF_COLL_REDUCE, "direct", RF_ORDER_RING},
    {RF_COLL_REDUCE, "flat", RF_ORDER_RING},
    {RF_COLL_REDUCE, "flat", RF_ORDER_TREE},
    {RF_COLL_REDUCE_SCATTER, "direct", RF_ORDER_RING},
    {RF_COLL_REDUCE_SCATTER, "direct", RF_ORDER_TREE},
    {RF_COLL_ALL_GATHER, "ring", RF_ORDER_ANY},
    {RF_COLL_ALL_GATHER, "flat", RF_ORDER_ANY},
    {RF_COLL_BROADCAST, "chain", RF_ORDER_ANY},
    {RF_COLL_BROADCAST, "tree", RF_ORDER_ANY},
    {RF_COLL_BROADCAST, "flat", RF_ORDER_ANY},
    {RF_COLL_GATHER, "flat", RF_ORDER_ANY},
    {RF_COLL_SCATTER, "flat", RF_ORDER_ANY},
    {RF_COLL_ALL_TO_ALL, "pairs", RF_ORDER_ANY},
    /* Algorithms that cannot be cut are staged in one piece. */
    {RF_COLL_ALL_REDUCE, "flat", RF_ORDER_RING},
    {RF_COLL_ALL_REDUCE, "naive", RF_ORDER_RING},
    {RF_COLL_ALL_GATHER, "bruck", RF_ORDER_ANY},
    {RF_COLL_GATHER, "tree", RF_ORDER_ANY},
    {RF_COLL_SCATTER, "tree", RF_ORDER_ANY},
};

/* Nobody, everybody, every second rank. */
const uint64_t stagings[] = {0, ~0ull, 0x5555555555555555ull};

struct rf_coll_desc describe(const Form &form, int ranks, size_t count)
{
    struct rf_coll_desc desc = {};
    desc.op = form.op;
    desc.order = form.order;
    desc.ranks = ranks;
    desc.count = count;
    desc.root = (ranks - 1) / 2;
    desc.redop = redop_for(desc, form.algorithm);
    desc.window_bytes =
        40 * static_cast<size_t>(ranks); /* widths of 40 bytes, of which 3 segments */
    desc.segment_bytes = 16;
    return desc;
}

std::string text(const Form &form, const struct rf_coll_desc &desc, uint64_t staged)
{
    return std::string(rf_coll_op_name(form.op)) + " " + form.algorithm + " ranks " +
           std::to_string(desc.ranks) + " count " + std::to_string(desc.count) +
           (staged ? " staged" : "");
}

class Windows : public testing::TestWithParam<int>
{
};
INSTANTIATE_TEST_SUITE_P(Ranks, Windows, testing::Values(2, 3, 5, 8));

TEST_P(Windows, AreExactInAnyOrderThatTheirDependenciesAllow)
{
    const int ranks = GetParam();
    uint32_t seed = 1;
    for (const Form &form : forms)
        for (size_t count : {size_t(1), size_t(41), size_t(171)})
            for (bool in_place : {false, true})
                for (uint64_t staged : stagings) {
                    struct rf_coll_desc desc = describe(form, ranks, count);
                    desc.dtype = RF_I64;
                    sim::World world(desc, form.algorithm, in_place, staged);
                    ASSERT_EQ(world.error, "") << text(form, desc, staged);
                    fill<int64_t>(world, desc);
                    ASSERT_EQ(sim::run_any_order(
                                  world, seed++, [](int64_t a, int64_t b) { return a + b; },
                                  [&](int64_t a) { return a / ranks; }),
                              "")
                        << text(form, desc, staged);
                    ASSERT_EQ(check<int64_t>(world, desc), "") << text(form, desc, staged);
                }
}

TEST_P(Windows, AreExactWhenTheExecutorRunsThem)
{
    const int ranks = GetParam();
    uint32_t seed = 1;
    for (const Form &form : forms)
        for (size_t count : {size_t(7), size_t(331), size_t(1001)})
            for (bool in_place : {false, true})
                for (uint64_t staged : stagings) {
                    struct rf_coll_desc desc = describe(form, ranks, count);
                    desc.dtype = RF_I32;
                    sim::World world(desc, form.algorithm, in_place, staged);
                    ASSERT_EQ(world.error, "") << text(form, desc, staged);
                    fill<int32_t>(world, desc);
                    ASSERT_EQ(sim::run_executor(world, seed++), "") << text(form, desc, staged);
                    ASSERT_EQ(check<int32_t>(world, desc), "") << text(form, desc, staged);
                }
}

TEST_P(Windows, WithACountForEachRankAreExact)
{
    const int ranks = GetParam();
    const size_t n = static_cast<size_t>(ranks);
    uint32_t seed = 1;
    for (const Form &form : forms)
        for (int variant = 0; variant < 8; variant++) {
            if (form.op == RF_COLL_ALL_REDUCE || form.op == RF_COLL_REDUCE ||
                form.op == RF_COLL_BROADCAST || form.op == RF_COLL_ALL_TO_ALL)
                continue;
            std::vector<size_t> counts;
            for (size_t r = 0; r < n; r++)
                counts.push_back(variant < 4 ? (r * 5 + size_t(variant) * 3) % 7 * 13
                                             : size_t(int(r) == variant % ranks ? 100 : 0));
            struct rf_coll_desc desc = describe(form, ranks, 0);
            desc.redop = RF_SUM;
            desc.counts = counts.data();
            for (size_t count : counts)
                desc.count += count;
            desc.dtype = RF_I32;
            for (uint64_t staged : stagings) {
                sim::World world(desc, form.algorithm, (variant & 2) != 0, staged);
                ASSERT_EQ(world.error, "") << text(form, desc, staged);
                fill<int32_t>(world, desc);
                ASSERT_EQ(sim::run_executor(world, seed++), "") << text(form, desc, staged);
                ASSERT_EQ(check<int32_t>(world, desc), "") << text(form, desc, staged);
            }
        }
}

/* Every rank knows only its own row and column, so each cuts as many windows as it needs. */
TEST_P(Windows, OfAnExchangeWithCountsAreExact)
{
    const int ranks = GetParam();
    std::vector<std::vector<size_t>> sent(ranks), received(ranks);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            sent[a].push_back(pair_count(a, b));
            received[a].push_back(pair_count(b, a));
        }
    for (uint64_t staged : stagings) {
        std::vector<struct rf_sched *> scheds;
        std::vector<std::unique_ptr<sim::Rank>> memory;
        sim::Network network(ranks, 7);
        std::vector<std::unique_ptr<sim::Mover>> movers;
        std::vector<struct rf_exec *> execs(ranks);
        std::vector<struct rf_coll_desc> descs;
        for (int r = 0; r < ranks; r++) {
            struct rf_coll_desc desc =
                describe({RF_COLL_ALL_TO_ALL, "pairs", RF_ORDER_ANY}, ranks, 0);
            desc.rank = r;
            desc.dtype = RF_I32;
            desc.counts = sent[r].data();
            desc.recv_counts = received[r].data();
            for (size_t count : sent[r])
                desc.count += count;
            desc.staged = staged >> r & 1 ? RF_STAGED_IN | RF_STAGED_OUT : 0;
            struct rf_sched *sched = nullptr;
            uint64_t bytes = 0;
            ASSERT_EQ(rf_sched_staging_bytes(&desc, nullptr, &bytes), 0);
            ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
            memory.push_back(std::make_unique<sim::Rank>(desc, false, bytes));
            movers.push_back(std::make_unique<sim::Mover>(sched, *memory[r], network));
            int32_t *in = reinterpret_cast<int32_t *>(memory[r]->in());
            for (size_t i = 0; i < desc.count; i++)
                in[i] = value(r, i);
            scheds.push_back(sched);
            descs.push_back(desc);
            ASSERT_EQ(rf_exec_create(network.transport(r), &execs[r]), 0);
            struct rf_exec_args args = {memory[r]->work(false), memory[r]->work(true), 5, 1, 7,
                                        movers[r].get()};
            ASSERT_EQ(rf_exec_start(execs[r], sched, &args), 0);
        }
        std::vector<int> status(ranks);
        for (int turn = 0; turn < 100000; turn++)
            if (status[turn % ranks] == 0)
                status[turn % ranks] = rf_exec_progress(execs[turn % ranks]);
        EXPECT_EQ(network.fault(), "");
        for (int r = 0; r < ranks; r++) {
            ASSERT_EQ(status[r], 1) << "rank " << r << " of " << ranks;
            const int32_t *out = reinterpret_cast<const int32_t *>(memory[r]->out());
            for (size_t i = 0; i < memory[r]->layout.out_bytes / 4; i++)
                ASSERT_EQ(out[i], expected(descs[r], i)) << "rank " << r << " element " << i;
            rf_exec_destroy(execs[r]);
            rf_sched_destroy(scheds[r]);
        }
    }
}

TEST_P(Windows, GiveTheBitsOfOnePiece)
{
    const int ranks = GetParam();
    for (const Form &form : forms) {
        if (!rf_coll_reduces(form.op))
            continue;
        struct rf_coll_desc desc = describe(form, ranks, 1001);
        desc.dtype = RF_F32;
        desc.redop = redop_for(desc, form.algorithm);
        std::vector<std::vector<unsigned char>> first(ranks);
        for (int variant = 0; variant < 3; variant++) {
            desc.window_bytes = variant == 0 ? 0 : 40 * static_cast<size_t>(ranks);
            sim::World world(desc, form.algorithm, false, variant == 2 ? ~0ull : 0);
            ASSERT_EQ(world.error, "");
            for (int r = 0; r < ranks; r++) {
                float *in = reinterpret_cast<float *>(world.ranks[r]->in());
                for (size_t i = 0; i < world.ranks[r]->layout.in_bytes / 4; i++)
                    in[i] = static_cast<float>(value(r, i)) / 3;
            }
            ASSERT_EQ(sim::run_executor(world, 5), "");
            for (int r = 0; r < ranks; r++) {
                const unsigned char *out = world.ranks[r]->out();
                std::vector<unsigned char> bits(out, out + world.ranks[r]->layout.out_bytes);
                if (variant == 0)
                    first[r] = bits;
                else
                    ASSERT_EQ(bits, first[r]) << text(form, desc, variant == 2);
            }
        }
    }
}

using Message = std::tuple<int, int, uint32_t, uint64_t>;
std::vector<Message> messages(const struct rf_sched *sched)
{
    std::vector<Message> out;
    for (uint32_t i = 0; i < sched->count; i++) {
        const struct rf_step &step = sched->steps[i];
        if (step.verb == RF_STEP_SEND || step.verb == RF_STEP_RECV)
            out.push_back({step.verb, step.peer, step.tag, step.bytes});
    }
    return out;
}

TEST_P(Windows, AreTheSameMessagesWithAndWithoutStaging)
{
    const int ranks = GetParam();
    for (const Form &form : forms)
        for (size_t count : {size_t(5), size_t(1001)}) {
            struct rf_coll_desc desc = describe(form, ranks, count);
            desc.dtype = RF_F32;
            sim::World plain(desc, form.algorithm, false),
                staged(desc, form.algorithm, false, ~0ull);
            for (int r = 0; r < ranks; r++)
                EXPECT_EQ(messages(plain.scheds[r]), messages(staged.scheds[r]));
        }
}

TEST(WindowsOfAForest, GiveTheBitsOfOnePieceAndStageBoundedMemory)
{
    for (int ranks : {1, 2, 3, 5}) {
        std::vector<int> first;
        for (int r = 0; r <= ranks; r++)
            first.push_back(r * 11 / ranks);
        struct rf_forest forest = {11, ranks, first.data()};
        struct rf_coll_desc desc = {};
        desc.op = RF_COLL_FOREST_ALL_REDUCE;
        desc.order = RF_ORDER_TREE;
        desc.ranks = ranks;
        desc.count = 1001;
        desc.stride = 1024;
        desc.forest = &forest;
        std::vector<std::vector<float>> want(ranks);
        for (int variant = 0; variant < 4; variant++) {
            desc.window_bytes = variant == 0 ? 0 : 200;
            sim::World world(desc, "", variant == 3, variant >= 2 ? ~0ull : 0);
            ASSERT_EQ(world.error, "");
            for (int r = 0; r < ranks; r++) {
                float *in = reinterpret_cast<float *>(world.ranks[r]->in());
                for (size_t i = 0; i < world.ranks[r]->layout.in_bytes / 4; i++)
                    in[i] = static_cast<float>(value(r, i)) / 3;
            }
            ASSERT_EQ(sim::run_executor(world, 3), "");
            for (int r = 0; r < ranks; r++) {
                const float *out = reinterpret_cast<const float *>(world.ranks[r]->out());
                if (variant == 0)
                    want[r].assign(out, out + desc.count);
                else
                    ASSERT_EQ(std::vector<float>(out, out + desc.count), want[r]) << variant;
            }
        }
    }
}

TEST(WindowsOfAForest, StagedOnOneSideReadPartsThatLieApart)
{
    const int first[] = {0, 3, 6};
    struct rf_forest forest = {6, 2, first};
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_FOREST_ALL_REDUCE;
    desc.order = RF_ORDER_TREE;
    desc.ranks = 2;
    desc.count = 101;
    desc.stride = 128;
    desc.forest = &forest;
    for (unsigned side : {RF_STAGED_IN, RF_STAGED_OUT})
        for (size_t window : {0, 200}) {
            desc.staged = side;
            desc.window_bytes = window;
            sim::World world(desc, "", false, ~0ull);
            ASSERT_EQ(world.error, "");
            for (int r = 0; r < desc.ranks; r++)
                for (size_t i = 0; i < 2 * desc.stride; i++)
                    reinterpret_cast<float *>(world.ranks[r]->in())[i] =
                        static_cast<float>(i % desc.stride < desc.count ? i : 1 << 20);
            ASSERT_EQ(sim::run_executor(world, 3), "");
            for (int r = 0; r < desc.ranks; r++)
                for (size_t i = 0; i < desc.count; i++)
                    ASSERT_EQ(reinterpret_cast<const float *>(world.ranks[r]->out())[i],
                              static_cast<float>(4 * i + 2 * desc.stride))
                        << "side " << side << ", window " << window << ", element " << i;
        }
}

TEST(Staging, IsAFewWindowsHoweverLongTheCall)
{
    for (const Form &form : forms)
        for (int ranks : {2, 4, 16, 64}) {
            struct rf_coll_desc desc = {};
            desc.op = form.op;
            desc.order = form.order;
            desc.ranks = ranks;
            desc.count = (size_t)1 << 32;
            desc.dtype = RF_F32;
            desc.segment_bytes = 256 * 1024;
            desc.window_bytes = RF_WINDOW_BYTES;
            desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
            uint64_t bytes = 0;
            ASSERT_EQ(rf_sched_staging_bytes(&desc, nullptr, &bytes), 0);
            EXPECT_GT(bytes, 0u);
            EXPECT_LE(bytes, RF_STAGING_SLOTS * 2 * RF_WINDOW_BYTES) << text(form, desc, 1);
        }
}

/* If no message ever ends, fetches continue until the slots are full. */
TEST(Staging, FetchesAheadOfTheNetworkAsFarAsThereAreSlots)
{
    struct rf_coll_desc desc = describe({RF_COLL_ALL_REDUCE, "ring", RF_ORDER_RING}, 2, 1000);
    desc.dtype = RF_F32;
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    struct rf_sched *sched = nullptr;
    ASSERT_EQ(rf_sched_build_as(&desc, "ring", &sched), 0);
    std::vector<uint32_t> need(sched->count);
    std::vector<uint32_t> ready;
    uint32_t fetched = 0, stored = 0, sends = 0;
    for (uint32_t i = 0; i < sched->count; i++) {
        need[i] = sched->steps[i].need;
        if (need[i] == 0)
            ready.push_back(i);
    }
    while (!ready.empty()) {
        const struct rf_step &step = sched->steps[ready.back()];
        ready.pop_back();
        fetched += step.verb == RF_STEP_FETCH;
        stored += step.verb == RF_STEP_STORE;
        sends += step.verb == RF_STEP_SEND;
        if (step.verb == RF_STEP_SEND || step.verb == RF_STEP_RECV)
            continue;
        for (uint32_t i = 0; i < step.next_count; i++)
            if (--need[sched->successors[step.next + i]] == 0)
                ready.push_back(sched->successors[step.next + i]);
    }
    EXPECT_EQ(fetched, static_cast<uint32_t>(RF_STAGING_SLOTS));
    EXPECT_EQ(stored, 0u);
    EXPECT_GT(sends, 0u);
    rf_sched_destroy(sched);
}

} // namespace
