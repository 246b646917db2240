// SPDX-License-Identifier: MIT
//
// The effective batch in pieces: memory in proportion to a micro-batch, the same bits wherever
// micro-batches of one size are computed, and the samples with which a run continues on other ranks
// or with another batch.
#include <algorithm>
#include <map>
#include <mutex>

#include "folder.h"
#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

namespace
{

Training small(int64_t micro_batches, const Sharding &s = {0, RF_ORDER_TREE})
{
    Training t;
    t.policy.micro_batches = micro_batches;
    t.policy.order = s.order;
    t.policy.zero = s.zero;
    t.policy.optimizer.kind = RF_SGD;
    t.lr = 0.1f;
    t.ignored = 0.3;
    return t;
}

// On one rank, without the tokens, targets and losses of the whole batch.
uint64_t activation_bytes(Training t)
{
    t.steps = t.policy.forward_only ? 0 : 1;
    const Seen seen = train(t, 1)[0];
    const uint64_t words = (uint64_t)(t.policy.batch * t.policy.seq) * sizeof(int32_t);
    EXPECT_EQ(seen.measured.activations, seen.planned.activations);
    return seen.measured.activations - 3 * ((words + 255) / 256 * 256);
}

} // namespace

TEST(MicroBatch, ActivationsTakeMemoryInProportionToItAndNotToTheBatch)
{
    const auto with = [](int64_t batch, int64_t micro_batches) {
        Training t = small(micro_batches);
        t.policy.batch = batch;
        t.model.seq = 64; // so that no piece needs padding
        t.policy.seq = 64;
        return activation_bytes(t);
    };
    const uint64_t one = with(4, 4);
    EXPECT_EQ(with(4, 2), 2 * one);
    EXPECT_EQ(with(8, 8), one);
}

TEST(MicroBatch, OfOneSizeGiveTheSameBitsOnAnyRanksAndOfOtherSizesTheSameButForRounding)
{
    const std::vector<float> eight = trained_parameters(small(8), 1);
    for (int zero : zero_stages)
        for (int ranks : {2, 4})
            EXPECT_EQ(trained_parameters(small(8, {zero, RF_ORDER_TREE}), ranks), eight)
                << "zero=" << zero << " on " << ranks;
    // 3 steps of 0.1 times a mean gradient below 1.
    EXPECT_LE(worst_difference(trained_parameters(small(1), 1), eight), 1e-6f);
    for (const Sharding &s : shardings())
        EXPECT_LE(worst_difference(trained_parameters(small(2, s), 2), eight), 1e-6f) << s.text();
}

TEST(ForwardOnly, TakesNoMoreThanTwoOutputsWhateverTheDepth)
{
    for (int layers : {1, 6}) {
        Training t = small(1);
        t.model.layers = layers;
        t.policy.batch = 1;
        t.policy.forward_only = true;
        t.after = [&](rf_run *run, rf_comm *, int) {
            std::vector<int32_t> tokens, targets;
            double loss = 0;
            t.batch(0, tokens, targets);
            ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 1, &loss));
        };
        // The inputs of the head, and the logits that it writes.
        const uint64_t in = 16 * 32 * sizeof(float), out = 16 * 61 * sizeof(float);
        EXPECT_EQ(activation_bytes(t), in + (out + 255) / 256 * 256) << layers << " layers";
    }
}

namespace
{

// A block that records the first tokens of each micro-batch it is given.
struct Noting {
    std::mutex mutex;
    std::vector<std::map<int64_t, std::vector<int32_t>>> steps; // by global micro-batch

    static int forward(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor)
    {
        Noting *noting = static_cast<Noting *>(self);
        const int32_t *tokens = static_cast<const int32_t *>(rf_tensor_map(in));
        std::lock_guard<std::mutex> lock(noting->mutex);
        noting->steps.resize(std::max(noting->steps.size(), (size_t)ctx->step + 1));
        auto &step = noting->steps[(size_t)ctx->step];
        EXPECT_EQ(step.count(ctx->micro_batch), 0u) << "computed twice";
        step[ctx->micro_batch].assign(tokens, tokens + ctx->rows);
        return rf_fill(ctx->stream, ctx->losses, 1);
    }
    static int input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int weight(rf_ctx *, void *, rf_tensor, rf_tensor)
    {
        return 0;
    }
    static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
    {
        *out = {};
        out->out = rf_shape2(rows, RF_BYTE_VOCABULARY);
        return 0;
    }
    // All tokens in the order of steps and micro-batches.
    std::vector<int32_t> all() const
    {
        std::vector<int32_t> tokens;
        for (const auto &step : steps)
            for (const auto &[index, part] : step)
                tokens.insert(tokens.end(), part.begin(), part.end());
        return tokens;
    }
};
const rf_block_ops noting_ops = {Noting::forward, Noting::input, Noting::weight, Noting::sizes};

struct Leg { // of a training: on `ranks` ranks, with this batch, up to this step
    int ranks;
    int64_t batch, until;
};

// Trains as a program would: resumes from the folder's checkpoint if there is one, draws batches at
// the cursor, saves. Adds the ranks' results to `noting`.
void train_leg(const Leg &leg, const Sharding &s, const rf_dataset *data, const Folder &folder,
               Noting *noting)
{
    const bool resume = std::filesystem::exists(folder.path("latest"));
    auto body = [&](rf_comm *comm, int rank) {
        StubBlocks stubs;
        stubs.add("a", {2000});
        rf_block block = stubs.blocks()[0];
        block.ops = &noting_ops;
        block.self = noting;
        block.varies = true; // depends on the contents of memory
        rf_policy policy = {};
        policy.batch = leg.batch;
        policy.micro_batches = leg.batch / 2;
        policy.seq = 6;
        policy.order = s.order;
        policy.zero = s.zero;
        rf_mesh mesh = {leg.ranks, 1, 1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        rf_run_opts opts = {9};
        opts.other_batch = true;
        rf_progress progress = {0, 9, 0};
        ASSERT_RF(rf_plan_build({&block, 1}, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, &opts, &run));
        if (resume) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
            EXPECT_EQ(progress.seq, 6);
        }
        std::vector<int32_t> tokens((size_t)leg.batch * 6), targets(tokens.size());
        for (; progress.step < leg.until; progress.step++, progress.samples += leg.batch) {
            ASSERT_RF(rf_dataset_samples(data, progress.seed, {progress.samples, leg.batch, 6},
                                         tokens.data(), targets.data()));
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0.1f, nullptr));
        }
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        rf_run_close(run);
        rf_plan_destroy(plan);
    };
    for (int r = 0; r < leg.ranks; r++)
        rank_device(r);
    ranks::World world;
    world.size = leg.ranks;
    if (leg.ranks == 1)
        body(nullptr, 0);
    else
        ranks::run(world, body);
}

} // namespace

TEST(DataCursor, SamplesGoOnWithoutGapOrRepeatOnOtherRanksAndWithAnotherBatch)
{
    Folder text;
    std::string letters;
    for (int i = 0; i < 4000; i++)
        letters += (char)('a' + (i * i / 7 + i) % 26);
    text.write("text", letters);
    rf_dataset *data = nullptr;
    ASSERT_RF(rf_dataset_open(text.path("text").c_str(), &data));
    // Steps of 8 samples until 10, then of 12 until 12: 104 samples.
    const std::vector<Leg> legs = {{4, 8, 5}, {2, 8, 10}, {3, 12, 12}};
    std::vector<int32_t> want(104 * 6), targets(want.size());
    ASSERT_RF(rf_dataset_samples(data, 9, {0, 104, 6}, want.data(), targets.data()));
    for (const Sharding &s : shardings()) {
        Folder folder;
        Noting noting;
        for (const Leg &leg : legs)
            train_leg(leg, s, data, folder, &noting);
        EXPECT_EQ(noting.all(), want) << s.text();
    }
    rf_dataset_close(data);
}
