/* SPDX-License-Identifier: MIT
 *
 * Ranks that die, stall, leave or abort: every survivor gets an error that names the rank, and
 * nothing hangs.
 */
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "support/fair_clock.h"
#include "support/free_port.h"
#include "support/ranks.h"

namespace
{

constexpr double promised_s = 2;

class Failure : public testing::TestWithParam<ranks::World>
{
};
/* A thread cannot be killed by a signal; the loopback's own fault stands for it below. */
class Kill : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Kill, AKilledRankIsNamedByEverySurvivorAndLaterCallsAreRefused)
{
    for (size_t count : {size_t{1}, size_t{1} << 20}) {
        ranks::World world = GetParam();
        world.expect_killed = 2;
        ranks::run(world, [count](rf_comm *comm, int rank) {
            std::vector<float> data(count, 1.0f);
            int rc = RF_OK;
            const FairClock clock;
            double start = 0;
            for (int i = 0; rc == RF_OK; i++) {
                if (rank == 2 && i == 20)
                    raise(SIGKILL);
                start = clock.seconds();
                rc = rf_all_reduce(comm, data.data(), data.data(), count, RF_F32, RF_MAX, nullptr);
            }
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 2) << rf_last_error()->message;
            EXPECT_LT(clock.seconds() - start, promised_s);
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
            EXPECT_NE(strstr(rf_last_error()->message, "rank 2"), nullptr);
        });
    }
}

/* The child keeps all sockets of its parent open: detection by silence alone would take ten
 * seconds. */
TEST_P(Kill, AnEndedProcessIsNoticedThoughItsChildHoldsItsSockets)
{
    int probe = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (probe < 0)
        GTEST_SKIP() << "this kernel opens no processes: " << strerror(errno);
    close(probe);
    ranks::Shared memory(sizeof(pid_t));
    volatile pid_t *child = memory.as<pid_t>();
    ranks::World world = GetParam();
    world.expect_killed = 2;
    ranks::run(world, [child](rf_comm *comm, int rank) {
        float data = 1;
        ASSERT_EQ(rf_all_reduce(comm, &data, &data, 1, RF_F32, RF_MAX, nullptr), RF_OK);
        if (rank == 2) {
            pid_t made = fork();
            if (made == 0) {
                alarm(60);
                pause();
                _exit(0);
            }
            *child = made;
            raise(SIGKILL);
        }
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 2) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "its process has ended"), nullptr)
            << rf_last_error()->message;
    });
    ASSERT_GT(*child, 0);
    kill(*child, SIGKILL);
}

TEST_P(Kill, ARankStoppedInMidCallIsNamedAtTheDeadline)
{
    ranks::Shared memory(sizeof(pid_t));
    volatile pid_t *stopped = memory.as<pid_t>();
    ranks::World world = GetParam();
    world.timeout_s = 1;
    world.expect_killed =
        1; /* woken after all have left, tcp;ofi_rxm of libfabric 1.17 may crash */
    ranks::run(world, [stopped](rf_comm *comm, int rank) {
        std::vector<float> data(size_t{1} << 20, 1.0f);
        int rc = RF_OK;
        if (rank == 1)
            *stopped = getpid();
        for (int i = 0; rc == RF_OK && i < 1000; i++) {
            if (rank == 1 && i == 20)
                raise(SIGSTOP);
            rc =
                rf_all_reduce(comm, data.data(), data.data(), data.size(), RF_F32, RF_MAX, nullptr);
        }
        if (rank == 1)
            return;
        EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        kill(*stopped, SIGCONT);
    });
}

TEST_P(Failure, AStoppedRankIsNamedAtTheDeadline)
{
    ranks::World world = GetParam();
    world.timeout_s = 2; // on busy cores ranks arrive late
    ranks::run(world, [](rf_comm *comm, int rank) {
        float data = 1;
        ASSERT_EQ(rf_all_reduce(comm, &data, &data, 1, RF_F32, RF_MAX, nullptr), RF_OK);
        /* Rank 1 does something else instead of the broadcast. */
        int rc = rank == 1 ? RF_OK : rf_broadcast(comm, &data, 1, RF_F32, 1, nullptr);
        while (rank == 1 && rc == RF_OK)
            rc = rf_comm_async_error(comm);
        EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 1) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "broadcast"), nullptr);
    });
}

TEST_P(Failure, AbortReachesEveryRankWithItsReason)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        if (rank == 1) {
            rf_comm_abort(comm, "the loss is not a number");
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
        } else {
            EXPECT_EQ(rf_barrier(comm, nullptr), RF_EABORT);
            EXPECT_EQ(rf_last_error()->rank, 1);
            EXPECT_NE(strstr(rf_last_error()->message, "not a number"), nullptr)
                << rf_last_error()->message;
        }
    });
}

TEST_P(Failure, ARankThatLeftEarlyIsNamed)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        float data = 1;
        ASSERT_EQ(rf_all_reduce(comm, &data, &data, 1, RF_F32, RF_MAX, nullptr), RF_OK);
        if (rank == 3)
            return;
        EXPECT_EQ(rf_all_reduce(comm, &data, &data, 1, RF_F32, RF_MAX, nullptr), RF_EPEER)
            << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 3) << rf_last_error()->message;
    });
}

INSTANTIATE_TEST_SUITE_P(Processes, Kill, testing::ValuesIn(ranks::worlds({}, {4}, {"a,b,b,a"})),
                         [](const auto &info) { return ranks::name(info.param); });
INSTANTIATE_TEST_SUITE_P(All, Failure, testing::ValuesIn(ranks::worlds({4}, {4})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(LoopbackFaults, AKilledRankIsNamed)
{
    ranks::World world;
    world.size = 4;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 50;
    ranks::run(world, [](rf_comm *comm, int rank) {
        std::vector<float> data(1000, 1.0f);
        int rc = RF_OK;
        while (rc == RF_OK)
            rc = rf_all_reduce(comm, data.data(), data.data(), 1000, RF_F32, RF_MAX, nullptr);
        if (rank == 2)
            return; /* its own view of its death does not count */
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 2);
    });
}

TEST(LoopbackFaults, ALostMessageIsATimeoutThatNamesThePeer)
{
    ranks::World world;
    world.faults.drop_message = 41;
    world.timeout_s = 1;
    ranks::run(world, [](rf_comm *comm, int rank) {
        std::vector<float> data(1000, 1.0f);
        int rc = RF_OK;
        while (rc == RF_OK)
            rc = rf_all_reduce(comm, data.data(), data.data(), 1000, RF_F32, RF_MAX, nullptr);
        EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
        EXPECT_GE(rf_last_error()->rank, 0);
        EXPECT_NE(strstr(rf_last_error()->message, "waited 1 s in all_reduce(1000 f32 max)"),
                  nullptr)
            << rf_last_error()->message;
    });
}

/* Does nothing that involves the communicator. Returns the error with which it fails. */
int stand_still(rf_comm *comm)
{
    int rc = RF_OK;
    for (; rc == RF_OK; rc = rf_comm_async_error(comm))
        usleep(1000); /* and leaves the core to the ranks that wait */
    return rc;
}

void expect_late(int rc, int rank)
{
    EXPECT_EQ(rc, RF_ETIMEOUT) << rf_last_error()->message;
    EXPECT_EQ(rf_last_error()->rank, rank) << rf_last_error()->message;
}

/* Rank 2 waits for rank 0, which waits longer for rank 1 in the call before. Rank 0 has not
 * reported this at the first deadline; at the second it has. */
TEST(LoopbackFaults, TheRankThatStallsAChainOfWaitsIsBlamedByAll)
{
    for (double timeout_s : {0.05, 0.5}) {
        ranks::World world;
        world.size = 3;
        ranks::run(world, [timeout_s](rf_comm *comm, int rank) {
            std::vector<float> data(10, 1.0f);
            rf_coll_opts opts = {};
            opts.algorithm = "flat";
            opts.timeout_s = rank == 0 ? 60 : timeout_s;
            int rc = RF_OK;
            if (rank != 1)
                rc = rf_reduce(comm, data.data(), data.data(), 10, RF_F32, RF_SUM, 0, &opts);
            if (rank == 2) {
                opts.algorithm = nullptr;
                EXPECT_EQ(rc, RF_OK) << rf_last_error()->message;
                rc = rf_all_reduce(comm, data.data(), data.data(), 10, RF_F32, RF_SUM, &opts);
            }
            expect_late(rank == 1 ? stand_still(comm) : rc, 1);
        });
    }
}

/* Each receives from the rank before it, as in a pipeline; the last has the earliest deadline. */
TEST(LoopbackFaults, TheRankThatStallsAChainOfReceivesIsBlamedByAll)
{
    for (bool request : {false, true}) {
        ranks::World world;
        world.size = 4;
        ranks::run(world, [request](rf_comm *comm, int rank) {
            rf_request *pending[2] = {};
            float data[2] = {};
            rf_coll_opts opts = {};
            opts.timeout_s = rank == 0 ? 0.3 : 60;
            int rc = RF_OK;
            for (int k = 0; k < 2 && rank != 1; k++) { /* the second: from a waiting rank */
                opts.request = request ? &pending[k] : nullptr;
                const int from = k == 0 ? (rank + 3) % 4 : (rank + 1) % 4;
                if (rc == RF_OK && (k == 0 || (request && from != 1)))
                    rc = rf_recv(comm, &data[k], 1, RF_F32, from, k, &opts);
            }
            if (request && rank != 1 && rc == RF_OK)
                rc = rf_request_wait(pending[0], 0);
            expect_late(rank == 1 ? stand_still(comm) : rc, 1);
            for (rf_request *each : pending)
                rf_request_free(each);
        });
    }
}

/* Rank 1 waits in a group for rank 2, and nobody polls the communicator of all ranks meanwhile. */
TEST(LoopbackFaults, ARankAwaitedInAnotherCommunicatorIsBlamedByAll)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_comm *group = nullptr;
        float data = 1;
        rf_coll_opts opts = {};
        ASSERT_EQ(rf_comm_split(comm, rank > 0 ? 0 : 1, 0, &group), RF_OK);
        if (rank == 1) {
            rf_request *request = nullptr;
            opts.request = &request;
            opts.timeout_s = 60;
            ASSERT_EQ(rf_all_reduce(group, &data, &data, 1, RF_F32, RF_SUM, &opts), RF_OK);
            expect_late(stand_still(comm), 2);
            rf_comm_abort(group, "over");
            EXPECT_LT(rf_request_wait(request, 0), 0);
            rf_request_free(request);
        } else {
            opts.timeout_s = 0.3;
            expect_late(rank == 2 ? stand_still(comm)
                                  : rf_all_reduce(comm, &data, &data, 1, RF_F32, RF_SUM, &opts),
                        2);
        }
        rf_comm_close(group);
    });
}

TEST(LoopbackFaults, ADelayedMessageIsNoError)
{
    ranks::World world;
    world.size = 3;
    world.faults.delay_message = 10;
    world.faults.delay_s = 0.6; /* longer than the quiet time after which contracts are compared */
    ranks::run(world, [](rf_comm *comm, int) {
        for (int i = 0; i < 10; i++) {
            int32_t one = 1;
            EXPECT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(one, 3);
        }
    });
}

TEST(Timeouts, LongerThanTheClockMeansNoTimeout)
{
    for (double seconds : {2e10, 1e300, HUGE_VAL}) {
        ranks::World world;
        world.faults.delay_message = 1;
        world.faults.delay_s = 0.1;
        world.timeout_s = seconds;
        ranks::run(world, [=](rf_comm *comm, int rank) {
            rf_coll_opts opts = {};
            opts.timeout_s = seconds;
            int32_t one = 1;
            EXPECT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK)
                << rf_last_error()->message;
            rf_request *request = nullptr;
            opts.request = &request;
            ASSERT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, &opts), RF_OK);
            EXPECT_EQ(rf_request_wait(request, seconds), RF_OK) << rf_last_error()->message;
            EXPECT_EQ(rf_request_wait_all(&request, 1, seconds), RF_OK);
            rf_request_free(request);
            rf_comm *copy = nullptr;
            EXPECT_EQ(rf_comm_shrink(comm, seconds, nullptr, &copy), RF_OK)
                << rank << ": " << rf_last_error()->message;
            rf_comm_close(copy);
        });
    }
}

TEST(Timeouts, InvalidOnesAreRefusedByTheCall)
{
    for (double seconds : {-1.0, -HUGE_VAL, std::nan("")}) {
        rf_comm *comm = nullptr, *copy = nullptr;
        rf_loopback *world = nullptr;
        const auto is_refused = [](const char *call, int rc) {
            const std::string message = rf_last_error()->message;
            EXPECT_EQ(rc, RF_EINVAL) << call;
            EXPECT_EQ(message.rfind(std::string(call) + ": ", 0), 0u) << message;
        };
        rf_comm_opts wait = {}, start = {};
        wait.timeout_s = start.start_timeout_s = seconds;
        is_refused("open", rf_comm_open("self:", &wait, &comm));
        is_refused("open", rf_comm_open("self:", &start, &comm));
        rf_loopback_opts slow = {}, narrow = {}, late = {};
        slow.latency_s = narrow.bytes_per_s = late.delay_s = seconds;
        for (const rf_loopback_opts *opts : {&slow, &narrow, &late})
            is_refused("loopback", rf_loopback_create(2, opts, &world));
        ASSERT_EQ(rf_comm_open("self:", nullptr, &comm), RF_OK);
        float x = 1;
        rf_coll_opts opts = {};
        opts.timeout_s = seconds;
        is_refused("all_reduce", rf_all_reduce(comm, &x, &x, 1, RF_F32, RF_SUM, &opts));
        is_refused("send", rf_send(comm, &x, 1, RF_F32, 0, 0, &opts));
        is_refused("shrink", rf_comm_shrink(comm, seconds, nullptr, &copy));
        rf_request *request = nullptr;
        opts = {};
        opts.request = &request;
        ASSERT_EQ(rf_all_reduce(comm, &x, &x, 1, RF_F32, RF_SUM, &opts), RF_OK);
        size_t index = 0;
        is_refused("wait", rf_request_wait(request, seconds));
        is_refused("wait_all", rf_request_wait_all(&request, 1, seconds));
        is_refused("wait_any", rf_request_wait_any(&request, 1, seconds, &index));
        EXPECT_EQ(rf_request_wait(request, 0), RF_OK);
        rf_request_free(request);
        rf_comm_close(comm);
    }
}

/* Closing and opening are complete calls: the first rank to return waits for the others. */
void close_and_open_again(const std::string &url, const std::string &provider, int rank, int size)
{
    rf_comm_opts opts = {};
    opts.rank = rank;
    opts.size = size;
    opts.provider = provider.c_str();
    for (int turn = 0; turn < 4; turn++) {
        rf_comm *comm = nullptr;
        ASSERT_EQ(rf_comm_open(url.c_str(), &opts, &comm), RF_OK) << rf_last_error()->message;
        int32_t sum = rank + turn;
        EXPECT_EQ(rf_all_reduce(comm, &sum, &sum, 1, RF_I32, RF_SUM, nullptr), RF_OK);
        EXPECT_EQ(sum, size * (size - 1) / 2 + size * turn);
        EXPECT_EQ(rf_comm_close(comm), RF_OK) << rf_last_error()->message;
    }
}

class Reopening : public testing::TestWithParam<ranks::World>
{
};

TEST_P(Reopening, AClosedJobIsOpenedAgainAtItsAddress)
{
    const ranks::World &world = GetParam();
    const bool threads = world.provider == "loopback";
    const std::string provider = threads ? "auto" : world.provider;
    const std::string port = std::to_string(free_port());
    const std::string file = "file:" + testing::TempDir() + "rf_again_" + std::to_string(getpid());
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    ranks::run(world, [&](rf_comm *, int rank) {
        for (const std::string &url : {std::string("env:"), "tcp://127.0.0.1:" + port, file})
            close_and_open_again(url, provider, rank, world.size);
    });
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
}

INSTANTIATE_TEST_SUITE_P(Threads, Reopening, testing::ValuesIn(ranks::worlds({3}, {})),
                         [](const auto &info) { return ranks::name(info.param); });
INSTANTIATE_TEST_SUITE_P(Processes, Reopening,
                         testing::ValuesIn(ranks::worlds({}, {4}, {"a,b,b,a"})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST(LoopbackFaults, ADamagedContractIsCorruptionAndNotAMismatch)
{
    ranks::World world;
    world.faults.corrupt_message = 21;
    ranks::run(world, [](rf_comm *comm, int) {
        std::vector<float> data(1000, 1.0f);
        int rc = RF_OK;
        while (rc == RF_OK)
            rc = rf_all_reduce(comm, data.data(), data.data(), 1000, RF_F32, RF_MAX, nullptr);
        EXPECT_EQ(rc, RF_ECORRUPT) << rf_last_error()->message;
    });
}

TEST(Latency, AThrottledLinkChangesOnlyTheTime)
{
    ranks::World world;
    world.size = 3;
    world.faults.latency_s = 0.002;
    world.faults.bytes_per_s = 2e8;
    ranks::run(world, [](rf_comm *comm, int rank) {
        std::vector<int32_t> data(100000, rank);
        uint64_t start = rf_now_ns();
        ASSERT_EQ(
            rf_all_reduce(comm, data.data(), data.data(), data.size(), RF_I32, RF_SUM, nullptr),
            RF_OK);
        EXPECT_EQ(data, std::vector<int32_t>(100000, 3));
        EXPECT_GT(rf_now_ns() - start, 2000000u);
    });
}

TEST(Latency, GroupsAndSurvivorsHaveLinksAsSlowAsTheirParent)
{
    ranks::World world;
    world.size = 4;
    world.faults.latency_s = 0.002;
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_comm *group = nullptr, *same = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank / 2, 0, &group), RF_OK) << rf_last_error()->message;
        ASSERT_EQ(rf_comm_shrink(comm, 10, nullptr, &same), RF_OK) << rf_last_error()->message;
        for (rf_comm *each : {group, same}) {
            const uint64_t start = rf_now_ns();
            int32_t sum = 1;
            EXPECT_EQ(rf_all_reduce(each, &sum, &sum, 1, RF_I32, RF_SUM, nullptr), RF_OK);
            EXPECT_EQ(sum, rf_comm_size(each));
            // The first rank waits for a message of the last.
            int64_t longest = (int64_t)(rf_now_ns() - start);
            EXPECT_EQ(rf_all_reduce(each, &longest, &longest, 1, RF_I64, RF_MAX, nullptr), RF_OK);
            EXPECT_GT(longest, 2000000);
        }
        EXPECT_EQ(rf_comm_close(group), RF_OK);
        EXPECT_EQ(rf_comm_close(same), RF_OK);
    });
}

} // namespace
