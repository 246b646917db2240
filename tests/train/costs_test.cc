// SPDX-License-Identifier: MIT
//
// The costs of blocks and steps, counted from their own launches, against formulas. No driver is
// loaded in this process: a plan is made and counted on the CPU.
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "gpt2.h"
#include "llama.h"
#include "stub_blocks.h"
#ifdef RF_EXAMPLE_LAYER
extern "C" {
#include "layer.h"
}
#endif

namespace
{

#define ASSERT_RF(call) ASSERT_EQ(call, 0) << rf_last_error()->message

class NoDriver : public ::testing::Environment
{
  public:
    void SetUp() override
    {
        setenv("VK_DRIVER_FILES", "/nonexistent/driver.json", 1);
        setenv("VK_ICD_FILENAMES", "/nonexistent/driver.json", 1);
        rf_device *device = nullptr;
        ASSERT_EQ(rf_device_open(nullptr, nullptr, &device), RF_ENODEV);
    }
};
const ::testing::Environment *const no_driver = ::testing::AddGlobalTestEnvironment(new NoDriver);

using Plan = std::unique_ptr<rf_plan, void (*)(rf_plan *)>;
using Costs = std::vector<rf_block_cost>;

Plan plan_of(const rf_block *blocks, int count, const rf_policy &policy, int dp = 1, int rank = 0)
{
    const rf_mesh mesh = {dp, 1, 1};
    rf_plan *plan = nullptr;
    EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, rank, &plan), 0)
        << rf_last_error()->message;
    return Plan(plan, rf_plan_destroy);
}

Costs costs_of(const Plan &plan, int count)
{
    Costs costs((size_t)count);
    EXPECT_EQ(rf_block_costs(plan.get(), costs.data()), 0) << rf_last_error()->message;
    return costs;
}

rf_work work_of(const Plan &plan, const Costs &costs)
{
    rf_work work;
    rf_plan_work(plan.get(), costs.data(), &work);
    return work;
}

rf_policy policy_of(int64_t batch, int64_t seq, int64_t micro_batches = 1)
{
    rf_policy policy = {};
    policy.batch = batch;
    policy.seq = seq;
    policy.micro_batches = micro_batches;
    return policy;
}

struct Gpt2 {
    gpt2 *model = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    explicit Gpt2(const gpt2_config &config)
    {
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        blocks = gpt2_blocks(model, &count);
    }
    ~Gpt2()
    {
        gpt2_destroy(model);
    }
};

struct Llama {
    llama *model = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    explicit Llama(const llama_config &config)
    {
        EXPECT_EQ(llama_create(&config, &model), 0);
        blocks = llama_blocks(model, &count);
    }
    ~Llama()
    {
        llama_destroy(model);
    }
};

// Levels of the tree of a bias' gradient: 64 rows into one.
uint64_t bias_flops(uint64_t rows, uint64_t columns)
{
    uint64_t flops = rows * columns;
    for (; rows > 64; flops += rows * columns)
        rows = (rows + 63) / 64;
    return flops;
}

#define EXPECT_COST(cost, flops_, repeated_, read_, written_)                                      \
    do {                                                                                           \
        EXPECT_EQ((cost).flops, (uint64_t)(flops_));                                               \
        EXPECT_EQ((cost).repeated, (uint64_t)(repeated_));                                         \
        EXPECT_EQ((cost).read, (uint64_t)(read_));                                                 \
        EXPECT_EQ((cost).written, (uint64_t)(written_));                                           \
        EXPECT_EQ((cost).unranged, 0u);                                                            \
    } while (0)

TEST(Costs, OfALayerOfGpt2AreThoseOfItsFormulas)
{
    const uint64_t C = 192, T = 96, B = 3, H = 6, D = C / H, n = B * T;
    const uint64_t pairs = B * H * T * (T + 1) / 2;
    Gpt2 model({1, (int)C, (int)H, (int)T, 257});
    const Plan plan = plan_of(model.blocks, model.count, policy_of(B, T));
    const rf_block_cost cost = costs_of(plan, model.count)[1];
    const uint64_t products = 2 * n * 12 * C * C; // 12 C^2 weights, each in each row

    // Biases, residuals and GELU: one each; a norm: eight.
    EXPECT_COST(
        cost.forward, products + (15 + 16) * n * C + pairs * (4 * D + 4), 0,
        4 * (2 * (n * C + 2 * C) + (n * C + 3 * C * C + 3 * C) + 3 * n * C +
             (2 * n * C + C * C + C) + (n * C + 4 * C * C + 4 * C) + (5 * n * C + 4 * C * C + C)),
        4 * (2 * (n * C + 2 * n) + 3 * n * C + (n * C + n * H) + n * C + 8 * n * C + n * C));
    EXPECT_EQ(cost.forward.launches, 7u);

    // GELU's derivative; norms, which add to the residual's gradient; attention's scores again,
    // and once more with the gradients of the weights for the keys.
    EXPECT_EQ(cost.backward_input[0].flops, products + (4 + 2 * 13) * n * C + pairs * (14 * D + 8));
    EXPECT_EQ(cost.backward_input[0].repeated, pairs * 6 * D);

    const uint64_t blocks = (n + 31) / 32; // of a norm's gradients
    const uint64_t once = products + bias_flops(n, 9 * C) + 2 * (5 * n * C + 2 * C * blocks);
    EXPECT_EQ(cost.backward_weight[1].flops, once);
    EXPECT_EQ(cost.backward_weight[0].flops, once + 12 * C * C); // they are added to
    EXPECT_EQ(cost.backward_weight[0].read, cost.backward_weight[1].read + 4 * 12 * C * C);
    EXPECT_EQ(cost.backward_weight[0].written, cost.backward_weight[1].written);
}

TEST(Costs, OfALayerOfLlamaAreThoseOfItsFormulas)
{
    const uint64_t C = 256, T = 64, B = 2, H = 8, K = 2, F = 512, D = C / H, n = B * T;
    const uint64_t pairs = B * H * T * (T + 1) / 2, qkv = (H + 2 * K) * D;
    llama_config config = {1, (int)C, (int)H, (int)K, (int)F};
    Llama model(config);
    const Plan plan = plan_of(model.blocks, model.count, policy_of(B, T));
    const rf_block_cost cost = costs_of(plan, model.count)[1];
    const uint64_t weights = C * qkv + C * C + 3 * C * F, products = 2 * n * weights;
    const uint64_t turned = (H + K) * D;

    EXPECT_COST(cost.forward,
                products + 2 * n * C + 8 * n * C + 3 * n * turned + n * F + pairs * (4 * D + 4), 0,
                4 * (weights + 2 * (n * C + C) + n * C + n * turned + n * qkv + 2 * n * C + n * C +
                     2 * n * F + n * F + n * C),
                4 * (2 * (n * C + n) + n * qkv + n * turned + (n * C + n * H) + n * C + 2 * n * F +
                     n * F + n * C));
    EXPECT_EQ(cost.backward_input[0].flops,
              products + 2 * 10 * n * C + 3 * n * turned + n * F + pairs * (14 * D + 8));
    EXPECT_EQ(cost.backward_input[0].repeated, pairs * 6 * D);
    const uint64_t blocks = (n + 31) / 32;
    EXPECT_EQ(cost.backward_weight[1].flops, products + 2 * (3 * n * C + C * blocks));
    EXPECT_EQ(cost.backward_weight[0].flops, cost.backward_weight[1].flops + weights);
}

// FLOPs that a choice adds to a layer's backward pass: norms' (the MLP's twice if its first product
// is repeated), attention's, and either the activation's or the first product's of the MLP with it.
uint64_t again(unsigned parts, uint64_t norm, uint64_t attention, uint64_t act, uint64_t mlp)
{
    const bool norms = parts & MODEL_RECOMPUTE_NORMS, whole = parts & MODEL_RECOMPUTE_MLP;
    uint64_t flops = norms ? (whole ? 3 : 2) * norm : 0;
    flops += parts & MODEL_RECOMPUTE_ATTENTION ? attention : 0;
    return flops + (whole ? mlp : parts & MODEL_RECOMPUTE_GELU ? act : 0);
}

TEST(Costs, OfWhatIsComputedAgainAreRepeatedAndModelFlopsStay)
{
    const uint64_t C = 64, T = 32, B = 2, H = 4, F = 96, n = B * T;
    const uint64_t attention = B * H * T * (T + 1) / 2 * (4 * C / H + 4);
    gpt2_config gpt2 = {2, (int)C, (int)H, (int)T, 257};
    llama_config llama = {2, (int)C, (int)H, 2, (int)F};
    const rf_policy policy = policy_of(2 * B, T, 2);
    rf_work kept[2] = {};
    for (unsigned parts = 0; parts <= MODEL_RECOMPUTE_ALL; parts++) {
        gpt2.recompute = llama.recompute = parts;
        Gpt2 one(gpt2);
        Llama other(llama);
        const uint64_t added[] = {
            again(parts, 8 * n * C, attention, 4 * n * C, 8 * n * C * C + 8 * n * C),
            again(parts, 4 * n * C, attention, n * F, 4 * n * C * F + n * F)};
        for (int m = 0; m < 2; m++) {
            const Plan plan = plan_of(m ? other.blocks : one.blocks, 4, policy);
            const rf_work work = work_of(plan, costs_of(plan, 4));
            if (parts == 0)
                kept[m] = work;
            const uint64_t layers = 2 * 2; // in each of two micro-batches
            EXPECT_EQ(work.repeated, kept[m].repeated + layers * added[m]) << m << " " << parts;
            EXPECT_EQ(work.flops - work.repeated, kept[m].flops - kept[m].repeated) << parts;
        }
    }
}

// In 16 bits the operands of products take half, and there are casts between them and the f32
// residual stream; the FLOPs stay the same.
TEST(Costs, In16BitsMoveLessAndComputeTheSame)
{
    gpt2_config config = {1, 128, 4, 64, 257};
    Gpt2 whole(config);
    config.dtype = RF_BF16;
    Gpt2 half(config);
    const rf_policy policy = policy_of(4, 64);
    const rf_block_cost a = costs_of(plan_of(whole.blocks, 3, policy), 3)[1];
    const rf_block_cost b = costs_of(plan_of(half.blocks, 3, policy), 3)[1];
    EXPECT_EQ(a.forward.flops, b.forward.flops);
    EXPECT_LT(b.forward.read, a.forward.read * 7 / 10);
    EXPECT_LT(b.forward.written, a.forward.written * 7 / 10);
}

// 6 for each parameter of a product and token, 12 for attention's, in model FLOPs, without repeated
// ones. The rest (norms, softmax, ...) is small in a model of this size, for which no byte is
// allocated.
TEST(Costs, OfAStepAreSixForEachParameterAndTokenAndAttention)
{
    const uint64_t L = 12, C = 768, V = 50304, T = 1024, B = 8, n = B * T;
    Gpt2 model({(int)L, (int)C, 12, (int)T, (int)V});
    const Plan plan = plan_of(model.blocks, model.count, policy_of(B, T, 4));
    const rf_work work = work_of(plan, costs_of(plan, model.count));
    const uint64_t weights = 12 * L * C * C + V * C, attention = 12 * L * C * n * (T + 1) / 2;
    const double formula = 6.0 * (double)weights * (double)n + (double)attention;
    const double counted = (double)(work.flops - work.repeated);
    EXPECT_GT(counted, formula);
    EXPECT_LT(counted, 1.01 * formula);
    EXPECT_EQ(work.repeated, attention / 2);
    // All but positions, biases and norms take part in products; the table is used twice.
    EXPECT_LT((double)rf_plan_param_count(plan.get()), 1.01 * (double)weights);
}

TEST(Costs, OfALargeModelNeedNoMemory)
{
    const int L = 36, C = 4096, T = 2048;
    llama_config config = {L, C, 32};
    config.kv_heads = 8;
    config.hidden = 14336;
    config.vocab = 32000;
    config.dtype = RF_BF16;
    config.head_rows = 512;
    Llama model(config);
    const Plan plan = plan_of(model.blocks, model.count, policy_of(16, T, 16), 8);
    const double params = (double)rf_plan_param_count(plan.get()), tokens = 2.0 * T;
    EXPECT_GT(params, 7.5e9);
    const rf_work work = work_of(plan, costs_of(plan, model.count));
    const double formula = 6 * params * tokens + 12.0 * L * C * tokens * (T + 1) / 2;
    EXPECT_NEAR((double)(work.flops - work.repeated) / formula, 1, 0.03);
}

TEST(Costs, OfAllRanksAreThoseOfOneAndTheOtherUpdates)
{
    Gpt2 model({2, 64, 4, 32, 257});
    rf_policy policy = policy_of(5, 32, 5);
    const Plan one = plan_of(model.blocks, model.count, policy);
    const Costs costs = costs_of(one, model.count);
    rf_work micro_batch = {};
    for (const rf_block_cost &cost : costs) {
        rf_work_add(&micro_batch, &cost.forward, 1);
        rf_work_add(&micro_batch, &cost.backward_input[0], 1);
        rf_work_add(&micro_batch, &cost.backward_weight[0], 1);
    }
    const rf_work alone = work_of(one, costs);
    uint64_t flops = 0;
    for (int rank = 0; rank < 2; rank++) {
        const Plan plan = plan_of(model.blocks, model.count, policy, 2, rank);
        flops += work_of(plan, costs).flops;
        // Costs do not depend on the rank.
        EXPECT_EQ(memcmp(costs_of(plan, model.count).data(), costs.data(),
                         costs.size() * sizeof(costs[0])),
                  0);
    }
    // The second rank's first micro-batch writes gradients, while the same one on a single rank
    // adds to them; and it has an update of its own.
    rf_work adds = {}, update, first = {};
    for (const rf_block_cost &cost : costs) {
        rf_work_add(&adds, &cost.backward_weight[0], 1);
        rf_work_add(&first, &cost.backward_weight[1], 1);
    }
    policy.micro_batches = 1;
    policy.batch = 1;
    const rf_work least = work_of(plan_of(model.blocks, model.count, policy), costs);
    update.flops = least.flops - (micro_batch.flops - adds.flops + first.flops);
    EXPECT_EQ(flops, alone.flops - (adds.flops - first.flops) + update.flops);
    // 2 for the norm and 17 for AdamW, over buffers in which each parameter is padded to 64.
    const double params = (double)rf_plan_param_count(one.get());
    EXPECT_GE((double)update.flops, 19 * params);
    EXPECT_LT((double)update.flops, 19 * 1.02 * params);
}

TEST(Costs, OfATreeCountWhatIsMerged)
{
    Gpt2 model({1, 64, 4, 32, 257});
    rf_policy policy = policy_of(4, 32, 4);
    const Plan ring = plan_of(model.blocks, model.count, policy);
    policy.order = RF_ORDER_TREE;
    const Plan tree = plan_of(model.blocks, model.count, policy);
    const rf_work a = work_of(ring, costs_of(ring, model.count));
    const rf_work b = work_of(tree, costs_of(tree, model.count));
    EXPECT_GT(b.written, a.written);
    EXPECT_GT(b.launches, 0u);
}

TEST(Costs, OfAForwardPassAloneHaveNoBackwardPass)
{
    Gpt2 model({1, 64, 4, 32, 257});
    rf_policy policy = policy_of(1, 32);
    policy.forward_only = true;
    const Plan plan = plan_of(model.blocks, model.count, policy);
    for (const rf_block_cost &cost : costs_of(plan, model.count)) {
        EXPECT_GT(cost.forward.launches, 0u);
        EXPECT_EQ(cost.backward_input[0].launches + cost.backward_weight[1].launches, 0u);
    }
}

TEST(Costs, AHeadInChunksComputesTheSameProducts)
{
    gpt2_config config = {1, 64, 4, 64, 1024};
    const rf_policy policy = policy_of(2, 64);
    Gpt2 whole(config);
    config.head_rows = 32;
    Gpt2 chunked(config);
    const Plan a = plan_of(whole.blocks, 3, policy), b = plan_of(chunked.blocks, 3, policy);
    const uint64_t flops[] = {work_of(a, costs_of(a, 3)).flops, work_of(b, costs_of(b, 3)).flops};
    // Three of the four chunks add one product to the table's gradient, and the first adds it to a
    // cleared one.
    EXPECT_EQ(flops[1], flops[0] + 4 * 1024 * 64);
}

TEST(Costs, OfABlockThatFailsAreItsErrorWithItsName)
{
    StubBlocks blocks;
    blocks.add("never runs", {100});
    const Plan plan = plan_of(blocks.blocks(), blocks.count(), policy_of(1, 8));
    rf_block_cost cost;
    EXPECT_EQ(rf_block_costs(plan.get(), &cost), RF_ENOTSUP);
    EXPECT_STREQ(rf_last_error()->message,
                 "forward of block never runs failed while its launches were counted: "
                 "not supported here");
    EXPECT_EQ(rf_block_costs(nullptr, &cost), RF_EINVAL);
}

#ifdef RF_EXAMPLE_LAYER
// With kernels of its own, created on a counting device as on any other.
TEST(Costs, OfABlockOfOnesOwnAreCountedToo)
{
    rf_device *device = nullptr;
    layer own = {};
    ASSERT_RF(rf_device_open_counting(&device));
    ASSERT_RF(layer_init(&own, device));
    rf_block block = {};
    block.name = "layer";
    block.ops = &layer_ops;
    block.self = &own;
    block.params = layer_params;
    block.param_count = 2;
    const Plan plan = plan_of(&block, 1, policy_of(4, 16));
    const rf_block_cost cost = costs_of(plan, 1)[0];
    const uint64_t n = 64, W = WIDTH, V = VOCABULARY;
    const uint64_t lookup = n * W, activation = 2 * n * W, scores = 2 * n * W * V;
    EXPECT_COST(cost.forward, lookup + activation + scores + 2 * 4 * n * V, 0,
                4 * ((n + V * W) + n * W + (n * W + V * W) + (n * V + n) + (n * V + 2 * n)),
                4 * (n * W + n * W + n * V + 2 * n + n * V));
    EXPECT_EQ(cost.backward_input[0].flops, scores + activation);
    EXPECT_EQ(cost.backward_input[0].read, 4 * (n * V + V * W + 2 * n * W));
    layer_fini(&own);
    rf_device_close(device);
}
#endif

} // namespace
