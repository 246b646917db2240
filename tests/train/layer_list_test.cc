// SPDX-License-Identifier: MIT
//
// Layers with other lists of operations than those of GPT-2 and Llama (src/models/layer.h):
// post-norms, norms of all heads together, other activations. hub_test.cc compares losses with
// transformers; here, every technique gives the result of one rank that keeps everything.
#include <cmath>

#include "mesh_case.h"

extern "C" {
#include "hub_table.h"
#include "layer.h"
}

namespace
{

const layer_op *olmo2()
{
    return hub_arch_named("Olmo2ForCausalLM")->layer;
}

// OLMo 2 with a norm of each head: tensor ranks cannot divide one of all heads.
const layer_op *post_norms()
{
    static std::vector<layer_op> ops;
    for (const layer_op *op = olmo2(); ops.empty() || ops.back().kind != LAYER_END; op++) {
        ops.push_back(*op);
        if (op->kind == LAYER_HEADS)
            ops.back().columns[0] = ops.back().columns[1] = LAYER_HEAD_SIZE;
    }
    return ops.data();
}

// An activation that no product computes.
const layer_op *tanh_units()
{
    static const layer_op ops[] = {{LAYER_NORM, "norm1"},
                                   {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED},
                                   {LAYER_HEADS, "attention"},
                                   {LAYER_ATTEND},
                                   {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}},
                                   {LAYER_ADD},
                                   {LAYER_NORM, "norm2"},
                                   {LAYER_COLUMN_LINEAR, "mlp.fc", {LAYER_HIDDEN}, LAYER_BIAS},
                                   {.kind = LAYER_ACT, .act = RF_ACT_TANH},
                                   {LAYER_ROW_LINEAR, "mlp.proj", {LAYER_CHANNELS}},
                                   {LAYER_ADD},
                                   {LAYER_END}};
    return ops;
}

Training of(const layer_op *layer)
{
    Training t = with_llama(clipped_training(3));
    t.policy.seq = 24;
    t.policy.batch = 8;
    t.policy.micro_batches = 4;
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    t.llama.layer = layer;
    return t;
}

// All parameters have equal bits.
void expect_same(const Training &wanted, const Training &seen, int ranks, const char *what)
{
    const std::string one = train(wanted, 1)[0].sha;
    for (const Seen &s : train(seen, ranks)) {
        EXPECT_EQ(s.sha, one) << what;
        expect_planned(s, what);
    }
}

} // namespace

TEST(LayerList, RecomputationAndShardingChangeNoBit)
{
    for (const layer_op *layer : {olmo2(), post_norms(), tanh_units()}) {
        const Training plain = of(layer);
        for (unsigned parts : {1u, 4u, 8u, 15u}) {
            Training t = plain;
            t.llama.recompute = parts;
            expect_same(plain, t, 1, "recomputed");
        }
        for (int zero = 1; zero <= 3; zero += 2) {
            Training t = plain;
            t.policy.zero = zero;
            t.policy.offload = zero == 3 ? RF_OFFLOAD_OPTIMIZER : 0;
            Training one = plain;
            one.policy.offload = t.policy.offload;
            expect_same(one, t, 2, "sharded");
        }
        Training stages = plain;
        stages.pp = 2;
        expect_same(plain, stages, 2, "in stages");
    }
}

TEST(LayerList, RanksThatShareItAreCloseToOneRank)
{
    const std::vector<MeshCase> meshes = {{1, 2}, {1, 2, 1, 1, true}, {2, 2, 1, 1, true, 2},
                                          {1, 4}, {1, 4, 1, 1, true}, {1, 1, 2}};
    for (const layer_op *layer : {post_norms(), tanh_units(), olmo2()}) {
        const Training plain = of(layer);
        const Seen one = train(plain, 1)[0];
        for (const MeshCase &m : meshes)
            for (unsigned parts : {0u, 15u}) {
                if (layer == olmo2() && m.tp > 1)
                    continue;
                Training t = m.on(plain);
                t.llama.recompute = parts;
                for (const Seen &s : train(t, m.ranks()))
                    for (size_t i = 0; i < one.loss.size(); i++) {
                        // Sums over ranks have another order.
                        EXPECT_NEAR(s.loss[i], one.loss[i], 1e-5) << m.text() << ", " << parts;
                        EXPECT_NEAR(s.norm[i], one.norm[i], 1e-4) << m.text() << ", " << parts;
                    }
            }
    }
}

TEST(LayerList, TensorRanksCannotDivideANormOfAllHeads)
{
    llama *model = nullptr;
    rf_block_sizes sizes = {};
    rf_tensor_part part = {};
    llama_config config = {2, 32, 4, 2};
    int count = 0;
    config.layer = olmo2();
    part.ranks = 2;
    ASSERT_RF(llama_create(&config, &model));
    const rf_block &layer = llama_blocks(model, &count)[1];
    EXPECT_EQ(layer.ops->tensor_sizes(layer.self, &part, 8, 8, &sizes), RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message,
                 "norms of all heads together cannot be divided among tensor ranks; use tp=1");
    // Checkpoints of another list of operations belong to other models.
    EXPECT_NE(std::string(layer.config)
                  .find(" layer=identity-linear-heads:norms-attend-linear-norm-add-identity-"
                        "linear-gate:silu-linear-norm-add"),
              std::string::npos);
    llama_destroy(model);
}

TEST(LayerList, WhatCannotBeComputedIsRefusedByASentence)
{
    const layer_op norm = {LAYER_NORM, "n"}, same = {LAYER_IDENTITY}, add = {LAYER_ADD}, end = {},
                   qkv = {LAYER_COLUMN_LINEAR, "q", LAYER_PACKED}, attend = {LAYER_ATTEND},
                   up = {LAYER_COLUMN_LINEAR, "u", {LAYER_HIDDEN}},
                   act = {LAYER_ACT, .act = RF_ACT_GELU}, gate = {LAYER_GATE, .act = RF_ACT_SILU},
                   row = {LAYER_ROW_LINEAR, "r", {LAYER_CHANNELS}},
                   biased = {LAYER_ROW_LINEAR, "r", {LAYER_CHANNELS}, LAYER_BIAS},
                   nameless = {LAYER_NORM}, heads = {LAYER_HEADS},
                   uneven = {LAYER_HEADS, "h", {LAYER_HEAD_SIZE, LAYER_KEYS}},
                   gates = {LAYER_COLUMN_LINEAR, "g", {LAYER_HIDDEN, LAYER_HIDDEN}},
                   tanh = {LAYER_ACT, .act = RF_ACT_TANH}, none = {LAYER_GATE},
                   identity = {LAYER_ACT};
    const struct {
        std::vector<layer_op> ops;
        const char *fault;
    } cases[] = {
        {{norm, qkv, attend, row, add, same, up, act, row, norm, add, end}, nullptr},
        {{end}, "a layer begins with a norm or an identity"},
        {{qkv, end}, "a layer begins with a norm or an identity"},
        {{norm, add, end}, "a pre-norm takes the stream, and a post-norm is added to it"},
        {{nameless, qkv, end}, "norms and linear maps have names, of at most 40 characters"},
        {{same, up, attend, end}, "heads and attention take the columns LAYER_PACKED"},
        {{same, qkv, act, end}, "an activation takes the columns {LAYER_HIDDEN}"},
        {{same, up, gate, end}, "a gate takes the columns {LAYER_HIDDEN, LAYER_HIDDEN}"},
        {{same, qkv, heads, row, end}, "heads are followed by attention"},
        {{same, qkv, uneven, attend, row, add, end},
         "norms of heads have the columns {LAYER_HEAD_SIZE, LAYER_HEAD_SIZE} or "
         "{LAYER_QUERIES, LAYER_KEYS}"},
        {{same, up, act, biased, norm, add, end}, "a row linear before a norm has no bias"},
        {{same, up, act, qkv, end}, "an activation is followed by a row linear"},
        {{same, up, tanh, row, add, end}, nullptr},
        {{same, up, identity, row, add, end}, "an activation or a gate has an activation function"},
        {{same, gates, none, row, add, end}, "an activation or a gate has an activation function"},
        {{same, qkv, attend, row, add, same, qkv, attend, row, add, end},
         "a layer has one attention at most"},
        {{same, up, act, row, add},
         "a sum with the stream is followed by a norm, an identity or the end"},
    };
    for (const auto &c : cases) {
        std::vector<layer_op> ops = c.ops;
        layer_op other = {};
        other.kind = LAYER_KINDS; // behind the list
        ops.resize(LAYER_MOST, other);
        llama_config config = {2, 32, 4, 2};
        config.layer = ops.data();
        llama *model = nullptr;
        EXPECT_EQ(llama_create(&config, &model), c.fault ? RF_EINVAL : 0);
        if (c.fault) {
            EXPECT_STREQ(rf_last_error()->message, c.fault);
        }
        llama_destroy(model);
    }
    std::vector<layer_op> longest;
    while (longest.size() < LAYER_MOST)
        longest.insert(longest.end(), {same, up, act, row, add});
    EXPECT_EQ(layer_check(longest.data()), RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message,
                 "a layer has at most 15 operations, and ends with LAYER_END");
    for (int i = 0; hub_archs[i]; i++) {
        const layer_op *ops = hub_archs[i]->layer;
        EXPECT_EQ(ops ? layer_check(ops) : 0, 0) << hub_archs[i]->name;
    }
}

TEST(LayerList, AdaptersHaveTheSameBitsOnAnyRanks)
{
    const struct {
        const layer_op *layer;
        const char *architecture, *targets;
    } cases[] = {{olmo2(), "Olmo2ForCausalLM", "q_proj,o_proj,gate_proj,down_proj"},
                 {tanh_units(), "GPT2LMHeadModel", "c_attn,c_proj,c_fc"}};
    for (const auto &c : cases)
        for (unsigned parts : {0u, 15u})
            for (int zero : {0, 2}) {
                const model_adapter adapter = {.rank = 2, .targets = c.targets};
                Training one = of(c.layer);
                one.llama.adapter = &adapter;
                one.llama.architecture = c.architecture;
                Training t = one;
                t.policy.zero = zero;
                t.llama.recompute = parts;
                expect_same(one, t, 2, "with adapters");
            }
}

TEST(LayerList, SixteenBitsFollowF32)
{
    for (const layer_op *layer : {olmo2(), post_norms()})
        for (rf_dtype residual : {RF_F32, RF_BF16}) {
            Training t = of(layer);
            const std::vector<double> f32 = train(t, 1)[0].loss;
            t.llama.dtype = RF_BF16;
            t.llama.residual = residual;
            const std::vector<double> bf16 = train(t, 1)[0].loss;
            for (size_t i = 0; i < f32.size(); i++)
                EXPECT_NEAR(bf16[i], f32[i], 0.02 * f32[i]) << rf_dtype_name(residual);
        }
}
