// SPDX-License-Identifier: MIT
//
// Predicted times, and the choice of an algorithm by them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "coll/model.h"
#include "coll/sched.h"
#include "coll/table.h"
}

namespace
{

// Seconds and seconds per byte: shared memory, Ethernet of 1 and 100 Gbit/s, a long distance, and a
// switch that many simultaneous messages slow down.
const rf_coll_model models[] = {
    {.round_s = 5e-7,
     .byte_s = 1e-10,
     .fan_message_s = 2e-7,
     .fan_byte_s = 1e-10,
     .fold_byte_s = 5e-11,
     .segment_bytes = 256 << 10},
    {3e-5, 8.4e-9, 4e-6, 8.6e-9, 5e-11, 256 << 10},
    {5e-6, 8.4e-11, 1e-6, 9e-11, 5e-11, 256 << 10},
    {2e-2, 1e-8, 1e-5, 1e-8, 5e-11, 256 << 10},
    {3e-5, 8.4e-9, 4e-6, 2e-8, 5e-11, 256 << 10},
};

const rf_coll_op chosen_ops[] = {RF_COLL_ALL_REDUCE,    RF_COLL_REDUCE, RF_COLL_ALL_GATHER,
                                 RF_COLL_BROADCAST,     RF_COLL_GATHER, RF_COLL_SCATTER,
                                 RF_COLL_REDUCE_SCATTER};
const size_t OPS = sizeof(chosen_ops) / sizeof(chosen_ops[0]);
const std::vector<const char *> names[] = {
    {"flat", "recursive_doubling", "rabenseifner", "direct", "ring"},
    {"flat", "direct"},
    {"bruck", "flat", "ring"},
    {"tree", "chain"},
    {"tree", "flat"},
    {"tree", "flat"},
    {"halving", "direct"}};

rf_coll_desc describe(rf_coll_op op, int ranks, size_t bytes, const rf_coll_model &model,
                      rf_order order = RF_ORDER_ANY)
{
    rf_coll_desc desc{};
    desc.op = op;
    desc.ranks = ranks;
    desc.count = bytes / 4;
    desc.order = order;
    desc.segment_bytes = 256 << 10;
    desc.model = &model;
    return desc;
}

std::string choice(const rf_coll_desc &desc, double *seconds = nullptr)
{
    const char *name = "";
    double ignored;
    EXPECT_EQ(rf_coll_choose(&desc, &name, seconds ? seconds : &ignored), 0);
    return name;
}

size_t segment_of(const rf_coll_desc &desc, const char *name)
{
    const rf_algorithm *algorithm = nullptr;
    EXPECT_EQ(rf_coll_find(&desc, name, &algorithm), 0);
    return algorithm ? rf_coll_segment(&desc, algorithm) : 0;
}

// An algorithm without a cost would never be compared with the others.
TEST(Model, WhateverTheTableChoosesHasACost)
{
    for (rf_coll_op op : chosen_ops)
        for (int ranks = 2; ranks <= 33; ranks++)
            for (size_t bytes = 4; bytes <= 64u << 20; bytes *= 4)
                for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
                    rf_coll_desc desc = describe(op, ranks, bytes, models[0], order);
                    desc.model = nullptr;
                    std::string row = choice(desc);
                    desc.model = &models[0];
                    EXPECT_GT(rf_coll_predict(&desc, row.c_str()), 0) << row << " for " << op;
                }
}

TEST(Table, BroadcastsTakeATreeForLongerWhereRanksShareMemory)
{
    const auto name = [](int ranks, size_t bytes, bool shared) {
        rf_coll_desc desc = describe(RF_COLL_BROADCAST, ranks, bytes, models[0]);
        desc.model = nullptr;
        desc.shared = shared;
        return choice(desc);
    };
    EXPECT_EQ(name(4, 64 << 10, false), "tree");
    EXPECT_EQ(name(4, 128 << 10, false), "chain");
    EXPECT_EQ(name(4, 4 << 20, true), "tree");
    EXPECT_EQ(name(4, 8 << 20, true), "chain");
    EXPECT_EQ(name(3, 256 << 10, true), "tree");
    EXPECT_EQ(name(3, 512 << 10, true), "chain");
    EXPECT_EQ(name(2, 64 << 20, false), "tree");
}

// With and without measured links, or ranks would cut differently.
TEST(Table, AReduceOnTwoRanksIsCutShorterWhereTheyShareNoMemory)
{
    for (bool measured : {false, true})
        for (bool shared : {false, true}) {
            rf_coll_desc desc = describe(RF_COLL_REDUCE, 2, 4 << 20, models[0]);
            desc.model = measured ? &models[0] : nullptr;
            desc.shared = shared;
            EXPECT_EQ(segment_of(desc, "flat"), (shared ? 256u : 64u) << 10);
        }
}

TEST(Table, AnAlgorithmThatCannotServeACallSaysWhy)
{
    const auto why = [](const char *algorithm, int ranks, rf_order order, rf_dtype dtype) {
        rf_coll_desc desc = describe(RF_COLL_ALL_REDUCE, ranks, 4000, models[0], order);
        desc.dtype = dtype;
        const rf_algorithm *row;
        EXPECT_EQ(rf_coll_find(&desc, algorithm, &row), RF_EINVAL);
        return std::string(rf_last_error()->message);
    };
    EXPECT_EQ(
        why("rabenseifner", 3, RF_ORDER_ANY, RF_F32),
        "all_reduce: algorithm \"rabenseifner\" cannot serve 1000 f32 in any order on 3 ranks: the "
        "number of ranks is no power of two");
    EXPECT_NE(why("rabenseifner", 4, RF_ORDER_TREE, RF_F32).find("does not add in tree order"),
              std::string::npos);
    EXPECT_NE(why("ring", 4, RF_ORDER_ANY, RF_F16).find("would round 16-bit types"),
              std::string::npos);
    EXPECT_NE(why("ring", 1, RF_ORDER_ANY, RF_F32).find("two ranks"), std::string::npos);
    EXPECT_EQ(why("rinse", 4, RF_ORDER_ANY, RF_F32),
              "all_reduce: there is no algorithm \"rinse\" for it");
}

TEST(Model, NothingThatServesIsPredictedToBeQuicker)
{
    std::set<std::string> taken;
    for (const rf_coll_model &model : models)
        for (int ranks : {2, 3, 4, 7, 8, 16, 33, 64, 1024})
            for (size_t bytes = 4; bytes <= 256u << 20; bytes *= 4)
                for (size_t i = 0; i < OPS; i++)
                    for (rf_order order : {RF_ORDER_ANY, RF_ORDER_RING, RF_ORDER_TREE}) {
                        if (i == 4 && bytes > 1u << 20)
                            continue;
                        rf_coll_desc desc = describe(chosen_ops[i], ranks, bytes, model, order);
                        double seconds = -1;
                        std::string chosen = choice(desc, &seconds);
                        EXPECT_GT(seconds, 0);
                        EXPECT_TRUE(std::isfinite(seconds)) << chosen << " " << bytes;
                        EXPECT_EQ(seconds, rf_coll_predict(&desc, chosen.c_str()));
                        taken.insert(rf_coll_op_name(chosen_ops[i]) + (" " + chosen));
                        bool folds = i < 2 || i == 6;
                        EXPECT_FALSE(order == RF_ORDER_RING && folds &&
                                     (chosen == "recursive_doubling" || chosen == "rabenseifner" ||
                                      chosen == "halving"));
                        EXPECT_FALSE(
                            order == RF_ORDER_TREE && folds &&
                            (chosen == "ring" || chosen == "rabenseifner" || chosen == "halving"));
                        bool all = order == RF_ORDER_ANY && (ranks & (ranks - 1)) == 0;
                        if (all) {
                            for (const char *other : names[i])
                                EXPECT_LE(seconds, rf_coll_predict(&desc, other)) << other;
                        }
                    }
    // Each is the best choice somewhere.
    for (size_t i = 0; i < OPS; i++)
        for (const char *name : names[i])
            EXPECT_TRUE(taken.count(rf_coll_op_name(chosen_ops[i]) + (std::string(" ") + name)))
                << rf_coll_op_name(chosen_ops[i]) << " " << name;
}

TEST(Model, WhatIsChosenIsWhatIsBuilt)
{
    for (const rf_coll_model &model : models)
        for (int ranks : {2, 3, 4, 8})
            for (size_t bytes : {4u, 65536u, 8u << 20})
                for (rf_coll_op op : chosen_ops) {
                    rf_coll_desc desc = describe(op, ranks, bytes, model);
                    rf_sched *sched = nullptr;
                    ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
                    EXPECT_EQ(choice(desc), rf_sched_algorithm(sched));
                    rf_sched_destroy(sched);
                }
}

TEST(Model, LongSumsGoAroundARingAndShortOnesDoNot)
{
    const rf_coll_model &ethernet = models[1], &choked = models[4];
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 4, 64 << 20, ethernet)), "ring");
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 4, 4, ethernet)), "flat");
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 64, 4, ethernet)), "recursive_doubling");
    // A slow fan does not slow messages to one neighbour.
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 4, 1 << 20, choked, RF_ORDER_RING)), "ring");
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 8, 16 << 10, ethernet, RF_ORDER_RING)), "direct");
}

// Two hosts of four ranks: fast memory within, Ethernet between.
TEST(Model, HostsAreTakenWhereTheNetworkBetweenThemIsTheSlowerPart)
{
    const int hosts[] = {0, 0, 0, 0, 1, 1, 1, 1};
    rf_coll_model model = models[1];
    model.fan_byte_s = 4 * model.byte_s; // four ranks share one link
    model.intra_host = {1e-6, 1e-10};
    model.inter_host = {6e-5, 4 * model.byte_s};
    for (rf_coll_op op : {RF_COLL_ALL_REDUCE, RF_COLL_REDUCE_SCATTER, RF_COLL_ALL_GATHER}) {
        rf_coll_desc desc = describe(op, 8, 16 << 20, model);
        double seconds = -1;
        desc.hosts = hosts;
        EXPECT_EQ(choice(desc, &seconds), "hierarchical") << rf_coll_op_name(op);
        // Half of the whole travels in each direction, once for every phase.
        double whole = (op == RF_COLL_ALL_REDUCE ? 2 : 8) * 16.0 * (1 << 20);
        EXPECT_GT(seconds, whole / 2 * model.byte_s);
        EXPECT_LT(seconds, whole / 2 * model.byte_s * 1.3);
        struct rf_sched *sched = nullptr;
        desc.window_bytes = RF_WINDOW_BYTES;
        ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
        EXPECT_STREQ(rf_sched_algorithm(sched), "hierarchical");
        EXPECT_LE(rf_sched_temp_bytes(sched), 8 * RF_WINDOW_BYTES);
        rf_sched_destroy(sched);
        // Not if the order is promised, nothing was measured, or nothing is gained.
        for (rf_order order : {RF_ORDER_RING, RF_ORDER_TREE}) {
            desc.order = order;
            if (rf_coll_reduces(op)) {
                EXPECT_NE(choice(desc), "hierarchical");
            }
        }
        desc.order = RF_ORDER_ANY;
        rf_coll_model slow = model;
        slow.intra_host.byte_s = 1e-6;
        desc.model = &slow;
        EXPECT_NE(choice(desc), "hierarchical");
        desc.model = &models[1];
        EXPECT_NE(choice(desc), "hierarchical");
        desc.model = nullptr;
        EXPECT_NE(choice(desc), "hierarchical");
    }
}

TEST(Model, WhereThereIsNoChoiceNothingIsPredicted)
{
    for (rf_coll_op op : {RF_COLL_BARRIER, RF_COLL_ALL_TO_ALL}) {
        double seconds = 0;
        choice(describe(op, 4, 1024, models[0]), &seconds);
        EXPECT_LT(seconds, 0);
    }
    double seconds = 0;
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 1, 1024, models[0]), &seconds), "local");
    EXPECT_EQ(choice(describe(RF_COLL_ALL_REDUCE, 4, 0, models[0]), &seconds), "dissemination");
}

TEST(Model, AChainIsCutWhereItsPredictionIsLeast)
{
    for (const rf_coll_model &model : models)
        for (int ranks : {2, 3, 4, 16})
            for (size_t bytes = 1 << 20; bytes <= 1u << 30; bytes *= 4) {
                rf_coll_desc desc = describe(RF_COLL_BROADCAST, ranks, bytes, model);
                size_t segment = segment_of(desc, "chain");
                auto time = [&](double s) {
                    return (ranks - 2) * s * model.byte_s + (double)bytes / s * model.fan_message_s;
                };
                EXPECT_GE(segment, 64u << 10);
                EXPECT_LE(segment, 1u << 20);
                for (double other = 64 << 10; other <= 1 << 20 && ranks > 2; other *= 2)
                    EXPECT_LE(time((double)segment), time(other) * 1.07);
            }
}

} // namespace
