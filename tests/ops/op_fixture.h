/* SPDX-License-Identifier: MIT
 *
 * What the tests of the kernels share: one device with the barrier checker on, tensors between
 * guard words that are verified at the end of each test, and comparisons with fp64 values.
 */
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <ringforge/ops.h>

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

class OpTest : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        struct rf_device_opts opts = {};
        opts.check_barriers = true;
        ASSERT_OK(rf_device_open(nullptr, &opts, &device));
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
        for (const Owned &owned : all) {
            Ints words(owned.words);
            EXPECT_OK(rf_buffer_read(owned.buffer, 0, words.data(), 4 * words.size()));
            for (size_t i = 0; i < words.size(); i++) {
                bool inside = i >= owned.first && i < owned.first + owned.count;
                ASSERT_TRUE(inside || words[i] == GUARD) << "a kernel wrote outside its tensor";
            }
            rf_buffer_destroy(owned.buffer);
        }
        all.clear();
    }

    /* A tensor that starts `shift` elements after a multiple of 256 bytes. */
    rf_tensor words(rf_shape shape, rf_dtype dtype, const void *data, int shift)
    {
        rf_tensor tensor = {};
        Owned owned = {nullptr, (size_t)(64 + shift), (size_t)rf_shape_count(shape), 0};
        owned.words = owned.first + owned.count + 64;
        Ints fill(owned.words, GUARD);
        EXPECT_OK(rf_buffer_create(device, 4 * owned.words, RF_MEMORY_DEVICE, RF_CATEGORY_OTHER,
                                   &owned.buffer));
        std::memcpy(&fill[owned.first], data, 4 * owned.count);
        EXPECT_OK(rf_buffer_write(owned.buffer, 0, fill.data(), 4 * fill.size()));
        EXPECT_OK(rf_tensor_view(owned.buffer, 4 * owned.first, shape, dtype, &tensor));
        all.push_back(owned);
        return tensor;
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
    static constexpr int32_t GUARD = 0x7f5a5a5a; /* a NaN: using it would show, too */
    struct Owned {
        rf_buffer *buffer;
        size_t first, count, words;
    };
    std::vector<Owned> all;
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
