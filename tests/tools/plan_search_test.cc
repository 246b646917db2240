/* SPDX-License-Identifier: MIT
 *
 * `ringforge plan --search`: its results equal the predictions of `plan` for the same options; its
 * output, and refused options.
 */
#include "program.h"

#include <algorithm>
#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <sstream>

namespace
{

std::vector<std::string> words_of(const std::string &line)
{
    std::istringstream in(line);
    return {std::istream_iterator<std::string>(in), {}};
}

const std::string search_model = " --layers 6 --channels 256 --heads 8 --seq 128 --batch 32";
const std::string search_rates =
    " --peak 10 --memory 1000 --launch 2 --host-memory 50 --hosts 2x4 --links 800:2,80:5";

using Json = std::unique_ptr<cJSON, void (*)(cJSON *)>;

Json json_of(const std::string &line)
{
    ProgramResult r = run_program(words_of(line));
    EXPECT_EQ(r.status, 0) << line << r.err;
    return Json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
}

double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    EXPECT_TRUE(cJSON_IsNumber(item)) << name;
    return item ? item->valuedouble : 0;
}

std::string text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    EXPECT_TRUE(cJSON_IsString(item)) << name;
    return item ? item->valuestring : "";
}

/* The options that make the plan of a row. */
std::string options_of(const cJSON *row)
{
    auto whole = [&](const char *name) { return std::to_string((int)number_of(row, name)); };
    std::string line = " --mesh dp=" + whole("dp") + ",tp=" + whole("tp") + ",pp=" + whole("pp");
    if (number_of(row, "zero") > 0)
        line += ",shard=" + whole("shard");
    line += " --zero " + whole("zero") + " --micro-batches " + whole("micro_batches");
    if (number_of(row, "recompute") > 0)
        line += " --recompute every=" + whole("recompute");
    if (number_of(row, "pp") > 1)
        line += " --schedule " + text_of(row, "schedule");
    if (cJSON_IsTrue(cJSON_GetObjectItem(row, "sequence_parallel")))
        line += " --sequence-parallel";
    return line + " --offload " + text_of(row, "offload") + " --dtype " + text_of(row, "dtype");
}

TEST(PlanSearch, FindsWhatPlanPredictsForTheSameOptions)
{
    Json found =
        json_of("plan --search --device-bytes 60M --top 5 --json" + search_model + search_rates);
    const cJSON *rows = cJSON_GetObjectItem(found.get(), "search"), *row;
    ASSERT_EQ(cJSON_GetArraySize(rows), 5);
    double before = 0;
    cJSON_ArrayForEach(row, rows)
    {
        const std::string options = options_of(row);
        Json plan = json_of("plan --json" + options + search_model + search_rates);
        const cJSON *prediction = cJSON_GetObjectItem(plan.get(), "prediction");
        const double step_us = number_of(row, "step_us");
        EXPECT_TRUE(cJSON_IsTrue(cJSON_GetObjectItem(row, "planned"))) << options;
        EXPECT_NEAR(step_us, number_of(prediction, "step_us"), 1e-9 * step_us) << options;
        EXPECT_EQ(number_of(row, "bubble"), number_of(plan.get(), "bubble")) << options;
        EXPECT_LE(number_of(row, "device_bytes"), 60 << 20) << options;
        EXPECT_GE(step_us, before) << options;
        before = step_us;
    }
}

TEST(PlanSearch, PrintsATableOfAHundredColumnsWithTheReasonsOfTenRejections)
{
    ProgramResult r =
        run_program(words_of("plan --search --device-bytes 60M" + search_model + search_rates));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.err, ""); /* no progress without a terminal */
    std::istringstream lines(r.out);
    std::string line;
    int rows = 0, rejected = 0;
    for (bool below = false; std::getline(lines, line);) {
        below = below || line.find("Rejected") == 0;
        rejected += below && line.find("needs ") != std::string::npos;
        rows += line.find(" ms ") != std::string::npos && !below;
        EXPECT_TRUE(below || line.size() <= 100) << line;
    }
    EXPECT_EQ(rows, 20);
    EXPECT_EQ(rejected, 10);
    EXPECT_NE(r.out.find("The quickest: --mesh "), std::string::npos);
}

TEST(PlanSearch, JudgesATrillionParametersOnThreeThousandRanks)
{
    Json found = json_of("plan --search --json --layers 96 --channels 29696 --heads 232 --seq 2048 "
                         "--batch 3072 --micro-batches 3072 --dtype bf16 --hosts 384x8 --links "
                         "2400:3,200:10 --peak 300 --memory 2000 --device-bytes 80G "
                         "--mesh dp=6,tp=8,pp=64 --zero 1 --recompute block --schedule 1f1b");
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(found.get(), "search"), 0);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(number_of(found.get(), "ranks"), 3072);
    EXPECT_NEAR(number_of(row, "bubble"), 2 * 63. / (3 * 512 + 2 * 63), 1e-9);
    /* The outputs of two blocks' inputs are sent 512 times each way, beside sums of tensor ranks.
     */
    EXPECT_GT(number_of(row, "sent"), 2 * 512 * 2048. * 29696 * 4);
    EXPECT_GT(number_of(row, "device_bytes"), 6 * 2 * 12 * 29696. * 29696 / 8);
    EXPECT_FALSE(cJSON_IsTrue(cJSON_GetObjectItem(row, "planned")));
}

TEST(PlanSearch, TriesSequenceParallelismUnlessItIsGiven)
{
    const std::string search = "plan --search --mesh tp=2 --top 0 --zero 0 --schedule 1f1b --json" +
                               search_model + search_rates;
    for (const bool given : {false, true}) {
        Json found = json_of(search + (given ? " --sequence-parallel" : ""));
        int rows = 0, with = 0;
        const cJSON *row;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(found.get(), "search"))
        {
            with += cJSON_IsTrue(cJSON_GetObjectItem(row, "sequence_parallel"));
            rows++;
        }
        EXPECT_EQ(with, given ? rows : rows / 2);
        EXPECT_GT(with, 0);
    }
    ProgramResult r = run_program(words_of("plan --search --mesh tp=8 --sequence-parallel --top 2" +
                                           search_model + search_rates));
    EXPECT_NE(r.out.find("   8s   1 "), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("\ns after tp: with sequence parallelism\n"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find(" --sequence-parallel"), std::string::npos) << r.out;
}

TEST(PlanSearch, SaysWhatCameNearestAndWhatWouldFit)
{
    const std::string search = "plan --search" + search_model + search_rates;
    ProgramResult r = run_program(words_of(search + " --device-bytes 1M"));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("nothing fits; the nearest, --mesh "), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("use --device-bytes "), std::string::npos) << r.err;

    r = run_program(words_of(search + " --device-bytes 20M --zero 0 --mesh pp=1,tp=1 --dtype f32 "
                                      "--offload none"));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("nothing that is searched fits; the nearest, --mesh dp=8"),
              std::string::npos)
        << r.err;
    EXPECT_NE(r.err.find(" would fit"), std::string::npos) << r.err;

    r = run_program(words_of(search + " --offload grads --zero 0 --mesh pp=2,tp=1"));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("no mesh of 8 ranks can be: offload of gradients with zero=0"),
              std::string::npos)
        << r.err;
}

TEST(PlanSearch, RefusesHostsLinksAndMeshesThatAreNone)
{
    const struct {
        const char *options, *sentence;
    } cases[] = {
        {"--hosts 2 --links 5,6", "--hosts wants HOSTSxRANKS"},
        {"--hosts 2x --links 5,6", "--hosts wants HOSTSxRANKS"},
        {"--hosts 0x4 --links 5,6", "each number of --hosts has to be 1 to 65536, not 0x4"},
        {"--hosts 2x4x1 --links 5,6", "--hosts wants HOSTSxRANKS"},
        {"--hosts 999x999 --links 5,6", "for up to 65536 ranks"},
        {"--hosts 2x4 --links 5", "--links wants WITHIN,BETWEEN"},
        {"--hosts 2x4 --links 5,6,7", "--links wants WITHIN,BETWEEN"},
        {"--hosts 2x4 --links 5:-1,6", "--links wants WITHIN,BETWEEN"},
        {"--hosts 2x4 --links 0,6", "--links wants WITHIN,BETWEEN"},
        {"--hosts 2x4 --links 5,6 --link-gbps 7", "use either"},
        {"--links 5,6 --ranks 8", "--links has no effect without --hosts"},
        {"--hosts 2x4", "--search needs --links"},
        {"--hosts 2x4 --ranks 9 --links 5,6", "--ranks 9 contradicts --hosts 2x4"},
        {"--hosts 2x4 --links 5,6 --mesh dq=3", "--mesh wants a list"},
        {"--hosts 2x4 --links 5,6 --mesh pp=", "--mesh wants a list"},
        {"--hosts 2x4 --links 5,6 --mesh dp=3", "8 ranks cannot be divided into the 3"},
        {"--hosts 2x4 --links 5,6 --schedule 2f2b", "there is no --schedule"},
        {"--hosts 2x4 --links 5,6 --compare", "--compare does not go with --search"},
        {"--hosts 2x4 --links 5,6 --params 1e9", "--params does not go with --search"},
        {"", "--search needs --hosts HxR or --ranks N"},
    };
    for (const auto &c : cases) {
        ProgramResult r =
            run_program(words_of("plan --search --peak 1 --memory 1 " + std::string(c.options)));
        EXPECT_EQ(r.status, 2) << c.options << r.err;
        EXPECT_NE(r.err.find(c.sentence), std::string::npos) << c.options << "\n" << r.err;
        EXPECT_EQ(r.out, "") << c.options;
    }
    ProgramResult r = run_program(words_of("plan --hosts 2x4 --mesh dp=4 --batch 16"));
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("--hosts 2x4 has 8 ranks, the mesh 4"), std::string::npos) << r.err;
}

TEST(PlanHosts, LinksWithinAHostMakeAPredictedStepShorter)
{
    const std::string plan =
        "plan --json --dtype bf16 --peak 10 --memory 1000 --hosts 1x8" + search_model;
    auto step_us = [](const Json &json) {
        return number_of(cJSON_GetObjectItem(json.get(), "prediction"), "step_us");
    };
    EXPECT_EQ(step_us(json_of(plan + " --links 800:2,8:50")),
              step_us(json_of(plan + " --link-gbps 800 --latency 2")));
    EXPECT_LT(step_us(json_of(plan + " --links 800,8")), step_us(json_of(plan + " --link-gbps 8")));
}

} // namespace
