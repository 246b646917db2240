// SPDX-License-Identifier: MIT
//
// Rounds by the figures of a record, compared with the longest chain of messages through the lists
// of all ranks.
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

extern "C" {
#include "coll/table.h"
}

namespace
{

void expect_rounds(const rf_coll_desc &desc, const char *algorithm, int &compared)
{
    uint64_t rounds = 0, listed = 0;
    if (rf_coll_count_rounds(&desc, algorithm, &rounds) < 0)
        return;
    ASSERT_EQ(rf_coll_count_listed_rounds(&desc, algorithm, &listed), 0);
    compared++;
    EXPECT_EQ(rounds, listed) << rf_coll_op_name(desc.op) << " " << algorithm << " on "
                              << desc.ranks << " ranks";
}

TEST(Rounds, AreTheLongestChainOfMessagesOfEveryAlgorithm)
{
    int compared = 0;
    for (int op = RF_COLL_NONE + 1; op < RF_COLL_SEND; op++)
        for (int number = 1; strcmp(rf_coll_numbered((uint8_t)number), "?") != 0; number++) {
            const char *name = rf_coll_numbered((uint8_t)number);
            if (rf_coll_number((enum rf_coll_op)op, name) != number)
                continue; // of another operation
            for (int ranks = 1; ranks <= 9; ranks++) {
                rf_coll_desc desc = {};
                desc.op = (enum rf_coll_op)op;
                desc.ranks = ranks;
                desc.count = op == RF_COLL_BARRIER ? 0 : 36;
                desc.dtype = RF_F32;
                expect_rounds(desc, name, compared);
            }
        }
    EXPECT_GT(compared, 150);
}

TEST(Rounds, OfAForestAreTwoAndOfItsScatterAndOfAPrefixOne)
{
    for (int ranks = 2; ranks <= 5; ranks++) {
        std::vector<int> first;
        for (int rank = 0; rank <= ranks; rank++)
            first.push_back(2 * rank);
        rf_forest forest = {};
        forest.ranks = ranks;
        forest.leaves = 2 * ranks;
        forest.first = first.data();
        const std::vector<size_t> counts((size_t)ranks, 36);
        rf_coll_desc desc = {};
        desc.op = RF_COLL_FOREST_ALL_REDUCE;
        desc.ranks = ranks;
        desc.dtype = RF_F32;
        desc.order = RF_ORDER_TREE;
        desc.forest = &forest;
        desc.count = desc.stride = 36 * (size_t)ranks;
        int compared = 0;
        expect_rounds(desc, "forest", compared);
        desc.op = RF_COLL_FOREST_REDUCE_SCATTER;
        desc.counts = counts.data();
        expect_rounds(desc, "forest", compared);
        desc.op = RF_COLL_PREFIX_REDUCE_SCATTER;
        desc.leaves = 2 * ranks;
        for (desc.round = 0; desc.round < 2; desc.round++)
            expect_rounds(desc, "prefix", compared);
        EXPECT_EQ(compared, 4);
    }
}

TEST(Rounds, TextIsTheSumOfTheFigures)
{
    const auto text = [](rf_rounds rounds) {
        char text[32];
        rf_rounds_text(&rounds, text, sizeof(text));
        return std::string(text);
    };
    EXPECT_EQ(text({0, 0, 0, 0}), "");
    EXPECT_EQ(text({1, 0, 0, 0}), "1");
    EXPECT_EQ(text({0, 1, 0, 0}), "log2 N");
    EXPECT_EQ(text({0, 0, 2, 0}), "2 log2 N");
    EXPECT_EQ(text({0, 0, 0, 1}), "N-1");
    EXPECT_EQ(text({4, 0, 0, 2}), "4 + 2 (N-1)");
}

} // namespace
