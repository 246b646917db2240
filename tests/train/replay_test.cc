// SPDX-License-Identifier: MIT
//
// Steps that are recorded once and replayed: the same bits as steps that are recorded each time;
// blocks that record differently in different steps are noticed, declared, or checked.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "stub_blocks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
#include "device/device.h"
}

namespace
{

Training small(rf_order order, int64_t micro_batches)
{
    Training t;
    t.model = {2, 32, 4, 16, 61};
    t.policy.order = order;
    t.policy.batch = t.policy.micro_batches = micro_batches;
    t.policy.clip = 0.25f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 16384;
    t.policy.optimizer.weight_decay = 0.1f;
    t.steps = 6;
    t.ignored = 0.3;
    return t;
}

// Sets an environment variable for its lifetime.
struct Environment {
    const char *name;
    Environment(const char *n, const char *value) : name(n)
    {
        setenv(name, value, 1);
    }
    ~Environment()
    {
        unsetenv(name);
    }
};

// A run of one block on one rank, whose tensors have one row: its loss is a given value.
struct Alone {
    StubBlocks stubs;
    rf_block block = {};
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    rf_step_stats stats = {};

    Alone(const rf_block_ops *ops, void *self, bool varies = false, int64_t elements = 64,
          uint32_t flags = 0)
    {
        stubs.add("a", {elements}).flag(0, flags);
        block = stubs.blocks()[0];
        block.ops = ops;
        block.self = self;
        block.varies = varies;
        rf_policy policy = {};
        policy.batch = policy.micro_batches = policy.seq = 1;
        policy.optimizer.kind = RF_SGD;
        rf_mesh mesh = {1, 1, 1};
        EXPECT_RF(rf_plan_build({&block, 1}, &mesh, &policy, 0, &plan));
        EXPECT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
    }
    ~Alone()
    {
        rf_run_close(run);
        rf_plan_destroy(plan);
    }
    int step()
    {
        const int32_t zero = 0;
        return rf_run_step(run, &zero, &zero, 0.5f, &stats);
    }
    double evaluate()
    {
        const int32_t zero = 0;
        double loss = 0;
        EXPECT_RF(rf_run_evaluate(run, &zero, &zero, 1, &loss));
        return loss;
    }
};

int no_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
{
    return 0;
}
int one_weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return rf_fill(ctx->stream, ctx->grads[0], 1.0f);
}
int one_row(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 4);
    return 0;
}

} // namespace

TEST(Replay, GivesTheSameBitsAsRecordingEachStepInBothOrdersOnOneToThreeRanks)
{
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int ranks = 1; ranks <= 3; ranks++) {
            Training t = small(order, 7);
            std::vector<Seen> replayed = train(t, ranks);
            t.record_each_step = true;
            std::vector<Seen> recorded = train(t, ranks);
            for (int r = 0; r < ranks; r++) {
                const Seen &a = replayed[(size_t)r], &b = recorded[(size_t)r];
                EXPECT_EQ(a.sha, b.sha) << ranks << " ranks, order " << order;
                EXPECT_EQ(a.loss, b.loss);
                EXPECT_EQ(a.norm, b.norm);
                EXPECT_EQ(a.measured.sent, b.measured.sent);
                EXPECT_EQ(a.measured.activations, b.measured.activations);
                for (int step = 0; step < t.steps; step++) {
                    EXPECT_EQ(a.stats[(size_t)step].recorded > 0, step < 2) << step;
                    EXPECT_EQ(a.stats[(size_t)step].replayed > 0, step >= 2) << step;
                    EXPECT_EQ(b.stats[(size_t)step].replayed, 0);
                }
            }
        }
}

TEST(Replay, EveryMicroBatchAndEveryBlockWithBucketsIsHandedOverOnItsOwn)
{
    Training t = small(RF_ORDER_RING, 8);
    std::vector<std::vector<uint64_t>> begun(2);
    std::set<int> reduced; // blocks whose backward pass is followed by a reduction
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        for (int k = 0; rank == 0 && k < run->plan->trained_pieces; k++)
            reduced.insert(run->plan->pieces[k].block);
        for (int step = 0; step < 2; step++) {
            std::vector<int32_t> tokens, targets;
            t.batch(step, tokens, targets);
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
            begun[(size_t)rank].push_back(rf_stream_recorded(run->stream));
        }
    };
    std::vector<Seen> seen = train(t, 2);
    ASSERT_GT(reduced.size(), 2u);
    for (int rank = 0; rank < 2; rank++) {
        // The forward pass of each micro-batch; then up to each such block; norm and update.
        EXPECT_EQ(seen[(size_t)rank].stats.back().replayed, 4 + (int)reduced.size() + 1);
        EXPECT_EQ(begun[(size_t)rank][0], begun[(size_t)rank][1]);
    }
}

TEST(Replay, ASkippedUpdateIsPassedOverAndTheNextStepsAreRight)
{
    Training t = small(RF_ORDER_RING, 4);
    // Skips one update among the recorded steps, and one among the replayed.
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (int step = 0; step < 2; step++) {
            std::vector<float> bias(32, 0.0f), good(32);
            std::vector<int32_t> tokens, targets;
            rf_step_stats stats = {};
            t.batch(step, tokens, targets);
            ASSERT_RF(rf_run_read_param(run, "ln_f.bias", good.data(), 128));
            bias[3] = INFINITY;
            ASSERT_RF(rf_run_write_param(run, "ln_f.bias", bias.data(), 128));
            const std::string before = sha_of(run);
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
            const std::string after = sha_of(run);
            EXPECT_TRUE(stats.skipped);
            EXPECT_EQ(before, after);
            ASSERT_RF(rf_run_write_param(run, "ln_f.bias", good.data(), 128));
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
            EXPECT_FALSE(stats.skipped);
        }
    };
    std::vector<std::string> shas;
    for (int steps : {1, 4})
        for (bool each : {false, true}) {
            t.steps = steps;
            t.record_each_step = each;
            std::string sha;
            auto inner = t.after;
            Training u = t;
            u.after = [&](rf_run *run, rf_comm *comm, int rank) {
                inner(run, comm, rank);
                sha = sha_of(run);
            };
            train(u, 1);
            shas.push_back(sha);
        }
    EXPECT_EQ(shas[0], shas[1]);
    EXPECT_EQ(shas[2], shas[3]);
}

TEST(Replay, EvaluationAndSamplingBetweenStepsAreReplayedToo)
{
    for (int ranks : {1, 2}) {
        Training t = small(RF_ORDER_RING, 4);
        t.steps = 2;
        std::vector<double> losses[2];
        uint64_t begun[4] = {};
        for (bool each : {false, true}) {
            t.record_each_step = each;
            t.after = [&](rf_run *run, rf_comm *, int rank) {
                for (int step = 0; step < 4; step++) {
                    std::vector<int32_t> tokens, targets;
                    std::vector<float> logits((size_t)run->plan->rows * 61);
                    double loss = 0;
                    t.batch(step, tokens, targets);
                    ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
                    ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 4, &loss));
                    ASSERT_RF(rf_run_forward(run, tokens.data(), logits.data(),
                                             logits.size() * sizeof(float)));
                    if (rank == 0) {
                        losses[each].push_back(loss);
                        losses[each].push_back((double)logits[17]);
                        if (!each)
                            begun[step] = rf_stream_recorded(run->stream);
                    }
                }
            };
            train(t, ranks);
        }
        EXPECT_EQ(losses[0], losses[1]);
        EXPECT_LT(begun[0], begun[1]);
        EXPECT_EQ(begun[2], begun[3]) << "everything was replayed";
    }
}

TEST(Replay, ABlockWhoseLaunchesDependOnTheStepIsNoticed)
{
    struct Dropout {
        static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->losses, (float)ctx->step);
        }
    };
    const rf_block_ops ops = {Dropout::forward, no_input, one_weight, one_row};
    Alone alone(&ops, nullptr);
    for (int i = 0; i < 6; i++) {
        ASSERT_RF(alone.step());
        EXPECT_EQ(alone.stats.loss, i);
        EXPECT_EQ(alone.stats.recorded, i < 2 ? 3 : 1) << i; // the rest does not depend on it
        EXPECT_EQ(alone.evaluate(), i + 1);
    }
}

TEST(Replay, WhatAKernelReadsFromTheScalarsIsThatOfTheStep)
{
    struct Reader {
        static int forward(rf_ctx *ctx, void *self, rf_tensor, rf_tensor)
        {
            ++*(int *)self;
            rf_tensor step = ctx->scalars;
            step.offset += offsetof(rf_step_scalars, step);
            step.shape = rf_shape1(1);
            return rf_copy(ctx->stream, ctx->losses, step);
        }
    };
    const rf_block_ops ops = {Reader::forward, no_input, one_weight, one_row};
    int calls = 0;
    Alone alone(&ops, &calls);
    for (int i = 0; i < 6; i++) {
        ASSERT_RF(alone.step());
        EXPECT_EQ(alone.stats.loss, i + 1);
    }
    EXPECT_EQ(calls, 2);
}

TEST(Replay, ABlockThatSaysItVariesIsAlwaysCalledAndAChangeLaterIsFoundByTheCheck)
{
    struct Late {
        static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->losses, ctx->step < 4 ? 1.0f : 2.0f);
        }
    };
    const rf_block_ops ops = {Late::forward, no_input, one_weight, one_row};
    Alone declared(&ops, nullptr, true);
    for (int i = 0; i < 6; i++) {
        ASSERT_RF(declared.step());
        EXPECT_EQ(declared.stats.loss, i < 4 ? 1 : 2);
    }
    Environment check("RF_CHECK_REPLAY", "1");
    Alone checked(&ops, nullptr);
    for (int i = 0; i < 4; i++)
        ASSERT_RF(checked.step());
    EXPECT_EQ(checked.step(), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "was fill and is now fill"), nullptr)
        << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, "varies"), nullptr);
}

TEST(Replay, WithoutTheCheckAChangeIsAnErrorAtTheNextSpotCheck)
{
    struct Late {
        static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->losses, ctx->step < 20 ? 1.0f : 2.0f);
        }
    };
    const rf_block_ops ops = {Late::forward, no_input, one_weight, one_row};
    Alone alone(&ops, nullptr);
    for (int i = 0; i < 32; i++) {
        ASSERT_RF(alone.step());
        EXPECT_EQ(alone.stats.recorded, i < 2 || i == 16 ? 3 : 0) << i;
    }
    EXPECT_EQ(alone.step(), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "varies"), nullptr) << rf_last_error()->message;
}

TEST(Replay, TheCheckFindsNothingInTheModelAndChangesNoBit)
{
    Training t = small(RF_ORDER_TREE, 4);
    const std::string sha = train(t, 2)[0].sha;
    Environment check("RF_CHECK_REPLAY", "1");
    Seen checked = train(t, 2)[0];
    EXPECT_EQ(checked.sha, sha);
    EXPECT_EQ(checked.stats.back().replayed, 0);
}

// The check fills the outputs of blocks with NaN first.
TEST(Replay, EveryGradientThatIsNotClearedIsWrittenByTheFirstMicroBatchAndAddedToByOthers)
{
    Environment check("RF_CHECK_REPLAY", "1");
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE}) {
        std::vector<float> sums[2];
        for (int k = 0; k < 2; k++) {
            Training t = small(order, k == 0 ? 1 : 4);
            t.model = {2, 64, 4, 16, 300};
            t.policy.batch = 4;
            t.steps = 1;
            int written = 0;
            t.after = [&](rf_run *run, rf_comm *, int) {
                for (int i = 0; i < run->plan->param_count; i++) {
                    const rf_plan_param &param = run->plan->params[i];
                    written += param.overwrite_grad;
                    std::vector<float> grad((size_t)param.count);
                    ASSERT_RF(rf_run_read_grad(run, param.desc->name, grad.data(),
                                               grad.size() * sizeof(float)));
                    if (param.owner == i)
                        sums[k].insert(sums[k].end(), grad.begin(), grad.end());
                }
            };
            train(t, 1);
            EXPECT_EQ(written, 2 * 2 + 1); // for each layer those of the MLP; and the head's table
        }
        // Other parts of a sum of 64 tokens, hence other roundings.
        ASSERT_EQ(sums[0].size(), sums[1].size());
        double difference = 0, norm = 0;
        for (size_t i = 0; i < sums[0].size(); i++) {
            difference += std::pow((double)sums[0][i] - (double)sums[1][i], 2);
            norm += std::pow((double)sums[0][i], 2);
        }
        EXPECT_GT(norm, 0);
        EXPECT_LT(std::sqrt(difference / norm), 1e-5) << order;
    }
}

TEST(Replay, ABlockThatDoesNotWriteWhatItSaysIsFound)
{
    struct Lazy {
        static int wide(const void *, int64_t rows, int64_t, rf_block_sizes *out)
        {
            *out = {};
            out->out = rf_shape2(rows, 4);
            return 0;
        }
        static int loss(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->losses, 1.0f);
        }
        static int nothing(rf_ctx *, void *, rf_tensor, rf_tensor)
        {
            return 0;
        }
    };
    const rf_block_ops ops = {Lazy::loss, no_input, Lazy::nothing, Lazy::wide};
    Environment check("RF_CHECK_REPLAY", "1");
    Alone alone(&ops, nullptr, false, 16384, RF_PARAM_OVERWRITE_GRAD);
    EXPECT_EQ(alone.step(), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "RF_PARAM_OVERWRITE_GRAD"), nullptr)
        << rf_last_error()->message;
}

TEST(Replay, ABufferThatABlockMakesAnewIsRecordedAnew)
{
    struct Own {
        rf_tensor table = {};
        static int forward(rf_ctx *ctx, void *self, rf_tensor, rf_tensor)
        {
            return rf_copy(ctx->stream, ctx->losses, ((Own *)self)->table);
        }
        void make(float value)
        {
            rf_buffer_destroy(table.buffer);
            ASSERT_RF(rf_tensor_create(rank_device(0), rf_shape1(1), RF_F32, &table));
            ASSERT_RF(rf_tensor_write(table, &value, sizeof(value)));
        }
    } own;
    const rf_block_ops ops = {Own::forward, no_input, one_weight, one_row};
    own.make(0);
    {
        Alone alone(&ops, &own);
        for (int i = 0; i < 8; i++) {
            if (i == 5)
                own.make(9);
            ASSERT_RF(alone.step());
            EXPECT_EQ(alone.stats.loss, i < 5 ? 0 : 9) << i;
            EXPECT_EQ(alone.stats.recorded > 0, i < 2 || i == 5 || i == 6) << i;
        }
    }
    rf_buffer_destroy(own.table.buffer);
}
