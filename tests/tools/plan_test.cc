/* SPDX-License-Identifier: MIT
 *
 * What `ringforge plan` says of thousands of ranks, against the library's plans of single ones.
 */
#include "program.h"

#include <cjson/cJSON.h>
#include <cstring>
#include <gpt2.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <ringforge/parallel.h>
#include <sstream>

namespace
{

const int ranks = 4096;

/* GPT-2 of 1.5 billion parameters; one micro-batch a rank, and several where kinds of ranks take
 * turns, as they do in tree order. */
int micro_batches_of(rf_order order)
{
    return order == RF_ORDER_TREE ? 3 * ranks + 5 : ranks;
}

std::vector<std::string> plan_of(rf_order order)
{
    const std::string pieces = std::to_string(micro_batches_of(order));
    std::istringstream line(
        "plan --mesh dp=4096 --layers 48 --channels 1600 --heads 25 --seq 1024 --order " +
        std::string(rf_order_name(order)) + " --batch " + pieces + " --micro-batches " + pieces);
    return {std::istream_iterator<std::string>(line), {}};
}

struct Model {
    gpt2 *model = nullptr;
    Model()
    {
        gpt2_config config = {};
        config.layers = 48;
        config.channels = 1600;
        config.heads = 25;
        config.seq = 1024;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
    }
    ~Model()
    {
        gpt2_destroy(model);
    }
    rf_bytes bytes(rf_order order, int rank) const
    {
        rf_policy policy = {};
        policy.batch = policy.micro_batches = micro_batches_of(order);
        policy.seq = 1024;
        policy.order = order;
        policy.optimizer.kind = RF_ADAMW;
        rf_mesh mesh = {ranks, 1, 1};
        int count = 0;
        const rf_block *blocks = gpt2_blocks(model, &count);
        rf_plan *plan = nullptr;
        rf_bytes bytes = {};
        EXPECT_EQ(rf_plan_build(blocks, count, &mesh, &policy, rank, &plan), 0);
        if (plan)
            rf_plan_bytes(plan, &bytes);
        rf_plan_destroy(plan);
        return bytes;
    }
};

TEST(PlanOfThousands, HasForEveryRankWhatItsOwnPlanSays)
{
    Model model;
    for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE}) {
        std::vector<std::string> arguments = plan_of(order);
        arguments.push_back("--json");
        ProgramResult r = run_program(arguments);
        ASSERT_EQ(r.status, 0) << r.err;
        std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
        const cJSON *rows = cJSON_GetObjectItem(json.get(), "per_rank");
        ASSERT_EQ(cJSON_GetArraySize(rows), ranks);
        std::vector<const cJSON *> by_rank;
        const cJSON *row;
        cJSON_ArrayForEach(row, rows) by_rank.push_back(row);
        for (int rank : {0, 1, 63, 2047, 4094, 4095}) {
            const rf_bytes wanted = model.bytes(order, rank);
            auto value = [&](const char *name) {
                return cJSON_GetNumberValue(cJSON_GetObjectItem(by_rank[(size_t)rank], name));
            };
            EXPECT_EQ(value("params"), (double)wanted.params) << rank;
            EXPECT_EQ(value("grads"), (double)wanted.grads) << rank;
            EXPECT_EQ(value("optimizer"), (double)wanted.optimizer) << rank;
            EXPECT_EQ(value("activations"), (double)wanted.activations) << rank;
            EXPECT_EQ(value("comm"), (double)wanted.comm) << rank;
            EXPECT_EQ(value("scratch"), (double)wanted.scratch) << rank;
            EXPECT_EQ(value("sent"), (double)wanted.sent) << rank;
        }
    }
}

TEST(PlanOfThousands, IsATableOfAFewRowsThatNameEveryRankOnce)
{
    ProgramResult r = run_program(plan_of(RF_ORDER_RING));
    ASSERT_EQ(r.status, 0) << r.err;
    int next = 0, rows = 0;
    size_t at = r.out.find("sent/step");
    ASSERT_NE(at, std::string::npos) << r.out;
    for (at = r.out.find('\n', at) + 1; r.out[at] != '\n'; at = r.out.find('\n', at) + 1) {
        int first = 0, last = 0;
        const int found = sscanf(r.out.c_str() + at, "%d-%d", &first, &last);
        ASSERT_GE(found, 1) << r.out;
        EXPECT_EQ(first, next);
        next = (found == 2 ? last : first) + 1;
        rows++;
    }
    EXPECT_EQ(next, ranks);
    EXPECT_LT(rows, 8) << r.out;
}

/* Layers of GPT-2's smallest: 25 to 75 % less of activations; see docs/training.md. */
TEST(Plan, WhatIsComputedAgainIsLessMemoryForTheSameModelFlops)
{
    for (const char *model : {"gpt2", "llama"}) {
        double kept = 0, flops = 0;
        for (const char *what : {"none", "gelu,norms", "attention,gelu,norms", "mlp",
                                 "mlp,norms,attention", "every=3", "sqrt,gelu"}) {
            ProgramResult r = run_program({"plan", "--model", model, "--layers", "12", "--channels",
                                           "768", "--heads", "12", "--seq", "1024", "--batch", "4",
                                           "--head-rows", "64", "--recompute", what, "--json"});
            ASSERT_EQ(r.status, 0) << r.err;
            std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()),
                                                           cJSON_Delete);
            const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
            auto value = [&](const char *name) {
                return cJSON_GetNumberValue(cJSON_GetObjectItem(row, name));
            };
            const double activations = value("activations");
            const double done = value("flops") - value("repeated_flops");
            if (strcmp(what, "none") == 0) {
                kept = activations;
                flops = done;
                continue;
            }
            EXPECT_EQ(done, flops) << model << " " << what;
            EXPECT_LT(activations, 0.75 * kept) << model << " " << what;
            EXPECT_GT(activations, 0.25 * kept) << model << " " << what;
        }
    }
}

} // namespace
