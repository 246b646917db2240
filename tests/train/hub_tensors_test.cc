// SPDX-License-Identifier: MIT
//
// The tensors of folders of a hub: names that vary between writers, and names of modules.
#include <cmath>
#include <cstring>

#include "hub_model.h"

extern "C" {
#include "hub_modules.h"
}

namespace
{
using namespace hub_models;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const char tiny_gpt2[] = R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 11,
    "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2})";

std::string tiny_llama(const std::string &name, const std::string &more)
{
    return R"({"architectures": [")" + name + R"("], "vocab_size": 11, "hidden_size": 8,
        "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4, "sliding_window": null)" +
           more + "}";
}

// A model, and its tensors under the table's names.
struct Named {
    Made made;
    std::vector<Tensor> tensors;

    explicit Named(const std::string &config, bool prefix = true)
    {
        hub_tensors list = {};
        EXPECT_EQ(made.make(config), "");
        EXPECT_EQ(hub_list(made.h, made.blocks, made.count, prefix, &list), 0)
            << rf_last_error()->message;
        for (int i = 0; i < list.count; i++)
            tensors.push_back({list.list[i].name, hub_tensor_shape(&list.list[i])});
        hub_tensors_free(&list);
    }
    // The error for the files that exist now.
    std::string fault() const
    {
        rf_weights *w = nullptr;
        hub_source *source = nullptr;
        EXPECT_RF(rf_weights_open(made.weights().c_str(), nullptr, &w));
        const int rc = hub_source_create(made.h, w, made.blocks, made.count, &source);
        hub_source_destroy(source);
        rf_weights_close(w);
        return rc < 0 ? rf_last_error()->message : "";
    }
    float first(const char *param) const
    {
        float value = NAN;
        made.with_source([&](const rf_param_source &from) {
            EXPECT_RF(from.read(from.self, param, 0, 1, &value));
        });
        return value;
    }
};

// safetensors' save_model writes a tensor with two names under one of them.
TEST(HubTensors, ATableThatIsTheHeadMayHaveTheNameOfEither)
{
    const std::pair<std::string, const char *> models[] = {
        {tiny_gpt2, "wte.weight"},
        {tiny_llama("LlamaForCausalLM", R"(, "tie_word_embeddings": true)"), "embedding.weight"}};
    for (const auto &[config, table] : models) {
        Named named(config);
        EXPECT_EQ(named.first(table), formula(named.tensors[0].name, 0));
        named.tensors[0].name = "lm_head.weight";
        write_weights(named.made.weights(), named.tensors, RF_F32, 0);
        EXPECT_EQ(named.fault(), "");
        EXPECT_EQ(named.first(table), formula("lm_head.weight", 0));
        named.tensors[0].name = "head.weight";
        write_weights(named.made.weights(), named.tensors, RF_F32, 0);
        EXPECT_HAS(named.fault(), "is missing");
    }
    Named untied(tiny_llama("LlamaForCausalLM", ""));
    untied.tensors.erase(untied.tensors.begin());
    write_weights(untied.made.weights(), untied.tensors, RF_F32, 0);
    EXPECT_HAS(untied.fault(), "model.embed_tokens.weight is missing");
}

std::string text_of(const hub *h)
{
    char *text = hub_config_text(h, RF_F32);
    const std::string copy = text ? text : "";
    free(text);
    return copy;
}

// As in transformers 5: the files take precedence.
TEST(HubTensors, AHeadOfItsOwnIsKeptThoughTheConfigTiesIt)
{
    Named named(tiny_llama("LlamaForCausalLM", R"(, "tie_word_embeddings": true)"));
    const Folder folder;
    const std::string dir = folder.path("m");
    const auto tied = [&](std::string *text) {
        hub *h = nullptr;
        EXPECT_EQ(hub_open(dir.c_str(), &h), 0) << rf_last_error()->message;
        const bool is = hub_values(h)->tied;
        *text = text_of(h);
        hub_destroy(h);
        return is;
    };
    std::string text;
    const std::string config = named.made.folder.read("config.json");
    std::vector<Tensor> tensors = named.tensors;
    write_weights(dir, tensors, RF_F32, 0);
    folder.write("m/config.json", config);
    EXPECT_TRUE(tied(&text));
    EXPECT_HAS(text, R"("tie_word_embeddings": true)");
    tensors.push_back({"lm_head.weight", tensors[0].shape}); // other numbers
    write_weights(dir, tensors, RF_F32, 300);
    folder.write("m/config.json", config);
    EXPECT_FALSE(tied(&text));
    EXPECT_HAS(text, R"("tie_word_embeddings": false)");
    std::filesystem::remove(dir + "/model-00001-of-00001.safetensors");
    write_weights(dir, tensors, RF_F32, 0, 0, 0); // all of them zero
    folder.write("m/config.json", config);
    EXPECT_TRUE(tied(&text));
}

// A file whose last tensor is a mask of a type that the library lacks.
void add_mask(const std::string &path, const std::string &name)
{
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    uint64_t length = 0;
    memcpy(&length, bytes.data(), 8);
    std::string header = bytes.substr(8, length);
    const std::string data = bytes.substr(8 + length);
    const std::string at = std::to_string(data.size()), end = std::to_string(data.size() + 16);
    header.insert(header.rfind('}'), ",\"" + name + R"(":{"dtype":"BOOL","shape":[1,1,4,4],)" +
                                         R"("data_offsets":[)" + at + "," + end + "]}");
    length = header.size();
    std::string front(8, 0);
    memcpy(front.data(), &length, 8);
    std::ofstream(path, std::ios::binary) << front << header << data << std::string(16, 1);
}

TEST(HubTensors, MasksAreIgnoredByNameWhateverTheirType)
{
    Named named(tiny_gpt2);
    const std::string file = named.made.weights() + "/model.safetensors";
    write_weights(named.made.weights(), named.tensors, RF_F32, 0);
    add_mask(file, "transformer.h.0.attn.bias");
    EXPECT_EQ(named.fault(), "");
    add_mask(file, "transformer.h.0.attn.other");
    EXPECT_HAS(named.fault(), "transformer.h.0.attn.other belongs to no parameter");
    named.tensors.pop_back();
    write_weights(named.made.weights(), named.tensors, RF_F32, 0);
    add_mask(file, "transformer.ln_f.bias");
    EXPECT_HAS(named.fault(), "transformer.ln_f.bias is");
}

TEST(HubTensors, AFolderOfAModelWithoutItsHeadIsRead)
{
    Named named(tiny_llama("LlamaModel", R"(, "tie_word_embeddings": true)"), false);
    EXPECT_EQ(hub_architecture(named.made.h), std::string("LlamaForCausalLM"));
    write_weights(named.made.weights(), named.tensors, RF_F32, 0);
    EXPECT_EQ(named.fault(), "");
    EXPECT_EQ(named.first("embedding.weight"), formula("embed_tokens.weight", 0));
    // The export has a head, and the names of a model with one.
    EXPECT_HAS(text_of(named.made.h), R"("architectures": ["LlamaForCausalLM"])");
    Named untied(tiny_llama("LlamaModel", ""), false);
    untied.tensors.pop_back();
    write_weights(untied.made.weights(), untied.tensors, RF_F32, 0);
    EXPECT_HAS(untied.fault(), "lm_head.weight is missing");
}

// ---- names of modules ---------------------------------------------------------------------------

TEST(HubModules, AreThoseOfTheTensorsOfEachArchitecture)
{
    const model_adapter all = {2, 4, 0, false, "all-linear"};
    for (int i = 0; hub_archs[i]; i++) {
        const std::string name = hub_archs[i]->name;
        Named named(hub_archs[i]->gpt2 ? tiny_gpt2 : tiny_llama(name, ""));
        gpt2_config g = named.made.g;
        llama_config l = named.made.l;
        gpt2 *gpt2 = nullptr;
        llama *llama = nullptr;
        model_adapter_module modules[16];
        g.adapter = l.adapter = &all;
        ASSERT_EQ(hub_archs[i]->gpt2 ? gpt2_create(&g, &gpt2) : llama_create(&l, &llama), 0);
        const int count = gpt2 ? gpt2_adapter_modules(gpt2, modules, 16)
                               : llama_adapter_modules(llama, modules, 16);
        EXPECT_EQ(count, gpt2 ? 4 : 7) << name;
        for (int k = 0; k < count; k++) {
            bool found = false;
            for (const Tensor &t : named.tensors)
                found = found || t.name == std::string(modules[k].name) + ".weight";
            EXPECT_TRUE(found) << name << " " << modules[k].name;
        }
        gpt2_destroy(gpt2);
        llama_destroy(llama);
    }
}

TEST(HubModules, OfAnArchitectureWithOneTensorForSeveralPartsAreOne)
{
    static const hub_row rows[] = {
        {"blocks.#.attention.qkv.weight", {"@layers.#.self_attn.qkv_proj.weight"}},
        {"blocks.#.mlp.gate_up.weight", {"@mlp.#.gate.weight", "@mlp.#.up.weight"}},
        {nullptr}};
    hub_arch arch = {};
    arch.prefix = "model.";
    arch.rows = rows;
    const lora_weight qkv = {"attention.qkv", 8, {8, 4, 4}, 3},
                      gate_up = {"mlp.gate_up", 8, {6, 6}, 2}, down = {"mlp.down", 6, {8}, 1};
    const lora_modules one = hub_modules(&arch, &qkv, 3), two = hub_modules(&arch, &gate_up, 0);
    ASSERT_EQ(one.count, 1);
    EXPECT_STREQ(one.module[0].name, "model.layers.3.self_attn.qkv_proj");
    EXPECT_EQ(one.module[0].rows, 16);
    ASSERT_EQ(two.count, 2);
    EXPECT_STREQ(two.module[1].name, "model.mlp.0.up");
    EXPECT_EQ(two.module[1].rows, 6);
    EXPECT_EQ(hub_modules(&arch, &down, 0).count, 0);
}

TEST(HubModules, AnExportHasTheArchitectureThatTheConfigNames)
{
    Named named(tiny_llama("LlamaForCausalLM", ""));
    llama_config c = named.made.l;
    hub *h = nullptr;
    for (const char *name : {"MistralForCausalLM", "LlamaForCausalLM"}) {
        c.architecture = name;
        ASSERT_EQ(hub_of_llama(&c, &h), 0);
        EXPECT_EQ(hub_architecture(h), std::string(name));
        EXPECT_HAS(text_of(h), std::string(name));
        hub_destroy(h);
    }
    c.architecture = nullptr;
    ASSERT_EQ(hub_of_llama(&c, &h), 0);
    EXPECT_EQ(hub_architecture(h), std::string("LlamaForCausalLM"));
    hub_destroy(h);
    c.qkv_bias = true; // the other one lacks it
    EXPECT_EQ(hub_of_llama(&c, &h), RF_EINVAL);
    c.architecture = "no such";
    EXPECT_EQ(hub_of_llama(&c, &h), RF_EINVAL);
    llama *model = nullptr;
    EXPECT_EQ(llama_create(&c, &model), RF_EINVAL);
    EXPECT_STREQ(rf_last_error()->message,
                 "there is no architecture no such; for example LlamaForCausalLM");
}
} // namespace
