// SPDX-License-Identifier: MIT
//
// Strangers, clients with another's key, and clients that send what no client sends.
#include "raw.h"

#include <cmath>
#include <cstring>
#include <unistd.h>

using namespace federated;

namespace
{

const int64_t COUNT = 70000; /* two pieces */

std::vector<uint8_t> floats(size_t count, float value)
{
    std::vector<uint8_t> bytes(4 * count);
    for (size_t i = 0; i < count; i++)
        std::memcpy(&bytes[4 * i], &value, 4);
    return bytes;
}

int parse(int kind, const std::vector<uint8_t> &bytes, bool from_client, federated_message *out)
{
    rf_channel_message m = {};
    m.kind = kind;
    m.bytes = static_cast<uint32_t>(bytes.size());
    m.payload = bytes.data();
    return federated_parse(&m, from_client, out);
}

} // namespace

TEST(FederatedKeys, StrangersAndOthersKeysAreRefusedByName)
{
    Coordinator c(2);
    c.opts.rounds = 1;
    c.start();
    const auto refused = [&](const char *name, const char *key, const char *note) {
        Client client(c, 1, 10);
        client.opts.name = name;
        client.opts.key = key;
        EXPECT_EQ(client.open(), RF_EAUTH);
        EXPECT_NE(std::string(rf_last_error()->message).find(name), std::string::npos)
            << rf_last_error()->message;
        if (note)
            c.wait_for(note);
    };
    refused("mallory", "key of c0", "refused: mallory, who is not in the list");
    refused("c1", "key of c0", "refused: the key of client c1 is not that");
    refused("c1", "", nullptr);
    Client client(c, 0, 10);
    client.train([](Client &) {});
    c.join();
    EXPECT_EQ(c.status, RF_OK) << c.message;
}

TEST(FederatedKeys, NothingListensWithoutAKeyForEachClient)
{
    Coordinator none(0);
    EXPECT_EQ(none.open(), RF_EAUTH);
    Coordinator c(3);
    c.keys[1] = "";
    EXPECT_EQ(c.open(), RF_EAUTH);
    EXPECT_NE(std::string(rf_last_error()->message).find("c1 has no key"), std::string::npos);
    c.keys[1] = c.keys[0];
    EXPECT_EQ(c.open(), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("c0 and c1 have one key"),
              std::string::npos);
    c.keys[1] = "another";
    for (const char *name : {"", "a b", "c0", "a/b"}) {
        c.names[1] = name;
        EXPECT_EQ(c.open(), RF_EINVAL) << name;
    }
}

/* Every message of every wrong size, from the wrong side, or with a number that it cannot have. */
TEST(FederatedMessages, OnlyThoseOfTheListAreParsed)
{
    federated_message m;
    for (int kind = -1; kind < 300; kind++) {
        const rf_federated_message_info *info = rf_federated_message_get_info(kind);
        for (const bool from_client : {false, true}) {
            if (!info || !(from_client ? info->from_client : info->from_coordinator)) {
                EXPECT_EQ(parse(kind, {}, from_client, &m), RF_ECORRUPT) << kind;
                continue;
            }
            EXPECT_EQ(parse(kind, std::vector<uint8_t>(info->most + 1), from_client, &m),
                      RF_ECORRUPT)
                << info->name;
            if (info->least > 0) {
                EXPECT_EQ(parse(kind, std::vector<uint8_t>(info->least - 1), from_client, &m),
                          RF_ECORRUPT)
                    << info->name;
            }
        }
    }
    std::vector<uint8_t> update(24);
    const auto weighs = [&](double weight) {
        std::memcpy(&update[16], &weight, 8);
        return parse(RF_FEDERATED_UPDATE, update, true, &m);
    };
    EXPECT_EQ(weighs(2.5), RF_OK);
    EXPECT_EQ(m.weight, 2.5);
    for (const double weight : {-1.0, double(NAN), double(INFINITY), -double(INFINITY)})
        EXPECT_EQ(weighs(weight), RF_ECORRUPT) << weight;
    update[15] = 0x80; /* a negative round */
    EXPECT_EQ(weighs(1), RF_ECORRUPT);
    EXPECT_EQ(parse(RF_FEDERATED_VALUES, std::vector<uint8_t>(7), true, &m), RF_ECORRUPT);
    std::vector<uint8_t> peers(16 + 2 * FEDERATED_PEER_BYTES);
    peers[16] = 'a', peers[16 + FEDERATED_PEER_BYTES] = 'b';
    EXPECT_EQ(parse(RF_FEDERATED_PEERS, peers, false, &m), RF_OK);
    peers.push_back(0); /* a third one begins */
    EXPECT_EQ(parse(RF_FEDERATED_PEERS, peers, false, &m), RF_ECORRUPT);
    peers.pop_back();
    peers[16] = 'b'; /* twice */
    EXPECT_EQ(parse(RF_FEDERATED_PEERS, peers, false, &m), RF_ECORRUPT);
    for (const int kind : {RF_FEDERATED_SHARES, RF_FEDERATED_AGREED}) {
        std::vector<uint8_t> set(16 + 32 + 160);
        set[16] = kind == RF_FEDERATED_SHARES ? 5 : 0;
        EXPECT_EQ(parse(kind, set, false, &m), set[16] ? RF_OK : RF_ECORRUPT) << kind;
        set[16] = 7; /* three, and two are there */
        EXPECT_EQ(parse(kind, set, false, &m), RF_ECORRUPT) << kind;
    }
    std::vector<uint8_t> join(20, 'x');
    EXPECT_EQ(parse(RF_FEDERATED_JOIN, join, true, &m), RF_ECORRUPT); /* no ends of texts */
    join[14] = join[19] = 0;
    join[4] = 9, join[11] = 0;
    EXPECT_EQ(parse(RF_FEDERATED_JOIN, join, true, &m), RF_OK);
    join[17] = 0; /* a third text */
    EXPECT_EQ(parse(RF_FEDERATED_JOIN, join, true, &m), RF_ECORRUPT);
}

/* Whatever a client sends, it alone is dropped: the other one trains to the end. */
TEST(FederatedMessages, AClientOutOfOrderIsDroppedAndTheOthersContinue)
{
    Coordinator c(2);
    const Vector initial(COUNT, 0);
    c.rule.weighted = true;
    c.opts.initial = initial.data();
    c.opts.count = COUNT;
    c.opts.rounds = 1;
    c.opts.min_clients = 2;
    c.start();
    Client sound(c, 0, COUNT);
    std::thread other;
    const std::vector<uint8_t> piece = floats(65536, 1), rest = floats(COUNT - 65536, 1);
    const std::function<void(Raw &)> cases[] = {
        [](Raw &raw) { raw.send(200, {}); },
        [](Raw &raw) {
            raw.send(RF_FEDERATED_JOIN, {1, 2, 3});
        },
        [&](Raw &raw) { raw.send(RF_FEDERATED_VALUES, piece); },
        [](Raw &raw) { raw.send(RF_FEDERATED_UPDATE, raw.update(0, 0, 1)); },
        [](Raw &raw) { raw.send(RF_FEDERATED_ROUND, std::vector<uint8_t>(16)); },
    };
    const std::function<void(Raw &, uint64_t run)> in_round[] = {
        [](Raw &raw, uint64_t run) { raw.send(RF_FEDERATED_UPDATE, raw.update(run + 1, 0, 1)); },
        [](Raw &raw, uint64_t run) { raw.send(RF_FEDERATED_UPDATE, raw.update(run, 1, 1)); },
        [](Raw &raw, uint64_t) { raw.send(RF_FEDERATED_STATE, {}); },
        [&](Raw &raw, uint64_t) { raw.send(RF_FEDERATED_JOIN, raw.join(COUNT, c.rule)); },
        [&](Raw &raw, uint64_t run) {
            raw.send(RF_FEDERATED_UPDATE, raw.update(run, 0, 1));
            raw.send(RF_FEDERATED_VALUES, rest);
        },
        [&](Raw &raw, uint64_t run) {
            raw.send(RF_FEDERATED_UPDATE, raw.update(run, 0, 1));
            raw.send(RF_FEDERATED_VALUES, piece);
            raw.send(RF_FEDERATED_VALUES, piece);
        },
        [&](Raw &raw, uint64_t run) {
            raw.send(RF_FEDERATED_UPDATE, raw.update(run, 0, 1));
            raw.send(RF_FEDERATED_UPDATE, raw.update(run, 0, 1));
        },
    };
    for (const auto &bad : cases) {
        Raw raw(c, "c1", "key of c1");
        bad(raw);
        EXPECT_EQ(raw.last_words(), "");
    }
    other = std::thread([&] { sound.train([](Client &self) { self.values[3] += 2; }, 1); });
    for (const auto &bad : in_round) {
        Raw raw(c, "c1", "key of c1");
        raw.send(RF_FEDERATED_JOIN, raw.join(COUNT, c.rule));
        const uint64_t run = raw.take_round(COUNT);
        bad(raw, run);
        EXPECT_EQ(raw.last_words(), "");
    }
    for (const float value : {float(NAN), float(INFINITY)}) {
        Raw raw(c, "c1", "key of c1");
        raw.send(RF_FEDERATED_JOIN, raw.join(COUNT, c.rule));
        const uint64_t run = raw.take_round(COUNT);
        raw.send(RF_FEDERATED_UPDATE, raw.update(run, 0, 1));
        raw.send(RF_FEDERATED_VALUES, piece);
        raw.send(RF_FEDERATED_VALUES, floats(COUNT - 65536, value));
        EXPECT_NE(raw.last_words().find("not finite"), std::string::npos);
    }
    { /* bytes on the connection that the client has not sealed */
        Raw raw(c, "c1", "key of c1");
        std::vector<uint8_t> frame(RF_FRAME_HEADER + 40, 7);
        rf_frame_header(frame.data(), RF_FRAME_SEALED, 0, 0, 40);
        EXPECT_EQ(write(raw.channel.link.fd, frame.data(), frame.size()),
                  static_cast<ssize_t>(frame.size()));
        EXPECT_EQ(raw.last_words(), "");
    }
    Client second(c, 1, COUNT);
    second.train([](Client &self) { self.values[3] += 4; }, 1);
    other.join();
    c.join();
    ASSERT_EQ(c.status, RF_OK) << c.message;
    EXPECT_EQ(c.rounds[0].values[3], 3);
}
