/* SPDX-License-Identifier: MIT
 *
 * The machine-readable results of info, plan and bench: well-formed, and with the promised names.
 */
#include "program.h"

#include <algorithm>
#include <cjson/cJSON.h>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
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
    expect_keys(device, {"index", "name", "driver", "kind", "usable", "reason", "matmul_path",
                         "matmul_paths", "kernel_forms", "matrix_shapes", "heap_bytes",
                         "subgroup_size", "flushes_subnormals", "features"});
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

TEST(InfoJson, AlgorithmsCoverEverySizeOnce)
{
    for (const char *ranks : {"1", "2", "3", "17"}) {
        ProgramResult r = run_program({"info", "--algorithms", "--ranks", ranks, "--json"});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(r.out);
        const cJSON *row;
        std::map<std::string, double> next;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "algorithms"))
        {
            std::string op = cJSON_GetStringValue(cJSON_GetObjectItem(row, "op"));
            double from = cJSON_GetNumberValue(cJSON_GetObjectItem(row, "from"));
            EXPECT_EQ(from, next.count(op) ? next[op] : 4) << op;
            next[op] = 2 * cJSON_GetNumberValue(cJSON_GetObjectItem(row, "to"));
        }
        EXPECT_EQ(next.size(), 8u);
        for (const auto &[op, end] : next)
            EXPECT_EQ(end, 2147483648.0) << op;
    }
    EXPECT_NE(run_program({"info", "--algorithms", "--ranks", "0"}).err.find("1 to 4096"),
              std::string::npos);
}

TEST(InfoJson, MeasuredAlgorithmsComeWithPredictions)
{
    for (const char *provider : {"loopback", "tcp"}) {
        ProgramResult r = run_program({"info", "--algorithms", "--measure", "--ranks", "3",
                                       "--provider", provider, "--json"});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(r.out);
        const cJSON *links = cJSON_GetObjectItem(json.root.get(), "links"), *row;
        for (const char *name : {"message_us", "bytes_per_s", "more_message_us", "more_bytes_per_s",
                                 "fold_bytes_per_s"})
            EXPECT_GT(cJSON_GetNumberValue(cJSON_GetObjectItem(links, name)), 0) << name;
        int predicted = 0;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "algorithms")) predicted +=
            cJSON_GetObjectItem(row, "predicted_us") != nullptr;
        EXPECT_GE(predicted, 6) << r.out;
    }
}

TEST(InfoJson, DoesNotShowKeys)
{
    ProgramOptions options;
    options.environment = {"RF_JOB_KEY=very-secret", "RF_CLIENT_KEY=very-secret-too",
                           "RF_IDENTITY_KEY=very-secret-as-well"};
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

TEST(PlanJson, CountsArithmeticPerRankWithNoDriver)
{
    ProgramOptions no_driver;
    no_driver.environment = {"VK_DRIVER_FILES=/nonexistent/driver.json",
                             "VK_ICD_FILENAMES=/nonexistent/driver.json"};
    const std::vector<std::string> plan = {"plan",    "--layers", "12",    "--channels", "768",
                                           "--heads", "12",       "--seq", "1024",       "--batch",
                                           "4",       "--mesh",   "dp=2",  "--json",     "-"};
    ProgramResult r = run_program(plan, no_driver);
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "per_rank"), 1);
    expect_keys(row, {"flops", "repeated_flops", "read", "written"});
    const double tokens = 2 * 1024, products = 12 * 12 * 768.0 * 768 + 257 * 768;
    const double attention = 6 * 768.0 * (1024 + 1) * 12 * tokens;
    const double formula = 6 * products * tokens + attention;
    EXPECT_EQ(number(row, "repeated_flops"), attention / 2);
    EXPECT_NEAR((number(row, "flops") - attention / 2) / formula, 1.01, 0.01);
    r = run_program({"plan", "--layers", "2", "--channels", "64"}, no_driver);
    EXPECT_NE(r.out.find("Arithmetic of a step: "), std::string::npos) << r.out;
    // A size has no blocks that could be counted.
    r = run_program({"plan", "--params", "1e9"}, no_driver);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out.find("Arithmetic"), std::string::npos) << r.out;
}

TEST(PlanJson, CountsFourBytesPerParameterAndTwiceThatForAdam)
{
    ProgramResult r =
        run_program({"plan", "--params", "1e9", "--layers", "1", "--mesh", "dp=64", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "per_rank"), 63);
    EXPECT_EQ(number(json.root.get(), "layers"), 1);
    EXPECT_EQ(number(json.root.get(), "param_count"), 1e9);
    EXPECT_EQ(number(row, "params"), 4e9); /* 1e9 is a multiple of every grain */
    EXPECT_EQ(number(row, "optimizer"), 8e9);
    /* A ring of 64 sends every byte twice, without the rank's own share; and a few losses. */
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
        expect_keys(json.root.get(),
                    {"op", "ranks", "provider", "dtype", "redop", "order", "buffers"});
        EXPECT_EQ(number(json.root.get(), "ranks"), 3);
        const cJSON *row;
        int rows = 0;
        cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "rows"))
        {
            expect_keys(row, {"bytes", "count", "time_us", "p50_us", "p99_us", "algbw", "busbw",
                              "wrong", "bound_pct", "in_place"});
            EXPECT_EQ(number(row, "wrong"), 0) << op;
            const std::string name = op;
            const bool both = name != "broadcast" && name != "all_to_all" && name != "sendrecv";
            const cJSON *in_place = cJSON_GetObjectItem(row, "in_place");
            ASSERT_EQ(cJSON_IsObject(in_place) != 0, both) << op;
            if (both) {
                expect_keys(in_place, {"time_us", "p50_us", "p99_us", "algbw", "busbw", "wrong",
                                       "bound_pct"});
                EXPECT_EQ(number(in_place, "wrong"), 0) << op;
                EXPECT_GT(number(in_place, "time_us"), 0);
            }
            EXPECT_GT(number(row, "time_us"), 0);
            EXPECT_GE(number(row, "p99_us"), number(row, "p50_us"));
            rows++;
        }
        EXPECT_EQ(rows, 4) << op;
    }
}

TEST(BenchJson, SizesGrowByStepsWhereThatIsAskedForAndBoundsAreOfTheLink)
{
    TempFolder folder;
    std::string path = folder.path + "/b.json";
    ProgramResult r =
        run_program({"bench", "all_reduce", "--ranks", "4", "--provider", "loopback", "-b", "100",
                     "-e", "800", "-i", "100", "-n", "2", "--link-gbps", "8", "--json", path});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(read_text(path));
    const cJSON *row;
    double wanted = 100;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "rows"))
    {
        EXPECT_EQ(number(row, "bytes"), wanted);
        // 2 (N-1)/N of the bytes over the time, on every link, of 1 GB/s.
        EXPECT_NEAR(number(row, "busbw"), number(row, "algbw") * 1.5, 1e-9);
        EXPECT_NEAR(number(row, "bound_pct"), 100 * number(row, "busbw"), 1e-6);
        wanted += 100;
    }
    EXPECT_EQ(wanted, 900);
    EXPECT_EQ(run_program({"bench", "all_reduce", "-b", "4", "-e", "1M", "-i", "4"}).status, 2);
}

TEST(BenchJson, CallsInAGroupAndOnlyOutOfPlaceWhereThatIsAskedFor)
{
    TempFolder folder;
    std::string path = folder.path + "/b.json";
    for (const char *op : {"all_reduce", "all_to_all", "sendrecv"}) {
        ProgramResult r = run_program(
            {"bench",      op,   "--ranks",     "3",         "--provider", "loopback", "-b",
             "4K",         "-e", "4K",          "-n",        "2",          "-m",       "5",
             "--in-place", "0",  "--one-clock", "--rewrite", "--json",     path});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(read_text(path));
        EXPECT_TRUE(cJSON_IsTrue(cJSON_GetObjectItem(json.root.get(), "one_clock")));
        EXPECT_TRUE(cJSON_IsTrue(cJSON_GetObjectItem(json.root.get(), "rewritten")));
        EXPECT_EQ(number(json.root.get(), "together"), 5);
        EXPECT_EQ(number(json.root.get(), "root"), -1);
        const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "rows"), 0);
        EXPECT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(row, "in_place")));
        EXPECT_EQ(number(row, "wrong"), 0) << op;
        // No call takes longer than from the first sample's start to the last one's end.
        EXPECT_GT(number(row, "time_us"), 0);
        EXPECT_LT(number(row, "time_us"), 1e6 * (number(row, "ended_s") - number(row, "began_s")));
    }
    EXPECT_EQ(run_program({"bench", "all_reduce", "-m", "0"}).status, 2);
}

TEST(BenchJson, MessagesOfSixteenBitsAreWithinTheirBoundAndUseHalfTheLink)
{
    TempFolder folder;
    std::string path = folder.path + "/b.json";
    for (const char *op : {"all_reduce", "reduce", "reduce_scatter"})
        for (const char *redop : {"sum", "avg", "max"})
            for (const char *type : {"half", "bfloat16"}) {
                ProgramResult r = run_program(
                    {"bench",       op,     "--ranks", "3",    "--provider",   "loopback",
                     "-b",          "1000", "-e",      "1000", "-n",           "1",
                     "-w",          "0",    "-o",      redop,  "--wire-dtype", type,
                     "--link-gbps", "8",    "--json",  path});
                ASSERT_EQ(r.status, 0) << op << " " << redop << " " << type << "\n" << r.err;
                Json json(read_text(path));
                EXPECT_STREQ(
                    cJSON_GetStringValue(cJSON_GetObjectItem(json.root.get(), "wire_dtype")),
                    std::string(type) == "half" ? "f16" : "bf16");
                const cJSON *row =
                    cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "rows"), 0);
                EXPECT_EQ(number(row, "wrong"), 0);
                EXPECT_NEAR(number(row, "bound_pct"), 50 * number(row, "busbw"), 1e-6);
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

TEST(BenchJson, AStepsArithmeticIsThatOfItsParametersAndAttention)
{
    ProgramResult r = run_program(
        {"bench", "step", "--shape", "1x32x2x16x2x50", "-n", "2", "-w", "1", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    expect_keys(json.root.get(),
                {"op", "device", "driver", "shape", "dtype", "best_us", "first_loss", "last_loss"});
    const cJSON *root = json.root.get();
    // Tables of tokens and positions, a layer's matrices and vectors, the last norm.
    const double params = 50 * 32 + 16 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32;
    EXPECT_EQ(number(root, "param_count"), params);
    EXPECT_EQ(number(root, "flops_per_token"), 6 * (params - 16 * 32) + 12 * 32 * 16);
    const double tokens_per_s = 32 / (number(root, "time_us") * 1e-6);
    EXPECT_NEAR(number(root, "tokens_per_s"), tokens_per_s, 1e-6 * tokens_per_s);
    EXPECT_NEAR(number(root, "gflops"), number(root, "flops_per_token") * tokens_per_s / 1e9,
                1e-6 * number(root, "gflops"));
    EXPECT_LT(number(root, "last_loss"), number(root, "first_loss"));
}

TEST(BenchJson, OfAHostUpdateHasTheHostsRowsBesideTheDevices)
{
    for (const char *type : {"f32", "bf16"}) {
        ProgramResult r = run_program({"bench", "host_update", "--shape", "1001", "--dtype", type,
                                       "-n", "3", "-w", "1", "--json", "-"});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(r.out);
        expect_keys(json.root.get(), {"op", "device", "driver", "dtype"});
        EXPECT_EQ(number(json.root.get(), "elements"), 1001);
        const double bytes = number(json.root.get(), "bytes_per_element");
        EXPECT_EQ(bytes, type[0] == 'f' ? 28 : 30);
        const cJSON *row, *rows = cJSON_GetObjectItem(json.root.get(), "rows");
        ASSERT_EQ(cJSON_GetArraySize(rows), 3);
        EXPECT_EQ(number(cJSON_GetArrayItem(rows, 0), "threads"), 1);
        EXPECT_STREQ(cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 2), "where")->valuestring,
                     "device");
        cJSON_ArrayForEach(row, rows)
        {
            expect_keys(row, {"where", "threads", "time_us", "best_us"});
            const double ns = number(row, "ns_per_element");
            EXPECT_NEAR(ns * 1001, number(row, "time_us") * 1e3, 1e-6 * ns * 1001);
            EXPECT_NEAR(number(row, "gbps") * ns, bytes, 1e-6);
            /* A few roundings of a parameter and of a step that is not larger. */
            EXPECT_TRUE(number(row, "max_rel_err") >= 0 && number(row, "max_rel_err") < 4e-6);
        }
    }
    EXPECT_EQ(run_program({"bench", "host_update", "--shape", "3x4"}).status, 2);
    EXPECT_EQ(run_program({"bench", "host_update", "--dtype", "i32"}).status, 2);
}

TEST(Bench, AStepsShapeThatCannotBeReadIsAUsageError)
{
    for (const char *shape :
         {"1x32x2x16x2", "1x32x2x16x2x50x1", "1x32x0x16x2x50", "1x32x5x16x2x50"})
        EXPECT_EQ(run_program({"bench", "step", "--shape", shape}).status, 2) << shape;
}

/* Times are not asserted: the plan's own simulator and a formula must agree. */
TEST(BenchJson, OverlapOfEachStageSendsWhatIsPlannedAndIsPredictedAsByAFormula)
{
    // Blocks of 256 KiB on two ranks: halves that a rank sends, and those that stay exposed.
    const struct {
        const char *setting;
        int zero;
        double sent, exposed;
    } wanted[] = {{"data parallel", 0, 8, 2},
                  {"data parallel, no overlap", 0, 8, 8},
                  {"zero 1", 1, 8, 5},
                  {"zero 1, bf16", 1, 6, 1.5},
                  {"zero 2, 4 rounds", 2, 20, 5},
                  {"zero 2, tree order", 2, 20, 5},
                  {"zero 3", 3, 11, 2},
                  {"zero 3, 4 rounds", 3, 41, 2},
                  {"zero 3, two copies", 3, 15, 3},
                  {"zero 3, no prefetch", 3, 11, 11},
                  {"zero 3, no overlap", 3, 11, 11}};
    ProgramResult r =
        run_program({"bench", "overlap", "-n", "1", "--scale", "0.01", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    const cJSON *row, *rows = cJSON_GetObjectItem(json.root.get(), "rows");
    size_t count = 0;
    cJSON_ArrayForEach(row, rows)
    {
        expect_keys(row, {"ranks", "micro_batches", "bucket_bytes", "exposed_ms"});
        EXPECT_EQ(number(row, "sent_bytes"), number(row, "planned_sent_bytes"));
        EXPECT_GE(number(row, "step_ms"), number(row, "busy_ms"));
        const double computed = number(row, "computed_step_ms");
        const cJSON *planned = cJSON_GetObjectItem(row, "planned_step_ms");
        const std::string setting = cJSON_GetObjectItem(row, "setting")->valuestring;
        if (setting.find("no overlap") != setting.npos)
            EXPECT_TRUE(cJSON_IsNull(planned)) << setting;
        else
            EXPECT_NEAR(number(row, "planned_step_ms"), computed, computed / 1000) << setting;
        if (count < std::size(wanted)) {
            EXPECT_EQ(setting, wanted[count].setting);
            EXPECT_EQ(number(row, "zero"), wanted[count].zero);
            // And the losses and the norm.
            EXPECT_NEAR(number(row, "sent_bytes"), wanted[count].sent * 131072, 4096) << setting;
            const double transfer = wanted[count].zero == 2 ? 0.5 : 0.4;
            EXPECT_NEAR(number(row, "computed_exposed_ms"), wanted[count].exposed * transfer, 1e-9)
                << setting;
        }
        count++;
    }
    EXPECT_EQ(count, std::size(wanted) + 5);
}

/* Times are not asserted: the plan's own simulator and a formula must agree, with halves of equal
 * and of different lengths, on ranks that are threads and on processes. */
TEST(BenchJson, EveryPipelineScheduleIsPredictedAsByItsFormula)
{
    const char *const schedules[] = {"data parallel", "zero 3", "naive", "gpipe", "1f1b",
                                     "interleaved:2", "zbh1",   "zbv",   "2bw"};
    for (bool equal : {true, false}) {
        const ProgramResult r =
            run_program({"bench", "pipeline", "-n", "1", "--scale", "0.01", "--ranks", "2",
                         "--provider", equal ? "loopback" : "shm", "--times",
                         equal ? "100x100x100" : "100x150x50", "--json", "-"});
        ASSERT_EQ(r.status, 0) << r.err;
        Json json(r.out);
        const cJSON *row, *rows = cJSON_GetObjectItem(json.root.get(), "rows");
        size_t count = 0;
        cJSON_ArrayForEach(row, rows)
        {
            const std::string schedule = cJSON_GetObjectItem(row, "setting")->valuestring;
            expect_keys(row, {"idle", "planned_idle"});
            EXPECT_EQ(number(row, "sent_bytes"), number(row, "planned_sent_bytes")) << schedule;
            ASSERT_LT(count, std::size(schedules));
            EXPECT_EQ(schedule, schedules[count++]);
            EXPECT_NEAR(number(row, "busy_ms"), 12, 1e-9);
            // A call of rf_run_step may return early if steps overlap.
            EXPECT_GE(number(row, "step_ms"), schedule == "2bw" ? 0 : 12);
            if ((schedule == "zbv" || schedule == "2bw") && !equal)
                EXPECT_TRUE(cJSON_IsNull(cJSON_GetObjectItem(row, "computed_step_ms")));
            else
                EXPECT_NEAR(number(row, "planned_step_ms"), number(row, "computed_step_ms"), 1e-9)
                    << schedule;
        }
        EXPECT_EQ(count, std::size(schedules));
    }
}

/* Most of a run's time is spent measuring the device, as often as the kernel. */
static std::vector<std::pair<double, std::string>> bench_errors(std::vector<std::string> arguments,
                                                                const char *samples = "1")
{
    std::vector<std::pair<double, std::string>> errors;
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"-n", samples, "--json"});
    ProgramResult r = run_program(arguments);
    EXPECT_EQ(r.status, 0) << arguments[1] << ": " << r.err;
    Json json(r.out);
    expect_keys(json.root.get(),
                {"op", "device", "driver", "copy_gbps", "kernel_copy_gbps", "multiply_add_gflops"});
    EXPECT_GT(number(json.root.get(), "copy_gbps"), 0);
    EXPECT_GT(number(json.root.get(), "multiply_add_gflops"), 0);
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json.root.get(), "rows"))
    {
        expect_keys(row, {"op", "model", "shape", "dtype", "path", "time_us", "best_us", "gflops",
                          "gbps", "copy_pct", "multiply_add_pct", "max_rel_err"});
        EXPECT_GE(number(row, "time_us"), number(row, "best_us"));
        EXPECT_GT(number(row, "best_us"), 0);
        errors.push_back(
            {number(row, "max_rel_err"), cJSON_GetObjectItem(row, "shape")->valuestring});
    }
    return errors;
}

TEST(BenchJson, OfMatmulNamesDevicePathAndError)
{
    for (const char *form : {"nn", "nt", "tn"}) {
        auto errors = bench_errors(
            {"matmul", "--form", form, "--shape", "64x32x48", "--shape", "7x5x3"}, "2");
        ASSERT_EQ(errors.size(), 2u);
        EXPECT_EQ(errors[0].second, "64x32x48");
        /* Relative to the sum of |products|; K roundings of 2^-24 each would be 2e-6 for 32. */
        for (auto &[error, shape] : errors)
            EXPECT_TRUE(error >= 0 && error < 1e-5) << form << " " << shape << ": " << error;
    }
}

TEST(BenchJson, OfMatmulHasTheSameInCLoopsOnACpu)
{
    ProgramResult r =
        run_program({"bench", "matmul", "--shape", "9x8x7", "-n", "1", "--json", "-"});
    ASSERT_EQ(r.status, 0) << r.err;
    Json json(r.out);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json.root.get(), "rows"), 0);
    if (!cJSON_HasObjectItem(row, "c_loop_us"))
        GTEST_SKIP() << "the device is no CPU";
    EXPECT_GE(number(row, "c_loop_us"), number(row, "c_loop_best_us"));
    EXPECT_GT(number(row, "c_loop_best_us"), 0);
    EXPECT_GT(number(row, "processor_us"), 0);
    EXPECT_GT(number(row, "c_loop_processor_us"), 0);
}

struct KernelShape {
    const char *kernel;
    std::vector<const char *> shapes;
};

class BenchKernel : public testing::TestWithParam<KernelShape>
{
};

TEST_P(BenchKernel, IsCloseToDoublePrecisionAtSmallShapes)
{
    const KernelShape &k = GetParam();
    std::vector<std::string> arguments = {k.kernel};
    for (const char *shape : k.shapes)
        arguments.insert(arguments.end(), {"--shape", shape});
    auto errors = bench_errors(arguments);
    EXPECT_EQ(errors.size(), k.shapes.size());
    /* Relative to the terms' magnitudes: a few tens of roundings of 2^-24; exp, log and tanh of a
     * driver have a few ULP more. */
    for (auto &[error, shape] : errors)
        EXPECT_TRUE(error >= 0 && error < 4e-6) << shape << ": " << error;
}

static const KernelShape kernel_shapes[] = {
    {"fill", {"7x13"}},
    {"copy", {"7x13"}},
    {"cast", {"7x13"}},
    {"scale", {"7x13", "1x1"}},
    {"add", {"7x13", "64x32"}},
    {"gelu", {"7x13"}},
    {"gelu_backward", {"7x13"}},
    {"sum", {"1", "3001"}},
    {"sum_squares", {"1", "3001"}},
    {"adamw", {"1", "3001"}},
    {"adam", {"3001"}},
    {"sgd", {"3001"}},
    {"momentum", {"3001"}},
    {"nesterov", {"3001"}},
    {"adagrad", {"3001"}},
    {"rmsprop", {"3001"}},
    {"lion", {"3001"}},
    {"layernorm", {"7x13"}},
    {"layernorm_backward_input", {"7x13", "64x32"}},
    {"layernorm_backward_weight", {"7x13", "64x32"}},
    {"bias_grad", {"7x13", "64x32"}},
    {"embedding", {"14x7x5x11"}},
    {"embedding_backward", {"14x7x5x3"}},
    {"cross_entropy", {"7x13", "3x257"}},
    {"swiglu", {"7x13"}},
    {"swiglu_backward", {"7x13"}},
    {"softmax", {"7x13", "64x32"}},
    {"rmsnorm", {"7x13"}},
    {"residual_rmsnorm", {"7x13"}},
    {"matmul", {"7x5x3"}},
    {"rotary", {"2x13x3x32", "1x1x1x2"}},
    {"rotary_backward", {"2x13x3x32"}},
    {"matmul_gelu", {"7x5x3"}},
    {"matmul_batch", {"3x7x5x2"}},
    {"attention", {"2x13x3x3x32", "1x1x1x1x64", "1x9x6x2x32"}},
    {"attention_backward", {"2x13x3x3x32", "1x7x4x2x64"}},
};
INSTANTIATE_TEST_SUITE_P(BenchJson, BenchKernel, testing::ValuesIn(kernel_shapes),
                         [](const testing::TestParamInfo<KernelShape> &info) {
                             return std::string(info.param.kernel);
                         });

TEST(BenchJson, EveryKernelIsTested)
{
    std::string all = run_program({"bench", "nothing"}).err;
    // After the collectives and the measurements of several parts.
    size_t at = all.find("step, ") + strlen("step, "), end = all.find("or ops");
    ASSERT_NE(end, std::string::npos) << all;
    for (size_t next; at < end; at = next + 2) {
        next = all.find(", ", at);
        std::string name = all.substr(at, next - at);
        bool there = std::any_of(std::begin(kernel_shapes), std::end(kernel_shapes),
                                 [&](const KernelShape &k) { return name == k.kernel; });
        EXPECT_TRUE(there) << name << " has a row in bench/command/rows.h and none here";
    }
}

/* Types differ in how operands are made and compared, in the same way for all kernels. */
TEST(BenchJson, SixteenBitKernelsAreAsCloseAsTheirTypeAllows)
{
    const char *types[] = {"f16", "bf16"};
    int turn = 0;
    for (const char *kernel :
         {"add", "gelu", "gelu_backward", "scale", "layernorm", "bias_grad", "swiglu", "softmax"}) {
        const char *type = types[turn++ % 2];
        /* One rounding at the store, by half a unit in the last place of 8 or 11 bits. */
        for (auto &[error, shape] : bench_errors({kernel, "--shape", "7x13", "--dtype", type}))
            EXPECT_TRUE(error >= 0 && error < (type[0] == 'f' ? 5e-4 : 4e-3))
                << kernel << " " << type << ": " << error;
    }
}
