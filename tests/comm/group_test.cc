/* SPDX-License-Identifier: MIT
 *
 * Groups of calls: neighbours that exchange in any order, hundreds of messages at once (also to
 * oneself), collectives behind them, calls that a group refuses, and errors inside one.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <algorithm>
#include <random>

#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

class Group : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Group, EveryRankSendsToAllBeforeItReceives)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        for (size_t count : {size_t{0}, size_t{1}, size_t{2048}, size_t{2049}, size_t{400001}}) {
            std::vector<std::vector<int32_t>> out, in;
            for (int r = 0; r < size; r++) {
                out.emplace_back(count, rank * 100 + r);
                in.emplace_back(count, -1);
            }
            ASSERT_EQ(rf_group_start(comm), RF_OK);
            for (int r = 0; r < size; r++)
                ASSERT_EQ(
                    rf_send(comm, out[static_cast<size_t>(r)].data(), count, RF_I32, r, 3, nullptr),
                    RF_OK)
                    << rf_last_error()->message;
            for (int r = size - 1; r >= 0; r--)
                ASSERT_EQ(
                    rf_recv(comm, in[static_cast<size_t>(r)].data(), count, RF_I32, r, 3, nullptr),
                    RF_OK);
            ASSERT_EQ(rf_group_end(comm), RF_OK) << rf_last_error()->message;
            for (int r = 0; r < size; r++)
                EXPECT_EQ(in[static_cast<size_t>(r)], std::vector<int32_t>(count, r * 100 + rank));
        }
    });
}

TEST_P(Group, HundredsOfMessagesInAnyOrderArriveInTheOrderOfTheirTags)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        std::mt19937 common(11), own(static_cast<unsigned>(rank) + 50);
        for (int round = 0; round < 4; round++) {
            struct Message {
                int src, dst, tag, number;
                size_t count;
            };
            std::vector<Message> sends, receives;
            for (int i = 0; i < 250; i++) {
                Message m = {};
                m.src = static_cast<int>(common() % static_cast<unsigned>(size));
                m.dst = static_cast<int>(common() % static_cast<unsigned>(size));
                m.tag = static_cast<int>(common() % 4);
                m.number = i;
                m.count = common() % 3 ? common() % 600 : common() % 9000;
                if (m.src == rank)
                    sends.push_back(m);
                if (m.dst == rank)
                    receives.push_back(m);
            }
            /* Peers in any order; equal peer and tag: in order. */
            std::vector<int> key(static_cast<size_t>(size) * 4);
            for (size_t i = 0; i < key.size(); i++)
                key[i] = static_cast<int>(i);
            std::shuffle(key.begin(), key.end(), own);
            std::stable_sort(receives.begin(), receives.end(),
                             [&](const Message &a, const Message &b) {
                                 return key[static_cast<size_t>(a.src * 4 + a.tag)] <
                                        key[static_cast<size_t>(b.src * 4 + b.tag)];
                             });
            std::vector<std::vector<int32_t>> out, in;
            for (const Message &m : sends)
                out.emplace_back(m.count, m.number + 1000 * round);
            for (const Message &m : receives)
                in.emplace_back(m.count, -1);
            ASSERT_EQ(rf_group_start(comm), RF_OK);
            bool receives_first = own() % 2;
            for (int pass = 0; pass < 2; pass++) {
                bool receiving = (pass == 0) == receives_first;
                for (size_t i = 0; receiving && i < receives.size(); i++)
                    ASSERT_EQ(rf_recv(comm, in[i].data(), in[i].size(), RF_I32, receives[i].src,
                                      receives[i].tag, nullptr),
                              RF_OK);
                for (size_t i = 0; !receiving && i < sends.size(); i++)
                    ASSERT_EQ(rf_send(comm, out[i].data(), out[i].size(), RF_I32, sends[i].dst,
                                      sends[i].tag, nullptr),
                              RF_OK);
            }
            ASSERT_EQ(rf_group_end(comm), RF_OK) << rf_last_error()->message;
            for (size_t i = 0; i < receives.size(); i++)
                ASSERT_EQ(in[i], std::vector<int32_t>(receives[i].count,
                                                      receives[i].number + 1000 * round));
        }
    });
}

TEST_P(Group, CollectivesFollowInTheOrderOfTheirCalls)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        std::vector<int32_t> whole(static_cast<size_t>(size) * 10, -1), mine(10, rank);
        std::vector<size_t> counts(static_cast<size_t>(size), 10);
        int32_t sum = rank, next = -1, again = 0;
        ASSERT_EQ(rf_group_start(comm), RF_OK);
        {
            std::string label = "gone before the end";
            rf_coll_opts opts = {};
            opts.label = label.c_str();
            ASSERT_EQ(rf_all_reduce(comm, &sum, &sum, 1, RF_I32, RF_SUM, &opts), RF_OK);
        }
        ASSERT_EQ(rf_group_start(comm), RF_OK); /* within a group */
        ASSERT_EQ(described::sendrecv(comm, &rank, 1, (rank + 1) % size, &next, 1,
                                      (rank + size - 1) % size, RF_I32, 0, nullptr),
                  RF_OK);
        ASSERT_EQ(rf_all_reduce(comm, &sum, &again, 1, RF_I32, RF_MAX, nullptr), RF_OK);
        ASSERT_EQ(rf_group_end(comm), RF_OK);
        ASSERT_EQ(described::all_gather_v(comm, mine.data(), whole.data(), counts.data(), RF_I32,
                                          nullptr),
                  RF_OK);
        counts.assign(counts.size(), 77); /* copied */
        EXPECT_EQ(sum, rank);             /* nothing has run */
        ASSERT_EQ(rf_group_end(comm), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(sum, size * (size - 1) / 2);
        EXPECT_EQ(again, sum);
        EXPECT_EQ(next, (rank + size - 1) % size);
        for (size_t i = 0; i < whole.size(); i++)
            EXPECT_EQ(whole[i], static_cast<int32_t>(i / 10));
        ASSERT_EQ(rf_group_start(comm), RF_OK);
        EXPECT_EQ(rf_group_end(comm), RF_OK); /* empty */
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

TEST_P(Group, AMismatchInOneIsNamed)
{
    if (GetParam().size == 1)
        return;
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        std::vector<float> out(5000), in(5000);
        ASSERT_EQ(rf_group_start(comm), RF_OK);
        for (int tag : {1, 2})
            ASSERT_EQ(rf_send(comm, out.data(), 5000, RF_F32, (rank + 1) % size, tag, nullptr),
                      RF_OK);
        ASSERT_EQ(rf_recv(comm, in.data(), 5000, RF_F32, (rank + size - 1) % size, 1, nullptr),
                  RF_OK);
        ASSERT_EQ(rf_recv(comm, in.data(), rank == 1 ? 4999 : 5000, RF_F32,
                          (rank + size - 1) % size, 2, nullptr),
                  RF_OK);
        int rc = rf_group_end(comm);
        if (rc == RF_OK)
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "4999"), nullptr) << rf_last_error()->message;
    });
}

INSTANTIATE_TEST_SUITE_P(All, Group, testing::ValuesIn(ranks::worlds({1, 2, 3, 4, 5, 6}, {2, 4})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(GroupErrors, WhatCannotBeInOneIsRefusedAndTheRestRuns)
{
    rf_comm *comm = nullptr, *other = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
    EXPECT_EQ(rf_group_start(nullptr), RF_EINVAL);
    EXPECT_EQ(rf_group_end(comm), RF_EINVAL);
    int32_t x = 5, y = 0;
    size_t one = 1;
    rf_request *request = nullptr;
    rf_coll_opts opts = {};
    opts.request = &request;
    ASSERT_EQ(rf_group_start(comm), RF_OK);
    EXPECT_EQ(described::all_to_all_v(comm, &x, &one, &y, &one, RF_I32, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_comm_split(comm, 0, 0, &other), RF_EINVAL);
    EXPECT_EQ(rf_comm_shrink(comm, 0, nullptr, &other), RF_EINVAL);
    EXPECT_EQ(rf_send(comm, &x, 1, RF_I32, 7, 0, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_all_reduce(comm, &x, &y, 1, RF_I32, RF_SUM, nullptr), RF_OK);
    EXPECT_EQ(rf_group_end(comm), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(y, 5);
    ASSERT_EQ(rf_group_start(comm), RF_OK);
    EXPECT_EQ(rf_send(comm, &x, 1, RF_I32, 0, 9, nullptr), RF_OK);
    EXPECT_EQ(rf_group_end(comm), RF_EINVAL); /* nobody receives it */
    ASSERT_EQ(rf_group_start(comm), RF_OK);
    EXPECT_EQ(rf_recv(comm, &x, 1, RF_I32, 0, 9, nullptr), RF_OK);
    EXPECT_EQ(rf_group_end(comm), RF_EINVAL); /* nobody sends it */
    ASSERT_EQ(rf_group_start(comm), RF_OK);
    EXPECT_EQ(rf_all_reduce(comm, &x, &y, 1, RF_I32, RF_SUM, nullptr), RF_OK);
    int32_t z = 0;
    EXPECT_EQ(rf_all_reduce(comm, &x, &z, 1, RF_I32, RF_SUM, &opts), RF_OK);
    rf_comm_close(comm); /* with an open group */
    EXPECT_EQ(rf_request_wait(request, 0), RF_EABORT);
    rf_request_free(request);
}

TEST(GroupErrors, ADeathInOneIsNamed)
{
    ranks::World world;
    world.size = 4;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 30;
    ranks::run(world, [](rf_comm *comm, int rank) {
        int rc = RF_OK;
        std::vector<float> out(3000), in(3000);
        while (rc == RF_OK) {
            ASSERT_EQ(rf_group_start(comm), RF_OK);
            for (int r = 0; r < 4; r++) {
                EXPECT_EQ(rf_send(comm, out.data(), 3000, RF_F32, r, 1, nullptr), RF_OK);
                EXPECT_EQ(rf_recv(comm, in.data(), 3000, RF_F32, r, 1, nullptr), RF_OK);
            }
            rc = rf_group_end(comm);
        }
        if (rank == 2)
            return;
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 2);
        EXPECT_EQ(rf_group_start(comm), RF_OK);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
        EXPECT_EQ(rf_group_end(comm), RF_EABORT);
    });
}

} // namespace
