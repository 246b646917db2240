/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --elastic`: a rank is killed, and the others go on in the same processes.
 */
#include "program.h"

#include <atomic>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

std::vector<std::string> tiny(const std::string &data)
{
    return {"train",   "--data",  data,    "--layers", "1",       "--channels", "32",
            "--heads", "2",       "--seq", "16",       "--batch", "4",          "--micro-batches",
            "4",       "--order", "tree",  "--steps",  "40"};
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string> &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::string sha_of(const std::string &text)
{
    const size_t at = text.rfind("sha256 ");
    return at == std::string::npos ? "" : text.substr(at + 7, 64);
}

// The process that the launcher started as this rank.
pid_t process_of(pid_t launcher, int rank)
{
    const std::string own = "/proc/" + std::to_string(launcher);
    std::istringstream children(read_text(own + "/task/" + std::to_string(launcher) + "/children"));
    const std::string wanted = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
    for (pid_t pid; children >> pid;)
        if ((std::string(1, '\0') + read_text("/proc/" + std::to_string(pid) + "/environ"))
                .find(wanted) != std::string::npos)
            return pid;
    return -1;
}

// A log that holds a few lines: rank 0 stands still until they are read, so a job has not ended
// before this has seen its last steps.
class Log
{
  public:
    explicit Log(const std::string &path)
    {
        EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
        fd_ = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
        EXPECT_GE(fd_, 0);
        fcntl(fd_, F_SETPIPE_SZ, 4096);
    }
    ~Log()
    {
        close(fd_);
    }
    void read_until(const std::function<bool(const std::string &)> &enough)
    {
        char some[4096];
        while (!enough(text)) {
            pollfd wait = {fd_, POLLIN, 0};
            poll(&wait, 1, 50);
            const ssize_t n = read(fd_, some, sizeof(some));
            text.append(some, n > 0 ? (size_t)n : 0);
        }
    }
    std::string text;

  private:
    int fd_;
};

struct Ended {
    ProgramResult program;
    std::string log;
};

bool has_ended(pid_t pid)
{
    siginfo_t info = {};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

// Kills these ranks one after the other: the first after five steps, each other one when those that
// were left have made a step.
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

std::string uninterrupted(const TempFolder &folder)
{
    const ProgramResult r = run_program(tiny(folder.file("t.txt", some_text())));
    EXPECT_EQ(r.status, 0) << r.err;
    return sha_of(r.out);
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
    EXPECT_NE(e.program.err.find("was ended by signal 9 (Killed); the others go on"),
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
    EXPECT_NE(e.program.err.find("no rank that is left has element "), std::string::npos)
        << e.program.err;
    EXPECT_NE(e.program.out.find(", from " + save + "\n"), std::string::npos) << e.program.out;
}

TEST(Elastic, ALostStageWithoutACheckpointEndsTheJobByName)
{
    TempFolder folder;
    const Ended e = killed(folder, 2, {1}, {"--mesh", "pp=2"});
    EXPECT_EQ(e.program.status, 137) << e.program.err;
    EXPECT_NE(e.program.err.find("no rank that is left has element 0 of blocks.0."),
              std::string::npos)
        << e.program.err;
    EXPECT_NE(e.program.err.find("use --save DIR --save-every N"), std::string::npos)
        << e.program.err;
}
