// SPDX-License-Identifier: MIT
//
// Formulas of sent bytes, compared with the list of every algorithm, for every rank; and
// calls that have none, whose list is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "simulator.h"

extern "C" {
#include "coll/table.h"
}

namespace
{

struct Row {
    enum rf_coll_op op;
    const char *algorithm;
};

// All rows of the table, so that a new algorithm is tested without a change here.
std::vector<Row> all_rows()
{
    std::vector<Row> rows;
    for (int op = RF_COLL_NONE + 1; op < RF_COLL_FOREST_ALL_REDUCE; op++) {
        for (int number = 1; strcmp(rf_coll_numbered((uint8_t)number), "?") != 0; number++) {
            const char *name = rf_coll_numbered((uint8_t)number);
            if (rf_coll_number((enum rf_coll_op)op, name) != number)
                continue; /* of another operation */
            rows.push_back({(enum rf_coll_op)op, name});
        }
    }
    return rows;
}

uint64_t listed(const rf_coll_desc &desc, const char *algorithm)
{
    struct rf_sched *sched = nullptr;
    EXPECT_EQ(
        algorithm ? rf_sched_build_as(&desc, algorithm, &sched) : rf_sched_build(&desc, &sched), 0)
        << rf_last_error()->message;
    uint64_t sent = sched ? rf_sched_sent_bytes(sched) : UINT64_MAX;
    rf_sched_destroy(sched);
    return sent;
}

class Check
{
  public:
    // Tests every rank and these roots; false after the first difference.
    bool holds(rf_coll_desc desc, const char *algorithm, const std::vector<int> &roots)
    {
        const std::vector<int> used = rf_coll_has_root(desc.op) ? roots : std::vector<int>{0};
        for (int root : used)
            for (int rank = 0; rank < desc.ranks; rank++) {
                const struct rf_algorithm *row = nullptr;
                desc.root = root;
                desc.rank = rank;
                if (desc.op == RF_COLL_RECV && rank == root)
                    continue;
                if (rf_coll_find(&desc, algorithm, &row) < 0 || !row->sent)
                    return true; /* the same on every rank */
                compared++;
                if (row->sent(&desc) == listed(desc, algorithm))
                    continue;
                ADD_FAILURE() << rf_coll_op_name(desc.op) << " " << algorithm << ": "
                              << row->sent(&desc) << " bytes by formula, "
                              << listed(desc, algorithm) << " in the list, of rank " << rank
                              << " of " << desc.ranks << ", root " << root << ", " << desc.count
                              << " " << rf_dtype_name(desc.dtype) << ", windows of "
                              << desc.window_bytes;
                return false;
            }
        return true;
    }
    int compared = 0;
};

rf_coll_desc describe(const Row &row, int ranks, size_t count, enum rf_dtype dtype)
{
    rf_coll_desc desc = {};
    desc.op = row.op;
    desc.ranks = ranks;
    desc.count = count;
    desc.dtype = dtype;
    return desc;
}

const enum rf_dtype types[] = {RF_F32, RF_BF16, RF_U8, RF_F64};

TEST(SentFormula, IsWhatTheListSendsForEveryAlgorithmSizeTypeRootAndRankOfFewRanks)
{
    Check check;
    for (const Row &row : all_rows())
        for (int ranks = 1; ranks <= 9; ranks++) {
            std::vector<int> roots;
            for (int root = 0; root < ranks; root++)
                roots.push_back(root);
            for (size_t count : {size_t(0), size_t(1), size_t(ranks) - 1, size_t(ranks), size_t(7),
                                 size_t(1001), size_t(4096)})
                for (enum rf_dtype dtype : types)
                    ASSERT_TRUE(
                        check.holds(describe(row, ranks, count, dtype), row.algorithm, roots));
        }
    EXPECT_GT(check.compared, 50000);
}

// Types alternate; every root is tested up to 32 ranks.
TEST(SentFormula, IsWhatTheListSendsForEveryAlgorithmOfManyRanks)
{
    Check check;
    std::vector<int> many = {48, 64, 100};
    for (int ranks = 10; ranks <= 32; ranks++)
        many.push_back(ranks);
    for (const Row &row : all_rows())
        for (int ranks : many) {
            std::vector<int> roots = {0, ranks / 3, ranks - 1};
            for (int root = 1; ranks <= 32 && root < ranks - 1; root++)
                if (root != ranks / 3)
                    roots.push_back(root);
            int turn = ranks;
            for (size_t count :
                 {size_t(0), size_t(1), size_t(ranks) - 1, size_t(5003), size_t(1000003)})
                ASSERT_TRUE(check.holds(describe(row, ranks, count, types[turn++ % 4]),
                                        row.algorithm, roots));
        }
    EXPECT_GT(check.compared, 100000);
}

// With shared memory another algorithm may be chosen; the count of bytes is the same.
TEST(SentFormula, OfAChosenAlgorithmDoesNotDependOnSharedMemory)
{
    int others = 0;
    for (int op = RF_COLL_NONE + 1; op <= RF_COLL_ALL_TO_ALL; op++)
        for (int ranks : {2, 3, 4, 8, 16, 33})
            for (size_t bytes = 4; bytes <= 16 << 20; bytes *= 8)
                for (int rank : {0, 1, ranks - 1}) {
                    rf_coll_desc desc =
                        describe({(enum rf_coll_op)op, nullptr}, ranks, bytes / 4, RF_F32);
                    desc.rank = rank;
                    desc.window_bytes = RF_WINDOW_BYTES;
                    desc.segment_bytes = 512 << 10;
                    uint64_t apart = 0;
                    ASSERT_EQ(rf_coll_count_sent(&desc, nullptr, &apart), 0);
                    const struct rf_algorithm *row = nullptr, *taken = nullptr;
                    ASSERT_EQ(rf_coll_find(&desc, nullptr, &row), 0);
                    desc.shared = true;
                    ASSERT_EQ(rf_coll_find(&desc, nullptr, &taken), 0);
                    others += row != taken;
                    struct rf_sched *sched = nullptr;
                    ASSERT_EQ(rf_sched_build(&desc, &sched), 0);
                    const struct rf_sched *used = sched->fallback ? sched->fallback : sched;
                    EXPECT_EQ(used->counted_bytes, apart)
                        << rf_coll_op_name(desc.op) << " of " << bytes << " bytes: " << taken->name
                        << " in place of " << row->name << ", rank " << rank << " of " << ranks;
                    rf_sched_destroy(sched);
                }
    EXPECT_GT(others, 100);
}

TEST(SentFormula, DoesNotDependOnWindowsAndSegments)
{
    Check check;
    for (const Row &row : all_rows())
        for (int ranks : {2, 3, 5, 8}) {
            rf_coll_desc desc = describe(row, ranks, 1003, RF_F32);
            desc.window_bytes = 64 * (size_t)ranks;
            desc.segment_bytes = 24;
            ASSERT_TRUE(check.holds(desc, row.algorithm, {0, ranks - 1}));
        }
    EXPECT_GT(check.compared, 100);
}

TEST(SentFormula, OfAForestIsWhatItsListSendsInAnyNumberOfWindows)
{
    std::mt19937 random(11);
    for (int ranks = 1; ranks <= 20; ranks++)
        for (int leaves : {1, 5, ranks, 2 * ranks + 1, 64}) {
            std::vector<int> first = {0};
            for (int r = 1; r < ranks; r++)
                first.push_back((int)(random() % (unsigned)(leaves + 1)));
            first.push_back(leaves);
            std::sort(first.begin(), first.end());
            struct rf_forest forest = {leaves, ranks, first.data()};
            for (size_t count : {size_t(1), size_t(ranks), size_t(1003)})
                for (size_t window : {size_t(0), size_t(512), RF_WINDOW_BYTES})
                    for (int rank = 0; rank < ranks; rank++) {
                        rf_coll_desc desc =
                            describe({RF_COLL_FOREST_ALL_REDUCE, "forest"}, ranks, count, RF_F32);
                        desc.rank = rank;
                        desc.order = RF_ORDER_TREE;
                        desc.forest = &forest;
                        desc.stride = count;
                        desc.window_bytes = window;
                        const struct rf_algorithm *row = nullptr;
                        ASSERT_EQ(rf_coll_find(&desc, nullptr, &row), 0);
                        ASSERT_EQ(row->sent(&desc), listed(desc, nullptr))
                            << "rank " << rank << " of " << ranks << ", " << leaves << " leaves, "
                            << count << " elements, windows of " << window;
                    }
        }
}

TEST(SentFormula, OfALongForestIsThePublicPredictionAndThatOfAKnownForest)
{
    // Several windows of the library's default length, whose chunks are ragged.
    int first[] = {0, 3, 4, 11, 12};
    struct rf_forest forest = {12, 4, first};
    for (size_t count : {size_t(1) << 20, size_t(3000001)})
        for (int rank = 0; rank < 4; rank++) {
            rf_coll_desc desc = describe({RF_COLL_FOREST_ALL_REDUCE, "forest"}, 4, count, RF_F32);
            desc.rank = rank;
            desc.order = RF_ORDER_TREE;
            desc.forest = &forest;
            desc.stride = count;
            desc.window_bytes = RF_WINDOW_BYTES;
            uint64_t sent = 0, known = 0;
            ASSERT_EQ(rf_forest_sent_bytes(&forest, rank, count, &sent), 0);
            EXPECT_EQ(sent, listed(desc, nullptr));
            ASSERT_EQ(
                rf_forest_count_sent(&forest, rf_forest_most_parts(&forest), rank, count, &known),
                0);
            EXPECT_EQ(known, sent);
        }
}

TEST(SentFormula, HoldsForUnequalPiecesOrIsNotUsedForThem)
{
    const int hosts[] = {0, 0, 1, 1, 1};
    const size_t counts[] = {3, 0, 50, 7, 1};
    int listed_rows = 0;
    for (const Row &row : all_rows())
        for (int rank = 0; rank < 5; rank++) {
            const struct rf_algorithm *found = nullptr;
            uint64_t sent = 0;
            rf_coll_desc desc = describe(row, 5, 61, RF_F32);
            desc.rank = rank;
            desc.hosts = hosts;
            desc.shared = true;
            if (rf_coll_find(&desc, row.algorithm, &found) == 0) {
                listed_rows += !found->sent;
                ASSERT_EQ(rf_coll_count_sent(&desc, row.algorithm, &sent), 0);
                EXPECT_EQ(sent, listed(desc, row.algorithm))
                    << rf_coll_op_name(row.op) << " " << row.algorithm;
            }
            if (row.op != RF_COLL_ALL_GATHER && row.op != RF_COLL_GATHER &&
                row.op != RF_COLL_SCATTER && row.op != RF_COLL_REDUCE_SCATTER)
                continue;
            desc.counts = counts;
            if (rf_coll_find(&desc, row.algorithm, &found) < 0)
                continue;
            ASSERT_EQ(rf_coll_count_sent(&desc, row.algorithm, &sent), 0);
            EXPECT_EQ(sent, listed(desc, row.algorithm))
                << rf_coll_op_name(row.op) << " " << row.algorithm << " with counts";
        }
    EXPECT_GE(listed_rows, 7 * 5) << "fused, shared twice, hosts four times";
}

TEST(SentFormula, RefusesAForestThatIsNoneUnlessItIsKnown)
{
    int back[] = {0, 9, 8};
    struct rf_forest forest = {8, 2, back};
    uint64_t sent = 0;
    EXPECT_EQ(rf_forest_sent_bytes(&forest, 0, 10, &sent), RF_EINVAL);
    EXPECT_EQ(rf_forest_count_sent(&forest, 1, 2, 10, &sent), RF_EINVAL) << "no such rank";
}

} // namespace
