// SPDX-License-Identifier: MIT
//
// `ringforge bench all --peers` with peers that are scripts, or absent. Of what it could run, only
// the first group begins in time.
#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "program.h"
#include "svg.h"

namespace
{

std::vector<std::string> arguments(const TempFolder &folder, std::vector<std::string> more = {})
{
    std::vector<std::string> all = {
        "bench", "all",       "--peers", "--quick", "-e",
        "4",     "--minutes", "0.0001",  "--json",  folder.path + "/rows.json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

void script(const TempFolder &folder, const char *name, const char *text)
{
    chmod(folder.file(name, std::string("#!/bin/sh\n") + text + "\n").c_str(), 0755);
}

struct Rows {
    cJSON *json;
    explicit Rows(const TempFolder &folder)
        : json(cJSON_Parse(read_text(folder.path + "/rows.json").c_str()))
    {
    }
    ~Rows()
    {
        cJSON_Delete(json);
    }
    // Of the first row.
    cJSON *get(const char *name) const
    {
        return cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "rows"), 0), name);
    }
    double number(const char *name) const
    {
        return cJSON_GetNumberValue(cJSON_GetObjectItem(json, name));
    }
    double time(const char *side) const
    {
        return cJSON_GetNumberValue(cJSON_GetObjectItem(get("time_us"), side));
    }
};

TEST(Peers, TheBestOfThoseThatAreThereIsNamedWithItsRatio)
{
    TempFolder folder;
    script(folder, "openmpi", "");
    script(folder, "mpich", "");
    script(folder, "mpirun.openmpi", "echo 4 12.5 0 1.5 2.5");
    // What is written anew for one is so for all.
    script(folder, "mpirun.mpich", R"(eval "last=\${$#}"; [ "$last" = rewrite ] && echo 4 99 0)");
    ProgramOptions options;
    options.environment = {"PATH=" + folder.path + ":" + getenv("PATH")};
    const std::string plot = folder.path + "/times.svg";
    const ProgramResult r = run_program(
        arguments(folder, {"--peer-programs", folder.path, "--plot", plot, "--rewrite"}), options);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("libgloo-dev"), std::string::npos) << r.err;
    EXPECT_NE(r.out.find("4 of "), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("library: of 1 ratios "), std::string::npos) << r.out;
    const Rows rows(folder);
    EXPECT_TRUE(cJSON_IsTrue(cJSON_GetObjectItem(rows.json, "rewritten")));
    EXPECT_EQ(rows.time("openmpi"), 12.5);
    EXPECT_EQ(rows.time("mpich"), 99);
    EXPECT_GT(rows.time("own"), 0);
    EXPECT_STREQ(cJSON_GetStringValue(rows.get("best_peer")), "openmpi");
    EXPECT_NEAR(cJSON_GetNumberValue(rows.get("ratio")), 12.5 / rows.time("library"), 1e-9);
    EXPECT_STREQ(cJSON_GetStringValue(rows.get("cores")), "all");
    EXPECT_EQ(cJSON_GetNumberValue(rows.get("turns")), 1);
    if (std::thread::hardware_concurrency() > 1) {
        EXPECT_GT(rows.number("line_ns_near"), 0);
    }
    std::vector<std::string> tags;
    EXPECT_TRUE(well_formed(read_text(plot), tags));
}

TEST(Peers, OneNetworkAndOneNumberOfRanksCanBeMeasuredAlone)
{
    TempFolder folder;
    const ProgramResult r = run_program(
        arguments(folder, {"--peer-programs", folder.path, "--provider", "shm", "--ranks", "3"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("2 of 16 runs"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("all_reduce, host, 3 ranks"), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("tcp"), std::string::npos) << r.out;
    EXPECT_EQ(Rows(folder).number("runs"), 2);
    EXPECT_EQ(run_program(arguments(folder, {"--ranks", "5"})).status, 2);
    EXPECT_EQ(run_program(arguments(folder, {"--provider", "loopback"})).status, 2);
}

TEST(Peers, OneThatFailsIsReportedAndTheOthersRun)
{
    TempFolder folder;
    script(folder, "openmpi", "");
    script(folder, "mpirun.openmpi", "echo no network; exit 1");
    ProgramOptions options;
    options.environment = {"PATH=" + folder.path + ":" + getenv("PATH")};
    const ProgramResult r =
        run_program(arguments(folder, {"--peer-programs", folder.path}), options);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("openmpi ended early, after 0 of 1 sizes"), std::string::npos) << r.err;
    const Rows rows(folder);
    EXPECT_GT(rows.time("library"), 0);
    EXPECT_TRUE(cJSON_IsNull(rows.get("best_peer")));
}

TEST(Peers, WithoutAnyItSaysWhatToInstall)
{
    TempFolder folder;
    const ProgramResult r = run_program(arguments(folder, {"--peer-programs", folder.path}));
    ASSERT_EQ(r.status, 0) << r.err;
    for (const char *package : {"libopenmpi-dev", "libmpich-dev", "libgloo-dev"})
        EXPECT_NE(r.err.find(package), std::string::npos) << r.err;
    EXPECT_EQ(run_program({"bench", "all"}).status, 2);
}

} // namespace
