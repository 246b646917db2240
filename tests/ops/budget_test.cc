/* SPDX-License-Identifier: MIT
 *
 * The register budget of a subgroup, for devices like real ones.
 */
#include <gtest/gtest.h>

extern "C" {
#include "ops/budget.h"
}

namespace
{

rf_device_info device(rf_device_kind kind, uint32_t smallest, uint32_t size)
{
    rf_device_info info = {};
    info.kind = kind;
    info.min_subgroup_size = smallest;
    info.subgroup_size = size;
    return info;
}

TEST(RegisterBudget, IsThatOfTheNarrowestSubgroupWhereRegistersAreNarrow)
{
    const rf_device_info eight = device(RF_DEVICE_DISCRETE, 8, 32);
    const rf_device_info sixteen = device(RF_DEVICE_INTEGRATED, 16, 32);
    EXPECT_EQ(rf_register_budget(&eight), 4096u);
    EXPECT_EQ(rf_register_lanes(&eight), 8u);
    EXPECT_EQ(rf_register_budget(&sixteen), 8192u);
    EXPECT_EQ(rf_register_lanes(&sixteen), 16u);
}

TEST(RegisterBudget, GrowsWithTheSubgroupElsewhere)
{
    const rf_device_info wide = device(RF_DEVICE_DISCRETE, 32, 32);
    const rf_device_info either = device(RF_DEVICE_DISCRETE, 32, 64);
    EXPECT_EQ(rf_register_budget(&wide), 32768u);
    EXPECT_EQ(rf_register_budget(&either), 65536u);
    EXPECT_EQ(rf_register_lanes(&either), 64u);
}

TEST(RegisterBudget, IsUnlimitedOnACpu)
{
    const rf_device_info cpu = device(RF_DEVICE_CPU, 8, 8);
    EXPECT_EQ(rf_register_budget(&cpu), RF_REGISTERS_UNLIMITED);
    EXPECT_EQ(rf_register_lanes(&cpu), 8u);
}

// A subgroup of a product on matrix units: m x n sums, fragments of 16 in k, and 8 or 16 columns of
// b at a time. Kernels that compilers spilled do not fit, the others do.
uint32_t product_bytes(uint32_t lanes, uint32_t m, uint32_t n, uint32_t fragment_n)
{
    const rf_register_need need = {lanes, m * n, (m + fragment_n) * 16, 0};
    return rf_register_bytes(&need);
}

TEST(RegisterBudget, RefusesTilesThatSpillOnNarrowSubgroups)
{
    const rf_device_info eight = device(RF_DEVICE_DISCRETE, 8, 32);
    const rf_device_info sixteen = device(RF_DEVICE_INTEGRATED, 16, 32);
    EXPECT_GT(product_bytes(8, 16, 32, 8), rf_register_budget(&eight));
    EXPECT_LE(product_bytes(8, 16, 16, 8), rf_register_budget(&eight));
    EXPECT_GT(product_bytes(16, 32, 32, 16), rf_register_budget(&sixteen));
    EXPECT_LE(product_bytes(16, 16, 32, 16), rf_register_budget(&sixteen));
}

} // namespace
