// SPDX-License-Identifier: MIT
//
// Activations in host memory (RF_OFFLOAD_ACTIVATIONS): the bits of keeping all on the device, the
// part that stays there, and the times of the copies.
#include <memory>
#include <numeric>

#include "stub_blocks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
#include "parallel/plan/plan.h"
}

namespace
{

Training deep(rf_order order)
{
    Training t;
    t.model.layers = 4;
    t.steps = 1;
    t.policy.batch = 4;
    t.policy.micro_batches = 4;
    t.policy.order = order;
    t.policy.clip = 0.25f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    return t;
}

void expect_same(const Seen &s, const Seen &kept, const std::string &where)
{
    EXPECT_EQ(s.sha, kept.sha) << where;
    EXPECT_EQ(s.loss, kept.loss) << where;
    EXPECT_EQ(s.norm, kept.norm) << where;
    expect_planned(s, where);
}

using Plan = std::unique_ptr<rf_plan, void (*)(rf_plan *)>;

StubBlocks chain(int count)
{
    StubBlocks blocks;
    for (int b = 0; b < count; b++)
        blocks.add("b" + std::to_string(b), {64});
    return blocks;
}

// Sequences of 64 tokens, one in a micro-batch.
rf_policy policy_of(int offload)
{
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 2;
    policy.seq = 64;
    policy.offload = offload;
    return policy;
}

Plan plan_of(const StubBlocks &blocks, const rf_policy &policy)
{
    rf_plan *plan = nullptr;
    EXPECT_RF(rf_plan_build({blocks.blocks(), blocks.count()}, nullptr, &policy, 0, &plan));
    return Plan(plan, rf_plan_destroy);
}

int count_of(const rf_plan *plan, rf_list_id id, rf_verb verb)
{
    int count = 0;
    for (int i = 0; i < plan->lists[id].count; i++)
        count += plan->lists[id].instructions[i].verb == verb;
    return count;
}

} // namespace

TEST(Spill, InTreeOrderGivesTheBitsOfOneProcessThatKeepsAll)
{
    Training t = deep(RF_ORDER_TREE);
    const Seen kept = train(t, 1)[0];
    int recompute = 0;
    for (int stage = 0; stage <= 3; stage++)
        for (int ranks = 1 + stage % 2; ranks <= 3; ranks += 2) {
            const int choices[] = {0, 1, 2, RF_RECOMPUTE_SQRT};
            t.policy.zero = stage;
            t.policy.recompute = choices[recompute++ % 4];
            t.policy.offload = RF_OFFLOAD_ACTIVATIONS;
            if (ranks <= 2 && stage != 1)
                t.policy.offload |= RF_OFFLOAD_PARAMS | (stage >= 2 ? RF_OFFLOAD_GRADS : 0);
            for (const Seen &s : train(t, ranks))
                expect_same(s, kept,
                            "zero=" + std::to_string(stage) +
                                " recompute=" + std::to_string(t.policy.recompute) + " on " +
                                std::to_string(ranks));
        }
}

TEST(Spill, InRingOrderGivesTheBitsOfKeepingAllOnTheSameRanks)
{
    for (int stage = 0; stage <= 3; stage++) {
        const int ranks = stage ? 1 + stage : 1;
        Training t = deep(RF_ORDER_RING);
        t.policy.zero = stage;
        t.policy.recompute = stage == 2 ? 2 : 0;
        const std::vector<Seen> kept = train(t, ranks);
        t.policy.offload = RF_OFFLOAD_ACTIVATIONS;
        t.policy.no_prefetch = stage == 3;
        const std::vector<Seen> spilled = train(t, ranks);
        for (int rank = 0; rank < ranks; rank++)
            expect_same(spilled[(size_t)rank], kept[(size_t)rank], "zero=" + std::to_string(stage));
    }
}

// Each rank's own part of a block's activations is copied.
TEST(Spill, WithTensorRanksGivesTheBitsOfKeepingAllOnTheSameRanks)
{
    const struct {
        int dp, tp, pp;
        bool sequence;
        int zero, recompute;
        rf_order order;
        rf_pipeline_kind pipeline;
    } meshes[] = {
        {1, 2, 1, true, 0, 2, RF_ORDER_TREE, RF_PIPELINE_1F1B},
        {1, 2, 2, false, 0, 0, RF_ORDER_RING, RF_PIPELINE_ZBV},
    };
    for (const auto &m : meshes) {
        Training t = deep(m.order);
        t.tp = m.tp;
        t.pp = m.pp;
        t.policy.sequence_parallel = m.sequence;
        t.policy.zero = m.zero;
        t.policy.recompute = m.recompute;
        t.policy.pipeline = m.pipeline;
        const int ranks = m.dp * m.tp * m.pp;
        const std::vector<Seen> kept = train(t, ranks);
        t.policy.offload = RF_OFFLOAD_ACTIVATIONS;
        std::vector<int> copies((size_t)ranks);
        t.edit = [&](rf_plan *plan, int rank) {
            copies[(size_t)rank] = count_of(plan, RF_LIST_STEP, RF_VERB_EVICT);
        };
        const std::vector<Seen> spilled = train(t, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            const std::string where = "dp=" + std::to_string(m.dp) + " pp=" + std::to_string(m.pp) +
                                      (m.sequence ? " sequence" : "") + " rank " +
                                      std::to_string(rank);
            expect_same(spilled[(size_t)rank], kept[(size_t)rank], where);
        }
        EXPECT_GT(std::accumulate(copies.begin(), copies.end(), 0), 0);
    }
}

// A weight half runs between two phases of the call of another block, and does not count as one:
// copies back have the time of a whole call.
TEST(Spill, CopiesAsOftenWithTensorRanksAsWithoutAndComesBackBeforeAWholeCall)
{
    gpt2_config config = {};
    config.layers = 6;
    config.channels = 32;
    config.heads = 4;
    config.seq = 16;
    gpt2 *model = nullptr;
    ASSERT_RF(gpt2_create(&config, &model));
    int blocks = 0;
    const rf_block *all = gpt2_blocks(model, &blocks);
    for (const bool no_prefetch : {false, true}) {
        std::vector<std::pair<int, int>> counts;
        for (const int tp : {1, 2, 4}) {
            rf_policy policy = {};
            policy.batch = policy.micro_batches = 4;
            policy.seq = 16;
            policy.zero = no_prefetch ? 3 : 0;
            policy.no_prefetch = no_prefetch;
            policy.offload = RF_OFFLOAD_ACTIVATIONS;
            policy.sequence_parallel = tp == 4;
            const rf_mesh mesh = {2, tp, 1, 0};
            rf_plan *plan = nullptr;
            ASSERT_RF(rf_plan_build({all, blocks}, &mesh, &policy, 0, &plan));
            counts.push_back({count_of(plan, RF_LIST_STEP, RF_VERB_EVICT),
                              count_of(plan, RF_LIST_STEP, RF_VERB_FETCH)});
            int count = 0;
            const rf_instruction *list = rf_plan_instructions(plan, &count);
            for (int i = 0, back = 0; i < count; i++) {
                back = list[i].verb == RF_VERB_FETCH || (back && list[i].block < 0);
                const bool next = i + 1 < count && rf_verb_calls_block(list[i + 1].verb);
                if (back && next) {
                    EXPECT_EQ(list[i + 1].phase, 0) << tp << " at " << i;
                }
            }
            rf_plan_destroy(plan);
        }
        EXPECT_GT(counts[0].first, 10);
        EXPECT_EQ(counts[1], counts[0]) << no_prefetch;
        EXPECT_EQ(counts[2], counts[0]) << no_prefetch;
    }
    gpt2_destroy(model);
}

// Steps are replayed from the third on. Allocations are the plan's, when the run is opened.
TEST(Spill, ReplayedStepsAndEvaluationsGiveTheSameBitsAndAllocateNothing)
{
    Training t = deep(RF_ORDER_TREE);
    t.model.layers = 3;
    t.steps = 4;
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<float>> grads;
    uint64_t allocations = 0;
    t.before = [&](rf_run *, rf_comm *, int) {
        rf_memory_stats stats;
        rf_device_memory(rank_device(0), &stats);
        allocations = stats.allocations;
    };
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        std::vector<float> all;
        double loss = 0;
        t.batch(9, tokens, targets);
        ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 4, &loss));
        for (int k = 0; k < run->plan->param_count; k++) {
            const rf_plan_param &param = run->plan->params[k];
            std::vector<float> grad((size_t)param.count);
            ASSERT_RF(rf_run_read_grad(run, param.desc->name, grad.data(), grad.size() * 4));
            all.insert(all.end(), grad.begin(), grad.end());
        }
        losses.push_back({loss});
        grads.push_back(all);
        rf_memory_stats stats;
        rf_device_memory(rank_device(0), &stats);
        EXPECT_EQ(stats.allocations, allocations);
    };
    const Seen kept = train(t, 1)[0];
    t.policy.offload = RF_OFFLOAD_ACTIVATIONS;
    const Seen spilled = train(t, 1)[0];
    expect_same(spilled, kept, "one rank");
    EXPECT_GT(spilled.stats.back().replayed, 0);
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(grads[0], grads[1]);
}

// S saved, O an output or its gradient, H saved_for_weight: of equal size in every block. At the
// same time there are S of two blocks, outputs and their gradients of two, and H of one; the memory
// exceeds that by at most an output, since blocks of other sizes lie beside each other. On the host
// are S of all but the last two blocks, and outputs of all but the last three.
TEST(Spill, TheDeviceHoldsTwoBlocksHoweverManyThereAre)
{
    const uint64_t S = 64 * 12, O = 64 * 40, H = 64 * 8, least = 2 * S + 4 * O + H;
    for (int count : {5, 8, 30}) {
        const StubBlocks blocks = chain(count);
        const Plan kept = plan_of(blocks, policy_of(0));
        const Plan spilled = plan_of(blocks, policy_of(RF_OFFLOAD_ACTIVATIONS));
        const uint64_t with_host = spilled->bytes.host - kept->bytes.host, n = (uint64_t)count;
        const uint64_t inputs = kept->bytes.activations - n * (S + O) - O - H;
        const uint64_t device = spilled->bytes.activations - inputs - with_host;
        EXPECT_EQ(with_host, (n - 2) * S + (n - 3) * O) << count;
        EXPECT_GE(device, least) << count;
        EXPECT_LE(device, least + O) << count;
        // Parameters and everything else stay where they were.
        EXPECT_EQ(spilled->bytes.params, kept->bytes.params);
        EXPECT_EQ(spilled->bytes.scratch, kept->bytes.scratch);
        for (int region = 0; region < RF_REGION_FIXED; region++)
            EXPECT_EQ(spilled->regions[region].memory, kept->regions[region].memory) << region;
    }
}

// Each micro-batch copies once in each direction, and evaluation not at all.
TEST(Spill, WhatIsReadTwiceComesBackTwiceAndLeavesOnce)
{
    const StubBlocks blocks = chain(12);
    rf_policy policy = policy_of(RF_OFFLOAD_ACTIVATIONS);
    for (int recompute : {0, 1, 4}) {
        policy.recompute = recompute;
        const Plan plan = plan_of(blocks, policy);
        const int out = count_of(plan.get(), RF_LIST_STEP, RF_VERB_EVICT);
        const int back = count_of(plan.get(), RF_LIST_STEP, RF_VERB_FETCH);
        // Two of three segments of four blocks run again. Outputs before them, one each, are read
        // when they begin and by their first backward pass; in each of the three, two saved values
        // and an output wait for the others.
        const int once = recompute == 4 ? 2 * 1 + 3 * 3 : recompute == 1 ? 12 - 3 : 2 * 12 - 5;
        EXPECT_EQ(out, 2 * once) << recompute;
        EXPECT_EQ(back, 2 * (once + (recompute == 4))) << recompute;
        for (rf_list_id id : {RF_LIST_EVALUATE, RF_LIST_EVALUATE_ONE, RF_LIST_EVALUATE_NONE}) {
            EXPECT_EQ(count_of(plan.get(), id, RF_VERB_EVICT), 0);
            EXPECT_EQ(count_of(plan.get(), id, RF_VERB_FETCH), 0);
        }
    }
}

TEST(Spill, OutOfHostMemoryAtAnyCallIsAnErrorAndLeavesNothing)
{
    const StubBlocks blocks = chain(8);
    const rf_policy policy = policy_of(RF_OFFLOAD_ACTIVATIONS);
    int failures = 0;
    for (uint64_t nth = 1; nth < 300; nth++) {
        rf_plan *plan = nullptr;
        rf_alloc_fail_at(nth);
        const int rc = rf_plan_build({blocks.blocks(), blocks.count()}, nullptr, &policy, 0, &plan);
        rf_alloc_fail_at(0);
        rf_plan_destroy(plan);
        if (rc == 0)
            break;
        EXPECT_EQ(rc, RF_ENOMEM) << "call " << nth;
        failures++;
    }
    EXPECT_GT(failures, 30);
    EXPECT_LT(failures, 299);
}
