/* SPDX-License-Identifier: MIT
 *
 * Workers and servers of a store, as processes, that are killed or stopped at any time: the others
 * continue with right sums, or are told which server it was.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

#include "support/ranks.h"

namespace
{

using Vector = std::vector<float>;

int kills()
{
    const char *all = getenv("RF_TEST_ALL");
    return all && strcmp(all, "1") == 0 ? 70 : 2;
}

/* This process ends in the middle of whatever it does then, some time from now, or from when
 * something has happened. */
void die_after(uint64_t ns, const int *happened = nullptr)
{
    std::thread([ns, happened] {
        while (happened && !__atomic_load_n(happened, __ATOMIC_SEQ_CST))
            sched_yield();
        const timespec wait = {static_cast<time_t>(ns / 1000000000u),
                               static_cast<long>(ns % 1000000000u)};
        nanosleep(&wait, nullptr);
        raise(SIGKILL);
    }).detach();
}

enum { WORKERS = 3, STEPS = 150, COUNT = 3000 };

/* Gradients of the workers. The mean of all is 6, without worker 1 it is 7. */
const float kGradients[WORKERS] = {2, 4, 12};

void expect_equal(const Vector &values)
{
    for (const float value : values)
        ASSERT_EQ(value, values[0]);
}

void work(rf_store *store, int worker, rf_store_rule rule)
{
    const rf_store_keys all = rf_store_range(0, COUNT);
    const Vector mine(COUNT, kGradients[worker]);
    Vector now(COUNT), before(COUNT);
    bool alone = false;
    for (int step = 0; step < STEPS; step++) {
        ASSERT_EQ(rf_store_push(store, &all, mine.data(), nullptr), RF_OK)
            << rf_last_error()->message;
        ASSERT_EQ(rf_store_pull(store, &all, 0, now.data()), RF_OK) << rf_last_error()->message;
        expect_equal(now);
        if (rule == RF_STORE_SYNC) {
            const float mean = before[0] - now[0];
            alone = alone || mean > 6.5f;
            EXPECT_NEAR(mean, alone ? 7 : 6, 1e-3) << step;
        }
        before = now;
    }
    if (rule == RF_STORE_SYNC)
        return;
    /* All of both that are left; of worker 1 any number of whole gradients. */
    ASSERT_EQ(rf_store_pull(store, &all, 2 * STEPS, now.data()), RF_OK);
    rf_store_server_stats stats = {};
    do
        ASSERT_EQ(rf_store_ask(store, 0, &stats), RF_OK);
    while (stats.workers > 2 && stats.pushes < 3 * STEPS);
    if (stats.workers < 2)
        return; /* the other one may have left */
    ASSERT_EQ(rf_store_pull(store, &all, 0, now.data()), RF_OK);
    EXPECT_EQ(std::fmod(now[0], 2.0f), 0);
    expect_equal(now);
}

void kill_a_worker(const char *provider, rf_store_rule rule, uint64_t ns)
{
    SCOPED_TRACE(std::string(provider) + ", " + rf_store_rule_name(rule) + ", " +
                 std::to_string(ns) + " ns");
    ranks::World world;
    world.provider = provider;
    world.size = WORKERS + 1;
    world.may_die = {1};
    ranks::run(
        world,
        [&](rf_comm *comm, int rank) {
            rf_store_opts opts = {};
            opts.rule = rule;
            opts.count = COUNT;
            opts.stale = rule == RF_STORE_STALE ? 2 : 0;
            rf_store *store = nullptr;
            rf_store_server_stats stats = {};
            ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
            if (rank == 1)
                die_after(ns);
            if (rank < WORKERS) {
                work(store, rank, rule);
            } else {
                ASSERT_EQ(rf_store_serve(store, &stats), RF_OK) << rf_last_error()->message;
                EXPECT_LE(stats.lost, 1);
                EXPECT_EQ(stats.workers, 0);
            }
            rf_store_close(store);
        },
        [](int, int) {});
}

TEST(StoreDeath, TheOthersContinueWithoutAWorker)
{
    std::mt19937_64 random(1);
    for (const rf_store_rule rule : {RF_STORE_SYNC, RF_STORE_ASYNC, RF_STORE_STALE})
        for (int k = 0; k < kills(); k++)
            kill_a_worker(k % 2 ? "tcp" : "shm", rule, random() % 60000000);
}

/* The workers are told which server has died, and continue from its last save with another one. */
void kill_a_server(uint64_t ns)
{
    SCOPED_TRACE(std::to_string(ns) + " ns");
    char folder[] = "/tmp/rf-store-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    ranks::Shared shared(sizeof(int));
    int *saved = shared.as<int>();
    ranks::World world;
    world.provider = "shm";
    world.size = 4;
    for (const bool again : {false, true}) {
        world.expect_killed = again ? -1 : 3;
        world.by_signal = again ? 0 : SIGKILL;
        ranks::run(
            world,
            [&](rf_comm *comm, int rank) {
                rf_store_opts opts = {};
                opts.count = COUNT;
                opts.servers = 2;
                opts.folder = folder;
                opts.restore = again;
                rf_store *store = nullptr;
                const rf_store_keys all = rf_store_range(0, COUNT);
                Vector values(COUNT), ones(COUNT, 1);
                ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
                if (rank == 3 && !again)
                    die_after(ns, saved);
                int status = rank < 2 ? RF_OK : rf_store_serve(store, nullptr);
                EXPECT_EQ(status, RF_OK);
                if (rank < 2 && again) {
                    /* Both servers are at one version. */
                    ASSERT_EQ(rf_store_pull(store, &all, 1, values.data()), RF_OK);
                    expect_equal(values);
                    ASSERT_EQ(rf_store_push(store, &all, ones.data(), nullptr), RF_OK);
                    ASSERT_EQ(rf_store_pull(store, &all, 2, values.data()), RF_OK);
                    expect_equal(values);
                }
                for (int step = 0; rank < 2 && !again && status == RF_OK; step++) {
                    status = rf_store_push(store, &all, ones.data(), nullptr);
                    if (status == RF_OK)
                        status = rf_store_pull(store, &all, 0, values.data());
                    if (status == RF_OK && rank == 0 && step % 4 == 0) {
                        status = rf_store_save(store);
                        __atomic_store_n(saved, status == RF_OK, __ATOMIC_SEQ_CST);
                    }
                }
                if (rank < 2 && !again) {
                    EXPECT_NE(strstr(rf_last_error()->message, "server 1 of the store, rank 3"),
                              nullptr)
                        << rf_last_error()->message;
                    EXPECT_EQ(rf_last_error()->rank, 3);
                    EXPECT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_EABORT);
                }
                rf_store_close(store);
            },
            [](int, int) {});
    }
    EXPECT_EQ(system((std::string("rm -rf ") + folder).c_str()), 0);
}

TEST(StoreDeath, AServerIsNamedAndRestored)
{
    std::mt19937_64 random(2);
    for (int k = 0; k < kills(); k++)
        kill_a_server(random() % 60000000);
}

/* A process that stops is one that is lost, once it has been silent for the timeout. */
TEST(StoreDeath, StoppedRanksAreLost)
{
    for (const int stopped : {1, 3}) {
        ranks::Shared shared(sizeof(pid_t) + sizeof(int));
        pid_t *process = shared.as<pid_t>();
        int *ended = shared.as<int>() + 1;
        ranks::World world;
        world.provider = "tcp";
        world.size = 4;
        world.may_die = {stopped};
        ranks::run(
            world,
            [&](rf_comm *comm, int rank) {
                rf_store_opts opts = {};
                opts.count = COUNT;
                opts.timeout_s = 1;
                rf_store *store = nullptr;
                ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
                const rf_store_keys all = rf_store_range(0, COUNT);
                Vector values(COUNT, 1);
                if (rank == stopped) {
                    __atomic_store_n(process, getpid(), __ATOMIC_SEQ_CST);
                    raise(SIGSTOP);
                }
                int status = RF_OK;
                if (rank == 3) {
                    EXPECT_EQ(rf_store_serve(store, nullptr), RF_OK);
                }
                for (int step = 0; rank < 3 && step < 3 && status == RF_OK; step++) {
                    status = rf_store_push(store, &all, values.data(), nullptr);
                    if (status == RF_OK)
                        status = rf_store_pull(store, &all, 0, values.data());
                }
                if (rank < 3 && stopped == 3) {
                    EXPECT_NE(status, RF_OK);
                    EXPECT_NE(strstr(rf_last_error()->message, "server 0 of the store, rank 3"),
                              nullptr)
                        << rf_last_error()->message;
                } else {
                    EXPECT_EQ(status, RF_OK) << rf_last_error()->message;
                }
                rf_store_close(store);
                const int last = stopped == 3 ? 2 : 3;
                if (rank != stopped && __atomic_add_fetch(ended, 1, __ATOMIC_SEQ_CST) == last) {
                    while (__atomic_load_n(process, __ATOMIC_SEQ_CST) == 0)
                        sched_yield();
                    kill(*process, SIGKILL);
                }
            },
            [](int, int) {});
        if (stopped == 1) {
            EXPECT_EQ(*ended, 3);
        }
    }
}

/* Across hosts each rank has a part of the parameters: the others are told whose is lost, in the
 * middle of whatever they do. ns 0: the rank stops instead. */
void lose_a_part(const char *provider, uint64_t ns)
{
    SCOPED_TRACE(std::string(provider) + ", " + std::to_string(ns) + " ns");
    ranks::Shared shared(2 * sizeof(int));
    int *process = shared.as<int>(), *ended = process + 1;
    ranks::World world;
    world.provider = provider;
    world.hosts = "a,b,c";
    world.size = 3;
    world.timeout_s = ns ? 20 : ranks::patience();
    world.may_die = {1};
    ranks::run(
        world,
        [&](rf_comm *comm, int rank) {
            rf_store_opts opts = {};
            opts.rule = RF_STORE_HOGWILD;
            opts.count = COUNT;
            rf_store *store = nullptr;
            ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
            const rf_store_keys all = rf_store_range(0, COUNT);
            Vector values(COUNT, 1);
            int status = RF_OK;
            if (rank == 1 && ns)
                die_after(ns);
            for (int step = 0; status == RF_OK; step++) {
                if (rank == 1 && !ns && step == 10) {
                    __atomic_store_n(process, getpid(), __ATOMIC_SEQ_CST);
                    raise(SIGSTOP);
                }
                status = rf_store_push(store, &all, values.data(), nullptr);
                if (status == RF_OK)
                    status = rf_store_pull(store, &all, 0, values.data());
            }
            EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_EABORT);
            rf_store_close(store);
            if (__atomic_add_fetch(ended, 1, __ATOMIC_SEQ_CST) == 2 && !ns)
                kill(*process, SIGKILL);
        },
        [](int, int) {});
    EXPECT_EQ(*ended, 2);
}

TEST(StoreDeath, WithoutServersTheLossOfARankIsTheLossOfTheStore)
{
    std::mt19937_64 random(3);
    for (int k = 0; k < kills(); k++)
        lose_a_part(k % 2 ? "ofi-tcp" : "tcp;ofi_rxm", 1 + random() % 60000000);
    lose_a_part("tcp;ofi_rxm", 0);
}

/* A worker that waits for longer than the timeout, for another one that is slow and not silent,
 * hears from the server meanwhile. */
TEST(StoreDeath, AWorkerThatWaitsForASlowOneIsNotLost)
{
    ranks::World world;
    world.size = 3;
    world.timeout_s = 2 * ranks::patience();
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const uint64_t end = rf_now_ns() + static_cast<uint64_t>(1.4e9 * world.timeout_s);
        rf_store_opts opts = {};
        opts.count = 10;
        rf_store *store = nullptr;
        ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
        rf_store_server_stats stats = {};
        if (rank == 2) {
            EXPECT_EQ(rf_store_serve(store, &stats), RF_OK);
            EXPECT_EQ(stats.lost, 0);
        }
        while (rank == 1 && rf_now_ns() < end) {
            ASSERT_EQ(rf_store_ask(store, 0, &stats), RF_OK);
        }
        const rf_store_keys all = rf_store_range(0, 10);
        Vector values(10, 1);
        if (rank < 2) {
            ASSERT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_OK);
            ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(values, Vector(10, -1));
        }
        rf_store_close(store);
    });
}

} // namespace
