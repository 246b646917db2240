// SPDX-License-Identifier: MIT
//
// Ranks that share blocks (tensor and sequence parallelism), with data ranks and pipeline stages in
// every mesh: loss, norm and parameters of one process; bits that depend only on the number of
// tensor ranks; bytes as planned; checkpoints that any mesh resumes.
#include <cmath>
#include <map>

#include "folder.h"
#include "mesh_case.h"

namespace
{

struct Mesh : MeshCase {
    Mesh(int dp, int tp, int pp, bool sequence = false, int zero = 0,
         rf_order order = RF_ORDER_TREE, rf_pipeline_kind pipeline = RF_PIPELINE_1F1B,
         int recompute = 0, int offload = 0)
        : MeshCase{dp, tp, 1, pp, sequence, zero, order, pipeline, recompute, offload}
    {
    }
};

// By gradient descent. The gradient of a key's bias is 0 up to roundings, which adaptive rules
// would scale up to whole steps.
Training of_gpt()
{
    Training t = clipped_training(2);
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    return t;
}

Training of_llama()
{
    return with_llama(of_gpt());
}

// Sums over tensor ranks have other parts, and another order: differences of a few units in the
// last place of f32, which steps carry on.
void expect_close(const Seen &s, const Seen &one, const std::string &where)
{
    ASSERT_EQ(s.loss.size(), one.loss.size()) << where;
    for (size_t k = 0; k < one.loss.size(); k++) {
        EXPECT_NEAR(s.loss[k], one.loss[k], 1e-6 * std::fabs(one.loss[k]))
            << where << " step " << k;
        EXPECT_NEAR(s.norm[k], one.norm[k], 1e-6 * one.norm[k]) << where << " step " << k;
    }
    expect_planned(s, where);
}

void expect_all_close(const Training &t, const std::vector<Mesh> &meshes)
{
    const Seen one = train(t, 1)[0];
    for (const Mesh &m : meshes)
        for (const Seen &s : train_on(t, m))
            expect_close(s, one, m.text());
}

} // namespace

TEST(Meshes, OfFourRanksTrainAsOneProcessDoes)
{
    const std::vector<Mesh> meshes = {
        {1, 2, 1},
        {1, 4, 1},
        {1, 4, 1, true, 0, RF_ORDER_TREE, RF_PIPELINE_1F1B, 1},
        {2, 2, 1, false, 2},
        {2, 2, 1, true, 3, RF_ORDER_RING},
        {1, 2, 2, true},
        {1, 2, 2, false, 0, RF_ORDER_RING, RF_PIPELINE_ZBV},
    };
    expect_all_close(of_gpt(), meshes);
    expect_all_close(of_llama(), meshes);
}

TEST(Meshes, OfEightRanksTrainAsOneProcessDoes)
{
    expect_all_close(of_gpt(), {{2, 2, 2, true, 1}});
    if (getenv("RF_TEST_ALL"))
        expect_all_close(of_llama(), {{2, 2, 2, false, 2}, {2, 2, 2, true, 1}});
}

TEST(Meshes, OfThreeTensorRanksWhoseVocabularyTheyDoNotDivideTrainAsOneProcessDoes)
{
    Training t = of_gpt();
    t.model = {2, 36, 3, 16, 61};
    expect_all_close(t, {{1, 3, 1}, {1, 3, 1, false, 0, RF_ORDER_RING, RF_PIPELINE_1F1B, 2}});
}

TEST(Meshes, InTreeOrderTheBitsDependOnTheTensorRanksAlone)
{
    for (bool sequence : {false, true}) {
        Training t = of_gpt();
        t.policy.optimizer.kind = RF_ADAMW;
        t.lr = 0.01f;
        const Seen one = train_on(t, Mesh(1, 2, 1, sequence))[0];
        const std::vector<Mesh> meshes = {
            {2, 2, 1, sequence, 1},
            {2, 2, 1, sequence, 3, RF_ORDER_TREE, RF_PIPELINE_1F1B, 2},
            {1, 2, 2, sequence},
            {3, 2, 1, sequence, 2},
        };
        for (const Mesh &m : meshes)
            for (const Seen &s : train_on(t, m)) {
                EXPECT_EQ(s.sha, one.sha) << m.text();
                EXPECT_EQ(s.loss, one.loss) << m.text();
                EXPECT_EQ(s.norm, one.norm) << m.text();
                expect_planned(s, m.text());
            }
    }
}

// Sums of 16-bit products are rounded to the residual stream, which is f32.
TEST(Meshes, InMixedPrecisionTheLossIsThatOfOneProcess)
{
    Training t = of_gpt();
    t.model.dtype = RF_BF16;
    const Seen one = train(t, 1)[0];
    for (const Mesh &m : {Mesh{1, 2, 1}, Mesh{2, 2, 1, true, 1}})
        for (const Seen &s : train_on(t, m)) {
            for (size_t k = 0; k < one.loss.size(); k++) {
                EXPECT_NEAR(s.loss[k], one.loss[k], 2e-3 * one.loss[k]) << m.text();
                EXPECT_NEAR(s.norm[k], one.norm[k], 2e-2 * one.norm[k]) << m.text();
            }
            expect_planned(s, m.text());
        }
}

TEST(Meshes, WithMemoryOfTheHostTrainAsOneProcessDoes)
{
    expect_all_close(of_gpt(),
                     {{2, 2, 1, true, 1, RF_ORDER_TREE, RF_PIPELINE_1F1B, 0, RF_OFFLOAD_OPTIMIZER},
                      {2, 2, 1, false, 3, RF_ORDER_RING, RF_PIPELINE_1F1B, 0,
                       RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS}});
}

// Forward and backward each exchange once for each pair of products: attention's, and the MLP's.
TEST(Meshes, ALayerExchangesTwiceForwardAndTwiceBackward)
{
    for (bool sequence : {false, true}) {
        Training t = of_gpt();
        std::map<std::pair<rf_verb, rf_coll_op>, int> seen;
        t.edit = [&](rf_plan *plan, int rank) {
            int count = 0;
            const rf_instruction *list = rf_plan_instructions(plan, &count);
            for (int i = 0; rank == 0 && i < count; i++)
                if (list[i].verb == RF_VERB_EXCHANGE && list[i].block == 2 &&
                    list[i].micro_batch == 0)
                    seen[{list[i].call, rf_plan_transfer(plan, &list[i])->op}]++;
        };
        t.steps = 1;
        train_on(t, Mesh(1, 2, 1, sequence));
        const std::map<std::pair<rf_verb, rf_coll_op>, int> sums = {
            {{RF_VERB_FORWARD, RF_COLL_ALL_REDUCE}, 2},
            {{RF_VERB_BACKWARD_INPUT, RF_COLL_ALL_REDUCE}, 2}};
        const std::map<std::pair<rf_verb, rf_coll_op>, int> parts = {
            {{RF_VERB_FORWARD, RF_COLL_ALL_GATHER}, 2},
            {{RF_VERB_FORWARD, RF_COLL_REDUCE_SCATTER}, 2},
            {{RF_VERB_BACKWARD_INPUT, RF_COLL_ALL_GATHER}, 2},
            {{RF_VERB_BACKWARD_INPUT, RF_COLL_REDUCE_SCATTER}, 2},
            {{RF_VERB_BACKWARD_WEIGHT, RF_COLL_ALL_GATHER}, 2}};
        EXPECT_EQ(seen, sequence ? parts : sums);
    }
}

TEST(Meshes, WhatDoesNotDivideIsRefusedByName)
{
    const auto refusal = [](const gpt2_config &config, int tp, bool sequence, int64_t seq) {
        gpt2 *model = nullptr;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        int count = 0;
        const rf_block *blocks = gpt2_blocks(model, &count);
        rf_policy policy = {};
        policy.batch = 1;
        policy.seq = seq;
        policy.sequence_parallel = sequence;
        const rf_mesh mesh = {1, tp, 1};
        rf_plan *plan = nullptr;
        EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), RF_EINVAL);
        const std::string message = rf_last_error()->message;
        rf_plan_destroy(plan);
        gpt2_destroy(model);
        return message;
    };
    EXPECT_NE(refusal({2, 32, 4, 16, 61}, 3, false, 16).find("attention.qkv"), std::string::npos);
    EXPECT_NE(refusal({2, 36, 3, 16, 61}, 3, true, 7).find("tokens of a"), std::string::npos)
        << rf_last_error()->message;
}
