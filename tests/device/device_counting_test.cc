/* SPDX-License-Identifier: MIT
 *
 * Devices that run nothing and count: these tests need no driver.
 */
#include "device_fixture.h"

namespace
{

class Counting : public ::testing::Test
{
  protected:
    rf_device *device = nullptr;
    rf_stream *stream = nullptr;

    void SetUp() override
    {
        ASSERT_RF_OK(rf_device_open_counting(&device));
        ASSERT_RF_OK(rf_stream_create(device, "counting", &stream));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        rf_device_close(device);
    }
    rf_work work()
    {
        rf_work out;
        rf_device_work(device, &out);
        return out;
    }
    rf_kernel *kernel()
    {
        rf_kernel_desc desc = {};
        rf_kernel *out = nullptr;
        desc.name = "mix";
        desc.spirv = mix_spv;
        desc.spirv_bytes = sizeof(mix_spv);
        desc.push_bytes = 8;
        EXPECT_RF_OK(rf_kernel_create(device, &desc, &out));
        return out;
    }
};

TEST_F(Counting, BuffersOfAnySizeNeedNoMemory)
{
    const uint64_t bytes = UINT64_C(1) << 55;
    rf_buffer *a = nullptr, *b = nullptr;
    ASSERT_RF_OK(rf_buffer_create(device, bytes, RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS, &a));
    ASSERT_RF_OK(rf_buffer_create(device, bytes, RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS, &b));
    EXPECT_EQ(rf_buffer_address(a) % 256, 0u);
    EXPECT_GE(rf_buffer_address(b), rf_buffer_address(a) + bytes);
    EXPECT_EQ(rf_buffer_map(a), nullptr);
    const uint32_t word = 7;
    uint32_t read = 0;
    EXPECT_RF_OK(rf_buffer_write(a, bytes - 4, &word, 4));
    EXPECT_EQ(rf_buffer_read(a, bytes - 4, &read, 4), RF_ENOTSUP);
    EXPECT_NE(last_message().find("only counts"), std::string::npos) << last_message();
    EXPECT_EQ(rf_buffer_write(a, bytes, &word, 4), RF_EINVAL);
    rf_buffer_destroy(a);
    rf_buffer_destroy(b);
}

TEST_F(Counting, HostMemoryIsMappedAndKept)
{
    rf_buffer *buffer = nullptr;
    ASSERT_RF_OK(rf_buffer_create(device, 64, RF_MEMORY_HOST, RF_CATEGORY_ACTIVATIONS, &buffer));
    uint32_t word = 7, read = 0;
    ASSERT_NE(rf_buffer_map(buffer), nullptr);
    EXPECT_RF_OK(rf_buffer_write(buffer, 60, &word, 4));
    EXPECT_RF_OK(rf_buffer_read(buffer, 60, &read, 4));
    EXPECT_EQ(read, 7u);
    rf_buffer_destroy(buffer);
}

TEST_F(Counting, CopiesFillsAndLaunchesAreCountedByTheirRanges)
{
    rf_buffer *buffer = nullptr;
    ASSERT_RF_OK(rf_buffer_create(device, 4096, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &buffer));
    EXPECT_RF_OK(rf_stream_copy(stream, {buffer, 0}, {buffer, 1024}, 100));
    EXPECT_RF_OK(rf_stream_fill(stream, buffer, 0, 2000, 0));
    rf_kernel *mix = kernel();
    const uint64_t push = 0, at = rf_buffer_address(buffer);
    const rf_range ranges[3] = {{at, 16, false}, {at + 64, 32, false}, {at + 128, 8, true}};
    const uint32_t groups[3] = {1, 2, 3}, none[3] = {1, 0, 1};
    EXPECT_RF_OK(rf_launch(stream, mix, {&push, 8, groups, ranges, 3}));
    EXPECT_RF_OK(rf_launch(stream, mix, {&push, 8, groups, nullptr, 0}));
    EXPECT_RF_OK(rf_launch(stream, mix, {&push, 8, none, ranges, 3}));
    rf_work more = {};
    more.flops = 5;
    rf_stream_count(stream, &more);
    EXPECT_EQ(work().launches, 4u);
    EXPECT_EQ(work().unranged, 1u);
    EXPECT_EQ(work().read, 100u + 16 + 32);
    EXPECT_EQ(work().written, 100u + 2000 + 8);
    EXPECT_EQ(work().flops, 5u);
    rf_kernel_destroy(mix);
    rf_buffer_destroy(buffer);
}

TEST_F(Counting, WhatIsRefusedIsNotCounted)
{
    rf_buffer *buffer = nullptr;
    ASSERT_RF_OK(rf_buffer_create(device, 64, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &buffer));
    rf_kernel *mix = kernel();
    const uint32_t push = 0, groups[3] = {1, 1, 1}, many[3] = {1, 1 << 20, 1};
    const uint64_t right = 0;
    EXPECT_EQ(rf_stream_fill(stream, buffer, 0, 128, 0), RF_EINVAL);
    EXPECT_EQ(rf_stream_copy(stream, {buffer, 0}, {buffer, 2}, 8), RF_EINVAL);
    EXPECT_EQ(rf_launch(stream, mix, {&push, 4, groups, nullptr, 0}), RF_EINVAL);
    EXPECT_EQ(rf_launch(stream, mix, {&right, 8, many, nullptr, 0}), RF_EINVAL);
    EXPECT_EQ(work().launches, 0u);
    rf_kernel_destroy(mix);
    rf_buffer_destroy(buffer);
}

TEST_F(Counting, NothingIsWaitedFor)
{
    rf_timeline *timeline = nullptr;
    rf_point done;
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    EXPECT_RF_OK(rf_stream_after(stream, {timeline, 1}));
    EXPECT_RF_OK(rf_stream_submit(stream, &done));
    EXPECT_TRUE(rf_point_reached(done));
    EXPECT_RF_OK(rf_point_wait(done, 0));
    EXPECT_RF_OK(rf_stream_wait(stream));
    EXPECT_RF_OK(rf_device_wait(device));
    EXPECT_EQ(rf_record_begin(stream), RF_ENOTSUP);
    rf_stream_push_label(stream, "label");
    rf_stream_pop_label(stream);
    rf_timeline_destroy(timeline);
}

TEST_F(DeviceTest, OneThatRunsCountsNothing)
{
    rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "runs", &stream));
    const rf_work more = {1, 1, 1, 1, 1, 1};
    rf_stream_count(stream, &more);
    EXPECT_RF_OK(launch(stream, buffer(), buffer(), 1));
    rf_work seen;
    rf_device_work(device, &seen);
    EXPECT_EQ(seen.launches + seen.flops + seen.read + seen.written, 0u);
    rf_stream_destroy(stream);
}

} // namespace
