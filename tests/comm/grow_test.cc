/* SPDX-License-Identifier: MIT
 *
 * Newcomers: a job and processes from outside form a larger communicator that works. Whatever
 * newcomers do before they are members, the job's own communicator continues. Ranks are threads
 * here that join over TCP, as processes would.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "transport/job_helpers.h"

extern "C" int rf_comm_follow(rf_comm *comm, int status, bool flushes); /* communicator.h */

namespace
{

const char KEY[] = "key of the grow test";

rf_comm_opts options(int rank, int size)
{
    rf_comm_opts opts{};
    opts.rank = rank;
    opts.size = size;
    opts.key = KEY;
    opts.timeout_s = 20;
    opts.start_timeout_s = 20;
    return opts;
}

void expect_sum(rf_comm *comm, int ranks)
{
    ASSERT_EQ(rf_comm_size(comm), ranks);
    int32_t in = rf_comm_rank(comm) + 1, all = -1;
    ASSERT_EQ(rf_all_reduce(comm, &in, &all, 1, RF_I32, RF_SUM, nullptr), RF_OK)
        << rf_last_error()->message;
    EXPECT_EQ(all, ranks * (ranks + 1) / 2);
}

/* The join listener of a job whose ranks are threads: rank 0 opens it, newcomers read the port. */
struct JoinListener {
    rf_join_listener *join_listener = nullptr;
    std::atomic<int> port{0};
    void open(rf_comm *comm, const char *terms)
    {
        if (rf_comm_rank(comm) != 0)
            return;
        ASSERT_EQ(rf_join_listener_open(comm, 0, KEY, terms, &join_listener), RF_OK)
            << rf_last_error()->message;
        port = rf_join_listener_port(join_listener);
    }
    void wait_for(int newcomers)
    {
        while (join_listener && rf_join_listener_waiting(join_listener) < newcomers)
            std::this_thread::yield();
    }
    std::string url()
    {
        while (port == 0)
            std::this_thread::yield();
        return "tcp://127.0.0.1:" + std::to_string(port);
    }
    void close()
    {
        rf_join_listener_close(join_listener, "the job has ended");
        join_listener = nullptr;
    }
};

/* Runs a job of `size` ranks and newcomers. */
void run(int size, const std::function<void(rf_comm *)> &job, int newcomers,
         const std::function<void(int)> &newcomer)
{
    const std::string url = job::tcp_url(free_port());
    job::on_threads(size + newcomers, [&](int r) {
        if (r >= size) {
            newcomer(r - size);
            return;
        }
        const rf_comm_opts opts = options(r, size);
        rf_comm *comm = nullptr;
        ASSERT_EQ(rf_comm_open(size > 1 ? url.c_str() : "self:", &opts, &comm), RF_OK)
            << rf_last_error()->message;
        job(comm);
        EXPECT_EQ(rf_comm_close(comm), RF_OK) << rf_last_error()->message;
    });
}

int join(const std::string &url, const char *terms, rf_comm **out,
         std::string *progress_texts = nullptr, const char *provider = nullptr)
{
    rf_join_opts opts{};
    opts.comm = options(0, 0);
    opts.comm.provider = provider;
    opts.terms = terms;
    opts.note = [](void *user, const char *text) {
        if (user)
            *static_cast<std::string *>(user) += std::string(text) + "\n";
    };
    opts.user = progress_texts;
    return rf_comm_join(url.c_str(), &opts, out);
}

int grow(rf_comm *comm, JoinListener &join_listener, int count, double timeout_s, rf_comm **out)
{
    rf_comm_opts opts = options(0, 0);
    opts.start_timeout_s = timeout_s;
    return rf_comm_grow(comm, rf_comm_rank(comm) == 0 ? join_listener.join_listener : nullptr,
                        count, &opts, out);
}

} // namespace

TEST(Grow, AJobOfAnySizeAndItsNewcomersComeToACommunicatorThatWorksAndTheOldOneGoesOn)
{
    for (int size = 1; size <= 3; size++) {
        JoinListener join_listener;
        run(
            size,
            [&](rf_comm *comm) {
                join_listener.open(comm, "model=a\n");
                rf_comm *larger = nullptr;
                if (rf_comm_rank(comm) == 0)
                    join_listener.wait_for(2);
                /* Newcomers adopt the settings of the job's devices. */
                ASSERT_EQ(rf_comm_follow(comm, 0, rf_comm_rank(comm) == 0 && size > 1), RF_OK)
                    << rf_last_error()->message;
                ASSERT_EQ(grow(comm, join_listener, 2, 20, &larger), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(rf_comm_rank(larger), rf_comm_rank(comm));
                EXPECT_EQ(rf_comm_flushes_subnormals(larger), size > 1);
                expect_sum(larger, size + 2);
                expect_sum(comm, size);
                if (rf_comm_rank(comm) == 0)
                    join_listener.close();
                EXPECT_EQ(rf_comm_close(larger), RF_OK) << rf_last_error()->message;
            },
            2,
            [&](int) {
                rf_comm *comm = nullptr;
                ASSERT_EQ(join(join_listener.url(), "model=a\n", &comm), RF_OK)
                    << rf_last_error()->message;
                EXPECT_GE(rf_comm_rank(comm), size);
                EXPECT_EQ(rf_comm_flushes_subnormals(comm), size > 1);
                expect_sum(comm, size + 2);
                EXPECT_EQ(rf_comm_close(comm), RF_OK) << rf_last_error()->message;
            });
    }
}

TEST(Grow, ANewcomerThatIsCalledAndDoesNotComeIsNamedAndTheOthersAreTakenInTheNextTime)
{
    JoinListener join_listener;
    std::atomic<bool> first{false};
    std::string progress_texts;
    run(
        2,
        [&](rf_comm *comm) {
            join_listener.open(comm, "");
            rf_comm *larger = nullptr;
            if (rf_comm_rank(comm) == 0)
                join_listener.wait_for(2);
            EXPECT_EQ(grow(comm, join_listener, 2, 0.5, &larger), RF_EAGAIN);
            EXPECT_EQ(larger, nullptr);
            if (rf_comm_rank(comm) == 0) {
                EXPECT_NE(std::string(rf_last_error()->message)
                              .find("rank 2 did not join within 0.5 s (3 of 4 are here)"),
                          std::string::npos)
                    << rf_last_error()->message;
            }
            expect_sum(comm, 2);
            if (rf_comm_rank(comm) == 0)
                join_listener.wait_for(1);
            ASSERT_EQ(grow(comm, join_listener, 1, 20, &larger), RF_OK) << rf_last_error()->message;
            expect_sum(larger, 3);
            if (rf_comm_rank(comm) == 0)
                join_listener.close();
            EXPECT_EQ(rf_comm_close(larger), RF_OK) << rf_last_error()->message;
        },
        2,
        [&](int n) {
            if (n == 0) { /* waits, and does nothing more when called */
                const std::string url = join_listener.url();
                const std::string terms = "ringforge=" + std::string(rf_version()) + "\n";
                rf_join_request request{};
                request.url = url.c_str();
                request.key = KEY;
                request.terms = terms.c_str();
                request.timeout_s = 20;
                request.user = &first;
                rf_invitation invitation;
                std::thread tell([&] {
                    while (rf_join_listener_waiting(join_listener.join_listener) < 1)
                        std::this_thread::yield();
                    first = true;
                });
                EXPECT_EQ(rf_newcomer_wait(&request, &invitation), RF_OK)
                    << rf_last_error()->message;
                EXPECT_EQ(invitation.rank, 2);
                tell.join();
                return;
            }
            while (!first)
                std::this_thread::yield();
            rf_comm *comm = nullptr;
            ASSERT_EQ(join(join_listener.url(), "", &comm, &progress_texts), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(rf_comm_rank(comm), 2);
            expect_sum(comm, 3);
            EXPECT_EQ(rf_comm_close(comm), RF_OK) << rf_last_error()->message;
        });
    EXPECT_NE(progress_texts.find("the job went on without this process, which asks again"),
              std::string::npos)
        << progress_texts;
}

TEST(Grow, WithFewerNewcomersThanAskedForNobodyIsCalledAndNothingChanges)
{
    JoinListener join_listener;
    std::atomic<bool> ended{false};
    run(
        2,
        [&](rf_comm *comm) {
            join_listener.open(comm, "");
            rf_comm *larger = nullptr;
            if (rf_comm_rank(comm) == 0)
                join_listener.wait_for(1);
            EXPECT_EQ(grow(comm, join_listener, 2, 20, &larger), RF_EAGAIN);
            EXPECT_NE(std::string(rf_last_error()->message).find("1 of 2 newcomers answer"),
                      std::string::npos)
                << rf_last_error()->message;
            expect_sum(comm, 2);
            if (rf_comm_rank(comm) == 0) {
                EXPECT_EQ(rf_join_listener_waiting(join_listener.join_listener), 1);
                join_listener.close();
            }
        },
        1,
        [&](int) {
            rf_comm *comm = nullptr;
            EXPECT_EQ(join(join_listener.url(), "", &comm), RF_EPEER);
            EXPECT_STREQ(rf_last_error()->message, "rank 0 says: the job has ended");
        });
}

TEST(Grow, ANewcomerThatAsksForAnotherProviderIsToldAndTheJobGoesOn)
{
    JoinListener join_listener;
    run(
        2,
        [&](rf_comm *comm) {
            join_listener.open(comm, "");
            rf_comm_opts opts = options(0, 0);
            opts.provider = "shm";
            rf_comm *larger = nullptr;
            if (rf_comm_rank(comm) == 0)
                join_listener.wait_for(1);
            EXPECT_EQ(rf_comm_grow(comm, join_listener.join_listener, 1, &opts, &larger),
                      RF_EAGAIN);
            expect_sum(comm, 2);
            if (rf_comm_rank(comm) == 0)
                join_listener.close();
        },
        1,
        [&](int) {
            rf_comm *comm = nullptr;
            EXPECT_EQ(join(join_listener.url(), "", &comm, nullptr, "tcp"), RF_EINVAL);
            EXPECT_NE(std::string(rf_last_error()->message).find("provider"), std::string::npos)
                << rf_last_error()->message;
        });
}
