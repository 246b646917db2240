// SPDX-License-Identifier: MIT
//
// Bytes: a schedule sends what the formulas of its algorithm give, and so does the public
// prediction.
#include <gtest/gtest.h>

#include <algorithm>

#include "simulator.h"

namespace
{

uint64_t sent_by(enum rf_coll_op op, const char *algorithm, int rank, int ranks, size_t count,
                 size_t segment)
{
    struct rf_coll_desc desc = {};
    desc.op = op;
    desc.rank = rank;
    desc.ranks = ranks;
    desc.count = count;
    desc.segment_bytes = segment;
    struct rf_sched *sched = nullptr;
    EXPECT_EQ(rf_sched_build_as(&desc, algorithm, &sched), 0) << rf_last_error()->message;
    uint64_t sent = sched ? rf_sched_sent_bytes(sched) : 0;
    rf_sched_destroy(sched);
    return sent;
}

uint64_t chunk_bytes(size_t count, int ranks, int c)
{
    return rf_chunk(count, ranks, (c + ranks) % ranks, 4).bytes;
}

TEST(SentBytes, OfARingAreAllChunksTwiceButTwo)
{
    for (int ranks = 2; ranks <= 33; ranks++) {
        for (size_t count : {size_t(1), size_t(ranks), size_t(1000), size_t(4097)}) {
            for (int rank = 0; rank < ranks; rank++) {
                uint64_t all = 2 * count * 4;
                uint64_t sent = sent_by(RF_COLL_ALL_REDUCE, "ring", rank, ranks, count, 64);
                // It sends neither the chunk it completes before that, nor the one its neighbour
                // completed.
                ASSERT_EQ(sent, all - chunk_bytes(count, ranks, rank + 1) -
                                    chunk_bytes(count, ranks, (rank + 2) % ranks));
                ASSERT_LE(sent, 2 * uint64_t(ranks - 1) *
                                    ((count + size_t(ranks) - 1) / size_t(ranks)) * 4);
            }
        }
    }
}

TEST(SentBytes, OfTheOtherAlgorithmsFollowTheirFormulas)
{
    for (int ranks = 2; ranks <= 17; ranks++) {
        for (size_t count : {size_t(1), size_t(1000), size_t(4097)}) {
            for (int rank = 0; rank < ranks; rank++) {
                uint64_t all = count * 4, peers = uint64_t(ranks - 1);
                uint64_t own = chunk_bytes(count, ranks, rank);
                EXPECT_EQ(sent_by(RF_COLL_ALL_REDUCE, "flat", rank, ranks, count, 0), peers * all);
                EXPECT_EQ(sent_by(RF_COLL_ALL_REDUCE, "direct", rank, ranks, count, 64),
                          all - own + peers * own);
                EXPECT_EQ(sent_by(RF_COLL_REDUCE_SCATTER, "direct", rank, ranks, count, 64),
                          peers * all);
                EXPECT_EQ(sent_by(RF_COLL_ALL_GATHER, "flat", rank, ranks, count, 0), peers * all);
                EXPECT_EQ(sent_by(RF_COLL_ALL_GATHER, "ring", rank, ranks, count, 64), peers * all);
                EXPECT_EQ(sent_by(RF_COLL_BROADCAST, "chain", rank, ranks, count, 64),
                          rank == ranks - 1 ? 0 : all);
            }
            uint64_t tree = 0;
            for (int rank = 0; rank < ranks; rank++)
                tree += sent_by(RF_COLL_BROADCAST, "tree", rank, ranks, count, 64);
            EXPECT_EQ(tree, uint64_t(ranks - 1) * count * 4);
        }
    }
}

TEST(SentBytes, ArePredictedForWhatTheTableChooses)
{
    for (enum rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER,
                               RF_COLL_BROADCAST, RF_COLL_BARRIER, RF_COLL_SEND}) {
        for (int ranks = 2; ranks <= 5; ranks++) {
            for (size_t count :
                 {size_t(0), size_t(10), size_t(9000), size_t(300000), size_t(3000001)}) {
                for (enum rf_dtype dtype : {RF_F32, RF_BF16}) {
                    struct rf_coll_desc desc = {};
                    desc.op = op;
                    desc.rank = 1;
                    desc.ranks = ranks;
                    desc.count = count;
                    desc.dtype = dtype;
                    desc.segment_bytes = 65536;
                    struct rf_sched *sched = nullptr;
                    uint64_t sent = 1;
                    ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
                    ASSERT_EQ(
                        rf_coll_sent_bytes(op, 1, ranks, count, dtype, RF_ORDER_ANY, 0, &sent), 0);
                    EXPECT_EQ(sent, rf_sched_sent_bytes(sched));
                    rf_sched_destroy(sched);
                }
            }
        }
    }
}

TEST(SentBytes, WithACountForEachRankAreThoseOfTheList)
{
    for (enum rf_coll_op op :
         {RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER, RF_COLL_GATHER, RF_COLL_SCATTER})
        for (int ranks = 1; ranks <= 32; ranks++)
            for (size_t unit : {size_t(1), size_t(70001)}) {
                std::vector<size_t> counts;
                for (size_t r = 0; r < static_cast<size_t>(ranks); r++)
                    counts.push_back(r * 5 % 4 * unit);
                struct rf_coll_desc desc = {};
                desc.op = op;
                desc.ranks = ranks;
                desc.counts = counts.data();
                desc.root = ranks / 2;
                desc.segment_bytes = 65536;
                desc.window_bytes = RF_WINDOW_BYTES;
                desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
                for (size_t count : counts)
                    desc.count += count;
                const uint64_t whole = desc.count * 4, peers = static_cast<uint64_t>(ranks - 1);
                for (desc.rank = 0; desc.rank < ranks; desc.rank += 1 + ranks / 8) {
                    const uint64_t own = counts[static_cast<size_t>(desc.rank)] * 4;
                    struct rf_sched *sched = nullptr;
                    uint64_t sent = 1, staging = 1, want = 0;
                    ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
                    ASSERT_EQ(rf_coll_sent_bytes_v(op, desc.rank, ranks, counts.data(), RF_F32,
                                                   RF_ORDER_ANY, desc.root, &sent),
                              0);
                    EXPECT_EQ(sent, rf_sched_sent_bytes(sched));
                    if (op == RF_COLL_REDUCE_SCATTER) {
                        EXPECT_EQ(sent, whole - own);
                    }
                    if (op == RF_COLL_ALL_GATHER &&
                        std::string(rf_sched_algorithm(sched)) == "flat") {
                        EXPECT_EQ(sent, peers * own);
                    }
                    ASSERT_EQ(rf_sched_staging_bytes(&desc, nullptr, &want), 0);
                    ASSERT_EQ(rf_coll_staging_bytes_v(op, desc.rank, ranks, counts.data(), RF_F32,
                                                      RF_ORDER_ANY, desc.root, &staging),
                              0);
                    EXPECT_EQ(staging, want);
                    rf_sched_destroy(sched);
                }
            }
}

TEST(SentBytes, WithACountForEachRankAreRefusedWhereACallHasNone)
{
    const size_t counts[] = {1, 2}, huge[] = {SIZE_MAX, 1};
    uint64_t bytes = 0;
    auto sent = [&](enum rf_coll_op op, int rank, const size_t *list) {
        return rf_coll_sent_bytes_v(op, rank, 2, list, RF_F32, RF_ORDER_ANY, 0, &bytes);
    };
    EXPECT_EQ(sent(RF_COLL_ALL_GATHER, 0, counts), 0);
    for (enum rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_ALL_TO_ALL, RF_COLL_BARRIER,
                               RF_COLL_FOREST_REDUCE_SCATTER, RF_COLL_PREFIX_REDUCE_SCATTER})
        EXPECT_EQ(sent(op, 0, counts), RF_EINVAL);
    EXPECT_EQ(sent(RF_COLL_ALL_GATHER, 0, nullptr), RF_EINVAL);
    EXPECT_EQ(sent(RF_COLL_ALL_GATHER, 0, huge), RF_EINVAL);
    EXPECT_EQ(sent(RF_COLL_ALL_GATHER, 2, counts), RF_EINVAL);
    EXPECT_EQ(
        rf_coll_staging_bytes_v(RF_COLL_ALL_GATHER, 0, 2, nullptr, RF_F32, RF_ORDER_ANY, 0, &bytes),
        RF_EINVAL);
}

TEST(SentBytes, OfALargeAllReduceAreTheRingsBoundFor4096Ranks)
{
    uint64_t sent = 0;
    ASSERT_EQ(rf_coll_sent_bytes(RF_COLL_ALL_REDUCE, 17, 4096, size_t(1) << 30, RF_F32,
                                 RF_ORDER_RING, 0, &sent),
              0);
    EXPECT_EQ(sent, 2ull * 4095 * (1 << 18) * 4);
}

TEST(Table, ChoosesNoRingForTypesItWouldRoundAtEveryHop)
{
    for (enum rf_dtype dtype : {RF_F16, RF_BF16}) {
        struct rf_coll_desc desc = {};
        desc.op = RF_COLL_ALL_REDUCE;
        desc.ranks = 4;
        desc.count = 1 << 24;
        desc.dtype = dtype;
        desc.order = RF_ORDER_RING;
        struct rf_sched *sched = nullptr;
        ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
        EXPECT_STREQ(rf_sched_algorithm(sched), "direct");
        rf_sched_destroy(sched);
    }
}

TEST(Table, RefusesWhatMakesNoSense)
{
    uint64_t sent = 0;
    auto status = [&](enum rf_coll_op op, int rank, int ranks, size_t count, int dtype, int root) {
        return rf_coll_sent_bytes(op, rank, ranks, count, static_cast<enum rf_dtype>(dtype),
                                  RF_ORDER_ANY, root, &sent);
    };
    EXPECT_EQ(status(RF_COLL_ALL_REDUCE, 2, 2, 1, RF_F32, 0), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_ALL_REDUCE, -1, 2, 1, RF_F32, 0), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_ALL_REDUCE, 0, 0, 1, RF_F32, 0), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_ALL_REDUCE, 0, 2, 1, 99, 0), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_ALL_REDUCE, 0, 2, SIZE_MAX / 2, RF_F32, 0), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_BROADCAST, 0, 2, 1, RF_F32, 2), RF_EINVAL);
    EXPECT_EQ(status(RF_COLL_RECV, 1, 2, 1, RF_F32, 1), RF_EINVAL);
    for (enum rf_coll_op op :
         {RF_COLL_FOREST_ALL_REDUCE, RF_COLL_FOREST_REDUCE_SCATTER, RF_COLL_PREFIX_REDUCE_SCATTER})
        EXPECT_EQ(status(op, 0, 2, 1, RF_F32, 0), RF_EINVAL);
    EXPECT_EQ(status(static_cast<enum rf_coll_op>(77), 0, 2, 1, RF_F32, 0), RF_EINVAL);
}

} // namespace
