// SPDX-License-Identifier: MIT
//
// Parameters, gradients and the optimizer in host memory; and the message for a plan that is too
// large for a device.
#include "folder.h"
#include "sharded.h"

extern "C" {
#include "parallel/plan/plan.h"
}

TEST(Offload, OfParametersAndGradientsGivesTheBitsOfTheDevice)
{
    Training t = sharded(RF_ORDER_TREE, 0);
    t.model.layers = 4;
    const Seen one = train(t, 1)[0];
    for (int stage : {0, 2, 3})
        for (int ranks : {1, 3}) {
            t.policy.zero = stage;
            t.policy.offload = RF_OFFLOAD_PARAMS | (stage >= 2 ? RF_OFFLOAD_GRADS : 0);
            for (const Seen &s : train(t, ranks)) {
                const std::string where = "zero=" + std::to_string(stage);
                EXPECT_EQ(s.sha, one.sha) << where << " on " << ranks;
                expect_planned(s, where);
                EXPECT_LT(s.planned.params + s.planned.grads - s.planned.host,
                          one.planned.params + one.planned.grads - one.planned.host);
            }
        }
}

TEST(Offload, OfTheOptimizerIsTheSameOnAnyMeshAndNearToTheDevice)
{
    for (rf_dtype type : {RF_F32, RF_BF16})
        for (int also : {0, (int)RF_OFFLOAD_PARAMS}) {
            Training t = sharded(RF_ORDER_TREE, 0);
            t.model.dtype = type;
            t.model.residual = RF_F32;
            const Seen device = train(t, 1)[0];
            t.policy.offload = RF_OFFLOAD_OPTIMIZER | also;
            const Seen one = train(t, 1)[0];
            expect_planned(one, "one rank");
            for (int step = 0; step < t.steps; step++)
                EXPECT_NEAR(one.loss[(size_t)step], device.loss[(size_t)step], 2e-5);
            EXPECT_EQ(one.planned.host,
                      one.measured.host); // states, masters, gradients for the host's step
            EXPECT_GE(one.planned.host, 2 * one.planned.optimizer);
            for (int stage = 0; stage <= 3; stage++)
                for (const Seen &s : train(
                         [&] {
                             Training u = t;
                             u.policy.zero = stage;
                             u.policy.offload |= stage >= 2 ? RF_OFFLOAD_GRADS : 0;
                             u.policy.offload &= stage == 1 ? ~(int)RF_OFFLOAD_PARAMS : ~0;
                             return u;
                         }(),
                         3)) {
                    EXPECT_EQ(s.sha, one.sha) << "zero=" << stage;
                    expect_planned(s, "zero=" + std::to_string(stage));
                }
        }
}

TEST(Offload, ACheckpointGoesOnWithAndWithout)
{
    Training t = sharded(RF_ORDER_TREE, 0);
    t.policy.offload = RF_OFFLOAD_OPTIMIZER;
    t.steps = 4;
    const std::string whole = train(t, 1)[0].sha;
    Folder folder;
    Training first = t, rest = t;
    first.steps = rest.steps = rest.first_step = 2;
    first.policy.zero = 1;
    first.after = [&](rf_run *run, rf_comm *, int) {
        const rf_progress progress = {2, t.seed, 16};
        ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    const std::string saved = train(first, 3)[0].sha;
    rest.before = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {};
        ASSERT_RF(rf_run_load(run, folder.path().c_str(), &progress));
    };
    rest.policy.zero = 3;
    EXPECT_EQ(train(rest, 2)[1].sha, whole);
    rest.policy.zero = 0;
    EXPECT_EQ(train(rest, 1)[0].sha, whole);
    rest.policy.offload = 0; // the same state, on the device
    rest.steps = 0;
    EXPECT_EQ(train(rest, 1)[0].sha, saved);
}

TEST(Fit, APlanThatIsTooLargeNamesTheCheapestChangeWithWhichItTrains)
{
    Training t = sharded(RF_ORDER_RING, 0);
    t.model.layers = 6;
    int count = 0;
    gpt2 *model = nullptr;
    ASSERT_RF(gpt2_create(&t.model, &model));
    const rf_block *blocks = gpt2_blocks(model, &count);
    auto device = [](const rf_bytes &b) {
        return b.params + b.grads + b.optimizer + b.activations + b.scratch - b.host;
    };
    const Seen one = train(t, 1)[0];
    const uint64_t all = device(one.planned);
    uint64_t before = all;
    std::vector<std::string> advice;
    for (double share : {0.95, 0.7, 0.5}) {
        rf_policy policy = t.policy;
        rf_plan *plan = nullptr;
        rf_mesh mesh = {1, 1, 1};
        policy.device_bytes = (uint64_t)(share * (double)all);
        ASSERT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan), RF_ENOMEM);
        const std::string text = rf_last_error()->message;
        const size_t with = text.find("; with ");
        ASSERT_NE(with, std::string::npos) << text;
        advice.push_back(text.substr(with));
        policy.recompute = text.find("recompute=1") != std::string::npos;
        if (text.find("optimizer") != std::string::npos)
            policy.offload |= RF_OFFLOAD_OPTIMIZER;
        if (text.find("params") != std::string::npos)
            policy.offload |= RF_OFFLOAD_PARAMS;
        if (text.find("activations") != std::string::npos)
            policy.offload |= RF_OFFLOAD_ACTIVATIONS;
        Training small = t;
        small.policy = policy;
        const Seen seen = train(small, 1)[0];
        EXPECT_LE(device(seen.measured), policy.device_bytes) << text;
        EXPECT_LE(device(seen.measured), before);
        before = device(seen.measured);
        EXPECT_NEAR(seen.loss.back(), one.loss.back(), 2e-5);
    }
    EXPECT_NE(advice.front(), advice.back());
    rf_policy policy = t.policy;
    rf_plan *plan = nullptr;
    policy.device_bytes = 1000;
    EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan), RF_ENOMEM);
    EXPECT_NE(std::string(rf_last_error()->message).find("smaller model"), std::string::npos);
    gpt2_destroy(model);
}
