/* SPDX-License-Identifier: MIT
 *
 * Sparse logistic regression by processes that do not wait for each other, against one process.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/store.h>

#include <cmath>
#include <map>

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

double margin(const Sample &sample, const std::map<int64_t, float> &weights)
{
    double sum = 0;
    for (const int64_t row : sample.rows)
        sum += weights.at(row);
    return sample.label * sum;
}

/* One update by some samples: pull their rows, push the sum of their gradients. */
void learn(rf_store *store, const std::vector<const Sample *> &batch, float lr)
{
    std::map<int64_t, float> weights, gradient;
    for (const Sample *sample : batch)
        for (const int64_t row : sample->rows)
            gradient[row] = 0;
    std::vector<int64_t> rows;
    for (const auto &entry : gradient)
        rows.push_back(entry.first);
    Vector values(rows.size());
    rf_store_keys keys = {};
    keys.count = static_cast<int64_t>(rows.size());
    keys.rows = rows.data();
    ASSERT_EQ(rf_store_pull(store, &keys, 0, values.data()), RF_OK);
    for (size_t k = 0; k < rows.size(); k++)
        weights[rows[k]] = values[k];
    for (const Sample *sample : batch)
        for (const int64_t row : sample->rows)
            gradient[row] -=
                static_cast<float>(sample->label / (1 + exp(margin(*sample, weights))));
    for (size_t k = 0; k < rows.size(); k++)
        values[k] = gradient[rows[k]];
    rf_store_update update = {};
    update.lr = lr;
    ASSERT_EQ(rf_store_push(store, &keys, values.data(), &update), RF_OK);
}

/* The loss after a number of updates, which the workers divide: each draws from all samples. With a
 * network each worker is on a host of its own. */
double loss_with(int workers, rf_store_rule rule, int updates, int batch,
                 const char *network = nullptr)
{
    const std::vector<Sample> all = samples();
    ranks::Shared shared(sizeof(double));
    ranks::World world;
    world.provider = network ? network : "shm";
    world.hosts = network ? std::string("a,b,c,d").substr(0, 2 * workers - 1) : "";
    world.size = workers + rf_store_has_servers(rule);
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_store *store = nullptr;
        rf_store_opts opts = {};
        opts.rule = rule;
        opts.stale = rule == RF_STORE_STALE ? 4 : 0;
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
        for (int k = rank; k < updates; k += workers) {
            std::vector<const Sample *> some(batch);
            for (const Sample *&sample : some)
                sample = &all[draw() % SAMPLES];
            learn(store, some,
                  2000.0f / (batch * updates) * static_cast<float>(updates - k) / updates);
        }
        Vector weights(FEATURES);
        const rf_store_keys keys = rf_store_range(0, FEATURES);
        ASSERT_EQ(rf_barrier(together, nullptr), RF_OK);
        ASSERT_EQ(
            rf_store_pull(store, &keys, rf_store_has_servers(rule) ? updates : 0, weights.data()),
            RF_OK)
            << rf_last_error()->message;
        std::map<int64_t, float> trained;
        for (int64_t i = 0; i < FEATURES; i++)
            trained[i] = weights[i];
        double loss = 0;
        for (const Sample &sample : all)
            loss += log1p(exp(-margin(sample, trained))) / SAMPLES;
        if (rank == 0)
            *shared.as<double>() = loss;
        rf_comm_close(together);
        rf_store_close(store);
    });
    return *shared.as<double>();
}

/* Fewer updates, of more samples each, where each is a message. */
TEST(SparseStore, LogisticRegressionIsAsGoodAsSerial)
{
    const struct {
        rf_store_rule rule;
        int updates, batch;
        std::vector<int> workers;
        const char *network;
    } cases[] = {{RF_STORE_HOGWILD, 20000, 1, {2, 3, 4}},
                 {RF_STORE_RACY, 20000, 1, {4}},
                 {RF_STORE_ASYNC, 1000, 10, {2}},
                 {RF_STORE_STALE, 1000, 10, {3, 4}},
                 {RF_STORE_HOGWILD, 500, 20, {3}, "tcp;ofi_rxm"},
                 {RF_STORE_HOGWILD, 500, 20, {2}, "ofi-tcp"}};
    for (const auto &c : cases) {
        const double serial = loss_with(1, RF_STORE_HOGWILD, c.updates, c.batch);
        EXPECT_LT(serial, 0.7 * log(2)); /* it has learned */
        for (const int workers : c.workers) {
            const double loss = loss_with(workers, c.rule, c.updates, c.batch, c.network);
            EXPECT_NEAR(loss, serial, 0.02 * serial)
                << rf_store_rule_name(c.rule) << ", " << workers << " workers, "
                << (c.network ? c.network : "shm");
        }
    }
}

} // namespace
