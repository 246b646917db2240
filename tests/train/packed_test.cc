// SPDX-License-Identifier: MIT
//
// Sequences of several documents (rf_policy.packed): attention does not cross their borders,
// positions restart, and all techniques train the same.
#include "world.h"

namespace
{

const int SEQ = 16;
// Lengths in each sequence; documents of one token, at its beginning and its end.
const std::vector<std::vector<int>> LENGTHS = {{5, 7, 4}, {1, 15}, {15, 1},
                                               {16},      {8, 8},  {3, 1, 9, 3}};

// Each token's target is the next one of its document. The last document of every other sequence is
// cut there: its last target is the token that would follow.
void end_documents(std::vector<int32_t> &tokens, std::vector<int32_t> &targets, int32_t end)
{
    for (size_t row = 0; row < tokens.size() / SEQ; row++) {
        size_t at = row * SEQ;
        for (int length : LENGTHS[row % LENGTHS.size()]) {
            at += length;
            if (at % SEQ != 0 || row % 2 == 1)
                targets[at - 1] = end;
        }
    }
}

Training packed(bool llama)
{
    Training t;
    t.policy.packed = true;
    t.policy.micro_batches = t.policy.batch / 2; // of two sequences each
    t.policy.optimizer.kind = RF_SGD; // differences stay proportional to those of gradients
    t.lr = 0.5f;
    if (llama) {
        t.llama.vocab = 61;
        t.llama.layers = 2;
        t.llama.channels = 32;
        t.llama.heads = 4;
        t.llama.kv_heads = 2;
    }
    t.edit_batch = [](int, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        end_documents(tokens, targets, RF_TARGET_LAST);
    };
    return t;
}

// The same documents, each in a sequence of its own, padded with tokens without targets. Four times
// as many sequences, as none has more documents.
Training alone(bool llama)
{
    Training t = packed(llama), rows = t;
    t.policy.packed = false;
    t.policy.batch *= 4;
    t.edit_batch = [rows](int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
        std::vector<int32_t> from, next;
        rows.batch(step, from, next);
        tokens.assign(tokens.size(), 7);
        targets.assign(targets.size(), RF_TARGET_NONE);
        size_t at = 0;
        for (size_t row = 0; row < from.size() / SEQ; row++) {
            const std::vector<int> &lengths = LENGTHS[row % LENGTHS.size()];
            for (size_t k = 0; k < lengths.size(); at += lengths[k++]) {
                const size_t to = (4 * row + k) * SEQ;
                std::copy_n(&from[at], lengths[k], &tokens[to]);
                std::copy_n(&next[at], lengths[k], &targets[to]);
            }
        }
    };
    return t;
}

class Packed : public ::testing::TestWithParam<bool>
{
};
INSTANTIATE_TEST_SUITE_P(Model, Packed, ::testing::Bool(),
                         [](const auto &p) { return p.param ? "Llama" : "GPT2"; });

} // namespace

// Rotary angles and sums of attention are rounded at other positions: about 1e-7 of numbers near 1.
TEST_P(Packed, DocumentsTrainAsIfEachWereAlone)
{
    const Training t = packed(GetParam()), a = alone(GetParam());
    const Seen got = train(t, 1)[0], want = train(a, 1)[0];
    for (size_t step = 0; step < want.loss.size(); step++) {
        EXPECT_EQ(got.stats[step].tokens, want.stats[step].tokens);
        EXPECT_NEAR(got.loss[step], want.loss[step], 2e-6) << step;
        EXPECT_NEAR(got.norm[step], want.norm[step], 1e-5 * want.norm[step]) << step;
    }
    EXPECT_LT(worst_difference(trained_parameters(t, 1), trained_parameters(a, 1)), 1e-5f);
    expect_planned(got, "packed");
}

TEST_P(Packed, WithoutItDocumentsSeeEachOther)
{
    Training t = packed(GetParam());
    t.steps = 1;
    const double apart = train(t, 1)[0].loss[0];
    t.policy.packed = false;
    EXPECT_GT(std::abs(train(t, 1)[0].loss[0] - apart), 1e-5);
}

TEST_P(Packed, SequencesOfOneDocumentHaveTheBitsOfThoseThatAreNotPacked)
{
    Training t = packed(GetParam());
    t.edit_batch = nullptr;
    const Seen got = train(t, 1)[0];
    t.policy.packed = false;
    const Seen want = train(t, 1)[0];
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.sha, want.sha);
}

TEST_P(Packed, AllTechniquesGiveTheBitsOfOneProcess)
{
    const Training one = packed(GetParam());
    const Seen want = train(one, 1)[0];
    const auto same = [&](const char *what, int ranks,
                          const std::function<void(Training &)> &with) {
        Training t = one;
        with(t);
        for (const Seen &seen : train(t, ranks)) {
            EXPECT_EQ(seen.sha, want.sha) << what;
            EXPECT_EQ(seen.loss, want.loss) << what;
            expect_planned(seen, what);
        }
    };
    same("dp 2", 2, [](Training &) {});
    same("zero 3", 2, [](Training &t) { t.policy.zero = 3; });
    same("pp 2", 2, [](Training &t) { t.pp = 2; });
    same("zbv", 2, [](Training &t) {
        t.pp = 2;
        t.policy.pipeline = RF_PIPELINE_ZBV;
    });
    same("recompute", 1, [](Training &t) { t.policy.recompute = 1; });
    same("offload", 1, [](Training &t) { t.policy.offload = RF_OFFLOAD_ACTIVATIONS; });
    same("record each step", 1, [](Training &t) { t.record_each_step = true; });
}

TEST_P(Packed, TensorRanksGiveTheBitsOfOneRankWithAsManyParts)
{
    Training t = packed(GetParam());
    t.policy.tensor_parts = 2;
    const Seen one = train(t, 1)[0];
    t.tp = 2;
    EXPECT_EQ(train(t, 2)[0].sha, one.sha);
    t.policy.tensor_parts = 0;
    const Seen ring = train(t, 2)[0];
    t.policy.sequence_parallel = true;
    const Seen sequence = train(t, 2)[0];
    for (size_t step = 0; step < one.loss.size(); step++) {
        EXPECT_NEAR(ring.loss[step], one.loss[step], 1e-5);
        EXPECT_NEAR(sequence.loss[step], one.loss[step], 1e-5);
        EXPECT_NEAR(sequence.norm[step], one.norm[step], 1e-4 * one.norm[step]);
    }
}

TEST(PackedPlans, RefuseWhatTheyDoNotGoWith)
{
    rf_plan *plan = nullptr;
    const Training t = packed(false);
    gpt2 *model = nullptr;
    ASSERT_EQ(gpt2_create(&t.model, &model), 0);
    int count = 0;
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_policy policy = t.policy;
    rf_mesh context = {}, pipeline = {};
    context.cp = pipeline.pp = 2;
    EXPECT_EQ(rf_plan_build({blocks, count}, &context, &policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "several documents in a sequence with cp=2"),
              nullptr)
        << rf_last_error()->message;
    policy.pipeline = RF_PIPELINE_2BW;
    EXPECT_EQ(rf_plan_build({blocks, count}, &pipeline, &policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "several documents"), nullptr);
    gpt2_destroy(model);
}
