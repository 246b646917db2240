// SPDX-License-Identifier: MIT
//
// Frozen parameters: the gradients of the others, losses and updates have the bits of a run that
// computes all gradients; nothing is computed, kept or sent for frozen ones; on any mesh.
#include <cmath>
#include <map>

#include "folder.h"
#include "support/ranks.h"
#include "world.h"

extern "C" {
#include "coll/reduce.h"
#include "parallel/plan/plan.h"
}

namespace
{

using Values = std::map<std::string, std::vector<float>>;
using Patterns = std::vector<std::string>;

Training small(bool is_llama)
{
    Training t;
    t.model = {2, 32, 4, 16, 61};
    if (is_llama) {
        t.llama.layers = 2;
        t.llama.channels = 32;
        t.llama.heads = 4;
        t.llama.kv_heads = 2;
        t.llama.vocab = 61;
    }
    t.policy.batch = 4;
    t.policy.micro_batches = 4;
    t.policy.order = RF_ORDER_RING;
    return t;
}

int64_t elements(const rf_plan *plan, int param)
{
    return rf_shape_count(plan->params[param].cut.shape);
}

bool frozen(const rf_plan *plan, int param)
{
    return !rf_plan_trains(plan, param);
}

// Trained ones, or all parameters.
Values read(rf_run *run, bool gradients)
{
    Values values;
    const rf_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const char *name = plan->params[i].desc->name;
        if (plan->params[i].logical != i || (gradients && frozen(plan, i)))
            continue;
        std::vector<float> v((size_t)elements(plan, i));
        EXPECT_RF(gradients ? rf_run_read_grad(run, name, v.data(), v.size() * sizeof(float))
                            : rf_run_read_param(run, name, v.data(), v.size() * sizeof(float)));
        values[name] = v;
    }
    return values;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Values gradients_of(Training t, double *loss)
{
    Values values;
    t.steps = 1;
    t.after = [&](rf_run *run, rf_comm *, int) { values = read(run, true); };
    *loss = train(t, 1)[0].loss[0];
    return values;
}

// Trains each parameter alone, with the others frozen: so the backward pass ends at every possible
// place.
void expect_gradients(const Training &all, const std::string &where)
{
    double loss = 0;
    const Values wanted = gradients_of(all, &loss);
    for (const auto &[name, values] : wanted) {
        Training t = all;
        double now = 0;
        t.freeze = {"*", "!" + name};
        const Values got = gradients_of(t, &now);
        ASSERT_EQ(got.size(), 1u) << name;
        EXPECT_EQ(now, loss) << where << ", " << name;
        EXPECT_TRUE(same_bits(got.at(name), values)) << where << ", " << name;
    }
}

TEST(Frozen, GradientOfEachParameterAloneHasTheBitsOfAllTogether)
{
    for (bool is_llama : {false, true})
        for (unsigned recompute : {0u, (unsigned)MODEL_RECOMPUTE_ALL})
            for (int head_rows : {0, 24}) {
                Training t = small(is_llama);
                t.model.recompute = t.llama.recompute = recompute;
                t.model.head_rows = t.llama.head_rows = head_rows;
                expect_gradients(t, std::string(is_llama ? "llama" : "gpt2") + ", recompute " +
                                        std::to_string(recompute) + ", head rows " +
                                        std::to_string(head_rows));
            }
}

TEST(Frozen, GradientsInSixteenBitsAreThoseOfAllTogether)
{
    for (bool is_llama : {false, true}) {
        Training t = small(is_llama);
        t.model.dtype = t.llama.dtype = RF_F16;
        t.policy.loss_scale = 64;
        expect_gradients(t, is_llama ? "llama f16" : "gpt2 f16");
    }
}

std::vector<float> rounded(std::vector<float> values)
{
    std::vector<uint16_t> narrow(values.size());
    rf_narrow(narrow.data(), values.data(), values.size(), RF_BF16);
    rf_widen(values.data(), narrow.data(), values.size(), RF_BF16);
    return values;
}

// Trains all, and restores the ones to be frozen after every step.
void expect_run(const Training &given, const Patterns &freeze)
{
    Values trained, dropped, first;
    Training t = given;
    std::vector<double> losses, other;
    t.freeze = freeze;
    t.steps = 4;
    std::map<std::string, bool> is_frozen, is_bare;
    t.after = [&](rf_run *run, rf_comm *, int) {
        trained = read(run, false);
        for (int i = 0; i < run->plan->param_count; i++) {
            is_frozen[run->plan->params[i].desc->name] = frozen(run->plan, i);
            is_bare[run->plan->params[i].desc->name] = run->plan->params[i].bare;
        }
    };
    const Seen seen = train(t, 1)[0];
    expect_planned(seen, freeze[0]);
    t.freeze = {};
    t.before = [&](rf_run *run, rf_comm *, int) {
        first = read(run, false);
        for (int step = 0; step < 4; step++) {
            std::vector<int32_t> tokens, targets;
            rf_step_stats stats = {};
            t.batch(step, tokens, targets);
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), t.lr, &stats));
            EXPECT_EQ(stats.loss, seen.loss[(size_t)step]) << freeze[0] << ", step " << step;
            for (auto &[name, values] : first)
                if (is_frozen.at(name)) {
                    ASSERT_RF(rf_run_write_param(run, name.c_str(), values.data(),
                                                 values.size() * sizeof(float)));
                }
        }
        dropped = read(run, false);
    };
    t.after = nullptr;
    t.steps = 0;
    train(t, 1);
    for (auto &[name, values] : trained) {
        const bool stays = is_frozen.at(name);
        if (is_bare.at(name)) { // without a master
            EXPECT_TRUE(same_bits(values, rounded(first.at(name)))) << freeze[0] << ", " << name;
            continue;
        }
        EXPECT_TRUE(same_bits(values, dropped.at(name))) << freeze[0] << ", " << name;
        EXPECT_EQ(same_bits(values, first.at(name)), stays) << freeze[0] << ", " << name;
    }
}

const Patterns gpt2_patterns[] = {{"blocks.0.*"},
                                  {"w?e.weight", "blocks.0.*"},
                                  {"w?e.weight", "blocks.*"},
                                  {"blocks.1.*", "ln_f.*"},
                                  {"*", "!*.bias"},
                                  {"*weight", "!wpe.weight"},
                                  {"*", "!blocks.1.mlp.proj.weight", "!blocks.0.ln2.bias"}};

TEST(Frozen, RunEqualsOneThatDropsTheirGradients)
{
    for (const Patterns &freeze : gpt2_patterns)
        for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE})
            for (rf_dtype dtype : {RF_F32, RF_BF16}) {
                Training t = small(false);
                t.policy.order = order;
                t.model.dtype = dtype;
                expect_run(t, freeze);
            }
}

TEST(Frozen, NormAndClippingAreOfTheTrainedOnes)
{
    Training t = small(false);
    t.freeze = {"*", "!blocks.1.*"};
    t.policy.clip = 1e-3f;
    t.steps = 1;
    Values gradients;
    t.after = [&](rf_run *run, rf_comm *, int) { gradients = read(run, true); };
    const Seen seen = train(t, 1)[0];
    double squares = 0;
    for (const auto &[name, values] : gradients)
        for (float v : values)
            squares += (double)v * v;
    const double tokens = (double)seen.stats[0].tokens;
    EXPECT_NEAR(seen.norm[0], std::sqrt(squares) / tokens, 1e-6 * std::sqrt(squares) / tokens);
}

TEST(Frozen, ShardedAndOffloadedRunsHaveTheBitsOfOneRank)
{
    for (const Patterns &freeze :
         {gpt2_patterns[1], gpt2_patterns[2], gpt2_patterns[3], gpt2_patterns[6]})
        for (rf_dtype dtype : {RF_F32, RF_BF16}) {
            Training t = small(false);
            t.freeze = freeze;
            t.model.dtype = dtype;
            t.policy.order = RF_ORDER_TREE;
            const std::string one = train(t, 1)[0].sha;
            for (const Sharding &s : shardings())
                for (int recompute : {0, 1}) {
                    if (s.order != RF_ORDER_TREE)
                        continue;
                    Training u = t;
                    u.policy.zero = s.zero;
                    u.policy.recompute = recompute;
                    u.policy.offload = recompute ? RF_OFFLOAD_PARAMS : 0;
                    if (s.zero == 1)
                        u.policy.offload = 0;
                    for (const Seen &seen : train(u, 2)) {
                        EXPECT_EQ(seen.sha, one) << freeze[0] << ", " << s.text();
                        expect_planned(seen, freeze[0] + ", " + s.text());
                    }
                }
        }
}

TEST(Frozen, PipelinesHaveTheBitsOfOneRank)
{
    for (const Patterns &freeze :
         {gpt2_patterns[1], gpt2_patterns[2], gpt2_patterns[3], gpt2_patterns[6]})
        for (rf_pipeline_kind kind : {RF_PIPELINE_1F1B, RF_PIPELINE_GPIPE, RF_PIPELINE_INTERLEAVED,
                                      RF_PIPELINE_ZBH1, RF_PIPELINE_ZBV, RF_PIPELINE_NAIVE}) {
            Training t = small(false);
            t.freeze = freeze;
            t.policy.order = RF_ORDER_TREE;
            const std::string one = train(t, 1)[0].sha;
            t.pp = 2;
            t.policy.pipeline = kind;
            for (const Seen &seen : train(t, 2)) {
                EXPECT_EQ(seen.sha, one) << freeze[0] << ", kind " << kind;
                expect_planned(seen, freeze[0]);
            }
        }
}

TEST(Frozen, PipelineWithoutAFlushIsThatOfAllParametersDropped)
{
    for (const Patterns &freeze : {gpt2_patterns[1], gpt2_patterns[2], gpt2_patterns[3]}) {
        Training t = small(false);
        t.freeze = freeze;
        t.pp = 2;
        t.policy.order = RF_ORDER_TREE;
        t.policy.pipeline = RF_PIPELINE_2BW;
        const std::vector<Seen> a = train(t, 2);
        t.pp = 4; // stages of one block each
        const std::vector<Seen> b = train(t, 4);
        EXPECT_EQ(a[0].sha, b[0].sha) << freeze[0];
        for (const Seen &seen : a)
            expect_planned(seen, freeze[0]);
    }
}

TEST(Frozen, TensorRanksHaveTheBitsOfOneRankWithAsManyParts)
{
    for (bool is_llama : {false, true})
        for (const Patterns &freeze : {Patterns{"*", "!blocks.1.*"}, Patterns{"blocks.0.*"},
                                       Patterns{"*", "!blocks.0.attention.qkv.weight"}}) {
            Training t = small(is_llama);
            t.freeze = freeze;
            t.policy.order = RF_ORDER_TREE;
            t.policy.tensor_parts = 2;
            const Seen one = train(t, 1)[0];
            expect_planned(one, freeze[0]);
            t.tp = 2;
            for (int ranks : {2, 4})
                for (const Seen &seen : train(t, ranks)) {
                    EXPECT_EQ(seen.sha, one.sha) << freeze[0] << ", " << ranks;
                    expect_planned(seen, freeze[0]);
                }
        }
}

// Rank 0's values.
Values all_parameters(Training t, int ranks)
{
    Values values;
    t.after = [&](rf_run *run, rf_comm *, int rank) {
        const Values mine = read(run, false);
        if (rank == 0)
            values = mine;
    };
    for (const Seen &seen : train(t, ranks))
        expect_planned(seen, t.freeze[0]);
    return values;
}

// With sequence and context parallelism the order of sums differs from one rank's.
TEST(Frozen, SharedRowsAndSequencesAreCloseToOneRank)
{
    for (bool is_llama : {false, true})
        for (int kv_heads : {2, 1})
            for (const Patterns &freeze : {Patterns{"*", "!blocks.1.*"}, Patterns{"blocks.0.*"},
                                           Patterns{"*", "!blocks.0.mlp.*"}})
                for (int cp : {1, 2}) {
                    Training t = small(is_llama);
                    t.llama.kv_heads = kv_heads;
                    t.freeze = freeze;
                    t.policy.optimizer.kind = RF_SGD; // small differences stay small
                    const Values one = all_parameters(t, 1);
                    t.cp = cp;
                    t.tp = 3 - cp;
                    t.policy.sequence_parallel = cp == 1;
                    const Values two = all_parameters(t, 2);
                    for (const auto &[name, values] : one)
                        EXPECT_LT(worst_difference(values, two.at(name)), 1e-5f) << name;
                }
}

// A run that freezes more than the one that saved; on another mesh the bits are the same.
TEST(Frozen, CheckpointsOfWholeAndOfFrozenRunsAreLoaded)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        Folder folder;
        Training t = small(false);
        t.policy.order = RF_ORDER_TREE;
        t.model.dtype = dtype;
        t.steps = 2;
        const auto save = [&](const char *name) {
            t.after = [&, name](rf_run *run, rf_comm *, int) {
                rf_progress progress = {};
                EXPECT_RF(rf_run_save(run, folder.path(name).c_str(), &progress));
            };
        };
        const auto load = [&](const char *name) {
            t.before = [&, name](rf_run *run, rf_comm *, int) {
                rf_progress progress = {};
                EXPECT_RF(rf_run_load(run, folder.path(name).c_str(), &progress));
            };
        };
        save("whole");
        train(t, 1);
        t.freeze = gpt2_patterns[1];
        load("whole");
        save("frozen");
        train(t, 1);
        load("frozen");
        t.after = nullptr;
        const std::string one = train(t, 1)[0].sha;
        t.policy.zero = 3;
        EXPECT_EQ(train(t, 2)[0].sha, one);
        t.policy.zero = 0;
        t.pp = 2;
        EXPECT_EQ(train(t, 2)[0].sha, one);
        t.pp = 1;
        t.freeze = {}; // states are missing
        t.steps = 0;
        t.before = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {};
            EXPECT_EQ(rf_run_load(run, folder.path("frozen").c_str(), &progress), RF_EINVAL);
        };
        train(t, 1);
    }
}

TEST(Frozen, InSixteenBitsTheyHaveNoMasterAndInF32NoCopy)
{
    gpt2 *model = nullptr;
    gpt2_config config = {3, 64, 4, 32, 61};
    config.dtype = RF_BF16;
    rf_policy policy = {};
    policy.batch = 4;
    policy.seq = 32;
    policy.micro_batches = 4;
    ASSERT_RF(gpt2_create(&config, &model));
    EXPECT_EQ(gpt2_freeze(model, "blocks.[01].*"), 24);
    int count = 0;
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_plan *plan = nullptr;
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan));
    uint64_t all = 0, bare = 0, single = 0;
    for (int i = 0; i < plan->param_count; i++) {
        const rf_plan_param &p = plan->params[i];
        const bool frozen = p.block == 1 || p.block == 2;
        const bool narrow = p.desc->dtype != RF_F32 && frozen;
        EXPECT_EQ(p.bare, narrow) << p.desc->name; // not norms, which are f32
        EXPECT_EQ(p.single, frozen && !narrow) << p.desc->name;
        all += p.logical == i ? rf_plan_padded(plan, (uint64_t)p.count) : 0;
        bare += narrow ? rf_plan_padded(plan, (uint64_t)p.count) : 0;
        single += p.single ? rf_plan_padded(plan, (uint64_t)p.count) : 0;
    }
    rf_bytes bytes;
    rf_plan_bytes(plan, &bytes);
    EXPECT_EQ(bytes.params, 4 * (all - bare) + 2 * (all - single));
    rf_plan_destroy(plan);
    gpt2_destroy(model);
}

TEST(Frozen, NothingOfThemIsPlannedOrComputed)
{
    gpt2 *model = nullptr;
    const gpt2_config config = {3, 64, 4, 32, 61};
    rf_policy policy = {};
    policy.batch = 2;
    policy.seq = 32;
    policy.micro_batches = 1;
    ASSERT_RF(gpt2_create(&config, &model));
    EXPECT_EQ(gpt2_freeze(model, "nothing.*"), 0);
    int count = 0;
    const rf_block *blocks = gpt2_blocks(model, &count);
    rf_block_cost before[5], after[5];
    rf_plan *plan = nullptr;
    rf_bytes all, some;
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan));
    ASSERT_RF(rf_block_costs(plan, before));
    rf_plan_bytes(plan, &all);
    rf_plan_destroy(plan);
    EXPECT_EQ(gpt2_freeze(model, "head.weight"), 1); // with wte.weight, to which it is tied
    EXPECT_EQ(gpt2_freeze(model, "wpe.weight"), 1);
    EXPECT_EQ(gpt2_freeze(model, "blocks.0.*"), 12);
    EXPECT_EQ(gpt2_freeze(model, "blocks.2.mlp.fc.weight"), 1);
    ASSERT_RF(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan));
    ASSERT_RF(rf_block_costs(plan, after));
    rf_plan_bytes(plan, &some);
    uint64_t trained = 0;
    for (int i = 0; i < plan->param_count; i++)
        if (rf_plan_trains(plan, i))
            trained += rf_plan_padded(plan, (uint64_t)elements(plan, i)) * sizeof(float);
    EXPECT_EQ(some.grads, trained);
    EXPECT_EQ(some.optimizer, 2 * trained);
    EXPECT_EQ(some.params, all.params);
    for (int b : {0, 1}) {
        EXPECT_EQ(after[b].backward_input[0].launches, 0u) << b;
        EXPECT_EQ(after[b].backward_weight[0].launches, 0u) << b;
    }
    EXPECT_EQ(before[3].backward_weight[0].flops - after[3].backward_weight[0].flops,
              2u * 64 * 64 * 256 + 64 * 256); // the product and its addition
    EXPECT_EQ(before[3].backward_input[0].flops, after[3].backward_input[0].flops);
    EXPECT_LT(after[2].backward_input[0].flops, before[2].backward_input[0].flops);
    int instructions = 0;
    const rf_instruction *list = rf_plan_instructions(plan, &instructions);
    for (int k = 0; k < instructions; k++)
        if (list[k].verb == RF_VERB_BACKWARD_INPUT || list[k].verb == RF_VERB_BACKWARD_WEIGHT) {
            EXPECT_GE(list[k].block, 2);
        }
    rf_plan_destroy(plan);
    EXPECT_GT(gpt2_freeze(model, "*"), 0);
    EXPECT_EQ(rf_plan_build({blocks, count}, nullptr, &policy, 0, &plan), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("frozen"), std::string::npos);
    gpt2_destroy(model);
}

} // namespace
