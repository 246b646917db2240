/* SPDX-License-Identifier: MIT
 *
 * The machine-readable results of info, plan and bench: well-formed, and with the promised names.
 */
#include "program.h"

#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <memory>

struct Json {
    std::unique_ptr<cJSON, void (*)(cJSON *)> root;
    explicit Json(const std::string &text) : root(cJSON_Parse(text.c_str()), cJSON_Delete)
    {
        EXPECT_NE(root, nullptr) << "not JSON: " << text;
    }
};

static void expect_keys(const cJSON *object, const std::vector<const char *> &keys)
{
    for (const char *key : keys)
        EXPECT_TRUE(cJSON_HasObjectItem(object, key)) << "no \"" << key << "\"";
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return item ? item->valuedouble : -1;
}

TEST(InfoJson, GoesToStandardOutputAloneAndNamesDevicesProvidersAndEnvironment)
{
    ProgramResult r = run_program({"info", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    expect_keys(json.root.get(), {"version", "devices", "providers", "environment"});
    const cJSON *device = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "devices"), 0);
    ASSERT_NE(device, nullptr);
    expect_keys(device,
                {"index", "name", "driver", "kind", "usable", "reason", "matmul_path",
                 "matmul_paths", "matrix_shapes", "heap_bytes", "subgroup_size", "features"});
    const cJSON *path, *paths = cJSON_GetObjectItem(device, "matmul_paths");
    EXPECT_GE(cJSON_GetArraySize(paths), 9);
    cJSON_ArrayForEach(path, paths)
    {
        expect_keys(path, {"name", "dtype", "built", "usable", "split_only", "reason"});
        const char *reason = cJSON_GetObjectItem(path, "reason")->valuestring;
        EXPECT_EQ(cJSON_IsTrue(cJSON_GetObjectItem(path, "usable")), reason[0] == '\0');
    }
    int chosen = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "providers")) chosen +=
        cJSON_IsTrue(cJSON_GetObjectItem(row, "chosen"));
    EXPECT_EQ(chosen, 1);
}

TEST(InfoJson, DoesNotShowTheJobKey)
{
    ProgramOptions options;
    options.environment = {"RF_JOB_KEY=very-secret"};
    EXPECT_EQ(run_program({"info", "--json"}, options).out.find("very-secret"), std::string::npos);
    EXPECT_EQ(run_program({"info"}, options).out.find("very-secret"), std::string::npos);
}

TEST(PlanJson, HasOneRowPerRankAlsoForThousands)
{
    ProgramResult r =
        run_program({"plan", "--mesh", "dp=1000", "--layers", "2", "--channels", "64", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    EXPECT_EQ(number(json.root.get(), "ranks"), 1000);
    EXPECT_EQ(number(json.root.get(), "bubble"), 0);
    const cJSON *rows = cJSON_GetObjectItem(json.root.get(), "per_rank");
    ASSERT_EQ(cJSON_GetArraySize(rows), 1000);
    expect_keys(cJSON_GetArrayItem(rows, 999),
                {"params", "grads", "optimizer", "activations", "comm", "scratch", "sent"});
}

TEST(PlanJson, CountsFourBytesPerParameterAndTwiceThatForAdam)
{
    ProgramResult r = run_program({"plan", "--params", "1e9", "--mesh", "dp=64", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "per_rank"), 63);
    EXPECT_EQ(number(json.root.get(), "param_count"), 1e9);
    EXPECT_EQ(number(row, "params"), 4e9); /* 1e9 is a multiple of every grain */
    EXPECT_EQ(number(row, "optimizer"), 8e9);
    /* A ring of 64 sends every byte twice, less the rank's own share; and a few losses. */
    EXPECT_NEAR(number(row, "sent"), 2 * 63.0 / 64 * 4e9, 1e5);
}

TEST(BenchJson, OfACollectiveHasTheDocumentedRowsAndNothingIsWrong)
{
    TempFolder folder;
    std::string path = folder.path + "/b.json";
    for (const char *op : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                           "gather", "scatter", "all_to_all", "sendrecv"}) {
        ProgramResult r = run_program({"bench", op, "--ranks", "3", "--provider", "loopback", "-b",
                                       "4", "-e", "64K", "-f", "16", "-n", "3", "--json", path});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(read_text(path));
        expect_keys(json.root.get(), {"op", "ranks", "provider", "dtype", "redop", "order"});
        EXPECT_EQ(number(json.root.get(), "ranks"), 3);
        const cJSON *row;
        int rows = 0;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "rows"))
        {
            expect_keys(row, {"bytes", "count", "time_us", "p50_us", "p99_us", "algbw", "busbw",
                              "wrong", "bound_pct"});
            EXPECT_EQ(number(row, "wrong"), 0) << op;
            EXPECT_GT(number(row, "time_us"), 0);
            EXPECT_GE(number(row, "p99_us"), number(row, "p50_us"));
            rows++;
        }
        EXPECT_EQ(rows, 4) << op;
    }
}

TEST(BenchJson, EveryTypeAndReductionIsExact)
{
    for (const char *type :
         {"float", "half", "bfloat16", "double", "int8", "uint8", "int32", "int64"})
        for (const char *op : {"sum", "avg", "min", "max", "prod"}) {
            ProgramResult r =
                run_program({"bench", "all_reduce", "--ranks", "3", "--provider", "loopback", "-b",
                             "1000", "-e", "1000", "-n", "1", "-w", "0", "-d", type, "-o", op});
            EXPECT_EQ(r.status, 0) << type << " " << op << "\n" << r.err << r.out;
        }
}

TEST(BenchJson, OfMatmulNamesDevicePathAndError)
{
    ProgramResult r = run_program({"bench", "matmul", "--shape", "64x32x48", "--shape", "7x5x3",
                                   "--dtype", "f32", "-n", "2", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    expect_keys(json.root.get(), {"op", "device", "driver"});
    const cJSON *row;
    int rows = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "rows"))
    {
        expect_keys(row, {"shape", "dtype", "path", "time_us", "gflops", "gbps", "max_rel_err"});
        /* Of the sum of |products|; K roundings of 2^-24 each would be 2e-6 for 32. */
        EXPECT_LT(number(row, "max_rel_err"), 1e-5);
        EXPECT_GE(number(row, "max_rel_err"), 0);
        rows++;
    }
    EXPECT_EQ(rows, 2);
}
