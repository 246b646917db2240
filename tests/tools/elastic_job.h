/* SPDX-License-Identifier: MIT
 *
 * A small elastic training job of the program, its growing log, and its ranks as processes. Used by
 * the tests of lost ranks and of newcomers.
 */
#ifndef RF_TESTS_TOOLS_ELASTIC_JOB_H
#define RF_TESTS_TOOLS_ELASTIC_JOB_H

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

namespace elastic
{

inline std::vector<std::string> tiny(const std::string &data)
{
    return {"train",   "--data",  data,    "--layers", "1",       "--channels", "32",
            "--heads", "2",       "--seq", "16",       "--batch", "4",          "--micro-batches",
            "4",       "--order", "tree",  "--steps",  "40"};
}

inline std::vector<std::string> with(std::vector<std::string> words,
                                     const std::vector<std::string> &more)
{
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

inline std::string sha_of(const std::string &text)
{
    const size_t at = text.rfind("sha256 ");
    return at == std::string::npos ? "" : text.substr(at + 7, 64);
}

// The process that the launcher started as this rank.
inline pid_t process_of(pid_t launcher, int rank)
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

// A log that holds a few lines: rank 0 blocks until they are read, so the job cannot end before its
// last steps are seen here.
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

inline bool has_ended(pid_t pid)
{
    siginfo_t info = {};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

inline std::string uninterrupted(const TempFolder &folder,
                                 const std::vector<std::string> &more = {})
{
    const ProgramResult r = run_program(with(tiny(folder.file("t.txt", some_text())), more));
    EXPECT_EQ(r.status, 0) << r.err;
    return sha_of(r.out);
}

} // namespace elastic
#endif
