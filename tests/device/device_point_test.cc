/* SPDX-License-Identifier: MIT
 *
 * Points in time: host timelines, done points, and waits that hold back only one stream.
 */
#include "device_fixture.h"
#include <atomic>
#include <thread>

namespace
{

class DevicePoint : public DeviceTest
{
  protected:
    struct rf_timeline *timeline = nullptr;
    struct rf_stream *a = nullptr, *b = nullptr;
    void SetUp() override
    {
        DeviceTest::SetUp();
        ASSERT_RF_OK(rf_timeline_create(device, &timeline));
        ASSERT_RF_OK(rf_stream_create(device, "a", &a));
        ASSERT_RF_OK(rf_stream_create(device, "b", &b));
    }
    void TearDown() override
    {
        rf_stream_destroy(a);
        rf_stream_destroy(b);
        rf_timeline_destroy(timeline);
        DeviceTest::TearDown();
    }
};

TEST_F(DevicePoint, ANullTimelineIsAlwaysReached)
{
    EXPECT_TRUE(rf_point_reached({nullptr, 7}));
    EXPECT_RF_OK(rf_point_wait({nullptr, 7}, 0));
    EXPECT_RF_OK(rf_stream_after(a, {nullptr, 7}));
}

TEST_F(DevicePoint, AHostTimelineOnlyGrows)
{
    EXPECT_TRUE(rf_point_reached({timeline, 0}));
    EXPECT_FALSE(rf_point_reached({timeline, 1}));
    EXPECT_EQ(rf_point_wait({timeline, 1}, 0), RF_ETIMEOUT);
    EXPECT_EQ(rf_point_wait({timeline, 1}, 1000000), RF_ETIMEOUT);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 3));
    EXPECT_TRUE(rf_point_reached({timeline, 3}));
    EXPECT_RF_OK(rf_point_wait({timeline, 2}, UINT64_MAX));
    EXPECT_EQ(rf_timeline_signal(timeline, 3), RF_EINVAL);
    EXPECT_FALSE(rf_point_reached({timeline, 4}));
}

TEST_F(DevicePoint, ReservedSubmissionsThatAllWaitAllocateNothingOnTheHost)
{
    constexpr int submissions = 9;
    struct rf_point waited = {timeline, 1};
    struct rf_buffer *y = buffer(), *x = buffer();
    ASSERT_RF_OK(launch(a, y, x, 1)); // a launch without waits, which may still run
    ASSERT_RF_OK(rf_stream_submit(a, nullptr));
    ASSERT_RF_OK(rf_stream_reserve(a, submissions, 2));
    for (int turn = 0; turn < 2; turn++, waited.value++) {
        rf_alloc_fail_at(0); // counts from here on
        for (int k = 0; k < submissions; k++) {
            ASSERT_RF_OK(rf_stream_after(a, waited));
            ASSERT_RF_OK(rf_stream_submit(a, nullptr));
        }
        EXPECT_EQ(rf_alloc_fail_at(0), 0u) << turn;
        ASSERT_RF_OK(rf_timeline_signal(timeline, waited.value));
        ASSERT_RF_OK(rf_stream_wait(a));
    }
    EXPECT_EQ(rf_stream_reserve(nullptr, 1, 1), RF_EINVAL);
    EXPECT_EQ(rf_stream_reserve(a, -1, 1), RF_EINVAL);
}

TEST_F(DevicePoint, AStreamsTimelineCannotBeSignalledByHand)
{
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_submit(a, &done));
    EXPECT_EQ(rf_timeline_signal(done.timeline, 100), RF_EINVAL);
}

TEST_F(DevicePoint, AWaitForTheHostHoldsBackNoOtherStream)
{
    struct rf_buffer *y = buffer(), *z = buffer(), *x = buffer();
    struct rf_point a_done, b_done;
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 1}));
    ASSERT_RF_OK(launch(a, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(a, &a_done));
    ASSERT_RF_OK(launch(b, z, x, 2));
    ASSERT_RF_OK(rf_stream_submit(b, &b_done));
    /* On a device with one queue this would never return if a's submission were on it. */
    ASSERT_RF_OK(rf_point_wait(b_done, 60000000000u));
    EXPECT_FALSE(rf_point_reached(a_done));
    EXPECT_EQ(read(z)[0], 2u);
    EXPECT_EQ(read(y)[0], 0u);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    ASSERT_RF_OK(rf_point_wait(a_done, UINT64_MAX));
    EXPECT_EQ(read(y)[0], 1u);
}

TEST_F(DevicePoint, OrderWithinAHeldBackStreamIsKept)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_point done;
    ASSERT_RF_OK(launch(a, y, x, 1)); /* 1 */
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 1}));
    ASSERT_RF_OK(launch(a, y, x, 2)); /* 5 */
    ASSERT_RF_OK(rf_stream_submit(a, nullptr));
    ASSERT_RF_OK(launch(a, y, x, 3)); /* 18; waits for nothing itself, but comes later */
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 2}));
    ASSERT_RF_OK(launch(a, y, x, 4)); /* 58 */
    ASSERT_RF_OK(rf_stream_submit(a, &done));
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    struct rf_point before_last = {done.timeline, done.value - 1};
    ASSERT_RF_OK(rf_point_wait(before_last, UINT64_MAX));
    EXPECT_EQ(read(y)[0], 18u);
    EXPECT_FALSE(rf_point_reached(done));
    ASSERT_RF_OK(rf_timeline_signal(timeline, 2));
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    EXPECT_EQ(read(y)[0], 58u);
}

TEST_F(DevicePoint, StreamsWaitForEachOthersPoints)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    uint32_t want = 0;
    struct rf_point done = {};
    for (uint32_t i = 0; i < 100; i++) {
        struct rf_stream *stream = i % 2 ? a : b;
        ASSERT_RF_OK(rf_stream_after(stream, done));
        ASSERT_RF_OK(launch(stream, y, x, i));
        ASSERT_RF_OK(rf_stream_submit(stream, &done));
        want = want * 3 + i;
    }
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    EXPECT_EQ(read(y), std::vector<uint32_t>(words, want));
}

TEST_F(DevicePoint, AChainAcrossStreamsStartsWhenTheHostSignals)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_point first, second;
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 1}));
    ASSERT_RF_OK(launch(a, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(a, &first));
    ASSERT_RF_OK(rf_stream_after(b, first)); /* the point of held-back work */
    ASSERT_RF_OK(launch(b, y, x, 2));
    ASSERT_RF_OK(rf_stream_submit(b, &second));
    EXPECT_EQ(rf_point_wait(second, 1000000), RF_ETIMEOUT);
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    ASSERT_RF_OK(rf_point_wait(second, UINT64_MAX));
    EXPECT_TRUE(rf_point_reached(first));
    EXPECT_EQ(read(y)[0], 5u);
}

TEST_F(DevicePoint, MoreWaitsThanOneBatchTakes)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    std::vector<struct rf_stream *> streams(40);
    for (struct rf_stream *&stream : streams) {
        struct rf_point done;
        ASSERT_RF_OK(rf_stream_create(device, "many", &stream));
        ASSERT_RF_OK(rf_stream_after(stream, {timeline, 1}));
        ASSERT_RF_OK(rf_stream_fill(stream, y, 4 * (uint64_t)(&stream - streams.data()), 4, 5));
        ASSERT_RF_OK(rf_stream_submit(stream, &done));
        ASSERT_RF_OK(rf_stream_after(a, done));
    }
    ASSERT_RF_OK(launch(a, y, x, 1));
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_submit(a, &done));
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    std::vector<uint32_t> got = read(y);
    EXPECT_EQ(got[0], 16u);
    EXPECT_EQ(got[39], 16u);
    EXPECT_EQ(got[40], 1u);
    for (struct rf_stream *stream : streams)
        rf_stream_destroy(stream);
}

TEST_F(DevicePoint, ASubmissionOfWaitsAloneIsReachedAfterThem)
{
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 1}));
    ASSERT_RF_OK(rf_stream_submit(a, &done));
    EXPECT_FALSE(rf_point_reached(done));
    ASSERT_RF_OK(rf_timeline_signal(timeline, 1));
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
}

TEST_F(DevicePoint, AThreadMayWaitForWhatAnotherSignals)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 10}));
    ASSERT_RF_OK(launch(a, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(a, &done));
    std::atomic<int> rc{1};
    std::thread waiter([&] { rc = rf_point_wait(done, UINT64_MAX); });
    for (uint64_t value = 1; value <= 10; value++)
        ASSERT_RF_OK(rf_timeline_signal(timeline, value));
    waiter.join();
    EXPECT_EQ(rc, 0);
    EXPECT_EQ(read(y)[0], 1u);
}

TEST_F(DevicePoint, ThreadsWithStreamsOfTheirOwnDoNotDisturbEachOther)
{
    const int threads = 4;
    std::vector<struct rf_buffer *> ys;
    struct rf_buffer *x = buffer();
    for (int t = 0; t < threads; t++)
        ys.push_back(buffer());
    std::vector<std::thread> pool;
    std::atomic<int> failures{0};
    for (int t = 0; t < threads; t++)
        pool.emplace_back([&, t] {
            struct rf_stream *stream = nullptr;
            failures += rf_stream_create(device, "thread", &stream) != 0;
            for (uint32_t i = 0; i < 50; i++) {
                failures += launch(stream, ys[t], x, i + (uint32_t)t) != 0;
                failures +=
                    (i % 5 ? rf_stream_submit(stream, nullptr) : rf_stream_wait(stream)) != 0;
            }
            rf_stream_destroy(stream);
        });
    for (std::thread &thread : pool)
        thread.join();
    EXPECT_EQ(failures, 0);
    for (int t = 0; t < threads; t++) {
        uint32_t want = 0;
        for (uint32_t i = 0; i < 50; i++)
            want = want * 3 + i + (uint32_t)t;
        EXPECT_EQ(read(ys[t])[words - 1], want);
    }
}

TEST_F(DevicePoint, DeviceWaitCoversWhatIsHeldBack)
{
    struct rf_buffer *y = buffer(), *x = buffer();
    ASSERT_RF_OK(rf_stream_after(a, {timeline, 1}));
    ASSERT_RF_OK(launch(a, y, x, 1));
    ASSERT_RF_OK(rf_stream_submit(a, nullptr));
    std::thread signaller([&] { EXPECT_RF_OK(rf_timeline_signal(timeline, 1)); });
    ASSERT_RF_OK(rf_device_wait(device));
    signaller.join();
    EXPECT_EQ(read(y)[0], 1u);
}

} // namespace
