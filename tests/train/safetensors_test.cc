// SPDX-License-Identifier: MIT
//
// safetensors files: written ones can be read, by others too, and hostile ones are refused.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "folder.h"

extern "C" {
#include "io/pieces.h"
#include "io/safetensors.h"
}

namespace
{

rf_file_tensor tensor(const char *name, rf_dtype dtype, rf_shape shape)
{
    rf_file_tensor t = {};
    t.name = name;
    t.dtype = dtype;
    t.shape = shape;
    return t;
}

// Writes three tensors, the middle one empty.
void write_sample(const std::string &path)
{
    const std::vector<std::vector<uint8_t>> values = {std::vector<uint8_t>(24, 1), {}, {5, 6, 7}};
    rf_file_tensor tensors[] = {tensor("w \"quoted\"", RF_F32, rf_shape2(2, 3)),
                                tensor("nothing", RF_I64, rf_shape1(0)),
                                tensor("bytes", RF_U8, rf_shape1(3))};
    rf_file_note notes[] = {{"format", "ringforge"}, {"step", "12"}};
    rf_file_content content = {};
    content.tensors = tensors;
    content.tensor_count = 3;
    content.notes = notes;
    content.note_count = 2;
    rf_safetensors_layout layout = {};
    rf_shared_file file = {};
    ASSERT_EQ(rf_safetensors_lay_out(&content, &layout), 0) << rf_last_error()->message;
    ASSERT_EQ(rf_shared_create(&file, path.c_str(), layout.bytes), 0);
    for (size_t i = 0; i < 3; i++)
        ASSERT_EQ(rf_shared_put(&file, layout.begin[i], values[i].data(), values[i].size()), 0);
    ASSERT_EQ(rf_shared_put(&file, 0, layout.header, layout.header_bytes), 0);
    ASSERT_EQ(rf_shared_sync(&file), 0) << rf_last_error()->message;
    rf_shared_close(&file);
    rf_safetensors_layout_free(&layout);
}

std::string file_of(const std::string &header, const std::string &data)
{
    std::string out(8, 0);
    uint64_t length = header.size();
    memcpy(out.data(), &length, 8);
    return out + header + data;
}

int open_bytes(const Folder &folder, const std::string &bytes)
{
    folder.write("f", bytes);
    rf_safetensors *file = nullptr;
    int rc = rf_safetensors_open(folder.path("f").c_str(), false, &file);
    if (rc == 0) { // then everything in it can be read
        for (int i = 0; i < rf_safetensors_count(file); i++) {
            const rf_file_tensor *t = rf_safetensors_tensor(file, i);
            std::vector<uint8_t> data((size_t)rf_shape_count(t->shape) * rf_dtype_bytes(t->dtype) +
                                      1);
            EXPECT_EQ(rf_safetensors_read(file, i, 0, data.data(), data.size() - 1), 0);
        }
        rf_safetensors_close(file);
    } else {
        EXPECT_EQ(file, nullptr);
        EXPECT_NE(std::string(rf_last_error()->message).find(folder.path("f")), std::string::npos);
    }
    return rc;
}

} // namespace

TEST(Safetensors, WhatWasWrittenIsRead)
{
    Folder folder;
    write_sample(folder.path("f"));
    rf_safetensors *file = nullptr;
    ASSERT_EQ(rf_safetensors_open(folder.path("f").c_str(), false, &file), 0)
        << rf_last_error()->message;
    ASSERT_EQ(rf_safetensors_count(file), 3);
    int w = rf_safetensors_find(file, "w \"quoted\""), b = rf_safetensors_find(file, "bytes");
    ASSERT_GE(w, 0);
    ASSERT_GE(b, 0);
    EXPECT_EQ(rf_safetensors_find(file, "other"), -1);
    EXPECT_EQ(rf_safetensors_tensor(file, w)->shape.dim[1], 3);
    uint8_t three[3];
    ASSERT_EQ(rf_safetensors_read(file, b, 0, three, 3), 0);
    EXPECT_EQ(three[2], 7);
    ASSERT_EQ(rf_safetensors_read(file, b, 1, three, 2), 0);
    EXPECT_EQ(three[0], 6);
    EXPECT_EQ(rf_safetensors_read(file, b, 2, three, 2), RF_EINVAL);
    EXPECT_STREQ(rf_safetensors_note(file, "step"), "12");
    EXPECT_EQ(rf_safetensors_note(file, "none"), nullptr);
    rf_safetensors_close(file);
    // The data begin at a multiple of a page, and no byte is left over.
    std::string bytes = folder.read("f");
    uint64_t length = 0;
    memcpy(&length, bytes.data(), 8);
    EXPECT_EQ((8 + length) % 4096, 0u);
    EXPECT_EQ(bytes.size(), 8 + length + 27);
}

TEST(Safetensors, EveryRuleOfTheFormatIsEnforced)
{
    Folder folder;
    const std::string f = "\"dtype\":\"F32\"", u = "\"dtype\":\"U8\"";
    auto entry = [](const std::string &d, const std::string &s, const std::string &o) {
        return "{" + d + ",\"shape\":" + s + ",\"data_offsets\":" + o + "}";
    };
    const std::string four(4, 'x'), eight(8, 'x');
    EXPECT_EQ(open_bytes(folder, file_of("{\"a\":" + entry(f, "[1]", "[0,4]") + "}", four)), 0);
    EXPECT_EQ(open_bytes(folder, file_of("{\"a\":" + entry(f, "[]", "[0,4]") + "}  ", four)), 0);
    EXPECT_EQ(open_bytes(folder, file_of("{}", "")), 0);
    const struct {
        const char *why;
        std::string bytes;
        int status;
    } rows[] = {
        {"empty file", "", RF_ECORRUPT},
        {"header longer than the file", file_of("{}", "").replace(0, 1, "\x40"), RF_ECORRUPT},
        {"huge header", std::string(8, '\xff') + "{}", RF_ECORRUPT},
        {"no object", file_of("[]", ""), RF_ECORRUPT},
        {"cut JSON", file_of("{\"a\":", ""), RF_ECORRUPT},
        {"junk after JSON", file_of("{} x", ""), RF_ECORRUPT},
        {"zero byte in the header", file_of(std::string("{}\0\0", 4), ""), RF_ECORRUPT},
        {"tensor is a number", file_of("{\"a\":5}", ""), RF_ECORRUPT},
        {"no shape", file_of("{\"a\":{" + f + ",\"data_offsets\":[0,4]}}", four), RF_ECORRUPT},
        {"one offset", file_of("{\"a\":" + entry(f, "[1]", "[0]") + "}", four), RF_ECORRUPT},
        {"end before begin", file_of("{\"a\":" + entry(f, "[1]", "[4,0]") + "}", four),
         RF_ECORRUPT},
        {"end outside", file_of("{\"a\":" + entry(f, "[2]", "[0,8]") + "}", four), RF_ECORRUPT},
        {"shape denies bytes", file_of("{\"a\":" + entry(f, "[2]", "[0,4]") + "}", four),
         RF_ECORRUPT},
        {"negative dimension", file_of("{\"a\":" + entry(f, "[-1]", "[0,4]") + "}", four),
         RF_ECORRUPT},
        {"fractional dimension", file_of("{\"a\":" + entry(f, "[1.5]", "[0,4]") + "}", four),
         RF_ECORRUPT},
        {"product overflows",
         file_of("{\"a\":" + entry(f, "[4294967296,4294967296,4294967296]", "[0,0]") + "}", ""),
         RF_ECORRUPT},
        {"hole", file_of("{\"a\":" + entry(u, "[4]", "[4,8]") + "}", eight), RF_ECORRUPT},
        {"bytes left over", file_of("{\"a\":" + entry(u, "[4]", "[0,4]") + "}", eight),
         RF_ECORRUPT},
        {"overlap",
         file_of("{\"a\":" + entry(u, "[5]", "[0,5]") + ",\"b\":" + entry(u, "[4]", "[4,8]") + "}",
                 eight),
         RF_ECORRUPT},
        {"one name twice",
         file_of("{\"a\":" + entry(u, "[4]", "[0,4]") + ",\"a\":" + entry(u, "[4]", "[4,8]") + "}",
                 eight),
         RF_ECORRUPT},
        {"metadata not strings", file_of("{\"__metadata__\":{\"step\":5}}", ""), RF_ECORRUPT},
        {"metadata not an object", file_of("{\"__metadata__\":[]}", ""), RF_ECORRUPT},
        {"unknown type", file_of("{\"a\":" + entry("\"dtype\":\"Q7\"", "[1]", "[0,4]") + "}", four),
         RF_ENOTSUP},
        {"too many dimensions", file_of("{\"a\":" + entry(f, "[1,1,1,1,1]", "[0,4]") + "}", four),
         RF_ENOTSUP},
    };
    for (const auto &row : rows)
        EXPECT_EQ(open_bytes(folder, row.bytes), row.status)
            << row.why << ": " << rf_last_error()->message;
}

TEST(Safetensors, NoMutationOfAFileCrashesTheReader)
{
    Folder folder;
    write_sample(folder.path("f"));
    const std::string good = folder.read("f");
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 1500; i++) {
        std::string bad = good;
        for (int k = 1 + (int)(random() % 4); k > 0; k--) {
            size_t at = random() % bad.size();
            switch (random() % 4) {
            case 0:
                bad[at] = (char)random();
                break;
            case 1:
                bad[at] = "0123456789{}[]\",:-e"[random() % 19];
                break;
            case 2:
                bad.resize(at + 1);
                break;
            default:
                bad.insert(at, 1, "0919[{"[random() % 6]);
            }
        }
        refused += open_bytes(folder, bad) < 0;
    }
    EXPECT_GT(refused, 750); // the rest changed data or names only
}

TEST(Safetensors, AMissingFileIsAnInputErrorThatNamesIt)
{
    Folder folder;
    rf_safetensors *file = nullptr;
    EXPECT_EQ(rf_safetensors_open(folder.path("none").c_str(), false, &file), RF_EIO);
    EXPECT_NE(std::string(rf_last_error()->message).find("none"), std::string::npos);
}
