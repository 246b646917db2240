/* SPDX-License-Identifier: MIT
 *
 * Checksums of messages: damage is detected in every operation and at every position, and all ranks
 * name both ends of the link. Nothing else changes. Ranks whose settings differ do not start.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <random>
#include <thread>

#include "support/described_calls.h"
#include "support/ranks.h"

extern "C" {
#include "base/base.h"
}

namespace
{

TEST(Checksum, IsTheSameWithAndWithoutTheInstructionAndChangesWithEveryByte)
{
    std::mt19937 random(3);
    std::vector<uint8_t> data(4099);
    for (uint8_t &byte : data)
        byte = static_cast<uint8_t>(random());
    for (size_t bytes : {0, 1, 7, 8, 127, 128, 129, 159, 160, 1000, 4098})
        for (size_t offset : {0, 1}) {
            uint32_t sum = rf_checksum(data.data() + offset, bytes, 5);
            EXPECT_EQ(rf_checksum_by(false, data.data() + offset, bytes, 5), sum);
            EXPECT_NE(rf_checksum(data.data() + offset, bytes, 6), sum);
            for (size_t i = 0; i < bytes; i++)
                for (uint8_t bit : {1, 16, 128}) {
                    data[offset + i] ^= bit;
                    EXPECT_NE(rf_checksum(data.data() + offset, bytes, 5), sum);
                    data[offset + i] ^= bit;
                }
        }
    /* The check value of CRC-32C; short data take one lane. */
    EXPECT_EQ(rf_checksum("123456789", 9, 0), 0xe3069283u);
}

struct Operation {
    const char *name;
    std::function<int(rf_comm *comm, size_t count, std::vector<float> &in, std::vector<float> &out)>
        run;
};

std::vector<Operation> operations()
{
    using V = std::vector<float>;
    auto counts = [](rf_comm *comm, size_t count) {
        std::vector<size_t> all(static_cast<size_t>(rf_comm_size(comm)), count);
        all[0] = count / 2 + 1;
        return all;
    };
    return {
        {"all_reduce",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_all_reduce(c, in.data(), out.data(), n, RF_F32, RF_SUM, nullptr);
         }},
        {"reduce_scatter",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_reduce_scatter(c, in.data(), out.data(), n, RF_F32, RF_SUM, nullptr);
         }},
        {"all_gather",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_all_gather(c, in.data(), out.data(), n, RF_F32, nullptr);
         }},
        {"broadcast", [](rf_comm *c, size_t n, V &in,
                         V &) { return rf_broadcast(c, in.data(), n, RF_F32, 1, nullptr); }},
        {"reduce",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_reduce(c, in.data(), out.data(), n, RF_F32, RF_SUM, 1, nullptr);
         }},
        {"gather",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_gather(c, in.data(), out.data(), n, RF_F32, 1, nullptr);
         }},
        {"scatter",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_scatter(c, in.data(), out.data(), n, RF_F32, 1, nullptr);
         }},
        {"all_to_all",
         [](rf_comm *c, size_t n, V &in, V &out) {
             return rf_all_to_all(c, in.data(), out.data(), n, RF_F32, nullptr);
         }},
        {"all_gather_v",
         [=](rf_comm *c, size_t n, V &in, V &out) {
             return described::all_gather_v(c, in.data(), out.data(), counts(c, n).data(), RF_F32,
                                            nullptr);
         }},
        {"reduce_scatter_v",
         [=](rf_comm *c, size_t n, V &in, V &out) {
             return described::reduce_scatter_v(c, in.data(), out.data(), counts(c, n).data(),
                                                RF_F32, RF_SUM, nullptr);
         }},
        {"sendrecv",
         [](rf_comm *c, size_t n, V &in, V &out) {
             int rank = rf_comm_rank(c), size = rf_comm_size(c);
             return described::sendrecv(c, in.data(), n, (rank + 1) % size, out.data(), n,
                                        (rank + size - 1) % size, RF_F32, 2, nullptr);
         }},
    };
}

/* Opens with checksums; ranks are threads. */
void run_checked(ranks::World world, const ranks::Body &body)
{
    world.checksum = true;
    ranks::run(world, body);
}

TEST(Checksum, NamesTheLinkOfADamagedMessageInEveryOperation)
{
    for (const Operation &operation : operations())
        for (int size : {2, 3, 5})
            for (size_t count : {size_t{40}, size_t{5000}, size_t{150000}})
                for (uint64_t message : {1, 2, 9}) {
                    ranks::World world;
                    world.size = size;
                    world.faults.damage_message = message;
                    run_checked(world, [&](rf_comm *comm, int rank) {
                        SCOPED_TRACE(operation.name);
                        std::vector<float> in(count * static_cast<size_t>(size), 1.0f),
                            out(in.size());
                        int rc = RF_OK;
                        /* A call may send fewer than nine messages, and may complete here. */
                        for (int i = 0; i < 12 && rc == RF_OK; i++)
                            rc = operation.run(comm, count, in, out);
                        if (rc == RF_OK)
                            rc = rf_barrier(comm, nullptr);
                        const rf_error error = *rf_last_error();
                        EXPECT_EQ(rc, RF_ECORRUPT)
                            << "rank " << rank << " of " << size << ", " << count << ", message "
                            << message << ": " << error.message;
                        int from = -1, to = -1;
                        const char *link = strstr(error.message, "message from rank ");
                        ASSERT_NE(link, nullptr) << error.message;
                        ASSERT_EQ(sscanf(link, "message from rank %d to rank %d", &from, &to), 2);
                        EXPECT_NE(from, to);
                        EXPECT_LT(to, size);
                        EXPECT_EQ(error.rank, from) << error.message;
                    });
                }
}

TEST(Checksum, WithoutItADamagedMessageIsAWrongResult)
{
    ranks::World world;
    world.faults.damage_message = 1;
    ranks::run(world, [&](rf_comm *comm, int) {
        std::vector<int32_t> data(1000, 1);
        EXPECT_EQ(rf_all_reduce(comm, data.data(), data.data(), 1000, RF_I32, RF_SUM, nullptr),
                  RF_OK);
    });
}

class ChecksumOver : public testing::TestWithParam<ranks::World>
{
};

TEST_P(ChecksumOver, ChangesNoResultAndNoMismatch)
{
    run_checked(GetParam(), [&](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        for (size_t count : {size_t{0}, size_t{1}, size_t{1001}, size_t{700001}}) {
            std::vector<int32_t> in(count), out(count);
            for (size_t i = 0; i < count; i++)
                in[i] = static_cast<int32_t>(i) + rank;
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_I32, RF_SUM, nullptr),
                      RF_OK)
                << rf_last_error()->message;
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], static_cast<int32_t>(i) * size + size * (size - 1) / 2);
            ASSERT_EQ(described::sendrecv(comm, in.data(), count, (rank + 1) % size, out.data(),
                                          count, (rank + size - 1) % size, RF_I32, 1, nullptr),
                      RF_OK)
                << rf_last_error()->message;
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], static_cast<int32_t>(i) + (rank + size - 1) % size);
        }
        rf_comm *group = nullptr;
        ASSERT_EQ(rf_comm_split(comm, 0, 0, &group), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(rf_barrier(group, nullptr), RF_OK);
        rf_comm_close(group);
        std::vector<float> data(1000);
        EXPECT_EQ(rf_all_reduce(comm, data.data(), data.data(), rank == 1 ? 999u : 1000u, RF_F32,
                                RF_SUM, nullptr),
                  RF_EMISMATCH)
            << rf_last_error()->message;
    });
}

INSTANTIATE_TEST_SUITE_P(All, ChecksumOver, testing::ValuesIn(ranks::worlds({2, 3, 4}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(Checksum, RanksThatDisagreeAboutItDoNotStart)
{
    rf_loopback *loopback = nullptr;
    ASSERT_EQ(rf_loopback_create(2, nullptr, &loopback), RF_OK);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; rank++)
        threads.emplace_back([=] {
            rf_comm_opts opts = {};
            opts.checksum = rank == 1;
            rf_comm *comm = nullptr;
            EXPECT_EQ(rf_comm_open_loopback(loopback, rank, &opts, &comm), RF_EINVAL);
            EXPECT_NE(strstr(rf_last_error()->message, "checksum"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1 - rank);
        });
    for (std::thread &thread : threads)
        thread.join();
    rf_loopback_destroy(loopback);
}

} // namespace
