// SPDX-License-Identifier: MIT
//
// How parameters are cut over tensor ranks: every allowed split of small shapes against the
// definition of struct rf_split, element by element.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

extern "C" {
#include "parallel/plan/split.h"
}

namespace
{

rf_split split_of(rf_split_kind kind, const std::vector<int64_t> &sizes, int unit)
{
    rf_split split = {};
    split.kind = kind;
    split.segments = (int)sizes.size();
    split.unit = unit;
    std::copy(sizes.begin(), sizes.end(), split.sizes);
    return split;
}

// Rows or columns of the whole.
int64_t length_of(const rf_param_cut &cut)
{
    return cut.split.kind == RF_SPLIT_COLUMNS ? cut.shape.dim[cut.shape.ndim - 1]
                                              : cut.shape.dim[0];
}

// For each row or column of this rank, in its order: its place in the whole, and whether a lower
// rank has it, too.
struct Line {
    int64_t at;
    bool first_copy;
};
void add_line(const rf_param_cut &cut, bool whole, int64_t first, int64_t n,
              std::vector<Line> &lines)
{
    const int64_t unit = cut.split.unit ? cut.split.unit : 1;
    for (int64_t u = 0; u < n; u++) {
        const bool mine = whole || (n < cut.ranks ? cut.rank * n / cut.ranks == u
                                                  : cut.rank * n / cut.ranks <= u &&
                                                        u < (cut.rank + 1) * n / cut.ranks);
        const bool before =
            whole ? cut.rank > 0
                  : n < cut.ranks && cut.rank > 0 && (cut.rank - 1) * n / cut.ranks == u;
        for (int64_t i = 0; mine && i < unit; i++)
            lines.push_back({first + u * unit + i, !before});
    }
}

std::vector<Line> lines_of(const rf_param_cut &cut)
{
    std::vector<Line> lines;
    const int count = cut.split.segments ? cut.split.segments : 1;
    const int64_t unit = cut.split.unit ? cut.split.unit : 1;
    int64_t first = 0;
    for (int k = 0; k < count; k++) {
        const int64_t size = cut.split.sizes[0] ? cut.split.sizes[k] : length_of(cut) / count;
        const bool whole = cut.split.whole >> k & 1;
        const int64_t line = whole || !cut.split.lines ? size : size / cut.split.lines;
        for (int64_t begin = 0; begin < size; begin += line)
            add_line(cut, whole, first + begin, line / unit, lines);
        first += size;
    }
    return lines;
}

// The elements of a rank's part, in its order.
std::vector<Line> part_of(const rf_param_cut &cut)
{
    const int64_t all = rf_shape_count(cut.shape), length = length_of(cut);
    std::vector<Line> part;
    if (cut.split.kind == RF_SPLIT_NONE)
        for (int64_t i = 0; i < all; i++)
            part.push_back({i, cut.rank == 0});
    const std::vector<Line> lines = cut.split.kind ? lines_of(cut) : std::vector<Line>();
    for (int64_t row = 0; cut.split.kind == RF_SPLIT_COLUMNS && row < all / length; row++)
        for (const Line &l : lines)
            part.push_back({row * length + l.at, l.first_copy});
    for (size_t i = 0; cut.split.kind == RF_SPLIT_ROWS && i < lines.size(); i++)
        for (int64_t k = 0; k < all / length; k++)
            part.push_back({lines[i].at * (all / length) + k, lines[i].first_copy});
    return part;
}

// Calls fn for each allowed cut of some shapes over 1 to 8 ranks, as rank 0.
void for_all_cuts(const std::function<void(rf_param_cut)> &fn)
{
    const std::vector<rf_shape> shapes = {
        rf_shape1(1),     rf_shape1(24),       rf_shape1(35),
        rf_shape2(24, 5), rf_shape2(7, 24),    rf_shape2(16, 16),
        rf_shape2(3, 40), rf_shape3(8, 3, 12), rf_shape3(2, 2, 8)};
    const std::vector<std::vector<int64_t>> sizes = {
        {},         {24},    {0, 0},  {0, 0, 0},    {0, 0, 0, 0}, {16, 4, 4}, {8, 16},
        {12, 6, 6}, {1, 23}, {20, 4}, {4, 4, 8, 8}, {8, 4, 4},    {6, 2},     {16, 8, 8, 8}};
    for (const rf_shape &shape : shapes)
        for (int kind = RF_SPLIT_NONE; kind <= RF_SPLIT_COLUMNS; kind++)
            for (const std::vector<int64_t> &s : sizes)
                for (int unit : {0, 1, 2, 3, 4, 8})
                    for (int ranks = 1; ranks <= 8; ranks++) {
                        const rf_split split = split_of((rf_split_kind)kind, s, unit);
                        const rf_param_cut cut = {shape, split, ranks, 0};
                        if (rf_cut_check(&cut, "p") == 0)
                            fn(cut);
                    }
    // Quantised weights: matrices in a vector, and what every rank has.
    for (const std::vector<int64_t> &s : {std::vector<int64_t>{48}, {24, 6}, {16, 16, 16, 5, 5, 5}})
        for (int64_t lines : {0, 1, 2, 4})
            for (uint32_t whole : {0u, 2u, 1u, 56u})
                for (int ranks : {1, 2, 3, 4}) {
                    rf_split split = split_of(RF_SPLIT_ROWS, s, 0);
                    split.lines = lines;
                    split.whole = whole;
                    const rf_shape shape =
                        rf_shape1(std::accumulate(s.begin(), s.end(), INT64_C(0)));
                    const rf_param_cut cut = {shape, split, ranks, 0};
                    if (rf_cut_check(&cut, "p") == 0)
                        fn(cut);
                }
}

std::string text(const rf_param_cut &cut)
{
    std::string s = "shape";
    for (int d = 0; d < cut.shape.ndim; d++)
        s += " " + std::to_string(cut.shape.dim[d]);
    s += ", kind " + std::to_string(cut.split.kind) + ", sizes";
    for (int k = 0; k < cut.split.segments; k++)
        s += " " + std::to_string(cut.split.sizes[k]);
    s +=
        ", lines " + std::to_string(cut.split.lines) + ", whole " + std::to_string(cut.split.whole);
    return s + ", unit " + std::to_string(cut.split.unit) + ", rank " + std::to_string(cut.rank) +
           " of " + std::to_string(cut.ranks);
}

} // namespace

TEST(Split, RunsOfAllRanksAreTheElementsThatTheWordsSayAndCountEachOnce)
{
    int cuts = 0;
    for_all_cuts([&](rf_param_cut cut) {
        std::vector<int> counted((size_t)rf_shape_count(cut.shape), 0);
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
            const std::vector<Line> part = part_of(cut);
            ASSERT_EQ(rf_shape_count(rf_cut_shape(&cut)), (int64_t)part.size()) << text(cut);
            for (size_t at = 0; at < part.size(); at++) {
                const rf_cut_run run = rf_cut_run_at(&cut, at);
                ASSERT_GT(run.count, 0u) << text(cut);
                ASSERT_LE(run.count, part.size() - at) << text(cut);
                // Elements between the two are the first of a run, too.
                for (uint64_t i : {(uint64_t)0, run.count - 1}) {
                    ASSERT_EQ((int64_t)(run.first + i), part[at + i].at) << text(cut) << at;
                    ASSERT_EQ(run.first_copy, part[at + i].first_copy) << text(cut) << at;
                }
            }
            for (const Line &l : part)
                counted[(size_t)l.at] += l.first_copy;
        }
        for (int n : counted)
            ASSERT_EQ(n, 1) << text(cut);
        cuts++;
    });
    EXPECT_GT(cuts, 1000);
}

TEST(Split, RunsSayHowManyRanksHaveTheirElementsAndHowManyOfThemAreLower)
{
    for_all_cuts([](rf_param_cut cut) {
        std::vector<int> have((size_t)rf_shape_count(cut.shape), 0), lower = have;
        bool copies = false;
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++)
            for (const Line &l : part_of(cut))
                copies |= ++have[(size_t)l.at] > 1;
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
            const std::vector<Line> part = part_of(cut);
            for (size_t at = 0; at < part.size(); at++) {
                const rf_cut_run run = rf_cut_run_at(&cut, at);
                ASSERT_EQ(run.copies, have[(size_t)part[at].at]) << text(cut) << at;
                ASSERT_EQ(run.copy, lower[(size_t)part[at].at]++) << text(cut) << at;
            }
            ASSERT_EQ(rf_cut_has_copies(&cut), copies) << text(cut);
        }
    });
}

TEST(Split, ChunksCoverWhatIsCountedOnceAndDoNotCrossTheGrid)
{
    for_all_cuts([&](rf_param_cut cut) {
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
            const std::vector<Line> part = part_of(cut);
            for (uint64_t most : {(uint64_t)1, (uint64_t)7, (uint64_t)16, UINT64_MAX}) {
                std::vector<int> covered(part.size(), 0);
                std::vector<uint64_t> firsts;
                uint64_t at = 0, first = 0, count = 0, chunks = 0;
                for (; rf_cut_next_chunk(&cut, most, &at, &first, &count); chunks++) {
                    ASSERT_GT(count, 0u);
                    ASSERT_LE(first + count, part.size()) << text(cut);
                    ASSERT_EQ(first / most, (first + count - 1) / most) << text(cut);
                    ASSERT_TRUE(first % most == 0 || !part[first - 1].first_copy) << text(cut);
                    firsts.push_back(first);
                    for (uint64_t i = 0; i < count; i++)
                        covered[first + i]++;
                }
                for (size_t i = 0; i < part.size(); i++)
                    ASSERT_EQ(covered[i], part[i].first_copy) << text(cut);
                const uint64_t grid = part.size() / most + (part.size() % most > 0);
                ASSERT_LE(rf_cut_count_chunks(&cut, most, 0, UINT64_MAX), grid + RF_MAX_SEGMENTS);
                if (chunks == grid && !rf_cut_has_copies(&cut)) {
                    ASSERT_EQ(rf_cut_count_chunks(&cut, most, 0, UINT64_MAX), chunks) << text(cut);
                }
                for (uint64_t from = 0; from <= part.size(); from += 1 + part.size() / 5)
                    for (uint64_t to = from; to <= part.size() + 1; to += 1 + part.size() / 4)
                        ASSERT_GE(rf_cut_count_chunks(&cut, most, from, to),
                                  (uint64_t)std::count_if(
                                      firsts.begin(), firsts.end(),
                                      [&](uint64_t k) { return k >= from && k < to; }))
                            << text(cut) << from << " to " << to;
            }
        }
    });
}

// So a model on one tensor rank has the same chunks of the norm and spans of files as one without
// splits.
TEST(Split, OfOneRankIsOneRunWhateverItsSegments)
{
    for_all_cuts([&](rf_param_cut cut) {
        if (cut.ranks > 1)
            return;
        const rf_cut_run run = rf_cut_run_at(&cut, 0);
        EXPECT_EQ(run.first, 0u);
        EXPECT_EQ((int64_t)run.count, rf_shape_count(cut.shape)) << text(cut);
        EXPECT_TRUE(run.first_copy);
        EXPECT_TRUE(rf_shape_equal(rf_cut_shape(&cut), cut.shape));
    });
}

TEST(Split, WhatAllRanksTakeAndPutIsTheWhole)
{
    for_all_cuts([&](rf_param_cut cut) {
        std::vector<float> whole((size_t)rf_shape_count(cut.shape)), sum(whole.size(), 0);
        std::iota(whole.begin(), whole.end(), 1.0f);
        for (cut.rank = 0; cut.rank < cut.ranks; cut.rank++) {
            const std::vector<Line> part = part_of(cut);
            const uint64_t first = part.size() / 3, rest = part.size() - first;
            std::vector<float> taken(part.size());
            rf_cut_take(&cut, 0, first, whole.data(), taken.data());
            rf_cut_take(&cut, first, rest, whole.data(), taken.data() + first);
            for (size_t i = 0; i < part.size(); i++)
                ASSERT_EQ(taken[i], whole[(size_t)part[i].at]) << text(cut);
            std::vector<float> put(whole.size(), 0);
            rf_cut_put(&cut, 0, first, taken.data(), put.data());
            rf_cut_put(&cut, first, rest, taken.data() + first, put.data());
            for (size_t i = 0; i < whole.size(); i++)
                sum[i] += put[i];
        }
        ASSERT_EQ(sum, whole) << text(cut);
    });
}

TEST(Split, WhatCannotBeCutIsRefusedByASentenceThatSaysWhy)
{
    struct Case {
        rf_shape shape;
        rf_split split;
        int ranks;
        const char *words;
    };
    const rf_split_kind rows = RF_SPLIT_ROWS, columns = RF_SPLIT_COLUMNS;
    const rf_shape matrix = rf_shape2(24, 10);
    const std::vector<Case> cases = {
        {matrix, {(rf_split_kind)3, 0, 0, {}}, 2, "a kind of enum rf_split_kind"},
        {matrix, {rows, -1, 0, {}}, 2, "up to 6 segments"},
        {matrix, {rows, 7, 0, {}}, 2, "up to 6 segments"},
        {matrix, {rows, 0, -2, {}}, 2, "a unit that is not negative"},
        {rf_shape1(24), {columns, 0, 0, {}}, 2, "a vector has no columns to split"},
        {matrix, {rows, 1, 0, {24}, 2, 0}, 2, "need a vector"},
        {rf_shape1(24), {rows, 1, 2, {24}, 0, 1}, 2, "without a unit"},
        {rf_shape1(24), {rows, 1, 0, {24}, 8, 0}, 2, "do not divide the 24 words of segment 0"},
        {matrix, {rows, 2, 0, {0, 24}}, 2, "its split has 2 segments"},
        {matrix, {rows, 2, 0, {24}}, 2, "its split has 2 segments"},
        {matrix, {rows, 1, 0, {20, 4}}, 2, "its split has 1 segments"},
        {matrix, {rows, 2, 0, {28, -4}}, 2, "segment 0 of its split has 28 rows or columns"},
        {matrix, {rows, 2, 0, {20, -4}}, 2, "segment 1 of its split has -4 rows or columns"},
        {matrix, {rows, 2, 3, {20, 4}}, 2, "a positive multiple of its unit 3"},
        {matrix, {rows, 2, 0, {12, 8}}, 2, "have 20 rows or columns, it has 24"},
        {matrix, {columns, 3, 0, {}}, 3, "have 9 rows or columns, it has 10"},
        {matrix, {rows, 0, 4, {}}, 4, "4 tensor ranks do not divide the 6 units"},
        {matrix, {rows, 3, 0, {16, 4, 4}}, 3, "3 tensor ranks do not divide the 16 units"},
        {matrix, {rows, 3, 4, {16, 4, 4}}, 3, "do not divide the 4 units"},
        {matrix, {columns, 0, 0, {}}, 16, "16 tensor ranks do not divide the 10 units"},
        {matrix, {columns, 2, 5, {}}, 2, "2 tensor ranks do not divide the 1 units"},
    };
    for (const Case &c : cases) {
        const rf_param_cut cut = {c.shape, c.split, c.ranks, 0};
        EXPECT_EQ(rf_cut_check(&cut, "layer.weight"), RF_EINVAL) << c.words;
        const char *message = rf_last_error()->message;
        EXPECT_EQ(strncmp(message, "parameter layer.weight: ", 24), 0) << message;
        EXPECT_NE(strstr(message, c.words), nullptr) << message;
    }
    // One segment may be ragged; copies are of rows alone.
    for (rf_split split : {split_of(rows, {}, 0), split_of(columns, {}, 0)}) {
        const rf_param_cut cut = {rf_shape2(7, 7), split, 3, 0};
        EXPECT_EQ(rf_cut_check(&cut, "p"), 0);
    }
    const rf_param_cut copied = {matrix, split_of(rows, {16, 4, 4}, 4), 4, 0};
    EXPECT_EQ(rf_cut_check(&copied, "p"), 0);
}

TEST(Split, CutsAreTheSameWhereTheSameElementsAreWhose)
{
    const rf_shape shape = rf_shape2(24, 4);
    auto cut = [&](rf_split split) { return rf_param_cut{shape, split, 2, 0}; };
    const rf_param_cut equal = cut(split_of(RF_SPLIT_ROWS, {0, 0, 0}, 0)),
                       sized = cut(split_of(RF_SPLIT_ROWS, {8, 8, 8}, 1)),
                       other = cut(split_of(RF_SPLIT_ROWS, {16, 4, 4}, 0)),
                       columns = cut(split_of(RF_SPLIT_COLUMNS, {}, 0)), none = cut({}),
                       units = cut({RF_SPLIT_NONE, 0, 3, {}});
    EXPECT_TRUE(rf_cut_same(&equal, &sized));
    EXPECT_TRUE(rf_cut_same(&none, &units));
    EXPECT_FALSE(rf_cut_same(&equal, &other));
    EXPECT_FALSE(rf_cut_same(&equal, &columns));
    EXPECT_FALSE(rf_cut_same(&equal, &none));
}
