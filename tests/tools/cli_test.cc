/* SPDX-License-Identifier: MIT
 *
 * The program's answer to bad input: the exit status, and a sentence that names the fault.
 */
#include "option_table.h"

#include <algorithm>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct BadCase {
    std::vector<std::string> arguments;
    std::string sentence; /* a part of what stderr says */
};

/* One line, naming the command, and nothing on stdout. */
static void expect_refused(const BadCase &bad, int status)
{
    ProgramResult r = run_program(bad.arguments);
    std::string shown;
    for (const std::string &word : bad.arguments)
        shown += word + " ";
    EXPECT_EQ(r.status, status) << shown << "\n" << r.err;
    EXPECT_NE(r.err.find(bad.sentence), std::string::npos) << shown << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << shown << "\n" << r.err;
    EXPECT_EQ(r.out, "") << shown;
}

TEST(CommandLine, HelpOfEveryCommandExitsWithZeroAndShowsUsage)
{
    for (const std::string &command : all_commands()) {
        ProgramResult r = run_program({command, "--help"});
        EXPECT_EQ(r.status, 0) << command;
        EXPECT_NE(r.out.find("Usage: ringforge " + command), std::string::npos);
        EXPECT_NE(r.out.find("--help"), std::string::npos);
        EXPECT_EQ(r.err, "");
    }
    EXPECT_EQ(run_program({"--help"}).status, 0);
    EXPECT_EQ(run_program({}).status, 2);
    EXPECT_NE(run_program({"--version"}).out.find("ringforge 0."), std::string::npos);
}

TEST(CommandLine, BadUsageIsStatusTwoAndOneSentence)
{
    TempFolder folder;
    std::string data = folder.file("text.txt", some_text());
    const std::vector<BadCase> cases = {
        {{"flie"}, "there is no command \"flie\""},
        {{"info", "--colour"}, "there is no option \"--colour\""},
        {{"info", "extra"}, "\"extra\" is not expected"},
        {{"tune", "--dtype", "f8"}, "there is no type \"f8\""},
        {{"tune", "--shape", "3x4"}, "is not like 512x256x768"},
        {{"run", "--", "true"}, "--ranks says how many"},
        {{"run", "--ranks", "2"}, "no command to run"},
        {{"run", "--ranks", "2", "--port", "99999", "--", "true"},
         "--port has to be 1 to 65535, not 99999"},
        {{"bench"}, "say what to measure"},
        {{"bench", "all_to_most"}, "no benchmark \"all_to_most\""},
        {{"bench", "all_reduce", "-d", "float128"}, "no type \"float128\""},
        {{"bench", "all_reduce", "-o", "mean"}, "no reduction \"mean\""},
        {{"bench", "all_reduce", "--wire-dtype", "double"}, "float, half or bfloat16, not double"},
        {{"bench", "all_reduce", "-d", "half", "--wire-dtype", "half"},
         "for float data, not for f16"},
        {{"bench", "all_reduce", "-b", "8", "-e", "4"}, "smaller than --minbytes"},
        {{"bench", "all_reduce", "-b", "many"}, "wants a whole number"},
        {{"bench", "all_reduce", "--one-clock"}, "--one-clock has no effect without --ranks"},
        {{"bench", "matmul", "--shape", "3x4"}, "wants MxKxN"},
        {{"bench", "matmul", "--dtype", "i32"}, "f32, f16 and bf16, not on i32"},
        {{"bench", "attention", "--shape", "1x2x3"}, "wants BxTxHxKxD"},
        {{"bench", "gelu", "--shape", "0x3"}, "wants NxC"},
        {{"bench", "ops", "--shape", "3"}, "belongs to one kernel"},
        {{"bench", "all_reduce", "--shape", "3"}, "--shape is not used by all_reduce"},
        {{"bench", "all_reduce", "--plot", "x.gif"}, "ends in .svg"},
        {{"plan", "--zero", "4"}, "--zero has to be 0 to 3, not 4"},
        {{"plan", "--sequence-parallel"}, "--sequence-parallel is for tensor ranks"},
        {{"plan", "--mesh", "tp=2,cp=2"}, "tp and cp together are not in this version"},
        {{"plan", "--search", "--ranks", "4", "--mesh", "cp=2"}, "cp is not searched"},
        {{"plan", "--mesh", "dp2"}, "--mesh wants a list"},
        {{"plan", "--params", "-5"}, "--params has to be more than 0, not -5"},
        {{"plan", "--channels", "130", "--heads", "4"}, "cannot be divided among"},
        {{"plan", "--peak", "nan", "--memory", "1"}, "--peak wants a number, not \"nan\""},
        {{"plan", "--peak", "1", "--memory", "0"}, "--memory has to be more than 0, not 0"},
        {{"plan", "--peak", "1", "--memory", "1", "--launch", "-1"},
         "--launch has to be 0 or more, not -1"},
        {{"plan", "--peak", "1"}, "a prediction needs --memory"},
        {{"plan", "--latency", "0"}, "a prediction needs --peak"},
        {{"plan", "--plot", "x.svg"}, "--plot needs --peak"},
        {{"plan", "--plot", "x.png"}, "use a file name that ends in .svg, not \"x.png\""},
        {{"plan", "--ranks", "2", "--peak", "1", "--memory", "1"}, "needs --link-gbps"},
        {{"plan", "--params", "1e6", "--peak", "1", "--memory", "1"}, "says nothing of arithmetic"},
        {{"train"}, "--data names the text"},
        {{"train", "--data", data, "--steps"}, "--steps needs a value"},
        {{"train", "--data", data, "--dtype", "fp8"}, "there is no --dtype \"fp8\"; use f32"},
        {{"train", "--data", data, "--dtype", "f31"}, "there is no --dtype \"f31\""},
        {{"plan", "--residual", "bf16"}, "there is no --residual \"bf16\"; use f32 or same"},
        {{"train", "--data", data, "--zero", "2", "--no-prefetch"},
         "--no-prefetch is for --zero 3"},
        {{"train", "--data", data, "--recompute", "sqrt,gelu,every=2"},
         "--recompute sqrt,gelu,every=2: use one of block, every=N, sqrt and auto"},
        {{"plan", "--recompute", "gelu,selu"}, "there is no --recompute \"selu\"; use none, or"},
        {{"plan", "--recompute", "gelu,"}, "there is no --recompute \"\""},
        {{"plan", "--reversible", "f16"},
         "there is no --reversible \"f16\"; use none, f32 or fixed"},
        {{"plan", "--reversible", "f32", "--search"}, "--reversible does not go with --search"},
        {{"plan", "--reversible", "f32", "--dtype", "bf16", "--residual", "same"},
         "residual stream of f32"},
        {{"train", "--data", data, "--reversible", "f32", "--export", "x"}, "no hub has"},
        {{"plan", "--recompute", "gelu,none"}, "there is no --recompute \"none\""},
        {{"plan", "--recompute", "every=0"}, "--recompute every has to be 1 to 1048576, not 0"},
        {{"train", "--data", data, "--schedule", "gpipe"}, "use --mesh pp=N with it"},
        {{"train", "--data", data, "--schedule", "1f1b:2"}, "there is no --schedule \"1f1b:2\""},
        {{"plan", "--mesh", "pp=2", "--schedule", "interleaved:x"},
         "--schedule interleaved wants a whole number, not \"x\""},
        {{"plan", "--stages", "cost"}, "--stages cost is for blocks that are spread over ranks"},
        {{"plan", "--mesh", "pp=2", "--stages", "odd"}, "there is no --stages \"odd\"; use even"},
        {{"plan", "--mesh", "pp=2", "--stages", "3,"}, "there is no --stages \"3,\""},
        {{"plan", "--mesh", "pp=2", "--stages", "3,-3"},
         "each number of --stages has to be 1 to 1048576, not -3"},
        {{"plan", "--mesh", "pp=2", "--stages", "3,2"}, "have 5 blocks together, but there are 6"},
        {{"train", "--data", data, "--optimizer", "adamax"}, "there is no --optimizer \"adamax\""},
        {{"train", "--data", data, "--momentum", "0.9"}, "--optimizer adamw has no --momentum"},
        {{"plan", "--optimizer", "lion", "--eps-inside"}, "--optimizer lion has no --eps-inside"},
        {{"plan", "--optimizer", "adam", "--beta2", "1"}, "--beta2 has to be less than 1"},
        {{"plan", "--optimizer", "adam", "--eps", "0"}, "--eps has to be more than 0"},
        {{"plan", "--optimizer", "momentum", "--momentum", "1"}, "has to be less than 1"},
        {{"train", "--data", data, "--head-rows", "8", "--sample", "9"}, "leave out --head-rows"},
        {{"train", "--data", data, "--order", "sideways"}, "there is no --order"},
        {{"train", "--data", data, "--mesh", "dp=2"}, "grid of 2 ranks, but there is 1"},
        {{"train", "--data", data, "--batch", "7", "--micro-batches", "2"}, "cannot be divided"},
        {{"train", "--data", data, "--heads", "3"}, "cannot be divided among"},
    };
    for (const BadCase &bad : cases) {
        if (bad.arguments[0] == "flie") { /* there is no command to name */
            ProgramResult r = run_program(bad.arguments);
            EXPECT_EQ(r.status, 2);
            EXPECT_NE(r.err.find(bad.sentence), std::string::npos) << r.err;
            continue;
        }
        expect_refused(bad, 2);
    }
}

TEST(CommandLine, AnUnknownProviderIsRefusedWhereverItIsGiven)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text());
    const std::vector<std::vector<std::string>> all = {{"info"},
                                                       {"info", "--algorithms"},
                                                       {"train", "--data", data, "--steps", "1"},
                                                       {"bench", "all_reduce", "-e", "4"},
                                                       {"bench", "barrier", "--ranks", "2"}};
    for (std::vector<std::string> words : all) {
        words.insert(words.end(), {"--provider", "pigeon"});
        expect_refused({words, "no provider pigeon"}, 2);
    }
    ProgramOptions options;
    options.environment = {"RF_PROVIDER=pigeon"};
    ProgramResult r = run_program({"bench", "all_reduce", "-e", "4"}, options);
    EXPECT_EQ(r.status, 1) << "of one rank, too";
    EXPECT_NE(r.err.find("no provider pigeon"), std::string::npos) << r.err;
}

TEST(CommandLine, AnOptionThatABenchmarkDoesNotUseIsRefusedByName)
{
    for (const BadCase &bad : std::vector<BadCase>{
             {{"bench", "all_reduce", "--root", "1"}, "--root is not used by all_reduce"},
             {{"bench", "all_gather", "--wire-dtype", "half"}, "--wire-dtype is not used by"},
             {{"bench", "-r", "1", "all_gather"}, "--root is not used by all_gather"},
             {{"bench", "broadcast", "-o", "max"}, "--op is not used by broadcast"},
             {{"bench", "all_to_all", "--order", "ring"}, "--order is not used by all_to_all"},
             {{"bench", "sendrecv", "--algorithm", "ring"}, "--algorithm is not used by sendrecv"},
             {{"bench", "barrier", "-b", "8"}, "--minbytes is not used by barrier"},
             {{"bench", "all_reduce", "--device", "0"}, "--device is not used by all_reduce"},
             {{"bench", "overlap", "--provider", "tcp"}, "--provider is not used by overlap"},
             {{"bench", "staging", "-m", "4"}, "--agg_iters is not used by staging"},
             {{"bench", "staging", "--scale", "2"}, "--scale is not used by staging"},
             {{"bench", "overlap", "--times", "1x1x1"}, "--times is not used by overlap"},
             {{"bench", "pipeline", "--times", "1x2"}, "--times \"1x2\" is not FxIxW"},
             {{"bench", "overlap", "--schedule", "zbv"}, "--schedule is not used by overlap"},
             {{"bench", "pipeline", "--schedule", "zbx"}, "\"zbx\" is not measured; there are"},
             {{"bench", "pipeline", "--plot", "x.svg"}, "--plot draws one schedule; name it by"},
             {{"bench", "pipeline", "--schedule", "zbv", "--plot", "x.png"}, "ends in .svg, not"},
             {{"bench", "pipeline", "--ranks", "9"}, "a pipeline of 9 ranks cannot be measured"},
             {{"bench", "overlap", "--scale", "0"}, "--scale has to be more than 0"},
             {{"bench", "gelu", "--ranks", "2"}, "--ranks is not used by gelu"},
             {{"bench", "gelu", "--split", "2"}, "--split is not used by gelu"},
             {{"bench", "ops", "-b", "8"}, "--minbytes is not used by ops"}})
        expect_refused(bad, 2);
}

TEST(CommandLine, BadFilesAreStatusOneAndNamed)
{
    TempFolder folder;
    std::string empty = folder.file("empty.txt", ""), data = folder.file("t.txt", some_text());
    std::string short_text = folder.file("short.txt", "abc");
    expect_refused({{"train", "--data", folder.path + "/none.txt"}, "none.txt"}, 1);
    expect_refused({{"train", "--data", empty}, "empty.txt"}, 1);
    expect_refused({{"train", "--data", short_text}, "short.txt"}, 1);
    expect_refused({{"train", "--data", data, "--device", "99"}, "99"}, 1);
    ProgramResult r = run_program({"plan", "--json", folder.path + "/no/folder/x.json"});
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("/no/folder/x.json: No such file"), std::string::npos) << r.err;
}

TEST(CommandLine, WithoutAVulkanDeviceTrainingIsRefusedAndCollectivesGoOn)
{
    TempFolder folder;
    std::string data = folder.file("t.txt", some_text());
    ProgramOptions none;
    none.environment = {"VK_DRIVER_FILES=/nonexistent.json", "VK_ICD_FILENAMES=/nonexistent.json"};
    ProgramResult r = run_program({"train", "--data", data, "--steps", "1"}, none);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("ulkan"), std::string::npos) << r.err;
    r = run_program({"bench", "all_reduce", "--ranks", "2", "--provider", "loopback", "-e", "1K"},
                    none);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(run_program({"info"}, none).status, 0);
}

TEST(CommandLine, ARankOutsideTheWorldIsRefused)
{
    ProgramOptions options;
    options.environment = {"RANK=5", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29555"};
    ProgramResult r = run_program({"bench", "barrier"}, options);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("5"), std::string::npos) << r.err;
    EXPECT_LT(r.fair_seconds, 5);
}

/* A listening socket on a free port of this host. */
struct Listener {
    int fd, port;
    Listener()
    {
        struct sockaddr_in address = {};
        socklen_t bytes = sizeof(address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, 1) != 0)
            abort();
        getsockname(fd, (struct sockaddr *)&address, &bytes);
        port = ntohs(address.sin_port);
    }
    ~Listener()
    {
        close(fd);
    }
};

TEST(CommandLine, APortInUseIsNamed)
{
    Listener taken;
    std::string port = std::to_string(taken.port);
    ProgramOptions options;
    options.environment = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
                           "RF_JOB_KEY=secret"};
    ProgramResult r = run_program({"bench", "barrier"}, options);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find(port), std::string::npos) << r.err;
}

TEST(CommandLine, AWrongJobKeyIsRefusedAndTheJobGoesOn)
{
    int port;
    {
        Listener free_now;
        port = free_now.port;
    }
    auto rank = [&](const char *number, const char *key) {
        ProgramOptions options;
        options.environment = {std::string("RANK=") + number, "WORLD_SIZE=2",
                               "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                               std::string("RF_JOB_KEY=") + key};
        return start_command({program_path(), "bench", "barrier", "-n", "3"}, options);
    };
    Background first = rank("0", "right");
    ProgramResult stranger = finish_command(rank("1", "wrong"), 60);
    EXPECT_EQ(stranger.status, 1);
    EXPECT_NE(stranger.err.find("key"), std::string::npos) << stranger.err;
    ProgramResult second = finish_command(rank("1", "right"), 60);
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(finish_command(first, 60).status, 0);
}

// A launcher that is not supported starts jobs of one process each.
TEST(CommandLine, AProcessThatMayBeOneOfSeveralSaysThatItRunsAlone)
{
    const struct {
        std::vector<std::string> environment;
        const char *part;
        int status;
    } rows[] = {
        {{"FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2"}, "FLUX_TASK_RANK=1, FLUX_JOB_SIZE=2 may mean", 0},
        {{"RANK=0", "WORLD_SIZE=1", "PMI_RANK=1", "PMI_SIZE=3"}, "PMI_RANK=1, PMI_SIZE=3 may", 0},
        {{}, "", 0},
        {{"WORLD_SIZE=2"}, "RANK is not set", 1},
    };
    for (const auto &row : rows) {
        ProgramOptions options;
        options.environment = row.environment;
        const ProgramResult r = run_program({"bench", "barrier", "-n", "1"}, options);
        EXPECT_EQ(r.status, row.status) << r.err;
        EXPECT_NE(r.err.find(row.part), std::string::npos) << r.err;
        EXPECT_EQ(r.err.find("runs alone") != std::string::npos, *row.part && row.status == 0)
            << r.err;
    }
}
