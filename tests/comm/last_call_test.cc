/* SPDX-License-Identifier: MIT
 *
 * The last call of a job: no later call can reveal that ranks have called different things, so
 * closing reports it. For any two different last calls, every rank gets RF_EMISMATCH, from the call
 * or from the close.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/ranks.h"

namespace
{

struct Call {
    const char *name;
    int (*run)(rf_comm *comm, float *a, float *b);
    bool is_point = false;
};

int next_of(const rf_comm *comm)
{
    return (rf_comm_rank(comm) + 1) % rf_comm_size(comm);
}

/* Ten elements each, unless the count is what differs. */
const std::vector<Call> calls{
    {"all_reduce", [](rf_comm *c, float *a,
                      float *b) { return rf_all_reduce(c, a, b, 10, RF_F32, RF_SUM, nullptr); }},
    {"all_reduce of 11",
     [](rf_comm *c, float *a, float *b) {
         return rf_all_reduce(c, a, b, 11, RF_F32, RF_SUM, nullptr);
     }},
    {"all_reduce of i32",
     [](rf_comm *c, float *a, float *b) {
         return rf_all_reduce(c, a, b, 10, RF_I32, RF_SUM, nullptr);
     }},
    {"all_reduce by max",
     [](rf_comm *c, float *a, float *b) {
         return rf_all_reduce(c, a, b, 10, RF_F32, RF_MAX, nullptr);
     }},
    {"reduce_scatter",
     [](rf_comm *c, float *a, float *b) {
         return rf_reduce_scatter(c, a, b, 10, RF_F32, RF_SUM, nullptr);
     }},
    {"all_gather",
     [](rf_comm *c, float *a, float *b) { return rf_all_gather(c, a, b, 10, RF_F32, nullptr); }},
    {"broadcast from 0",
     [](rf_comm *c, float *a, float *) { return rf_broadcast(c, a, 10, RF_F32, 0, nullptr); }},
    {"broadcast from 1",
     [](rf_comm *c, float *a, float *) { return rf_broadcast(c, a, 10, RF_F32, 1, nullptr); }},
    {"broadcast of 11 from 1",
     [](rf_comm *c, float *a, float *) { return rf_broadcast(c, a, 11, RF_F32, 1, nullptr); }},
    {"reduce to 0", [](rf_comm *c, float *a,
                       float *b) { return rf_reduce(c, a, b, 10, RF_F32, RF_SUM, 0, nullptr); }},
    {"reduce to 1", [](rf_comm *c, float *a,
                       float *b) { return rf_reduce(c, a, b, 10, RF_F32, RF_SUM, 1, nullptr); }},
    {"gather to 0",
     [](rf_comm *c, float *a, float *b) { return rf_gather(c, a, b, 10, RF_F32, 0, nullptr); }},
    {"gather to 1",
     [](rf_comm *c, float *a, float *b) { return rf_gather(c, a, b, 10, RF_F32, 1, nullptr); }},
    {"scatter from 0",
     [](rf_comm *c, float *a, float *b) { return rf_scatter(c, a, b, 10, RF_F32, 0, nullptr); }},
    {"scatter from 1",
     [](rf_comm *c, float *a, float *b) { return rf_scatter(c, a, b, 10, RF_F32, 1, nullptr); }},
    {"all_to_all",
     [](rf_comm *c, float *a, float *b) { return rf_all_to_all(c, a, b, 10, RF_F32, nullptr); }},
    {"barrier", [](rf_comm *c, float *, float *) { return rf_barrier(c, nullptr); }},
    {"send",
     [](rf_comm *c, float *a, float *) {
         return rf_send(c, a, 10, RF_F32, next_of(c), 0, nullptr);
     },
     true},
    {"recv",
     [](rf_comm *c, float *a, float *) {
         return rf_recv(c, a, 10, RF_F32, next_of(c), 0, nullptr);
     },
     true},
};

using Pair = std::pair<const Call *, const Call *>; /* of the last rank, and of all others */

/* Some pairs that send to or receive from each other match. */
std::vector<Pair> all_pairs()
{
    std::vector<Pair> all;
    for (const Call &different : calls)
        for (const Call &usual : calls)
            if (&different != &usual && !(different.is_point && usual.is_point))
                all.push_back({&different, &usual});
    return all;
}

/* The statuses of a rank's last call and of closing. */
void expect_mismatch(const std::string &here, int call, int closed, uint64_t sequence)
{
    const rf_error &error = *rf_last_error();
    EXPECT_TRUE(call == RF_OK || call == RF_EMISMATCH) << here << call;
    EXPECT_EQ(closed, RF_EMISMATCH) << here << error.message;
    if (closed == RF_OK)
        return;
    if (!strstr(error.message, "deadlock")) { /* messages can be part of one */
        EXPECT_EQ(error.sequence, sequence) << here << error.message;
    }
    EXPECT_EQ(strstr(error.message, "something else"), nullptr) << here << error.message;
}

std::string describe(const Call &different, const Call &usual, int rank, int size)
{
    return std::string(different.name) + " against " + usual.name + ", rank " +
           std::to_string(rank) + " of " + std::to_string(size) + ": ";
}

/* The last rank calls `different`, all others `usual`, after an operation that succeeded. */
void end_with(const ranks::World &world, const Call &different, const Call &usual)
{
    std::vector<int> statuses(static_cast<size_t>(world.size), RF_OK);
    ranks::run(
        world,
        [&](rf_comm *comm, int rank) {
            std::vector<float> a(64, 1.0f), b(64);
            int &rc = statuses[static_cast<size_t>(rank)];
            rc = rf_all_reduce(comm, a.data(), b.data(), 1, RF_F32, RF_SUM, nullptr);
            if (rc == RF_OK) /* otherwise another rank's call was reported before */
                rc = (rank == world.size - 1 ? different : usual).run(comm, a.data(), b.data());
        },
        [&](int rank, int closed) {
            expect_mismatch(describe(different, usual, rank, world.size),
                            statuses[static_cast<size_t>(rank)], closed, 1);
        });
}

class LastCall : public testing::TestWithParam<int>
{
};

TEST_P(LastCall, EveryDifferenceIsReportedToEveryRank)
{
    const std::vector<Pair> all = all_pairs();
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 48; i++) /* they wait most of the time */
        threads.emplace_back([&] {
            for (size_t at; (at = next++) < all.size();) {
                ranks::World world;
                world.size = GetParam();
                end_with(world, *all[at].first, *all[at].second);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}
INSTANTIATE_TEST_SUITE_P(Loopback, LastCall, testing::Values(2, 3));

/* If networks buffer messages: the calls that complete without the others. */
class LastCallOver : public testing::TestWithParam<ranks::World>
{
};

/* The last calls of a communicator of their own. */
void end_group(rf_comm *comm, const Call &different, const Call &usual)
{
    const int rank = rf_comm_rank(comm), size = rf_comm_size(comm);
    std::vector<float> a(64, 1.0f), b(64);
    rf_comm *group = nullptr;
    ASSERT_EQ(rf_comm_split(comm, 0, rank, &group), RF_OK) << rf_last_error()->message;
    const int rc = (rank == size - 1 ? different : usual).run(group, a.data(), b.data());
    expect_mismatch(describe(different, usual, rank, size), rc, rf_comm_close(group), 0);
}

TEST_P(LastCallOver, IsReportedToEveryRankThoughItOnlySends)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        const auto end = [&](const Call &different, const Call &usual) {
            end_group(comm, different, usual);
        };
        for (size_t different : {7, 11, 13})
            for (size_t usual : {7, 11, 13})
                if (different != usual)
                    end(calls[different], calls[usual]);
        end(calls[12], calls[0]);  /* gather to 1, all_reduce */
        end(calls[17], calls[16]); /* send, barrier */
    });
}

/* Takes minutes for all providers, so only with RF_TEST_ALL. Each thread of a rank runs every 16th
 * pair, as they wait most of the time. */
TEST_P(LastCallOver, EveryDifferenceIsReportedToEveryRank)
{
    if (!getenv("RF_TEST_ALL"))
        GTEST_SKIP() << "takes minutes; RF_TEST_ALL=1 runs it";
    constexpr size_t threads = 16;
    ranks::World world = GetParam();
    world.watchdog_s = 600;
    ranks::run(world, [](rf_comm *comm, int rank) {
        const std::vector<Pair> all = all_pairs();
        std::vector<rf_comm *> groups(threads);
        for (rf_comm *&group : groups)
            ASSERT_EQ(rf_comm_split(comm, 0, rank, &group), RF_OK) << rf_last_error()->message;
        std::vector<std::thread> running;
        for (size_t first = 0; first < threads; first++)
            running.emplace_back([&, first] {
                for (size_t at = first; at < all.size(); at += threads)
                    end_group(groups[first], *all[at].first, *all[at].second);
                EXPECT_EQ(rf_comm_close(groups[first]), RF_OK) << rf_last_error()->message;
            });
        for (std::thread &thread : running)
            thread.join();
    });
}
INSTANTIATE_TEST_SUITE_P(All, LastCallOver, testing::ValuesIn(ranks::worlds({}, {2, 3})),
                         [](const auto &info) { return ranks::name(info.param); });

/* A message and a receive that do not match, as last calls: count and type are compared. If the
 * tags differ, the message is not for this receive, which then waits for a rank that has left; if
 * the send is a long one, they wait for each other. Only a message that nobody waits for is not an
 * error. */
TEST(Closing, ReportsAMessageAndAReceiveThatDoNotMatchToBothRanks)
{
    struct Receive {
        size_t more;
        rf_dtype dtype;
        int tag;
        int reported[2]; /* for a short and for a long message */
    };
    const Receive receives[] = {{1, RF_F32, 0, {RF_EMISMATCH, RF_EMISMATCH}},
                                {0, RF_I32, 0, {RF_EMISMATCH, RF_EMISMATCH}},
                                {0, RF_F32, 1, {RF_EPEER, RF_EMISMATCH}},
                                {0, RF_F32, -1, {RF_OK, RF_EPEER}}}; /* none at all */
    std::vector<std::thread> threads; /* they wait most of the time */
    for (const Receive &receive : receives)
        for (bool is_long : {false, true})
            threads.emplace_back([=] {
                const size_t count = is_long ? 100000 : 10;
                const int expected = receive.reported[is_long];
                ranks::run(
                    ranks::World(),
                    [&](rf_comm *comm, int rank) {
                        std::vector<float> data(count + 1);
                        const int rc =
                            rank == 0 ? rf_send(comm, data.data(), count, RF_F32, 1, 0, nullptr)
                            : receive.tag < 0 ? RF_OK
                                              : rf_recv(comm, data.data(), count + receive.more,
                                                        receive.dtype, 0, receive.tag, nullptr);
                        EXPECT_TRUE(rc == RF_OK || rc == expected)
                            << rc << " " << rf_last_error()->message;
                    },
                    [&](int rank, int closed) {
                        EXPECT_EQ(closed, expected)
                            << "rank " << rank << ", tag " << receive.tag << ", " << count << ": "
                            << rf_last_error()->message;
                    });
            });
    for (std::thread &thread : threads)
        thread.join();
}

/* Rank 0 waits for rank 1, which has left; the reason is known to rank 2, which is late. */
TEST(Closing, ReportsTheDifferenceBehindAMessageThatWaitsForALeaver)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int rank) {
        std::vector<float> data(100000), sum(100000);
        /* So late that rank 0 knows that rank 1 has left, but not why. */
        if (rank == 2)
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        int rc = RF_OK;
        if (rank == 0)
            rc = rf_send(comm, data.data(), data.size(), RF_F32, 1, 0, nullptr);
        if (rank == 1)
            rc = rf_send(comm, data.data(), 1, RF_F32, 2, 0, nullptr);
        if (rank == 2)
            rc = rf_all_reduce(comm, data.data(), sum.data(), 10, RF_F32, RF_SUM, nullptr);
        EXPECT_EQ(rc, rank == 1 ? RF_OK : RF_EMISMATCH) << rf_last_error()->message;
    });
}

TEST(Closing, OfAHealthyCommunicatorIsNoError)
{
    for (int size : {1, 2, 4}) {
        ranks::World world;
        world.size = size;
        ranks::run(
            world,
            [](rf_comm *comm, int rank) {
                float x = 1, all[8];
                EXPECT_EQ(rf_broadcast(comm, &x, 1, RF_F32, 0, nullptr), RF_OK);
                EXPECT_EQ(rf_gather(comm, &x, all, 1, RF_F32, 0, nullptr), RF_OK);
                if (rank == 0 && rf_comm_size(comm) > 1) {
                    EXPECT_EQ(rf_send(comm, &x, 1, RF_F32, 1, 0, nullptr), RF_OK);
                }
                if (rank == 1) {
                    EXPECT_EQ(rf_recv(comm, &x, 1, RF_F32, 0, 0, nullptr), RF_OK);
                }
            },
            [](int, int closed) { EXPECT_EQ(closed, RF_OK) << rf_last_error()->message; });
    }
    EXPECT_EQ(rf_comm_close(nullptr), RF_OK);
}

/* Networks that accept a message without its receiver. */
class Close : public testing::TestWithParam<ranks::World>
{
};

/* Each is the root of its own broadcast, twice; then both end with the same one. */
TEST_P(Close, ReportsAnEarlierDifference)
{
    ranks::run(
        GetParam(),
        [](rf_comm *comm, int rank) {
            float x = 1;
            EXPECT_EQ(rf_broadcast(comm, &x, 1, RF_F32, rank, nullptr), RF_OK);
            EXPECT_EQ(rf_broadcast(comm, &x, 1, RF_F32, rank, nullptr), RF_OK);
        },
        [](int, int closed) {
            EXPECT_EQ(closed, RF_EMISMATCH);
            EXPECT_STREQ(rf_last_error()->message,
                         "rank 0 called broadcast(1 f32 from root 0) while rank 1 called "
                         "broadcast(1 f32 from root 1), in operation 0 of this communicator; every "
                         "rank must make the same calls in the same order");
        });
}

TEST_P(Close, ReportsACallThatOneRankHasSkipped)
{
    for (int different : {0, 1}) {
        ranks::run(
            GetParam(),
            [different](rf_comm *comm, int rank) {
                float x = 1;
                EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
                for (int i = 0; rank == different && i < 2; i++)
                    EXPECT_EQ(rf_broadcast(comm, &x, 1, RF_F32, different, nullptr), RF_OK);
            },
            [different](int rank, int closed) {
                EXPECT_EQ(closed, RF_EMISMATCH);
                const std::string message = rf_last_error()->message;
                const std::string root = std::to_string(different);
                EXPECT_NE(
                    message.find("rank " + root + " called broadcast(1 f32 from root " + root),
                    std::string::npos)
                    << message;
                EXPECT_NE(message.find("called nothing more"), std::string::npos) << message;
                EXPECT_NE(message.find("operation 1"), std::string::npos) << message;
                EXPECT_EQ(rf_last_error()->rank, 1 - rank) << message;
            });
    }
}

INSTANTIATE_TEST_SUITE_P(All, Close, testing::ValuesIn(ranks::worlds({}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(Closing, OfAFailedCommunicatorSaysWhyItFailed)
{
    ranks::World world;
    ranks::run(
        world,
        [](rf_comm *comm, int rank) {
            if (rank == 1)
                rf_comm_abort(comm, "enough");
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        },
        [](int, int closed) {
            EXPECT_EQ(closed, RF_EABORT);
            EXPECT_NE(strstr(rf_last_error()->message, "enough"), nullptr);
        });
}

} // namespace
