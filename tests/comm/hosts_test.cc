// SPDX-License-Identifier: MIT
//
// Collectives that know which ranks are on one host, over every transport. RF_HOSTS says which host
// that is.
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <algorithm>
#include <cstring>

#include "support/ranks.h"

namespace
{

struct Case {
    ranks::World world;
    const char *hosts;
};

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const char *hosts : {"a,a,b", "a,b,b,b", "a,b,a,b,c", "x,x,x,y,y,y,z"}) {
        int size = 1 + (int)std::count(hosts, hosts + strlen(hosts), ',');
        for (ranks::World world : ranks::worlds({size}, {size}, {hosts})) {
            all.push_back({world, hosts});
        }
    }
    return all;
}

class Hosts : public testing::TestWithParam<Case>
{
  protected:
    void SetUp() override
    {
        setenv("RF_HOSTS", GetParam().hosts, 1);
    }
    void TearDown() override
    {
        unsetenv("RF_HOSTS");
    }
};
INSTANTIATE_TEST_SUITE_P(Layouts, Hosts, testing::ValuesIn(cases()), [](const auto &info) {
    std::string hosts = info.param.hosts;
    hosts.erase(std::remove(hosts.begin(), hosts.end(), ','), hosts.end());
    return ranks::name(info.param.world) + "_" + hosts;
});

TEST_P(Hosts, CollectivesByHostsAreExact)
{
    ranks::run(GetParam().world, [](rf_comm *comm, int rank) {
        const size_t size = (size_t)rf_comm_size(comm);
        rf_coll_opts opts{};
        opts.algorithm = "hierarchical";
        for (size_t count : {1u, 13u, 1000u, 300007u}) {
            std::vector<int> in(count * size), out(count * size, -1);
            for (size_t i = 0; i < in.size(); i++)
                in[i] = rank * 100 + (int)(i % 1013);
            int ranks_sum = (int)(size * (size - 1) / 2) * 100;
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_I32, RF_SUM, &opts), 0)
                << rf_last_error()->message;
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], ranks_sum + (int)size * (int)(i % 1013)) << i;
            ASSERT_EQ(rf_all_reduce(comm, out.data(), out.data(), count, RF_I32, RF_MAX, &opts), 0);
            ASSERT_EQ(out[count - 1], ranks_sum + (int)size * (int)((count - 1) % 1013));
            ASSERT_EQ(rf_reduce_scatter(comm, in.data(), out.data(), count, RF_I32, RF_SUM, &opts),
                      0);
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], ranks_sum + (int)size * (int)(((size_t)rank * count + i) % 1013));
            ASSERT_EQ(rf_all_gather(comm, in.data(), out.data(), count, RF_I32, &opts), 0);
            for (size_t i = 0; i < count * size; i++)
                ASSERT_EQ(out[i], (int)(i / count) * 100 + (int)(i % count % 1013));
            for (size_t root = 0; root < size; root++) {
                if (root == (size_t)rank)
                    memcpy(out.data(), in.data(), count * sizeof(int));
                ASSERT_EQ(rf_broadcast(comm, out.data(), count, RF_I32, (int)root, &opts), 0);
                for (size_t i = 0; i < count; i++)
                    ASSERT_EQ(out[i], (int)root * 100 + (int)(i % 1013));
            }
        }
    });
}

// Measured links choose the algorithm, so it depends on the machine. The sums do not.
TEST(MeasuredHosts, AllRanksChooseTheSameAndSumsAreWhatTheyWere)
{
    ranks::World world;
    world.provider = "shm+tcp";
    world.size = 4;
    world.hosts = "a,b,b,a";
    setenv("RF_MEASURE", "1", 1);
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_link_figures links;
        ASSERT_EQ(rf_comm_links(comm, &links), 0);
        for (double figure : {links.host_round_s, links.host_bytes_per_s, links.between_round_s,
                              links.between_bytes_per_s})
            EXPECT_GT(figure, 0);
        for (size_t count : {1u, 5000u, 70001u, 2000003u}) {
            const char *name;
            double seconds;
            ASSERT_EQ(rf_comm_algorithm(comm, RF_COLL_ALL_REDUCE, count, RF_F32, RF_ORDER_ANY, true,
                                        &name, &seconds),
                      0);
            EXPECT_STRNE(name, "fused") << "ranks of two hosts share no memory";
            char mine[64] = "", all[4][64];
            strncpy(mine, name, sizeof mine - 1);
            ASSERT_EQ(rf_all_gather(comm, mine, all, sizeof mine, RF_U8, nullptr), 0);
            for (const char *other : all)
                EXPECT_STREQ(other, name);
            std::vector<float> in(count), out(count), ring(count);
            for (size_t i = 0; i < count; i++)
                in[i] = (float)((size_t)rank * 31 + i % 1013);
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_F32, RF_SUM, nullptr),
                      0);
            for (size_t i = 0; i < count; i++)
                ASSERT_EQ(out[i], (float)(6 * 31 + 4 * (i % 1013)));
            for (float &x : in)
                x = 1 / (x + 1);
            rf_coll_opts opts{};
            opts.order = RF_ORDER_RING;
            ASSERT_EQ(rf_all_reduce(comm, in.data(), out.data(), count, RF_F32, RF_SUM, &opts), 0);
            opts.algorithm = "ring";
            ASSERT_EQ(rf_all_reduce(comm, in.data(), ring.data(), count, RF_F32, RF_SUM, &opts), 0);
            EXPECT_EQ(memcmp(out.data(), ring.data(), count * sizeof(float)), 0);
        }
    });
    unsetenv("RF_MEASURE");
}

TEST(OneHost, HasNothingToServeByHosts)
{
    ranks::World world;
    world.size = 3;
    ranks::run(world, [](rf_comm *comm, int) {
        rf_coll_opts opts{};
        opts.algorithm = "hierarchical";
        float x = 1;
        EXPECT_EQ(rf_all_reduce(comm, &x, &x, 1, RF_F32, RF_SUM, &opts), RF_EINVAL);
        EXPECT_STREQ(
            rf_last_error()->message,
            "all_reduce: algorithm \"hierarchical\" cannot serve 1 f32 in any order on 3 ranks: it "
            "needs several hosts, and several ranks on some of them");
        EXPECT_EQ(rf_all_reduce(comm, &x, &x, 1, RF_F32, RF_SUM, nullptr), 0);
        EXPECT_EQ(x, 3);
    });
}

} // namespace
