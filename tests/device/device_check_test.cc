/* SPDX-License-Identifier: MIT
 *
 * The hazard checker finds every omitted barrier, and reports nothing if all are present.
 */
#include "device_fixture.h"
#include <cstdlib>

namespace
{

class DeviceCheck : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    void SetUp() override
    {
        opts.check_barriers = true;
        DeviceTest::SetUp();
        ASSERT_RF_OK(rf_stream_create(device, "checked", &stream));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
    }
};

TEST_F(DeviceCheck, ARemovedBarrierIsAnErrorThatNamesBothKernels)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *z = buffer();
    rf_stream_skip_barrier(stream, 1);
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_stream_copy(stream, {z, 0}, {y, 0}, 64));
    struct rf_point done = {nullptr, 77};
    EXPECT_EQ(rf_stream_submit(stream, &done), RF_EDEVICE);
    EXPECT_NE(last_message().find("mix"), std::string::npos) << last_message();
    EXPECT_NE(last_message().find("copy"), std::string::npos) << last_message();
    EXPECT_NE(last_message().find("checked"), std::string::npos) << last_message();
    EXPECT_EQ(done.value, 77u);
    EXPECT_EQ(rf_stream_conflicts(stream), 1u);
    /* None of it ran, and the stream continues to work. */
    EXPECT_EQ(read(y)[0], 0u);
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y)[0], 1u);
}

TEST_F(DeviceCheck, EveryBarrierOfARandomProgramIsNecessary)
{
    /* The tracker records a barrier only before a conflicting command, so each omitted one must be
     * found. */
    struct rf_buffer *memory = buffer(64 * 4 * 16), *x = buffer(64 * 4 * 16);
    auto program = [&] {
        for (uint64_t i = 0; i < 60; i++) {
            uint32_t pick = (uint32_t)rf_philox_below(1, 0, i, 16);
            uint32_t n = (uint32_t)rf_philox_below(1, 1, i, 3) + 1;
            if (pick + n > 16)
                n = 16 - pick;
            ASSERT_RF_OK(launch(stream, i % 3 ? memory : x, x, 1, pick * 64, n * 64));
        }
    };
    program();
    ASSERT_RF_OK(rf_stream_wait(stream));
    uint64_t barriers = rf_stream_barriers(stream);
    ASSERT_GT(barriers, 5u);
    for (uint64_t nth = 1; nth <= barriers; nth++) {
        rf_stream_skip_barrier(stream, nth);
        program();
        EXPECT_EQ(rf_stream_wait(stream), RF_EDEVICE) << nth;
    }
    program();
    ASSERT_RF_OK(rf_stream_wait(stream));
}

TEST_F(DeviceCheck, ALaunchOfUndeclaredRangesIsChecked)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    Push push = {rf_buffer_address(y), rf_buffer_address(x), words, 4};
    const uint32_t groups[3] = {words / 64, 1, 1};
    rf_stream_skip_barrier(stream, 1);
    ASSERT_RF_OK(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}));
    ASSERT_RF_OK(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}));
    EXPECT_EQ(rf_stream_wait(stream), RF_EDEVICE);
}

TEST_F(DeviceCheck, IsSwitchedOnByTheEnvironment)
{
    struct rf_device *other = nullptr;
    struct rf_stream *their_stream = nullptr;
    struct rf_buffer *b = nullptr;
    setenv("RF_CHECK_BARRIERS", "1", 1);
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &other));
    unsetenv("RF_CHECK_BARRIERS");
    ASSERT_RF_OK(rf_stream_create(other, "s", &their_stream));
    ASSERT_RF_OK(rf_buffer_create(other, 64, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &b));
    rf_stream_skip_barrier(their_stream, 1);
    ASSERT_RF_OK(rf_stream_fill(their_stream, b, 0, 64, 1));
    ASSERT_RF_OK(rf_stream_fill(their_stream, b, 60, 4, 2));
    EXPECT_EQ(rf_stream_submit(their_stream, nullptr), RF_EDEVICE);
    rf_stream_destroy(their_stream);
    rf_buffer_destroy(b);
    rf_device_close(other);
}

} // namespace
