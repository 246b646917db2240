/* SPDX-License-Identifier: MIT
 *
 * Stores without servers, in memory that ranks share and across hosts: nothing is lost by atomic
 * additions, losses of the others are counted to the last one.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "support/ranks.h"

extern "C" {
#include "store/across.h"
}

namespace
{

using Vector = std::vector<float>;

rf_store *open_store(rf_comm *comm, rf_store_rule rule, int64_t count, const float *initial)
{
    rf_store_opts opts = {};
    opts.rule = rule;
    opts.count = count;
    opts.initial = initial;
    rf_store *store = nullptr;
    EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
    return store;
}

/* Gradients are whole numbers, so each sum is exact in f32, in any order. */
void count_exactly(const ranks::World &world, rf_store_rule rule, int64_t count, int64_t pushes)
{
    SCOPED_TRACE(world.provider + " " + world.hosts + " " + rf_store_rule_name(rule));
    Vector initial(count);
    for (int64_t i = 0; i < count; i++)
        initial[i] = static_cast<float>(i);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = open_store(comm, rule, count, initial.data());
        ASSERT_NE(store, nullptr);
        const Vector ones(count, 1);
        const int64_t odd[] = {1, 3, 5};
        rf_store_keys rows = {};
        rows.first = 1;
        rows.width = 4;
        rows.count = 3;
        rows.rows = odd; /* parameters 5 to 8, 13 to 16, 21 to 24 */
        const rf_store_keys all = rf_store_range(0, count);
        Vector values(count), before = initial;
        for (int64_t k = 0; k < pushes; k++) {
            ASSERT_EQ(rf_store_push(store, k % 2 ? &rows : &all, ones.data(), nullptr), RF_OK);
            if (k % 20 != 0)
                continue;
            /* What is read while others write is a value that was there. */
            ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
            for (int64_t i = 0; i < count; i++) {
                ASSERT_EQ(values[i], std::floor(values[i])) << i;
                ASSERT_GE(values[i], initial[i] - static_cast<double>(pushes * world.size)) << i;
                ASSERT_LE(values[i], rule == RF_STORE_HOGWILD ? before[i] : initial[i]) << i;
            }
            before = values;
        }
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
        rf_store_stats stats = {};
        ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
        ASSERT_EQ(rf_store_get_stats(store, &stats), RF_OK);
        double missing = 0;
        for (int64_t i = 0; i < count; i++) {
            const bool in_rows = i > 4 && i < 25 && ((i - 1) / 4) % 2 == 1;
            const double want = initial[i] - pushes / 2.0 * world.size * (in_rows ? 2 : 1);
            EXPECT_GE(values[i], want) << i;
            missing += values[i] - want;
        }
        EXPECT_EQ(stats.pushes, pushes);
        EXPECT_EQ(stats.pulls, (pushes + 19) / 20 + 1);
        EXPECT_EQ(stats.additions, static_cast<uint64_t>(world.size * pushes / 2 * (count + 12)));
        /* Each addition is of 1: what is missing is what was lost. */
        EXPECT_EQ(static_cast<double>(stats.lost), missing);
        if (rule == RF_STORE_HOGWILD) {
            EXPECT_EQ(missing, 0);
        }
        if (rank == 0 && rule == RF_STORE_RACY)
            printf("%d ranks, %s: %llu of %llu additions lost\n", world.size, rf_store_path(store),
                   static_cast<unsigned long long>(stats.lost),
                   static_cast<unsigned long long>(stats.additions));
        rf_store_close(store);
    });
}

TEST(SharedStore, AtomicAdditionsLoseNothingAndRacyLossesAreCounted)
{
    for (const char *provider : {"loopback", "shm"})
        for (const int size : {1, 2, 3, 4})
            for (const rf_store_rule rule : {RF_STORE_HOGWILD, RF_STORE_RACY}) {
                ranks::World world;
                world.provider = provider;
                world.size = size;
                count_exactly(world, rule, 37, 3000);
            }
}

/* Parameters of several calls and operations, and fewer than ranks, too. */
TEST(StoreAcrossHosts, OneSidedAdditionsLoseNothingAndLossesAreCounted)
{
    const struct {
        const char *provider, *hosts;
        int size;
        int64_t count, pushes;
        std::vector<rf_store_rule> rules;
    } all[] = {
        {"tcp;ofi_rxm", "a,b", 2, 37, 400, {RF_STORE_HOGWILD, RF_STORE_RACY}},
        {"shm+tcp;ofi_rxm", "a,a,b", 3, 200001, 2, {RF_STORE_HOGWILD, RF_STORE_RACY}},
        {"ofi-tcp", "a,b", 2, 537, 400, {RF_STORE_HOGWILD}},
        {"shm+ofi-tcp", "a,b,b,c", 4, 200001, 2, {RF_STORE_HOGWILD}},
    };
    for (const auto &row : all)
        for (const rf_store_rule rule : row.rules) {
            ranks::World world;
            world.provider = row.provider;
            world.hosts = row.hosts;
            world.size = row.size;
            count_exactly(world, rule, row.count, row.pushes);
        }
}

/* One rank after the other, so that no block is read again. Parts of calls end within blocks. */
TEST(StoreAcrossHosts, APushAndAPullCostWhatIsPlanned)
{
    const struct {
        const char *provider;
        std::vector<rf_store_rule> rules;
    } all[] = {{"tcp;ofi_rxm", {RF_STORE_HOGWILD, RF_STORE_RACY}}, {"ofi-tcp", {RF_STORE_HOGWILD}}};
    for (const auto &row : all)
        for (const rf_store_rule rule : row.rules) {
            const int64_t count = 400003;
            const bool atomic = row.rules.size() == 2;
            ranks::World world;
            world.provider = row.provider;
            world.hosts = "a,b,c";
            world.size = 3;
            ranks::run(world, [&](rf_comm *comm, int rank) {
                rf_store *store = open_store(comm, rule, count, nullptr);
                ASSERT_NE(store, nullptr);
                const rf_store_keys keys = rf_store_range(0, count);
                Vector values(count);
                rf_store_opts opts = {};
                opts.rule = rule;
                opts.count = count;
                for (int turn = 0; turn < world.size; turn++) {
                    ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
                    if (turn != rank)
                        continue;
                    const rf_store_stats before = store->stats;
                    struct rf_store_usage planned = {};
                    ASSERT_EQ(rf_store_usage_across(&opts, world.size, rank, atomic, &planned),
                              RF_OK);
                    ASSERT_EQ(rf_store_push(store, &keys, values.data(), nullptr), RF_OK);
                    ASSERT_EQ(rf_store_pull(store, &keys, 0, values.data()), RF_OK);
                    EXPECT_EQ(store->stats.pushed_bytes - before.pushed_bytes, planned.sent_bytes);
                    EXPECT_EQ(store->stats.pulled_bytes - before.pulled_bytes,
                              planned.received_bytes);
                }
                rf_store_close(store);
            });
        }
}

/* A block that is not whole is read again, until the timeout. */
TEST(StoreAcrossHosts, ABlockThatIsNeverWholeIsNoValue)
{
    ranks::World world;
    world.provider = "ofi-tcp";
    world.hosts = "a,b";
    world.timeout_s = ranks::patience();
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_store *store = open_store(comm, RF_STORE_HOGWILD, 5, nullptr);
        ASSERT_NE(store, nullptr);
        const rf_store_keys first = rf_store_range(0, 1);
        rf_store_across *across = store->across;
        float value = 7; /* into rank 1's only block on rank 0, behind rank 0's block */
        if (rank == 1) {
            ASSERT_EQ(rf_window_start(across->window, RF_WINDOW_PUT, 0, across->head + 256 + 16,
                                      &value, sizeof value),
                      RF_OK);
            ASSERT_EQ(rf_window_flush(across->window), RF_OK);
        }
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
        if (rank == 0) {
            EXPECT_EQ(rf_store_pull(store, &first, 0, &value), RF_ETIMEOUT);
            EXPECT_EQ(rf_last_error()->rank, 1);
            EXPECT_NE(strstr(rf_last_error()->message, "rank 1 has not written block 0"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_store_pull(store, &first, 0, &value), RF_EABORT);
        }
        rf_store_close(store);
    });
}

/* Who gives up is not waited for, and the others are told why; a server counts it as lost. */
TEST(StoreAcrossHosts, ARankThatGivesUpTellsTheOthers)
{
    ranks::World world;
    world.provider = "tcp;ofi_rxm";
    world.hosts = "a,b";
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_store *store = open_store(comm, RF_STORE_HOGWILD, 5, nullptr);
        ASSERT_NE(store, nullptr);
        const rf_store_keys all = rf_store_range(0, 5);
        float values[5];
        int status = RF_OK;
        if (rank == 1)
            rf_store_abort(store, "the disk is full");
        while (status == RF_OK)
            status = rf_store_pull(store, &all, 0, values);
        EXPECT_EQ(status, RF_EABORT);
        EXPECT_EQ(rf_last_error()->rank, 1);
        EXPECT_NE(strstr(rf_last_error()->message, "the disk is full"), nullptr)
            << rf_last_error()->message;
        rf_store_close(store);
    });
    ranks::World servers;
    servers.size = 3;
    ranks::run(servers, [](rf_comm *comm, int rank) {
        rf_store *store = open_store(comm, RF_STORE_ASYNC, 5, nullptr);
        ASSERT_NE(store, nullptr);
        rf_store_server_stats stats = {};
        if (rank == 2) {
            EXPECT_EQ(rf_store_serve(store, &stats), RF_OK);
            EXPECT_EQ(stats.lost, 1);
        }
        if (rank == 1)
            rf_store_abort(store, "the disk is full");
        rf_store_close(store);
    });
}

TEST(SharedStore, RanksThatDisagreeAndNetworksWithoutTheOperationsAreRefused)
{
    ranks::World world;
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_store_opts opts = {};
        opts.rule = RF_STORE_HOGWILD;
        opts.count = 10 + rank;
        rf_store *store = nullptr;
        EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "store: parameters"), nullptr)
            << rf_last_error()->message;
    });
    world.provider = "shm+tcp";
    world.hosts = "a,b";
    ranks::run(world, [](rf_comm *comm, int) {
        rf_store_opts opts = {};
        opts.rule = RF_STORE_HOGWILD;
        opts.count = 10;
        rf_store *store = nullptr;
        EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_ENOTSUP) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "tcp has no one-sided operations"), nullptr)
            << rf_last_error()->message;
    });
    world.provider = "ofi-tcp";
    ranks::run(world, [](rf_comm *comm, int) {
        rf_store_opts opts = {};
        opts.rule = RF_STORE_RACY;
        opts.count = 10;
        rf_store *store = nullptr;
        EXPECT_EQ(rf_store_open(comm, &opts, &store), RF_ENOTSUP) << rf_last_error()->message;
        EXPECT_NE(strstr(rf_last_error()->message, "atomic reads and writes"), nullptr)
            << rf_last_error()->message;
    });
}

/* A rank that has left, or died, disturbs nobody. */
TEST(SharedStore, ARankThatDiesLeavesTheParametersToTheOthers)
{
    ranks::World world;
    world.provider = "shm";
    world.size = 3;
    world.expect_killed = 0;
    world.by_signal = SIGKILL;
    world.may_die = {0};
    ranks::Shared shared(sizeof(int));
    ranks::run(
        world,
        [&](rf_comm *comm, int rank) {
            const float one = 1;
            rf_store *store = open_store(comm, RF_STORE_HOGWILD, 5, nullptr);
            ASSERT_NE(store, nullptr);
            const rf_store_keys key = rf_store_range(2, 1);
            ASSERT_EQ(rf_store_push(store, &key, &one, nullptr), RF_OK);
            __atomic_add_fetch(shared.as<int>(), 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(shared.as<int>(), __ATOMIC_SEQ_CST) < 3)
                sched_yield();
            if (rank == 0)
                raise(SIGKILL); /* its memory is that of the store */
            float value = 0;
            ASSERT_EQ(rf_store_push(store, &key, &one, nullptr), RF_OK);
            __atomic_add_fetch(shared.as<int>(), 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(shared.as<int>(), __ATOMIC_SEQ_CST) < 5)
                sched_yield();
            ASSERT_EQ(rf_store_pull(store, &key, 0, &value), RF_OK);
            EXPECT_EQ(value, -5);
            rf_store_close(store);
        },
        [](int, int) {});
}

TEST(SharedStore, KeysAndGradientsThatMakeNoSenseAreRefused)
{
    ranks::World world;
    world.size = 1;
    ranks::run(world, [](rf_comm *comm, int) {
        rf_store *store = open_store(comm, RF_STORE_HOGWILD, 20, nullptr);
        ASSERT_NE(store, nullptr);
        const struct {
            int64_t first, width, count, rows[2];
            bool sparse;
            const char *says;
        } cases[] = {
            {0, 1, 21, {}, false, "21 rows of 1"},
            {21, 1, 0, {}, false, "from 0 to 20"},
            {-1, 1, 1, {}, false, "from 0 to 20"},
            {0, -1, 1, {}, false, "from 0 to 20"},
            {0, INT64_MAX, 2, {}, false, "rows of"},
            {4, 4, 2, {1, 4}, true, "row 4 of a table that has 4"},
            {0, 4, 2, {2, 2}, true, "row 2 comes behind row 2"},
            {0, 4, 2, {-1, 2}, true, "row -1 comes behind"},
        };
        Vector values(32, 1);
        for (const auto &c : cases) {
            rf_store_keys keys = {};
            keys.first = c.first;
            keys.width = c.width;
            keys.count = c.count;
            keys.rows = c.sparse ? c.rows : nullptr;
            EXPECT_EQ(rf_store_push(store, &keys, values.data(), nullptr), RF_EINVAL);
            EXPECT_NE(strstr(rf_last_error()->message, c.says), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_store_pull(store, &keys, 0, values.data()), RF_EINVAL);
        }
        const rf_store_keys all = rf_store_range(0, 20);
        values[19] = NAN;
        EXPECT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_EINVAL);
        values[19] = 1;
        rf_store_update update = {};
        update.lr = INFINITY;
        EXPECT_EQ(rf_store_push(store, &all, values.data(), &update), RF_EINVAL);
        ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
        for (int i = 0; i < 32; i++)
            EXPECT_EQ(values[i], i < 20 ? 0 : 1) << i;
        rf_store_close(store);
    });
}

} // namespace
