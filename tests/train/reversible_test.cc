// SPDX-License-Identifier: MIT
//
// Reversible layers (src/models/layer_pair.c): in fixed point the inverse has the bits of stored
// activations, in f32 the gradients are close; gradients agree with finite differences; memory does
// not depend on the number of layers; and every mesh gives the result of one rank.
#include <ringforge/layer.h>

#include <cmath>
#include <map>

#include "mesh_case.h"

extern "C" {
#include "hub_table.h"
}

namespace
{

Training pairs(rf_reversible kind, bool llama, bool invert = true, int layers = 2)
{
    Training t = clipped_training(3);
    if (llama)
        t = with_llama(t);
    t.model.layers = layers;
    t.llama.layers = llama ? layers : 0;
    t.model.reversible = t.llama.reversible = kind;
    t.policy.invert = invert;
    t.policy.seq = 16;
    t.policy.micro_batches = 4;
    return t;
}

struct Result {
    Seen seen;
    std::map<std::string, std::vector<float>> grads;
};

Result result_of(Training t)
{
    Result result;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_param_desc *desc = run->plan->params[i].desc;
            std::vector<float> &grad = result.grads[desc->name];
            grad.resize((size_t)rf_shape_count(desc->shape));
            if (!desc->tied_to) {
                ASSERT_RF(rf_run_read_grad(run, desc->name, grad.data(), 4 * grad.size()));
            }
        }
    };
    result.seen = train(t, 1)[0];
    expect_planned(result.seen, "reversible");
    return result;
}

double distance(const std::vector<float> &a, const std::vector<float> &b)
{
    double difference = 0, square = 1e-30;
    for (size_t i = 0; i < a.size(); i++) {
        difference += std::pow((double)a[i] - (double)b[i], 2);
        square += std::pow((double)b[i], 2);
    }
    return std::sqrt(difference / square);
}

// A layer whose norms come after the products.
const layer_op *post_norms()
{
    return hub_arch_named("Olmo2ForCausalLM")->layer;
}

uint64_t activations(rf_reversible kind, int layers, bool invert, int recompute = 0)
{
    gpt2_config config = {layers, 32, 4, 64, 61};
    config.reversible = kind;
    rf_policy policy = {};
    policy.batch = 1;
    policy.seq = 64;
    policy.invert = invert;
    policy.recompute = recompute;
    gpt2 *model = nullptr;
    rf_plan *plan = nullptr;
    rf_bytes bytes = {};
    int count = 0;
    EXPECT_EQ(gpt2_create(&config, &model), 0) << rf_last_error()->message;
    const rf_block *blocks = gpt2_blocks(model, &count);
    EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan), 0)
        << rf_last_error()->message;
    rf_plan_bytes(plan, &bytes);
    rf_plan_destroy(plan);
    gpt2_destroy(model);
    return bytes.activations;
}

} // namespace

TEST(Reversible, InFixedPointTheInverseHasTheBitsOfStoredActivations)
{
    for (bool llama : {false, true})
        for (rf_dtype dtype : {RF_F32, RF_BF16}) {
            Training stored = pairs(RF_REVERSIBLE_FIXED, llama, false, 3);
            stored.model.dtype = stored.llama.dtype = dtype;
            Training inverted = stored;
            inverted.policy.invert = true;
            const Result a = result_of(stored), b = result_of(inverted);
            EXPECT_EQ(a.seen.sha, b.seen.sha) << llama;
            EXPECT_EQ(a.seen.loss, b.seen.loss) << llama;
            EXPECT_EQ(a.grads, b.grads) << llama;
            EXPECT_LT(b.seen.planned.activations, a.seen.planned.activations);
        }
    Training stored = pairs(RF_REVERSIBLE_FIXED, true, false);
    stored.llama.layer = post_norms();
    Training inverted = stored;
    inverted.policy.invert = true;
    EXPECT_EQ(result_of(stored).grads, result_of(inverted).grads);
    for (unsigned parts : {4u, 15u}) {
        inverted.llama.recompute = parts;
        EXPECT_EQ(result_of(stored).seen.sha, result_of(inverted).seen.sha) << parts;
    }
}

// The inverse draws the mask of the forward pass.
TEST(Reversible, DropoutOfAdaptersIsTheSameInTheInverse)
{
    const model_adapter adapter = {3, 4, 0.3f, false, "all-linear"};
    Training stored = pairs(RF_REVERSIBLE_FIXED, true, false);
    stored.llama.adapter = &adapter;
    Training inverted = stored;
    inverted.policy.invert = true;
    const Seen one = train(stored, 1)[0];
    for (int zero : {0, 3}) {
        inverted.policy.zero = zero;
        for (const Seen &s : train(inverted, 2))
            EXPECT_EQ(s.sha, one.sha) << zero;
    }
}

// Errors of an inverse in f32 are some units in the last place of the stream; 1e-4 is the bound
// that docs/memory.md states.
TEST(Reversible, InF32TheGradientsAreClose)
{
    for (bool llama : {false, true}) {
        const Result a = result_of(pairs(RF_REVERSIBLE_F32, llama, false, 6));
        const Result b = result_of(pairs(RF_REVERSIBLE_F32, llama, true, 6));
        const Result fixed = result_of(pairs(RF_REVERSIBLE_FIXED, llama, true, 6));
        for (const auto &[name, grad] : a.grads)
            EXPECT_LT(distance(b.grads.at(name), grad), 1e-4) << name;
        for (size_t k = 0; k < a.seen.loss.size(); k++) {
            EXPECT_NEAR(b.seen.loss[k], a.seen.loss[k], 1e-5);
            EXPECT_NEAR(fixed.seen.loss[k], a.seen.loss[k], 1e-3); // streams in steps of 2^-16
        }
    }
}

// The change of the loss along the gradient of all parameters is its squared norm.
TEST(Reversible, GradientsAgreeWithFiniteDifferences)
{
    for (bool llama : {false, true}) {
        Training t = pairs(RF_REVERSIBLE_F32, llama);
        t.policy.optimizer.kind = RF_SGD;
        t.policy.optimizer.weight_decay = RF_ZERO;
        t.policy.clip = 0;
        t.ignored = 0;
        t.steps = 1;
        double moved[2] = {0, 0}, norm = 0;
        for (int k = 0; k < 2; k++) {
            t.lr = k ? 1e-3f : -1e-3f;
            t.after = [&](rf_run *run, rf_comm *, int) {
                std::vector<int32_t> tokens, targets;
                t.batch(0, tokens, targets);
                ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(),
                                          t.policy.micro_batches, &moved[k]));
            };
            norm = train(t, 1)[0].norm[0];
        }
        EXPECT_NEAR((moved[0] - moved[1]) / 2e-3, norm * norm, 0.01 * norm * norm) << llama;
    }
}

TEST(Reversible, ActivationMemoryDoesNotDependOnTheNumberOfLayers)
{
    for (rf_reversible kind : {RF_REVERSIBLE_F32, RF_REVERSIBLE_FIXED}) {
        const double two = (double)activations(kind, 2, true);
        for (int layers : {8, 32})
            EXPECT_NEAR((double)activations(kind, layers, true) / two, 1, 0.01) << layers;
        EXPECT_GT((double)activations(kind, 32, false), 4 * two);
        EXPECT_GT((double)activations(kind, 32, false, 1), 2 * two); // every output is kept
    }
}

TEST(Reversible, EveryMeshGivesTheResultOfOneRank)
{
    const std::vector<MeshCase> exact = {{2},
                                         {2, 1, 1, 1, false, 1},
                                         {2, 1, 1, 1, false, 2},
                                         {2, 1, 1, 1, false, 3},
                                         {1, 1, 1, 2},
                                         {2, 1, 1, 2, false, 1, RF_ORDER_TREE, RF_PIPELINE_ZBH1},
                                         {1, 1, 1, 3, false, 0, RF_ORDER_TREE, RF_PIPELINE_GPIPE}};
    const std::vector<MeshCase> close = {{1, 2},    {1, 2, 1, 1, true},
                                         {1, 4},    {2, 2, 1, 1, true, 3, RF_ORDER_RING},
                                         {1, 1, 2}, {1, 2, 1, 2}};
    for (rf_reversible kind : {RF_REVERSIBLE_F32, RF_REVERSIBLE_FIXED}) {
        const bool llama = kind == RF_REVERSIBLE_FIXED;
        const Training t = pairs(kind, llama);
        const Seen one = train(t, 1)[0];
        for (const MeshCase &m : exact)
            for (const Seen &s : train_on(t, m)) {
                // In f32 a stage begins with the stored output of its last layer, not an inverse.
                EXPECT_TRUE(s.sha == one.sha || (kind == RF_REVERSIBLE_F32 && m.pp > 1))
                    << m.text();
                EXPECT_NEAR(s.loss[2], one.loss[2], 1e-5) << m.text();
                expect_planned(s, m.text());
            }
        for (const MeshCase &m : close)
            for (const Seen &s : train_on(t, m))
                for (size_t i = 0; i < one.loss.size(); i++) {
                    // Sums over ranks have another order; in fixed point they round by 2^-16.
                    EXPECT_NEAR(s.loss[i], one.loss[i], llama ? 1e-4 : 1e-5) << m.text();
                    EXPECT_NEAR(s.norm[i], one.norm[i], llama ? 1e-3 : 1e-4) << m.text();
                }
    }
}

// Two branches as rows, in the middle of a model.
TEST(Reversible, ABlockOfRowsIsInvertedToo)
{
    const rf_layer_op rows[] = {
        {.kind = RF_LAYER_NORM, .in = "in", .out = "a", .param = "n"},
        {.kind = RF_LAYER_LINEAR, .in = "a", .out = "b", .param = "up", .columns = 64},
        {.kind = RF_LAYER_GATE, .in = "b", .out = "c", .act = RF_ACT_SILU},
        {.kind = RF_LAYER_LINEAR, .in = "c", .out = "d", .param = "down", .columns = 32},
        {.kind = RF_LAYER_ADD, .in = "in", .out = "e", .with = "d"},
        {.kind = RF_LAYER_LINEAR, .in = "e", .out = "f", .param = "q", .columns = 40},
        {.kind = RF_LAYER_ACT, .in = "f", .out = "g", .act = RF_ACT_TANH},
        {.kind = RF_LAYER_LINEAR, .in = "g", .out = "h", .param = "r", .columns = 32, .bias = true},
        {.kind = RF_LAYER_ADD, .in = "e", .out = "i", .with = "h"}};
    rf_layer_opts opts = {};
    opts.name = "rows";
    opts.channels = 32;
    opts.reversible = RF_REVERSIBLE_FIXED;
    rf_block block = {}, split = {}, join = {};
    ASSERT_RF(rf_layer_block(rows, 9, &opts, &block));
    ASSERT_RF(rf_layer_split(&opts, &split));
    ASSERT_RF(rf_layer_join(&opts, &join));
    Training stored = pairs(RF_NOT_REVERSIBLE, false, false);
    stored.edit_blocks = [&](std::vector<rf_block> &blocks, int) {
        blocks.insert(blocks.end() - 1, {split, block, block, join});
        static const std::vector<rf_param_desc> second = [&] {
            std::vector<rf_param_desc> params(block.params, block.params + block.param_count);
            static const char *const names[] = {"s.0", "s.1", "s.2", "s.3", "s.4", "s.5", "s.6"};
            for (size_t k = 0; k < params.size(); k++)
                params[k].name = names[k];
            return params;
        }();
        blocks[blocks.size() - 3].params = second.data();
    };
    Training inverted = stored;
    inverted.policy.invert = true;
    const Seen one = train(stored, 1)[0];
    for (int ranks : {1, 2})
        for (const Seen &s : train(inverted, ranks)) {
            EXPECT_EQ(s.sha, one.sha);
            expect_planned(s, "blocks of rows");
        }
    rf_block *const all[] = {&block, &split, &join};
    for (rf_block *b : all)
        rf_layer_block_free(b);
    opts.residual = opts.dtype = RF_BF16;
    EXPECT_EQ(rf_layer_block(rows, 9, &opts, &block), RF_EINVAL);
    opts.residual = opts.dtype = RF_F32;
    EXPECT_EQ(rf_layer_block(rows, 5, &opts, &block), RF_EINVAL); // one branch
    opts.reversible = RF_NOT_REVERSIBLE;
    EXPECT_EQ(rf_layer_split(&opts, &split), RF_EINVAL);
}

TEST(Reversible, WhatCannotBeInvertedIsRefused)
{
    const struct {
        std::function<void(Training &)> change;
        const char *text;
    } rows[] = {
        {[](Training &t) { t.policy.recompute = 1; }, "invert with recompute"},
        {[](Training &t) { t.policy.offload = RF_OFFLOAD_ACTIVATIONS; }, "offload of activations"},
        {[](Training &t) { t.model.reversible = RF_NOT_REVERSIBLE; }, "is reversible"}};
    for (const auto &row : rows) {
        Training t = pairs(RF_REVERSIBLE_F32, false);
        gpt2 *model = nullptr;
        rf_plan *plan = nullptr;
        int count = 0;
        row.change(t);
        ASSERT_RF(gpt2_create(&t.model, &model));
        const rf_block *blocks = gpt2_blocks(model, &count);
        EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(row.text), std::string::npos)
            << rf_last_error()->message;
        gpt2_destroy(model);
    }
    gpt2_config config = {2, 32, 4, 16, 61};
    gpt2 *model = nullptr;
    config.dtype = config.residual = RF_BF16;
    config.reversible = RF_REVERSIBLE_F32;
    EXPECT_EQ(gpt2_create(&config, &model), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("residual stream of f32"),
              std::string::npos);
}
