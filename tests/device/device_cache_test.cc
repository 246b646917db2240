/* SPDX-License-Identifier: MIT
 *
 * The pipeline cache on disk: written, read, rebuilt if damaged, and no error if it is unavailable.
 */
#include "device_fixture.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

extern "C" {
#include "device/device.h"
}

namespace
{

namespace fs = std::filesystem;

class DeviceCache : public ::testing::Test
{
  protected:
    fs::path folder;
    std::string log;
    void SetUp() override
    {
        folder = fs::temp_directory_path() / ("rf_cache_test_" + std::to_string(getpid()));
        fs::remove_all(folder);
        setenv("RF_CACHE_DIR", (folder / "deep" / "er").c_str(), 1);
        setenv("RF_LOG", "device:1", 1);
        rf_log_callback([](void *user, int,
                           const char *line) { *(std::string *)user += std::string(line) + "\n"; },
                        &log);
    }
    void TearDown() override
    {
        rf_log_callback(nullptr, nullptr);
        unsetenv("RF_CACHE_DIR");
        unsetenv("RF_LOG");
        fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, ignored);
        fs::remove_all(folder);
    }
    std::error_code ignored;

    static void open_and_close()
    {
        struct rf_device *device = nullptr;
        struct rf_kernel *kernel = nullptr;
        struct rf_kernel_desc desc = {};
        desc.name = "mix";
        desc.spirv = mix_spv;
        desc.spirv_bytes = sizeof(mix_spv);
        desc.push_bytes = 24;
        ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &device));
        ASSERT_RF_OK(rf_kernel_create(device, &desc, &kernel));
        rf_kernel_destroy(kernel);
        rf_device_close(device);
    }
    std::vector<fs::path> files()
    {
        std::vector<fs::path> out;
        if (fs::exists(folder / "deep" / "er"))
            for (auto &entry : fs::directory_iterator(folder / "deep" / "er"))
                out.push_back(entry.path());
        return out;
    }
    static std::string content(const fs::path &path)
    {
        std::ifstream in(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }
};

TEST_F(DeviceCache, IsWrittenOnceAndReadWithoutComplaint)
{
    open_and_close();
    ASSERT_EQ(files().size(), 1u);
    std::string first = content(files()[0]);
    EXPECT_GT(first.size(), 40u);
    open_and_close();
    ASSERT_EQ(files().size(), 1u);
    EXPECT_EQ(content(files()[0]), first);
    EXPECT_EQ(log.find("ignored"), std::string::npos) << log;
}

TEST_F(DeviceCache, ADamagedFileIsNamedIgnoredAndRebuilt)
{
    open_and_close();
    ASSERT_EQ(files().size(), 1u);
    const std::string sound = content(files()[0]);
    struct Case {
        const char *why;
        std::string bytes;
    };
    std::string flipped = sound, shorter = sound.substr(0, sound.size() - 1),
                stranger = "something else entirely, but long enough to be read as a header....";
    flipped[flipped.size() - 3] = (char)(flipped[flipped.size() - 3] ^ 0x10);
    for (const Case &c :
         {Case{"checksum", flipped}, Case{"size", shorter}, Case{"not a pipeline cache", stranger},
          Case{"too short", "x"}, Case{"too short", ""}}) {
        std::ofstream(files()[0], std::ios::binary | std::ios::trunc) << c.bytes;
        log.clear();
        open_and_close();
        EXPECT_NE(log.find(c.why), std::string::npos) << c.why << ": " << log;
        ASSERT_EQ(files().size(), 1u);
        EXPECT_EQ(content(files()[0]).size(), sound.size()) << c.why;
        log.clear();
        open_and_close();
        EXPECT_EQ(log.find("ignored"), std::string::npos) << log;
    }
}

TEST_F(DeviceCache, APipeInItsPlaceIsIgnoredAndReplaced)
{
    open_and_close();
    ASSERT_EQ(files().size(), 1u);
    const fs::path file = files()[0];
    fs::remove(file);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    log.clear();
    open_and_close();
    EXPECT_NE(log.find("it is a pipe"), std::string::npos) << log;
    ASSERT_EQ(files().size(), 1u);
    EXPECT_TRUE(fs::is_regular_file(file));
}

TEST_F(DeviceCache, AFolderThatCannotBeMadeIsNoError)
{
    fs::create_directories(folder);
    std::ofstream(folder / "deep") << "a file where a folder should be";
    open_and_close();
    EXPECT_EQ(content(folder / "deep").substr(0, 6), "a file");
}

TEST_F(DeviceCache, SeveralAtOnceLeaveOneSoundFile)
{
    std::vector<std::thread> pool;
    for (int i = 0; i < 4; i++)
        pool.emplace_back(open_and_close);
    for (std::thread &thread : pool)
        thread.join();
    EXPECT_EQ(files().size(), 1u);
    log.clear();
    open_and_close();
    EXPECT_EQ(log.find("ignored"), std::string::npos) << log;
}

TEST_F(DeviceCache, RatesAreKeptForTheDeviceAndADamagedFileIsIgnored)
{
    struct rf_device *device = nullptr;
    struct rf_device_rates rates = {}, seen = {};
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &device));
    EXPECT_FALSE(rf_device_rates_load(device, &seen));
    rf_device_rates_note(&rates, RF_F32, 2.5e12);
    rf_device_rates_note(&rates, RF_F32, 1e12); // the higher one stays
    rf_device_rates_note(&rates, RF_BF16, 1.25e14);
    rates.bytes_per_s = 2e12;
    rates.launch_s = 2.5e-6;
    ASSERT_RF_OK(rf_device_rates_save(device, &rates));
    ASSERT_TRUE(rf_device_rates_load(device, &seen));
    EXPECT_EQ(rf_device_rates_of(&seen, RF_F32), 2.5e12);
    EXPECT_EQ(rf_device_rates_of(&seen, RF_F16), 0);
    EXPECT_EQ(rf_device_rates_of(&seen, RF_BF16), 1.25e14);
    EXPECT_EQ(seen.bytes_per_s, 2e12);
    EXPECT_EQ(seen.launch_s, 2.5e-6);
    ASSERT_EQ(files().size(), 1u);
    const fs::path path = files()[0];
    const std::string whole = content(path);
    const size_t f16 = whole.find("f16");
    for (const std::string &damaged :
         {whole.substr(0, whole.size() - 2), whole.substr(0, f16), std::string(), "x" + whole,
          whole.substr(0, f16) + "f16 nan\nbf16 1\nmemory 1\nlaunch 1\nend\n",
          whole.substr(0, f16) + "f16 -1\nbf16 1\nmemory 1\nlaunch 1\nend\n",
          whole.substr(0, f16) + "f16 1\nbf16 1\nend\n",
          whole.substr(0, f16) + "f16 1\nbf16 1\nmemory inf\nlaunch 1\nend\n",
          whole.substr(0, f16) + std::string(500, 'f')}) {
        std::ofstream(path, std::ios::binary) << damaged;
        log.clear();
        seen.products[0] = 7;
        EXPECT_FALSE(rf_device_rates_load(device, &seen)) << damaged;
        EXPECT_EQ(seen.products[0], 7) << damaged;
        EXPECT_NE(log.find("is ignored"), std::string::npos) << log;
    }
    rf_device_close(device);
}

/* Hosts share home folders: one CPU's rates must not be used for another. */
TEST_F(DeviceCache, CpuDevicesAreToldApartByProcessorVectorsAndLlvm)
{
    const std::string one = "processor\t: 0\nmodel name\t: A 2000\nstepping\t: 1\n"
                            "microcode\t: 0x1\ncpu MHz\t\t: 2000.1\nflags\t: fpu\n";
    const char *const name = "llvmpipe (LLVM 15.0.6, 256 bits)";
    const uint32_t hash = rf_cpu_hash(one.c_str(), name);
    std::string later = one, other = one;
    later.replace(later.find("2000.1"), 6, "1800.7");
    later.replace(later.find("0x1"), 3, "0x2");
    other.replace(other.find("A 2000"), 6, "B 3000");
    EXPECT_EQ(rf_cpu_hash(later.c_str(), name), hash);
    EXPECT_NE(rf_cpu_hash(other.c_str(), name), hash);
    EXPECT_NE(rf_cpu_hash((one + "processor\t: 1\n").c_str(), name), hash);
    EXPECT_NE(rf_cpu_hash(one.c_str(), "llvmpipe (LLVM 15.0.6, 512 bits)"), hash);
    EXPECT_NE(rf_cpu_hash(one.c_str(), "llvmpipe (LLVM 19.1.7, 256 bits)"), hash);
    /* An Arm machine, which has no model name. */
    EXPECT_NE(rf_cpu_hash("processor\t: 0\nCPU part\t: 0xd0c\n", name),
              rf_cpu_hash("processor\t: 0\nCPU part\t: 0xd49\n", name));

    struct rf_device *device = nullptr;
    char path[RF_CACHE_PATH_BYTES], suffix[16];
    ASSERT_RF_OK(rf_device_open(nullptr, nullptr, &device));
    ASSERT_TRUE(rf_device_cache_path(device, "rates", path, false));
    const uint32_t cpu = rf_driver_key_of(device).cpu;
    EXPECT_EQ(cpu != 0, rf_device_get_info(device)->kind == RF_DEVICE_CPU);
    snprintf(suffix, sizeof suffix, "-%08x.rates", cpu);
    EXPECT_EQ(strstr(path, suffix) != nullptr, cpu != 0) << path;
    struct rf_device_rates rates = {};
    ASSERT_RF_OK(rf_device_rates_save(device, &rates));
    EXPECT_TRUE(rf_device_rates_load(device, &rates));
    rf_device_close(device);
}

} // namespace
