// SPDX-License-Identifier: MIT
//
// Plans of pipelines, without a device: the number of micro-batches that a rank keeps, and the idle
// time of ranks when all stages take the same time, by the formulas of the papers.
#include "simulate_lists.h"

#include <sys/resource.h>

#include <cstring>
#include <functional>
#include <set>

#include "llama.h"

namespace
{

struct Pipeline {
    Pipeline(rf_pipeline_kind kind, int pp, int micro_batches, int stages, int recompute = 0)
    {
        for (int i = 0; i < stages; i++)
            blocks.add("b" + std::to_string(i), {8});
        rf_policy policy = {};
        policy.batch = policy.micro_batches = micro_batches;
        policy.seq = 4;
        policy.pipeline = kind;
        policy.recompute = recompute;
        policy.optimizer.kind = RF_SGD;
        const rf_mesh mesh = {1, 1, pp};
        for (int rank = 0; rank < pp; rank++) {
            rf_plan *plan = nullptr;
            EXPECT_EQ(rf_plan_build({blocks.blocks(), stages}, &mesh, &policy, rank, &plan), 0)
                << rf_last_error()->message;
            plans.emplace_back(plan, rf_plan_destroy);
            borrowed.push_back(plan);
        }
    }
    // Places of a block's values kept from forward to backward.
    int kept(int rank) const
    {
        std::set<std::pair<int, uint64_t>> places;
        const rf_plan *plan = borrowed[(size_t)rank];
        int block = -1;
        for (int v = 0; v < plan->value_count; v++) {
            const rf_value &value = plan->values[v];
            if (value.kind != RF_VALUE_SAVED || (block >= 0 && value.block != block))
                continue;
            block = value.block;
            places.insert({value.region, value.offset});
        }
        return (int)places.size();
    }
    // The share of the step in which a rank computes nothing.
    std::vector<double> idle(double forward, double input, double weight) const
    {
        std::vector<double> verb_s(RF_VERB_COUNT, 0), out;
        verb_s[RF_VERB_FORWARD] = forward;
        verb_s[RF_VERB_BACKWARD_INPUT] = input;
        verb_s[RF_VERB_BACKWARD_WEIGHT] = weight;
        rf_sim_opts opts = free_of_cost();
        opts.verb_s = verb_s.data();
        const Sim sim = run(borrowed, opts);
        for (size_t rank = 0; rank < borrowed.size(); rank++)
            out.push_back(result_of(sim, (int)rank).idle);
        return out;
    }

    StubBlocks blocks;
    std::vector<Plan> plans;
    std::vector<const rf_plan *> borrowed;
};

} // namespace

TEST(PipelinePlan, ARankKeepsAsManyMicroBatchesAsItsScheduleHasUnderWay)
{
    for (int pp : {2, 3, 5})
        for (int m : {1, 2, 4, 9})
            for (int rank = 0; rank < pp; rank++) {
                const auto kept = [&](rf_pipeline_kind kind) {
                    return Pipeline(kind, pp, m, pp).kept(rank);
                };
                EXPECT_EQ(kept(RF_PIPELINE_1F1B), std::min(m, pp - rank)) << pp << " " << m;
                EXPECT_EQ(kept(RF_PIPELINE_GPIPE), m) << pp << " " << m;
                EXPECT_EQ(kept(RF_PIPELINE_NAIVE), 1) << pp << " " << m;
                EXPECT_EQ(kept(RF_PIPELINE_ZBH1), std::min(m, pp)) << pp << " " << m;
            }
}

TEST(PipelinePlan, IdleTimeIsThatOfTheFormulas)
{
    for (int p : {2, 4, 8})
        for (int m : {8, 16, 24}) {
            const double bubble = p - 1, n = m;
            const auto expect = [&](rf_pipeline_kind kind, int stages, double weight, double idle) {
                const Pipeline pipeline(kind, p, m, stages);
                for (double seen : pipeline.idle(1, 1, weight))
                    EXPECT_NEAR(seen, idle, 1e-9)
                        << rf_pipeline_name(kind) << " p " << p << " m " << m;
            };
            expect(RF_PIPELINE_NAIVE, p, 0, bubble / p);
            expect(RF_PIPELINE_GPIPE, p, 0, bubble / (n + bubble));
            expect(RF_PIPELINE_1F1B, p, 0, bubble / (n + bubble));
            expect(RF_PIPELINE_INTERLEAVED, 2 * p, 0, bubble / (2 * n + bubble));
            // A gradient is sent before the weight half.
            expect(RF_PIPELINE_1F1B, p, 1, 2 * bubble / (3 * n + 2 * bubble));
            expect(RF_PIPELINE_ZBH1, p, 1, bubble / (3 * n + bubble));
        }
}

// Gradients are sent before the weight halves of all blocks, and no rank waits for memory that a
// message still uses.
TEST(PipelinePlan, StagesOfSeveralBlocksIdleNoLongerThanThoseOfOne)
{
    for (int p : {2, 4, 8})
        for (int of_stage : {1, 2, 5}) {
            const double bubble = p - 1, m = 2 * p;
            const auto expect = [&](rf_pipeline_kind kind, int chunks, double idle) {
                const Pipeline pipeline(kind, p, 2 * p, p * chunks * of_stage);
                for (double seen : pipeline.idle(1, 1, 1))
                    EXPECT_NEAR(seen, idle, 1e-9)
                        << rf_pipeline_name(kind) << " p " << p << " blocks " << of_stage;
            };
            expect(RF_PIPELINE_NAIVE, 1, 2 * bubble / (2 * bubble + 3));
            expect(RF_PIPELINE_GPIPE, 1, 2 * bubble / (3 * m + 2 * bubble));
            expect(RF_PIPELINE_1F1B, 1, 2 * bubble / (3 * m + 2 * bubble));
            expect(RF_PIPELINE_INTERLEAVED, 2, bubble / (3 * m + bubble));
            expect(RF_PIPELINE_ZBH1, 1, bubble / (3 * m + bubble));
            expect(RF_PIPELINE_ZBV, 2, bubble / (6 * m + bubble));
        }
}

// Otherwise all recomputed values of a stage would be in memory at once.
TEST(PipelinePlan, WithRecomputationTheWeightHalfOfABlockFollowsItsOtherHalf)
{
    for (int recompute : {0, 1}) {
        const Pipeline pipeline(RF_PIPELINE_1F1B, 2, 4, 6, recompute);
        const rf_list &list = pipeline.borrowed[1]->lists[RF_LIST_STEP];
        const rf_instruction *input = nullptr;
        int together = 0;
        for (int k = 0; k < list.count; k++) {
            const rf_instruction *i = &list.instructions[k];
            together += i->verb == RF_VERB_BACKWARD_WEIGHT && input && input->block == i->block;
            if (i->lane == RF_LANE_COMPUTE)
                input = i->verb == RF_VERB_BACKWARD_INPUT ? i : nullptr;
        }
        EXPECT_EQ(together, recompute ? 3 * 4 : 0) << recompute;
    }
}

// Two of three uses on two ranks are added first, which one process does not do in tree order.
TEST(PipelinePlan, ManyUsesOfAParameterOnSeveralRanksAreRefusedInTreeOrder)
{
    StubBlocks blocks;
    blocks.add("a", {8}).add("b", {8}).tie(0, "a.0").add("c", {8}).tie(0, "a.0");
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int pp : {1, 2}) {
            rf_policy policy = {};
            policy.batch = policy.micro_batches = policy.seq = 4;
            policy.order = order;
            const rf_mesh mesh = {1, 1, pp};
            rf_plan *plan = nullptr;
            const bool refused = order == RF_ORDER_TREE && pp == 2;
            EXPECT_EQ(rf_plan_build({blocks.blocks(), 3}, &mesh, &policy, 0, &plan),
                      refused ? RF_ENOTSUP : RF_OK);
            if (refused) {
                EXPECT_NE(strstr(rf_last_error()->message, "parameter a.0, whose 3 uses"), nullptr)
                    << rf_last_error()->message;
            }
            rf_plan_destroy(plan);
        }
}

namespace
{

// The division of a Llama-style model of `layers` layers, with an embedding before and a head
// behind them; or the reason why there is none.
struct Division {
    Division(int layers, int pp, const std::function<void(rf_policy &)> &edit)
    {
        llama_config config = {layers, 32, 4, 2, 64, 4096};
        llama *model = nullptr;
        int count = 0;
        EXPECT_EQ(llama_create(&config, &model), 0);
        const rf_block *list = llama_blocks(model, &count);
        rf_policy policy = {};
        policy.batch = policy.micro_batches = 4;
        policy.seq = 16;
        edit(policy);
        const rf_mesh mesh = {1, 1, pp};
        for (int rank = 0; rank < pp; rank++) {
            rf_plan *plan = nullptr;
            status = rf_plan_build({list, count}, &mesh, &policy, rank, &plan);
            why = status < 0 ? rf_last_error()->message : "";
            if (status < 0)
                break;
            int stages = 0;
            const int *counts = rf_plan_stage_blocks(plan, &stages);
            const std::vector<int> seen(counts, counts + stages);
            EXPECT_TRUE(rank == 0 || seen == blocks) << "rank " << rank;
            blocks = seen;
            rf_plan_destroy(plan);
        }
        llama_destroy(model);
    }
    std::vector<int> blocks;
    int status = 0;
    std::string why;
};

} // namespace

// Its vocabulary makes the head of this model cost as much as many layers.
TEST(PipelinePlan, ByCostAnExpensiveHeadHasAStageOfItsOwn)
{
    const auto cost = [](rf_policy &policy) { policy.stages = RF_STAGES_COST; };
    EXPECT_EQ(Division(6, 2, [](rf_policy &) {}).blocks, (std::vector<int>{4, 4}));
    EXPECT_EQ(Division(6, 2, cost).blocks, (std::vector<int>{7, 1}));
    EXPECT_EQ(Division(6, 4, cost).blocks.back(), 1);
    EXPECT_EQ(Division(6, 1, [](rf_policy &) {}).blocks, (std::vector<int>{8}));
}

const int counts[] = {1, 2, 4, 1};

TEST(PipelinePlan, ADivisionByHandIsTakenOrRefusedByName)
{
    const auto by_hand = [](int count, rf_stage_split rule = RF_STAGES_EVEN,
                            const int *list = counts) {
        return [=](rf_policy &policy) {
            policy.stages = rule;
            policy.stage_blocks = list;
            policy.stage_count = count;
        };
    };
    EXPECT_EQ(Division(6, 4, by_hand(4)).blocks, (std::vector<int>{1, 2, 4, 1}));
    static const int none[] = {8, 0};
    const struct {
        Division refused;
        const char *sentence;
    } rows[] = {
        {Division(6, 2, by_hand(4)), "4 counts of blocks for 2 stages; give one for each stage"},
        {Division(5, 4, by_hand(4)), "have 8 blocks together, but there are 7"},
        {Division(6, 2, by_hand(2, RF_STAGES_EVEN, none)),
         "0 blocks in stage 1; every stage needs at least one"},
        {Division(6, 4, by_hand(4, RF_STAGES_COST)), "stages by cost and a list of 4 counts"},
        {Division(6, 4, by_hand(4, RF_STAGES_EVEN, nullptr)), "4 stages without a list"},
        {Division(6, 1, by_hand(4)), "stages by a list with pp=1"},
        {Division(6, 1, by_hand(0, RF_STAGES_COST, nullptr)), "stages by cost with pp=1"},
        {Division(6, 2, by_hand(0, (rf_stage_split)7, nullptr)), "stages 7: use one of enum"},
        {Division(1, 4, by_hand(4)), "4 ranks of 1 chunk are 4 stages, but there are 3 blocks"},
    };
    for (const auto &row : rows) {
        EXPECT_EQ(row.refused.status, RF_EINVAL) << row.sentence;
        EXPECT_NE(row.refused.why.find(row.sentence), std::string::npos) << row.refused.why;
    }
}

// Costs are counted on a plan of one rank, which needs memory for all blocks.
TEST(PipelinePlan, IsRefusedBeforeCostsAreCountedIfThereAreTooFewBlocks)
{
    StubBlocks blocks;
    for (int b = 0; b < 100; b++)
        blocks.add("b" + std::to_string(b), {64});
    for (rf_stage_split split : {RF_STAGES_EVEN, RF_STAGES_COST})
        for (rf_pipeline_kind kind : {RF_PIPELINE_1F1B, RF_PIPELINE_INTERLEAVED, RF_PIPELINE_ZBV}) {
            rf_policy policy = {};
            rf_plan *plan = nullptr;
            const bool chunks = kind != RF_PIPELINE_1F1B;
            const rf_mesh mesh = {1, 1, chunks ? 51 : 101};
            policy.batch = policy.micro_batches = 102;
            policy.seq = 8;
            policy.stages = split;
            policy.pipeline = kind;
            policy.chunks = chunks ? 2 : 0;
            rf_alloc_fail_at(0);
            EXPECT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, 0, &plan),
                      RF_EINVAL);
            EXPECT_LT(rf_alloc_fail_at(0), 10u) << "so many allocations before the refusal";
            EXPECT_NE(strstr(rf_last_error()->message, "stages, but there are 100 blocks"), nullptr)
                << rf_last_error()->message;
        }
}

// A pipeline has as many kinds of ranks as stages: their plans together would be 350 MB here.
TEST(PipelinePlan, BytesOfAllRanksTakeTheMemoryOfOnePlan)
{
    StubBlocks blocks;
    for (int b = 0; b < 400; b++)
        blocks.add("b" + std::to_string(b), {64, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    rf_policy policy = {};
    const rf_mesh mesh = {1, 1, 200};
    rf_plan *plan = nullptr;
    rusage before = {}, after = {};
    policy.batch = policy.micro_batches = 4;
    policy.seq = 8;
    ASSERT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, 0, &plan), 0)
        << rf_last_error()->message;
    std::vector<rf_bytes> all(200);
    getrusage(RUSAGE_SELF, &before);
    ASSERT_EQ(rf_plan_all_ranks(plan, nullptr, all.data(), nullptr), 0);
    getrusage(RUSAGE_SELF, &after);
#ifndef __SANITIZE_ADDRESS__ // it keeps freed memory
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 30000) << "KiB";
#endif
    rf_plan_destroy(plan);
}

// A rank keeps a part of its stage's gradients; the whole ones of a block exist until they have
// been added.
TEST(PipelinePlan, ShardedGradientsTakeAPartOfTheMemoryOfAStagesGradients)
{
    StubBlocks blocks;
    for (int b = 0; b < 80; b++)
        blocks.add("b" + std::to_string(b), {64 * 1024});
    for (rf_pipeline_kind kind : {RF_PIPELINE_1F1B, RF_PIPELINE_INTERLEAVED, RF_PIPELINE_GPIPE}) {
        uint64_t grads[3] = {0};
        for (int zero : {1, 2}) {
            rf_policy policy = {};
            policy.batch = policy.micro_batches = 16;
            policy.seq = 4;
            policy.zero = zero;
            policy.pipeline = kind;
            const rf_mesh mesh = {4, 1, 2};
            std::vector<rf_bytes> all(8);
            rf_plan *plan = nullptr;
            ASSERT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, 0, &plan),
                      0);
            const uint64_t sums = plan->regions[RF_REGION_GRADS].bytes;
            EXPECT_EQ(sums, 40u * 64 * 1024 * 4 / (zero == 2 ? 4 : 1)) << kind;
            ASSERT_EQ(rf_plan_all_ranks(plan, nullptr, all.data(), nullptr), 0);
            for (const rf_bytes &bytes : all)
                grads[zero] = std::max(grads[zero], bytes.grads);
            rf_plan_destroy(plan);
        }
        EXPECT_LT(10 * grads[2], 4 * grads[1]) << kind;
    }
}

// A rank sends its own shard of tied gradients, which may be smaller than others'.
TEST(PipelinePlan, WhatAllRanksSendIsWhatTheirOwnPlansSay)
{
    StubBlocks blocks;
    blocks.add("a", {5000}).add("b", {300}).add("c", {5000, 70}).tie(0, "a.0");
    for (int zero : {0, 1, 2, 3}) {
        rf_policy policy = {};
        policy.batch = policy.micro_batches = 7;
        policy.seq = 4;
        policy.zero = zero;
        const rf_mesh mesh = {3, 1, 2};
        std::vector<rf_bytes> all(6);
        for (int rank = 0; rank < 6; rank++) {
            rf_plan *plan = nullptr;
            rf_bytes own = {};
            ASSERT_EQ(rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, rank, &plan),
                      0);
            rf_plan_bytes(plan, &own);
            if (rank == 0) {
                ASSERT_EQ(rf_plan_all_ranks(plan, nullptr, all.data(), nullptr), 0);
            }
            rf_plan_destroy(plan);
            EXPECT_EQ(all[(size_t)rank].sent, own.sent) << "zero " << zero << " rank " << rank;
            EXPECT_EQ(all[(size_t)rank].grads, own.grads) << "zero " << zero << " rank " << rank;
            EXPECT_EQ(all[(size_t)rank].params, own.params) << "zero " << zero << " rank " << rank;
        }
    }
}

// Ranks with several stages send to each other in a ring. If each reuses memory that it is still
// sending before it receives, all wait forever.
TEST(PipelinePlan, RanksWithSeveralStagesDoNotWaitForMemoryThatTheySend)
{
    const struct {
        rf_pipeline_kind kind;
        int pp, chunks, blocks, m, recompute, offload;
    } rows[] = {{RF_PIPELINE_INTERLEAVED, 3, 4, 31, 7, 1, RF_OFFLOAD_ACTIVATIONS},
                {RF_PIPELINE_INTERLEAVED, 2, 2, 8, 7, 2, RF_OFFLOAD_ACTIVATIONS},
                {RF_PIPELINE_ZBV, 3, 0, 15, 9, 1, RF_OFFLOAD_ACTIVATIONS | RF_OFFLOAD_PARAMS}};
    for (const auto &row : rows) {
        StubBlocks blocks;
        for (int b = 0; b < row.blocks; b++)
            blocks.add("b" + std::to_string(b), {20});
        rf_policy policy = {};
        policy.batch = policy.micro_batches = row.m;
        policy.seq = 4;
        policy.pipeline = row.kind;
        policy.chunks = row.chunks;
        policy.recompute = row.recompute;
        policy.offload = row.offload;
        const rf_mesh mesh = {1, 1, row.pp};
        std::vector<Plan> plans;
        std::vector<const rf_plan *> borrowed;
        for (int rank = 0; rank < row.pp; rank++) {
            rf_plan *plan = nullptr;
            ASSERT_EQ(rf_plan_build({blocks.blocks(), row.blocks}, &mesh, &policy, rank, &plan), 0);
            plans.emplace_back(plan, rf_plan_destroy);
            borrowed.push_back(plan);
        }
        EXPECT_EQ(rf_plan_check(borrowed.data(), row.pp), 0)
            << row.kind << ": " << rf_last_error()->message;
    }
}

// With recomputation a block's saved values exist twice for each micro-batch; with deferred weight
// halves those of one are separate from those of the next, but not of all.
TEST(PipelinePlan, WhatIsComputedAgainIsKeptForWeightHalvesThatArePutOff)
{
    StubBlocks blocks;
    for (int b = 0; b < 7; b++)
        blocks.add("b" + std::to_string(b), {20});
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 20;
    policy.seq = 4;
    policy.pipeline = RF_PIPELINE_ZBH1;
    policy.recompute = 1;
    const rf_mesh mesh = {1, 1, 5};
    std::vector<Plan> plans;
    std::vector<const rf_plan *> borrowed;
    for (int rank = 0; rank < 5; rank++) {
        rf_plan *plan = nullptr;
        ASSERT_EQ(rf_plan_build({blocks.blocks(), 7}, &mesh, &policy, rank, &plan), 0);
        plans.emplace_back(plan, rf_plan_destroy);
        borrowed.push_back(plan);
    }
    EXPECT_EQ(rf_plan_check(borrowed.data(), 5), 0) << rf_last_error()->message;
}

// Messages are matched in the order of their lanes: the communicator has few tags.
TEST(PipelinePlan, ManyMicroBatchesTakeFewTags)
{
    const Pipeline pipeline(RF_PIPELINE_1F1B, 2, 600, 4);
    const rf_plan *plan = pipeline.borrowed[0];
    for (int k = 0; k < plan->transfer_count; k++) {
        EXPECT_GE(plan->transfers[k].tag, 0);
        EXPECT_LT(plan->transfers[k].tag, 4);
    }
    EXPECT_EQ(rf_plan_check(pipeline.borrowed.data(), 2), 0) << rf_last_error()->message;
}

TEST(PipelinePlan, ThePlanSaysTheSame)
{
    for (rf_pipeline_kind kind : {RF_PIPELINE_1F1B, RF_PIPELINE_GPIPE, RF_PIPELINE_ZBH1}) {
        const Pipeline pipeline(kind, 4, 8, 4);
        EXPECT_NEAR(rf_plan_bubble(pipeline.borrowed[0]), pipeline.idle(1, 1, 1)[0], 1e-9);
    }
    EXPECT_EQ(rf_plan_bubble(Pipeline(RF_PIPELINE_1F1B, 1, 4, 4).borrowed[0]), 0);
}
