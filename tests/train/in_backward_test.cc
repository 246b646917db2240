// SPDX-License-Identifier: MIT
//
// Updates in the backward pass (rf_policy.update_in_backward): the bits of updates after it, and
// gradients of a few blocks at a time.
#include <cmath>

#include "world.h"

namespace
{

// One micro-batch for each rank; parameters that keep f32 states, and others.
Training eager(int ranks)
{
    Training t;
    t.model = {3, 68, 4, 8, 61};
    t.policy.batch = 12;
    t.policy.micro_batches = ranks;
    t.policy.seq = 8;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.update_in_backward = true;
    return t;
}

Training late(Training t)
{
    t.policy.update_in_backward = false;
    return t;
}

// Parameters, losses and norms are those of the same training with all updates at the end.
void expect_bits_of(const Training &t, int ranks, const Seen &straight, const std::string &where)
{
    for (const Seen &seen : train(t, ranks)) {
        EXPECT_EQ(seen.sha, straight.sha) << where;
        EXPECT_EQ(seen.loss, straight.loss) << where;
        for (size_t k = 0; k < seen.norm.size(); k++)
            EXPECT_NEAR(seen.norm[k], straight.norm[k], 1e-6f * straight.norm[k]) << where;
        expect_planned(seen, where);
    }
}

rf_bytes bytes_of(const Training &t)
{
    gpt2 *model = nullptr;
    int count = 0;
    EXPECT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_plan *plan = nullptr;
    EXPECT_RF(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan));
    rf_bytes bytes = {};
    rf_plan_bytes(plan, &bytes);
    rf_plan_destroy(plan);
    gpt2_destroy(model);
    return bytes;
}

} // namespace

TEST(InBackward, HasTheBitsOfUpdatesAfterItOnAnyNumberOfRanksAndEveryStage)
{
    for (int ranks : {1, 2, 3, 4})
        for (rf_dtype states : {RF_F32, RF_U8}) {
            Training t = eager(ranks);
            t.policy.state_dtype = states;
            const Seen straight = train(late(t), 1)[0];
            for (const Sharding &s : all_shardings()) {
                if (s.offload || s.order != RF_ORDER_TREE || (s.shard && ranks % s.shard) ||
                    (ranks == 1 && s.zero) || (states == RF_U8 && ranks % 2))
                    continue;
                t.policy.zero = s.zero;
                t.shard = s.shard;
                expect_bits_of(t, ranks, straight, s.text() + " " + std::to_string(ranks));
            }
        }
}

// Types of weights, states and messages, other optimizers and models, recomputation, offload,
// tensor and context ranks, frozen parameters.
TEST(InBackward, GoesWithEveryOtherTechnique)
{
    struct Case {
        const char *name;
        int ranks;
        std::function<void(Training &)> change;
    };
    const auto bf16 = [](Training &t) {
        t.model.dtype = t.model.residual = RF_BF16;
        t.policy.optimizer.stochastic_rounding = true;
    };
    const Case cases[] = {
        {"masters", 2, [&](Training &t) { bf16(t), t.policy.zero = 1; }},
        {"no masters", 1, [&](Training &t) { bf16(t), t.policy.no_masters = true; }},
        {"no masters, sharded", 2,
         [&](Training &t) {
             bf16(t);
             t.policy.no_masters = true;
             t.policy.zero = 3;
             t.policy.state_dtype = RF_BF16;
         }},
        {"sent in 16 bits", 2,
         [](Training &t) {
             t.policy.order = RF_ORDER_RING;
             t.policy.reduce_dtype = RF_BF16;
         }},
        {"sent in 16 bits, sharded", 2,
         [](Training &t) {
             t.policy.order = RF_ORDER_RING;
             t.policy.reduce_dtype = RF_BF16;
             t.policy.zero = 2;
         }},
        {"lion", 2,
         [](Training &t) {
             t.policy.optimizer.kind = RF_LION;
             t.policy.state_dtype = RF_U8;
             t.policy.recompute = 1;
         }},
        {"sgd", 1, [](Training &t) { t.policy.optimizer.kind = RF_SGD; }},
        {"offload", 2,
         [](Training &t) {
             t.policy.zero = 2;
             t.policy.offload = RF_OFFLOAD_PARAMS | RF_OFFLOAD_ACTIVATIONS;
         }},
        {"llama", 2,
         [](Training &t) {
             t.llama.layers = 2, t.llama.channels = 32, t.llama.heads = 4, t.llama.kv_heads = 2;
             t.llama.hidden = 48, t.llama.vocab = 61, t.llama.tied = true;
             t.policy.zero = 3;
         }},
        {"frozen", 2,
         [](Training &t) {
             t.freeze = {"blocks.1.*", "wte.weight"};
             t.policy.zero = 3;
         }},
        {"tensor parts", 1, [](Training &t) { t.model.channels = 64, t.policy.tensor_parts = 2; }},
        {"tensor ranks", 4,
         [](Training &t) {
             t.tp = 2;
             t.policy.sequence_parallel = true;
             t.policy.zero = 2;
         }},
        {"context ranks", 2, [](Training &t) { t.cp = 2; }},
        {"packed", 1, [](Training &t) { t.policy.packed = true; }},
    };
    for (const Case &c : cases) {
        Training t = eager(c.ranks);
        c.change(t);
        t.policy.micro_batches = c.ranks / (t.tp * t.cp);
        const bool alone = t.tp * t.cp == 1 && t.policy.order == RF_ORDER_TREE;
        Training other = late(t);
        if (alone) {
            other.policy.zero = other.policy.offload = 0;
            other.shard = 0;
        }
        expect_bits_of(t, c.ranks, train(other, alone ? 1 : c.ranks)[0], c.name);
    }
}

// Gradients of all layers would be four times those of one. With settled transfers there are three.
TEST(InBackward, NeedsTheGradientsOfABlockForAnyNumberOfLayers)
{
    Training t = eager(1);
    t.model = {2, 256, 4, 8, 61};
    const rf_bytes two = bytes_of(t), all = bytes_of(late(t));
    t.model.layers = 8;
    const rf_bytes eight = bytes_of(t);
    EXPECT_EQ(two.grads, eight.grads);
    EXPECT_GT(all.grads, 2 * two.grads - 61 * 256 * 4);
    // The tied embedding lives from the head to the end, a layer has 12 C^2 and 13 C elements.
    EXPECT_LE(two.grads, 4u * (2 * 61 * 256 + 12 * 256 * 256 + 13 * 256 + 4 * 64 + 10 * 256));
}

TEST(InBackward, RefusesByNameWhatNeedsAllGradients)
{
    struct Case {
        const char *words;
        std::function<void(Training &)> change;
    };
    const Case cases[] = {
        {"clip", [](Training &t) { t.policy.clip = 1; }},
        {"a loss scale", [](Training &t) { t.policy.loss_scale = 8; }},
        {"compress", [](Training &t) { t.policy.compress.form = RF_FORM_NF4; }},
        {"offload of the optimizer", [](Training &t) { t.policy.offload = RF_OFFLOAD_OPTIMIZER; }},
        {"2 micro-batches on 1 data-parallel",
         [](Training &t) { t.policy.batch = t.policy.micro_batches = 2; }},
    };
    for (const Case &c : cases) {
        Training t = eager(1);
        c.change(t);
        gpt2 *model = nullptr;
        int count = 0;
        ASSERT_RF(gpt2_create(&t.model, &model));
        const rf_block *blocks = gpt2_blocks(model, &count);
        rf_plan *plan = nullptr;
        EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find(c.words), std::string::npos)
            << rf_last_error()->message;
        gpt2_destroy(model);
    }
}

// The norm is known after the last update: the step fails, and the run does not go on.
TEST(InBackward, AGradientThatIsNotFiniteEndsTheRun)
{
    Training t = eager(1);
    t.steps = 1;
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        t.batch(0, tokens, targets);
        float nan = NAN;
        rf_step_stats stats;
        std::vector<float> weights(61 * 68, nan);
        ASSERT_RF(rf_run_write_param(run, "wte.weight", weights.data(), weights.size() * 4));
        EXPECT_EQ(rf_run_step(run, tokens.data(), targets.data(), 0.01f, &stats), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("update_in_backward"),
                  std::string::npos)
            << rf_last_error()->message;
        EXPECT_EQ(rf_run_step(run, tokens.data(), targets.data(), 0.01f, &stats), RF_EABORT);
        EXPECT_EQ(rf_run_read_grad(run, "wte.weight", weights.data(), weights.size() * 4),
                  RF_ENOTSUP);
    };
    train(t, 1);
}
