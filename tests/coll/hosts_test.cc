// SPDX-License-Identifier: MIT
//
// Collectives by hosts: exact for many layouts, even and uneven, in any order that the dependencies
// allow; the bytes between hosts are the minimum.
#include <gtest/gtest.h>

#include <algorithm>

#include "simulator.h"
#include "values.h"

using namespace values;

namespace
{

using Hosts = std::vector<int>; // of each rank

std::vector<Hosts> layouts()
{
    std::vector<Hosts> all = {{0, 0, 1},
                              {0, 1, 1},
                              {0, 0, 1, 1},
                              {0, 1, 0, 1}, // in turns
                              {0, 0, 0, 1},
                              {0, 1, 1, 1, 2},
                              {0, 1, 2, 2, 2, 1},
                              {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
                              {0, 1, 2, 0, 1, 2, 0, 1, 2},
                              {0, 0, 0, 0, 0, 0, 0, 1}};
    std::mt19937 random(7);
    for (int i = 0; i < 12; i++) { // any number of ranks per host, hosts numbered in order of
                                   // appearance
        Hosts hosts((size_t)(3 + random() % 14));
        std::vector<int> names(5, -1);
        int count = 0;
        for (int &host : hosts) {
            int &name = names[random() % 5];
            name = name < 0 ? count++ : name;
            host = name;
        }
        if (count > 1 && count < (int)hosts.size())
            all.push_back(hosts);
    }
    return all;
}

const rf_coll_op ops[] = {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER,
                          RF_COLL_BROADCAST};

rf_coll_desc describe(rf_coll_op op, const Hosts &hosts, size_t count)
{
    rf_coll_desc desc = {};
    desc.op = op;
    desc.ranks = (int)hosts.size();
    desc.hosts = hosts.data();
    desc.count = count;
    desc.root = (int)((hosts.size() * 2 - 1) / 3);
    desc.segment_bytes = 64;
    desc.window_bytes = count == 97 ? 16 * hosts.size() : 0; /* many windows */
    return desc;
}

std::string text(const rf_coll_desc &desc)
{
    std::string hosts;
    for (int r = 0; r < desc.ranks; r++)
        hosts += " " + std::to_string(desc.hosts[r]);
    return std::string(rf_coll_op_name(desc.op)) + " of " + std::to_string(desc.count) +
           " on hosts" + hosts;
}

template <class Run> void for_every_case(Run run)
{
    for (const Hosts &hosts : layouts())
        for (rf_coll_op op : ops)
            for (size_t count : {1u, 2u, 7u, 97u, 1000u})
                run(describe(op, hosts, count));
}

TEST(HostSchedules, AreExactInAnyOrderThatTheirDependenciesAllow)
{
    uint32_t seed = 1;
    for_every_case([&](rf_coll_desc desc) {
        desc.dtype = RF_I64;
        for (bool in_place : {false, true}) {
            sim::World world(desc, "hierarchical", in_place);
            ASSERT_EQ(world.error, "") << text(desc);
            fill<int64_t>(world, desc);
            ASSERT_EQ(sim::run_any_order(
                          world, seed++, [](int64_t a, int64_t b) { return a + b; },
                          [&](int64_t a) { return a / desc.ranks; }),
                      "")
                << text(desc);
            ASSERT_EQ(check<int64_t>(world, desc), "") << text(desc);
        }
    });
}

TEST(HostSchedules, AreExactWhenTheExecutorRunsThem)
{
    uint32_t seed = 1;
    for_every_case([&](rf_coll_desc desc) {
        desc.dtype = RF_I32;
        for (bool in_place : {false, true}) {
            sim::World world(desc, "hierarchical", in_place);
            ASSERT_EQ(world.error, "") << text(desc);
            fill<int32_t>(world, desc);
            ASSERT_EQ(sim::run_executor(world, seed++), "") << text(desc);
            ASSERT_EQ(check<int32_t>(world, desc), "") << text(desc);
        }
    });
}

TEST(HostSchedules, WithACountForEachRankAreExact)
{
    uint32_t seed = 1;
    for (const Hosts &hosts : layouts())
        for (rf_coll_op op : {RF_COLL_ALL_GATHER, RF_COLL_REDUCE_SCATTER}) {
            std::vector<size_t> counts;
            size_t sum = 0;
            for (size_t r = 0; r < hosts.size(); r++)
                sum += counts.emplace_back(r * 37 % 5 * (r % 3) * 11);
            rf_coll_desc desc = describe(op, hosts, sum);
            desc.counts = counts.data();
            desc.dtype = RF_I32;
            sim::World world(desc, "hierarchical", false);
            ASSERT_EQ(world.error, "") << text(desc);
            fill<int32_t>(world, desc);
            ASSERT_EQ(sim::run_executor(world, seed++), "") << text(desc);
            ASSERT_EQ(check<int32_t>(world, desc), "") << text(desc);
        }
}

// Bytes that ranks of each host send to other hosts.
std::vector<uint64_t> between(rf_coll_desc desc)
{
    std::vector<uint64_t> sent(desc.ranks);
    for (desc.rank = 0; desc.rank < desc.ranks; desc.rank++) {
        struct rf_sched *sched = nullptr;
        EXPECT_EQ(rf_sched_build_as(&desc, "hierarchical", &sched), 0) << rf_last_error()->message;
        for (uint32_t i = 0; sched && i < sched->count; i++)
            if (sched->steps[i].verb == RF_STEP_SEND &&
                desc.hosts[sched->steps[i].peer] != desc.hosts[desc.rank])
                sent[(size_t)desc.hosts[desc.rank]] += sched->steps[i].bytes;
        rf_sched_destroy(sched);
    }
    return sent;
}

TEST(HostSchedules, BetweenHostsGoesWhatTheFormulaSays)
{
    for_every_case([&](rf_coll_desc desc) {
        std::vector<uint64_t> sent = between(desc);
        int hosts = 1 + *std::max_element(desc.hosts, desc.hosts + desc.ranks);
        uint64_t all = 0, element = 4;
        for (int host = 0; host < hosts; host++) {
            uint64_t ranks = (uint64_t)std::count(desc.hosts, desc.hosts + desc.ranks, host);
            uint64_t chunk = rf_chunk(desc.count, hosts, host, element).bytes;
            uint64_t whole = desc.count * element, piece = whole * ranks;
            uint64_t others = (uint64_t)hosts - 1;
            all += sent[(size_t)host];
            switch (desc.op) {
            case RF_COLL_ALL_REDUCE: // sums of others' pieces, and its own piece to all others
                EXPECT_EQ(sent[(size_t)host], whole - chunk + others * chunk) << text(desc);
                break;
            case RF_COLL_REDUCE_SCATTER:
                EXPECT_EQ(sent[(size_t)host], whole * (uint64_t)desc.ranks - piece) << text(desc);
                break;
            case RF_COLL_ALL_GATHER:
                EXPECT_EQ(sent[(size_t)host], others * piece) << text(desc);
                break;
            default:
                EXPECT_LE(sent[(size_t)host], whole) << text(desc);
            }
        }
        bool once = desc.op != RF_COLL_BROADCAST || all == desc.count * element * (hosts - 1u);
        EXPECT_TRUE(once) << text(desc);
    });
}

TEST(HostSchedules, OfManyRanksSendTheFormulasBytes)
{
    Hosts hosts(512);
    for (size_t r = 0; r < hosts.size(); r++)
        hosts[r] = (int)(r / 8);
    std::vector<uint64_t> sent = between(describe(RF_COLL_ALL_REDUCE, hosts, 64 * 1000));
    for (int host = 0; host < 64; host++)
        EXPECT_EQ(sent[(size_t)host], 2u * 63 * 1000 * 4);
}

TEST(HostSchedules, ServeWhereThereIsSomethingToGain)
{
    const Hosts one = {0, 0, 0}, alone = {0, 1, 2}, two = {0, 0, 1};
    auto refused = [](rf_coll_desc desc) {
        struct rf_sched *sched = nullptr;
        int rc = rf_sched_build_as(&desc, "hierarchical", &sched);
        rf_sched_destroy(sched);
        return rc == RF_EINVAL;
    };
    EXPECT_FALSE(refused(describe(RF_COLL_ALL_REDUCE, two, 10)));
    EXPECT_TRUE(refused(describe(RF_COLL_ALL_REDUCE, one, 10)));
    EXPECT_TRUE(refused(describe(RF_COLL_ALL_REDUCE, alone, 10)));
    rf_coll_desc desc = describe(RF_COLL_ALL_REDUCE, two, 10);
    desc.order = RF_ORDER_RING; // it folds otherwise
    EXPECT_TRUE(refused(desc));
    desc.order = RF_ORDER_ANY;
    desc.dtype = RF_BF16; // and would round between hosts
    EXPECT_TRUE(refused(desc));
    desc.op = RF_COLL_ALL_GATHER;
    EXPECT_FALSE(refused(desc));
    desc.hosts = nullptr;
    EXPECT_TRUE(refused(desc));
}

} // namespace
