/* SPDX-License-Identifier: MIT
 *
 * Workers that are lost: the others continue with the right mean, whichever instruction of the
 * exchange the loss meets. A worker that joins has the mean, and keeps it.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/rounds.h>

#include <cstdlib>
#include <cstring>

#include "support/ranks.h"

namespace
{

const int64_t kCount = 200;

struct Case {
    const char *name;
    int graph, form;
    bool difference, weighted;
    int64_t every, delay;
};

bool all_tests()
{
    const char *all = getenv("RF_TEST_ALL");
    return all && strcmp(all, "1") == 0;
}

class Loss : public testing::TestWithParam<Case>
{
};

/* Rank 1 dies behind the N-th message of the job. A local step adds rank + 1 to each parameter, so
 * sums are whole numbers, and of weights of neighbours multiples of thirds. */
void lose(const Case &c, uint64_t messages)
{
    SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(messages) + " messages");
    std::vector<std::vector<float>> params(4, std::vector<float>(kCount));
    std::vector<int64_t> opened(4);
    ranks::World world;
    world.size = 4;
    world.faults.kill_rank = 1;
    world.faults.kill_after_messages = messages;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_rounds_rule rule = {};
        rule.mixing.graph = static_cast<rf_graph>(c.graph);
        rule.form = static_cast<rf_form>(c.form);
        rule.difference = c.difference;
        rule.weighted = c.weighted;
        rule.every = c.every;
        rule.delay = c.delay;
        const rf_rounds_params in_host = rf_rounds_in_host(params[rank].data(), kCount);
        rf_rounds *rounds = nullptr;
        rf_comm *left = nullptr;
        int rc = rf_rounds_open(comm, &in_host, &rule, &rounds);
        /* A failure of rank 1 is its death; the others move to those that are left, once. */
        const auto move = [&] {
            std::vector<int> old_ranks(4);
            if (rank == 1 || left || !rounds)
                return rc;
            EXPECT_EQ(rf_comm_shrink(comm, 10, old_ranks.data(), &left), RF_OK)
                << rf_last_error()->message;
            return rf_rounds_move(rounds, left, old_ranks.data());
        };
        for (int64_t step = 1; rc == RF_OK && step <= 8; step++) {
            for (float &value : params[rank])
                value += static_cast<float>(rank + 1);
            rc = rf_rounds_step(rounds, c.weighted, nullptr);
            rc = rc == RF_OK ? rc : move();
        }
        rc = rc == RF_OK ? rf_rounds_mean(rounds) : rc;
        if (rc != RF_OK && rank != 1 && rounds && !left)
            rc = move() == RF_OK ? rf_rounds_mean(rounds) : rc;
        if (rank != 1 && rounds) {
            EXPECT_EQ(rc, RF_OK) << rf_last_error()->message;
        }
        opened[rank] = rounds != nullptr;
        rf_rounds_close(rounds);
        rf_comm_close(left);
    });
    for (const int rank : {0, 2, 3}) {
        EXPECT_EQ(opened[rank], opened[0]);
        for (int64_t i = 0; i < kCount; i++)
            ASSERT_EQ(params[rank][i], params[0][i]);
        if (!opened[0])
            continue; /* it died before there was anything to continue */
        /* A mean of workers that make 1 to 4 of progress a step is between these, for each step. */
        EXPECT_GE(params[rank][0], 8 * 1.0f);
        EXPECT_LE(params[rank][0], 8 * 4.0f);
    }
}

TEST_P(Loss, TheOthersGoOnWithOneMean)
{
    for (uint64_t messages = 1; messages <= 60; messages += all_tests() ? 1 : 11)
        lose(GetParam(), messages);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, Loss,
    testing::Values(Case{"mean", RF_GRAPH_ALL, RF_FORM_F32, false, false, 2, 0},
                    Case{"weighted", RF_GRAPH_ALL, RF_FORM_F32, true, true, 1, 0},
                    Case{"int8", RF_GRAPH_ALL, RF_FORM_INT8, true, false, 2, 0},
                    Case{"ring", RF_GRAPH_RING, RF_FORM_F32, false, false, 1, 0},
                    Case{"delay", RF_GRAPH_ALL, RF_FORM_F32, true, false, 3, 2}),
    [](const testing::TestParamInfo<Case> &info) { return info.param.name; });

/* The mean of `values` on ranks 0 and 1, for all of them to see and for rank 2 to take. */
double share_mean(rf_comm *comm, float *values, int64_t count)
{
    std::vector<double> sum(count);
    for (int64_t i = 0; i < count; i++)
        sum[i] = rf_comm_rank(comm) < 2 ? values[i] : 0;
    EXPECT_EQ(rf_all_reduce(comm, sum.data(), sum.data(), count, RF_F64, RF_SUM, nullptr), RF_OK);
    for (int64_t i = 0; i < count && rf_comm_rank(comm) == 2; i++)
        values[i] = static_cast<float>(sum[i] / 2);
    return sum[7] / 2;
}

/* With an exchange in progress, if the rule has a delay: ranks 0 and 1 have begun it. */
TEST_P(Loss, ANewcomerHasTheMeanAndKeepsIt)
{
    const Case &c = GetParam();
    ranks::World world;
    world.size = 3;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        rf_rounds_rule rule = {};
        rule.mixing.graph = static_cast<rf_graph>(c.graph);
        rule.form = static_cast<rf_form>(c.form);
        rule.difference = c.difference;
        rule.weighted = c.weighted;
        rule.every = c.every;
        rule.delay = c.delay;
        std::vector<float> params(kCount);
        const rf_rounds_params in_host = rf_rounds_in_host(params.data(), kCount);
        rf_comm *own = nullptr;
        rf_rounds *rounds = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank / 2, rank, &own), RF_OK);
        ASSERT_EQ(rf_rounds_open(own, &in_host, &rule, &rounds), RF_OK);
        for (int step = 1; step <= 4 && rank < 2; step++) {
            for (float &value : params)
                value += static_cast<float>(rank + 1);
            ASSERT_EQ(rf_rounds_step(rounds, c.weighted, nullptr), RF_OK);
        }
        ASSERT_EQ(rf_rounds_settle(rounds), RF_OK);
        const double mean = share_mean(comm, params.data(), kCount);
        rf_rounds_array array;
        for (int k = 0; rf_rounds_get_array(rounds, k, &array) == RF_OK; k++)
            if (!array.is_sum && strcmp(array.name, "feedback") != 0)
                share_mean(comm, array.values, kCount);
        int64_t counters[2];
        rf_rounds_get_counters(rounds, &counters[0], &counters[1]);
        ASSERT_EQ(rf_broadcast(comm, counters, 2, RF_I64, 0, nullptr), RF_OK);
        if (rank == 2) {
            ASSERT_EQ(rf_rounds_set_counters(rounds, counters[0], counters[1]), RF_OK);
        }
        ASSERT_EQ(rf_rounds_move(rounds, comm, nullptr), RF_OK) << rf_last_error()->message;
        for (int64_t step = 0; step < 3 * c.every; step++)
            ASSERT_EQ(rf_rounds_step(rounds, c.weighted, nullptr), RF_OK);
        ASSERT_EQ(rf_rounds_mean(rounds), RF_OK);
        /* What a form has lost of two workers' sums is lost when there are three. */
        EXPECT_NEAR(params[7], mean, (c.form == RF_FORM_INT8 ? 4e-3 : 1e-6) * mean);
        rf_rounds_close(rounds);
        rf_comm_close(own);
    });
}

TEST(Newcomer, HasNoRowInAMatrixOfWeights)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const double half[] = {0.5, 0.5, 0.5, 0.5};
        const int old_ranks[] = {0, 1, 2};
        rf_rounds_rule rule = {};
        rule.mixing.graph = RF_GRAPH_WEIGHTS;
        rule.mixing.weights = half;
        float value = 1;
        const rf_rounds_params in_host = rf_rounds_in_host(&value, 1);
        rf_comm *own = nullptr;
        rf_rounds *rounds = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank / 2, rank, &own), RF_OK);
        if (rank < 2) {
            ASSERT_EQ(rf_rounds_open(own, &in_host, &rule, &rounds), RF_OK);
            EXPECT_EQ(rf_rounds_move(rounds, comm, old_ranks), RF_ENOTSUP);
        }
        rf_rounds_close(rounds);
        rf_comm_close(own);
    });
}

} // namespace
