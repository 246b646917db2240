// SPDX-License-Identifier: MIT
//
// The transport over TCP sockets, all ranks in one thread: messages before their receives, the
// connections, and peers that leave, vanish or send invalid data. fabric_test.cc tests what all
// transports share.
#include <dirent.h>

#include <memory>

#include "job_helpers.h"

extern "C" {
#define restrict __restrict
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_wire.h"
}

using namespace transport;

namespace
{

struct Message {
    Context context;
    std::vector<uint8_t> data;
    rf_completion done{};
    bool is_done = false;
};

class Tcp : public testing::Test
{
  protected:
    std::vector<rf_tcp *> ends;
    std::vector<int> ports;
    std::vector<std::unique_ptr<Message>> messages;
    std::vector<int> errors; // the last one of each rank's poll
    std::vector<int> error_ranks;

    void open(int size)
    {
        for (int r = 0; r < size; r++) {
            rf_tcp *h = nullptr;
            int port = 0;
            ASSERT_EQ(rf_tcp_end_open(r, size, &h), 0);
            ASSERT_EQ(rf_tcp_listen(h, "127.0.0.1", &port), 0);
            ASSERT_EQ(rf_job_key_init(&h->key, "a key"), 0);
            ends.push_back(h);
            ports.push_back(port);
            errors.push_back(0);
            error_ranks.push_back(-1);
        }
        for (rf_tcp *h : ends)
            for (int r = 0; r < size; r++) {
                strcpy(h->addresses[r].host, "127.0.0.1");
                h->addresses[r].port = ports[(size_t)r];
            }
    }
    void TearDown() override
    {
        for (rf_tcp *h : ends)
            if (h)
                h->transport.ops->destroy(&h->transport);
    }
    Message *send(int from, int to, uint64_t tag, size_t bytes, uint64_t id = 0)
    {
        messages.push_back(std::make_unique<Message>());
        Message *m = messages.back().get();
        m->data = payload(id ? id : tag, bytes);
        rf_transport *t = &ends[(size_t)from]->transport;
        EXPECT_EQ(t->ops->post_send(t, to, tag, 7, m->data.data(), bytes, &m->context), 0)
            << rf_last_error()->message;
        return m;
    }
    Message *recv(int at, int from, uint64_t tag, size_t bytes)
    {
        messages.push_back(std::make_unique<Message>());
        Message *m = messages.back().get();
        m->data.assign(bytes, 0xee);
        rf_transport *t = &ends[(size_t)at]->transport;
        EXPECT_EQ(t->ops->post_recv(t, from, tag, m->data.data(), bytes, &m->context), 0)
            << rf_last_error()->message;
        return m;
    }
    void poll(int rank)
    {
        rf_completion done[4];
        rf_transport *t = &ends[(size_t)rank]->transport;
        int count = t->ops->poll(t, done, 4);
        if (count < 0) {
            errors[(size_t)rank] = count;
            error_ranks[(size_t)rank] = rf_last_error()->rank;
        }
        for (int i = 0; i < count; i++) {
            Message *m = (Message *)done[i].context;
            EXPECT_FALSE(m->is_done);
            m->done = done[i];
            m->is_done = true;
        }
    }
    void poll_all(int times)
    {
        for (int i = 0; i < times; i++)
            for (size_t r = 0; r < ends.size(); r++)
                if (ends[r])
                    poll((int)r);
    }
    bool wait(const std::vector<Message *> &all, double seconds = 20)
    {
        uint64_t end = rf_now_ns() + (uint64_t)(seconds * 1e9);
        for (;;) {
            bool ready = true;
            for (Message *m : all)
                ready = ready && m->is_done;
            if (ready || rf_now_ns() > end)
                return ready;
            poll_all(1);
        }
    }
    void expect_data(Message *m, uint64_t id, size_t bytes)
    {
        EXPECT_EQ(m->done.status, 0);
        EXPECT_EQ(m->done.bytes, bytes);
        EXPECT_EQ(m->done.contract, 7u);
        EXPECT_TRUE(m->done.is_recv);
        m->data.resize(bytes);
        EXPECT_TRUE(m->data == payload(id, bytes)) << "message " << id << " of " << bytes;
    }
    // One exchange, so that a connection is open.
    void connect(int a, int b)
    {
        Message *in = recv(b, a, 999, 4), *out = send(a, b, 999, 4);
        ASSERT_TRUE(wait({in, out}));
    }
    rf_tcp_peer *peer_of(int rank, int peer)
    {
        return &ends[(size_t)rank]->peers[peer];
    }
};

const size_t SIZES[] = {0,
                        1,
                        23,
                        24,
                        RF_TCP_COPIED - 1,
                        RF_TCP_COPIED,
                        RF_TCP_COPIED + 1,
                        RF_TCP_DIRECT,
                        RF_TCP_STAGE - RF_TCP_HEADER,
                        RF_TCP_STAGE + 1,
                        RF_TCP_KEPT - 1,
                        RF_TCP_KEPT,
                        RF_TCP_INPUT - RF_TCP_HEADER,
                        RF_TCP_INPUT,
                        RF_TCP_INPUT + 1,
                        RF_TCP_EAGER - 1,
                        RF_TCP_EAGER,
                        RF_TCP_EAGER + 1,
                        3 * RF_TCP_EAGER + 5};
const int COUNT = sizeof(SIZES) / sizeof(SIZES[0]);

} // namespace

TEST_F(Tcp, EverySizeArrivesWhateverTheOrderOfSendsReceivesAndPolls)
{
    open(2);
    for (int round = 0; round < 40; round++) {
        std::vector<int> sends(COUNT), recvs(COUNT);
        std::vector<Message *> in(COUNT), all;
        uint64_t state = (uint64_t)round * 77 + 5;
        for (int i = 0; i < COUNT; i++)
            sends[(size_t)i] = recvs[(size_t)i] = i;
        for (auto *order : {&sends, &recvs})
            for (int i = COUNT - 1; i > 0; i--) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                std::swap((*order)[(size_t)i], (*order)[(state >> 33) % (uint64_t)(i + 1)]);
            }
        // Rank 0 sends all, and rank 1 posts its receives before, between and after.
        for (int i = 0; i < COUNT; i++) {
            const int out = sends[(size_t)i], k = recvs[(size_t)i];
            if (round % 3 == 0)
                all.push_back(in[(size_t)k] = recv(1, 0, (uint64_t)k, SIZES[k]));
            all.push_back(send(0, 1, (uint64_t)out, SIZES[out], (uint64_t)(round * COUNT + out)));
            poll_all((int)(state >> (i % 32)) % 4);
            if (round % 3 == 1)
                all.push_back(in[(size_t)k] = recv(1, 0, (uint64_t)k, SIZES[k]));
        }
        if (round % 3 == 2)
            for (int k : recvs) {
                all.push_back(in[(size_t)k] = recv(1, 0, (uint64_t)k, SIZES[k]));
                poll_all(1);
            }
        ASSERT_TRUE(wait(all)) << "round " << round;
        for (int k = 0; k < COUNT; k++)
            expect_data(in[(size_t)k], (uint64_t)(round * COUNT + k), SIZES[k]);
        messages.clear();
    }
    EXPECT_EQ(peer_of(1, 0)->early, nullptr);
    EXPECT_EQ(peer_of(0, 1)->ready_count, 0u);
    EXPECT_LE(ends[1]->spare_count, RF_TCP_SPARE);
}

// All of it arrives in one read, into the buffer of the receive whose message is expected next.
TEST_F(Tcp, WhatComesWithOtherMessagesIsMovedToItsPlace)
{
    const size_t bytes[] = {RF_TCP_EAGER + 1, 20000, 100, 8192, 0};
    const std::vector<std::vector<int>> orders = {
        {0}, {1}, {2, 0}, {1, 0}, {0, 1}, {3, 2, 1, 4, 0}, {4, 0, 2, 1, 3}};
    for (size_t i = 0; i < orders.size() * 3; i++) {
        const std::vector<int> &order = orders[i / 3];
        const int controls = (int)(i % 3);
        open(2);
        connect(0, 1);
        std::vector<Message *> in, wanted;
        for (int k = 0; k < 5; k++)
            in.push_back(recv(1, 0, (uint64_t)k, bytes[k]));
        std::vector<uint8_t> stream;
        auto append = [&](uint64_t tag, uint64_t length, rf_tcp_kind kind) {
            const rf_tcp_frame frame = {
                .tag = tag, .bytes = length, .contract = 7, .kind = (uint8_t)kind};
            stream.resize(stream.size() + RF_TCP_HEADER);
            rf_tcp_write_header(&stream[stream.size() - RF_TCP_HEADER], &frame);
        };
        for (int k = 0; k < controls; k++)
            append(100 + (uint64_t)k, RF_TCP_EAGER + 1, RF_TCP_READY);
        for (int k : order) {
            append((uint64_t)k, bytes[k], RF_TCP_DATA);
            const std::vector<uint8_t> data = payload((uint64_t)k, bytes[k]);
            stream.insert(stream.end(), data.begin(), data.end());
            wanted.push_back(in[(size_t)k]);
        }
        for (size_t sent = 0; sent < stream.size();) {
            ssize_t count = ::send(peer_of(0, 1)->fd, &stream[sent], stream.size() - sent,
                                   MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += count > 0 ? (size_t)count : 0;
            if (sent < stream.size())
                poll(1);
        }
        ASSERT_TRUE(wait(wanted)) << "case " << i;
        for (int k : order)
            expect_data(in[(size_t)k], (uint64_t)k, bytes[k]);
        // Frames without payload do not tell which message is next.
        const auto *first = (const rf_posted *)&in[0]->context;
        EXPECT_TRUE(order[0] != 0 || !first->was_wrong) << "case " << i;
        TearDown();
        for (auto *all : {&ports, &errors, &error_ranks})
            all->clear();
        ends.clear();
        messages.clear();
    }
}

TEST_F(Tcp, ALongMessageThatNobodyExpectsKeepsNoneBehindItFromArriving)
{
    open(2);
    Message *longs = send(0, 1, 1, 8 << 20), *shorts = send(0, 1, 2, 100);
    Message *in = recv(1, 0, 2, 100);
    ASSERT_TRUE(wait({in, shorts}));
    EXPECT_FALSE(longs->is_done);
    Message *rest = recv(1, 0, 1, 8 << 20);
    ASSERT_TRUE(wait({rest, longs}));
    expect_data(rest, 1, 8 << 20);
}

TEST_F(Tcp, LongMessagesThatCrossEndThoughBothSendFirst)
{
    open(4);
    std::vector<Message *> all, in;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 3; k++)
            all.push_back(send(r, (r + 1) % 4, (uint64_t)k, 2 << 20, (uint64_t)(10 * r + k + 1)));
    poll_all(200);
    for (int r = 0; r < 4; r++)
        for (int k = 2; k >= 0; k--) // in the reverse order
            in.push_back(recv(r, (r + 3) % 4, (uint64_t)k, 2 << 20));
    all.insert(all.end(), in.begin(), in.end());
    ASSERT_TRUE(wait(all));
    for (int i = 0; i < 12; i++)
        expect_data(in[(size_t)i], (uint64_t)(10 * ((i / 3 + 3) % 4) + (2 - i % 3) + 1), 2 << 20);
}

TEST_F(Tcp, ManyRanksExchangeWithAll)
{
    const int size = 3 * RF_TCP_TRIED;
    open(size);
    const size_t sizes[] = {5, 5000, 300000};
    for (int round = 0; round < 3; round++) {
        std::vector<Message *> in, all;
        for (int r = 0; r < size; r++)
            for (int p = 0; p < size; p++)
                in.push_back(recv(r, p, (uint64_t)round, sizes[round]));
        all = in;
        for (int r = 0; r < size; r++)
            for (int p = 0; p < size; p++)
                all.push_back(
                    send(r, p, (uint64_t)round, sizes[round], (uint64_t)(r * size + p + 1)));
        ASSERT_TRUE(wait(all));
        for (int r = 0; r < size; r++)
            for (int p = 0; p < size; p++)
                expect_data(in[(size_t)(r * size + p)], (uint64_t)(p * size + r + 1), sizes[round]);
        messages.clear();
    }
    for (int r = 0; r < size; r++)
        EXPECT_EQ(ends[(size_t)r]->watched_count, 0);
}

TEST_F(Tcp, TwoRanksThatDialEachOtherKeepOneConnection)
{
    for (int round = 0; round < 20; round++) {
        open(2);
        Message *in0 = recv(0, 1, 1, 9), *in1 = recv(1, 0, 1, 9);
        Message *out0 = send(0, 1, 1, 9, 3), *out1 = send(1, 0, 1, 9, 4);
        for (int i = 0; i < round; i++)
            poll(round % 2);
        ASSERT_TRUE(wait({in0, in1, out0, out1})) << "round " << round;
        expect_data(in0, 4, 9);
        expect_data(in1, 3, 9);
        poll_all(40);
        EXPECT_EQ(ends[0]->greetings, nullptr);
        EXPECT_EQ(ends[1]->greetings, nullptr);
        EXPECT_EQ(ends[0]->unopened + ends[1]->unopened, 0);
        TearDown();
        ends.clear();
        ports.clear();
        messages.clear();
    }
}

TEST_F(Tcp, AReceiveThatIsTooShortIsAnErrorAtItsRankAndNothingIsWrittenBeyond)
{
    open(2);
    for (size_t bytes : {size_t{101}, size_t{20000}, size_t{RF_TCP_EAGER}, size_t{1 << 20}})
        for (bool early : {false, true}) {
            Message *in = nullptr, *after = recv(1, 0, 6, 4);
            if (!early)
                in = recv(1, 0, 5, 100);
            Message *out = send(0, 1, 5, bytes), *last = send(0, 1, 6, 4);
            poll_all(50);
            if (early)
                in = recv(1, 0, 5, 100);
            ASSERT_TRUE(wait({in, out, after, last}));
            EXPECT_EQ(in->done.status, RF_EMISMATCH);
            EXPECT_EQ(out->done.status, 0);
            EXPECT_EQ(in->data, std::vector<uint8_t>(100, 0xee));
            expect_data(after, 6, 4);
        }
}

TEST_F(Tcp, AShorterMessageThanItsReceiveSaysHowLongItIs)
{
    open(2);
    Message *in = recv(1, 0, 5, 1 << 20), *out = send(0, 1, 5, 100);
    ASSERT_TRUE(wait({in, out}));
    expect_data(in, 5, 100);
}

TEST_F(Tcp, WhatAPeerHasSentBeforeItLeftArrivesAndItsSilenceIsNoError)
{
    open(2);
    connect(0, 1);
    Message *in = recv(1, 0, 1, 100), *never = recv(1, 0, 2, 100), *out = send(0, 1, 1, 100);
    for (int i = 0; i < 100 && !out->is_done; i++)
        poll(0);
    ASSERT_TRUE(out->is_done);
    // Destroying waits until the other end has received it; here its system has.
    ends[0]->transport.ops->destroy(&ends[0]->transport);
    ends[0] = nullptr;
    ASSERT_TRUE(wait({in}));
    expect_data(in, 1, 100);
    poll_all(100);
    EXPECT_FALSE(never->is_done);
    Message *late = send(1, 0, 3, 4);
    ASSERT_TRUE(wait({late}));
    EXPECT_EQ(late->done.status, RF_EPEER);
}

TEST_F(Tcp, APeerThatVanishesEndsEverythingThatIsPendingWithIt)
{
    open(3);
    connect(0, 1);
    connect(1, 2);
    Message *in = recv(1, 0, 1, 1 << 20), *out = send(1, 0, 2, 1 << 20);
    Message *other = recv(1, 2, 1, 100);
    Message *arriving = recv(1, 0, 3, RF_TCP_EAGER);
    const rf_tcp_frame half = {.tag = 3, .bytes = RF_TCP_EAGER, .contract = 7, .kind = RF_TCP_DATA};
    unsigned char head[RF_TCP_HEADER];
    rf_tcp_write_header(head, &half);
    ASSERT_EQ(::send(peer_of(0, 1)->fd, head, sizeof head, 0), RF_TCP_HEADER);
    poll_all(20);
    ends[0]->transport.ops->cancel_all(&ends[0]->transport); // closes without goodbye
    for (int i = 0; i < 10000 && !(in->is_done && out->is_done && arriving->is_done); i++)
        poll(1);
    for (Message *m : {in, out, arriving}) {
        ASSERT_TRUE(m->is_done);
        EXPECT_EQ(m->done.status, RF_EPEER);
    }
    EXPECT_FALSE(other->is_done);
    Message *last = send(2, 1, 1, 100);
    for (int i = 0; i < 10000 && !(other->is_done && last->is_done); i++) {
        poll(1);
        poll(2);
    }
    expect_data(other, 1, 100);
}

TEST_F(Tcp, APeerThatCannotBeReachedEndsTheSendAfterSomeTime)
{
    open(2);
    ends[0]->addresses[1].port = free_port();
    Message *out = send(0, 1, 1, 4);
    ASSERT_TRUE(wait({out}, 15));
    EXPECT_EQ(out->done.status, RF_EPEER);
}

TEST_F(Tcp, FramesThatMakeNoSenseAreAnErrorThatNamesTheRank)
{
    auto frame = [](uint64_t tag, uint64_t bytes, uint32_t kind) {
        std::vector<uint8_t> out(RF_TCP_HEADER, 0);
        memcpy(&out[0], &tag, 8);
        memcpy(&out[8], &bytes, 8);
        memcpy(&out[20], &kind, 4);
        return out;
    };
    const std::vector<std::vector<uint8_t>> bad = {
        frame(1, 4, 0),
        frame(1, 4, RF_TCP_KINDS),
        frame(1, 4, RF_TCP_DATA | 256),
        frame(1, (uint64_t)1 << 48, RF_TCP_DATA),
        frame(77, RF_TCP_EAGER + 1, RF_TCP_DATA), // long, and not requested
        frame(77, 0, RF_TCP_REFUSED),             // never sent
        [&] {
            auto two = frame(0, 0, RF_TCP_BYE), more = frame(1, 0, RF_TCP_DATA);
            two.insert(two.end(), more.begin(), more.end());
            return two;
        }(),
    };
    for (size_t i = 0; i < bad.size(); i++) {
        open(2);
        connect(0, 1);
        recv(1, 0, 1, 100);
        ASSERT_EQ(::send(peer_of(0, 1)->fd, bad[i].data(), bad[i].size(), 0),
                  (ssize_t)bad[i].size());
        for (int k = 0; k < 10000 && errors[1] == 0; k++)
            poll(1);
        EXPECT_EQ(errors[1], RF_ECORRUPT) << "frame " << i;
        EXPECT_EQ(error_ranks[1], 0);
        TearDown();
        for (auto *all : {&ports, &errors, &error_ranks})
            all->clear();
        ends.clear();
        messages.clear();
    }
}

TEST_F(Tcp, StrangersAtThePortCostNothing)
{
    open(2);
    std::vector<int> fds;
    for (int i = 0; i < 60; i++) {
        int fd = job::connect_to(ports[(size_t)(i % 2)]);
        ASSERT_GE(fd, 0);
        auto noise = payload((uint64_t)i, (size_t)(i * 37 % 400));
        // Some begin like a rank: "RTCP", the rank that is dialed, version, rank and size.
        const uint32_t hello[] = {0x50435452, (uint32_t)(i % 2), RF_TCP_VERSION, (uint32_t)(i % 3),
                                  2};
        if (i % 3 == 0)
            noise.insert(noise.begin(), (const uint8_t *)hello, (const uint8_t *)(hello + 5));
        (void)!::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
        if (i % 4 == 0)
            ::close(fd);
        else
            fds.push_back(fd);
        poll_all(3);
    }
    poll_all(100);
    Message *in = recv(1, 0, 1, 100), *out = send(0, 1, 1, 100);
    ASSERT_TRUE(wait({in, out}));
    expect_data(in, 1, 100);
    for (int fd : fds)
        ::close(fd);
    EXPECT_EQ(errors, (std::vector<int>{0, 0}));
}

TEST_F(Tcp, ARankWithAnotherKeyOrOfAnotherJobIsNotLetIn)
{
    for (bool key : {true, false}) {
        open(2);
        if (key)
            ASSERT_EQ(rf_job_key_init(&ends[0]->key, "another"), 0);
        else
            ends[0]->key.job[3] ^= 1;
        Message *in = recv(1, 0, 1, 4), *out = send(0, 1, 1, 4);
        EXPECT_FALSE(wait({in}, 0.3));
        EXPECT_FALSE(out->is_done);
        EXPECT_EQ(peer_of(1, 0)->fd, -1);
        EXPECT_EQ(peer_of(0, 1)->fd, -1);
        TearDown();
        ends.clear();
        ports.clear();
        messages.clear();
    }
}

TEST_F(Tcp, NoFileStaysOpen)
{
    auto count = [] {
        int files = 0;
        DIR *folder = opendir("/proc/self/fd");
        while (readdir(folder))
            files++;
        closedir(folder);
        return files;
    };
    const int before = count();
    open(6);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++)
            connect(a, b);
    int fd = job::connect_to(ports[0]);
    poll_all(40);
    TearDown();
    ::close(fd);
    ends.clear();
    EXPECT_EQ(count(), before);
}

TEST_F(Tcp, WithoutMemoryItFailsAndNothingLeaks)
{
    for (uint64_t nth = 1, reached = 1; reached && nth < 200; nth++) {
        rf_alloc_fail_at(nth);
        rf_tcp *two[2] = {nullptr, nullptr};
        int port[2], rc = 0;
        for (int r = 0; r < 2 && rc == 0; r++) {
            rc = rf_tcp_end_open(r, 2, &two[r]);
            if (rc == 0)
                rc = rf_tcp_listen(two[r], "127.0.0.1", &port[r]);
        }
        std::vector<uint8_t> out(1 << 20, 3), in(1 << 20);
        Context contexts[4];
        rf_completion done;
        if (rc == 0) {
            for (int r = 0; r < 2; r++)
                for (int p = 0; p < 2; p++) {
                    strcpy(two[r]->addresses[p].host, "127.0.0.1");
                    two[r]->addresses[p].port = port[p];
                }
            rf_transport *a = &two[0]->transport, *b = &two[1]->transport;
            int left = 4;
            rc = a->ops->post_send(a, 1, 1, 0, out.data(), 20000, &contexts[0]);
            if (rc == 0)
                rc = a->ops->post_send(a, 1, 2, 0, out.data(), out.size(), &contexts[1]);
            if (rc == 0)
                rc = b->ops->post_recv(b, 0, 2, in.data(), in.size(), &contexts[2]);
            for (int i = 0; i < 3000 && rc == 0 && left > 1; i++)
                for (rf_transport *t : {a, b}) {
                    int found = t->ops->poll(t, &done, 1);
                    rc = found < 0 ? found : rc;
                    left -= found > 0;
                }
            if (rc == 0)
                rc = b->ops->post_recv(b, 0, 1, in.data(), 20000, &contexts[3]);
        }
        reached = rf_alloc_fail_at(0) >= nth;
        EXPECT_EQ(rc, reached ? RF_ENOMEM : 0) << "allocation " << nth;
        for (rf_tcp *h : two)
            if (h)
                h->transport.ops->destroy(&h->transport);
    }
}
