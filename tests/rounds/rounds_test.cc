/* SPDX-License-Identifier: MIT
 *
 * Rounds over loopback: each rule against the formula of its paper, computed in f64.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/rounds.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "support/ranks.h"

namespace
{

using Vector = std::vector<float>;

/* What a local step subtracts from parameter i on a rank: any number that all tests can repeat. */
float local_step(int rank, int64_t step, int64_t i)
{
    return 0.01f * static_cast<float>(sin(1.3 * rank + 0.7 * step + 0.11 * i));
}

Vector start(int64_t count)
{
    Vector out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = static_cast<float>(cos(0.3 * i));
    return out;
}

/* The parameters of all ranks after `steps` local steps with exchanges by a rule. */
/* A matrix of `columns` in rows, and the rest. */
int shape_of(int64_t count, int64_t columns, int index, rf_round_shape *out)
{
    const int64_t rows = count / columns, rest = count % columns;
    *out = index == 0 && rows > 0 ? rf_round_shape{rows, columns} : rf_round_shape{1, rest};
    return index > (rows > 0) || out->columns == 0 ? RF_EINVAL : RF_OK;
}

const int64_t kColumns = 20;

struct Host {
    float *values;
    int64_t count;
};

rf_rounds_params in_host(Host *host)
{
    rf_rounds_params params = {};
    params.count = host->count;
    params.user = host;
    params.read = [](void *user, int64_t first, int64_t count, float *to) {
        std::copy_n(static_cast<Host *>(user)->values + first, count, to);
        return static_cast<int>(RF_OK);
    };
    params.write = [](void *user, int64_t first, int64_t count, const float *from) {
        std::copy_n(from, count, static_cast<Host *>(user)->values + first);
        return static_cast<int>(RF_OK);
    };
    params.shape = [](void *user, int index, rf_round_shape *out) {
        return shape_of(static_cast<Host *>(user)->count, kColumns, index, out);
    };
    return params;
}

std::vector<Vector> train(const rf_rounds_rule &rule, int ranks, int64_t count, int64_t steps,
                          std::vector<rf_rounds_stats> *stats = nullptr)
{
    std::vector<Vector> params(ranks, start(count));
    if (stats)
        stats->resize(ranks);
    ranks::World world;
    world.size = ranks;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Host host = {params[rank].data(), count};
        const rf_rounds_params its = in_host(&host);
        rf_rounds *rounds = nullptr;
        rf_rounds_stats now = {};
        ASSERT_EQ(rf_rounds_open(comm, &its, &rule, &rounds), RF_OK) << rf_last_error()->message;
        for (int64_t step = 1; step <= steps; step++) {
            for (int64_t i = 0; i < count; i++)
                params[rank][i] -= local_step(rank, step, i);
            ASSERT_EQ(rf_rounds_step(rounds, rule.weighted ? rank + 1 : 0, &now), RF_OK)
                << rf_last_error()->message;
        }
        if (stats)
            (*stats)[rank] = now;
        rf_rounds_close(rounds);
    });
    return params;
}

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

/* All ranks have the same bits, and with error feedback the sum of what was sent stays beside the
 * sum of what was to be sent: the distance does not grow with the rounds. */
TEST(Rounds, FormsLoseNothingForGood)
{
    for (const int form :
         {RF_FORM_BF16, RF_FORM_INT8, RF_FORM_NF4, RF_FORM_TOP, RF_FORM_SIGN, RF_FORM_POWERSGD})
        for (const int ranks : {2, 3}) {
            const int64_t count = 300;
            rf_rounds_rule rule = {};
            rule.difference = true;
            rule.form = static_cast<rf_form>(form);
            rule.fraction = form == RF_FORM_TOP ? 0.25f : 0;
            double far[2];
            for (const int64_t steps : {40, 160}) {
                const std::vector<Vector> got = train(rule, ranks, count, steps);
                double sum = 0;
                for (int64_t i = 0; i < count; i++) {
                    double want = start(count)[i];
                    for (int rank = 0; rank < ranks; rank++) {
                        EXPECT_EQ(got[rank][i], got[0][i]);
                        for (int64_t step = 1; step <= steps; step++)
                            want -= static_cast<double>(local_step(rank, step, i)) / ranks;
                    }
                    sum += (got[0][i] - want) * (got[0][i] - want);
                }
                far[steps > 40] = sqrt(sum / count);
            }
            EXPECT_LT(far[0], 0.05) << rf_form_name(rf_form(form));
            EXPECT_LT(far[1], 2 * far[0] + 1e-6) << rf_form_name(rf_form(form));
        }
}

struct Priced {
    const char *text; /* as of --sync */
    int ranks;
};

/* What a rule costs is known before it runs, to the byte: sums, shares and parts included. */
TEST(Rounds, SentBytesAreThoseOfTheUsage)
{
    std::vector<Priced> all;
    for (const int ranks : {1, 2, 3, 4}) {
        for (const char *text :
             {"local:2", "diloco:2,form=int8", "diloco:2,form=nf4,parts=2", "diloco:2,form=bf16",
              "diloco:2,form=top,fraction=0.1", "diloco:2,form=sign", "diloco:2,form=powersgd:3",
              "diloco:2,delay=1", "fedavg:2", "fedopt:2,form=nf4", "gossip:2", "gossip:2,form=bf16",
              "gossip:2,graph=exponential", "gossip:2,graph=torus"})
            all.push_back({text, ranks});
    }
    all.push_back({"gossip:2,graph=one-peer", 4});
    all.push_back({"gossip:2,graph=matching,seed=3", 4});
    for (const Priced &row : all)
        for (const int64_t count : {1, 65, 1000}) {
            rf_rounds_text text = {};
            ASSERT_EQ(rf_rounds_text_read(row.text, row.ranks, &text), RF_OK)
                << rf_last_error()->message;
            std::vector<rf_rounds_stats> stats;
            train(text.rule, row.ranks, count, 4 + text.rule.delay, &stats);
            for (int rank = 0; rank < row.ranks; rank++) {
                rf_round_shape shapes[3];
                rf_round_place place = {rank, row.ranks, 0, count, shapes, 0};
                if (text.rule.form == RF_FORM_POWERSGD)
                    while (shape_of(count, kColumns, place.shape_count,
                                    shapes + place.shape_count) == RF_OK)
                        place.shape_count++;
                struct rf_rounds_usage usage = {};
                ASSERT_EQ(rf_rounds_usage(&text.rule, &place, &usage), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(stats[rank].sent_bytes, 2 * usage.sent_bytes)
                    << row.text << " " << row.ranks << " " << count;
                EXPECT_GE(usage.memory_bytes, 16u * static_cast<uint64_t>(count));
            }
            rf_rounds_text_free(&text);
        }
}

/* The mean of matrices of rank 1, whose columns or rows are alike, arrives whole; of a zero matrix
 * zero, also in an exchange after it (Q = 0 would find nothing any more). */
TEST(Rounds, PowerSgdSendsWhatIsOfItsRankAndKeepsZero)
{
    for (const int rank : {1, 2}) {
        rf_rounds_rule rule = {};
        rule.difference = true;
        rule.form = RF_FORM_POWERSGD;
        rule.form_rank = rank;
        const int64_t count = 15 * kColumns;
        ranks::World world;
        std::vector<Vector> params(2, Vector(count));
        ranks::run(world, [&](rf_comm *comm, int me) {
            Host host = {params[me].data(), count};
            const rf_rounds_params its = in_host(&host);
            rf_rounds *rounds = nullptr;
            ASSERT_EQ(rf_rounds_open(comm, &its, &rule, &rounds), RF_OK);
            for (int step = 0; step < 4; step++) {
                for (int64_t i = 0; i < count && step % 2 == 1; i++)
                    params[me][i] +=
                        static_cast<float>((me + 1) * (i / kColumns - 7) * (i % kColumns + 1));
                ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK) << rf_last_error()->message;
                for (int64_t i = 0; i < count; i++)
                    EXPECT_NEAR(params[me][i],
                                1.5 * ((step + 1) / 2) * (i / kColumns - 7) * (i % kColumns + 1),
                                2e-4)
                        << step << " " << i;
            }
            rf_rounds_close(rounds);
        });
        EXPECT_EQ(params[0], params[1]);
    }
}

/* What arrives and what both have kept is what was to be sent, whatever the rank. */
TEST(Rounds, PowerSgdLosesNothingOfTheSum)
{
    const int64_t count = 15 * kColumns + 7;
    ranks::World world;
    std::vector<Vector> params(2, Vector(count)), kept(2);
    ranks::run(world, [&](rf_comm *comm, int me) {
        rf_rounds_rule rule = {};
        rule.difference = true;
        rule.form = RF_FORM_POWERSGD;
        Host host = {params[me].data(), count};
        const rf_rounds_params its = in_host(&host);
        rf_rounds *rounds = nullptr;
        rf_rounds_array array;
        ASSERT_EQ(rf_rounds_open(comm, &its, &rule, &rounds), RF_OK);
        for (int step = 1; step <= 5; step++) {
            for (int64_t i = 0; i < count; i++)
                params[me][i] -= local_step(me, step, i * i);
            ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
        }
        ASSERT_EQ(rf_rounds_get_array(rounds, 1, &array), RF_OK);
        EXPECT_STREQ(array.name, "feedback");
        kept[me].assign(array.values, array.values + count);
        rf_rounds_close(rounds);
    });
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        double want = 0;
        for (int me = 0; me < 2; me++)
            for (int step = 1; step <= 5; step++)
                want -= static_cast<double>(local_step(me, step, i * i)) / 2;
        EXPECT_NEAR(params[0][i] - (kept[0][i] + kept[1][i]) / 2, want, 1e-7);
        most = std::max(most, fabs(static_cast<double>(kept[0][i])));
    }
    EXPECT_GT(most, 1e-3); /* something was kept */
}

/* Gradients: what has arrived over the steps, and what ranks have kept, is the sum of all that they
 * gave, to rounding; in f32 nothing is kept. */
TEST(Rounds, GradientsAreAddedAndNothingIsLost)
{
    for (int form = 0; form < RF_FORM_COUNT; form++)
        for (const int ranks : {2, 3}) {
            const int64_t count = 15 * kColumns + 7;
            const int steps = 6;
            rf_rounds_rule rule = {};
            rule.gradients = true;
            rule.form = static_cast<rf_form>(form);
            ranks::World world;
            world.size = ranks;
            std::vector<std::vector<double>> sums(ranks, std::vector<double>(count)), kept = sums;
            std::vector<Vector> last(ranks);
            ranks::run(world, [&](rf_comm *comm, int me) {
                Vector values(count);
                Host host = {values.data(), count};
                const rf_rounds_params its = in_host(&host);
                rf_rounds *rounds = nullptr;
                rf_rounds_array array;
                ASSERT_EQ(rf_rounds_open(comm, &its, &rule, &rounds), RF_OK)
                    << rf_last_error()->message;
                for (int step = 1; step <= steps; step++) {
                    for (int64_t i = 0; i < count; i++)
                        values[i] = local_step(me, step, i * i);
                    ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
                    for (int64_t i = 0; i < count; i++)
                        sums[me][i] += static_cast<double>(values[i]);
                }
                last[me] = values;
                for (int k = 0; rf_rounds_get_array(rounds, k, &array) == RF_OK; k++)
                    for (int64_t i = 0; i < count && strcmp(array.name, "warm") != 0; i++)
                        kept[me][i] += static_cast<double>(array.values[i]);
                EXPECT_EQ(rf_rounds_mean(rounds), RF_EINVAL);
                EXPECT_EQ(rf_rounds_move(rounds, comm, nullptr), RF_ENOTSUP);
                rf_rounds_close(rounds);
            });
            for (int64_t i = 0; i < count; i++) {
                double want = 0, all = sums[0][i];
                for (int me = 0; me < ranks; me++) {
                    EXPECT_EQ(last[me][i], last[0][i]);
                    all += kept[me][i];
                    for (int step = 1; step <= steps; step++)
                        want += static_cast<double>(local_step(me, step, i * i));
                }
                EXPECT_NEAR(all, want, 4e-8 * steps) << rf_form_name(rule.form) << " " << i;
            }
        }
}

/* At least 380 times less than DDP's f32 gradients of 50 steps, in 4 bits. */
TEST(Rounds, FourBitsAndFiftyStepsAreAThreeHundredEightiethOfTheBytes)
{
    for (const int ranks : {2, 4}) {
        const int64_t count = 1 << 22;
        rf_rounds_rule rule = {};
        rule.every = 50;
        rule.difference = true;
        rule.form = RF_FORM_NF4;
        const rf_round_place place = {1, ranks, 0, count};
        rf_round_list list;
        ASSERT_EQ(rf_round_list_make(&rule, &place, &list), RF_OK);
        const double ddp = 50 * 2.0 * (ranks - 1) / ranks * 4 * count;
        EXPECT_GT(ddp / static_cast<double>(list.sent_bytes), 380);
        rf_round_list_free(&list);
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
                const int32_t said[2] = {10 * step + rank, -rank};
                int32_t heard[2];
                rf_rounds_say(rounds, said);
                ASSERT_EQ(rf_rounds_step(rounds, 0, nullptr), RF_OK);
                rf_rounds_heard(rounds, heard);
                const int began = static_cast<int>((step - delay) / 2 * 2);
                EXPECT_EQ(heard[0], began > 0 ? 10 * began + 2 : 0) << step;
                EXPECT_EQ(heard[1], 0);
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

struct Refused {
    const char *message;
    std::function<void(rf_rounds_rule &)> change;
};

TEST(Rounds, RulesThatContradictThemselvesAreRefusedByName)
{
    static rf_optimizer_opts sgd = {};
    const Refused all[] = {
        {"a delay of 2 steps", [](rf_rounds_rule &r) { r.every = 2, r.delay = 2; }},
        {"in 3 parts", [](rf_rounds_rule &r) { r.every = 2, r.parts = 3; }},
        {"-1 local steps", [](rf_rounds_rule &r) { r.every = -1; }},
        {"no common start",
         [](rf_rounds_rule &r) { r.difference = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"need \"difference\"", [](rf_rounds_rule &r) { r.outer = &sgd; }},
        {"need \"difference\"", [](rf_rounds_rule &r) { r.outer_lr = 0.5f; }},
        {"in the form \"nf4\"", [](rf_rounds_rule &r) { r.form = RF_FORM_NF4; }},
        {"in the form \"bf16\"", [](rf_rounds_rule &r) { r.form = RF_FORM_BF16; }},
        {"in the form \"int8\"",
         [](rf_rounds_rule &r) { r.form = RF_FORM_INT8, r.mixing.graph = RF_GRAPH_RING; }},
        {"loses nothing", [](rf_rounds_rule &r) { r.no_feedback = true; }},
        {"mix_first", [](rf_rounds_rule &r) { r.mix_first = true; }},
        {"shares of the mean",
         [](rf_rounds_rule &r) { r.weighted = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"a seed has no effect", [](rf_rounds_rule &r) { r.mixing.seed = 1; }},
        {"stochastic rounding has no effect",
         [](rf_rounds_rule &r) {
             static rf_optimizer_opts rounds_at_random = {};
             rounds_at_random.stochastic_rounding = true;
             r.difference = true, r.outer = &rounds_at_random;
         }},
        {"the form \"powersgd\" only",
         [](rf_rounds_rule &r) { r.form_rank = 2, r.form = RF_FORM_INT8, r.difference = true; }},
        {"an approximation of rank 65",
         [](rf_rounds_rule &r) { r.form_rank = 65, r.form = RF_FORM_POWERSGD; }},
        {"cut the matrices",
         [](rf_rounds_rule &r) {
             r.every = r.parts = 2, r.form = RF_FORM_POWERSGD, r.difference = true;
         }},
        {"gradients are added", [](rf_rounds_rule &r) { r.gradients = r.difference = true; }},
        {"gradients are added", [](rf_rounds_rule &r) { r.gradients = true, r.every = 2; }},
        {"gradients are added",
         [](rf_rounds_rule &r) { r.gradients = true, r.mixing.graph = RF_GRAPH_RING; }},
        {"a fraction of the values", [](rf_rounds_rule &r) { r.fraction = 0.5f; }},
        {"at most 1",
         [](rf_rounds_rule &r) { r.form = RF_FORM_TOP, r.fraction = 1.5f, r.difference = true; }},
    };
    for (const Refused &row : all) {
        rf_rounds_rule rule = {};
        row.change(rule);
        EXPECT_EQ(rf_rounds_check(&rule, 4), RF_EINVAL) << row.message;
        EXPECT_NE(std::string(rf_last_error()->message).find(row.message), std::string::npos)
            << rf_last_error()->message;
        const rf_round_place place = {0, 4, 0, 100};
        struct rf_rounds_usage usage = {};
        EXPECT_EQ(rf_rounds_usage(&rule, &place, &usage), RF_EINVAL);
    }
}

TEST(Rounds, RulesAreReadFromText)
{
    rf_rounds_text text = {};
    ASSERT_EQ(
        rf_rounds_text_read("diloco:50,form=nf4,lr=0.5,momentum=0.8,delay=2,parts=5", 4, &text),
        RF_OK)
        << rf_last_error()->message;
    EXPECT_EQ(text.rule.every, 50);
    EXPECT_TRUE(text.rule.difference);
    EXPECT_EQ(text.rule.form, RF_FORM_NF4);
    EXPECT_EQ(text.rule.outer_lr, 0.5f);
    EXPECT_EQ(text.rule.outer->kind, RF_NESTEROV);
    EXPECT_EQ(text.rule.outer->momentum, 0.8f);
    EXPECT_EQ(text.rule.delay, 2);
    EXPECT_EQ(text.rule.parts, 5);
    rf_rounds_text_free(&text);
    ASSERT_EQ(rf_rounds_text_read("gossip:1,graph=one-peer,order=mix-first", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.mixing.graph, RF_GRAPH_ONE_PEER);
    EXPECT_TRUE(text.rule.mix_first);
    ASSERT_EQ(rf_rounds_text_read("diloco:5,form=powersgd:3", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.form, RF_FORM_POWERSGD);
    EXPECT_EQ(text.rule.form_rank, 3);
    ASSERT_EQ(rf_rounds_text_read("diloco:5,form=top:0.5", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.fraction, 0.5f);
    ASSERT_EQ(rf_rounds_text_read("fedopt:5,outer=sgd", 4, &text), RF_OK);
    EXPECT_EQ(text.rule.outer->kind, RF_SGD);
    const struct {
        const char *text, *message;
    } bad[] = {
        {"", "there is no rule \"\""},
        {"ddp:1", "there is no rule \"ddp:1\""},
        {"diloco", "write diloco:H"},
        {"diloco:0", "write diloco:H"},
        {"diloco:1.5", "write diloco:H"},
        {"local:4,form=fp4", "form=fp4: it takes f32"},
        {"diloco:4,form=powersgd:65", "form=powersgd:65: it takes f32"},
        {"diloco:4,form=powersgd:1.5", "form=powersgd:1.5: it takes f32"},
        {"diloco:4,form=int8:2", "form=int8:2: it takes f32"},
        {"diloco:4,form=top:0.5,fraction=0.1", "fraction is given twice"},
        {"diloco:4,fraction=0.1,form=top:0.5", "fraction is given twice"},
        {"local:4,form=nf4", "in the form \"nf4\""},
        {"local:4,shape=ring", "no key \"shape\""},
        {"local:4,graph", "no key \"graph\""},
        {"local:4,delay=1,delay=2", "delay is given twice"},
        {"local:4,delay=nan", "delay=nan"},
        {"local:4,delay=0x1", "delay=0x1"},
        {"local:4,lr=0.5", "need \"difference\""},
        {"diloco:4,beta1=0.5", "beta1 has no effect: the outer optimizer nesterov has none"},
        {"diloco:4,momentum=0.5,outer=sgd", "outer=sgd comes behind momentum"},
        {"local:4,seed=3", "a seed has no effect on the graph \"all\""},
        {"gossip:1,graph=torus,weights=/nowhere", "graph=torus and weights= name two graphs"},
        {"gossip:1,graph=star", "graph=star: it takes all"},
        {"gossip:1,weights=/nowhere/at/all", "weights=/nowhere/at/all"},
    };
    for (const auto &row : bad) {
        EXPECT_EQ(rf_rounds_text_read(row.text, 4, &text), RF_EINVAL) << row.text;
        EXPECT_NE(std::string(rf_last_error()->message).find(row.message), std::string::npos)
            << rf_last_error()->message;
    }
}

TEST(Rounds, WeightsAreReadFromAFile)
{
    const std::string path = testing::TempDir() + "rounds_weights.txt";
    const auto read = [&](const char *content) {
        FILE *file = fopen(path.c_str(), "w");
        fputs(content, file);
        fclose(file);
        rf_rounds_text text = {};
        const int rc = rf_rounds_text_read(("gossip:2,weights=" + path).c_str(), 3, &text);
        if (rc == RF_OK) {
            EXPECT_EQ(text.rule.mixing.weights[3], 0.25);
        }
        rf_rounds_text_free(&text);
        return rc == RF_OK ? std::string() : std::string(rf_last_error()->message);
    };
    EXPECT_EQ(read("0.5 0.25 0.25\n0.25 0.5 0.25\n0.25 0.25 0.5\n"), "");
    EXPECT_NE(read("0.5 0.25 0.25\n0.25 0.5\n").find("number 6"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 0.5 0 0 0 1 0").find("number 10"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 x 0 0 0 1").find("number 5"), std::string::npos);
    EXPECT_NE(read("0.5 0.5 0 0.5 0.5 0 0 0 1").find("no path leads from rank 0 to rank 2"),
              std::string::npos);
    remove(path.c_str());
}

TEST(Rounds, WorkersWithDifferentRulesAreToldWhich)
{
    ranks::World world;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        Vector params(10);
        rf_rounds_rule rule = {};
        rule.every = rank + 1;
        const rf_rounds_params in_host = rf_rounds_in_host(params.data(), 10);
        rf_rounds *rounds = nullptr;
        EXPECT_EQ(rf_rounds_open(comm, &in_host, &rule, &rounds), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("local steps"), std::string::npos)
            << rf_last_error()->message;
    });
}

} // namespace
