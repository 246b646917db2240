// SPDX-License-Identifier: MIT
//
// config.json of a hub: fields that are read, refused by name, and written again.
#include <fstream>

#include <gtest/gtest.h>

#include "folder.h"
#include "hub.h"

namespace
{
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string config_fault(const std::string &text, int64_t seq = 16)
{
    const Folder folder;
    hub *h = nullptr;
    folder.write("config.json", text);
    int rc = hub_open(folder.path().c_str(), &h);
    if (rc == 0)
        rc = hub_check_seq(h, seq);
    hub_destroy(h);
    return rc < 0 ? rf_last_error()->message : "";
}

std::string config(const std::string &arch, const std::string &more)
{
    return "{\"architectures\": [\"" + arch + "ForCausalLM\"]" + (more.empty() ? "" : ", ") + more +
           "}";
}

TEST(HubConfig, WhatCannotBeComputedIsRefusedByFieldAndValue)
{
    const struct {
        std::string text;
        std::vector<std::string> parts;
    } cases[] = {
        {"[]", {"not a JSON object"}},
        {"{", {"not a JSON object"}},
        {"{}", {"architectures is absent", "Qwen3ForCausalLM"}},
        {config("Gemma", ""), {"GemmaForCausalLM"}},
        {config("Llama", "\"hidden_act\": \"gelu\""), {"hidden_act", "gelu", "silu"}},
        {config("Llama", "\"attention_bias\": true"), {"attention_bias is true"}},
        {config("Llama", "\"mlp_bias\": true"), {"mlp_bias is true"}},
        {config("Llama", "\"rope_scaling\": {\"type\": \"linear\"}"), {"rope_type", "linear"}},
        {config("Llama", "\"rope_parameters\": {\"rope_type\": \"yarn\"}"), {"yarn"}},
        {config("Llama", "\"rope_parameters\": {\"rope_type\": \"llama3\"}"), {"factor"}},
        {config("Llama", "\"hidden_size\": null"), {"hidden_size is null"}},
        {config("Llama", "\"num_hidden_layers\": 0"), {"num_hidden_layers is 0"}},
        {config("Llama", "\"num_hidden_layers\": 1e30"), {"num_hidden_layers"}},
        {config("Llama", "\"vocab_size\": \"many\""), {"vocab_size", "many"}},
        {config("Llama", "\"quantization_config\": {\"bits\": 4}"), {"quantization_config"}},
        {config("Llama", "\"max_position_embeddings\": 8"), {"16 tokens", "8 positions"}},
        {config("Mistral", "\"sliding_window\": 8"), {"sliding_window is 8"}},
        {config("Qwen2", "\"use_sliding_window\": true, \"sliding_window\": 8"),
         {"sliding_window is 8"}},
        {config("Qwen3", "\"layer_types\": [\"linear_attention\"]"), {"layer_types", "linear"}},
        {config("Llama", "\"dtype\": \"float64\""), {"dtype", "float64"}},
        {"{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}",
         {"scale_attn_by_inverse_layer_idx is true"}},
        {"{\"model_type\": \"gpt2\", \"n_inner\": 7}", {"n_inner is 7"}},
        {"{\"model_type\": \"gpt2\", \"tie_word_embeddings\": false}", {"tie_word_embeddings"}},
        {"{\"model_type\": \"bert\"}", {"model_type is \"bert\"", "GPT2LMHeadModel"}},
        {config("Llama", "\"model_type\": \"mistral\""),
         {"model_type is \"mistral\"", "LlamaForCausalLM", "\"llama\""}},
        {config("Llama", "\"is_causal\": false"), {"is_causal is false"}},
        {config("Llama", "\"is_causal\": null"), {"is_causal is null"}},
        {config("Llama", "\"a_new_field\": false"), {"a_new_field is false", "delete it"}},
        {config("Llama", "\"hidden_size\": 4096, \"hidden_size\": 8192"),
         {"hidden_size occurs twice"}},
        {config("Llama", "\"attention_bias\": false, \"attention_bias\": true"),
         {"attention_bias occurs twice"}},
        {config("Llama", "\"sliding_window\": 8"), {"sliding_window is 8"}},
        {config("Llama", "\"partial_rotary_factor\": 0.5"), {"partial_rotary_factor is 0.5"}},
        {config("Llama", "\"rope_parameters\": {\"rope_theta\": 500.0}, \"rope_scaling\": "
                         "{\"rope_type\": \"yarn\", \"factor\": 4.0}"),
         {"rope_scaling.rope_type is \"yarn\""}},
        {config("Llama", "\"rope_parameters\": {\"rope_theta\": 500.0}, \"rope_scaling\": "
                         "{\"rope_type\": \"default\"}"),
         {"rope_scaling is", "rope_theta"}},
        {config("Llama", "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}"),
         {"rope_scaling.low_freq_factor is absent"}},
        {config("Llama",
                "\"rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [8]}"),
         {"rope_parameters.mrope_section is [8]"}},
        {config("Llama", "\"rope_parameters\": {\"full_attention\": {}}"),
         {"rope_parameters.full_attention"}},
        {config("Qwen2", "\"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\"]"),
         {"layer_types", "one type for each layer"}},
        {config("Qwen2", "\"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]"),
         {"layer_types", "use_sliding_window"}},
        // layer_types does not disable the window of this architecture.
        {config("Mistral", "\"num_hidden_layers\": 1, \"layer_types\": [\"full_attention\"], "
                           "\"sliding_window\": 8"),
         {"sliding_window is 8"}},
        {config("Qwen2", "\"use_sliding_window\": true, \"max_window_layers\": 0, "
                         "\"sliding_window\": 8"),
         {"sliding_window is 8"}},
        {config("Qwen2", "\"max_window_layers\": -1"), {"max_window_layers is -1"}},
    };
    for (const auto &c : cases)
        for (const std::string &part : c.parts)
            EXPECT_HAS(config_fault(c.text), part) << c.text;
    for (const char *arch : {"Llama", "Mistral", "Qwen2", "Qwen3"})
        EXPECT_EQ(config_fault(config(arch, "")), "") << arch;
    EXPECT_EQ(config_fault(config("Mistral", "\"sliding_window\": null"), 5000), "");
    EXPECT_EQ(config_fault(config("Qwen2", "\"sliding_window\": 8")), "");
    EXPECT_EQ(config_fault(config("Qwen2", "\"max_window_layers\": 0")), "");
    EXPECT_EQ(
        config_fault(config("Qwen2", "\"use_sliding_window\": true, \"num_hidden_layers\": 1, "
                                     "\"layer_types\": [\"full_attention\"], "
                                     "\"sliding_window\": 8, \"max_window_layers\": 0")),
        "");
    EXPECT_EQ(config_fault(config("Llama", "\"a_new_field\": null")), "");
}

struct hub_values values_of(const std::string &text)
{
    const Folder folder;
    hub *h = nullptr;
    struct hub_values values = {};
    folder.write("config.json", text);
    EXPECT_EQ(hub_open(folder.path().c_str(), &h), 0) << rf_last_error()->message;
    if (h)
        values = *hub_values(h);
    hub_destroy(h);
    return values;
}

// As transformers 5.24 reads them.
TEST(HubConfig, OneOfTwoFieldsCountsWhereBothAreThere)
{
    const std::string llama3 = R"("rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0)";
    const auto llama = [](const std::string &more) {
        return values_of(config("Llama", R"("max_position_embeddings": 512, )" + more));
    };
    EXPECT_EQ(llama(R"("rope_parameters": {)" + llama3 + "}").rope_scaling.original, 512);
    const std::string old = R"("rope_scaling": {"original_max_position_embeddings": 64, )" + llama3;
    EXPECT_EQ(llama(old + "}").rope_scaling.original, 64);
    EXPECT_EQ(llama(old + R"(}, "original_max_position_embeddings": 32)").rope_scaling.original,
              32);
    EXPECT_EQ(llama(R"("original_max_position_embeddings": 32)").rope_scaling.factor, 0);
    const std::string both =
        old +
        R"(, "rope_theta": 300.0}, "rope_parameters": {"rope_theta": 200.0}, "rope_theta": 100.0)";
    EXPECT_EQ(llama(both).theta, 300);
    EXPECT_EQ(
        llama(old + R"(}, "rope_parameters": {"rope_theta": 200.0}, "rope_theta": 100.0)").theta,
        100);
    const std::string empty = R"("rope_scaling": {}, "rope_parameters": {"rope_theta": 200.0})";
    EXPECT_EQ(llama(empty).theta, 200);
    EXPECT_EQ(llama(R"("rope_theta": 100.0, "rope_parameters": null)").theta, 100);
    // Newer names of GPT-2's sizes replace its own.
    const struct hub_values gpt2 =
        values_of(R"({"model_type": "gpt2", "hidden_size": 96, "n_embd": 48,
        "num_hidden_layers": 2, "n_layer": 3, "n_head": 4, "max_position_embeddings": 16})");
    EXPECT_EQ(gpt2.channels, 96);
    EXPECT_EQ(gpt2.layers, 2);
    EXPECT_EQ(gpt2.positions, 16);
    EXPECT_EQ(gpt2.hidden, 4 * 96);
}

// Fields of published files of these architectures, and of files that other programs have written
// since. None changes the computation.
TEST(HubConfig, PublishedFilesAreTaken)
{
    std::ifstream file(RF_REFERENCE_FOLDER "/hub_configs.txt");
    std::string line;
    int count = 0;
    for (; std::getline(file, line);)
        if (!line.empty() && line[0] == '{') {
            EXPECT_EQ(config_fault(line), "") << line;
            count++;
        }
    EXPECT_GE(count, 15);
}

TEST(HubConfig, KeepsItsTextButForTheType)
{
    const Folder folder;
    hub *h = nullptr;
    const std::string text = config("Llama", "\"dtype\": \"bfloat16\", \"pretraining_tp\": 8.0");
    folder.write("config.json", text);
    ASSERT_EQ(hub_open(folder.path().c_str(), &h), 0) << rf_last_error()->message;
    EXPECT_EQ(hub_dtype(h), RF_BF16);
    char *same = hub_config_text(h, RF_BF16), *other = hub_config_text(h, RF_F16);
    EXPECT_EQ(same, text);
    EXPECT_EQ(other, config("Llama", "\"dtype\": \"float16\", \"pretraining_tp\": 8.0"));
    free(same);
    free(other);
    hub_destroy(h);
}
} // namespace
