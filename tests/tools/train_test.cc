/* SPDX-License-Identifier: MIT
 *
 * `ringforge train` from outside: the log, the same bits on any number of ranks, and the end after
 * a rank has died.
 */
#include "train_program.h"

#include <cjson/cJSON.h>
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(Train, LogHasALinePerStepAndASummaryWhereMeasuredEqualsPlanned)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    ProgramResult r = run_program(with(tiny(data), {"--steps", "3", "--log", log, "--ranks", "2",
                                                    "--provider", "loopback", "--peak", "0.5"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find(" % of the peak"), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("effective batch: 64 tokens a step = 4 sequences of 16 tokens, from 4 "
                         "micro-batches x 1 sequences, shared out over 2 ranks\n"),
              std::string::npos)
        << r.out;
    std::string text = read_text(log);
    const auto number = [](const cJSON *json, const char *name) {
        return cJSON_GetNumberValue(cJSON_GetObjectItem(json, name));
    };
    const auto bound = [](const cJSON *json) {
        return std::string(cJSON_GetStringValue(cJSON_GetObjectItem(json, "bound")));
    };
    double step_us = 0, exposed_us = 0; // means without the first step
    int line = 0;
    for (size_t at = 0; at < text.size(); line++) {
        size_t end = text.find('\n', at);
        ASSERT_NE(end, std::string::npos);
        cJSON *json = cJSON_Parse(text.substr(at, end - at).c_str());
        ASSERT_NE(json, nullptr);
        at = end + 1;
        if (line < 3) {
            for (const char *key :
                 {"step", "samples", "loss", "tokens", "tokens_per_s", "grad_norm", "lr", "skipped",
                  "sent", "exposed_comm_us", "record_us", "replayed", "flops_per_s", "mfu",
                  "step_us", "bound"})
                ASSERT_TRUE(cJSON_HasObjectItem(json, key)) << key;
            const double rate = cJSON_GetObjectItem(json, "flops_per_s")->valuedouble;
            EXPECT_GT(rate, 0);
            EXPECT_NEAR(cJSON_GetObjectItem(json, "mfu")->valuedouble, rate / 0.5e12,
                        1e-9 * rate / 0.5e12);
            EXPECT_EQ(cJSON_GetObjectItem(json, "step")->valuedouble, line + 1);
            EXPECT_EQ(cJSON_GetObjectItem(json, "tokens")->valuedouble, 64);
            const double step = number(json, "step_us"), exposed = number(json, "exposed_comm_us");
            EXPECT_LE(exposed, step);
            // No measurement of the device that would tell more.
            EXPECT_EQ(bound(json), 2 * exposed > step ? "network" : "computing");
            step_us += line > 0 ? step / 2 : 0;
            exposed_us += line > 0 ? exposed / 2 : 0;
        } else {
            const cJSON *mean = cJSON_GetObjectItem(json, "step");
            EXPECT_NEAR(number(mean, "step_us"), step_us, 1e-6 * step_us);
            EXPECT_NEAR(number(mean, "exposed_comm_us"), exposed_us, 1e-6 * step_us);
            EXPECT_EQ(bound(mean), 2 * exposed_us > step_us ? "network" : "computing");
            EXPECT_GT(number(mean, "mfu"), 0);
            EXPECT_NE(r.out.find("bound by " + bound(mean)), std::string::npos) << r.out;
            EXPECT_TRUE(cJSON_IsTrue(cJSON_GetObjectItem(json, "summary")));
            cJSON *planned = cJSON_GetObjectItem(json, "planned");
            cJSON *measured = cJSON_GetObjectItem(json, "measured");
            EXPECT_TRUE(cJSON_Compare(planned, measured, true))
                << cJSON_PrintUnformatted(planned) << cJSON_PrintUnformatted(measured);
            EXPECT_TRUE(cJSON_HasObjectItem(measured, "host"));
            EXPECT_EQ(last_text(text, "params_sha256").size(), 64u);
            cJSON *shares = cJSON_GetObjectItem(json, "tokens_local");
            ASSERT_EQ(cJSON_GetArraySize(shares), 2);
            EXPECT_EQ(cJSON_GetArrayItem(shares, 0)->valuedouble, 96);
        }
        cJSON_Delete(json);
    }
    EXPECT_EQ(line, 4);
}

namespace
{

struct Json {
    cJSON *root;
    explicit Json(const std::string &text) : root(cJSON_Parse(text.c_str()))
    {
    }
    ~Json()
    {
        cJSON_Delete(root);
    }
};

// The tracks of a trace, with the ranks that have events on them.
std::map<std::string, std::set<int>> tracks_of(const std::string &path)
{
    std::map<std::string, std::set<int>> tracks;
    const Json trace(read_text(path));
    EXPECT_NE(trace.root, nullptr);
    const cJSON *event = nullptr;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(trace.root, "traceEvents"))
    {
        const char *track = cJSON_GetStringValue(cJSON_GetObjectItem(event, "cat"));
        if (track)
            tracks[track].insert((int)cJSON_GetNumberValue(cJSON_GetObjectItem(event, "pid")));
    }
    return tracks;
}

// The lanes that the plan predicts for rank 0.
std::set<std::string> lanes_of(const std::vector<std::string> &options)
{
    std::set<std::string> lanes;
    std::vector<std::string> words = {"plan", "--json",        "--peak", "1",           "--memory",
                                      "1",    "--host-memory", "1",      "--link-gbps", "1"};
    words.insert(words.end(), options.begin(), options.end());
    const ProgramResult r = run_program(words);
    EXPECT_EQ(r.status, 0) << r.err;
    const Json plan(r.out);
    const cJSON *step = cJSON_GetObjectItem(plan.root, "prediction"), *lane = nullptr;
    cJSON_ArrayForEach(lane, cJSON_GetObjectItem(step, "busy_us"))
    {
        if (lane->valuedouble > 0)
            lanes.insert(lane->string);
    }
    return lanes;
}

} // namespace

TEST(Train, ATraceHasATrackForEachLaneOfThePlanOnEveryRank)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), trace = folder.path + "/trace";
    const std::vector<std::string> model = {"--layers", "2",     "--channels", "32",      "--heads",
                                            "2",        "--seq", "16",         "--batch", "8"};
    struct Row {
        int ranks;
        std::vector<std::string> policy;
        std::set<std::string> lanes;          // besides host and compute
        std::vector<std::string> plan, train; // what only one of the commands needs
    };
    const std::vector<Row> rows = {
        {1, {"--offload", "optimizer"}, {"fetch", "evict"}},
        {2,
         {"--zero", "3", "--offload", "optimizer=disk,params,grads"},
         {"data", "disk"},
         {"--disk-rate", "1"},
         {"--disk", folder.path, "--disk-slowdown", "0"}},
        {4, {"--zero", "3", "--mesh", "dp=4,shard=2"}, {"data", "shard", "replicate"}}};
    for (const Row &row : rows) {
        const std::string ranks = std::to_string(row.ranks), what = row.policy[1] + " on " + ranks;
        const std::vector<std::string> policy = with(model, row.policy);
        std::set<std::string> lanes = row.lanes;
        lanes.insert({"host", "compute"});
        for (const std::string &lane : lanes_of(with(with(policy, {"--ranks", ranks}), row.plan)))
            EXPECT_EQ(lanes.count(lane), 1u) << what << ": " << lane;
        const ProgramResult r =
            run_program(with(with({"train", "--steps", "3", "--data", data, "--ranks", ranks,
                                   "--provider", "loopback", "--trace", trace},
                                  model),
                             with(row.policy, row.train)));
        ASSERT_EQ(r.status, 0) << r.err;
        auto tracks = tracks_of(trace);
        tracks.erase("comm"); // before the run is opened
        for (const std::string &lane : lanes)
            EXPECT_EQ(tracks[lane].size(), (size_t)row.ranks) << what << ": " << lane;
        EXPECT_EQ(tracks.size(), lanes.size() + (row.ranks == 1 && tracks.count("data"))) << what;
    }
}

TEST(Train, SixteenBitsTrainAndOnlyF16HasALossScaleUnasked)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const struct {
        std::vector<std::string> options;
        const char *scale; /* after a first step that fits; NULL: none */
    } cases[] = {{{"--dtype", "bf16"}, nullptr},
                 {{"--dtype", "bf16", "--residual", "same"}, nullptr},
                 {{"--dtype", "f16"}, "\"loss_scale\":64,"},
                 {{"--dtype", "f16", "--loss-scale", "0"}, nullptr},
                 {{"--dtype", "bf16", "--loss-scale", "8"}, "\"loss_scale\":8,"}};
    for (const auto &c : cases) {
        const std::vector<std::string> all = with(tiny(data), {"--steps", "1", "--log", log});
        ProgramResult r = run_program(with(all, c.options));
        ASSERT_EQ(r.status, 0) << r.err;
        const std::string text = read_text(log);
        EXPECT_NE(text.find("\"skipped\":false"), std::string::npos) << text;
        EXPECT_NE(text.find(c.scale ? c.scale : "\"loss\":"), std::string::npos) << text;
        EXPECT_EQ(text.find("\"loss_scale\"") == std::string::npos, c.scale == nullptr) << text;
    }
}

TEST(Train, RowsOfTheHeadChangeMemoryAndNotTheLoss)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    for (const char *model : {"gpt2", "llama"}) {
        std::vector<double> losses;
        for (const char *rows : {"0", "8"}) {
            ProgramResult r = run_program(with(
                tiny(data), {"--model", model, "--steps", "2", "--log", log, "--head-rows", rows}));
            ASSERT_EQ(r.status, 0) << r.err;
            const std::string text = read_text(log);
            losses.push_back(std::stod(text.substr(text.rfind("\"loss\":") + 7)));
        }
        EXPECT_NEAR(losses[0], losses[1], 1e-4) << model; // parts of sums, other roundings
    }
}

TEST(Train, WhatIsComputedAgainChangesMemoryAndNoBit)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    std::string sha[2];
    double bytes[2] = {};
    for (int again : {0, 1}) {
        ProgramResult r = run_program(
            with(tiny(data), {"--steps", "1", "--log", log, "--model", "llama", "--recompute",
                              again ? "norms,attention,mlp,block" : "none"}));
        ASSERT_EQ(r.status, 0) << r.err;
        const std::string text = read_text(log);
        const size_t at = text.rfind("\"measured\"");
        ASSERT_NE(at, std::string::npos) << text;
        bytes[again] = atof(&text[text.find("\"activations\":", at) + 14]);
        sha[again] = last_text(text, "params_sha256");
    }
    EXPECT_EQ(sha[0].size(), 64u);
    EXPECT_EQ(sha[1], sha[0]);
    EXPECT_LT(bytes[1], 0.9 * bytes[0]);
}

TEST(Train, ALlamaTrainsSamplesAndGoesOnFromItsCheckpointOnly)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    const std::vector<std::string> llama =
        with(tiny(data), {"--model", "llama", "--kv-heads", "1", "--order", "tree"});
    ProgramResult whole = run_program(with(llama, {"--steps", "4"}));
    ASSERT_EQ(whole.status, 0) << whole.err;
    ProgramResult half =
        run_program(with(llama, {"--steps", "2", "--save", save, "--sample", "5"}));
    ASSERT_EQ(half.status, 0) << half.err;
    ProgramResult rest = run_program(with(llama, {"--steps", "4", "--resume", save}));
    ASSERT_EQ(rest.status, 0) << rest.err;
    const auto sha = [](const ProgramResult &r) {
        return r.out.substr(r.out.find("parameters: sha256"), 83);
    };
    EXPECT_EQ(sha(rest), sha(whole));
    ProgramResult other = run_program(with(tiny(data), {"--steps", "4", "--resume", save}));
    EXPECT_EQ(other.status, 1);
    EXPECT_NE(other.err.find("another model"), std::string::npos) << other.err;
}

TEST(Train, StatesOnADiskMakeTheSameRunAndASlowDiskIsRefused)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> two = with(tiny(data), {"--ranks", "2", "--steps", "3"});
    const std::vector<std::string> disk = {"--offload", "optimizer=disk", "--disk",
                                           folder.path + "/made", "--disk-slowdown"};
    const auto sha = [](const ProgramResult &r) {
        return r.out.substr(r.out.find("parameters: sha256"), 83);
    };
    const ProgramResult memory = run_program(with(two, {"--offload", "optimizer"}));
    const ProgramResult any = run_program(with(with(two, disk), {"0", "--log", log}));
    ASSERT_EQ(any.status, 0) << any.err;
    EXPECT_EQ(sha(any), sha(memory));
    EXPECT_NE(any.out.find("\nthe disk: "), std::string::npos) << any.out;
    EXPECT_NE(any.out.find("measured as planned, to the byte"), std::string::npos) << any.out;
    const std::string lines = read_text(log);
    for (const char *name : {"\"exposed_disk_us\":", "\"disk\":", "\"disk_moved\":"})
        EXPECT_NE(lines.find(name), std::string::npos) << name;
    // The host always waits a little for the last block to be written.
    const ProgramResult none = run_program(with(with(two, disk), {"1"}));
    EXPECT_EQ(none.status, 1) << none.out;
    EXPECT_NE(none.err.find("times longer, as it moves"), std::string::npos) << none.err;
    const std::pair<std::vector<std::string>, const char *> refusals[] = {
        {{"--offload", "optimizer=disk"}, "needs a folder on a disk"},
        {{"--offload", "optimizer", "--disk", folder.path}, "is for --offload optimizer=disk"},
        {with(disk, {"0.5"}), "use 1 or more, or 0 for any"},
        {with(disk, {"0", "--elastic"}), "--disk is not for --elastic"}};
    for (const auto &[words, says] : refusals) {
        const ProgramResult r = run_program(with(two, words));
        EXPECT_EQ(r.status, 2) << says;
        EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    }
}

// Over shared memory and TCP; all ranks together make a sample if parameters are sharded.
TEST(Train, EveryStageOffloadAndRecomputationGivesTheSameParametersAndSample)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const std::vector<std::string> tree =
        with(tiny(data), {"--order", "tree", "--steps", "2", "--sample", "8", "--seed", "3"});
    const auto tail = [](const ProgramResult &r) {
        return r.out.substr(r.out.find("parameters: sha256"));
    };
    ProgramResult one = run_program(tree);
    ASSERT_EQ(one.status, 0) << one.err;
    std::vector<std::vector<std::string>> ways = {
        {"--ranks", "2", "--zero", "2", "--provider", "tcp", "--offload", "activations"},
        {"--ranks", "3", "--zero", "3", "--provider", "shm", "--recompute", "block"},
        {"--offload", "params", "--recompute", "every=2"}};
    if (getenv("RF_TEST_ALL")) {
        ways.push_back({"--ranks", "2", "--zero", "3", "--keep-gathered", "--provider", "tcp"});
        ways.push_back({"--ranks", "2", "--zero", "3", "--offload", "params,grads,activations"});
    }
    for (const auto &way : ways) {
        ProgramResult r = run_program(with(tree, way));
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(tail(r), tail(one)) << way[1];
    }
}

TEST(Train, PipelinesGiveTheParametersAndTheSampleOfOneProcess)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const std::vector<std::string> tree =
        with(tiny(data), {"--order", "tree", "--steps", "2", "--sample", "8", "--seed", "3",
                          "--micro-batches", "4"});
    const auto tail = [](const ProgramResult &r) {
        return r.out.substr(r.out.find("parameters: sha256"));
    };
    ProgramResult one = run_program(tree);
    ASSERT_EQ(one.status, 0) << one.err;
    std::vector<std::vector<std::string>> ways = {
        {"--ranks", "2", "--mesh", "pp=2", "--provider", "tcp"}};
    if (getenv("RF_TEST_ALL")) // meshes_test.cc has larger meshes
        ways.push_back({"--ranks", "4", "--mesh", "dp=2,pp=2", "--zero", "1", "--provider", "shm",
                        "--schedule", "gpipe"});
    for (const auto &way : ways) {
        ProgramResult r = run_program(with(tree, way));
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(tail(r), tail(one)) << way[3];
    }
}

// The mover of tensors for a communicator belongs to the device: it ends before it.
TEST(Train, RanksWhoseMemoryIsStagedEndWell)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    ProgramOptions staged;
    staged.environment = {"RF_HOST_VISIBLE=0"};
    const ProgramResult r = run_program(with(tiny(data), {"--ranks", "2", "--steps", "1"}), staged);
    EXPECT_EQ(r.status, 0) << r.err;
}

// By gradient descent: the gradient of a key's bias is 0 up to roundings, which adaptive rules
// would scale up to whole steps. Tensor ranks divide sums differently, so the last digits differ.
TEST(Train, TensorRanksAreOnOneHostWhateverOrderALauncherGivesRanks)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    ::setenv("RF_HOSTS", "a,b,a,b", 1);
    const ProgramResult r =
        run_program(with(tiny(data), {"--ranks", "4", "--mesh", "dp=2,tp=2", "--steps", "1"}));
    ::unsetenv("RF_HOSTS");
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.err.find("2 of one host together: 0 2 1 3"), std::string::npos) << r.err;
    EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
}

TEST(Train, TensorRanksTrainAsOneProcessDoesAndGoOnFromEachOthersCheckpoints)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::string save = folder.path + "/c";
    const std::vector<std::string> sgd =
        with(tiny(data), {"--optimizer", "sgd", "--lr", "0.1", "--log", log, "--seed", "3"});
    const auto losses = [&](size_t steps, const std::vector<std::string> &options) {
        const ProgramResult r = run_program(with(sgd, options));
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
        const std::string text = read_text(log), loss = "\"loss\":";
        std::vector<double> all;
        for (size_t at = 0; all.size() < steps && (at = text.find(loss, at)) != std::string::npos;)
            all.push_back(atof(&text[at += loss.size()]));
        EXPECT_EQ(all.size(), steps) << text;
        return all;
    };
    std::vector<std::vector<std::string>> ways = {
        {"--ranks", "4", "--mesh", "pp=2,tp=2", "--provider", "tcp"},
        {"--ranks", "2", "--mesh", "cp=2", "--provider", "shm"}};
    if (getenv("RF_TEST_ALL")) {
        ways.push_back(
            {"--ranks", "4", "--mesh", "dp=2,tp=2", "--sequence-parallel", "--provider", "shm"});
        ways.push_back(
            {"--ranks", "4", "--mesh", "dp=2,tp=2", "--sequence-parallel", "--provider", "tcp"});
        ways.push_back({"--ranks", "4", "--mesh", "pp=2,tp=2", "--provider", "shm"});
    }
    ways.push_back({"--ranks", "1"});
    const std::vector<double> one =
        losses(2 * ways.size(), {"--steps", std::to_string(2 * ways.size())});
    size_t step = 0;
    for (auto way : ways) {
        if (step > 0)
            way = with(way, {"--resume", save});
        for (double loss :
             losses(2, with(way, {"--steps", std::to_string(step + 2), "--save", save}))) {
            EXPECT_NEAR(loss, one[step], 1e-6 * one[step]) << way[3] << ", step " << step;
            step++;
        }
    }
}

TEST(Train, PrecisionIsChosenByOptionAndWhatDoesNotFitIsRefused)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const std::vector<std::string> two =
        with(tiny(data), {"--order", "ring", "--steps", "2", "--ranks", "2"});
    const std::vector<std::vector<std::string>> ways = {{"--reduce-dtype", "bf16"},
                                                        {"--compress", "top:0.1"},
                                                        {"--dtype", "bf16", "--residual", "same",
                                                         "--no-masters", "--stochastic-rounding",
                                                         "--zero", "1", "--sample", "4"}};
    for (const auto &way : ways) {
        ProgramResult r = run_program(with(two, way));
        EXPECT_EQ(r.status, 0) << way[0] << r.err;
    }
    const std::pair<std::vector<std::string>, const char *> refused[] = {
        {{"--no-masters"}, "--dtype bf16 (or f16) and --residual same"},
        {{"--no-masters", "--dtype", "bf16"}, "--residual same"},
        {{"--stochastic-rounding"}, "use --dtype bf16 or f16"},
        {{"--reduce-dtype", "f64"}, "f32, bf16 or f16"},
        {{"--reduce-dtype", "bf16", "--order", "tree"}, "use --order ring"},
        {{"--compress", "nf4", "--order", "tree"}, "use --order ring"},
        {{"--compress", "nf4:2"}, "powersgd:RANK"},
        {{"--compress", "f32"}, "none, bf16, int8"},
        {{"--compress", "nf4", "--zero", "1"}, "with sharding (zero)"},
        {{"--compress", "nf4", "--elastic", "--save", "x"}, "--compress is not for --elastic"}};
    for (const auto &[way, says] : refused) {
        ProgramResult r = run_program(with(two, way));
        EXPECT_EQ(r.status, 2) << way[0];
        EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
    }
}

// At a rate of 0, over all held-out tokens: the last ones do not fill a micro-batch, or not even
// one.
TEST(Train, TheHeldOutLossIsThatOfTheTextWhateverTheBatchAndTheMesh)
{
    TempFolder folder;
    std::string text;
    for (int i = 0; i < 12000; i++) // the end differs from the beginning
        text += (char)('a' + (i < 11400 ? i * i % 7 : 7 + i * i % 13));
    const std::string data = folder.file("t.txt", text), log = folder.path + "/log";
    const auto held_out = [&](const std::vector<std::string> &more) {
        const ProgramResult r =
            run_program(with({"train",      "--data",  data,         "--layers", "1",
                              "--channels", "32",      "--heads",    "2",        "--seq",
                              "32",         "--steps", "1",          "--lr",     "0",
                              "--log",      log,       "--provider", "loopback", "--eval-sequences",
                              "37"},
                             more));
        EXPECT_EQ(r.status, 0) << r.err;
        return last_number(read_text(log), "held_out_loss");
    };
    const double want = held_out({"--batch", "1"});
    EXPECT_GT(want, 1);
    const std::vector<std::vector<std::string>> ways = {
        {"--batch", "24"},
        {"--batch", "72"}, // more than exist
        {"--batch", "24", "--ranks", "2"},
        {"--batch", "24", "--ranks", "3", "--zero", "3"},
        {"--batch", "20", "--micro-batches", "4", "--ranks", "4", "--mesh", "dp=2,pp=2"},
        {"--batch", "10", "--ranks", "2", "--mesh", "tp=2"},
        {"--batch", "10", "--ranks", "2", "--mesh", "cp=2"}};
    for (const std::vector<std::string> &way : ways) // sums of tensor ranks are rounded
        EXPECT_NEAR(held_out(way), want, 1e-6 * want) << way[1] << way.back();
}

TEST(Train, OfWhichEveryStepWasSkippedHasFailed)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/save";
    const std::vector<std::string> two =
        with(tiny(data), {"--ranks", "2", "--loss-scale", "3e38", "--save", save});
    ProgramResult r = run_program(with(two, {"--steps", "2"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("none of the 2 steps has updated the model"), std::string::npos) << r.err;
    EXPECT_FALSE(std::filesystem::exists(save + "/step-2"));
    // A loss scale that comes down in time is correct.
    r = run_program(with(two, {"--steps", "20"}));
    EXPECT_EQ(r.status, 0) << r.err;
}

TEST(Train, TreeOrderGivesTheSameParametersOnOneToFourProcesses)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), want;
    for (int ranks = 1; ranks <= 4; ranks++) {
        std::string log = folder.path + "/log" + std::to_string(ranks);
        ProgramResult r =
            run_program(with({"run", "--ranks", std::to_string(ranks), "--", program_path()},
                             with(tiny(data), {"--steps", "3", "--log", log})));
        ASSERT_EQ(r.status, 0) << r.err;
        std::string sha = last_text(read_text(log), "params_sha256");
        if (ranks == 1)
            want = sha;
        EXPECT_EQ(sha.size(), 64u);
        EXPECT_EQ(sha, want) << ranks << " ranks";
    }
}

TEST(Train, AnAuditChangesNoBitAndItsBytesArePlanned)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), want;
    for (const char *audit : {"0", "2"}) {
        std::string log = folder.path + "/log" + audit;
        ProgramResult r =
            run_program(with(tiny(data), {"--steps", "3", "--log", log, "--ranks", "2",
                                          "--provider", "loopback", "--audit", audit}));
        ASSERT_EQ(r.status, 0) << r.err;
        EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
        std::string sha = last_text(read_text(log), "params_sha256");
        EXPECT_EQ(sha, want.empty() ? sha : want);
        want = sha;
    }
}

TEST(Train, WhenARankIsKilledEverySurvivorNamesItAndTheJobEnds)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    /* Each rank's shell tells its process, which the trainer then takes over. */
    std::string script = "echo $$ >" + folder.path + "/pid.$RANK; exec \"$@\"";
    Background job = start_command(with(
        {program_path(), "run", "--ranks", "4", "--", "sh", "-c", script, "sh", program_path()},
        with(tiny(data), {"--steps", "1000000", "--log", log})));
    while (read_text(log).find("\"step\":2") == std::string::npos)
        ASSERT_EQ(kill(job.pid, 0), 0);
    ASSERT_EQ(kill(std::stoi(read_text(folder.path + "/pid.2")), SIGKILL), 0);
    ProgramResult r = finish_command(job, 60);
    EXPECT_EQ(r.status, 137);
    EXPECT_LT(r.fair_seconds, 15);
    for (const char *rank : {"[0] ", "[1] ", "[3] "}) {
        size_t at = r.err.find(std::string(rank) + "ringforge train: ");
        ASSERT_NE(at, std::string::npos) << r.err;
        std::string line = r.err.substr(at, r.err.find('\n', at) - at);
        EXPECT_NE(line.find("rank 2"), std::string::npos) << line;
    }
}
