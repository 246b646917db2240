/* SPDX-License-Identifier: MIT
 *
 * Streams are in order: launches, copies and fills over many submissions, with barriers only
 * between conflicting commands.
 */
#include "device_fixture.h"
#include <sched.h>

#include "slow_queue.h"

namespace
{

class DeviceStream : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    void SetUp() override
    {
        opts.check_barriers = true;
        DeviceTest::SetUp();
        ASSERT_RF_OK(rf_stream_create(device, "test", &stream));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
    }
};

TEST_F(DeviceStream, ConflictingLaunchesRunInOrderAcrossSubmissions)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    uint32_t want = 0;
    for (uint32_t i = 0; i < 200; i++) {
        ASSERT_RF_OK(launch(stream, y, x, i));
        want = want * 3 + i;
        if (i % 7 == 3) {
            ASSERT_RF_OK(rf_stream_submit(stream, nullptr));
        }
    }
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y), std::vector<uint32_t>(words, want));
}

TEST_F(DeviceStream, OnlyConflictsCostABarrier)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *z = buffer();
    ASSERT_RF_OK(launch(stream, y, x, 1, 0, 64));
    ASSERT_RF_OK(launch(stream, y, x, 1, 64, 64)); /* another part of y */
    ASSERT_RF_OK(launch(stream, z, x, 1));         /* reads x as well */
    EXPECT_EQ(rf_stream_barriers(stream), 0u);
    ASSERT_RF_OK(launch(stream, x, z, 1)); /* read after write, write after read */
    EXPECT_EQ(rf_stream_barriers(stream), 1u);
    ASSERT_RF_OK(launch(stream, y, buffer(), 1)); /* y was before the barrier */
    EXPECT_EQ(rf_stream_barriers(stream), 1u);
    ASSERT_RF_OK(launch(stream, y, y, 1, 0, 1)); /* write after write, one word */
    EXPECT_EQ(rf_stream_barriers(stream), 2u);
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(rf_stream_conflicts(stream), 0u);
}

TEST_F(DeviceStream, ALaunchWithoutRangesConflictsWithEverything)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *z = buffer();
    Push push = {rf_buffer_address(y), rf_buffer_address(x), words, 4};
    const uint32_t groups[3] = {words / 64, 1, 1};
    ASSERT_RF_OK(launch(stream, z, x, 1));
    ASSERT_RF_OK(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}));
    EXPECT_EQ(rf_stream_barriers(stream), 1u);
    ASSERT_RF_OK(launch(stream, z, x, 1));
    EXPECT_EQ(rf_stream_barriers(stream), 2u);
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y)[0], 4u);
}

TEST_F(DeviceStream, ManyDisjointLaunchesNeedFewBarriers)
{
    const uint32_t parts = 1000;
    struct rf_buffer *y = buffer(parts * 256), *x = buffer(parts * 256);
    for (uint32_t i = 0; i < parts; i++)
        ASSERT_RF_OK(launch(stream, y, x, i, i * 64, 64));
    EXPECT_LE(rf_stream_barriers(stream), parts / 30);
    ASSERT_RF_OK(rf_stream_wait(stream));
    std::vector<uint32_t> got = read(y);
    for (uint32_t i = 0; i < parts; i++)
        ASSERT_EQ(got[i * 64 + 63], i);
}

TEST_F(DeviceStream, CopiesAndFillsAreOrderedWithLaunches)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *z = buffer();
    ASSERT_RF_OK(rf_stream_fill(stream, y, 0, words * 4, 10));
    ASSERT_RF_OK(launch(stream, y, x, 1));                           /* 31 */
    ASSERT_RF_OK(rf_stream_copy(stream, {z, 0}, {y, 0}, words * 4)); /* z = 31 */
    ASSERT_RF_OK(rf_stream_fill(stream, y, 4, 8, 2));                /* y[1], y[2] = 2 */
    ASSERT_RF_OK(launch(stream, z, y, 0));                           /* 93 + y */
    ASSERT_RF_OK(rf_stream_wait(stream));
    std::vector<uint32_t> got = read(z);
    EXPECT_EQ(got[0], 124u);
    EXPECT_EQ(got[1], 95u);
    EXPECT_EQ(got[2], 95u);
    EXPECT_EQ(got[3], 124u);
}

TEST_F(DeviceStream, BadArgumentsAreNamedAndLeaveTheStreamUsable)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    EXPECT_EQ(rf_stream_fill(stream, y, 2, 4, 0), RF_EINVAL);
    EXPECT_EQ(rf_stream_fill(stream, y, 0, words * 4 + 4, 0), RF_EINVAL);
    EXPECT_EQ(rf_stream_copy(stream, {y, 0}, {x, 8}, words * 4), RF_EINVAL);
    EXPECT_EQ(rf_stream_copy(stream, {y, 0}, {y, 8}, 16), RF_EINVAL);
    const uint32_t *most = rf_device_get_info(device)->max_workgroup_count;
    if (most[1] < UINT32_MAX) {
        const uint32_t groups[3] = {1, most[1] + 1, 1};
        Push push = {};
        EXPECT_EQ(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}), RF_EINVAL);
        EXPECT_NE(last_message().find("mix"), std::string::npos) << last_message();
    }
    const uint32_t one[3] = {1, 1, 1};
    EXPECT_EQ(rf_launch(stream, mix, {&one, 4, one, nullptr, 0}), RF_EINVAL);
    ASSERT_RF_OK(launch(stream, y, x, 6));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_EQ(read(y)[0], 6u);
}

TEST_F(DeviceStream, ZeroGroupsRecordNothing)
{
    const uint32_t groups[3] = {4, 0, 1};
    Push push = {};
    struct rf_point before, after;
    ASSERT_RF_OK(rf_stream_submit(stream, &before));
    ASSERT_RF_OK(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}));
    ASSERT_RF_OK(rf_stream_submit(stream, &after));
    EXPECT_EQ(before.value, after.value);
    EXPECT_TRUE(rf_point_reached(after));
}

TEST_F(DeviceStream, AThousandSubmissionsInFlightAllRun)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    uint32_t want = 0;
    struct rf_point done = {};
    for (uint32_t i = 0; i < 1000; i++) {
        ASSERT_RF_OK(launch(stream, y, x, i, 0, 64));
        ASSERT_RF_OK(rf_stream_submit(stream, &done));
        want = want * 3 + i;
    }
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    EXPECT_EQ(read(y)[63], want);
    EXPECT_EQ(read(y)[64], 0u);
}

TEST_F(DeviceStream, DestroyWaitsForWhatWasRecorded)
{
    struct rf_buffer *y = buffer();
    struct rf_stream *other = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "other", &other));
    ASSERT_RF_OK(rf_stream_fill(other, y, 0, words * 4, 3));
    rf_stream_destroy(other);
    EXPECT_EQ(read(y)[words - 1], 3u);
}

TEST_F(DeviceStream, PointsOutliveTheirStream)
{
    struct rf_stream *other = nullptr;
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_create(device, "other", &other));
    ASSERT_RF_OK(rf_stream_fill(other, buffer(), 0, 4, 3));
    ASSERT_RF_OK(rf_stream_submit(other, &done));
    rf_stream_destroy(other);
    EXPECT_TRUE(rf_point_reached(done));
    ASSERT_RF_OK(rf_stream_after(stream, done));
    ASSERT_RF_OK(rf_stream_wait(stream));
}

/* The device's thread submits the work; the stream's owner needs no lock to see that it has run. */
TEST_F(DeviceStream, ASubmissionThatHasRunMayBeUsedAgainBeforeTheQueueReturns)
{
    struct rf_timeline *timeline = nullptr;
    struct rf_point first = {}, second = {};
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    ASSERT_RF_OK(rf_stream_after(stream, {timeline, 1}));
    ASSERT_RF_OK(rf_stream_submit(stream, &first));
    slow_queue_place(device, stream);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    while (!slow_queue_has_run())
        sched_yield();
    ASSERT_RF_OK(rf_stream_after(stream, {timeline, 2}));
    ASSERT_RF_OK(rf_stream_submit(stream, &second));
    EXPECT_EQ(slow_queue_remove(), 1) << "what was handed over is not what was submitted";
    EXPECT_EQ(rf_point_wait(second, 1), RF_ETIMEOUT);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 2));
    ASSERT_RF_OK(rf_stream_wait(stream));
    rf_timeline_destroy(timeline);
}

} // namespace
