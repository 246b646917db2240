// SPDX-License-Identifier: MIT
//
// Runs whose optimizer has states in 8 bits or bf16: bytes, bits on any mesh, the loss beside that
// of f32 states, and checkpoints.
#include <cmath>
#include <cstring>

#include "folder.h"
#include "small_trainings.h"
#include "world.h"

TEST(States, OfEightBitsHaveTheSameBitsOnAnyNumberOfRanks)
{
    for (rf_optimizer kind : {RF_ADAMW, RF_LION, RF_ADAGRAD}) {
        Training t = coded();
        t.policy.optimizer.kind = kind;
        const std::string straight = train(t, 1)[0].sha;
        for (int ranks : {1, 2, 3, 4})
            for (const Sharding &s : all_shardings()) {
                const bool other = kind != RF_ADAMW && (ranks != 3 || s.zero != 2);
                if (other || s.offload || s.order != RF_ORDER_TREE ||
                    (s.shard && ranks % s.shard) || (ranks == 1 && s.zero))
                    continue;
                Training sharded = t;
                sharded.policy.zero = s.zero;
                sharded.shard = s.shard;
                for (const Seen &seen : train(sharded, ranks)) {
                    EXPECT_EQ(seen.sha, straight) << s.text() << " " << ranks;
                    expect_planned(seen, s.text());
                }
            }
    }
}

// A gradient that blocks overwrite is not cleared, but the padding after it is: it belongs to the
// last block of states, and may lie in memory that had other values.
TEST(States, OfEightBitsDoNotDependOnWhatIsBehindAParameter)
{
    Training t = coded();
    t.model = {2, 68, 4, 8, 61}; // 18496 elements, which are 72.25 blocks
    t.policy.zero = 2;
    t.steps = 1;
    t.before = [](rf_run *run, rf_comm *, int) {
        int found = 0;
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_plan_param &p = run->plan->params[i];
            const uint64_t end = p.grad_first + (uint64_t)p.count;
            const uint64_t padding = rf_plan_padded(run->plan, end) - end;
            bool cleared = false;
            for (int k = 0; k < run->plan->cleared_count; k++) {
                const rf_plan_span &span = run->plan->cleared[k];
                cleared |= span.first <= end && span.first + span.count >= end + padding;
            }
            found += p.overwrite_grad && padding > 0;
            EXPECT_TRUE(!p.overwrite_grad || padding == 0 || cleared) << p.desc->name;
        }
        EXPECT_GT(found, 0);
    };
    train(t, 2);
}

// The same on stages of a pipeline and on tensor ranks, with recomputation, 16-bit weights with and
// without masters, and adapters' frozen parameters.
TEST(States, OfEightBitsGoWithEveryOtherTechnique)
{
    Training t = coded();
    t.model = {2, 64, 4, 8, 80}; // parts of 256 elements
    const std::string straight = train(t, 1)[0].sha;
    Training stages = t, again = t, parts = t;
    stages.pp = 2;
    again.policy.recompute = 1;
    parts.policy.tensor_parts = 2;
    EXPECT_EQ(train(stages, 2)[1].sha, straight);
    EXPECT_EQ(train(again, 1)[0].sha, straight);
    const std::string in_parts = train(parts, 1)[0].sha;
    Training tensor = parts;
    tensor.tp = 2;
    tensor.policy.zero = 1;
    for (const Seen &seen : train(tensor, 4)) {
        EXPECT_EQ(seen.sha, in_parts);
        expect_planned(seen, "tp");
    }
    Training context = t;
    context.cp = 2;
    for (const Seen &seen : train(context, 2))
        expect_planned(seen, "cp");
    Training bf16 = t;
    bf16.model.dtype = bf16.model.residual = RF_BF16;
    bf16.policy.optimizer.stochastic_rounding = true;
    for (bool masters : {true, false}) {
        bf16.policy.no_masters = !masters;
        bf16.policy.zero = 0;
        bf16.pp = 1;
        const std::string one = train(bf16, 1)[0].sha;
        bf16.pp = 2; // with a table of places
        EXPECT_EQ(train(bf16, 2)[0].sha, one) << masters;
        bf16.pp = 1;
        bf16.policy.zero = 3;
        EXPECT_EQ(train(bf16, 2)[0].sha, one) << masters;
    }
    Training frozen = t;
    frozen.freeze = {"blocks.0.*", "wte.weight"};
    const std::string rest = train(frozen, 1)[0].sha;
    frozen.policy.zero = 3;
    EXPECT_EQ(train(frozen, 2)[0].sha, rest);
}

TEST(States, OfOffloadedOptimizersAreThoseOfTheHost)
{
    for (rf_dtype states : {RF_BF16, RF_U8}) {
        Training t = coded(states);
        t.policy.offload = RF_OFFLOAD_OPTIMIZER;
        const std::string straight = train(t, 1)[0].sha;
        for (int offload :
             {RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS, RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_GRADS}) {
            t.policy.offload = offload;
            t.policy.zero = 2;
            for (const Seen &seen : train(t, 3)) {
                EXPECT_EQ(seen.sha, straight) << offload;
                expect_planned(seen, "offload");
            }
        }
    }
}

// 2 + 8 / 256 bytes a parameter for two states; parameters below 4096 elements keep 8 bytes.
TEST(States, HaveExactlyTheBytesOfTheirBlocks)
{
    Training t = coded();
    t.model = {1, 64, 4, 64, 64};
    t.steps = 1;
    uint64_t large = 0, small = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (int i = 0; i < run->plan->param_count; i++) {
            const rf_plan_param &p = run->plan->params[i];
            if (p.owner == i)
                (p.count >= RF_STATE_LEAST ? large : small) += (uint64_t)p.count;
        }
    };
    const Seen seen = train(t, 1)[0];
    ASSERT_EQ(large % 256, 0u);
    const uint64_t padded = seen.measured.params / 4 - large; // to 256 elements each
    EXPECT_GE(padded, small);
    EXPECT_EQ(seen.measured.optimizer, seen.planned.optimizer);
    auto aligned = [](uint64_t bytes) { return (bytes + 255) / 256 * 256; };
    EXPECT_EQ(2.0 * (double)(large / 256 * RF_STATE_BLOCK_BYTES), 2.03125 * (double)large);
    EXPECT_EQ(seen.measured.optimizer,
              2 * aligned(large / 256 * RF_STATE_BLOCK_BYTES + 4 * padded));
    t.policy.state_dtype = RF_BF16;
    const Seen half = train(t, 1)[0];
    EXPECT_EQ(half.measured.optimizer, 2 * aligned(half.measured.params / 2));
    EXPECT_EQ(half.measured.optimizer, half.planned.optimizer);
}

TEST(States, LeadToTheLossOfF32Ones)
{
    for (rf_optimizer kind : {RF_ADAMW, RF_MOMENTUM}) {
        Training t = coded(RF_F32);
        t.policy.optimizer.kind = kind;
        t.steps = 40;
        const std::vector<double> want = train(t, 1)[0].loss;
        for (rf_dtype states : {RF_BF16, RF_U8}) {
            t.policy.state_dtype = states;
            const std::vector<double> loss = train(t, 1)[0].loss;
            EXPECT_NE(loss.back(), want.back());
            EXPECT_NEAR(loss.back(), want.back(), 0.01 * want.back()) << rf_dtype_name(states);
        }
    }
}

TEST(States, ThatARuleCannotStoreAreRefusedByName)
{
    const struct {
        rf_optimizer kind;
        bool centered;
        rf_dtype states;
        const char *says;
    } rows[] = {{RF_SGD, false, RF_U8, "states in u8: sgd cannot store them so"},
                {RF_SGD, false, RF_BF16, "states in bf16: sgd cannot store them so"},
                {RF_RMSPROP, true, RF_U8, "states in u8: rmsprop (centered) cannot store them so"},
                {RF_ADAMW, false, RF_F16, "states in f16: adamw cannot store them so"}};
    Training t = coded();
    gpt2 *model = nullptr;
    int count = 0;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    for (const auto &row : rows) {
        rf_plan *plan = nullptr;
        t.policy.optimizer = {};
        t.policy.optimizer.kind = row.kind;
        t.policy.optimizer.centered = row.centered;
        t.policy.state_dtype = row.states;
        EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan), RF_ENOTSUP);
        EXPECT_NE(strstr(rf_last_error()->message, row.says), nullptr) << rf_last_error()->message;
    }
    t = coded();
    t.policy.tensor_parts = 2; // c_fc has parts of 3200 elements
    rf_plan *plan = nullptr;
    EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &t.policy, 0, &plan), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "multiple of 256"), nullptr)
        << rf_last_error()->message;
    gpt2_destroy(model);
}

namespace
{

// The states of every parameter of rank 0's folder, and the hash after two more steps.
std::string continued(Training t, int ranks, const std::string &folder)
{
    std::string sha;
    const Training steps = t;
    t.steps = 0;
    t.seed = 99;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        ASSERT_RF(rf_run_load(run, folder.c_str(), nullptr));
        take_steps(steps, run, 2, 4);
        const std::string mine = sha_of(run);
        if (rank == 0)
            sha = mine;
    };
    train(t, ranks);
    return sha;
}

std::string save_after_two(Training t, int ranks, const std::string &folder, bool hidden = false)
{
    t.steps = 2;
    t.after = [&, hidden](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {2, 5, 8};
        if (hidden && rank)
            hide_folders(run);
        ASSERT_RF(rf_run_save(run, folder.c_str(), &progress));
    };
    return train(t, ranks)[0].sha;
}

} // namespace

TEST(States, OfEightBitsAreKeptAndContinuedOnOtherRanks)
{
    Training t = coded();
    t.steps = 4;
    const std::string straight = train(t, 1)[0].sha;
    for (int k = 0; k < 3; k++) {
        Folder folder;
        Training from = t, to = t;
        from.policy.zero = k;
        save_after_two(from, k + 1, folder.path(), k == 2);
        to.policy.zero = (k + 2) % 4;
        EXPECT_EQ(continued(to, 4, folder.path()), straight) << k;
        to.policy.zero = 0;
        EXPECT_EQ(continued(to, 1, folder.path()), straight) << k;
    }
    // Parts of tensor ranks are kept as they are, and another division is another rounding.
    Folder folder;
    t.model = {1, 64, 4, 8, 80};
    t.tp = 2;
    save_after_two(t, 2, folder.path());
    Training whole = t;
    whole.tp = 1;
    const std::string two = continued(t, 2, folder.path());
    EXPECT_EQ(two, train(t, 2)[0].sha);
    EXPECT_NE(continued(whole, 1, folder.path()), "");
}

namespace
{

// A state of every parameter as f32, from a run's file or memory.
std::vector<float> states_of(const Training &t, const std::string &folder, rf_dtype as, int tp = 1)
{
    Training f32 = t;
    std::vector<float> all;
    f32.policy.state_dtype = as;
    f32.steps = 0;
    f32.tp = tp;
    Folder copy;
    f32.after = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {2, 5, 8};
        ASSERT_RF(rf_run_load(run, folder.c_str(), nullptr));
        ASSERT_RF(rf_run_save(run, copy.path().c_str(), &progress));
    };
    train(f32, tp);
    if (as != RF_F32)
        return states_of(t, copy.path(), RF_F32);
    f32.tp = 1;
    f32.after = [&](rf_run *run, rf_comm *, int) {
        ASSERT_RF(rf_run_load(run, copy.path().c_str(), nullptr));
        for (int k = 0; k < 2; k++) {
            rf_tensor region = run->regions[RF_REGION_STATE + k];
            for (int i = 0; i < run->plan->param_count; i++) {
                const rf_plan_param &p = run->plan->params[i];
                if (p.owner != i)
                    continue;
                std::vector<float> values((size_t)p.count);
                ASSERT_RF(rf_buffer_read(region.buffer, region.offset + 4 * p.first, values.data(),
                                         4 * values.size()));
                all.insert(all.end(), values.begin(), values.end());
            }
        }
    };
    train(f32, 1);
    return all;
}

} // namespace

// f32 to 8 bits is a rounding of each block, at most half a step of the level; 8 bits to f32 and to
// other tensor ranks and back keep what is stored.
TEST(States, OfOneTypeAreLoadedByRunsWithAnother)
{
    Training t = coded(RF_F32);
    t.model = {1, 64, 4, 8, 80};
    t.steps = 4;
    Folder f32, coded_folder;
    save_after_two(t, 1, f32.path());
    const std::vector<float> exact = states_of(t, f32.path(), RF_F32);
    const std::vector<float> half = states_of(t, f32.path(), RF_BF16);
    const std::vector<float> eight = states_of(t, f32.path(), RF_U8);
    const std::vector<float> parts = states_of(t, f32.path(), RF_U8, 2);
    ASSERT_EQ(exact.size(), eight.size());
    float most = 0;
    for (float x : exact)
        most = std::max(most, std::abs(x));
    int64_t equal = 0;
    for (size_t i = 0; i < exact.size(); i++) {
        EXPECT_NEAR(half[i], exact[i], std::abs(exact[i]) / 256);
        EXPECT_NEAR(eight[i], exact[i], std::max(most * 4e-7f, std::abs(exact[i]) * 0.5f)) << i;
        EXPECT_NEAR(parts[i], exact[i], std::max(most * 4e-7f, std::abs(exact[i]) * 0.5f)) << i;
        equal += eight[i] == exact[i];
    }
    EXPECT_LT((size_t)equal, exact.size() / 4);
    // What is kept in 8 bits is what f32 runs load, also from parts of tensor ranks.
    Training eight_bits = t;
    eight_bits.policy.state_dtype = RF_U8;
    save_after_two(eight_bits, 1, coded_folder.path());
    const std::vector<float> kept = states_of(t, coded_folder.path(), RF_F32);
    EXPECT_EQ(states_of(t, coded_folder.path(), RF_U8), kept);
    eight_bits.tp = 2;
    Folder tensor;
    save_after_two(eight_bits, 2, tensor.path());
    const std::vector<float> of_parts = states_of(t, tensor.path(), RF_F32);
    double difference = 0, size = 0;
    for (size_t i = 0; i < kept.size(); i++) {
        difference += std::abs(of_parts[i] - kept[i]);
        size += std::abs(kept[i]);
    }
    EXPECT_LT(difference, 0.05 * size);
}

// Ranks that remain take the blocks of those that have left.
TEST(States, OfEightBitsAreInSnapshots)
{
    Training t = coded();
    t.steps = 4;
    t.policy.zero = 1;
    const std::string straight = train(t, 1)[0].sha;
    rf_snapshot *snapshots[3] = {};
    Training first = t, rest = t;
    first.steps = 2;
    first.after = [&](rf_run *run, rf_comm *, int rank) {
        rf_progress progress = {2, 5, 8};
        ASSERT_RF(rf_run_snapshot(run, &progress, &snapshots[rank]));
    };
    train(first, 3);
    rest.steps = 0;
    rest.after = [&](rf_run *run, rf_comm *, int rank) {
        ASSERT_RF(rf_run_restore(run, snapshots[rank], nullptr));
        take_steps(t, run, 2, 4);
        EXPECT_EQ(sha_of(run), straight);
    };
    train(rest, 3);
    rest.policy.zero = 2;
    train(rest, 3);
    for (rf_snapshot *s : snapshots)
        rf_snapshot_destroy(s);
}
