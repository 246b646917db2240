// SPDX-License-Identifier: MIT
//
// Blocks are divided into stages as evenly as possible.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "pipeline_orders.h"

namespace
{

// ---- blocks to stages

double largest(const std::vector<double> &costs, const std::vector<int> &first)
{
    double most = 0;
    for (size_t s = 0; s + 1 < first.size(); s++) {
        double sum = 0;
        for (int b = first[s]; b < first[s + 1]; b++)
            sum += costs[(size_t)b];
        most = std::max(most, sum);
    }
    return most;
}

// Tries all divisions.
double best(const std::vector<double> &costs, std::vector<int> &first, size_t stage)
{
    const size_t stages = first.size() - 1;
    if (stage == stages)
        return largest(costs, first);
    double least = std::numeric_limits<double>::infinity();
    for (int b = first[stage - 1] + 1; b <= (int)(costs.size() - (stages - stage)); b++) {
        first[stage] = b;
        least = std::min(least, best(costs, first, stage + 1));
    }
    return least;
}

std::vector<int> split(int stages, const double *costs, int blocks)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, stages, 1);
    std::vector<int> first((size_t)stages + 1, -1);
    EXPECT_EQ(rf_pipeline_split(&pipe, costs, blocks, first.data()), 0) << rf_last_error()->message;
    return first;
}

TEST(PipelineSplit, TheLargestStageIsAsSmallAsAnyDivisionAllows)
{
    std::mt19937 random(1);
    for (int round = 0; round < 300; round++) {
        const int blocks = 1 + (int)(random() % 9), stages = 1 + (int)(random() % blocks);
        std::vector<double> costs;
        for (int b = 0; b < blocks; b++)
            costs.push_back(round % 3 == 0   ? (double)(random() % 3) // many are equal, or 0
                            : round % 3 == 1 ? (double)(random() % 1000)
                                             : std::ldexp((double)random(), (int)(random() % 64)));
        const std::vector<int> first = split(stages, costs.data(), blocks);
        ASSERT_EQ(first.front(), 0);
        ASSERT_EQ(first.back(), blocks);
        for (int s = 0; s < stages; s++)
            ASSERT_LT(first[(size_t)s], first[(size_t)s + 1]);
        std::vector<int> tried((size_t)stages + 1);
        tried.back() = blocks;
        ASSERT_EQ(largest(costs, first), best(costs, tried, 1)) << "round " << round;
    }
}

TEST(PipelineSplit, EqualBlocksAreDividedEvenlyAndTheLastStagesHaveOneMore)
{
    EXPECT_EQ(split(4, nullptr, 10), (std::vector<int>{0, 2, 4, 7, 10}));
    EXPECT_EQ(split(4, nullptr, 4), (std::vector<int>{0, 1, 2, 3, 4}));
    EXPECT_EQ(split(1, nullptr, 3), (std::vector<int>{0, 3}));
    for (int stages = 1; stages <= 12; stages++)
        for (int blocks = stages; blocks <= 30; blocks++) {
            const std::vector<int> first = split(stages, nullptr, blocks);
            const int more = blocks % stages; // at the end
            for (int s = 0; s < stages; s++)
                ASSERT_EQ(first[(size_t)s + 1] - first[(size_t)s],
                          blocks / stages + (s >= stages - more))
                    << stages << " " << blocks;
        }
}

TEST(PipelineSplit, AnExpensiveHeadGetsAStageWithFewBlocksAndTheOthersShareTheRest)
{
    const double costs[] = {1, 1, 1, 1, 1, 1, 1, 1, 3};
    EXPECT_EQ(split(3, costs, 9), (std::vector<int>{0, 3, 7, 9}));
    // Under the bound set by the last block, the rest is as even as possible.
    const double huge[] = {1e300, 1e300, 1e300, 1e300, 9e307};
    EXPECT_EQ(split(3, huge, 5), (std::vector<int>{0, 2, 4, 5}));
    const double tiny[] = {5e-324, 5e-324, 5e-324, 1e-323};
    EXPECT_EQ(split(2, tiny, 4), (std::vector<int>{0, 2, 4}));
}

TEST(PipelineSplit, ACountForEachStageIsTakenAsItIs)
{
    const Pipeline pipe(RF_PIPELINE_INTERLEAVED, 2, 4, 2);
    const int counts[] = {3, 1, 1, 2};
    int first[5];
    ASSERT_EQ(rf_pipeline_split_by_hand(&pipe, counts, 4, 7, first), 0);
    EXPECT_EQ(std::vector<int>(first, first + 5), (std::vector<int>{0, 3, 4, 5, 7}));
}

TEST(PipelineSplit, RunningOutOfMemoryIsAnError)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 2, 3);
    expect_enomem_at_each_allocation([&] {
        int first[3];
        return rf_pipeline_split(&pipe, nullptr, 4, first);
    });
}

// ---- refusals

TEST(PipelineSplitRefusals, MoreStagesThanBlocksSayWhatToDo)
{
    const Pipeline pipe(RF_PIPELINE_INTERLEAVED, 4, 8, 2);
    int first[9];
    const char *wanted = "pipeline interleaved: 4 ranks of 2 chunks are 8 stages, but there are 7 "
                         "blocks, and a stage needs at least one; use fewer ranks or chunks";
    EXPECT_EQ(refused_message(rf_pipeline_split(&pipe, nullptr, 7, first)), wanted);
    const int counts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    EXPECT_EQ(refused_message(rf_pipeline_split_by_hand(&pipe, counts, 8, 7, first)), wanted);
}

TEST(PipelineSplitRefusals, CountsByHandThatDoNotFitAreNamed)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 3, 8);
    int first[4];
    const auto by_hand = [&](std::vector<int> counts) {
        return refused_message(
            rf_pipeline_split_by_hand(&pipe, counts.data(), (int)counts.size(), 8, first));
    };
    EXPECT_EQ(by_hand({4, 4}),
              "pipeline 1f1b: 2 counts of blocks for 3 stages; give one for each stage");
    EXPECT_EQ(by_hand({4, 0, 4}),
              "pipeline 1f1b: 0 blocks in stage 1; every stage needs at least one");
    EXPECT_EQ(by_hand({4, 2, 3}), "pipeline 1f1b: the stages have 9 blocks together, but there are "
                                  "8; give each block to one stage");
}

TEST(PipelineSplitRefusals, CostsThatAreNoCostsAreNamed)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 2, 8);
    int first[3] = {7, 7, 7};
    for (double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        const double costs[] = {1, bad, 1};
        EXPECT_NE(refused_message(rf_pipeline_split(&pipe, costs, 3, first)).find("block 1 costs"),
                  std::string::npos);
    }
    EXPECT_EQ(first[0], 7);
}

} // namespace
