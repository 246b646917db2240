/* SPDX-License-Identifier: MIT
 *
 * Messages between two ranks: order within a tag and freedom between tags, exchanges that both
 * begin with a send, messages that cross a collective, and the byte counter.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

class PointToPoint : public testing::TestWithParam<ranks::World>
{
};

TEST_P(PointToPoint, TenThousandTaggedPairsArriveWhateverTheOrderOfTheReceives)
{
    ranks::World world = GetParam();
    world.size = 4;
    ranks::run(world, [](rf_comm *comm, int rank) {
        struct Pair {
            int src, dst, tag;
            size_t count;
        };
        /* In rounds: all ranks send the round's messages, then receive in an order of their own. */
        std::mt19937 common(7), own(static_cast<unsigned>(rank) + 100);
        int pairs = 0;
        for (int round = 0; round < 100; round++) {
            std::vector<Pair> mine, theirs;
            for (int i = 0; i < 100; i++, pairs++) {
                Pair p = {static_cast<int>(common() % 4), 0, i, common() % 900};
                p.dst = (p.src + 1 + static_cast<int>(common() % 3)) % 4;
                if (p.src == rank)
                    mine.push_back(p);
                if (p.dst == rank)
                    theirs.push_back(p);
            }
            std::shuffle(mine.begin(), mine.end(), own);
            std::shuffle(theirs.begin(), theirs.end(), own);
            for (const Pair &p : mine) {
                std::vector<int32_t> data(p.count, p.src * 1000 + p.tag + round);
                ASSERT_EQ(rf_send(comm, data.data(), p.count, RF_I32, p.dst, p.tag, nullptr), RF_OK)
                    << rf_last_error()->message;
            }
            for (const Pair &p : theirs) {
                std::vector<int32_t> data(p.count, -1);
                ASSERT_EQ(rf_recv(comm, data.data(), p.count, RF_I32, p.src, p.tag, nullptr), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(data, std::vector<int32_t>(p.count, p.src * 1000 + p.tag + round));
            }
        }
        EXPECT_EQ(pairs, 10000);
    });
}

TEST_P(PointToPoint, EqualTagsKeepTheirOrder)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (int32_t i = 0; i < 200; i++) {
            int32_t value = i;
            if (rank == 0) {
                ASSERT_EQ(rf_send(comm, &value, 1, RF_I32, 1, 5, nullptr), RF_OK);
            }
            if (rank == 1) {
                ASSERT_EQ(rf_recv(comm, &value, 1, RF_I32, 0, 5, nullptr), RF_OK);
                EXPECT_EQ(value, i);
            }
        }
    });
}

TEST_P(PointToPoint, LongMessagesExchangeWhenBothSendFirst)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        for (size_t count : {size_t{0}, size_t{2048}, size_t{2049}, size_t{3000001}}) {
            std::vector<float> out(count, static_cast<float>(rank + 1)), in(count);
            uint64_t before = rf_comm_sent_bytes(comm);
            ASSERT_EQ(described::sendrecv(comm, out.data(), count, (rank + 1) % size, in.data(),
                                          count, (rank + size - 1) % size, RF_F32, 3, nullptr),
                      RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(in,
                      std::vector<float>(count, static_cast<float>((rank + size - 1) % size + 1)));
            EXPECT_EQ(rf_comm_sent_bytes(comm) - before, count * sizeof(float));
        }
    });
}

TEST_P(PointToPoint, AMessageThatNobodyReceivesYetDoesNotBlockACollective)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        for (int round = 0; round < 5; round++) {
            std::vector<uint8_t> data(6000, static_cast<uint8_t>(rank + round));
            if (rank == 0) {
                ASSERT_EQ(rf_send(comm, data.data(), data.size(), RF_U8, 1, 1, nullptr), RF_OK);
                ASSERT_EQ(rf_send(comm, data.data(), data.size(), RF_U8, 1, 2, nullptr), RF_OK);
            }
            int32_t one = 1;
            ASSERT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(one, rf_comm_size(comm));
            if (rank == 1)
                for (int tag : {2, 1}) {
                    ASSERT_EQ(rf_recv(comm, data.data(), data.size(), RF_U8, 0, tag, nullptr),
                              RF_OK);
                    EXPECT_EQ(data, std::vector<uint8_t>(6000, static_cast<uint8_t>(round)));
                }
        }
    });
}

TEST_P(PointToPoint, AMessageToOneselfIsACopy)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int32_t out[3] = {rank, 2, 3}, in[3] = {};
        ASSERT_EQ(described::sendrecv(comm, out, 3, rank, in, 3, rank, RF_I32, 0, nullptr), RF_OK);
        EXPECT_EQ(in[0], rank);
        EXPECT_EQ(in[2], 3);
    });
}

INSTANTIATE_TEST_SUITE_P(All, PointToPoint, testing::ValuesIn(ranks::worlds({2, 3}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
