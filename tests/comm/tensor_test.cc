/* SPDX-License-Identifier: MIT
 *
 * Collectives on device tensors: the same bits as on host memory, mapped or staged; asynchronous
 * calls that wait, queue, and signal even after an error; and the tree-ordered reduction.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <algorithm>

#include "support/described_calls.h"
#include "support/usage.h"
#include "tensor_device.h"

using namespace tensors;

namespace
{

class Tensors : public testing::TestWithParam<bool>
{
}; /* true: memory that cannot be mapped */

TEST_P(Tensors, GiveTheBitsOfHostMemory)
{
    run(3, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        rf_coll_opts opts = {};
        opts.order = RF_ORDER_RING;
        const size_t part = 5001, whole = 3 * part;
        std::vector<float> data = thirds(rank, whole), sum(whole), mine(part), all(whole);
        ASSERT_EQ(rf_all_reduce(comm, data.data(), sum.data(), whole, RF_F32, RF_SUM, &opts),
                  RF_OK);
        ASSERT_EQ(rf_reduce_scatter(comm, data.data(), mine.data(), part, RF_F32, RF_SUM, &opts),
                  RF_OK);
        ASSERT_EQ(rf_all_gather(comm, mine.data(), all.data(), part, RF_F32, nullptr), RF_OK);

        rf_tensor in = device.tensor(data), out = device.tensor(std::vector<float>(whole, -1));
        rf_tensor piece = device.tensor(std::vector<float>(part, -1));
        ASSERT_EQ(rf_all_reduce_tensor(comm, in, out, RF_SUM, &opts), RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(read(out), sum);
        EXPECT_EQ(read(in), data) << "the input was changed";
        ASSERT_EQ(rf_reduce_scatter_tensor(comm, in, piece, RF_SUM, &opts), RF_OK);
        EXPECT_EQ(read(piece), mine);
        ASSERT_EQ(rf_all_gather_tensor(comm, piece, out, nullptr), RF_OK);
        EXPECT_EQ(read(out), all);

        rf_tensor own = {};
        ASSERT_EQ(rf_tensor_view(in.buffer, 64 + static_cast<uint64_t>(rank) * part * 4,
                                 rf_shape1(static_cast<int64_t>(part)), RF_F32, &own),
                  RF_OK);
        ASSERT_EQ(rf_reduce_scatter_tensor(comm, in, own, RF_SUM, &opts), RF_OK);
        EXPECT_EQ(read(own), mine) << "in place";
        ASSERT_EQ(rf_all_gather_tensor(comm, own, in, nullptr), RF_OK);
        EXPECT_EQ(read(in), all) << "in place";

        rf_tensor received = device.tensor(rank == 2 ? data : std::vector<float>(whole, -1));
        ASSERT_EQ(rf_broadcast_tensor(comm, received, 2, nullptr), RF_OK);
        EXPECT_EQ(read(received), thirds(2, whole));
    });
}

TEST_P(Tensors, RootedCallsAndExchangesGiveTheBitsOfHostMemory)
{
    run(3, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const size_t part = 1237, whole = 3 * part;
        const rf_tensor none = {};
        rf_coll_opts opts = {};
        opts.order = RF_ORDER_RING;
        for (int root = 0; root < 3; root++) {
            const bool is_root = rank == root;
            const std::vector<float> data = thirds(rank + 7 * root, whole);
            const std::vector<float> mine(data.begin(), data.begin() + (long)part);
            std::vector<float> sum(whole), all(whole), own(part), exchanged(whole);
            ASSERT_EQ(rf_reduce(comm, data.data(), sum.data(), whole, RF_F32, RF_SUM, root, &opts),
                      RF_OK);
            ASSERT_EQ(rf_gather(comm, mine.data(), all.data(), part, RF_F32, root, nullptr), RF_OK);
            ASSERT_EQ(rf_scatter(comm, data.data(), own.data(), part, RF_F32, root, nullptr),
                      RF_OK);
            ASSERT_EQ(rf_all_to_all(comm, data.data(), exchanged.data(), part, RF_F32, nullptr),
                      RF_OK);

            rf_tensor in = device.tensor(data), piece = device.tensor(mine);
            rf_tensor out = device.tensor(std::vector<float>(whole, -1));
            rf_tensor to = device.tensor(std::vector<float>(part, -1));
            ASSERT_EQ(described::reduce_tensor(comm, in, is_root ? out : none, RF_SUM, root, &opts),
                      RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(read(in), data) << "the input was changed";
            if (is_root) {
                EXPECT_EQ(read(out), sum);
            }
            rf_point done = {};
            rf_coll_opts later = {};
            later.done = &done; /* queued, too */
            ASSERT_EQ(described::gather_tensor(comm, piece, is_root ? out : none, root, &later),
                      RF_OK)
                << rf_last_error()->message;
            ASSERT_EQ(rf_point_wait(done, 20000000000ull), RF_OK);
            if (is_root) {
                EXPECT_EQ(read(out), all);
            }
            ASSERT_EQ(described::scatter_tensor(comm, is_root ? in : none, to, root, nullptr),
                      RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(read(to), own);
            ASSERT_EQ(rf_all_to_all_tensor(comm, in, out, nullptr), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(read(out), exchanged);
            EXPECT_EQ(read(in), data) << "the input was changed";
            /* In place: the root's piece within the whole. */
            rf_tensor place = {};
            rf_tensor whole_tensor = is_root ? in : to;
            const uint64_t first = is_root ? (uint64_t)rank * part * 4 : 0;
            ASSERT_EQ(rf_tensor_view(whole_tensor.buffer, 64 + first, rf_shape1((int64_t)part),
                                     RF_F32, &place),
                      RF_OK);
            ASSERT_EQ(described::scatter_tensor(comm, is_root ? in : none, place, root, nullptr),
                      RF_OK);
            EXPECT_EQ(read(place), own);
            ASSERT_EQ(described::gather_tensor(comm, place, is_root ? in : none, root, nullptr),
                      RF_OK);
            if (is_root) {
                const std::vector<float> back = read(in);
                EXPECT_TRUE(std::equal(own.begin(), own.end(), back.begin() + rank * (long)part));
            }
        }
        EXPECT_EQ(described::gather_tensor(comm, none, none, 0, nullptr), RF_EINVAL);
        rf_tensor odd = device.tensor(thirds(1, 10));
        EXPECT_EQ(rf_all_to_all_tensor(comm, odd, odd, nullptr), RF_EINVAL);
    });
}

TEST_P(Tensors, StageAsMuchAsTheLargestCallNeeds)
{
    run(2, GetParam(), [](rf_comm *comm, int, Device &device) {
        rf_tensor a = device.tensor(thirds(1, 3000)), b = device.tensor(thirds(2, 1500));
        rf_device_memory_reset_peak(device.get());
        ASSERT_EQ(rf_all_reduce_tensor(comm, b, b, RF_SUM, nullptr), RF_OK);
        ASSERT_EQ(rf_reduce_scatter_tensor(comm, a, b, RF_SUM, nullptr), RF_OK);
        ASSERT_EQ(rf_all_gather_tensor(comm, b, a, nullptr), RF_OK);
        /* The largest of in and out of any call so far; 0 if memory is mapped. */
        const uint64_t largest = 3000 * sizeof(float);
        rf_memory_stats stats;
        rf_device_memory(device.get(), &stats);
        EXPECT_EQ(stats.peak[RF_CATEGORY_COMM], GetParam() ? largest : 0);
    });
}

TEST_P(Tensors, QueuedCallsWaitForAfterAndEndInOrder)
{
    run(3, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        rf_timeline *timeline = nullptr;
        rf_stream *stream = nullptr;
        ASSERT_EQ(rf_timeline_create(device.get(), &timeline), RF_OK);
        ASSERT_EQ(rf_stream_create(device.get(), "test", &stream), RF_OK);
        constexpr int calls = 6;
        rf_tensor tensor[calls];
        rf_point done[calls] = {};
        for (int i = 0; i < calls; i++) {
            tensor[i] = device.tensor(std::vector<float>(1000, static_cast<float>(rank * i + 1)));
            rf_coll_opts opts = {};
            opts.after = {timeline, i < 3 ? 1u : 2u};
            opts.done = &done[i];
            opts.label = "bucket";
            ASSERT_EQ(rf_all_reduce_tensor(comm, tensor[i], tensor[i], RF_SUM, &opts), RF_OK);
        }
        EXPECT_FALSE(rf_point_reached(done[0]));
        /* A command recorded behind a call runs after it. */
        rf_tensor copy = device.tensor(std::vector<float>(1000, -1));
        ASSERT_EQ(rf_stream_after(stream, done[5]), RF_OK);
        ASSERT_EQ(rf_stream_copy(stream, {copy.buffer, copy.offset},
                                 {tensor[5].buffer, tensor[5].offset}, 4000),
                  RF_OK);
        rf_point copied = {};
        ASSERT_EQ(rf_stream_submit(stream, &copied), RF_OK);

        ASSERT_EQ(rf_timeline_signal(timeline, 1), RF_OK);
        ASSERT_EQ(rf_point_wait(done[2], 20000000000ull), RF_OK);
        EXPECT_TRUE(rf_point_reached(done[0]));
        EXPECT_FALSE(rf_point_reached(done[3]));
        EXPECT_FALSE(rf_point_reached(copied));
        ASSERT_EQ(rf_timeline_signal(timeline, 2), RF_OK);
        /* A blocking call runs after queued ones. */
        int32_t one = 1;
        ASSERT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(one, 3);
        EXPECT_TRUE(rf_point_reached(done[5]));
        EXPECT_EQ(rf_comm_wait(comm), RF_OK);
        ASSERT_EQ(rf_point_wait(copied, 20000000000ull), RF_OK);
        for (int i = 0; i < calls; i++)
            EXPECT_EQ(read(tensor[i]), std::vector<float>(1000, static_cast<float>(3 * i + 3)));
        EXPECT_EQ(read(copy), read(tensor[5]));
        rf_stream_destroy(stream);
        rf_timeline_destroy(timeline);
    });
}

/* The first call cannot begin, but independent ones can complete. */
TEST_P(Tensors, ACallThatWaitsForADeviceBlocksNoOther)
{
    run(3, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        rf_timeline *timeline = nullptr;
        ASSERT_EQ(rf_timeline_create(device.get(), &timeline), RF_OK);
        rf_tensor first = device.tensor(std::vector<float>(3000, 1));
        rf_tensor second = device.tensor(std::vector<float>(5, 2));
        rf_tensor third = device.tensor(std::vector<float>(3000, 5));
        rf_point done = {}, later = {};
        rf_coll_opts opts = {};
        opts.after = {timeline, 1};
        opts.done = &done;
        ASSERT_EQ(rf_all_reduce_tensor(comm, first, first, RF_SUM, &opts), RF_OK);
        opts.after = {};
        opts.done = &later;
        ASSERT_EQ(rf_all_reduce_tensor(comm, second, second, RF_SUM, &opts), RF_OK);
        opts.done = nullptr;
        rf_request *behind = nullptr;
        opts.request = &behind; /* reads the output of the first one */
        ASSERT_EQ(rf_all_reduce_tensor(comm, first, third, RF_MAX, &opts), RF_OK)
            << rf_last_error()->message;

        std::vector<int32_t> sums(30, 1);
        for (int32_t &sum : sums) {
            rf_request *request = nullptr;
            rf_coll_opts own = {};
            own.request = &request;
            if (&sum - sums.data() < 5) {
                ASSERT_EQ(rf_all_reduce(comm, &sum, &sum, 1, RF_I32, RF_SUM, &own), RF_OK);
            } else {
                ASSERT_EQ(described::sendrecv(comm, &rank, 1, (rank + 1) % 3, &sum, 1,
                                              (rank + 2) % 3, RF_I32, 7, &own),
                          RF_OK);
            }
            ASSERT_EQ(rf_request_wait(request, 0), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(sum, &sum - sums.data() < 5 ? 3 : (rank + 2) % 3);
            rf_request_free(request);
        }
        bool over = true;
        ASSERT_EQ(rf_request_test(behind, &over), RF_OK);
        EXPECT_FALSE(over);
        EXPECT_FALSE(rf_point_reached(done));
        EXPECT_FALSE(rf_point_reached(later)) << "points keep the order of the calls";
        ASSERT_EQ(rf_timeline_signal(timeline, 1), RF_OK);
        ASSERT_EQ(rf_request_wait(behind, 0), RF_OK) << rf_last_error()->message;
        rf_request_free(behind);
        ASSERT_EQ(rf_comm_wait(comm), RF_OK);
        EXPECT_TRUE(rf_point_reached(later));
        EXPECT_EQ(read(first), std::vector<float>(3000, 3));
        EXPECT_EQ(read(second), std::vector<float>(5, 6));
        EXPECT_EQ(read(third), std::vector<float>(3000, 3));
        rf_timeline_destroy(timeline);
    });
}

TEST_P(Tensors, DoneIsSignalledAfterAnErrorAndTheNextCallReportsIt)
{
    run(2, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        rf_tensor tensor = device.tensor(thirds(rank, 100));
        rf_point done[4] = {};
        for (int i = 0; i < 4; i++) {
            rf_coll_opts opts = {};
            opts.done = &done[i];
            opts.order = RF_ORDER_RING;
            rf_redop redop = i == 1 && rank == 1 ? RF_MAX : RF_SUM;
            int rc = rf_all_reduce_tensor(comm, tensor, tensor, redop, &opts);
            if (rc == RF_OK)
                continue;
            /* The queue ran dry in between, so this call came after the error. */
            EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
            return;
        }
        for (const rf_point &point : done)
            EXPECT_EQ(rf_point_wait(point, 20000000000ull), RF_OK);
        EXPECT_EQ(rf_comm_wait(comm), RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1 - rank);
        EXPECT_EQ(rf_last_error()->mine.redop, rank == 1 ? RF_MAX : RF_SUM);
        EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
    });
}

TEST(Closing, EndsWorkThatWouldWaitForEver)
{
    run(2, false, [](rf_comm *comm, int rank, Device &device) {
        rf_comm *alone = nullptr;
        ASSERT_EQ(rf_comm_open("self:", nullptr, &alone), RF_OK);
        rf_timeline *never = nullptr;
        ASSERT_EQ(rf_timeline_create(device.get(), &never), RF_OK);
        rf_tensor tensor = device.tensor(thirds(rank, 100));
        rf_point done = {};
        rf_coll_opts opts = {};
        opts.after = {never, 1};
        opts.done = &done;
        ASSERT_EQ(rf_all_reduce_tensor(alone, tensor, tensor, RF_SUM, &opts), RF_OK);
        if (rank == 0) {
            rf_comm_abort(alone, "enough");
            EXPECT_TRUE(rf_point_reached(done));
            EXPECT_EQ(rf_comm_wait(alone), RF_EABORT);
        }
        rf_comm_close(alone);
        rf_timeline_destroy(never);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

TEST_P(Tensors, AForestHasTheBitsOfThePairwiseSumForEveryNumberOfRanks)
{
    const size_t count = 777;
    for (int leaves : {1, 3, 8, 11}) {
        std::vector<std::vector<float>> level;
        for (int leaf = 0; leaf < leaves; leaf++)
            level.push_back(thirds(leaf, count));
        while (level.size() > 1) {
            std::vector<std::vector<float>> next;
            for (size_t i = 0; i < level.size(); i += 2) {
                next.push_back(level[i]);
                for (size_t j = 0; i + 1 < level.size() && j < count; j++)
                    next.back()[j] = level[i][j] + level[i + 1][j];
            }
            level = next;
        }
        const std::vector<float> want = level[0];
        for (int size = 1; size <= 4; size++) {
            run(size, GetParam(), [&](rf_comm *comm, int rank, Device &device) {
                std::vector<int> first;
                for (int r = 0; r <= size; r++)
                    first.push_back(r * leaves / size);
                rf_forest forest = {leaves, size, first.data()};
                rf_forest_node nodes[62];
                int own = rf_forest_nodes(&forest, rank, nodes);
                const size_t stride = 800;
                std::vector<float> parts(static_cast<size_t>(own) * stride + count);
                for (int k = 0; k < own; k++) {
                    /* The subtree, pairwise by index, as its rank would have added it. */
                    std::vector<std::vector<float>> tree;
                    int begin = nodes[k].index << nodes[k].level;
                    int end = std::min(leaves, (nodes[k].index + 1) << nodes[k].level);
                    for (int leaf = begin; leaf < end; leaf++)
                        tree.push_back(thirds(leaf, count));
                    while (tree.size() > 1)
                        for (size_t i = 0; i + 1 < tree.size(); i++) {
                            for (size_t j = 0; j < count; j++)
                                tree[i][j] += tree[i + 1][j];
                            tree.erase(tree.begin() + static_cast<long>(i) + 1);
                        }
                    std::copy(tree[0].begin(), tree[0].end(),
                              parts.begin() + static_cast<long>(static_cast<size_t>(k) * stride));
                }
                rf_tensor in = device.tensor(parts);
                rf_tensor out = device.tensor(std::vector<float>(count, -1));
                uint64_t before = rf_comm_sent_bytes(comm), foretold = 0;
                ASSERT_EQ(forest_all_reduce(comm, &forest, in, stride, out, nullptr), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(read(out), want) << leaves << " leaves on " << size << " ranks";
                ASSERT_EQ(sent_of(forest_of(&forest, rank, count), &foretold), RF_OK);
                EXPECT_EQ(rf_comm_sent_bytes(comm) - before, foretold);
            });
        }
    }
}

TEST(TensorArguments, AreRefusedWithASentence)
{
    run(2, false, [](rf_comm *comm, int, Device &device) {
        rf_tensor a = device.tensor(thirds(0, 100)), b = device.tensor(thirds(0, 99)), none = {};
        EXPECT_EQ(rf_all_reduce_tensor(comm, a, b, RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_reduce_tensor(comm, none, a, RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_reduce_tensor(nullptr, a, a, RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_gather_tensor(comm, a, a, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_broadcast_tensor(comm, a, 2, nullptr), RF_EINVAL);
        rf_tensor shifted = {};
        ASSERT_EQ(rf_tensor_view(a.buffer, 64, rf_shape1(60), RF_F32, &a), RF_OK);
        ASSERT_EQ(rf_tensor_view(a.buffer, 68, rf_shape1(60), RF_F32, &shifted), RF_OK);
        EXPECT_EQ(rf_all_reduce_tensor(comm, a, shifted, RF_SUM, nullptr), RF_EINVAL);
        const int first[3] = {0, 1, 3};
        rf_forest forest = {4, 2, first};
        EXPECT_EQ(forest_all_reduce(comm, &forest, a, 60, a, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

/* The limits of the type, whose sums overflow, and values between them. */
std::vector<uint8_t> ends(rf_dtype dtype, size_t count)
{
    const std::vector<uint64_t> bits =
        dtype == RF_F32    ? std::vector<uint64_t>{0x7f61b1e6, 0xff7fffff, 0x3f9d70a4}
        : dtype == RF_F64  ? std::vector<uint64_t>{0x7fe1ccf385ebc8a0, 0xffefffffffffffff}
        : dtype == RF_F16  ? std::vector<uint64_t>{0x7b53, 0xfbff, 0x3c01}
        : dtype == RF_BF16 ? std::vector<uint64_t>{0x7f7f, 0xff61, 0x3f9d}
        : dtype == RF_I64  ? std::vector<uint64_t>{INT64_MAX, 1ull << 63, 7}
        : dtype == RF_I32  ? std::vector<uint64_t>{INT32_MAX, 1u << 31, 7}
                           : std::vector<uint64_t>{100, 200, 127, 128, 255};
    const size_t bytes = rf_dtype_bytes(dtype);
    std::vector<uint8_t> out(count * bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(&out[i * bytes], &bits[i % bits.size()], bytes);
    return out;
}

/* The average of equal numbers is that number. */
void check_averages(rf_comm *comm, Device &device, rf_dtype dtype, size_t part)
{
    const size_t bytes = rf_dtype_bytes(dtype), whole = 3 * part;
    const std::vector<uint8_t> data = ends(dtype, whole);
    const size_t at = static_cast<size_t>(rf_comm_rank(comm)) * part * bytes;
    const std::vector<uint8_t> mine(data.begin() + (long)at,
                                    data.begin() + (long)(at + part * bytes));
    std::vector<uint8_t> sum(whole * bytes), own(part * bytes);
    void *shared = nullptr;
    ASSERT_EQ(rf_comm_alloc(comm, whole * bytes, &shared), RF_OK);
    memcpy(shared, data.data(), data.size());
    ASSERT_EQ(rf_all_reduce(comm, data.data(), sum.data(), whole, dtype, RF_AVG, nullptr), RF_OK);
    EXPECT_EQ(sum, data);
    ASSERT_EQ(rf_all_reduce(comm, shared, shared, whole, dtype, RF_AVG, nullptr), RF_OK);
    EXPECT_EQ(memcmp(shared, data.data(), data.size()), 0) << "in shared memory";
    ASSERT_EQ(rf_reduce_scatter(comm, data.data(), own.data(), part, dtype, RF_AVG, nullptr),
              RF_OK);
    EXPECT_EQ(own, mine);
    std::fill(sum.begin(), sum.end(), 0);
    ASSERT_EQ(rf_reduce(comm, data.data(), sum.data(), whole, dtype, RF_AVG, 1, nullptr), RF_OK);
    if (rf_comm_rank(comm) == 1) {
        EXPECT_EQ(sum, data);
    }
    rf_comm_free(comm, shared);
    rf_tensor room = device.tensor(std::vector<float>(2 * whole)), tensor = {};
    ASSERT_EQ(rf_tensor_view(room.buffer, 64, rf_shape1((int64_t)whole), dtype, &tensor), RF_OK);
    ASSERT_EQ(rf_tensor_write(tensor, data.data(), data.size()), RF_OK);
    ASSERT_EQ(rf_all_reduce_tensor(comm, tensor, tensor, RF_AVG, nullptr), RF_OK);
    ASSERT_EQ(rf_tensor_read(tensor, sum.data(), sum.size()), RF_OK);
    EXPECT_EQ(sum, data) << "of tensors";
}

TEST_P(Tensors, AveragesOfEqualNumbersAreThatNumber)
{
    run(3, GetParam(), [](rf_comm *comm, int, Device &device) {
        for (rf_dtype dtype : {RF_F32, RF_F64, RF_F16, RF_BF16, RF_I32, RF_I64, RF_U8, RF_I8}) {
            SCOPED_TRACE(rf_dtype_name(dtype));
            for (size_t part : {1, 999, 200001})
                check_averages(comm, device, dtype, part);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Memory, Tensors, testing::Bool(),
                         [](const auto &info) { return info.param ? "Staged" : "Mapped"; });

} // namespace
