// SPDX-License-Identifier: MIT
//
// Files of tensors of any type, and tensors as bitsandbytes, GPTQ and AWQ pack them.
#ifndef RF_TESTS_PACKED_WEIGHTS_H
#define RF_TESTS_PACKED_WEIGHTS_H

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

extern "C" {
#include "coll/reduce.h"
#include "ops/quantize.h"
}

namespace packed_weights
{
struct RawTensor {
    std::string dtype, shape, bytes; // "U8", "[2, 3]"
};
using RawTensors = std::map<std::string, RawTensor>;

inline std::string file_of(const RawTensors &tensors)
{
    std::string header = "{", data;
    for (const auto &[name, t] : tensors) {
        header += (data.empty() && header.size() == 1 ? "\"" : ", \"") + name +
                  "\": {\"dtype\": \"" + t.dtype + "\", \"shape\": " + t.shape +
                  ", \"data_offsets\": [" + std::to_string(data.size()) + ", " +
                  std::to_string(data.size() + t.bytes.size()) + "]}";
        data += t.bytes;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::string file(8, 0);
    memcpy(file.data(), &length, 8);
    return file + header + data;
}

inline std::string shape_of(int64_t rows, int64_t columns = 0)
{
    return "[" + std::to_string(rows) + (columns ? ", " + std::to_string(columns) : "") + "]";
}

inline std::string levels_of(const float *levels, int count)
{
    return std::string(reinterpret_cast<const char *>(levels), (size_t)count * 4);
}

inline std::string nested_levels()
{
    float levels[256];
    for (int i = 0; i < 256; i++)
        levels[i] = rf_dynamic_value((uint8_t)i);
    return levels_of(levels, 256);
}

inline std::string state_of(const std::string &kind, int64_t rows, int64_t columns, int block,
                            const std::string &dtype, const std::string &nested)
{
    return "{\"quant_type\": \"" + kind + "\", \"blocksize\": " + std::to_string(block) +
           ", \"dtype\": \"" + dtype + "\", \"shape\": " + shape_of(rows, columns) + nested + "}";
}

// What bitsandbytes writes for a weight: the sections of rf_quantize with RF_NF4.
inline void add_nf4(RawTensors &to, const std::string &weight, int64_t rows, int64_t columns,
                    const std::string &packed)
{
    const int64_t count = rows * columns, blocks = (count + 63) / 64, nested = (blocks + 255) / 256;
    const struct rf_quantized_layout l = rf_quantized_layout(RF_NF4, count);
    char offset[32];
    float number;
    memcpy(&number, packed.data() + l.offset, 4);
    snprintf(offset, sizeof(offset), "%.9g", (double)number);
    const std::string state = state_of("nf4", rows, columns, 64, "float32",
                                       ", \"nested_blocksize\": 256, \"nested_dtype\": "
                                       "\"float32\", \"nested_offset\": " +
                                           std::string(offset));
    to[weight] = {"U8", shape_of(count / 2, 1), packed.substr(0, (size_t)count / 2)};
    to[weight + ".absmax"] = {"U8", shape_of(blocks), packed.substr(l.blocks, (size_t)blocks)};
    to[weight + ".quant_map"] = {"F32", "[16]", levels_of(rf_nf4_levels, 16)};
    to[weight + ".nested_absmax"] = {"F32", shape_of(nested),
                                     packed.substr(l.largest, (size_t)nested * 4)};
    to[weight + ".nested_quant_map"] = {"F32", "[256]", nested_levels()};
    to[weight + ".quant_state.bitsandbytes__nf4"] = {"U8", shape_of((int64_t)state.size()), state};
}

inline const char *const nf4_config =
    "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
    "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": true, "
    "\"llm_int8_skip_modules\": [\"lm_head\"]}";
} // namespace packed_weights

#endif
