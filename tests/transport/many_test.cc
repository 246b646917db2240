// SPDX-License-Identifier: MIT
//
// Many ranks: rank 0's work for a job must grow with the number of ranks, not with its square.
// Ranks are threads of this process, each with a control link of its own. RF_RANKS=1024 sets their
// number, RF_TEST_ALL=1 tests up to 4096, and every program prints the time and memory it took.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <mutex>

#include "job_helpers.h"

namespace
{
using namespace job;

// Thousands of threads, one per rank, with small stacks.
void on_many_threads(int size, const std::function<void(int)> &body)
{
    struct Start {
        const std::function<void(int)> *body;
        int rank;
    };
    std::vector<Start> starts((size_t)size);
    std::vector<pthread_t> threads((size_t)size);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    for (int r = 0; r < size; r++) {
        starts[(size_t)r] = {&body, r};
        ASSERT_EQ(pthread_create(
                      &threads[(size_t)r], &attr,
                      [](void *start) -> void * {
                          auto *s = (Start *)start;
                          (*s->body)(s->rank);
                          return nullptr;
                      },
                      &starts[(size_t)r]),
                  0);
    }
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
    pthread_attr_destroy(&attr);
}

struct Times {
    double join, gather, leave;
    int files; /* for all ranks and this program */
};

int open_files()
{
    const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
    return (int)std::distance(begin(folder), end(folder));
}

Times bootstrap(int size, size_t bytes)
{
    std::string url = tcp_url(free_port());
    pthread_barrier_t together;
    pthread_barrier_init(&together, nullptr, (unsigned)size);
    std::vector<double> marks(4);
    std::atomic<int> files{0};
    std::atomic<int> wrong{0};
    std::mutex mutex;
    std::string first; /* error */
    auto note = [&](int rank, bool failed) {
        std::lock_guard<std::mutex> lock(mutex);
        wrong += failed;
        if (failed && first.empty())
            first = "rank " + std::to_string(rank) + ": " + rf_last_error()->message;
    };
    on_many_threads(size, [&](int rank) {
        auto mark = [&](int i) {
            pthread_barrier_wait(&together);
            if (rank == 0)
                marks[(size_t)i] = (double)rf_now_ns() * 1e-9;
        };
        mark(0);
        Member m = join(url, rank, size, nullptr, 100);
        note(rank, m.status < 0);
        mark(1);
        std::vector<unsigned char> mine(bytes, (unsigned char)(rank * 7 + 1)), all(bytes * size);
        for (int time = 0; time < 3 && m.status == 0; time++) {
            int rc = m.c->ops->all_gather(m.c, mine.data(), bytes, all.data(), 100);
            note(rank, rc < 0);
            for (int r = 0; r < size && rc == 0; r++)
                wrong += all[(size_t)(r + 1) * bytes - 1] != (unsigned char)(r * 7 + 1);
        }
        mark(2);
        if (rank == 0)
            files = open_files();
        pthread_barrier_wait(&together);
        if (m.status == 0)
            m.c->ops->leave(m.c, 100);
        mark(3);
    });
    pthread_barrier_destroy(&together);
    EXPECT_EQ(wrong, 0) << first;
    return {marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2], files};
}

// Received and sent by rank 0, with the 16 bytes of each frame.
double megabytes(int size, size_t bytes)
{
    const double ranks = size, gather = ranks * (16.0 + (double)bytes) * 3;
    return 1e-6 * (ranks * (76 + 48 + 4 * 16 + 16) + gather + gather * ranks);
}

void measure(int size, size_t bytes)
{
    Times t = bootstrap(size, bytes);
    printf("%5d ranks: joined in %.3f s, three gathers of %zu B %.3f s, left in %.3f s, "
           "%d files, rank 0 %.1f MB\n",
           size, t.join, bytes, t.gather, t.leave, t.files, megabytes(size, bytes));
}

// Data that all ranks know of all others are in memory once per rank, several times.
constexpr int LONG_GATHERS = 2048;

TEST(ManyRanks, JoinGatherAndLeave)
{
    const char *wanted = getenv("RF_RANKS");
    const int all = getenv("RF_TEST_ALL") ? 4096 : 256;
    const int most = wanted ? atoi(wanted) : all;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int size = wanted ? most : 64; size <= most; size *= 2)
        if (files.rlim_cur < (rlim_t)size * 4 + 200)
            printf("%5d ranks: only %llu files may be open\n", size,
                   (unsigned long long)files.rlim_cur);
        else
            measure(size, size > LONG_GATHERS ? 16 : 128);
}

// Rank 0 and others run out of files at some time of joining: every rank ends, and one of the
// reasons names the limit.
TEST(ManyRanks, WithoutFilesTheLimitIsNamed)
{
    struct rlimit before, few;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)open_files() + 140;
    constexpr int SIZE = 64; // each needs 3
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string url = tcp_url(free_port());
    std::atomic<int> failed{0}, named{0};
    on_many_threads(SIZE, [&](int rank) {
        Member m = join(url, rank, SIZE, nullptr, 3);
        failed += m.status < 0;
        named += m.message.find("RLIMIT") != m.message.npos ||
                 m.message.find("ulimit -n") != m.message.npos;
        if (m.status == 0)
            m.c->ops->leave(m.c, 3);
    });
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_GT(failed, 0);
    EXPECT_GT(named, 0);
}

} // namespace
