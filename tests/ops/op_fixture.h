/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the kernels: one device with the barrier checker on, tensors between guard
 * words that are verified at the end of each test, and comparisons with fp64 values.
 */
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <ringforge/ops.h>

#include "support/calls.h"
#include "support/half.h"

extern "C" {
#include "device/device.h"
}

#define EXPECT_OK(call) EXPECT_EQ(call, RF_OK) << rf_last_error()->message
#define ASSERT_OK(call) ASSERT_EQ(call, RF_OK) << rf_last_error()->message
/* The call fails with this status, and its message contains the text. */
#define EXPECT_FAILS(status, text, call)                                                           \
    do {                                                                                           \
        EXPECT_EQ(call, status);                                                                   \
        EXPECT_NE(std::string(rf_last_error()->message).find(text), std::string::npos)             \
            << "message: " << rf_last_error()->message;                                            \
    } while (0)

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int32_t>;

inline uint32_t bits_of(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
}
inline float float_of(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The types that kernels store, each with a test of its own: TEST_P of a suite made by ALL_TYPES.
 */
inline const rf_dtype float_types[] = {RF_F32, RF_F16, RF_BF16};
struct TypeParam {
    rf_dtype type;
    bool teams; /* the kernels for GPUs, in which a team of lanes processes a row, also on a CPU
                 * device */
    TypeParam(rf_dtype type, bool teams = false) : type(type), teams(teams)
    {
    }
    operator rf_dtype() const
    {
        return type;
    }
    std::string name() const
    {
        return rf_dtype_name(type);
    }
};
inline const TypeParam types_of_lanes[] = {RF_F32, RF_F16, RF_BF16};
inline const TypeParam types_of_teams[] = {{RF_F32, true}, {RF_F16, true}, {RF_BF16, true}};
#define ALL_TYPES(suite)                                                                           \
    INSTANTIATE_TEST_SUITE_P(Type, suite, ::testing::ValuesIn(types_of_lanes),                     \
                             [](const auto &info) { return info.param.name(); })
/* For suites of TypedOpTest. */
#define ALL_TYPES_AND_TEAMS(suite)                                                                 \
    ALL_TYPES(suite);                                                                              \
    INSTANTIATE_TEST_SUITE_P(Teams, suite, ::testing::ValuesIn(types_of_teams),                    \
                             [](const auto &info) { return info.param.name(); })
/* Relative distance of neighbours: one rounding to the type costs at most half of it. */
inline double step_of(rf_dtype type)
{
    return type == RF_F16 ? 0x1p-10 : type == RF_BF16 ? 0x1p-7 : 0x1p-23;
}

/* The table of places of n elements from `first` on: rf_optimizer_part.places. */
inline Ints place_table(const std::vector<rf_place_run> &runs, uint64_t first, int64_t n)
{
    const size_t blocks = (size_t)(n + 63) / 64, begin = 2 * blocks;
    Ints table(begin + runs.size() * 4);
    for (size_t block = 0; block < blocks; block++) {
        size_t run = 0;
        while (runs[run].end <= first + 64 * block)
            run++;
        table[2 * block] = (int32_t)(begin + 4 * run - 2 * block);
        table[2 * block + 1] = (int32_t)(first / 64 + block);
    }
    memcpy(table.data() + begin, runs.data(), runs.size() * sizeof(rf_place_run));
    return table;
}

class OpTest : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        /* On CPU drivers open devices share their compiled kernels: this one keeps those of a suite
         * for the suites after it. */
        static rf_device *keeper = nullptr;
        struct rf_device_opts opts = {};
        opts.check_barriers = true;
        ASSERT_OK(rf_device_open(nullptr, &opts, &device));
        if (!keeper && rf_device_get_info(device)->kind == RF_DEVICE_CPU) {
            ASSERT_OK(rf_device_open(nullptr, &opts, &keeper));
        }
        ASSERT_OK(rf_stream_create(device, "ops", &stream));
    }
    static void TearDownTestSuite()
    {
        rf_stream_destroy(stream);
        rf_device_close(device);
        stream = nullptr;
        device = nullptr;
    }
    void SetUp() override
    {
        ASSERT_NE(stream, nullptr);
    }
    void TearDown() override
    {
        EXPECT_OK(rf_stream_wait(stream)); /* recorded commands still need the tensors */
        for (const Owned &owned : all) {
            std::vector<unsigned char> bytes(owned.bytes);
            EXPECT_OK(rf_buffer_read(owned.buffer, 0, bytes.data(), bytes.size()));
            for (size_t i = 0; i < bytes.size(); i++) {
                bool inside = i >= owned.first && i < owned.first + owned.count;
                ASSERT_TRUE(inside || bytes[i] == guard(i)) << "a kernel wrote outside its tensor";
            }
            rf_buffer_destroy(owned.buffer);
        }
        all.clear();
        if (device)
            rf_device_force_teams(device, false);
    }

    /* A tensor that starts `shift` elements after a multiple of 256 bytes. */
    rf_tensor words(rf_shape shape, rf_dtype dtype, const void *data, int shift)
    {
        rf_tensor tensor = {};
        size_t element = rf_dtype_bytes(dtype), count = (size_t)rf_shape_count(shape);
        Owned owned = {nullptr, 256 + element * shift, element * count, 0};
        owned.bytes = (owned.first + owned.count + 256 + 3) / 4 * 4;
        std::vector<unsigned char> fill(owned.bytes);
        for (size_t i = 0; i < fill.size(); i++)
            fill[i] = guard(i);
        EXPECT_OK(rf_buffer_create(device, owned.bytes, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                   &owned.buffer));
        if (count)
            std::memcpy(&fill[owned.first], data, owned.count);
        EXPECT_OK(rf_buffer_write(owned.buffer, 0, fill.data(), fill.size()));
        EXPECT_OK(rf_tensor_view(owned.buffer, owned.first, shape, dtype, &tensor));
        all.push_back(owned);
        return tensor;
    }
    /* The values rounded to f32, f16 or bf16. */
    static Floats rounded_to(rf_dtype dtype, const Floats &data)
    {
        bool bf16 = dtype == RF_BF16;
        return dtype == RF_F32 ? data : oracle::from_half(oracle::to_half(data, bf16), bf16);
    }
    /* A tensor of f32, f16 or bf16. */
    rf_tensor typed(rf_shape shape, rf_dtype dtype, const Floats &data, int shift = 0)
    {
        EXPECT_EQ((int64_t)data.size(), rf_shape_count(shape));
        if (dtype == RF_F32)
            return words(shape, dtype, data.data(), shift);
        return words(shape, dtype, oracle::to_half(data, dtype == RF_BF16).data(), shift);
    }
    rf_tensor typed_blank(rf_shape shape, rf_dtype dtype, int shift = 0)
    {
        return typed(shape, dtype, Floats(rf_shape_count(shape), -12345.0f), shift);
    }
    rf_tensor f32(rf_shape shape, const Floats &data, int shift = 0)
    {
        EXPECT_EQ((int64_t)data.size(), rf_shape_count(shape));
        return words(shape, RF_F32, data.data(), shift);
    }
    rf_tensor i32(rf_shape shape, const Ints &data, int shift = 0)
    {
        EXPECT_EQ((int64_t)data.size(), rf_shape_count(shape));
        return words(shape, RF_I32, data.data(), shift);
    }
    /* For results: holds a value that no kernel computes. */
    rf_tensor blank(rf_shape shape, int shift = 0)
    {
        return f32(shape, Floats(rf_shape_count(shape), -12345.0f), shift);
    }
    rf_tensor blank_i32(int64_t count)
    {
        return i32(rf_shape1(count), Ints(count, -7));
    }
    static Floats read(rf_tensor tensor)
    {
        Floats data(rf_tensor_count(tensor));
        EXPECT_OK(rf_stream_wait(stream));
        if (tensor.dtype == RF_F16 || tensor.dtype == RF_BF16) {
            std::vector<uint16_t> packed(data.size());
            EXPECT_OK(rf_tensor_read(tensor, packed.data(), 2 * packed.size()));
            return oracle::from_half(packed, tensor.dtype == RF_BF16);
        }
        EXPECT_OK(rf_tensor_read(tensor, data.data(), 4 * data.size()));
        return data;
    }

    Floats normal(size_t count, float scale = 1)
    {
        std::normal_distribution<float> distribution(0, scale);
        Floats data(count);
        for (float &x : data)
            x = distribution(engine);
        return data;
    }
    /* Small integers: sums of thousands of them are exact in f32. */
    Floats whole(size_t count, int most = 8)
    {
        std::uniform_int_distribution<int> distribution(-most, most);
        Floats data(count);
        for (float &x : data)
            x = (float)distribution(engine);
        return data;
    }
    Ints below(size_t count, int32_t bound)
    {
        std::uniform_int_distribution<int32_t> distribution(0, bound - 1);
        Ints data(count);
        for (int32_t &x : data)
            x = distribution(engine);
        return data;
    }

    std::mt19937 engine{1};
    static inline rf_device *device;
    static inline rf_stream *stream;

  private:
    /* 0x7fff7fff and 0x7fff: NaNs in every type, so that a read of one shows, too. */
    static unsigned char guard(size_t i)
    {
        return i % 2 ? 0x7f : 0xff;
    }
    struct Owned {
        rf_buffer *buffer;
        size_t first, count, bytes;
    };
    std::vector<Owned> all;
};

/* A suite that runs for each of float_types (ALL_TYPES). */
class TypedOpTest : public OpTest, public ::testing::WithParamInterface<TypeParam>
{
  protected:
    void SetUp() override
    {
        OpTest::SetUp();
        rf_device_force_teams(device, GetParam().teams);
    }
    static rf_dtype type()
    {
        return GetParam();
    }
    static Floats rounded(const Floats &data)
    {
        return rounded_to(type(), data);
    }
    /* The values must be representable in the type already, or the oracle would see different ones.
     */
    rf_tensor in(rf_shape shape, const Floats &data, int shift = 0)
    {
        EXPECT_EQ(data, rounded(data));
        return typed(shape, type(), data, shift);
    }
    rf_tensor out(rf_shape shape, int shift = 0)
    {
        return typed_blank(shape, type(), shift);
    }
    /* The tolerance of f32 arithmetic, and the rounding of a 16-bit store. */
    static double tolerance(double f32)
    {
        return type() == RF_F32 ? f32 : f32 + 0.5 * step_of(type());
    }
};

inline Doubles wide(const Floats &data)
{
    return Doubles(data.begin(), data.end());
}

/* |got - want| <= tolerance * (1 + |want|); NaN fails. */
inline void expect_near(const Floats &got, const Doubles &want, double tolerance,
                        const std::string &what)
{
    ASSERT_EQ(got.size(), want.size()) << what;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double error = std::fabs(got[i] - want[i]) / (1 + std::fabs(want[i]));
        if (!(error <= worst)) {
            worst = error;
            at = i;
        }
        if (std::isnan(error))
            break;
    }
    EXPECT_LE(worst, tolerance) << what << ", element " << at << ": " << got.at(at) << " for "
                                << want.at(at);
}

inline void expect_same_bits(const Floats &a, const Floats &b, const std::string &what)
{
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); i++)
        ASSERT_EQ(std::memcmp(&a[i], &b[i], 4), 0)
            << what << ", element " << i << ": " << a[i] << " and " << b[i];
}
