/* SPDX-License-Identifier: MIT
 *
 * The results of `ringforge plan` for thousands of ranks, against the library's plans of single
 * ones.
 */
#include "program.h"

#include <algorithm>
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

/* GPT-2 of 1.5 billion parameters; one micro-batch a rank, and several if kinds of ranks alternate,
 * as they do in tree order. */
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
        EXPECT_EQ(rf_plan_build({blocks, count}, &mesh, &policy, rank, &plan), 0);
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

// Rajbhandari et al. 2020, table 1: 120, 31.4, 16.6 and 1.9 GB.
TEST(Plan, OfAParameterCountIsTheTableOfZero)
{
    ProgramResult r = run_program({"plan", "--params", "7.5e9", "--mesh", "dp=64"});
    ASSERT_EQ(r.status, 0) << r.err;
    for (const char *row : {"--zero 0         120 GB", "--zero 1       31.41 GB",
                            "--zero 2       16.64 GB", "--zero 3       1.875 GB"})
        EXPECT_NE(r.out.find(row), std::string::npos) << r.out;
}

// With one block all parameters would be gathered at once, and stage 3 would need no less than 1.
TEST(Plan, OfAParameterCountAssumesLayersAndSaysWhich)
{
    const auto rank_0 = [](const std::vector<std::string> &more, const char *says) {
        std::vector<std::string> words = {"plan",    "--params", "175e9",      "--mesh", "dp=64",
                                          "--dtype", "bf16",     "--residual", "same"};
        words.insert(words.end(), more.begin(), more.end());
        ProgramResult r = run_program(words);
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_NE(r.out.find(says), std::string::npos) << r.out;
        words.push_back("--json");
        r = run_program(words);
        std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
        return cJSON_GetNumberValue(cJSON_GetObjectItem(row, "params"));
    };
    const double all = 175e9 * 2, masters = 175e9 * 4 / 64;
    const char *assumed = "Assumed: 96 layers of equal size";
    EXPECT_GT(rank_0({"--zero", "1"}, assumed), all);
    EXPECT_LT(rank_0({"--zero", "3"}, assumed), masters + all / 64 + 2.1 * all / 96);
    EXPECT_LT(rank_0({"--zero", "3", "--layers", "350"}, "350 layers of equal size"),
              masters + all / 64 + 2.1 * all / 350);
    EXPECT_EQ(run_program({"plan", "--params", "4", "--layers", "9"}).status, 2);
}

// The same table for two data ranks (120, 75, 67.5 and 60 GB), a quarter of it for each tensor
// rank.
TEST(Plan, OfAParameterCountIsSharedOutOverTensorRanks)
{
    for (const char *more : {"--order", "--sequence-parallel"}) {
        std::vector<std::string> words = {"plan", "--params", "7.5e9", "--mesh", "dp=2,tp=4", more};
        if (strcmp(more, "--order") == 0)
            words.push_back("ring");
        ProgramResult r = run_program(words);
        ASSERT_EQ(r.status, 0) << r.err;
        for (const char *row :
             {"        0-7    7.0 GiB    7.0 GiB   14.0 GiB", "--zero 0          30 GB",
              "--zero 1       18.75 GB", "--zero 2       16.87 GB", "--zero 3          15 GB"})
            EXPECT_NE(r.out.find(row), std::string::npos) << row << "\n" << r.out;
    }
}

TEST(Plan, SaysWhatGrowsWithTheParametersAndWhatWithTheTokens)
{
    struct Grown {
        double params, tokens, fixed, all;
    };
    const auto of = [](const std::vector<std::string> &more) {
        std::vector<std::string> words = {"plan", "--layers",    "2",  "--channels", "64", "--seq",
                                          "64",   "--workspace", "4K", "--json"};
        words.insert(words.end(), more.begin(), more.end());
        ProgramResult r = run_program(words);
        EXPECT_EQ(r.status, 0) << r.err;
        std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
        const cJSON *scaling = cJSON_GetObjectItem(json.get(), "scaling");
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
        const auto value = [](const cJSON *object, const char *name) {
            return cJSON_GetNumberValue(cJSON_GetObjectItem(object, name));
        };
        double all = 0;
        for (const char *name : {"params", "grads", "optimizer", "activations", "comm", "scratch"})
            all += value(row, name);
        return Grown{value(scaling, "params"), value(scaling, "tokens"), value(scaling, "fixed"),
                     all};
    };
    const std::vector<std::vector<std::string>> policies = {{},
                                                            {"--ranks", "4", "--zero", "3"},
                                                            {"--offload", "optimizer"},
                                                            {"--offload", "optimizer=disk"},
                                                            {"--recompute", "block"}};
    for (std::vector<std::string> more : policies) {
        more.insert(more.end(), {"--batch", "4"});
        const Grown one = of(more);
        EXPECT_EQ(one.params + one.tokens + one.fixed, one.all);
        EXPECT_GE(one.fixed, 4096);
        more.back() = "12";
        const Grown three = of(more);
        EXPECT_EQ(three.params, one.params);
        EXPECT_EQ(three.tokens, 3 * one.tokens); // no piece needs padding
        EXPECT_EQ(three.fixed, one.fixed);
    }
    ProgramResult r = run_program({"plan", "--batch", "2", "--seq", "64"});
    EXPECT_NE(r.out.find("with activations times the micro-batch (128 tokens)"), std::string::npos)
        << r.out;
}

TEST(Plan, ChoosesTheSegmentsThatAreComputedAgainBySizes)
{
    const auto of = [](const char *layers, const char *what) {
        return run_program({"plan", "--layers", layers, "--channels", "768", "--heads", "12",
                            "--seq", "1024", "--batch", "1", "--head-rows", "64", "--recompute",
                            what});
    };
    EXPECT_NE(of("12", "auto").out.find("in segments of 1,"), std::string::npos);
    EXPECT_NE(of("64", "auto").out.find("(--recompute every=2)"), std::string::npos);
    EXPECT_EQ(of("64", "auto,gelu").status, 0);
    EXPECT_EQ(of("12", "none").out.find("in segments"), std::string::npos);
}

// A proposed change is trained with: the measured memory equals the plan, within the limit.
TEST(PlanFits, ProposesWhatTrainsInTheDevicesMemory)
{
    TempFolder folder;
    std::vector<std::string> words = {"--layers",        "3",  "--channels",     "64",
                                      "--seq",           "32", "--batch",        "8",
                                      "--workspace",     "0",  "--head-rows",    "64",
                                      "--micro-batches", "1",  "--device-bytes", "3400K"};
    std::vector<std::string> plan = words;
    plan.insert(plan.begin(), "plan");
    plan.insert(plan.end(), {"--fits", "--json"});
    ProgramResult r = run_program(plan);
    ASSERT_EQ(r.status, 0) << r.err;
    std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
    const cJSON *change = cJSON_GetObjectItem(json.get(), "change");
    const double limit = cJSON_GetNumberValue(cJSON_GetObjectItem(json.get(), "limit"));
    const double device = cJSON_GetNumberValue(cJSON_GetObjectItem(change, "device_bytes"));
    EXPECT_LE(device, limit);
    std::istringstream options(cJSON_GetStringValue(cJSON_GetObjectItem(change, "options")));
    std::vector<std::string> train = words;
    train.insert(train.begin(), "train");
    train.insert(train.end(), std::istream_iterator<std::string>(options), {});
    train.insert(train.end(), {"--steps", "1", "--data", folder.file("text", some_text()), "--log",
                               folder.path + "/log"});
    r = run_program(train);
    ASSERT_EQ(r.status, 0) << r.err;
    const std::string log = read_text(folder.path + "/log");
    const auto object = [&](const char *name) {
        const size_t at = log.find(std::string("\"") + name + "\":{");
        return at == std::string::npos
                   ? name
                   : log.substr(log.find('{', at), log.find('}', at) - log.find('{', at));
    };
    EXPECT_EQ(object("planned"), object("measured")) << log;
    EXPECT_NE(log.find("\"peak\":[{\"name\":"), std::string::npos) << log;
    std::unique_ptr<cJSON, void (*)(cJSON *)> bytes(cJSON_Parse((object("measured") + "}").c_str()),
                                                    cJSON_Delete);
    double sum = -cJSON_GetNumberValue(cJSON_GetObjectItem(bytes.get(), "host"));
    for (const char *name : {"params", "grads", "optimizer", "activations", "comm", "scratch"})
        sum += cJSON_GetNumberValue(cJSON_GetObjectItem(bytes.get(), name));
    EXPECT_EQ(sum, device);
}

// One more sequence, or one more token, is refused.
TEST(PlanFits, FindsTheLargestBatchAndTheLongestSequence)
{
    const std::vector<std::string> words = {"plan", "--layers",        "2", "--channels",
                                            "64",   "--micro-batches", "1", "--device-bytes",
                                            "20M"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), words.begin(), words.end());
        return run_program(more);
    };
    ProgramResult r = with({"--batch", "1", "--fits", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "fits"), 0);
    const int batch = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(row, "max_batch"));
    const int seq = (int)cJSON_GetNumberValue(cJSON_GetObjectItem(row, "max_seq"));
    EXPECT_GT(batch, 1);
    EXPECT_GT(seq, 64);
    for (int more : {0, 1}) {
        EXPECT_EQ(with({"--batch", std::to_string(batch + more)}).status == 0, more == 0);
        EXPECT_EQ(with({"--batch", "1", "--seq", std::to_string(seq + more)}).status == 0,
                  more == 0);
    }
    EXPECT_NE(run_program({"plan", "--fits"}).err.find("--device-bytes"), std::string::npos);
}

TEST(PlanOfThousands, IsMadeForEveryStageWithAndWithoutCopiesOfShards)
{
    for (const char *zero : {"0", "1", "2", "3"})
        for (const char *mesh : {"dp=4096", "dp=4096,shard=8"}) {
            ProgramResult r = run_program({"plan", "--layers", "12", "--channels", "768", "--heads",
                                           "12", "--seq", "1024", "--batch", "4096", "--zero", zero,
                                           "--mesh", mesh, "--json"});
            const bool refused = *zero == '0' && strlen(mesh) > 7;
            EXPECT_EQ(r.status, refused ? 2 : 0) << zero << " " << mesh << ": " << r.err;
            std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()),
                                                           cJSON_Delete);
            EXPECT_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(json.get(), "per_rank")),
                      refused ? 0 : 4096);
        }
}

TEST(Plan, ThatIsTooLargeForTheDeviceSaysWhatWouldFit)
{
    const std::vector<std::string> words = {"plan", "--layers",       "6",      "--channels",
                                            "64",   "--seq",          "32",     "--batch",
                                            "8",    "--device-bytes", "5000000"};
    ProgramResult r = run_program(words);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.err.find("may use 5000000; with "), std::string::npos) << r.err;
    std::vector<std::string> smaller = words;
    smaller.insert(smaller.end(), {"--offload", "optimizer,params", "--recompute", "block"});
    EXPECT_EQ(run_program(smaller).status, 0);
    smaller[smaller.size() - 3] = "all";
    r = run_program(smaller);
    EXPECT_NE(r.err.find("use none, or a list of optimizer, params, grads"), std::string::npos)
        << r.err;
}

/* Layers of GPT-2's smallest: 25 to 75 % fewer activations; see docs/memory.md. */
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
