/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --elastic`: a rank is killed, and the others continue in the same processes.
 */
#include "elastic_job.h"

using namespace elastic;

namespace
{

struct Ended {
    ProgramResult program;
    std::string log;
};

// Kills these ranks one after the other: the first after five steps, each further one when the
// survivors have made a step.
Ended killed(const TempFolder &folder, int ranks, const std::vector<int> &victims,
             const std::vector<std::string> &more)
{
    Ended out;
    const std::string path = folder.path + "/log", data = folder.file("t.txt", some_text());
    Log log(path);
    const Background job = start_command(
        with(with({program_path()}, tiny(data)),
             with({"--elastic", "--log", path, "--ranks", std::to_string(ranks)}, more)));
    std::string mark = "\"step\":5,";
    size_t from = 0;
    for (int victim : victims) {
        log.read_until([&](const std::string &text) {
            return text.find(mark, from) != std::string::npos || has_ended(job.pid);
        });
        from = log.text.size();
        mark = "\"elastic\":true";
        const pid_t pid = process_of(job.pid, victim);
        EXPECT_GT(pid, 0);
        if (pid > 0)
            kill(pid, SIGKILL);
    }
    std::atomic<bool> ended{false};
    std::thread reader([&] { log.read_until([&](const std::string &) { return ended.load(); }); });
    out.program = finish_command(job, 100);
    ended = true;
    reader.join();
    out.log = log.text;
    return out;
}

int last_step(const std::string &log)
{
    const size_t at = log.rfind("\"step\":");
    return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + 7);
}

} // namespace

TEST(Elastic, AfterKillsTheOthersEndWithTheBitsOfARunThatWasNotInterrupted)
{
    TempFolder folder;
    const std::string want = uninterrupted(folder);
    EXPECT_EQ(want.size(), 64u);
    const Ended e = killed(folder, 3, {0, 2}, {"--provider", "shm"});
    EXPECT_EQ(e.program.status, 0) << e.program.err;
    EXPECT_EQ(sha_of(e.program.out), want) << e.program.out;
    for (const char *line :
         {" on 2 ranks (dp=2,tp=1,pp=1), from memory\n",
          " on 1 rank (dp=1,tp=1,pp=1), from memory\n", "measured as planned, to the byte"})
        EXPECT_NE(e.program.out.find(line), std::string::npos) << line << "\n" << e.program.out;
    EXPECT_NE(e.program.err.find("was ended by signal 9 (Killed); the others continue"),
              std::string::npos)
        << e.program.err;
    EXPECT_NE(e.log.find("\"elastic\":true,\"from_step\":"), std::string::npos);
    EXPECT_NE(e.log.find("\"step\":40,"), std::string::npos);
}

TEST(Elastic, WhatIsLostWithARankComesFromTheLastCheckpoint)
{
    TempFolder folder;
    const std::string save = folder.path + "/ckpt";
    const Ended e = killed(
        folder, 3, {2}, {"--provider", "tcp", "--zero", "1", "--save", save, "--save-every", "2"});
    EXPECT_EQ(e.program.status, 0) << e.program.err;
    EXPECT_EQ(sha_of(e.program.out), uninterrupted(folder)) << e.program.out;
    EXPECT_NE(e.program.err.find("no remaining rank has element "), std::string::npos)
        << e.program.err;
    EXPECT_NE(e.program.out.find(", from " + save + "\n"), std::string::npos) << e.program.out;
}

TEST(Elastic, ALostStageWithoutACheckpointEndsTheJobByName)
{
    TempFolder folder;
    const Ended e = killed(folder, 2, {1}, {"--mesh", "pp=2"});
    EXPECT_EQ(e.program.status, 137) << e.program.err;
    EXPECT_NE(e.program.err.find("no remaining rank has element 0 of blocks.0."), std::string::npos)
        << e.program.err;
    EXPECT_NE(e.program.err.find("use --save DIR --save-every N"), std::string::npos)
        << e.program.err;
}

// With --save, but before the first save: the message is not "next time use --save".
TEST(Elastic, WhatIsLostBeforeTheFirstSaveSaysThatThereIsNone)
{
    TempFolder folder;
    const std::string save = folder.path + "/ckpt";
    const Ended e =
        killed(folder, 2, {1},
               {"--provider", "shm", "--zero", "1", "--save", save, "--save-every", "1000"});
    EXPECT_EQ(e.program.status, 137) << e.program.err;
    EXPECT_NE(e.program.err.find("no state to continue from: " + save +
                                 " has no complete checkpoint yet; next time use a smaller "
                                 "--save-every"),
              std::string::npos)
        << e.program.err;
}

/* Deaths are normal among workers: the others continue at once, with what they have, and the first
 * of them prints and saves. */
TEST(Elastic, WorkersContinueWithoutThoseThatAreLost)
{
    const struct {
        const char *rule;
        int ranks, left;
        std::vector<int> victims;
        std::vector<std::string> more;
    } all[] = {{"diloco:3", 4, 2, {0, 3}, {"--save-every", "6", "--keep", "1"}},
               {"gossip:4,delay=2", 3, 2, {1}, {}},
               {"fedavg:3", 6, 2, {2}, {"--mesh", "tp=2", "--save-every", "20"}}};
    for (const auto &row : all) {
        TempFolder folder;
        const std::string save = folder.path + "/save";
        /* Enough that the job has not ended when the last one is killed. */
        const std::string steps = row.victims.size() > 1 ? "300" : "60";
        const Ended e =
            killed(folder, row.ranks, row.victims,
                   with({"--sync", row.rule, "--save", save, "--steps", steps}, row.more));
        EXPECT_EQ(e.program.status, 0) << e.program.err;
        EXPECT_NE(e.program.out.find("step " + steps + "/" + steps), std::string::npos)
            << e.program.out;
        EXPECT_NE(e.log.find("\"workers\":" + std::to_string(row.left) + ","), std::string::npos)
            << row.rule << e.log;
        if (row.victims.size() == 1)
            continue;
        /* The checkpoint is one of the workers that were left. */
        const ProgramResult r =
            run_program(with(tiny(folder.path + "/t.txt"), {"--sync", row.rule, "--ranks", "2",
                                                            "--steps", "302", "--resume", save}));
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_EQ(r.out.find("each continues with the mean"), std::string::npos) << r.out;
    }
}

/* Whoever is lost, and if at last all are: the last checkpoint that all of its workers had is
 * there. Another worker takes a lost one's folder before there is a new one. */
TEST(Elastic, LossesOfWorkersLeaveTheLastCheckpoint)
{
    TempFolder folder;
    const std::string save = folder.path + "/save";
    const std::vector<std::string> same = {"--sync", "diloco:2", "--save", save};
    /* It does not end before the last of them is killed. */
    const Ended e = killed(folder, 3, {1, 0, 2},
                           with(same, {"--save-every", "2", "--keep", "1", "--steps", "100000"}));
    EXPECT_NE(e.program.status, 0) << e.program.err;
    const std::string steps = std::to_string(last_step(e.log) + 4);
    const ProgramResult r = run_program(
        with(tiny(folder.path + "/t.txt"), with(same, {"--ranks", "2", "--provider", "loopback",
                                                       "--steps", steps, "--resume", save})));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("step " + steps + "/" + steps), std::string::npos) << r.out;
}

/* So they are at a store, whichever worker it is; a server's death ends the job, and names it. */
TEST(Elastic, WorkersOfAStoreContinueWithoutThoseThatAreLost)
{
    const struct {
        const char *rule;
        int ranks, victim;
        const char *says, *mesh = "dp=1";
    } all[] = {{"server:async", 4, 0, "\"workers\":2,"},
               {"server:async", 5, 1, "\"workers\":1,", "tp=2"},
               {"hogwild", 2, 1, "\"workers\":1,"},
               {"server:async", 2, 1, "server 0 of the store, rank 1, has died"}};
    for (const auto &row : all) {
        TempFolder folder;
        const bool continues = row.says[0] == '"';
        const std::string save = folder.path + "/save";
        const std::vector<std::string> same = {"--sync", row.rule, "--optimizer",    "sgd",
                                               "--save", save,     "--weight-decay", "0",
                                               "--mesh", row.mesh};
        const Ended e = killed(folder, row.ranks, {row.victim}, with(same, {"--save-every", "2"}));
        EXPECT_EQ(e.program.status == 0, continues) << e.program.err;
        EXPECT_EQ(e.program.out.find("step 40/40") != std::string::npos, continues);
        EXPECT_NE((e.program.err + e.log).find(row.says), std::string::npos)
            << row.rule << e.log << e.program.err;
        /* With another number of workers, from the last save. */
        const ProgramResult r = run_program(
            with(tiny(folder.path + "/t.txt"), with(same, {"--ranks", "3", "--provider", "loopback",
                                                           "--steps", "42", "--resume", save})));
        EXPECT_EQ(r.status, 0) << r.err;
        EXPECT_NE(r.out.find("step 42/42"), std::string::npos) << r.out;
    }
}
