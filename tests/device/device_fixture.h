/* SPDX-License-Identifier: MIT
 *
 * The fixture of the device tests: a device, and the kernel mix (y = y * 3 + x + c), whose results
 * depend on the order of launches.
 */
#ifndef TESTS_DEVICE_FIXTURE_H
#define TESTS_DEVICE_FIXTURE_H

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

extern "C" {
#include "base/base.h"
#include "device/device.h"
#include <ringforge/ringforge.h>
}

#include "mix_spv.h"

#define ASSERT_RF_OK(call) ASSERT_EQ((call), 0) << rf_last_error()->message
#define EXPECT_RF_OK(call) EXPECT_EQ((call), 0) << rf_last_error()->message

inline std::string last_message()
{
    return rf_last_error()->message;
}

class DeviceTest : public ::testing::Test
{
  protected:
    static constexpr uint32_t words = 256;
    struct rf_device *device = nullptr;
    struct rf_kernel *mix = nullptr;
    struct rf_device_opts opts = {};
    std::vector<struct rf_buffer *> buffers;

    void SetUp() override
    {
        ASSERT_RF_OK(rf_device_open(nullptr, &opts, &device));
        struct rf_kernel_desc desc = {};
        desc.name = "mix";
        desc.spirv = mix_spv;
        desc.spirv_bytes = sizeof(mix_spv);
        desc.push_bytes = sizeof(Push);
        ASSERT_RF_OK(rf_kernel_create(device, &desc, &mix));
    }

    void TearDown() override
    {
        for (struct rf_buffer *buffer : buffers)
            rf_buffer_destroy(buffer);
        rf_kernel_destroy(mix);
        rf_device_close(device);
    }

    struct Push {
        uint64_t y, x;
        uint32_t n, c;
    };

    struct rf_buffer *buffer(uint64_t bytes = words * 4, enum rf_memory memory = RF_MEMORY_DEVICE)
    {
        struct rf_buffer *out = nullptr;
        EXPECT_RF_OK(rf_buffer_create(device, bytes, memory, RF_CATEGORY_OTHER, &out));
        buffers.push_back(out);
        return out;
    }

    /* y[first..] = y * 3 + x + c over n words. */
    int launch(struct rf_stream *stream, struct rf_buffer *y, struct rf_buffer *x, uint32_t c,
               uint32_t first = 0, uint32_t n = words)
    {
        Push push = {rf_buffer_address(y) + 4 * first, rf_buffer_address(x) + 4 * first, n, c};
        const struct rf_range ranges[2] = {{push.x, n * 4, false}, {push.y, n * 4, true}};
        const uint32_t groups[3] = {(n + 63) / 64, 1, 1};
        return rf_launch(stream, mix, {&push, sizeof(push), groups, ranges, 2});
    }

    std::vector<uint32_t> read(struct rf_buffer *from)
    {
        std::vector<uint32_t> out(rf_buffer_bytes(from) / 4);
        EXPECT_RF_OK(rf_buffer_read(from, 0, out.data(), out.size() * 4));
        return out;
    }
};

#endif
