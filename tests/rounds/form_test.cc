/* SPDX-License-Identifier: MIT
 *
 * Forms of values on their way between workers: their bytes, what they lose, damaged messages.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>

#include <cmath>

extern "C" {
#include "rounds/form.h"
}

namespace
{

std::vector<float> numbers(int64_t count)
{
    std::vector<float> out(count);
    for (int64_t i = 0; i < count; i++)
        out[i] = static_cast<float>(sin(0.7 * i) * exp(-0.002 * i));
    return out;
}

std::vector<float> there_and_back(int form, float fraction, const std::vector<float> &in)
{
    const int64_t count = in.size();
    std::vector<uint32_t> message(rf_form_bytes(rf_form(form), fraction, count) / 4 + 2,
                                  0xabababab);
    std::vector<float> scratch(count + 1), out(count);
    EXPECT_EQ(
        rf_form_encode(rf_form(form), fraction, in.data(), count, message.data(), scratch.data()),
        RF_OK);
    EXPECT_EQ(message.back(), 0xababababu) << "behind the message";
    EXPECT_EQ(rf_form_decode(rf_form(form), fraction, message.data(), count, out.data()), RF_OK);
    return out;
}

TEST(Form, BytesAreThoseOfTheDocumentation)
{
    EXPECT_EQ(rf_form_bytes(RF_FORM_F32, 0, 1000), 4000u);
    EXPECT_EQ(rf_form_bytes(RF_FORM_BF16, 0, 1000), 2000u);
    EXPECT_EQ(rf_form_bytes(RF_FORM_INT8, 0, 64000), 64000u + 4000);
    EXPECT_LT(rf_form_bytes(RF_FORM_NF4, 0, 1 << 20) * 8.0 / (1 << 20), 4.13);
    EXPECT_EQ(rf_form_bytes(RF_FORM_TOP, 0.01f, 1000), 8u * 10);
    EXPECT_EQ(rf_form_bytes(RF_FORM_SIGN, 0, 1 << 20), (1u << 20) / 8 + 4 * 1024);
    for (int form = 0; form < RF_FORM_POWERSGD; form++)
        EXPECT_EQ(rf_form_bytes(rf_form(form), 0.5f, 0), 0u);
}

/* The error of a block of 64 is at most half a step of its largest magnitude: 1/254 of it for int8,
 * and half of the widest gap of the levels, 0.152, for NF4, whose scales have 8 bits themselves. */
TEST(Form, LossIsWithinTheFormsSteps)
{
    const struct {
        int form;
        double error;
    } all[] = {{RF_FORM_F32, 0},
               {RF_FORM_BF16, 1 / 256.0},
               {RF_FORM_INT8, 1 / 253.0},
               {RF_FORM_NF4, 0.17}};
    for (const int64_t count : {1, 63, 64, 65, 1000})
        for (const auto &row : all) {
            const std::vector<float> in = numbers(count), out = there_and_back(row.form, 0, in);
            for (int64_t i = 0; i < count; i++) {
                double largest = 0;
                for (int64_t j = i / 64 * 64; j < count && j < i / 64 * 64 + 64; j++)
                    largest = std::max(largest, fabs(static_cast<double>(in[j])));
                EXPECT_NEAR(out[i], in[i], row.error * largest) << row.form << " " << i;
            }
        }
}

TEST(Form, TopKeepsTheLargestAndOfEqualOnesTheFirst)
{
    const std::vector<float> in = {1, -5, 3, 3, -3, 0, 2, 4};
    EXPECT_EQ(there_and_back(RF_FORM_TOP, 0.5f, in), (std::vector<float>{0, -5, 3, 3, 0, 0, 0, 4}));
    EXPECT_EQ(there_and_back(RF_FORM_TOP, 1, in), in);
    EXPECT_EQ(there_and_back(RF_FORM_TOP, 0.0001f, in),
              (std::vector<float>{0, -5, 0, 0, 0, 0, 0, 0}));
    const std::vector<float> equal(1000, 1.0f);
    const std::vector<float> out = there_and_back(RF_FORM_TOP, 0.25f, equal);
    EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 250), std::vector<float>(250, 1.0f));
    EXPECT_EQ(out[250], 0);
}

TEST(Form, SignHasTheMeanMagnitudeOfItsBlock)
{
    EXPECT_EQ(there_and_back(RF_FORM_SIGN, 0, {1, -2, 3, -6}), (std::vector<float>{3, -3, 3, -3}));
    const std::vector<float> zero(1025, 0.0f);
    EXPECT_EQ(there_and_back(RF_FORM_SIGN, 0, zero), zero);
}

TEST(Form, ValuesThatAreNotFiniteAreRefusedWhereTheFormHasNone)
{
    float scratch[4], message[64];
    for (const float bad : {NAN, INFINITY}) {
        const float in[] = {1, bad, 2, 3};
        for (const int form : {RF_FORM_INT8, RF_FORM_NF4, RF_FORM_TOP, RF_FORM_SIGN})
            EXPECT_EQ(rf_form_encode(rf_form(form), 0.5f, in, 4, message, scratch), RF_EINVAL);
        float out[4];
        EXPECT_EQ(rf_form_encode(RF_FORM_BF16, 0, in, 4, message, scratch), RF_OK);
        EXPECT_EQ(rf_form_decode(RF_FORM_BF16, 0, message, 4, out), RF_OK);
        EXPECT_EQ(std::isnan(out[1]), std::isnan(bad));
        EXPECT_EQ(std::isinf(out[1]), std::isinf(bad));
    }
}

TEST(Form, DamagedNumbersOfTopAreRefused)
{
    float out[8];
    const uint32_t one = 0x3f800000;
    const uint32_t outside[] = {1, one, 8, one}, twice[] = {1, one, 1, one},
                   behind[] = {5, one, 2, one}, sound[] = {1, one, 7, one};
    for (const uint32_t *message : {outside, twice, behind})
        EXPECT_EQ(rf_form_decode(RF_FORM_TOP, 0.25f, message, 8, out), RF_ECORRUPT);
    EXPECT_EQ(rf_form_decode(RF_FORM_TOP, 0.25f, sound, 8, out), RF_OK);
    EXPECT_EQ(out[7], 1);
}

TEST(Form, NamesFindTheirForms)
{
    for (int form = 0; form < RF_FORM_COUNT; form++)
        EXPECT_EQ(rf_form_find(rf_form_name(rf_form(form))), form);
    EXPECT_EQ(rf_form_find("fp4"), -1);
}

} // namespace
