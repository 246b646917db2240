// SPDX-License-Identifier: MIT
//
// The order of a sum is its contract: expressions are built instead of numbers and compared. Rings
// of thousands of ranks are checked rank by rank, so that memory stays small.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "simulator.h"

namespace
{

// Expressions by number: a leaf is a rank, the rest is a pair. Equal expressions, equal numbers.
class Expressions
{
  public:
    int64_t leaf(int rank)
    {
        return intern({-1, rank});
    }
    int64_t pair(int64_t a, int64_t b)
    {
        return intern({a, b});
    }
    int64_t chain(int start, int ranks)
    {
        int64_t sum = leaf(start);
        for (int i = 1; i < ranks; i++)
            sum = pair(sum, leaf((start + i) % ranks));
        return sum;
    }
    // Node (level, index) over `leaves` leaves; missing leaves add nothing.
    int64_t tree(int level, int index, int leaves)
    {
        if (level == 0)
            return leaf(index);
        int64_t left = tree(level - 1, 2 * index, leaves);
        bool has_right = ((2 * index + 1) << (level - 1)) < leaves;
        return has_right ? pair(left, tree(level - 1, 2 * index + 1, leaves)) : left;
    }

  private:
    int64_t intern(std::pair<int64_t, int64_t> key)
    {
        return numbers_.emplace(key, static_cast<int64_t>(numbers_.size())).first->second;
    }
    std::map<std::pair<int64_t, int64_t>, int64_t> numbers_;
};

int64_t *words(unsigned char *bytes)
{
    return reinterpret_cast<int64_t *>(bytes);
}

int owner_of(size_t element, size_t count, int ranks)
{
    for (int c = 0; c < ranks; c++) {
        struct rf_byte_range piece = rf_chunk(count, ranks, c, 1);
        if (element >= piece.offset && element < piece.offset + piece.bytes)
            return c;
    }
    return -1;
}

struct rf_coll_desc describe(enum rf_coll_op op, int ranks, size_t count, enum rf_order order,
                             size_t segment)
{
    struct rf_coll_desc desc = {};
    desc.op = op;
    desc.ranks = ranks;
    desc.count = count;
    desc.order = order;
    desc.segment_bytes = segment;
    desc.dtype = RF_I64;
    return desc;
}

// Runs on leaves and checks every element of every rank.
void expect_order(struct rf_coll_desc desc, const char *algorithm,
                  std::function<int64_t(Expressions &, size_t, int)> expected)
{
    Expressions expressions;
    sim::World world(desc, algorithm, false);
    ASSERT_EQ(world.error, "");
    for (int r = 0; r < desc.ranks; r++)
        for (size_t i = 0; i < world.ranks[r]->layout.in_bytes / 8; i++)
            words(world.ranks[r]->in())[i] = expressions.leaf(r);
    auto pair = [&](int64_t a, int64_t b) { return expressions.pair(a, b); };
    ASSERT_EQ(sim::run_any_order(world, 9, pair, [](int64_t a) { return a; }), "");
    for (int r = 0; r < desc.ranks; r++)
        for (size_t i = 0; i < world.ranks[r]->layout.out_bytes / 8; i++)
            ASSERT_EQ(words(world.ranks[r]->out())[i], expected(expressions, i, r))
                << algorithm << " ranks " << desc.ranks << " count " << desc.count << " rank " << r
                << " element " << i;
}

// An order could depend on the number of ranks, so small and large numbers are tried.
const int few_and_many[] = {2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 32, 40};

TEST(Order, RingFlatAndDirectFoldChunkCFromRankCOnAroundTheRing)
{
    for (const char *algorithm : {"ring", "flat", "direct"})
        for (int ranks : few_and_many)
            for (size_t count : {size_t(1), size_t(ranks), size_t(2 * ranks + 1), size_t(40)})
                expect_order(describe(RF_COLL_ALL_REDUCE, ranks, count, RF_ORDER_RING, 16),
                             algorithm, [&](Expressions &e, size_t i, int) {
                                 return e.chain(owner_of(i, count, ranks), ranks);
                             });
}

TEST(Order, ReduceScatterFoldsItsChunkAsTheRingDoes)
{
    for (int ranks : few_and_many)
        expect_order(describe(RF_COLL_REDUCE_SCATTER, ranks, 5, RF_ORDER_RING, 16), "direct",
                     [&](Expressions &e, size_t, int rank) { return e.chain(rank, ranks); });
}

int levels_of(int leaves)
{
    int level = 0;
    while (1 << level < leaves)
        level++;
    return level;
}

TEST(Order, TreeIsPairwiseOverTheRanksByEveryAlgorithm)
{
    for (const char *algorithm : {"flat", "direct", "recursive_doubling"})
        for (int ranks : few_and_many)
            for (size_t count : {size_t(1), size_t(30)}) {
                bool power = (ranks & (ranks - 1)) == 0;
                if (!power && std::string(algorithm) == "recursive_doubling")
                    continue;
                expect_order(describe(RF_COLL_ALL_REDUCE, ranks, count, RF_ORDER_TREE, 16),
                             algorithm, [&](Expressions &e, size_t, int) {
                                 return e.tree(levels_of(ranks), 0, ranks);
                             });
            }
}

// ---- forests ----------------------------------------------------------------------------------

// All ways to cut `leaves` into `ranks` contiguous shares would be too many; random ones.
std::vector<int> random_shares(std::mt19937 &random, int leaves, int ranks)
{
    std::vector<int> first = {0};
    for (int r = 1; r < ranks; r++)
        first.push_back(static_cast<int>(random() % static_cast<unsigned>(leaves + 1)));
    first.push_back(leaves);
    std::sort(first.begin(), first.end());
    return first;
}

float leaf_value(int leaf, size_t element)
{
    float normal = rf_philox_normal(7, static_cast<uint64_t>(leaf), element);
    float scale = rf_philox_normal(8, static_cast<uint64_t>(leaf), element);
    return normal * expf(3 * scale);
}

// The result of one process.
float tree_sum(int level, int index, int leaves, size_t element)
{
    if (level == 0)
        return leaf_value(index, element);
    float left = tree_sum(level - 1, 2 * index, leaves, element);
    bool has_right = (static_cast<int64_t>(2 * index + 1) << (level - 1)) < leaves;
    return has_right ? left + tree_sum(level - 1, 2 * index + 1, leaves, element) : left;
}

void run_forest(const std::vector<int> &first, size_t count, bool in_place, uint32_t seed)
{
    struct rf_forest forest = {first.back(), static_cast<int>(first.size()) - 1, first.data()};
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_FOREST_ALL_REDUCE;
    desc.ranks = forest.ranks;
    desc.count = count;
    desc.forest = &forest;
    desc.stride = count + 3;
    desc.order = RF_ORDER_TREE;
    desc.segment_bytes = seed % 2 ? 20 : 0;
    sim::World world(desc, "forest", in_place);
    ASSERT_EQ(world.error, "");
    for (int r = 0; r < desc.ranks; r++) {
        struct rf_forest_node nodes[62];
        int parts = rf_forest_nodes(&forest, r, nodes);
        float *in = reinterpret_cast<float *>(world.ranks[r]->in());
        for (int part = 0; part < parts; part++)
            for (size_t i = 0; i < count; i++)
                in[static_cast<size_t>(part) * desc.stride + i] =
                    tree_sum(nodes[part].level, nodes[part].index, forest.leaves, i);
    }
    ASSERT_EQ(sim::run_executor(world, seed), "");
    for (int r = 0; r < desc.ranks; r++) {
        uint64_t sent = 0;
        ASSERT_EQ(rf_forest_sent_bytes(&forest, r, count, &sent), 0);
        ASSERT_EQ(sent, rf_sched_sent_bytes(world.scheds[r]));
        const float *out = reinterpret_cast<const float *>(world.ranks[r]->out());
        for (size_t i = 0; i < count; i++)
            ASSERT_EQ(out[i], tree_sum(levels_of(forest.leaves), 0, forest.leaves, i))
                << desc.ranks << " ranks, " << forest.leaves << " leaves, element " << i;
    }
}

TEST(Forest, GivesTheBitsOfOneProcessForEveryNumberOfRanksAndShares)
{
    std::mt19937 random(4);
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int leaves = 1; leaves <= 17; leaves++)
            for (uint32_t repeat = 0; repeat < 4; repeat++)
                run_forest(random_shares(random, leaves, ranks), repeat < 2 ? 41 : 5, repeat % 2,
                           repeat);
    for (auto &shares : std::vector<std::vector<int>>{
             {0, 3, 6, 8}, {0, 4, 6, 8}, {0, 5, 8}, {0, 7, 8}, {0, 3, 5, 7, 8}, {0, 1, 2, 7, 8}})
        run_forest(shares, 100, true, 1);
}

TEST(Forest, NodesAreTheMaximalAlignedSubtreesInOrder)
{
    int first[] = {0, 3, 6, 8};
    struct rf_forest forest = {8, 3, first};
    auto list = [&](int rank) {
        struct rf_forest_node nodes[62];
        int count = rf_forest_nodes(&forest, rank, nodes);
        std::vector<std::pair<int, int>> pairs;
        for (int i = 0; i < count; i++)
            pairs.push_back({nodes[i].level, nodes[i].index});
        return pairs;
    };
    using Pairs = std::vector<std::pair<int, int>>;
    EXPECT_EQ(list(0), (Pairs{{1, 0}, {0, 2}}));
    EXPECT_EQ(list(1), (Pairs{{0, 3}, {1, 2}}));
    EXPECT_EQ(list(2), (Pairs{{1, 3}}));
}

TEST(Forest, BringsTheElementsOfItsPartsAndOfWhatLiesBetweenThem)
{
    const int first[] = {0, 0, 4, 7}; // no part, one, two
    const size_t elements[] = {0, 10, 16 + 10};
    struct rf_forest forest = {7, 3, first};
    struct rf_coll_desc desc = describe(RF_COLL_FOREST_ALL_REDUCE, 3, 10, RF_ORDER_TREE, 0);
    desc.forest = &forest;
    desc.stride = 16;
    for (desc.rank = 0; desc.rank < 3; desc.rank++)
        EXPECT_EQ(rf_coll_in_count(&desc), elements[desc.rank]) << "rank " << desc.rank;
}

TEST(Forest, OfAlignedSharesSendsWhatARingSends)
{
    int first[] = {0, 2, 4, 6, 8};
    struct rf_forest forest = {8, 4, first};
    for (int rank = 0; rank < 4; rank++) {
        uint64_t sent = 0, temp = 0;
        ASSERT_EQ(rf_forest_sent_bytes(&forest, rank, 1 << 20, &sent), 0);
        EXPECT_EQ(sent, 2u * 3 * (1 << 20));
        ASSERT_EQ(rf_forest_temp_bytes(&forest, rank, 1 << 20, &temp), 0);
        EXPECT_LE(temp, 3u << 20) << "no more than the parts of its chunk";
    }
}

TEST(Forest, RefusesSharesThatAreNone)
{
    int gap[] = {1, 4, 8}, back[] = {0, 9, 8}, fine[] = {0, 4, 8};
    uint64_t sent;
    for (int *first : {gap, back}) {
        struct rf_forest forest = {8, 2, first};
        EXPECT_EQ(rf_forest_sent_bytes(&forest, 0, 10, &sent), RF_EINVAL);
    }
    struct rf_forest forest = {8, 2, fine};
    EXPECT_EQ(rf_forest_sent_bytes(&forest, 2, 10, &sent), RF_EINVAL);
    EXPECT_EQ(rf_forest_sent_bytes(nullptr, 0, 10, &sent), RF_EINVAL);
}

// ---- large rings, rank by rank -----------------------------------------------------------------

struct Message {
    uint32_t tag;
    uint64_t bytes;
    int chunk; // the chunk's fold of `length` ranks, beginning with rank `chunk`
    int length;
    bool operator<(const Message &other) const
    {
        return std::tie(tag, bytes, chunk, length) <
               std::tie(other.tag, other.bytes, other.chunk, other.length);
    }
};

// Follows the data of one rank. A receive brings what the left neighbour's schedule must send
// (compared with its real one); everything else follows from the steps.
class RingRank
{
  public:
    explicit RingRank(const struct rf_coll_desc &desc) : desc_(desc)
    {
        struct rf_sched *sched = nullptr;
        EXPECT_EQ(rf_sched_build_as(&desc, "ring", &sched), 0);
        follow(*sched);
        rf_sched_destroy(sched);
    }
    std::vector<Message> sent, received;
    uint64_t sent_bytes = 0;
    int complete = 0; // chunks of OUT that contain the complete sum at the end

  private:
    int chunk_at(uint64_t offset)
    {
        uint64_t element = offset / 4, n = static_cast<uint64_t>(desc_.ranks);
        uint64_t base = desc_.count / n, longer = desc_.count % n;
        return static_cast<int>(element < longer * (base + 1)
                                    ? element / (base + 1)
                                    : longer + (element - longer * (base + 1)) / base);
    }
    void follow(const struct rf_sched &sched)
    {
        int n = desc_.ranks, left = (desc_.rank + n - 1) % n, right = (desc_.rank + 1) % n;
        std::vector<int> out(static_cast<size_t>(n)); // number of ranks in OUT's sum
        int arrived = 0;
        for (uint32_t i = 0; i < sched.count; i++) { // the builder's order is valid
            const struct rf_step &step = sched.steps[i];
            if (step.verb == RF_STEP_RECV && step.dst.space == RF_SPACE_TMP) {
                EXPECT_EQ(step.peer, left);
                arrived++; // the chunk whose fold began `arrived` ranks before this one
                int chunk = (desc_.rank - arrived + n) % n;
                received.push_back({step.tag, step.bytes, chunk, arrived});
            } else if (step.verb == RF_STEP_REDUCE) {
                int chunk = chunk_at(step.dst.offset);
                EXPECT_EQ(step.a.space, uint64_t(RF_SPACE_TMP)) << "the partial sum is on the left";
                EXPECT_EQ(step.b.space, uint64_t(RF_SPACE_IN));
                EXPECT_EQ(step.b.offset, step.dst.offset);
                EXPECT_EQ(received.back().chunk, chunk);
                out[chunk] = received.back().length + 1;
            } else if (step.verb == RF_STEP_RECV) {
                int chunk = chunk_at(step.dst.offset);
                received.push_back({step.tag, step.bytes, chunk, n});
                pending_.push_back(chunk);
            } else if (step.verb == RF_STEP_SEND) {
                EXPECT_EQ(step.peer, right);
                int chunk = chunk_at(step.a.offset);
                bool second = step.tag >= static_cast<uint32_t>(n - 1);
                bool forwards = second && !pending_.empty() && pending_.back() == chunk;
                int length = step.a.space == RF_SPACE_IN ? 1 : forwards ? n : out[chunk];
                EXPECT_TRUE(step.a.space == RF_SPACE_OUT || chunk == desc_.rank);
                sent.push_back({step.tag, step.bytes, chunk, length});
                sent_bytes += step.bytes;
            }
        }
        for (int chunk : pending_)
            out[chunk] = n;
        for (int length : out)
            complete += length == n;
        std::sort(sent.begin(), sent.end());
        std::sort(received.begin(), received.end());
    }
    struct rf_coll_desc desc_;
    std::vector<int> pending_; // second round: chunks received, by place
};

void check_ring(int ranks, size_t count, int every)
{
    struct rf_coll_desc desc = {};
    desc.op = RF_COLL_ALL_REDUCE;
    desc.ranks = ranks;
    desc.count = count;
    desc.order = RF_ORDER_RING;
    uint64_t most = 2 * uint64_t(ranks - 1) * ((count + size_t(ranks) - 1) / size_t(ranks)) * 4;
    uint64_t total = 0;
    for (int r = 0; r < ranks; r += every) {
        desc.rank = r;
        RingRank here(desc);
        desc.rank = (r + 1) % ranks;
        RingRank next(desc);
        ASSERT_EQ(here.sent.size(), next.received.size());
        for (size_t i = 0; i < here.sent.size(); i++) {
            const Message &out = here.sent[i], &in = next.received[i];
            ASSERT_FALSE(out < in || in < out)
                << "rank " << r << " sends chunk " << out.chunk << " of " << out.length
                << " with tag " << out.tag << ", expected is chunk " << in.chunk << " of "
                << in.length << " with tag " << in.tag;
        }
        ASSERT_EQ(here.complete, ranks);
        ASSERT_LE(here.sent_bytes, most);
        total += here.sent_bytes;
    }
    if (every == 1) {
        EXPECT_EQ(total, 2 * uint64_t(ranks - 1) * count * 4);
    }
}

TEST(Ring, OfThousandsOfRanksFitsTogetherRankByRank)
{
    check_ring(3, 1000, 1);
    check_ring(64, 6400, 1);
    check_ring(257, 1000, 1);
    check_ring(512, 100003, 1);
    check_ring(4096, 1000003, 256);
}

} // namespace
