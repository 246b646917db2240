/* SPDX-License-Identifier: MIT
 *
 * Sums over micro-batches that end in pieces, on tensors: the bits of the forest's all-reduce,
 * predicted bytes and staging, queues of rounds, every provider, and ranks that disagree or die.
 */
#include <numeric>
#include <string>

#include "tensor_device.h"

using namespace tensors;

namespace
{

using Row = std::vector<float>;
using Counts = std::vector<size_t>;

#define RUNS(call)                                                                                 \
    do {                                                                                           \
        ASSERT_EQ(call, RF_OK) << rf_last_error()->message;                                        \
    } while (0)

size_t sum(const Counts &counts)
{
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

size_t before(const Counts &counts, int rank)
{
    return std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
}

/* Node (level, index) of the tree over leaves(i) = thirds(i): as one process adds it. */
Row node(int level, int index, int leaves, size_t count)
{
    if (level == 0)
        return thirds(index, count);
    Row row = node(level - 1, 2 * index, leaves, count);
    if ((2 * index + 1) << (level - 1) >= leaves)
        return row;
    const Row right = node(level - 1, 2 * index + 1, leaves, count);
    for (size_t i = 0; i < count; i++)
        row[i] += right[i];
    return row;
}

/* This rank's piece of the sum. */
Row piece_of(int leaves, const Counts &counts, int rank)
{
    int level = 0;
    while (1 << level < leaves)
        level++;
    const Row whole = node(level, 0, leaves, sum(counts));
    const auto begin = whole.begin() + static_cast<long>(before(counts, rank));
    return Row(begin, begin + static_cast<long>(counts[static_cast<size_t>(rank)]));
}

/* No buffer if it has no elements. */
rf_tensor tensor_of(Device &device, const Row &data)
{
    return data.empty() ? rf_tensor{} : device.tensor(data);
}

rf_tensor part_of(rf_tensor tensor, size_t first, size_t count)
{
    rf_tensor out = {};
    EXPECT_EQ(rf_tensor_view(tensor.buffer, tensor.offset + first * sizeof(float),
                             rf_shape1(static_cast<int64_t>(count)), RF_F32, &out),
              RF_OK)
        << rf_last_error()->message;
    return out;
}

struct Forest : rf_forest {
    explicit Forest(const std::vector<int> &shares) : shares_(shares)
    {
        leaves = shares_.back();
        ranks = static_cast<int>(shares_.size()) - 1;
        first = shares_.data();
    }
    Row parts(int rank, size_t count, size_t stride) const
    {
        rf_forest_node nodes[62];
        const int own = rf_forest_nodes(this, rank, nodes);
        Row all(static_cast<size_t>(own) * stride);
        for (int k = 0; k < own; k++) {
            const Row row = node(nodes[k].level, nodes[k].index, leaves, count);
            std::copy(row.begin(), row.end(),
                      all.begin() + static_cast<long>(static_cast<size_t>(k) * stride));
        }
        return all;
    }

  private:
    std::vector<int> shares_;
};

/* The sum in pieces, out of place and in place. */
void scatter_forest(rf_comm *comm, int rank, Device &device, const Forest &forest,
                    const Counts &counts)
{
    const size_t count = sum(counts), own = counts[static_cast<size_t>(rank)], stride = count + 7;
    const Row data = forest.parts(rank, count, stride),
              want = piece_of(forest.leaves, counts, rank);
    rf_tensor parts = tensor_of(device, data), out = tensor_of(device, Row(own, -1));
    const uint64_t sent = rf_comm_sent_bytes(comm);
    uint64_t foretold = 1;
    RUNS(
        rf_forest_reduce_scatter_tensor(comm, &forest, parts, stride, out, counts.data(), nullptr));
    RUNS(rf_forest_scatter_sent_bytes(&forest, rank, counts.data(), &foretold));
    EXPECT_EQ(rf_comm_sent_bytes(comm) - sent, foretold);
    if (own > 0) {
        EXPECT_EQ(read(out), want);
    }
    if (data.empty()) {
        RUNS(rf_forest_reduce_scatter_tensor(comm, &forest, parts, stride, out, counts.data(),
                                             nullptr));
        return;
    }
    EXPECT_EQ(read(parts), data) << "the input was changed";
    rf_tensor piece = part_of(parts, before(counts, rank), own);
    RUNS(rf_forest_reduce_scatter_tensor(comm, &forest, parts, stride, piece, counts.data(),
                                         nullptr));
    EXPECT_EQ(read(piece), want) << "in place";
}

rf_tensor leaf_of(Device &device, int leaves, int index, size_t count)
{
    return index < leaves ? tensor_of(device, thirds(index, count)) : rf_tensor{};
}

rf_tensor slots_of(Device &device, int leaves, const Counts &counts, int rank)
{
    const size_t slots = static_cast<size_t>(rf_prefix_slots(leaves, (int)counts.size()));
    return tensor_of(device, Row(slots * counts[static_cast<size_t>(rank)], -1));
}

void expect_sum(rf_tensor slots, int leaves, const Counts &counts, int rank)
{
    const size_t own = counts[static_cast<size_t>(rank)];
    if (own == 0)
        return;
    const Row all = read(slots);
    EXPECT_EQ(Row(all.end() - static_cast<long>(own), all.end()), piece_of(leaves, counts, rank));
}

void scatter_prefix(rf_comm *comm, int rank, Device &device, int leaves, const Counts &counts)
{
    const int ranks = static_cast<int>(counts.size());
    rf_tensor slots = slots_of(device, leaves, counts, rank);
    for (int round = 0; round < rf_prefix_rounds(leaves, ranks); round++) {
        rf_tensor leaf = leaf_of(device, leaves, round * ranks + rank, sum(counts));
        const uint64_t sent = rf_comm_sent_bytes(comm);
        uint64_t foretold = 1;
        RUNS(rf_prefix_reduce_scatter_tensor(comm, leaves, round, leaf, slots, counts.data(),
                                             nullptr));
        RUNS(rf_prefix_sent_bytes(leaves, round, rank, ranks, counts.data(), &foretold));
        EXPECT_EQ(rf_comm_sent_bytes(comm) - sent, foretold);
    }
    expect_sum(slots, leaves, counts, rank);
}

/* ---- every provider; first, as a parent that forks must not have threads of a device -----------
 */

class Everywhere : public testing::TestWithParam<ranks::World>
{
};
INSTANTIATE_TEST_SUITE_P(Worlds, Everywhere, testing::ValuesIn(ranks::worlds({}, {3}, {"0,0,1"})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST_P(Everywhere, SumsOverMicroBatchesEndInPiecesWithTheBitsOfOneProcess)
{
    const ranks::World &world = GetParam();
    std::vector<std::unique_ptr<Device>> devices(static_cast<size_t>(world.size));
    ranks::run(
        world,
        [&](rf_comm *comm, int rank) {
            std::unique_ptr<Device> &device = devices[static_cast<size_t>(rank)];
            device = std::make_unique<Device>(rank == 1);
            const Counts counts = {70001, 3, 1003};
            scatter_forest(comm, rank, *device, Forest({0, 3, 7, 7}), counts);
            scatter_prefix(comm, rank, *device, 7, counts);
        },
        [&](int rank, int) { devices[static_cast<size_t>(rank)].reset(); });
}

/* ---- threads -----------------------------------------------------------------------------------
 */

/* Ranks whose memory is hidden: none, all, one of them. */
class Leaves : public testing::TestWithParam<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(Memory, Leaves, testing::Values(0u, 7u, 2u), [](const auto &info) {
    return info.param == 0 ? "Mapped" : info.param == 7 ? "Staged" : "RankOneStaged";
});

ranks::World three()
{
    ranks::World world;
    world.size = 3;
    return world;
}

TEST_P(Leaves, AddUpToTheBitsOfOneProcessWhateverTheCuts)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const std::vector<std::vector<int>> shares = {{0, 3, 5, 8}, {0, 0, 5, 5}, {0, 1, 1, 1}};
        for (const Counts &counts : {Counts{5, 0, 3001}, Counts{0, 2, 0}, Counts{0, 0, 0}}) {
            for (const std::vector<int> &first : shares)
                scatter_forest(comm, rank, device, Forest(first), counts);
            for (int leaves : {1, 3, 8, 11})
                scatter_prefix(comm, rank, device, leaves, counts);
        }
        const Counts windows = {700001, 0, 800000};
        scatter_forest(comm, rank, device, Forest(shares[0]), windows);
        scatter_prefix(comm, rank, device, 5, windows);
    });
}

/* A call uses the predicted memory, and slots that a round does not change are not copied. */
TEST_P(Leaves, TakeThePredictedStagingMemory)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const Forest forest({0, 3, 4, 7});
        const Counts counts = {300000, 0, 900001};
        const size_t count = sum(counts), own = counts[static_cast<size_t>(rank)];
        const bool hidden = GetParam() >> rank & 1;
        rf_tensor parts = device.tensor(Row(2 * count, 1)), out = tensor_of(device, Row(own, -1));
        uint64_t first = 0, second = 0;
        RUNS(rf_forest_reduce_scatter_tensor(comm, &forest, parts, count, out, counts.data(),
                                             nullptr));
        RUNS(rf_forest_scatter_staging_bytes(&forest, rank, counts.data(), &first));
        rf_memory_stats stats;
        rf_device_memory(device.get(), &stats);
        EXPECT_EQ(stats.now[RF_CATEGORY_COMM], hidden ? first : 0);
        rf_tensor slots = slots_of(device, 7, counts, rank);
        const uint64_t copied = rf_comm_staged_bytes(comm);
        for (int round = 0; round < 2; round++)
            RUNS(rf_prefix_reduce_scatter_tensor(comm, 7, round, parts, slots, counts.data(),
                                                 nullptr));
        /* Round 0 leaves 3 leaves (two slots), round 1 turns them into 6 (two slots). */
        EXPECT_EQ(rf_comm_staged_bytes(comm) - copied, hidden ? 2 * count * 4 + 6 * own * 4 : 0);
        for (int round = 0; round < 2; round++) {
            uint64_t bytes = 0;
            RUNS(rf_prefix_staging_bytes(7, round, rank, 3, counts.data(), &bytes));
            second = std::max(second, bytes);
        }
        rf_device_memory(device.get(), &stats);
        EXPECT_EQ(stats.now[RF_CATEGORY_COMM], hidden ? std::max(first, second) : 0);
    });
}

/* Rounds queued behind each other, by points and by requests. */
TEST_P(Leaves, OfManyRoundsMayBeUnderWayAtOnce)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const int leaves = 11, rounds = rf_prefix_rounds(leaves, 3);
        const Counts counts = {4001, 10, 90000};
        for (bool by_request : {false, true}) {
            rf_tensor slots = slots_of(device, leaves, counts, rank);
            std::vector<rf_request *> requests(static_cast<size_t>(rounds));
            rf_point done = {};
            for (int round = 0; round < rounds; round++) {
                rf_coll_opts opts = {};
                if (by_request)
                    opts.request = &requests[static_cast<size_t>(round)];
                else
                    opts.done = &done;
                rf_tensor leaf = leaf_of(device, leaves, round * 3 + rank, sum(counts));
                RUNS(rf_prefix_reduce_scatter_tensor(comm, leaves, round, leaf, slots,
                                                     counts.data(), &opts));
            }
            if (by_request)
                RUNS(rf_request_wait_all(requests.data(), requests.size(), 20));
            else
                RUNS(rf_point_wait(done, 20000000000ull));
            for (rf_request *request : requests)
                rf_request_free(request);
            expect_sum(slots, leaves, counts, rank);
        }
    });
}

/* Parts that the host can map and an `out` that it cannot: each keeps its own places. */
TEST(LeavesInTwoKindsOfMemory, AreReadWhereTheyLie)
{
    run(2, true, [](rf_comm *comm, int rank, Device &device) {
        const Forest forest({0, 3, 6});
        const Counts counts = {30, 71};
        const size_t count = sum(counts), stride = count + 11;
        const Row data = forest.parts(rank, count, stride);
        rf_buffer *buffer = nullptr;
        rf_tensor parts = {};
        RUNS(rf_buffer_create(device.get(), data.size() * 4, RF_MEMORY_HOST, RF_CATEGORY_OTHER,
                              &buffer));
        RUNS(rf_tensor_view(buffer, 0, rf_shape1(static_cast<int64_t>(data.size())), RF_F32,
                            &parts));
        RUNS(rf_tensor_write(parts, data.data(), data.size() * 4));
        ASSERT_NE(rf_tensor_map(parts), nullptr);
        rf_tensor whole = device.tensor(Row(count, -1));
        rf_tensor own = device.tensor(Row(counts[static_cast<size_t>(rank)], -1));
        const Row want = piece_of(6, {count, 0}, 0);
        EXPECT_EQ(rf_forest_all_reduce_tensor(comm, &forest, parts, stride, whole, nullptr), RF_OK);
        EXPECT_EQ(read(whole), want);
        EXPECT_EQ(rf_forest_reduce_scatter_tensor(comm, &forest, parts, stride, own, counts.data(),
                                                  nullptr),
                  RF_OK);
        EXPECT_EQ(read(own), piece_of(6, counts, rank));
        rf_buffer_destroy(buffer);
    });
}

TEST(InvalidLeaves, AreRefusedWithASentence)
{
    run(2, false, [](rf_comm *comm, int, Device &device) {
        const Forest forest({0, 2, 5}), other({0, 2, 4, 5});
        const Counts counts = {30, 30}, huge = {SIZE_MAX, 2};
        rf_tensor a = device.tensor(Row(120)), b = device.tensor(Row(300)), none = {};
        rf_tensor f16 = {};
        RUNS(rf_tensor_view(a.buffer, 64, rf_shape1(120), RF_F16, &f16));
        auto scatter = [&](const rf_forest *f, rf_tensor parts, size_t stride, rf_tensor out,
                           const size_t *n) {
            return rf_forest_reduce_scatter_tensor(comm, f, parts, stride, out, n, nullptr);
        };
        EXPECT_EQ(
            rf_forest_reduce_scatter_tensor(nullptr, &forest, b, 60, a, counts.data(), nullptr),
            RF_EINVAL);
        EXPECT_EQ(scatter(nullptr, b, 60, a, counts.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&other, b, 60, a, counts.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, b, 60, a, nullptr), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, b, 60, a, huge.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, b, 60, f16, counts.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, none, 60, a, counts.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, b, 60, none, counts.data()), RF_EINVAL);
        EXPECT_EQ(scatter(&forest, b, 60, part_of(b, 7, 30), counts.data()), RF_EINVAL);
        auto round = [&](int leaves, int k, rf_tensor leaf, rf_tensor slots, const size_t *n) {
            return rf_prefix_reduce_scatter_tensor(comm, leaves, k, leaf, slots, n, nullptr);
        };
        EXPECT_EQ(rf_prefix_reduce_scatter_tensor(nullptr, 5, 0, a, b, counts.data(), nullptr),
                  RF_EINVAL);
        EXPECT_EQ(round(0, 0, a, b, counts.data()), RF_EINVAL);
        EXPECT_EQ(round(5, 3, a, b, counts.data()), RF_EINVAL);
        EXPECT_STREQ(rf_last_error()->message,
                     "prefix_reduce_scatter: 5 leaves on 2 ranks come in rounds 0 to 2, not in 3");
        EXPECT_EQ(round(5, -1, a, b, counts.data()), RF_EINVAL);
        EXPECT_EQ(round(5, 0, a, b, nullptr), RF_EINVAL);
        EXPECT_EQ(round(5, 0, f16, b, counts.data()), RF_EINVAL);
        EXPECT_EQ(round(5, 0, none, b, counts.data()), RF_EINVAL);
        EXPECT_EQ(round(8, 0, b, a, Counts{50, 50}.data()), RF_EINVAL) << "three slots of 50";
        EXPECT_EQ(round(5, 0, b, b, counts.data()), RF_EINVAL) << "they overlap";
        rf_coll_opts opts = {};
        const double two = 2;
        opts.scale = &two;
        EXPECT_EQ(rf_prefix_reduce_scatter_tensor(comm, 5, 0, a, b, counts.data(), &opts),
                  RF_EINVAL);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

/* A single part has no stride. */
TEST(OneSubtree, NeedsNoStride)
{
    run(2, false, [](rf_comm *comm, int rank, Device &device) {
        const Forest forest({0, 4, 8});
        const Counts counts = {3, 4};
        rf_tensor part = device.tensor(forest.parts(rank, 7, 7)), out = device.tensor(Row(7));
        RUNS(rf_forest_all_reduce_tensor(comm, &forest, part, 0, out, nullptr));
        EXPECT_EQ(read(out), piece_of(8, {7, 0}, 0));
        rf_tensor own = device.tensor(Row(counts[static_cast<size_t>(rank)]));
        RUNS(rf_forest_reduce_scatter_tensor(comm, &forest, part, 0, own, counts.data(), nullptr));
        EXPECT_EQ(read(own), piece_of(8, counts, rank));
    });
}

/* Rank 1 makes one call and the others another. */
void disagree(const char *word,
              const std::function<int(rf_comm *, rf_tensor in, rf_tensor out, bool deviates)> &call)
{
    run(three(), 0, [&](rf_comm *comm, int rank, Device &device) {
        rf_tensor in = device.tensor(Row(4000, 1)), out = device.tensor(Row(4000, -1));
        int rc = call(comm, in, out, rank == 1);
        if (rc == RF_OK) /* a rank that completed its part before the others noticed */
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << "rank " << rank << ": " << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, word), nullptr) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "rank 1 called "), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
    });
}

TEST(DifferentLeaves, AreReportedOnAllRanks)
{
    const Counts usual = {300, 200, 100}, other_counts = {200, 300, 100};
    const Forest forest({0, 3, 5, 8}), other({0, 2, 5, 8});
    auto scatter = [](rf_comm *comm, const rf_forest &f, rf_tensor in, rf_tensor out,
                      const Counts &counts) {
        return rf_forest_reduce_scatter_tensor(comm, &f, in, 700, out, counts.data(), nullptr);
    };
    auto round = [](rf_comm *comm, int leaves, int k, rf_tensor in, rf_tensor out,
                    const Counts &counts) {
        return rf_prefix_reduce_scatter_tensor(comm, leaves, k, in, out, counts.data(), nullptr);
    };
    const char *same = "the leaves and the count for each rank must be the same on all of them";
    disagree(same, [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
        return scatter(comm, forest, in, out, deviates ? other_counts : usual);
    });
    disagree(same, [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
        return scatter(comm, deviates ? other : forest, in, out, usual);
    });
    disagree(same, [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
        return round(comm, 9, 0, in, out, deviates ? other_counts : usual);
    });
    disagree(same, [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
        return round(comm, deviates ? 8 : 9, 1, in, out, usual);
    });
    disagree("rank 1 called prefix_reduce_scatter(600 f32 round 2)",
             [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
                 return round(comm, 9, deviates ? 2 : 1, in, out, usual);
             });
    disagree("rank 1 called prefix_reduce_scatter(600 f32 round 0)",
             [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
                 return deviates ? round(comm, 8, 0, in, out, usual)
                                 : scatter(comm, forest, in, out, usual);
             });
    disagree("forest_all_reduce(600 f32 8 leaves)",
             [&](rf_comm *comm, rf_tensor in, rf_tensor out, bool deviates) {
                 return deviates ? scatter(comm, forest, in, out, usual)
                                 : rf_forest_all_reduce_tensor(comm, &forest, in, 700,
                                                               part_of(out, 0, 600), nullptr);
             });
}

TEST(LeavesOfADeadRank, AreAnErrorThatNamesTheRank)
{
    for (bool by_rounds : {false, true}) {
        ranks::World world = three();
        world.faults.kill_rank = 2;
        world.faults.kill_after_messages = 25;
        run(world, 2, [&](rf_comm *comm, int rank, Device &device) {
            const Forest forest({0, 3, 5, 8});
            const Counts counts = {150000, 0, 50000};
            rf_tensor in = device.tensor(Row(400000, 1)), out = device.tensor(Row(1050000, -1));
            int rc = RF_OK;
            for (int i = 0; i < 40 && rc == RF_OK; i++)
                rc = by_rounds ? rf_prefix_reduce_scatter_tensor(comm, 120, i, in, out,
                                                                 counts.data(), nullptr)
                               : rf_forest_reduce_scatter_tensor(comm, &forest, in, 200000, out,
                                                                 counts.data(), nullptr);
            ASSERT_LT(rc, 0);
            if (rank != 2) {
                EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
                EXPECT_EQ(rf_last_error()->rank, 2);
            }
        });
    }
}

} // namespace
