// SPDX-License-Identifier: MIT
//
// The search for a mesh: its formulas against plans, its answer against the simulator, and its
// messages about meshes that do not fit. No device is needed.
#include <gtest/gtest.h>
#include <ringforge/search.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gpt2.h"

extern "C" {
#include "base/base.h"
}

namespace
{

#define ASSERT_RF(call) ASSERT_EQ(call, 0) << rf_last_error()->message

using Search = std::unique_ptr<rf_search, void (*)(rf_search *)>;

struct Model {
    gpt2 *model = nullptr;
    rf_search_model of = {};
    explicit Model(rf_dtype dtype = RF_F32, int layers = 6, int channels = 256, int heads = 8)
    {
        gpt2_config config = {};
        config.layers = layers;
        config.channels = channels;
        config.heads = of.heads = heads;
        config.seq = 128;
        config.dtype = dtype;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        of.blocks = gpt2_blocks(model, &of.block_count);
    }
    ~Model()
    {
        gpt2_destroy(model);
    }
};

rf_search_opts options(int ranks)
{
    rf_search_opts opts = {};
    opts.ranks = ranks;
    opts.policy.batch = 32;
    opts.policy.seq = 128;
    opts.policy.optimizer.kind = RF_ADAMW;
    opts.open = RF_SEARCH_ALL;
    opts.rates = {1e13, 1e13, 1e12, 5e10, 2e-6, 1e10, 5e-6, 0, 0, 0};
    return opts;
}

Search search(const std::vector<rf_search_model> &models, const rf_search_opts &opts)
{
    rf_search *out = nullptr;
    EXPECT_EQ(rf_plan_search(models.data(), (int)models.size(), &opts, &out), 0)
        << rf_last_error()->message;
    return Search(out, rf_search_destroy);
}

uint64_t device_bytes(const rf_bytes &b)
{
    return b.params + b.grads + b.optimizer + b.activations + b.comm + b.scratch - b.host;
}

// The totals of all ranks' plans for a candidate.
struct Truth {
    rf_bytes bytes = {};
    uint64_t device = 0, sent = 0;
    double step_s = 0;
};

Truth plan_of(const rf_search_model &model, const rf_search_opts &opts, const rf_candidate &c)
{
    Truth truth;
    rf_plan *plan = nullptr;
    rf_sim *sim = nullptr;
    rf_mesh mesh = c.mesh;
    rf_policy policy = rf_search_policy(&opts, &c);
    policy.device_bytes = 0;
    mesh.shard = c.zero ? mesh.shard : 0;
    EXPECT_EQ(rf_plan_build({model.blocks, model.block_count}, &mesh, &policy, 0, &plan), 0)
        << rf_last_error()->message;
    if (!plan)
        return truth;
    std::vector<rf_bytes> all((size_t)opts.ranks);
    std::vector<rf_block_cost> costs((size_t)model.block_count);
    rf_sim_opts sim_opts = {costs.data(), opts.rates, nullptr};
    EXPECT_EQ(rf_plan_all_ranks(plan, nullptr, all.data(), nullptr), 0);
    EXPECT_EQ(rf_block_costs(plan, costs.data()), 0);
    EXPECT_EQ(rf_plan_simulate_job(plan, &sim_opts, &sim), 0) << rf_last_error()->message;
    for (const rf_bytes &b : all) {
        truth.sent = std::max(truth.sent, b.sent);
        if (device_bytes(b) > truth.device) {
            truth.device = device_bytes(b);
            truth.bytes = b;
        }
    }
    rf_sim_result result = {};
    if (sim)
        rf_sim_get_result(sim, 0, &result);
    truth.step_s = result.step_s;
    rf_sim_destroy(sim);
    rf_plan_destroy(plan);
    return truth;
}

std::string text_of(const rf_candidate &c)
{
    return "dp=" + std::to_string(c.mesh.dp) + ",shard=" + std::to_string(c.mesh.shard) +
           ",tp=" + std::to_string(c.mesh.tp) + ",pp=" + std::to_string(c.mesh.pp) + " zero " +
           std::to_string(c.zero) + " recompute " + std::to_string(c.recompute) + " offload " +
           std::to_string(c.offload) + " " + rf_pipeline_name(c.pipeline) + ":" +
           std::to_string(c.chunks) + " micro-batches " + std::to_string(c.micro_batches);
}

// Tolerances of the formulas for a plan's memory and messages. Zero bubbles defer halves in ways
// that overlap with more than the formula counts; how often a stage of a pipeline gathers its
// blocks depends on its order.
void expect_bytes(const Truth &truth, const rf_candidate &c)
{
    const bool halves = c.pipeline == RF_PIPELINE_ZBH1 || c.pipeline == RF_PIPELINE_ZBV;
    const double device = (double)truth.device, sent = (double)truth.sent;
    const bool orders = c.chunks > 0 || c.pipeline == RF_PIPELINE_NAIVE;
    const double slack = halves ? 0.4 : orders ? 0.3 : c.mesh.tp > 1 ? 0.2 : 0.15;
    EXPECT_NEAR((double)c.device_bytes, device, slack * device) << text_of(c);
    const bool gathers = c.zero == 3 && c.mesh.pp > 1;
    EXPECT_NEAR((double)c.bytes.sent, sent, (gathers ? 0.6 : 0.05) * sent) << text_of(c);
}

// Values that live as long as the run: exact up to the padding of shards, some for each piece.
void expect_states(const Truth &truth, const rf_candidate &c)
{
    const double slack = 0.02;
    EXPECT_NEAR((double)c.bytes.optimizer, (double)truth.bytes.optimizer,
                slack * (double)truth.bytes.optimizer + 4096)
        << text_of(c);
    if (c.zero < 2) {
        EXPECT_NEAR((double)c.bytes.params, (double)truth.bytes.params,
                    slack * (double)truth.bytes.params + 4096)
            << text_of(c);
        EXPECT_NEAR((double)c.bytes.grads, (double)truth.bytes.grads,
                    slack * (double)truth.bytes.grads + 4096)
            << text_of(c);
    }
}

// Every mesh of 8 ranks with each stage of sharding, recomputation and schedule.
TEST(Search, FormulasSayWhatPlansHoldAndSend)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        Model model(dtype);
        rf_search_opts opts = options(8);
        opts.policy.state_dtype = dtype;
        opts.top = -1;
        opts.open &= ~(unsigned)RF_SEARCH_OFFLOAD;
        Search s = search({model.of}, opts);
        std::set<std::tuple<int, int, int, int, int, int, int>> seen;
        double errors = 0;
        for (int64_t k = 0; k < rf_search_count(s.get()); k++) {
            const rf_candidate c = *rf_search_get(s.get(), k);
            EXPECT_FALSE(c.planned);
            if (!seen.insert(
                         {c.mesh.pp, c.mesh.shard, c.zero, c.recompute, c.pipeline, c.chunks, 0})
                     .second)
                continue;
            const Truth truth = plan_of(model.of, opts, c);
            expect_bytes(truth, c);
            if (device_bytes(c.bytes) == truth.device || c.mesh.pp == 1)
                expect_states(truth, c);
            errors += std::fabs(c.step_s / truth.step_s - 1);
        }
        EXPECT_GT(seen.size(), 80u);
        EXPECT_LT(errors / (double)seen.size(), 0.15); // then times only order the planned
                                                       // candidates
    }
}

TEST(Search, WithMemoryOfTheHostFormulasStayNearPlans)
{
    Model model;
    rf_search_opts opts = options(8);
    opts.top = -1;
    opts.open = RF_SEARCH_ZERO | RF_SEARCH_RECOMPUTE;
    opts.policy.micro_batches = 16;
    opts.mesh.pp = 1;
    for (int offload : {1, 2, 3, 8, 9, 11}) {
        opts.policy.offload = offload;
        opts.mesh.tp = offload == 8 ? 2 : 1;
        opts.policy.state_dtype = offload == 1 ? RF_U8 : offload == 2 ? RF_BF16 : RF_F32;
        Search s = search({model.of}, opts);
        ASSERT_GT(rf_search_count(s.get()), 6);
        for (int64_t k = 0; k < rf_search_count(s.get()); k += 3) {
            const rf_candidate c = *rf_search_get(s.get(), k);
            const Truth truth = plan_of(model.of, opts, c);
            EXPECT_NEAR((double)c.device_bytes, (double)truth.device, 0.2 * (double)truth.device)
                << text_of(c);
        }
    }
}

// The best are planned, and no other planned mesh is faster.
TEST(Search, TheAnswerHasTheBytesAndTheTimeOfItsPlanAndFits)
{
    Model model;
    rf_search_opts opts = options(8);
    opts.policy.device_bytes = 60 << 20;
    opts.rates.host_ranks = 4;
    opts.rates.intra_host_bytes_per_s = 1e11;
    Search s = search({model.of}, opts);
    ASSERT_GT(rf_search_count(s.get()), 20);
    for (int64_t k = 0; k < 20; k++) {
        const rf_candidate c = *rf_search_get(s.get(), k);
        const Truth truth = plan_of(model.of, opts, c);
        ASSERT_TRUE(c.planned) << text_of(c);
        EXPECT_EQ(c.step_s, truth.step_s) << text_of(c);
        EXPECT_EQ(c.device_bytes, truth.device) << text_of(c);
        EXPECT_EQ(c.bytes.sent, truth.sent) << text_of(c);
        EXPECT_LE(c.device_bytes, opts.policy.device_bytes) << text_of(c);
        EXPECT_EQ(c.mesh.dp * c.mesh.tp * c.mesh.pp, 8);
        EXPECT_LE(rf_search_get(s.get(), k > 0 ? k - 1 : 0)->step_s, c.step_s);
    }
}

TEST(Search, GoesThroughAllMeshesAndPoliciesThatAreOpenAndKeepsWhatIsGiven)
{
    Model model;
    rf_search_opts opts = options(8);
    opts.top = -1;
    std::set<std::tuple<int, int, int, int>> meshes;
    std::set<std::string> words;
    Search all = search({model.of}, opts);
    for (int64_t k = 0; k < rf_search_count(all.get()); k++) {
        const rf_candidate *c = rf_search_get(all.get(), k);
        meshes.insert({c->mesh.dp, c->mesh.shard, c->mesh.tp, c->mesh.pp});
        words.insert("zero " + std::to_string(c->zero));
        words.insert("recompute " + std::to_string(c->recompute));
        words.insert(rf_pipeline_name(c->pipeline) + std::to_string(c->chunks));
        words.insert("m " + std::to_string(c->micro_batches));
    }
    // dp: 8 4 2 1 in ten ways with tp and pp, each with the divisors of dp as shards.
    EXPECT_EQ(meshes.size(), 4u + 2 * 3 + 3 * 2 + 4);
    EXPECT_EQ(words.count("2bw0"), 0u) << "another training, which nobody has asked for";
    for (const char *word : {"zero 0", "zero 1", "zero 2", "zero 3", "recompute 0", "recompute 1",
                             "1f1b0", "zbh10", "zbv0", "gpipe0", "naive0", "interleaved2", "m 32"})
        EXPECT_EQ(words.count(word), 1u) << word;

    opts.mesh = {0, 2, 2, 0};
    opts.open = RF_SEARCH_SCHEDULE;
    opts.policy.zero = 0;
    opts.policy.recompute = 1;
    opts.policy.micro_batches = 8;
    Search few = search({model.of}, opts);
    ASSERT_GT(rf_search_count(few.get()), 4);
    for (int64_t k = 0; k < rf_search_count(few.get()); k++) {
        const rf_candidate *c = rf_search_get(few.get(), k);
        EXPECT_EQ(c->mesh.dp, 2);
        EXPECT_EQ(c->mesh.tp, 2);
        EXPECT_EQ(c->mesh.pp, 2);
        EXPECT_EQ(c->zero, 0);
        EXPECT_EQ(c->recompute, 1);
        EXPECT_EQ(c->micro_batches, 8);
    }
}

// A different training: it is only chosen on request, and then plans have its bytes.
TEST(Search, APipelineWithoutAFlushIsSearchedWhereItIsAskedFor)
{
    Model model;
    rf_search_opts opts = options(4);
    opts.open = RF_SEARCH_MICRO_BATCHES;
    opts.policy.pipeline = RF_PIPELINE_2BW;
    opts.mesh.tp = 1;
    Search s = search({model.of}, opts);
    int pipelines = 0;
    for (int64_t k = 0; k < rf_search_count(s.get()); k++) {
        const rf_candidate c = *rf_search_get(s.get(), k);
        EXPECT_EQ(c.pipeline, c.mesh.pp > 1 ? RF_PIPELINE_2BW : RF_PIPELINE_1F1B) << text_of(c);
        if (c.mesh.pp == 1 || !c.planned)
            continue;
        const Truth truth = plan_of(model.of, opts, c);
        EXPECT_EQ(c.step_s, truth.step_s) << text_of(c);
        EXPECT_EQ(c.device_bytes, truth.device) << text_of(c);
        pipelines++;
    }
    EXPECT_GT(pipelines, 0);
}

TEST(Search, TakesSegmentsThatAreChosenBySizesAsAPlanDoes)
{
    Model model;
    rf_search_opts opts = options(4);
    opts.open = RF_SEARCH_ZERO;
    opts.policy.micro_batches = 8;
    opts.mesh.tp = 1;
    for (int recompute : {RF_RECOMPUTE_AUTO, RF_RECOMPUTE_SQRT}) {
        opts.policy.recompute = recompute;
        Search s = search({model.of}, opts);
        ASSERT_GT(rf_search_count(s.get()), 2);
        EXPECT_EQ(rf_search_get(s.get(), 0)->recompute, recompute == RF_RECOMPUTE_AUTO ? 1 : 3);
        EXPECT_EQ(rf_search_get(s.get(), 0)->step_s,
                  plan_of(model.of, opts, *rf_search_get(s.get(), 0)).step_s);
    }
}

// Parts of blocks and the exchanges between them, with whole and with cut rows.
TEST(Search, TensorRanksHaveThePartsAndTheExchangesOfTheirPlans)
{
    Model model(RF_BF16);
    rf_search_opts opts = options(8);
    opts.top = -1;
    opts.open = RF_SEARCH_ZERO | RF_SEARCH_RECOMPUTE;
    opts.policy.micro_batches = 8;
    for (int tp : {2, 4})
        for (bool sequence : {false, true}) {
            opts.mesh.tp = tp;
            opts.policy.sequence_parallel = sequence;
            Search s = search({model.of}, opts);
            ASSERT_GT(rf_search_count(s.get()), 4);
            double errors = 0;
            int count = 0;
            for (int64_t k = 0; k < rf_search_count(s.get()); k += 2, count++) {
                const rf_candidate c = *rf_search_get(s.get(), k);
                const Truth truth = plan_of(model.of, opts, c);
                EXPECT_EQ(c.mesh.tp, tp);
                expect_bytes(truth, c);
                errors += std::fabs(c.step_s / truth.step_s - 1);
            }
            EXPECT_LT(errors / count, 0.2);
        }
}

// With tensor ranks, and only then; given options stay.
TEST(Search, GoesThroughSequenceParallelismWhereThereAreTensorRanks)
{
    Model model(RF_BF16);
    rf_search_opts opts = options(8);
    opts.top = -1;
    opts.open = RF_SEARCH_SEQUENCE | RF_SEARCH_MICRO_BATCHES;
    Search s = search({model.of}, opts);
    std::set<std::pair<int, bool>> seen;
    for (int64_t k = 0; k < rf_search_count(s.get()); k++) {
        const rf_candidate *c = rf_search_get(s.get(), k);
        seen.insert({c->mesh.tp, c->sequence_parallel});
        EXPECT_EQ(rf_search_policy(&opts, c).sequence_parallel, c->sequence_parallel);
    }
    EXPECT_EQ(
        seen,
        (std::set<std::pair<int, bool>>{
            {1, false}, {2, false}, {2, true}, {4, false}, {4, true}, {8, false}, {8, true}}));
    opts.open = RF_SEARCH_MICRO_BATCHES;
    for (bool given : {false, true}) {
        opts.policy.sequence_parallel = given;
        s = search({model.of}, opts);
        for (int64_t k = 0; k < rf_search_count(s.get()); k++) {
            const rf_candidate *c = rf_search_get(s.get(), k);
            EXPECT_EQ(c->sequence_parallel, given && c->mesh.tp > 1) << text_of(*c);
        }
    }
}

// It includes the sums of gradients of unsplit parameters over the tensor ranks: one short
// micro-batch, so that they are a large part of the traffic.
TEST(Search, CountsTheTrafficOfSequenceParallelismWithTheSumsOfWholeParameters)
{
    Model model;
    rf_search_opts opts = options(4);
    opts.policy.batch = opts.policy.micro_batches = 1;
    opts.policy.seq = 32;
    opts.top = -1;
    opts.mesh = {1, 4, 1, 0};
    opts.open = RF_SEARCH_SEQUENCE;
    Search s = search({model.of}, opts);
    ASSERT_EQ(rf_search_count(s.get()), 2);
    for (int64_t k = 0; k < 2; k++) {
        const rf_candidate c = *rf_search_get(s.get(), k);
        const Truth truth = plan_of(model.of, opts, c);
        EXPECT_NEAR((double)c.bytes.sent, (double)truth.sent, 0.005 * (double)truth.sent)
            << text_of(c) << c.sequence_parallel;
        EXPECT_NEAR(c.step_s, truth.step_s, 0.1 * truth.step_s) << c.sequence_parallel;
    }
}

// One of each mesh: the faster of the two ways, with the bytes that it needs.
TEST(Search, RejectsTheQuickestOfAMeshWithOrWithoutSequenceParallelism)
{
    Model model(RF_BF16);
    rf_search_opts opts = options(8);
    opts.top = -1;
    opts.open = RF_SEARCH_ALL;
    opts.policy.device_bytes = 30 << 20;
    Search both = search({model.of}, opts);
    opts.open = RF_SEARCH_ALL & ~(unsigned)RF_SEARCH_SEQUENCE;
    Search without = search({model.of}, opts);
    opts.policy.sequence_parallel = true;
    Search with = search({model.of}, opts);
    auto find = [](const Search &s, const rf_mesh &mesh) {
        const rf_rejection *r;
        for (int64_t k = 0; (r = rf_search_rejection(s.get(), k)); k++)
            if (r->candidate.mesh.dp == mesh.dp && r->candidate.mesh.tp == mesh.tp &&
                r->candidate.mesh.pp == mesh.pp)
                return r;
        return (const rf_rejection *)nullptr;
    };
    std::set<std::tuple<int, int, int>> meshes;
    int sequence = 0, count = 0;
    const rf_rejection *r;
    for (; (r = rf_search_rejection(both.get(), count)); count++) {
        const rf_candidate &c = r->candidate;
        EXPECT_TRUE(meshes.insert({c.mesh.dp, c.mesh.tp, c.mesh.pp}).second) << text_of(c);
        const rf_rejection *a = find(without, c.mesh), *b = find(with, c.mesh);
        ASSERT_TRUE(a && b) << text_of(c);
        const rf_rejection *quickest = b->candidate.step_s < a->candidate.step_s ? b : a;
        EXPECT_EQ(c.step_s, quickest->candidate.step_s) << text_of(c);
        EXPECT_EQ(c.device_bytes, quickest->candidate.device_bytes) << text_of(c);
        EXPECT_STREQ(r->reason, quickest->reason);
        const Truth truth = plan_of(model.of, opts, c);
        EXPECT_GT(truth.device, opts.policy.device_bytes) << text_of(c);
        sequence += c.sequence_parallel;
    }
    EXPECT_EQ(count, 10);
    EXPECT_GT(sequence, 0);
}

// A slow link between hosts: the heaviest traffic stays within them.
TEST(Search, PutsTensorRanksIntoAHostAndRefusesMeshesThatStraddleHosts)
{
    Model model(RF_F32, 6, 480);
    rf_search_opts opts = options(12);
    opts.policy.batch = 48;
    opts.top = -1;
    model.of.heads = 0;
    opts.rates.host_ranks = 4;
    opts.rates.intra_host_bytes_per_s = 1e12;
    opts.rates.link_bytes_per_s = 1e8;
    Search s = search({model.of}, opts);
    ASSERT_GT(rf_search_count(s.get()), 0);
    for (int64_t k = 0; k < rf_search_count(s.get()); k++)
        EXPECT_NE(rf_search_get(s.get(), k)->mesh.tp, 3);
    bool refused = false;
    const rf_rejection *r;
    for (int64_t k = 0; (r = rf_search_rejection(s.get(), k)); k++)
        refused = refused ||
                  std::string(r->reason) == "3 tensor ranks neither divide nor fill hosts of 4";
    EXPECT_TRUE(refused);
}

TEST(Search, SaysWhyMeshesAreRejectedAndWhichCameNearest)
{
    Model model;
    rf_search_opts opts = options(8);
    opts.policy.device_bytes = 1 << 20;
    Search s = search({model.of}, opts);
    EXPECT_EQ(rf_search_count(s.get()), 0);
    const rf_candidate *nearest = rf_search_nearest(s.get());
    ASSERT_NE(nearest, nullptr);
    double before = 0;
    const rf_rejection *r;
    int64_t count = 0;
    for (; (r = rf_search_rejection(s.get(), count)); count++) {
        EXPECT_GE(r->candidate.step_s, before);
        EXPECT_GE(r->candidate.device_bytes, nearest->device_bytes);
        EXPECT_NE(std::string(r->reason).find(" of 1.0 MiB"), std::string::npos) << r->reason;
        before = r->candidate.step_s;
    }
    EXPECT_EQ(count, 10);

    // Five ranks do not divide eight heads; unsharded states cannot be on the host.
    opts = options(10);
    opts.policy.batch = 40;
    opts.policy.offload = RF_OFFLOAD_GRADS;
    opts.open = RF_SEARCH_MICRO_BATCHES;
    s = search({model.of}, opts);
    std::set<std::string> reasons;
    for (int64_t k = 0; (r = rf_search_rejection(s.get(), k)); k++)
        reasons.insert(r->reason);
    EXPECT_EQ(reasons.count("5 tensor ranks cannot share 8 heads"), 1u);
    EXPECT_EQ(
        reasons.count("offload of gradients with zero=0: only sharded gradients can be in host "
                      "memory; use zero=2 or 3, or leave it out"),
        1u);
}

TEST(Search, RefusesOptionsThatContradictEachOther)
{
    Model model;
    rf_search *out = nullptr;
    auto refused = [&](const rf_search_opts &opts, const std::string &sentence) {
        EXPECT_EQ(rf_plan_search(&model.of, 1, &opts, &out), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(sentence), std::string::npos)
            << rf_last_error()->message;
        EXPECT_EQ(out, nullptr);
    };
    rf_search_opts opts = options(0);
    refused(opts, "0 ranks");
    opts = options(8);
    opts.mesh.pp = 3;
    refused(opts, "8 ranks cannot be divided into the 3 of the mesh");
    opts = options(8);
    opts.mesh.shard = 3;
    refused(opts, "shard=3 does not divide");
    opts = options(8);
    opts.rates.host_ranks = 3;
    opts.rates.intra_host_bytes_per_s = 1;
    refused(opts, "8 ranks cannot be divided into hosts of 3");
    opts = options(8);
    opts.open = 0;
    opts.policy.micro_batches = 5;
    refused(opts, "5 micro-batches do not divide a batch of 32");
    opts = options(8);
    opts.rates.bytes_per_s = 0;
    refused(opts, "bytes_per_s is 0");
}

TEST(Search, OutOfHostMemoryAtAnyCallIsAnErrorAndLeavesNothing)
{
    Model model(RF_F32, 2, 64);
    rf_search_opts opts = options(2);
    opts.top = 1;
    opts.open = RF_SEARCH_ZERO;
    opts.policy.micro_batches = 2;
    rf_search *out = nullptr;
    int rc = RF_ENOMEM;
    for (uint64_t nth = 1; rc == RF_ENOMEM; nth++) {
        rf_alloc_fail_at(nth);
        rc = rf_plan_search(&model.of, 1, &opts, &out);
        ASSERT_TRUE(rc == 0 || (rc == RF_ENOMEM && !out)) << nth << " " << rf_status_text(rc);
    }
    rf_alloc_fail_at(0);
    EXPECT_GT(rf_search_count(out), 0);
    rf_search_destroy(out);
}

// 10^12 parameters, whose layers no kernel can index whole; 512 micro-batches are not planned.
TEST(Search, JudgesATrillionParametersOnThousandsOfRanks)
{
    Model model(RF_BF16, 96, 29696, 232);
    rf_search_opts opts = options(3072);
    opts.policy.batch = 3072;
    opts.policy.seq = 128;
    opts.policy.micro_batches = 3072;
    opts.open = RF_SEARCH_ZERO | RF_SEARCH_RECOMPUTE | RF_SEARCH_SCHEDULE;
    opts.mesh = {6, 8, 64, 0};
    Search s = search({model.of}, opts);
    ASSERT_GT(rf_search_count(s.get()), 0);
    for (int64_t k = 0; k < rf_search_count(s.get()); k++) {
        const rf_candidate c = *rf_search_get(s.get(), k);
        if (c.pipeline != RF_PIPELINE_1F1B || c.zero != 1 || c.recompute != 1)
            continue;
        // 2 blocks of a rank's tensor eighth: copies in 16 bits, gradients, and shards of the rest.
        const double elements = 2 * 12 * 29696. * 29696 / 8;
        EXPECT_NEAR((double)c.bytes.grads, 4 * elements, 0.02 * 4 * elements);
        EXPECT_NEAR((double)c.bytes.optimizer, 8 * elements / c.mesh.shard,
                    0.02 * 8 * elements / c.mesh.shard);
    }
    const rf_candidate best = *rf_search_get(s.get(), 0);
    EXPECT_LT(best.bubble, 2 * 63. / (3 * 512 + 2 * 63)); // some schedule is better than 1f1b
}

} // namespace
