// SPDX-License-Identifier: MIT
//
// Common errors in implementations of data parallelism, at every stage of sharding and in both
// orders (world.h, shardings): bits against one process in tree order, rounding in ring order.
#include <cmath>
#include <deque>
#include <random>
#include <thread>

#include "folder.h"
#include "world.h"

namespace
{

// 257 rows of a tied table: no number of ranks divides them, and cuts lie inside of parameters.
Training small(const Sharding &s)
{
    Training t;
    t.model = {1, 32, 4, 16, 257};
    t.policy.order = s.order;
    t.policy.zero = s.zero;
    t.shard = s.shard;
    t.policy.offload = s.offload;
    t.policy.clip = 0.25f; // below every norm seen, so it acts
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096; // one chunk of the norm: most ranks have none of it
    t.policy.bucket_bytes = 16384;
    t.ignored = 0.3;
    t.steps = 2;
    return t;
}

// The same on one process, without shards.
Training alone(Training t)
{
    t.policy.zero = t.shard = 0;
    t.policy.offload &= ~RF_OFFLOAD_GRADS;
    return t;
}

void expect_equal(const Seen &a, const Seen &b, const std::string &where)
{
    EXPECT_EQ(a.sha, b.sha) << where;
    EXPECT_EQ(a.loss, b.loss) << where;
    EXPECT_EQ(a.norm, b.norm) << where;
}

// All ranks have the bits of one process in tree order. In ring order replicas have equal bits, and
// losses and norms are those of one process up to rounding.
void expect_as_alone(const Training &t, int ranks, const Seen &one, const std::string &where)
{
    const std::vector<Seen> many = train(t, ranks);
    for (const Seen &s : many) {
        const std::string here = where + ", " + std::to_string(ranks) + " ranks";
        expect_equal(s, t.policy.order == RF_ORDER_TREE ? one : many[0], here);
        ASSERT_EQ(s.loss.size(), one.loss.size());
        for (size_t i = 0; i < one.loss.size(); i++) {
            EXPECT_NEAR(s.loss[i], one.loss[i], 1e-6 * one.loss[i]) << here;
            EXPECT_NEAR(s.norm[i], one.norm[i], 1e-6 * one.norm[i]) << here;
            EXPECT_EQ(s.stats[i].tokens, one.stats[i].tokens) << here;
        }
    }
}

// Blocks with hooks before their calls and after their gradients.
class Wrapped
{
  public:
    std::function<void()> before;
    std::function<int(rf_ctx *, int block)> after_weight;

    void wrap(std::vector<rf_block> &blocks)
    {
        for (rf_block &block : blocks) {
            inner_.push_back({this, block, (int)inner_.size()});
            block.self = &inner_.back();
            block.ops = &ops;
            block.varies = true;
        }
    }

  private:
    struct Inner {
        Wrapped *all;
        rf_block block;
        int index;
    };
    static Inner *enter(void *self)
    {
        Inner *inner = static_cast<Inner *>(self);
        if (inner->all->before)
            inner->all->before();
        return inner;
    }
    static int forward(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor out)
    {
        const rf_block &b = enter(self)->block;
        return b.ops->forward(ctx, b.self, in, out);
    }
    static int input(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout, rf_tensor din)
    {
        const rf_block &b = enter(self)->block;
        return b.ops->backward_input(ctx, b.self, in, dout, din);
    }
    static int weight(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout)
    {
        const Inner *inner = enter(self);
        int rc = inner->block.ops->backward_weight(ctx, inner->block.self, in, dout);
        return rc < 0 || !inner->all->after_weight ? rc
                                                   : inner->all->after_weight(ctx, inner->index);
    }
    static int sizes(const void *self, int64_t rows, int64_t seq, rf_block_sizes *out)
    {
        const rf_block &b = static_cast<const Inner *>(self)->block;
        return b.ops->sizes(b.self, rows, seq, out);
    }
    static constexpr rf_block_ops ops = {forward, input, weight, sizes};
    std::deque<Inner> inner_;
};

} // namespace

TEST(DataParallel, InTreeOrderEveryStageHasTheBitsOfOneProcess)
{
    const Seen one = train(alone(small({0, RF_ORDER_TREE})), 1)[0];
    for (float norm : one.norm)
        EXPECT_GT(norm, 0.25f) << "clipping acts";
    for (int zero : zero_stages)
        for (int ranks : {1, 3})
            expect_as_alone(small({zero, RF_ORDER_TREE}), ranks, one, std::to_string(zero));
}

TEST(DataParallel, InRingOrderEveryStageDiffersFromOneProcessByRoundingOnly)
{
    Training t = small({0, RF_ORDER_RING});
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    const std::vector<float> one = trained_parameters(t, 1);
    const Seen first = train(t, 1)[0];
    for (int zero : zero_stages)
        for (int ranks : {3, 4}) {
            t.policy.zero = zero;
            expect_as_alone(t, ranks, first, std::to_string(zero));
            // 2 steps of 0.1 times a gradient below 0.25, with 8 parts added.
            EXPECT_LE(worst_difference(trained_parameters(t, ranks), one), 1e-6f) << zero;
        }
}

TEST(DataParallel, ParametersBeginTheSameAtEveryStageOnAnyNumberOfRanks)
{
    Training t = small({0, RF_ORDER_RING});
    t.steps = 0;
    const std::string one = train(t, 1)[0].sha;
    for (int zero : zero_stages)
        for (int ranks = 1; ranks <= 4; ranks++) {
            t.policy.zero = zero;
            for (const Seen &s : train(t, ranks))
                EXPECT_EQ(s.sha, one) << zero << " on " << ranks;
        }
}

// Micro-batches with 1, 7, 32 and no tokens are weighted by their tokens, like one batch; so is a
// step without any.
TEST(DataParallel, EveryTokenCountsTheSameHoweverUnevenMicroBatchesAre)
{
    for (const Sharding &s : shardings()) {
        Training t = small(s);
        t.model.seq = 32;
        t.policy.batch = t.policy.micro_batches = 4;
        t.policy.seq = 32;
        t.policy.clip = 0;
        t.policy.optimizer.kind = RF_SGD;
        t.lr = 0.1f;
        t.edit_batch = [](int step, std::vector<int32_t> &, std::vector<int32_t> &targets) {
            const size_t valid[] = {1, 7, 32, 0};
            for (size_t i = 0; i < targets.size(); i++)
                if (step == 1 || i % 32 >= valid[i / 32])
                    targets[i] = -1;
                else
                    targets[i] = targets[i] < 0 ? 3 : targets[i];
        };
        Training whole = alone(t);
        const Seen one = train(whole, 1)[0];
        const std::vector<float> pieces = trained_parameters(whole, 1);
        whole.policy.micro_batches = 1;
        EXPECT_EQ(one.stats[0].tokens, 40);
        EXPECT_EQ(one.stats[1].tokens, 0);
        EXPECT_EQ(one.loss[1], 0);
        EXPECT_NEAR(one.loss[0], train(whole, 1)[0].loss[0], 1e-6 * one.loss[0]);
        EXPECT_LE(worst_difference(pieces, trained_parameters(whole, 1)), 1e-6f);
        for (int ranks : {2, 4})
            expect_as_alone(t, ranks, one, s.text());
    }
}

// The last batch of an epoch has 5 of 8 sequences: rank 3 of 4 has none.
TEST(DataParallel, ARankWithoutDataTakesPartInAShortLastBatch)
{
    for (const Sharding &s : all_shardings()) {
        Training t = small(s);
        t.ignored = 0;
        t.steps = 1;
        Training five = alone(t);
        five.policy.batch = five.policy.micro_batches = 5;
        t.edit_batch = [](int, std::vector<int32_t> &, std::vector<int32_t> &targets) {
            std::fill(targets.begin() + 5 * 16, targets.end(), -1);
        };
        const Seen one = train(five, 1)[0];
        EXPECT_EQ(one.stats[0].tokens, 5 * 16);
        expect_as_alone(t, 4, one, s.text());
    }
}

namespace
{

// Dropout whose masks are a function of the seed, the step and the element's global index.
struct Dropout {
    int64_t first = 0; // micro-batch that counts as the first

    static rf_random random(const rf_ctx *ctx, const void *self, rf_tensor t)
    {
        const int64_t at = ctx->micro_batch - static_cast<const Dropout *>(self)->first;
        return {ctx->seed, 4000 + (uint64_t)ctx->step, (uint64_t)(at * rf_tensor_count(t)),
                nullptr};
    }
    static int forward(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor out)
    {
        const rf_random r = random(ctx, self, out);
        return rf_dropout(ctx->stream, out, in, 0.1f, &r);
    }
    static int input(rf_ctx *ctx, void *self, rf_tensor, rf_tensor dout, rf_tensor din)
    {
        const rf_random r = random(ctx, self, dout);
        return rf_dropout(ctx->stream, din, dout, 0.1f, &r);
    }
    static int weight(rf_ctx *, void *, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->out = rf_shape2(rows, 32);
        return 0;
    }
};
const rf_block_ops dropout_ops = {Dropout::forward, Dropout::input, Dropout::weight,
                                  Dropout::sizes};

} // namespace

TEST(DataParallel, MasksOfDropoutAreThoseOfOneProcess)
{
    Dropout by_rank[4];
    const auto with_dropout = [&](const Sharding &s) {
        Training t = small(s);
        t.edit_blocks = [&](std::vector<rf_block> &blocks, int rank) {
            rf_block block = {};
            block.name = "dropout";
            block.ops = &dropout_ops;
            block.self = &by_rank[rank];
            block.varies = true; // the step is in the arguments of its launches
            blocks.insert(blocks.begin() + 1, block);
        };
        return t;
    };
    for (const Sharding &s : shardings()) {
        const Seen one = train(alone(with_dropout(s)), 1)[0];
        EXPECT_NE(one.sha, train(alone(small(s)), 1)[0].sha);
        for (int ranks : {2, 4})
            expect_as_alone(with_dropout(s), ranks, one, s.text());
        Training again = with_dropout(s);
        const Seen kept = train(again, 4)[0];
        again.policy.recompute = 1;
        expect_equal(train(again, 4)[0], kept, s.text() + ", recomputed");
    }
    // The control: by the index within the rank.
    const Sharding tree = {0, RF_ORDER_TREE};
    by_rank[1].first = 4;
    EXPECT_NE(train(with_dropout(tree), 2)[0].sha, train(with_dropout(tree), 1)[0].sha);
}

// The last element of a gradient is infinite on one rank, in its first micro-batch of the second
// step. Afterwards parameters, moments and Adam's count are as if that step had not happened.
TEST(DataParallel, AnInfinityOnAnyRankSkipsTheStepOnAll)
{
    for (const Sharding &s : all_shardings()) {
        const int ranks = s.shard ? 4 : s.offload ? 2 : 3;
        Training t = small(s);
        t.policy.loss_scale = 8;
        const std::string straight = train(t, ranks)[0].sha;
        const Training plain = t;
        t.steps = 3;
        t.edit_batch = [&](int step, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
            plain.batch(step > 0, tokens, targets);
        };
        for (int bad = 0; bad < ranks; bad++) {
            Wrapped wrapped[4];
            wrapped[bad].after_weight = [](rf_ctx *ctx, int block) {
                if (ctx->step != 1 || block != 1)
                    return 0;
                rf_tensor last = ctx->grads[0];
                last.offset += (uint64_t)(rf_tensor_count(last) - 1) * sizeof(float);
                last.shape = rf_shape1(1);
                return rf_fill(ctx->stream, last, INFINITY);
            };
            t.edit_blocks = [&](std::vector<rf_block> &blocks, int rank) {
                wrapped[rank].wrap(blocks);
            };
            t.after = [&](rf_run *run, rf_comm *, int) { EXPECT_EQ(run->updates, 2); };
            for (const Seen &seen : train(t, ranks)) {
                const std::string where = s.text() + ", rank " + std::to_string(bad);
                for (size_t step = 0; step < 3; step++) {
                    EXPECT_EQ(seen.stats[step].skipped, step == 1) << where;
                    EXPECT_EQ(seen.stats[step].loss_scale, step ? 4 : 8) << where;
                }
                EXPECT_EQ(seen.sha, straight) << where;
            }
        }
    }
}

TEST(DataParallel, ALossScaleOfAPowerOfTwoChangesNoBit)
{
    for (const Sharding &s : shardings()) {
        Training t = small(s);
        const Seen plain = train(t, 3)[0];
        t.policy.loss_scale = 1024;
        expect_equal(train(t, 3)[0], plain, s.text());
    }
}

// Saved on four ranks, resumed on two.
TEST(DataParallel, ACheckpointOfAnyStageGoesOnAtAnyOtherToTheSameBits)
{
    Training t = small({0, RF_ORDER_TREE});
    const std::string straight = train(t, 1)[0].sha;
    t.steps = 1;
    for (int from : zero_stages) {
        Folder folder;
        Training first = t, rest = t;
        first.policy.zero = from;
        first.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {1, t.seed, 8};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(first, 4);
        rest.first_step = 1;
        rest.before = [&](rf_run *run, rf_comm *, int) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
        };
        for (int to : zero_stages) {
            rest.policy.zero = to;
            for (const Seen &s : train(rest, 2))
                EXPECT_EQ(s.sha, straight) << "zero=" << from << ", then zero=" << to;
        }
    }
}

// Premature reuse of a buffer shows if a link takes longer than the computation.
TEST(DataParallel, SlowLinksAndRanksThatDawdleChangeNoBit)
{
    const int runs = getenv("RF_TEST_ALL") ? 10 : 1;
    for (const Sharding &s : all_shardings()) {
        const int ranks = s.shard ? 4 : s.offload ? 2 : 3;
        Training t = small(s);
        t.model.layers = 2; // gathered and reduced values reuse the memory of earlier ones
        const std::vector<Seen> plain = train(t, ranks);
        for (int run = 0; run < runs; run++) {
            Wrapped wrapped[4];
            std::mt19937 random[4];
            for (int r = 0; r < ranks; r++) {
                random[r].seed((unsigned)(7 * run + r));
                wrapped[r].before = [&random, r] {
                    std::this_thread::sleep_for(std::chrono::microseconds(random[r]() % 500));
                };
            }
            t.edit_blocks = [&](std::vector<rf_block> &blocks, int rank) {
                wrapped[rank].wrap(blocks);
            };
            t.loopback.latency_s = 1e-4;
            t.loopback.bytes_per_s = 1.6e7;
            const std::vector<Seen> slow = train(t, ranks);
            for (size_t r = 0; r < (size_t)ranks; r++)
                expect_equal(slow[r], plain[r], s.text());
        }
    }
}
