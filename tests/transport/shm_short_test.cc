// SPDX-License-Identifier: MIT
//
// Short messages between ranks that share memory: in one record, in both of a line, or in a cell;
// sent and received at once, or posted.
#include "shm_helpers.h"

#include <deque>
#include <random>

using namespace shm;
using namespace transport;

namespace
{

struct Message {
    uint64_t tag;
    std::vector<uint8_t> data;
    uint32_t contract() const
    {
        return (uint32_t)tag * 7;
    }
};

// Sends that cannot complete at once are posted, so their contexts must stay.
struct Pair {
    World world{2};
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    std::deque<Message> under_way;
    std::deque<Context> contexts;

    int send_at_once(const Message &message)
    {
        int done = from->ops->send_at_once(from, 1, message.tag, message.contract(),
                                           message.data.data(), message.data.size());
        if (done > 0)
            under_way.push_back(message);
        return done;
    }
    void post(const Message &message)
    {
        under_way.push_back(message);
        contexts.emplace_back();
        ASSERT_EQ(from->ops->post_send(from, 1, message.tag, message.contract(),
                                       under_way.back().data.data(), message.data.size(),
                                       &contexts.back()),
                  0);
    }
    void check(const rf_completion &done, const std::vector<uint8_t> &in)
    {
        const Message &message = under_way.front();
        EXPECT_EQ(done.status, 0);
        EXPECT_TRUE(done.is_recv);
        EXPECT_EQ(done.peer, 0);
        EXPECT_EQ(done.bytes, message.data.size());
        EXPECT_EQ(done.contract, message.contract());
        EXPECT_EQ(done.token, 0u);
        EXPECT_TRUE(std::equal(message.data.begin(), message.data.end(), in.begin()))
            << message.data.size() << " bytes";
        for (size_t i = message.data.size(); i < in.size(); i++)
            ASSERT_EQ(in[i], 0xee) << i;
        under_way.pop_front();
    }
    // Receives the oldest message, at once if possible. True: it was.
    bool receive(size_t longer = 0)
    {
        const Message &message = under_way.front();
        std::vector<uint8_t> in(message.data.size() + longer, 0xee);
        rf_completion done = {};
        int got = to->ops->recv_at_once(to, 0, message.tag, in.data(), in.size(), &done);
        EXPECT_GE(got, 0);
        if (got == 0) {
            Context context;
            EXPECT_EQ(to->ops->post_recv(to, 0, message.tag, in.data(), in.size(), &context), 0);
            EXPECT_EQ(world.next(1, &done), 1);
        }
        check(done, in);
        return got > 0;
    }
};

size_t random_length(std::mt19937 &random)
{
    switch (random() % 4) {
    case 0:
        return random() % (RF_SHM_TINY + 1);
    case 1:
        return random() % (2 * RF_SHM_INLINE);
    case 2:
        return random() % (RF_SHM_CELL + 1);
    default:
        return random() % (2 * RF_SHM_TINY);
    }
}

} // namespace

TEST(ShmShort, AllLengthsInAnyMixtureArriveWhole)
{
    Pair pair;
    std::mt19937 random(3);
    size_t most = 1;
    uint64_t tag = 1, at_once = 0, bytes = 0, count = 20000;
    for (; tag <= count; tag++) {
        const Message message{tag, payload(tag, random_length(random))};
        pair.from->streams = random() % 2;
        if (random() % 8 == 0 || pair.send_at_once(message) == 0)
            pair.post(message);
        bytes += message.data.size();
        if (tag % 500 == 0) // from an empty ring to more messages than fit into it
            most = random() % (2 * RF_SHM_RECORDS);
        while (pair.under_way.size() > most || (!pair.under_way.empty() && random() % 8 == 0))
            at_once += pair.receive(random() % 3);
    }
    while (!pair.under_way.empty())
        pair.receive();
    EXPECT_GT(at_once, count / 2);
    EXPECT_EQ(pair.from->sent_messages, count);
    EXPECT_EQ(pair.from->sent_bytes, bytes);
}

TEST(ShmShort, ASenderStopsWhereTheRingIsFullAndGoesOnWhenItHasBeenRead)
{
    for (size_t length : {RF_SHM_TINY + 0, RF_SHM_TINY + 1, RF_SHM_INLINE + 0, RF_SHM_INLINE + 1}) {
        Pair pair;
        uint64_t tag = 1;
        for (int round = 0; round < 5; round++) {
            while (pair.send_at_once({tag, payload(tag, length)}) > 0)
                tag++;
            const bool takes_two = length > RF_SHM_TINY && length <= RF_SHM_INLINE;
            const size_t most = takes_two ? RF_SHM_RECORDS / 2 : RF_SHM_RECORDS;
            EXPECT_LE(pair.under_way.size(), most);
            EXPECT_GE(pair.under_way.size(), most / 2);
            while (!pair.under_way.empty())
                EXPECT_TRUE(pair.receive());
        }
    }
}

// It needs both records of a line, so the one before is skipped.
TEST(ShmShort, AMessageOfALineAfterOneOfHalfALineBeginsTheNext)
{
    Pair pair;
    const rf_shm_peer &peer = pair.world.ends[0].shm()->peers[1];
    if (peer.sent % 2) { // after the measurement at the start
        ASSERT_EQ(pair.send_at_once({1, payload(1, 1)}), 1);
    }
    const uint64_t begin = peer.sent;
    for (size_t length : {1, 30, 30, 2, 2, 2, 30, 100, 30, 0, 30})
        ASSERT_EQ(pair.send_at_once({length, payload(length, length)}), 1);
    EXPECT_EQ(peer.sent - begin, 20u);
    while (!pair.under_way.empty())
        EXPECT_TRUE(pair.receive());
}

TEST(ShmShort, WhatIsNotTheNextMessageOrDoesNotFitIsNotReceivedAtOnce)
{
    Pair pair;
    rf_transport *to = pair.to;
    const Message message{5, payload(5, 20)}, next{6, payload(6, 4)};
    ASSERT_EQ(pair.send_at_once(message), 1);
    ASSERT_EQ(pair.send_at_once(next), 1);
    std::vector<uint8_t> in(20, 0xee);
    rf_completion done = {};
    EXPECT_EQ(to->ops->recv_at_once(to, 0, 6, in.data(), in.size(), &done), 0);
    EXPECT_EQ(to->ops->recv_at_once(to, 0, 5, in.data(), 19, &done), 0);
    EXPECT_EQ(in, std::vector<uint8_t>(20, 0xee));
    Context context;
    ASSERT_EQ(to->ops->post_recv(to, 0, 5, in.data(), 19, &context), 0);
    ASSERT_EQ(pair.world.next(1, &done), 1);
    EXPECT_EQ(done.status, RF_EMISMATCH);
    pair.under_way.pop_front();
    EXPECT_TRUE(pair.receive());
}

TEST(ShmShort, LongMessagesAndThoseToOneselfAreLeftToThePosts)
{
    Pair pair;
    rf_transport *from = pair.from;
    const auto data = payload(1, RF_SHM_EAGER_PRIVATE + 1);
    rf_completion done = {};
    EXPECT_EQ(from->ops->send_at_once(from, 1, 1, 0, data.data(), data.size()), 0);
    EXPECT_EQ(from->ops->send_at_once(from, 0, 1, 0, data.data(), 4), 0);
    uint8_t in[4];
    EXPECT_EQ(from->ops->recv_at_once(from, 0, 1, in, 4, &done), 0);
    EXPECT_EQ(from->ops->send_at_once(from, 2, 1, 0, data.data(), 4), RF_EINVAL);
    EXPECT_EQ(from->ops->recv_at_once(from, -1, 1, in, 4, &done), RF_EINVAL);
    EXPECT_EQ(from->sent_messages, 0u);
    from->ops->cancel_all(from);
    EXPECT_EQ(from->ops->send_at_once(from, 1, 1, 0, data.data(), 4), RF_EABORT);
}

// Enough ranks that the cells for all of them exceed a private cache, and no more.
TEST(ShmShort, ManyRanksHaveFewerCellsAndAllOfThemCanBeUsed)
{
    const unsigned cells[] = {512, 256, 128, 128, 64};
    for (int size = 2; size <= 6; size++) {
        World world(size);
        rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
        ASSERT_EQ(world.ends[0].shm()->peers[1].cells, cells[size - 2]);
        const auto data = payload(1, RF_SHM_CELL);
        uint64_t sent = 0, received = 0;
        for (int round = 0; round < 3; round++) {
            while (from->ops->send_at_once(from, 1, sent, 0, data.data(), data.size()) > 0)
                sent++;
            EXPECT_LE(sent - received, cells[size - 2]);
            EXPECT_GE(sent - received, cells[size - 2] / 2);
            for (; received < sent; received++) {
                std::vector<uint8_t> in(data.size());
                rf_completion done = {};
                ASSERT_EQ(to->ops->recv_at_once(to, 0, received, in.data(), in.size(), &done), 1);
                ASSERT_TRUE(in == data);
            }
        }
    }
}

// The sender counts its records: one for the message, and one for each piece.
TEST(ShmShort, WhatIsCopiedComesInPiecesAndWhatStaysInItsSlotAsAWhole)
{
    World world(2);
    rf_transport *from = world.ends[0].t, *to = world.ends[1].t;
    const rf_shm_peer &peer = world.ends[0].shm()->peers[1];
    const auto data = payload(1, RF_SHM_SLOT);
    for (bool crowded : {false, true})
        for (bool stays : {false, true}) {
            from->yield = crowded;
            std::vector<uint8_t> in(data.size());
            Context a, b;
            rf_completion done;
            const uint64_t before = peer.sent;
            ASSERT_EQ((stays ? to->ops->post_recv_zero_copy
                             : to->ops->post_recv)(to, 0, 9, in.data(), in.size(), &b),
                      0);
            ASSERT_EQ(from->ops->post_send(from, 1, 9, 3, data.data(), data.size(), &a), 0);
            ASSERT_EQ(world.next(1, &done), 1);
            EXPECT_EQ(peer.sent - before, stays || crowded ? 2u : 1u + RF_SHM_PIECES);
            EXPECT_EQ(done.token != 0, stays);
            EXPECT_EQ(memcmp(done.token ? done.data : in.data(), data.data(), data.size()), 0);
            if (done.token)
                to->ops->release_zero_copy(to, 0, done.token);
            world.settle();
        }
}
