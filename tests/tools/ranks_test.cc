/* SPDX-License-Identifier: MIT
 *
 * Settings that must be alike on the ranks of a job: every option of the commands that run on
 * several, in both directions, by the table that the program prints, and every environment
 * variable. An option in that table that is missing from the one below is an error.
 */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "option_table.h"
#include "support/free_port.h"

namespace
{

struct Job {
    ProgramResult rank[2];
    std::string err() const
    {
        return rank[0].err + rank[1].err;
    }
};

/* Two ranks that no launcher ends: if one fails, the other ends by itself. */
Job run_job(const Words &zero, const Words &one, const Words &zero_environment = {},
            const Words &one_environment = {})
{
    const std::string port = std::to_string(free_port());
    const Words words[] = {zero, one}, environments[] = {zero_environment, one_environment};
    Background started[2];
    Job job;
    for (int r = 0; r < 2; r++) {
        ProgramOptions options;
        options.environment =
            Words{"RANK=" + std::to_string(r), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                  "MASTER_PORT=" + port, "RF_JOB_KEY=a key"} +
            environments[r];
        started[r] = start_command(Words{program_path()} + words[r], options);
    }
    for (int r = 0; r < 2; r++)
        job.rank[r] = finish_command(started[r], 55); /* less than the time that ranks wait for each
                                                       * other */
    return job;
}

/* For a model of bytes, made by hand; the weights are never read. */
struct Files {
    TempFolder folder;
    std::string data, other_data, documents, pairs, hub, other_hub, adapter, other_adapter, prompts;
    Files()
    {
        data = folder.file("a.txt", some_text());
        std::string text = some_text();
        text.back() = '!'; /* as long */
        other_data = folder.file("b.txt", text);
        prompts = folder.file("prompts", "a\n");
        documents = folder.file("chat.jsonl", R"({"messages":[{"role":"user","content":"aa"},)"
                                              R"({"role":"assistant","content":"bb"}]})"
                                              "\n");
        pairs = folder.file("pairs.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
        hub = make_hub("hub", 'a');
        other_hub = make_hub("other_hub", 'b');
        adapter = make_adapter("adapter", 1);
        other_adapter = make_adapter("other_adapter", 2);
    }
    static std::string weights(const std::string &header, char fill, size_t bytes)
    {
        const uint64_t length = header.size();
        return std::string((const char *)&length, 8) + header + std::string(bytes, fill);
    }
    std::string make(const std::string &name, const std::string &config, const std::string &stem,
                     const std::string &weights) const
    {
        const std::string dir = folder.path + "/" + name;
        EXPECT_EQ(mkdir(dir.c_str(), 0700), 0);
        std::ofstream(dir + "/" + (stem == "model" ? "config.json" : "adapter_config.json"))
            << config;
        std::ofstream(dir + "/" + stem + (stem == "model" ? "" : "_model") + ".safetensors")
            << weights;
        return dir;
    }
    std::string make_hub(const std::string &name, char fill) const
    {
        return make(
            name,
            R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_layer":1,)"
            R"("n_head":2,"n_embd":32,"n_positions":64,"vocab_size":422,"eos_token_id":0,)"
            R"("activation_function":"gelu_new","layer_norm_epsilon":1e-5,)"
            R"("tie_word_embeddings":true})",
            "model",
            weights(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", fill, 16));
    }
    std::string make_adapter(const std::string &name, char fill) const
    {
        return make(
            name,
            R"({"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["c_attn"],)"
            R"("task_type":"CAUSAL_LM","fan_in_fan_out":true,"bias":"none"})",
            "adapter",
            weights(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", fill, 16));
    }
};

/* Two values of an option, and the other options it needs. */
struct Row {
    std::string a, b;
    Words with;
    bool hub = false; /* with a model of --from instead of sizes */
};

/* For each option of a command: "alike" options that differ are refused by name with both values.
 * An option that may differ is never the reason of a refusal; the job is refused for `marker`,
 * which differs, too. */
struct Command {
    std::string name;
    Words base, hub_base;
    std::string marker, marker_values[2];
    std::map<std::string, Row> rows;
    std::set<std::string> elsewhere; /* not for ranks, or tested elsewhere */
};

std::string shown(const std::string &value)
{
    return value.empty() ? "not given" : value;
}

Words option(const OptionRow &row, const std::string &value)
{
    if (row.kind == "flag")
        return value == "yes" ? Words{"--" + row.name} : Words{};
    return value.empty() ? Words{} : Words{"--" + row.name, value};
}

/* The arguments of both ranks, which differ in this option. */
void expect_refused(const Command &command, const OptionRow &option_row, const Row &row)
{
    const Words base = (row.hub ? command.hub_base : command.base) + row.with;
    const Job job = run_job(base + option(option_row, row.a), base + option(option_row, row.b));
    const std::string what = command.name + " --" + option_row.name;
    const bool flag = option_row.kind == "flag";
    for (const ProgramResult &rank : job.rank)
        EXPECT_EQ(rank.status, 2) << what << "\n" << job.err();
    std::string wanted = "rank 1 has --" + option_row.name + " " +
                         (flag && row.b.empty() ? "no" : shown(row.b)) + ", rank 0 " +
                         (flag && row.a.empty() ? "no" : shown(row.a));
    if (option_row.ranks == "given")
        wanted = "rank 1 has --" + option_row.name + " given, rank 0 not given";
    if (option_row.ranks == "content")
        wanted = "--" + option_row.name + " of rank 1 is not that of rank 0";
    if (option_row.ranks == "content" && row.a.empty())
        wanted = "rank 1 has --" + option_row.name;
    EXPECT_NE(job.rank[0].err.find(wanted), std::string::npos) << wanted << "\n" << job.err();
    EXPECT_EQ(job.rank[1].err, "") << what; /* it is reported once */
}

void expect_accepted(const Command &command, const OptionRow &option_row, const Row &row)
{
    const Words base = (row.hub ? command.hub_base : command.base) + row.with;
    const std::string marker = "--" + command.marker;
    const Job job =
        run_job(base + option(option_row, row.a) + Words{marker, command.marker_values[0]},
                base + option(option_row, row.b) + Words{marker, command.marker_values[1]});
    EXPECT_NE(job.rank[0].err.find("rank 1 has " + marker + " "), std::string::npos)
        << command.name << " --" << option_row.name << "\n"
        << job.err();
}

void go_through_all_options(const Command &command)
{
    std::set<std::string> known = command.elsewhere;
    for (const OptionRow &option_row : options_of(command.name)) {
        if (command.elsewhere.count(option_row.name))
            continue;
        const auto found = command.rows.find(option_row.name);
        ASSERT_NE(found, command.rows.end())
            << command.name << " --" << option_row.name << " has no row here";
        if (option_row.ranks == "own")
            expect_accepted(command, option_row, found->second);
        else
            expect_refused(command, option_row, found->second);
        if (option_row.ranks == "given") /* a different place is allowed */
            expect_accepted(
                command, option_row,
                {found->second.b, found->second.b + "2", found->second.with, found->second.hub});
        if (testing::Test::HasFailure())
            return;
        known.insert(option_row.name);
    }
    for (const auto &row : command.rows)
        EXPECT_TRUE(known.count(row.first)) << command.name << " has no --" << row.first;
}

} // namespace

class AlikeOnAllRanks : public testing::Test
{
  public:
    Files files;
};

TEST_F(AlikeOnAllRanks, EveryOptionOfTrain)
{
    const std::string save = files.folder.path + "/save", none = files.folder.path + "/none";
    const Words bf16 = {"--dtype", "bf16"}, same = {"--dtype", "bf16", "--residual", "same"};
    const Words zero3 = {"--zero", "3"}, pp = {"--mesh", "pp=2", "--layers", "2"};
    const Words lora = {"--lora", "r=2"}, sample = {"--sample", "4"}, saving = {"--save", save};
    const std::string reader = files.make_hub("reader", 'a');
    std::string tokenizer = read_text(RF_SOURCE "/tests/tokenizer/bytes.json");
    for (const auto &[token, other] : {std::pair{"<|word|>", "<s>"}, {"<|strip|>", "</s>"}})
        tokenizer.replace(tokenizer.find(token), strlen(token), other);
    std::ofstream(reader + "/tokenizer.json") << tokenizer;
    const Words chat = {"--data", files.documents, "--from", reader};
    const std::string form = "{% for m in messages %}{{ m.content }}{% endfor %}";
    const std::string forms[] = {files.folder.file("a.jinja", form),
                                 files.folder.file("b.jinja", form)};
    const Words growing = saving + Words{"--elastic", "--save-every", "2"};
    Command train{"train",
                  {"train", "--data", files.data, "--layers", "1", "--channels", "32", "--heads",
                   "2", "--seq", "16", "--batch", "4", "--steps", "2"},
                  {"train", "--data", files.data, "--from", files.hub, "--seq", "16", "--batch",
                   "4", "--steps", "2"},
                  "steps",
                  {"2", "3"},
                  {},
                  /* for a process that is not in the job yet: join_test.cc */
                  {"join"}};
    const Words rounds = {"--sync", "fedavg:2", "--mesh", "dp=2"};
    const Words client = rounds + Words{"--coordinator", "h:1", "--client", "x"};
    std::string peers[2];
    for (const std::string name : {"x", "y"}) {
        ProgramOptions options;
        options.environment = {"RF_IDENTITY_KEY=secret of " + name};
        const std::string &path = peers[name == "y"] = files.folder.file(
            "peers-" + name, name + " " + run_program({"coordinate", "--identity"}, options).out);
        chmod(path.c_str(), 0644);
    }
    train.rows = {
        {"from", {files.hub, files.other_hub, {}, true}},
        {"allow-nan", {"", "yes", {}, true}},
        {"model", {"gpt2", "llama"}},
        {"layers", {"1", "2"}},
        {"channels", {"32", "64"}},
        {"heads", {"2", "4"}},
        {"kv-heads", {"1", "2", {"--model", "llama"}}},
        {"head-rows", {"8", "16"}},
        {"seq", {"16", "8"}},
        {"batch", {"4", "8"}},
        {"micro-batches", {"2", "4"}},
        {"dtype", {"f32", "bf16"}},
        {"residual", {"f32", "same", bf16}},
        {"matmul-precision", {"fp8", "mxfp8"}},
        {"freeze", {"", "blocks.0.*"}},
        {"adapter", {files.adapter, files.other_adapter, {}, true}},
        {"lora", {"r=2", "r=4"}},
        {"quantize", {"nf4", "int8", lora, true}},
        {"no-masters", {"", "yes", same}},
        {"stochastic-rounding", {"", "yes", bf16}},
        {"reduce-dtype", {"f32", "bf16"}},
        {"compress", {"int8", "nf4"}},
        {"loss-scale", {"0", "64"}},
        {"mesh", {"dp=2", "pp=2", {"--layers", "2"}}},
        {"tensor-parts", {"2", "4"}},
        {"sequence-parallel", {"", "yes", {"--mesh", "tp=2"}}},
        {"zero", {"0", "1"}},
        {"keep-gathered", {"", "yes", zero3}},
        {"no-prefetch", {"", "yes", zero3}},
        {"offload", {"none", "optimizer"}},
        {"disk", {save, none, {"--offload", "optimizer=disk"}}},
        {"disk-slowdown", {"2", "3", {"--offload", "optimizer=disk", "--disk", save}}},
        {"device-bytes", {"1000000000", "2000000000"}},
        {"order", {"ring", "tree"}},
        {"update", {"all", "rank0"}},
        {"recompute", {"none", "gelu"}},
        {"reversible", {"f32", "fixed"}},
        {"update-in-backward", {"", "yes", {"--clip", "0"}}},
        {"schedule", {"1f1b", "gpipe", pp}},
        {"stages", {"even", "cost", pp}},
        {"workspace", {"0", "1024"}},
        {"optimizer", {"adamw", "sgd"}},
        {"optimizer-state", {"bf16", "8bit"}},
        {"beta1", {"0.8", "0.9"}},
        {"beta2", {"0.8", "0.9"}},
        {"eps", {"1e-08", "1e-07"}},
        {"eps-inside", {"", "yes"}},
        {"no-bias-correction", {"", "yes"}},
        {"momentum", {"0.8", "0.9", {"--optimizer", "momentum"}}},
        {"dampening", {"0", "0.5", {"--optimizer", "momentum"}}},
        {"centered", {"", "yes", {"--optimizer", "rmsprop"}}},
        {"clip", {"1", "2"}},
        {"weight-decay", {"0.1", "0.2"}},
        {"data", {files.data, files.other_data}},
        {"packing", {"", "yes", {"--data", files.pairs, "--from", reader}, true}},
        {"chat", {forms[0], forms[1], chat, true}},
        {"date", {"2026-01-02", "2026-01-03", {}, true}},
        {"coordinator", {"h:1", "h:2", rounds + Words{"--client", "x"}}},
        {"client", {"x", "y", rounds + Words{"--coordinator", "h:1"}}},
        {"update-clip", {"1", "2", client}},
        {"update-noise", {"1", "2", client + Words{"--update-clip", "1"}}},
        {"secure-aggregation", {"2", "3", client}},
        {"peers", {peers[0], peers[1], client + Words{"--secure-aggregation", "2"}}},
        {"steps", {"2", "3"}},
        {"lr", {"0.001", "0.002"}},
        {"warmup", {"0", "1"}},
        {"lr-decay", {"none", "cosine"}},
        {"seed", {"1", "2"}},
        {"eval-every", {"1", "2"}},
        {"eval-sequences", {"8", "16"}},
        {"save", {"", save}},
        {"save-every", {"1", "2", saving}},
        {"export", {"", files.folder.path + "/export"}},
        {"export-adapter", {"", files.folder.path + "/export", lora}},
        {"export-dtype", {"f32", "bf16", {"--export", files.folder.path + "/export"}}},
        {"export-shard-bytes", {"1000", "2000", {"--export", files.folder.path + "/export"}}},
        {"keep", {"1", "2", saving}},
        {"resume", {"", none}},
        {"scale-lr", {"linear", "sqrt", {"--resume", none}}},
        {"sync", {"local:2", "local:4"}},
        {"audit", {"1", "2"}},
        {"change", {"lr", "lr,warmup", {"--resume", none, "--lr", "1", "--warmup", "1"}}},
        {"elastic", {"", "yes"}},
        {"accept", {"7001", "7002", growing}},
        {"sample", {"1", "2"}},
        {"prompt", {"a", "b", sample}},
        {"temperature", {"0.5", "0.6", sample}},
        {"log", {"", files.folder.path + "/log"}},
        {"trace", {"", files.folder.path + "/trace"}},
        {"trace-kernels", {"", "yes", {"--trace", files.folder.path + "/trace"}}},
        {"plot", {"", files.folder.path + "/plot.svg"}},
        {"plot-staleness", {"", files.folder.path + "/s.svg", {"--sync", "server:async"}}},
        {"device", {"", "0"}},
        {"peak", {"1", "2"}},
        {"record-each-step", {"", "yes"}},
        {"ranks", {"", "2"}},
        {"provider", {"", "tcp"}},
        {"timeout", {"30", "40"}},
    };
    go_through_all_options(train);
}

TEST_F(AlikeOnAllRanks, EveryOptionOfACollectiveBenchmark)
{
    const Words two = {"--ranks", "2"};
    Command bench{"bench",
                  {"bench", "reduce", "-b", "4", "-e", "16", "-n", "1"},
                  {},
                  "iters",
                  {"1", "2"},
                  {},
                  /* for benchmarks that each process runs by itself */
                  {"scale", "times", "schedule", "shape", "path", "split", "form", "device"}};
    bench.rows = {
        {"minbytes", {"4", "8"}},
        {"maxbytes", {"16", "32"}},
        {"stepfactor", {"2", "4"}},
        {"stepbytes", {"4", "8"}},
        {"iters", {"1", "2"}},
        {"warmup_iters", {"1", "2"}},
        {"agg_iters", {"1", "2"}},
        {"in-place", {"0", "1"}},
        {"dtype", {"float", "half"}},
        {"op", {"sum", "max"}},
        {"wire-dtype", {"float", "half"}},
        {"check", {"0", "1"}},
        {"root", {"0", "1"}},
        {"order", {"any", "tree"}},
        {"algorithm", {"", "flat"}},
        {"private-buffers", {"", "yes"}},
        {"one-clock", {"", "yes", two}},
        {"rewrite", {"", "yes"}},
        {"ranks", {"", "2"}},
        {"provider", {"", "tcp"}},
        {"timeout", {"30", "40"}},
        {"link-gbps", {"1", "2"}},
        {"json", {"", files.folder.path + "/json"}},
        {"plot", {"", files.folder.path + "/plot.svg"}},
    };
    go_through_all_options(bench);
}

TEST_F(AlikeOnAllRanks, EveryOptionOfGenerate)
{
    const Words sampled = {"--temperature", "0.5"}, asked = {"--message", "a"};
    Command generate{"generate",
                     {"generate", "--from", files.hub, "--prompt-ids", "1,2"},
                     {"generate", "--from", files.hub},
                     "max-new",
                     {"2", "3"},
                     {},
                     {}};
    generate.rows = {
        {"from", {files.hub, files.other_hub}},
        {"adapter", {files.adapter, files.other_adapter}},
        {"prompt", {"a", "b", {}, true}},
        {"prompts", {"", files.prompts, {}, true}},
        {"prompt-ids", {"1,2", "1,3", {}, true}},
        {"message", {"a", "b", {}, true}},
        {"messages", {"", files.documents, {}, true}},
        {"tools", {"", files.prompts, asked, true}},
        {"chat", {"chatml", "llama2", asked, true}},
        {"date", {"2026-01-02", "2026-01-03", asked, true}},
        {"max-new", {"2", "3"}},
        {"temperature", {"0.5", "0.6"}},
        {"top-k", {"1", "2", sampled}},
        {"top-p", {"0.5", "0.6", sampled}},
        {"repetition-penalty", {"1", "2"}},
        {"stop", {"", "x"}},
        {"stop-id", {"1", "2"}},
        {"ignore-end", {"", "yes"}},
        {"seed", {"1", "2", sampled}},
        {"batch", {"4", "8"}},
        {"length", {"8", "16"}},
        {"dtype", {"f32", "bf16"}},
        {"quantize", {"none", "nf4"}},
        {"device", {"", "0"}},
        {"ranks", {"", "2"}},
        {"provider", {"", "tcp"}},
        {"timeout", {"30", "40"}},
        {"json", {"", files.folder.path + "/json"}},
    };
    go_through_all_options(generate);
}

/* Texts are the same if their tokens are, wherever the files are. */
TEST_F(AlikeOnAllRanks, CopiesOfTheTextAndTheModelElsewhereAreTheSame)
{
    const std::string copy = files.folder.file("copy.txt", some_text());
    const std::string hub = files.make_hub("copy", 'a');
    const Words words = {"train", "--seq", "16", "--steps"};
    const Job job = run_job(words + Words{"2", "--data", files.data, "--from", files.hub},
                            words + Words{"3", "--data", copy, "--from", hub});
    EXPECT_NE(job.rank[0].err.find("rank 1 has --steps 3, rank 0 2"), std::string::npos)
        << job.err();
}

/* Each of them has told the others, who do not wait for their start timeout. */
TEST_F(AlikeOnAllRanks, ARankThatIsRefusedBeforeItJoinsEndsTheOthersAndOneSaysWhy)
{
    const Words train = {"train", "--data", files.data}, missing = {"train", "--data", "/nothing"};
    const Words usage = {"train", "--data", files.data, "--nonsense"};
    const Words links = {"info", "--algorithms", "--measure"};
    const struct {
        Words zero, one;
        const char *wanted;
        int status; /* of the refused rank */
    } cases[] = {
        {train, missing, "rank 1 does not join: cannot open /nothing", 1},
        {missing, train, "cannot open /nothing", 1},
        {missing, missing, "cannot open /nothing", 1},
        {usage, usage, "there is no option \"--nonsense\"", 2},
        {train, usage, "rank 1 does not join: there is no option \"--nonsense\"", 2},
        {links, links + Words{"--json=x", "--ranks=0"}, "rank 1 does not join: --ranks", 2}};
    for (const auto &c : cases) {
        const Job job = run_job(c.zero, c.one);
        EXPECT_EQ(job.rank[c.one == train ? 0 : 1].status, c.status) << job.err();
        EXPECT_NE(job.rank[0].status, 0) << job.err();
        EXPECT_NE(job.rank[1].status, 0) << job.err();
        EXPECT_NE(job.rank[0].err.find(c.wanted), std::string::npos) << job.err();
        EXPECT_EQ(job.rank[1].err, "") << joined(c.one);
    }
}

/* A plan that cannot be built, a checkpoint that does not exist: all ranks find the same. */
TEST_F(AlikeOnAllRanks, WhatAllRanksRefuseIsSaidOnce)
{
    const Words train = {"train",   "--data", files.data, "--layers", "1",       "--channels", "32",
                         "--heads", "2",      "--seq",    "16",       "--batch", "4"};
    const struct {
        Words more;
        const char *sentence;
        int status;
    } cases[] = {{{"--device-bytes", "1000"}, "the plan needs ", 2},
                 {{"--device", "none of these"}, "there is no device \"none of these\"", 1},
                 {{"--lora", "targets=nothing"}, "", 2},
                 {{"--resume", "/nothing"}, "there is no checkpoint in /nothing", 1}};
    for (const auto &c : cases)
        for (const Words &ranks : {Words{"--ranks", "2", "--provider", "shm"},
                                   Words{"--ranks", "2", "--provider", "loopback"}}) {
            const ProgramResult r = run_program(train + c.more + ranks);
            EXPECT_EQ(r.status, c.status) << r.err;
            const std::string line = "ringforge train: " + std::string(c.sentence);
            const size_t at = r.err.find(line);
            EXPECT_EQ(at, 0u) << r.err;
            /* Only the launcher prints more. */
            const size_t next = r.err.find("ringforge train: ", at + 1);
            EXPECT_TRUE(next == std::string::npos || next == r.err.find("ringforge train: rank "))
                << r.err;
            if (next != std::string::npos) {
                EXPECT_EQ(r.err.find("ringforge train: ", next + 1), std::string::npos) << r.err;
            }
        }
}

TEST_F(AlikeOnAllRanks, EveryEnvironmentVariable)
{
    const ProgramResult r = run_program({"info", "--json"});
    cJSON *json = cJSON_Parse(r.out.c_str());
    const Words bench = {"bench", "all_reduce", "-b", "4", "-e", "4", "-n", "1"};
    std::set<std::string> alike;
    const cJSON *each;
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(json, "environment"))
    {
        const std::string name = text_of(each, "name");
        std::string values = text_of(each, "values");
        if (text_of(each, "ranks") == "alike") {
            alike.insert(name);
            continue;
        }
        if (values.empty() || name == "RF_PEER_READS") /* the last is for ranks that share memory */
            continue;
        for (size_t bar; !values.empty();
             values = bar == values.npos ? "" : values.substr(bar + 1)) {
            bar = values.find('|');
            const Job job = run_job(bench, bench, {}, {name + "=" + values.substr(0, bar)});
            EXPECT_EQ(job.rank[0].status, 0) << name << "=" << values << "\n" << job.err();
            EXPECT_EQ(job.rank[1].status, 0) << name << "=" << values << "\n" << job.err();
        }
    }
    cJSON_Delete(json);
    /* The last three give the address of rank 0: a rank with different ones finds nobody. With a
     * different key a rank is a stranger to rank 0, which waits for its own. */
    EXPECT_EQ(alike,
              (std::set<std::string>{"RF_CHECKSUM", "RF_PROVIDER", "RF_JOB_KEY", "WORLD_SIZE",
                                     "RF_PORT", "MASTER_ADDR", "MASTER_PORT"}));
    const struct {
        Words zero, one;
        const char *wanted;
    } cases[] = {
        {{}, {"RF_CHECKSUM=1"}, "checksums of messages"},
        {{"RF_PROVIDER=tcp"}, {"RF_PROVIDER=shm"}, "rank 1 asks for provider shm, rank 0 for tcp"},
        {{}, {"WORLD_SIZE=3"}, "rank 1 was told of 3 ranks, rank 0 of 2"},
        {{}, {"RF_MEASURE=maybe"}, "RF_MEASURE is \"maybe\"; it has to be 0 or 1"}};
    for (const auto &c : cases) {
        const Job job = run_job(bench, bench, c.zero, c.one);
        EXPECT_NE(job.rank[0].status, 0) << job.err();
        EXPECT_NE(job.rank[1].status, 0) << job.err();
        EXPECT_NE(job.err().find(c.wanted), std::string::npos) << job.err();
    }
}
