/* SPDX-License-Identifier: MIT
 *
 * Ranks that call several communicators in different orders, and so wait for each other: every rank
 * gets RF_EMISMATCH with all calls, from the call in which it waits. Also cases that look like it
 * but end: a rank that is late, and ranks that divide their communicators among threads.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/fair_clock.h"
#include "support/ranks.h"

namespace
{

constexpr double promised_s = 2;

class Orders : public testing::TestWithParam<ranks::World>
{
};

int all_reduce(rf_comm *comm, size_t count)
{
    std::vector<float> data(count, 1.0f);
    return rf_all_reduce(comm, data.data(), data.data(), count, RF_F32, RF_SUM, nullptr);
}

/* A communicator of all ranks. */
rf_comm *all_of(rf_comm *comm)
{
    rf_comm *group = nullptr;
    EXPECT_EQ(rf_comm_split(comm, 0, rf_comm_rank(comm), &group), RF_OK)
        << rf_last_error()->message;
    return group;
}

void expect_named(int rc, const std::vector<std::string> &parts)
{
    EXPECT_EQ(rc, RF_EMISMATCH) << rf_last_error()->message;
    for (const std::string &part : parts)
        EXPECT_NE(strstr(rf_last_error()->message, part.c_str()), nullptr)
            << part << ": " << rf_last_error()->message;
}

TEST_P(Orders, OfTwoCommunicatorsThatDifferAreReportedOnEveryRank)
{
    ranks::run(
        GetParam(),
        [](rf_comm *comm, int rank) {
            rf_comm *other = all_of(comm);
            const bool is_last = rank == rf_comm_size(comm) - 1;
            const FairClock clock;
            const int rc = is_last ? all_reduce(other, 20) : all_reduce(comm, 10);
            EXPECT_LT(clock.seconds(), promised_s);
            expect_named(rc, {"call communicators in the same order on all ranks: rank ",
                              "waits in all_reduce(10 f32 sum) of communicator 1 for rank " +
                                  std::to_string(rf_comm_size(comm) - 1),
                              "waits in all_reduce(20 f32 sum) of communicator 2 for rank 0"});
            rf_comm_close(other);
        },
        [](int, int closed) { EXPECT_EQ(closed, RF_EMISMATCH); });
}

/* After calls that match on all ranks; the wait is for messages. */
TEST_P(Orders, OfMessagesAndCollectivesThatDifferAreReported)
{
    for (size_t count : {size_t{10}, size_t{100000}})
        ranks::run(GetParam(), [=](rf_comm *comm, int rank) {
            rf_comm *other = all_of(comm);
            std::vector<float> data(count);
            for (rf_comm *any : {comm, other, comm})
                EXPECT_EQ(all_reduce(any, 7), RF_OK) << rf_last_error()->message;
            int rc;
            if (rank == 1) /* a short send completes without its receiver, so the receive waits */
                rc = rf_barrier(other, nullptr);
            else if (rank == 0 && count > 10)
                rc = rf_send(comm, data.data(), count, RF_F32, 1, 0, nullptr);
            else
                rc = rf_recv(comm, data.data(), count, RF_F32, 1, 0, nullptr);
            expect_named(rc, {"waits in barrier() of communicator 2 for rank 0",
                              "of communicator 1 for rank 1"});
            rf_comm_close(other);
        });
}

INSTANTIATE_TEST_SUITE_P(All, Orders, testing::ValuesIn(ranks::worlds({2}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

/* These wait for seconds, and providers do not matter: threads, and processes. */
std::vector<ranks::World> two_kinds()
{
    std::vector<ranks::World> worlds(2);
    worlds[1].provider = "shm";
    return worlds;
}

class OrdersThatEnd : public testing::TestWithParam<ranks::World>
{
};

TEST_P(OrdersThatEnd, WhenALateRankComesAreNoError)
{
    ranks::run(
        GetParam(),
        [](rf_comm *comm, int rank) {
            rf_comm *other = all_of(comm);
            EXPECT_EQ(all_reduce(comm, 10), RF_OK) << rf_last_error()->message;
            const uint64_t until = rf_now_ns() + 1500000000;
            while (rank == 0 && rf_now_ns() < until)
                std::this_thread::yield();
            EXPECT_EQ(all_reduce(other, 10), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(all_reduce(comm, 10), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(rf_comm_close(other), RF_OK) << rf_last_error()->message;
        },
        [](int, int closed) { EXPECT_EQ(closed, RF_OK) << rf_last_error()->message; });
}

/* On each rank one thread waits in a communicator for a message that another thread of the peer
 * sends only after a long wait. */
TEST_P(OrdersThatEnd, ByAnotherThreadOfTheRankAreNoError)
{
    ranks::run(
        GetParam(),
        [](rf_comm *comm, int rank) {
            rf_comm *other = all_of(comm), *mine = rank == 0 ? comm : other,
                    *theirs = rank == 0 ? other : comm;
            std::thread second([=] {
                EXPECT_EQ(rf_comm_wait(theirs), RF_OK) << rf_last_error()->message;
                const uint64_t until = rf_now_ns() + 1000000000;
                while (rf_now_ns() < until)
                    std::this_thread::yield();
                EXPECT_EQ(all_reduce(theirs, 10), RF_OK) << rf_last_error()->message;
            });
            EXPECT_EQ(all_reduce(mine, 10), RF_OK) << rf_last_error()->message;
            second.join();
            EXPECT_EQ(rf_comm_close(other), RF_OK) << rf_last_error()->message;
        },
        [](int, int closed) { EXPECT_EQ(closed, RF_OK) << rf_last_error()->message; });
}
INSTANTIATE_TEST_SUITE_P(All, OrdersThatEnd, testing::ValuesIn(two_kinds()),
                         [](const auto &info) { return ranks::name(info.param); });

/* Collectives and messages on any communicator, in one order, with ranks that are often late enough
 * for the others to search for a deadlock. */
void run_program(unsigned seed)
{
    ranks::World world;
    world.size = 3;
    ranks::run(
        world,
        [=](rf_comm *comm, int rank) {
            std::vector<rf_comm *> comms{comm, all_of(comm), nullptr, nullptr, nullptr};
            for (int r = 0; r < 3; r++) /* of the other two */
                ASSERT_EQ(rf_comm_split(comm, rank == r ? -1 : 0, rank,
                                        &comms[2 + static_cast<size_t>(r)]),
                          RF_OK)
                    << rf_last_error()->message;
            std::mt19937 common(seed), own(seed * 3 + static_cast<unsigned>(rank));
            std::vector<float> data(100000);
            for (int i = 0; i < 12; i++) {
                rf_comm *in = comms[common() % comms.size()];
                const int kind = static_cast<int>(common() % 3);
                const size_t count = common() % 2 ? 10 : data.size();
                if (own() % 8 == 0)
                    std::this_thread::sleep_for(std::chrono::milliseconds(260 + own() % 200));
                int rc = RF_OK;
                if (in && kind > 0)
                    rc = all_reduce(in, count);
                else if (in && rf_comm_rank(in) == 0)
                    rc = rf_send(in, data.data(), count, RF_F32, 1, 0, nullptr);
                else if (in && rf_comm_rank(in) == 1)
                    rc = rf_recv(in, data.data(), count, RF_F32, 0, 0, nullptr);
                EXPECT_EQ(rc, RF_OK) << "seed " << seed << ": " << rf_last_error()->message;
            }
            for (size_t i = 1; i < comms.size(); i++)
                EXPECT_EQ(rf_comm_close(comms[i]), RF_OK) << rf_last_error()->message;
        },
        [](int, int closed) { EXPECT_EQ(closed, RF_OK) << rf_last_error()->message; });
}

TEST(RandomPrograms, OnSeveralCommunicatorsWithLateRanksAreNoError)
{
    const char *programs = getenv("RF_PROGRAMS");
    const unsigned count = programs ? static_cast<unsigned>(atoi(programs)) : 16;
    std::atomic<unsigned> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; i++) /* they wait most of the time */
        threads.emplace_back([&] {
            for (unsigned seed; (seed = next++) < count;)
                run_program(seed);
        });
    for (std::thread &thread : threads)
        thread.join();
}

class OrdersOfThree : public testing::TestWithParam<ranks::World>
{
};

/* Rank r waits for rank r+1 in the group of the two. */
TEST_P(OrdersOfThree, OfGroupsInACycleAreReportedOnEveryRank)
{
    ranks::run(
        GetParam(),
        [](rf_comm *comm, int rank) {
            std::vector<rf_comm *> groups(3); /* of r and r+1; NULL if this rank is in neither */
            for (int r = 0; r < 3; r++)
                ASSERT_EQ(rf_comm_split(comm, rank == r || rank == (r + 1) % 3 ? 0 : -1, rank,
                                        &groups[static_cast<size_t>(r)]),
                          RF_OK)
                    << rf_last_error()->message;
            const FairClock clock;
            const int rc = all_reduce(groups[static_cast<size_t>(rank)], 10);
            EXPECT_LT(clock.seconds(), promised_s);
            std::vector<std::string> parts;
            for (int r = 0; r < 3; r++)
                parts.push_back(" of communicator " + std::to_string(r + 2) + " for rank " +
                                std::to_string((r + 1) % 3));
            expect_named(rc, parts);
            for (rf_comm *group : groups)
                rf_comm_close(group);
        },
        [](int, int closed) { EXPECT_EQ(closed, RF_OK) << rf_last_error()->message; });
}

/* The third rank belongs to only one of the two, and learns of it there. */
TEST_P(OrdersOfThree, OfTwoCommunicatorsThatDifferAreReportedToTheThirdRank)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        rf_comm *pair = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank < 2 ? 0 : -1, -rank, &pair), RF_OK)
            << rf_last_error()->message;
        const int rc = rank == 1 ? all_reduce(pair, 20) : all_reduce(comm, 10);
        expect_named(rc, {"waits in all_reduce(10 f32 sum) of communicator 1 for rank 1",
                          "waits in all_reduce(20 f32 sum) of communicator 2 for rank 0"});
        rf_comm_close(pair);
    });
}
INSTANTIATE_TEST_SUITE_P(All, OrdersOfThree, testing::ValuesIn(ranks::worlds({3}, {3})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
