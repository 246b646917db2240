/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync` from outside: workers on meshes, their bytes, and what is refused.
 */
#include <cjson/cJSON.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "train_program.h"

namespace
{

std::vector<std::string> workers(const std::string &data, const std::string &rule, int ranks,
                                 const std::vector<std::string> &more)
{
    std::vector<std::string> all =
        with(tiny(data), {"--ranks", std::to_string(ranks), "--provider", "loopback"});
    if (!rule.empty())
        all = with(all, {"--sync", rule});
    return with(all, more);
}

/* The numbers of one key in the lines of a log. */
std::vector<double> series(const std::string &log, const char *key)
{
    std::vector<double> out;
    const std::string text = read_text(log);
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        cJSON *json = cJSON_Parse(text.substr(at, end - at).c_str());
        if (const cJSON *value = cJSON_GetObjectItem(json, key))
            out.push_back(cJSON_GetNumberValue(value));
        cJSON_Delete(json);
    }
    return out;
}

} // namespace

/* A step of SGD on each worker's half of the batch, then the mean, is the step on the batch; with
 * weights by tokens, and by workers of two ranks, too. */
TEST(Sync, OneLocalStepIsAStepOfDataParallelTraining)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> same = {"--optimizer", "sgd",     "--lr", "0.1",   "--clip",
                                           "0",           "--steps", "3",    "--log", log};
    double want = 0;
    const struct {
        const char *rule, *batch, *mesh;
        int ranks;
    } all[] = {{"", "4", "dp=2", 2},
               {"local:1", "2", "dp=1", 2},
               {"fedavg:1", "2", "dp=1", 2},
               {"local:1", "2", "tp=2", 4}};
    for (const auto &row : all) {
        const ProgramResult r = run_program(
            with(workers(data, row.rule, row.ranks, same),
                 {"--batch", row.batch, "--micro-batches", row.batch, "--mesh", row.mesh}));
        ASSERT_EQ(r.status, 0) << r.err;
        const std::vector<double> held_out = series(log, "held_out_loss");
        ASSERT_FALSE(held_out.empty());
        want = *row.rule ? want : held_out.back();
        EXPECT_NEAR(held_out.back(), want, 2e-6 * want) << row.rule << " " << row.mesh;
    }
}

/* An exchange of n f32 parameters of two workers sends n of them from each; in 4 bits about an
 * eighth. Between exchanges nothing is sent. */
TEST(Sync, TheLogHasTheBytesOfExchanges)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    double whole = 0;
    for (const char *rule : {"diloco:2", "diloco:2,form=nf4"}) {
        const ProgramResult r = run_program(workers(data, rule, 2, {"--steps", "4", "--log", log}));
        ASSERT_EQ(r.status, 0) << r.err;
        const std::vector<double> sent = series(log, "sent");
        ASSERT_GE(sent.size(), 4u);
        EXPECT_EQ(sent[0], 0);
        EXPECT_EQ(sent[2], 0);
        EXPECT_EQ(sent[1], sent[3]);
        whole = whole > 0 ? whole : sent[1];
    }
    const std::vector<double> sent = series(log, "sent");
    EXPECT_GT(whole / sent[1], 7.4);
    EXPECT_LT(whole / sent[1], 8);
}

/* The bytes of a rank's exchange, its part of the model included, are those of `plan --sync`. */
TEST(Sync, ThePlanHasTheBytesOfARound)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const struct {
        const char *rule;
        int ranks;
        std::vector<std::string> mesh;
    } all[] = {{"diloco:2,form=int8", 2, {"--freeze", "blocks.0.*"}},
               {"gossip:2", 3, {}},
               {"fedavg:2", 4, {"--mesh", "tp=2"}},
               {"local:2", 4, {"--mesh", "pp=2", "--layers", "2"}},
               {"diloco:2,form=nf4", 4, {"--mesh", "dp=2", "--zero", "3", "--order", "ring"}}};
    for (const auto &row : all) {
        std::vector<std::string> words = tiny(data);
        words[0] = "plan";
        words.erase(words.begin() + 1, words.begin() + 3); /* --data */
        words = with(words, {"--ranks", std::to_string(row.ranks), "--sync", row.rule, "--json"});
        ProgramResult r = run_program(with(words, row.mesh));
        ASSERT_EQ(r.status, 0) << r.err;
        const double planned = last_number(r.out, "sent_round");
        r = run_program(
            with(workers(data, row.rule, row.ranks, row.mesh), {"--steps", "2", "--log", log}));
        ASSERT_EQ(r.status, 0) << r.err;
        const std::vector<double> sent = series(log, "sent");
        ASSERT_GE(sent.size(), 2u);
        EXPECT_EQ(sent[1] - sent[0], planned) << row.rule;
    }
    EXPECT_EQ(run_program({"plan", "--sync", "local:2"}).status, 2);
    EXPECT_EQ(run_program({"plan", "--sync", "local:2", "--ranks", "3", "--mesh", "tp=2"}).status,
              2);
    EXPECT_EQ(run_program({"plan", "--sync", "local:2,key=1", "--ranks", "2"}).status, 2);
}

/* Of a store: a worker's steps, and behind them a pull and two heads of messages, for each server.
 */
TEST(Sync, ThePlanHasTheBytesOfAStore)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    std::vector<std::string> words = tiny(data);
    words[0] = "plan";
    words.erase(words.begin() + 1, words.begin() + 3); /* --data */
    ProgramResult r =
        run_program(with(words, {"--ranks", "2", "--sync", "server:async", "--json"}));
    ASSERT_EQ(r.status, 0) << r.err;
    const double sent = last_number(r.out, "sent_round"),
                 received = last_number(r.out, "received_round"),
                 values = 4 * last_number(r.out, "params");
    EXPECT_EQ(sent, last_number(r.out, "server_received"));
    EXPECT_EQ(received, last_number(r.out, "server_sent"));
    r = run_program(workers(data, "server:async", 2, {"--steps", "3", "--log", log}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "pushed").at(0) + series(log, "pulled").at(0) +
                  series(log, "other").at(0),
              3 * (sent + received) + (64 + 8 + 64 + values) + 2 * 64);
    /* Two servers have half of it each. */
    r = run_program(
        with(words, {"--ranks", "5", "--sync", "server,servers=2", "--clip", "0", "--order", "ring",
                     "--peak", "1", "--memory", "10", "--link-gbps", "1", "--json"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(last_number(r.out, "sent_round"), sent + 2 * (64 + 8));
    EXPECT_EQ(last_number(r.out, "server_received"), 3 * (values / 2 + 2 * (64 + 8)));
    EXPECT_GT(last_number(r.out, "step_us"), 2 * 1.5e6 * values / (1e9 / 8));
    EXPECT_GT(last_number(r.out, "data_parallel_sent"), values);
    r = run_program(with(words, {"--sync", "fedavg:4", "--clients", "3", "--json"}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(last_number(r.out, "server_received"), 3 * last_number(r.out, "sent_round"));
    EXPECT_EQ(last_number(r.out, "sent_round"), values + 24 + 2 * 34);
    r = run_program(with(words, {"--sync", "hogwild", "--ranks", "2", "--optimizer", "sgd",
                                 "--weight-decay", "0", "--json"}));
    EXPECT_EQ(last_number(r.out, "sent_round"), 0) << r.err;
    const struct {
        std::vector<std::string> more;
        const char *says;
    } refused[] = {{{"--sync", "server", "--ranks", "1"}, "at least 2"},
                   {{"--sync", "server", "--ranks", "4", "--mesh", "tp=2"}, "a multiple of 2"},
                   {{"--sync", "server", "--ranks", "4"}, "is not for --clip"},
                   {{"--sync", "hogwild", "--ranks", "4"}, "use --optimizer sgd"},
                   {{"--sync", "gossip:2", "--clients", "2"}, "clients have a coordinator"},
                   {{"--sync", "fedavg:2", "--clients", "2", "--ranks", "2"}, "has no --ranks"},
                   {{"--clients", "2"}, "--sync"}};
    for (const auto &row : refused) {
        r = run_program(with(words, row.more));
        EXPECT_EQ(r.status, 2) << row.says;
        EXPECT_NE(r.err.find(row.says), std::string::npos) << r.err;
    }
}

TEST(Sync, NeighboursEndWithOneModelThatIsSavedAndContinued)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/save";
    const std::vector<std::string> first =
        workers(data, "gossip:1,order=mix-first", 3, {"--steps", "3", "--save", save});
    ProgramResult r = run_program(first);
    ASSERT_EQ(r.status, 0) << r.err;
    r = run_program(
        workers(data, "gossip:1,order=mix-first", 3, {"--steps", "5", "--resume", save}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("step 5/5"), std::string::npos) << r.out;
}

/* A checkpoint within a round, with an exchange of one of two parts in progress: begun behind step
 * 4, it takes effect behind step 6. */
TEST(Sync, ACheckpointWithinARoundContinuesWithTheSameBits)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const struct {
        const char *rule, *mesh;
        int ranks;
    } all[] = {{"fedopt:4,form=nf4,delay=2,parts=2", "dp=1", 2},
               {"diloco:4,form=powersgd:2", "tp=2", 4}};
    for (const auto &row : all) {
        const std::string save = folder.path + "/" + row.mesh + std::to_string(row.ranks);
        const std::vector<std::string> same = {"--mesh", row.mesh, "--steps", "9"};
        const ProgramResult whole = run_program(
            workers(data, row.rule, row.ranks, with(same, {"--save", save, "--save-every", "5"})));
        ASSERT_EQ(whole.status, 0) << whole.err;
        const ProgramResult rest = run_program(
            workers(data, row.rule, row.ranks, with(same, {"--resume", save + "/step-5"})));
        ASSERT_EQ(rest.status, 0) << rest.err;
        const std::string sha = "parameters: sha256 ";
        ASSERT_NE(whole.out.find(sha), std::string::npos);
        EXPECT_EQ(whole.out.substr(whole.out.find(sha), 83),
                  rest.out.substr(rest.out.find(sha), 83))
            << row.rule;
    }
}

/* The first worker's folder alone says which checkpoint is the last one, and what is not of one
 * save is not continued. */
TEST(Sync, OtherWorkersAndOtherRulesContinueFromTheMean)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/save",
                      log = folder.path + "/log";
    const char *rule = "diloco:3,form=nf4";
    const std::vector<std::string> first = workers(
        data, rule, 2, {"--steps", "4", "--save", save, "--save-every", "2", "--keep", "1"});
    ASSERT_EQ(mkdir(save.c_str(), 0755) + mkdir((save + "/worker-1").c_str(), 0755), 0);
    fclose(fopen((save + "/worker-1/step-4.tmp").c_str(), "w"));
    ProgramResult r = run_program(first);
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("worker-1/step-4.tmp"), std::string::npos) << r.err;
    EXPECT_EQ(read_text(save + "/latest"), "step-2\n");
    ASSERT_EQ(remove((save + "/worker-1/step-4.tmp").c_str()), 0);
    r = run_program(with(first, {"--resume", save}));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(read_text(save + "/latest"), "step-4\n");
    EXPECT_EQ(read_text(save + "/worker-1/latest"), "step-4\n");
    EXPECT_NE(access((save + "/step-2").c_str(), F_OK), 0);
    EXPECT_EQ(access((save + "/worker-1/step-2").c_str(), F_OK), 0);
    for (const int ranks : {1, 3}) {
        r = run_program(
            workers(data, rule, ranks, {"--steps", "8", "--resume", save, "--log", log}));
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_NE(r.out.find("has 2 workers, and this job " + std::to_string(ranks) +
                             ": each continues with the mean of their parameters, and of what"),
                  std::string::npos)
            << r.out;
        EXPECT_LT(series(log, "loss").back(), series(log, "loss").front());
    }
    r = run_program(workers(
        data, "none", 2, {"--mesh", "dp=2", "--steps", "6", "--resume", save, "--change", "sync"}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("; rounds begin anew"), std::string::npos) << r.out;
    ASSERT_EQ(rename((save + "/worker-1/step-2").c_str(), (save + "/2").c_str()), 0);
    ASSERT_EQ(rename((save + "/worker-1/step-4").c_str(), (save + "/worker-1/step-2").c_str()), 0);
    ASSERT_EQ(rename((save + "/2").c_str(), (save + "/worker-1/step-4").c_str()), 0);
    r = run_program(workers(data, rule, 2, {"--steps", "8", "--resume", save}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("worker-1/step-4"), std::string::npos) << r.err;
}

/* The servers' optimizer on the sum of the workers' gradients in tree order, decay included: of a
 * model with a tied parameter, each use of which is added over the workers, also if the uses are on
 * several ranks of a worker; of ranks that compute several parts of each block; and of workers
 * whose ranks have parts of the model, or of the gradients. */
TEST(Sync, ServersAreDataParallelTrainingInTreeOrderToTheBit)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const struct {
        const char *mesh, *all; /* of a worker, and of the same ranks without a store */
        int ranks;              /* of a worker */
        std::vector<std::string> more;
    } rows[] = {{"dp=1", "dp=2", 1, {}},
                {"dp=1", "dp=2", 1, {"--model", "llama", "--tensor-parts", "2"}},
                {"tp=2", "dp=2,tp=2", 2, {}},
                {"pp=2", "dp=2,pp=2", 2, {"--layers", "2"}},
                {"dp=2", "dp=4", 2, {"--zero", "2"}},
                {"dp=2", "dp=4", 2, {"--zero", "3", "--model", "llama", "--dtype", "bf16"}}};
    for (const auto &row : rows) {
        std::string hashes[2];
        for (const bool server : {false, true}) {
            const std::string batch = server ? "2" : "4";
            const ProgramResult r = run_program(
                with(workers(data, server ? "server,servers=2" : "", 2 * row.ranks + 2 * server,
                             row.more),
                     {"--steps", "3", "--clip", "0", "--batch", batch, "--micro-batches", batch,
                      "--mesh", server ? row.mesh : row.all}));
            ASSERT_EQ(r.status, 0) << r.err;
            const size_t at = r.out.find("parameters: sha256 ");
            ASSERT_NE(at, std::string::npos) << r.out;
            hashes[server] = r.out.substr(at, 19 + 64);
        }
        EXPECT_EQ(hashes[0], hashes[1]) << row.mesh << (row.more.empty() ? "" : row.more[1]);
    }
}

/* What the first rank of a worker sends: in the steps of its mesh, to its others, and to the
 * store. */
TEST(Sync, ThePlanHasTheBytesOfAWorkerOfSeveralRanks)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> same = {"--mesh", "tp=2", "--order", "ring"};
    std::vector<std::string> words = with(tiny(data), same);
    words[0] = "plan";
    words.erase(words.begin() + 1, words.begin() + 3); /* --data */
    ProgramResult r =
        run_program(with(words, {"--ranks", "5", "--sync", "server:async", "--json"}));
    ASSERT_EQ(r.status, 0) << r.err;
    const double sent = last_number(r.out, "own") + last_number(r.out, "within") +
                        4 * last_number(r.out, "params"),
                 received = last_number(r.out, "server_received");
    EXPECT_GT(last_number(r.out, "within"), 2 * last_number(r.out, "params"));
    EXPECT_EQ(received, 2 * last_number(r.out, "sent_round"));
    r = run_program(workers(data, "server:async", 5, with(same, {"--steps", "2", "--log", log})));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "sent"), (std::vector<double>{sent, sent}));
}

/* Uses of a tied parameter that are pushed apart are planned, and the norm in the log is that of
 * their sum: in ring order a worker adds them itself. */
TEST(Sync, UsesOfATiedParameterArePlannedAndNormed)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    double norms[2], sent[2], planned[2];
    for (const bool tree : {false, true}) {
        const std::vector<std::string> order = {"--clip", "0", "--order", tree ? "tree" : "ring"};
        std::vector<std::string> words = with(tiny(data), order);
        words[0] = "plan";
        words.erase(words.begin() + 1, words.begin() + 3); /* --data */
        ProgramResult r = run_program(with(words, {"--ranks", "3", "--sync", "server", "--json"}));
        ASSERT_EQ(r.status, 0) << r.err;
        planned[tree] = last_number(r.out, "sent_round");
        r = run_program(workers(data, "server", 3, with(order, {"--steps", "1", "--log", log})));
        ASSERT_EQ(r.status, 0) << r.err;
        norms[tree] = series(log, "grad_norm").at(0);
        sent[tree] = series(log, "sent").at(0);
    }
    EXPECT_NEAR(norms[0], norms[1], 1e-5 * norms[0]);
    EXPECT_EQ(sent[1] - sent[0], 4 * 257 * 32); /* of the embedding */
    EXPECT_EQ(planned[1] - planned[0], sent[1] - sent[0] + 8);
}

/* The state of the servers continues to the bit, on another number of servers, too, and of workers
 * and under another rule with other gradients. Nothing else continues as a store's. */
TEST(Sync, ACheckpointOfAStoreContinues)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/save",
                      log = folder.path + "/log";
    const std::string two = "server,servers=2", sha = "parameters: sha256 ";
    const std::vector<std::string> same = {"--steps", "7", "--clip", "0", "--order", "ring"};
    for (const int size : {2, 1}) { /* ranks of a worker */
        const std::vector<std::string> job = with(same, {"--mesh", size == 2 ? "tp=2" : "dp=1"});
        const std::string to = size == 2 ? folder.path + "/tp" : save;
        const ProgramResult whole = run_program(
            workers(data, two, 2 * size + 2, with(job, {"--save", to, "--save-every", "4"})));
        ASSERT_EQ(whole.status, 0) << whole.err;
        ASSERT_NE(whole.out.find(sha), std::string::npos);
        for (const int servers : {2, 1}) {
            if (size == 2 && servers == 2)
                continue;
            const ProgramResult rest = run_program(
                workers(data, "server,servers=" + std::to_string(servers), 2 * size + servers,
                        with(job, {"--change", "sync", "--resume", to + "/step-4"})));
            ASSERT_EQ(rest.status, 0) << rest.err;
            EXPECT_EQ(whole.out.substr(whole.out.find(sha), 83),
                      rest.out.substr(rest.out.find(sha), 83))
                << size << " " << servers;
        }
    }
    ProgramResult r =
        run_program(workers(data, "server:async", 4,
                            {"--steps", "9", "--log", log, "--change", "sync", "--resume", save}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "updates"), std::vector<double>{7 + 2 * 3});
    EXPECT_EQ(series(log, "pushes"), std::vector<double>{2 * 3});
    r = run_program(workers(data, "none", 1, {"--resume", save, "--change", "sync"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("optimizer"), std::string::npos) << r.err;
    const std::string other = folder.path + "/other";
    ASSERT_EQ(run_program(workers(data, "", 1, {"--steps", "2", "--save", other})).status, 0);
    r = run_program(
        workers(data, two, 3, with(same, {"--resume", other, "--change", "sync,clip"})));
    EXPECT_EQ(r.status, 1);
    EXPECT_NE(r.err.find("is no checkpoint of a store"), std::string::npos) << r.err;
}

/* The log tells what the store has done: every gradient, and no pull beyond the bound. */
TEST(Sync, TheLogHasTheHistogramOfStaleness)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> same = {
        "--steps", "6", "--log", log, "--lr", "0.1", "--weight-decay", "0", "--optimizer", "sgd"};
    const std::string picture = folder.path + "/stale.svg";
    ProgramResult r =
        run_program(workers(data, "server:stale=1", 3, with(same, {"--plot-staleness", picture})));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "updates"), std::vector<double>{12});
    /* A bar for each number that occurred. */
    const std::string svg = read_text(picture), bar = "<rect class=\"s0 ";
    size_t bars = 0, occurred = 0;
    for (size_t at = 0; (at = svg.find(bar, at)) != std::string::npos; at++)
        bars++;
    std::string line = read_text(log);
    line = line.substr(line.find("\"staleness\":[") + 12);
    for (size_t at = 0; line[at] != ']'; at++)
        occurred += (line[at] == '[' || line[at] == ',') && line[at + 1] != '0';
    EXPECT_EQ(bars, occurred) << line;
    EXPECT_GT(bars, 0u);
    ASSERT_EQ(series(log, "most_lag").size(), 1u);
    EXPECT_LE(series(log, "most_lag")[0], 1);
    EXPECT_NE(read_text(log).find("\"staleness\":["), std::string::npos);
    const double sent = series(log, "sent").at(0); /* 6 steps and two workers */
    EXPECT_EQ(series(log, "pushed"), std::vector<double>{12 * sent});
    r = run_program(workers(data, "hogwild", 2, same));
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "lost"), std::vector<double>{0});
    EXPECT_EQ(series(log, "additions"), std::vector<double>{12 * sent / 4});
}

/* On several hosts the workers reach the parameters by the network, and the log says how. */
TEST(Sync, HogwildAcrossHostsSaysHowItReachesParameters)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), log = folder.path + "/log";
    const std::vector<std::string> job =
        with(tiny(data), {"--ranks", "2", "--sync", "hogwild", "--steps", "3", "--log", log,
                          "--weight-decay", "0", "--optimizer", "sgd"});
    ProgramOptions two_hosts;
    two_hosts.environment = {"RF_HOSTS=a,b"};
    ProgramResult r = run_program(with(job, {"--provider", "tcp;ofi_rxm"}), two_hosts);
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(series(log, "lost"), std::vector<double>{0});
    EXPECT_NE(read_text(log).find("\"path\":\"atomic one-sided additions over tcp;ofi_rxm\""),
              std::string::npos);
    r = run_program(job, two_hosts);
    EXPECT_NE(r.status, 0);
    EXPECT_NE(r.err.find("the provider tcp has no one-sided operations, and \"tcp;ofi_rxm\""),
              std::string::npos)
        << r.err;
}

TEST(Sync, WhatWorkersCannotDoIsRefusedByName)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/save";
    const struct {
        const char *rule;
        std::vector<std::string> more;
        const char *message;
    } all[] = {
        {"diloco", {}, "--sync diloco: diloco: write diloco:H"},
        {"gossip:1,graph=star", {}, "graph=star"},
        {"local:4", {"--audit", "2"}, "--sync is not for --audit"},
        {"local:4", {"--compress", "nf4", "--order", "ring"}, "--sync is not for --compress"},
        {"local:4", {"--mesh", "tp=4"}, "no multiple of it"},
        {"server:stale", {}, "there is no rule \"server:stale\" of a store"},
        {"server:async,servers=2", {}, "start at least 3 ranks"},
        {"server", {}, "is not for --clip: no rank has the norm"},
        {"server",
         {"--clip", "0", "--model", "llama", "--batch", "3", "--micro-batches", "3"},
         "is not for --order tree: the bits"},
        {"hogwild", {"--mesh", "dp=3"}, "no multiple of it"},
        {"server:async",
         {"--mesh", "dp=2", "--ranks", "3", "--compress", "nf4", "--order", "ring"},
         "is not for --compress"},
        {"server",
         {"--mesh", "cp=2", "--ranks", "3", "--clip", "0"},
         "add their gradients before those of other workers"},
        {"hogwild", {"--coordinator", "localhost:7000"}, "is not for --coordinator"},
        {"hogwild", {}, "use --optimizer sgd"},
        {"hogwild", {"--optimizer", "sgd", "--weight-decay", "0.1"}, "use --weight-decay 0"},
        {"hogwild",
         {"--optimizer", "sgd", "--weight-decay", "0", "--plot-staleness", "x.svg"},
         "for a store on servers"},
        {"server:async", {"--plot-staleness", "x.png"}, "pictures are SVG"},
        {"server:async", {"--dtype", "f16"}, "is not for --loss-scale"},
        {"server:async", {"--offload", "optimizer"}, "is not for --offload"},
        {"server:async", {"--audit", "2"}, "--sync is not for --audit"},
    };
    for (const auto &row : all) {
        const ProgramResult r = run_program(workers(data, row.rule, 2, row.more));
        EXPECT_EQ(r.status, 2) << row.message << r.err;
        EXPECT_NE(r.err.find(row.message), std::string::npos) << r.err;
    }
}
