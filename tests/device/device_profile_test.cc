/* SPDX-License-Identifier: MIT
 *
 * Labelled regions become events of the trace, at times of the host's clock.
 */
#include "device_fixture.h"

namespace
{

class DeviceProfile : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    void SetUp() override
    {
        opts.profile = true;
        DeviceTest::SetUp();
        if (rf_device_get_info(device)->timestamp_period_ns == 0)
            GTEST_SKIP() << "this device has no timestamps";
        ASSERT_RF_OK(rf_stream_create(device, "profiled", &stream));
        rf_trace_start();
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
    }
    std::vector<struct rf_trace_item> events(const char *name)
    {
        std::vector<struct rf_trace_item> all(rf_trace_items(nullptr, 0)), out;
        rf_trace_items(all.data(), all.size());
        for (const struct rf_trace_item &item : all)
            if (strcmp(item.name, name) == 0)
                out.push_back(item);
        return out;
    }
};

TEST_F(DeviceProfile, RegionsNestAndLieWithinTheWaitForThem)
{
    struct rf_buffer *y = buffer(1 << 20), *x = buffer(1 << 20);
    ASSERT_RF_OK(launch(stream, y, x, 1)); /* compiled before it is timed */
    ASSERT_RF_OK(rf_stream_wait(stream));
    uint64_t start = rf_now_ns();
    rf_stream_push_label(stream, "profile outer");
    ASSERT_RF_OK(launch(stream, y, x, 1));
    rf_stream_push_label(stream, "profile inner");
    for (int i = 0; i < 10; i++)
        ASSERT_RF_OK(launch(stream, y, x, 1, 0, 1 << 18));
    rf_stream_pop_label(stream);
    rf_stream_pop_label(stream);
    ASSERT_RF_OK(rf_stream_wait(stream));
    uint64_t end = rf_now_ns();
    auto outer = events("profile outer"), inner = events("profile inner");
    ASSERT_EQ(outer.size(), 1u);
    ASSERT_EQ(inner.size(), 1u);
    EXPECT_STREQ(outer[0].track, "profiled"); // the stream
    EXPECT_LE(outer[0].start_ns, inner[0].start_ns);
    EXPECT_LE(inner[0].end_ns, outer[0].end_ns);
    EXPECT_LT(inner[0].start_ns, inner[0].end_ns);
    /* The two clocks are paired by watching a submission finish, which is late by at most some
     * scheduling delay. */
    const uint64_t slack = 20000000;
    EXPECT_GE(outer[0].start_ns + slack, start);
    EXPECT_LE(outer[0].end_ns, end + slack);
}

TEST_F(DeviceProfile, ALabelThatSpansSubmissionsGivesARegionInEach)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    rf_stream_push_label(stream, "profile spanning");
    for (int i = 0; i < 3; i++) {
        ASSERT_RF_OK(launch(stream, y, x, 1));
        ASSERT_RF_OK(rf_stream_submit(stream, nullptr));
    }
    rf_stream_pop_label(stream);
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(events("profile spanning").size(), 3u);
}

TEST_F(DeviceProfile, EveryReplayOfARecordingGivesItsRegions)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_recording *recording = nullptr;
    ASSERT_RF_OK(rf_record_begin(stream));
    rf_stream_push_label(stream, "profile replayed");
    ASSERT_RF_OK(launch(stream, y, x, 1));
    rf_stream_pop_label(stream);
    ASSERT_RF_OK(rf_record_end(stream, &recording));
    for (int i = 0; i < 3; i++)
        ASSERT_RF_OK(rf_record_replay(stream, recording));
    ASSERT_RF_OK(rf_stream_wait(stream));
    rf_recording_destroy(recording);
    auto seen = events("profile replayed");
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_LE(seen[0].end_ns, seen[1].start_ns);
    EXPECT_LE(seen[1].end_ns, seen[2].start_ns);
}

TEST_F(DeviceProfile, TooManyAndTooDeepLabelsAreHarmless)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    for (int i = 0; i < 40; i++)
        rf_stream_push_label(stream, "deep");
    for (int i = 0; i < 1000; i++) {
        rf_stream_push_label(stream, "many");
        ASSERT_RF_OK(launch(stream, y, x, 1));
        rf_stream_pop_label(stream);
    }
    for (int i = 0; i < 50; i++)
        rf_stream_pop_label(stream);
    for (int i = 0; i < 600; i++) {
        rf_stream_push_label(stream, "profile many");
        if (i == 0) {
            ASSERT_RF_OK(launch(stream, y, x, 1));
        }
        rf_stream_pop_label(stream);
    }
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_GT(events("profile many").size() + events("many").size(), 100u);
}

} // namespace
