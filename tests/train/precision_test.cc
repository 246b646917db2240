// SPDX-License-Identifier: MIT
//
// Types of values: parameters with f32 masters or without, gradients that are sent in 16 bits.
#include <cmath>

#include "folder.h"
#include "small_trainings.h"
#include "world.h"

namespace
{

// ---- one parameter, whose gradient is 1
// ---------------------------------------------------------

const int64_t columns = 256;

int forward(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return rf_fill(ctx->stream, ctx->losses, 1);
}
int backward_input(rf_ctx *, void *, rf_tensor, rf_tensor, rf_tensor)
{
    return 0;
}
int backward_weight(rf_ctx *ctx, void *, rf_tensor, rf_tensor)
{
    return rf_fill(ctx->stream, ctx->grads[0], 1.0f);
}
int sizes(const void *, int64_t rows, int64_t, rf_block_sizes *out)
{
    *out = {};
    out->out = rf_shape2(rows, 1);
    return 0;
}
const rf_block_ops constant_gradient = {forward, backward_input, backward_weight, sizes};

// The mean of a parameter that starts at 1, after steps of SGD.
double after_steps(rf_dtype type, bool no_masters, bool stochastic, int steps, float lr)
{
    rf_param_desc param = {};
    param.name = "w";
    param.shape = rf_shape1(columns);
    param.dtype = type;
    param.init_value = 1;
    rf_block block = {};
    block.name = "constant";
    block.ops = &constant_gradient;
    block.params = &param;
    block.param_count = 1;
    rf_policy policy = {};
    policy.batch = policy.micro_batches = policy.seq = 1;
    policy.optimizer.kind = RF_SGD;
    policy.optimizer.stochastic_rounding = stochastic;
    policy.no_masters = no_masters;
    rf_plan *plan = nullptr;
    rf_run *run = nullptr;
    std::vector<float> w(columns);
    const int32_t zero = 0;
    EXPECT_RF(rf_plan_build({&block, 1}, nullptr, &policy, 0, &plan));
    EXPECT_RF(rf_run_open(rank_device(0), nullptr, plan, nullptr, &run));
    for (int i = 0; i < steps; i++)
        EXPECT_RF(rf_run_step(run, &zero, &zero, lr, nullptr));
    EXPECT_RF(rf_run_read_param(run, "w", w.data(), sizeof(float) * columns));
    rf_run_close(run);
    rf_plan_destroy(plan);
    double sum = 0;
    for (float x : w)
        sum += x;
    return sum / columns;
}

// ---- a GPT
// ---------------------------------------------------------------------------------------

Training gpt(rf_dtype type, rf_order order)
{
    Training t;
    t.model.vocab = 257;
    t.model.dtype = t.model.residual = type;
    t.policy.order = order;
    t.policy.clip = 0.25f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    return t;
}

Training on(const Training &plain, const Sharding &s)
{
    Training t = plain;
    t.policy.zero = s.zero;
    t.policy.order = s.order;
    t.policy.offload = s.offload;
    t.shard = s.shard;
    return t;
}

} // namespace

// The distance between bf16's numbers below 1 is 2^-8, and between f16's 2^-11.
TEST(Precision, WithoutMastersAnUpdateBelowHalfADigitIsLostAndMastersMove)
{
    const struct {
        rf_dtype type;
        float lr;
    } rows[] = {{RF_BF16, 0x1p-10f}, {RF_F16, 0x1p-13f}};
    for (const auto &[type, lr] : rows) {
        EXPECT_EQ(after_steps(type, true, false, 64, lr), 1) << "it stalls";
        EXPECT_EQ(after_steps(type, false, false, 64, lr), 1 - 64 * (double)lr);
        // Each of 64 steps moves a parameter by 4 lr with a chance of 1/4: its deviation is below
        // 14 lr, that of the mean of 256 below 0.9 lr.
        EXPECT_NEAR(after_steps(type, true, true, 64, lr), 1 - 64 * (double)lr, 6 * (double)lr)
            << "on average it moves as it should";
    }
}

TEST(Precision, WithoutMastersTreeOrderGivesTheBitsOfOneProcessAtEveryStage)
{
    for (bool stochastic : {false, true}) {
        Training plain = gpt(RF_BF16, RF_ORDER_TREE);
        plain.steps = 2;
        plain.policy.no_masters = true;
        plain.policy.optimizer.stochastic_rounding = stochastic;
        const std::string one = train(plain, 1)[0].sha;
        for (const Sharding &s : all_shardings()) {
            if (s.order != RF_ORDER_TREE || s.offload & RF_OFFLOAD_OPTIMIZER)
                continue; // the host's arithmetic differs
            for (const Seen &seen : train(on(plain, s), 3)) {
                EXPECT_EQ(seen.sha, one) << s.text();
                expect_planned(seen, s.text());
            }
        }
    }
}

// The random number belongs to the element of the whole model and to the update: copies of a
// parameter on several stages, tensor ranks, or ranks that rank 0 updates, round alike.
TEST(Precision, StochasticRoundingBelongsToTheElementAndTheUpdate)
{
    struct Mesh {
        int ranks, tp, pp;
        int parts, offload;
        bool no_masters, rank0, sequence, exact;
    };
    const Mesh meshes[] = {{2, 1, 2, 0, 0, false, false, false, true},
                           {4, 1, 2, 0, RF_OFFLOAD_OPTIMIZER, false, false, false, true},
                           {2, 1, 2, 0, 0, true, false, false, true},
                           {4, 2, 2, 4, 0, false, false, false, true},
                           {2, 2, 1, 0, 0, false, false, true, false}, // 257 rows: 128 and 129
                           {3, 1, 1, 0, 0, false, true, false, false}};
    for (const Mesh &m : meshes) {
        Training t = gpt(RF_BF16, m.rank0 ? RF_ORDER_RING : RF_ORDER_TREE);
        t.policy.optimizer.stochastic_rounding = true;
        t.policy.no_masters = m.no_masters;
        t.policy.tensor_parts = m.parts;
        t.policy.offload = m.offload;
        t.policy.batch = t.policy.micro_batches = 4;
        t.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {t.steps, t.seed, 12};
            EXPECT_RF(rf_run_audit(run, &progress));
        };
        const std::string one = m.exact ? train(t, 1)[0].sha : "";
        t.policy.update_on_rank_0 = m.rank0;
        t.policy.sequence_parallel = m.sequence;
        t.tp = m.tp;
        t.pp = m.pp;
        for (const Seen &s : train(t, m.ranks)) {
            const std::string where = "tp=" + std::to_string(m.tp) + " pp=" + std::to_string(m.pp);
            expect_planned(s, where);
            if (m.exact) {
                EXPECT_EQ(s.sha, one) << where;
            }
        }
    }
}

TEST(Precision, AResumeHasTheCopiesThatTheLastUpdateHasRounded)
{
    struct Where {
        int ranks, zero, pp;
        rf_pipeline_kind pipeline;
    };
    for (const Where &w : {Where{1, 0, 1, RF_PIPELINE_1F1B}, Where{3, 2, 1, RF_PIPELINE_1F1B},
                           Where{2, 0, 2, RF_PIPELINE_2BW}}) {
        Folder folder;
        Training whole = gpt(RF_BF16, RF_ORDER_TREE);
        whole.policy.optimizer.stochastic_rounding = true;
        whole.policy.zero = w.zero;
        whole.policy.pipeline = w.pipeline;
        whole.pp = w.pp;
        whole.drain_every = w.pipeline == RF_PIPELINE_2BW ? 2 : 0;
        Training first = whole, rest = whole;
        whole.steps = 4;
        first.steps = rest.steps = rest.first_step = 2;
        first.after = [&](rf_run *run, rf_comm *, int) {
            const rf_progress progress = {2, first.seed, 16};
            ASSERT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        rest.before = [&](rf_run *run, rf_comm *, int) {
            ASSERT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
        };
        train(first, w.ranks);
        const Seen seen = train(whole, w.ranks)[0], resumed = train(rest, w.ranks)[0];
        EXPECT_EQ(resumed.sha, seen.sha) << w.ranks << " ranks";
        EXPECT_EQ(resumed.loss.back(), seen.loss.back());
    }
}

// All copies are updated.
TEST(Precision, WritingAParameterLeavesTheOtherCopies)
{
    Training t = gpt(RF_BF16, RF_ORDER_TREE);
    t.policy.optimizer.stochastic_rounding = true;
    std::vector<float> logits[2];
    t.after = [&](rf_run *run, rf_comm *, int) {
        const std::vector<int32_t> tokens(16, 3);
        std::vector<float> same(32);
        for (std::vector<float> &l : logits) {
            l.resize(16 * 257);
            ASSERT_RF(rf_run_forward(run, tokens.data(), l.data(), l.size() * sizeof(float)));
            ASSERT_RF(rf_run_read_param(run, "ln_f.bias", same.data(), 32 * sizeof(float)));
            ASSERT_RF(rf_run_write_param(run, "ln_f.bias", same.data(), 32 * sizeof(float)));
        }
    };
    train(t, 1);
    EXPECT_EQ(logits[0], logits[1]);
}

TEST(Precision, ParametersWithoutMastersTakeAThird)
{
    Training t = gpt(RF_BF16, RF_ORDER_RING);
    t.steps = 1;
    for (int zero : zero_stages) {
        t.policy.zero = zero;
        t.policy.no_masters = false;
        const uint64_t masters = train(t, 1)[0].measured.params;
        t.policy.no_masters = true;
        EXPECT_NEAR((double)train(t, 1)[0].measured.params, (double)masters / 3, 256)
            << "zero=" << zero;
    }
}

// 16-bit values are sent in 16 bits, and no rank holds f32 parameters that it does not need.
TEST(Precision, ShardedMastersAreNowhereWhole)
{
    Training t = gpt(RF_BF16, RF_ORDER_RING);
    t.steps = 1;
    t.policy.micro_batches = 4;
    const Seen ddp = train(t, 4)[0];
    for (int zero : {1, 2}) {
        t.policy.zero = zero;
        const Seen s = train(t, 4)[0];
        expect_planned(s, "zero=" + std::to_string(zero));
        // 2 bytes of each parameter, and a quarter of 6, up to ragged shards.
        EXPECT_NEAR((double)s.measured.params, (double)ddp.measured.params * (2 + 6 / 4.0) / 6,
                    0.05 * (double)ddp.measured.params);
        // Gradients are reduced in f32, and parameters gathered in half of that.
        const double sent = (double)ddp.stats[0].sent_bytes;
        EXPECT_NEAR((double)s.stats[0].sent_bytes, sent * (4 + 2) / 8, 0.05 * sent);
    }
}

TEST(Precision, GradientsThatTravelInSixteenBitsTakeHalfAndReplicasStayEqual)
{
    for (rf_dtype type : {RF_BF16, RF_F16})
        for (const Sharding &s : all_shardings()) {
            if (s.order == RF_ORDER_TREE || (type == RF_F16 && (s.zero || s.offload)))
                continue;
            Training t = on(gpt(RF_F32, RF_ORDER_RING), s);
            t.policy.clip = 0;
            const std::vector<Seen> wide = train(t, s.shard ? 4 : 3);
            t.policy.reduce_dtype = type;
            const std::vector<Seen> narrow = train(t, s.shard ? 4 : 3);
            for (const Seen &seen : narrow) {
                EXPECT_EQ(seen.sha, narrow[0].sha) << s.text();
                expect_planned(seen, s.text());
            }
            EXPECT_NE(narrow[0].sha, wide[0].sha) << s.text();
            EXPECT_LT(narrow[0].measured.sent, wide[0].measured.sent) << s.text();
            for (int step = 0; step < t.steps; step++) {
                const double norm = (double)wide[0].norm[(size_t)step];
                // Each gradient is rounded at most three times, by 2^-9 of itself.
                if (step == 0) {
                    EXPECT_NEAR((double)narrow[0].norm[0], norm, 0x3p-9 * norm) << s.text();
                }
                EXPECT_NEAR(narrow[0].loss[(size_t)step], wide[0].loss[(size_t)step],
                            0.01 * wide[0].loss[(size_t)step])
                    << s.text();
            }
        }
}

// 262,144 tokens with a mean gradient of 2^-20, 1/2 or 8: the sums of most are beyond f16.
TEST(Precision, GradientsThatAreSentInF16AreNotLimitedByTheTokensOfAStep)
{
    static const int64_t rows = 1 << 17; // of a micro-batch
    struct Sum {
        static int weight(rf_ctx *ctx, void *mean, rf_tensor, rf_tensor)
        {
            return rf_fill(ctx->stream, ctx->grads[0], *(float *)mean * (float)rows);
        }
    };
    const rf_block_ops ops = {forward, backward_input, Sum::weight, sizes};
    for (int zero : {0, 2})
        for (float mean : {0x1p-20f, 0.5f, 8.0f}) {
            rf_param_desc param = {};
            param.name = "w";
            param.shape = rf_shape1(columns);
            param.dtype = RF_F32;
            Training t;
            t.edit_blocks = [&](std::vector<rf_block> &blocks, int) {
                blocks.assign(1, {});
                blocks[0].name = "constant";
                blocks[0].ops = &ops;
                blocks[0].self = &mean;
                blocks[0].params = &param;
                blocks[0].param_count = 1;
            };
            t.edit_batch = [](int, std::vector<int32_t> &, std::vector<int32_t> &targets) {
                std::fill(targets.begin(), targets.end(), 0);
            };
            t.policy.batch = 2048;
            t.policy.seq = 128;
            t.policy.micro_batches = 2;
            t.policy.order = RF_ORDER_RING;
            t.policy.zero = zero;
            t.policy.reduce_dtype = RF_F16;
            t.policy.optimizer.kind = RF_SGD;
            t.steps = 1;
            for (const Seen &s : train(t, 2)) {
                EXPECT_FALSE(s.stats[0].skipped) << mean;
                EXPECT_EQ(s.norm[0], 16 * mean); // 256 equal elements
            }
        }
}

TEST(Precision, OfDataParallelismExactlyTheGradientsAreHalved)
{
    Training t = gpt(RF_F32, RF_ORDER_RING);
    t.steps = 1;
    t.policy.no_overlap = true;
    const rf_bytes wide = train(t, 2)[0].planned;
    t.policy.reduce_dtype = RF_BF16;
    const rf_bytes narrow = train(t, 2)[0].planned;
    const uint64_t losses = sizeof(double) * (2 * 8 + 1);
    EXPECT_EQ(2 * (narrow.sent - losses), wide.sent - losses);
    EXPECT_LE(narrow.grads, wide.grads + wide.grads / 2 + 8 * 256);
}

TEST(Precision, FinalLossesAreWithinAPercentOfF32)
{
    struct Row {
        const char *text;
        rf_dtype type, reduce;
        bool no_masters, stochastic;
        float scale;
    };
    const Row rows[] = {{"bf16", RF_BF16, RF_F32, false, false, 0},
                        {"bf16, gradients too", RF_BF16, RF_BF16, false, false, 0},
                        {"f16, gradients too", RF_F16, RF_F16, false, false, 64},
                        {"bf16 without masters", RF_BF16, RF_F32, true, true, 0}};
    Training t = gpt(RF_F32, RF_ORDER_RING);
    t.ignored = 0;
    learn(&t);
    const double f32 = train(t, 2)[0].loss.back();
    EXPECT_LT(f32, 5) << "it learns: it began at log 257 = 5.5";
    for (const Row &row : rows) {
        t.model.dtype = t.model.residual = row.type;
        t.policy.reduce_dtype = row.reduce;
        t.policy.no_masters = row.no_masters;
        t.policy.optimizer.stochastic_rounding = row.stochastic;
        t.policy.loss_scale = row.scale;
        const double loss = train(t, 2)[0].loss.back();
        printf("  %-24s %.4f of %.4f\n", row.text, loss, f32);
        EXPECT_NEAR(loss, f32, 0.01 * f32) << row.text;
    }
}

TEST(Precision, ACheckpointIsExactFromAnyPrecisionToOneThatHoldsIt)
{
    Folder folder;
    Training from = gpt(RF_BF16, RF_ORDER_TREE);
    from.steps = 2;
    from.policy.no_masters = true;
    from.after = [&](rf_run *run, rf_comm *, int) {
        rf_progress progress = {2, 5, 16};
        EXPECT_RF(rf_run_save(run, folder.path().c_str(), &progress));
    };
    const std::string saved = train(from, 2)[0].sha;
    for (bool no_masters : {false, true})
        for (rf_dtype type : {RF_BF16, RF_F32}) {
            Training to = gpt(type, RF_ORDER_TREE);
            to.steps = 0;
            to.policy.no_masters = no_masters;
            to.policy.zero = 3;
            to.before = [&](rf_run *run, rf_comm *, int) {
                EXPECT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
            };
            if (no_masters && type == RF_F32)
                continue;
            EXPECT_EQ(train(to, 3)[1].sha, saved) << no_masters << " " << rf_dtype_name(type);
        }
}

TEST(Precision, WhatDoesNotGoTogetherIsRefusedByName)
{
    struct Row {
        rf_policy policy;
        rf_dtype type;
        const char *says;
    };
    rf_policy masters = {}, tree = {}, type = {};
    masters.no_masters = true;
    tree.reduce_dtype = RF_BF16;
    tree.order = RF_ORDER_TREE;
    type.reduce_dtype = RF_I32;
    const Row rows[] = {{masters, RF_F32, "no_masters: parameter w is f32"},
                        {tree, RF_F32, "reduce_dtype bf16 in tree order"},
                        {type, RF_F32, "gradients travel as RF_F32, RF_F16 or RF_BF16"}};
    for (const Row &row : rows) {
        rf_param_desc param = {};
        param.name = "w";
        param.shape = rf_shape1(8);
        param.dtype = row.type;
        rf_block block = {};
        block.name = "constant";
        block.ops = &constant_gradient;
        block.params = &param;
        block.param_count = 1;
        rf_policy policy = row.policy;
        policy.batch = policy.micro_batches = policy.seq = 1;
        rf_plan *plan = nullptr;
        EXPECT_EQ(rf_plan_build({&block, 1}, nullptr, &policy, 0, &plan), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(row.says), std::string::npos)
            << rf_last_error()->message;
    }
}
