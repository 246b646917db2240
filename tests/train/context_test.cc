// SPDX-License-Identifier: MIT
//
// Ranks that share sequences (context parallelism), with data ranks, shards and pipeline stages:
// loss, norm, gradients and parameters equal those of one process; memory of a part; bytes as
// planned and by formula; unsupported combinations are refused by name.
#include <cmath>

#include "folder.h"
#include "mesh_case.h"

extern "C" {
#include "parallel/plan/traffic.h"
}

namespace
{

struct Mesh : MeshCase {
    Mesh(int dp, int cp, int pp = 1, int zero = 0, rf_order order = RF_ORDER_TREE,
         int recompute = 0, rf_pipeline_kind pipeline = RF_PIPELINE_1F1B, int offload = 0)
        : MeshCase{dp, 1, cp, pp, false, zero, order, pipeline, recompute, offload}
    {
    }
};

// By gradient descent, as in meshes_test.cc. Two sequences in a micro-batch: 2, 3 and 4 ranks have
// two chunks of 6, 4 and 3 tokens each.
Training of_gpt()
{
    Training t = clipped_training(2);
    t.model = {2, 32, 4, 24, 61};
    t.policy.seq = 24;
    t.policy.batch = 8;
    t.policy.micro_batches = 4;
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    return t;
}

Training of_llama()
{
    return with_llama(of_gpt());
}

// With the features of all other architectures.
Training of_every_llama()
{
    Training t = of_llama();
    t.llama.head_size = 12;
    t.llama.qkv_bias = t.llama.qk_norm = true;
    t.llama.rope_scaling = {8, 1, 4, 12};
    return t;
}

// A row's attention visits the same keys in the same order, and everything else concerns one row
// alone: so in the first step the losses of rows have the same bits, and their sum in f64 has the
// same terms in another order.
void expect_close(const Training &t, const std::vector<Mesh> &meshes)
{
    const Seen one = train(t, 1)[0];
    for (const Mesh &m : meshes)
        for (const Seen &s : train_on(t, m)) {
            ASSERT_EQ(s.loss.size(), one.loss.size()) << m.text();
            for (size_t k = 0; k < one.loss.size(); k++) {
                EXPECT_NEAR(s.loss[k], one.loss[k], 1e-6 * one.loss[k]) << m.text() << ", " << k;
                EXPECT_NEAR(s.norm[k], one.norm[k], 1e-6 * one.norm[k]) << m.text() << ", " << k;
                EXPECT_EQ(s.stats[k].tokens, one.stats[k].tokens) << m.text();
            }
            EXPECT_NEAR(s.loss[0], one.loss[0], 1e-12 * one.loss[0]) << m.text();
            expect_planned(s, m.text());
        }
}

// A plan of one rank; NULL: refused.
class Planned
{
  public:
    Planned(const Training &t, const rf_mesh &mesh, int rank = 0)
    {
        int count = 0;
        EXPECT_EQ(gpt2_create(&t.model, &model_), 0);
        const rf_block *blocks = gpt2_blocks(model_, &count);
        status = rf_plan_build({blocks, count}, &mesh, &t.policy, rank, &plan);
        message = status < 0 ? rf_last_error()->message : "";
    }
    ~Planned()
    {
        rf_plan_destroy(plan);
        gpt2_destroy(model_);
    }
    rf_plan *plan = nullptr;
    int status = 0;
    std::string message;

  private:
    gpt2 *model_ = nullptr;
};

} // namespace

TEST(Context, OfTwoThreeAndFourRanksTrainsAsOneProcessDoes)
{
    expect_close(of_gpt(), {{1, 2}, {1, 3, 1, 0, RF_ORDER_RING}, {1, 4}});
    expect_close(of_llama(), {{1, 4}, {1, 2, 1, 0, RF_ORDER_TREE, 1}});
    expect_close(of_every_llama(), {{1, 2}});
}

TEST(Context, GoesWithDataRanksShardsAndStages)
{
    expect_close(of_gpt(), {{2, 2, 1, 2}, {1, 2, 2, 0, RF_ORDER_RING, 0, RF_PIPELINE_ZBV}});
    expect_close(of_llama(), {{2, 2, 1, 3, RF_ORDER_RING}, {1, 2, 2}});
    expect_close(of_every_llama(), {{1, 2, 2}});
}

TEST(Context, InTreeOrderTheBitsDependOnTheContextRanksAlone)
{
    Training t = of_gpt();
    t.policy.optimizer.kind = RF_ADAMW;
    t.lr = 0.01f;
    const Seen one = train_on(t, Mesh(1, 2))[0];
    for (const Mesh &m : {Mesh{2, 2, 1, 1}, Mesh{1, 2, 2}})
        for (const Seen &s : train_on(t, m)) {
            EXPECT_EQ(s.sha, one.sha) << m.text();
            EXPECT_EQ(s.loss, one.loss) << m.text();
            EXPECT_EQ(s.norm, one.norm) << m.text();
        }
}

// Each rank's gradient is that of its own rows; for positions, of its own positions.
TEST(Context, TheGradientOfEveryParameterIsThatOfOneProcess)
{
    for (bool llama : {false, true})
        for (unsigned recompute : {0u, (unsigned)MODEL_RECOMPUTE_ALL}) {
            if (llama == !recompute && !getenv("RF_TEST_ALL"))
                continue;
            Training t = llama ? of_every_llama() : of_gpt();
            t.steps = 1;
            t.model.recompute = t.llama.recompute = recompute;
            std::vector<std::vector<float>> one, two;
            const auto read = [&](std::vector<std::vector<float>> &to) {
                return [&](rf_run *run, rf_comm *, int rank) {
                    for (int i = 0; i < run->plan->param_count; i++) {
                        const rf_param_desc *desc = run->plan->params[i].desc;
                        std::vector<float> grad((size_t)rf_shape_count(desc->shape));
                        ASSERT_RF(rf_run_read_grad(run, desc->name, grad.data(), 4 * grad.size()));
                        if (rank == 0)
                            to.push_back(grad);
                    }
                };
            };
            t.after = read(one);
            train(t, 1);
            t.after = read(two);
            train_on(t, Mesh(1, 2));
            ASSERT_EQ(one.size(), two.size());
            for (size_t i = 0; i < one.size(); i++) {
                float largest = 0;
                for (float x : one[i])
                    largest = std::max(largest, std::fabs(x));
                EXPECT_LE(worst_difference(one[i], two[i]), 1e-5f * largest + 1e-5f)
                    << "parameter " << i << ", recompute " << recompute;
            }
        }
}

TEST(Context, InMixedPrecisionTheLossIsThatOfOneProcess)
{
    if (!getenv("RF_TEST_ALL"))
        GTEST_SKIP() << "kernels of another type; RF_TEST_ALL=1 has them";
    Training t = of_gpt();
    t.model.dtype = RF_BF16;
    const Seen one = train(t, 1)[0];
    for (const Seen &s : train_on(t, Mesh(1, 2)))
        for (size_t k = 0; k < one.loss.size(); k++) {
            EXPECT_NEAR(s.loss[k], one.loss[k], 2e-3 * one.loss[k]);
            EXPECT_NEAR(s.norm[k], one.norm[k], 2e-2 * one.norm[k]);
        }
}

TEST(Context, EvaluatesSavesForAnyMeshAndRefusesToGiveLogits)
{
    const Folder folder;
    double loss[3] = {};
    std::string sha[3];
    Training t = of_gpt();
    t.steps = 1;
    const auto look = [&](rf_run *run, int k) {
        std::vector<int32_t> tokens, targets;
        t.batch(7, tokens, targets);
        ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 3, &loss[k]));
        sha[k] = sha_of(run);
    };
    Training saves = Mesh(1, 2).on(t), loads = t;
    saves.after = [&](rf_run *run, rf_comm *, int rank) {
        const rf_progress progress = {1, 5, 8};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        ASSERT_RF(rf_run_audit(run, nullptr));
        look(run, rank == 0 ? 0 : 2);
        std::vector<int32_t> tokens(48);
        std::vector<float> logits(48 * 61);
        EXPECT_EQ(rf_run_forward(run, tokens.data(), logits.data(), 4 * logits.size()), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("cp=2"), std::string::npos);
    };
    for (const Seen &s : train(saves, 2))
        expect_planned(s, "evaluated");
    loads.steps = 0;
    loads.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress;
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        look(run, 1);
    };
    train(loads, 1);
    EXPECT_NEAR(loss[0], loss[1], 1e-12 * loss[1]);
    EXPECT_EQ(loss[0], loss[2]);
    EXPECT_EQ(sha[0], sha[1]);
    EXPECT_EQ(sha[0], sha[2]);
}

// A model of many layers: memory that grows with these is 1/cp. Not so keys and values of one layer
// and their gradients, which are complete; and since the weight half of a layer is deferred until
// the next one exchanges, saved_for_weight, the output and its gradient of one more layer are kept.
TEST(Context, KeepsItsPartOfTheActivations)
{
    Training t = of_gpt();
    t.model = {16, 64, 4, 256, 61};
    t.policy.seq = 256;
    t.policy.batch = t.policy.micro_batches = 1;
    const Planned one(t, {1, 1, 1});
    rf_bytes all, part;
    rf_plan_bytes(one.plan, &all);
    for (int cp : {2, 4, 8}) {
        const Planned shared(t, {1, 1, 1, 0, cp});
        ASSERT_EQ(shared.status, 0) << shared.message;
        rf_plan_bytes(shared.plan, &part);
        const uint64_t rows = 256 * 64 * 4, keys = 2 * rows; // bytes per layer
        const uint64_t put_off = (10 + 2) * rows / (uint64_t)cp, rounding = 1024;
        EXPECT_LE(part.activations, all.activations / (uint64_t)cp + 2 * keys + put_off + rounding)
            << cp;
        EXPECT_GE(part.activations, all.activations / (uint64_t)cp) << cp;
        EXPECT_EQ(part.params, all.params);
        EXPECT_EQ(part.grads, all.grads);
    }
}

// Keys and values, W = 2 C columns: gathered forward, gathered back, and scattered.
TEST(Context, ExchangesKeysAndValuesThreeTimesForEachLayerAndMicroBatch)
{
    for (int cp : {2, 4})
        for (int rank = 0; rank < cp; rank++) {
            const Training t = of_gpt();
            const Planned p(t, {1, 1, 1, 0, cp}, rank);
            uint64_t exchanged = 0, sums = 0, bytes = 0;
            int count = 0;
            const rf_instruction *list = rf_plan_instructions(p.plan, &count);
            for (int i = 0; i < count; i++)
                if (list[i].lane == RF_LANE_TENSOR) {
                    ASSERT_EQ(rf_transfer_sent(p.plan, rf_plan_transfer(p.plan, &list[i]), &bytes),
                              0);
                    (list[i].verb == RF_VERB_EXCHANGE ? exchanged : sums) += bytes;
                }
            const uint64_t tokens = 8 * 24, layers = 2, columns = 2 * 32, c = (uint64_t)cp;
            EXPECT_EQ(exchanged, layers * 3 * tokens * columns * 4 / c * (c - 1));
            EXPECT_GE(sums, (uint64_t)rf_plan_param_count(p.plan) * 4 * 2 / c * (c - 1));
        }
}

TEST(Context, TheReasonOfEachTransferNamesTheAxis)
{
    const Planned p(of_gpt(), {1, 1, 1, 0, 2});
    int count = 0;
    char text[400];
    const rf_instruction *list = rf_plan_instructions(p.plan, &count);
    for (int i = 0; i < count; i++)
        if (list[i].lane == RF_LANE_TENSOR && list[i].verb != RF_VERB_NORM_SHARE) {
            const std::string why = rf_instruction_reason(p.plan, &list[i], text, sizeof(text));
            EXPECT_NE(why.find("cp=2"), std::string::npos) << why;
        }
}

TEST(Context, WhatDoesNotFitIsRefusedByName)
{
    Training t = of_gpt();
    const auto refusal = [&](const rf_mesh &mesh, int status) {
        const Planned p(t, mesh);
        EXPECT_EQ(p.status, status);
        return p.message;
    };
    EXPECT_EQ(
        refusal({1, 1, 1, 0, 5}, RF_EINVAL),
        "sequences of 24 tokens with cp=5: each rank has two of 10 equal chunks of a sequence; "
        "use a sequence length that 10 divides");
    EXPECT_EQ(
        refusal({1, 2, 1, 0, 2}, RF_ENOTSUP),
        "mesh tp=2,cp=2: tensor and context parallelism together are not in this version; use "
        "one of the two");
    t.policy.offload = RF_OFFLOAD_ACTIVATIONS;
    EXPECT_NE(refusal({1, 1, 1, 0, 2}, RF_ENOTSUP).find("activations with cp=2"),
              std::string::npos);
    t.policy.offload = 0;
    t.policy.tensor_parts = 2;
    EXPECT_NE(refusal({1, 1, 1, 0, 2}, RF_ENOTSUP).find("tensor_parts 2 with cp=2"),
              std::string::npos);
    t.policy.tensor_parts = 0;
    t.policy.order = RF_ORDER_RING;
    t.policy.update_on_rank_0 = true;
    EXPECT_NE(refusal({2, 1, 1, 0, 2}, RF_EINVAL).find("rank 0 alone with cp=2"),
              std::string::npos);
    t.policy.update_on_rank_0 = false;
    t.policy.pipeline = RF_PIPELINE_2BW;
    EXPECT_NE(refusal({1, 1, 2, 0, 2}, RF_ENOTSUP).find("context ranks (cp)"), std::string::npos);
}

TEST(Context, ABlockThatDoesNotSayWhatItDoesWithPartsIsRefusedByName)
{
    gpt2 *model = nullptr;
    int count = 0;
    const Training t = of_gpt();
    ASSERT_EQ(gpt2_create(&t.model, &model), 0);
    const rf_block *blocks = gpt2_blocks(model, &count);
    std::vector<rf_block> edited(blocks, blocks + count);
    rf_block_ops ops = *blocks[1].ops;
    ops.context_sizes = nullptr;
    edited[1].ops = &ops;
    const rf_mesh mesh = {1, 1, 1, 0, 2};
    rf_plan *plan = nullptr;
    EXPECT_EQ(rf_plan_build({edited.data(), count}, &mesh, &t.policy, 0, &plan), RF_ENOTSUP);
    EXPECT_NE(std::string(rf_last_error()->message)
                  .find(std::string("block ") + blocks[1].name + " has no context_sizes"),
              std::string::npos)
        << rf_last_error()->message;
    gpt2_destroy(model);
}
