// SPDX-License-Identifier: MIT
//
// Shared memory between ranks of one host: when it is chosen, what is handed over, borrowing, and
// what becomes of a rank whose peer writes nonsense.
#include "job_helpers.h"

#include <memory>
#include <random>
#include <sched.h>
#include <sys/resource.h>

extern "C" {
#include "coll/sched.h"
#include "transport/providers.h"
#include "transport/shm/cpu_affinity.h"
#include "transport/shm/shm.h"
}

using namespace job;
using namespace wire;

namespace
{

// All ranks on one host.
const rf_opening everybody = {};

struct End {
    rf_control *c = nullptr;
    rf_transport *t = nullptr;
    rf_shm *shm() const
    {
        return reinterpret_cast<rf_shm *>(t);
    }
};

// Ranks as threads: each has a segment of its own all the same.
struct World {
    std::vector<End> ends;
    explicit World(int size) : ends((size_t)size)
    {
        std::string url = tcp_url(free_port());
        on_threads(size, [&](int rank) {
            End &end = ends[(size_t)rank];
            Member m = join(url, rank, size);
            EXPECT_EQ(m.status, 0) << m.message;
            end.c = m.c;
            EXPECT_EQ(rf_shm_create(m.c, &everybody, &end.t), 0) << rf_last_error()->message;
        });
    }
    ~World()
    {
        on_threads((int)ends.size(), [&](int rank) {
            End &end = ends[(size_t)rank];
            if (end.t)
                end.t->ops->destroy(end.t);
            end.c->ops->leave(end.c, 5);
        });
    }
    // Lets everybody work until one of `rank`'s posts has ended.
    int next(int rank, rf_completion *done)
    {
        for (int turn = 0; turn < 1000; turn++)
            for (size_t r = 0; r < ends.size(); r++) {
                rf_completion other;
                int got = ends[r].t->ops->poll(ends[r].t, (int)r == rank ? done : &other, 1);
                if ((int)r == rank && got != 0)
                    return got;
            }
        return 0;
    }
    // Polls everybody, so that what is under way ends.
    void settle()
    {
        rf_completion done;
        for (int turn = 0; turn < 100; turn++)
            for (End &end : ends)
                end.t->ops->poll(end.t, &done, 1);
    }
};

struct Choice {
    int rc = 1;
    std::string name, why, message;
};
// What each rank gets that asks for its provider; runs `before` on it once it has joined.
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
        int bytes = snprintf(text, sizeof text, "%d\n%s\n%s\n%.400s", rc, rc < 0 ? "" : t->name,
                             why, rc < 0 ? rf_last_error()->message : "");
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
        for (int i = 0; i < 3; i++) {
            parts[i] = rest.substr(0, rest.find('\n'));
            rest = rest.substr(rest.find('\n') + 1);
        }
        choice = {atoi(parts[0].c_str()), parts[1], parts[2], rest};
        all.push_back(choice);
        close(pipes[rank][0]);
        close(pipes[rank][1]);
    }
    return all;
}

bool has(const std::string &text, const char *part)
{
    return text.find(part) != text.npos;
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
        EXPECT_TRUE(choice.name == "net" || choice.name == "tcp") << choice.name;
}

TEST(ShmChoice, RanksThatAskForDifferentThingsAreNamed)
{
    for (const Choice &choice : choose({"tcp", "shm"})) {
        EXPECT_EQ(choice.rc, RF_EINVAL);
        EXPECT_TRUE(has(choice.message, "rank 1 asks for provider shm, rank 0 for tcp"))
            << choice.message;
    }
}

static void have_no_room(int rank)
{
    if (rank != 1)
        return;
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
}

TEST(ShmChoice, WhereOneRankCannotShareAllTakeTheNetworkAndSayWhy)
{
    for (const Choice &choice : choose({nullptr, "auto", nullptr}, have_no_room)) {
        EXPECT_EQ(choice.rc, 0) << choice.message;
        EXPECT_TRUE(choice.name == "net" || choice.name == "tcp") << choice.name;
        EXPECT_TRUE(has(choice.why, "not shm: ")) << choice.why;
    }
}

TEST(ShmChoice, WhereItIsDemandedAndOneRankCannotShareAllFailAndSayWhy)
{
    for (const Choice &choice : choose({"shm", "shm", nullptr}, have_no_room)) {
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

static bool is_tcp(const std::string &name)
{
    return name == "net" || name == "tcp";
}

TEST(HybridChoice, MemoryIsSharedWithinEachHostAndTheNetworkIsBetween)
{
    for (const char *wanted : {(const char *)nullptr, "shm+net"})
        for (const char *hosts : {"a,b,b", "a,b,a", "a,a,b"})
            for (const Choice &choice : choose_on(hosts, {wanted, wanted, wanted})) {
                EXPECT_EQ(choice.rc, 0) << choice.message;
                EXPECT_TRUE(has(choice.name, "shm+") && is_tcp(choice.name.substr(4)))
                    << choice.name;
                EXPECT_TRUE(has(choice.why, "within each of 2 hosts; between them")) << choice.why;
            }
    for (const Choice &choice : choose_on("a,b,b", {"shm+tcp;ofi_rxm", nullptr, nullptr}))
        EXPECT_TRUE(choice.rc == RF_EINVAL && has(choice.message, "uses provider"))
            << choice.message;
}

TEST(HybridChoice, OnlyWhatALayoutNeedsIsOpened)
{
    for (const char *wanted : {(const char *)nullptr, "shm+net"}) {
        for (const Choice &choice : choose_on("a,b,c", {wanted, wanted, wanted}))
            EXPECT_TRUE(choice.rc == 0 && is_tcp(choice.name)) << choice.name << choice.message;
        for (const Choice &choice : choose_on("a,a,a", {wanted, wanted, wanted}))
            EXPECT_TRUE(choice.rc == 0 && choice.name == "shm") << choice.name << choice.message;
    }
    for (const char *wanted : {"tcp", "shm"})
        for (const Choice &choice : choose_on("a,b,b", {wanted, wanted, wanted}))
            EXPECT_TRUE(has(choice.why, "as asked for")) << choice.why << choice.message;
}

TEST(HybridChoice, WhereAHostsRanksCannotShareAllTakeTheNetworkOrFail)
{
    for (const Choice &choice : choose_on("a,b,b", {nullptr, nullptr, nullptr}, have_no_room)) {
        EXPECT_TRUE(choice.rc == 0 && is_tcp(choice.name)) << choice.message;
        EXPECT_TRUE(has(choice.why, "not shm: rank 1: shm: a segment")) << choice.why;
    }
    for (const Choice &choice : choose_on("a,b,b", {"shm+net", nullptr, nullptr}, have_no_room)) {
        EXPECT_EQ(choice.rc, RF_EINVAL);
        EXPECT_TRUE(has(choice.message, "segment")) << choice.message;
    }
    for (const Choice &choice : choose_on("a,b,b", {"shm+net", "shm", nullptr}))
        EXPECT_TRUE(has(choice.message, "rank 1 asks for provider shm, rank 0 for shm+net"))
            << choice.message;
}

// A network namespace has UNIX sockets of its own: there nothing can be handed over.
TEST(ShmChoice, RanksThatCannotHandMemoryToEachOtherAreNotOnOneHost)
{
    std::string url = tcp_url(free_port());
    Processes processes;
    processes.start(3, [&](int rank) {
        Member m = join(url, rank, 3);
        char can = rank == 1 ? unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 : 1, all[3];
        if (m.c->ops->all_gather(m.c, &can, 1, all, 10) < 0)
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

TEST(Shm, LongMessagesFromSharedMemoryAndFromPrivateMemoryAreTheSame)
{
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    for (size_t bytes : {size_t{16385}, size_t{262144}, size_t{262145}, size_t{40} << 20}) {
        void *shared = nullptr;
        ASSERT_EQ(from->ops->alloc(from, bytes + 5, &shared), 0);
        auto data = payload(7, bytes);
        memcpy((char *)shared + 5, data.data(), bytes);
        for (const void *source : {(const void *)data.data(), (const void *)((char *)shared + 5)}) {
            std::vector<uint8_t> in(bytes, 0xee);
            Context a, b;
            rf_completion done;
            ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, source, bytes, &a), 0);
            ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), bytes, &b), 0);
            ASSERT_EQ(world.next(1, &done), 1);
            EXPECT_EQ(done.context, &b);
            EXPECT_EQ(done.bytes, bytes);
            EXPECT_EQ(done.contract, 3u);
            EXPECT_TRUE(in == data);
            world.settle();
        }
        from->ops->free(from, shared);
    }
}

TEST(Shm, WhatIsBorrowedStaysUntilItIsGivenBackAndEveryTicketComesBack)
{
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    const size_t bytes = 100000;
    void *shared = nullptr;
    ASSERT_EQ(from->ops->alloc(from, bytes, &shared), 0);
    for (int i = 0; i < 200; i++) { // more often than there are tickets
        auto data = payload((uint64_t)i, bytes);
        memcpy(shared, data.data(), bytes);
        std::vector<uint8_t> in(bytes, 0xee);
        Context a, b;
        rf_completion done;
        const void *source = i % 2 ? shared : data.data();
        ASSERT_EQ(to->ops->post_borrow(to, 0, 9, in.data(), bytes, &b), 0);
        ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, source, bytes, &a), 0);
        ASSERT_EQ(world.next(1, &done), 1);
        ASSERT_NE(done.loan, 0u);
        EXPECT_EQ(memcmp(done.data, data.data(), bytes), 0);
        EXPECT_EQ(in[0], 0xee);
        to->ops->give_back(to, 0, done.loan);
        world.settle();
        EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u) << i;
    }
}

namespace
{

// Messages of equal length from rank 0 to rank 1, which may leave them where they come.
struct Lot {
    World &world;
    size_t bytes;
    std::vector<std::vector<uint8_t>> out, in;
    std::vector<Context> sends, receives;
    std::vector<uint32_t> loans;

    Lot(World &world, size_t bytes, size_t count)
        : world(world), bytes(bytes), in(count, std::vector<uint8_t>(bytes)), sends(count),
          receives(count)
    {
        for (size_t i = 0; i < count; i++) {
            receives[i].id = (int)i;
            out.push_back(payload(i, bytes));
        }
    }
    void send(size_t i)
    {
        rf_transport *t = world.ends[0].t;
        ASSERT_EQ(t->ops->post_send(t, 1, i, 3, out[i].data(), bytes, &sends[i]), 0);
    }
    void receive(size_t i)
    {
        rf_transport *t = world.ends[1].t;
        ASSERT_EQ(t->ops->post_borrow(t, 0, i, in[i].data(), bytes, &receives[i]), 0);
    }
    void take(size_t count)
    {
        for (size_t k = 0; k < count; k++) {
            rf_completion done;
            ASSERT_EQ(world.next(1, &done), 1);
            size_t i = (size_t)((Context *)done.context)->id;
            ASSERT_EQ(done.bytes, bytes);
            EXPECT_EQ(memcmp(done.loan ? done.data : in[i].data(), out[i].data(), bytes), 0) << i;
            if (done.loan)
                loans.push_back(done.loan);
        }
    }
    void give_back()
    {
        rf_transport *t = world.ends[1].t;
        for (uint32_t loan : loans)
            t->ops->give_back(t, 0, loan);
        world.settle();
        EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u);
        EXPECT_EQ(world.ends[1].shm()->peers[0].borrowed_slots, 0);
    }
};

} // namespace

TEST(Shm, MoreStagedMessagesThanSlotsCanBeBorrowedAtOnce)
{
    World world(2);
    const size_t count = 100;
    Lot lot(world, RF_SHM_EAGER_PRIVATE + 1, count);
    for (size_t i = 0; i < count; i++)
        lot.send(i);
    for (size_t i = count; i-- > 0;)
        lot.receive(i);
    lot.take(count);
    EXPECT_GT(lot.loans.size(), 0u);
    lot.give_back();
}

TEST(Shm, MessagesThatGoAtOnceAreLeftInTheirSlotsAsLongAsOneIsFree)
{
    World world(2);
    for (size_t bytes : {RF_SHM_CELL + 1, RF_SHM_EAGER + 0, RF_SHM_EAGER_PRIVATE + 0}) {
        const size_t count = 10 * RF_SHM_SLOTS;
        Lot lot(world, bytes, count);
        for (size_t i = 0; i < count; i++)
            lot.receive(i);
        for (size_t i = 0; i < count; i++)
            lot.send(i);
        lot.take(count);
        EXPECT_EQ(lot.loans.size(), RF_SHM_SLOTS - 1u);
        lot.give_back();
    }
}

TEST(Shm, MessagesThatGoAtOnceMayComeBeforeTheirReceives)
{
    World world(2);
    for (size_t bytes : {RF_SHM_CELL + 1, RF_SHM_EAGER + 0, RF_SHM_EAGER_PRIVATE + 0}) {
        const size_t count = 10 * RF_SHM_SLOTS;
        Lot lot(world, bytes, count);
        for (size_t i = 0; i < count; i++)
            lot.send(i);
        world.settle();
        for (size_t i = count; i-- > 0;)
            lot.receive(i);
        lot.take(count);
        EXPECT_EQ(lot.loans.size(), 0u) << "they are no longer in a slot";
        lot.give_back();
    }
}

TEST(Shm, MemoryThatIsFreedIsUsedAgainAndIsZero)
{
    World world(2);
    rf_transport *t = world.ends[0].t;
    rf_shm *shm = world.ends[0].shm();
    void *a, *b, *c;
    ASSERT_EQ(t->ops->alloc(t, 100000, &a), 0);
    ASSERT_EQ(t->ops->alloc(t, 5000, &b), 0);
    size_t size = shm->file_bytes;
    memset(a, 1, 100000);
    t->ops->free(t, a);
    ASSERT_EQ(t->ops->alloc(t, 40000, &a), 0);
    ASSERT_EQ(t->ops->alloc(t, 50000, &c), 0);
    EXPECT_EQ(shm->file_bytes, size);
    EXPECT_EQ(((char *)a)[39999], 0);
    EXPECT_EQ(((char *)c)[0], 0);
    uint64_t offset = 0;
    EXPECT_TRUE(t->ops->locate(t, (char *)c + 10, 49990, &offset));
    EXPECT_FALSE(t->ops->locate(t, (char *)c + 10, 1 << 20, &offset));
    ((char *)c)[10] = 42;
    rf_transport *other = world.ends[1].t;
    unsigned char *seen = nullptr, *none = nullptr;
    ASSERT_EQ(other->ops->reach(other, 0, offset, 100, &seen), 0) << rf_last_error()->message;
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(*seen, 42);
    EXPECT_EQ(other->ops->reach(other, 0, offset, size_t{1} << 40, &none), RF_ECORRUPT);
    EXPECT_EQ(other->ops->reach(other, 0, 0, 1, &none), RF_ECORRUPT) << "what is not for users";
    EXPECT_EQ(other->ops->reach(other, 0, UINT64_MAX - 5, 10, &none), RF_ECORRUPT);
    EXPECT_EQ(none, nullptr);
    for (void *memory : {a, b, c})
        t->ops->free(t, memory);
    EXPECT_EQ(t->ops->alloc(t, SIZE_MAX - 100, &a), RF_ENOMEM);
}

namespace
{

// Rank 0 sends 64 MiB of what it shares; rank 1, which is out of `what`, says so itself.
void expect_out_of_room(void (*what)())
{
    const size_t bytes = 64u << 20;
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    void *shared = nullptr;
    ASSERT_EQ(from->ops->alloc(from, bytes, &shared), 0);
    Context send, recv;
    ASSERT_EQ(from->ops->post_send(from, 1, 7, 3, shared, bytes, &send), 0);
    ASSERT_EQ(to->ops->post_borrow(to, 0, 7, nullptr, bytes, &recv), 0);
    what();
    rf_completion done;
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < 10; turn++)
        rc = to->ops->poll(to, &done, 1);
    const std::string message = rf_last_error()->message;
    rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &all);
    rf_alloc_fail_at(0);
    EXPECT_EQ(rc, RF_ENOMEM) << message;
    EXPECT_NE(rf_last_error()->rank, 0) << message;
}

void allow_no_more_address_space()
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ASSERT_EQ(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1u << 20);
    rlimit limit = {most, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

} // namespace

TEST(Shm, WhoHasNoRoomForAPeersMemorySaysSoAndBlamesNobody)
{
    Processes processes; // limits are a process'
    processes.start(1, [](int) {
        expect_out_of_room(allow_no_more_address_space);
        expect_out_of_room([] { rf_alloc_fail_at(1); });
        return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(processes.wait(0), 0);
}

TEST(Shm, WhoSharesACoreStepsAsideAndKeepsWhatItMayUse)
{
    cpu_set_t before, one, now;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    if (CPU_COUNT(&before) < 2)
        GTEST_SKIP() << "there is one core only";
    World world(2);
    const size_t core = (size_t)sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    rf_shm_idle(world.ends[0].t);
    rf_shm_idle(world.ends[1].t);
    EXPECT_EQ(world.ends[0].shm()->may_move_ns, 0u) << "the lower rank stays";
    EXPECT_GT(world.ends[1].shm()->may_move_ns, 0u);
    ASSERT_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &one)) << "there was no other core";

    ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
    world.ends[1].shm()->may_move_ns = 0;
    world.ends[1].shm()->idle = 0;
    rf_shm_idle(world.ends[1].t);
    ASSERT_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &before));
}

TEST(Shm, WhoWaitsGoesToTheEmptiestCoresItMayUseIfThatMakesThemMoreEqual)
{
    struct {
        std::vector<uint16_t> ranks; // by core; this one is on core 0
        std::vector<size_t> allowed, expected;
    } const cases[] = {
        {{2, 0}, {0, 1}, {1}}, // two on one core, and one is free
        {{3, 1}, {0, 1}, {1}}, // more ranks than cores
        {{2, 1}, {0, 1}, {}},  // it would only be the other way round
        {{2, 2}, {0, 1}, {}},  //
        {{1, 0}, {0, 1}, {}},  // alone
        {{3, 0}, {0}, {}},     // bound
        {{3, 2, 1, 1}, {0, 1, 2, 3}, {2, 3}},
        {{4, 0, 1}, {0, 2}, {2}}, // the free one is not for this thread
    };
    for (auto &c : cases) {
        std::vector<uint16_t> ranks(CPU_SETSIZE, 0);
        std::copy(c.ranks.begin(), c.ranks.end(), ranks.begin());
        cpu_set_t mine, out;
        CPU_ZERO(&mine);
        for (size_t core : c.allowed)
            CPU_SET(core, &mine);
        bool better = rf_shm_emptier(ranks.data(), 0, &mine, &out);
        EXPECT_EQ(better, !c.expected.empty());
        for (size_t core = 0; better && core < CPU_SETSIZE; core++)
            EXPECT_EQ(CPU_ISSET(core, &out) != 0,
                      std::count(c.expected.begin(), c.expected.end(), core) == 1)
                << core;
    }
}

TEST(Shm, AReceiveThatIsTooShortForALongMessageIsNamedAndNothingIsWritten)
{
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    void *shared = nullptr;
    ASSERT_EQ(from->ops->alloc(from, 100000, &shared), 0);
    std::vector<uint8_t> data(100000), in(100, 0xee);
    for (int i = 0; i < 70; i++) // more often than there are tickets
        for (const void *source : {(const void *)data.data(), (const void *)shared}) {
            Context a, b;
            rf_completion done;
            ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, source, 100000, &a), 0);
            ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), 99, &b), 0);
            ASSERT_EQ(world.next(1, &done), 1);
            EXPECT_EQ(done.status, RF_EMISMATCH);
            EXPECT_EQ(in, std::vector<uint8_t>(100, 0xee));
            world.settle();
        }
}

// ---- nonsense ---------------------------------------------------------------------------------

namespace
{

// Writes a line as rank 0 would towards rank 1.
void write_line(rf_shm *shm, int kind, uint64_t bytes, unsigned ticket, unsigned slot,
                uint64_t offset)
{
    rf_shm_peer *peer = &shm->peers[1];
    rf_shm_line *line = &peer->out->lines[peer->sent % RF_SHM_LINES];
    line->tag = 9;
    line->what.kind = (unsigned)kind & 0xf;
    line->what.bytes = bytes & 0xffffffffffffull;
    line->what.ticket = ticket & 0xff;
    line->what.slot = slot & 0xf;
    memcpy(line->data, &offset, sizeof offset);
    __atomic_store_n((uint32_t *)&line->turn, (uint32_t)(peer->sent / RF_SHM_LINES) + 1,
                     __ATOMIC_RELEASE);
    peer->sent++;
}

} // namespace

TEST(ShmNonsense, EveryFieldOfALineIsCheckedAndItsWriterNamed)
{
    struct {
        int kind;
        uint64_t bytes;
        unsigned ticket, slot;
        uint64_t offset;
    } const lines[] = {
        {0, 4, 0, 0, 0},
        {RF_SHM_KINDS, 4, 0, 0, 0},
        {RF_SHM_SHORT, RF_SHM_CELL + 1, 0, 0, 0},
        {RF_SHM_STAGED, 50000, RF_SHM_TICKETS, 0, 0},
        {RF_SHM_EAGER_ONE, 10000, 0, RF_SHM_SLOTS, 0},
        {RF_SHM_EAGER_ONE, RF_SHM_CELL, 0, 0, 0},
        {RF_SHM_EAGER_ONE, RF_SHM_SLOT + 1, 0, 0, 0},
        {RF_SHM_PIECE, 100, 0, 0, 0},
        {RF_SHM_PIECE, 100, 255, 0, 0},
        {RF_SHM_SHARED, 50000, 0, 0, 0},
        {RF_SHM_SHARED, 50000, 0, 0, uint64_t{1} << 62},
        {RF_SHM_SHARED, 50000, 0, 0, UINT64_MAX},
        {RF_SHM_SHARED, 50000, 0, 0, uint64_t{1} << 30},
    };
    for (auto &line : lines) {
        World world(2);
        rf_transport *to = world.ends[1].t;
        std::vector<uint8_t> in(60000, 0xee);
        Context context;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), in.size(), &context), 0);
        write_line(world.ends[0].shm(), line.kind, line.bytes, line.ticket, line.slot, line.offset);
        EXPECT_EQ(to->ops->poll(to, &done, 1), RF_ECORRUPT) << line.kind;
        EXPECT_EQ(rf_last_error()->rank, 0);
        EXPECT_EQ(in, std::vector<uint8_t>(60000, 0xee));
    }
}

TEST(ShmNonsense, PiecesMustFitTheirMessage)
{
    struct {
        uint64_t bytes;
        unsigned slot;
    } const pieces[] = {{0, 0}, {50001, 0}, {RF_SHM_SLOT + 1, 0}, {100, RF_SHM_SLOTS}};
    for (auto &piece : pieces) {
        World world(2);
        rf_transport *to = world.ends[1].t;
        std::vector<uint8_t> in(50000, 0xee);
        Context context;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), in.size(), &context), 0);
        write_line(world.ends[0].shm(), RF_SHM_STAGED, 50000, 3, 0, 0);
        EXPECT_EQ(to->ops->poll(to, &done, 1), 0);
        write_line(world.ends[0].shm(), RF_SHM_PIECE, piece.bytes, 3, piece.slot, 0);
        EXPECT_EQ(to->ops->poll(to, &done, 1), RF_ECORRUPT) << piece.bytes;
    }
}

TEST(ShmNonsense, AcknowledgementsOfWhatWasNeverSentAreNamed)
{
    World world(2);
    rf_transport *from = world.ends[0].t;
    std::vector<uint8_t> data(4);
    std::vector<Context> contexts(RF_SHM_LINES + 1);
    world.ends[1].shm()->peers[0].told->consumed = 1000;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < contexts.size(); i++)
        rc = from->ops->post_send(from, 1, i, 0, data.data(), 4, &contexts[i]);
    EXPECT_EQ(rc, RF_ECORRUPT);
    EXPECT_EQ(rf_last_error()->rank, 1);
}

// Rank 0 shows buffers that are not in what it shares, in place of taking part in an all-reduce.
TEST(ShmNonsense, BuffersThatARankShowsMustBeInWhatItShares)
{
    const size_t count = 50000, bytes = count * 4;
    for (rf_addresses shown : {rf_addresses{0, 0, 1}, rf_addresses{UINT64_MAX - 8, 4096, 1},
                               rf_addresses{uint64_t{1} << 40, uint64_t{1} << 40, 1}}) {
        World world(2);
        rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
        void *buffer = nullptr;
        ASSERT_EQ(to->ops->alloc(to, bytes, &buffer), 0);
        rf_coll_desc desc = {};
        desc.op = RF_COLL_ALL_REDUCE;
        desc.rank = 1;
        desc.ranks = 2;
        desc.count = count;
        desc.shared = true;
        rf_sched *sched = nullptr;
        rf_exec *exec = nullptr;
        ASSERT_EQ(rf_sched_build_as(&desc, "fused", &sched), 0) << rf_last_error()->message;
        ASSERT_EQ(rf_exec_create(to, &exec), 0);
        uint32_t tag = 0;
        for (uint32_t i = 0; i < sched->count; i++)
            if (sched->steps[i].verb == RF_STEP_RECV && sched->steps[i].bytes == sizeof shown)
                tag = sched->steps[i].tag;
        rf_exec_args args = {buffer, buffer, 4, 5, 6};
        Context context;
        ASSERT_EQ(
            from->ops->post_send(from, 1, RF_TAG(4, 5, tag), 6, &shown, sizeof shown, &context), 0);
        int rc = rf_exec_start(exec, sched, &args);
        for (int i = 0; rc == 0 && i < 100; i++)
            rc = rf_exec_progress(exec);
        EXPECT_EQ(rc, RF_ECORRUPT) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 0);
        rf_exec_destroy(exec);
        rf_sched_destroy(sched);
    }
}

TEST(ShmNonsense, AWildPeerNeverCrashesARank)
{
    std::mt19937_64 random(11);
    for (int round = 0; round < 60; round++) {
        World world(2);
        rf_shm *wild = world.ends[0].shm();
        rf_transport *to = world.ends[1].t;
        std::vector<std::vector<uint8_t>> in(24, std::vector<uint8_t>(70000)), out = in;
        std::vector<Context> contexts(in.size() * 2);
        rf_completion done;
        int rc = 0;
        for (size_t i = 0; i < in.size(); i++) {
            rc = i % 2 ? to->ops->post_recv(to, 0, i, in[i].data(), in[i].size(), &contexts[i])
                       : to->ops->post_borrow(to, 0, i, in[i].data(), in[i].size(), &contexts[i]);
            ASSERT_EQ(rc, 0);
            ASSERT_EQ(to->ops->post_send(to, 0, i, 0, out[i].data(), random() % 70000,
                                         &contexts[in.size() + i]),
                      0);
        }
        for (int turn = 0; turn < 200 && rc >= 0; turn++) {
            write_line(wild, (int)(random() % 5), random() >> (random() % 64),
                       (unsigned)random() % 80, (unsigned)random() % 6,
                       random() >> (random() % 64));
            wild->peers[1].out->lines[(wild->peers[1].sent - 1) % RF_SHM_LINES].tag =
                random() % (2 * in.size());
            rf_shm_ack *told = wild->peers[1].told;
            told->done ^= random() & random() & random();
            told->go ^= random() & random();
            told->slots ^= random() & 15;
            rc = to->ops->poll(to, &done, 1);
            if (rc == 1 && done.loan)
                to->ops->give_back(to, 0, done.loan);
        }
        EXPECT_TRUE(rc >= 0 || rc == RF_ECORRUPT) << rc;
    }
}
