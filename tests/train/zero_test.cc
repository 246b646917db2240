// SPDX-License-Identifier: MIT
//
// Sharded optimizer states (ZeRO-1): the bits of plain data parallelism in tree order, on any
// number of ranks; memory and messages by the formula; shards that are ragged or empty.
#include <atomic>

#include "folder.h"
#include "world.h"

extern "C" {
#include "parallel/plan.h"
}

namespace
{

Training sharded(rf_order order)
{
    Training t;
    t.model.vocab = 257;
    t.policy.order = order;
    t.policy.zero = 1;
    t.policy.clip = 0.25f;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    return t;
}

} // namespace

TEST(ZeroOne, InTreeOrderGivesTheBitsOfOneProcessOnOneToFourRanks)
{
    Training t = sharded(RF_ORDER_TREE), plain = t;
    plain.policy.zero = 0;
    const Seen one = train(plain, 1)[0];
    for (float norm : one.norm)
        EXPECT_GT(norm, t.policy.clip) << "clipping acts";
    for (int ranks = 1; ranks <= 4; ranks++)
        for (const Seen &s : train(t, ranks)) {
            EXPECT_EQ(s.sha, one.sha) << ranks << " ranks";
            EXPECT_EQ(s.loss, one.loss) << ranks << " ranks";
            EXPECT_EQ(s.norm, one.norm) << ranks << " ranks";
        }
}

TEST(ZeroOne, InRingOrderReplicasAreEqualAndCloseToPlainDataParallelism)
{
    Training t = sharded(RF_ORDER_RING), plain = t;
    plain.policy.zero = 0;
    for (int ranks : {2, 3}) {
        const std::vector<Seen> shards = train(t, ranks), whole = train(plain, ranks);
        for (const Seen &s : shards) {
            EXPECT_EQ(s.sha, shards[0].sha);
            EXPECT_EQ(s.norm, shards[0].norm);
        }
        for (int step = 0; step < t.steps; step++)
            EXPECT_NEAR(shards[0].loss[(size_t)step], whole[0].loss[(size_t)step], 1e-4);
    }
}

TEST(ZeroOne, EveryOptimizerAndTypeGivesTheBitsOfOneProcess)
{
    Training t = sharded(RF_ORDER_TREE);
    t.steps = 2;
    for (rf_optimizer kind : {RF_SGD, RF_MOMENTUM, RF_LION, RF_ADAMW}) {
        t.policy.optimizer.kind = kind;
        t.policy.zero = 0;
        t.model.dtype = kind == RF_ADAMW ? RF_BF16 : RF_F32;
        t.policy.optimizer.stochastic_rounding = kind == RF_ADAMW;
        const std::string one = train(t, 1)[0].sha;
        t.policy.zero = 1;
        EXPECT_EQ(train(t, 3)[2].sha, one) << rf_optimizer_get_info(kind)->name;
    }
}

TEST(ZeroOne, MemoryAndMessagesAreThoseOfThePlanAndStatesAreDivided)
{
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
        for (int ranks = 1; ranks <= 4; ranks++) {
            Training t = sharded(order), plain = t;
            t.steps = 2;
            plain.steps = 0;
            plain.policy.zero = 0;
            const uint64_t whole = train(plain, 1)[0].planned.optimizer;
            uint64_t shards = 0, most = 0;
            int rank = 0;
            for (const Seen &s : train(t, ranks)) {
                expect_planned(s, std::string(rf_order_name(order)) + " rank " +
                                      std::to_string(rank++) + " of " + std::to_string(ranks));
                shards += s.planned.optimizer;
                most = std::max(most, s.planned.optimizer);
            }
            // Padding: at most 63 elements a shard, and 255 bytes a buffer.
            EXPECT_GE(shards, whole);
            EXPECT_LE(shards, whole + (uint64_t)ranks * 16384);
            if (ranks > 1) {
                EXPECT_LT(most, whole * 2 / (uint64_t)ranks);
            }
        }
}

TEST(ZeroOne, SendsAsManyBytesAsARingThatAddsAndGathers)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        Training t = sharded(RF_ORDER_RING);
        std::atomic<uint64_t> sent = {0}, elements = {0};
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            const rf_plan *plan = run->plan;
            const rf_list &list = plan->lists[RF_LIST_STEP];
            for (int i = 0; i < list.count; i++) {
                const rf_instruction &instruction = list.instructions[i];
                uint64_t bytes = 0;
                if (instruction.verb != RF_VERB_REDUCE && instruction.verb != RF_VERB_GATHER)
                    continue;
                ASSERT_RF(rf_transfer_sent(plan, rf_plan_transfer(plan, &instruction), &bytes));
                sent += bytes;
                elements += rf_plan_transfer(plan, &instruction)->count;
            }
        };
        train(t, ranks);
        // Of each transfer all ranks together send N-1 times its elements; every rank counts them.
        EXPECT_EQ(sent, elements / (uint64_t)ranks * (uint64_t)(ranks - 1) * sizeof(float))
            << ranks << " ranks";
    }
}

TEST(ZeroOne, AnOverflowOnOneRankSkipsTheUpdateOnAll)
{
    Training t = sharded(RF_ORDER_TREE);
    t.policy.loss_scale = 3e38f; // overflows in the first backward pass
    t.steps = 2;
    const std::vector<Seen> seen = train(t, 3);
    for (const Seen &s : seen) {
        EXPECT_TRUE(s.stats[0].skipped);
        EXPECT_EQ(s.stats[0].loss_scale, 1.5e38f);
        EXPECT_EQ(s.sha, seen[0].sha);
    }
}

TEST(ZeroOne, RefusalsNameWhatDoesNotGoTogether)
{
    Training t = sharded(RF_ORDER_RING);
    t.steps = 1;
    t.after = [](rf_run *run, rf_comm *, int) {
        float values[32];
        EXPECT_EQ(rf_run_read_grad(run, "ln_f.bias", values, sizeof(values)), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("zero=0"), std::string::npos)
            << rf_last_error()->message;
    };
    train(t, 2);
    rf_policy policy = t.policy;
    rf_plan *plan = nullptr;
    rf_mesh mesh = {2, 1, 1};
    int count = 0;
    gpt2 *model = nullptr;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    policy.update_on_rank_0 = true;
    EXPECT_EQ(rf_plan_build(blocks, count, &mesh, &policy, 0, &plan), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("rank 0"), std::string::npos);
    policy.update_on_rank_0 = false;
    for (int zero : {2, 3}) {
        policy.zero = zero;
        EXPECT_EQ(rf_plan_build(blocks, count, &mesh, &policy, 0, &plan), RF_ENOTSUP);
        EXPECT_NE(std::string(rf_last_error()->message).find("zero=1"), std::string::npos);
    }
    policy.zero = 4;
    EXPECT_EQ(rf_plan_build(blocks, count, &mesh, &policy, 0, &plan), RF_EINVAL);
    gpt2_destroy(model);
}

TEST(ZeroOne, ACheckpointOfAnyStageAndNumberOfRanksGoesOnInAnyOtherToTheSameBits)
{
    struct Layout {
        int ranks, zero;
    };
    const Layout layouts[] = {{1, 0}, {2, 1}, {3, 0}, {3, 1}, {4, 1}};
    Training t = sharded(RF_ORDER_TREE);
    t.steps = 4;
    t.policy.zero = 0;
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
