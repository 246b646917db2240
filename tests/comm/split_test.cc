/* SPDX-License-Identifier: MIT
 *
 * Groups of a communicator's ranks: members and their order, concurrent use of groups and the
 * whole, and a failure of one that does not affect the others.
 */
#include <gtest/gtest.h>

#include <cstring>

#include "support/ranks.h"

namespace
{

int sum(rf_comm *comm, int value)
{
    int32_t in = value, out = -1;
    EXPECT_EQ(rf_all_reduce(comm, &in, &out, 1, RF_I32, RF_SUM, nullptr), RF_OK)
        << rf_last_error()->message;
    return out;
}

class Split : public testing::TestWithParam<ranks::World>
{
};

// For ranks of equal parity: the provider of all, or the part of it that they need.
std::string provider_of_parity_group(const ranks::World &world, rf_comm *comm, int rank)
{
    std::string all = rf_comm_provider(comm), seen;
    if (world.hosts.empty())
        return all;
    size_t count = 0;
    for (int r = rank % 2; r < world.size; r += 2, count++) {
        char host = world.hosts[2 * (size_t)r];
        if (seen.find(host) == seen.npos)
            seen += host;
    }
    return seen.size() == 1 ? "shm" : seen.size() < count ? all : all.substr(strlen("shm+"));
}

// The order of `comm`'s ranks in that case; empty: unchanged.
std::vector<int32_t> order_by_host(rf_comm *comm, int together)
{
    rf_comm *ordered = nullptr;
    EXPECT_EQ(rf_comm_by_host(comm, together, &ordered), RF_OK) << rf_last_error()->message;
    if (!ordered)
        return {};
    std::vector<int32_t> order((size_t)rf_comm_size(ordered));
    const int32_t rank = rf_comm_rank(comm);
    EXPECT_EQ(rf_all_gather(ordered, &rank, order.data(), 1, RF_I32, nullptr), RF_OK);
    EXPECT_EQ(rf_comm_close(ordered), RF_OK);
    return order;
}

TEST(ByHost, GroupsOfNeighboursLieWithinHosts)
{
    using Order = std::vector<int32_t>;
    const struct {
        const char *hosts;
        int together;
        Order order;
    } cases[] = {{"a,b,a,b", 2, {0, 2, 1, 3}},
                 {"a,a,b,b", 2, {}},
                 {"a,b,b,a", 2, {0, 3, 1, 2}},
                 {"a,b,b,b", 2, {0, 3, 1, 2}}, // rank 0 stays the first
                 {"a,b,a,a,b,b", 2, {0, 2, 1, 4, 3, 5}},
                 {"a,b,a,b", 4, {0, 2, 1, 3}}};
    for (const auto &c : cases) {
        ranks::World world;
        world.provider = "tcp";
        world.hosts = c.hosts;
        world.size = (int)(world.hosts.size() + 1) / 2;
        ranks::run(world, [&](rf_comm *comm, int) {
            EXPECT_EQ(order_by_host(comm, c.together), c.order) << c.hosts;
            rf_comm *none = nullptr;
            EXPECT_EQ(rf_comm_by_host(comm, 5, &none), RF_EINVAL);
        });
    }
}

TEST(ByHost, RanksOfOneHostStay)
{
    ranks::World world;
    world.size = 4;
    ranks::run(world, [](rf_comm *comm, int) { EXPECT_TRUE(order_by_host(comm, 2).empty()); });
}

TEST_P(Split, PutsEqualColorsTogetherByKeyAndRank)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        int size = rf_comm_size(comm);
        rf_comm *parity_group = nullptr, *turned = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank % 2, 0, &parity_group), RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(rf_comm_rank(parity_group), rank / 2);
        EXPECT_EQ(rf_comm_size(parity_group), (size + 1 - rank % 2) / 2);
        if (rf_comm_size(parity_group) > 1) {
            EXPECT_EQ(rf_comm_provider(parity_group),
                      provider_of_parity_group(GetParam(), comm, rank));
        }
        ASSERT_EQ(rf_comm_split(comm, 7, -rank, &turned), RF_OK) << rf_last_error()->message;
        EXPECT_EQ(rf_comm_rank(turned), size - 1 - rank);
        int even = 0, odd = 0, all = 0;
        for (int r = 0; r < size; r++) {
            (r % 2 ? odd : even) += r + 1;
            all += r + 1;
        }
        for (int i = 0; i < 20;
             i++) { /* alternately, so that their messages are in flight at once */
            EXPECT_EQ(sum(parity_group, rank + 1), rank % 2 ? odd : even);
            EXPECT_EQ(sum(turned, rank + 1), all);
            EXPECT_EQ(sum(comm, rank + 1), all);
        }
        int32_t root = rank;
        EXPECT_EQ(rf_broadcast(turned, &root, 1, RF_I32, 0, nullptr), RF_OK);
        EXPECT_EQ(root, size - 1);
        rf_comm_close(parity_group);
        EXPECT_EQ(sum(turned, 1), size);
        rf_comm_close(turned);
        EXPECT_EQ(sum(comm, 1), size);
    });
}

TEST_P(Split, NegativeColorsAreInNoGroupAndSingleRanksWork)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        rf_comm *group = nullptr;
        ASSERT_EQ(rf_comm_split(comm, rank == 0 ? -1 : rank, 0, &group), RF_OK)
            << rf_last_error()->message;
        if (rank == 0) {
            EXPECT_EQ(group, nullptr);
        } else {
            EXPECT_EQ(rf_comm_size(group), 1);
            EXPECT_EQ(sum(group, 5), 5);
            rf_comm_close(group);
        }
        EXPECT_EQ(sum(comm, 1), rf_comm_size(comm));
        EXPECT_EQ(rf_comm_split(comm, 0, 0, nullptr), RF_EINVAL);
        EXPECT_EQ(rf_comm_split(nullptr, 0, 0, &group), RF_EINVAL);
    });
}

TEST_P(Split, AGroupThatFailsDoesNotFailItsParent)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        rf_comm *group = nullptr;
        ASSERT_EQ(rf_comm_split(comm, 0, 0, &group), RF_OK) << rf_last_error()->message;
        if (rank == 0)
            rf_comm_abort(group, "for a test");
        int32_t x = 1;
        EXPECT_LT(rf_all_reduce(group, &x, &x, 1, RF_I32, RF_SUM, nullptr), 0);
        EXPECT_EQ(sum(comm, 1), rf_comm_size(comm));
        rf_comm_close(group);
    });
}

TEST(Groups, ReportTheNumbersOfRanksInTheJob)
{
    ranks::World world;
    world.size = 5;
    ranks::run(world, [](rf_comm *comm, int rank) {
        rf_comm *odd = nullptr, *pair = nullptr; /* 1, 3; and of those 3, 1 */
        ASSERT_EQ(rf_comm_split(comm, rank % 2 ? 0 : -1, rank, &odd), RF_OK);
        if (!odd)
            return;
        ASSERT_EQ(rf_comm_split(odd, 0, -rank, &pair), RF_OK);
        float x = 1;
        EXPECT_EQ(rf_all_reduce(pair, &x, &x, 1, RF_F32, rank == 1 ? RF_MAX : RF_SUM, nullptr),
                  RF_EMISMATCH);
        EXPECT_NE(strstr(rf_last_error()->message, "; these are ranks of a group: rank 0 is rank 3 "
                                                   "of the job, rank 1 is rank 1 of the job"),
                  nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(rf_last_error()->rank, rank == 1 ? 0 : 1);
        rf_comm_close(pair);
        EXPECT_EQ(rf_comm_close(odd), RF_OK);
    });
}

// Terms that must be equal on all ranks; a hash is compared, but not shown.
TEST_P(Split, TermsThatDifferAreAnErrorOfAllRanksThatNamesThemAndTheJobGoesOn)
{
    ranks::run(GetParam(), [](rf_comm *comm, int rank) {
        const int last = rf_comm_size(comm) - 1;
        const std::string own = rank == last ? "2" : "1";
        EXPECT_EQ(rf_comm_check_terms(comm, "--lr=0.003\n--data=5 tokens\tabc\n"), RF_OK)
            << rf_last_error()->message;
        EXPECT_EQ(rf_comm_check_terms(comm, ("a=x\n--lr=" + own + "\n").c_str()), RF_EINVAL);
        EXPECT_EQ(std::string(rf_last_error()->message),
                  "rank " + std::to_string(last) +
                      " has --lr 2, rank 0 1; give every rank the same");
        EXPECT_EQ(rf_last_error()->rank, last);
        EXPECT_EQ(rf_comm_check_terms(comm, ("--data=5 tokens\t" + own + "\n").c_str()), RF_EINVAL);
        EXPECT_EQ(std::string(rf_last_error()->message),
                  "--data of rank " + std::to_string(last) +
                      " is not that of rank 0, though both are 5 tokens; give every rank the same");
        EXPECT_EQ(rf_comm_check_terms(comm, rank == last ? "" : "b=1\n"), RF_EINVAL);
        EXPECT_NE(strstr(rf_last_error()->message, "rank 0 speaks of b"), nullptr)
            << rf_last_error()->message;
        EXPECT_EQ(rf_comm_check_terms(comm, std::string(1 << 14, 'a').c_str()), RF_EINVAL);
        EXPECT_EQ(sum(comm, 1), last + 1);
    });
}

INSTANTIATE_TEST_SUITE_P(All, Split,
                         testing::ValuesIn(ranks::worlds({2, 3, 5}, {3, 4},
                                                         {"a,b,b", "a,b,b,a", "a,b,a,b"})),
                         [](const auto &info) { return ranks::name(info.param); });

} // namespace
