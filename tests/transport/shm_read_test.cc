// SPDX-License-Identifier: MIT
//
// Messages that the receiver reads in the memory of the sender's process, and those it cannot read:
// they go through slots, or are an error of the rank that owns the memory.
#include "shm_helpers.h"

#include <sys/mman.h>
#include <sys/syscall.h>

using namespace shm;
using namespace transport;

namespace
{

const size_t BYTES = 300001, PAGE = 4096;

// Sends from rank 0 to rank 1, and expects the data.
void expect_sent(World &world, const void *source, const std::vector<uint8_t> &data)
{
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    std::vector<uint8_t> in(data.size(), 0xee);
    Context a, b;
    rf_completion done;
    ASSERT_EQ(to->ops->post_recv_zero_copy(to, 0, 9, in.data(), in.size(), &b), 0);
    ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, source, data.size(), &a), 0);
    ASSERT_EQ(world.next(1, &done), 1) << rf_last_error()->message;
    EXPECT_EQ(done.contract, 3u);
    ASSERT_EQ(done.bytes, data.size());
    EXPECT_EQ(memcmp(done.token ? done.data : in.data(), data.data(), data.size()), 0);
    if (done.token)
        to->ops->release_zero_copy(to, 0, done.token);
    world.settle();
    EXPECT_EQ(world.ends[0].shm()->peers[1].tickets, 0u);
}

// One line for a message that is read; pieces have lines of their own.
uint64_t lines_sent(World &world)
{
    return world.ends[0].shm()->peers[1].sent;
}

struct Mapping {
    uint8_t *data;
    explicit Mapping(int fd = -1)
        : data(static_cast<uint8_t *>(mmap(nullptr, BYTES, PROT_READ | PROT_WRITE,
                                           fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd,
                                           0)))
    {
    }
    ~Mapping()
    {
        munmap(data, BYTES);
    }
};

bool may_read()
{
    World world(2, "1");
    return world.ends[0].shm()->reads == RF_SHM_READS_ALL;
}

} // namespace

TEST(ShmReads, LongMessagesAreReadAndNeedNoPieces)
{
    if (!may_read())
        GTEST_SKIP() << "processes may not read each other's memory here";
    World world(2, "1");
    for (int i = 0; i < 200; i++) { // more often than there are tickets
        auto data = payload((uint64_t)i, BYTES);
        const uint64_t before = lines_sent(world);
        expect_sent(world, data.data(), data);
        EXPECT_EQ(lines_sent(world), before + 1);
    }
}

TEST(ShmReads, ManyAtOnceAndBeforeTheirReceives)
{
    if (!may_read())
        GTEST_SKIP() << "processes may not read each other's memory here";
    World world(2, "1");
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    const size_t count = 100; // more than there are tickets
    std::vector<std::vector<uint8_t>> out, in(count, std::vector<uint8_t>(BYTES));
    std::vector<Context> sends(count), receives(count);
    for (size_t i = 0; i < count; i++) {
        out.push_back(payload(i, BYTES));
        ASSERT_EQ(from->ops->post_send(from, 1, i, 3, out[i].data(), BYTES, &sends[i]), 0);
    }
    world.settle();
    for (size_t i = count; i-- > 0;)
        ASSERT_EQ(to->ops->post_recv(to, 0, i, in[i].data(), BYTES, &receives[i]), 0);
    rf_completion done;
    for (size_t i = 0; i < count; i++)
        ASSERT_EQ(world.next(1, &done), 1);
    EXPECT_TRUE(in == out);
}

TEST(ShmReads, AReceiveThatIsTooShortIsRefused)
{
    World world(2, "1");
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    std::vector<uint8_t> data(BYTES), in(100, 0xee);
    for (int i = 0; i < 70; i++) {
        Context a, b;
        rf_completion done;
        ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, data.data(), BYTES, &a), 0);
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), 99, &b), 0);
        ASSERT_EQ(world.next(1, &done), 1);
        EXPECT_EQ(done.status, RF_EMISMATCH);
        EXPECT_EQ(in, std::vector<uint8_t>(100, 0xee));
        world.settle();
    }
}

// Like a device's memory: its process can read it, but the system cannot read it for others.
TEST(ShmReads, WhatOnlyItsOwnerCanReadComesThroughSlotsAndIsNotTriedAgain)
{
    const int fd = (int)syscall(SYS_memfd_secret, 0);
    if (fd < 0 || ftruncate(fd, BYTES) < 0 || !may_read())
        GTEST_SKIP() << "no secret memory, or no reads";
    Mapping memory(fd);
    close(fd);
    if (memory.data == MAP_FAILED)
        GTEST_SKIP() << "no secret memory can be mapped";
    World world(2, "1");
    rf_shm *shm = world.ends[0].shm();
    auto data = payload(5, BYTES);
    memcpy(memory.data, data.data(), BYTES);
    EXPECT_TRUE(rf_shm_is_readable(shm, memory.data, BYTES));
    const uint64_t before = lines_sent(world);
    expect_sent(world, memory.data, data);
    EXPECT_GT(lines_sent(world), before + 1);
    EXPECT_FALSE(rf_shm_is_readable(shm, memory.data, BYTES));
    EXPECT_TRUE(rf_shm_is_readable(shm, data.data(), BYTES));
    expect_sent(world, memory.data, data);
}

TEST(ShmReads, MemoryThatIsGoneIsAnErrorOfItsRank)
{
    if (!may_read())
        GTEST_SKIP() << "processes may not read each other's memory here";
    // Pages lose their rights and keep their addresses: unmapped ones could be reused before they
    // are read.
    for (size_t page : {size_t{0}, size_t{30}, BYTES / PAGE}) {
        World world(2, "1");
        rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
        Mapping memory;
        ASSERT_NE(memory.data, MAP_FAILED);
        ASSERT_EQ(mprotect(memory.data + page * PAGE, PAGE, PROT_NONE), 0);
        std::vector<uint8_t> in(BYTES);
        Context a, b;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), BYTES, &b), 0);
        ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, memory.data, BYTES, &a), 0);
        int rc = 0;
        for (int turn = 0; rc == 0 && turn < 100; turn++) {
            EXPECT_EQ(to->ops->poll(to, &done, 1), 0);
            rc = from->ops->poll(from, &done, 1);
        }
        EXPECT_EQ(rc, RF_EINVAL) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 0);
    }
}

TEST(ShmReads, WhatARankHasGivenUpIsNotTaken)
{
    if (!may_read())
        GTEST_SKIP() << "processes may not read each other's memory here";
    World world(2, "1");
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    auto data = payload(1, BYTES);
    std::vector<uint8_t> in(BYTES);
    Context a, b;
    rf_completion done;
    ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), BYTES, &b), 0);
    ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, data.data(), BYTES, &a), 0);
    from->ops->cancel_all(from);
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < 100; turn++)
        rc = to->ops->poll(to, &done, 1);
    EXPECT_EQ(rc, RF_EPEER);
    EXPECT_EQ(rf_last_error()->rank, 0);
}

TEST(ShmReads, OneRankThatDoesNotTakePartDecidesForAll)
{
    const rf_shm_trial fast = {1, 0, 1e-5, 3e-5, 4e-5, 0};
    rf_shm_trial trials[3] = {fast, fast, fast};
    World world(3);
    rf_shm *shm = world.ends[1].shm();
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_ALL);
    EXPECT_GT(shm->transport.read_bytes, 0u);
    trials[2].read_s = 2e-5; // faster than slots, but not by enough for messages in one direction
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_EXCHANGES);
    EXPECT_EQ(shm->transport.read_bytes, 0u);
    EXPECT_TRUE(has(shm->own_memory, "slots, cached; exchanges by peer reads ("))
        << shm->own_memory;
    trials[2].read_s = 4e-5;
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_NONE);
    trials[1].forced = RF_SHM_READS_EXCHANGES;
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_EXCHANGES);
    trials[0].forced = RF_SHM_READS_ALL;
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_ALL);
    trials[1].permitted = 0;
    rf_shm_choose(shm, trials);
    EXPECT_EQ(shm->reads, RF_SHM_READS_NONE);
    EXPECT_EQ(shm->transport.read_bytes, 0u);
}

// Both send, then both receive; the number of pieces shows whether the data were read.
static void exchange(World &world, bool expect_reads)
{
    const std::vector<uint8_t> out[2] = {payload(1, BYTES), payload(2, BYTES)};
    std::vector<uint8_t> in[2] = {std::vector<uint8_t>(BYTES), std::vector<uint8_t>(BYTES)};
    Context contexts[4];
    uint64_t before[2];
    for (int r = 0; r < 2; r++) {
        rf_transport *t = world.ends[(size_t)r].t;
        before[r] = world.ends[(size_t)r].shm()->peers[1 - r].sent;
        ASSERT_EQ(t->ops->post_recv_exchange(t, 1 - r, 9, in[r].data(), BYTES, &contexts[r]), 0);
        ASSERT_EQ(t->ops->post_send(t, 1 - r, 9, 3, out[r].data(), BYTES, &contexts[2 + r]), 0);
    }
    world.settle();
    for (int r = 0; r < 2; r++) {
        EXPECT_TRUE(in[r] == out[1 - r]);
        const uint64_t lines = world.ends[(size_t)r].shm()->peers[1 - r].sent - before[r];
        EXPECT_EQ(lines == 1, expect_reads) << lines;
        EXPECT_EQ(world.ends[(size_t)r].shm()->peers[1 - r].tickets, 0u);
    }
}

static void one_way(World &world, int from, bool zero_copy, bool expect_reads)
{
    rf_transport *sender = world.ends[(size_t)from].t, *receiver = world.ends[(size_t)(1 - from)].t;
    const std::vector<uint8_t> out = payload(3, BYTES);
    std::vector<uint8_t> in(BYTES);
    Context a, b;
    rf_completion done;
    const uint64_t before = world.ends[(size_t)from].shm()->peers[1 - from].sent;
    ASSERT_EQ((zero_copy ? receiver->ops->post_recv_zero_copy
                         : receiver->ops->post_recv)(receiver, from, 9, in.data(), BYTES, &b),
              0);
    ASSERT_EQ(sender->ops->post_send(sender, 1 - from, 9, 3, out.data(), BYTES, &a), 0);
    ASSERT_EQ(world.next(1 - from, &done), 1);
    EXPECT_EQ(memcmp(done.token ? done.data : in.data(), out.data(), BYTES), 0);
    if (done.token)
        receiver->ops->release_zero_copy(receiver, from, done.token);
    world.settle();
    const uint64_t lines = world.ends[(size_t)from].shm()->peers[1 - from].sent - before;
    EXPECT_EQ(lines == 1, expect_reads) << lines;
}

TEST(ShmReads, WhereExchangesAreReadOtherMessagesPassThroughSlots)
{
    if (!may_read())
        GTEST_SKIP() << "processes may not read each other's memory here";
    for (const char *reads : {"0", "exchanges", "1"}) {
        const bool all = strcmp(reads, "1") == 0, none = strcmp(reads, "0") == 0;
        World world(2, reads);
        for (int i = 0; i < 100; i++) { // more often than there are tickets
            exchange(world, !none);
            one_way(world, i % 2, false, all);
            one_way(world, i % 2, true, all);
            one_way(world, 1 - i % 2, false, all);
        }
    }
}

TEST(ShmReads, SlotsAreWrittenPastTheCachesWhereThatIsClearlyFaster)
{
    rf_shm_trial trials[2] = {{1, 0, 4e-5, 5e-5, 2e-5, 0}, {1, 0, 4e-5, 2e-5, 1e-5, 0}};
    World world(2);
    rf_shm *shm = world.ends[0].shm();
    rf_shm_choose(shm, trials);
    EXPECT_TRUE(shm->transport.streams);
    EXPECT_EQ(shm->reads, RF_SHM_READS_NONE);
    EXPECT_TRUE(has(shm->own_memory, "slots, streamed (")) << shm->own_memory;
    trials[1].streamed_s = 4.9e-5; // the slowest counts
    rf_shm_choose(shm, trials);
    EXPECT_FALSE(shm->transport.streams);
    EXPECT_TRUE(has(shm->own_memory, "slots, cached;")) << shm->own_memory;
    for (const char *writes : {"cached", "streamed"}) {
        setenv("RF_SLOT_WRITES", writes, 1);
        rf_shm_choose(shm, trials);
        EXPECT_EQ(shm->transport.streams, strcmp(writes, "streamed") == 0);
        unsetenv("RF_SLOT_WRITES");
    }
}

TEST(ShmReads, HowOneRankIsToldToWriteDoesNotChangeWhetherRanksRead)
{
    // Reads beat streamed slots by enough, but not cached ones.
    const rf_shm_trial trials[2] = {{1, 0, 2e-5, 3e-5, 6e-5, 0}, {1, 0, 2e-5, 3e-5, 6e-5, 0}};
    World world(2);
    for (const char *writes : {"auto", "cached", "streamed"}) {
        setenv("RF_SLOT_WRITES", writes, 1);
        rf_shm_choose(world.ends[0].shm(), trials);
        unsetenv("RF_SLOT_WRITES");
        EXPECT_EQ(world.ends[0].shm()->reads, RF_SHM_READS_EXCHANGES) << writes;
    }
}

TEST(ShmReads, TheTrialLeavesNothingBehind)
{
    for (int size : {2, 3, 5}) {
        World world(size, "auto");
        for (int r = 0; r < size; r++) {
            const rf_shm *shm = world.ends[(size_t)r].shm();
            EXPECT_EQ(shm->transport.sent_bytes, 0u);
            EXPECT_EQ(shm->transport.sent_messages, 0u);
            EXPECT_EQ(shm->reads, world.ends[0].shm()->reads);
            EXPECT_EQ(shm->done.first, nullptr);
            for (int i = 0; i < size; i++)
                EXPECT_EQ(shm->peers[i].tickets, 0u);
        }
        const std::vector<uint8_t> data = payload(1, BYTES);
        expect_sent(world, data.data(), data);
    }
}

TEST(ShmReads, ATrialEndsWhereARankHasEnded)
{
    World world(2, "1");
    if (!world.ends[0].shm()->reads)
        GTEST_SKIP() << "reads are not permitted here";
    rf_control *control = world.ends[0].c;
    const uint32_t pending = control->pending;
    control->pending = 1; // as if rank 1 had died, which takes no part here
    rf_shm_trial out = {};
    std::vector<uint8_t> memory(RF_SHM_TRIAL_BYTES);
    rf_shm_measure(world.ends[0].shm(), control, true, memory.data(), &out);
    EXPECT_EQ(out.status, RF_ETIMEOUT);
    control->pending = pending;
}
