// SPDX-License-Identifier: MIT
//
// Frames and proofs: received bytes are hostile until parsed.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "base/base.h"
#include "transport/bootstrap/handshake.h"
#include "transport/control/frame.h"
}

namespace
{

std::vector<uint8_t> make_frame(int kind, int rank, uint32_t number, size_t bytes)
{
    std::vector<uint8_t> frame(RF_FRAME_HEADER + bytes);
    rf_frame_header(frame.data(), kind, rank, number, (uint32_t)bytes);
    for (size_t i = 0; i < bytes; i++)
        frame[RF_FRAME_HEADER + i] = (uint8_t)(i * 3);
    return frame;
}

} // namespace

TEST(Frame, RoundTripsEveryField)
{
    auto bytes = make_frame(RF_FRAME_MESSAGE, 65535, 0xdeadbeef, 300);
    rf_frame frame;
    size_t need;
    ASSERT_EQ(rf_frame_parse(bytes.data(), bytes.size(), 512, &frame, &need), 1);
    EXPECT_EQ(frame.kind, RF_FRAME_MESSAGE);
    EXPECT_EQ(frame.rank, 65535);
    EXPECT_EQ(frame.number, 0xdeadbeefu);
    EXPECT_EQ(frame.bytes, 300u);
    EXPECT_EQ(need, bytes.size());
    EXPECT_EQ(memcmp(frame.payload, bytes.data() + RF_FRAME_HEADER, 300), 0);
}

TEST(Frame, EveryPrefixAsksForMoreAndNeverReadsBeyond)
{
    auto bytes = make_frame(RF_FRAME_MESSAGE, 1, 2, 100);
    for (size_t count = 0; count < bytes.size(); count++) {
        std::vector<uint8_t> prefix(bytes.begin(),
                                    bytes.begin() + (long)count); // asan sees its end
        rf_frame frame;
        size_t need;
        ASSERT_EQ(rf_frame_parse(prefix.data(), count, 512, &frame, &need), 0);
        EXPECT_EQ(need, count < RF_FRAME_HEADER ? (size_t)RF_FRAME_HEADER : bytes.size());
    }
}

TEST(Frame, LengthsBeyondTheKindsLimitAreRefused)
{
    rf_frame frame;
    size_t need;
    auto too_long = make_frame(RF_FRAME_MESSAGE, 1, 2, 513);
    EXPECT_EQ(rf_frame_parse(too_long.data(), too_long.size(), 1 << 20, &frame, &need),
              RF_ECORRUPT);
    auto too_short = make_frame(RF_FRAME_HELLO, 1, 2, 43);
    EXPECT_EQ(rf_frame_parse(too_short.data(), too_short.size(), 1 << 20, &frame, &need),
              RF_ECORRUPT);
    auto not_here = make_frame(RF_FRAME_GATHER, 1, 2, 65);
    EXPECT_EQ(rf_frame_parse(not_here.data(), not_here.size(), 64, &frame, &need), RF_ECORRUPT);
    uint8_t huge[RF_FRAME_HEADER];
    rf_frame_header(huge, RF_FRAME_GATHERED, 0, 1, 0xffffffffu);
    EXPECT_EQ(rf_frame_parse(huge, sizeof huge, RF_FRAME_MAX_PAYLOAD, &frame, &need), RF_ECORRUPT);
    rf_frame_header(huge, RF_FRAME_KINDS, 0, 1, 0);
    EXPECT_EQ(rf_frame_parse(huge, sizeof huge, RF_FRAME_MAX_PAYLOAD, &frame, &need), RF_ECORRUPT);
}

TEST(Frame, RandomAndMutatedBytesAreNeverReadBeyondTheirEnd)
{
    std::mt19937 random(1);
    int parsed = 0, refused = 0;
    for (int i = 0; i < 200000; i++) {
        std::vector<uint8_t> bytes;
        if (i % 2) {
            bytes.resize(random() % 80);
            for (auto &byte : bytes)
                byte = (uint8_t)random();
        } else {
            bytes = make_frame((int)(random() % 16), (int)(random() % 9), random(), random() % 64);
            for (int flips = (int)(random() % 4); flips > 0; flips--)
                bytes[random() % bytes.size()] ^= (uint8_t)(1 << random() % 8);
            bytes.resize(random() % (bytes.size() + 1));
        }
        rf_frame frame;
        size_t need;
        int rc = rf_frame_parse(bytes.data(), bytes.size(), 512, &frame, &need);
        if (rc == 1) {
            parsed++;
            ASSERT_LE(need, bytes.size());
            ASSERT_LE(frame.payload + frame.bytes, bytes.data() + bytes.size());
        }
        refused += rc < 0;
    }
    EXPECT_GT(parsed, 500);
    EXPECT_GT(refused, 1000);
}

TEST(Frame, TextIsPrintableAndCut)
{
    char text[8];
    const uint8_t wild[] = {'a', 0x1b, '[', 0xff, 0, 'b', 'c', 'd', 'e'};
    rf_frame_text(wild, sizeof wild, text, sizeof text);
    EXPECT_STREQ(text, "a?[??bc");
    rf_frame_text(wild, 0, text, sizeof text);
    EXPECT_STREQ(text, "");
}

TEST(Handshake, ProofHoldsOnlyForTheSameKeyJobRankSizeVersionNoncesNameAndRole)
{
    rf_job_key key, other;
    ASSERT_EQ(rf_job_key_init(&key, "secret"), 0);
    ASSERT_EQ(rf_job_key_init(&other, "secres"), 0);
    rf_handshake h{1, 2, 3, {}, {}, {}};
    memset(h.name, 'n', RF_NAME_BYTES);
    rf_random(h.joiner, sizeof h.joiner);
    rf_random(h.listener, sizeof h.listener);
    uint8_t proof[RF_PROOF_BYTES];
    rf_handshake_prove(&key, &h, 'J', proof);
    EXPECT_TRUE(rf_handshake_check(&key, &h, 'J', proof));
    EXPECT_FALSE(rf_handshake_check(&key, &h, 'H', proof));
    EXPECT_FALSE(rf_handshake_check(&other, &h, 'J', proof));
    for (size_t i = 0; i < sizeof h - 1; i++) { /* the last one ends the name */
        rf_handshake changed = h;
        ((uint8_t *)&changed)[i] ^= 1;
        EXPECT_FALSE(rf_handshake_check(&key, &changed, 'J', proof)) << i;
    }
    rf_job_key another_run = key;
    another_run.job[0] ^= 1;
    EXPECT_FALSE(rf_handshake_check(&another_run, &h, 'J', proof));
}
