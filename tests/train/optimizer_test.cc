// SPDX-License-Identifier: MIT
//
// Runs with every optimizer: bytes as planned, the same bits on any number of ranks and after a
// checkpoint, and steps that the device skips by itself.
#include <cmath>
#include <cstring>
#include <map>

#include "folder.h"
#include "world.h"

namespace
{

Training with(rf_optimizer kind)
{
    Training t;
    t.model = {1, 16, 2, 8, 17};
    t.policy.batch = t.policy.micro_batches = 4;
    t.policy.seq = 8;
    t.policy.clip = 0.5f;
    t.policy.optimizer.kind = kind;
    t.policy.optimizer.weight_decay = 0.1f;
    if (kind == RF_RMSPROP) { // with every possible state
        t.policy.optimizer.centered = true;
        t.policy.optimizer.momentum = 0.5f;
    }
    return t;
}

std::vector<rf_optimizer> all_kinds()
{
    std::vector<rf_optimizer> kinds;
    for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++)
        kinds.push_back((rf_optimizer)kind);
    return kinds;
}

std::string name_of(rf_optimizer kind)
{
    return rf_optimizer_get_info(kind)->name;
}

} // namespace

TEST(Optimizers, HaveTheBytesOfTheirStates)
{
    const std::map<std::string, int> states = {{"adamw", 2},    {"sgd", 0},     {"momentum", 1},
                                               {"nesterov", 1}, {"adagrad", 1}, {"rmsprop", 3},
                                               {"adam", 2},     {"lion", 1}};
    for (rf_optimizer kind : all_kinds()) {
        Training t = with(kind);
        t.steps = 1;
        const Seen seen = train(t, 1)[0];
        EXPECT_EQ(seen.measured.optimizer, seen.planned.optimizer) << name_of(kind);
        EXPECT_EQ(seen.measured.scratch, seen.planned.scratch) << name_of(kind);
        EXPECT_EQ(seen.measured.optimizer,
                  (uint64_t)states.at(name_of(kind)) * seen.measured.params)
            << name_of(kind);
    }
}

TEST(Optimizers, GiveTheSameBitsOnAnyNumberOfRanksAndAfterACheckpoint)
{
    for (rf_optimizer kind : all_kinds()) {
        Training t = with(kind);
        t.steps = 4;
        const std::string straight = train(t, 1)[0].sha;
        EXPECT_EQ(train(t, 3)[2].sha, straight) << name_of(kind);
        Folder folder;
        Training first = t, rest = t;
        first.steps = 2;
        first.after = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {2, 5, 8};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        train(first, 2);
        rest.steps = 0;
        rest.seed = 99;
        rest.after = [&](rf_run *run, rf_comm *, int) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
            take_steps(t, run, 2, 4);
            EXPECT_EQ(sha_of(run), straight) << name_of(kind);
        };
        train(rest, 1);
    }
}

TEST(Optimizers, RefuseTheStatesOfAnother)
{
    Folder folder;
    Training t = with(RF_MOMENTUM), other = with(RF_LION); // one state each, of the same name
    t.steps = 1;
    t.after = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {1, 5, 4};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    train(t, 1);
    other.steps = 0;
    other.after = [&](rf_run *run, rf_comm *, int) {
        EXPECT_EQ(rf_run_load(run, folder.path().c_str(), nullptr), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "optimizer momentum, this run has lion"),
                  nullptr)
            << rf_last_error()->message;
    };
    train(other, 1);
}

TEST(Optimizers, AStepWithoutFiniteGradientsIsAsIfItHadNotBeen)
{
    for (rf_optimizer kind : all_kinds()) {
        Training t = with(kind);
        t.steps = 3;
        const std::string straight = train(t, 1)[0].sha;
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            const char *name = "ln_f.bias";
            float good[16], bad[16];
            rf_step_stats stats = {};
            std::vector<int32_t> tokens, targets;
            t.batch(0, tokens, targets);
            take_steps(t, run, 0, 1);
            ASSERT_RF(rf_run_read_param(run, name, good, sizeof(good)));
            for (float &x : bad)
                x = NAN;
            ASSERT_RF(rf_run_write_param(run, name, bad, sizeof(bad)));
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
            EXPECT_TRUE(stats.skipped);
            ASSERT_RF(rf_run_write_param(run, name, good, sizeof(good)));
            take_steps(t, run, 1, 3);
            EXPECT_EQ(run->updates, 3);
            EXPECT_EQ(run->step, 4);
            EXPECT_EQ(sha_of(run), straight) << name_of(kind);
        };
        train(t, 1);
    }
}

// A field of 0 means unset, and RF_ZERO is the number: otherwise each of these would be 0.9.
TEST(Optimizers, AnOptionCanBeZeroItself)
{
    Training momentum = with(RF_MOMENTUM), sgd = with(RF_SGD);
    momentum.policy.optimizer.momentum = RF_ZERO;
    momentum.policy.optimizer.weight_decay = sgd.policy.optimizer.weight_decay = 0;
    Training adam = with(RF_ADAM), rmsprop = with(RF_RMSPROP);
    adam.policy.optimizer.beta1 = RF_ZERO;
    adam.policy.optimizer.beta2 = 0.99f;
    adam.policy.optimizer.no_bias_correction = true;
    rmsprop.policy.optimizer.centered = false;
    rmsprop.policy.optimizer.momentum = 0;
    for (int ranks : {1, 3}) { // the plans of other ranks are built from a rank's own policy, too
        momentum.policy.zero = adam.policy.zero = ranks > 1 ? 1 : 0;
        EXPECT_EQ(train(momentum, ranks)[0].sha, train(sgd, 1)[0].sha);
        EXPECT_EQ(train(adam, ranks)[0].sha, train(rmsprop, 1)[0].sha);
    }
    rf_policy policy = momentum.policy;
    rf_plan *plan = nullptr;
    gpt2 *model = nullptr;
    int count = 0;
    ASSERT_RF(gpt2_create(&momentum.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan));
    EXPECT_EQ(plan->policy.optimizer.momentum, 0);
    policy = plan->policy; // again, as for other ranks
    rf_plan_destroy(plan);
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan));
    EXPECT_EQ(plan->policy.optimizer.momentum, 0);
    rf_plan_destroy(plan);
    gpt2_destroy(model);
}
