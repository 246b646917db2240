/* SPDX-License-Identifier: MIT
 *
 * How `ringforge train` ends when it is told to, and when its loss becomes NaN.
 */
#include "program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

std::vector<std::string> tiny(const std::string &data)
{
    return {"train", "--data",          data, "--layers", "1",   "--channels",
            "32",    "--heads",         "2",  "--seq",    "16",  "--batch",
            "4",     "--micro-batches", "4",  "--order",  "tree"};
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string> &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::vector<std::string> program(const std::vector<std::string> &arguments)
{
    return with({program_path()}, arguments);
}

/* The word behind `key`, or "". */
std::string word_after(const std::string &text, const std::string &key)
{
    size_t at = text.find(key);
    if (at == std::string::npos)
        return "";
    at += key.size();
    return text.substr(at, text.find_first_of(" \n,", at) - at);
}

/* Whether the process has a handler of its own for SIGTERM, which means that it trains. */
bool listens(int pid)
{
    const std::string status = read_text("/proc/" + std::to_string(pid) + "/status");
    const std::string caught = word_after(status, "SigCgt:\t");
    return !caught.empty() && (std::stoull(caught, nullptr, 16) >> (SIGTERM - 1) & 1);
}

bool alive(const Background &job)
{
    siginfo_t info = {};
    return waitid(P_PID, (id_t)job.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && !info.si_pid;
}

/* Starts the trainer, waits for its second step, and sends the signal to `pid`, or to the job. */
ProgramResult stop(const std::vector<std::string> &argv, const std::string &log, int number,
                   const std::string &pid_file = "")
{
    Background job = start_command(with(argv, {"--steps", "1000000", "--log", log}));
    while (alive(job) && read_text(log).find("\"step\":2,") == std::string::npos)
        usleep(1000);
    kill(pid_file.empty() ? job.pid : std::stoi(read_text(pid_file)), number);
    return finish_command(job, 60);
}

void expect_same_bits_as_uninterrupted(const std::string &data, const std::string &save, int step)
{
    const std::string next = std::to_string(step + 1);
    ProgramResult rest = run_program(with(tiny(data), {"--steps", next, "--resume", save}));
    ASSERT_EQ(rest.status, 0) << rest.err;
    ProgramResult whole = run_program(with(tiny(data), {"--steps", next}));
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_EQ(word_after(rest.out, "sha256 "), word_after(whole.out, "sha256 "));
    EXPECT_EQ(word_after(whole.out, "sha256 ").size(), 64u);
}

} // namespace

TEST(TrainSignals, OneRankEndsAfterItsStepSavesAndGoesOnToTheSameBits)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    const std::string log = folder.path + "/log";
    ProgramResult r = stop(program(with(tiny(data), {"--save", save})), log, SIGTERM);
    EXPECT_EQ(r.status, 128 + SIGTERM) << r.err;
    const std::string step = word_after(r.out, "stopped by SIGTERM after step ");
    ASSERT_NE(step, "") << r.out << r.err;
    EXPECT_NE(r.out.find("saved in " + save), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
    EXPECT_NE(read_text(log).find("\"signal\":15"), std::string::npos);
    expect_same_bits_as_uninterrupted(data, save, std::stoi(step));
}

TEST(TrainSignals, TwoRanksEndAfterTheSameStepAndTheLauncherEndsAsTheyDo)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    ProgramResult r = stop(program(with(tiny(data), {"--save", save, "--ranks", "2"})),
                           folder.path + "/log", SIGINT);
    EXPECT_EQ(r.status, 128 + SIGINT) << r.err;
    EXPECT_EQ(r.err, "");
    const std::string step = word_after(r.out, "stopped by SIGINT after step ");
    ASSERT_NE(step, "") << r.out << r.err;
    EXPECT_NE(r.out.find("measured as planned, to the byte"), std::string::npos) << r.out;
    expect_same_bits_as_uninterrupted(data, save, std::stoi(step));
}

TEST(TrainSignals, ASignalToOneRankEndsAllOfThemInGoodOrder)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text());
    const std::string script = "echo $$ >" + folder.path + "/pid.$RANK; exec \"$@\"";
    ProgramResult r = stop(with({program_path(), "run", "--ranks", "2", "--", "sh", "-c", script,
                                 "sh", program_path()},
                                tiny(data)),
                           folder.path + "/log", SIGTERM, folder.path + "/pid.1");
    EXPECT_EQ(r.status, 128 + SIGTERM) << r.err;
    EXPECT_NE(r.out.find("[0] stopped by SIGTERM after step "), std::string::npos) << r.out;
    EXPECT_EQ(r.err.find("ringforge train: rank"), std::string::npos) << r.err;
}

TEST(TrainSignals, ASecondSignalEndsTheProgramAtOnce)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    /* A step of a million tokens takes far longer than this test. */
    Background job = start_command(
        program({"train", "--data", data, "--layers", "1", "--channels", "64", "--heads", "2",
                 "--seq", "64", "--batch", "16384", "--micro-batches", "4096", "--save", save}));
    while (alive(job) && !listens(job.pid))
        usleep(1000);
    while (alive(job)) { /* signals shortly after the first are the same request */
        kill(job.pid, SIGTERM);
        usleep(50000);
    }
    ProgramResult r = finish_command(job, 60);
    EXPECT_EQ(r.status, 128 + SIGTERM) << r.err;
    EXPECT_EQ(r.out.find("stopped"), std::string::npos) << r.out;
    struct stat latest;
    EXPECT_NE(stat((save + "/latest").c_str(), &latest), 0);
}

TEST(TrainSignals, ALauncherThatIsToldTwiceEndsAllAtOnceAndByTheSignal)
{
    TempFolder folder;
    Background job = start_command(
        {program_path(), "run", "--ranks", "2", "--", "sh", "-c",
         "trap '' TERM; echo >" + folder.path + "/up.$RANK; while :; do sleep 1; done"});
    while (alive(job) &&
           (read_text(folder.path + "/up.0") + read_text(folder.path + "/up.1")).size() < 2)
        usleep(1000);
    while (alive(job)) {
        kill(job.pid, SIGTERM);
        usleep(50000);
    }
    ProgramResult r = finish_command(job, 30);
    EXPECT_EQ(r.status, 128 + SIGTERM) << r.err;
}

TEST(TrainDivergence, ALossThatIsNoNumberEndsTrainingAndTheLastCheckpointStays)
{
    TempFolder folder;
    const std::string data = folder.file("t.txt", some_text()), save = folder.path + "/c";
    ASSERT_EQ(run_program(with(tiny(data), {"--steps", "1", "--save", save})).status, 0);
    const std::string before = read_text(save + "/latest");
    ProgramResult r = run_program(
        with(tiny(data), {"--steps", "8", "--resume", save, "--save", save, "--lr", "1e30",
                          "--change", "lr", "--ranks", "2", "--provider", "loopback"}));
    EXPECT_EQ(r.status, 1) << r.out;
    EXPECT_NE(r.out.find("loss nan "), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("-nan"), std::string::npos) << r.out;
    const size_t at = r.err.find("ringforge train: the loss of step 3 is not a finite number");
    EXPECT_NE(at, std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("ringforge train: ", at + 1), std::string::npos) << r.err;
    EXPECT_EQ(read_text(save + "/latest"), before);
}
