/* SPDX-License-Identifier: MIT
 *
 * The replacement of markers in SPIR-V modules at build time: its result for a small module; a
 * damaged one causes an error and nothing worse.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "spirv_markers.h"

namespace
{

using Words = std::vector<uint32_t>;

/* Ids of the module below. */
enum { UINT = 1, FLOAT, MARK_OPERAND, MARK_SUM, MARK_5, SCOPE, USE, SPEC, OTHER, MATRIX, BOUND_IS };

Words instruction(uint32_t op, const Words &operands)
{
    Words words = {(uint32_t)(operands.size() + 1) << 16 | op};
    words.insert(words.end(), operands.begin(), operands.end());
    return words;
}

/* A module with one matrix type, in the order of glslang 12: the specialization constant comes
 * after the type that will use it. */
Words module(bool with_markers = true)
{
    const Words parts[] = {
        {0x07230203, 0x00010500, 0, BOUND_IS, 0},
        instruction(17, {1}),    /* Shader */
        instruction(17, {6022}), /* CooperativeMatrixKHR */
        instruction(14, {0, 1}),
        instruction(71, {SPEC, 1, 5}), /* SpecId 5 */
        instruction(21, {UINT, 32, 0}),
        instruction(43, {UINT, MARK_OPERAND, with_markers ? MARKER_OPERAND : 7}),
        instruction(43, {UINT, MARK_SUM, with_markers ? MARKER_SUM : 8}),
        instruction(43, {UINT, MARK_5, with_markers ? MARKER_SPEC + 5 : 9}),
        instruction(43, {UINT, SCOPE, 3}),
        instruction(43, {UINT, USE, 0}),
        instruction(4456, {MATRIX, MARK_OPERAND, SCOPE, MARK_5, MARK_5, USE}),
        instruction(4456, {MATRIX + 100, MARK_SUM, SCOPE, MARK_5, SCOPE, USE}),
        instruction(22, {FLOAT, 32}),
        instruction(50, {UINT, SPEC, 16}),
        instruction(50, {UINT, OTHER, 16}),
    };
    Words all;
    for (const Words &part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

/* Empty: success. */
std::string replace(const Words &in, marker_operand operand, Words *out = nullptr)
{
    uint32_t *words = nullptr;
    size_t count = 0;
    const char *wrong = markers_replace(in.data(), in.size(), operand, &words, &count);
    EXPECT_EQ(wrong == nullptr, words != nullptr);
    if (out && words)
        out->assign(words, words + count);
    free(words);
    return wrong ? wrong : "";
}

std::vector<Words> cut(const Words &module)
{
    std::vector<Words> list;
    for (size_t i = 5; i < module.size(); i += module[i] >> 16)
        list.emplace_back(&module[i], &module[i] + (module[i] >> 16));
    return list;
}

size_t place(const std::vector<Words> &list, const Words &wanted)
{
    return (size_t)(std::find(list.begin(), list.end(), wanted) - list.begin());
}

TEST(SpirvMarkers, BecomeTypesAndSpecializationConstantsInAnOrderThatSpirvAllows)
{
    for (marker_operand operand : {MARKER_F16, MARKER_BF16}) {
        const bool bf16 = operand == MARKER_BF16;
        Words made;
        ASSERT_EQ(replace(module(), operand, &made), "");
        const std::vector<Words> list = cut(made);
        const uint32_t half = BOUND_IS;
        EXPECT_EQ(made[3], (uint32_t)BOUND_IS + 1);
        const size_t type =
            place(list, instruction(22, bf16 ? Words{half, 16, 0} : Words{half, 16}));
        const size_t sum = place(list, instruction(22, {FLOAT, 32}));
        const size_t integer = place(list, instruction(21, {UINT, 32, 0}));
        const size_t spec = place(list, instruction(50, {UINT, SPEC, 16}));
        const size_t matrix =
            place(list, instruction(4456, {MATRIX, half, SCOPE, SPEC, SPEC, USE}));
        const size_t second =
            place(list, instruction(4456, {MATRIX + 100, FLOAT, SCOPE, SPEC, SCOPE, USE}));
        EXPECT_LT(integer, spec);
        EXPECT_LT(spec, matrix);
        EXPECT_LT(type, matrix);
        EXPECT_LT(sum, second);
        EXPECT_LT(second, list.size());
        EXPECT_EQ(std::count(list.begin(), list.end(), instruction(50, {UINT, SPEC, 16})), 1);
        for (uint32_t capability : bf16 ? Words{5116, 5118} : Words{9})
            EXPECT_LT(place(list, instruction(17, {capability})), 5u);
        const Words extension =
            instruction(10, {0x5f565053, 0x5f52484b, 0x6f6c6662, 0x36317461, 0});
        EXPECT_EQ(place(list, extension) < list.size(), bf16);
    }
}

TEST(SpirvMarkers, AModuleWithoutThemIsRefused)
{
    EXPECT_NE(replace(module(false), MARKER_F16).find("no markers"), std::string::npos);
}

TEST(SpirvMarkers, WhatIsNoModuleIsRefused)
{
    EXPECT_NE(replace({}, MARKER_F16), "");
    EXPECT_NE(replace({0x07230203, 0, 0, 5}, MARKER_F16), "");
    Words swapped = module();
    swapped[0] = 0x03022307;
    EXPECT_NE(replace(swapped, MARKER_F16).find("byte order"), std::string::npos);
    Words bound = module();
    bound[3] = 0xffffffff;
    EXPECT_NE(replace(bound, MARKER_F16).find("bound"), std::string::npos);
}

TEST(SpirvMarkers, AMarkerOfAConstantThatIsNotThereIsNamed)
{
    Words words = module();
    std::replace(words.begin(), words.end(), MARKER_SPEC + 5, MARKER_SPEC + 6);
    EXPECT_NE(replace(words, MARKER_F16).find("specialization constant"), std::string::npos);
}

TEST(SpirvMarkers, EveryCutIsAnErrorOrAModule)
{
    const Words whole = module();
    for (size_t length = 0; length < whole.size(); length++) {
        Words made, part(whole.begin(), whole.begin() + (long)length);
        if (replace(part, MARKER_BF16, &made).empty()) {
            EXPECT_GT(made.size(), part.size());
        }
    }
}

/* Under a sanitizer, this shows a read or write out of bounds. */
TEST(SpirvMarkers, NoDamageDoesMoreThanAnError)
{
    std::mt19937 engine(7);
    const Words whole = module();
    for (int round = 0; round < 20000; round++) {
        Words damaged = whole;
        for (unsigned i = 0; i < 1 + engine() % 4; i++) {
            const uint32_t values[] = {0, 0xffffffff, (uint32_t)engine(), (uint32_t)engine() % 64,
                                       damaged[engine() % damaged.size()] ^ 1u << engine() % 32};
            damaged[engine() % damaged.size()] = values[engine() % 5];
        }
        Words made;
        if (replace(damaged, engine() % 2 ? MARKER_F16 : MARKER_BF16, &made).empty()) {
            EXPECT_GE(made.size(), damaged.size());
        }
    }
}

struct Outcome {
    int status;
    std::string output;
};
Outcome run(const std::string &arguments)
{
    FILE *pipe = popen((std::string(SPIRV_MARKERS) + " " + arguments + " 2>&1").c_str(), "r");
    Outcome run = {-1, ""};
    char buffer[256];
    while (pipe && fgets(buffer, sizeof(buffer), pipe))
        run.output += buffer;
    run.status = pipe ? pclose(pipe) : -1;
    return run;
}

TEST(SpirvMarkersProgram, SaysWhatIsWrongWithItsInput)
{
    const std::string out = ::testing::TempDir() + "markers_out.h", in = out + ".in";
    EXPECT_NE(run("f16 name /nonexistent.spv " + out).status, 0);
    EXPECT_NE(run("f17 name a b").output.find("usage"), std::string::npos);
    for (size_t bytes : {0, 1, 3, 19, 20, 22}) {
        FILE *file = fopen(in.c_str(), "wb");
        ASSERT_NE(file, nullptr);
        fwrite("\x03\x02\x23\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 1, bytes, file);
        fclose(file);
        Outcome r = run("bf16 name " + in + " " + out);
        EXPECT_NE(r.status, 0);
        EXPECT_NE(r.output.find(in), std::string::npos) << r.output;
    }
    remove(in.c_str());
    EXPECT_EQ(fopen(out.c_str(), "r"), nullptr);
}

} // namespace
