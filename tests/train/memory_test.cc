// SPDX-License-Identifier: MIT
//
// Arenas: pieces of the requested size, disjoint; requests that do not fit are named. Also failed
// allocations of host memory at every call while a plan is made.
#include <gtest/gtest.h>

#include <cstring>

#include "stub_blocks.h"
#include "world.h"

extern "C" {
#include "base/base.h"
#include "device/arena.h"
}

TEST(Arena, PiecesAreAlignedApartAndCountedToTheByte)
{
    const uint64_t bytes[] = {512, 0, 256, 1024};
    rf_device *device = rank_device(0);
    rf_memory_stats before, after;
    rf_arena *arena = nullptr;
    rf_device_memory(device, &before);
    ASSERT_RF(
        rf_arena_create(device, "test", RF_MEMORY_DEVICE, RF_CATEGORY_SCRATCH, bytes, 4, &arena));
    rf_device_memory(device, &after);
    EXPECT_EQ(after.now[RF_CATEGORY_SCRATCH] - before.now[RF_CATEGORY_SCRATCH], 1792u);
    EXPECT_EQ(after.allocations - before.allocations, 1u);
    EXPECT_EQ(rf_arena_bytes(arena), 1792u);
    EXPECT_EQ(rf_arena_piece(arena, 1).buffer, nullptr);
    uint64_t end = 0;
    for (int i : {0, 2, 3}) {
        rf_tensor piece = rf_arena_piece(arena, i);
        EXPECT_EQ(rf_tensor_address(piece) % 256, 0u);
        EXPECT_EQ(piece.offset, end);
        end += bytes[i];
    }
    rf_arena_destroy(arena);
    rf_device_memory(device, &after);
    EXPECT_EQ(after.now[RF_CATEGORY_SCRATCH], before.now[RF_CATEGORY_SCRATCH]);
}

TEST(Arena, APieceLargerThanTheDeviceAllocatesAtOnceIsRefusedByName)
{
    rf_device *device = rank_device(0);
    const uint64_t limit = rf_device_get_info(device)->max_allocation_bytes;
    const uint64_t bytes[] = {256, (limit / 256 + 1) * 256};
    rf_arena *arena = nullptr;
    EXPECT_EQ(rf_arena_create(device, "activations", RF_MEMORY_DEVICE, RF_CATEGORY_ACTIVATIONS,
                              bytes, 2, &arena),
              RF_ENOMEM);
    EXPECT_NE(strstr(rf_last_error()->message, "memory for activations: one piece needs"), nullptr)
        << rf_last_error()->message;
    EXPECT_EQ(arena, nullptr);
}

TEST(Suballocate, GivesNoMoreThanSizesAskedFor)
{
    rf_tensor region = {}, first, second;
    uint64_t at = 0;
    ASSERT_RF(rf_tensor_create(rank_device(0), rf_shape1(512), RF_U8, &region));
    ASSERT_RF(rf_suballocate(region, &at, rf_shape2(3, 5), RF_F32, &first));
    EXPECT_EQ(at, rf_suballocate_bytes(rf_shape2(3, 5), RF_F32));
    ASSERT_RF(rf_suballocate(region, &at, rf_shape1(64), RF_F32, &second));
    EXPECT_EQ(second.offset, 256u);
    EXPECT_EQ(rf_suballocate(region, &at, rf_shape1(1), RF_F32, &second), RF_EINVAL);
    rf_buffer_destroy(region.buffer);
}

TEST(Plan, OutOfHostMemoryAtAnyCallIsAnErrorAndLeavesNothing)
{
    StubBlocks blocks;
    blocks.add("a", {100, 10}).add("b", {200, 100}).tie(1, "a.0");
    rf_policy policy = {};
    policy.batch = policy.micro_batches = 4;
    policy.seq = 8;
    policy.order = RF_ORDER_TREE;
    for (int stage : {0, 1, 2, 3}) {
        const rf_mesh mesh = {stage ? 2 : 1, 1, 1};
        int failures = 0;
        policy.zero = stage;
        policy.recompute = stage % 2;
        for (uint64_t nth = 1; nth < 300; nth++) {
            rf_plan *plan = nullptr;
            rf_alloc_fail_at(nth);
            int rc = rf_plan_build({blocks.blocks(), blocks.count()}, &mesh, &policy, 0, &plan);
            rf_alloc_fail_at(0);
            if (rc == 0) {
                rf_plan_destroy(plan);
                break;
            }
            EXPECT_EQ(rc, RF_ENOMEM) << "call " << nth;
            EXPECT_EQ(plan, nullptr);
            failures++;
        }
        EXPECT_GT(failures, 5);
        EXPECT_LT(failures, 290);
    }
}
