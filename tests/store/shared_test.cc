/* SPDX-License-Identifier: MIT
 *
 * Stores in memory that ranks share: nothing is lost by atomic additions, losses of the others are
 * counted to the last one, and sparse logistic regression learns as well as one process does.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "support/ranks.h"

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
void count_exactly(const ranks::World &world, rf_store_rule rule)
{
    const int64_t count = 37, pushes = 3000;
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
        for (int64_t k = 0; k < pushes; k++)
            ASSERT_EQ(rf_store_push(store, k % 2 ? &rows : &all, ones.data(), nullptr), RF_OK);
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
        Vector values(count);
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
        EXPECT_EQ(stats.pulls, 1);
        EXPECT_EQ(stats.additions, static_cast<uint64_t>(world.size * pushes / 2 * (count + 12)));
        /* Each addition is of 1: what is missing is what was lost. */
        EXPECT_EQ(static_cast<double>(stats.lost), missing);
        if (rule == RF_STORE_HOGWILD) {
            EXPECT_EQ(missing, 0);
        }
        if (rank == 0 && rule == RF_STORE_RACY)
            printf("%d ranks: %llu of %llu additions lost\n", world.size,
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
                count_exactly(world, rule);
            }
}

TEST(SharedStore, RanksThatDisagreeAndOtherHostsAreRefused)
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

/* ---- sparse logistic regression -------------------------------------------------------------- */

/* 1 % of the features */
enum { FEATURES = 500, NONZERO = 5, SAMPLES = 2000, UPDATES = 40000 };

struct Sample {
    int64_t rows[NONZERO];
    float label;
};

struct Draw {
    uint64_t state;
    uint64_t operator()()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return state >> 33;
    }
};

/* Features of a sample are any 5 of 500, of weights made from their numbers. Its label has the
 * probability that the sum of these gives. */
std::vector<Sample> samples()
{
    std::vector<Sample> all(SAMPLES);
    Draw draw = {1};
    for (Sample &sample : all) {
        double side = 0;
        for (int k = 0; k < NONZERO; k++) {
            const int64_t row = FEATURES / NONZERO * k + draw() % (FEATURES / NONZERO);
            sample.rows[k] = row;
            side += sin(12.9898 * static_cast<double>(row));
        }
        sample.label = draw() / 2147483648.0 < 1 / (1 + exp(-side)) ? 1 : -1;
    }
    return all;
}

double margin(const Sample &sample, const float *weights, bool packed)
{
    double sum = 0;
    for (int k = 0; k < NONZERO; k++)
        sum += weights[packed ? k : sample.rows[k]];
    return sample.label * sum;
}

/* One update by a sample: pull its rows, push their gradient. */
void learn(rf_store *store, const Sample &sample, float lr)
{
    float weights[NONZERO], gradient[NONZERO];
    rf_store_keys keys = {};
    keys.count = NONZERO;
    keys.rows = sample.rows;
    rf_store_update update = {};
    update.lr = lr;
    ASSERT_EQ(rf_store_pull(store, &keys, 0, weights), RF_OK);
    const double slope = -sample.label / (1 + exp(margin(sample, weights, true)));
    for (float &g : gradient)
        g = static_cast<float>(slope);
    ASSERT_EQ(rf_store_push(store, &keys, gradient, &update), RF_OK);
}

/* The loss after UPDATES updates, which the ranks divide: each draws from all samples. */
double loss_with(const ranks::World &world, rf_store_rule rule)
{
    const std::vector<Sample> all = samples();
    ranks::Shared shared(sizeof(double));
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = open_store(comm, rule, FEATURES, nullptr);
        ASSERT_NE(store, nullptr);
        Draw draw = {100u + rank};
        for (int k = rank; k < UPDATES; k += world.size)
            learn(store, all[draw() % SAMPLES], 0.05f * static_cast<float>(UPDATES - k) / UPDATES);
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
        Vector weights(FEATURES);
        const rf_store_keys keys = rf_store_range(0, FEATURES);
        ASSERT_EQ(rf_store_pull(store, &keys, 0, weights.data()), RF_OK);
        double loss = 0;
        for (const Sample &sample : all)
            loss += log1p(exp(-margin(sample, weights.data(), false))) / SAMPLES;
        if (rank == 0)
            *shared.as<double>() = loss;
        rf_store_close(store);
    });
    return *shared.as<double>();
}

TEST(SharedStore, SparseLogisticRegressionIsAsGoodAsSerial)
{
    ranks::World world;
    world.provider = "shm";
    world.size = 1;
    const double serial = loss_with(world, RF_STORE_HOGWILD);
    EXPECT_LT(serial, 0.7 * log(2)); /* it has learned */
    for (const int size : {2, 3, 4})
        for (const rf_store_rule rule : {RF_STORE_HOGWILD, RF_STORE_RACY}) {
            if (rule == RF_STORE_RACY && size != 4)
                continue;
            world.size = size;
            const double loss = loss_with(world, rule);
            EXPECT_NEAR(loss, serial, 0.02 * serial)
                << rf_store_rule_name(rule) << ", " << size << " ranks";
        }
}

} // namespace
