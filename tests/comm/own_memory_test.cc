/* SPDX-License-Identifier: MIT
 *
 * Ranks that read each other's memory, as processes: conditions that forbid it (a process that is
 * not dumpable, from the start or later in a job), and buffers that are unmapped while they are
 * read. The correctness of results on every path is tested by the matrices of the other tests.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <numeric>

#include "support/ranks.h"

namespace
{

const size_t COUNT = 1 << 20;

bool starts(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

/* An ordinary user, whose processes may read each other if they are dumpable. */
void become_user(bool dumpable)
{
    if (geteuid() == 0) {
        ASSERT_EQ(setresgid(65534, 65534, 65534), 0);
        ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
    }
    ASSERT_EQ(prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0), 0);
}

/* The first element that is not i * slope + first; COUNT if there is none. An assertion for each
 * element takes minutes under a sanitizer on a busy machine. */
size_t first_wrong(const int32_t *data, int32_t slope, int32_t first)
{
    size_t i = 0;
    while (i < COUNT && data[i] == (int32_t)i * slope + first)
        i++;
    return i;
}

void expect_sums(rf_comm *comm)
{
    const int ranks = rf_comm_size(comm);
    std::vector<int32_t> in(COUNT), out(COUNT);
    std::iota(in.begin(), in.end(), rf_comm_rank(comm));
    ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), COUNT, RF_I32, RF_SUM, nullptr), RF_OK)
        << rf_last_error()->message;
    ASSERT_EQ(first_wrong(out.data(), ranks, ranks * (ranks - 1) / 2), COUNT);
}

ranks::World world_of(int size, const char *reads)
{
    ranks::World world;
    world.provider = "shm";
    world.size = size;
    world.reads = reads;
    return world;
}

} // namespace

TEST(OwnMemory, ARankThatMayNotBeReadMakesAllUseSlots)
{
    for (int shy : {0, 1, 2}) {
        ranks::World world = world_of(3, "1");
        world.before = [shy](int rank) { become_user(rank != shy); };
        ranks::run(world, [](rf_comm *comm, int) {
            EXPECT_TRUE(starts(rf_comm_own_memory(comm), "slots, ")) << rf_comm_own_memory(comm);
            EXPECT_NE(strstr(rf_comm_own_memory(comm), "not every rank"), nullptr);
            expect_sums(comm);
        });
    }
}

TEST(OwnMemory, OneRankThatRefusesIsEnough)
{
    ranks::World world = world_of(3, "");
    world.before = [](int rank) { setenv("RF_PEER_READS", rank == 1 ? "0" : "1", 1); };
    ranks::run(world, [](rf_comm *comm, int) {
        EXPECT_TRUE(starts(rf_comm_own_memory(comm), "slots")) << rf_comm_own_memory(comm);
        expect_sums(comm);
    });
}

TEST(OwnMemory, ARankThatIsForbiddenLaterIsServedThroughSlots)
{
    ranks::World world = world_of(3, "1");
    world.before = [](int) { become_user(true); };
    ranks::run(world, [](rf_comm *comm, int rank) {
        expect_sums(comm);
        ASSERT_EQ(prctl(PR_SET_DUMPABLE, rank == 1 ? 0 : 1), 0);
        ASSERT_EQ(rf_barrier(comm, nullptr), RF_OK);
        expect_sums(comm);
        expect_sums(comm);
    });
}

TEST(OwnMemory, ABufferThatVanishesIsAnErrorOnAllRanks)
{
    for (bool unmapped : {false, true})
        ranks::run(world_of(3, "1"), [unmapped](rf_comm *comm, int rank) {
            const size_t bytes = COUNT * 4;
            void *memory =
                mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            ASSERT_NE(memory, MAP_FAILED);
            if (!starts(rf_comm_own_memory(comm), "peer reads"))
                return;
            char *hole = static_cast<char *>(memory) + bytes / 2;
            if (rank == 0) {
                ASSERT_EQ(unmapped ? munmap(hole, 4096) : mprotect(hole, 4096, PROT_NONE), 0);
            }
            EXPECT_LT(rf_broadcast(comm, memory, COUNT, RF_F32, 0, nullptr), 0);
            EXPECT_NE(strstr(rf_last_error()->message, "can no longer be read"), nullptr)
                << rf_last_error()->message;
            munmap(memory, bytes);
        });
}

namespace
{

void *vanishing;

/* Broadcasts until the root's buffer is unmapped: each call either succeeds or fails on all ranks.
 */
void broadcast_until_gone(rf_comm *comm, int rank, void (*handler)(int))
{
    const size_t bytes = COUNT * 4;
    vanishing = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(vanishing, MAP_FAILED);
    auto *data = static_cast<int32_t *>(vanishing);
    if (rank == 0)
        std::iota(data, data + COUNT, 7);
    if (rank == 0) {
        signal(SIGALRM, handler);
        ualarm(20000, 0);
    }
    int rc = 0;
    while (rc == 0) {
        if (rank != 0)
            memset(data, 0, bytes);
        rc = rf_broadcast(comm, data, COUNT, RF_I32, 0, nullptr);
        if (rc == 0 && rank != 0) {
            ASSERT_EQ(first_wrong(data, 1, 7), COUNT);
        }
    }
    EXPECT_LT(rc, 0);
}

} // namespace

TEST(OwnMemory, ABufferThatVanishesWhileItIsReadGivesAnErrorOrTheData)
{
    ranks::run(world_of(3, "1"), [](rf_comm *comm, int rank) {
        if (starts(rf_comm_own_memory(comm), "peer reads"))
            broadcast_until_gone(comm, rank,
                                 [](int) { mprotect(vanishing, COUNT * 4, PROT_NONE); });
    });
}

TEST(OwnMemory, ARankThatIsKilledWhileItIsReadIsNamed)
{
    ranks::World world = world_of(3, "1");
    world.expect_killed = 0;
    ranks::run(world, [](rf_comm *comm, int rank) {
        broadcast_until_gone(comm, rank, [](int) { raise(SIGKILL); });
        EXPECT_EQ(rf_last_error()->status, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 0) << rf_last_error()->message;
    });
}

namespace
{

/* Each rank sends every other one a part of its data, or all of them. */
int exchange(rf_comm *comm, bool to_all, int32_t salt)
{
    const size_t ranks = (size_t)rf_comm_size(comm), part = COUNT / 4;
    const int32_t rank = rf_comm_rank(comm);
    std::vector<int32_t> in(to_all ? ranks * part : part), out(ranks * part);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (int32_t)i * 16 + rank + salt;
    const int rc = to_all ? rf_all_to_all(comm, in.data(), out.data(), part, RF_I32, nullptr)
                          : rf_all_gather(comm, in.data(), out.data(), part, RF_I32, nullptr);
    for (size_t i = 0; rc == 0 && i < out.size(); i++) {
        const size_t at = i % part + (to_all ? (size_t)rank * part : 0);
        const int32_t want = (int32_t)at * 16 + (int32_t)(i / part) + salt;
        if (out[i] != want)
            return ADD_FAILURE() << i << ": " << out[i] << ", not " << want, -1;
    }
    return rc;
}

} // namespace

TEST(OwnMemory, ExchangesAreRightAlsoWhereReadsAreForbiddenLater)
{
    for (int size : {2, 3}) {
        ranks::World world = world_of(size, "exchanges");
        world.before = [](int) { become_user(true); };
        ranks::run(world, [](rf_comm *comm, int rank) {
            EXPECT_TRUE(starts(rf_comm_own_memory(comm), "slots, ")) << rf_comm_own_memory(comm);
            for (int i = 0; i < 4; i++) {
                ASSERT_EQ(exchange(comm, i % 2 == 0, i), RF_OK) << rf_last_error()->message;
                expect_sums(comm);
                if (i == 1) {
                    ASSERT_EQ(prctl(PR_SET_DUMPABLE, rank == 1 ? 0 : 1), 0);
                }
            }
        });
    }
}

TEST(OwnMemory, ARankThatIsKilledInAnExchangeIsNamed)
{
    ranks::World world = world_of(3, "exchanges");
    world.expect_killed = 0;
    ranks::run(world, [](rf_comm *comm, int rank) {
        if (rank == 0) {
            signal(SIGALRM, [](int) { raise(SIGKILL); });
            ualarm(20000, 0);
        }
        int rc = 0;
        for (int i = 0; rc == 0; i++)
            rc = exchange(comm, true, i);
        EXPECT_EQ(rc, RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 0) << rf_last_error()->message;
    });
}
