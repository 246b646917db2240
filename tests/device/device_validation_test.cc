/* SPDX-License-Identifier: MIT
 *
 * The Khronos validation layer, with synchronization validation, reports nothing about the device
 * layer.
 */
#include "device_fixture.h"
#include <cstdlib>
#include <thread>

namespace
{

class DeviceValidation : public DeviceTest
{
  protected:
    bool profile = true;

    void SetUp() override
    {
        setenv("RF_VALIDATION", "1", 1);
        opts.profile = profile;
        opts.hide_host_memory = true;
        int rc = rf_device_open(nullptr, &opts, &device);
        unsetenv("RF_VALIDATION");
        if (rc == RF_ENOTSUP)
            GTEST_SKIP() << last_message();
        ASSERT_RF_OK(rc);
        struct rf_kernel_desc desc = {};
        desc.name = "mix";
        desc.spirv = mix_spv;
        desc.spirv_bytes = sizeof(mix_spv);
        desc.push_bytes = sizeof(Push);
        ASSERT_RF_OK(rf_kernel_create(device, &desc, &mix));
    }
};

TEST_F(DeviceValidation, IsSilentAboutEverythingWeDo)
{
    struct rf_buffer *y = buffer(), *x = buffer(), *h = buffer(words * 4, RF_MEMORY_HOST);
    struct rf_stream *a = nullptr, *b = nullptr;
    struct rf_timeline *timeline = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "a", &a));
    ASSERT_RF_OK(rf_stream_create(device, "b", &b));
    ASSERT_RF_OK(rf_timeline_create(device, &timeline));
    struct rf_point done = {};
    for (uint32_t round = 0; round < 3; round++) {
        rf_stream_push_label(a, "round");
        ASSERT_RF_OK(rf_stream_fill(a, y, 0, words * 4, round));
        ASSERT_RF_OK(rf_stream_fill(a, y, 64, words * 2, round)); /* write after write */
        ASSERT_RF_OK(launch(a, y, x, 1));
        ASSERT_RF_OK(launch(a, x, y, 1));
        ASSERT_RF_OK(rf_stream_copy(a, {h, 0}, {x, 0}, words * 4));
        ASSERT_RF_OK(rf_stream_copy(a, {y, 0}, {h, 0}, words * 4));
        ASSERT_RF_OK(rf_stream_submit(a, &done));
        rf_stream_pop_label(a);
        ASSERT_RF_OK(rf_stream_after(b, done));
        ASSERT_RF_OK(rf_stream_after(b, {timeline, round + 1}));
        ASSERT_RF_OK(rf_stream_copy(b, {x, 0}, {y, 0}, words * 4));
        ASSERT_RF_OK(rf_stream_submit(b, &done));
        ASSERT_RF_OK(rf_timeline_signal(timeline, round + 1));
        ASSERT_RF_OK(rf_stream_after(a, done));
    }
    ASSERT_RF_OK(rf_stream_wait(a));
    ASSERT_RF_OK(rf_stream_wait(b));
    ASSERT_RF_OK(rf_device_wait(device));
    EXPECT_EQ(read(h).size(), (size_t)words);
    rf_stream_destroy(a);
    rf_stream_destroy(b);
    rf_timeline_destroy(timeline);
    EXPECT_EQ(rf_device_validation_messages(device), 0u);
}

class DeviceValidationOfThreads : public DeviceValidation
{
  protected:
    DeviceValidationOfThreads()
    {
        profile = false; /* much faster */
    }
};

/* Layers before 1.3.242 crash here in most runs if labels reach them (src/device/vulkan.c). */
TEST_F(DeviceValidationOfThreads, DoesNotCrashWhenRecordingsWithLabelsAreDestroyed)
{
    const auto work = [this](struct rf_buffer *y) {
        struct rf_stream *stream = nullptr;
        ASSERT_RF_OK(rf_stream_create(device, "labelled", &stream));
        for (int round = 0; round < 20000; round++) {
            struct rf_recording *recording = nullptr;
            EXPECT_RF_OK(rf_record_begin(stream));
            rf_stream_push_label(stream, "fill");
            EXPECT_RF_OK(rf_stream_fill(stream, y, 0, words * 4, 0));
            rf_stream_pop_label(stream);
            EXPECT_RF_OK(rf_record_end(stream, &recording));
            rf_recording_destroy(recording);
        }
        rf_stream_destroy(stream);
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back(work, buffer());
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(rf_device_validation_messages(device), 0u);
}

TEST_F(DeviceValidation, DoesSpeakWhenThereIsSomethingToSay)
{
    /* A kernel that declares more push constants than its layout has: only the validation layer
     * objects. */
    struct rf_kernel_desc desc = {};
    desc.name = "mix without push constants";
    desc.spirv = mix_spv;
    desc.spirv_bytes = sizeof(mix_spv);
    desc.push_bytes = 4;
    struct rf_kernel *kernel = nullptr;
    rf_log_callback([](void *, int, const char *) {}, nullptr);
    EXPECT_RF_OK(rf_kernel_create(device, &desc, &kernel));
    rf_log_callback(nullptr, nullptr);
    EXPECT_GT(rf_device_validation_messages(device), 0u);
    rf_kernel_destroy(kernel);
}

} // namespace
