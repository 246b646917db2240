/* SPDX-License-Identifier: MIT
 *
 * Tensors longer than a window, if all, some or none of the ranks can map their memory: the bits of
 * host memory, predicted staging, no copied byte if memory is mapped, and errors meanwhile.
 */
#include "support/described_calls.h"
#include "support/usage.h"
#include "tensor_device.h"

using namespace tensors;

namespace
{

/* Ranks whose memory is hidden: none, all, one of them. */
class Staging : public testing::TestWithParam<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(Memory, Staging, testing::Values(0u, 7u, 2u), [](const auto &info) {
    return info.param == 0 ? "Mapped" : info.param == 7 ? "Staged" : "RankOneStaged";
});

ranks::World three()
{
    ranks::World world;
    world.size = 3;
    return world;
}

TEST_P(Staging, OfLongCallsGivesTheBitsOfHostMemory)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const size_t part = (1u << 20) - 5, whole = 3 * part; /* 12 MiB: several windows */
        const bool hidden = GetParam() >> rank & 1;
        rf_coll_opts opts = {};
        opts.order = RF_ORDER_RING;
        const std::vector<float> data = thirds(rank, whole);
        std::vector<float> want(whole), mine(part);
        rf_tensor in = device.tensor(data), out = device.tensor(std::vector<float>(whole, -1));
        rf_tensor piece = device.tensor(std::vector<float>(part, -1));
        uint64_t copied = 0;
        auto staged = [&](uint64_t bytes) {
            copied += hidden ? bytes : 0;
            EXPECT_EQ(rf_comm_staged_bytes(comm), copied);
        };

        for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE, RF_ORDER_ANY}) {
            opts.order = order;
            ASSERT_EQ(rf_all_reduce(comm, data.data(), want.data(), whole, RF_F32, RF_AVG, &opts),
                      RF_OK);
            ASSERT_EQ(rf_all_reduce_tensor(comm, in, out, RF_AVG, &opts), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(read(out), want);
            EXPECT_EQ(read(in), data) << "the input was changed";
            staged(2 * whole * sizeof(float));
        }

        ASSERT_EQ(rf_reduce_scatter(comm, data.data(), mine.data(), part, RF_F32, RF_SUM, &opts),
                  RF_OK);
        ASSERT_EQ(rf_reduce_scatter_tensor(comm, in, piece, RF_SUM, &opts), RF_OK);
        EXPECT_EQ(read(piece), mine);
        staged((whole + part) * sizeof(float));

        ASSERT_EQ(rf_all_gather(comm, mine.data(), want.data(), part, RF_F32, nullptr), RF_OK);
        ASSERT_EQ(rf_all_gather_tensor(comm, piece, out, nullptr), RF_OK);
        EXPECT_EQ(read(out), want);
        staged((whole + part) * sizeof(float));

        ASSERT_EQ(rf_all_to_all(comm, data.data(), want.data(), part, RF_F32, nullptr), RF_OK);
        ASSERT_EQ(rf_all_to_all_tensor(comm, in, out, nullptr), RF_OK);
        EXPECT_EQ(read(out), want);
        staged(2 * whole * sizeof(float));

        rf_tensor own = {};
        ASSERT_EQ(rf_tensor_view(in.buffer, 64 + static_cast<uint64_t>(rank) * part * 4,
                                 rf_shape1(static_cast<int64_t>(part)), RF_F32, &own),
                  RF_OK);
        ASSERT_EQ(rf_reduce_scatter_tensor(comm, in, own, RF_SUM, &opts), RF_OK);
        EXPECT_EQ(read(own), mine) << "in place";
        ASSERT_EQ(rf_all_gather(comm, mine.data(), want.data(), part, RF_F32, nullptr), RF_OK);
        ASSERT_EQ(rf_all_gather_tensor(comm, own, in, nullptr), RF_OK);
        EXPECT_EQ(read(in), want) << "in place";

        rf_tensor received = device.tensor(rank == 2 ? data : std::vector<float>(whole, -1));
        ASSERT_EQ(rf_broadcast_tensor(comm, received, 2, nullptr), RF_OK);
        EXPECT_EQ(read(received), thirds(2, whole));
    });
}

TEST_P(Staging, OfLongRootedCallsGivesTheBitsOfHostMemory)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const size_t part = (1u << 20) - 5, whole = 3 * part;
        const int root = 1;
        const bool is_root = rank == root;
        const rf_tensor none = {};
        const std::vector<float> data = thirds(rank, whole);
        const std::vector<float> mine(data.begin(), data.begin() + (long)part);
        std::vector<float> want(whole), own(part);
        rf_tensor in = device.tensor(data), piece = device.tensor(mine);
        rf_tensor out = device.tensor(std::vector<float>(whole, -1));
        ASSERT_EQ(rf_reduce(comm, data.data(), want.data(), whole, RF_F32, RF_SUM, root, nullptr),
                  RF_OK);
        ASSERT_EQ(described::reduce_tensor(comm, in, is_root ? out : none, RF_SUM, root, nullptr),
                  RF_OK)
            << rf_last_error()->message;
        if (is_root) {
            EXPECT_EQ(read(out), want);
        }
        ASSERT_EQ(rf_gather(comm, mine.data(), want.data(), part, RF_F32, root, nullptr), RF_OK);
        ASSERT_EQ(described::gather_tensor(comm, piece, is_root ? out : none, root, nullptr),
                  RF_OK);
        if (is_root) {
            EXPECT_EQ(read(out), want);
        }
        ASSERT_EQ(rf_scatter(comm, data.data(), own.data(), part, RF_F32, root, nullptr), RF_OK);
        ASSERT_EQ(described::scatter_tensor(comm, is_root ? in : none, piece, root, nullptr),
                  RF_OK);
        EXPECT_EQ(read(piece), own);
        EXPECT_EQ(read(in), data) << "the input was changed";
    });
}

/* Some ranks call on host memory, others on tensors: it is the same operation. */
TEST_P(Staging, MixesWithRanksThatCallOnHostMemory)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const size_t count = 3u << 20;
        std::vector<float> data(count, static_cast<float>(rank + 1));
        rf_tensor tensor = device.tensor(data);
        if (rank == 0)
            ASSERT_EQ(rf_all_reduce(comm, data.data(), data.data(), count, RF_F32, RF_SUM, nullptr),
                      RF_OK);
        else
            ASSERT_EQ(rf_all_reduce_tensor(comm, tensor, tensor, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(rank == 0 ? data : read(tensor), std::vector<float>(count, 6));
    });
}

TEST_P(Staging, TakesThePredictedMemoryForCallsOfAnyLength)
{
    run(three(), GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const int first[4] = {0, 3, 4, 7};
        const rf_forest forest = {7, 3, first};
        const bool hidden = GetParam() >> rank & 1;
        uint64_t most = 0;
        for (size_t count : {size_t(1000), size_t(5) << 20, size_t(9) << 20}) {
            const std::vector<float> data(count, 1);
            rf_tensor in = device.tensor(data);
            uint64_t bytes = 0;
            rf_device_memory_reset_peak(device.get());
            ASSERT_EQ(rf_all_reduce_tensor(comm, in, in, RF_SUM, nullptr), RF_OK);
            ASSERT_EQ(
                staging_of(call_of(RF_COLL_ALL_REDUCE, rank, 3, count, RF_F32, RF_ORDER_ANY, 0),
                           &bytes),
                RF_OK);
            most = std::max(most, bytes);
            EXPECT_LE(bytes, 16u << 20);
            rf_memory_stats stats;
            rf_device_memory(device.get(), &stats);
            EXPECT_EQ(stats.peak[RF_CATEGORY_COMM], hidden ? most : 0);
        }
        const size_t count = 2u << 20;
        const int own = rf_forest_nodes(&forest, rank, nullptr);
        rf_tensor parts = device.tensor(std::vector<float>(static_cast<size_t>(own) * count, 1));
        rf_tensor sum = device.tensor(std::vector<float>(count, -1));
        uint64_t bytes = 0;
        ASSERT_EQ(forest_all_reduce(comm, &forest, parts, count, sum, nullptr), RF_OK);
        ASSERT_EQ(staging_of(forest_of(&forest, rank, count), &bytes), RF_OK);
        most = std::max(most, bytes);
        rf_memory_stats stats;
        rf_device_memory(device.get(), &stats);
        EXPECT_EQ(stats.now[RF_CATEGORY_COMM], hidden ? most : 0);
        EXPECT_EQ(read(sum), std::vector<float>(count, 5)); /* subtrees: 2 + 1 + 2 of them */
    });
}

/* The communicator fails while copies are under way; tensors may be destroyed at once. */
TEST(InterruptedStaging, IsAnErrorThatNamesTheDeadRankAndChangesNoTensor)
{
    ranks::World world;
    world.size = 3;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 40;
    world.faults.bytes_per_s = 400e6;
    run(world, ~0u, [](rf_comm *comm, int rank, Device &device) {
        rf_buffer *buffer = nullptr;
        rf_tensor tensor = {};
        const int64_t count = 6 << 20;
        ASSERT_EQ(
            rf_buffer_create(device.get(), count * 4, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &buffer),
            RF_OK);
        ASSERT_EQ(rf_tensor_view(buffer, 0, rf_shape1(count), RF_F32, &tensor), RF_OK);
        int rc = RF_OK;
        for (int i = 0; i < 10 && rc == RF_OK; i++)
            rc = rf_all_reduce_tensor(comm, tensor, tensor, RF_SUM, nullptr);
        rf_buffer_destroy(buffer);
        ASSERT_LT(rc, 0);
        if (rank != 2) {
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 2);
        }
    });
}

/* A user's own pages as a tensor: in place, on a device whose own memory would be staged. */
TEST(ImportedMemory, TravelsInPlace)
{
    run(2, true, [](rf_comm *comm, int rank, Device &device) {
        const rf_device_info *info = rf_device_get_info(device.get());
        if (!info->external_memory_host)
            GTEST_SKIP() << "this driver does not offer VK_EXT_external_memory_host";
        const size_t bytes = std::max<size_t>(1 << 20, info->min_import_alignment);
        float *memory = static_cast<float *>(aligned_alloc(info->min_import_alignment, bytes));
        const int64_t count = static_cast<int64_t>(bytes / 4) - 3;
        std::fill_n(memory, bytes / 4, static_cast<float>(rank + 1));
        rf_buffer *buffer = nullptr;
        rf_tensor tensor = {};
        ASSERT_EQ(rf_buffer_import(device.get(), memory, bytes, &buffer), RF_OK)
            << rf_last_error()->message;
        ASSERT_EQ(rf_tensor_view(buffer, 0, rf_shape1(count), RF_F32, &tensor), RF_OK);
        EXPECT_EQ(rf_tensor_view(buffer, 0, rf_shape1(count + 4), RF_F32, &tensor), RF_EINVAL);
        ASSERT_EQ(rf_all_reduce_tensor(comm, tensor, tensor, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(memory[0], 3);
        EXPECT_EQ(memory[count - 1], 3);
        EXPECT_EQ(memory[count], static_cast<float>(rank + 1));
        EXPECT_EQ(rf_comm_staged_bytes(comm), 0u);
        rf_buffer_destroy(buffer);
        free(memory);
    });
}

TEST(RegisteredMemory, ServesCallsOnAnyPartOfIt)
{
    for (const ranks::World &world : ranks::worlds({2}, {2}))
        ranks::run(world, [](rf_comm *comm, int rank) {
            std::vector<float> memory(100000, static_cast<float>(rank + 1));
            rf_registration *whole = nullptr, *part = nullptr;
            ASSERT_EQ(rf_comm_register(comm, memory.data(), memory.size() * 4, &whole), RF_OK)
                << rf_last_error()->message;
            ASSERT_EQ(rf_comm_register(comm, memory.data() + 10, 400, &part), RF_OK);
            rf_comm_deregister(part);
            ASSERT_EQ(rf_all_reduce(comm, memory.data() + 1, memory.data() + 1, 99998, RF_F32,
                                    RF_SUM, nullptr),
                      RF_OK);
            EXPECT_EQ(memory[0], static_cast<float>(rank + 1));
            EXPECT_EQ(memory[99998], 3);
            rf_comm_deregister(whole);
            rf_comm_deregister(nullptr);
            EXPECT_EQ(rf_comm_register(comm, nullptr, 4, &whole), RF_EINVAL);
            EXPECT_EQ(rf_comm_register(comm, memory.data(), 0, &whole), RF_EINVAL);
            /* After a failure, registered memory can still be unregistered. */
            ASSERT_EQ(rf_comm_register(comm, memory.data(), 400, &whole), RF_OK);
            const int rc = rf_barrier(comm, nullptr); /* the other may have aborted already */
            EXPECT_TRUE(rc == RF_OK || rc == RF_EABORT) << rf_last_error()->message;
            rf_comm_abort(comm, "enough");
            EXPECT_EQ(rf_comm_register(comm, memory.data(), 400, &part), RF_EABORT);
            rf_comm_deregister(whole);
        });
}

TEST(StagingSwitch, HidesTheMemoryOfEveryDevice)
{
    setenv("RF_HOST_VISIBLE", "0", 1);
    rf_device *device = nullptr;
    const int rc = rf_device_open(nullptr, nullptr, &device);
    setenv("RF_HOST_VISIBLE", "maybe", 1);
    rf_device *other = nullptr;
    EXPECT_EQ(rf_device_open(nullptr, nullptr, &other), RF_EINVAL);
    unsetenv("RF_HOST_VISIBLE");
    ASSERT_EQ(rc, RF_OK) << rf_last_error()->message;
    EXPECT_FALSE(rf_device_get_info(device)->host_visible);
    rf_device_close(device);
}

} // namespace
