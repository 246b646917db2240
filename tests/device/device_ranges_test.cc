/* SPDX-License-Identifier: MIT
 *
 * RF_CHECK_RANGES: a launch that accesses undeclared memory is an error that names it, and a launch
 * that keeps to its ranges runs once. ops/ranges_test.cc tests the library's launchers.
 */
#include "device_fixture.h"
#include <cstdlib>

namespace
{

class DeviceRanges : public DeviceTest
{
  protected:
    struct rf_stream *stream = nullptr;
    struct rf_buffer *x = nullptr, *y = nullptr;
    static constexpr uint64_t bytes = words * 4;

    void SetUp() override
    {
        const bool mapped = is_mapped();
        setenv("RF_CHECK_RANGES", mapped ? "1" : "0", 1);
        DeviceTest::SetUp();
        unsetenv("RF_CHECK_RANGES");
        if (!mapped)
            GTEST_SKIP() << "the host cannot map this device's memory";
        ASSERT_RF_OK(rf_stream_create(device, "checked", &stream));
        y = buffer();
        x = buffer();
        std::vector<uint32_t> ones(words, 1);
        ASSERT_RF_OK(rf_buffer_write(x, 0, ones.data(), bytes));
        ASSERT_RF_OK(rf_buffer_write(y, 0, ones.data(), bytes));
    }
    void TearDown() override
    {
        rf_stream_destroy(stream);
        DeviceTest::TearDown();
    }
    static bool is_mapped()
    {
        struct rf_device *probe = nullptr;
        EXPECT_RF_OK(rf_device_open(nullptr, nullptr, &probe));
        const bool mapped = probe && rf_device_get_info(probe)->host_visible;
        rf_device_close(probe);
        return mapped;
    }
    /* y = y * 3 + x + 1 of all words, with these declared ranges. */
    int declare(std::vector<struct rf_range> ranges)
    {
        const Push push = {rf_buffer_address(y), rf_buffer_address(x), words, 1};
        const uint32_t groups[3] = {words / 64, 1, 1};
        return rf_launch(stream, mix,
                         {&push, sizeof(push), groups, ranges.data(), (uint32_t)ranges.size()});
    }
    struct rf_range of(struct rf_buffer *b, uint64_t offset, uint64_t count, bool write)
    {
        return {rf_buffer_address(b) + offset, count, write};
    }
    void expect_error(int rc, const char *text)
    {
        EXPECT_EQ(rc, RF_EDEVICE);
        EXPECT_EQ(last_message(), text);
        /* The launch has still run, once and on the real memory. */
        EXPECT_EQ(read(y), std::vector<uint32_t>(words, 5));
        EXPECT_EQ(read(x), std::vector<uint32_t>(words, 1));
    }
};

TEST_F(DeviceRanges, ALaunchThatKeepsToThemHasRunOnce)
{
    ASSERT_RF_OK(declare({of(x, 0, bytes, false), of(y, 0, bytes, true)}));
    ASSERT_RF_OK(declare({of(y, 0, 512, true), of(x, 0, bytes, false), of(y, 512, 512, true)}));
    ASSERT_RF_OK(declare({})); /* everything */
    EXPECT_EQ(read(y), std::vector<uint32_t>(words, 53));
    EXPECT_EQ(read(x), std::vector<uint32_t>(words, 1));
}

TEST_F(DeviceRanges, AnUndeclaredWriteIsAnErrorThatNamesKernelAndPlace)
{
    expect_error(declare({of(x, 0, bytes, false), of(y, 0, 512, true)}),
                 "stream checked: mix writes byte 512 of a buffer of 1024 bytes (other), which "
                 "none of its written ranges has; declare it: the nearest is range 1 of 2 (512 "
                 "bytes, written), which ends 1 bytes before it");
}

TEST_F(DeviceRanges, AWriteToWhatIsDeclaredAsReadIsAnError)
{
    expect_error(declare({of(x, 0, bytes, false), of(y, 0, bytes, false), of(y, 0, 512, true)}),
                 "stream checked: mix writes byte 512 of a buffer of 1024 bytes (other), which "
                 "none of its written ranges has; declare it: the nearest is range 1 of 3 (1024 "
                 "bytes, read), which begins 512 bytes before it");
}

TEST_F(DeviceRanges, AnUndeclaredReadIsAnErrorThatNamesKernelAndPlace)
{
    expect_error(declare({of(x, 0, 100, false), of(x, 104, 920, false), of(y, 0, bytes, true)}),
                 "stream checked: mix reads byte 100 of a buffer of 1024 bytes (other), which "
                 "none of its ranges has; declare it: the nearest is range 0 of 3 (100 bytes, "
                 "read), which ends 1 bytes before it");
}

TEST_F(DeviceRanges, AWriteOfWhatIsThereAlreadyIsNoticed)
{
    std::vector<uint32_t> zeros(words, 0);
    const Push push = {rf_buffer_address(y), rf_buffer_address(x), words, 0};
    const uint32_t groups[3] = {words / 64, 1, 1};
    const struct rf_range range = of(x, 0, bytes, false);
    ASSERT_RF_OK(rf_buffer_write(x, 0, zeros.data(), bytes));
    ASSERT_RF_OK(rf_buffer_write(y, 0, zeros.data(), bytes));
    EXPECT_EQ(rf_launch(stream, mix, {&push, sizeof(push), groups, &range, 1}), RF_EDEVICE);
    EXPECT_NE(last_message().find("mix writes byte 0 "), std::string::npos) << last_message();
}

TEST_F(DeviceRanges, CopiesAndFillsRunInTheOrderOfTheirCalls)
{
    ASSERT_RF_OK(rf_stream_fill(stream, y, 0, bytes, 7));
    ASSERT_RF_OK(declare({of(x, 0, bytes, false), of(y, 0, bytes, true)}));
    ASSERT_RF_OK(rf_stream_copy(stream, {x, 0}, {y, 0}, bytes));
    EXPECT_EQ(read(x), std::vector<uint32_t>(words, 23));
}

TEST_F(DeviceRanges, NothingIsRecordedToBeReplayed)
{
    EXPECT_TRUE(rf_device_checks_ranges(device));
    EXPECT_EQ(rf_record_begin(stream), RF_ENOTSUP);
    EXPECT_NE(last_message().find("RF_CHECK_RANGES"), std::string::npos) << last_message();
}

TEST(DeviceRangesOpen, IsRefusedWhereMemoryCannotBeMapped)
{
    struct rf_device *device = nullptr;
    struct rf_device_opts opts = {};
    opts.hide_host_memory = true;
    setenv("RF_CHECK_RANGES", "1", 1);
    EXPECT_EQ(rf_device_open(nullptr, &opts, &device), RF_ENOTSUP);
    unsetenv("RF_CHECK_RANGES");
    EXPECT_NE(last_message().find("RF_CHECK_RANGES"), std::string::npos) << last_message();
    EXPECT_EQ(device, nullptr);
}

} // namespace
