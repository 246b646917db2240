/* SPDX-License-Identifier: MIT
 *
 * Rounds over loopback: each rule against the formula of its paper, computed in f64.
 */
#include "training.h"

namespace
{

TEST(Rounds, LocalStepsThenTheMean)
{
    for (const int ranks : {1, 2, 3, 5}) {
        rf_rounds_rule rule = {};
        rule.every = 3;
        const std::vector<Vector> got = train(rule, ranks, 100, 6);
        for (int64_t i = 0; i < 100; i++) {
            double mean = start(100)[i];
            for (int rank = 0; rank < ranks; rank++)
                for (int64_t step = 1; step <= 6; step++)
                    mean -= static_cast<double>(local_step(rank, step, i)) / ranks;
            for (int rank = 0; rank < ranks; rank++) {
                EXPECT_NEAR(got[rank][i], mean, 1e-6);
                EXPECT_EQ(got[rank][i], got[0][i]);
            }
        }
    }
}

/* A step of each client on its own n(k) samples, weighted by n(k)/n, is the step on all samples
 * (McMahan et al. 2017, section 2); as whole parameters and as differences. */
TEST(Rounds, OneWeightedLocalStepIsOneGlobalStep)
{
    for (const bool difference : {false, true}) {
        rf_rounds_rule rule = {};
        rule.weighted = true;
        rule.difference = difference;
        const std::vector<Vector> got = train(rule, 3, 70, 1);
        for (int64_t i = 0; i < 70; i++) {
            double want = start(70)[i];
            for (int rank = 0; rank < 3; rank++)
                want -= local_step(rank, 1, i) * (rank + 1) / 6.0;
            for (int rank = 0; rank < 3; rank++)
                EXPECT_NEAR(got[rank][i], want, 1e-6);
        }
    }
}

/* DiLoCo: g = start - mean of ends; m = momentum m + g; start -= rate (g + momentum m). */
TEST(Rounds, DilocoIsNesterovOnTheMeanDifference)
{
    rf_optimizer_opts outer = {};
    outer.kind = RF_NESTEROV;
    outer.momentum = 0.9f;
    rf_rounds_rule rule = {};
    rule.every = 4;
    rule.difference = true;
    rule.outer = &outer;
    rule.outer_lr = 0.7f;
    const std::vector<Vector> got = train(rule, 3, 65, 12);
    for (int64_t i = 0; i < 65; i++) {
        double anchor = start(65)[i], m = 0;
        for (int64_t round = 0; round < 3; round++) {
            double g = 0;
            for (int rank = 0; rank < 3; rank++)
                for (int64_t step = 4 * round + 1; step <= 4 * round + 4; step++)
                    g += static_cast<double>(local_step(rank, step, i)) / 3;
            m = 0.9 * m + g;
            anchor -= 0.7 * (g + 0.9 * m);
        }
        for (int rank = 0; rank < 3; rank++)
            EXPECT_NEAR(got[rank][i], anchor, 1e-6) << i;
    }
}

/* FedAdam: Adam of Reddi et al. 2021 on the mean difference. */
TEST(Rounds, AdamOnTheMeanDifference)
{
    rf_optimizer_opts outer = {};
    outer.kind = RF_ADAM;
    outer.beta1 = 0.9f;
    outer.beta2 = 0.99f;
    outer.eps = 1e-3f;
    outer.no_bias_correction = true;
    rf_rounds_rule rule = {};
    rule.difference = true;
    rule.outer = &outer;
    rule.outer_lr = 0.1f;
    const std::vector<Vector> got = train(rule, 2, 64, 3);
    for (int64_t i = 0; i < 64; i++) {
        double x = start(64)[i], m = 0, v = 0;
        for (int64_t step = 1; step <= 3; step++) {
            const double g = (local_step(0, step, i) + local_step(1, step, i)) / 2.0;
            m = 0.9 * m + 0.1 * g;
            v = 0.99 * v + 0.01 * g * g;
            x -= 0.1 * m / (sqrt(v) + 1e-3);
        }
        EXPECT_NEAR(got[0][i], x, 2e-6);
    }
}

/* The exchange begins in step 4 and takes effect in step 6: steps 5 and 6 stay. */
TEST(Rounds, ADelayLosesNoStep)
{
    rf_rounds_rule rule = {};
    rule.every = 4;
    rule.delay = 2;
    rule.difference = true;
    const std::vector<Vector> got = train(rule, 2, 64, 6);
    for (int rank = 0; rank < 2; rank++)
        for (int64_t i = 0; i < 64; i++) {
            double want = start(64)[i];
            for (int64_t step = 1; step <= 4; step++)
                want -= (local_step(0, step, i) + local_step(1, step, i)) / 2.0;
            for (int64_t step = 5; step <= 6; step++)
                want -= local_step(rank, step, i);
            EXPECT_NEAR(got[rank][i], want, 1e-6);
        }
}

TEST(Rounds, PartsTakeTurnsOverTheRound)
{
    rf_rounds_rule rule = {};
    rule.every = 4;
    rule.parts = 2;
    const std::vector<Vector> got =
        train(rule, 2, 128, 6); /* steps 2 and 6: the first; 4: the second */
    for (int rank = 0; rank < 2; rank++)
        for (int64_t i = 0; i < 128; i++) {
            const int64_t last = i < 64 ? 6 : 4;
            double want = start(128)[i];
            for (int64_t step = 1; step <= 6; step++)
                want -= step <= last ? (local_step(0, step, i) + local_step(1, step, i)) / 2.0
                                     : local_step(rank, step, i);
            EXPECT_NEAR(got[rank][i], want, 1e-6) << i;
        }
}

/* Both orders of D-PSGD, against products with W. */
TEST(Rounds, NeighboursMixBeforeOrBehindTheStep)
{
    for (const bool mix_first : {false, true})
        for (const int graph : {RF_GRAPH_RING, RF_GRAPH_EXPONENTIAL, RF_GRAPH_ONE_PEER,
                                RF_GRAPH_MATCHING, RF_GRAPH_TORUS}) {
            const int ranks = 5;
            rf_rounds_rule rule = {};
            rule.mixing.graph = static_cast<rf_graph>(graph);
            rule.mixing.seed = graph == RF_GRAPH_MATCHING ? 3 : 0;
            rule.mix_first = mix_first;
            const std::vector<Vector> got = train(rule, ranks, 10, 3);
            rf_mixing mixing = rule.mixing;
            mixing.ranks = ranks;
            for (int64_t i = 0; i < 10; i++) {
                std::vector<double> x(ranks, start(10)[i]), next(ranks), row(ranks);
                for (int64_t step = 1; step <= 3; step++) {
                    for (int a = 0; a < ranks; a++) {
                        ASSERT_EQ(rf_mixing_row(&mixing, step - 1, a, row.data()), RF_OK);
                        next[a] = mix_first ? -local_step(a, step, i) : 0;
                        for (int b = 0; b < ranks; b++)
                            next[a] += row[b] * (x[b] - (mix_first ? 0 : local_step(b, step, i)));
                    }
                    x = next;
                }
                for (int a = 0; a < ranks; a++)
                    EXPECT_NEAR(got[a][i], x[a], 1e-6) << rf_graph_name(rf_graph(graph));
            }
        }
}

/* bf16 has 8 bits, and the mean is kept as f32 keeps it. */
TEST(Rounds, NeighboursKeepTheMeanAlsoInBf16)
{
    rf_rounds_rule rule = {};
    rule.mixing.graph = RF_GRAPH_RING;
    rule.form = RF_FORM_BF16;
    const std::vector<Vector> got = train(rule, 4, 50, 20);
    for (int64_t i = 0; i < 50; i++) {
        double want = start(50)[i], mean = 0;
        for (int rank = 0; rank < 4; rank++) {
            mean += got[rank][i] / 4.0;
            for (int64_t step = 1; step <= 20; step++)
                want -= static_cast<double>(local_step(rank, step, i)) / 4;
        }
        EXPECT_NEAR(mean, want, 1e-6);
    }
}

TEST(Rounds, AllHearTheLargestOfWhatEachSays)
{
    for (const int64_t delay : {0, 1}) {
        ranks::World world;
        world.size = 3;
        ranks::run(world, [&](rf_comm *comm, int rank) {
            Vector params(5, 1);
            rf_rounds_rule rule = {};
            rule.every = 2;
            rule.delay = delay;
            const rf_rounds_params in_host = rf_rounds_in_host(params.data(), 5);
            rf_rounds *rounds = nullptr;
            ASSERT_EQ(rf_rounds_open(comm, &in_host, &rule, &rounds), RF_OK);
            for (int step = 1; step <= 7; step++) {
                const int32_t said[RF_ROUNDS_WORDS] = {10 * step + rank, -rank, rank == 1};
                int32_t heard[RF_ROUNDS_WORDS];
                rf_rounds_say(rounds, said);
                ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
                rf_rounds_heard(rounds, heard);
                const int began = static_cast<int>((step - delay) / 2 * 2);
                EXPECT_EQ(heard[0], began > 0 ? 10 * began + 2 : 0) << step;
                EXPECT_EQ(heard[1], 0);
                EXPECT_EQ(heard[2], began > 0);
            }
            rf_rounds_close(rounds);
        });
    }
}

TEST(Rounds, TheMeanAtTheEndIsOneModelOfAll)
{
    const int64_t count = 33;
    std::vector<Vector> params(4);
    ranks::World world;
    world.size = 4;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        params[rank].assign(count, static_cast<float>(rank));
        rf_rounds_rule rule = {};
        rule.every = 4;
        rule.delay = 3;
        rule.mixing.graph = RF_GRAPH_RING;
        const rf_rounds_params in_host = rf_rounds_in_host(params[rank].data(), count);
        rf_rounds *rounds = nullptr;
        ASSERT_EQ(rf_rounds_open(comm, &in_host, &rule, &rounds), RF_OK);
        for (int step = 0; step < 5; step++) /* the last exchange is in progress */
            ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
        ASSERT_EQ(rf_rounds_mean(rounds), RF_OK) << rf_last_error()->message;
        rf_rounds_close(rounds);
    });
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_EQ(params[rank], params[0]);
        EXPECT_NEAR(params[rank][count - 1], 1.5f, 1e-6);
    }
}

/* Saved within the second round, and continued. */
TEST(Rounds, ArraysAndCountersContinueWithTheSameBits)
{
    rf_optimizer_opts outer = {};
    outer.kind = RF_ADAM;
    outer.beta1 = 0.9f;
    outer.beta2 = 0.99f;
    outer.eps = 1e-3f;
    rf_rounds_rule rule = {};
    rule.difference = true;
    rule.outer = &outer;
    rule.form = RF_FORM_INT8;
    rule.every = 3;
    rule.parts = 3;
    rule.delay = 2; /* in step 4 two exchanges are in progress */
    const int64_t count = 130;
    const std::vector<Vector> want = train(rule, 2, count, 7);
    std::vector<Vector> params(2, start(count));
    ranks::World world;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const rf_rounds_params in_host = rf_rounds_in_host(params[rank].data(), count);
        std::vector<Vector> kept;
        int64_t exchanges = 0;
        for (int64_t from = 0, to = 4; from < 7; from = to, to = 7) {
            rf_rounds *rounds = nullptr;
            rf_rounds_array array;
            ASSERT_EQ(rf_rounds_open(comm, &in_host, &rule, &rounds), RF_OK);
            for (size_t k = 0; k < kept.size(); k++) {
                ASSERT_EQ(rf_rounds_get_array(rounds, k, &array), RF_OK);
                std::copy(kept[k].begin(), kept[k].end(), array.values);
            }
            ASSERT_EQ(rf_rounds_set_counters(rounds, from, exchanges), RF_OK);
            EXPECT_EQ(rf_rounds_set_counters(rounds, 1, 5), RF_EINVAL);
            for (int64_t step = from + 1; step <= to; step++) {
                for (int64_t i = 0; i < count; i++)
                    params[rank][i] -= local_step(rank, step, i);
                ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
            }
            kept.clear();
            int64_t step;
            ASSERT_EQ(rf_rounds_settle(rounds), RF_OK);
            rf_rounds_get_counters(rounds, &step, &exchanges);
            EXPECT_EQ(step, to);
            EXPECT_EQ(exchanges, to - 2);
            for (int k = 0; rf_rounds_get_array(rounds, k, &array) == RF_OK; k++)
                kept.emplace_back(array.values, array.values + array.count);
            EXPECT_EQ(kept.size(), 7u); /* anchor, feedback, owned, m, v, begun, arrived */
            rf_rounds_close(rounds);
        }
    });
    for (int rank = 0; rank < 2; rank++)
        EXPECT_EQ(params[rank], want[rank]);
}

} // namespace
