// SPDX-License-Identifier: MIT
//
// Pipelines without a flush (PipeDream-2BW): every step computes its gradients with the weights
// before the last update, the same on every rank and mesh, and independent of drains.
#include <memory>

#include "folder.h"
#include "mesh_case.h"

extern "C" {
#include "parallel/plan/plan.h"
}

namespace
{

Training gpt(rf_order order)
{
    Training t = clipped_training(5);
    t.model.layers = 4;
    t.policy.order = order;
    return t;
}

// A block of one process whose parameters differ from the updated ones.
struct Shadowed {
    rf_block inner = {};
    rf_block_ops ops = {};
    std::vector<rf_tensor> params;

    rf_ctx seen(const rf_ctx *ctx) const
    {
        rf_ctx other = *ctx;
        other.params = params.data();
        return other;
    }
    static int forward(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor out)
    {
        Shadowed *s = (Shadowed *)self;
        rf_ctx other = s->seen(ctx);
        return s->inner.ops->forward(&other, s->inner.self, in, out);
    }
    static int input(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout, rf_tensor din)
    {
        Shadowed *s = (Shadowed *)self;
        rf_ctx other = s->seen(ctx);
        return s->inner.ops->backward_input(&other, s->inner.self, in, dout, din);
    }
    static int weight(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout)
    {
        Shadowed *s = (Shadowed *)self;
        rf_ctx other = s->seen(ctx);
        return s->inner.ops->backward_weight(&other, s->inner.self, in, dout);
    }
    static int sizes(const void *self, int64_t rows, int64_t seq, rf_block_sizes *out)
    {
        const Shadowed *s = (const Shadowed *)self;
        return s->inner.ops->sizes(s->inner.self, rows, seq, out);
    }
};

// One process without any pipeline, W(t+1) = optimizer(W(t), gradients at W(t-1)): its blocks see
// copies of the parameters, which this test writes before every step.
class Delayed
{
  public:
    explicit Delayed(Training t) : t_(t)
    {
        t_.pp = 1;
        t_.policy.pipeline = RF_PIPELINE_1F1B;
        t_.edit_blocks = [this](std::vector<rf_block> &blocks, int) { shadow(blocks); };
        t_.before = [this](rf_run *run, rf_comm *, int) {
            run_ = run;
            versions_.clear();
        };
        t_.edit_batch = [this](int, std::vector<int32_t> &, std::vector<int32_t> &) { delay(); };
        result_ = train(t_, 1)[0];
        for (auto &shadowed : blocks_)
            for (rf_tensor &tensor : shadowed->params)
                rf_buffer_destroy(tensor.buffer);
    }
    const Seen &seen() const
    {
        return result_;
    }

  private:
    void shadow(std::vector<rf_block> &blocks)
    {
        for (rf_block &block : blocks) {
            blocks_.push_back(std::make_unique<Shadowed>());
            Shadowed *s = blocks_.back().get();
            s->inner = block;
            s->ops = {Shadowed::forward, Shadowed::input, Shadowed::weight, Shadowed::sizes, {}};
            for (int k = 0; k < block.param_count; k++) {
                const rf_param_desc &desc = block.params[k];
                rf_tensor tensor = {};
                ASSERT_RF(rf_tensor_create(rank_device(0), desc.shape, desc.dtype, &tensor));
                s->params.push_back(tensor);
            }
            block.ops = &s->ops;
            block.self = s;
        }
    }
    // All current parameters; the blocks get those of one update before.
    void delay()
    {
        std::vector<std::vector<float>> now;
        for (auto &s : blocks_)
            for (int k = 0; k < s->inner.param_count; k++) {
                const rf_param_desc &desc = s->inner.params[k];
                now.emplace_back((size_t)rf_shape_count(desc.shape));
                ASSERT_RF(rf_run_read_param(run_, desc.name, now.back().data(),
                                            now.back().size() * sizeof(float)));
            }
        versions_.push_back(now);
        const auto &seen = versions_[versions_.size() < 2 ? 0 : versions_.size() - 2];
        size_t at = 0;
        for (auto &s : blocks_)
            for (rf_tensor &tensor : s->params)
                put(tensor, seen[at++]);
    }
    static void put(rf_tensor to, const std::vector<float> &values)
    {
        if (to.dtype == RF_F32) {
            ASSERT_RF(rf_tensor_write(to, values.data(), values.size() * sizeof(float)));
            return;
        }
        rf_tensor wide = {};
        rf_stream *stream = nullptr;
        ASSERT_RF(rf_tensor_create(rank_device(0), to.shape, RF_F32, &wide));
        ASSERT_RF(rf_tensor_write(wide, values.data(), values.size() * sizeof(float)));
        ASSERT_RF(rf_stream_create(rank_device(0), "cast", &stream));
        ASSERT_RF(rf_cast(stream, to, wide));
        ASSERT_RF(rf_stream_wait(stream));
        rf_stream_destroy(stream);
        rf_buffer_destroy(wide.buffer);
    }

    Training t_;
    std::vector<std::unique_ptr<Shadowed>> blocks_;
    std::vector<std::vector<std::vector<float>>> versions_;
    rf_run *run_ = nullptr;
    Seen result_;
};

Training lagging(const Training &plain, int pp)
{
    Training t = plain;
    t.pp = pp;
    t.policy.pipeline = RF_PIPELINE_2BW;
    return t;
}

void expect_same(const Seen &s, const Seen &one, const std::string &where)
{
    EXPECT_EQ(s.sha, one.sha) << where;
    EXPECT_EQ(s.loss, one.loss) << where;
    EXPECT_EQ(s.norm, one.norm) << where;
    expect_planned(s, where);
    for (size_t k = 0; k < s.stats.size(); k++) {
        EXPECT_EQ(s.stats[k].of_step, (int64_t)k) << where;
        EXPECT_EQ(s.stats[k].version_lag, 1) << where;
    }
}

} // namespace

TEST(Lag, InTreeOrderItIsOneProcessWhoseGradientsAreOfOneUpdateBefore)
{
    for (int micro_batches : {4, 7}) {
        Training plain = gpt(RF_ORDER_TREE);
        plain.policy.batch = plain.policy.micro_batches = micro_batches;
        const Delayed one(plain);
        for (int pp : {2, 3, 4}) {
            if (micro_batches == 7 && pp != 3)
                continue;
            for (const Seen &s : train(lagging(plain, pp), pp))
                expect_same(s, one.seen(),
                            "pp " + std::to_string(pp) + " m " + std::to_string(micro_batches));
        }
    }
}

TEST(Lag, DataParallelRanksGiveTheSameBits)
{
    Training plain = gpt(RF_ORDER_TREE);
    plain.steps = 3;
    const Delayed one(plain);
    for (const Seen &s : train(lagging(plain, 2), 4))
        expect_same(s, one.seen(), "dp 2, pp 2");
}

TEST(Lag, InRingOrderAndIn16BitsItIsTheSame)
{
    Training plain = gpt(RF_ORDER_RING);
    plain.llama = {4, 32, 4, 2, 64, 61};
    plain.llama.dtype = RF_BF16;
    plain.policy.batch = plain.policy.micro_batches = 5;
    plain.steps = 4;
    const Delayed one(plain);
    for (const Seen &s : train(lagging(plain, 3), 3))
        expect_same(s, one.seen(), "bf16, ring, pp 3");
}

TEST(Lag, WhateverIsDrainedWhenTheBitsAreTheSame)
{
    Training t = lagging(gpt(RF_ORDER_TREE), 2);
    t.policy.batch = t.policy.micro_batches = 3;
    const Seen one = train(t, 2)[0];
    for (int every : {1, 2}) {
        t.drain_every = every;
        for (const Seen &s : train(t, 2))
            expect_same(s, one, "drained after " + std::to_string(every));
    }
}

// Both versions are in a checkpoint.
TEST(Lag, ACheckpointGoesOnToTheBitsOfARunThatWasNotInterrupted)
{
    const Folder folder;
    Training whole = lagging(gpt(RF_ORDER_TREE), 2);
    whole.policy.batch = whole.policy.micro_batches = 4;
    whole.steps = 4;
    const Seen one = train(whole, 2)[0];
    Training first = whole;
    first.steps = 2;
    first.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {2, 5, 8, 0, 0};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    train(first, 2);
    Training rest = whole;
    rest.steps = rest.first_step = 2;
    rest.pp = 3; // stages of another mesh
    rest.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
        EXPECT_EQ(progress.step, 2);
    };
    for (const Seen &s : train(rest, 3)) {
        EXPECT_EQ(s.sha, one.sha);
        EXPECT_EQ(s.loss, std::vector<double>(one.loss.begin() + 2, one.loss.end()));
    }
    // Another schedule continues from the newest version.
    rest.policy.pipeline = RF_PIPELINE_1F1B;
    rest.steps = 1;
    const std::vector<Seen> flushed = train(rest, 3);
    EXPECT_EQ(flushed[0].loss.size(), 1u);
    EXPECT_NE(flushed[0].loss[0], one.loss[2]);
}

TEST(Lag, ACheckpointWithOneVersionIsRefused)
{
    const Folder folder;
    Training t = gpt(RF_ORDER_RING);
    t.pp = 2;
    t.steps = 1;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {1, 5, 8, 0, 0};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    train(t, 2);
    Training u = lagging(t, 2);
    u.after = nullptr;
    u.before = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("continues from two"),
                  std::string::npos)
            << rf_last_error()->message;
    };
    train(u, 2);
}

TEST(Lag, WhatNeedsWholeStepsSaysThatOneIsUnderWay)
{
    const Folder folder;
    Training t = lagging(gpt(RF_ORDER_RING), 2);
    t.steps = 1;
    t.before = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        std::vector<float> values(61 * 32);
        rf_step_stats stats = {};
        rf_progress progress = {};
        double loss = 0;
        const auto refuses = [&](int rc) {
            EXPECT_EQ(rc, RF_EINVAL);
            EXPECT_NE(std::string(rf_last_error()->message).find("call rf_run_drain first"),
                      std::string::npos)
                << rf_last_error()->message;
        };
        t.batch(0, tokens, targets);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0.01f, &stats));
        EXPECT_EQ(stats.of_step, -1);
        refuses(rf_run_evaluate(run, tokens.data(), targets.data(), 1, &loss));
        refuses(rf_run_forward(run, tokens.data(), values.data(), 16 * 61 * 4));
        refuses(rf_run_save(run, folder.path().c_str(), &progress));
        refuses(rf_run_write_param(run, "wte.weight", values.data(), values.size() * 4));
        ASSERT_RF(rf_run_drain(run, &stats));
        EXPECT_EQ(stats.of_step, 0);
        ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 1, &loss));
        ASSERT_RF(rf_run_drain(run, &stats));
        EXPECT_EQ(stats.of_step, -1);
    };
    const Seen s = train(t, 2)[0];
    EXPECT_EQ(s.stats[0].of_step, 1);
}

// For each trained parameter one more f32 than with a flush, and one more gradient.
TEST(Lag, TheSecondVersionIsInThePlannedBytes)
{
    Training t = gpt(RF_ORDER_RING);
    t.pp = 2;
    t.steps = 1;
    const std::vector<Seen> flush = train(t, 2), lag = train(lagging(t, 2), 2);
    for (int rank = 0; rank < 2; rank++) {
        const rf_bytes &a = flush[(size_t)rank].planned, &b = lag[(size_t)rank].planned;
        EXPECT_EQ(b.params, a.params);
        EXPECT_EQ(b.optimizer, a.optimizer / 2 * 3); // AdamW has two states
        EXPECT_EQ(b.grads - a.grads, b.optimizer - a.optimizer);
        expect_planned(lag[(size_t)rank], "rank");
    }
}
