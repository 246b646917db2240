// SPDX-License-Identifier: MIT
//
// Orders of pipelines are complete and consistent for any numbers, keep the activations given by
// the formulas, and see the right weights.
#include <algorithm>
#include <climits>
#include <tuple>

#include "pipeline_orders.h"

namespace
{

// ---- the orders themselves

TEST(PipelineOrder, EveryCallIsMadeOnceAndForwardInputAndWeightFollowEachOther)
{
    for_each_pipeline([](const Pipeline &p) {
        for (int r = 0; r < p.ranks; r++) {
            std::vector<int> done((size_t)(p.chunks * p.total()));
            const rf_verb verbs[] = {RF_VERB_FORWARD, RF_VERB_BACKWARD_INPUT,
                                     RF_VERB_BACKWARD_WEIGHT};
            for (const rf_pipeline_call &call : p.calls[r]) {
                ASSERT_TRUE(call.chunk >= 0 && call.chunk < p.chunks) << p.text();
                ASSERT_TRUE(call.micro_batch >= 0 && call.micro_batch < p.total()) << p.text();
                int &so_far = done[(size_t)(call.chunk * p.total() + call.micro_batch)];
                ASSERT_LT(so_far, 3) << p.text();
                ASSERT_EQ(call.verb, verbs[so_far++]) << p.text();
            }
            for (int so_far : done)
                ASSERT_EQ(so_far, 3) << p.text();
        }
    });
}

TEST(PipelineOrder, WeightHalvesFollowAtOnceWhereTheBackwardPassIsNotDivided)
{
    for_each_pipeline([](const Pipeline &p) {
        if (p.kind == RF_PIPELINE_ZBH1 || p.kind == RF_PIPELINE_ZBV)
            return;
        for (const auto &calls : p.calls)
            for (size_t k = 0; k < calls.size(); k++)
                if (calls[k].verb == RF_VERB_BACKWARD_INPUT) {
                    ASSERT_EQ(calls[k + 1].verb, RF_VERB_BACKWARD_WEIGHT) << p.text();
                    ASSERT_EQ(calls[k + 1].micro_batch, calls[k].micro_batch) << p.text();
                    ASSERT_EQ(calls[k + 1].chunk, calls[k].chunk) << p.text();
                }
    });
}

TEST(PipelineOrder, ChunksOfRanksAreAllStagesOnce)
{
    for_each_pipeline([](const Pipeline &p) {
        std::vector<int> seen((size_t)rf_pipeline_stages(&p));
        for (int r = 0; r < p.ranks; r++)
            for (int c = 0; c < p.chunks; c++) {
                const int stage = rf_pipeline_stage(&p, r, c);
                const bool turned = p.kind == RF_PIPELINE_ZBV && c == 1;
                ASSERT_EQ(stage, turned ? 2 * p.ranks - 1 - r : c * p.ranks + r) << p.text();
                ASSERT_EQ(rf_pipeline_rank_of(&p, stage), r) << p.text();
                ASSERT_EQ(rf_pipeline_chunk_of(&p, stage), c) << p.text();
                seen[(size_t)stage]++;
            }
        ASSERT_EQ(seen, std::vector<int>(seen.size(), 1)) << p.text();
    });
}

TEST(PipelineOrder, OneChunkInterleavedIs1F1BAndOneStepOf2BWIs1F1B)
{
    const auto letters = [](const Pipeline &p) {
        std::vector<std::tuple<int, int, int>> all;
        for (const auto &calls : p.calls)
            for (const auto &call : calls)
                all.emplace_back(call.verb, call.chunk, call.micro_batch);
        return all;
    };
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 2 * p + 3; m++) {
            const auto wanted = letters(Pipeline(RF_PIPELINE_1F1B, p, m));
            EXPECT_EQ(letters(Pipeline(RF_PIPELINE_INTERLEAVED, p, m, 1)), wanted);
            EXPECT_EQ(letters(Pipeline(RF_PIPELINE_2BW, p, m)), wanted);
        }
}

// ---- memory

TEST(PipelineOrder, ActivationsInFlightAreWhatTheFormulasSay)
{
    for_each_pipeline([](const Pipeline &p) {
        const int P = p.ranks, M = p.micro_batches, V = p.chunks;
        for (int r = 0; r < P; r++) {
            const int peak = p.peak(r);
            const std::string where = p.text() + " rank=" + std::to_string(r);
            const int deep = std::min(V * M, 2 * (P - r - 1) + (V - 1) * P + 1);
            switch (p.kind) {
            case RF_PIPELINE_NAIVE:
                ASSERT_EQ(peak, 1) << where;
                break;
            case RF_PIPELINE_GPIPE:
                ASSERT_EQ(peak, M) << where;
                break;
            case RF_PIPELINE_1F1B:
                ASSERT_EQ(peak, std::min(M, P - r)) << where;
                break;
            case RF_PIPELINE_INTERLEAVED:
                if (V == 1)
                    ASSERT_EQ(peak, std::min(M, P - r)) << where;
                else if (M % P == 0)
                    ASSERT_EQ(peak, deep) << where;
                else
                    ASSERT_LE(peak, deep) << where;
                break;
            case RF_PIPELINE_ZBH1:
                ASSERT_EQ(peak, std::min(M, P)) << where;
                break;
            case RF_PIPELINE_ZBV:
                if (M >= 2 * P)
                    ASSERT_EQ(peak, 2 * P) << where;
                else
                    ASSERT_LE(peak, std::min(2 * M, 2 * P)) << where;
                break;
            default:
                ASSERT_EQ(peak, std::min({p.total(), 2 * M, P - r})) << where;
            }
        }
    });
}

// ---- 2BW

TEST(Pipeline2BW, WeightsAreOneUpdateBehindAndTwoVersionsAreEnough)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 2 * p + 3; m++) {
            const Pipeline pipe(RF_PIPELINE_2BW, p, m, 0, 5);
            for (const auto &calls : pipe.calls) {
                int weights = 0;
                for (const rf_pipeline_call &call : calls) {
                    const int step = call.micro_batch / m, newest = weights / m;
                    ASSERT_EQ(call.version, step == 0 ? 0 : step - 1) << pipe.text();
                    ASSERT_LE(call.version, newest) << pipe.text();
                    ASSERT_GE(call.version, newest - 1) << pipe.text();
                    weights += call.verb == RF_VERB_BACKWARD_WEIGHT;
                }
            }
        }
}

TEST(Pipeline2BW, CallsBetweenTwoUpdatesAreTheSameButInTheFirstAndTheLastStep)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 2 * p + 3; m++) {
            const Pipeline pipe(RF_PIPELINE_2BW, p, m, 0, 6);
            for (const auto &calls : pipe.calls) {
                std::vector<std::vector<std::pair<int, int>>> steps(6);
                int weights = 0;
                for (const rf_pipeline_call &call : calls) {
                    const int step = weights / m;
                    steps[(size_t)step].emplace_back(call.verb, call.micro_batch - step * m);
                    weights += call.verb == RF_VERB_BACKWARD_WEIGHT;
                }
                for (size_t step = 2; step <= 4; step++)
                    ASSERT_EQ(steps[step], steps[1]) << pipe.text();
            }
        }
}

TEST(Pipeline2BW, RanksFillAndEmptyOnceForAllSteps)
{
    for (int p = 1; p <= 8; p++)
        for (int m = std::max(1, p - 1); m <= 2 * p + 3; m++)
            for (int steps = 1; steps <= 4; steps++)
                EXPECT_EQ(Pipeline(RF_PIPELINE_2BW, p, m, 0, steps).makespan(1, 2, 0),
                          3 * (steps * m + p - 1));
}

// Other kinds see the weights of their own step.
TEST(Pipeline2BW, OtherKindsSeeOneVersion)
{
    for_each_pipeline([](const Pipeline &p) {
        for (const auto &calls : p.calls)
            for (const rf_pipeline_call &call : calls)
                ASSERT_TRUE(p.kind == RF_PIPELINE_2BW || call.version == 0) << p.text();
    });
}

// ---- refusals

TEST(PipelineRefusals, NumbersThatDoNotFitTheKindAreNamed)
{
    const auto check = [](rf_pipeline_kind kind, int ranks, int micro_batches, int chunks,
                          int steps) {
        rf_pipeline p = {kind, ranks, micro_batches, chunks, steps};
        return refused_message(rf_pipeline_check(&p));
    };
    EXPECT_EQ(check(RF_PIPELINE_COUNT, 1, 1, 0, 0),
              "pipeline 7: unknown; use one of enum rf_pipeline_kind");
    EXPECT_EQ(check(RF_PIPELINE_GPIPE, 0, 4, 0, 0),
              "pipeline gpipe: 0 ranks and 4 micro-batches; both must be at least 1");
    EXPECT_EQ(check(RF_PIPELINE_GPIPE, 2, 0, 0, 0),
              "pipeline gpipe: 2 ranks and 0 micro-batches; both must be at least 1");
    EXPECT_EQ(check(RF_PIPELINE_GPIPE, 2, 4, -1, 0),
              "pipeline gpipe: -1 chunks and 0 steps; neither may be negative, and 0 means the "
              "default");
    EXPECT_EQ(check(RF_PIPELINE_GPIPE, 2, 4, 2, 0),
              "pipeline gpipe: a rank has 1 chunk, not 2; use 1, or interleaved, which takes any "
              "number");
    EXPECT_EQ(check(RF_PIPELINE_ZBV, 2, 4, 3, 0),
              "pipeline zbv: a rank has 2 chunks, not 3; use 2, or interleaved, which takes any "
              "number");
    EXPECT_EQ(check(RF_PIPELINE_1F1B, 2, 4, 0, 2),
              "pipeline 1f1b: 2 steps in one order, but it ends with each step; use 1 step, or "
              "2bw");
    for (int ranks : {2, INT_MAX})
        EXPECT_NE(check(RF_PIPELINE_INTERLEAVED, ranks, INT_MAX, INT_MAX, 0)
                      .find("more calls than can be numbered; use fewer micro-batches"),
                  std::string::npos);
}

TEST(PipelineRefusals, NamesAreFoundAndUnknownOnesListTheKnown)
{
    for (rf_pipeline_kind kind : pipeline_kinds) {
        rf_pipeline_kind found = RF_PIPELINE_COUNT;
        EXPECT_EQ(rf_pipeline_find(rf_pipeline_name(kind), &found), 0);
        EXPECT_EQ(found, kind);
    }
    rf_pipeline_kind found = RF_PIPELINE_COUNT;
    EXPECT_EQ(refused_message(rf_pipeline_find("1f2b", &found)),
              "pipeline '1f2b': unknown; use naive, gpipe, 1f1b, interleaved, zbh1, zbv or 2bw");
    EXPECT_EQ(found, RF_PIPELINE_COUNT);
    EXPECT_STREQ(rf_pipeline_name(RF_PIPELINE_COUNT), "?");
}

} // namespace
