/* SPDX-License-Identifier: MIT
 *
 * See ranks.h. The parent must not have threads when it forks.
 */
#include "ranks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace ranks
{

int patience()
{
    const char *text = getenv("RF_TEST_PATIENCE");
    return text ? std::max(1, atoi(text)) : 1;
}

namespace
{

/* Ends the whole process if the ranks have not ended in time, because threads cannot be killed. */
class Watchdog
{
  public:
    explicit Watchdog(int usual)
        : thread_([this, seconds = usual * patience()] {
              std::unique_lock<std::mutex> lock(mutex_);
              if (!changed_.wait_for(lock, std::chrono::seconds(seconds),
                                     [this] { return over_; })) {
                  fprintf(stderr, "watchdog: the ranks have not ended after %d s\n", seconds);
                  abort();
              }
          })
    {
    }
    ~Watchdog()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

  private:
    bool over_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
};

void run_one(const World &world, rf_loopback *loopback, const std::string &url, int rank,
             const Body &body, const Closed &closed)
{
    rf_comm_opts opts = {};
    opts.rank = rank;
    opts.size = world.size;
    opts.timeout_s = world.timeout_s;
    opts.start_timeout_s = 30;
    opts.checksum = world.checksum;
    opts.provider = loopback ? nullptr : world.provider.c_str();
    if (!loopback && !world.hosts.empty())
        setenv("RF_HOSTS", world.hosts.c_str(), 1);
    if (!loopback && !world.reads.empty())
        setenv("RF_PEER_READS", world.reads.c_str(), 1);
    if (!loopback && !world.writes.empty())
        setenv("RF_SLOT_WRITES", world.writes.c_str(), 1);
    if (!loopback && world.before)
        world.before(rank);
    rf_comm *comm = nullptr;
    int rc = loopback ? rf_comm_open_loopback(loopback, rank, &opts, &comm)
                      : rf_comm_open(url.c_str(), &opts, &comm);
    EXPECT_EQ(rc, RF_OK) << "rank " << rank << ": " << rf_last_error()->message;
    if (rc < 0)
        return;
    body(comm, rank);
    int status = rf_comm_close(comm);
    if (closed)
        closed(rank, status);
}

void run_threads(const World &world, const Body &body, const Closed &closed)
{
    rf_loopback *loopback = nullptr;
    ASSERT_EQ(rf_loopback_create(world.size, &world.faults, &loopback), RF_OK)
        << rf_last_error()->message;
    {
        Watchdog watchdog(world.watchdog_s);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < world.size; rank++)
            threads.emplace_back([&, rank] { run_one(world, loopback, "", rank, body, closed); });
        for (std::thread &thread : threads)
            thread.join();
    }
    rf_loopback_destroy(loopback);
}

/* libfabric needs half a second to find its providers when it is loaded, so it is loaded once
 * before the fork. It has no threads then. */
void load_network()
{
    static const bool loaded = [] {
        uint32_t count = 0;
        return rf_provider_list(nullptr, nullptr, 0, &count) == RF_OK;
    }();
    EXPECT_TRUE(loaded);
}

void run_processes(const World &world, const Body &body, const Closed &closed)
{
    static int number = 0;
    if (!world.cold && world.provider != "shm")
        load_network();
    std::string path = ::testing::TempDir() + "/ringforge-ranks-" + std::to_string(getpid()) + "-" +
                       std::to_string(number++);
    unlink(path.c_str());
    std::string url = "file:" + path;
    fflush(nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < world.size; rank++) {
        pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(static_cast<unsigned>(world.watchdog_s)); /* its signal kills the process */
            run_one(world, nullptr, url, rank, body, closed);
            fflush(nullptr);
            _exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        children.push_back(child);
    }
    for (int rank = 0; rank < world.size; rank++) {
        int status = 0;
        while (waitpid(children[static_cast<size_t>(rank)], &status, 0) < 0 && errno == EINTR) {
        }
        bool other = !WIFSIGNALED(status) || WTERMSIG(status) != world.by_signal;
        EXPECT_FALSE(rank == world.expect_killed && world.by_signal && other)
            << "rank " << rank << " over " << world.provider << " was not ended by "
            << strsignal(world.by_signal) << ": wait status " << status;
        if (rank == world.expect_killed ||
            std::count(world.may_die.begin(), world.may_die.end(), rank) > 0)
            continue;
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "rank " << rank << " over " << world.provider
            << (WIFSIGNALED(status) ? " ended by signal " : " ended with status ")
            << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    unlink(path.c_str());
}

} // namespace

void run(const World &world, const Body &body, const Closed &closed)
{
    if (world.provider == "loopback")
        run_threads(world, body, closed);
    else
        run_processes(world, body, closed);
}

std::string name(const World &world)
{
    std::string text = world.provider + "_x" + std::to_string(world.size), hosts = world.hosts;
    hosts.erase(std::remove(hosts.begin(), hosts.end(), ','), hosts.end());
    if (!hosts.empty())
        text += "_" + hosts;
    if (!world.reads.empty())
        text += "_reads_" + world.reads;
    if (!world.writes.empty())
        text += "_" + world.writes;
    for (char &c : text)
        if (!isalnum(static_cast<unsigned char>(c)))
            c = '_';
    return text;
}

std::vector<World> worlds(const std::vector<int> &thread_sizes,
                          const std::vector<int> &process_sizes,
                          const std::vector<const char *> &layouts)
{
    std::vector<World> all;
    World world;
    for (int size : thread_sizes) {
        world.size = size;
        all.push_back(world);
    }
    std::vector<const char *> providers = {"shm", "tcp", "ofi-tcp", "ofi-shm"};
    if (getenv("RF_TEST_ALL"))
        providers.push_back("tcp;ofi_rxm");
    for (const char *provider : providers)
        for (int size : process_sizes) {
            world.provider = provider;
            world.size = size;
            world.writes.clear();
            if (world.provider == "shm" && process_sizes.size() > 1 && size == process_sizes.back())
                world.writes = "streamed";
            all.push_back(world);
        }
    world.writes.clear();
    if (!process_sizes.empty()) {
        world.provider = "shm";
        world.reads = "1";
        all.push_back(world);
        world.reads.clear();
    }
    world.provider = "shm+tcp";
    for (const char *layout : layouts) {
        world.hosts = layout;
        world.size = 1 + static_cast<int>(std::count(layout, layout + strlen(layout), ','));
        all.push_back(world);
    }
    return all;
}

Shared::Shared(size_t bytes) : bytes_(bytes)
{
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
        abort();
}

Shared::~Shared()
{
    munmap(memory_, bytes_);
}

} // namespace ranks
