// SPDX-License-Identifier: MIT
//
// Blocks that are computed in a fixed number of parts (rf_policy.tensor_parts): the bits of a run
// depend neither on the number of tensor ranks that share them nor on data ranks and stages, in
// tree order.
#include <cmath>

#include "folder.h"
#include "mesh_case.h"

namespace
{

struct Mesh : MeshCase {
    Mesh(int dp, int tp, int pp, int zero = 0, int recompute = 0,
         rf_pipeline_kind pipeline = RF_PIPELINE_1F1B)
        : MeshCase{dp, tp, 1, pp, false, zero, RF_ORDER_TREE, pipeline, recompute}
    {
    }
};

Training of_gpt()
{
    Training t = clipped_training(2);
    t.policy.tensor_parts = 4;
    return t;
}

Training of_llama(int keys)
{
    return with_llama(of_gpt(), keys);
}

void expect_same_bits(const Training &t, const std::vector<Mesh> &meshes)
{
    const Seen one = train(t, 1)[0];
    expect_planned(one, "one rank");
    for (const Mesh &m : meshes)
        for (const Seen &s : train_on(t, m)) {
            EXPECT_EQ(s.sha, one.sha) << m.text();
            EXPECT_EQ(s.loss, one.loss) << m.text();
            EXPECT_EQ(s.norm, one.norm) << m.text();
            expect_planned(s, m.text());
        }
}

std::string refusal(int tp, int parts, bool sequence, const gpt2_config &config)
{
    gpt2 *model = nullptr;
    EXPECT_EQ(gpt2_create(&config, &model), 0);
    int count = 0;
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_policy policy = {};
    policy.batch = 1;
    policy.seq = 16;
    policy.sequence_parallel = sequence;
    policy.tensor_parts = parts;
    const rf_mesh mesh = {1, tp, 1};
    rf_plan *plan = nullptr;
    EXPECT_LT(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), 0);
    const std::string message = rf_last_error()->message;
    rf_plan_destroy(plan);
    gpt2_destroy(model);
    return message;
}

} // namespace

TEST(TensorParts, GiveTheSameBitsOnEveryMesh)
{
    expect_same_bits(of_gpt(), {{1, 2, 1},
                                {1, 4, 1},
                                {2, 2, 1, 2},
                                {3, 1, 1, 3, 1},
                                {2, 2, 1, 3, 2},
                                {1, 2, 2},
                                {1, 2, 2, 0, 0, RF_PIPELINE_ZBV}});
}

// With two heads of keys four parts have copies of them, and a rank has several copies.
TEST(TensorParts, GiveTheSameBitsOfAModelWithSharedKeys)
{
    expect_same_bits(of_llama(2), {{1, 2, 1}, {1, 4, 1}, {2, 2, 1, 3, 1}});
    expect_same_bits(of_llama(4), {{1, 4, 1}});
}

TEST(TensorParts, GiveTheSameBitsInMixedPrecisionAndOfAHeadInChunks)
{
    Training t = of_gpt();
    t.model = {2, 64, 4, 16, 61};
    t.model.dtype = RF_BF16;
    t.model.head_rows = 24;
    expect_same_bits(t, {{1, 2, 1}, {1, 4, 1}});
    t.model.residual = RF_BF16;
    expect_same_bits(t, {{1, 2, 1}});
}

// The sums of parts differ from those of one rank without them.
TEST(TensorParts, TrainAsARunWithoutThem)
{
    for (Training t : {of_gpt(), of_llama(2)}) {
        t.policy.optimizer.kind = RF_SGD; /* no division by a gradient that consists of rounding
                                           * only */
        t.lr = 0.1f;
        const Seen parts = train(t, 1)[0];
        t.policy.tensor_parts = 0;
        const Seen one = train(t, 1)[0];
        for (size_t k = 0; k < one.loss.size(); k++) {
            EXPECT_NEAR(parts.loss[k], one.loss[k], 1e-6 * one.loss[k]);
            EXPECT_NEAR(parts.norm[k], one.norm[k], 1e-6 * one.norm[k]);
        }
    }
}

TEST(TensorParts, LogitsHaveTheSameBits)
{
    std::vector<std::vector<float>> seen;
    for (int tp : {1, 2, 4}) {
        Training t = of_gpt();
        t.tp = tp;
        t.steps = 1;
        std::vector<float> logits((size_t)(16 * 61));
        t.after = [&](rf_run *run, rf_comm *, int rank) {
            const std::vector<int32_t> tokens(16, 7);
            std::vector<float> own(logits.size());
            EXPECT_RF(rf_run_forward(run, tokens.data(), own.data(), own.size() * sizeof(float)));
            if (rank == 0)
                logits = own;
        };
        train(t, tp);
        seen.push_back(logits);
    }
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(seen[0], seen[2]);
    EXPECT_NE(seen[0][0], seen[0][1]);
}

// A checkpoint has logical tensors: later steps do not depend on who saved it.
TEST(TensorParts, ACheckpointOfOneRankGoesOnWithTheSameBitsOnFour)
{
    const Folder folder;
    const std::string dir = folder.path();
    Training t = of_gpt();
    t.after = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        progress.step = 2;
        EXPECT_RF(rf_run_save(run, dir.c_str(), &progress));
    };
    train(t, 1);
    t.after = nullptr;
    t.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        EXPECT_RF(rf_run_load(run, dir.c_str(), &progress));
    };
    t.first_step = 2;
    expect_same_bits(t, {{1, 2, 1}, {1, 4, 1}, {2, 2, 1, 1}});
}

TEST(TensorParts, WhatDoesNotFitIsRefusedByName)
{
    EXPECT_NE(refusal(1, 3, false, {2, 36, 3, 16, 61}).find("power of two"), std::string::npos);
    EXPECT_NE(refusal(4, 2, false, {2, 32, 4, 16, 61}).find("multiple of tp"), std::string::npos);
    EXPECT_NE(refusal(2, 4, true, {2, 32, 4, 16, 61}).find("sequence"), std::string::npos);
    EXPECT_NE(refusal(1, 8, false, {2, 64, 4, 16, 61}).find("heads"), std::string::npos)
        << rf_last_error()->message;
    EXPECT_NE(refusal(1, 4, false, {2, 16, 4, 16, 61}).find("multiple of 8"), std::string::npos);
}
