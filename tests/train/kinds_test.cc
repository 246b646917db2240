// SPDX-License-Identifier: MIT
//
// Equivalent ranks: the plans of some of them describe all, with tensor ranks that share blocks
// evenly and unevenly. No device is needed.
#include <gtest/gtest.h>
#include <ringforge/parallel.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpt2.h"
#include "llama.h"

extern "C" {
#include "base/base.h"
#include "parallel/predict/simulate.h"
}

namespace
{

using Plan = std::unique_ptr<rf_plan, void (*)(rf_plan *)>;
using Sim = std::unique_ptr<rf_sim, void (*)(rf_sim *)>;

// With 8 heads; a llama's 2 heads of keys and values are copied if there are more tensor ranks.
struct Model {
    gpt2 *of_gpt = nullptr;
    llama *of_llama = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    Model(bool is_llama, int vocabulary)
    {
        const gpt2_config gpt = {2, 64, 8, 64, vocabulary};
        const llama_config llama = {2, 64, 8, 2, 64, vocabulary};
        if (is_llama) {
            EXPECT_EQ(llama_create(&llama, &of_llama), 0);
            blocks = llama_blocks(of_llama, &count);
        } else {
            EXPECT_EQ(gpt2_create(&gpt, &of_gpt), 0);
            blocks = gpt2_blocks(of_gpt, &count);
        }
    }
    ~Model()
    {
        gpt2_destroy(of_gpt);
        llama_destroy(of_llama);
    }
};

struct Row {
    rf_mesh mesh;
    int vocabulary, micro_batches;
    bool sequence = false, is_llama = false;
    int zero = 0;
    rf_order order = RF_ORDER_RING;
    rf_pipeline_kind pipeline = RF_PIPELINE_1F1B;
    bool disk = false;

    int ranks() const
    {
        return mesh.dp * mesh.tp * mesh.pp;
    }
    std::string text() const
    {
        return "dp=" + std::to_string(mesh.dp) + ",tp=" + std::to_string(mesh.tp) +
               ",pp=" + std::to_string(mesh.pp) + " zero " + std::to_string(zero) +
               (is_llama ? ", llama" : ", gpt2") + (sequence ? ", sequence" : "");
    }
    rf_policy policy() const
    {
        rf_policy p = {};
        p.batch = p.micro_batches = micro_batches;
        p.seq = 64;
        p.zero = zero;
        p.order = order;
        p.pipeline = pipeline;
        p.sequence_parallel = sequence;
        p.bucket_bytes = 30000;
        p.offload = p.disk = disk ? RF_OFFLOAD_OPTIMIZER : 0;
        p.disk_block_bytes = 16384;
        return p;
    }
};

const std::vector<Row> rows = {
    {{1, 4, 1, 0}, 64, 2},
    {{1, 8, 1, 0}, 61, 2, true},                         // tables of 7 rows and of 8
    {{3, 4, 1, 0}, 61, 7, false, false, 2},              // data ranks have 2 and 3 micro-batches
    {{3, 4, 1, 0}, 61, 7, true, true, 0, RF_ORDER_TREE}, // copies of keys and values
    {{1, 4, 2, 0}, 61, 3, true},                         // a stage without tables
    {{2, 4, 2, 0}, 61, 5, false, true, 1, RF_ORDER_TREE},
    {{1, 4, 2, 0}, 61, 4, false, false, 0, RF_ORDER_RING, RF_PIPELINE_ZBV},
    {{3, 4, 1, 0}, 61, 7, true, false, 2}, // sums over tensor ranks of shards
    {{3, 4, 1, 0}, 61, 7, true, false, 2, RF_ORDER_RING, RF_PIPELINE_1F1B, true},
};

Plan plan_of(const Model &model, const Row &row, int rank)
{
    rf_plan *plan = nullptr;
    const rf_policy policy = row.policy();
    EXPECT_EQ(rf_plan_build({model.blocks, model.count}, &row.mesh, &policy, rank, &plan), 0)
        << rf_last_error()->message;
    return Plan(plan, rf_plan_destroy);
}

std::vector<Plan> plans_of(const Model &model, const Row &row)
{
    std::vector<Plan> all;
    for (int rank = 0; rank < row.ranks(); rank++)
        all.push_back(plan_of(model, row, rank));
    return all;
}

// On hosts of `host_ranks` ranks; 0: on one.
void expect_job_as_long_as_all_ranks(const Row &row, int host_ranks)
{
    const std::string what = row.text() + ", hosts of " + std::to_string(host_ranks) + ", rank ";
    const Model model(row.is_llama, row.vocabulary);
    const std::vector<Plan> own = plans_of(model, row);
    std::vector<rf_block_cost> costs((size_t)model.count);
    ASSERT_EQ(rf_block_costs(own[0].get(), costs.data()), 0);
    rf_sim_opts opts = {costs.data(), {}, nullptr};
    opts.rates = {1e10, 1e10, 1e9, 1e9, 1e-6, 1e8, 5e-6, host_ranks, 1e9, 1e-6, 1e8};
    std::vector<const rf_plan *> plans;
    for (const Plan &plan : own)
        plans.push_back(plan.get());
    rf_sim *all = nullptr;
    ASSERT_EQ(rf_plan_simulate(plans.data(), row.ranks(), &opts, &all), 0)
        << rf_last_error()->message;
    const Sim of_all(all, rf_sim_destroy);
    for (int rank = 0; rank < row.ranks(); rank++) {
        rf_sim *job = nullptr;
        ASSERT_EQ(rf_plan_simulate_job(plans[(size_t)rank], &opts, &job), 0)
            << what << rank << ": " << rf_last_error()->message;
        const Sim of_job(job, rf_sim_destroy);
        rf_sim_result one = {}, each = {};
        rf_sim_get_result(job, 0, &one);
        rf_sim_get_result(all, rank, &each);
        // Shards of equivalent ranks differ by some chunks of the norm.
        const double tolerance = row.zero ? 0.01 : 1e-12;
        EXPECT_NEAR(one.step_s, each.step_s, tolerance * each.step_s) << what << rank;
        EXPECT_NEAR(one.exposed_s, each.exposed_s, tolerance * each.step_s) << what << rank;
    }
}

} // namespace

TEST(Kinds, EveryTensorRankHasTheBytesAndTheWorkOfItsOwnPlan)
{
    for (const Row &row : rows) {
        const Model model(row.is_llama, row.vocabulary);
        const std::vector<Plan> own = plans_of(model, row);
        std::vector<rf_block_cost> costs((size_t)model.count);
        ASSERT_EQ(rf_block_costs(own[0].get(), costs.data()), 0) << rf_last_error()->message;
        for (const int from : {0, row.ranks() - 2}) {
            std::vector<rf_bytes> bytes(own.size());
            std::vector<rf_work> work(own.size());
            ASSERT_EQ(
                rf_plan_all_ranks(own[(size_t)from].get(), costs.data(), bytes.data(), work.data()),
                0);
            for (size_t rank = 0; rank < own.size(); rank++) {
                const rf_bytes &is = bytes[rank], &planned = own[rank]->bytes;
                rf_work counted = {};
                rf_plan_work(own[rank].get(), costs.data(), &counted);
                EXPECT_EQ(memcmp(&is, &planned, sizeof(is)), 0)
                    << row.text() << ", rank " << rank << " from " << from << ": parameters "
                    << is.params << " not " << planned.params << ", sent " << is.sent << " not "
                    << planned.sent;
                if (row.zero == 0) { // shards of equivalent ranks differ by some chunks
                    EXPECT_EQ(work[rank].flops, counted.flops) << row.text() << ", rank " << rank;
                }
            }
        }
    }
}

TEST(Kinds, AJobOfOneRankOfEachKindTakesAsLongAsAllOfItsRanks)
{
    for (const Row &row : rows)
        expect_job_as_long_as_all_ranks(row, 0);
}

TEST(Kinds, TensorRanksAreAlikeOnHostsThatHoldWholeGroupsOrPartsOfThem)
{
    for (const int host_ranks : {2, 4, 8})
        expect_job_as_long_as_all_ranks({{2, 4, 1, 0}, 64, 4}, host_ranks);
}

// Of thousands of ranks only the different ones are planned: for each stage the first tensor rank,
// which alone has losses, the others with most rows of the table, and those with one more. If a
// host has 12 ranks, some tensor ranks reach their counterpart of the next data rank within it.
TEST(Kinds, TensorRanksWithEqualPartsArePlannedOnce)
{
    const struct {
        int vocabulary, host_ranks, kinds;
    } cases[] = {{64, 0, 2}, {61, 0, 3}, {64, 4, 2}, {64, 16, 2}, {64, 12, 8}};
    for (const auto &c : cases) {
        const Row row = {{3, 8, 2, 0}, c.vocabulary, 6};
        const Model model(false, row.vocabulary);
        for (const int rank : {0, 5, 47}) {
            const Plan plan = plan_of(model, row, rank);
            rf_plan **others = nullptr;
            int count = 0;
            ASSERT_EQ(rf_plan_other_kinds(plan.get(), c.host_ranks, &others, &count), 0);
            EXPECT_EQ(count + 1, 2 * c.kinds)
                << c.vocabulary << " rows, hosts of " << c.host_ranks << ", rank " << rank;
            for (int k = 0; k < count; k++)
                rf_plan_destroy(others[k]);
            rf_free(others);
        }
    }
}

// For any size of the model, ranks exchange the one exact sum of their chunks on each lane.
TEST(Kinds, ARankHasTheChunksOfTheNormThatAreItsOwnAndSendsAsMuchOfItOnEveryMesh)
{
    const Model model(false, 64);
    const uint64_t whole = plan_of(model, {{1, 1, 1, 0}, 64, 4}, 0)->chunk_count;
    const struct {
        Row row;
        uint64_t parts, lanes;
    } cases[] = {{{{4, 1, 1, 0}, 64, 4}, 1, 0},
                 {{{4, 1, 1, 0}, 64, 4, false, false, 1}, 4, 1},
                 {{{4, 1, 1, 0}, 64, 4, false, false, 3}, 4, 1},
                 {{{1, 4, 1, 0}, 64, 4}, 4, 1},
                 {{{2, 2, 1, 0}, 64, 4, false, false, 2}, 4, 2},
                 {{{1, 1, 2, 0}, 64, 4}, 2, 1},
                 {{{2, 2, 2, 0}, 64, 4, false, false, 1}, 8, 3}};
    ASSERT_GT(whole, 100u);
    for (const auto &c : cases) {
        uint64_t chunks = 0;
        for (int rank = 0; rank < c.row.ranks(); rank++) {
            const Plan plan = plan_of(model, c.row, rank);
            const rf_list &list = plan->lists[RF_LIST_STEP];
            uint64_t lanes = 0;
            chunks = std::max(chunks, plan->chunk_count);
            for (int k = 0; k < list.count; k++) {
                const rf_instruction &i = list.instructions[k];
                if (i.verb != RF_VERB_NORM_SHARE)
                    continue;
                const rf_transfer &t = plan->transfers[i.transfer];
                EXPECT_EQ(t.count, (size_t)RF_EXACT_WORDS) << c.row.text();
                EXPECT_EQ(t.dtype, RF_I32) << c.row.text();
                lanes++;
            }
            EXPECT_EQ(lanes, c.lanes) << c.row.text();
        }
        // A part of a parameter has at most one chunk more than its size needs: for the 28
        // parameters here, with parts that are not quite equal.
        EXPECT_LE(chunks, whole / c.parts + 40) << c.row.text();
        EXPECT_GE(chunks * c.parts, whole) << c.row.text();
    }
}
