/* SPDX-License-Identifier: MIT
 *
 * Kernels: specialization constants, subgroup sizes, refusals before a driver is called, and the
 * device's table.
 */
#include "device_fixture.h"
#include <atomic>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "constants_spv.h"
#include "small_float_spv.h"
#include "support/half.h"
#include "wide_spv.h"

extern "C" {
#include "base/small_float.h"
#include "device/glsl.h"
}

namespace
{

class DeviceKernel : public DeviceTest
{
  protected:
    struct rf_kernel_desc constants(const struct rf_spec *specs, uint32_t count)
    {
        struct rf_kernel_desc desc = {};
        desc.name = "constants";
        desc.spirv = constants_spv;
        desc.spirv_bytes = sizeof(constants_spv);
        desc.push_bytes = 8;
        desc.specs = specs;
        desc.spec_count = count;
        return desc;
    }
    std::vector<uint32_t> run(struct rf_kernel *kernel)
    {
        struct rf_buffer *out = buffer();
        struct rf_stream *stream = nullptr;
        uint64_t address = rf_buffer_address(out);
        const uint32_t groups[3] = {1, 1, 1};
        EXPECT_RF_OK(rf_stream_create(device, "s", &stream));
        EXPECT_RF_OK(rf_launch(stream, kernel, {&address, 8, groups, nullptr, 0}));
        EXPECT_RF_OK(rf_stream_wait(stream));
        rf_stream_destroy(stream);
        return read(out);
    }
};

TEST_F(DeviceKernel, SpecializationConstantsArriveById)
{
    const struct rf_spec specs[2] = {{7, 70}, {0, 100}};
    struct rf_kernel_desc desc = constants(specs, 2);
    struct rf_kernel *kernel = nullptr;
    ASSERT_RF_OK(rf_kernel_create(device, &desc, &kernel));
    std::vector<uint32_t> got = run(kernel);
    EXPECT_EQ(got[0], 100u);
    EXPECT_EQ(got[1], 70u);
    EXPECT_EQ(got[2], rf_device_get_info(device)->subgroup_size);
    rf_kernel_destroy(kernel);
}

/* shaders/small_float.h as GLSL and as C: all f16 and bf16 numbers, which are every code in their
 * low bytes, and f32 numbers between them. */
TEST_F(DeviceKernel, SmallFloatsHaveTheCodesAndValuesOfTheHost)
{
    std::vector<uint32_t> in;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t bits;
        const float half = oracle::from_half((uint16_t)h, false);
        std::memcpy(&bits, &half, sizeof(bits));
        in.insert(in.end(), {h << 16 | (h & 255), h << 16, bits, bits + 1, bits - 1});
    }
    struct rf_kernel_desc desc = {};
    desc.name = "small_float";
    desc.spirv = small_float_spv;
    desc.spirv_bytes = sizeof(small_float_spv);
    desc.push_bytes = 20;
    struct rf_kernel *kernel = nullptr;
    ASSERT_RF_OK(rf_kernel_create(device, &desc, &kernel));
    struct rf_buffer *from = buffer(4 * in.size()), *to = buffer(48 * in.size());
    ASSERT_RF_OK(rf_buffer_write(from, 0, in.data(), 4 * in.size()));
    struct {
        uint64_t in, out;
        uint32_t count;
    } push = {rf_buffer_address(from), rf_buffer_address(to), (uint32_t)in.size()};
    const uint32_t groups[3] = {(push.count + 63) / 64, 1, 1};
    struct rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(device, "s", &stream));
    ASSERT_RF_OK(rf_launch(stream, kernel, {&push, 20, groups, nullptr, 0}));
    ASSERT_RF_OK(rf_stream_wait(stream));
    rf_stream_destroy(stream);
    rf_kernel_destroy(kernel);
    const std::vector<uint32_t> got = read(to);
    for (size_t i = 0; i < in.size(); i++) {
        float x;
        std::memcpy(&x, &in[i], sizeof(x));
        for (int format = 0; format < RF_SMALL_FLOAT_COUNT; format++) {
            const uint32_t *mine = &got[12 * i + 3 * format];
            const float value = rf_small_float_value((rf_small_float)format, (uint8_t)in[i]);
            ASSERT_EQ(memcmp(mine, &value, 4), 0) << "code " << (in[i] & 255);
            for (int saturate = 0; saturate < 2; saturate++)
                for (int rounding = 0; rounding <= RF_ROUND_RANDOM; rounding++)
                    ASSERT_EQ(mine[1 + saturate] >> 8 * rounding & 255,
                              rf_small_float_code((rf_small_float)format, x, (rf_rounding)rounding,
                                                  saturate, in[i] * 2654435769u))
                        << x << ", format " << format << ", rounding " << rounding;
        }
    }
}

TEST_F(DeviceKernel, GlslTextIsCompiled)
{
    for (const char *text :
         {"layout(push_constant) uniform Push { Ints out_; };\n"
          "void main() { out_.at[gl_GlobalInvocationID.x] = 3 * int(gl_GlobalInvocationID.x); }",
          "#version 450\n"
          "#extension GL_EXT_buffer_reference : require\n"
          "layout(local_size_x = 4) in;\n"
          "layout(buffer_reference) buffer Words { int at[]; };\n"
          "layout(push_constant) uniform Push { Words out_; };\n"
          "void main() { out_.at[gl_GlobalInvocationID.x] = 3 * int(gl_GlobalInvocationID.x); }"}) {
        struct rf_kernel_desc desc = {};
        desc.name = "threes";
        desc.glsl = text;
        desc.push_bytes = 8;
        struct rf_kernel *kernel = nullptr;
        const int rc = rf_kernel_create(device, &desc, &kernel);
        if (rc == RF_ENOTSUP) // a machine without compilers
            GTEST_SKIP() << rf_last_error()->message;
        ASSERT_RF_OK(rc);
        std::vector<uint32_t> got = run(kernel);
        for (uint32_t i = 0; i < 4; i++)
            EXPECT_EQ(got[i], 3 * i);
        rf_kernel_destroy(kernel);
    }
}

TEST_F(DeviceKernel, GlslTextThatDoesNotCompileIsRefusedWithTheLine)
{
    struct rf_kernel_desc desc = {};
    struct rf_kernel *kernel = nullptr;
    desc.name = "wrong";
    desc.glsl = "void main()\n{\n    float x = y;\n}\n";
    const int rc = rf_kernel_create(device, &desc, &kernel);
    if (rc == RF_ENOTSUP)
        GTEST_SKIP() << rf_last_error()->message;
    EXPECT_EQ(rc, RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "kernel wrong does not compile: "), nullptr)
        << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, ":3: "), nullptr) << rf_last_error()->message;
    EXPECT_NE(strstr(rf_last_error()->message, "'y'"), nullptr) << rf_last_error()->message;
    desc.spirv = constants_spv;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
    EXPECT_NE(strstr(rf_last_error()->message, "not both"), nullptr);
    desc.name = nullptr;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
}

TEST(Glsl, WithoutACompilerTheMessageSaysWhatToInstall)
{
    const char *const libraries[] = {"libshaderc-that-nobody-has.so", nullptr};
    const rf_glsl_compilers none = {libraries, "a-compiler-that-nobody-has"};
    uint32_t *spirv = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(rf_glsl_compile_by(&none, "threes", "void main() {}", &spirv, &bytes), RF_ENOTSUP);
    EXPECT_NE(strstr(rf_last_error()->message, "glslang-tools"), nullptr)
        << rf_last_error()->message;
    EXPECT_EQ(spirv, nullptr);
}

TEST(Glsl, ACompilersEndIsKnownInAProgramThatIgnoresItsChildren)
{
    const char *const libraries[] = {"libshaderc-that-nobody-has.so", nullptr};
    const rf_glsl_compilers only = {libraries, "glslangValidator"};
    uint32_t *spirv = nullptr;
    size_t bytes = 0;
    const auto before = signal(SIGCHLD, SIG_IGN);
    const int good = rf_glsl_compile_by(&only, "empty", "void main() {}", &spirv, &bytes);
    const std::string said = rf_last_error()->message;
    const int bad = rf_glsl_compile_by(&only, "wrong", "void main() { y; }", &spirv, &bytes);
    signal(SIGCHLD, before);
    if (good == RF_ENOTSUP)
        GTEST_SKIP() << said;
    EXPECT_EQ(good, RF_OK) << said;
    EXPECT_EQ(bad, RF_EINVAL) << rf_last_error()->message;
    rf_free(spirv);
}

TEST_F(DeviceKernel, TheTableListsItsKernelsWithTheirConstants)
{
    const struct rf_spec specs[2] = {{7, 70}, {0, 100}};
    struct rf_kernel_desc desc = constants(specs, 2);
    struct rf_kernel *kernel = nullptr;
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &kernel));
    int seen = 0;
    auto visit = [](void *user, const struct rf_kernel_desc *found, const struct rf_kernel *) {
        EXPECT_STREQ(found->name, "constants");
        EXPECT_EQ(found->push_bytes, 8u);
        ASSERT_EQ(found->spec_count, 2u);
        EXPECT_EQ(found->specs[0].value, 70u);
        EXPECT_EQ(found->specs[1].value, 100u);
        ++*(int *)user;
    };
    rf_device_each_kernel(device, visit, &seen);
    EXPECT_EQ(seen, 1);
    struct rf_kernel_statistic statistic;
    EXPECT_EQ(rf_kernel_statistics(kernel, &statistic, 1),
              0u); // the device was not opened for them
}

TEST(DeviceStatistics, ADeviceOpenedForThemRunsWithOrWithoutThem)
{
    struct rf_device_opts opts = {};
    opts.kernel_statistics = true;
    struct rf_device *device = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, &opts, &device));
    struct rf_kernel_desc desc = {};
    desc.name = "mix";
    desc.spirv = mix_spv;
    desc.spirv_bytes = sizeof(mix_spv);
    desc.push_bytes = 24;
    struct rf_kernel *kernel = nullptr;
    ASSERT_RF_OK(rf_kernel_create(device, &desc, &kernel));
    struct rf_kernel_statistic list[RF_MAX_STATISTICS];
    const uint32_t count = rf_kernel_statistics(kernel, list, RF_MAX_STATISTICS);
    ASSERT_LE(count, (uint32_t)RF_MAX_STATISTICS);
    struct rf_kernel_figures figures;
    const bool known = rf_kernel_get_figures(kernel, &figures);
    if (count > 0) {
        EXPECT_STREQ(list[0].name, "Subgroup size");
        EXPECT_EQ(rf_kernel_statistics(kernel, list, 1), 1u);
        EXPECT_EQ((double)figures.subgroup, list[0].value);
    } else
        EXPECT_FALSE(known);
    rf_kernel_destroy(kernel);
    rf_device_close(device);
}

static struct rf_kernel_figures figures_of(std::vector<struct rf_kernel_statistic> list, bool known)
{
    struct rf_kernel_figures figures;
    EXPECT_EQ(rf_kernel_figures_of(list.data(), (uint32_t)list.size(), &figures), known);
    return figures;
}

static void expect_figures(const struct rf_kernel_figures &f, std::vector<int64_t> expected)
{
    EXPECT_EQ(std::vector<int64_t>({f.registers, f.spills, f.scratch_bytes, f.shared_bytes,
                                    f.subgroup, f.instructions, f.occupancy}),
              expected);
}

TEST(DeviceStatistics, FiguresOfEveryDriverAreFoundUnderItsOwnNames)
{
    expect_figures(figures_of({{"Subgroup size", 64},
                               {"SGPRs", 48},
                               {"VGPRs", 36},
                               {"Spilled SGPRs", 9},
                               {"Spilled VGPRs", 3},
                               {"Code size", 7400},
                               {"LDS size", 8704},
                               {"Scratch size", 16},
                               {"Subgroups per SIMD", 2},
                               {"Instructions", 1564},
                               {"Pre-Sched VGPRs", 33}},
                              true),
                   {36, 3, 16, 8704, 64, 1564, 2}); // RADV
    expect_figures(figures_of({{"Subgroup size", 16},
                               {"Instructions", 1488},
                               {"Spills", 7},
                               {"Fills", 9},
                               {"Scratch Memory Size", 1024},
                               {"GRF registers", 0},
                               {"Max live registers", 125},
                               {"Workgroup Memory Size", 8704}},
                              true),
                   {125, 7, 1024, 8704, 16, 1488, -1}); // ANV 26
    expect_figures(figures_of({{"Subgroup size", 8},
                               {"Instruction Count", 100},
                               {"Spill Count", 5},
                               {"Fill Count", 6},
                               {"Scratch Memory Size", 512}},
                              true),
                   {-1, 5, 512, -1, 8, 100, -1}); // ANV before it
    expect_figures(figures_of({{"Subgroup size", 32},
                               {"Instruction count", 1785},
                               {"Max warps/SM", 48},
                               {"Spills to memory", 4},
                               {"Spills to reg", 8},
                               {"Number of GPRs", 32},
                               {"SLM size", 64}},
                              true),
                   {32, 4, 64, -1, 32, 1785, 48}); // NVK
    expect_figures(figures_of({{"Subgroup size", 64},
                               {"Max Waves Per Core", 16},
                               {"Instruction Count", 1453},
                               {"Registers used", 12},
                               {"Half-registers used", 1},
                               {"STP Count", 2},
                               {"LDP Count", 3}},
                              true),
                   {12, 2, -1, -1, 64, 1453, 16}); // Turnip
}

TEST(DeviceStatistics, ADriverOfOtherNamesIsNotTakenForOneThatSpillsNothing)
{
    expect_figures(figures_of({}, false), {-1, -1, -1, -1, -1, -1, -1});
    expect_figures(figures_of({{"Subgroup size", 32}, {"Regs", 10}, {"spill bytes", 0}}, false),
                   {-1, -1, -1, -1, 32, -1, -1});
}

TEST_F(DeviceKernel, TheTableGivesTheSameKernelForTheSameConstants)
{
    const struct rf_spec one[1] = {{0, 5}}, other[1] = {{0, 6}};
    struct rf_kernel_desc desc = constants(one, 1);
    struct rf_kernel *a = nullptr, *b = nullptr, *c = nullptr;
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &a));
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &b));
    EXPECT_EQ(a, b);
    desc.specs = other;
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &c));
    EXPECT_NE(a, c);
    EXPECT_EQ(run(a)[0], 5u);
    EXPECT_EQ(run(c)[0], 6u);
}

TEST_F(DeviceKernel, TheTableGrowsAndKeepsAll)
{
    std::vector<struct rf_kernel *> kernels(150);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < kernels.size(); i++) {
            const struct rf_spec spec[1] = {{0, i}};
            struct rf_kernel_desc desc = constants(spec, 1);
            struct rf_kernel *kernel = nullptr;
            ASSERT_RF_OK(rf_device_kernel(device, &desc, &kernel));
            if (round == 0)
                kernels[i] = kernel;
            EXPECT_EQ(kernels[i], kernel);
        }
    }
}

TEST_F(DeviceKernel, ThreadsThatAskAtOnceGetOneKernel)
{
    std::vector<struct rf_kernel *> got(8, nullptr);
    std::vector<std::thread> pool;
    const struct rf_spec spec[1] = {{0, 4711}};
    struct rf_kernel_desc desc = constants(spec, 1);
    std::atomic<int> failures{0};
    for (size_t t = 0; t < got.size(); t++)
        pool.emplace_back([&, t] { failures += rf_device_kernel(device, &desc, &got[t]) != 0; });
    for (std::thread &thread : pool)
        thread.join();
    EXPECT_EQ(failures, 0);
    for (struct rf_kernel *kernel : got)
        EXPECT_EQ(kernel, got[0]);
}

TEST_F(DeviceKernel, AMissingCapabilityIsNamedInsteadOfCrashingTheDriver)
{
    struct rf_kernel_desc desc = {};
    desc.name = "wide";
    desc.spirv = wide_spv;
    desc.spirv_bytes = sizeof(wide_spv);
    desc.push_bytes = 8;
    struct rf_kernel *kernel = nullptr;
    int rc = rf_kernel_create(device, &desc, &kernel);
    if (rf_device_get_info(device)->int64) {
        ASSERT_RF_OK(rc);
        std::vector<uint32_t> got = run(kernel);
        uint64_t want = 0x123456789abcdef0u * 3, value;
        memcpy(&value, got.data(), 8);
        EXPECT_EQ(value, want);
        rf_kernel_destroy(kernel);
    } else {
        EXPECT_EQ(rc, RF_ENOTSUP);
        EXPECT_NE(last_message().find("Int64"), std::string::npos) << last_message();
    }
}

TEST_F(DeviceKernel, CapabilitiesThatNobodyEnablesAreRefused)
{
    std::vector<uint32_t> words(mix_spv, mix_spv + sizeof(mix_spv) / 4);
    ASSERT_EQ(words[5], 2u << 16 | 17); /* OpCapability */
    words[6] = 2;                       /* Geometry */
    struct rf_kernel_desc desc = {};
    desc.name = "odd";
    desc.spirv = words.data();
    desc.spirv_bytes = words.size() * 4;
    desc.push_bytes = sizeof(Push);
    struct rf_kernel *kernel = nullptr;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_ENOTSUP);
    EXPECT_NE(last_message().find("odd"), std::string::npos) << last_message();
    EXPECT_EQ(rf_device_kernel(device, &desc, &kernel), RF_ENOTSUP);
    words[6] = 1; /* and compiling can be retried after a failure */
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &kernel));
}

TEST_F(DeviceKernel, DamagedModulesAndTooMuchPushAreRefused)
{
    std::vector<uint32_t> words(mix_spv, mix_spv + sizeof(mix_spv) / 4);
    struct rf_kernel_desc desc = {};
    struct rf_kernel *kernel = nullptr;
    desc.name = "bad";
    desc.spirv = words.data();
    desc.spirv_bytes = words.size() * 4 - 1;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
    desc.spirv_bytes = 8;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
    desc.spirv_bytes = words.size() * 4;
    words[0] = 0;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
    words[0] = 0x07230203;
    desc.push_bytes = rf_device_get_info(device)->max_push_bytes + 4;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_EINVAL);
}

TEST_F(DeviceKernel, AnImpossibleSubgroupSizeIsRefusedAndTheOwnOneAccepted)
{
    struct rf_kernel_desc desc = constants(nullptr, 0);
    struct rf_kernel *kernel = nullptr;
    desc.subgroup_size = 3;
    EXPECT_EQ(rf_kernel_create(device, &desc, &kernel), RF_ENOTSUP);
    desc.subgroup_size = rf_device_get_info(device)->subgroup_size;
    ASSERT_RF_OK(rf_kernel_create(device, &desc, &kernel));
    EXPECT_EQ(run(kernel)[2], desc.subgroup_size);
    rf_kernel_destroy(kernel);
}

/* ---- devices of one process share compiled kernels, on CPUs
 * ------------------------------
 */

static int kernels_of(struct rf_device *device)
{
    int count = 0;
    rf_device_each_kernel(
        device,
        [](void *user, const struct rf_kernel_desc *, const struct rf_kernel *) { ++*(int *)user; },
        &count);
    return count;
}

TEST_F(DeviceKernel, TwoDevicesOfACpuHaveAKernelOnceAndOfAGpuEachItsOwn)
{
    const struct rf_spec spec[1] = {{0, 31}};
    struct rf_kernel_desc desc = constants(spec, 1);
    struct rf_kernel *first = nullptr, *second = nullptr;
    struct rf_device *other = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, &opts, &other));
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &first));
    const bool cpu = rf_device_get_info(device)->kind == RF_DEVICE_CPU;
    const bool shared = cpu && !getenv("RF_VALIDATION");
    EXPECT_EQ(kernels_of(other), shared ? 1 : 0);
    ASSERT_RF_OK(rf_device_kernel(other, &desc, &second));
    EXPECT_EQ(first == second, shared);
    /* The kernel outlives the device that compiled it. */
    rf_device_close(other);
    EXPECT_EQ(run(first)[0], 31u);
}

TEST_F(DeviceKernel, DevicesThatShareKernelsCountMemoryAndFailAlone)
{
    struct rf_device *other = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, &opts, &other));
    struct rf_buffer *memory = nullptr;
    struct rf_memory_stats here, there;
    rf_device_memory(device, &here);
    ASSERT_RF_OK(rf_buffer_create(other, 4096, RF_MEMORY_DEVICE, RF_CATEGORY_PARAMS, &memory));
    rf_device_memory(other, &there);
    EXPECT_EQ(there.now[RF_CATEGORY_PARAMS], 4096u);
    rf_device_memory(device, &there);
    EXPECT_EQ(there.now[RF_CATEGORY_PARAMS], here.now[RF_CATEGORY_PARAMS]);
    struct rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(other, "fails", &stream));
    rf_device_fail_next_submit(other);
    EXPECT_RF_OK(rf_stream_fill(stream, memory, 0, 4096, 0));
    EXPECT_EQ(rf_stream_wait(stream), RF_EDEVICE);
    rf_stream_destroy(stream);
    rf_buffer_destroy(memory);
    rf_device_close(other);
    const struct rf_spec spec[1] = {{0, 32}};
    struct rf_kernel_desc desc = constants(spec, 1);
    struct rf_kernel *kernel = nullptr;
    ASSERT_RF_OK(rf_device_kernel(device, &desc, &kernel));
    EXPECT_EQ(run(kernel)[0], 32u);
}

/* A user's kernel must notify the recordings of its owner when it is destroyed. */
TEST_F(DeviceKernel, AKernelOfTheUsersBelongsToOneDevice)
{
    struct rf_device *other = nullptr;
    ASSERT_RF_OK(rf_device_open(nullptr, &opts, &other));
    struct rf_stream *stream = nullptr;
    ASSERT_RF_OK(rf_stream_create(other, "other", &stream));
    Push push = {};
    const uint32_t groups[3] = {1, 1, 1};
    EXPECT_EQ(rf_launch(stream, mix, {&push, sizeof(push), groups, nullptr, 0}), RF_EINVAL);
    EXPECT_NE(last_message().find("different devices"), std::string::npos) << last_message();
    rf_stream_destroy(stream);
    rf_device_close(other);
}

/* A forked process does not have the driver's threads. */
TEST_F(DeviceKernel, AForkedProcessOpensADeviceOfItsOwn)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(60);
        struct rf_device *own = nullptr;
        struct rf_stream *stream = nullptr;
        struct rf_buffer *memory = nullptr;
        const bool ok =
            rf_device_open(nullptr, &opts, &own) == 0 && kernels_of(own) == 0 &&
            rf_stream_create(own, "own", &stream) == 0 &&
            rf_buffer_create(own, 64, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER, &memory) == 0 &&
            rf_stream_fill(stream, memory, 0, 64, 7) == 0 && rf_stream_wait(stream) == 0;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

} // namespace
