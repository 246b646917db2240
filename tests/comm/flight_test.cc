/* SPDX-License-Identifier: MIT
 *
 * The flight recorder: the files after a clean run, a disagreement and a death, and how a reader
 * handles damaged ones.
 */
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringforge/flight.h>
#include <ringforge/ringforge.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "support/ranks.h"

namespace
{

class Flight : public testing::TestWithParam<ranks::World>
{
  protected:
    void SetUp() override
    {
        folder = testing::TempDir() + "flight-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        setenv("RF_FLIGHT", folder.c_str(), 1);
    }
    void TearDown() override
    {
        unsetenv("RF_FLIGHT");
        for (const std::string &file : files())
            unlink(file.c_str());
        rmdir(folder.c_str());
    }
    std::vector<std::string> files() const
    {
        std::vector<std::string> names;
        DIR *dir = opendir(folder.c_str());
        for (dirent *item = readdir(dir); item; item = readdir(dir))
            if (item->d_name[0] != '.')
                names.push_back(folder + "/" + item->d_name);
        closedir(dir);
        return names;
    }
    /* The last call of each rank. */
    std::map<int, rf_flight_call> last_calls(int size) const
    {
        std::map<int, rf_flight_call> last;
        std::string job;
        for (const std::string &file : files()) {
            rf_flight *flight = nullptr;
            EXPECT_EQ(rf_flight_read(file.c_str(), &flight), RF_OK) << rf_last_error()->message;
            if (!flight)
                continue;
            EXPECT_EQ(flight->size, size);
            EXPECT_TRUE(job.empty() || job == flight->job);
            job = flight->job;
            EXPECT_GT(flight->count, 0u);
            for (size_t i = 1; i < flight->count; i++)
                EXPECT_EQ(flight->calls[i].contract.sequence,
                          flight->calls[i - 1].contract.sequence + 1);
            if (flight->count)
                last[flight->rank] = flight->calls[flight->count - 1];
            rf_flight_free(flight);
        }
        EXPECT_EQ(last.size(), (size_t)size);
        return last;
    }

    /* The number of calls in its file. */
    size_t calls_of(int rank) const
    {
        const std::string end = "-" + std::to_string(rank) + ".flight";
        for (const std::string &file : files()) {
            rf_flight *flight = nullptr;
            if (file.rfind(end) != file.size() - end.size() ||
                rf_flight_read(file.c_str(), &flight) < 0)
                continue;
            const size_t count = flight->count;
            rf_flight_free(flight);
            return count;
        }
        return 0;
    }

    std::string folder;
};

int all_reduce(rf_comm *comm, size_t count, const char *label = nullptr)
{
    static thread_local float data[4096];
    rf_coll_opts opts = {};
    opts.label = label;
    return rf_all_reduce(comm, data, data, count, RF_F32, RF_SUM, &opts);
}

TEST_P(Flight, KeepsTheLastCallsOfEveryRank)
{
    ranks::World world = GetParam();
    ranks::run(world, [](rf_comm *comm, int) {
        for (int i = 0; i < 1500; i++) /* more than once round the ring */
            ASSERT_EQ(all_reduce(comm, 1 + (size_t)i % 7), RF_OK);
        ASSERT_EQ(all_reduce(comm, 17, "the last"), RF_OK);
    });
    for (const auto &[rank, call] : last_calls(world.size)) {
        EXPECT_EQ(call.contract.sequence, 1500u);
        EXPECT_EQ(call.contract.count, 17u);
        EXPECT_STREQ(call.contract.label, "the last");
        EXPECT_EQ(call.status, RF_OK);
        EXPECT_GE(call.ended_ns, call.started_ns);
        char text[160];
        EXPECT_STREQ(rf_contract_text(&call.contract, text, sizeof(text)),
                     "all_reduce(17 f32 sum) at \"the last\"");
    }
}

TEST_P(Flight, ShowsWhoCalledSomethingElse)
{
    ranks::World world = GetParam();
    ranks::run(world, [](rf_comm *comm, int rank) {
        ASSERT_EQ(all_reduce(comm, 5), RF_OK);
        int rc = all_reduce(comm, rank == 1 ? 1001 : 1000);
        if (rc == RF_OK)
            rc = rf_barrier(comm, nullptr);
        EXPECT_EQ(rc, RF_EMISMATCH);
    });
    int examined = 0;
    for (const auto &[rank, call] : last_calls(world.size)) {
        if (call.contract.sequence == 1) { /* otherwise it reached the barrier */
            examined++;
            EXPECT_EQ(call.contract.count, rank == 1 ? 1001u : 1000u);
            EXPECT_EQ(call.status, RF_EMISMATCH);
        }
    }
    EXPECT_GT(examined, 0);
}

TEST_P(Flight, SurvivesAKillInTheMidstOfACall)
{
    ranks::World world = GetParam();
    if (world.provider == "loopback")
        GTEST_SKIP() << "threads cannot be killed";
    world.expect_killed = 1;
    const std::string lock = testing::TempDir() + "flight-lock-" + std::to_string(getpid());
    ranks::run(world, [&](rf_comm *comm, int rank) {
        const int file = open(lock.c_str(), O_RDWR | O_CREAT, 0600); /* one of its own */
        if (rank == 1) {
            ASSERT_EQ(flock(file, LOCK_EX), 0);
        }
        for (int i = 0; i < 10; i++)
            ASSERT_EQ(all_reduce(comm, 4), RF_OK);
        if (rank == 1) {
            std::thread killer([&] {
                while (calls_of(1) != 11)
                    usleep(1000);
                raise(SIGKILL);
            });
            all_reduce(comm, 4); /* the others do not call it */
        }
        ASSERT_EQ(flock(file, LOCK_SH), 0); /* until it has ended */
        /* Sending to a dead rank may crash in tcp;ofi_rxm of libfabric 1.17: by then the death is
         * usually known. */
        usleep(300000);
        int rc = RF_OK; /* the first call may need no more than rank 1 has sent */
        for (int i = 0; i < 2 && rc == RF_OK; i++)
            rc = all_reduce(comm, 4);
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        close(file);
    });
    unlink(lock.c_str());
    std::map<int, rf_flight_call> last = last_calls(world.size);
    EXPECT_EQ(last[1].contract.sequence, 10u);
    EXPECT_EQ(last[1].ended_ns, 0);
    EXPECT_EQ(last[0].status, RF_EPEER);
}

TEST_P(Flight, DamagedFilesAreRefusedOrReadWithoutHarm)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) { ASSERT_EQ(all_reduce(comm, 4), RF_OK); });
    std::string victim = files().at(0), bytes;
    {
        std::ifstream in(victim, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    auto write = [&](const std::string &text) {
        std::ofstream(victim, std::ios::binary | std::ios::trunc) << text;
        rf_flight *flight = nullptr;
        int rc = rf_flight_read(victim.c_str(), &flight);
        rf_flight_free(flight);
        return rc;
    };
    EXPECT_EQ(write(""), RF_ECORRUPT);
    EXPECT_EQ(write(bytes.substr(0, bytes.size() - 1)), RF_ECORRUPT);
    EXPECT_EQ(write(bytes + "x"), RF_ECORRUPT);
    std::mt19937 random(1);
    for (int i = 0; i < 2000; i++) {
        std::string damaged = bytes;
        for (int k = 0; k < 8; k++) /* mostly at used places */
            damaged[random() % (k % 2 ? 1024 : damaged.size())] = (char)random();
        int rc = write(damaged);
        EXPECT_TRUE(rc == RF_OK || rc == RF_ECORRUPT);
    }
    EXPECT_EQ(rf_flight_read("/nonexistent", nullptr), RF_EINVAL);
    rf_flight *flight = nullptr;
    EXPECT_EQ(rf_flight_read("/nonexistent", &flight), RF_EIO);
}

INSTANTIATE_TEST_SUITE_P(All, Flight, testing::ValuesIn(ranks::worlds({3}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
