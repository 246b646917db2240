/* SPDX-License-Identifier: MIT
 *
 * Sparse logistic regression by processes that do not wait for each other, against one process.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <cmath>

#include "support/ranks.h"

namespace
{

using Vector = std::vector<float>;

/* 1 % of the features */
enum { FEATURES = 500, NONZERO = 5, SAMPLES = 2000 };

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

/* The loss after a number of updates, which the workers divide: each draws from all samples. */
double loss_with(int workers, rf_store_rule rule, int updates)
{
    const std::vector<Sample> all = samples();
    ranks::Shared shared(sizeof(double));
    ranks::World world;
    world.provider = "shm";
    world.size = workers + rf_store_has_servers(rule);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = nullptr;
        rf_store_opts opts = {};
        opts.rule = rule;
        opts.stale = rule == RF_STORE_STALE ? 8 : 0;
        opts.count = FEATURES;
        ASSERT_EQ(rf_store_open(comm, &opts, &store), RF_OK) << rf_last_error()->message;
        rf_comm *together = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank < workers ? 0 : -1, rank, &together), RF_OK);
        if (rank == workers) {
            ASSERT_EQ(rf_store_serve(store, nullptr), RF_OK);
            rf_store_close(store);
            return;
        }
        Draw draw = {100u + rank};
        for (int k = rank; k < updates; k += workers)
            learn(store, all[draw() % SAMPLES],
                  2000.0f / updates * static_cast<float>(updates - k) / updates);
        Vector weights(FEATURES);
        const rf_store_keys keys = rf_store_range(0, FEATURES);
        ASSERT_EQ(rf_barrier(together, nullptr), RF_OK);
        ASSERT_EQ(
            rf_store_pull(store, &keys, rf_store_has_servers(rule) ? updates : 0, weights.data()),
            RF_OK)
            << rf_last_error()->message;
        double loss = 0;
        for (const Sample &sample : all)
            loss += log1p(exp(-margin(sample, weights.data(), false))) / SAMPLES;
        if (rank == 0)
            *shared.as<double>() = loss;
        rf_comm_close(together);
        rf_store_close(store);
    });
    return *shared.as<double>();
}

/* Fewer updates where each is a message. */
TEST(SparseStore, LogisticRegressionIsAsGoodAsSerial)
{
    const struct {
        rf_store_rule rule;
        int updates;
        std::vector<int> workers;
    } cases[] = {{RF_STORE_HOGWILD, 40000, {2, 3, 4}},
                 {RF_STORE_RACY, 40000, {4}},
                 {RF_STORE_ASYNC, 10000, {2, 4}},
                 {RF_STORE_STALE, 10000, {3}}};
    for (const auto &c : cases) {
        const double serial = loss_with(1, RF_STORE_HOGWILD, c.updates);
        EXPECT_LT(serial, 0.7 * log(2)); /* it has learned */
        for (const int workers : c.workers) {
            const double loss = loss_with(workers, c.rule, c.updates);

            EXPECT_NEAR(loss, serial, 0.02 * serial)
                << rf_store_rule_name(c.rule) << ", " << workers << " workers";
        }
    }
}

} // namespace
