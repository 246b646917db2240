// SPDX-License-Identifier: MIT
//
// Files of adapters: files of PEFT are read, written ones read back, and features that this library
// lacks are refused by name.
#include "adapter_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "folder.h"

namespace
{
std::string refused(const std::string &fields)
{
    static adapter_config config;
    const std::string text = R"({"peft_type": "LORA", "target_modules": ["q_proj"])" + fields + "}";
    return adapter_config_parse(text.c_str(), &config) == 0 ? "" : rf_last_error()->message;
}

TEST(AdapterFile, FieldsThatChangeTheResultAreRefusedByName)
{
    EXPECT_EQ(refused(""), "");
    EXPECT_EQ(refused(R"(, "use_dora": false, "rank_pattern": {}, "bias": "none")"), "");
    EXPECT_EQ(refused(R"(, "a_field_of_the_future": null, "init_lora_weights": true)"), "");
    // How new adapters were initialised does not matter once they are in a file.
    for (const char *init : {"orthogonal", "eva", "gaussian"})
        EXPECT_EQ(refused(std::string(R"(, "init_lora_weights": ")") + init + "\""), "") << init;
    const std::string fields[] = {R"("use_dora": true)",
                                  R"("rank_pattern": {"q_proj": 4})",
                                  R"("alpha_pattern": {"q_proj": 4})",
                                  R"("layers_to_transform": [1])",
                                  R"("modules_to_save": ["lm_head"])",
                                  R"("bias": "all")",
                                  R"("init_lora_weights": "pissa")",
                                  R"("init_lora_weights": "mica")",
                                  R"("lora_bias": true)",
                                  R"("exclude_modules": ["k_proj"])",
                                  R"("trainable_token_indices": [1])",
                                  R"("a_field_of_the_future": 1)"};
    for (const std::string &field : fields) {
        const std::string name = field.substr(1, field.find('"', 1) - 1);
        EXPECT_NE(refused(", " + field).find(name), std::string::npos) << field;
    }
}

TEST(AdapterFile, HostileConfigsAreErrors)
{
    static adapter_config config;
    for (const char *text : {"", "[]", "{", "{}", R"({"peft_type": "IA3"})", R"({"peft_type": 1})"})
        EXPECT_LT(adapter_config_parse(text, &config), 0) << text;
    for (const char *fields :
         {R"(, "r": 0)", R"(, "r": 1e9)", R"(, "r": 2.5)", R"(, "r": "8")", R"(, "lora_alpha": -1)",
          R"(, "lora_alpha": 1e300)", R"(, "lora_alpha": 1e-300)", R"(, "lora_dropout": 1)",
          R"(, "use_rslora": 1)", R"(, "fan_in_fan_out": "yes")"})
        EXPECT_NE(refused(fields), "") << fields;
    for (const char *targets : {"null", "[]", "[1]", R"([""])", R"(["a\nb"])", R"(".*_proj")",
                                R"(["q_proj", "all-linear"])"}) {
        const std::string text =
            std::string(R"({"peft_type": "LORA", "target_modules": )") + targets + "}";
        EXPECT_LT(adapter_config_parse(text.c_str(), &config), 0) << targets;
    }
}

// PEFT's targets by a list of names: whole names, or their ends after a dot.
TEST(Adapter, TargetsThatNameNoModuleAreFound)
{
    model_adapter_module m[2] = {};
    snprintf(m[0].name, sizeof(m[0].name), "model.layers.0.self_attn.q_proj");
    snprintf(m[1].name, sizeof(m[1].name), "model.layers.0.mlp.up_proj");
    const auto unmatched = [&](const char *targets) {
        model_adapter adapter = {2};
        std::string all;
        char target[128];
        adapter.targets = targets;
        for (const char *at = nullptr; !at || *at;) {
            at = model_adapter_unmatched(&adapter, m, 2, at, target);
            if (!at)
                break;
            all += std::string(target) + ";";
        }
        return all;
    };
    EXPECT_EQ(unmatched("q_proj,up_proj"), "");
    EXPECT_EQ(unmatched("all-linear"), "");
    EXPECT_EQ(unmatched("model.layers.*.mlp.*,self_attn.q_proj"), "");
    EXPECT_EQ(unmatched("q_proj,lm_head"), "lm_head;");
    EXPECT_EQ(unmatched("proj,q_proj,embed_tokens,v_proj"), "proj;embed_tokens;v_proj;");
}

int read_number(void *self, const model_adapter_module *m, bool is_b, float *values)
{
    const float first = *(float *)self + (is_b ? 100 : 0);
    for (int64_t i = 0; i < m->rank * (is_b ? m->rows : m->in); i++)
        values[i] = first + (float)i;
    return 0;
}

TEST(AdapterFile, WhatIsWrittenReadsBackAndMerges)
{
    const model_adapter adapter = {2, 6, 0.1f, false, "q_proj,v_proj"};
    model_adapter_module m[2] = {};
    snprintf(m[0].name, sizeof(m[0].name), "model.layers.0.self_attn.q_proj");
    snprintf(m[1].name, sizeof(m[1].name), "model.layers.0.self_attn.v_proj");
    for (model_adapter_module &module : m) {
        module.rank = 2;
        module.in = 3;
        module.rows = 4;
    }
    Folder folder;
    const std::string dir = folder.path("adapter");
    float first = 1;
    const adapter_source source = {&first, read_number};
    char *text = adapter_config_text(&adapter, false, "base", m, 2);
    ASSERT_EQ(adapter_file_write(dir.c_str(), text, m, 2, &source), 0) << rf_last_error()->message;
    free(text);
    adapter_file *file = nullptr;
    ASSERT_EQ(adapter_file_open(dir.c_str(), &file), 0) << rf_last_error()->message;
    const model_adapter &read = adapter_file_config(file)->adapter;
    EXPECT_EQ(read.rank, 2);
    EXPECT_EQ(read.alpha, 6);
    EXPECT_EQ(read.dropout, 0.1f);
    EXPECT_EQ(std::string(read.targets), adapter.targets);
    EXPECT_EQ(adapter_file_check(file, m, 2), 0) << rf_last_error()->message;
    EXPECT_LT(adapter_file_check(file, m, 1), 0); // has more
    EXPECT_NE(std::string(rf_last_error()->message)
                  .find("base_model.model.model.layers.0.self_attn.v_proj.lora_A"),
              std::string::npos)
        << rf_last_error()->message;
    EXPECT_EQ(adapter_file_unused(file),
              std::string("base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"));
    EXPECT_EQ(adapter_file_check(file, m, 2), 0) << rf_last_error()->message;
    EXPECT_EQ(adapter_file_unused(file), nullptr);
    std::vector<float> a(6), b(8), w(12, 0.5f);
    ASSERT_EQ(adapter_file_read(file, &m[1], false, a.data()), 0);
    ASSERT_EQ(adapter_file_read(file, &m[1], true, b.data()), 0);
    EXPECT_EQ(a[5], 6);
    EXPECT_EQ(b[7], 108);
    bool merged = false;
    const rf_weight base = {"model.layers.0.self_attn.q_proj.weight", RF_F32, rf_shape2(4, 3)};
    ASSERT_EQ(adapter_file_merge(file, &base, false, w.data(), &merged), 0)
        << rf_last_error()->message;
    EXPECT_TRUE(merged);
    EXPECT_EQ(w[0], 0.5f + 3 * (101 * 1 + 102 * 4));
    const rf_weight other = {"model.norm.weight", RF_F32, rf_shape1(3)};
    EXPECT_EQ(adapter_file_merge(file, &other, false, w.data(), &merged), 0);
    EXPECT_FALSE(merged);
    // A base whose weights are (in,out), whatever the config says.
    std::vector<float> turned(12, 0.5f);
    const rf_weight lies = {"model.layers.0.self_attn.q_proj.weight", RF_F32, rf_shape2(3, 4)};
    ASSERT_EQ(adapter_file_merge(file, &lies, true, turned.data(), &merged), 0)
        << rf_last_error()->message;
    w.assign(12, 0.5f);
    ASSERT_EQ(adapter_file_merge(file, &base, false, w.data(), &merged), 0)
        << rf_last_error()->message;
    for (size_t i = 0; i < 12; i++)
        EXPECT_EQ(turned[i % 3 * 4 + i / 3], w[i]) << i;
    m[0].rows = 5;
    EXPECT_LT(adapter_file_check(file, m, 2), 0);
    EXPECT_NE(std::string(rf_last_error()->message).find("shape"), std::string::npos)
        << rf_last_error()->message;
    adapter_file_close(file);
    EXPECT_LT(adapter_file_open(folder.path().c_str(), &file), 0); // no files
}
} // namespace
