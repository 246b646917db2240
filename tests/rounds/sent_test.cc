/* SPDX-License-Identifier: MIT
 *
 * What rounds send in each form: its bytes, and that nothing is lost for good.
 */
#include "training.h"

namespace
{

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

} // namespace
