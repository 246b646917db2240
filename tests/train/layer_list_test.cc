// SPDX-License-Identifier: MIT
//
// Layers that are other lists of operations than those of GPT-2 and Llama (src/models/layer.h):
// norms behind the products, and of all heads together. Losses beside transformers are in
// hub_test.cc; here, that every technique gives what one rank gives that keeps all.
#include <cmath>

#include "mesh_case.h"

extern "C" {
#include "hub_table.h"
#include "layer.h"
}

namespace
{

// OLMo 2 but for its norms of all heads, which tensor ranks cannot divide.
const layer_op behind[] = {{LAYER_TAKE},
                           {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED},
                           {LAYER_HEADS, nullptr, {}, LAYER_NO_BIAS, RF_ACT_GELU, LAYER_HEAD_NORM},
                           LAYER_ATTENTION,
                           {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}},
                           {LAYER_NORM, "norm1"},
                           {LAYER_ADD},
                           {LAYER_TAKE, .with = MODEL_RECOMPUTE_MLP},
                           LAYER_GATED_UNIT,
                           {LAYER_NORM, "norm2"},
                           {LAYER_ADD},
                           {LAYER_END}};

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

const layer_op *olmo2()
{
    return hub_arch_named("Olmo2ForCausalLM")->layer;
}

// The same bits of all parameters.
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
    for (const layer_op *layer : {olmo2(), behind}) {
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
    for (const layer_op *layer : {behind, olmo2()}) {
        const Training plain = of(layer);
        const Seen one = train(plain, 1)[0];
        for (const MeshCase &m : meshes)
            for (unsigned parts : {0u, 15u}) {
                if (layer != behind && m.tp > 1)
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
    EXPECT_STREQ(sizes.fault,
                 "norms of all heads together cannot be divided among tensor ranks; use tp=1");
    // Checkpoints of another list of operations are other models.
    EXPECT_NE(std::string(layer.config)
                  .find(" layer=take-linear-heads:norms-attend-linear-norm-add-take-linear-gate-"
                        "linear-norm-add"),
              std::string::npos);
    llama_destroy(model);
}

TEST(LayerList, SixteenBitsFollowF32)
{
    for (const layer_op *layer : {olmo2(), behind})
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
