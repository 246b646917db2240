// SPDX-License-Identifier: MIT
//
// Orders of pipelines end with nothing buffered, and the idle time of ranks is that of the
// formulas.
#include <algorithm>
#include <climits>
#include <cmath>

#include "pipeline_orders.h"

namespace
{

// ---- time

// By longest paths, in the order of the lists, without transfers.
double longest_path(const Pipeline &p, double forward_s, double input_s, double weight_s)
{
    const int stages = rf_pipeline_stages(&p), total = p.total();
    std::vector<double> out((size_t)(stages * total), -1), grad(out), end((size_t)p.ranks);
    std::vector<size_t> at((size_t)p.ranks);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p.ranks; r++)
            for (; at[r] < p.calls[r].size(); at[r]++, moved = true) {
                const rf_pipeline_call &call = p.calls[r][at[r]];
                const int stage = rf_pipeline_stage(&p, r, call.chunk);
                const size_t mine = (size_t)(stage * total + call.micro_batch);
                double ready = 0;
                if (call.verb == RF_VERB_FORWARD && stage > 0)
                    ready = out[mine - total];
                if (call.verb == RF_VERB_BACKWARD_INPUT && stage < stages - 1)
                    ready = grad[mine + total];
                if (ready < 0)
                    break;
                end[r] =
                    std::max(end[r], ready) + (call.verb == RF_VERB_FORWARD          ? forward_s
                                               : call.verb == RF_VERB_BACKWARD_INPUT ? input_s
                                                                                     : weight_s);
                if (call.verb == RF_VERB_FORWARD)
                    out[mine] = end[r];
                if (call.verb == RF_VERB_BACKWARD_INPUT)
                    grad[mine] = end[r];
            }
    }
    for (int r = 0; r < p.ranks; r++)
        EXPECT_EQ(at[r], p.calls[r].size()) << p.text() << ": deadlock";
    return *std::max_element(end.begin(), end.end());
}

TEST(PipelineTime, WithoutTransfersItIsTheLongestPath)
{
    for_each_pipeline(
        [](const Pipeline &p) { ASSERT_EQ(p.makespan(2, 3, 1), longest_path(p, 2, 3, 1)); });
}

// The textbook counts a backward pass as one.
TEST(PipelineTime, GPipeAnd1F1BIdleForOneLessThanRanksOfAllSlots)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 3 * p + 3; m++)
            for (rf_pipeline_kind kind : {RF_PIPELINE_GPIPE, RF_PIPELINE_1F1B}) {
                const Pipeline pipe(kind, p, m);
                std::vector<rf_pipeline_span> spans;
                const double time_s = pipe.makespan(1, 2, 0, &spans);
                EXPECT_EQ(time_s, 3 * (m + p - 1)) << pipe.text();
                EXPECT_DOUBLE_EQ(1 - spans[0].busy_s / time_s, (p - 1.0) / (m + p - 1));
                // Gradients are sent before the weight half: the others wait for two of three
                // parts.
                EXPECT_EQ(pipe.makespan(1, 1, 1), 3 * m + 2 * (p - 1)) << pipe.text();
            }
}

TEST(PipelineTime, OneMicroBatchAfterTheOtherTakesAsLongAsOneRank)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= p + 3; m++)
            EXPECT_EQ(Pipeline(RF_PIPELINE_NAIVE, p, m).makespan(1, 2, 0), 3 * p * m);
}

TEST(PipelineTime, ChunksDivideTheIdleTime)
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 3 * p; m += p)
            for (int v = 1; v <= 4; v++) {
                const Pipeline pipe(RF_PIPELINE_INTERLEAVED, p, m, v);
                const double ideal_s = 3 * v * m;
                EXPECT_EQ((pipe.makespan(1, 2, 0) - ideal_s) * v * m, (p - 1) * ideal_s)
                    << pipe.text();
            }
}

TEST(PipelineTime, ZBH1IdlesAThirdOfWhat1F1BDoes)
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 3 * p + 3; m++) {
            const Pipeline pipe(RF_PIPELINE_ZBH1, p, m);
            const double ideal_s = 3 * m;
            EXPECT_EQ((pipe.makespan(1, 1, 1) - ideal_s) * 3 * m, (p - 1) * ideal_s) << pipe.text();
        }
}

TEST(PipelineTime, ZBVNeverIdlesBetweenItsFirstCallAndItsLast)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 2 * p; m <= 3 * p + 3; m++) {
            const Pipeline pipe(RF_PIPELINE_ZBV, p, m);
            std::vector<rf_pipeline_span> spans;
            EXPECT_EQ(pipe.makespan(1, 1, 1, &spans), 6 * m + p - 1) << pipe.text();
            for (const rf_pipeline_span &span : spans)
                EXPECT_EQ(span.end_s - span.begin_s, span.busy_s) << pipe.text();
        }
}

TEST(PipelineTime, DividedBackwardPassesAreNeverSlowerThan1F1B)
{
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 3 * p + 3; m++) {
            const double time_s = Pipeline(RF_PIPELINE_1F1B, p, m).makespan(2, 2, 2);
            EXPECT_LE(Pipeline(RF_PIPELINE_ZBH1, p, m).makespan(2, 2, 2), time_s);
            EXPECT_LE(Pipeline(RF_PIPELINE_ZBV, p, m).makespan(1, 1, 1), time_s);
        }
}

rf_pipeline_run_opts with_transfers(rf_pipeline_lanes lanes, int receive_ahead)
{
    rf_pipeline_run_opts opts = {};
    opts.forward_s = 2;
    opts.backward_input_s = 3;
    opts.backward_weight_s = 1;
    opts.transfer_s = 5;
    opts.lanes = lanes;
    opts.receive_ahead = receive_ahead;
    return opts;
}

// Worked out by hand: rank 0 forward [0, 2), transfer [2, 7), rank 1 forward [7, 9), input [9, 12),
// transfer [12, 17) beside the weight half, rank 0 input [17, 20), weight [20, 21).
TEST(PipelineTime, AGradientLeavesBesideTheWeightHalfUnlessTransfersBlock)
{
    const Pipeline pipe(RF_PIPELINE_GPIPE, 2, 1);
    std::vector<rf_pipeline_span> spans;
    double time_s = 0;
    ASSERT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s, &spans), 0);
    EXPECT_EQ(time_s, 21);
    EXPECT_EQ(spans[1].begin_s, 7);
    EXPECT_EQ(spans[1].end_s, 13);
    EXPECT_EQ(spans[0].busy_s, 6);
    ASSERT_EQ(pipe.run(with_transfers(RF_PIPELINE_BLOCKING, 0), &time_s, &spans), 0);
    EXPECT_EQ(time_s, 21);
    EXPECT_EQ(spans[1].end_s, 18);
}

// By hand, receives posted when they are needed, then one call ahead:
//   rank 0 forward     [0, 2)  [2, 4)
//   outputs            [2, 7)  [9, 14)       [2, 7)  [7, 12)
//   rank 1 forward     [7, 9)  [14, 16)      [7, 9)  [12, 14)
//   rank 1 backward    [16, 20)  [20, 24)    [14, 18)  [18, 22)    a gradient is made after 3 of 4
//   gradients          [19, 24)  [28, 33)    [17, 22)  [25, 30)    posted before I, before W
//   rank 0 backward    [24, 28)  [33, 37)    [22, 26)  [30, 34)
TEST(PipelineTime, ATransferWaitsForItsReceiveToBePosted)
{
    const Pipeline pipe(RF_PIPELINE_GPIPE, 2, 2);
    double time_s = 0;
    ASSERT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s), 0);
    EXPECT_EQ(time_s, 37);
    ASSERT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 1), &time_s), 0);
    EXPECT_EQ(time_s, 34);
}

// By hand, with calls that take no time except the weight half, 1 s, and transfers of 2 s:
//   outputs to rank 1      [0, 2)  [2, 4)
//   outputs to rank 2      [2, 4)  [5, 7)    posted after its first weight half, [4, 5)
//   gradients to rank 1    [4, 6)  [7, 9)
//   gradients to rank 0    [6, 8)  [9, 11)   on a lane of their own; weight halves [8, 9) [11, 12)
//   or, beside the outputs [7, 9)  [10, 12)  after the second output; [9, 10) [12, 13)
TEST(PipelineTime, ALaneDoesOneTransferAtATime)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 3, 2);
    rf_pipeline_run_opts opts = {};
    opts.backward_weight_s = 1;
    opts.transfer_s = 2;
    double time_s = 0;
    ASSERT_EQ(pipe.run(opts, &time_s), 0);
    EXPECT_EQ(time_s, 12);
    opts.lanes = RF_PIPELINE_BY_DIRECTION;
    ASSERT_EQ(pipe.run(opts, &time_s), 0);
    EXPECT_EQ(time_s, 13);
}

// By hand; every call and every transfer takes 1 s (S: sends, R: receives):
//   rank 0  F [0, 1) S [1, 2) F [2, 3) S [4, 5)  R [11, 12) I W [12, 14)  R [15, 16) I W [16, 18)
//   rank 1  R [1, 2) F [2, 3) S [3, 4) R [4, 5) F [5, 6) S [6, 7)
//           R [9, 10) I [10, 11) S [11, 12) W [12, 13)  R [13, 14) I [14, 15) S [15, 16) W [16, 17)
//   rank 2  R [3, 4) F [4, 5) R [6, 7) F [7, 8)
//           I [8, 9) S [9, 10) W [10, 11) I [11, 12) S [13, 14) W [14, 15)
TEST(PipelineTime, BlockingRanksDoOneThingAtATime)
{
    const Pipeline pipe(RF_PIPELINE_GPIPE, 3, 2);
    rf_pipeline_run_opts opts = {};
    opts.forward_s = opts.backward_input_s = opts.backward_weight_s = opts.transfer_s = 1;
    opts.lanes = RF_PIPELINE_BLOCKING;
    std::vector<rf_pipeline_span> spans;
    double time_s = 0;
    ASSERT_EQ(pipe.run(opts, &time_s, &spans), 0);
    EXPECT_EQ(time_s, 18);
    EXPECT_EQ(spans[1].end_s, 17);
    EXPECT_EQ(spans[2].end_s, 15);
}

// ---- no deadlock

TEST(PipelineProof, ALaneForEachPeerAndKindIsEnoughForEveryKindWithNothingBuffered)
{
    for_each_pipeline([](const Pipeline &p) {
        for (int ahead : {0, INT_MAX}) {
            double time_s = 0;
            ASSERT_EQ(p.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, ahead), &time_s), 0)
                << p.text() << ": " << rf_last_error()->message;
            ASSERT_GE(time_s, longest_path(p, 2, 3, 1)) << p.text();
        }
    });
}

TEST(PipelineProof, ALaneForEachDirectionIsEnoughForAllButZBV)
{
    for_each_pipeline([](const Pipeline &p) {
        double time_s = 0;
        if (p.kind == RF_PIPELINE_ZBV)
            return;
        ASSERT_EQ(p.run(with_transfers(RF_PIPELINE_BY_DIRECTION, 0), &time_s), 0)
            << p.text() << ": " << rf_last_error()->message;
    });
    const Pipeline zbv(RF_PIPELINE_ZBV, 4, 8);
    double time_s = 0;
    for (rf_pipeline_lanes lanes :
         {RF_PIPELINE_BY_PEER, RF_PIPELINE_BY_KIND, RF_PIPELINE_BY_DIRECTION})
        EXPECT_EQ(zbv.run(with_transfers(lanes, 0), &time_s), RF_EINVAL) << lanes;
}

TEST(PipelineProof, BlockingTransfersEndWhereRanksDoNotSendToEachOtherAtOnce)
{
    for_each_pipeline([](const Pipeline &p) {
        const bool ends = p.kind == RF_PIPELINE_NAIVE || p.kind == RF_PIPELINE_GPIPE ||
                          p.ranks == 1 || p.total() == 1;
        if (p.kind == RF_PIPELINE_2BW && p.steps > 1)
            return;
        double time_s = 0;
        ASSERT_EQ(p.run(with_transfers(RF_PIPELINE_BLOCKING, 0), &time_s), ends ? 0 : RF_EINVAL)
            << p.text();
    });
}

TEST(PipelineProof, ADeadlockNamesTheCallThatWaits)
{
    Pipeline pipe(RF_PIPELINE_GPIPE, 2, 2);
    std::swap(pipe.calls[1][0], pipe.calls[1][1]); // the second output first, on one lane
    double time_s = 7;
    EXPECT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s), RF_EINVAL);
    EXPECT_EQ(time_s, 7);
    EXPECT_NE(std::string(rf_last_error()->message)
                  .find("call 2 of rank 0, backward input of micro-batch 0, chunk 0, waits "
                        "forever"),
              std::string::npos)
        << rf_last_error()->message;
}

TEST(PipelineProof, ChunksOfOneRankInTheWrongOrderAreADeadlock)
{
    Pipeline pipe(RF_PIPELINE_ZBV, 1, 1);
    double time_s = 0;
    ASSERT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s), 0);
    EXPECT_EQ(time_s, 12); // stages of one rank pass values on at once
    std::swap(pipe.calls[0][0], pipe.calls[0][1]);
    EXPECT_EQ(pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s), RF_EINVAL);
}

TEST(PipelineProof, CallsThatAreMissingDoubledOrTooEarlyAreNamed)
{
    const Pipeline good(RF_PIPELINE_1F1B, 2, 3);
    const auto refused = [&](const std::function<void(std::vector<rf_pipeline_call> &)> &change) {
        Pipeline bad = good;
        change(bad.calls[1]);
        double time_s = 0;
        EXPECT_EQ(bad.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s), RF_EINVAL);
        return std::string(rf_last_error()->message);
    };
    EXPECT_NE(refused([](auto &calls) { calls[3] = calls[0]; }).find("call 3 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { std::swap(calls[0], calls[1]); }).find("call 0 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { std::swap(calls[1], calls[2]); }).find("call 1 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { calls[5].micro_batch = 3; }).find("call 5 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { calls[6].chunk = 1; }).find("call 6 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { calls[8].micro_batch = 1; }).find("call 8 of rank 1"),
              std::string::npos);
    EXPECT_NE(refused([](auto &calls) { calls[8].verb = RF_VERB_STEP; }).find("call 8 of rank 1"),
              std::string::npos);
}

TEST(PipelineProof, OptionsThatMakeNoSenseAreRefused)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 2, 3);
    double time_s = 0;
    rf_pipeline_run_opts opts = with_transfers(RF_PIPELINE_BLOCKING, 1);
    EXPECT_EQ(pipe.run(opts, &time_s), RF_EINVAL);
    opts = with_transfers(RF_PIPELINE_BY_PEER, -1);
    EXPECT_EQ(pipe.run(opts, &time_s), RF_EINVAL);
    opts = with_transfers((rf_pipeline_lanes)5, 0);
    EXPECT_EQ(pipe.run(opts, &time_s), RF_EINVAL);
    opts = with_transfers(RF_PIPELINE_BY_PEER, 0);
    opts.backward_input_s = std::nan("");
    EXPECT_EQ(pipe.run(opts, &time_s), RF_EINVAL);
    opts.backward_input_s = -1;
    EXPECT_EQ(pipe.run(opts, &time_s), RF_EINVAL);
}

TEST(PipelineProof, SixtyFourStagesOfFiveHundredTwelveMicroBatchesEnd)
{
    EXPECT_EQ(Pipeline(RF_PIPELINE_1F1B, 64, 512).makespan(1, 2, 0), 3 * (512 + 63));
    EXPECT_EQ(Pipeline(RF_PIPELINE_ZBV, 32, 512).makespan(1, 1, 1), 6 * 512 + 31);
}

TEST(PipelineProof, RunningOutOfMemoryIsAnError)
{
    const Pipeline pipe(RF_PIPELINE_1F1B, 2, 3);
    expect_enomem_at_each_allocation([&] {
        double time_s = 0;
        return pipe.run(with_transfers(RF_PIPELINE_BY_PEER_AND_KIND, 0), &time_s);
    });
}

} // namespace
