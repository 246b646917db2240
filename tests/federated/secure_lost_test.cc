// SPDX-License-Identifier: MIT
//
// Secure aggregation with clients that drop out at any time, come late, or send what no client
// sends.
#include "raw.h"

#include <cmath>
#include <cstring>
#include <memory>

extern "C" {
#include "federated/secure.h"
}

using namespace federated;

namespace
{

const int64_t COUNT = 40000; /* two pieces */
using Bytes = std::vector<uint8_t>;

enum Stop { BEFORE_READY, GONE, READY, SHARED, HALF, UPLOADED, ASKED, CONFIRMED, REVEALED };

/* A client by hand that follows the rules, adds its weight to each value, and stops. */
struct Hand : Raw {
    Hand(const Coordinator &c, int number, double weight)
        : Raw(c, c.names[number].c_str(), c.keys[number].c_str()), weight(weight)
    {
        rf_client_opts opts = {};
        opts.name = c.names[number].c_str();
        opts.secret = "";
        EXPECT_EQ(federated_identify(&s, &opts), RF_OK);
        send(RF_FEDERATED_JOIN, join(COUNT, c.rule));
        EXPECT_EQ(federated_secure_begin(&s, next(RF_FEDERATED_SECURE).threshold), RF_OK);
    }

    void run(int64_t number, Stop stop)
    {
        round = number;
        id = take_round(COUNT);
        if (stop == BEFORE_READY)
            return;
        Bytes body(FEDERATED_READY_BYTES);
        EXPECT_EQ(federated_secure_ready(&s, id, round, body.data()), RF_OK);
        send_body(RF_FEDERATED_READY, id, round, body);
        if (stop == GONE)
            return;
        federated_message m = next(RF_FEDERATED_PEERS);
        if (stop == READY)
            return;
        shares(m);
        m = next(RF_FEDERATED_SHARES);
        if (stop == SHARED)
            return;
        EXPECT_EQ(federated_secure_shares(&s, &m), RF_OK) << rf_last_error()->message;
        send_body(RF_FEDERATED_MASKED, id, round, {});
        upload(0, SECURE_PIECE);
        if (stop == HALF)
            return;
        upload(SECURE_PIECE, COUNT + 1 - SECURE_PIECE);
        if (stop == UPLOADED)
            return;
        m = next(RF_FEDERATED_UNMASK);
        if (stop == ASKED)
            return;
        size_t bytes = 0;
        body.resize(FEDERATED_MESSAGE_BYTES);
        EXPECT_EQ(federated_secure_unmask(&s, &m, body.data(), &bytes), RF_OK);
        body.resize(bytes);
        send_body(RF_FEDERATED_CONFIRM, id, round, body);
        m = next(RF_FEDERATED_AGREED);
        if (stop == CONFIRMED)
            return;
        body.resize(FEDERATED_MESSAGE_BYTES);
        EXPECT_EQ(federated_secure_agreed(&s, &m, body.data(), &bytes), RF_OK);
        body.resize(bytes);
        body[0] ^= lies;
        send_body(RF_FEDERATED_REVEAL, id, round, body);
    }

    void shares(const federated_message &m)
    {
        size_t bytes = 0;
        Bytes body(FEDERATED_MESSAGE_BYTES);
        EXPECT_EQ(federated_secure_peers(&s, &m, body.data(), &bytes), RF_OK)
            << rf_last_error()->message;
        body.resize(bytes);
        send_body(RF_FEDERATED_SHARES, id, round, body);
    }

    void upload(int64_t first, int64_t n)
    {
        const Vector values(COUNT, static_cast<float>(weight));
        std::vector<uint64_t> numbers(SECURE_PIECE), stream(SECURE_PIECE);
        federated_fixed(values.data(), COUNT, weight, true, first, n, numbers.data());
        federated_secure_mask(&s, first, n, stream.data(), numbers.data());
        Bytes bytes(8 * n);
        std::memcpy(bytes.data(), numbers.data(), bytes.size());
        send(RF_FEDERATED_VALUES, bytes);
    }

    secure_client s = {};
    double weight;
    uint64_t id = 0;
    int64_t round = 0;
    uint8_t lies = 0;
};

void configure(Coordinator &c, const Vector &initial, int threshold, int64_t rounds)
{
    c.rule.weighted = true;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = rounds;
    c.opts.secure = threshold;
}

/* Sets all values to the weight of the client, which is its number plus 1. */
void train(Client &client, int number)
{
    client.train([&](Client &self) { self.values.assign(COUNT, static_cast<float>(number + 1)); },
                 number + 1);
}

/* The mean of values k + 1 with weights k + 1. */
float mean(const std::vector<int> &clients)
{
    double sum = 0, all = 0;
    for (const int k : clients)
        sum += (k + 1.0) * (k + 1), all += k + 1;
    return static_cast<float>(sum / all);
}

} // namespace

/* Three clients, and in round 1 a fourth, which drops out. Its update counts from the moment at
 * which it has arrived whole. */
TEST(FederatedSecureLost, AClientMayJoinLateAndDropOutAtAnyTime)
{
    for (const Stop stop :
         {BEFORE_READY, GONE, READY, SHARED, HALF, UPLOADED, ASKED, CONFIRMED, REVEALED}) {
        Coordinator c(4);
        const Vector initial(COUNT, 0);
        configure(c, initial, 3, 3);
        c.start();
        std::vector<std::thread> threads;
        for (int k = 0; k < 3; k++)
            threads.emplace_back([&, k] {
                Client client(c, k, COUNT);
                ASSERT_EQ(client.open(), RF_OK) << rf_last_error()->message;
                c.wait_for("client c3 has joined"); /* then round 0 ends */
                client.train(
                    [&](Client &self) {
                        if (stop == GONE && rf_client_round(self.client) == 1)
                            c.wait_for("client c3 is lost"); /* it was ready */
                        self.values.assign(COUNT, static_cast<float>(k + 1));
                    },
                    k + 1);
            });
        c.wait_for(": 3 here");
        {
            Hand lost(c, 3, 4);
            lost.run(1, stop);
        }
        for (std::thread &thread : threads)
            thread.join();
        c.join();
        ASSERT_EQ(c.status, RF_OK) << stop << c.message << c.notes;
        ASSERT_EQ(c.rounds.size(), 3u);
        const bool counts = stop >= UPLOADED;
        EXPECT_EQ(c.rounds[0].parts[3], RF_FEDERATED_ABSENT);
        EXPECT_EQ(c.rounds[0].values, Vector(COUNT, mean({0, 1, 2}))) << stop;
        EXPECT_EQ(c.rounds[1].parts[3], counts ? RF_FEDERATED_COUNTED : RF_FEDERATED_LOST) << stop;
        EXPECT_EQ(c.rounds[1].values, Vector(COUNT, counts ? mean({0, 1, 2, 3}) : mean({0, 1, 2})))
            << stop;
        EXPECT_EQ(c.rounds[2].values, Vector(COUNT, mean({0, 1, 2}))) << stop;
    }
}

/* The threshold is three of three. A client that comes back is in the next round. */
TEST(FederatedSecureLost, ARoundWithTooFewFailsByNameAndTheNextBegins)
{
    const std::map<Stop, const char *> stops = {{READY, "shares of keys of 2 clients"},
                                                {SHARED, "masked updates of 2 clients"},
                                                {HALF, "masked updates of 2 clients"},
                                                {UPLOADED, "agree on the sum of 2 clients"},
                                                {ASKED, "agree on the sum of 2 clients"},
                                                {CONFIRMED, "shares to remove masks of 2 clients"},
                                                {REVEALED, "client c0 do not make its secret"}};
    for (const auto &[stop, text] : stops) {
        Coordinator c(3);
        const Vector initial(COUNT, 7);
        configure(c, initial, 3, 2);
        c.start();
        std::vector<std::thread> threads;
        for (int k = 0; k < 2; k++)
            threads.emplace_back([&, k] {
                Client client(c, k, COUNT);
                train(client, k);
            });
        {
            Hand lost(c, 2, 3);
            lost.lies = 1; /* about its share of c0 */
            lost.run(0, stop);
        }
        c.wait_for("has failed: ");
        Client back(c, 2, COUNT);
        train(back, 2);
        for (std::thread &thread : threads)
            thread.join();
        c.join();
        ASSERT_EQ(c.status, RF_OK) << stop << c.message << c.notes;
        EXPECT_NE(c.notes.find(text), std::string::npos) << c.notes;
        EXPECT_EQ(c.rounds[0].values, initial);
        EXPECT_EQ(c.rounds[0].weight, 0);
        for (int k = 0; k < 2; k++)
            EXPECT_EQ(c.rounds[0].parts[k], RF_FEDERATED_FAILED);
        EXPECT_EQ(c.rounds[1].values, Vector(COUNT, mean({0, 1, 2})));
    }
}

/* c2 has the parameters of round 0 until that has ended. */
TEST(FederatedSecureLost, ASlowOneIsLeftOutAfterTheDeadlineAndComesBack)
{
    Coordinator c(3);
    const Vector initial(COUNT, 0);
    configure(c, initial, 2, 3);
    c.opts.round_s = 0.4;
    c.start();
    std::vector<std::thread> threads;
    for (int k = 2; k >= 0; k--) {
        threads.emplace_back([&, k] {
            Client client(c, k, COUNT);
            ASSERT_EQ(client.open(), RF_OK) << rf_last_error()->message;
            if (k == 2)
                c.wait_for_rounds(1);
            train(client, k);
        });
        c.wait_for("client c" + std::to_string(k) + " has joined");
    }
    for (std::thread &thread : threads)
        thread.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message << c.notes;
    EXPECT_EQ(c.rounds[0].parts[2], RF_FEDERATED_LATE);
    EXPECT_EQ(c.rounds[0].values, Vector(COUNT, mean({0, 1})));
    EXPECT_NE(c.notes.find("was ready with round 0 too late"), std::string::npos) << c.notes;
}

TEST(FederatedSecureLost, ASilentOneIsDroppedAfterTheDeadlineOfAnExchange)
{
    Coordinator c(3);
    const Vector initial(COUNT, 0);
    configure(c, initial, 2, 1);
    c.opts.round_s = 0.3;
    c.start();
    Hand silent(c, 2, 3);
    std::thread other([&] {
        Client client(c, 0, COUNT);
        train(client, 0);
    });
    silent.run(0, SHARED);
    EXPECT_EQ(silent.last_words(), "");
    other.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message << c.notes;
    EXPECT_NE(c.notes.find("did not answer in the secure aggregation in time"), std::string::npos);
    EXPECT_EQ(c.rounds[0].parts[2], RF_FEDERATED_LOST);
}

/* Whatever a client sends, it alone is dropped; its round fails if the threshold needs it. */
TEST(FederatedSecureMessages, AClientOutOfOrderIsDroppedAndTheOtherContinues)
{
    Coordinator c(2);
    const Vector initial(COUNT, 0);
    const Bytes ready(FEDERATED_READY_BYTES, 9), set(FEDERATED_SET_BYTES), key(32);
    const auto shares = [&](int members, size_t boxes) {
        Bytes body(FEDERATED_SET_BYTES + boxes * FEDERATED_BOX_BYTES);
        for (int k = 0; k < members; k++)
            federated_add(body.data(), k);
        return body;
    };
    /* While updates are collected. */
    const std::function<void(Hand &)> early[] = {
        [&](Hand &h) { h.send(RF_FEDERATED_UPDATE, h.update(h.id, 0, 1)); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_READY, h.id, 1, ready); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_READY, h.id + 1, 0, ready); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_READY, h.id, 0, Bytes(FEDERATED_READY_BYTES)); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_SHARES, h.id, 0, shares(1, 1)); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_MASKED, h.id, 0, {}); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_REVEAL, h.id, 0, Bytes(64)); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_UNMASK, h.id, 0, set); },
        [&](Hand &h) { h.send_body(RF_FEDERATED_SHARES, h.id, 0, shares(1, 2)); },
    };
    /* After that. */
    const std::pair<Stop, std::function<void(Hand &)>> late[] = {
        {READY, [&](Hand &h) { h.send_body(RF_FEDERATED_READY, h.id, h.round, ready); }},
        {READY, [&](Hand &h) { h.send_body(RF_FEDERATED_MASKED, h.id, h.round, {}); }},
        {READY, [&](Hand &h) { h.send_body(RF_FEDERATED_SHARES, h.id, h.round, shares(2, 2)); }},
        {SHARED, [&](Hand &h) { h.send_body(RF_FEDERATED_SHARES, h.id, h.round, shares(1, 1)); }},
        {HALF, [&](Hand &h) { h.upload(0, SECURE_PIECE); }},
        {HALF, [&](Hand &h) { h.send_body(RF_FEDERATED_MASKED, h.id, h.round, {}); }},
        {ASKED, [&](Hand &h) { h.send_body(RF_FEDERATED_MASKED, h.id, h.round, {}); }},
        {ASKED, [&](Hand &h) { h.send_body(RF_FEDERATED_REVEAL, h.id, h.round, Bytes(64)); }},
        {CONFIRMED, [&](Hand &h) { h.send_body(RF_FEDERATED_CONFIRM, h.id, h.round, Bytes(64)); }},
        {CONFIRMED, [&](Hand &h) { h.send_body(RF_FEDERATED_REVEAL, h.id, h.round, Bytes(96)); }},
    };
    const int64_t fails = sizeof late / sizeof late[0];
    configure(c, initial, 2, fails + 1);
    c.start();
    std::thread other([&] {
        Client client(c, 0, COUNT);
        train(client, 0);
    });
    for (const auto &bad : early) {
        Hand hand(c, 1, 2);
        hand.run(0, BEFORE_READY);
        bad(hand);
        EXPECT_EQ(hand.last_words(), "");
    }
    int64_t round = 0;
    for (const auto &[stop, bad] : late) {
        Hand hand(c, 1, 2);
        hand.run(round, stop);
        bad(hand);
        EXPECT_EQ(hand.last_words(), "") << round;
        c.wait_for_rounds(++round);
    }
    Client second(c, 1, COUNT);
    train(second, 1);
    other.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message << c.notes;
    EXPECT_EQ(c.rounds[fails - 1].values, initial);
    EXPECT_EQ(c.rounds[fails].values, Vector(COUNT, mean({0, 1})));
}
