/* SPDX-License-Identifier: MIT
 *
 * Selection of a device, and the message if there is none.
 */
#include "device_fixture.h"
#include <cstdlib>
#include <string>

extern "C" {
#include "matrix_reason.h"
}

namespace
{

struct SavedEnv {
    std::string name, value;
    bool set;
    SavedEnv(const char *variable, const char *now) : name(variable)
    {
        const char *old = getenv(variable);
        set = old != nullptr;
        value = old ? old : "";
        setenv(variable, now, 1);
    }
    ~SavedEnv()
    {
        if (set)
            setenv(name.c_str(), value.c_str(), 1);
        else
            unsetenv(name.c_str());
    }
};

TEST(DeviceOpen, ListCountsAllDevicesEvenWithoutRoomForThem)
{
    uint32_t none = 0, all = 0;
    ASSERT_RF_OK(rf_device_list(nullptr, 0, &none));
    struct rf_device_info infos[64];
    ASSERT_RF_OK(rf_device_list(infos, 64, &all));
    EXPECT_EQ(none, all);
    ASSERT_GE(all, 1u);
    bool usable = false;
    for (uint32_t i = 0; i < all; i++) {
        EXPECT_EQ(infos[i].index, i);
        EXPECT_NE(infos[i].name[0], '\0');
        EXPECT_EQ(infos[i].usable, infos[i].reason[0] == '\0');
        usable |= infos[i].usable;
    }
    EXPECT_TRUE(usable);
}

TEST(DeviceOpen, RecordIsPlausible)
{
    struct rf_device *device = nullptr;
    ASSERT_RF_OK(rf_device_open("best", nullptr, &device));
    const struct rf_device_info *info = rf_device_get_info(device);
    EXPECT_TRUE(info->usable);
    EXPECT_GE(info->subgroup_size, 1u);
    EXPECT_GE(info->max_push_bytes, 128u);
    EXPECT_GE(info->max_workgroup_count[0], 65535u);
    EXPECT_GE(info->max_workgroup_invocations, 128u);
    EXPECT_GT(info->max_allocation_bytes, 0u);
    EXPECT_LE(info->max_allocation_bytes, info->heap_bytes);
    EXPECT_NE(info->driver[0], '\0');
    rf_device_close(device);
}

// The version number is 0.0.1 in all releases, so the text is read.
TEST(DeviceOpen, WholeSubgroupsWriteOnlyWhereThatIsQuicker)
{
    rf_device *device = nullptr;
    ASSERT_EQ(rf_device_open(nullptr, nullptr, &device), 0) << rf_last_error()->message;
    const std::string driver = rf_device_get_info(device)->driver;
    const bool old = driver.rfind("llvmpipe, Mesa 22.", 0) == 0 ||
                     driver.rfind("llvmpipe, Mesa 23.", 0) == 0 ||
                     driver.rfind("llvmpipe, Mesa 24.", 0) == 0;
    rf_view view = {};
    EXPECT_EQ(rf_buffer_create(device, 4096, RF_MEMORY_DEVICE, RF_CATEGORY_SCRATCH, &view.buffer),
              0);
    view.bytes = 4096;
    EXPECT_EQ(rf_view_writable(&view) > 0, old) << driver;
    rf_buffer_destroy(view.buffer);
    rf_device_close(device);
}

TEST(DeviceOpen, UnknownIndexNamesWhatIsThere)
{
    struct rf_device *device = nullptr;
    struct rf_device_info info;
    uint32_t count;
    ASSERT_RF_OK(rf_device_list(&info, 1, &count));
    EXPECT_EQ(rf_device_open("77", nullptr, &device), RF_ENODEV);
    EXPECT_NE(last_message().find("\"77\""), std::string::npos) << last_message();
    EXPECT_NE(last_message().find(info.name), std::string::npos) << last_message();
    EXPECT_EQ(device, nullptr);
}

TEST(DeviceOpen, PartOfANameIsEnoughInAnyCase)
{
    struct rf_device_info info;
    uint32_t count;
    ASSERT_RF_OK(rf_device_list(&info, 1, &count));
    std::string part(info.name, 4);
    for (char &c : part)
        c = (char)toupper(c);
    struct rf_device *device = nullptr;
    ASSERT_RF_OK(rf_device_open(part.c_str(), nullptr, &device));
    rf_device_close(device);
    device = nullptr;
    EXPECT_EQ(rf_device_open("no such device", nullptr, &device), RF_ENODEV);
}

TEST(DeviceOpen, EnvironmentChoosesWhenTheCallDoesNot)
{
    struct rf_device *device = nullptr;
    SavedEnv env("RF_DEVICE", "no such device");
    EXPECT_EQ(rf_device_open(nullptr, nullptr, &device), RF_ENODEV);
    ASSERT_RF_OK(rf_device_open("best", nullptr, &device));
    rf_device_close(device);
}

TEST(DeviceOpen, NoDriverSaysWhatToInstall)
{
    SavedEnv files("VK_DRIVER_FILES", "/nonexistent/icd.json");
    SavedEnv old("VK_ICD_FILENAMES", "/nonexistent/icd.json");
    struct rf_device *device = nullptr;
    EXPECT_EQ(rf_device_open(nullptr, nullptr, &device), RF_ENODEV);
    EXPECT_NE(last_message().find("mesa-vulkan-drivers"), std::string::npos) << last_message();
    uint32_t count;
    EXPECT_EQ(rf_device_list(nullptr, 0, &count), RF_ENODEV);
}

TEST(DeviceOpen, EveryFailedAllocationIsAnErrorAndNothingLeaks)
{
    for (uint64_t nth = 1; nth < 200; nth++) {
        struct rf_device *device = nullptr;
        rf_alloc_fail_at(nth);
        int rc = rf_device_open(nullptr, nullptr, &device);
        uint64_t made = rf_alloc_fail_at(0);
        if (rc == 0) {
            rf_device_close(device);
            if (made < nth)
                return;
            continue; /* a missing cache entry is no error */
        }
        EXPECT_EQ(rc, RF_ENOMEM) << nth << ": " << last_message();
    }
    FAIL() << "opening a device makes more than 200 allocations";
}

class TwoDevices : public DeviceTest
{
};

TEST_F(TwoDevices, InOneProcessDoNotMix)
{
    struct rf_device *other = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &other));
    struct rf_buffer *theirs = nullptr, *mine = buffer();
    ASSERT_RF_OK(rf_buffer_create(other, words * 4, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &theirs));
    struct rf_stream *stream = nullptr, *their_stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "mine", &stream));
    ASSERT_RF_OK(rf_stream_create(other, "theirs", &their_stream));
    EXPECT_EQ(rf_stream_copy(stream, {mine, 0}, {theirs, 0}, 4), RF_EINVAL);
    EXPECT_EQ(launch(their_stream, theirs, theirs, 1), RF_EINVAL); /* the kernel is of `device` */
    ASSERT_RF_OK(rf_stream_fill(their_stream, theirs, 0, words * 4, 7));
    struct rf_point filled;
    ASSERT_RF_OK(rf_stream_submit(their_stream, &filled));
    /* A stream may wait for work of the other device. */
    ASSERT_RF_OK(rf_stream_after(stream, filled));
    ASSERT_RF_OK(rf_stream_fill(stream, mine, 0, words * 4, 8));
    ASSERT_RF_OK(rf_stream_wait(stream));
    EXPECT_TRUE(rf_point_reached(filled));
    uint32_t word = 0;
    ASSERT_RF_OK(rf_buffer_read(theirs, 0, &word, 4));
    EXPECT_EQ(word, 7u);
    EXPECT_EQ(read(mine)[words - 1], 8u);
    rf_stream_destroy(stream);
    rf_stream_destroy(their_stream);
    rf_buffer_destroy(theirs);
    rf_device_close(other);
}

TEST_F(TwoDevices, AHostTimelineOfOneReleasesAStreamOfTheOther)
{
    struct rf_device *other = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &other));
    struct rf_timeline *timeline = nullptr;
    ASSERT_RF_OK(rf_timeline_create(other, &timeline));
    struct rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "waits", &stream));
    struct rf_buffer *y = buffer();
    struct rf_point done;
    ASSERT_RF_OK(rf_stream_after(stream, {timeline, 5}));
    ASSERT_RF_OK(rf_stream_fill(stream, y, 0, words * 4, 9));
    ASSERT_RF_OK(rf_stream_submit(stream, &done));
    EXPECT_FALSE(rf_point_reached(done));
    ASSERT_RF_OK(rf_timeline_signal(timeline, 5));
    ASSERT_RF_OK(rf_point_wait(done, UINT64_MAX));
    EXPECT_EQ(read(y)[0], 9u);
    rf_stream_destroy(stream);
    rf_timeline_destroy(timeline);
    rf_device_close(other);
}

/* An extension that is offered without its feature is not reported as "not offered". */
TEST(DeviceReasons, AnExtensionWithoutItsFeatureIsToldFromNone)
{
    const struct {
        offered driver;
        const char *matrix, *workgroups;
    } rows[] = {
        {{false, false, false, 0},
         "its driver does not offer VK_KHR_cooperative_matrix",
         "its driver does not offer VK_KHR_cooperative_matrix"},
        {{true, false, true, 4},
         "its driver offers VK_KHR_cooperative_matrix without its feature cooperativeMatrix",
         "its driver offers VK_KHR_cooperative_matrix without its feature cooperativeMatrix"},
        {{true, true, false, 0}, "", "its driver does not offer VK_NV_cooperative_matrix2"},
        {{true, true, true, 2},
         "",
         "its driver offers VK_NV_cooperative_matrix2 without its feature "
         "cooperativeMatrixPerElementOperations"},
        {{true, true, true, 4}, "", ""},
    };
    for (const auto &row : rows) {
        struct rf_device_info info;
        matrix_described(&row.driver, &info);
        EXPECT_STREQ(info.matrix_reason, row.matrix);
        EXPECT_STREQ(info.workgroup_reason, row.workgroups);
        EXPECT_EQ(info.cooperative_matrix, row.matrix[0] == 0);
        EXPECT_EQ(info.workgroup_matrix, row.workgroups[0] == 0);
    }
}

TEST(DeviceReasons, EveryDeviceSaysWhyItHasNot)
{
    struct rf_device_info infos[8];
    uint32_t count = 0;
    ASSERT_RF_OK(rf_device_list(infos, 8, &count));
    for (uint32_t i = 0; i < count && i < 8; i++) {
        EXPECT_EQ(infos[i].bfloat16, infos[i].bfloat16_reason[0] == 0);
        EXPECT_EQ(infos[i].dma_buf, infos[i].dma_buf_reason[0] == 0);
        EXPECT_EQ(infos[i].workgroup_matrix, infos[i].workgroup_reason[0] == 0);
    }
}

} // namespace
