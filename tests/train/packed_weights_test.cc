// SPDX-License-Identifier: MIT
//
// Weights as bitsandbytes, GPTQ and AWQ pack them: values beside those programs (packed_torch.py),
// bytes that stay as they are, and faults, which are refused by name.
#include <functional>

#include "hub_model.h"
#include "packed_weights.h"

namespace
{
using namespace hub_models;
using namespace packed_weights;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// The same in packed_torch.py.
struct Numbers {
    uint32_t x;
    uint32_t next()
    {
        return x = x * 1664525u + 1013904223u;
    }
    template <typename T> std::string list(size_t count, const std::function<T()> &one)
    {
        std::string bytes(count * sizeof(T), 0);
        for (size_t i = 0; i < count; i++) {
            const T value = one();
            memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
        }
        return bytes;
    }
    std::string bytes(int64_t count)
    {
        return list<uint8_t>((size_t)count, [&] { return (uint8_t)(next() >> 24); });
    }
    std::string e4m3(int64_t count) /* no NaN */
    {
        return list<uint8_t>((size_t)count, [&] {
            const uint8_t code = (uint8_t)(next() >> 24);
            return (uint8_t)((code & 127) == 127 ? code ^ 1 : code);
        });
    }
    std::string words(int64_t count)
    {
        return list<uint32_t>((size_t)count, [&] {
            const uint32_t high = next();
            return high ^ next() >> 16;
        });
    }
    std::string scales(int64_t count)
    {
        return list<float>((size_t)count, [&] { return (float)((next() >> 8) + 1) * 0x1p-28f; });
    }
    std::string halves(int64_t count, rf_dtype dtype)
    {
        return list<uint16_t>((size_t)count, [&] {
            const float value = (float)((next() >> 24) + 1) * 0x1p-14f;
            uint16_t half;
            rf_narrow(&half, &value, 1, dtype);
            return half;
        });
    }
};

struct Case {
    std::string name;
    rf_weights_opts opts;
    int64_t rows, columns;
    RawTensors tensors;
};

const float fp4_levels[16] = {0,        1.F / 192, 2.F / 3,  1,          1.F / 3,  1.F / 2,
                              1.F / 6,  1.F / 4,   -0.F,     -1.F / 192, -2.F / 3, -1,
                              -1.F / 3, -1.F / 2,  -1.F / 6, -1.F / 4};

Case four_bits(const std::string &name, const std::string &kind, int64_t rows, int64_t columns,
               int block, bool nested, const std::string &dtype)
{
    Case c = {name, {}, rows, columns, {}};
    Numbers n = {(uint32_t)(rows * columns + block)};
    const int64_t blocks = (rows * columns + block - 1) / block;
    c.opts.packing = RF_PACKING_BITSANDBYTES;
    c.tensors["x.weight"] = {"U8", shape_of(rows * columns / 2, 1), n.bytes(rows * columns / 2)};
    c.tensors["x.weight.absmax"] = nested ? RawTensor{"U8", shape_of(blocks), n.bytes(blocks)}
                                          : RawTensor{"F32", shape_of(blocks), n.scales(blocks)};
    c.tensors["x.weight.quant_map"] = {"F32", "[16]",
                                       levels_of(kind == "nf4" ? rf_nf4_levels : fp4_levels, 16)};
    if (nested) {
        const int64_t groups = (blocks + 255) / 256;
        c.tensors["x.weight.nested_absmax"] = {"F32", shape_of(groups), n.scales(groups)};
        c.tensors["x.weight.nested_quant_map"] = {"F32", "[256]", nested_levels()};
    }
    const std::string state = state_of(kind, rows, columns, block, dtype,
                                       nested ? ", \"nested_blocksize\": 256, \"nested_dtype\": "
                                                "\"float32\", \"nested_offset\": 0.0625"
                                              : "");
    c.tensors["x.weight.quant_state.bitsandbytes__" + kind] = {
        "U8", shape_of((int64_t)state.size()), state};
    return c;
}

Case int8()
{
    Case c = {"int8", {}, 24, 72, {}};
    Numbers n = {24 * 72};
    c.opts.packing = RF_PACKING_BITSANDBYTES;
    c.tensors["x.weight"] = {"I8", "[24, 72]", n.bytes(24 * 72)};
    c.tensors["x.SCB"] = {"F32", "[24]", n.scales(24)};
    c.tensors["x.weight_format"] = {"U8", "[]", std::string(1, 0)};
    return c;
}

Case groups(const std::string &name, rf_packing packing, int64_t inputs, int64_t outputs,
            rf_dtype dtype)
{
    Case c = {name, {}, outputs, inputs, {}};
    Numbers n = {(uint32_t)(inputs * outputs)};
    const bool awq = packing == RF_PACKING_AWQ;
    const int64_t count = (inputs + 31) / 32;
    c.opts.packing = packing;
    c.opts.group = 32;
    c.tensors["x.qweight"] = {"I32",
                              awq ? shape_of(inputs, outputs / 8) : shape_of(inputs / 8, outputs),
                              n.words(inputs * outputs / 8)};
    c.tensors["x.qzeros"] = {"I32", shape_of(count, outputs / 8), n.words(count * outputs / 8)};
    c.tensors["x.scales"] = {dtype == RF_F16 ? "F16" : "BF16", shape_of(count, outputs),
                             n.halves(count * outputs, dtype)};
    if (packing == RF_PACKING_GPTQ_V2) {
        int32_t i = 0;
        c.opts.reordered = true;
        c.tensors["x.g_idx"] = {"I32", shape_of(inputs), n.list<int32_t>((size_t)inputs, [&] {
                                    return 7 * i++ % (int32_t)inputs / 32;
                                })};
    }
    return c;
}

/* block 0: a scale for each row. */
Case fp8(const std::string &name, int64_t rows, int64_t columns, int64_t block, rf_dtype dtype)
{
    Case c = {name, {}, rows, columns, {}};
    Numbers n = {(uint32_t)(rows * columns + block)};
    const int64_t down = block ? (rows + block - 1) / block : rows;
    const int64_t across = block ? (columns + block - 1) / block : 1;
    c.opts.packing = RF_PACKING_FP8;
    c.opts.group = block ? block : 128;
    c.tensors["x.weight"] = {"F8_E4M3", shape_of(rows, columns), n.e4m3(rows * columns)};
    c.tensors[block ? "x.weight_scale_inv" : "x.weight_scale"] = {
        dtype == RF_F32 ? "F32" : "BF16", shape_of(down, across),
        dtype == RF_F32 ? n.scales(down * across) : n.halves(down * across, dtype)};
    return c;
}

std::vector<Case> cases()
{
    return {four_bits("nf4", "nf4", 24, 72, 64, false, "float32"),
            four_bits("nf4-bf16", "nf4", 24, 72, 128, false, "bfloat16"),
            four_bits("nf4-nested", "nf4", 136, 136, 64, true, "float32"),
            four_bits("nf4-nested-f16", "nf4", 136, 136, 64, true, "float16"),
            four_bits("fp4", "fp4", 24, 72, 64, false, "float32"),
            four_bits("fp4-nested", "fp4", 24, 72, 64, true, "bfloat16"),
            int8(),
            groups("gptq", RF_PACKING_GPTQ, 72, 24, RF_F16),
            groups("gptq-v2", RF_PACKING_GPTQ_V2, 72, 24, RF_BF16),
            groups("awq", RF_PACKING_AWQ, 96, 24, RF_F16),
            fp8("fp8-blocks", 136, 192, 128, RF_F32),
            fp8("fp8-rows", 24, 72, 0, RF_BF16)};
}

uint64_t hash_of(const Floats &values)
{
    uint64_t h = 14695981039346656037u;
    for (float value : values) {
        unsigned char bytes[4];
        value += 0; // no negative zero
        memcpy(bytes, &value, 4);
        for (unsigned char byte : bytes)
            h = (h ^ byte) * 1099511628211u;
    }
    return h;
}

TEST(PackedWeights, HaveTheValuesThatTheProgramsComputeWhichWriteThem)
{
    std::ifstream file(RF_REFERENCE_FOLDER "/packed_torch.txt");
    std::string name, hash, first[4];
    size_t found = 0;
    std::vector<Case> all = cases();
    while (file >> name >> hash >> first[0] >> first[1] >> first[2] >> first[3]) {
        const Case &c = all.at(found++);
        const Folder folder;
        SCOPED_TRACE(name);
        ASSERT_EQ(name, c.name);
        RawTensors tensors = c.tensors;
        tensors["plain.weight"] = {"F32", "[2]", std::string(8, 0)};
        folder.write("model.safetensors", file_of(tensors));
        rf_weights *w = nullptr;
        ASSERT_EQ(rf_weights_open(folder.path().c_str(), &c.opts, &w), 0)
            << rf_last_error()->message;
        ASSERT_EQ(rf_weights_count(w), 2);
        const int index = rf_weights_find(w, "x.weight");
        ASSERT_GE(index, 0);
        const rf_shape shape = rf_weights_get(w, index)->shape;
        ASSERT_TRUE(rf_shape_equal(shape, rf_shape2(c.rows, c.columns)));
        Floats values((size_t)rf_shape_count(shape)), part(100), plain(2);
        ASSERT_RF(rf_weights_read(w, index, 0, values.size(), values.data()));
        for (int i = 0; i < 4; i++)
            EXPECT_EQ((double)values[(size_t)i], std::strtod(first[i].c_str(), nullptr)) << i;
        char text[32];
        snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash_of(values));
        EXPECT_EQ(text, hash);
        ASSERT_RF(rf_weights_read(w, 1 - index, 0, 2, plain.data()));
        ASSERT_RF(rf_weights_read(w, index, 1001, 100, part.data()));
        EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + 1001));

        const int64_t count = (int64_t)values.size();
        std::vector<float> bytes(rf_quantized_bytes(RF_NF4, count) / 4);
        const bool kept = c.name.rfind("nf4-nested", 0) == 0;
        EXPECT_EQ(rf_weights_quantized(w, index, RF_NF4, bytes.data()), kept);
        EXPECT_EQ(rf_weights_quantized(w, index, RF_INT8, bytes.data()), 0);
        std::vector<float> eight(rf_quantized_bytes(RF_FP8, count) / 4);
        const int stays = rf_weights_quantized(w, index, RF_FP8, eight.data());
        EXPECT_EQ(stays, c.name == "fp8-blocks");
        if (stays == 1) {
            Floats own(values.size());
            ASSERT_RF(rf_dequantize({RF_FP8, eight.data(), count}, 0, count, own.data()));
            EXPECT_EQ(own, values);
        }
        if (c.name == "nf4-nested") {
            Floats own(values.size());
            ASSERT_RF(rf_dequantize({RF_NF4, bytes.data(), count}, 0, count, own.data()));
            EXPECT_EQ(own, values);
        }
        rf_weights_close(w);
    }
    EXPECT_EQ(found, all.size());
}

TEST(PackedWeights, FaultsAreRefusedByName)
{
    struct Fault {
        size_t of; // cases()
        std::string tensor;
        RawTensor other; // no type: it is removed
        std::string part;
    };
    const std::string state = "x.weight.quant_state.bitsandbytes__nf4";
    const auto says = [](const std::string &text) {
        return RawTensor{"U8", shape_of((int64_t)text.size()), text};
    };
    const std::string good = cases()[2].tensors.at(state).bytes;
    const auto with = [&](const std::string &from, const std::string &to) {
        std::string text = good;
        const size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return says(text.replace(at, from.size(), to));
    };
    const Fault faults[] = {
        {0, "x.weight", {}, "x.weight: the tensor is missing"},
        {0, "x.weight", {"U8", "[4]", "1234"}, "half the elements"},
        {0, "x.weight.absmax", {}, "x.weight.absmax: the tensor is missing"},
        {0, "x.weight.absmax", {"F32", "[1]", "1234"}, "27 of type f32"},
        {0, "x.weight.quant_map", {}, "quant_map: the tensor is missing"},
        {0, "x.weight.quant_map", {"F32", "[16]", std::string(64, 0)}, "its levels are not"},
        {0, "x.weight.nested_absmax", {"F32", "[1]", "1234"}, "no such tensor belongs"},
        {2, "x.weight.nested_absmax", {}, "nested_absmax: the tensor is missing"},
        {2, "x.weight.nested_quant_map", {"F32", "[1]", "1234"}, "256 of type f32"},
        {2, state, {"F32", "[1]", "1234"}, "not a short text"},
        {2, state, says("[]"), "not a JSON object"},
        {2, state, says(good + std::string(1, 0)), "not a JSON object"},
        {2, state, with("\"nf4\"", "\"fp4\""), "quant_type is \"fp4\""},
        {2, state, with("64", "0"), "blocksize is 0"},
        {2, state, with("\"blocksize\"", "\"block\""), "quant_state.block"},
        {2, state, with("\"float32\"", "\"int8\""), "quant_state.dtype is \"int8\""},
        {2, state, with("[136, 136]", "[136]"), "quant_state.shape"},
        {2, state, with("[136, 136]", "[136, 0.5]"), "quant_state.shape"},
        {2, state, with("0.0625", "null"), "nested_offset"},
        {2, state, with("\"nested_blocksize\": 256, ", ""), "nested_blocksize is absent"},
        {6, "x.weight", {"U8", "[24, 72]", std::string(24 * 72, 0)}, "a matrix of type I8"},
        {6, "x.SCB", {"F32", "[1]", "1234"}, "24 of type f32"},
        {6, "x.weight_format", {"U8", "[]", "\1"}, "only the format 0"},
        {7, "x.qweight", {"I32", "[9]", std::string(36, 0)}, "a matrix of type I32"},
        {7, "x.qweight", {"I32", "[0, 24]", ""}, "positive multiple of 8"},
        {7, "x.qweight", {"I32", "[9, 4]", std::string(144, 0)}, "positive multiple of 8"},
        {7, "x.qzeros", {}, "x.qzeros: the tensor is missing"},
        {7, "x.scales", {"I32", "[1]", "1234"}, "scales of type"},
        {7, "x.scales", {"F16", "[2]", "1234"}, "72 of type f16"},
        {7, "x.weight", {"F32", "[1]", "1234"}, "x.weight is there twice"},
        {8, "x.g_idx", {}, "x.g_idx: the tensor is missing"},
        {8, "x.g_idx", {"I32", "[72]", std::string(288, '\1')}, "its g_idx has the group 16843009"},
        {9, "x.g_idx", {"I32", "[1]", "1234"}, "no such tensor belongs"},
    };
    for (const Fault &f : faults) {
        Case c = cases()[f.of];
        const Folder folder;
        SCOPED_TRACE(c.name + " " + f.tensor + " " + f.part);
        if (f.other.dtype.empty())
            ASSERT_EQ(c.tensors.erase(f.tensor), 1u);
        else
            c.tensors[f.tensor] = f.other;
        folder.write("model.safetensors", file_of(c.tensors));
        rf_weights *w = nullptr;
        float value;
        int rc = rf_weights_open(folder.path().c_str(), &c.opts, &w);
        if (rc == 0)
            rc = rf_weights_read(w, 0, 0, 1, &value);
        EXPECT_LT(rc, 0);
        EXPECT_HAS(std::string(rf_last_error()->message), f.part);
        rf_weights_close(w);
    }
}

std::string packing_fault(const std::string &fields, hub_packing *out, const char *arch = "Llama")
{
    const Folder folder;
    hub *h = nullptr;
    folder.write("config.json", "{\"architectures\": [\"" + std::string(arch) +
                                    (strcmp(arch, "GPT2") ? "ForCausalLM" : "LMHeadModel") +
                                    "\"], \"quantization_config\": " + fields + "}");
    const int rc = hub_open(folder.path().c_str(), &h);
    if (rc == 0)
        *out = hub_packing_of(h);
    hub_destroy(h);
    return rc < 0 ? rf_last_error()->message : "";
}

TEST(PackedWeights, TheirConfigIsReadOrRefusedFieldByField)
{
    const std::string bnb = "{\"quant_method\": \"bitsandbytes\", ",
                      gptq = "{\"quant_method\": \"gptq\", \"bits\": 4, ",
                      awq = "{\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": true, ";
    const struct {
        std::string fields;
        const char *part; // of the error, or NULL
        rf_packing kind;
        int group;
        rf_quantization quantized;
    } rows[] = {
        {"4", "quantization_config is 4", RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {"{}", "quant_method is absent", RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"hqq\"}", "quant_method is \"hqq\"", RF_PACKING_NONE, 0,
         RF_QUANTIZE_NONE},
        {bnb + "\"load_in_8bit\": true}", nullptr, RF_PACKING_BITSANDBYTES, 0, RF_QUANTIZE_NONE},
        {bnb + "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}", nullptr,
         RF_PACKING_BITSANDBYTES, 0, RF_QUANTIZE_NONE},
        {std::string(nf4_config).substr(strlen("\"quantization_config\": ")), nullptr,
         RF_PACKING_BITSANDBYTES, 0, RF_NF4},
        {bnb + "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", "
               "\"bnb_4bit_use_double_quant\": true, \"llm_int8_skip_modules\": "
               "[\"model.layers.1.mlp\"]}",
         nullptr, RF_PACKING_BITSANDBYTES, 0, RF_QUANTIZE_NONE},
        {bnb + "\"llm_int8_skip_modules\": \"lm_head\"}", "llm_int8_skip_modules is",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {bnb + "\"llm_int8_has_fp16_weight\": true}", "llm_int8_has_fp16_weight is true",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {bnb + "\"a_new_field\": 1}", "quantization_config.a_new_field is 1", RF_PACKING_NONE, 0,
         RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 64]}", nullptr, RF_PACKING_FP8,
         64, RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"fp8\"}", nullptr, RF_PACKING_FP8, 128, RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 64]}", "two equal numbers",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}", "activation_scheme is",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {gptq + "\"group_size\": 64, \"desc_act\": true}", nullptr, RF_PACKING_GPTQ, 64,
         RF_QUANTIZE_NONE},
        {gptq + "\"group_size\": -1, \"checkpoint_format\": \"gptq_v2\"}", nullptr,
         RF_PACKING_GPTQ_V2, -1, RF_QUANTIZE_NONE},
        {gptq + "\"format\": \"gptq\", \"checkpoint_format\": \"gptq_v2\"}", "format is",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {gptq + "\"checkpoint_format\": \"marlin\"}", "checkpoint_format is \"marlin\"",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {gptq + "\"dynamic\": {\"-:lm_head\": {}}}", "dynamic is", RF_PACKING_NONE, 0,
         RF_QUANTIZE_NONE},
        {gptq + "\"group_size\": 0}", "group_size is 0", RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"gptq\", \"bits\": 3}", "bits is 3", RF_PACKING_NONE, 0,
         RF_QUANTIZE_NONE},
        {awq + "\"version\": \"gemm\", \"group_size\": 32}", nullptr, RF_PACKING_AWQ, 32,
         RF_QUANTIZE_NONE},
        {awq + "\"modules_to_not_convert\": null}", nullptr, RF_PACKING_AWQ, 128, RF_QUANTIZE_NONE},
        {awq + "\"version\": \"gemv\"}", "version is \"gemv\"", RF_PACKING_NONE, 0,
         RF_QUANTIZE_NONE},
        {"{\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": false}", "zero_point is false",
         RF_PACKING_NONE, 0, RF_QUANTIZE_NONE},
    };
    for (const auto &row : rows) {
        hub_packing got = {};
        const std::string said = packing_fault(row.fields, &got);
        SCOPED_TRACE(row.fields + said);
        EXPECT_EQ(said.empty(), row.part == nullptr);
        EXPECT_NE(said.find(row.part ? row.part : ""), std::string::npos);
        EXPECT_EQ(got.kind, row.kind);
        EXPECT_EQ(got.group, row.group);
        EXPECT_EQ(got.quantized, row.quantized);
    }
    hub_packing got = {};
    EXPECT_HAS(packing_fault("{\"quant_method\": \"awq\"}", &got, "GPT2"), "of a GPT-2");
}
} // namespace
