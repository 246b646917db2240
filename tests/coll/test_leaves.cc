// SPDX-License-Identifier: MIT
//
// Sums over micro-batches that end in pieces: the bits of one process for every number of ranks and
// leaves and whatever the cuts, what they send, and what of the caller's memory they use.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simulator.h"

namespace
{

using Row = std::vector<float>;
using Counts = std::vector<size_t>;

// Of many magnitudes, so that the bits of a sum show its order.
float leaf_value(int leaf, size_t element)
{
    uint32_t x =
        static_cast<uint32_t>(leaf) * 2654435761u + static_cast<uint32_t>(element) * 40503u;
    x = (x ^ x >> 15) * 0x85ebca6bu;
    x ^= x >> 13;
    float value = 1 + static_cast<float>(x >> 9) / (1 << 23);
    return ldexpf(x & 1 ? -value : value, static_cast<int>(x >> 1 & 15) - 8);
}

// Node (level, index), as one process would have added it.
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

// By the executor, or in any order that the dependencies allow: then on words of two elements.
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

// Windows that are stored or fetched on one side only leave the places of the other as they are.
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

} // namespace
