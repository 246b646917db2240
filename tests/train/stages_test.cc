// SPDX-License-Identifier: MIT
//
// Blocks spread over ranks (pipelines): the results of one process, for any order of calls; tied
// parameters at both ends; bytes and memory by formula; checkpoints that any mesh resumes.
#include "folder.h"
#include "world.h"

extern "C" {
#include "parallel/plan/plan.h"
}

namespace
{

const struct {
    rf_pipeline_kind kind;
    const char *name;
    bool deferred; // weight halves are deferred
} kinds[] = {{RF_PIPELINE_1F1B, "1f1b", false},   {RF_PIPELINE_GPIPE, "gpipe", false},
             {RF_PIPELINE_NAIVE, "naive", false}, {RF_PIPELINE_INTERLEAVED, "interleaved", false},
             {RF_PIPELINE_ZBH1, "zbh1", true},    {RF_PIPELINE_ZBV, "zbv", true}};

// A GPT-2 of six blocks, whose head is tied to its embedding: the first rank's and the last one's.
Training gpt(rf_order order)
{
    Training t;
    t.model.layers = 4;
    t.policy.order = order;
    t.policy.clip = 0.25f;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.first_bucket_bytes = 4096;
    t.policy.bucket_bytes = 30000;
    t.ignored = 0.3;
    t.steps = 3;
    return t;
}

} // namespace

TEST(Stages, InTreeOrderEveryPipelineAndMeshGivesTheBitsOfOneProcess)
{
    const Seen one = train(gpt(RF_ORDER_TREE), 1)[0];
    for (const auto &kind : kinds)
        for (int pp : {2, 3})
            for (int dp : {1, 2}) {
                if (pp == 3 && dp == 2 && kind.kind != RF_PIPELINE_1F1B)
                    continue;
                const bool tried = kind.kind == RF_PIPELINE_ZBV ? dp == 2 : pp == 3; // few of these
                if (kind.deferred && !tried && !getenv("RF_TEST_ALL"))
                    continue;
                Training t = gpt(RF_ORDER_TREE);
                t.pp = pp;
                t.policy.pipeline = kind.kind;
                t.policy.zero = dp == 2;
                t.policy.recompute = pp == 3 ? 1 : dp - 1;
                for (const Seen &s : train(t, pp * dp)) {
                    const std::string where = std::string(kind.name) + " pp=" + std::to_string(pp) +
                                              " dp=" + std::to_string(dp);
                    EXPECT_EQ(s.sha, one.sha) << where;
                    EXPECT_EQ(s.loss, one.loss) << where;
                    EXPECT_EQ(s.norm, one.norm) << where;
                    expect_planned(s, where);
                }
            }
}

TEST(Stages, HoweverBlocksAreDividedTheBitsAreThoseOfOneProcess)
{
    const Seen one = train(gpt(RF_ORDER_TREE), 1)[0];
    const struct {
        rf_pipeline_kind kind;
        int pp, dp;
        std::vector<int> blocks; // empty: by cost
    } rows[] = {{RF_PIPELINE_1F1B, 2, 1, {5, 1}},
                {RF_PIPELINE_1F1B, 3, 1, {1, 4, 1}},
                {RF_PIPELINE_INTERLEAVED, 2, 1, {1, 1, 3, 1}},
                {RF_PIPELINE_GPIPE, 2, 2, {}}};
    for (const auto &row : rows) {
        Training t = gpt(RF_ORDER_TREE);
        t.pp = row.pp;
        t.policy.pipeline = row.kind;
        t.policy.zero = row.dp > 1;
        t.policy.stages = row.blocks.empty() ? RF_STAGES_COST : RF_STAGES_EVEN;
        t.policy.stage_blocks = row.blocks.empty() ? nullptr : row.blocks.data();
        t.policy.stage_count = (int)row.blocks.size();
        for (const Seen &s : train(t, row.pp * row.dp)) {
            const std::string where = "kind " + std::to_string(row.kind);
            EXPECT_EQ(s.sha, one.sha) << where;
            EXPECT_EQ(s.loss, one.loss) << where;
            EXPECT_EQ(s.norm, one.norm) << where;
            expect_planned(s, where);
        }
    }
}

// Each block's gradients are added micro-batch by micro-batch, as on one process; without tied
// parameters no order of additions differs.
TEST(Stages, InRingOrderWithoutTiedParametersEveryPipelineGivesTheBitsOfAccumulation)
{
    Training plain = gpt(RF_ORDER_RING);
    plain.llama = {4, 32, 4, 2, 64, 61};
    plain.policy.micro_batches = 8;
    const Seen one = train(plain, 1)[0];
    for (const auto &kind : kinds)
        for (int pp : {2, 3, 4}) {
            if (pp == 4 && !kind.deferred)
                continue;
            Training t = plain;
            t.pp = pp;
            t.policy.recompute = pp - 2;
            t.policy.pipeline = kind.kind;
            if (pp *
                    (kind.kind == RF_PIPELINE_INTERLEAVED || kind.kind == RF_PIPELINE_ZBV ? 2 : 1) >
                6)
                continue;
            for (const Seen &s : train(t, pp)) {
                const std::string where = std::string(kind.name) + " pp=" + std::to_string(pp);
                EXPECT_EQ(s.sha, one.sha) << where;
                EXPECT_EQ(s.loss, one.loss) << where;
                EXPECT_EQ(s.norm, one.norm) << where;
                expect_planned(s, where);
            }
        }
}

// Micro-batches are assigned round-robin: of seven the second of two ranks has one less.
TEST(Stages, InTreeOrderShardedGradientsAndParametersGiveTheBitsOfOneProcess)
{
    Training plain = gpt(RF_ORDER_TREE);
    plain.policy.batch = plain.policy.micro_batches = 7;
    plain.steps = 2;
    const Seen one = train(plain, 1)[0];
    for (const auto &kind : kinds)
        for (int zero : {2, 3}) {
            const bool three = kind.kind == RF_PIPELINE_ZBV || kind.kind == RF_PIPELINE_1F1B;
            const bool two = kind.kind == RF_PIPELINE_ZBH1 || kind.kind == RF_PIPELINE_INTERLEAVED;
            if (!(zero == 3 ? three : two) && !getenv("RF_TEST_ALL"))
                continue;
            Training t = plain;
            t.pp = 2;
            t.policy.pipeline = kind.kind;
            t.policy.zero = zero;
            t.policy.recompute = zero - 2;
            for (const Seen &s : train(t, 4)) {
                const std::string where = std::string(kind.name) + " zero=" + std::to_string(zero);
                EXPECT_EQ(s.sha, one.sha) << where;
                EXPECT_EQ(s.loss, one.loss) << where;
                EXPECT_EQ(s.norm, one.norm) << where;
                expect_planned(s, where);
            }
        }
}

// Ranks with the same blocks add the same gradients in the same order as without a pipeline.
TEST(Stages, InRingOrderShardedGradientsGiveTheBitsOfTheSameWithoutAPipeline)
{
    for (const auto &kind : kinds) {
        if (kind.kind == RF_PIPELINE_NAIVE && !getenv("RF_TEST_ALL"))
            continue;
        Training plain = gpt(RF_ORDER_RING);
        plain.llama = {4, 32, 4, 2, 64, 61};
        plain.steps = 2;
        plain.policy.batch = plain.policy.micro_batches = kind.kind == RF_PIPELINE_ZBV ? 8 : 5;
        plain.policy.zero = 2;
        plain.policy.reduce_dtype = kind.kind == RF_PIPELINE_ZBH1 ? RF_BF16 : RF_F32;
        const Seen two = train(plain, 2)[0];
        Training t = plain;
        static const int uneven[] = {1, 5};
        t.pp = 2;
        t.policy.pipeline = kind.kind;
        if (kind.kind == RF_PIPELINE_1F1B) {
            t.policy.stage_blocks = uneven;
            t.policy.stage_count = 2;
        }
        for (const Seen &s : train(t, 4)) {
            EXPECT_EQ(s.sha, two.sha) << kind.name;
            EXPECT_EQ(s.loss, two.loss) << kind.name;
            EXPECT_EQ(s.norm, two.norm) << kind.name;
            expect_planned(s, kind.name);
        }
    }
}

TEST(Stages, RaggedMicroBatchesTypesAndShardsAgreeWithPlainDataParallelism)
{
    struct Row {
        rf_pipeline_kind kind;
        int pp, dp, micro_batches, zero;
        rf_dtype type, reduce;
    };
    const Row rows[] = {{RF_PIPELINE_1F1B, 2, 2, 3, 0, RF_F32, RF_F32},
                        {RF_PIPELINE_1F1B, 3, 1, 1, 0, RF_F32, RF_F32},
                        {RF_PIPELINE_ZBH1, 2, 2, 6, 1, RF_F32, RF_BF16},
                        {RF_PIPELINE_ZBV, 3, 1, 2, 0, RF_BF16, RF_F32},
                        {RF_PIPELINE_INTERLEAVED, 2, 2, 6, 1, RF_BF16, RF_F32},
                        {RF_PIPELINE_ZBV, 2, 2, 3, 2, RF_BF16, RF_F32}};
    for (const Row &row : rows) {
        Training plain = gpt(RF_ORDER_RING);
        plain.model.dtype = row.type;
        plain.policy.batch = plain.policy.micro_batches = row.micro_batches;
        const Seen one = train(plain, 1)[0];
        Training t = plain;
        t.pp = row.pp;
        t.policy.pipeline = row.kind;
        t.policy.zero = row.zero;
        t.policy.reduce_dtype = row.reduce;
        const std::vector<Seen> all = train(t, row.pp * row.dp);
        for (const Seen &s : all) {
            const std::string where =
                "kind " + std::to_string(row.kind) + " m " + std::to_string(row.micro_batches);
            EXPECT_EQ(s.sha, all[0].sha) << where;
            EXPECT_EQ(s.norm, all[0].norm) << where;
            expect_planned(s, where);
            for (int step = 0; step < t.steps; step++)
                // Three steps of lr 0.01 on gradients that were rounded to bf16 (2^-9 of each).
                EXPECT_NEAR(s.loss[(size_t)step], one.loss[(size_t)step], 2e-3) << where;
        }
    }
}

// Activations, parameters and sums of gradients on the host do not change bits; the host's
// optimizer rounds as it does on one process.
TEST(Stages, InMemoryOfTheHostTheBitsAreThoseOfOneProcess)
{
    const struct {
        rf_pipeline_kind kind;
        int pp, dp, zero, offload, recompute;
    } rows[] = {
        {RF_PIPELINE_1F1B, 2, 1, 0, RF_OFFLOAD_OPTIMIZER, 0},
        {RF_PIPELINE_INTERLEAVED, 2, 2, 1, RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_ACTIVATIONS, 0},
        {RF_PIPELINE_GPIPE, 3, 1, 0, RF_OFFLOAD_PARAMS | RF_OFFLOAD_ACTIVATIONS, 2},
        {RF_PIPELINE_ZBV, 2, 2, 3, 15, 0},
        {RF_PIPELINE_1F1B, 2, 1, 0, RF_OFFLOAD_PARAMS, 0}, // from here on with RF_TEST_ALL=1
        {RF_PIPELINE_ZBH1, 2, 2, 2, RF_OFFLOAD_GRADS | RF_OFFLOAD_ACTIVATIONS, 0},
    };
    Training plain = gpt(RF_ORDER_TREE);
    plain.steps = 2;
    const Seen device = train(plain, 1)[0];
    plain.policy.offload = RF_OFFLOAD_OPTIMIZER;
    const Seen host = train(plain, 1)[0];
    for (const auto &row : rows) {
        if (&row - rows >= 4 && !getenv("RF_TEST_ALL"))
            continue;
        const Seen &one = row.offload & RF_OFFLOAD_OPTIMIZER ? host : device;
        Training t = plain;
        t.pp = row.pp;
        t.policy.pipeline = row.kind;
        t.policy.zero = row.zero;
        t.policy.offload = row.offload;
        t.policy.recompute = row.recompute;
        for (const Seen &s : train(t, row.pp * row.dp)) {
            const std::string where =
                "kind " + std::to_string(row.kind) + " offload " + std::to_string(row.offload);
            EXPECT_EQ(s.sha, one.sha) << where;
            EXPECT_EQ(s.loss, one.loss) << where;
            EXPECT_EQ(s.norm, one.norm) << where;
            EXPECT_GT(s.measured.host, 0u) << where;
            expect_planned(s, where);
        }
    }
}

// Evaluation, logits and parameters by name are collectives, with the results of one process.
TEST(Stages, EvaluationLogitsAndParametersAreThoseOfOneProcess)
{
    const auto look = [](Training t, int ranks) {
        std::vector<std::vector<float>> seen((size_t)ranks);
        t.after = [&](rf_run *run, rf_comm *, int rank) {
            std::vector<int32_t> tokens(4 * 16);
            for (size_t i = 0; i < tokens.size(); i++)
                tokens[i] = (int32_t)(i * 7 % 61);
            double loss = 0;
            EXPECT_RF(rf_run_evaluate(run, tokens.data(), tokens.data(), 4, &loss));
            std::vector<float> logits(16 * 61), param(61 * 32);
            EXPECT_RF(rf_run_forward(run, tokens.data(), logits.data(), logits.size() * 4));
            EXPECT_RF(rf_run_read_param(run, "wte.weight", param.data(), param.size() * 4));
            seen[(size_t)rank] = logits;
            seen[(size_t)rank].push_back((float)loss);
            seen[(size_t)rank].insert(seen[(size_t)rank].end(), param.begin(), param.end());
        };
        train(t, ranks);
        return seen;
    };
    Training plain = gpt(RF_ORDER_TREE);
    plain.steps = 1;
    const std::vector<float> one = look(plain, 1)[0];
    for (rf_pipeline_kind kind : {RF_PIPELINE_1F1B, RF_PIPELINE_INTERLEAVED}) {
        Training t = plain;
        t.pp = 2;
        t.policy.pipeline = kind;
        for (int ranks : {2, 4}) {
            t.policy.zero = ranks == 4 ? 3 : 0;
            for (const std::vector<float> &seen : look(t, ranks))
                EXPECT_EQ(seen, one) << "kind " << kind << " on " << ranks << " ranks";
        }
    }
}

TEST(Stages, ACheckpointOfAnyMeshIsLoadedByAnyOther)
{
    const struct {
        int ranks, pp, zero;
        rf_pipeline_kind kind;
    } meshes[] = {{1, 1, 0, RF_PIPELINE_1F1B},
                  {3, 1, 3, RF_PIPELINE_1F1B},
                  {2, 2, 0, RF_PIPELINE_1F1B},
                  {4, 2, 2, RF_PIPELINE_INTERLEAVED},
                  {3, 3, 0, RF_PIPELINE_GPIPE}};
    for (const auto &from : meshes) {
        Folder folder;
        Training t = gpt(RF_ORDER_TREE);
        t.steps = 2;
        t.pp = from.pp;
        t.policy.zero = from.zero;
        t.policy.pipeline = from.kind;
        t.after = [&](rf_run *run, rf_comm *, int) {
            rf_progress progress = {2, 5, 16};
            EXPECT_RF(rf_run_save(run, folder.path().c_str(), &progress));
        };
        const std::string saved = train(t, from.ranks)[0].sha;
        std::string next;
        for (const auto &to : meshes) {
            Training u = gpt(RF_ORDER_TREE);
            u.steps = 1;
            u.first_step = 2;
            u.pp = to.pp;
            u.policy.zero = to.zero;
            u.policy.pipeline = to.kind;
            u.before = [&](rf_run *run, rf_comm *, int) {
                EXPECT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
                EXPECT_EQ(sha_of(run), saved) << from.ranks << " " << from.pp << " to " << to.ranks;
            };
            const std::string sha = train(u, to.ranks)[0].sha; // with the optimizer's states
            EXPECT_TRUE(next.empty() || sha == next)
                << from.ranks << " " << from.pp << " to " << to.ranks << " " << to.pp;
            next = sha;
        }
    }
}
