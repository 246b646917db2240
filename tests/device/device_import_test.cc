/* SPDX-License-Identifier: MIT
 *
 * Buffers in memory that the host has allocated: anonymous and shared memory, access by kernels,
 * and refusals.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "device_fixture.h"

namespace
{

class DeviceImport : public DeviceTest
{
  protected:
    void SetUp() override
    {
        DeviceTest::SetUp();
        if (!rf_device_get_info(device)->external_memory_host)
            GTEST_SKIP() << "this driver does not offer VK_EXT_external_memory_host";
        bytes = 4 * rf_device_get_info(device)->min_import_alignment;
        bytes = bytes < 65536 ? 65536 : bytes;
        memory = static_cast<uint32_t *>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(memory, MAP_FAILED);
    }
    void TearDown() override
    {
        DeviceTest::TearDown();
        if (memory)
            munmap(memory, bytes);
    }
    /* The kernel reads and writes it. */
    void use(struct rf_buffer *imported)
    {
        struct rf_buffer *x = buffer();
        struct rf_stream *stream = nullptr;
        for (uint32_t i = 0; i < words; i++)
            memory[i] = i;
        ASSERT_RF_OK(rf_stream_create(device, "import", &stream));
        ASSERT_RF_OK(launch(stream, imported, x, 5));
        ASSERT_RF_OK(rf_stream_copy(stream, {x, 0}, {imported, 0}, words * 4));
        EXPECT_RF_OK(rf_stream_wait(stream));
        rf_stream_destroy(stream);
        for (uint32_t i = 0; i < words; i++)
            ASSERT_EQ(memory[i], 3 * i + 5);
        EXPECT_EQ(read(x)[7], 26u);
    }
    uint32_t *memory = nullptr;
    uint64_t bytes = 0;
};

TEST_F(DeviceImport, KeepsItsContentsAndIsUsedInPlace)
{
    struct rf_buffer *imported = nullptr;
    struct rf_memory_stats before, after;
    memory[words] = 77;
    rf_device_memory(device, &before);
    ASSERT_RF_OK(rf_buffer_import(device, memory, bytes, &imported));
    rf_device_memory(device, &after);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(rf_buffer_map(imported), memory);
    EXPECT_EQ(rf_buffer_bytes(imported), bytes);
    EXPECT_EQ(rf_buffer_address(imported) % 256, 0u);
    use(imported);
    rf_buffer_destroy(imported);
    EXPECT_EQ(memory[words], 77u);
    EXPECT_EQ(memory[1], 8u) << "destroying a buffer leaves the memory alone";
}

TEST_F(DeviceImport, TakesMemoryThatProcessesShare)
{
    int fd = memfd_create("import", MFD_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    munmap(memory, bytes);
    memory =
        static_cast<uint32_t *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(memory, MAP_FAILED);
    struct rf_buffer *imported = nullptr;
    int rc = rf_buffer_import(device, memory, bytes, &imported);
    if (rc == RF_ENOTSUP)
        GTEST_SKIP() << last_message();
    ASSERT_RF_OK(rc);
    use(imported);
    uint32_t *other = static_cast<uint32_t *>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0));
    EXPECT_EQ(other[7], 26u);
    munmap(other, bytes);
    rf_buffer_destroy(imported);
    close(fd);
}

TEST_F(DeviceImport, RefusesWhatIsNotWholePagesAndSaysWhatWouldDo)
{
    struct rf_buffer *imported = nullptr;
    EXPECT_EQ(rf_buffer_import(device, memory + 1, bytes / 2, &imported), RF_EINVAL);
    EXPECT_NE(last_message().find("multiples of"), std::string::npos);
    EXPECT_EQ(rf_buffer_import(device, memory, bytes - 4, &imported), RF_EINVAL);
    EXPECT_EQ(rf_buffer_import(device, memory, 0, &imported), RF_EINVAL);
    EXPECT_EQ(rf_buffer_import(nullptr, memory, bytes, &imported), RF_EINVAL);
    EXPECT_EQ(rf_buffer_import(device, nullptr, bytes, &imported), RF_EINVAL);
    for (uint64_t nth = 1; nth < 3; nth++) {
        rf_alloc_fail_at(nth);
        int rc = rf_buffer_import(device, memory, bytes, &imported);
        rf_alloc_fail_at(0);
        if (rc == 0)
            break;
        EXPECT_EQ(rc, RF_ENOMEM);
        imported = nullptr;
    }
    rf_buffer_destroy(imported);
}

} // namespace
