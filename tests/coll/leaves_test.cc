// SPDX-License-Identifier: MIT
//
// Sums over micro-batches that end in pieces: the bits equal those of one process for every number
// of ranks and leaves and all cuts. Also the bytes sent and the parts of the caller's memory that
// are used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simulator.h"

namespace
{

using Row = std::vector<float>;
using Counts = std::vector<size_t>;

// Many magnitudes, so that the bits of a sum show its order.
float leaf_value(int leaf, size_t element)
{
    uint32_t x =
        static_cast<uint32_t>(leaf) * 2654435761u + static_cast<uint32_t>(element) * 40503u;
    x = (x ^ x >> 15) * 0x85ebca6bu;
    x ^= x >> 13;
    float value = 1 + static_cast<float>(x >> 9) / (1 << 23);
    return ldexpf(x & 1 ? -value : value, static_cast<int>(x >> 1 & 15) - 8);
}

// Node (level, index), as one process adds it.
Row node(int level, int index, int leaves, size_t count)
{
    Row row(count);
    if (level == 0) {
        for (size_t i = 0; i < count; i++)
            row[i] = leaf_value(index, i);
        return row;
    }
    row = node(level - 1, 2 * index, leaves, count);
    if ((2 * index + 1) << (level - 1) >= leaves)
        return row;
    const Row right = node(level - 1, 2 * index + 1, leaves, count);
    for (size_t i = 0; i < count; i++)
        row[i] += right[i];
    return row;
}

Row whole_sum(int leaves, size_t count)
{
    int level = 0;
    while (1 << level < leaves)
        level++;
    return node(level, 0, leaves, count);
}

// Ragged with zeros; fewer elements than ranks; everything at one rank; nothing.
Counts counts_of(int kind, int ranks)
{
    Counts counts(static_cast<size_t>(ranks));
    for (size_t r = 0; r < counts.size(); r++)
        counts[r] = kind == 0   ? r * 5 % 4 * 6
                    : kind == 1 ? r % 3 == 1
                    : kind == 2 ? (r + 1 == counts.size()) * 38
                                : 0;
    return counts;
}

size_t sum(const Counts &counts)
{
    size_t all = 0;
    for (size_t count : counts)
        all += count;
    return all;
}

size_t before(const Counts &counts, int rank)
{
    return sum(Counts(counts.begin(), counts.begin() + rank));
}

float *floats(unsigned char *bytes)
{
    return reinterpret_cast<float *>(bytes);
}

// By the executor, or in any order that the dependencies allow (on words of two elements).
std::string run(sim::World &world, const struct rf_coll_desc &desc, uint32_t seed)
{
    bool even = desc.stride % 2 == 0;
    for (int r = 0; r < desc.ranks; r++)
        even = even && desc.counts[r] % 2 == 0;
    if (!even || seed % 4 == 0)
        return sim::run_executor(world, seed);
    auto add = [](int64_t a, int64_t b) {
        float x[2], y[2];
        memcpy(x, &a, sizeof(a));
        memcpy(y, &b, sizeof(b));
        x[0] += y[0];
        x[1] += y[1];
        memcpy(&a, x, sizeof(a));
        return a;
    };
    return sim::run_any_order(world, seed, add, [](int64_t a) { return a; });
}

void expect_row(const float *got, const Row &want, size_t first, size_t count,
                const std::string &where)
{
    for (size_t i = 0; i < count; i++)
        ASSERT_EQ(got[i], want[first + i]) << where << ", element " << i;
}

// ---- forests ----------------------------------------------------------------------------------

struct Forest : rf_forest {
    Forest(int leaves_, int ranks_, uint32_t seed) : shares({0})
    {
        std::mt19937 random(seed);
        for (int r = 1; r < ranks_; r++)
            shares.push_back(
                seed % 2 ? r * leaves_ / ranks_
                         : static_cast<int>(random() % (static_cast<unsigned>(leaves_) + 1)));
        shares.push_back(leaves_);
        std::sort(shares.begin(), shares.end());
        leaves = leaves_;
        ranks = ranks_;
        first = shares.data();
    }
    std::vector<int> shares;
};

struct rf_coll_desc describe(const Forest &forest, const Counts &counts)
{
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_FOREST_REDUCE_SCATTER;
    desc.order = RF_ORDER_TREE;
    desc.ranks = forest.ranks;
    desc.forest = &forest;
    desc.counts = counts.data();
    desc.count = sum(counts);
    desc.stride = desc.count + 4;
    return desc;
}

void run_forest(const Forest &forest, const Counts &counts, struct rf_coll_desc desc, bool in_place,
                uint64_t staged, uint32_t seed)
{
    sim::World world(desc, "", in_place, staged);
    ASSERT_EQ(world.error, "");
    std::vector<Row> inputs;
    for (int r = 0; r < desc.ranks; r++) {
        struct rf_forest_node nodes[62];
        const int parts = rf_forest_nodes(&forest, r, nodes);
        float *in = floats(world.ranks[r]->in());
        for (int k = 0; k < parts; k++) {
            const Row row = node(nodes[k].level, nodes[k].index, forest.leaves, desc.count);
            std::copy(row.begin(), row.end(), in + static_cast<size_t>(k) * desc.stride);
        }
        inputs.emplace_back(in, in + world.ranks[r]->layout.in_bytes / 4);
    }
    ASSERT_EQ(run(world, desc, seed), "");
    const Row want = whole_sum(forest.leaves, desc.count);
    for (int r = 0; r < desc.ranks; r++) {
        const std::string where = std::to_string(desc.ranks) + " ranks, " +
                                  std::to_string(forest.leaves) + " leaves, rank " +
                                  std::to_string(r);
        expect_row(floats(world.ranks[r]->out()), want, before(counts, r), counts[r], where);
        const uint64_t parts = static_cast<uint64_t>(rf_forest_nodes(&forest, r, nullptr));
        uint64_t sent = 0;
        ASSERT_EQ(rf_forest_scatter_sent_bytes(&forest, r, counts.data(), &sent), 0);
        ASSERT_EQ(sent, parts * (desc.count - counts[r]) * 4) << where;
        ASSERT_EQ(sent, rf_sched_sent_bytes(world.scheds[r])) << where;
        const float *in = floats(world.ranks[r]->in());
        for (size_t i = 0; i < inputs[r].size(); i++) {
            bool is_out = world.ranks[r]->layout.in_place && i >= before(counts, r) &&
                          i < before(counts, r) + counts[r];
            ASSERT_TRUE(is_out || memcmp(&in[i], &inputs[r][i], 4) == 0)
                << where << ", input " << i << " was written";
        }
    }
}

TEST(ForestReduceScatter, HasTheBitsOfOneProcessForEveryNumberOfRanksLeavesAndCuts)
{
    const uint64_t stagings[] = {0, ~0ull, 0x5555555555555555ull};
    for (int ranks = 1; ranks <= 32; ranks++)
        for (int leaves : {1, 2, 7, 16, 23})
            for (int kind = 0; kind < 3; kind++) {
                const uint32_t seed = static_cast<uint32_t>(ranks * 7 + leaves + kind);
                const Forest forest(leaves, ranks, seed);
                const Counts counts = counts_of(kind, ranks);
                struct rf_coll_desc desc = describe(forest, counts);
                desc.window_bytes = seed % 3 ? 0 : 160;
                run_forest(forest, counts, desc, seed % 2, stagings[seed % 5 % 3], seed);
            }
}

TEST(ForestReduceScatter, OfNothingIsABarrier)
{
    const Forest forest(5, 3, 1);
    const Counts counts = counts_of(3, 3);
    run_forest(forest, counts, describe(forest, counts), false, 0, 1);
}

// Windows that are stored or fetched on one side only do not touch the places of the other.
TEST(ForestReduceScatter, MayBeStagedOnOneSideWithSpaceBetweenTheParts)
{
    for (unsigned side : {RF_STAGED_IN, RF_STAGED_OUT})
        for (size_t window : {0, 160}) {
            const Forest forest(11, 3, 1);
            const Counts counts = {40, 0, 21};
            struct rf_coll_desc desc = describe(forest, counts);
            desc.window_bytes = window;
            desc.staged = side;
            run_forest(forest, counts, desc, false, ~0ull, 2);
        }
}

TEST(ForestReduceScatter, IsRefusedWithoutCountsAndWhereTheyOverflow)
{
    const Forest forest(4, 2, 1);
    const Counts huge = {SIZE_MAX, 2}, many = {SIZE_MAX / 8, 2};
    uint64_t bytes = 0;
    EXPECT_EQ(rf_forest_scatter_sent_bytes(&forest, 0, nullptr, &bytes), RF_EINVAL);
    EXPECT_EQ(rf_forest_scatter_sent_bytes(nullptr, 0, huge.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_forest_scatter_sent_bytes(&forest, 2, huge.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_forest_scatter_temp_bytes(&forest, 0, huge.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_forest_scatter_staging_bytes(&forest, 0, many.data(), &bytes), RF_EINVAL);
}

// ---- prefixes ---------------------------------------------------------------------------------

struct rf_coll_desc describe(int leaves, int ranks, int round, const Counts &counts)
{
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_PREFIX_REDUCE_SCATTER;
    desc.order = RF_ORDER_TREE;
    desc.ranks = ranks;
    desc.counts = counts.data();
    desc.count = sum(counts);
    desc.leaves = leaves;
    desc.round = round;
    return desc;
}

// The slots of all ranks. Slots without a partial sum are NaN, so that a read of them shows.
struct Slots {
    Slots(int leaves_, const Counts &counts_)
        : leaves(leaves_), ranks(static_cast<int>(counts_.size())), counts(counts_)
    {
        for (size_t count : counts)
            data.emplace_back(static_cast<size_t>(rf_prefix_slots(leaves, ranks)) * count, NAN);
    }
    void forget(int rounds)
    {
        const uint32_t levels = rf_prefix_levels(leaves, ranks, rounds);
        for (size_t r = 0; r < data.size(); r++)
            for (size_t i = 0; i < data[r].size(); i++)
                if (!(levels >> (i / counts[r]) & 1))
                    data[r][i] = NAN;
    }
    int leaves, ranks;
    Counts counts;
    std::vector<Row> data;
};

void run_round(Slots &slots, const struct rf_coll_desc &desc, uint64_t staged, uint32_t seed)
{
    sim::World world(desc, "", false, staged);
    ASSERT_EQ(world.error, "");
    const int first = desc.round * desc.ranks;
    for (int r = 0; r < desc.ranks; r++) {
        std::copy(slots.data[r].begin(), slots.data[r].end(), floats(world.ranks[r]->out()));
        const bool has_leaf = first + r < desc.leaves;
        ASSERT_EQ(world.ranks[r]->layout.in_bytes, has_leaf ? desc.count * 4 : 0);
        const Row leaf = node(0, first + r, desc.leaves, has_leaf ? desc.count : 0);
        std::copy(leaf.begin(), leaf.end(), floats(world.ranks[r]->in()));
        uint64_t sent = 1;
        ASSERT_EQ(rf_prefix_sent_bytes(desc.leaves, desc.round, r, desc.ranks, desc.counts, &sent),
                  0);
        ASSERT_EQ(sent, has_leaf ? (desc.count - desc.counts[r]) * 4 : 0);
        ASSERT_EQ(sent, rf_sched_sent_bytes(world.scheds[r]));
    }
    ASSERT_EQ(run(world, desc, seed), "");
    for (int r = 0; r < desc.ranks; r++) {
        const float *out = floats(world.ranks[r]->out());
        std::copy_n(out, slots.data[r].size(), slots.data[r].begin());
    }
}

// Compares slot s of every rank with its expected subtree, after `done` leaves.
void expect_slots(const Slots &slots, int rounds)
{
    const int done = std::min(rounds * slots.ranks, slots.leaves);
    const size_t count = sum(slots.counts);
    const uint32_t levels = rf_prefix_levels(slots.leaves, slots.ranks, rounds);
    int lowest = 0; // of slot 0: the slots end with the level of the largest aligned subtree
    while (2 << lowest <= slots.leaves)
        lowest++;
    lowest -= rf_prefix_slots(slots.leaves, slots.ranks) - 1;
    for (int slot = 0; slot < rf_prefix_slots(slots.leaves, slots.ranks); slot++) {
        if (!(levels >> slot & 1))
            continue;
        const int level = lowest + slot;
        const Row want = done == slots.leaves ? whole_sum(slots.leaves, count)
                                              : node(level, (done >> level) - 1, done, count);
        for (int r = 0; r < slots.ranks; r++)
            expect_row(slots.data[r].data() + static_cast<size_t>(slot) * slots.counts[r], want,
                       before(slots.counts, r), slots.counts[r],
                       std::to_string(slots.leaves) + " leaves on " + std::to_string(slots.ranks) +
                           " ranks, round " + std::to_string(rounds) + ", slot " +
                           std::to_string(slot));
    }
}

void run_prefix(int leaves, int ranks, const Counts &counts, uint32_t seed)
{
    const uint64_t stagings[] = {0, ~0ull, 0x5555555555555555ull};
    Slots slots(leaves, counts);
    for (int round = 0; round < rf_prefix_rounds(leaves, ranks); round++) {
        struct rf_coll_desc desc = describe(leaves, ranks, round, counts);
        desc.window_bytes = seed % 2 ? 0 : 200;
        run_round(slots, desc, stagings[(seed + static_cast<uint32_t>(round)) % 3], seed);
        if (testing::Test::HasFatalFailure())
            return;
        slots.forget(round + 1);
        expect_slots(slots, round + 1);
    }
}

TEST(PrefixReduceScatter, HasTheBitsOfOneProcessForEveryNumberOfRanksAndLeaves)
{
    for (int leaves = 1; leaves <= 40; leaves++)
        for (int ranks : {1, 2, 3, 4, 5, 7, 8})
            run_prefix(leaves, ranks, counts_of((leaves + ranks) % 3, ranks),
                       static_cast<uint32_t>(leaves * 5 + ranks));
    for (int ranks = 1; ranks <= 32; ranks++)
        for (int leaves : {ranks, ranks + 1, 2 * ranks - 1, 40})
            run_prefix(leaves, ranks, counts_of(ranks % 3, ranks), static_cast<uint32_t>(ranks));
}

TEST(PrefixReduceScatter, OfNothingIsABarrierInEveryRound)
{
    run_prefix(7, 3, counts_of(3, 3), 1);
}

TEST(PrefixReduceScatter, SlotsAreTheBitsOfTheLeavesSoFar)
{
    for (int leaves = 1; leaves <= 70; leaves++)
        for (int ranks = 1; ranks <= 40; ranks++) {
            const int rounds = rf_prefix_rounds(leaves, ranks);
            const int slots = rf_prefix_slots(leaves, ranks);
            ASSERT_EQ(rounds, (leaves + ranks - 1) / ranks);
            ASSERT_GE(slots, 1);
            ASSERT_LE(1 << (slots - 1), leaves);
            ASSERT_EQ(rf_prefix_levels(leaves, ranks, 0), 0u);
            ASSERT_EQ(rf_prefix_levels(leaves, ranks, rounds), 1u << (slots - 1));
            for (int round = 1; round < rounds; round++) {
                // The bits of the leaves so far, without those that are never set.
                uint32_t levels = rf_prefix_levels(leaves, ranks, round);
                ASSERT_LT(levels, 1u << slots);
                ASSERT_EQ(static_cast<int>(levels) * (ranks & -ranks), round * ranks);
            }
            ASSERT_EQ(rf_prefix_levels(leaves, ranks, rounds + 1), 0u);
        }
    EXPECT_EQ(rf_prefix_slots(16, 8), 2) << "of eight leaves and of all";
    EXPECT_EQ(rf_prefix_slots(16, 3), 5);
    EXPECT_EQ(rf_prefix_rounds(0, 3) + rf_prefix_slots(3, 0) + rf_prefix_rounds(3, -1), 0);
    EXPECT_EQ(rf_prefix_rounds(INT32_MAX, INT32_MAX), 1);
    EXPECT_EQ(rf_prefix_levels(INT32_MAX, 1 << 30, 1), 1u);
}

// Bytes of a ring, and memory that does not grow with the call.
TEST(PrefixReduceScatter, SendsWhatARingSendsFromBoundedMemory)
{
    const Counts counts = {1 << 24, 3, 0, 1 << 26};
    for (int rank = 0; rank < 4; rank++)
        for (int round = 0; round < 3; round++) {
            uint64_t sent = 1, ring = 1, temp = 0, staging = 0;
            ASSERT_EQ(rf_prefix_sent_bytes(10, round, rank, 4, counts.data(), &sent), 0);
            ASSERT_EQ(rf_coll_sent_bytes_v(RF_COLL_REDUCE_SCATTER, rank, 4, counts.data(), RF_F32,
                                           RF_ORDER_RING, 0, &ring),
                      0);
            EXPECT_EQ(sent, round < 2 || rank < 2 ? ring : 0);
            ASSERT_EQ(rf_prefix_temp_bytes(10, round, rank, 4, counts.data(), &temp), 0);
            EXPECT_LE(temp, 2 * RF_WINDOW_BYTES);
            ASSERT_EQ(rf_prefix_staging_bytes(10, round, rank, 4, counts.data(), &staging), 0);
            EXPECT_LE(staging, RF_STAGING_SLOTS * 2 * RF_WINDOW_BYTES);
            EXPECT_EQ(staging > 0, counts[rank] > 0 || round < 2 || rank < 2);
        }
}

TEST(PrefixReduceScatter, IsRefusedOutsideItsRoundsAndWithoutCounts)
{
    const Counts counts = {1, 2}, huge = {SIZE_MAX, 2};
    uint64_t bytes = 0;
    EXPECT_EQ(rf_prefix_sent_bytes(4, 2, 0, 2, counts.data(), &bytes), RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message,
                 "prefix_reduce_scatter: 4 leaves on 2 ranks come in rounds 0 to 1, not in 2");
    EXPECT_EQ(rf_prefix_sent_bytes(4, -1, 0, 2, counts.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_prefix_sent_bytes(0, 0, 0, 2, counts.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_prefix_sent_bytes(4, 0, 2, 2, counts.data(), &bytes), RF_EINVAL);
    EXPECT_EQ(rf_prefix_temp_bytes(4, 0, 0, 2, nullptr, &bytes), RF_EINVAL);
    EXPECT_EQ(rf_prefix_staging_bytes(4, 0, 0, 2, huge.data(), &bytes), RF_EINVAL);
}

} // namespace
