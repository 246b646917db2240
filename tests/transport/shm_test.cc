// SPDX-License-Identifier: MIT
//
// Messages between ranks that share memory: long ones, receives without a copy, memory for users,
// limits, and the choice of cores.
#include "shm_helpers.h"

#include <memory>
#include <random>
#include <sched.h>
#include <sys/resource.h>

extern "C" {
#include "transport/cpu_affinity.h"
}

using namespace shm;
using namespace transport;

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

TEST(Shm, ZeroCopyDataStayUntilReleasedAndEveryTicketComesBack)
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
        ASSERT_EQ(to->ops->post_recv_zero_copy(to, 0, 9, in.data(), bytes, &b), 0);
        ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, source, bytes, &a), 0);
        ASSERT_EQ(world.next(1, &done), 1);
        ASSERT_NE(done.token, 0u);
        EXPECT_EQ(memcmp(done.data, data.data(), bytes), 0);
        EXPECT_EQ(in[0], 0xee);
        to->ops->release_zero_copy(to, 0, done.token);
        world.settle();
        EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u) << i;
    }
}

namespace
{

// Messages of equal length from rank 0 to rank 1, which receives them without a copy if it can.
struct Lot {
    World &world;
    size_t bytes;
    std::vector<std::vector<uint8_t>> out, in;
    std::vector<Context> sends, receives;
    std::vector<uint32_t> tokens;

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
        ASSERT_EQ(t->ops->post_recv_zero_copy(t, 0, i, in[i].data(), bytes, &receives[i]), 0);
    }
    void take(size_t count)
    {
        for (size_t k = 0; k < count; k++) {
            rf_completion done;
            ASSERT_EQ(world.next(1, &done), 1);
            size_t i = (size_t)((Context *)done.context)->id;
            ASSERT_EQ(done.bytes, bytes);
            EXPECT_EQ(memcmp(done.token ? done.data : in[i].data(), out[i].data(), bytes), 0) << i;
            if (done.token)
                tokens.push_back(done.token);
        }
    }
    void release()
    {
        rf_transport *t = world.ends[1].t;
        for (uint32_t token : tokens)
            t->ops->release_zero_copy(t, 0, token);
        world.settle();
        EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u);
        EXPECT_EQ(world.ends[1].shm()->peers[0].held_slots, 0);
    }
};

} // namespace

TEST(Shm, MoreStagedMessagesThanSlotsCanBeReceivedAtOnce)
{
    World world(2);
    const size_t count = 100;
    Lot lot(world, RF_SHM_EAGER_PRIVATE + 1, count);
    for (size_t i = 0; i < count; i++)
        lot.send(i);
    for (size_t i = count; i-- > 0;)
        lot.receive(i);
    lot.take(count);
    EXPECT_GT(lot.tokens.size(), 0u);
    lot.release();
}

TEST(Shm, MessagesThatGoAtOnceAreLeftInTheirSlotsAsLongAsOneIsFree)
{
    World world(2);
    for (size_t bytes : {RF_SHM_CELL + 1, RF_SHM_EAGER + 0, RF_SHM_EAGER_PRIVATE + 0}) {
        const size_t count = 2 * RF_SHM_UNITS;
        Lot lot(world, bytes, count);
        for (size_t i = 0; i < count; i++)
            lot.receive(i);
        for (size_t i = 0; i < count; i++)
            lot.send(i);
        lot.take(count);
        EXPECT_EQ(lot.tokens.size(), 0u + RF_SHM_HELD_SLOTS);
        lot.release();
    }
}

// The slot area wraps around many times, with slots of all lengths, some of which are held.
TEST(Shm, SlotsOfAllLengthsGoRoundWhereverSomeAreHeld)
{
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    std::mt19937 random(5);
    std::vector<uint32_t> held;
    const int count = 1500;
    for (int i = 0; i < count; i++) {
        from->streams = random() % 2;
        const size_t most = random() % 4 == 0 ? RF_SHM_SLOT : RF_SHM_EAGER_PRIVATE;
        const size_t bytes = RF_SHM_CELL + 1 + random() % (most - RF_SHM_CELL);
        const auto data = payload((uint64_t)i, bytes);
        std::vector<uint8_t> in(bytes, 0xee);
        Context a, b;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv_zero_copy(to, 0, 9, in.data(), bytes, &b), 0);
        ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, data.data(), bytes, &a), 0);
        ASSERT_EQ(world.next(1, &done), 1) << i;
        ASSERT_EQ(memcmp(done.token ? done.data : in.data(), data.data(), bytes), 0) << i;
        if (done.token)
            held.push_back(done.token);
        while (!held.empty() && random() % 3 == 0) {
            std::swap(held[random() % held.size()], held.back());
            to->ops->release_zero_copy(to, 0, held.back());
            held.pop_back();
        }
        world.settle();
    }
    for (uint32_t token : held)
        to->ops->release_zero_copy(to, 0, token);
    world.settle();
    EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u);
    EXPECT_EQ(world.ends[1].shm()->peers[0].held_slots, 0);
}

TEST(Shm, SlotsGoRoundAmongFewRanksAndAreUsedAgainAtOnceAmongMany)
{
    for (int size : {2, RF_SHM_ROUND_RANKS + 1}) {
        World world(size);
        rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
        const rf_shm_peer &peer = world.ends[0].shm()->peers[1];
        const unsigned begin = peer.next_unit;
        for (int i = 0; i < 3; i++) {
            const auto data = payload((uint64_t)i, RF_SHM_EAGER_PRIVATE);
            std::vector<uint8_t> in(data.size());
            Context a, b;
            rf_completion done;
            ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), in.size(), &b), 0);
            ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, data.data(), data.size(), &a), 0);
            ASSERT_EQ(world.next(1, &done), 1);
            EXPECT_TRUE(in == data);
            world.settle();
        }
        const unsigned units = 3 * RF_SHM_EAGER_PRIVATE / RF_SHM_UNIT;
        EXPECT_EQ(peer.next_unit, begin + (size == 2 ? units : 0));
    }
}

TEST(Shm, MessagesThatGoAtOnceMayComeBeforeTheirReceives)
{
    World world(2);
    for (size_t bytes : {RF_SHM_CELL + 1, RF_SHM_EAGER + 0, RF_SHM_EAGER_PRIVATE + 0}) {
        const size_t count = 2 * RF_SHM_UNITS;
        Lot lot(world, bytes, count);
        for (size_t i = 0; i < count; i++)
            lot.send(i);
        world.settle();
        for (size_t i = count; i-- > 0;)
            lot.receive(i);
        lot.take(count);
        EXPECT_EQ(lot.tokens.size(), 0u) << "they are no longer in a slot";
        lot.release();
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

// Rank 0 sends 64 MiB of its shared memory; rank 1, which runs out of `what`, reports it itself.
void expect_out_of_memory(void (*what)())
{
    const size_t bytes = 64u << 20;
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    void *shared = nullptr;
    ASSERT_EQ(from->ops->alloc(from, bytes, &shared), 0);
    Context send, recv;
    ASSERT_EQ(from->ops->post_send(from, 1, 7, 3, shared, bytes, &send), 0);
    ASSERT_EQ(to->ops->post_recv_zero_copy(to, 0, 7, nullptr, bytes, &recv), 0);
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

TEST(Shm, ARankThatCannotMapAPeersMemoryReportsItselfAndNoPeer)
{
    Processes processes; // limits belong to a process
    processes.start(1, [](int) {
        expect_out_of_memory(allow_no_more_address_space);
        expect_out_of_memory([] { rf_alloc_fail_at(1); });
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
    for (End &end : world.ends) // as long after the measurements at the start
        end.shm()->affinity.may_look_ns = end.shm()->affinity.may_move_ns = 0;
    const size_t core = (size_t)sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    world.ends[0].t->ops->idle(world.ends[0].t);
    world.ends[1].t->ops->idle(world.ends[1].t);
    EXPECT_EQ(world.ends[0].shm()->affinity.may_move_ns, 0u) << "the lower rank stays";
    EXPECT_GT(world.ends[1].shm()->affinity.may_move_ns, 0u);
    ASSERT_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
    EXPECT_TRUE(CPU_EQUAL(&now, &one)) << "there was no other core";

    ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
    world.ends[1].shm()->affinity.may_move_ns = 0;
    world.ends[1].shm()->affinity.may_look_ns = 0;
    world.ends[1].t->ops->idle(world.ends[1].t);
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
        {{2, 1}, {0, 1}, {}},  // it would only swap them
        {{2, 2}, {0, 1}, {}},  //
        {{1, 0}, {0, 1}, {}},  // alone
        {{3, 0}, {0}, {}},     // bound
        {{3, 2, 1, 1}, {0, 1, 2, 3}, {2, 3}},
        {{4, 0, 1}, {0, 2}, {2}}, // the free one is not allowed for this thread
    };
    for (auto &c : cases) {
        std::vector<uint16_t> ranks(CPU_SETSIZE, 0);
        std::copy(c.ranks.begin(), c.ranks.end(), ranks.begin());
        bool mine[RF_CPU_CORES] = {}, out[RF_CPU_CORES];
        for (size_t core : c.allowed)
            mine[core] = true;
        bool better = rf_cpu_emptier(ranks.data(), 0, mine, out);
        EXPECT_EQ(better, !c.expected.empty());
        for (size_t core = 0; better && core < CPU_SETSIZE; core++)
            EXPECT_EQ(out[core], std::count(c.expected.begin(), c.expected.end(), core) == 1)
                << core;
    }
}

TEST(Shm, RanksThatOutnumberTheCoresShareThemWithNeighbours)
{
    bool mine[RF_CPU_CORES] = {};
    std::vector<int> cores;
    for (int core = 1; core < 60; core += core % 5 + 1) {
        cores.push_back(core);
        mine[core] = true;
        const int size = (int)cores.size();
        for (int count = 1; count < 3 * size + 3; count++) {
            std::vector<int> at;
            for (int index = 0; index < count; index++)
                at.push_back(rf_cpu_assigned(mine, index, count));
            if (count <= size) {
                EXPECT_EQ(at, std::vector<int>((size_t)count, -1));
                continue;
            }
            EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
            for (int c : cores) {
                const auto here = std::count(at.begin(), at.end(), c);
                EXPECT_TRUE(here == count / size || here == (count + size - 1) / size)
                    << here << " of " << count << " ranks on one of " << size << " cores";
            }
        }
    }
    const bool none[RF_CPU_CORES] = {};
    EXPECT_EQ(rf_cpu_assigned(none, 0, 2), -1);
}

TEST(Shm, RanksThatOutnumberTheCoresGoToTheirsAndKeepWhatTheyMayUse)
{
    cpu_set_t before, now;
    ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
    const int cores = CPU_COUNT(&before);
    bool mine[RF_CPU_CORES];
    for (size_t c = 0; c < RF_CPU_CORES; c++)
        mine[c] = CPU_ISSET(c, &before);
    World world(2);
    for (int i = 0; i < 2; i++) {
        rf_transport *t = world.ends[(size_t)i].t;
        rf_cpu_affinity *affinity = &world.ends[(size_t)i].shm()->affinity;
        EXPECT_EQ(affinity->index, i);
        EXPECT_EQ(affinity->count, 2);
        t->yield = true; // as with more ranks than cores
        affinity->count = 2 * cores;
        affinity->index = i * (2 * cores - 1);
        const int assigned = rf_cpu_assigned(mine, affinity->index, affinity->count);
        bool was_there = false;
        for (int tries = 0; tries < 100 && !was_there; tries++) { // the system may move it again
            affinity->may_move_ns = 0;
            affinity->may_look_ns = 0;
            EXPECT_TRUE(t->ops->idle(t)) << "another rank needs the core";
            const rf_cpu_affinity &other = world.ends[(size_t)!i].shm()->affinity;
            was_there = sched_getcpu() == assigned &&
                        other.core_of(world.ends[(size_t)!i].t, i) == assigned;
        }
        EXPECT_TRUE(was_there) << "rank " << i;
        EXPECT_EQ(affinity->assigned, assigned + 1);
        ASSERT_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
        EXPECT_TRUE(CPU_EQUAL(&now, &before));
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
