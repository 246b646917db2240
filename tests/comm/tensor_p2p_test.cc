/* SPDX-License-Identifier: MIT
 *
 * Sends and receives of tensors: the data over every transport, from memory that the host can and
 * cannot map; no call waits for another one; points before and after; and errors meanwhile.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <thread>

#include "tensor_device.h"

using namespace tensors;

namespace
{

constexpr uint64_t LONG_NS = 20000000000ull;
constexpr uint64_t PIECE = 1 << 20, STAGED_AT_MOST = 8 * PIECE; /* in each direction */

rf_coll_opts with_done(rf_point *done, rf_point after = {})
{
    rf_coll_opts opts = {};
    opts.done = done;
    opts.after = after;
    return opts;
}

rf_point send(rf_comm *comm, rf_tensor tensor, int peer, int tag, rf_point after = {})
{
    rf_point done = {};
    const rf_coll_opts opts = with_done(&done, after);
    EXPECT_EQ(rf_send_tensor(comm, tensor, peer, tag, &opts), RF_OK) << rf_last_error()->message;
    return done;
}

rf_point recv(rf_comm *comm, rf_tensor tensor, int peer, int tag, rf_point after = {})
{
    rf_point done = {};
    const rf_coll_opts opts = with_done(&done, after);
    EXPECT_EQ(rf_recv_tensor(comm, tensor, peer, tag, &opts), RF_OK) << rf_last_error()->message;
    return done;
}

void wait(rf_point point)
{
    ASSERT_NE(point.timeline, nullptr);
    ASSERT_EQ(rf_point_wait(point, LONG_NS), RF_OK) << rf_last_error()->message;
}

/* A word through host memory, to order a test's events. */
void send_signal(rf_comm *comm, int peer, int tag)
{
    ASSERT_EQ(rf_send(comm, &tag, 1, RF_I32, peer, 1000 + tag, nullptr), RF_OK)
        << rf_last_error()->message;
}

void receive_signal(rf_comm *comm, int peer, int tag)
{
    ASSERT_EQ(rf_recv(comm, &tag, 1, RF_I32, peer, 1000 + tag, nullptr), RF_OK)
        << rf_last_error()->message;
}

/* The peer's reaction may end the communicator before this call has returned. */
void tell_last(rf_comm *comm, int peer)
{
    static int32_t word = 0;
    rf_request *request = nullptr;
    rf_coll_opts opts = {};
    opts.request = &request;
    ASSERT_EQ(rf_send(comm, &word, 1, RF_I32, peer, 1000, &opts), RF_OK)
        << rf_last_error()->message;
    rf_request_free(request);
}

class HostPoint
{
  public:
    explicit HostPoint(Device &device)
    {
        EXPECT_EQ(rf_timeline_create(device.get(), &timeline_), RF_OK);
    }
    ~HostPoint()
    {
        rf_timeline_destroy(timeline_);
    }
    HostPoint(const HostPoint &) = delete;
    HostPoint &operator=(const HostPoint &) = delete;
    rf_point point() const
    {
        return {timeline_, 1};
    }
    void signal()
    {
        EXPECT_EQ(rf_timeline_signal(timeline_, 1), RF_OK);
    }

  private:
    rf_timeline *timeline_ = nullptr;
};

/* ---- every transport ------------------------------------------------------------------------- */

/* Processes open their devices themselves and take them along when they end. */
void run_anywhere(const ranks::World &world, unsigned hidden,
                  const std::function<void(rf_comm *comm, int rank, Device &device)> &body)
{
    if (world.provider == "loopback") {
        run(world, hidden, body);
        return;
    }
    ranks::run(world, [&](rf_comm *comm, int rank) {
        body(comm, rank, *new Device((hidden >> rank & 1) != 0));
    });
}

struct Case {
    int64_t count;
    rf_dtype dtype;
};

std::vector<uint8_t> bytes_of(const Case &c, int salt)
{
    std::vector<uint8_t> bytes(static_cast<size_t>(c.count) * rf_dtype_bytes(c.dtype));
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<uint8_t>((i * 2654435761u >> 13) + static_cast<size_t>(salt) * 41);
    return bytes;
}

class EveryTransport : public testing::TestWithParam<ranks::World>
{
};

/* Rank 0 blocks and can map its memory; rank 1's is hidden, or plain host memory. */
TEST_P(EveryTransport, CarriesTensorsOfAnySizeAndTypeToTensorsAndHostMemory)
{
    run_anywhere(GetParam(), 2, [](rf_comm *comm, int rank, Device &device) {
        const int64_t piece = PIECE / 4;
        const Case cases[] = {{0, RF_F32},         {1, RF_U8},         {3, RF_F16},
                              {8192, RF_U8},       {8193, RF_U8},      {piece, RF_F32},
                              {piece + 1, RF_F32}, {5 * piece, RF_I32}};
        uint64_t sent = 0, staged = 0;
        for (const Case &c : cases) {
            const std::vector<uint8_t> mine = bytes_of(c, rank), theirs = bytes_of(c, 1 - rank);
            std::vector<uint8_t> got(mine.size());
            rf_tensor out = {}, in = {};
            ASSERT_EQ(rf_tensor_create(device.get(), rf_shape1(c.count), c.dtype, &out), RF_OK);
            ASSERT_EQ(rf_tensor_create(device.get(), rf_shape1(c.count), c.dtype, &in), RF_OK);
            ASSERT_EQ(rf_tensor_write(out, mine.data(), mine.size()), RF_OK);
            if (rank == 0) {
                ASSERT_EQ(rf_send_tensor(comm, out, 1, 3, nullptr), RF_OK)
                    << rf_last_error()->message;
                ASSERT_EQ(rf_recv_tensor(comm, in, 1, 4, nullptr), RF_OK)
                    << rf_last_error()->message;
                ASSERT_EQ(rf_tensor_read(in, got.data(), got.size()), RF_OK);
                EXPECT_EQ(got, theirs) << c.count;
                ASSERT_EQ(rf_recv_tensor(comm, in, 1, 4, nullptr), RF_OK); /* from host memory */
                ASSERT_EQ(rf_send_tensor(comm, out, 1, 3, nullptr), RF_OK);
            } else {
                const rf_point received = recv(comm, in, 0, 3), gone = send(comm, out, 0, 4);
                wait(received);
                wait(gone);
                ASSERT_EQ(rf_send(comm, mine.data(), static_cast<size_t>(c.count), c.dtype, 0, 4,
                                  nullptr),
                          RF_OK);
                ASSERT_EQ(rf_tensor_read(in, got.data(), got.size()), RF_OK);
                EXPECT_EQ(got, theirs) << c.count;
                ASSERT_EQ(rf_recv_tensor(comm, in, 0, 3, nullptr), RF_OK);
                staged += 3 * mine.size();
            }
            sent += 2 * mine.size();
            ASSERT_EQ(rf_tensor_read(in, got.data(), got.size()), RF_OK);
            EXPECT_EQ(got, theirs) << c.count;
            EXPECT_EQ(rf_comm_sent_bytes(comm), sent);
            EXPECT_EQ(rf_comm_staged_bytes(comm), staged);
            rf_buffer_destroy(out.buffer);
            rf_buffer_destroy(in.buffer);
        }
    });
}

std::vector<ranks::World> with_checksums()
{
    std::vector<ranks::World> worlds = ranks::worlds({2}, {});
    worlds[0].checksum = true;
    return worlds;
}

INSTANTIATE_TEST_SUITE_P(Checksums, EveryTransport, testing::ValuesIn(with_checksums()),
                         [](const auto &info) { return ranks::name(info.param); });
INSTANTIATE_TEST_SUITE_P(All, EveryTransport, testing::ValuesIn(ranks::worlds({2}, {2})),
                         [](const auto &info) { return ranks::name(info.param); });

/* ---- independence ---------------------------------------------------------------------------- */

class TensorP2p : public testing::TestWithParam<bool>
{
}; /* true: memory that cannot be mapped */

/* Envelopes are received unasked, the data of long messages are not. */
TEST_P(TensorP2p, NeighboursMayAllSendFirstAtAnySize)
{
    for (int size = 2; size <= 4; size++)
        run(size, GetParam(), [&](rf_comm *comm, int rank, Device &device) {
            const int next = (rank + 1) % size, last = (rank + size - 1) % size;
            for (size_t count : {size_t(10), size_t(2049), size_t(540000)}) {
                rf_tensor out = device.tensor(thirds(rank, count));
                rf_tensor in = device.tensor(std::vector<float>(count, -1));
                rf_tensor back = device.tensor(std::vector<float>(count, -1));
                const rf_point points[] = {send(comm, out, next, 0), send(comm, out, last, 1),
                                           recv(comm, in, last, 0), recv(comm, back, next, 1)};
                for (const rf_point &point : points)
                    wait(point);
                EXPECT_EQ(read(in), thirds(last, count));
                EXPECT_EQ(read(back), thirds(next, count));
            }
            EXPECT_EQ(rf_comm_wait(comm), RF_OK);
        });
}

TEST_P(TensorP2p, ManyAreInFlightWithTagsInAnyOrderWithinBoundedMemory)
{
    run(2, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        constexpr int messages = 64;
        /* Short, long, and every sixteenth of several pieces. */
        auto count_of = [](int tag) { return size_t(tag % 16 == 5 ? 600000 : 90 * tag + 1); };
        std::vector<rf_tensor> out, in;
        uint64_t bytes = 0;
        for (int tag = 0; tag < messages; tag++) {
            out.push_back(device.tensor(thirds(100 * rank + tag, count_of(tag))));
            in.push_back(device.tensor(std::vector<float>(count_of(tag), -1)));
            bytes += count_of(tag) * sizeof(float);
        }
        rf_device_memory_reset_peak(device.get());
        std::vector<rf_point> points;
        for (int i = 0; i < messages; i++) {
            const int there = i * 37 % messages, here = (i * 29 + 11 * rank) % messages;
            points.push_back(send(comm, out[there], 1 - rank, there));
            points.push_back(recv(comm, in[here], 1 - rank, here));
        }
        for (const rf_point &point : points)
            wait(point);
        EXPECT_EQ(rf_comm_wait(comm), RF_OK) << rf_last_error()->message;
        for (int tag = 0; tag < messages; tag++)
            EXPECT_EQ(read(in[tag]), thirds(100 * (1 - rank) + tag, count_of(tag))) << tag;
        rf_memory_stats stats;
        rf_device_memory(device.get(), &stats);
        EXPECT_LE(stats.peak[RF_CATEGORY_COMM], GetParam() ? 2 * STAGED_AT_MOST : 0);
        EXPECT_EQ(rf_comm_staged_bytes(comm), GetParam() ? 2 * bytes : 0);
        EXPECT_EQ(rf_comm_sent_bytes(comm), bytes);
    });
}

TEST_P(TensorP2p, AReceiveWhosePeerHasNotSentBlocksNothingElse)
{
    run(2, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        const size_t count = 5000;
        rf_tensor out = device.tensor(thirds(rank, count)), late = device.tensor(thirds(7, count));
        rf_tensor in = device.tensor(std::vector<float>(count, -1));
        rf_tensor sum = device.tensor(std::vector<float>(count, 1));
        rf_point summed = {};
        const rf_coll_opts opts = with_done(&summed);
        if (rank == 0) {
            const rf_point awaited = recv(comm, late, 1, 1), gone = send(comm, out, 1, 2);
            const rf_point received = recv(comm, in, 1, 3);
            ASSERT_EQ(rf_all_reduce_tensor(comm, sum, sum, RF_SUM, &opts), RF_OK);
            wait(gone);
            wait(received);
            wait(summed);
            EXPECT_FALSE(rf_point_reached(awaited));
            send_signal(comm, 1, 0);
            wait(awaited);
            EXPECT_EQ(read(late), thirds(1, count));
        } else {
            const rf_point received = recv(comm, in, 0, 2), gone = send(comm, out, 0, 3);
            ASSERT_EQ(rf_all_reduce_tensor(comm, sum, sum, RF_SUM, &opts), RF_OK);
            wait(received);
            wait(gone);
            wait(summed);
            receive_signal(comm, 0, 0);
            ASSERT_EQ(rf_send_tensor(comm, out, 0, 1, nullptr), RF_OK);
        }
        EXPECT_EQ(read(in), thirds(1 - rank, count));
        EXPECT_EQ(read(sum), std::vector<float>(count, 2));
    });
}

/* Announced messages hold no slots; otherwise all slots for sends would be taken. */
TEST(TensorP2pStaged, LongSendsWithoutAReceiveLeaveSlotsForOthers)
{
    run(2, true, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor out = device.tensor(thirds(rank, 4000)), in = device.tensor(thirds(7, 4000));
        std::vector<rf_point> points;
        for (int i = 0; i < 20; i++)
            points.push_back(send(comm, out, 1 - rank, 5));
        const rf_point gone = send(comm, out, 1 - rank, 6), received = recv(comm, in, 1 - rank, 6);
        wait(gone);
        wait(received);
        EXPECT_EQ(read(in), thirds(1 - rank, 4000));
        EXPECT_FALSE(rf_point_reached(points[0]));
        send_signal(comm, 1 - rank, 0);
        receive_signal(comm, 1 - rank, 0);
        for (int i = 0; i < 20; i++)
            points.push_back(recv(comm, in, 1 - rank, 5));
        for (const rf_point &point : points)
            wait(point);
    });
}

TEST_P(TensorP2p, AMessageToOneselfIsReceivedBeforeOrAfterItIsSent)
{
    run(1, GetParam(), [](rf_comm *comm, int, Device &device) {
        for (size_t count : {size_t(0), size_t(10), size_t(700000)}) {
            rf_tensor first = device.tensor(thirds(1, count)),
                      second = device.tensor(thirds(2, count));
            rf_tensor a = device.tensor(std::vector<float>(count, -1));
            rf_tensor b = device.tensor(std::vector<float>(count, -1));
            HostPoint host_point(device);
            const rf_point got_a = recv(comm, a, 0, 9),
                           sent = send(comm, first, 0, 9, host_point.point());
            const rf_point also = send(comm, second, 0, 9), got_b = recv(comm, b, 0, 9);
            wait(send(comm, first, 0, 8)); /* of another tag: the ones before it have been served */
            wait(recv(comm, device.tensor(thirds(3, count)), 0, 8));
            EXPECT_FALSE(rf_point_reached(also)) << "it would overtake the one before it";
            host_point.signal();
            for (const rf_point &point : {got_a, sent, also, got_b})
                wait(point);
            EXPECT_EQ(read(a), thirds(1, count));
            EXPECT_EQ(read(b), thirds(2, count));
        }
        rf_tensor tensor = device.tensor(thirds(1, 10));
        EXPECT_EQ(rf_send_tensor(comm, tensor, 0, 0, nullptr), RF_EINVAL)
            << "it would wait for ever";
    });
}

/* ---- points before and after ----------------------------------------------------------------- */

/* The device writes the tensor once the point is signalled, long after the send was called. */
TEST_P(TensorP2p, ASendReadsItsTensorWhenItsPointIsReachedAndKeepsTheOrderOfItsTag)
{
    run(2, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        for (size_t count : {size_t(100), size_t(300000)}) {
            const uint64_t bytes = count * sizeof(float);
            if (rank == 1) {
                rf_tensor in = device.tensor(std::vector<float>(count, -1));
                rf_tensor then = device.tensor(std::vector<float>(count, -1));
                const rf_point first = recv(comm, in, 0, 4), second = recv(comm, then, 0, 4);
                receive_signal(comm, 0, 0); /* no message of tag 4 has begun */
                EXPECT_FALSE(rf_point_reached(first));
                send_signal(comm, 0, 1);
                wait(first);
                wait(second);
                EXPECT_EQ(read(in), thirds(5, count));
                EXPECT_EQ(read(then), thirds(6, count));
                continue;
            }
            rf_tensor fresh = device.tensor(thirds(5, count)),
                      next = device.tensor(thirds(6, count));
            rf_tensor out = device.tensor(std::vector<float>(count, -9));
            HostPoint host_point(device);
            rf_stream *stream = nullptr;
            rf_point written = {};
            ASSERT_EQ(rf_stream_create(device.get(), "writer", &stream), RF_OK);
            ASSERT_EQ(rf_stream_after(stream, host_point.point()), RF_OK);
            ASSERT_EQ(rf_stream_copy(stream, {out.buffer, out.offset}, {fresh.buffer, fresh.offset},
                                     bytes),
                      RF_OK);
            ASSERT_EQ(rf_stream_submit(stream, &written), RF_OK);
            const rf_point sent = send(comm, out, 1, 4, written), behind = send(comm, next, 1, 4);
            send_signal(comm, 1, 0); /* another tag proceeds meanwhile */
            EXPECT_FALSE(rf_point_reached(sent));
            EXPECT_FALSE(rf_point_reached(behind)) << "it would overtake the one before it";
            receive_signal(comm, 1, 1);
            host_point.signal();
            wait(sent);
            wait(behind);
            rf_stream_destroy(stream);
        }
    });
}

TEST_P(TensorP2p, AReceiveWritesItsTensorNoEarlierThanItsPointAndDoneIsBehindTheData)
{
    run(2, GetParam(), [](rf_comm *comm, int rank, Device &device) {
        for (size_t count : {size_t(100), size_t(300000)}) {
            rf_tensor tensor = device.tensor(thirds(rank, count));
            if (rank == 0) {
                const rf_point gone = send(comm, tensor, 1, 4);
                send_signal(comm, 1, 0);
                wait(gone);
                continue;
            }
            HostPoint host_point(device);
            const rf_point got = recv(comm, tensor, 0, 4, host_point.point());
            rf_tensor copy = device.tensor(std::vector<float>(count, -1));
            rf_stream *stream = nullptr;
            rf_point copied = {};
            ASSERT_EQ(rf_stream_create(device.get(), "reader", &stream), RF_OK);
            ASSERT_EQ(rf_stream_after(stream, got), RF_OK);
            ASSERT_EQ(rf_stream_copy(stream, {copy.buffer, copy.offset},
                                     {tensor.buffer, tensor.offset}, count * sizeof(float)),
                      RF_OK);
            ASSERT_EQ(rf_stream_submit(stream, &copied), RF_OK);
            receive_signal(comm, 0, 0); /* so the ones sent before it have arrived */
            EXPECT_EQ(read(tensor), thirds(1, count)) << "nobody may write it yet";
            EXPECT_FALSE(rf_point_reached(copied));
            host_point.signal();
            wait(copied);
            EXPECT_EQ(read(copy), thirds(0, count));
            rf_stream_destroy(stream);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Memory, TensorP2p, testing::Bool(),
                         [](const auto &info) { return info.param ? "Staged" : "Mapped"; });

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(TensorP2pErrors, ACountOrTypeThatDiffersIsAMismatchOnBothSides)
{
    for (size_t count : {size_t(10), size_t(5000)}) {
        const bool other_type = count == 5000;
        run(2, count == 10, [&](rf_comm *comm, int rank, Device &device) {
            rf_tensor tensor = device.tensor(thirds(rank, count + (rank && !other_type)));
            if (rank == 1 && other_type)
                tensor.dtype = RF_I32;
            const rf_point done = rank == 0 ? send(comm, tensor, 1, 2) : recv(comm, tensor, 0, 2);
            wait(done);
            if (rank == 0 && count == 10) /* it succeeded; the receiver reports it */
                EXPECT_EQ(rf_barrier(comm, nullptr), RF_EMISMATCH) << rf_last_error()->message;
            else
                EXPECT_EQ(rf_comm_wait(comm), RF_EMISMATCH) << rf_last_error()->message;
            EXPECT_NE(strstr(rf_last_error()->message, "send"), nullptr)
                << rf_last_error()->message;
            EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
        });
    }
}

/* The receiver blocks for longer than the time after which calls are compared. */
TEST(TensorP2pErrors, ASendThatWaitsForItsPointIsNoDifferenceToACollectiveBesideIt)
{
    run(2, 1, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor tensor = device.tensor(thirds(rank, 5000));
        int32_t one = 1;
        HostPoint host_point(device);
        std::thread opener;
        if (rank == 0) {
            send(comm, tensor, 1, 2, host_point.point());
            opener = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(600));
                host_point.signal();
            });
        } else {
            EXPECT_EQ(rf_recv_tensor(comm, tensor, 0, 2, nullptr), RF_OK)
                << rf_last_error()->message;
            EXPECT_EQ(read(tensor), thirds(0, 5000));
        }
        EXPECT_EQ(rf_all_reduce(comm, &one, &one, 1, RF_I32, RF_SUM, nullptr), RF_OK)
            << rf_last_error()->message;
        if (opener.joinable())
            opener.join();
        EXPECT_EQ(rf_comm_wait(comm), RF_OK) << rf_last_error()->message;
    });
}

TEST(TensorP2pErrors, LongMessagesWithAnotherTagAreReportedToBothRanks)
{
    run(2, true, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor tensor = device.tensor(thirds(rank, 5000));
        EXPECT_EQ(rank == 0 ? rf_send_tensor(comm, tensor, 1, 5, nullptr)
                            : rf_recv_tensor(comm, tensor, 0, 6, nullptr),
                  RF_EMISMATCH)
            << rf_last_error()->message;
    });
}

TEST(TensorP2pErrors, ADeadPeerIsReportedOnAllRanksAndEveryPointIsReached)
{
    ranks::World world;
    world.size = 3;
    world.faults.kill_rank = 2;
    world.faults.kill_after_messages = 1;
    run(world, 2, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor in = device.tensor(thirds(rank, 3000)), out = device.tensor(thirds(3, 3000));
        if (rank == 2) {
            receive_signal(comm, 0, 0);
            receive_signal(comm, 1, 0);
            rf_tensor word = device.tensor(thirds(2, 1));
            for (int rc = RF_OK; rc == RF_OK;) /* its second message never leaves */
                rc = rf_send_tensor(comm, word, 0, 1, nullptr);
            return;
        }
        HostPoint never(device);
        const rf_point points[] = {recv(comm, in, 2, 7), send(comm, out, 1 - rank, 8),
                                   send(comm, out, 1 - rank, 9, never.point())};
        tell_last(comm, 2);
        for (const rf_point &point : points)
            wait(point);
        EXPECT_EQ(rf_comm_wait(comm), RF_EPEER) << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, 2) << rf_last_error()->message;
        EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
    });
}

TEST(TensorP2pErrors, AnAbortEndsWhatWaitsForAPeerOrForADevice)
{
    run(2, 1, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor in = device.tensor(thirds(rank, 3000)), out = device.tensor(thirds(3, 3000));
        HostPoint never(device);
        rf_request *request = nullptr;
        rf_coll_opts opts = {};
        opts.request = &request;
        const rf_point points[] = {recv(comm, in, 1 - rank, 1),
                                   send(comm, out, 1 - rank, 2, never.point())};
        ASSERT_EQ(rf_send_tensor(comm, out, 1 - rank, 3, &opts), RF_OK);
        if (rank == 0) {
            receive_signal(comm, 1, 0); /* it has called all of them, too */
            rf_comm_abort(comm, "enough");
        } else {
            tell_last(comm, 0);
        }
        for (const rf_point &point : points)
            wait(point);
        EXPECT_EQ(rf_request_wait(request, 0), RF_EABORT) << rf_last_error()->message;
        EXPECT_EQ(rf_comm_wait(comm), RF_EABORT);
        rf_request_free(request);
    });
}

TEST(TensorP2pErrors, ATimeoutCountsWaitsForThePeerAndNotForTheDevice)
{
    ranks::World world;
    world.timeout_s = 0.3;
    run(world, 1, [](rf_comm *comm, int rank, Device &device) {
        rf_tensor tensor = device.tensor(thirds(rank, 100));
        HostPoint host_point(device);
        if (rank == 0) {
            const rf_point gone = send(comm, tensor, 1, 2, host_point.point());
            EXPECT_EQ(rf_point_wait(gone, 600000000), RF_ETIMEOUT);
            EXPECT_EQ(rf_comm_async_error(comm), RF_OK) << rf_last_error()->message;
            host_point.signal();
            wait(gone);
            rf_coll_opts patient = {};
            int32_t word = 0;
            patient.timeout_s = 20; /* rank 1 may be late, too */
            ASSERT_EQ(rf_recv(comm, &word, 1, RF_I32, 1, 1000, &patient), RF_OK)
                << rf_last_error()->message;
            return;
        }
        rf_coll_opts opts = {};
        opts.timeout_s = 20;
        ASSERT_EQ(rf_recv_tensor(comm, tensor, 0, 2, &opts), RF_OK) << rf_last_error()->message;
        send_signal(comm, 0, 0);
        rf_point done = {};
        opts = with_done(&done);
        opts.timeout_s = 0.3;
        ASSERT_EQ(rf_recv_tensor(comm, tensor, 0, 3, &opts), RF_OK);
        wait(done);
        const int rc = rf_comm_wait(comm);
        EXPECT_TRUE(rc == RF_ETIMEOUT || rc == RF_EPEER) << rf_last_error()->message;
    });
}

TEST(TensorP2pErrors, WrongArgumentsAreRefusedWithASentence)
{
    run(2, false, [](rf_comm *comm, int, Device &device) {
        rf_tensor tensor = device.tensor(thirds(0, 10)), none = {};
        none.shape = rf_shape1(4);
        rf_point done = {};
        rf_request *request = nullptr;
        rf_coll_opts opts = with_done(&done);
        EXPECT_EQ(rf_send_tensor(nullptr, tensor, 1, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_recv_tensor(comm, none, 1, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_send_tensor(comm, tensor, 2, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_send_tensor(comm, tensor, 1, 1024, nullptr), RF_EINVAL);
        none.shape = rf_shape1(0);
        EXPECT_EQ(rf_send_tensor(comm, none, 1, 0, &opts), RF_EINVAL) << "`done` of which device?";
        opts.request = &request;
        EXPECT_EQ(rf_send_tensor(comm, tensor, 1, 0, &opts), RF_EINVAL);
        opts = {};
        opts.wire_dtype = RF_F16;
        EXPECT_EQ(rf_send_tensor(comm, tensor, 1, 0, &opts), RF_EINVAL);
        opts = {};
        opts.timeout_s = -1;
        EXPECT_EQ(rf_recv_tensor(comm, tensor, 1, 0, &opts), RF_EINVAL);
        ASSERT_EQ(rf_group_start(comm), RF_OK);
        EXPECT_EQ(rf_send_tensor(comm, tensor, 1, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_group_end(comm), RF_OK);
        EXPECT_EQ(done.timeline, nullptr);
        EXPECT_EQ(request, nullptr);
        EXPECT_EQ(rf_barrier(comm, nullptr), RF_OK);
    });
}

} // namespace
