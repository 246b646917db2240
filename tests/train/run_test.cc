// SPDX-License-Identifier: MIT
//
// Opening and running: ranks that disagree, skipped updates, refused inputs, memory that the host
// cannot map, evaluation and logits.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "stub_blocks.h"
#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{

// Opens a run on each of two ranks with the policy and seed changed by `change`.
void expect_refusal(std::array<int, 2> status, const char *words,
                    const std::function<void(int rank, rf_mesh *, rf_policy *, uint64_t *)> &change)
{
    rank_device(0), rank_device(1);
    ranks::run({}, [&](rf_comm *comm, int rank) {
        StubBlocks blocks;
        blocks.add("a", {100});
        rf_mesh mesh = {2, 1, 1};
        rf_policy policy = tiny().policy;
        rf_run_opts opts = {1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        change(rank, &mesh, &policy, &opts.seed);
        int place = mesh.dp == 2 ? rank : 0;
        ASSERT_RF(rf_plan_build({blocks.blocks(), 1}, &mesh, &policy, place, &plan));
        EXPECT_EQ(rf_run_open(rank_device(rank), comm, plan, &opts, &run), status[rank]);
        EXPECT_NE(strstr(rf_last_error()->message, words), nullptr) << rf_last_error()->message;
        rf_plan_destroy(plan);
    });
}

} // namespace

TEST(Run, RanksThatDisagreeAreToldAboutWhat)
{
    expect_refusal({RF_EMISMATCH, RF_EMISMATCH}, "batch is 4 on rank 0 and 8 on rank 1",
                   [](int rank, rf_mesh *, rf_policy *p, uint64_t *) { p->batch = rank ? 8 : 4; });
    expect_refusal({RF_EMISMATCH, RF_EMISMATCH}, "seed is 1 on rank 0 and 2 on rank 1",
                   [](int rank, rf_mesh *, rf_policy *, uint64_t *seed) { *seed = rank ? 2 : 1; });
    expect_refusal({RF_EMISMATCH, RF_EMISMATCH}, "optimizer",
                   [](int rank, rf_mesh *, rf_policy *p, uint64_t *) {
                       p->optimizer.weight_decay = rank ? 0.1f : 0;
                   });
    expect_refusal({RF_EINVAL, RF_EINVAL}, "use dp=2, or start 4 ranks",
                   [](int, rf_mesh *mesh, rf_policy *, uint64_t *) { mesh->dp = 4; });
    // One rank alone is wrong: the error of the other names the difference, and it does not wait.
    expect_refusal(
        {RF_EMISMATCH, RF_EINVAL}, "ranks",
        [](int rank, rf_mesh *mesh, rf_policy *, uint64_t *) { mesh->dp = rank ? 1 : 2; });
}

// Shapes are the same; the function differs.
TEST(Run, RanksWhoseBlocksSayAnotherConfigAreToldSo)
{
    rank_device(0), rank_device(1);
    ranks::run({}, [&](rf_comm *comm, int rank) {
        gpt2_config config = tiny().model;
        config.heads = rank ? 4 : 2;
        const rf_policy policy = tiny().policy;
        const rf_mesh mesh = {2, 1, 1};
        gpt2 *model = nullptr;
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        int count = 0;
        ASSERT_EQ(gpt2_create(&config, &model), 0);
        const rf_block *blocks = gpt2_blocks(model, &count);
        ASSERT_RF(rf_plan_build({blocks, count}, &mesh, &policy, rank, &plan));
        EXPECT_EQ(rf_run_open(rank_device(rank), comm, plan, nullptr, &run), RF_EMISMATCH);
        EXPECT_NE(strstr(rf_last_error()->message, "blocks' config"), nullptr)
            << rf_last_error()->message;
        rf_plan_destroy(plan);
        gpt2_destroy(model);
    });
}

TEST(Run, AStepWithoutAnyValidTargetIsAnUpdateThatDecaysWeightsAndIsCounted)
{
    Training t = tiny();
    t.steps = 0;
    t.policy.optimizer.weight_decay = 0.5f;
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<float> before(16 * 64), after(before.size()), bias(16), same(16);
        const size_t bytes = before.size() * sizeof(float), few = bias.size() * sizeof(float);
        const std::vector<int32_t> tokens(32, 3), none(32, -1);
        rf_step_stats stats = {};
        for (int64_t step = 1; step <= 2; step++) {
            ASSERT_RF(rf_run_read_param(run, "blocks.0.mlp.fc.weight", before.data(), bytes));
            ASSERT_RF(rf_run_read_param(run, "ln_f.weight", bias.data(), few));
            ASSERT_RF(rf_run_step(run, tokens.data(), none.data(), 0.25f, &stats));
            ASSERT_RF(rf_run_read_param(run, "blocks.0.mlp.fc.weight", after.data(), bytes));
            ASSERT_RF(rf_run_read_param(run, "ln_f.weight", same.data(), few));
            for (size_t i = 0; i < after.size(); i++)
                ASSERT_FLOAT_EQ(after[i], before[i] * 0.875f);
            EXPECT_EQ(same, bias); // vectors do not decay
            EXPECT_FALSE(stats.skipped);
            EXPECT_EQ(stats.tokens, 0);
            EXPECT_EQ(stats.loss, 0);
            EXPECT_EQ(stats.grad_norm, 0);
            EXPECT_EQ(run->updates, step);
        }
    };
    train(t, 1);
    train(t, 2);
}

TEST(Run, AGradientThatIsNotFiniteOnOneRankSkipsTheUpdateOnAll)
{
    Training t = tiny();
    t.steps = 2;
    const std::string straight = train(t, 2)[0].sha;
    t.before = [&](rf_run *run, rf_comm *, int rank) {
        std::vector<float> bias(16, 0.0f);
        std::vector<int32_t> tokens, targets;
        rf_step_stats stats = {};
        if (rank == 1)
            bias[3] = INFINITY;
        t.batch(9, tokens, targets);
        ASSERT_RF(rf_run_write_param(run, "ln_f.bias", bias.data(), 64));
        const std::string before = sha_of(run);
        ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0.01f, &stats));
        const std::string after = sha_of(run);
        EXPECT_TRUE(stats.skipped);
        EXPECT_FALSE(std::isfinite(stats.grad_norm));
        EXPECT_EQ(before, after);
        EXPECT_EQ(run->updates, 0); // Adam's t stands still, too; otherwise later steps would
                                    // differ
        bias[3] = 0;
        ASSERT_RF(rf_run_write_param(run, "ln_f.bias", bias.data(), 64));
    };
    EXPECT_EQ(train(t, 2)[0].sha, straight);
}

TEST(Run, LargeFiniteGradientsAreClippedAndNotSkippedOnAnyNumberOfRanks)
{
    struct Steep { // the gradient of each parameter is 1e38 in each micro-batch
        static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->losses, 1.0f);
        }
        static int input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
        {
            return 0;
        }
        static int weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->grads[0], 1e38f);
        }
        static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
        {
            *out = {};
            out->out = rf_shape2(rows, 4);
            return 0;
        }
    };
    static const rf_block_ops ops = {Steep::forward, Steep::input, Steep::weight, Steep::sizes};
    const int64_t count = 2500; // three chunks of the norm
    rank_device(0), rank_device(1);
    auto step = [&](rf_comm *comm, int ranks, int rank) {
        StubBlocks stubs;
        stubs.add("steep", {count});
        rf_block block = stubs.blocks()[0];
        block.ops = &ops;
        rf_policy policy = {};
        policy.batch = policy.micro_batches = 2;
        policy.seq = 4;
        policy.order = RF_ORDER_TREE;
        policy.optimizer.kind = RF_SGD;
        policy.clip = 1;
        rf_mesh mesh = {ranks, 1, 1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        rf_step_stats stats = {};
        const int32_t words[8] = {};
        std::vector<float> p((size_t)count);
        ASSERT_RF(rf_plan_build({&block, 1}, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        ASSERT_RF(rf_run_step(run, words, words, 1, &stats));
        EXPECT_FALSE(stats.skipped);
        EXPECT_EQ(stats.grad_norm, FLT_MAX); // it is 50 * 2e38 / 8 tokens
        ASSERT_RF(rf_run_read_param(run, "steep.0", p.data(), p.size() * 4));
        for (float x : p)
            ASSERT_FLOAT_EQ(x, -1 / 50.0f);
        rf_run_close(run);
        rf_plan_destroy(plan);
    };
    step(nullptr, 1, 0);
    ranks::run({}, [&](rf_comm *comm, int rank) { step(comm, 2, rank); });
}

TEST(Run, EvaluationIsTheSameOnAnyNumberOfRanksAndChangesNothing)
{
    Training t = tiny();
    t.steps = 1;
    double first = 0;
    for (int ranks : {1, 2, 3}) {
        std::vector<double> losses((size_t)ranks);
        t.after = [&](rf_run *run, rf_comm *, int rank) {
            std::vector<int32_t> tokens, targets;
            t.batch(4, tokens, targets);
            targets[5] = -1;
            const std::string before = sha_of(run);
            for (int64_t n : {1, 2, 4}) // fewer micro-batches than ranks, too
                ASSERT_RF(
                    rf_run_evaluate(run, tokens.data(), targets.data(), n, &losses[(size_t)rank]));
            EXPECT_EQ(sha_of(run), before);
        };
        train(t, ranks);
        for (double loss : losses)
            EXPECT_EQ(loss, ranks == 1 ? losses[0] : first);
        first = losses[0];
        EXPECT_GT(first, 1);
    }
}

TEST(Run, LogitsAreThoseThatTheLossIsMadeOf)
{
    for (bool forward_only : {false, true}) {
        Training t = tiny();
        t.policy.forward_only = forward_only;
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            std::vector<int32_t> tokens, targets;
            std::vector<float> logits(8 * 17);
            double loss = 0, sum = 0;
            t.batch(0, tokens, targets);
            ASSERT_RF(rf_run_forward(run, tokens.data(), logits.data(), logits.size() * 4));
            ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 1, &loss));
            for (size_t row = 0; row < 8; row++) {
                double total = 0;
                for (size_t v = 0; v < 17; v++)
                    total += std::exp((double)logits[row * 17 + v]);
                sum += std::log(total) - logits[row * 17 + (size_t)targets[row]];
            }
            EXPECT_NEAR(loss, sum / 8, 1e-5);
            EXPECT_EQ(rf_run_forward(run, tokens.data(), logits.data(), 4), RF_EINVAL);
            if (forward_only) {
                EXPECT_EQ(rf_run_step(run, tokens.data(), targets.data(), 1, nullptr), RF_EINVAL);
            }
        };
        train(t, 1);
    }
}

TEST(Run, TargetsOutsideTheVocabularyAndUnknownNamesAreRefused)
{
    Training t = tiny();
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        float word = 0;
        t.batch(0, tokens, targets);
        targets[7] = 17;
        EXPECT_EQ(rf_run_step(run, tokens.data(), targets.data(), 1, nullptr), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "target 17 at position 7"), nullptr);
        EXPECT_EQ(rf_run_read_param(run, "nothing", &word, 4), RF_EINVAL);
        EXPECT_EQ(rf_run_read_param(run, "ln_f.bias", &word, 4), RF_EINVAL);
    };
    train(t, 1);
}

TEST(Run, TokensOutsideTheVocabularyAreRefusedByEveryCallAndTheRunGoesOn)
{
    Training t = tiny();
    t.steps = 1;
    t.before = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> tokens, targets;
        std::vector<float> logits(8 * 17);
        double loss = 0;
        t.batch(0, tokens, targets);
        const std::string before = sha_of(run);
        for (int32_t id : {-1, 17, INT32_MAX}) {
            const std::string words =
                "token " + std::to_string(id) +
                " at position 7 is outside the vocabulary of 17: use ids from 0 to 16";
            auto refused = [&](int rc) {
                EXPECT_EQ(rc, RF_EINVAL);
                EXPECT_EQ(rf_last_error()->message, words);
            };
            tokens[7] = id;
            refused(rf_run_step(run, tokens.data(), targets.data(), 0.1f, nullptr));
            refused(rf_run_evaluate(run, tokens.data(), targets.data(), 2, &loss));
            refused(rf_run_forward(run, tokens.data(), logits.data(), logits.size() * 4));
        }
        EXPECT_EQ(sha_of(run), before);
    };
    for (int ranks : {1, 2}) {
        const Seen seen = train(t, ranks)[0];
        EXPECT_EQ(seen.loss.size(), 1u);
        EXPECT_EQ(seen.measured.sent, seen.planned.sent);
    }
}

TEST(Run, ABlockOfTheUsersDeclaresTheVocabularyItTakes)
{
    struct Own {
        static int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor out)
        {
            int rc = rf_fill(ctx->stream, ctx->losses, 1.0f);
            return rc < 0 ? rc : rf_fill(ctx->stream, out, 0.0f);
        }
        static int sizes(const void *self, int64_t rows, int64_t, rf_block_sizes *out)
        {
            *out = {};
            out->out = rf_shape2(rows, 4);
            out->vocabulary = *(const int64_t *)self;
            return 0;
        }
    };
    static const rf_block_ops ops = {Own::forward, nullptr, nullptr, Own::sizes};
    const int32_t words[4] = {0, 5, -7, 2};
    float out[16];
    rf_policy policy = {};
    policy.batch = 1;
    policy.seq = 4;
    policy.forward_only = true;
    for (int64_t vocabulary : {-1, 0, 5}) {
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        rf_block block = {};
        block.name = "own";
        block.ops = &ops;
        block.self = &vocabulary;
        const int rc = rf_plan_build({&block, 1}, nullptr, &policy, 0, &plan);
        EXPECT_EQ(rc, vocabulary < 0 ? RF_EINVAL : 0) << rf_last_error()->message;
        if (rc < 0)
            continue;
        ASSERT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
        EXPECT_EQ(rf_run_forward(run, words, out, sizeof(out)), vocabulary ? RF_EINVAL : 0);
        rf_run_close(run);
        rf_plan_destroy(plan);
    }
}

TEST(Run, ATokenThatOnlyOneRankRefusesIsAnErrorOnAllWithoutAHang)
{
    Training t = tiny();
    rank_device(0), rank_device(1);
    enum Call { STEP, EVALUATE, FORWARD };
    for (Call call : {STEP, EVALUATE, FORWARD}) {
        t.policy.zero = call == FORWARD ? 3 : 0; // a collective if parameters are sharded
        ranks::run({}, [&](rf_comm *comm, int rank) {
            gpt2 *model = nullptr;
            rf_plan *plan = nullptr;
            rf_run *run = nullptr;
            int count = 0;
            double loss = 0;
            rf_mesh mesh = {2, 1, 1};
            std::vector<int32_t> tokens, targets;
            ASSERT_RF(gpt2_create(&t.model, &model));
            const rf_block *blocks = gpt2_blocks(model, &count);
            ASSERT_RF(rf_plan_build({blocks, count}, &mesh, &t.policy, rank, &plan));
            ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
            t.batch(0, tokens, targets);
            std::vector<float> logits(
                (size_t)(plan->rows * plan->sizes[plan->block_count - 1].out.dim[1]));
            // A forward pass covers one micro-batch.
            tokens[call == FORWARD ? 3 : 9] = rank == 1 ? 17 : 0;
            int rc = call == EVALUATE
                         ? rf_run_evaluate(run, tokens.data(), targets.data(), 4, &loss)
                     : call == FORWARD
                         ? rf_run_forward(run, tokens.data(), logits.data(), 4 * logits.size())
                         : rf_run_step(run, tokens.data(), targets.data(), 0.1f, nullptr);
            const std::string message = rf_last_error()->message;
            if (rank == 1) {
                EXPECT_EQ(rc, RF_EINVAL) << message;
                EXPECT_NE(message.find(call == FORWARD ? "token 17 at position 3"
                                                       : "token 17 at position 9"),
                          std::string::npos)
                    << message;
            } else {
                EXPECT_TRUE(rc == RF_EMISMATCH || rc == RF_EABORT) << message;
                EXPECT_NE(message.find("rank 1"), std::string::npos) << message;
            }
            rf_run_close(run);
            rf_plan_destroy(plan);
            gpt2_destroy(model);
        });
    }
}

TEST(Run, MemoryThatTheHostCannotReachGivesTheSameBitsAndItsStagingIsPlanned)
{
    Training t = tiny();
    t.steps = 2;
    for (rf_order order : {RF_ORDER_TREE, RF_ORDER_RING}) {
        t.policy.order = order;
        const std::string mapped = train(t, 2)[0].sha;
        rf_device *hidden_devices[2] = {};
        ranks::run({}, [&](rf_comm *comm, int rank) {
            rf_device_opts hidden = {};
            hidden.hide_host_memory = true;
            rf_device *device = nullptr;
            gpt2 *model = nullptr;
            rf_plan *plan = nullptr;
            rf_run *run = nullptr;
            int count = 0;
            rf_mesh mesh = {2, 1, 1};
            rf_run_opts opts = {t.seed};
            ASSERT_RF(rf_device_open(nullptr, &hidden, &device));
            ASSERT_RF(gpt2_create(&t.model, &model));
            const rf_block *blocks = gpt2_blocks(model, &count);
            ASSERT_RF(rf_plan_build({blocks, count}, &mesh, &t.policy, rank, &plan));
            ASSERT_RF(rf_run_open(device, comm, plan, &opts, &run));
            for (int step = 0; step < t.steps; step++) {
                std::vector<int32_t> tokens, targets;
                t.batch(step, tokens, targets);
                ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr));
            }
            rf_bytes planned, measured;
            EXPECT_EQ(sha_of(run), mapped);
            rf_run_planned(run, &planned);
            rf_run_measured(run, &measured);
            EXPECT_GT(planned.comm, 0u);
            EXPECT_EQ(measured.comm, planned.comm);
            EXPECT_EQ(measured.grads, planned.grads);
            EXPECT_EQ(measured.sent, planned.sent);
            rf_run_close(run);
            rf_plan_destroy(plan);
            gpt2_destroy(model);
            hidden_devices[rank] = device; // until the communicator's staging is gone
        });
        rf_device_close(hidden_devices[0]);
        rf_device_close(hidden_devices[1]);
    }
}

TEST(Run, EveryRankHearsInTheSameStepThatOneIsToStopAndThePlanCountsIt)
{
    const struct {
        std::array<int, 3> says;
        int agreed;
    } cases[] = {{{0, 0, 0}, 0}, {{0, 1, 0}, 1}, {{1, 1, 1}, 1}, {{1, 0, 3}, 3}, {{2, 2, 1}, 2}};
    for (const auto &c : cases) {
        Training t = tiny();
        t.steps = 2;
        t.before = [&c](rf_run *run, rf_comm *, int rank) { run->stop = &c.says[(size_t)rank]; };
        for (int ranks : {1, 3}) {
            const std::vector<Seen> all = train(t, ranks);
            for (const Seen &seen : all) {
                for (const rf_step_stats &stats : seen.stats)
                    EXPECT_EQ(stats.stop, ranks == 1 ? c.says[0] : c.agreed) << ranks;
                EXPECT_EQ(seen.measured.sent, seen.planned.sent);
            }
        }
    }
}

TEST(Run, ADeathInTheMidstOfTrainingIsAnErrorOnTheSurvivorThatNamesTheRank)
{
    Training t = tiny();
    rank_device(0), rank_device(1);
    ranks::World world;
    world.timeout_s = 5;
    world.faults.kill_rank = 1;
    world.faults.kill_after_messages = 12;
    ranks::run(world, [&](rf_comm *comm, int rank) {
        gpt2 *model = nullptr;
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        int count = 0, rc = 0;
        rf_mesh mesh = {2, 1, 1};
        ASSERT_RF(gpt2_create(&t.model, &model));
        const rf_block *blocks = gpt2_blocks(model, &count);
        ASSERT_RF(rf_plan_build({blocks, count}, &mesh, &t.policy, rank, &plan));
        rc = rf_run_open(rank_device(rank), comm, plan, nullptr, &run);
        for (int step = 0; rc == 0 && step < 50; step++) {
            std::vector<int32_t> tokens, targets;
            t.batch(step, tokens, targets);
            rc = rf_run_step(run, tokens.data(), targets.data(), t.lr, nullptr);
        }
        EXPECT_LT(rc, 0);
        if (rank == 0) {
            EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
            EXPECT_EQ(rf_last_error()->rank, 1);
            EXPECT_NE(strstr(rf_last_error()->message, "rank 1"), nullptr);
        }
        rf_run_close(run);
        rf_plan_destroy(plan);
        gpt2_destroy(model);
    });
}

TEST(Run, ABlockThatFailsOnOneRankEndsTheStepOnAllAndChangesNoParameter)
{
    struct Failing {
        static int forward(rf_ctx *ctx, void *self, rf_tensor, rf_tensor)
        {
            return ctx->step == 1 && *(bool *)self ? RF_EDEVICE
                                                   : rf_fill(ctx->stream, ctx->losses, 1.0f);
        }
        static int input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
        {
            return 0;
        }
        static int weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->grads[0], 1.0f);
        }
        static int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
        {
            *out = {};
            out->out = rf_shape2(rows, 4);
            return 0;
        }
    };
    static const rf_block_ops ops = {Failing::forward, Failing::input, Failing::weight,
                                     Failing::sizes};
    rank_device(0), rank_device(1);
    ranks::run({}, [&](rf_comm *comm, int rank) {
        StubBlocks stubs;
        stubs.add("a", {10});
        bool fails = rank == 1;
        rf_block block = stubs.blocks()[0];
        block.ops = &ops;
        block.self = &fails;
        rf_policy policy = {};
        policy.batch = policy.micro_batches = 2;
        policy.seq = 4;
        rf_mesh mesh = {2, 1, 1};
        rf_plan *plan = nullptr;
        rf_run *run = nullptr;
        const int32_t words[8] = {};
        ASSERT_RF(rf_plan_build({&block, 1}, &mesh, &policy, rank, &plan));
        ASSERT_RF(rf_run_open(rank_device(rank), comm, plan, nullptr, &run));
        ASSERT_RF(rf_run_step(run, words, words, 0.1f, nullptr));
        const std::string before = sha_of(run);
        // Rank 0 has completed its step before rank 1 fails, and may learn of that in the barrier.
        const int met = rf_barrier(comm, nullptr);
        EXPECT_TRUE(met == RF_OK || (rank == 0 && met == RF_EABORT)) << rf_last_error()->message;
        EXPECT_EQ(rf_run_step(run, words, words, 0.1f, nullptr), rank ? RF_EDEVICE : RF_EABORT)
            << rf_last_error()->message;
        EXPECT_EQ(sha_of(run), before);
        rf_run_close(run);
        rf_plan_destroy(plan);
    });
}
