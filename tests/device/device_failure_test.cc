/* SPDX-License-Identifier: MIT
 *
 * A lost device gives an error everywhere, and never hangs.
 */
#include "device_fixture.h"
#include <atomic>
#include <thread>

namespace
{

class DeviceFailure : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    void SetUp() override
    {
        DeviceTest::SetUp();
        rf_log_callback([](void *, int, const char *) {}, nullptr); /* the loss is logged */
        ASSERT_RF_OK(rf_stream_create(device, "lost", &stream));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
        rf_log_callback(nullptr, nullptr);
    }
};

TEST_F(DeviceFailure, SurfacesFromEveryCallAfterIt)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_point before = {};
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(stream, &before));
    ASSERT_RF_OK(rf_point_wait(before, UINT64_MAX));
    rf_device_fail_next_submit(device);
    ASSERT_RF_OK(launch(stream, y, x, 1));
    EXPECT_EQ(rf_stream_submit(stream, nullptr), RF_EDEVICE);
    EXPECT_NE(last_message().find("lost"), std::string::npos) << last_message();
    struct rf_point never = {before.timeline, before.value + 1};
    EXPECT_EQ(rf_stream_wait(stream), RF_EDEVICE);
    EXPECT_EQ(rf_point_wait(never, UINT64_MAX), RF_EDEVICE);
    EXPECT_EQ(rf_point_wait(never, 0), RF_EDEVICE);
    EXPECT_TRUE(rf_point_reached(never)); /* polling must end */
    EXPECT_EQ(rf_device_wait(device), RF_EDEVICE);
    EXPECT_EQ(launch(stream, y, x, 1), RF_EDEVICE);
    struct rf_stream *other = nullptr;
    EXPECT_EQ(rf_stream_create(device, "late", &other), RF_EDEVICE);
    EXPECT_NE(last_message().find("lost"), std::string::npos) << last_message();
    EXPECT_RF_OK(rf_point_wait(before, UINT64_MAX)); /* finished work stays finished */
}

TEST_F(DeviceFailure, WakesThoseWhoWait)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_timeline *timeline = nullptr;
    struct rf_point done = {};
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    ASSERT_RF_OK(rf_stream_after(stream, {timeline, 1}));
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(stream, &done));
    rf_device_fail_next_submit(device);
    std::atomic<int> on_done{0}, on_host{0};
    std::thread first([&] { on_done = rf_point_wait(done, UINT64_MAX); });
    std::thread second([&] { on_host = rf_point_wait({timeline, 99}, UINT64_MAX); });
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1)); /* the submission thread submits, and fails */
    first.join();
    second.join();
    EXPECT_EQ(on_done, RF_EDEVICE);
    EXPECT_EQ(on_host, RF_EDEVICE);
    rf_timeline_destroy(timeline);
}

TEST_F(DeviceFailure, OfOneDeviceReachesAnotherThatWaitsForIt)
{
    struct rf_device *other = nullptr;
    struct rf_stream *waits = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &other));
    ASSERT_RF_OK(rf_stream_create(other, "waits", &waits));
    struct rf_timeline *timeline = nullptr;
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    struct rf_point done = {};
    ASSERT_RF_OK(rf_stream_after(waits, {timeline, 1}));
    ASSERT_RF_OK(rf_stream_submit(waits, &done));
    struct rf_buffer *filled = buffer(); /* created first: zeroed by a submission */
    rf_device_fail_next_submit(device);
    ASSERT_RF_OK(rf_stream_fill(stream, filled, 0, 4, 1));
    EXPECT_EQ(rf_stream_submit(stream, nullptr), RF_EDEVICE);
    EXPECT_EQ(rf_point_wait(done, UINT64_MAX), RF_EDEVICE);
    EXPECT_NE(last_message().find("waits"), std::string::npos) << last_message();
    rf_stream_destroy(waits);
    rf_device_close(other);
    rf_timeline_destroy(timeline);
}

} // namespace
