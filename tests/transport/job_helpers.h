// SPDX-License-Identifier: MIT
//
// Jobs of several ranks for tests: as threads, or as forked processes that can be killed.
#pragma once

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/free_port.h"
#include "transport_helpers.h"

namespace job
{

inline std::string tcp_url(int port)
{
    return "tcp://127.0.0.1:" + std::to_string(port);
}
// A connected socket, or -1.
inline int connect_to(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    if (connect(fd, (sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

struct Member {
    int status = 1, rank = -1, size = -1;
    rf_control *c = nullptr;
    std::string message;
};
inline Member join(const std::string &url, int rank, int size, const char *key = nullptr,
                   double timeout = 60)
{
    Member m;
    rf_comm_opts opts{};
    opts.rank = rank;
    opts.size = size;
    opts.key = key;
    opts.start_timeout_s = timeout;
    m.status = rf_bootstrap_join(url.c_str(), &opts, &m.rank, &m.size, &m.c);
    if (m.status < 0)
        m.message = rf_last_error()->message;
    return m;
}

// Runs body(rank) on one thread per rank.
inline void on_threads(int size, const std::function<void(int)> &body)
{
    std::vector<std::thread> threads;
    for (int r = 0; r < size; r++)
        threads.emplace_back([&, r] { body(r); });
    for (auto &thread : threads)
        thread.join();
}

inline void gather_and_leave(Member &m)
{
    ASSERT_EQ(m.status, 0) << m.message;
    std::vector<int> all((size_t)m.size, -1);
    ASSERT_EQ(m.c->ops->all_gather(m.c, &m.rank, sizeof(int), all.data(), 60), 0)
        << rf_last_error()->message;
    for (int r = 0; r < m.size; r++)
        EXPECT_EQ(all[(size_t)r], r);
    m.c->ops->leave(m.c, 5);
}

inline std::string temp_path(const char *name)
{
    return testing::TempDir() + "rf_" + std::to_string(getpid()) + "_" + name;
}

inline bool contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

// Waits for an event of this kind; others are skipped. False after the deadline.
inline bool wait_event(rf_control *c, int kind, rf_event *out, double seconds = 10)
{
    uint64_t end = rf_now_ns() + (uint64_t)(seconds * 1e9);
    while (rf_now_ns() < end) {
        if (c->ops->next_event(c, out) == 0)
            std::this_thread::yield();
        else if (out->kind == kind)
            return true;
    }
    return false;
}

// Forked processes; body returns the exit code. Fork before any thread exists.
struct Processes {
    std::vector<pid_t> pids;
    void start(int size, const std::function<int(int)> &body)
    {
        for (int r = 0; r < size; r++) {
            pid_t pid = fork();
            if (pid == 0) {
                alarm(60);
                int code = body(r);
                fflush(nullptr);
                _exit(code);
            }
            pids.push_back(pid);
        }
    }
    // Exit code, or minus the signal.
    int wait(int rank)
    {
        int status = 0;
        waitpid(pids[(size_t)rank], &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
};

} // namespace job
