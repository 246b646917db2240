// SPDX-License-Identifier: MIT
//
// Small models that generate text, for its tests.
#ifndef RF_TESTS_GENERATE_MODEL_H
#define RF_TESTS_GENERATE_MODEL_H

#include "world.h"

#include <cstring>

namespace generation
{
struct Model {
    std::string name;
    gpt2 *g = nullptr;
    llama *l = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;

    explicit Model(bool is_llama, rf_dtype dtype = RF_F32, int layers = 2, int length = 160,
                   rf_dtype residual = RF_F32, const model_adapter *adapter = nullptr,
                   rf_quantization quantize = RF_QUANTIZE_NONE,
                   rf_reversible reversible = RF_NOT_REVERSIBLE)
        : name(std::string(is_llama ? "llama " : "gpt2 ") + rf_dtype_name(dtype))
    {
        if (is_llama) {
            llama_config c = {};
            c.layers = layers;
            c.channels = 32;
            c.heads = 4;
            c.kv_heads = 2;
            c.vocab = 61;
            c.tied = true;
            c.head_size = dtype == RF_BF16 ? 12 : 0;
            c.qkv_bias = dtype != RF_F32;
            c.rope_scaling = {8, 1, 4, 64};
            c.qk_norm = dtype != RF_F16;
            c.dtype = dtype;
            c.residual = residual;
            c.adapter = adapter;
            c.quantize = quantize;
            c.reversible = reversible;
            EXPECT_EQ(llama_create(&c, &l), 0);
            blocks = llama_blocks(l, &count);
        } else {
            gpt2_config c = {};
            c.layers = layers;
            c.channels = 32;
            c.heads = 4;
            c.seq = length;
            c.vocab = 61;
            c.dtype = dtype;
            c.residual = residual;
            c.adapter = adapter;
            c.quantize = quantize;
            c.reversible = reversible;
            EXPECT_EQ(gpt2_create(&c, &g), 0);
            blocks = gpt2_blocks(g, &count);
        }
    }
    ~Model()
    {
        gpt2_destroy(g);
        llama_destroy(l);
    }
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;
};

// Values of every parameter, the same on every request.
inline int any_values(void *, const char *name, uint64_t first, uint64_t count, void *values)
{
    uint64_t site = 7;
    for (const char *c = name; *c; c++)
        site = site * 31 + (unsigned char)*c;
    const bool norm = strstr(name, "norm") || strstr(name, "ln");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t x = (first + i + 1) * 0x9e3779b97f4a7c15ull ^ site * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 31)) * 0x94d049bb133111ebull;
        x ^= x >> 29;
        const float u = (float)(int32_t)(x >> 32) / 2147483648.0f;
        ((float *)values)[i] = norm ? 1 + 0.2f * u : 0.4f * u;
    }
    return 0;
}
inline const rf_param_source source = {nullptr, any_values};

struct Generator {
    rf_generator *g = nullptr;
    Generator(const Model &m, int64_t sequences, int64_t length, int64_t rows = 0,
              rf_comm *comm = nullptr, int rank = 0, bool record_each_call = false,
              const rf_param_source &from = source)
    {
        const rf_generator_opts opts = {sequences, length, rows, record_each_call};
        EXPECT_EQ(rf_generator_open(rank_device(rank), comm, {m.blocks, m.count}, &opts, &g), 0)
            << rf_last_error()->message;
        EXPECT_EQ(rf_generator_fill(g, &from), 0) << rf_last_error()->message;
    }
    ~Generator()
    {
        rf_generator_close(g);
    }
    std::vector<float> logits(const std::vector<int32_t> &token,
                              const std::vector<int32_t> &sequence,
                              const std::vector<int32_t> &position) const
    {
        std::vector<float> out(token.size() * 61);
        EXPECT_EQ(rf_generator_logits(
                      g, {(int64_t)token.size(), token.data(), sequence.data(), position.data()},
                      out.data(), 4 * out.size()),
                  0)
            << rf_last_error()->message;
        return out;
    }
};

struct Text {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    rf_finish finish;
    bool operator==(const Text &o) const
    {
        return ids == o.ids && finish == o.finish &&
               memcmp(logprobs.data(), o.logprobs.data(), 4 * logprobs.size()) == 0;
    }
};

inline std::vector<Text> generate(rf_generator *g, const std::vector<std::vector<int32_t>> &prompts,
                                  const rf_sampling &sampling)
{
    std::vector<rf_prompt> in;
    std::vector<rf_generated> out;
    std::vector<Text> texts(prompts.size());
    for (size_t i = 0; i < prompts.size(); i++) {
        texts[i].ids.resize(sampling.max_new);
        texts[i].logprobs.resize(sampling.max_new);
        in.push_back({prompts[i].data(), (int64_t)prompts[i].size()});
        out.push_back({texts[i].ids.data(), texts[i].logprobs.data(), 0, RF_FINISH_LENGTH});
    }
    EXPECT_EQ(rf_generate(g, in.data(), (int64_t)in.size(), &sampling, out.data()), 0)
        << rf_last_error()->message;
    for (size_t i = 0; i < prompts.size(); i++) {
        texts[i].ids.resize(out[i].count);
        texts[i].logprobs.resize(out[i].count);
        texts[i].finish = out[i].finish;
    }
    return texts;
}

inline std::vector<int32_t> tokens(int count, int seed)
{
    std::vector<int32_t> out;
    for (int i = 0; i < count; i++)
        out.push_back((i * 17 + seed * 29 + i * i) % 61);
    return out;
}
inline std::vector<int32_t> range(int first, int count)
{
    std::vector<int32_t> out;
    for (int i = 0; i < count; i++)
        out.push_back(first + i);
    return out;
}
} // namespace generation

#endif
