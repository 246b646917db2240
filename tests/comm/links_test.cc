// SPDX-License-Identifier: MIT
//
// Communicators with measured links: all ranks choose the same, results do not change, and the
// measurement leaves nothing behind. No time is asserted.
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <cmath>
#include <cstring>

#include "support/ranks.h"

namespace
{

class Links : public testing::TestWithParam<ranks::World>
{
  protected:
    void SetUp() override
    {
        setenv("RF_MEASURE", "1", 1);
    }
    void TearDown() override
    {
        unsetenv("RF_MEASURE");
    }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Links, testing::ValuesIn(ranks::worlds({2, 3, 4, 7, 33}, {2, 3})),
                         [](const auto &info) { return ranks::name(info.param); });

TEST_P(Links, FiguresAndChoicesAreTheSameOnAllRanks)
{
    ranks::run(GetParam(), [](rf_comm *comm, int) {
        const int size = rf_comm_size(comm);
        rf_link_figures links;
        ASSERT_EQ(rf_comm_links(comm, &links), 0);
        ASSERT_TRUE(links.measured);
        double mine[5] = {links.message_s, links.bytes_per_s, links.more_message_s,
                          links.more_bytes_per_s, links.fold_bytes_per_s};
        for (double figure : mine)
            EXPECT_TRUE(std::isfinite(figure) && figure > 0) << figure;
        std::vector<double> all((size_t)size * 5);
        ASSERT_EQ(rf_all_gather(comm, mine, all.data(), 5, RF_F64, nullptr), 0);
        for (int r = 0; r < size; r++)
            EXPECT_EQ(memcmp(&all[(size_t)r * 5], mine, sizeof mine), 0) << r;
    });
}

TEST_P(Links, SumsInRingOrderHaveTheBitsOfTheTable)
{
    ranks::World plain = GetParam();
    for (size_t count : {1u, 7u, 1000u, 40000u, 500001u}) {
        ranks::Shared bits(2 * count * sizeof(float));
        float *results = bits.as<float>();
        for (int measured = 0; measured < 2; measured++) {
            setenv("RF_MEASURE", measured ? "1" : "0", 1);
            ranks::run(plain, [&](rf_comm *comm, int rank) {
                std::vector<float> in(count), out(count);
                for (size_t i = 0; i < count; i++)
                    in[i] = 1 / (float)((size_t)rank * 31 + i + 1);
                rf_coll_opts opts{};
                opts.order = RF_ORDER_RING;
                ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_F32, RF_SUM, &opts),
                          0);
                if (rank == 0)
                    memcpy(results + (size_t)measured * count, out.data(), count * sizeof(float));
            });
        }
        EXPECT_EQ(memcmp(results, results + count, count * sizeof(float)), 0) << count;
    }
}

TEST_P(Links, EveryCollectiveIsExactAndOnlyItsBytesAreCounted)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const size_t size = (size_t)rf_comm_size(comm);
        EXPECT_EQ(rf_comm_sent_bytes(comm), 0u);
        EXPECT_EQ(rf_comm_sent_messages(comm), 0u);
        for (size_t count : {1u, 100u, 5000u, 70001u}) {
            std::vector<int> in(count * size), out(count * size);
            for (size_t i = 0; i < in.size(); i++)
                in[i] = rank * 1000003 + (int)i;
            uint64_t before = rf_comm_sent_bytes(comm), wanted = 0;
            const char *name;
            double seconds;
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_I32, RF_MAX, nullptr),
                      0);
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], (int)(size - 1) * 1000003 + (int)i);
            ASSERT_EQ(rf_comm_algorithm(comm, RF_COLL_ALL_REDUCE, count, RF_I32, RF_ORDER_ANY,
                                        false, &name, &seconds),
                      0);
            EXPECT_GT(seconds, 0);
            ASSERT_EQ(rf_coll_sent_bytes_as(RF_COLL_ALL_REDUCE, name, rank, (int)size, count,
                                            RF_I32, RF_ORDER_ANY, 0, &wanted),
                      0);
            EXPECT_EQ(rf_comm_sent_bytes(comm) - before, wanted) << name;
            ASSERT_EQ(rf_all_gather(comm, in.data(), out.data(), count, RF_I32, nullptr), 0);
            for (size_t i = 0; i < count * size; i++)
                ASSERT_EQ(out[i], (int)(i / count) * 1000003 + (int)(i % count));
            if (rank == 1)
                memcpy(out.data(), in.data(), count * sizeof(int));
            ASSERT_EQ(rf_broadcast(comm, out.data(), count, RF_I32, 1, nullptr), 0);
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], 1000003 + (int)i);
        }
    });
}

TEST(LinksOff, OneRankThatRefusesIsEnoughAndTheTableStays)
{
    setenv("RF_MEASURE", "0", 1);
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int) {
        rf_link_figures links;
        const char *name, *table;
        double seconds;
        ASSERT_EQ(rf_comm_links(comm, &links), 0);
        EXPECT_FALSE(links.measured);
        for (size_t count : {1u, 100000u, 10000000u}) {
            ASSERT_EQ(rf_comm_algorithm(comm, RF_COLL_ALL_REDUCE, count, RF_F32, RF_ORDER_ANY,
                                        false, &name, &seconds),
                      0);
            ASSERT_EQ(rf_coll_algorithm(RF_COLL_ALL_REDUCE, 3, count, RF_F32, RF_ORDER_ANY, &table),
                      0);
            EXPECT_STREQ(name, table);
            EXPECT_LT(seconds, 0);
        }
    });
    unsetenv("RF_MEASURE");
}

} // namespace
