// SPDX-License-Identifier: MIT
//
// Plans: partition, layout, buckets, instructions and bytes. No device is needed.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "stub_blocks.h"

extern "C" {
#include "parallel/plan/list.h"
}

namespace
{

struct PlanOf {
    rf_plan *plan = nullptr;
    int rc = 0;
    PlanOf(const StubBlocks &blocks, int dp, const rf_policy &policy, int rank = 0)
    {
        rf_mesh mesh = {dp, 1, 1};
        rc = rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, rank, &plan);
    }
    ~PlanOf()
    {
        rf_plan_destroy(plan);
    }
    rf_plan *operator->() const
    {
        return plan;
    }

    std::vector<std::string> text() const
    {
        std::vector<std::string> lines;
        int count = 0;
        const rf_instruction *list = rf_plan_instructions(plan, &count);
        char line[96];
        for (int i = 0; i < count; i++)
            lines.push_back(rf_instruction_text(plan, &list[i], line, sizeof(line)));
        return lines;
    }
    std::vector<int> partition() const
    {
        std::vector<int> out;
        for (int r = 0; r < plan->mesh.dp; r++)
            out.push_back(plan->first_micro_batch[r + 1] - plan->first_micro_batch[r]);
        return out;
    }
};

rf_policy policy_of(int64_t batch, int64_t micro_batches, rf_order order = RF_ORDER_RING)
{
    rf_policy policy = {};
    policy.batch = batch;
    policy.seq = 8;
    policy.micro_batches = micro_batches;
    policy.order = order;
    return policy;
}

StubBlocks two_blocks()
{
    StubBlocks blocks;
    blocks.add("a", {100, 10}).add("b", {200});
    return blocks;
}

std::string refusal(int dp, const rf_policy &policy, int status)
{
    StubBlocks blocks = two_blocks();
    PlanOf plan(blocks, dp, policy);
    EXPECT_EQ(plan.rc, status);
    EXPECT_EQ(plan.plan, nullptr);
    return rf_last_error()->message;
}

using Lines = std::vector<std::string>;

} // namespace

// Passes keep a pointer to one value while they request another.
TEST(Plan, AskingForAValueThatThereIsDoesNotMoveTheValues)
{
    StubBlocks blocks = two_blocks();
    PlanOf made(blocks, 1, policy_of(2, 2));
    ASSERT_EQ(made.rc, 0) << rf_last_error()->message;
    rf_plan *plan = made.plan;
    while (plan->value_count < plan->value_capacity)
        ASSERT_GE(rf_value_of(plan, RF_VALUE_OUT, 100 + plan->value_count, 0, -1, -1), 0);
    const int capacity = plan->value_capacity;
    const rf_value v = plan->values[0];
    EXPECT_EQ(rf_value_of(plan, v.kind, v.block, v.micro_batch, v.slot, v.piece), 0);
    EXPECT_EQ(plan->value_capacity, capacity);
}

TEST(Plan, OneRankInRingOrderAccumulatesMicroBatchesInOneSlot)
{
    StubBlocks blocks = two_blocks();
    PlanOf plan(blocks, 1, policy_of(2, 2));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(
        plan.text(),
        (Lines{
            "load inputs", "forward block 0 micro-batch 0", "forward block 1 micro-batch 0",
            "zero gradients slot 0", "backward input block 1 micro-batch 0",
            "backward weight block 1 micro-batch 0 slot 0", "backward input block 0 micro-batch 0",
            "backward weight block 0 micro-batch 0 slot 0", "forward block 0 micro-batch 1",
            "forward block 1 micro-batch 1", "backward input block 1 micro-batch 1",
            "backward weight block 1 micro-batch 1 slot 0", "backward input block 0 micro-batch 1",
            "backward weight block 0 micro-batch 1 slot 0", "share losses and token counts",
            "partial norms", "global norm", "begin step", "optimizer step"}));
    EXPECT_EQ(plan->slots, 1);
    EXPECT_EQ(plan->bytes.sent, 0u);
    EXPECT_EQ(rf_plan_bubble(plan.plan), 0);
    EXPECT_EQ(rf_plan_param_count(plan.plan), 310);
}

TEST(Plan, ABucketIsReducedAsSoonAsTheLastMicroBatchHasCompletedIt)
{
    StubBlocks blocks = two_blocks();
    rf_policy policy = policy_of(4, 4);
    policy.bucket_bytes = policy.first_bucket_bytes = 1; // one bucket a parameter
    PlanOf plan(blocks, 2, policy, 1);
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    ASSERT_EQ(plan->trained_pieces, 3);
    Lines lines = plan.text(), tail(lines.end() - 12, lines.end());
    EXPECT_EQ(tail,
              (Lines{"backward input block 1 micro-batch 3",
                     "backward weight block 1 micro-batch 3 slot 0", "reduce gradients piece 0",
                     "backward input block 0 micro-batch 3",
                     "backward weight block 0 micro-batch 3 slot 0", "reduce gradients piece 1",
                     "reduce gradients piece 2", "share losses and token counts", "partial norms",
                     "global norm", "begin step", "optimizer step"}));
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [](const std::string &l) { return l.find("reduce") == 0; }),
              3);
}

TEST(Plan, TreeOrderMergesSiblingsOnAStackOfSlots)
{
    StubBlocks blocks;
    blocks.add("a", {64});
    PlanOf plan(blocks, 1, policy_of(4, 4, RF_ORDER_TREE));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    Lines moves;
    for (const std::string &line : plan.text())
        if (line.find("zero") == 0 || line.find("merge") == 0)
            moves.push_back(line);
    EXPECT_EQ(moves, (Lines{"zero gradients slot 0", "zero gradients slot 1",
                            "merge gradients slot 0 += slot 1 piece 0", "zero gradients slot 1",
                            "zero gradients slot 2", "merge gradients slot 1 += slot 2 piece 0",
                            "merge gradients slot 0 += slot 1 piece 0"}));
    EXPECT_EQ(plan->slots, 3);
}

TEST(Plan, TreeOrderMergesTheLastMicroBatchBucketByBucketSoThatReductionsOverlap)
{
    StubBlocks blocks = two_blocks();
    rf_policy policy = policy_of(4, 4, RF_ORDER_TREE);
    policy.bucket_bytes = 256 * 4;
    PlanOf plan(blocks, 2, policy, 0);
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    Lines lines = plan.text(), tail(lines.end() - 13, lines.end());
    EXPECT_EQ(tail, (Lines{"backward input block 1 micro-batch 1",
                           "backward weight block 1 micro-batch 1 slot 1",
                           "merge gradients slot 0 += slot 1 piece 0", "reduce gradients piece 0",
                           "backward input block 0 micro-batch 1",
                           "backward weight block 0 micro-batch 1 slot 1",
                           "merge gradients slot 0 += slot 1 piece 1", "reduce gradients piece 1",
                           "share losses and token counts", "partial norms", "global norm",
                           "begin step", "optimizer step"}));
}

TEST(Plan, EveryRankOfATreeHoldsTheForestThatTheReductionExpects)
{
    StubBlocks blocks = two_blocks();
    for (int m = 1; m <= 20; m++)
        for (int dp = 1; dp <= m; dp++) {
            int leaves = 0;
            for (int rank = 0; rank < dp; rank++) {
                PlanOf plan(blocks, dp, policy_of(m, m, RF_ORDER_TREE), rank);
                ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
                leaves += plan->local_micro_batches;
                ASSERT_GE(plan->local_micro_batches, 1);
                ASSERT_GE(plan->slots, rf_forest_nodes(&plan->forest, rank, nullptr));
            }
            EXPECT_EQ(leaves, m);
        }
}

TEST(Plan, PartitionIsEvenInRingOrderAndWholeSubtreesInTreeOrderWherePossible)
{
    StubBlocks blocks = two_blocks();
    using Partition = std::vector<int>;
    EXPECT_EQ(PlanOf(blocks, 3, policy_of(8, 8)).partition(), (Partition{3, 3, 2}));
    EXPECT_EQ(PlanOf(blocks, 3, policy_of(8, 8, RF_ORDER_TREE)).partition(), (Partition{4, 2, 2}));
    EXPECT_EQ(PlanOf(blocks, 2, policy_of(8, 8, RF_ORDER_TREE)).partition(), (Partition{4, 4}));
    EXPECT_EQ(PlanOf(blocks, 3, policy_of(6, 6, RF_ORDER_TREE)).partition(), (Partition{2, 2, 2}));
    EXPECT_EQ(PlanOf(blocks, 3, policy_of(3, 3, RF_ORDER_TREE)).partition(), (Partition{1, 1, 1}));
    // 8 + 1 would leave the second rank idle most of the time.
    EXPECT_EQ(PlanOf(blocks, 2, policy_of(9, 9, RF_ORDER_TREE)).partition(), (Partition{5, 4}));
}

TEST(Plan, ParametersLieInReverseOrderAlignedAndFrozenOnesLast)
{
    StubBlocks blocks;
    blocks.add("a", {100, 7}).add("b", {65});
    blocks.flag(0, RF_PARAM_FROZEN);
    PlanOf plan(blocks, 1, policy_of(1, 1));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(plan->params[1].first, 0u);
    EXPECT_EQ(plan->params[0].first, 64u);
    EXPECT_EQ(plan->train_elements, 64u + 128u);
    EXPECT_EQ(plan->params[2].first, 192u);
    EXPECT_EQ(plan->params[2].grad_first, RF_NO_GRAD);
    EXPECT_EQ(plan->param_elements, 192u + 128u);
    EXPECT_EQ(plan->slot_elements, 192u);
}

TEST(Plan, WhatTheFirstMicroBatchWritesIsNotCleared)
{
    const int64_t large = 20000, padded = 20032;
    StubBlocks blocks;
    blocks.add("a", {large}); // its tied use comes first in the backward pass, and writes
    blocks.add("b", {65, large, 64}).flag(1, RF_PARAM_OVERWRITE_GRAD);
    blocks.add("c", {64, large})
        .flag(0, RF_PARAM_OVERWRITE_GRAD); // too small to be worth a command
    blocks.flag(1, RF_PARAM_OVERWRITE_GRAD).tie(1, "a.0");
    PlanOf ring(blocks, 2, policy_of(2, 2)), tree(blocks, 2, policy_of(2, 2, RF_ORDER_TREE));
    ASSERT_EQ(ring.rc, 0) << rf_last_error()->message;
    // Elements: c.0, b.2, b.1 (written), b.0, a.0 (written by c.1).
    const uint64_t b1 = 128, b0 = b1 + padded, a0 = b0 + 128;
    ASSERT_EQ(ring->cleared_count, 2);
    EXPECT_EQ(ring->cleared[0].first, 0u);
    EXPECT_EQ(ring->cleared[0].count, b1);
    EXPECT_EQ(ring->cleared[1].first, b0);
    EXPECT_EQ(ring->cleared[1].count, a0 - b0);
    EXPECT_EQ(ring->slot_elements, a0 + padded);
    const bool overwrite_grad[] = {false, false, true, false, false, true};
    for (int i = 0; i < 6; i++) {
        EXPECT_EQ(ring->params[i].overwrite_grad, overwrite_grad[i]) << i;
        EXPECT_EQ(tree->params[i].overwrite_grad, overwrite_grad[i]) << i;
    }
    // Nobody writes the owner's own gradient before, and its block adds.
    ASSERT_EQ(tree->cleared_count, 2);
    EXPECT_EQ(tree->cleared[1].first, b0);
    EXPECT_EQ(tree->cleared[1].count, a0 + padded - b0);
    EXPECT_EQ(tree->slot_elements, a0 + 2 * padded);
}

TEST(Plan, AUseThatAddsAfterOneThatWritesLeavesItToTheFirst)
{
    StubBlocks blocks;
    blocks.add("a", {20000}).flag(0, RF_PARAM_OVERWRITE_GRAD);
    blocks.add("b", {20000}).tie(0, "a.0"); // adds, and comes first
    PlanOf plan(blocks, 1, policy_of(1, 1));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    EXPECT_FALSE(plan->params[0].overwrite_grad);
    EXPECT_FALSE(plan->params[1].overwrite_grad);
    ASSERT_EQ(plan->cleared_count, 1);
    EXPECT_EQ(plan->cleared[0].count, plan->slot_elements);
}

TEST(Plan, BucketsHoldAtMostTheirLimitUnlessOneParameterIsLarger)
{
    StubBlocks blocks;
    blocks.add("a", {1000, 64, 64}).add("b", {64, 64, 64});
    rf_policy policy = policy_of(2, 2);
    policy.first_bucket_bytes = 64 * 4;
    policy.bucket_bytes = 2 * 64 * 4;
    PlanOf plan(blocks, 2, policy);
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    ASSERT_EQ(plan->trained_pieces, 4);
    const uint64_t counts[] = {64, 128, 128, 1000};
    const int ready[] = {1, 1, 0, 0};
    uint64_t at = 0;
    for (int k = 0; k < 4; k++) {
        EXPECT_EQ(plan->pieces[k].count, counts[k]) << k;
        EXPECT_EQ(plan->pieces[k].block, ready[k]) << k;
        EXPECT_EQ(plan->pieces[k].first, at) << k;
        at += counts[k];
    }
}

TEST(Plan, ATiedParameterIsStoredOnceAndInTreeOrderItsUsesAccumulateApart)
{
    StubBlocks blocks;
    blocks.add("a", {100}).add("b", {10, 100}).tie(1, "a.0");
    PlanOf ring(blocks, 2, policy_of(2, 2)), tree(blocks, 2, policy_of(2, 2, RF_ORDER_TREE));
    ASSERT_EQ(ring.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(rf_plan_param_count(ring.plan), 110);
    EXPECT_EQ(ring->params[2].first, ring->params[0].first);
    EXPECT_EQ(ring->params[2].grad_first, ring->params[0].grad_first);
    EXPECT_EQ(ring->slot_elements, ring->train_elements);
    EXPECT_EQ(tree->params[2].grad_first, tree->train_elements);
    EXPECT_EQ(tree->slot_elements, tree->train_elements + 128);
    // Ring: one sum. Tree: each use is summed over the ranks, then they are added.
    for (const std::string &line : ring.text())
        EXPECT_EQ(line.find("tie"), std::string::npos) << line;
    Lines lines = tree.text();
    EXPECT_EQ(lines[lines.size() - 6], "share losses and token counts");
    EXPECT_EQ(lines[lines.size() - 5], "tie gradients piece 1 += piece 0");
    ASSERT_EQ(tree->trained_pieces, 2);
    EXPECT_EQ(tree->pieces[0].first, tree->train_elements);
}

TEST(Plan, MemoryIsWhatTheFormulaSays)
{
    StubBlocks blocks = two_blocks(); // padded: 128 + 64 + 256 elements
    PlanOf plan(blocks, 1, policy_of(4, 2));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    rf_bytes bytes;
    rf_plan_bytes(plan.plan, &bytes);
    const uint64_t flat = (128 + 64 + 256) * 4, rows = 16;
    EXPECT_EQ(bytes.params, flat);
    EXPECT_EQ(bytes.grads, flat);
    EXPECT_EQ(bytes.optimizer, 2 * flat);
    // tokens, targets, losses of two micro-batches; per block out and saved; the gradient of the
    // first output (the last one carries its own); saved_for_weight. All are padded to 256.
    const uint64_t out = 768, saved = 256, inputs = 256,
                   saved_for_weight = 256; // 640, 192, 128, 128
    ASSERT_EQ(rows * 10 * 4, 640u);
    EXPECT_EQ(bytes.activations, 3 * inputs + 2 * (out + saved) + out + saved_for_weight);
    rf_policy sgd = policy_of(4, 2);
    sgd.optimizer.kind = RF_SGD;
    PlanOf without(blocks, 1, sgd);
    rf_plan_bytes(without.plan, &bytes);
    EXPECT_EQ(bytes.optimizer, 0u);
}

TEST(Plan, AccumulationBuffersOfATreeGrowWithTheLogarithmOfTheMicroBatches)
{
    StubBlocks blocks = two_blocks();
    const int slots[] = {1, 2, 3, 4, 5};
    for (int k = 0; k < 5; k++) {
        PlanOf plan(blocks, 1, policy_of(1 << k, 1 << k, RF_ORDER_TREE));
        rf_bytes bytes;
        rf_plan_bytes(plan.plan, &bytes);
        EXPECT_EQ(bytes.grads, (uint64_t)slots[k] * 448 * 4);
    }
}

TEST(Plan, RingOrderSendsTheBytesOfARing)
{
    StubBlocks blocks;
    blocks.add("a", {1 << 16}).add("b", {1 << 16});
    for (int dp : {2, 4}) {
        uint64_t gradients = 0, losses = 0, total = 0;
        for (int rank = 0; rank < dp; rank++) {
            PlanOf plan(blocks, dp, policy_of(4, 4), rank);
            ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
            ASSERT_EQ(rf_coll_sent_bytes(RF_COLL_ALL_REDUCE, rank, dp, 9, RF_F64, RF_ORDER_RING, 0,
                                         &losses),
                      0);
            total = plan->bytes.sent - losses;
            gradients = (uint64_t)(2 * (dp - 1)) * (1 << 17) / (uint64_t)dp * 4;
            EXPECT_EQ(total, gradients) << dp;
        }
    }
}

TEST(Plan, FourThousandRanksArePlannedWithoutADevice)
{
    StubBlocks blocks;
    blocks.add("a", {1 << 20}).add("b", {1 << 20});
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE}) {
        PlanOf plan(blocks, 4096, policy_of(4096, 4096, order), 4095);
        ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
        rf_bytes bytes;
        rf_plan_bytes(plan.plan, &bytes);
        EXPECT_EQ(bytes.params, (uint64_t)(1 << 23));
        // 2 (N-1)/N of the gradients, within a chunk, and the losses.
        EXPECT_GT(bytes.sent, (uint64_t)(1 << 23) * 2 * 4095 / 4096);
        EXPECT_LT(bytes.sent, (uint64_t)(1 << 23) * 2 + (1 << 18));
    }
}

TEST(Plan, AllRanksAtOnceHaveTheBytesOfTheirOwnPlans)
{
    StubBlocks blocks;
    blocks.add("a", {1000, 333}).add("b", {20001, 64, 1000}).tie(2, "a.0");
    int kinds = 0;
    for (int dp = 1; dp <= 13; dp++)
        for (int m : {dp, dp + 1, 2 * dp + 3, 5 * dp, 64})
            for (int form = 0; form < 4; form++) {
                rf_policy policy = policy_of(m, m, form == 1 ? RF_ORDER_TREE : RF_ORDER_RING);
                policy.bucket_bytes = 5000;
                policy.update_on_rank_0 = form == 2;
                policy.forward_only = form == 3;
                PlanOf plan(blocks, dp, policy, dp / 2);
                ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
                std::vector<rf_bytes> all((size_t)dp);
                ASSERT_EQ(rf_plan_all_ranks(plan.plan, nullptr, all.data(), nullptr), 0);
                for (int rank = 0; rank < dp; rank++) {
                    PlanOf own(blocks, dp, policy, rank);
                    kinds += rank > 0 && own->bytes.grads != all[(size_t)rank - 1].grads;
                    ASSERT_EQ(memcmp(&all[(size_t)rank], &own->bytes, sizeof(rf_bytes)), 0)
                        << "rank " << rank << " of " << dp << ", " << m << " micro-batches, form "
                        << form << ", sent " << all[(size_t)rank].sent << " not "
                        << own->bytes.sent;
                }
            }
    EXPECT_GT(kinds, 20) << "where ranks need different memory";
}

TEST(Plan, ParametersAreFoundByNameAmongThousands)
{
    StubBlocks fine, twice;
    for (int i = 0; i < 1000; i++) {
        fine.add("block" + std::to_string(i), {64, 1, 2, 3, 4, 5, 6, 7, 8, 9});
        twice.add("block" + std::to_string(i), {1});
    }
    fine.add("head", {64, 9}).tie(0, "block0.0").tie(1, "block999.9");
    twice.add("block500", {1});
    PlanOf plan(fine, 2, policy_of(2, 2));
    ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
    EXPECT_EQ(plan->param_count, 10002);
    EXPECT_EQ(plan->params[10000].owner, 0);
    EXPECT_EQ(plan->params[10001].owner, 9999);
    EXPECT_EQ(rf_plan_param_count(plan.plan), 1000 * (64 + 45));
    EXPECT_EQ(PlanOf(twice, 2, policy_of(2, 2)).rc, RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message,
                 "parameter block500.0 is declared twice; names must be unique");
}

TEST(Plan, ForwardOnlyKeepsTwoOutputsWhateverTheDepth)
{
    rf_policy policy = policy_of(1, 1);
    policy.forward_only = true;
    for (int depth : {2, 8}) {
        StubBlocks blocks;
        for (int i = 0; i < depth; i++)
            blocks.add("block" + std::to_string(i), {10});
        PlanOf plan(blocks, 1, policy);
        ASSERT_EQ(plan.rc, 0) << rf_last_error()->message;
        rf_bytes bytes;
        rf_plan_bytes(plan.plan, &bytes);
        EXPECT_EQ(bytes.grads + bytes.optimizer, 0u);
        // Outputs of 8 rows of 10; tokens, targets and losses.
        EXPECT_EQ(bytes.activations, 2 * 512u + 3 * 256u) << depth;
    }
}

TEST(Plan, RefusalsSayWhatToChange)
{
    EXPECT_NE(refusal(2, policy_of(10, 4), RF_EINVAL).find("use 5 micro-batches, or a batch of 12"),
              std::string::npos);
    EXPECT_NE(refusal(4, policy_of(8, 2), RF_EINVAL).find("use 4 micro-batches, or dp=2"),
              std::string::npos);
    EXPECT_NE(refusal(4, policy_of(2, 0), RF_EINVAL).find("use a batch of 4"), std::string::npos);
    EXPECT_NE(refusal(3, policy_of(8, 0), RF_EINVAL).find("(one per rank)"), std::string::npos);
    rf_policy zero = policy_of(2, 2);
    zero.zero = 4;
    EXPECT_NE(refusal(2, zero, RF_EINVAL).find("stages are 0 to 3"), std::string::npos);
    StubBlocks blocks = two_blocks();
    rf_policy policy = policy_of(4, 4);
    rf_plan *plan = nullptr;
    rf_mesh pipeline = {1, 1, 3};
    EXPECT_EQ(rf_plan_build({blocks.blocks(), 2}, &pipeline, &policy, 0, &plan), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("2 blocks"), std::string::npos);
    const auto with = [&](const std::function<void(rf_policy *)> &change, const char *says) {
        rf_mesh two = {1, 1, 2};
        rf_policy changed = policy_of(4, 4);
        change(&changed);
        EXPECT_LT(rf_plan_build({blocks.blocks(), 2}, &two, &changed, 0, &plan), 0) << says;
        EXPECT_NE(std::string(rf_last_error()->message).find(says), std::string::npos)
            << rf_last_error()->message;
    };
    with([](rf_policy *p) { p->update_on_rank_0 = true; }, "no rank has all gradients");
    with([](rf_policy *p) { p->pipeline = RF_PIPELINE_2BW, p->recompute = 1; }, "without a flush");
}

int says_why(const void *, int64_t rows, int64_t, rf_block_sizes *)
{
    return rf_fail(RF_EINVAL, "%d rows are too many; use fewer", (int)rows);
}
int says_nothing(const void *, int64_t, int64_t, rf_block_sizes *)
{
    return RF_ENOTSUP;
}

TEST(Plan, WhatAUsersBlockSaysIsSaidWithItsName)
{
    for (const auto &c :
         {std::make_pair(&says_why, "block a: 4 rows are too many; use fewer"),
          std::make_pair(&says_nothing, "block a refuses micro-batches of 4 tokens "
                                        "in sequences of 4 (not supported here)")}) {
        StubBlocks stub;
        stub.add("a", {8});
        rf_block block = stub.blocks()[0];
        rf_block_ops ops = *block.ops;
        ops.sizes = c.first;
        block.ops = &ops;
        rf_policy policy = {};
        policy.batch = 1;
        policy.seq = 4;
        policy.micro_batches = 1;
        const rf_mesh mesh = {1};
        rf_plan *plan = nullptr;
        (void)rf_fail(RF_EINVAL, "of another call");
        EXPECT_LT(rf_plan_build(&block, 1, &mesh, &policy, 0, &plan), 0);
        EXPECT_EQ(std::string(rf_last_error()->message).find(c.second), 0u)
            << rf_last_error()->message;
    }
}

TEST(Plan, ParametersWithOneNameOrALateOwnerAreRefused)
{
    StubBlocks twice, late, shapes;
    twice.add("a", {1}).add("a", {1});
    late.add("a", {5}).tie(0, "b.0").add("b", {5});
    shapes.add("a", {5}).add("b", {6}).tie(0, "a.0");
    EXPECT_EQ(PlanOf(twice, 1, policy_of(1, 1)).rc, RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("declared twice"), std::string::npos);
    EXPECT_EQ(PlanOf(late, 1, policy_of(1, 1)).rc, RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("earlier parameter"), std::string::npos);
    EXPECT_EQ(PlanOf(shapes, 1, policy_of(1, 1)).rc, RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("shapes differ"), std::string::npos);
}
