/* SPDX-License-Identifier: MIT
 *
 * Survivors: after one or more ranks have died, also in the middle of a shrink, the rest form a
 * communicator that works, in their old order, and agree about its members.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <set>
#include <thread>

#include "support/described_calls.h"
#include "support/ranks.h"

namespace
{

int sum(rf_comm *comm, int value, int *out)
{
    int32_t in = value, all = -1;
    int rc = rf_all_reduce(comm, &in, &all, 1, RF_I32, RF_SUM, nullptr);
    *out = all;
    return rc;
}

/* Makes calls until one fails; `die` is called before the tenth. */
int run_until_failure(rf_comm *comm, const std::function<void()> &die)
{
    std::vector<float> data(20000, 1.0f);
    int rc = RF_OK;
    for (int i = 0; rc == RF_OK; i++) {
        if (i == 10)
            die();
        rc = rf_all_reduce(comm, data.data(), data.data(), data.size(), RF_F32, RF_MAX, nullptr);
    }
    return rc;
}

/* Tests everything that a new communicator of `want` (ranks of the old one) must be able to do. */
void expect_works(rf_comm *comm, int old_rank, const std::vector<int> &old_ranks,
                  const std::vector<int> &want)
{
    ASSERT_EQ(rf_comm_size(comm), static_cast<int>(want.size()));
    int new_rank = -1, total = 0;
    for (size_t i = 0; i < want.size(); i++) {
        EXPECT_EQ(old_ranks[i], want[i]);
        new_rank = want[i] == old_rank ? static_cast<int>(i) : new_rank;
        total += want[i] + 1;
    }
    EXPECT_EQ(rf_comm_rank(comm), new_rank);
    int got = 0;
    ASSERT_EQ(sum(comm, old_rank + 1, &got), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(got, total);
    std::vector<int32_t> mine(1001, old_rank), all(1001 * want.size());
    ASSERT_EQ(rf_all_gather(comm, mine.data(), all.data(), 1001, RF_I32, nullptr), RF_OK);
    for (size_t i = 0; i < all.size(); i++)
        ASSERT_EQ(all[i], want[i / 1001]);
    int size = rf_comm_size(comm);
    std::vector<float> out(300000, static_cast<float>(new_rank)), in(300000);
    ASSERT_EQ(described::sendrecv(comm, out.data(), out.size(), (new_rank + 1) % size, in.data(),
                                  in.size(), (new_rank + size - 1) % size, RF_F32, 1, nullptr),
              RF_OK)
        << rf_last_error()->message;
    EXPECT_EQ(in[299999], static_cast<float>((new_rank + size - 1) % size));
}

std::vector<int> without(int size, const std::set<int> &dead)
{
    std::vector<int> left;
    for (int r = 0; r < size; r++)
        if (!dead.count(r))
            left.push_back(r);
    return left;
}

class Shrink : public testing::TestWithParam<ranks::World>
{
};
class ShrinkOfProcesses : public testing::TestWithParam<ranks::World>
{
};
/* A rank killed within a call may leave the others spinning in a lock of libfabric's shm, and can
 * crash its ofi_rxm. */
class ShrinkOverTcp : public testing::TestWithParam<ranks::World>
{
};

TEST_P(ShrinkOfProcesses, AfterADeathTheSurvivorsGoOnWhoeverDied)
{
    for (int victim = 0; victim < GetParam().size; victim++) {
        ranks::World world = GetParam();
        world.expect_killed = victim;
        ranks::run(world, [victim](rf_comm *comm, int rank) {
            int rc = run_until_failure(comm, [=] {
                if (rank == victim)
                    raise(SIGKILL);
            });
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            std::vector<int> old_ranks(static_cast<size_t>(rf_comm_size(comm)));
            rf_comm *next = nullptr;
            ASSERT_EQ(rf_comm_shrink(comm, 0, old_ranks.data(), &next), RF_OK)
                << rf_last_error()->message;
            expect_works(next, rank, old_ranks, without(rf_comm_size(comm), {victim}));
            rf_comm_close(next);
        });
    }
}

TEST_P(ShrinkOfProcesses, ManyDieAtOnceOrOneAfterTheOther)
{
    int size = GetParam().size;
    for (bool at_once : {true, false}) {
        ranks::World world = GetParam();
        for (int r = 0; r + 1 < size; r++)
            world.may_die.push_back(r);
        ranks::run(world, [=](rf_comm *comm, int rank) {
            rf_comm *now = comm;
            std::vector<int> old_ranks(static_cast<size_t>(size));
            int here = rank;
            for (int round = 0; rf_comm_size(now) > 1; round++) {
                int before = rf_comm_size(now);
                EXPECT_EQ(run_until_failure(now,
                                            [=] {
                                                if (rank + 1 < size && (at_once || rank == round))
                                                    raise(SIGKILL);
                                            }),
                          RF_EPEER)
                    << rf_last_error()->message;
                if (rank + 1 < size && at_once) /* another was quicker */
                    raise(SIGKILL);
                rf_comm *next = nullptr;
                ASSERT_EQ(rf_comm_shrink(now, 0, old_ranks.data(), &next), RF_OK)
                    << rf_last_error()->message;
                std::set<int> dead = {0};
                for (int r = 0; at_once && r + 1 < before; r++)
                    dead.insert(r);
                expect_works(next, here, old_ranks, without(before, dead));
                if (now != comm)
                    rf_comm_close(now);
                now = next;
                here = rf_comm_rank(next);
            }
            if (now != comm)
                rf_comm_close(now);
        });
    }
}

/* The second one dies at a random moment of the shrink that follows the first death. */
TEST_P(ShrinkOverTcp, AnotherRankMayDieMeanwhile)
{
    int size = GetParam().size;
    for (int trial = 0; trial < 8; trial++) {
        int first = trial % size, second = (first + 1 + trial / 4 % (size - 1)) % size;
        ranks::World world = GetParam();
        world.may_die = {first, second};
        ranks::run(world, [=](rf_comm *comm, int rank) {
            run_until_failure(comm, [=] {
                if (rank == first)
                    raise(SIGKILL);
            });
            std::thread killer;
            if (rank == second)
                killer = std::thread([=] {
                    usleep(static_cast<useconds_t>(trial * 1300));
                    raise(SIGKILL);
                });
            std::vector<int> old_ranks(static_cast<size_t>(size)), mine = without(size, {});
            std::vector<rf_comm *> made;
            rf_comm *now = comm;
            int got = 0, rc = RF_EPEER;
            /* A communicator that includes a dead rank fails in its first call. */
            while (rc < 0 || rf_comm_size(now) > size - 2) {
                if (rc < 0) {
                    rf_comm *next = nullptr;
                    ASSERT_EQ(rf_comm_shrink(now, 0, old_ranks.data(), &next), RF_OK)
                        << "rank " << rank << ": " << rf_last_error()->message;
                    std::vector<int> theirs;
                    for (int i = 0; i < rf_comm_size(next); i++)
                        theirs.push_back(mine[static_cast<size_t>(old_ranks[i])]);
                    mine = theirs;
                    made.push_back(now = next);
                }
                rc = sum(now, rank + 1, &got);
            }
            expect_works(now, rank, mine, without(size, {first, second}));
            for (rf_comm *each : made)
                rf_comm_close(each);
            if (killer.joinable())
                killer.join();
        });
    }
}

TEST_P(ShrinkOverTcp, AStoppedRankIsLeftOutAndGetsThatError)
{
    int size = GetParam().size;
    for (int stopped : {0, size - 1}) {
        ranks::World world = GetParam();
        world.timeout_s = 1;
        ranks::Shared shared(4096);
        auto *pid = shared.as<std::atomic<int>>();
        auto *done = pid + 1;
        ranks::run(world, [=](rf_comm *comm, int rank) {
            int rc = run_until_failure(comm, [=] {
                if (rank == stopped) {
                    *pid = getpid();
                    raise(SIGSTOP);
                }
            });
            std::vector<int> old_ranks(static_cast<size_t>(size));
            rf_comm *next = nullptr;
            if (rank == stopped) {
                EXPECT_LT(rc, 0);
                EXPECT_EQ(rf_comm_shrink(comm, 5, nullptr, &next), RF_EPEER)
                    << rf_last_error()->message;
                return;
            }
            EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, stopped) << rf_last_error()->message;
            ASSERT_EQ(rf_comm_shrink(comm, 3, old_ranks.data(), &next), RF_OK)
                << rf_last_error()->message;
            expect_works(next, rank, old_ranks, without(size, {stopped}));
            if (++*done == size - 1)
                kill(*pid, SIGCONT);
            rf_comm_close(next);
        });
    }
}

/* To the others, stopped ranks look like ranks behind a broken network. */
TEST_P(ShrinkOverTcp, AMinorityMayNotGoOnAndTheMajorityMay)
{
    int size = GetParam().size, few = size / 2;
    ranks::World world = GetParam();
    world.timeout_s = 1;
    ranks::Shared shared(4096);
    auto *pids = shared.as<std::atomic<int>>();
    auto *stopped = pids + size, *refused = pids + size + 1;
    ranks::run(world, [=](rf_comm *comm, int rank) {
        /* The lowest ranks are the minority, so that only the number decides. */
        bool is_few = rank < few;
        int rc = run_until_failure(comm, [=] {
            pids[rank] = getpid();
            if (!is_few) {
                ++*stopped;
                raise(SIGSTOP);
            }
        });
        std::vector<int> old_ranks(static_cast<size_t>(size)), want;
        rf_comm *next = nullptr;
        if (is_few) {
            EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
            EXPECT_EQ(rf_comm_shrink(comm, 1, nullptr, &next), RF_EPEER);
            EXPECT_EQ(rf_last_error()->rank, few) << rf_last_error()->message;
            EXPECT_EQ(strncmp(rf_last_error()->message, "shrink: only ", 13), 0)
                << rf_last_error()->message;
            if (++*refused == few)
                for (int r = few; r < size; r++)
                    kill(pids[r], SIGCONT);
            while (*refused < size) /* alive, but not taking part */
                usleep(1000);
            EXPECT_EQ(rf_comm_shrink(comm, 1, nullptr, &next), RF_EPEER);
            return;
        }
        for (int r = few; r < size; r++)
            want.push_back(r);
        EXPECT_LT(rc, 0);
        EXPECT_EQ(rf_comm_shrink(comm, 3, old_ranks.data(), &next), RF_OK)
            << rf_last_error()->message;
        if (next)
            expect_works(next, rank, old_ranks, want);
        ++*refused;
        rf_comm_close(next);
    });
}

TEST_P(ShrinkOfProcesses, AGroupShrinksAndTheOtherGroupNeverNotices)
{
    int size = GetParam().size;
    if (size < 4)
        return; /* two groups of two */
    for (int victim : {0, 2}) {
        ranks::World world = GetParam();
        world.expect_killed = victim;
        ranks::run(world, [=](rf_comm *comm, int rank) {
            rf_comm *group = nullptr, *next = nullptr;
            ASSERT_EQ(rf_comm_split(comm, rank % 2, 0, &group), RF_OK);
            int got = 0;
            if (rank % 2 == 1) {
                for (int i = 0; i < 200; i++)
                    EXPECT_EQ(sum(group, 1, &got), RF_OK) << rf_last_error()->message;
                EXPECT_EQ(got, rf_comm_size(group));
            } else {
                EXPECT_EQ(run_until_failure(group,
                                            [=] {
                                                if (rank == victim)
                                                    raise(SIGKILL);
                                            }),
                          RF_EPEER);
                std::vector<int> old_ranks(static_cast<size_t>(size));
                ASSERT_EQ(rf_comm_shrink(group, 0, old_ranks.data(), &next), RF_OK)
                    << rf_last_error()->message;
                expect_works(next, rank / 2, old_ranks, without(rf_comm_size(group), {victim / 2}));
                rf_comm_close(next);
            }
            rf_comm_close(group);
            /* The parent has lost it, too. */
            EXPECT_EQ(run_until_failure(comm, [] {}), RF_EPEER) << rf_last_error()->message;
            ASSERT_EQ(rf_comm_shrink(comm, 0, nullptr, &next), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(rf_comm_size(next), size - 1);
            EXPECT_EQ(sum(next, 1, &got), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(got, size - 1);
            rf_comm_close(next);
        });
    }
}

TEST_P(Shrink, OfAHealthyCommunicatorIsACopyAndOfAnAbortedOneAFreshStart)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm), got = 0;
        std::vector<int> old_ranks(static_cast<size_t>(size));
        rf_comm *copy = nullptr, *fresh = nullptr;
        ASSERT_EQ(rf_comm_shrink(comm, 0, old_ranks.data(), &copy), RF_OK)
            << rf_last_error()->message;
        EXPECT_STREQ(rf_comm_provider(copy), rf_comm_provider(comm));
        expect_works(copy, rank, old_ranks, without(size, {}));
        EXPECT_EQ(sum(comm, 1, &got), RF_OK);
        EXPECT_EQ(got, size);
        if (rank == size - 1)
            rf_comm_abort(copy, "for a test");
        EXPECT_EQ(rf_barrier(copy, nullptr), RF_EABORT);
        ASSERT_EQ(rf_comm_shrink(copy, 0, old_ranks.data(), &fresh), RF_OK)
            << rf_last_error()->message;
        expect_works(fresh, rank, old_ranks, without(size, {}));
        rf_comm_close(fresh);
        rf_comm_close(copy);
    });
}

TEST_P(ShrinkOverTcp, LeavesOutRanksThatHaveLeft)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm), got = 0;
        if (rank == 1)
            return; /* closes it */
        std::vector<int> old_ranks(static_cast<size_t>(size));
        rf_comm *next = nullptr;
        ASSERT_EQ(rf_comm_shrink(comm, 0, old_ranks.data(), &next), RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(sum(next, 1, &got), RF_OK);
        EXPECT_EQ(got, size - 1);
        expect_works(next, rank, old_ranks, without(size, {1}));
        rf_comm_close(next);
    });
}

std::string name_of(const testing::TestParamInfo<ranks::World> &info)
{
    return ranks::name(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, Shrink, testing::ValuesIn(ranks::worlds({1, 2, 3, 4, 5, 6}, {2, 4})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Processes, ShrinkOfProcesses,
                         testing::ValuesIn(ranks::worlds({}, {2, 3, 4, 5, 6}, {"a,b,b,a"})),
                         name_of);

std::vector<ranks::World> over_tcp()
{
    ranks::World three, five;
    three.provider = five.provider = "tcp";
    three.size = 3;
    five.size = 5;
    return {three, five};
}
INSTANTIATE_TEST_SUITE_P(Processes, ShrinkOverTcp, testing::ValuesIn(over_tcp()), name_of);

TEST(ShrinkOfThreads, AKilledRankIsMissing)
{
    for (int size = 2; size <= 6; size++) {
        ranks::World world;
        world.size = size;
        world.faults.kill_rank = size / 2;
        world.faults.kill_after_messages = 50;
        ranks::run(world, [=](rf_comm *comm, int rank) {
            int rc = run_until_failure(comm, [] {});
            if (rank == size / 2)
                return;
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            std::vector<int> old_ranks(static_cast<size_t>(size));
            rf_comm *next = nullptr;
            ASSERT_EQ(rf_comm_shrink(comm, 0, old_ranks.data(), &next), RF_OK)
                << rf_last_error()->message;
            expect_works(next, rank, old_ranks, without(size, {size / 2}));
            rf_comm_close(next);
        });
    }
}

TEST(ShrinkOfThreads, ALateRankGetsTheErrorThatTheOthersHaveGoneOn)
{
    ranks::World world;
    world.size = 3;
    std::atomic<int> ended{0};
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_comm *next = nullptr;
        if (rank == 1) {
            while (ended < 2)
                usleep(1000);
            EXPECT_EQ(rf_comm_shrink(comm, 0, nullptr, &next), RF_EPEER);
            EXPECT_NE(strstr(rf_last_error()->message, "gone on without rank 1"), nullptr)
                << rf_last_error()->message;
            return;
        }
        EXPECT_EQ(rf_comm_shrink(comm, 0.5, nullptr, &next), RF_OK) << rf_last_error()->message;
        ended++;
        int got = 0;
        EXPECT_EQ(sum(next, 1, &got), RF_OK);
        EXPECT_EQ(got, 2);
        rf_comm_close(next);
    });
}

/* The first `part` ranks call shrink; the others call it only after these are done. */
void expect_one_part_goes_on(int size, int part)
{
    ranks::World world;
    world.size = size;
    std::atomic<int> ended{0};
    const bool first_goes_on = 2 * part >= size;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const bool is_first = rank < part;
        rf_comm *next = nullptr;
        while (!is_first && ended < part)
            usleep(1000);
        int rc = rf_comm_shrink(comm, 1, nullptr, &next);
        EXPECT_EQ(rc, is_first == first_goes_on ? RF_OK : RF_EPEER)
            << part << " of " << size << ", rank " << rank << ": " << rf_last_error()->message;
        ended++;
        while (ended < size) /* a rank that closes it has left, and does not count any more */
            usleep(1000);
        rf_comm_close(next);
    });
}

TEST(ShrinkOfThreads, OnlyAMajorityGoesOnOrTheHalfWithTheLowestRank)
{
    std::vector<std::thread> cases;
    for (int size = 2; size <= 5; size++)
        for (int part = 1; part < size; part++)
            cases.emplace_back(expect_one_part_goes_on, size, part);
    for (std::thread &each : cases)
        each.join();
}

TEST(ShrinkOfOne, RefusesWhatMakesNoSense)
{
    rf_comm *comm = nullptr, *next = nullptr;
    ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
    EXPECT_EQ(rf_comm_shrink(nullptr, 0, nullptr, &next), RF_EINVAL);
    EXPECT_EQ(rf_comm_shrink(comm, 0, nullptr, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_comm_shrink(comm, -1, nullptr, &next), RF_EINVAL);
    ASSERT_EQ(rf_comm_shrink(comm, 0, nullptr, &next), RF_OK) << rf_last_error()->message;
    EXPECT_EQ(rf_comm_size(next), 1);
    rf_comm_close(next);
    rf_comm_close(comm);
}

} // namespace
