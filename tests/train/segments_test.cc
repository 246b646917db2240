// SPDX-License-Identifier: MIT
//
// The number of blocks in a recomputed segment, and the resulting memory of activations; and that
// of a forward pass alone. Plans only: no device is needed.
#include <gtest/gtest.h>

#include <memory>

#include "gpt2.h"
#include "llama.h"
#include "stub_blocks.h"

namespace
{

constexpr uint64_t unit = 1 << 20;

// Blocks with outputs of these sizes, which keep nothing but `saved` units.
struct Chain {
    struct Sizes {
        uint64_t out, saved;
    };
    StubBlocks stubs;
    std::vector<Sizes> sizes;
    std::vector<rf_block> blocks;
    rf_block_ops ops;

    static int sizes_of(const void *self, int64_t, int64_t, rf_block_sizes *out)
    {
        const Sizes *s = static_cast<const Sizes *>(self);
        *out = {};
        out->saved = s->saved * unit;
        out->out = rf_shape1((int64_t)(s->out * unit / sizeof(float)));
        return 0;
    }
    Chain(int count, uint64_t out, uint64_t saved) : sizes((size_t)count, Sizes{out, saved})
    {
        for (int i = 0; i < count; i++)
            stubs.add("block" + std::to_string(i), {10});
        ops = *stubs.blocks()->ops;
        ops.sizes = sizes_of;
        blocks.assign(stubs.blocks(), stubs.blocks() + count);
        for (int i = 0; i < count; i++) {
            blocks[(size_t)i].ops = &ops;
            blocks[(size_t)i].self = &sizes[(size_t)i];
        }
    }
};

struct Planned {
    uint64_t activations; // without tokens, targets and losses
    int blocks;           // of a segment
};

Planned planned(const rf_block *blocks, int count, int64_t seq, int recompute,
                bool forward_only = false)
{
    rf_policy policy = {};
    policy.batch = 1;
    policy.seq = seq;
    policy.recompute = recompute;
    policy.forward_only = forward_only;
    rf_plan *plan = nullptr;
    rf_bytes bytes = {};
    EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan), 0)
        << rf_last_error()->message;
    rf_plan_bytes(plan, &bytes);
    const Planned out = {bytes.activations - 3 * ((4 * (uint64_t)seq + 255) / 256 * 256),
                         rf_plan_recompute(plan)};
    rf_plan_destroy(plan);
    return out;
}

struct Model {
    gpt2 *g = nullptr;
    llama *l = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;

    // Like GPT-2's smallest, except for the number of layers.
    Model(bool is_llama, int layers, rf_dtype type, int64_t seq = 1024, int channels = 768)
    {
        gpt2_config gpt2 = {layers, channels, channels / 64, (int)seq, 257};
        llama_config llama = {layers, channels, channels / 64, channels / 64, 0};
        gpt2.dtype = llama.dtype = type;
        gpt2.head_rows = llama.head_rows = 64;
        EXPECT_EQ(is_llama ? llama_create(&llama, &l) : gpt2_create(&gpt2, &g), 0)
            << rf_last_error()->message;
        blocks = is_llama ? llama_blocks(l, &count) : gpt2_blocks(g, &count);
    }
    ~Model()
    {
        gpt2_destroy(g);
        llama_destroy(l);
    }
};

// The segments that need the least memory, and among them those that repeat the fewest blocks, by
// planning each length.
Planned best_of(const rf_block *blocks, int count, int64_t seq)
{
    Planned best = planned(blocks, count, seq, 1);
    const auto again = [&](int k) { return (count - 1) / k * k; };
    for (int k = 2; k <= count; k++) {
        const Planned one = planned(blocks, count, seq, k);
        if (one.activations < best.activations ||
            (one.activations == best.activations && again(k) < again(best.blocks)))
            best = one;
    }
    return best;
}

void expect_best(const rf_block *blocks, int count, int64_t seq, const std::string &what)
{
    const Planned best = best_of(blocks, count, seq);
    const Planned chosen = planned(blocks, count, seq, RF_RECOMPUTE_AUTO);
    EXPECT_EQ(chosen.blocks, best.blocks) << what;
    EXPECT_EQ(chosen.activations, best.activations) << what;
}

} // namespace

// Chen et al. 2016: N / K outputs between the segments and the K of one segment.
TEST(Segments, OfAChainOfEqualOutputsTakeNOverKPlusKAndTheRootTakesLeast)
{
    const Chain chain(16, 1, 0);
    for (int k : {1, 2, 4, 8, 16})
        EXPECT_EQ(planned(chain.blocks.data(), 16, 64, k).activations,
                  ((uint64_t)(16 / k + k)) * unit)
            << k;
    for (int recompute : {RF_RECOMPUTE_AUTO, RF_RECOMPUTE_SQRT}) {
        const Planned chosen = planned(chain.blocks.data(), 16, 64, recompute);
        EXPECT_EQ(chosen.blocks, 4);
        EXPECT_EQ(chosen.activations, 8 * unit);
    }
    EXPECT_EQ(planned(chain.blocks.data(), 16, 64, 0).blocks, 0);
}

// By the bytes that are alive at once. Values of several sizes may leave a gap, here of one output
// at most.
TEST(Segments, NeedTheLeastMemoryForBlocksOfAnySizes)
{
    for (int count : {1, 2, 5, 16, 23, 40})
        for (const Chain::Sizes &s : {Chain::Sizes{1, 0}, {1, 1}, {1, 5}, {2, 30}, {7, 1}}) {
            const Chain chain(count, s.out, s.saved);
            EXPECT_LE(planned(chain.blocks.data(), count, 64, RF_RECOMPUTE_AUTO).activations,
                      best_of(chain.blocks.data(), count, 64).activations + s.out * unit)
                << count << " blocks of " << s.out << " and " << s.saved;
        }
    Chain uneven(14, 1, 3);
    for (int i = 0; i < 14; i++)
        uneven.sizes[(size_t)i] = {(uint64_t)(i * 5 % 7 + 1), (uint64_t)(i * 3 % 11)};
    EXPECT_LE(planned(uneven.blocks.data(), 14, 64, RF_RECOMPUTE_AUTO).activations,
              best_of(uneven.blocks.data(), 14, 64).activations + 7 * unit);
}

// A layer passes on little of what it keeps, so segments of one block are best up to some tens of
// them: in pairs, half of N outputs weigh as much as the inner values of one more block.
TEST(Segments, OfTransformersAreSingleLayersForTwelveAndTwoOrThreeForSixtyFour)
{
    for (bool llama : {false, true})
        for (rf_dtype type : {RF_F32, RF_BF16}) {
            const std::string what = std::string(llama ? "llama " : "gpt2 ") + rf_dtype_name(type);
            const Model twelve(llama, 12, type), sixty(llama, 64, type);
            expect_best(twelve.blocks, twelve.count, 1024, what + " 12");
            EXPECT_EQ(planned(twelve.blocks, twelve.count, 1024, RF_RECOMPUTE_AUTO).blocks, 1)
                << what;
            expect_best(sixty.blocks, sixty.count, 1024, what + " 64");
            const Planned few = planned(sixty.blocks, sixty.count, 1024, RF_RECOMPUTE_AUTO);
            EXPECT_EQ(few.blocks, type == RF_F32 ? 2 : 3) << what;
            for (int k : {1, 4, RF_RECOMPUTE_SQRT})
                EXPECT_LT(few.activations, planned(sixty.blocks, sixty.count, 1024, k).activations)
                    << what << " " << k;
        }
}

// Counted from launches: a step does twice the forward arithmetic inside the recomputed segments,
// and once that of the last segment.
TEST(Segments, ComputeTwiceTheForwardFlopsOfAllBlocksButThoseOfTheLast)
{
    const Model model(false, 7, RF_F32, 32, 64); // 9 blocks
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 3;
    policy.seq = 32;
    std::vector<rf_block_cost> costs((size_t)model.count);
    const auto work_with = [&](int recompute) {
        rf_plan *plan = nullptr;
        rf_work work = {};
        policy.recompute = recompute;
        EXPECT_EQ(rf_plan_build({model.blocks, model.count}, nullptr, &policy, 0, &plan), 0);
        EXPECT_EQ(rf_block_costs(plan, costs.data()), 0) << rf_last_error()->message;
        rf_plan_work(plan, costs.data(), &work);
        rf_plan_destroy(plan);
        return work;
    };
    const rf_work kept = work_with(0);
    for (int k : {1, 2, 3, 4, 9}) {
        uint64_t forward = 0; // for blocks in recomputed segments
        const rf_work work = work_with(k);
        for (int b = 0; b < (model.count - 1) / k * k; b++)
            forward += 3 * costs[(size_t)b].forward.flops;
        EXPECT_EQ(work.flops, kept.flops + forward) << k;
        EXPECT_EQ(work.repeated, kept.repeated + forward) << k;
        EXPECT_EQ(forward > 0, k < model.count);
    }
}

TEST(ForwardOnly, PlansTwoOutputsWhateverTheDepth)
{
    const uint64_t channels = 64, seq = 16; // an output of a layer: 4 KiB
    for (int layers : {2, 8}) {
        const Chain chain(layers, 3, 5);
        EXPECT_EQ(planned(chain.blocks.data(), layers, 64, 0, true).activations, 2 * 3 * unit);
        for (bool llama : {false, true}) { // whose heads give less than a layer
            const Model model(llama, layers, RF_F32, (int64_t)seq, (int)channels);
            EXPECT_EQ(planned(model.blocks, model.count, (int64_t)seq, 0, true).activations,
                      2 * 4 * channels * seq)
                << layers;
        }
    }
}
