// SPDX-License-Identifier: MIT
//
// The choice of transport: shared memory on one host, a hybrid of memory and network on several,
// and the network if a rank cannot share memory.
#include "shm_helpers.h"

#include <sched.h>
#include <sys/resource.h>

using namespace shm;

namespace
{

struct Choice {
    int rc = 1;
    bool yields = false; // a waiting rank yields its core
    std::string name, why, message;
};
// The choice of each rank for its wanted provider; runs `before` on it once it has joined.
std::vector<Choice> choose(const std::vector<const char *> &wanted,
                           const std::function<void(int)> &before = nullptr)
{
    int size = (int)wanted.size();
    std::string url = tcp_url(free_port());
    Processes processes;
    int pipes[8][2];
    for (int rank = 0; rank < size; rank++)
        EXPECT_EQ(pipe(pipes[rank]), 0);
    processes.start(size, [&](int rank) {
        Member m = join(url, rank, size);
        if (before)
            before(rank);
        rf_transport *t = nullptr;
        char why[256] = "", text[1200];
        int rc = rf_transport_create(m.c, wanted[(size_t)rank], &t, why, sizeof why);
        int yields = rc == 0 && t->yield && t->ops->idle && t->ops->idle(t);
        int bytes = snprintf(text, sizeof text, "%d\n%d\n%s\n%s\n%.400s", rc, yields,
                             rc < 0 ? "" : t->name, why, rc < 0 ? rf_last_error()->message : "");
        int written = (int)write(pipes[rank][1], text, (size_t)bytes);
        if (rc == 0)
            t->ops->destroy(t);
        m.c->ops->leave(m.c, 5);
        return written == bytes ? 0 : 1;
    });
    std::vector<Choice> all;
    for (int rank = 0; rank < size; rank++) {
        EXPECT_EQ(processes.wait(rank), 0);
        char text[1200] = "";
        EXPECT_GT(read(pipes[rank][0], text, sizeof text - 1), 0);
        Choice choice;
        std::string parts[4];
        std::string rest = text;
        for (int i = 0; i < 4; i++) {
            parts[i] = rest.substr(0, rest.find('\n'));
            rest = rest.substr(rest.find('\n') + 1);
        }
        choice = {atoi(parts[0].c_str()), parts[1] == "1", parts[2], parts[3], rest};
        all.push_back(choice);
        close(pipes[rank][0]);
        close(pipes[rank][1]);
    }
    return all;
}

} // namespace

TEST(ShmChoice, RanksOfOneHostShareMemoryUnlessTheyAskForSomethingElse)
{
    for (const char *wanted : {(const char *)nullptr, "auto", "shm"})
        for (const Choice &choice : choose({wanted, wanted, wanted})) {
            EXPECT_EQ(choice.rc, 0) << choice.message;
            EXPECT_EQ(choice.name, "shm");
            EXPECT_TRUE(has(choice.why, "memory that the ranks share")) << choice.why;
        }
    for (const Choice &choice : choose({"tcp", "tcp"}))
        EXPECT_EQ(choice.name, "tcp");
}

TEST(ShmChoice, RanksThatAskForDifferentThingsAreNamed)
{
    for (const Choice &choice : choose({"tcp", "shm"})) {
        EXPECT_EQ(choice.rc, RF_EINVAL);
        EXPECT_TRUE(has(choice.message, "rank 1 asks for provider shm, rank 0 for tcp"))
            << choice.message;
    }
}

static void forbid_files(int rank)
{
    if (rank != 1)
        return;
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
}

TEST(ShmChoice, WhereOneRankCannotShareAllTakeTheNetworkAndSayWhy)
{
    for (const Choice &choice : choose({nullptr, "auto", nullptr}, forbid_files)) {
        EXPECT_EQ(choice.rc, 0) << choice.message;
        EXPECT_EQ(choice.name, "tcp");
        EXPECT_TRUE(has(choice.why, "not shm: ")) << choice.why;
    }
}

TEST(ShmChoice, WhereItIsDemandedAndOneRankCannotShareAllFailAndSayWhy)
{
    for (const Choice &choice : choose({"shm", "shm", nullptr}, forbid_files)) {
        EXPECT_EQ(choice.rc, RF_EINVAL);
        EXPECT_TRUE(has(choice.message, "segment")) << choice.message;
    }
}

// ---- several hosts ----------------------------------------------------------------------------

static std::vector<Choice> choose_on(const char *hosts, const std::vector<const char *> &wanted,
                                     const std::function<void(int)> &before = nullptr)
{
    setenv("RF_HOSTS", hosts, 1);
    std::vector<Choice> all = choose(wanted, before);
    unsetenv("RF_HOSTS");
    return all;
}

TEST(HybridChoice, MemoryIsSharedWithinEachHostAndTheNetworkIsBetween)
{
    for (const char *wanted : {(const char *)nullptr, "shm+tcp", "shm+ofi-tcp"})
        for (const char *hosts : {"a,b,b", "a,b,a", "a,a,b"})
            for (const Choice &choice : choose_on(hosts, {wanted, wanted, wanted})) {
                EXPECT_EQ(choice.rc, 0) << choice.message;
                EXPECT_EQ(choice.name, wanted && has(wanted, "ofi") ? "shm+ofi-tcp" : "shm+tcp");
                EXPECT_TRUE(has(choice.why, "within each of 2 hosts; between them")) << choice.why;
            }
}

static void use_two_cores(int)
{
    cpu_set_t mine, two;
    sched_getaffinity(0, sizeof mine, &mine);
    CPU_ZERO(&two);
    for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; core++)
        if (CPU_ISSET(core, &mine))
            CPU_SET(core, &two);
    sched_setaffinity(0, sizeof two, &two);
}

// Containers share the cores of their machine: two ranks in each of two have two cores in all. A
// rank that keeps its core takes it from one that others wait for.
TEST(HybridChoice, RanksYieldWhereThoseOfAllContainersOutnumberTheCores)
{
    for (const Choice &choice :
         choose_on("a,a,b,b", {nullptr, nullptr, nullptr, nullptr}, use_two_cores)) {
        EXPECT_EQ(choice.name, "shm+tcp") << choice.message;
        EXPECT_TRUE(choice.yields);
    }
}

TEST(HybridChoice, WhoNamesNoneTakesWhatOthersName)
{
    for (const Choice &choice : choose_on("a,b,b", {"shm+tcp;ofi_rxm", nullptr, nullptr}))
        EXPECT_EQ(choice.name, "shm+tcp;ofi_rxm") << choice.message;
    for (const Choice &choice : choose_on("a,a,a", {nullptr, "tcp", nullptr}))
        EXPECT_EQ(choice.name, "tcp") << choice.message;
    for (const Choice &choice : choose_on("a,b,b", {"shm+ofi-tcp", nullptr, "shm+tcp"}))
        EXPECT_TRUE(choice.rc == RF_EINVAL && has(choice.message, "shm+ofi-tcp")) << choice.message;
}

TEST(HybridChoice, OnlyWhatALayoutNeedsIsOpened)
{
    for (const char *wanted : {(const char *)nullptr, "shm+tcp"}) {
        for (const Choice &choice : choose_on("a,b,c", {wanted, wanted, wanted}))
            EXPECT_TRUE(choice.rc == 0 && choice.name == "tcp") << choice.name << choice.message;
        for (const Choice &choice : choose_on("a,a,a", {wanted, wanted, wanted}))
            EXPECT_TRUE(choice.rc == 0 && choice.name == "shm") << choice.name << choice.message;
    }
    for (const char *wanted : {"tcp", "shm"})
        for (const Choice &choice : choose_on("a,b,b", {wanted, wanted, wanted}))
            EXPECT_TRUE(has(choice.why, "as asked for")) << choice.why << choice.message;
}

TEST(HybridChoice, WhereAHostsRanksCannotShareAllTakeTheNetworkOrFail)
{
    for (const Choice &choice : choose_on("a,b,b", {nullptr, nullptr, nullptr}, forbid_files)) {
        EXPECT_TRUE(choice.rc == 0 && choice.name == "tcp") << choice.message;
        EXPECT_TRUE(has(choice.why, "not shm: rank 1: shm: a segment")) << choice.why;
    }
    for (const Choice &choice : choose_on("a,b,b", {"shm+tcp", nullptr, nullptr}, forbid_files)) {
        EXPECT_EQ(choice.rc, RF_EINVAL);
        EXPECT_TRUE(has(choice.message, "segment")) << choice.message;
    }
    for (const Choice &choice : choose_on("a,b,b", {"shm+tcp", "shm", nullptr}))
        EXPECT_TRUE(has(choice.message, "rank 1 asks for provider shm, rank 0 for shm+tcp"))
            << choice.message;
}

// A network namespace has UNIX sockets of its own, over which no descriptor can be passed.
TEST(ShmChoice, RanksThatCannotHandMemoryToEachOtherAreNotOnOneHost)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(3, [&](int rank) {
        Member m = join(url, rank, 3);
        char can = rank == 1 ? unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 : 1, all[3];
        if (m.c->ops->all_gather(m.c, &can, 1, all, 60) < 0)
            return 1;
        int code = 77;
        if (all[1]) {
            rf_transport *t = nullptr;
            uint64_t start = rf_now_ns();
            int rc = rf_shm_create(m.c, &everybody, &t);
            bool quick = rf_now_ns() - start < 20000000000u;
            code = rc == RF_ENOTSUP && quick && has(rf_last_error()->message, "rank 1") ? 0 : 1;
        }
        m.c->ops->leave(m.c, 5);
        return code;
    });
    int codes[3];
    for (int rank = 0; rank < 3; rank++)
        codes[rank] = processes.wait(rank);
    if (codes[0] == 77)
        GTEST_SKIP() << "no network namespace can be made here";
    for (int code : codes)
        EXPECT_EQ(code, 0);
}
