/* SPDX-License-Identifier: MIT
 *
 * Buffers: contents, addresses, limits and the counts by category, mapped and staged.
 */
#include "device_fixture.h"

namespace
{

/* The parameter: pretend that device memory cannot be mapped. */
class DeviceMemory : public DeviceTest, public ::testing::WithParamInterface<bool>
{
  protected:
    void SetUp() override
    {
        opts.hide_host_memory = GetParam();
        DeviceTest::SetUp();
    }
};
INSTANTIATE_TEST_SUITE_P(Mapping, DeviceMemory, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool> &info) {
                             return info.param ? "Hidden" : "AsItIs";
                         });

TEST_P(DeviceMemory, MapIsThereExactlyWhereTheRecordSays)
{
    struct rf_buffer *on_device = buffer(64), *on_host = buffer(64, RF_MEMORY_HOST);
    EXPECT_EQ(rf_buffer_map(on_device) != nullptr, rf_device_get_info(device)->host_visible);
    EXPECT_NE(rf_buffer_map(on_host), nullptr);
    if (GetParam()) {
        EXPECT_FALSE(rf_device_get_info(device)->host_visible);
    }
}

TEST_P(DeviceMemory, StartsZeroedForEverySize)
{
    for (uint64_t bytes : {1, 2, 3, 4, 5, 255, 256, 4099, 1 << 20}) {
        struct rf_buffer *b = nullptr;
        /* Twice, so that the second buffer is likely to get pages that were written. */
        for (int round = 0; round < 2; round++) {
            ASSERT_RF_OK(rf_buffer_create(device, bytes, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &b));
            EXPECT_EQ(rf_buffer_bytes(b), bytes);
            EXPECT_EQ(rf_buffer_address(b) % 256, 0u);
            std::vector<uint8_t> got(bytes, 1), zero(bytes, 0), ones(bytes, 0xff);
            ASSERT_RF_OK(rf_buffer_read(b, 0, got.data(), bytes));
            EXPECT_EQ(got, zero) << bytes;
            ASSERT_RF_OK(rf_buffer_write(b, 0, ones.data(), bytes));
            rf_buffer_destroy(b);
        }
    }
}

TEST_P(DeviceMemory, ReadsBackWhatWasWrittenAtAnyOffset)
{
    const uint64_t bytes = (20u << 20) + 13; /* more than both staging halves */
    struct rf_buffer *b = buffer(bytes);
    std::vector<uint8_t> data(bytes), got(bytes);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    ASSERT_RF_OK(rf_buffer_write(b, 0, data.data(), bytes));
    ASSERT_RF_OK(rf_buffer_read(b, 0, got.data(), bytes));
    EXPECT_TRUE(got == data);
    ASSERT_RF_OK(rf_buffer_write(b, 5, data.data(), 1001));
    ASSERT_RF_OK(rf_buffer_read(b, 5, got.data(), 1001));
    EXPECT_EQ(memcmp(got.data(), data.data(), 1001), 0);
    ASSERT_RF_OK(rf_buffer_read(b, 0, got.data(), 5));
    EXPECT_EQ(memcmp(got.data(), data.data(), 5), 0);
    ASSERT_RF_OK(rf_buffer_read(b, 1006, got.data(), 9));
    EXPECT_EQ(memcmp(got.data(), data.data() + 1006, 9), 0);
}

TEST_P(DeviceMemory, KernelsSeeWhatTheHostWroteAndTheOtherWayRound)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    std::vector<uint32_t> ys(words), xs(words), want(words);
    for (uint32_t i = 0; i < words; i++) {
        ys[i] = i;
        xs[i] = 1000 * i;
        want[i] = 3 * i + 1000 * i + 5;
    }
    ASSERT_RF_OK(rf_buffer_write(y, 0, ys.data(), words * 4));
    ASSERT_RF_OK(rf_buffer_write(x, 0, xs.data(), words * 4));
    struct rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "s", &stream));
    ASSERT_RF_OK(launch(stream, y, x, 5));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y), want);
    rf_stream_destroy(stream);
}

TEST_P(DeviceMemory, SpansOutsideTheBufferAreRefused)
{
    struct rf_buffer *b = buffer(100);
    uint8_t data[101] = {};
    EXPECT_EQ(rf_buffer_write(b, 0, data, 101), RF_EINVAL);
    EXPECT_EQ(rf_buffer_read(b, 100, data, 1), RF_EINVAL);
    EXPECT_EQ(rf_buffer_read(b, UINT64_MAX, data, 2), RF_EINVAL);
    EXPECT_RF_OK(rf_buffer_read(b, 100, data, 0));
}

class MemoryCounts : public DeviceTest
{
};

TEST_F(MemoryCounts, FollowEveryAllocationByCategory)
{
    struct rf_memory_stats before, during, after;
    struct rf_buffer *a = nullptr, *b = nullptr;
    buffer(); /* the first buffer allocates the staging memory, if any */
    rf_device_memory(device, &before);
    ASSERT_RF_OK(rf_buffer_create(device, 4096, RF_MEMORY_DEVICE, RF_CATEGORY_GRADS, &a));
    ASSERT_RF_OK(rf_buffer_create(device, 100000, RF_MEMORY_HOST, RF_CATEGORY_COMM, &b));
    rf_device_memory(device, &during);
    EXPECT_GE(during.now[RF_CATEGORY_GRADS], 4096u);
    EXPECT_LT(during.now[RF_CATEGORY_GRADS], 4096u + 65536u);
    EXPECT_GE(during.now[RF_CATEGORY_COMM], 100000u);
    EXPECT_EQ(during.now[RF_CATEGORY_PARAMS], 0u);
    EXPECT_EQ(during.allocations, before.allocations + 2);
    rf_buffer_destroy(a);
    rf_device_memory(device, &after);
    EXPECT_EQ(after.now[RF_CATEGORY_GRADS], 0u);
    EXPECT_EQ(after.peak[RF_CATEGORY_GRADS], during.now[RF_CATEGORY_GRADS]);
    EXPECT_EQ(after.now[RF_CATEGORY_COMM], during.now[RF_CATEGORY_COMM]);
    rf_device_memory_reset_peak(device);
    rf_device_memory(device, &after);
    EXPECT_EQ(after.peak[RF_CATEGORY_GRADS], 0u);
    EXPECT_EQ(after.peak[RF_CATEGORY_COMM], during.now[RF_CATEGORY_COMM]);
    rf_buffer_destroy(b);
}

TEST_F(MemoryCounts, TooLargeABufferNamesSizeAndLimit)
{
    struct rf_buffer *b = nullptr;
    struct rf_memory_stats before, after;
    uint64_t limit = rf_device_get_info(device)->max_allocation_bytes;
    rf_device_memory(device, &before);
    EXPECT_EQ(rf_buffer_create(device, limit + 1, RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS, &b),
              RF_ENOMEM);
    EXPECT_NE(last_message().find(std::to_string(limit)), std::string::npos) << last_message();
    EXPECT_NE(last_message().find("params"), std::string::npos) << last_message();
    EXPECT_EQ(rf_buffer_create(device, 0, RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS, &b), RF_EINVAL);
    rf_device_memory(device, &after);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(b, nullptr);
}

TEST_F(MemoryCounts, CategoriesHaveNames)
{
    EXPECT_STREQ(rf_category_name(RF_CATEGORY_OPTIMIZER), "optimizer");
    EXPECT_STREQ(rf_category_name((enum rf_category)99), "?");
}

} // namespace
