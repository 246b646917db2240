/* SPDX-License-Identifier: MIT
 *
 * `ringforge tune`. tests/ops/matmul_table_test.cc tests the use of its table.
 */
#include "program.h"

#include <algorithm>
#include <cjson/cJSON.h>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <gtest/gtest.h>
#include <memory>

namespace
{

class Tune : public testing::Test
{
  protected:
    void SetUp() override
    {
        setenv("RF_CACHE_DIR", folder.path.c_str(), 1);
    }
    void TearDown() override
    {
        unsetenv("RF_CACHE_DIR");
    }
    std::string table() const
    {
        std::string name;
        DIR *dir = opendir(folder.path.c_str());
        for (dirent *item = readdir(dir); item; item = readdir(dir))
            if (strstr(item->d_name, ".matmul"))
                name = folder.path + "/" + item->d_name;
        closedir(dir);
        return name;
    }
    TempFolder folder;
};

TEST_F(Tune, MeasuresAndWritesATable)
{
    ProgramResult r = run_program({"tune", "--shape", "33x17x65", "--dtype", "f32", "-n", "1"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("written to"), std::string::npos) << r.out;
    ASSERT_NE(table(), "");
    EXPECT_EQ(read_text(table()).rfind("ringforge-matmul 1 ", 0), 0u);
}

TEST_F(Tune, TellsPlansByWhatToPredict)
{
    ProgramResult r = run_program({"plan", "--device", "0"});
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("run `ringforge tune --device 0`"), std::string::npos) << r.err;
    r = run_program({"tune", "--shape", "64x64x64", "--dtype", "f32", "-n", "1", "--device", "0"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("a kernel copies "), std::string::npos) << r.out;
    r = run_program({"plan", "--device", "0"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("Predicted step: "), std::string::npos) << r.out;
    r = run_program({"plan", "--device", "0", "--dtype", "f16"});
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("needs --peak"), std::string::npos) << r.err; // not measured in f16
}

TEST_F(Tune, TellsTrainingWhatTheDeviceCanDo)
{
    const std::string text = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> train = {
        "train", "--data", text,      "--layers", "1",       "--channels", "32",    "--heads", "2",
        "--seq", "16",     "--batch", "1",        "--steps", "1",          "--log", log};
    ProgramResult r = run_program({"tune", "--shape", "64x64x64", "--dtype", "f32", "-n", "1"});
    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_EQ(run_program(train).status, 0);
    EXPECT_NE(read_text(log).find("\"mfu\":"), std::string::npos) << read_text(log);
    EXPECT_NE(read_text(log).find("\"predicted_us\":"), std::string::npos) << read_text(log);
    EXPECT_NE(read_text(log).find("\"predicted_bound\":"), std::string::npos) << read_text(log);
    // One rank waits for nobody, so the measured bound is the predicted one.
    const std::string text_of_log = read_text(log);
    const auto value = [&](const std::string &key) {
        const size_t at = text_of_log.find("\"" + key + "\":\"") + key.size() + 4;
        return text_of_log.substr(at, text_of_log.find('"', at) - at);
    };
    EXPECT_EQ(value("bound"), value("predicted_bound")) << text_of_log;
}

TEST_F(Tune, ADryRunWritesNothing)
{
    ProgramResult r =
        run_program({"tune", "--shape", "16x16x16", "--dtype", "bf16", "-n", "1", "--dry-run"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("nothing is written"), std::string::npos) << r.out;
    EXPECT_EQ(table(), "");
}

TEST_F(Tune, SaysWhatEveryPathThatRanReached)
{
    ProgramResult r = run_program(
        {"tune", "--shape", "16x16x16", "--dtype", "f32", "-n", "1", "--dry-run", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
    const cJSON *row, *rows = cJSON_GetObjectItem(json.get(), "rows");
    ASSERT_EQ(cJSON_GetArraySize(rows), 3);
    cJSON_ArrayForEach(row, rows)
    {
        double best = cJSON_GetObjectItem(row, "best_gflops")->valuedouble, most = 0;
        const cJSON *path, *tried = cJSON_GetObjectItem(row, "tried");
        EXPECT_GE(cJSON_GetArraySize(tried), 1);
        cJSON_ArrayForEach(path, tried)
        {
            EXPECT_NE(cJSON_GetObjectItem(path, "path")->valuestring[0], '\0');
            most = std::max(most, cJSON_GetObjectItem(path, "gflops")->valuedouble);
        }
        EXPECT_NEAR(best, most, 1e-6 * most);
    }
}

TEST_F(Tune, BeginsNothingWhenItsTimeIsOver)
{
    ProgramResult r = run_program(
        {"tune", "--shape", "16x16x16", "--dtype", "f32", "--seconds", "1e-9", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    std::unique_ptr<cJSON, void (*)(cJSON *)> json(cJSON_Parse(r.out.c_str()), cJSON_Delete);
    EXPECT_EQ(cJSON_GetArraySize(cJSON_GetObjectItem(json.get(), "rows")), 0);
}

} // namespace
