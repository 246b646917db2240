// SPDX-License-Identifier: MIT
//
// The head of the GPT-2 in chunks: the same training with less memory.
#include "world.h"

namespace
{

Training with_head(int rows)
{
    Training t;
    t.model.head_rows = rows; // of 16 in a micro-batch
    t.ignored = 0.2;
    return t;
}

} // namespace

TEST(ChunkedHead, OfOneChunkGivesTheBitsOfTheWholeHead)
{
    Seen whole = train(with_head(0), 1)[0];
    for (int rows : {16, 1000}) {
        Seen chunked = train(with_head(rows), 1)[0];
        EXPECT_EQ(chunked.loss, whole.loss);
        EXPECT_EQ(chunked.norm, whole.norm);
        EXPECT_EQ(chunked.sha, whole.sha);
    }
}

TEST(ChunkedHead, OfManyChunksDiffersByRoundingAndIsTheSameOnAnyNumberOfRanks)
{
    Training t = with_head(5);
    Seen whole = train(with_head(0), 1)[0], one = train(t, 1)[0];
    for (size_t step = 0; step < one.loss.size(); step++)
        EXPECT_NEAR(one.loss[step], whole.loss[step], 1e-4);
    for (int ranks : {2, 3})
        for (const Seen &seen : train(t, ranks)) {
            EXPECT_EQ(seen.sha, one.sha) << ranks << " ranks";
            EXPECT_EQ(seen.loss, one.loss) << ranks << " ranks";
        }
}

TEST(ChunkedHead, EvaluatesTheSameLoss)
{
    double losses[2] = {};
    for (int i = 0; i < 2; i++) {
        Training t = with_head(i ? 7 : 0);
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            std::vector<int32_t> tokens, targets;
            t.batch(3, tokens, targets);
            ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 8, &losses[i]));
        };
        train(t, 1);
    }
    EXPECT_GT(losses[0], 1);
    EXPECT_NEAR(losses[1], losses[0], 1e-5);
}

TEST(ChunkedHead, TakesLessMemoryAndJustWhatThePlanSays)
{
    Seen seen[2];
    for (int i = 0; i < 2; i++) {
        Training t = with_head(i ? 4 : 0);
        t.model.vocab = 3001;
        t.steps = 1;
        seen[i] = train(t, 1)[0];
        EXPECT_EQ(seen[i].measured.activations, seen[i].planned.activations);
        EXPECT_EQ(seen[i].measured.scratch, seen[i].planned.scratch);
    }
    auto total = [](const Seen &s) { return s.measured.activations + s.measured.scratch; };
    // 16 rows of logits, minus 4 and the embedding's memory for sorting rows.
    EXPECT_LT(total(seen[1]) + 100000, total(seen[0]));
}

TEST(ChunkedHead, SaysThatItHasNoLogits)
{
    Training t = with_head(4);
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        std::vector<float> logits(16 * 61);
        t.batch(0, tokens, targets);
        EXPECT_EQ(rf_run_forward(run, tokens.data(), logits.data(), logits.size() * 4), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("head_rows 0"), std::string::npos);
        targets[5] = t.model.vocab;
        EXPECT_EQ(rf_run_step(run, tokens.data(), targets.data(), 0.01f, nullptr), RF_EINVAL);
    };
    train(t, 1);
}

TEST(ChunkedHead, ScalesTheLossAsTheWholeHeadDoes)
{
    for (int rows : {0, 5}) {
        Training t = with_head(rows);
        Seen plain = train(t, 1)[0];
        t.policy.loss_scale = 1024;
        Seen scaled = train(t, 1)[0];
        for (size_t step = 0; step < plain.loss.size(); step++) {
            EXPECT_NEAR(scaled.loss[step], plain.loss[step], 1e-5);
            EXPECT_NEAR(scaled.norm[step], plain.norm[step], 1e-5); // unscaled
        }
    }
}
