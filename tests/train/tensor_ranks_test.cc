// SPDX-License-Identifier: MIT
//
// The harness of blocks that tensor ranks share (tensor_ranks.h): its cuts, and the mistakes it
// finds.
#include "tensor_ranks.h"

namespace
{

// "0+2 8+1": first and count of each range.
std::string ranges(const rf_split &split, int64_t extent, int ranks, int rank)
{
    std::string text;
    for (TensorRange r : tensor_ranges(split, extent, ranks, rank))
        text += (text.empty() ? "" : " ") + std::to_string(r.first) + "+" + std::to_string(r.count);
    return text;
}

} // namespace

TEST(TensorRanks, CutEverySegmentOnItsOwnInWholeUnitsAndCopyThoseThatAreFewer)
{
    const rf_split plain = {RF_SPLIT_ROWS, 0, 0, {}}, fused = {RF_SPLIT_ROWS, 3, 0, {}};
    const rf_split heads = {RF_SPLIT_ROWS, 3, 4, {}};
    const rf_split grouped = {RF_SPLIT_ROWS, 3, 4, {32, 8, 8}};
    EXPECT_EQ(ranges(plain, 12, 1, 0), "0+12");
    EXPECT_EQ(ranges(plain, 12, 3, 1), "4+4");
    EXPECT_EQ(ranges(plain, 5, 2, 0), "0+2");
    EXPECT_EQ(ranges(plain, 5, 2, 1), "2+3");
    EXPECT_EQ(ranges(fused, 36, 2, 1), "6+6 18+6 30+6");
    EXPECT_EQ(ranges(heads, 36, 2, 0), "0+4 12+4 24+4");
    EXPECT_EQ(ranges(heads, 36, 2, 1), "4+8 16+8 28+8");
    EXPECT_EQ(ranges(grouped, 48, 2, 1), "16+16 36+4 44+4");
    EXPECT_EQ(ranges(grouped, 48, 4, 1), "8+8 32+4 40+4"); // ranks 0 and 1 have the first key head
    EXPECT_EQ(ranges(grouped, 48, 4, 2), "16+8 36+4 44+4");
}
