/* SPDX-License-Identifier: MIT
 *
 * Buffers of rf_comm_alloc: every collective gives the same bits on them as on the caller's own
 * memory, also if only some ranks use them, in place or not; the bytes counted are the predicted
 * ones; and ranks that die meanwhile are named.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <random>

#include "support/ranks.h"

namespace
{

enum Kind { PRIVATE, SHARED, MIXED, MIXED_WITHIN };

/* in and out of one rank: memory of the library, or the caller's own. */
class Buffers
{
  public:
    Buffers(rf_comm *comm, Kind kind, size_t in_bytes, size_t out_bytes, bool in_place)
        : comm_(comm), own_in_(in_bytes + 1), own_out_(out_bytes + 1)
    {
        int rank = rf_comm_rank(comm);
        bool in_shared = kind == SHARED || kind == MIXED_WITHIN || (kind == MIXED && rank % 2);
        bool out_shared = kind == SHARED || (kind == MIXED && rank % 2);
        EXPECT_EQ(rf_comm_alloc(comm, in_bytes + out_bytes, &shared_), RF_OK);
        in = in_shared ? static_cast<char *>(shared_) : own_in_.data();
        out = in_place     ? in
              : out_shared ? static_cast<char *>(shared_) + in_bytes
                           : own_out_.data();
    }
    ~Buffers()
    {
        rf_comm_free(comm_, shared_);
    }
    char *in, *out;

  private:
    rf_comm *comm_;
    void *shared_ = nullptr;
    std::vector<char> own_in_, own_out_;
};

/* Small whole numbers, so that any type holds them; fractions in floating-point types of `rough`
 * data, whose sums then depend on the order. */
void fill(char *data, size_t count, rf_dtype dtype, unsigned seed, bool rough)
{
    std::mt19937 random(seed);
    for (size_t i = 0; i < count; i++) {
        uint32_t r = random();
        switch (dtype) {
        case RF_F32: {
            float value =
                rough ? static_cast<float>(r) / 65536.0f - 30000.0f : static_cast<float>(r % 7);
            memcpy(data + 4 * i, &value, 4);
            break;
        }
        case RF_F64: {
            double value = rough ? static_cast<double>(r) / 3 : r % 7;
            memcpy(data + 8 * i, &value, 8);
            break;
        }
        case RF_I32: {
            int32_t value = static_cast<int32_t>(r);
            memcpy(data + 4 * i, &value, 4);
            break;
        }
        default: { /* bf16: the upper half of a float */
            float value =
                rough ? static_cast<float>(r) / 65536.0f - 30000.0f : static_cast<float>(r % 7);
            memcpy(data + 2 * i, reinterpret_cast<char *>(&value) + 2, 2);
        }
        }
    }
}

class SharedBuffers : public testing::TestWithParam<ranks::World>
{
};

struct Call {
    rf_coll_op op;
    rf_dtype dtype;
    rf_redop redop;
    rf_order order;
    size_t count;
};

int run(rf_comm *comm, const Call &c, const void *in, void *out, const char *algorithm = nullptr)
{
    rf_coll_opts opts = {};
    opts.order = c.order;
    opts.algorithm = algorithm;
    switch (c.op) {
    case RF_COLL_ALL_REDUCE:
        return rf_all_reduce(comm, in, out, c.count, c.dtype, c.redop, &opts);
    case RF_COLL_REDUCE_SCATTER:
        return rf_reduce_scatter(comm, in, out, c.count, c.dtype, c.redop, &opts);
    case RF_COLL_ALL_GATHER:
        return rf_all_gather(comm, in, out, c.count, c.dtype, &opts);
    case RF_COLL_REDUCE:
        return rf_reduce(comm, in, out, c.count, c.dtype, c.redop, 0, &opts);
    case RF_COLL_BROADCAST:
        memcpy(out, in, c.count * rf_dtype_bytes(c.dtype));
        return rf_broadcast(comm, out, c.count, c.dtype, 0, &opts);
    default:
        return rf_all_to_all(comm, in, out, c.count, c.dtype, &opts);
    }
}

/* Runs the call on the caller's own memory in ring order, and on every kind of buffer; compares all
 * bits and the bytes sent. */
void compare(rf_comm *comm, const Call &c)
{
    size_t ranks = static_cast<size_t>(rf_comm_size(comm)),
           bytes = c.count * rf_dtype_bytes(c.dtype);
    bool in_whole = c.op == RF_COLL_REDUCE_SCATTER || c.op == RF_COLL_ALL_TO_ALL;
    bool out_whole = c.op == RF_COLL_ALL_GATHER || c.op == RF_COLL_ALL_TO_ALL;
    bool has_result = c.op != RF_COLL_REDUCE || rf_comm_rank(comm) == 0;
    size_t in_bytes = in_whole ? bytes * ranks : bytes,
           out_bytes = out_whole ? bytes * ranks : bytes;
    auto seed = static_cast<unsigned>(rf_comm_rank(comm) * 1000 + static_cast<int>(c.count % 997));
    std::vector<char> input(in_bytes + 1), expected(out_bytes + 1);
    fill(input.data(), in_bytes / rf_dtype_bytes(c.dtype), c.dtype, seed, c.order != RF_ORDER_ANY);
    Call reference = c;
    reference.order = c.order == RF_ORDER_ANY ? RF_ORDER_RING : c.order;
    {
        Buffers own(comm, PRIVATE, in_bytes, out_bytes, false);
        memcpy(own.in, input.data(), in_bytes);
        ASSERT_EQ(run(comm, reference, own.in, expected.data()), RF_OK) << rf_last_error()->message;
    }
    for (Kind kind : {PRIVATE, SHARED, MIXED, MIXED_WITHIN})
        for (bool in_place : {false, true}) {
            if (in_place && c.op != RF_COLL_ALL_REDUCE)
                continue;
            Buffers b(comm, kind, in_bytes, out_bytes, in_place);
            memset(b.out, 0xee, out_bytes);
            memcpy(b.in, input.data(), in_bytes);
            uint64_t before = rf_comm_sent_bytes(comm), foretold = 0;
            ASSERT_EQ(run(comm, c, b.in, b.out), RF_OK) << rf_last_error()->message;
            ASSERT_EQ(rf_coll_sent_bytes(c.op, rf_comm_rank(comm), rf_comm_size(comm), c.count,
                                         c.dtype, c.order, 0, &foretold),
                      RF_OK);
            EXPECT_EQ(rf_comm_sent_bytes(comm) - before, foretold);
            if (has_result) {
                EXPECT_EQ(memcmp(b.out, expected.data(), out_bytes), 0)
                    << rf_coll_op_name(c.op) << " of " << c.count << " " << rf_dtype_name(c.dtype)
                    << " kind " << kind << (in_place ? " in place" : "");
            }
        }
}

TEST_P(SharedBuffers, AllReducesHaveTheSameBitsAsOnPrivateMemory)
{
    const bool one_host = GetParam().hosts.empty(); /* otherwise long ones are like short ones */
    ranks::run(GetParam(), [one_host](rf_comm *comm, int) {
        for (size_t count : {1, 3, 1000, 5001, 70001, one_host ? 600011 : 9})
            for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE, RF_ORDER_ANY}) {
                compare(comm, {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, order, count});
                compare(comm, {RF_COLL_ALL_REDUCE, RF_BF16, RF_SUM, order, count});
            }
        for (rf_redop redop : {RF_AVG, RF_MIN, RF_MAX, RF_PROD}) {
            compare(comm, {RF_COLL_ALL_REDUCE, RF_F32, redop, RF_ORDER_RING, 40009});
            compare(comm, {RF_COLL_ALL_REDUCE, RF_I32, redop, RF_ORDER_RING, 40009});
        }
        compare(comm, {RF_COLL_ALL_REDUCE, RF_F64, RF_SUM, RF_ORDER_RING, 40009});
        if (one_host)
            compare(comm, {RF_COLL_ALL_REDUCE, RF_F32, RF_SUM, RF_ORDER_RING, (4 << 20) + 7});
    });
}

TEST_P(SharedBuffers, OtherCollectivesHaveTheSameBitsAsOnPrivateMemory)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        for (rf_coll_op op : {RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_REDUCE,
                              RF_COLL_BROADCAST, RF_COLL_ALL_TO_ALL})
            for (size_t count : {1, 1000, 5001, 70001, 300007})
                compare(comm, {op, RF_F32, RF_SUM, RF_ORDER_RING, count});
    });
}

TEST_P(SharedBuffers, MessagesOfOnceSharedAndFreedMemoryAreNeverMixedUp)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (int i = 0; i < 50; i++) {
            size_t count = 20000 + static_cast<size_t>(i) * 371;
            void *memory = nullptr;
            ASSERT_EQ(rf_comm_alloc(comm, count * sizeof(int32_t), &memory), RF_OK);
            auto *data = static_cast<int32_t *>(memory);
            for (size_t k = 0; k < count; k++)
                data[k] = rank * 3 + i;
            ASSERT_EQ(rf_all_reduce(comm, data, data, count, RF_I32, RF_MAX, nullptr), RF_OK);
            for (size_t k = 0; k < count; k++)
                ASSERT_EQ(data[k], (rf_comm_size(comm) - 1) * 3 + i);
            rf_comm_free(comm, memory);
        }
        EXPECT_EQ(rf_comm_alloc(comm, SIZE_MAX / 2, nullptr), RF_EINVAL);
        rf_comm_free(comm, nullptr);
        void *none = nullptr;
        EXPECT_EQ(rf_comm_alloc(comm, 0, &none), RF_OK);
        EXPECT_NE(none, nullptr);
        rf_comm_free(comm, none);
    });
}

TEST_P(SharedBuffers, ARankKilledInTheMidstIsNamedByAll)
{
    ranks::World world = GetParam();
    if (world.provider == "loopback" || world.size < 2)
        GTEST_SKIP() << "a thread cannot be killed by a signal";
    world.expect_killed = 1;
    ranks::run(world, [](rf_comm *comm, int rank) {
        const size_t count = 4 << 20;
        void *memory = nullptr;
        ASSERT_EQ(rf_comm_alloc(comm, count * 4, &memory), RF_OK);
        int rc = RF_OK;
        for (int i = 0; rc == RF_OK; i++) {
            if (rank == 1 && i == 5) {
                signal(SIGALRM, [](int) { raise(SIGKILL); });
                ualarm(3000, 0);
            }
            rc = rf_all_reduce(comm, memory, memory, count, RF_F32, RF_MAX, nullptr);
        }
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        rf_comm_free(comm, memory);
    });
}

TEST_P(SharedBuffers, ADifferentCallIsNamedWhateverTheBuffers)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        if (rf_comm_size(comm) < 2)
            return;
        void *memory = nullptr;
        ASSERT_EQ(rf_comm_alloc(comm, 1 << 20, &memory), RF_OK);
        size_t count = rank == 1 ? 50000 : 100000;
        EXPECT_EQ(rf_all_reduce(comm, memory, memory, count, RF_F32, RF_SUM, nullptr),
                  RF_EMISMATCH);
        EXPECT_NE(strstr(rf_last_error()->message, "50000"), nullptr) << rf_last_error()->message;
        rf_comm_free(comm, memory);
    });
}

std::vector<ranks::World> worlds()
{
    std::vector<ranks::World> all;
    for (int size : {1, 2, 3, 4, 5}) {
        ranks::World world;
        world.provider = "shm";
        world.size = size;
        world.reads = "0";
        world.writes = size % 2 == 0 ? "streamed" : "cached";
        all.push_back(world);
        world.reads = "1";
        if (size == 2 || size == 5)
            all.push_back(world);
    }
    ranks::World world;
    world.size = 3;
    all.push_back(world);
    world.provider = "tcp";
    all.push_back(world);
    world.provider = "shm+tcp";
    world.hosts = "a,b,b";
    all.push_back(world);
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, SharedBuffers, testing::ValuesIn(worlds()),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
