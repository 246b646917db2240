// SPDX-License-Identifier: MIT
//
// The promise of tree order: the same bits on any number of ranks; and of ring order: the same bits
// from run to run, and equal replicas. Controls prove that the hash would show a difference.
#include <algorithm>
#include <cmath>

#include "world.h"

extern "C" {
#include "parallel/passes/passes.h"
#include "parallel/plan/list.h"
}

namespace
{

Training small(rf_order order, int64_t micro_batches = 8)
{
    Training t;
    t.policy.order = order;
    t.policy.micro_batches = micro_batches;
    return t;
}

void expect_replicas(const std::vector<Seen> &seen)
{
    for (const Seen &s : seen) {
        EXPECT_EQ(s.sha, seen[0].sha);
        EXPECT_EQ(s.loss, seen[0].loss);
        EXPECT_EQ(s.norm, seen[0].norm);
    }
}

void expect_same_on_any_number(const Training &t)
{
    Seen one = train(t, 1)[0];
    ASSERT_EQ(one.loss.size(), (size_t)t.steps);
    for (int ranks = 2; ranks <= 4; ranks++) {
        std::vector<Seen> many = train(t, ranks);
        expect_replicas(many);
        EXPECT_EQ(many[0].sha, one.sha) << ranks << " ranks";
        EXPECT_EQ(many[0].loss, one.loss) << ranks << " ranks";
        EXPECT_EQ(many[0].norm, one.norm) << ranks << " ranks";
    }
}

} // namespace

TEST(TreeOrder, ParametersAreTheSameBitsOnOneToFourRanks)
{
    Training t = small(RF_ORDER_TREE);
    t.steps = 20;
    expect_same_on_any_number(t);
}

TEST(TreeOrder, ParametersAreTheSameBitsWithClippingIgnoredTargetsAndManyBuckets)
{
    Training t = small(RF_ORDER_TREE);
    t.policy.clip = 0.25f; // below every norm seen, so it acts
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 16384;
    t.ignored = 0.5;
    Seen one = train(t, 1)[0];
    for (float norm : one.norm)
        EXPECT_GT(norm, t.policy.clip);
    expect_same_on_any_number(t);
}

TEST(TreeOrder, ParametersAreTheSameBitsForMicroBatchesThatAreNoPowerOfTwo)
{
    Training t = small(RF_ORDER_TREE, 7);
    t.policy.batch = 7;
    expect_same_on_any_number(t);
}

TEST(RingOrder, ReplicasAndRunsAreEqualAndTheLossIsThatOfOneRankButForRounding)
{
    Training t = small(RF_ORDER_RING);
    t.policy.bucket_bytes = t.policy.first_bucket_bytes = 20000;
    Seen one = train(t, 1)[0];
    for (int ranks : {2, 3}) {
        std::vector<Seen> first = train(t, ranks), second = train(t, ranks);
        expect_replicas(first);
        EXPECT_EQ(first[0].sha, second[0].sha);
        EXPECT_EQ(first[0].loss, second[0].loss);
        for (int step = 0; step < t.steps; step++)
            EXPECT_NEAR(first[0].loss[(size_t)step], one.loss[(size_t)step], 1e-4);
    }
}

TEST(RingOrder, ParametersDifferFromThoseOfOneRankByRoundingOnly)
{
    Training t = small(RF_ORDER_RING);
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    t.steps = 20;
    const std::vector<float> one = trained_parameters(t, 1);
    for (int ranks : {2, 3}) {
        const float worst = worst_difference(trained_parameters(t, ranks), one);
        // 20 steps of 0.1 times a mean gradient below 1, whose 8 terms are added in another order.
        EXPECT_LE(worst, 1e-6f) << ranks << " ranks";
        EXPECT_GT(worst, 0) << "the order of the sum must have mattered somewhere";
    }
}

TEST(Controls, TheHashNoticesASwapOfMicroBatchesAndASkippedReduction)
{
    Training t = small(RF_ORDER_TREE);
    t.steps = 2;
    const std::string good = train(t, 2)[0].sha;
    EXPECT_EQ(train(t, 2)[0].sha, good);

    Training swapped = t;
    swapped.edit = [](rf_plan *plan, int rank) {
        const int at = plan->first_micro_batch[plan->rank] + 1;
        for (rf_value_kind kind : {RF_VALUE_TOKENS, RF_VALUE_TARGETS, RF_VALUE_LOSSES}) {
            rf_value *a = &plan->values[rf_value_of(plan, kind, -1, at, -1, -1)];
            rf_value *b = &plan->values[rf_value_of(plan, kind, -1, at + 1, -1, -1)];
            if (rank == 1)
                std::swap(a->offset, b->offset);
        }
    };
    EXPECT_NE(train(swapped, 2)[0].sha, good);

    Training skipped = t;
    skipped.edit = [](rf_plan *plan, int) {
        rf_list *list = &plan->lists[RF_LIST_STEP];
        rf_instruction *end = list->instructions + list->count;
        rf_instruction *first = std::find_if(list->instructions, end, [](const rf_instruction &i) {
            return i.verb == RF_VERB_REDUCE;
        });
        ASSERT_NE(first, end);
        std::copy(first + 1, end, first);
        list->count--;
        list->positions[RF_LANE_DATA]--;
        ASSERT_RF(rf_pass_edges(plan));
    };
    EXPECT_NE(train(skipped, 2)[0].sha, good);
}

TEST(Initialization, IsAFunctionOfTheSeedAlone)
{
    Training t = small(RF_ORDER_RING);
    t.steps = 0;
    const std::string one = train(t, 1)[0].sha;
    EXPECT_EQ(train(t, 3)[2].sha, one);
    t.seed = 6;
    EXPECT_NE(train(t, 1)[0].sha, one);
}
