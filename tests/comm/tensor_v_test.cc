/* SPDX-License-Identifier: MIT
 *
 * Collectives on device tensors with a count for each rank: the bits of host memory for mapped and
 * hidden tensors, zero counts, calls in several windows, and refused calls.
 */
#include <numeric>
#include <string>

#include "support/described_calls.h"
#include "tensor_device.h"

using namespace tensors;

namespace
{

using Counts = std::vector<size_t>;

/* Ranks whose memory is hidden: none, all, one of them. */
class Uneven : public testing::TestWithParam<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(Memory, Uneven, testing::Values(0u, 7u, 2u), [](const auto &info) {
    return info.param == 0 ? "Mapped" : info.param == 7 ? "Staged" : "RankOneStaged";
});

/* No buffer if it has no elements. */
rf_tensor tensor_of(Device &device, const std::vector<float> &data)
{
    return data.empty() ? rf_tensor{} : device.tensor(data);
}

void expect_read(rf_tensor tensor, const std::vector<float> &want, const char *what)
{
    if (!want.empty()) {
        EXPECT_EQ(read(tensor), want) << what;
    }
}

size_t sum(const Counts &counts)
{
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

#define RUNS(call)                                                                                 \
    do {                                                                                           \
        ASSERT_EQ(call, RF_OK) << rf_last_error()->message;                                        \
    } while (0)

void scattered(rf_comm *comm, int rank, Device &device, const Counts &counts)
{
    rf_coll_opts opts = {};
    opts.order = RF_ORDER_RING;
    const size_t whole = sum(counts), own = counts[(size_t)rank];
    const std::vector<float> data = thirds(rank, whole);
    std::vector<float> mine(own), all(whole);
    RUNS(described::reduce_scatter_v(comm, data.data(), mine.data(), counts.data(), RF_F32, RF_SUM,
                                     &opts));
    RUNS(described::all_gather_v(comm, mine.data(), all.data(), counts.data(), RF_F32, nullptr));

    rf_tensor in = tensor_of(device, data), piece = tensor_of(device, std::vector<float>(own, -1));
    rf_tensor out = tensor_of(device, std::vector<float>(whole, -1));
    RUNS(described::reduce_scatter_v_tensor(comm, in, piece, counts.data(), RF_SUM, &opts));
    expect_read(piece, mine, "reduce_scatter");
    expect_read(in, data, "the input was changed");
    RUNS(described::all_gather_v_tensor(comm, piece, out, counts.data(), nullptr));
    expect_read(out, all, "all_gather");
}

void rooted(rf_comm *comm, int rank, Device &device, const Counts &counts, int root)
{
    const bool is_root = rank == root;
    const size_t whole = sum(counts), own = counts[(size_t)rank];
    const std::vector<float> data = thirds(rank + 3, whole);
    std::vector<float> mine(own), all(whole);
    RUNS(
        described::scatter_v(comm, data.data(), mine.data(), counts.data(), RF_F32, root, nullptr));
    RUNS(described::gather_v(comm, data.data(), all.data(), counts.data(), RF_F32, root, nullptr));

    rf_tensor in = tensor_of(device, data), piece = tensor_of(device, std::vector<float>(own, -1));
    rf_tensor out = tensor_of(device, std::vector<float>(whole, -1));
    RUNS(described::scatter_v_tensor(comm, is_root ? in : rf_tensor{}, piece, counts.data(), root,
                                     nullptr));
    expect_read(piece, mine, "scatter");
    /* A tensor longer than the gathered part; queued behind the others. */
    rf_point done = {};
    rf_coll_opts later = {};
    later.done = in.buffer ? &done : nullptr;
    RUNS(described::gather_v_tensor(comm, in, is_root ? out : rf_tensor{}, counts.data(), root,
                                    &later));
    if (later.done)
        RUNS(rf_point_wait(done, 20000000000ull));
    if (is_root)
        expect_read(out, all, "gather");
}

/* Rank r sends counts[(r + p) % size] to rank p. */
void exchanged(rf_comm *comm, int rank, Device &device, const Counts &counts)
{
    const size_t size = counts.size();
    Counts to(size), from(size);
    for (size_t p = 0; p < size; p++)
        to[p] = from[p] = counts[((size_t)rank + p) % size];
    const std::vector<float> data = thirds(rank + 9, sum(to));
    std::vector<float> want(sum(from));
    RUNS(described::all_to_all_v(comm, data.data(), to.data(), want.data(), from.data(), RF_F32,
                                 nullptr));
    rf_tensor in = tensor_of(device, data);
    rf_tensor out = tensor_of(device, std::vector<float>(want.size(), -1));
    RUNS(described::all_to_all_v_tensor(comm, in, to.data(), out, from.data(), nullptr));
    expect_read(out, want, "all_to_all");
    expect_read(in, data, "the input was changed");
}

TEST_P(Uneven, CallsGiveTheBitsOfHostMemory)
{
    ranks::World world;
    world.size = 3;
    run(world, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        for (const Counts &counts : {Counts{5, 0, 3001}, Counts{0, 0, 7}, Counts{1, 2, 3},
                                     Counts{0, 0, 0}, Counts{(1u << 20) + 3, 0, 2u << 20}}) {
            scattered(comm, rank, device, counts);
            for (int root = 0; root < 3; root++)
                rooted(comm, rank, device, counts, root);
            exchanged(comm, rank, device, counts);
        }
    });
}

/* Some ranks call on host memory, others on tensors: it is the same operation. */
TEST_P(Uneven, CallsMixWithRanksThatCallOnHostMemory)
{
    ranks::World world;
    world.size = 3;
    run(world, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const Counts counts = {3, 0, 5};
        std::vector<float> own(counts[(size_t)rank], (float)rank), all(8, -1);
        rf_tensor in = tensor_of(device, own), out = device.tensor(all);
        if (rank == 0)
            RUNS(described::all_gather_v(comm, own.data(), all.data(), counts.data(), RF_F32,
                                         nullptr));
        else
            RUNS(described::all_gather_v_tensor(comm, in, out, counts.data(), nullptr));
        EXPECT_EQ(rank == 0 ? all : read(out), (std::vector<float>{0, 0, 0, 2, 2, 2, 2, 2}));
    });
}

TEST(UnevenTensors, WrongCountsAndTensorsAreNamed)
{
    run(2, false, [](rf_comm *comm, int rank, Device &device) {
        const Counts counts = {2, 4};
        rf_tensor four = device.tensor({1, 2, 3, 4}), six = device.tensor({1, 2, 3, 4, 5, 6});
        EXPECT_EQ(described::all_gather_v_tensor(comm, four, six, nullptr, nullptr), RF_EINVAL);
        EXPECT_EQ(described::all_gather_v_tensor(nullptr, four, six, counts.data(), nullptr),
                  RF_EINVAL);
        EXPECT_EQ(described::all_gather_v_tensor(comm, six, four, counts.data(), nullptr),
                  RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("6 elements are needed"),
                  std::string::npos)
            << rf_last_error()->message;
        EXPECT_EQ(described::all_gather_v_tensor(comm, rf_tensor{}, six, counts.data(), nullptr),
                  RF_EINVAL);
        EXPECT_EQ(described::scatter_v_tensor(comm, six, four, counts.data(), 2, nullptr),
                  RF_EINVAL);
        const Counts huge = {SIZE_MAX, 2}, nothing = {0, 0};
        EXPECT_EQ(described::gather_v_tensor(comm, four, six, huge.data(), 0, nullptr), RF_EINVAL);
        rf_point done = {};
        rf_coll_opts opts = {};
        opts.done = &done;
        EXPECT_EQ(
            described::all_gather_v_tensor(comm, rf_tensor{}, rf_tensor{}, nothing.data(), &opts),
            RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("no tensor in the call"),
                  std::string::npos)
            << rf_last_error()->message;
        /* The counts of sender and receiver differ. */
        const Counts to = {1, 1}, from = {1, rank == 0 ? 2u : 1u};
        EXPECT_EQ(described::all_to_all_v_tensor(comm, four, to.data(), six, from.data(), nullptr),
                  RF_EMISMATCH);
        EXPECT_NE(std::string(rf_last_error()->message).find("which expects 2"), std::string::npos)
            << rf_last_error()->message;
    });
}

} // namespace
