/* SPDX-License-Identifier: MIT
 *
 * Quantisation on the host: the bits of bitsandbytes, pieces, dequantisation, and invalid input.
 */
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <ringforge/quantize.h>
#include <ringforge/status.h>

namespace
{

using Bytes = std::vector<uint32_t>;

/* The same as in quantize_torch.py. */
uint32_t hashed(uint32_t i)
{
    uint32_t x = i * 2654435769u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

std::vector<float> values(int64_t count)
{
    std::vector<float> all(count);
    for (uint32_t i = 0; i < all.size(); i++) {
        int64_t total = 0;
        for (uint32_t k = 0; k < 3; k++)
            total += hashed(3 * i + k) >> 11;
        const double scale = i / 64 % 5 == 4 ? 0x1p-20 : i / 64 % 7 == 3 ? 0 : 0x1p-24;
        all[i] = (float)((double)(total - 3 * (1 << 20)) * scale);
    }
    return all;
}

uint64_t fnv(const Bytes &words)
{
    uint64_t x = 0xcbf29ce484222325;
    for (uint32_t word : words)
        for (int shift = 0; shift < 32; shift += 8)
            x = (x ^ (word >> shift & 255)) * 0x100000001b3;
    return x;
}

Bytes quantized(rf_quantization kind, const std::vector<float> &x)
{
    Bytes bytes(rf_quantized_bytes(kind, (int64_t)x.size()) / 4);
    EXPECT_EQ(rf_quantize(kind, x.data(), (int64_t)x.size(), bytes.data()), RF_OK)
        << rf_last_error()->message;
    return bytes;
}

class Quantize : public ::testing::TestWithParam<rf_quantization>
{
};
INSTANTIATE_TEST_SUITE_P(Kind, Quantize,
                         ::testing::Values(RF_NF4, RF_INT8, RF_FP8, RF_MXFP4, RF_NVFP4),
                         [](const auto &info) { return rf_quantization_name(info.param); });

TEST(QuantizeNf4, HasTheBitsOfBitsandbytes)
{
    std::ifstream file(RF_OPS_FOLDER "/quantize_torch.txt");
    std::string comment, hash;
    ASSERT_TRUE(std::getline(file, comment));
    int64_t count;
    int rows = 0;
    for (; file >> count >> hash; rows++)
        EXPECT_EQ(fnv(quantized(RF_NF4, values(count))), std::stoull(hash, nullptr, 16)) << count;
    EXPECT_EQ(rows, 16);
}

TEST_P(Quantize, PiecesGiveTheSameBytes)
{
    const std::vector<float> x = values(70001);
    const Bytes whole = quantized(GetParam(), x);
    Bytes bytes(whole.size(), 0xabababab);
    rf_quantizer *quantizer = nullptr;
    ASSERT_EQ(rf_quantizer_create(GetParam(), (int64_t)x.size(), bytes.data(), &quantizer), RF_OK);
    for (int pass = 0; pass < rf_quantizer_passes(GetParam()); pass++)
        for (int64_t first = 0, count = 64; first < (int64_t)x.size(); first += count, count *= 3)
            ASSERT_EQ(
                rf_quantizer_add(quantizer, &x[first], std::min(count, (int64_t)x.size() - first)),
                RF_OK);
    EXPECT_EQ(rf_quantizer_finish(quantizer), RF_OK);
    rf_quantizer_destroy(quantizer);
    EXPECT_EQ(bytes, whole);
}

TEST_P(Quantize, ValuesComeBackWithinHalfAStepOfTheirBlock)
{
    const std::vector<float> x = values(10000);
    const Bytes bytes = quantized(GetParam(), x);
    std::vector<float> y(x.size());
    ASSERT_EQ(rf_dequantize({GetParam(), bytes.data(), (int64_t)x.size()}, 0, (int64_t)x.size(),
                            y.data()),
              RF_OK);
    for (size_t block = 0; block < x.size(); block += 64) {
        const size_t end = std::min(block + 64, x.size());
        float largest = 0;
        for (size_t i = block; i < end; i++)
            largest = std::max(largest, std::fabs(x[i]));
        /* NF4: half of the widest gap of levels, plus the error of the second level: half of a step
         * of its map, times the largest difference of a block to their mean, here at most 3. */
        const double bound = GetParam() == RF_INT8  ? largest / 253
                             : GetParam() == RF_NF4 ? 0.153 * largest + 0.0071 * 3
                             : GetParam() == RF_FP8 ? largest / 27.9
                                                    : largest * 0.251 + 1e-5;
        for (size_t i = block; i < end; i++)
            ASSERT_NEAR(x[i], y[i], bound) << i;
    }
    float part[3];
    ASSERT_EQ(rf_dequantize({GetParam(), bytes.data(), (int64_t)x.size()}, 777, 3, part), RF_OK);
    EXPECT_EQ(std::vector<float>(part, part + 3), std::vector<float>(&y[777], &y[780]));
}

TEST_P(Quantize, ZerosStayZeros)
{
    const std::vector<float> zeros(1000);
    const Bytes bytes = quantized(GetParam(), zeros);
    std::vector<float> y(zeros.size(), 1);
    ASSERT_EQ(rf_dequantize({GetParam(), bytes.data(), 1000}, 0, 1000, y.data()), RF_OK);
    for (float value : y) /* the last block of NF4 has a magnitude of 1e-38, as in bitsandbytes */
        EXPECT_LE(std::fabs(value), 2e-38F);
}

TEST_P(Quantize, WhatIsNotFiniteIsNamed)
{
    for (float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> x = values(300);
        x[213] = bad;
        Bytes bytes(rf_quantized_bytes(GetParam(), 300) / 4);
        EXPECT_EQ(rf_quantize(GetParam(), x.data(), 300, bytes.data()), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find("element 213"), std::string::npos);
    }
}

TEST_P(Quantize, WrongPiecesAreRefused)
{
    const std::vector<float> x = values(200);
    Bytes bytes(rf_quantized_bytes(GetParam(), 200) / 4);
    rf_quantizer *quantizer = nullptr;
    ASSERT_EQ(rf_quantizer_create(GetParam(), 200, bytes.data(), &quantizer), RF_OK);
    EXPECT_EQ(rf_quantizer_add(quantizer, x.data(), 10), RF_EINVAL);
    EXPECT_EQ(rf_quantizer_add(quantizer, x.data(), 256), RF_EINVAL);
    EXPECT_EQ(rf_quantizer_add(quantizer, x.data(), 128), RF_OK);
    EXPECT_EQ(rf_quantizer_finish(quantizer), RF_EINVAL);
    rf_quantizer_destroy(quantizer);
    EXPECT_EQ(rf_quantizer_create(GetParam(), 0, bytes.data(), &quantizer), RF_EINVAL);
    float y;
    EXPECT_EQ(rf_dequantize({GetParam(), bytes.data(), 200}, 200, 1, &y), RF_EINVAL);
    EXPECT_EQ(rf_dequantize({RF_QUANTIZE_NONE, bytes.data(), 200}, 0, 1, &y), RF_EINVAL);
}

/* By the words of quantize.h alone. */
double e4m3(unsigned code)
{
    const unsigned exponent = code >> 3 & 15;
    const double digits = exponent ? 8 + (code & 7) : code & 7;
    return std::ldexp(code & 128 ? -digits : digits, (int)(exponent ? exponent : 1) - 10);
}

double e2m1(unsigned code)
{
    const double levels[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -levels[code & 7] : levels[code & 7];
}

TEST(QuantizeSmall, CodesAreTheNearestOfTheirScalesWhichAreThoseOfTheFormats)
{
    const std::vector<float> x = values(4133);
    float tensor_largest = 0;
    for (float v : x)
        tensor_largest = std::max(tensor_largest, std::fabs(v));
    for (rf_quantization kind : {RF_FP8, RF_MXFP4, RF_NVFP4}) {
        const Bytes words = quantized(kind, x);
        const struct rf_quantized_layout l = rf_quantized_layout(kind, (int64_t)x.size());
        const uint8_t *bytes = reinterpret_cast<const uint8_t *>(words.data());
        const size_t every = kind == RF_FP8 ? 64 : kind == RF_MXFP4 ? 32 : 16;
        std::vector<float> y(x.size());
        ASSERT_EQ(rf_dequantize({kind, bytes, (int64_t)x.size()}, 0, (int64_t)x.size(), y.data()),
                  RF_OK);
        float tensor = 0;
        if (kind == RF_NVFP4)
            memcpy(&tensor, bytes + l.offset, 4);
        EXPECT_EQ(tensor, kind == RF_NVFP4 ? tensor_largest / 2688 : 0);
        for (size_t block = 0; block * every < x.size(); block++) {
            const size_t end = std::min((block + 1) * every, x.size());
            float largest = 0, scale;
            for (size_t i = block * every; i < end; i++)
                largest = std::max(largest, std::fabs(x[i]));
            if (kind == RF_FP8) {
                memcpy(&scale, bytes + l.blocks + 4 * block, 4);
                ASSERT_EQ(scale, largest / 448);
            } else if (kind == RF_MXFP4) {
                scale = std::ldexp(1.0F, bytes[l.blocks + block] - 127);
                ASSERT_EQ(scale, largest > 0 ? std::exp2(std::floor(std::log2(largest)) - 2)
                                             : std::ldexp(1.0F, -126));
            } else {
                const double wanted = largest / 6 / tensor;
                scale = (float)e4m3(bytes[l.blocks + block]);
                ASSERT_LE(std::fabs(scale - wanted), std::max(wanted / 16.9, 0x1p-10));
                scale *= tensor;
            }
            for (size_t i = block * every; i < end; i++) {
                const unsigned code = kind == RF_FP8 ? bytes[i] : bytes[i / 2] >> i % 2 * 4 & 15;
                const double level = kind == RF_FP8 ? e4m3(code) : e2m1(code);
                double least = INFINITY;
                for (unsigned other = 0; other < (kind == RF_FP8 ? 256 : 16); other++)
                    if (kind != RF_FP8 || (other & 127) != 127)
                        least =
                            std::min(least, std::fabs((kind == RF_FP8 ? e4m3(other) : e2m1(other)) -
                                                      (scale > 0 ? x[i] / scale : 0)));
                ASSERT_EQ(y[i], (float)level * scale) << rf_quantization_name(kind) << i;
                if (scale > 0) {
                    ASSERT_EQ(std::fabs(level - x[i] / scale), least) << i;
                }
            }
        }
    }
}

TEST(QuantizedBytes, AreThoseOfTheLayout)
{
    EXPECT_EQ(rf_quantized_bytes(RF_MXFP4, 1 << 20) * 8, (1 << 20) * 4.25);
    EXPECT_EQ((rf_quantized_bytes(RF_NVFP4, 1 << 20) - 4) * 8, (1 << 20) * 4.5);
    EXPECT_EQ(rf_quantized_bytes(RF_FP8, 1 << 20) * 8, (1 << 20) * 8.5);
    EXPECT_EQ(rf_quantized_bytes(RF_NVFP4, 17), 12u + 4 + 4);
    EXPECT_EQ(rf_quantized_bytes(RF_MXFP4, 33), 20u + 4);
    EXPECT_EQ(rf_quantized_bytes(RF_NF4, 1), 4u + 4 + 4 + 4);
    EXPECT_EQ(rf_quantized_bytes(RF_NF4, 1 << 24), (1u << 23) + (1u << 18) + (1u << 12) + 4);
    EXPECT_EQ(rf_quantized_bytes(RF_NF4, 64 * 257 + 1), 8228u + 260 + 8 + 4);
    EXPECT_EQ(rf_quantized_bytes(RF_INT8, 65), 68u + 8);
    EXPECT_EQ(rf_quantized_bytes(RF_INT8, -1), 0u);
    EXPECT_EQ(rf_quantized_bytes(RF_QUANTIZE_NONE, 64), 0u);
    EXPECT_EQ(rf_quantized_bytes(RF_NF4, INT64_MAX), 0u);
}

} // namespace
