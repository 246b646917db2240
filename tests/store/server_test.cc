/* SPDX-License-Identifier: MIT
 *
 * Stores on servers, over loopback: the synchronous rule against data-parallel training in tree
 * order, to the bit; the bound of the stale one; bytes; rows; what is refused.
 */
#include <gtest/gtest.h>
#include <ringforge/host_step.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "server_run.h"

namespace
{

/* Ranges with further terms: each lies on two servers, and they overlap. */
const rf_store_keys further[] = {rf_store_range(10, 100), rf_store_range(60, 60)};

Vector terms_of(int worker, int64_t step)
{
    Vector out = gradients(worker + 10, step, 100);
    const Vector more = gradients(worker + 20, step, 60);
    out.insert(out.end(), more.begin(), more.end());
    return out;
}

/* What data-parallel training in tree order makes of the same gradients on the host. terms: each
 * use of a tied parameter is added over the ranks, and then the uses. */
Vector data_parallel(int workers, int64_t count, int64_t steps, const rf_optimizer_opts &optimizer,
                     bool terms)
{
    Vector out;
    ranks::World world;
    world.size = workers;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Vector params = start(count), states[RF_STATE_COUNT];
        const std::vector<int32_t> decay = {1, 0, 1};
        rf_step_scalars scalars = {};
        rf_host_part part = {};
        part.count = count;
        part.param = params.data();
        part.decay = decay.data();
        for (int s = 0; s < RF_STATE_COUNT; s++) {
            states[s].resize(count);
            part.state[s] = states[s].data();
        }
        for (int64_t step = 0; step < steps; step++) {
            Vector sum = gradients(rank, step, count);
            rf_coll_opts tree = {};
            tree.order = RF_ORDER_TREE;
            ASSERT_EQ(rf_all_reduce(comm, sum.data(), sum.data(), count, RF_F32, RF_SUM, &tree),
                      RF_OK);
            Vector more = terms_of(rank, step);
            ASSERT_EQ(
                rf_all_reduce(comm, more.data(), more.data(), more.size(), RF_F32, RF_SUM, &tree),
                RF_OK);
            const float *next = more.data();
            for (const rf_store_keys &range : further)
                for (int64_t i = 0; terms && i < range.count; i++)
                    sum[range.first + i] += *next++;
            part.grad = sum.data();
            scalars.lr = 0.05f;
            scalars.inv_tokens = static_cast<float>(1.0 / (3.0 * workers));
            ASSERT_EQ(rf_host_step_begin(&optimizer, &scalars, 0), RF_OK);
            ASSERT_EQ(rf_host_step(&optimizer, &part, 0, count, &scalars), RF_OK);
        }
        if (rank == 0)
            out = params;
    });
    return out;
}

TEST(ServerStore, SynchronousIsDataParallelInTreeOrderToTheBit)
{
    for (const int workers : {1, 2, 3, 5})
        for (const int servers : {1, 2})
            for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++) {
                const int64_t count = 131, steps = 3;
                const rf_optimizer_info *info =
                    rf_optimizer_get_info(static_cast<rf_optimizer>(kind));
                rf_optimizer_opts optimizer = {};
                optimizer.kind = static_cast<rf_optimizer>(kind);
                optimizer.beta1 = info->beta1;
                optimizer.beta2 = info->beta2;
                optimizer.eps = info->eps;
                optimizer.momentum = info->momentum;
                optimizer.weight_decay = 0.1f;
                const rf_store_keys bare = rf_store_range(64, 64);
                const Vector initial = start(count);
                const bool terms = kind == RF_ADAMW || kind == RF_SGD;
                const Vector want = data_parallel(workers, count, steps, optimizer, terms);
                rf_store_opts opts = {};
                opts.count = count;
                opts.terms = further;
                opts.term_count = terms ? 2 : 0;
                opts.servers = servers;
                opts.optimizer = &optimizer;
                opts.undecayed = &bare;
                opts.undecayed_count = 1;
                opts.initial = initial.data();
                run(workers, opts, [&](rf_store *store, int worker) {
                    const rf_store_keys all = rf_store_range(0, count);
                    Vector got(count);
                    rf_store_update update = {};
                    update.lr = 0.05f;
                    update.share = 3;
                    for (int64_t step = 0; step < steps; step++) {
                        const Vector mine = gradients(worker, step, count);
                        const Vector more = terms_of(worker, step);
                        update.terms = terms ? more.data() : nullptr;
                        ASSERT_EQ(rf_store_push(store, &all, mine.data(), &update), RF_OK);
                        ASSERT_EQ(rf_store_pull(store, &all, 0, got.data()), RF_OK)
                            << rf_last_error()->message;
                        rf_store_stats stats = {};
                        ASSERT_EQ(rf_store_get_stats(store, &stats), RF_OK);
                        EXPECT_EQ(stats.version, step + 1);
                    }
                    EXPECT_EQ(got, want) << info->name << ", " << workers << " workers";
                });
            }
}

/* Of K bytes on Nw workers all servers together receive Nw K and send Nw K in a synchronous round.
 */
TEST(ServerStore, BytesAreTwiceTheWorkersTimesTheParameters)
{
    const int64_t count = 1001, rounds = 4;
    for (const int servers : {1, 2, 3}) {
        const int workers = 3;
        rf_store_opts opts = {};
        opts.count = count;
        opts.servers = servers;
        std::vector<rf_store_server_stats> stats(servers);
        run(
            workers, opts,
            [&](rf_store *store, int worker) {
                const rf_store_keys all = rf_store_range(0, count);
                Vector values = gradients(worker, 0, count);
                for (int64_t k = 0; k < rounds; k++) {
                    ASSERT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_OK);
                    ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
                }
                rf_store_stats mine = {};
                ASSERT_EQ(rf_store_get_stats(store, &mine), RF_OK);
                EXPECT_EQ(mine.pushed_bytes, static_cast<uint64_t>(rounds * 4 * count));
                EXPECT_EQ(mine.pulled_bytes, static_cast<uint64_t>(rounds * 4 * count));
                /* A round and a server: three heads of 64 bytes and two pieces of 8. */
                EXPECT_EQ(mine.other_bytes, static_cast<uint64_t>(rounds * servers * (192 + 16)));
            },
            [&](int server, const rf_store_server_stats &now) { stats[server] = now; });
        uint64_t sum = 0;
        for (int s = 0; s < servers; s++) {
            int64_t first = 0, held = 0;
            rf_store_shard(&opts, s, &first, &held);
            EXPECT_LE(std::abs(held - count / servers), 1);
            EXPECT_EQ(stats[s].pushed_bytes, static_cast<uint64_t>(workers * rounds * 4 * held));
            EXPECT_EQ(stats[s].pulled_bytes, static_cast<uint64_t>(workers * rounds * 4 * held));
            EXPECT_EQ(stats[s].other_bytes,
                      static_cast<uint64_t>(workers * (rounds * (192 + 16) + 64))); /* and bye */
            EXPECT_EQ(stats[s].version, rounds);
            EXPECT_EQ(stats[s].staleness[0], workers * rounds); /* nothing is ever stale */
            EXPECT_EQ(stats[s].most_stale, 0);
            EXPECT_EQ(stats[s].workers, 0);
            EXPECT_EQ(stats[s].lost, 0);
            sum += stats[s].pushed_bytes + stats[s].pulled_bytes;
        }
        EXPECT_EQ(sum, static_cast<uint64_t>(2 * workers * rounds * 4 * count));
    }
}

/* Whatever the workers do, no pull of the rule stale is by a worker that is more than `stale`
 * pushes ahead of the slowest one, and the others reach any distance. */
TEST(ServerStore, StalenessIsBounded)
{
    for (const int64_t stale : {0, 1, 3})
        for (const int servers : {1, 2}) {
            const int64_t steps = 40, count = 8;
            rf_store_opts opts = {};
            opts.rule = RF_STORE_STALE;
            opts.stale = stale;
            opts.count = count;
            opts.servers = servers;
            std::atomic<int64_t> clocks[3] = {};
            std::atomic<int> working(3);
            run(
                3, opts,
                [&](rf_store *store, int worker) {
                    const rf_store_keys all = rf_store_range(0, count);
                    Vector values(count), ones(count, 1);
                    for (int64_t k = 0; k < steps * (worker + 1); k++) {
                        clocks[worker]++; /* before the push: the others know of no more */
                        ASSERT_EQ(rf_store_push(store, &all, ones.data(), nullptr), RF_OK);
                        ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
                        if (working == 3) {
                            for (const auto &clock : clocks) {
                                EXPECT_LE(k + 1 - clock, stale);
                            }
                        }
                        /* At least the pushes of the slowest are in what was pulled. */
                        EXPECT_LE(values[0], -static_cast<float>(k + 1));
                    }
                    working--; /* before it leaves */
                },
                [&](int, const rf_store_server_stats &stats) {
                    EXPECT_LE(stats.most_lag, stale);
                    EXPECT_EQ(stats.pushes, steps * 6);
                    EXPECT_EQ(stats.version, steps * 6);
                    int64_t pushes = 0, pulls = 0;
                    for (int b = 0; b < RF_STORE_BUCKETS; b++) {
                        pushes += stats.staleness[b];
                        pulls += stats.lag[b];
                    }
                    EXPECT_EQ(pushes, stats.pushes);
                    EXPECT_EQ(pulls, stats.pulls);
                });
        }
}

/* Each gradient is applied once, whole, when it comes: sums of whole numbers are exact. A pull that
 * asks for a version gets it. */
TEST(ServerStore, AsynchronousAppliesEachGradientOnce)
{
    for (const int servers : {1, 2}) {
        const int64_t count = 50, steps = 100;
        rf_store_opts opts = {};
        opts.rule = RF_STORE_ASYNC;
        opts.count = count;
        opts.servers = servers;
        run(3, opts, [&](rf_store *store, int worker) {
            const rf_store_keys all = rf_store_range(0, count);
            Vector values(count);
            const Vector mine(count, static_cast<float>(worker + 1));
            for (int64_t k = 0; k < steps; k++) {
                ASSERT_EQ(rf_store_push(store, &all, mine.data(), nullptr), RF_OK);
                ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
            }
            ASSERT_EQ(rf_store_pull(store, &all, 3 * steps, values.data()), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(values, Vector(count, -6 * steps));
        });
    }
}

/* A worker that has finished is no longer waited for, and pulls what the others push. */
TEST(ServerStore, AWorkerThatHasFinishedStillPulls)
{
    for (const rf_store_rule rule : {RF_STORE_SYNC, RF_STORE_STALE}) {
        rf_store_opts opts = {};
        opts.rule = rule;
        opts.count = 10;
        run(2, opts, [&](rf_store *store, int worker) {
            const rf_store_keys all = rf_store_range(0, 10);
            Vector values(10), ones(10, 1);
            for (int k = 0; k < 2 + 3 * worker; k++) {
                ASSERT_EQ(rf_store_push(store, &all, ones.data(), nullptr), RF_OK);
                ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK);
            }
            ASSERT_EQ(rf_store_finish(store, worker ? 0 : 7), RF_OK);
            const int64_t last = rule == RF_STORE_SYNC ? 5 : 7;
            rf_store_server_stats served = {};
            while (served.version < last) {
                ASSERT_EQ(rf_store_ask(store, 0, &served), RF_OK);
            }
            ASSERT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(values, Vector(10, -static_cast<float>(last)));
            rf_store_stats stats = {};
            ASSERT_EQ(rf_store_get_stats(store, &stats), RF_OK);
            EXPECT_EQ(stats.note, 7);
        });
    }
}

/* Rows of a table, some of which lie on both servers, as the dense gradient that they are. */
TEST(ServerStore, RowsAreTheGradientThatIsZeroElsewhere)
{
    for (const rf_store_rule rule : {RF_STORE_SYNC, RF_STORE_ASYNC})
        for (const int servers : {1, 2, 3}) {
            const int64_t count = 100, width = 7;
            rf_store_opts opts = {};
            opts.rule = rule;
            opts.count = count;
            opts.servers = servers;
            Vector last;
            run(2, opts, [&](rf_store *store, int worker) {
                const int64_t rows[2][3] = {{0, 6, 7}, {2, 6, 13}};
                rf_store_keys some = {};
                some.first = 2;
                some.width = width;
                some.count = 3;
                some.rows = rows[worker];
                Vector mine(3 * width), got(count), part(3 * width);
                for (size_t k = 0; k < mine.size(); k++)
                    mine[k] = static_cast<float>(k + 1);
                rf_store_update update = {};
                update.share = rule == RF_STORE_SYNC ? 0.5 : 1; /* shares of both make 1 */
                ASSERT_EQ(rf_store_push(store, &some, mine.data(), &update), RF_OK);
                const rf_store_keys all = rf_store_range(0, count);
                ASSERT_EQ(rf_store_pull(store, &all, rule == RF_STORE_SYNC ? 0 : 2, got.data()),
                          RF_OK)
                    << rf_last_error()->message;
                Vector want(count);
                for (const auto &list : rows)
                    for (int r = 0; r < 3; r++)
                        for (int64_t c = 0; c < width; c++)
                            want[2 + list[r] * width + c] -= static_cast<float>(r * width + c + 1);
                EXPECT_EQ(got, want);
                ASSERT_EQ(rf_store_pull(store, &some, 0, part.data()), RF_OK);
                for (int r = 0; r < 3; r++)
                    for (int64_t c = 0; c < width; c++)
                        EXPECT_EQ(part[r * width + c], want[2 + rows[worker][r] * width + c]);
            });
        }
}

/* ---- what is refused ------------------------------------------------------------------------- */

TEST(ServerStore, AVersionThatCannotComeIsRefusedAndTheStoreContinues)
{
    rf_store_opts opts = {};
    opts.count = 10;
    for (const rf_store_rule rule : {RF_STORE_SYNC, RF_STORE_ASYNC}) {
        opts.rule = rule;
        run(1, opts, [&](rf_store *store, int) {
            const rf_store_keys all = rf_store_range(0, 10);
            Vector values(10, 1);
            EXPECT_EQ(rf_store_pull(store, &all, 1, values.data()), RF_EINVAL);
            EXPECT_NE(strstr(rf_last_error()->message, "version 1 needs another push"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_store_save(store), RF_EINVAL) << rf_last_error()->message;
            rf_store_server_stats stats = {};
            EXPECT_EQ(rf_store_ask(store, 0, &stats), RF_OK);
            EXPECT_EQ(stats.workers, 1);
            ASSERT_EQ(rf_store_push(store, &all, values.data(), nullptr), RF_OK);
            EXPECT_EQ(rf_store_pull(store, &all, 1, values.data()), RF_OK);
            EXPECT_EQ(values, Vector(10, -1));
        });
    }
}

/* Another rate: the worker is told, and the other one continues without it. */
TEST(ServerStore, RatesOfOneUpdateMustAgree)
{
    rf_store_opts opts = {};
    opts.count = 10;
    std::atomic<int> failed(0);
    run(
        2, opts,
        [&](rf_store *store, int worker) {
            const rf_store_keys all = rf_store_range(0, 10);
            Vector values(10, 1);
            rf_store_update update = {};
            update.lr = worker ? 1.0f : 0.5f;
            ASSERT_EQ(rf_store_push(store, &all, values.data(), &update), RF_OK);
            const int status = rf_store_pull(store, &all, 0, values.data());
            if (status == RF_OK)
                return;
            failed++;
            EXPECT_EQ(status, RF_EABORT);
            EXPECT_NE(strstr(rf_last_error()->message, "all have the same rate"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_store_pull(store, &all, 0, values.data()), RF_EABORT);
        },
        [](int, const rf_store_server_stats &stats) {
            EXPECT_EQ(stats.lost, 1);
            EXPECT_EQ(stats.version, 1);
        });
    EXPECT_EQ(failed, 1);
}

TEST(ServerStore, OptionsThatMakeNoSenseAreRefused)
{
    rf_optimizer_opts rounded = {};
    rounded.stochastic_rounding = true;
    struct {
        const char *says;
        rf_store_opts opts;
    } cases[] = {
        {"a rule of the list", {}},
        {"0 parameters", {}},
        {"3 servers", {}},
        {"at least one", {}},
        {"staleness of 2", {}},
        {"restore needs", {}},
        {"stochastic", {}},
        {"without servers", {}},
        {"without servers", {}},
        {"staleness of -1", {}},
        {"range 1 of", {}},
        {"a timeout of -1", {}},
        {"a state of version -1", {}},
        {"range 0 of \"terms\"", {}},
        {"terms of gradients belong", {}},
    };
    for (auto &c : cases)
        c.opts.count = 10;
    cases[0].opts.rule = RF_STORE_RULE_COUNT;
    cases[1].opts.count = 0;
    cases[2].opts.servers = 3;
    cases[3].opts.servers = 2;
    cases[3].opts.count = 1;
    cases[4].opts.stale = 2;
    cases[5].opts.restore = true;
    cases[6].opts.optimizer = &rounded;
    cases[7].opts.rule = RF_STORE_HOGWILD;
    cases[7].opts.optimizer = &rounded;
    cases[8].opts.rule = RF_STORE_RACY;
    cases[8].opts.servers = 1;
    cases[9].opts.rule = RF_STORE_STALE;
    cases[9].opts.stale = -1;
    const rf_store_keys ranges[] = {rf_store_range(2, 4), rf_store_range(5, 1)};
    cases[10].opts.undecayed = ranges;
    cases[10].opts.undecayed_count = 2;
    cases[11].opts.timeout_s = -1;
    rf_store_state bad = {};
    bad.version = -1;
    cases[12].opts.state = &bad;
    const int64_t row = 0;
    const rf_store_keys rows = {0, 1, 1, &row};
    cases[13].opts.terms = &rows;
    cases[14].opts.rule = RF_STORE_ASYNC;
    cases[14].opts.terms = ranges;
    cases[13].opts.term_count = cases[14].opts.term_count = 1;
    ranks::World world;
    world.size = 3;
    ranks::run(world, [&](rf_comm *comm, int) {
        for (const auto &c : cases) {
            rf_store *store = nullptr;
            EXPECT_EQ(rf_store_open(comm, &c.opts, &store), RF_EINVAL) << c.says;
            EXPECT_NE(strstr(rf_last_error()->message, c.says), nullptr)
                << rf_last_error()->message;
        }
    });
}

TEST(ServerStore, TextsOfRules)
{
    rf_store_opts opts = {};
    ASSERT_EQ(rf_store_text_read("server:stale=3,servers=2", &opts), RF_OK);
    EXPECT_EQ(opts.rule, RF_STORE_STALE);
    EXPECT_EQ(opts.stale, 3);
    EXPECT_EQ(opts.servers, 2);
    ASSERT_EQ(rf_store_text_read("server:async", &opts), RF_OK);
    EXPECT_EQ(opts.rule, RF_STORE_ASYNC);
    ASSERT_EQ(rf_store_text_read("server", &opts), RF_OK);
    EXPECT_EQ(opts.rule, RF_STORE_SYNC);
    ASSERT_EQ(rf_store_text_read("hogwild:racy", &opts), RF_OK);
    EXPECT_EQ(opts.rule, RF_STORE_RACY);
    for (const char *text :
         {"", "servers", "server:", "server:stale", "server:stale=", "server:stale=-1",
          "server:stale=1.5", "server:stale=0x3", "server:async=2", "hogwild,servers=2", "server,",
          "server,,", "server,servers=0", "server,servers=2,servers=2", "server,lr=1",
          "hogwild:racy=1", "server:stale=1e99"})
        EXPECT_EQ(rf_store_text_read(text, &opts), RF_EINVAL) << text;
    EXPECT_EQ(opts.rule, RF_STORE_RACY);
}

} // namespace
