/* SPDX-License-Identifier: MIT
 *
 * What `ringforge plan` predicts, explains and compares.
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

using Json = std::unique_ptr<cJSON, void (*)(cJSON *)>;

Json parse(const std::string &text)
{
    return Json(cJSON_Parse(text.c_str()), cJSON_Delete);
}

double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    EXPECT_TRUE(cJSON_IsNumber(item)) << name;
    return cJSON_GetNumberValue(item);
}

std::vector<std::string> with(std::vector<std::string> words, const std::string &more)
{
    std::istringstream line(more);
    words.insert(words.end(), std::istream_iterator<std::string>(line), {});
    return words;
}

const std::vector<std::string> small = {"plan",  "--layers", "2",       "--channels", "64",
                                        "--seq", "32",       "--batch", "8"};

// The plan that `small` describes.
struct SmallPlan {
    gpt2 *model = nullptr;
    rf_plan *plan = nullptr;
    int status = 0;
    explicit SmallPlan(int dp, int zero = 0, rf_order order = RF_ORDER_RING)
    {
        gpt2_config config = {};
        config.layers = 2;
        config.channels = 64;
        config.heads = 4;
        config.seq = 32;
        EXPECT_EQ(gpt2_create(&config, &model), 0);
        rf_policy policy = {};
        policy.batch = 8;
        policy.micro_batches = dp;
        policy.seq = 32;
        policy.zero = zero;
        policy.order = order;
        policy.clip = 1;
        policy.optimizer.kind = RF_ADAMW;
        rf_mesh mesh = {};
        mesh.dp = dp;
        int count = 0;
        const rf_block *blocks = gpt2_blocks(model, &count);
        status = rf_plan_build({blocks, count}, &mesh, &policy, 0, &plan);
    }
    ~SmallPlan()
    {
        rf_plan_destroy(plan);
        gpt2_destroy(model);
    }
};

// A slow device with unlimited memory bandwidth: the step takes its arithmetic over the peak.
TEST(PlanPrediction, OfADeviceWithAnEndlessMemoryIsItsArithmetic)
{
    ProgramResult r = run_program(with(small, "--peak 1e-6 --memory 1e9 --json"));
    ASSERT_EQ(r.status, 0) << r.err;
    Json json = parse(r.out);
    const cJSON *step = cJSON_GetObjectItem(json.get(), "prediction");
    const cJSON *rank = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
    const double flops = number(rank, "flops"), repeated = number(rank, "repeated_flops");
    EXPECT_NEAR(number(step, "step_us"), flops, 1e-6 * flops); // at 10^6 a second
    EXPECT_NEAR(number(step, "mfu"), (flops - repeated) / flops, 1e-6);
    EXPECT_NEAR(number(step, "tokens_per_s"), 8 * 32 / (1e-6 * flops), 1e-3);
    EXPECT_STREQ(cJSON_GetStringValue(cJSON_GetObjectItem(step, "bound")), "compute");
    EXPECT_EQ(number(step, "exposed_comm_us"), 0);
}

TEST(PlanPrediction, AddsUpToTheStepAndSaysWhatBoundsIt)
{
    const std::string device = "--ranks 4 --peak 1 --memory 10 --launch 200 --latency 5 ";
    for (const auto &[link, bound] :
         {std::pair<const char *, const char *>{"--link-gbps 0.01", "network"},
          {"--link-gbps 1e9", "launches"}}) {
        ProgramResult r = run_program(with(small, device + link + " --json"));
        ASSERT_EQ(r.status, 0) << r.err;
        Json json = parse(r.out);
        const cJSON *step = cJSON_GetObjectItem(json.get(), "prediction"), *part;
        double path = 0;
        cJSON_ArrayForEach(part, cJSON_GetObjectItem(step, "path_us")) path +=
            cJSON_GetNumberValue(part);
        EXPECT_NEAR(path, number(step, "step_us"), 1e-6 * path);
        EXPECT_STREQ(cJSON_GetStringValue(cJSON_GetObjectItem(step, "bound")), bound);
        r = run_program(with(small, device + link));
        EXPECT_NE(r.out.find("Predicted step: "), std::string::npos) << r.out;
        EXPECT_NE(r.out.find("bound by " + std::string(bound)), std::string::npos) << r.out;
    }
}

TEST(PlanPrediction, HasADiskOnALaneOfItsOwn)
{
    const std::string disk = "--ranks 2 --zero 2 --offload optimizer=disk";
    const std::string rates = " --peak 1 --memory 10 --link-gbps 100";
    ProgramResult r = run_program(with(small, disk + rates + " --disk-rate 0.001 --json"));
    ASSERT_EQ(r.status, 0) << r.err;
    Json json = parse(r.out);
    const cJSON *step = cJSON_GetObjectItem(json.get(), "prediction");
    const cJSON *rank = cJSON_GetArrayItem(cJSON_GetObjectItem(json.get(), "per_rank"), 0);
    const double moved = number(rank, "disk_moved"); // at a byte in a microsecond
    EXPECT_GT(moved, number(rank, "disk"));
    EXPECT_NEAR(number(cJSON_GetObjectItem(step, "busy_us"), "disk"), moved, 1e-6 * moved);
    EXPECT_GE(number(step, "step_us"), moved * (1 - 1e-6));
    EXPECT_STREQ(cJSON_GetStringValue(cJSON_GetObjectItem(step, "bound")), "disk");
    r = run_program(with(small, disk + rates + " --disk-rate 1"));
    EXPECT_NE(r.out.find("On the disk: "), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(", which takes "), std::string::npos) << r.out;
    const std::pair<std::string, const char *> refusals[] = {
        {disk + rates, "needs --disk-rate"},
        {"--offload optimizer" + rates + " --disk-rate 1", "is for --offload optimizer=disk"},
        {"--offload grads=disk", "only the optimizer's states and activations can be on a disk"},
        {"--offload optimizer=disk,optimizer", "--offload names optimizer twice"},
        {"--offload optimizer=tape", "there is no --offload \"optimizer=tape\""},
        {disk + " --fits --device-bytes 1G", "does not go with --fits"},
        {disk + " --search --device-bytes 1G", "does not go with --search"}};
    for (const auto &[words, says] : refusals) {
        r = run_program(with(small, words));
        EXPECT_EQ(r.status, 2) << words;
        EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    }
}

TEST(PlanPrediction, IsMadeOfThousandsOfRanks)
{
    // In tree order kinds of ranks alternate.
    for (const char *words :
         {"ring --batch 4096 --micro-batches 4096", "tree --batch 12293 --micro-batches 12293"}) {
        ProgramResult r = run_program(
            with({"plan"}, std::string("--mesh dp=4096 --layers 48 --channels 1600 --heads 25 "
                                       "--seq 1024 --peak 100 --memory 1000 --link-gbps 100 "
                                       "--json --order ") +
                               words));
        ASSERT_EQ(r.status, 0) << r.err;
        Json json = parse(r.out);
        EXPECT_GT(number(cJSON_GetObjectItem(json.get(), "prediction"), "step_us"), 0);
    }
}

// In a second or two: it would be minutes if the work grew with the cube of the layers.
TEST(Plan, IsMadeOfAThousandLargeLayers)
{
    const ProgramResult r = run_program(
        {"plan", "--layers", "1000", "--channels", "4096", "--heads", "32", "--seq", "2048",
         "--batch", "64", "--micro-batches", "16", "--mesh", "dp=2,cp=2", "--zero", "2", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("\"ranks\""), std::string::npos) << r.out;
}

TEST(PlanStages, AreShownWithTheirShareOfTheArithmetic)
{
    ProgramResult r = run_program(with(small, "--mesh pp=2"));
    EXPECT_NE(r.out.find("Blocks of the 2 stages, and their share of the arithmetic: 2 ("),
              std::string::npos)
        << r.out;
    EXPECT_EQ(run_program(small).out.find("stages"), std::string::npos);
    r = run_program(with(small, "--mesh pp=2 --stages 1,3 --json"));
    const Json json = parse(r.out);
    cJSON *stages = cJSON_GetObjectItem(json.get(), "stages");
    ASSERT_EQ(cJSON_GetArraySize(stages), 2) << r.out;
    EXPECT_EQ(cJSON_GetArrayItem(stages, 0)->valueint, 1);
    EXPECT_EQ(cJSON_GetArrayItem(stages, 1)->valueint, 3);
}

TEST(PlanStages, AreDividedByCostWithEverySchedule)
{
    for (const char *schedule : {"1f1b", "gpipe", "naive", "interleaved:2", "zbh1", "zbv"}) {
        ProgramResult r = run_program(
            with(small, std::string("--mesh pp=2 --stages cost --schedule ") + schedule));
        EXPECT_EQ(r.status, 0) << schedule << ": " << r.err;
    }
}

TEST(PlanExplanation, SaysOnceForAllLayersWhereEachExchangeComesFrom)
{
    ProgramResult r =
        run_program(with(small, "--mesh dp=2,tp=2 --zero 1 --micro-batches 4 --explain"));
    ASSERT_EQ(r.status, 0) << r.err;
    std::istringstream lines(r.out.substr(r.out.find("What rank 0 exchanges in a step")));
    std::string line;
    int layers = 0;
    bool gathers = false;
    while (std::getline(lines, line)) {
        // Two layers, two micro-batches.
        const bool first =
            line.find("block layer 0 declares a sum after phase 0 of forward; it "
                      "splits blocks.0.attention.qkv.weight by rows") != std::string::npos;
        layers += first && line.find("     4 ") == 0 && line.find(" tp ") != std::string::npos;
        gathers = gathers ||
                  (line.find("zero=1: each rank has updated its shard of ") != std::string::npos &&
                   line.find(" dp ") != std::string::npos);
        EXPECT_EQ(line.find("block layer 1 declares a sum after phase 0 of forward"),
                  std::string::npos);
    }
    EXPECT_EQ(layers, 1) << r.out;
    EXPECT_TRUE(gathers) << r.out;
    r = run_program(with(small, "--explain"));
    EXPECT_NE(r.out.find("  none: there is one rank\n"), std::string::npos) << r.out;
}

// ---- side by side

TEST(PlanComparison, HasTheBytesOfEachPlanAndTheReasonOfEachRefusal)
{
    ProgramResult r =
        run_program(with(small, "--ranks 2 --peak 1 --memory 10 --link-gbps 1 --compare --json"));
    ASSERT_EQ(r.status, 0) << r.err;
    Json json = parse(r.out);
    const cJSON *row;
    int rows = 0, refused = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.get(), "compare"))
    {
        const int zero = (int)number(row, "zero");
        const std::string order = cJSON_GetStringValue(cJSON_GetObjectItem(row, "order"));
        SmallPlan wanted(2, zero, order == "tree" ? RF_ORDER_TREE : RF_ORDER_RING);
        const cJSON *reason = cJSON_GetObjectItem(row, "reason");
        ASSERT_EQ(reason != nullptr, wanted.status < 0) << zero << order;
        rows++;
        if (reason) {
            EXPECT_STREQ(cJSON_GetStringValue(reason), rf_last_error()->message);
            refused++;
            continue;
        }
        rf_bytes bytes;
        rf_plan_bytes(wanted.plan, &bytes);
        EXPECT_EQ(number(row, "optimizer"), (double)bytes.optimizer);
        EXPECT_EQ(number(row, "grads"), (double)bytes.grads);
        EXPECT_EQ(number(row, "sent"), (double)bytes.sent);
        EXPECT_GT(number(cJSON_GetObjectItem(row, "prediction"), "step_us"), 0);
    }
    EXPECT_EQ(rows, 8);
    EXPECT_EQ(refused, 0);
}

// Two copies of the shards require ring order; without shards there is one.
TEST(PlanComparison, SaysWhyAMeshIsRefusedWithAnOrder)
{
    const std::string mesh = "--mesh dp=4,shard=2 --zero 1 --compare";
    ProgramResult r = run_program(with(small, mesh));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out.find("refused: zero 0"), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("refused: zero 1 ring"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("refused: zero 1 tree: tree order with 2 copies of the shards"),
              std::string::npos)
        << r.out;
    r = run_program(with(small, mesh + " --json"));
    Json json = parse(r.out);
    const cJSON *row;
    int reasons = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.get(), "compare")) reasons +=
        cJSON_GetObjectItem(row, "reason") != nullptr;
    EXPECT_EQ(reasons, 3);
}

TEST(PlanComparison, IsATableWithoutTimesWhereNoRatesAreKnown)
{
    ProgramResult r = run_program(with(small, "--ranks 2 --compare"));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("sent/step\n   0  ring"), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("bound by"), std::string::npos) << r.out;
    r = run_program({"plan", "--params", "1e6", "--ranks", "2", "--compare"});
    EXPECT_EQ(r.status, 0) << r.err;
}

} // namespace
