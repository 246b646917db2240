// SPDX-License-Identifier: MIT
//
// Sharded states, gradients and parameters (ZeRO-1 to 3): in tree order the bits of plain data
// parallelism, on any number of ranks; memory and messages by the formula; shards that are ragged
// or empty.
#include <atomic>
#include <list>
#include <mutex>

#include "folder.h"
#include "sharded.h"

extern "C" {
#include "parallel/plan/plan.h"
#include "parallel/plan/traffic.h"
}

namespace
{

const int stages[] = {1, 2, 3};

} // namespace

TEST(Zero, InTreeOrderGivesTheBitsOfOneProcessOnOneToFourRanks)
{
    const Seen one = train(sharded(RF_ORDER_TREE, 0), 1)[0];
    for (float norm : one.norm)
        EXPECT_GT(norm, sharded(RF_ORDER_TREE, 0).policy.clip) << "clipping acts";
    for (int stage : stages)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (const Seen &s : train(sharded(RF_ORDER_TREE, stage), ranks)) {
                EXPECT_EQ(s.sha, one.sha) << "zero=" << stage << " on " << ranks << " ranks";
                EXPECT_EQ(s.loss, one.loss) << "zero=" << stage << " on " << ranks << " ranks";
                EXPECT_EQ(s.norm, one.norm) << "zero=" << stage << " on " << ranks << " ranks";
            }
}

TEST(Zero, InRingOrderReplicasAreEqualAndCloseToPlainDataParallelism)
{
    for (int ranks : {2, 3, 4}) {
        const std::vector<Seen> whole = train(sharded(RF_ORDER_RING, 0), ranks);
        for (int stage : stages) {
            const Training t = sharded(RF_ORDER_RING, stage);
            const std::vector<Seen> shards = train(t, ranks);
            for (const Seen &s : shards) {
                EXPECT_EQ(s.sha, shards[0].sha);
                EXPECT_EQ(s.norm, shards[0].norm);
            }
            for (int step = 0; step < t.steps; step++)
                EXPECT_NEAR(shards[0].loss[(size_t)step], whole[0].loss[(size_t)step], 1e-4);
        }
    }
}

// Two groups of two ranks hold a copy each. Three rounds, the first without an addition: a sum that
// is added up between the groups too often, or too early, has another norm. Sums in another order
// differ by their rounding: about 1e-6 of the norm.
TEST(Zero, CopiesOfTheShardsStayEqualAndCloseToPlainDataParallelism)
{
    for (int micro_batches : {4, 9, 12}) {
        Training plain = sharded(RF_ORDER_RING, 0);
        plain.policy.batch = plain.policy.micro_batches = micro_batches;
        const std::vector<Seen> whole = train(plain, 4);
        for (int stage : stages) {
            Training t = plain;
            t.policy.zero = stage;
            t.shard = 2;
            const std::vector<Seen> copies = train(t, 4);
            for (size_t rank = 0; rank < copies.size(); rank++) {
                EXPECT_EQ(copies[rank].sha, copies[0].sha) << "zero=" << stage;
                expect_planned(copies[rank],
                               "zero=" + std::to_string(stage) + " rank " + std::to_string(rank));
            }
            for (size_t step = 0; step < copies[0].loss.size(); step++) {
                EXPECT_NEAR(copies[0].loss[step], whole[0].loss[step], 1e-4);
                EXPECT_NEAR(copies[0].norm[step], whole[0].norm[step], 1e-4 * whole[0].norm[step]);
            }
        }
    }
}

// Matrices of 16,384 elements are not cleared, because the first call overwrites them.
TEST(Zero, ARankWithoutAMicroBatchInTheLastRoundAddsNothing)
{
    struct Rounds {
        int ranks, micro_batches, stage, shard, pp;
        rf_dtype reduce;
    };
    for (const Rounds &r : {Rounds{3, 4, 2, 0, 1, RF_F32}, Rounds{2, 3, 3, 0, 1, RF_F32},
                            Rounds{4, 5, 2, 2, 1, RF_F32}, Rounds{4, 5, 3, 0, 2, RF_F32},
                            Rounds{2, 3, 2, 0, 1, RF_BF16}}) {
        Training t = sharded(RF_ORDER_RING, 0);
        t.model = {1, 64, 2, 16, 61};
        t.policy.batch = t.policy.micro_batches = r.micro_batches;
        t.steps = 1;
        const float norm = train(t, 1)[0].norm[0];
        t.policy.zero = r.stage;
        t.policy.reduce_dtype = r.reduce;
        t.shard = r.shard;
        t.pp = r.pp;
        for (const Seen &s : train(t, r.ranks)) // bf16: 8 bits
            EXPECT_NEAR(s.norm[0], norm, (r.reduce == RF_F32 ? 1e-6 : 4e-3) * norm)
                << r.ranks << " ranks, zero=" << r.stage << ", pp=" << r.pp;
    }
}

// 1,952 elements are two chunks of the norm, and no chunk is divided. In the last round some of the
// ranks without a shard have no micro-batch either.
TEST(Zero, RanksWithoutAnyTrainedElementPlanAndMeasureTheSameBytes)
{
    for (int stage : {2, 3}) {
        Training t = sharded(RF_ORDER_TREE, stage);
        t.model = {1, 32, 4, 16, 61};
        t.freeze = {"blocks.*", "wpe*", "ln_f*"};
        t.policy.batch = t.policy.micro_batches = 5;
        t.steps = 1;
        const std::vector<Seen> seen = train(t, 4);
        for (const Seen &s : seen) {
            EXPECT_EQ(s.sha, seen[0].sha);
            expect_planned(s, "zero=" + std::to_string(stage));
        }
    }
}

TEST(Zero, EveryOptimizerAndTypeGivesTheBitsOfOneProcess)
{
    for (rf_optimizer kind : {RF_SGD, RF_MOMENTUM, RF_LION, RF_ADAMW}) {
        Training t = sharded(RF_ORDER_TREE, 0);
        t.steps = 2;
        t.policy.optimizer.kind = kind;
        t.model.dtype = kind == RF_ADAMW || kind == RF_LION ? RF_BF16 : RF_F32;
        t.model.residual = kind == RF_LION ? RF_F32 : t.model.dtype;
        t.policy.optimizer.stochastic_rounding = kind == RF_ADAMW;
        const std::string one = train(t, 1)[0].sha;
        for (int stage : stages) {
            t.policy.zero = stage;
            EXPECT_EQ(train(t, 3)[2].sha, one)
                << rf_optimizer_get_info(kind)->name << " zero=" << stage;
        }
    }
}

TEST(Zero, MemoryAndMessagesAreThoseOfThePlanAndWhatIsShardedIsDivided)
{
    Training plain = sharded(RF_ORDER_RING, 0);
    plain.steps = 0;
    const rf_bytes whole = train(plain, 1)[0].planned;
    for (int stage : stages)
        for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
            for (int ranks = 1; ranks <= 4; ranks++) {
                Training t = sharded(order, stage);
                t.steps = 2;
                uint64_t states = 0;
                int rank = 0;
                const std::string where = std::string(rf_order_name(order)) +
                                          " zero=" + std::to_string(stage) + " on " +
                                          std::to_string(ranks);
                for (const Seen &s : train(t, ranks)) {
                    expect_planned(s, where + " rank " + std::to_string(rank++));
                    states += s.planned.optimizer;
                    if (ranks > 1) {
                        EXPECT_LT(s.planned.optimizer, whole.optimizer * 2 / (uint64_t)ranks);
                    }
                }
                // Padding: at most 63 elements a shard, and 255 bytes a buffer.
                EXPECT_GE(states, whole.optimizer) << where;
                EXPECT_LE(states, whole.optimizer + (uint64_t)ranks * 65536) << where;
            }
}

// The bytes that all ranks together send in these transfers, and the elements of the transfers.
struct Traffic {
    uint64_t sent = 0, elements = 0;
};

static Traffic traffic(Training t, int ranks, rf_verb verb)
{
    std::atomic<uint64_t> sent = {0}, elements = {0};
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const rf_plan *plan = run->plan;
        const rf_list &list = plan->lists[RF_LIST_STEP];
        for (int i = 0; i < list.count; i++) {
            const rf_instruction &instruction = list.instructions[i];
            uint64_t bytes = 0;
            if (instruction.verb != verb)
                continue;
            ASSERT_RF(rf_transfer_sent(plan, rf_plan_transfer(plan, &instruction), &bytes));
            sent += bytes;
            elements += rf_plan_transfer(plan, &instruction)->count;
        }
    };
    train(t, ranks);
    return {sent, elements / (uint64_t)ranks};
}

TEST(Zero, SendsAsManyBytesAsRingsThatAddAndGather)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int stage : stages) {
            Training t = sharded(RF_ORDER_RING, stage);
            const uint64_t others = (uint64_t)(ranks - 1) * sizeof(float);
            const Traffic reduced = traffic(t, ranks, RF_VERB_REDUCE);
            const Traffic gathered = traffic(t, ranks, RF_VERB_GATHER);
            const uint64_t rounds = stage == 1 ? 1 : (8 + (uint64_t)ranks - 1) / (uint64_t)ranks;
            EXPECT_EQ(reduced.sent, reduced.elements * others) << stage << " on " << ranks;
            EXPECT_EQ(gathered.sent, gathered.elements * others) << stage << " on " << ranks;
            if (stage < 3) {
                EXPECT_EQ(reduced.elements, gathered.elements * rounds) << stage << " on " << ranks;
                continue;
            }
            // Gathered before forward and before backward, but once if the two follow each other;
            // and the tied embedding for each of its uses.
            EXPECT_GT(gathered.elements, reduced.elements);
            EXPECT_LE(gathered.elements, 2 * reduced.elements + rounds * 257 * 32);
            t.policy.keep_gathered = true;
            EXPECT_EQ(traffic(t, ranks, RF_VERB_GATHER).elements * rounds, reduced.elements);
        }
}

TEST(Zero, GatheredParametersAreTheSameHoweverLongTheyAreKept)
{
    Training t = sharded(RF_ORDER_TREE, 3);
    t.model.layers = 4; // three units may be in memory at once: two blocks and the tied embedding
    const std::vector<Seen> one = train(t, 3);
    t.policy.no_prefetch = true;
    const std::vector<Seen> late = train(t, 3);
    t.policy.no_prefetch = false;
    t.policy.keep_gathered = true;
    const std::vector<Seen> kept = train(t, 3);
    EXPECT_EQ(one[0].sha, late[0].sha);
    EXPECT_EQ(one[0].sha, kept[0].sha);
    EXPECT_LE(late[0].planned.params, one[0].planned.params);
    EXPECT_GT(kept[0].planned.params, one[0].planned.params);
    expect_planned(late[1], "without prefetch");
    expect_planned(kept[1], "kept");
}

TEST(Zero, AnOverflowOnOneRankSkipsTheUpdateOnAll)
{
    for (int stage : stages) {
        Training t = sharded(RF_ORDER_TREE, stage);
        t.policy.loss_scale = 3e38f; // overflows in the first backward pass
        t.steps = 2;
        const std::vector<Seen> seen = train(t, 3);
        for (const Seen &s : seen) {
            EXPECT_TRUE(s.stats[0].skipped);
            EXPECT_EQ(s.stats[0].loss_scale, 1.5e38f);
            EXPECT_EQ(s.sha, seen[0].sha);
        }
    }
}

TEST(Zero, EvaluationAndForwardPassesWorkOnShardsWithUnequalShares)
{
    Training plain = sharded(RF_ORDER_TREE, 0);
    std::vector<int32_t> tokens, targets;
    plain.batch(7, tokens, targets);
    std::mutex mutex;
    std::vector<double> losses;
    std::vector<float> logits;
    plain.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<float> out(16 * 257);
        double loss = 0;
        ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 7, &loss));
        ASSERT_RF(rf_run_forward(run, tokens.data(), out.data(), out.size() * sizeof(float)));
        std::lock_guard<std::mutex> lock(mutex);
        losses.push_back(loss);
        logits = logits.empty() ? out : logits;
        EXPECT_EQ(out, logits);
    };
    train(plain, 1);
    for (int stage : stages)
        for (int ranks : {2, 3}) {
            plain.policy.zero = stage;
            for (const Seen &s : train(plain, ranks))
                EXPECT_EQ(s.measured.sent, s.planned.sent);
        }
    for (double loss : losses)
        EXPECT_EQ(loss, losses[0]);
}

TEST(Zero, RefusalsNameWhatDoesNotGoTogether)
{
    Training t = sharded(RF_ORDER_RING, 1);
    t.steps = 1;
    t.after = [](rf_run *run, rf_comm *, int) {
        float values[32];
        EXPECT_EQ(rf_run_read_grad(run, "ln_f.bias", values, sizeof(values)), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("zero=0"), std::string::npos)
            << rf_last_error()->message;
    };
    train(t, 2);
    int count = 0;
    gpt2 *model = nullptr;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    auto refused = [&](rf_policy policy, rf_mesh mesh, int status, const char *what) {
        rf_plan *plan = nullptr;
        EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), status);
        EXPECT_NE(std::string(rf_last_error()->message).find(what), std::string::npos)
            << rf_last_error()->message;
    };
    rf_policy policy = t.policy;
    policy.update_on_rank_0 = true;
    refused(policy, {2, 1, 1}, RF_EINVAL, "rank 0");
    policy = t.policy;
    policy.zero = 4;
    refused(policy, {2, 1, 1}, RF_EINVAL, "stages are 0 to 3");
    policy.zero = 2;
    refused(policy, {4, 1, 1, 3}, RF_EINVAL, "shard must divide dp");
    policy.keep_gathered = true;
    refused(policy, {4, 1, 1}, RF_EINVAL, "keep_gathered");
    policy = t.policy;
    policy.order = RF_ORDER_TREE;
    refused(policy, {4, 1, 1, 2}, RF_ENOTSUP, "use ring order, or shard=4");
    policy = t.policy;
    policy.zero = 0;
    refused(policy, {4, 1, 1, 2}, RF_EINVAL, "nothing is sharded");
    policy.recompute = -3;
    refused(policy, {4, 1, 1}, RF_EINVAL, "recompute");
    policy.recompute = 0;
    policy.offload = RF_OFFLOAD_GRADS;
    refused(policy, {4, 1, 1}, RF_EINVAL, "use zero=2 or 3");
    policy.offload = 16;
    refused(policy, {4, 1, 1}, RF_EINVAL, "RF_OFFLOAD_*");
    policy.offload = RF_OFFLOAD_PARAMS;
    policy.zero = 1;
    refused(policy, {4, 1, 1}, RF_ENOTSUP, "use zero=2 or 3, or zero=0");
    gpt2_destroy(model);
}

TEST(Zero, ACheckpointOfAnyStageAndNumberOfRanksGoesOnInAnyOtherToTheSameBits)
{
    struct Layout {
        int ranks, zero;
    };
    const Layout layouts[] = {{1, 0}, {2, 1}, {3, 0}, {3, 2}, {4, 1}, {2, 3}, {3, 3}};
    Training t = sharded(RF_ORDER_TREE, 0);
    t.steps = 4;
    const Seen whole = train(t, 1)[0];
    for (const Layout &from : layouts) {
        Folder folder;
        Training first = t;
        first.steps = 2;
        first.policy.zero = from.zero;
        first.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {2, t.seed, 16};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(first, from.ranks);
        for (const Layout &to : layouts) {
            Training rest = t;
            rest.steps = 2;
            rest.first_step = 2;
            rest.policy.zero = to.zero;
            rest.before = [&](rf_run *run, rf_comm *, int) {
                rf_progress progress = {};
                ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
                EXPECT_EQ(progress.step, 2);
            };
            for (const Seen &s : train(rest, to.ranks))
                EXPECT_EQ(s.sha, whole.sha) << from.ranks << " ranks, zero=" << from.zero
                                            << ", then " << to.ranks << " ranks, zero=" << to.zero;
        }
    }
}

TEST(Zero, ACheckpointOfCopiesOfShardsHasEachOnce)
{
    Folder folder;
    Training t = sharded(RF_ORDER_RING, 3);
    std::vector<std::string> seen;
    t.shard = 2;
    t.steps = 2;
    t.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {2, t.seed, 16};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    const std::string sha = train(t, 4)[0].sha;
    t.after = nullptr;
    t.steps = 0;
    t.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
    };
    EXPECT_EQ(train(t, 4)[3].sha, sha);
    t.shard = 0;
    t.policy.zero = 0;
    EXPECT_EQ(train(t, 2)[1].sha, sha);
}

TEST(Recompute, GivesTheBitsOfKeepingAllInEveryStage)
{
    Training t = sharded(RF_ORDER_TREE, 0);
    t.model.layers = 5;
    t.steps = 2;
    const Seen one = train(t, 1)[0];
    for (int every : {1, 2, 3, 7, RF_RECOMPUTE_SQRT, RF_RECOMPUTE_AUTO})
        for (int stage = 0; stage <= 3; stage++) {
            const int ranks = stage ? 3 : 1;
            t.policy.recompute = every;
            t.policy.zero = stage;
            for (const Seen &s : train(t, ranks)) {
                EXPECT_EQ(s.sha, one.sha) << "every " << every << " zero=" << stage;
                EXPECT_EQ(s.loss, one.loss) << "every " << every << " zero=" << stage;
                expect_planned(s, "every " + std::to_string(every));
                if (every == 1) {
                    EXPECT_LT(s.planned.activations, one.planned.activations);
                }
            }
        }
}

namespace
{

// A block that counts the calls of its forward pass.
struct Counted {
    rf_block block;
    std::atomic<int> *calls;
    static int forward(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor out)
    {
        const Counted *c = static_cast<Counted *>(self);
        ++*c->calls;
        return c->block.ops->forward(ctx, c->block.self, in, out);
    }
    static int input(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout, rf_tensor din)
    {
        const rf_block &b = static_cast<Counted *>(self)->block;
        return b.ops->backward_input(ctx, b.self, in, dout, din);
    }
    static int weight(rf_ctx *ctx, void *self, rf_tensor in, rf_tensor dout)
    {
        const rf_block &b = static_cast<Counted *>(self)->block;
        return b.ops->backward_weight(ctx, b.self, in, dout);
    }
    static int sizes(const void *self, int64_t rows, int64_t seq, rf_block_sizes *out)
    {
        const rf_block &b = static_cast<const Counted *>(self)->block;
        return b.ops->sizes(b.self, rows, seq, out);
    }
};
const rf_block_ops counted_ops = {Counted::forward, Counted::input, Counted::weight,
                                  Counted::sizes};

} // namespace

TEST(Recompute, RunsForwardPassesTwiceInAllSegmentsButTheLast)
{
    for (int every : {0, 2, RF_RECOMPUTE_AUTO})
        for (int stage : {0, 3}) {
            std::atomic<int> calls[7] = {}; // 5 layers, the embedding and the head
            std::list<Counted> counted;
            std::mutex mutex;
            Training t = sharded(RF_ORDER_TREE, stage);
            t.model.layers = 5;
            t.steps = 1;
            t.policy.recompute = every;
            t.edit_blocks = [&](std::vector<rf_block> &blocks, int) {
                std::lock_guard<std::mutex> lock(mutex);
                ASSERT_EQ(blocks.size(), 7u);
                for (size_t b = 0; b < blocks.size(); b++) {
                    counted.push_back({blocks[b], &calls[b]});
                    blocks[b].ops = &counted_ops;
                    blocks[b].self = &counted.back();
                }
            };
            train(t, stage ? 2 : 1);
            const int k = every == RF_RECOMPUTE_AUTO ? 1 : every;
            for (int b = 0; b < 7; b++)
                EXPECT_EQ(calls[b], k && b < 6 / k * k ? 16 : 8) << "every " << k << " block " << b;
        }
}
