/* SPDX-License-Identifier: MIT
 *
 * Collectives on device tensors: in mapped memory and through staging with the same bits as on host
 * memory, queued behind points in time, and what waits on them after an error.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include "support/ranks.h"

namespace
{

/* Shared by the rank threads; llvmpipe's own threads are not needed for a few copies. */
class Device
{
  public:
    explicit Device(bool hide_host_memory)
    {
        rf_device_opts opts = {};
        opts.hide_host_memory = hide_host_memory;
        EXPECT_EQ(rf_device_open(nullptr, &opts, &device_), RF_OK) << rf_last_error()->message;
    }
    ~Device()
    {
        rf_device_close(device_);
    }
    Device(const Device &) = delete;
    rf_device *get() const
    {
        return device_;
    }

  private:
    rf_device *device_ = nullptr;
};

class Tensor
{
  public:
    Tensor(const Device &device, const std::vector<float> &values) : count_(values.size())
    {
        EXPECT_EQ(rf_tensor_create(device.get(), rf_shape1(static_cast<int64_t>(count_)), RF_F32,
                                   &tensor_),
                  RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(rf_tensor_write(tensor_, values.data(), count_ * sizeof(float)), RF_OK);
    }
    ~Tensor()
    {
        rf_buffer_destroy(tensor_.buffer);
    }
    Tensor(const Tensor &) = delete;
    rf_tensor get() const
    {
        return tensor_;
    }
    rf_tensor rows(size_t first, size_t count) const
    {
        rf_tensor out = {};
        EXPECT_EQ(
            rf_tensor_rows(tensor_, static_cast<int64_t>(first), static_cast<int64_t>(count), &out),
            RF_OK);
        return out;
    }
    std::vector<float> values() const
    {
        std::vector<float> out(count_);
        EXPECT_EQ(rf_tensor_read(tensor_, out.data(), count_ * sizeof(float)), RF_OK);
        return out;
    }

  private:
    rf_tensor tensor_ = {};
    size_t count_;
};

/* Their sums are not exact, so the bits show the order. */
std::vector<float> thirds(int seed, size_t count)
{
    std::vector<float> out(count);
    for (size_t i = 0; i < count; i++)
        out[i] = static_cast<float>((i * 2654435761u + static_cast<size_t>(seed) * 40503u) % 1009) /
                 3.0f;
    return out;
}

/* Not (a == b): a NaN would hide. */
bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

ranks::World threads(int size)
{
    ranks::World world;
    world.size = size;
    return world;
}

class Tensors : public testing::TestWithParam<bool>
{
  protected:
    Tensors() : device(GetParam())
    {
    }
    Device device;
};

TEST_P(Tensors, HaveTheBitsOfHostMemory)
{
    ranks::run(threads(3), [&](rf_comm *comm, int rank) {
        for (size_t part : {size_t{1}, size_t{50021}}) {
            size_t count = 3 * part, own = static_cast<size_t>(rank) * part;
            rf_coll_opts opts = {};
            opts.order = RF_ORDER_RING;
            std::vector<float> in = thirds(rank, count), sum(count), scattered(part), all(count);
            ASSERT_EQ(rf_all_reduce(comm, in.data(), sum.data(), count, RF_F32, RF_SUM, &opts), 0);
            ASSERT_EQ(
                rf_reduce_scatter(comm, in.data(), scattered.data(), part, RF_F32, RF_AVG, &opts),
                0);
            ASSERT_EQ(rf_all_gather(comm, in.data(), all.data(), part, RF_F32, nullptr), 0);

            Tensor a(device, in), b(device, std::vector<float>(count, -1));
            ASSERT_EQ(rf_all_reduce_tensor(comm, a.get(), b.get(), RF_SUM, &opts), 0)
                << rf_last_error()->message;
            EXPECT_TRUE(same_bits(b.values(), sum));
            EXPECT_TRUE(same_bits(a.values(), in)) << "the input was changed";
            Tensor c(device, std::vector<float>(part, -1));
            ASSERT_EQ(rf_reduce_scatter_tensor(comm, a.get(), c.get(), RF_AVG, &opts), 0);
            EXPECT_TRUE(same_bits(c.values(), scattered));
            ASSERT_EQ(rf_all_gather_tensor(comm, a.rows(0, part), b.get(), nullptr), 0);
            EXPECT_TRUE(same_bits(b.values(), all));
            Tensor d(device, in);
            ASSERT_EQ(rf_broadcast_tensor(comm, d.get(), 1, nullptr), 0);
            EXPECT_TRUE(same_bits(d.values(), thirds(1, count)));

            /* In place, each in its own way. */
            Tensor e(device, in);
            ASSERT_EQ(rf_all_reduce_tensor(comm, e.get(), e.get(), RF_SUM, &opts), 0);
            EXPECT_TRUE(same_bits(e.values(), sum));
            Tensor f(device, in);
            ASSERT_EQ(rf_reduce_scatter_tensor(comm, f.get(), f.rows(own, part), RF_AVG, &opts), 0);
            std::vector<float> got = f.values();
            EXPECT_EQ(memcmp(&got[own], scattered.data(), part * sizeof(float)), 0);
            Tensor g(device, std::vector<float>(count, -1));
            ASSERT_EQ(rf_tensor_write(g.rows(own, part), in.data(), part * sizeof(float)), 0);
            ASSERT_EQ(rf_all_gather_tensor(comm, g.rows(own, part), g.get(), nullptr), 0);
            EXPECT_TRUE(same_bits(g.values(), all));
        }
    });
}

/* Pairwise by index over values[first, first + count). */
std::vector<float> tree(const std::vector<std::vector<float>> &values, size_t level, size_t index)
{
    size_t first = index << level;
    if (level == 0)
        return values[first];
    std::vector<float> left = tree(values, level - 1, 2 * index);
    if (first + (size_t{1} << (level - 1)) >= values.size())
        return left;
    std::vector<float> right = tree(values, level - 1, 2 * index + 1);
    for (size_t i = 0; i < left.size(); i++)
        left[i] += right[i];
    return left;
}

TEST_P(Tensors, OfAForestHaveTheBitsOfOneRankHoweverTheLeavesAreShared)
{
    const size_t count = 3001, stride = 3008;
    std::vector<std::vector<float>> leaves;
    for (int leaf = 0; leaf < 11; leaf++)
        leaves.push_back(thirds(leaf, count));
    std::vector<float> want = tree(leaves, 4, 0);
    const std::vector<std::vector<int>> shares = {
        {0, 11}, {0, 5, 11}, {0, 0, 7, 11}, {0, 3, 4, 8, 11}};
    for (const std::vector<int> &first : shares) {
        int size = static_cast<int>(first.size()) - 1;
        ranks::run(threads(size), [&](rf_comm *comm, int rank) {
            rf_forest forest = {11, size, first.data()};
            rf_forest_node nodes[62];
            int parts = rf_forest_nodes(&forest, rank, nodes);
            std::vector<float> brought(stride * static_cast<size_t>(parts ? parts : 1), -1);
            for (int k = 0; k < parts; k++) {
                std::vector<float> sum = tree(leaves, static_cast<size_t>(nodes[k].level),
                                              static_cast<size_t>(nodes[k].index));
                memcpy(&brought[stride * static_cast<size_t>(k)], sum.data(),
                       count * sizeof(float));
            }
            Tensor in(device, brought), out(device, std::vector<float>(count, -1));
            ASSERT_EQ(
                rf_forest_all_reduce_tensor(comm, &forest, in.get(), stride, out.get(), nullptr), 0)
                << rf_last_error()->message;
            EXPECT_TRUE(same_bits(out.values(), want)) << size << " ranks, rank " << rank;
        });
    }
}

TEST_P(Tensors, QueuedOnesStartAfterTheirPointRunInOrderAndSayWhenTheyHaveFinished)
{
    ranks::run(threads(3), [&](rf_comm *comm, int rank) {
        const size_t count = 5000;
        Tensor a(device, std::vector<float>(count, 1)), copy(device, std::vector<float>(count, -1));
        rf_timeline *timeline = nullptr;
        rf_stream *stream = nullptr;
        ASSERT_EQ(rf_timeline_create(device.get(), &timeline), 0);
        ASSERT_EQ(rf_stream_create(device.get(), "reader", &stream), 0);
        rf_point done[6] = {};
        for (int i = 0; i < 6; i++) {
            rf_coll_opts opts = {};
            opts.done = &done[i];
            if (i == 0)
                opts.after = {timeline, 1};
            ASSERT_EQ(rf_all_reduce_tensor(comm, a.get(), a.get(), RF_SUM, &opts), 0)
                << rf_last_error()->message;
            EXPECT_NE(done[i].timeline, nullptr);
        }
        EXPECT_FALSE(rf_point_reached(done[0])) << "it has not waited for its point";
        ASSERT_EQ(rf_stream_after(stream, done[5]), 0);
        ASSERT_EQ(
            rf_stream_copy(stream, copy.get().buffer, 0, a.get().buffer, 0, count * sizeof(float)),
            0);
        ASSERT_EQ(rf_timeline_signal(timeline, 1), 0);
        ASSERT_EQ(rf_stream_wait(stream), 0);
        EXPECT_EQ(copy.values(), std::vector<float>(count, 729)); /* 3 to the 6th */
        for (const rf_point &point : done)
            EXPECT_TRUE(rf_point_reached(point));
        EXPECT_EQ(rf_comm_wait(comm), 0);
        /* A blocking call waits its turn behind those that are queued. */
        rf_coll_opts opts = {};
        opts.done = &done[0];
        int32_t one = 1;
        ASSERT_EQ(rf_all_reduce_tensor(comm, a.get(), a.get(), RF_MAX, &opts), 0);
        ASSERT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), 0);
        EXPECT_TRUE(rf_point_reached(done[0])) << rank;
        EXPECT_EQ(one, 3);
        rf_stream_destroy(stream);
        rf_timeline_destroy(timeline);
    });
}

TEST_P(Tensors, QueuedBehindAnErrorAreReleasedAndTheNextCallReportsIt)
{
    ranks::run(threads(3), [&](rf_comm *comm, int rank) {
        const size_t count = rank == 1 ? 100 : 200;
        Tensor a(device, std::vector<float>(count, 1));
        rf_point done[4] = {};
        for (rf_point &point : done) {
            rf_coll_opts opts = {};
            opts.done = &point;
            ASSERT_EQ(rf_all_reduce_tensor(comm, a.get(), a.get(), RF_SUM, &opts), 0);
        }
        for (const rf_point &point : done)
            EXPECT_EQ(rf_point_wait(point, 30000000000u), 0) << "nothing may wait for ever";
        EXPECT_EQ(rf_comm_wait(comm), RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->mine.count, count);
        EXPECT_EQ(rf_last_error()->theirs.count, rank == 1 ? 200u : 100u);
        EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
        rf_coll_opts opts = {};
        opts.done = &done[0];
        EXPECT_EQ(rf_all_reduce_tensor(comm, a.get(), a.get(), RF_SUM, &opts), RF_EABORT);
    });
}

TEST_P(Tensors, AnAbortReleasesWhatWaitsForAPointThatNeverComes)
{
    ranks::run(threads(2), [&](rf_comm *comm, int rank) {
        Tensor a(device, {1, 2, 3});
        rf_timeline *timeline = nullptr;
        ASSERT_EQ(rf_timeline_create(device.get(), &timeline), 0);
        rf_point done[2] = {};
        for (rf_point &point : done) {
            rf_coll_opts opts = {};
            opts.done = &point;
            opts.after = {timeline, 1};
            ASSERT_EQ(rf_all_reduce_tensor(comm, a.get(), a.get(), RF_SUM, &opts), 0);
        }
        if (rank == 0)
            rf_comm_abort(comm, "enough");
        for (const rf_point &point : done)
            EXPECT_EQ(rf_point_wait(point, 30000000000u), 0);
        EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
        EXPECT_NE(strstr(rf_last_error()->message, "enough"), nullptr) << rf_last_error()->message;
        rf_comm_wait(comm);
        rf_timeline_destroy(timeline);
    });
}

INSTANTIATE_TEST_SUITE_P(Memory, Tensors, testing::Bool(), [](const auto &info) {
    return info.param ? std::string("hidden_from_the_host") : std::string("mapped");
});

TEST(TensorArguments, AreRefusedWithASentenceAndDoNotFailTheCommunicator)
{
    Device device(false);
    ranks::run(threads(2), [&](rf_comm *comm, int) {
        Tensor a(device, std::vector<float>(8, 1)), b(device, std::vector<float>(4, 1));
        EXPECT_EQ(rf_all_reduce_tensor(nullptr, a.get(), a.get(), RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_reduce_tensor(comm, a.get(), b.get(), RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_reduce_tensor(comm, a.rows(0, 4), a.rows(2, 4), RF_SUM, nullptr),
                  RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "overlap"), nullptr);
        EXPECT_EQ(rf_all_gather_tensor(comm, b.get(), b.get(), nullptr), RF_EINVAL);
        EXPECT_EQ(rf_reduce_scatter_tensor(comm, b.get(), b.get(), RF_SUM, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_broadcast_tensor(comm, b.get(), 2, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_all_reduce_tensor(comm, rf_tensor{}, b.get(), RF_SUM, nullptr), RF_EINVAL);
        rf_tensor integers = b.get();
        integers.dtype = RF_I32;
        EXPECT_EQ(rf_all_reduce_tensor(comm, integers, b.get(), RF_SUM, nullptr), RF_EINVAL);
        const int first[] = {0, 2, 3};
        rf_forest forest = {4, 2, first};
        EXPECT_EQ(rf_forest_all_reduce_tensor(comm, &forest, a.get(), 4, b.get(), nullptr),
                  RF_EINVAL);
        EXPECT_EQ(rf_barrier(comm, nullptr), 0) << rf_last_error()->message;
    });
}

TEST(TensorMismatch, OfTheSharesOfAForestIsNamed)
{
    Device device(false);
    ranks::run(threads(2), [&](rf_comm *comm, int rank) {
        Tensor a(device, std::vector<float>(64, 1)), b(device, std::vector<float>(8, 0));
        const int halves[] = {0, 2, 4}, most[] = {0, 3, 4};
        rf_forest forest = {4, 2, rank == 0 ? halves : most};
        EXPECT_EQ(rf_forest_all_reduce_tensor(comm, &forest, a.get(), 8, b.get(), nullptr),
                  RF_EMISMATCH);
        EXPECT_NE(strstr(rf_last_error()->message, "shared out in the same way"), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1 - rank);
    });
}

} // namespace
