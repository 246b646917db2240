/* SPDX-License-Identifier: MIT
 *
 * Recordings: a replay does the recorded work, in order with everything else on the stream, without
 * recording anything; and destroying an object that a recording needs is detected.
 */
#include "device_fixture.h"

namespace
{

class DeviceRecord : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    struct rf_recording *recording = nullptr;
    void SetUp() override
    {
        opts.check_barriers = true;
        DeviceTest::SetUp();
        ASSERT_RF_OK(rf_stream_create(device, "test", &stream));
    }
    void TearDown() override
    {
        rf_recording_destroy(recording);
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
    }
    /* y = y * 3 + x + c, twice: the second needs a barrier. */
    void record(struct rf_buffer *y, struct rf_buffer *x, uint32_t c, struct rf_recording **out)
    {
        ASSERT_RF_OK(rf_record_begin(stream));
        ASSERT_RF_OK(launch(stream, y, x, c));
        ASSERT_RF_OK(launch(stream, y, x, c));
        ASSERT_RF_OK(rf_record_end(stream, out));
    }
};

TEST_F(DeviceRecord, ReplaysRunInOrderWithLaunchesAndRecordNothing)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    ASSERT_NO_FATAL_FAILURE(record(y, x, 1, &recording));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y)[0], 0u) << "recording must not run anything";
    uint32_t want = 0;
    uint64_t recorded = rf_stream_recorded(stream);
    for (int i = 0; i < 100; i++) { /* without waiting: one command buffer, many times in flight */
        ASSERT_RF_OK(rf_record_replay(stream, recording));
        want = (want * 3 + 1) * 3 + 1;
    }
    EXPECT_EQ(rf_stream_recorded(stream), recorded);
    ASSERT_RF_OK(launch(stream, y, x, 7));
    ASSERT_RF_OK(rf_record_replay(stream, recording)); /* flushes the launch before it */
    want = ((want * 3 + 7) * 3 + 1) * 3 + 1;
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y), std::vector<uint32_t>(words, want));
    EXPECT_EQ(rf_stream_conflicts(stream), 0u);
}

TEST_F(DeviceRecord, WhatDiffersBetweenReplaysIsReadFromMemory)
{
    struct rf_buffer *y = buffer(), *x = buffer(words * 4, RF_MEMORY_HOST);
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(rf_stream_fill(stream, y, 0, words * 4, 2));
    ASSERT_RF_OK(launch(stream, y, x, 0));
    ASSERT_RF_OK(rf_record_end(stream, &recording));
    for (uint32_t i = 0; i < 10; i++) {
        static_cast<uint32_t *>(rf_buffer_map(x))[5] = i;
        ASSERT_RF_OK(rf_record_replay(stream, recording));
        ASSERT_RF_OK(rf_stream_wait(stream));
        EXPECT_EQ(read(y)[5], 6 + i);
    }
}

TEST_F(DeviceRecord, AReplayWaitsForThePointsOfItsStream)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_timeline *timeline = nullptr;
    struct rf_point done;
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    ASSERT_NO_FATAL_FAILURE(record(y, x, 1, &recording));
    ASSERT_RF_OK(rf_stream_after(stream, {timeline, 1}));
    ASSERT_RF_OK(rf_record_replay(stream, recording));
    ASSERT_RF_OK(rf_stream_submit(stream, &done));
    EXPECT_FALSE(rf_point_reached(done));
    EXPECT_EQ(read(y)[0], 0u);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    EXPECT_EQ(read(y)[0], 4u);
    rf_timeline_destroy(timeline);
}

TEST_F(DeviceRecord, NothingIsSubmittedOrWaitedForWhileRecording)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    ASSERT_RF_OK(rf_record_begin(stream));
    EXPECT_EQ(rf_record_begin(stream), RF_EINVAL);
    ASSERT_RF_OK(launch(stream, y, x, 1));
    EXPECT_EQ(rf_stream_submit(stream, nullptr), RF_EINVAL);
    EXPECT_EQ(rf_stream_wait(stream), RF_EINVAL);
    EXPECT_EQ(rf_stream_after(stream, {nullptr, 0}), RF_EINVAL);
    ASSERT_RF_OK(rf_record_end(stream, nullptr)); /* given up */
    struct rf_recording *none = nullptr;
    EXPECT_EQ(rf_record_end(stream, &none), RF_EINVAL);
    EXPECT_EQ(rf_record_replay(stream, nullptr), RF_EINVAL);
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y)[0], 0u);
}

TEST_F(DeviceRecord, AnEmptyRecordingAndAnOpenOneAreNoBurden)
{
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(rf_record_end(stream, &recording));
    ASSERT_RF_OK(rf_record_replay(stream, recording));
    ASSERT_RF_OK(rf_stream_wait(stream));
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(launch(stream, buffer(), buffer(), 1)); /* destroyed with the stream, still open */
}

TEST_F(DeviceRecord, ARecordingWhoseBufferIsGoneIsNotReplayed)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *extra = buffer();
    ASSERT_NO_FATAL_FAILURE(record(y, x, 1, &recording));
    rf_buffer_destroy(extra);
    buffers.pop_back();
    EXPECT_TRUE(rf_recording_valid(recording)) << "that buffer is not used";
    ASSERT_RF_OK(rf_record_replay(stream, recording));
    ASSERT_RF_OK(rf_stream_wait(stream));
    rf_buffer_destroy(x);
    buffers.pop_back();
    EXPECT_FALSE(rf_recording_valid(recording));
    EXPECT_EQ(rf_record_replay(stream, recording), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("buffer"), std::string::npos);
}

TEST_F(DeviceRecord, BuffersOfALaunchWithoutRangesAreKnownByTheirAddresses)
{
    struct rf_buffer *y = buffer(), *extra = buffer(), *x = buffer();
    Push push = {rf_buffer_address(y), rf_buffer_address(x), words, 4};
    const uint32_t groups[3] = {words / 64, 1, 1};
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}));
    ASSERT_RF_OK(rf_record_end(stream, &recording));
    rf_buffer_destroy(extra);
    EXPECT_TRUE(rf_recording_valid(recording));
    rf_buffer_destroy(x);
    EXPECT_FALSE(rf_recording_valid(recording));
    buffers = {y};
}

TEST_F(DeviceRecord, ARecordingWhoseKernelIsGoneIsNotReplayed)
{
    struct rf_kernel *first = mix;
    struct rf_kernel_desc desc = {};
    desc.name = "second";
    desc.spirv = mix_spv;
    desc.spirv_bytes = sizeof(mix_spv);
    desc.push_bytes = sizeof(Push);
    ASSERT_RF_OK(rf_kernel_create(device, &desc, &mix));
    ASSERT_NO_FATAL_FAILURE(record(buffer(), buffer(), 1, &recording));
    rf_kernel_destroy(mix);
    mix = first;
    EXPECT_EQ(rf_record_replay(stream, recording), RF_EINVAL);
    EXPECT_NE(std::string(rf_last_error()->message).find("kernel"), std::string::npos);
}

TEST_F(DeviceRecord, TwoRecordingsAreComparedCommandByCommand)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    char why[160];
    ASSERT_NO_FATAL_FAILURE(record(y, x, 1, &recording));
    auto same_as = [&](struct rf_buffer *a, struct rf_buffer *b, uint32_t c) {
        struct rf_recording *other = nullptr;
        record(a, b, c, &other);
        bool same = rf_recording_same(recording, other, why, sizeof(why));
        rf_recording_destroy(other);
        return same;
    };
    EXPECT_TRUE(same_as(y, x, 1));
    EXPECT_FALSE(same_as(y, x, 2));
    EXPECT_NE(std::string(why).find("command 0 was mix"), std::string::npos) << why;
    EXPECT_FALSE(same_as(y, buffer(), 1));
    struct rf_recording *shorter = nullptr;
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(rf_record_end(stream, &shorter));
    EXPECT_FALSE(rf_recording_same(recording, shorter, why, sizeof(why)));
    EXPECT_STREQ(why, "there were 2 commands, and now there are 1");
    rf_recording_destroy(shorter);
}

TEST_F(DeviceRecord, TheCheckerSeesAMissingBarrierInARecording)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    rf_stream_skip_barrier(stream, 1);
    ASSERT_RF_OK(rf_record_begin(stream));
    ASSERT_RF_OK(launch(stream, y, x, 1));
    ASSERT_RF_OK(launch(stream, y, x, 1));
    EXPECT_EQ(rf_record_end(stream, &recording), RF_EDEVICE);
    EXPECT_EQ(rf_stream_conflicts(stream), 1u);
    EXPECT_EQ(recording, nullptr);
}

TEST_F(DeviceRecord, DestroyingARecordingWaitsForItsReplays)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    ASSERT_NO_FATAL_FAILURE(record(y, x, 1, &recording));
    for (int i = 0; i < 20; i++)
        ASSERT_RF_OK(rf_record_replay(stream, recording));
    rf_recording_destroy(recording);
    recording = nullptr;
    uint32_t want = 0;
    for (int i = 0; i < 40; i++)
        want = want * 3 + 1;
    EXPECT_EQ(read(y)[0], want);
}

} // namespace
