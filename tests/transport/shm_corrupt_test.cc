// SPDX-License-Identifier: MIT
//
// Invalid contents of shared memory are an error of the rank that wrote them, and crash nobody.
#include "shm_helpers.h"

#include <random>

extern "C" {
#include "coll/sched.h"
}

using namespace shm;
using namespace transport;

namespace
{

// Writes a record as rank 0 would towards rank 1.
void write_record(rf_shm *shm, int kind, uint64_t bytes, unsigned ticket, unsigned slot,
                  uint64_t offset)
{
    rf_shm_peer *peer = &shm->peers[1];
    rf_shm_record *record = &peer->out->records[peer->sent % RF_SHM_RECORDS];
    record->tag = 9;
    record->what.kind = (unsigned)kind & 0xf;
    record->what.bytes = bytes & 0xfffffffffffull;
    record->what.ticket = ticket & 0xff;
    record->what.slot = slot & 0xff;
    memcpy(record->data, &offset, sizeof offset);
    __atomic_store_n((uint32_t *)&record->turn, (uint32_t)(peer->sent / RF_SHM_RECORDS) + 1,
                     __ATOMIC_RELEASE);
    peer->sent++;
}

} // namespace

TEST(ShmCorruption, EveryFieldOfARecordIsCheckedAndItsWriterNamed)
{
    struct {
        int kind;
        uint64_t bytes;
        unsigned ticket, slot;
        uint64_t offset;
    } const records[] = {
        {0, 4, 0, 0, 0},
        {RF_SHM_KINDS, 4, 0, 0, 0},
        {RF_SHM_SKIP, 0, 0, 0, 0},
        {RF_SHM_SHORT, RF_SHM_CELL + 1, 0, 0, 0},
        {RF_SHM_STAGED, 50000, RF_SHM_TICKETS, 0, 0},
        {RF_SHM_EAGER_ONE, 10000, 0, RF_SHM_UNITS, 0},
        {RF_SHM_EAGER_ONE, RF_SHM_UNIT + 1, 0, RF_SHM_UNITS - 1, 0},
        {RF_SHM_EAGER_ONE, 10000, 0, 255, 0},
        {RF_SHM_EAGER_ONE, RF_SHM_CELL, 0, 0, 0},
        {RF_SHM_EAGER_ONE, RF_SHM_SLOT + 1, 0, 0, 0},
        {RF_SHM_PIECE, 100, 0, 0, 0},
        {RF_SHM_PIECE, 100, 255, 0, 0},
        {RF_SHM_SHARED, 50000, 0, 0, 0},
        {RF_SHM_SHARED, 50000, 0, 0, uint64_t{1} << 62},
        {RF_SHM_SHARED, 50000, 0, 0, UINT64_MAX},
        {RF_SHM_SHARED, 50000, 0, 0, uint64_t{1} << 30},
    };
    for (auto &record : records) {
        World world(2);
        rf_transport *to = world.ends[1].t;
        std::vector<uint8_t> in(60000, 0xee);
        Context context;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), in.size(), &context), 0);
        write_record(world.ends[0].shm(), record.kind, record.bytes, record.ticket, record.slot,
                     record.offset);
        EXPECT_EQ(to->ops->poll(to, &done, 1), RF_ECORRUPT) << record.kind;
        EXPECT_EQ(rf_last_error()->rank, 0);
        EXPECT_EQ(in, std::vector<uint8_t>(60000, 0xee));
    }
}

// It would extend past its line, or past the ring.
TEST(ShmCorruption, AMessageThatTakesBothRecordsOfALineBeginsIt)
{
    for (int before : {1, RF_SHM_RECORDS - 1}) {
        World world(2);
        rf_transport *to = world.ends[1].t;
        uint8_t in[32];
        Context context;
        rf_completion done;
        for (int i = 0; i < before; i++) {
            write_record(world.ends[0].shm(), RF_SHM_SHORT, 4, 0, 0, 0);
            ASSERT_EQ(to->ops->recv_at_once(to, 0, 9, in, sizeof in, &done), 1);
        }
        write_record(world.ends[0].shm(), RF_SHM_SHORT, 32, 0, 0, 0);
        EXPECT_EQ(to->ops->recv_at_once(to, 0, 9, in, sizeof in, &done), 0);
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in, sizeof in, &context), 0);
        EXPECT_EQ(to->ops->poll(to, &done, 1), RF_ECORRUPT);
    }
}

TEST(ShmCorruption, PiecesMustFitTheirMessage)
{
    struct {
        uint64_t bytes;
        unsigned slot;
    } const pieces[] = {{0, 0},
                        {50001, 0},
                        {RF_SHM_SLOT + 1, 0},
                        {100, RF_SHM_UNITS},
                        {RF_SHM_UNIT + 1, RF_SHM_UNITS - 1}};
    for (auto &piece : pieces) {
        World world(2);
        rf_transport *to = world.ends[1].t;
        std::vector<uint8_t> in(50000, 0xee);
        Context context;
        rf_completion done;
        ASSERT_EQ(to->ops->post_recv(to, 0, 9, in.data(), in.size(), &context), 0);
        write_record(world.ends[0].shm(), RF_SHM_STAGED, 50000, 3, 0, 0);
        EXPECT_EQ(to->ops->poll(to, &done, 1), 0);
        write_record(world.ends[0].shm(), RF_SHM_PIECE, piece.bytes, 3, piece.slot, 0);
        EXPECT_EQ(to->ops->poll(to, &done, 1), RF_ECORRUPT) << piece.bytes;
    }
}

TEST(ShmCorruption, AcknowledgementsOfWhatWasNeverSentAreNamed)
{
    World world(2);
    rf_transport *from = world.ends[0].t;
    std::vector<uint8_t> data(4);
    std::vector<Context> contexts(RF_SHM_RECORDS + 1);
    world.ends[1].shm()->peers[0].acks_out->consumed = 1000;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < contexts.size(); i++)
        rc = from->ops->post_send(from, 1, i, 0, data.data(), 4, &contexts[i]);
    EXPECT_EQ(rc, RF_ECORRUPT);
    EXPECT_EQ(rf_last_error()->rank, 1);
}

// Rank 0 shows buffers outside of its shared memory, instead of taking part in an all-reduce.
TEST(ShmCorruption, BuffersThatARankShowsMustBeInWhatItShares)
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

TEST(ShmCorruption, AWildPeerNeverCrashesARank)
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
                       : to->ops->post_recv_zero_copy(to, 0, i, in[i].data(), in[i].size(),
                                                      &contexts[i]);
            ASSERT_EQ(rc, 0);
            ASSERT_EQ(to->ops->post_send(to, 0, i, 0, out[i].data(), random() % 70000,
                                         &contexts[in.size() + i]),
                      0);
        }
        for (int turn = 0; turn < 200 && rc >= 0; turn++) {
            write_record(wild, (int)(random() % (RF_SHM_KINDS + 1)), random() >> (random() % 64),
                         (unsigned)random() % 80, (unsigned)random() % 6,
                         random() >> (random() % 64));
            wild->peers[1].out->records[(wild->peers[1].sent - 1) % RF_SHM_RECORDS].tag =
                random() % (2 * in.size());
            rf_shm_ack *sent = wild->peers[1].acks_out;
            sent->done ^= random() & random() & random();
            sent->go ^= random() & random();
            sent->slots ^= random() & 15;
            rc = to->ops->poll(to, &done, 1);
            if (rc == 1 && done.token)
                to->ops->release_zero_copy(to, 0, done.token);
        }
        EXPECT_TRUE(rc >= 0 || rc == RF_ECORRUPT) << rc;
    }
}
