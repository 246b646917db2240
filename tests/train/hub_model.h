// SPDX-License-Identifier: MIT
//
// Folders of a hub with small models whose weights are a formula, the same as in hub_torch.py.
#ifndef RF_TESTS_HUB_MODEL_H
#define RF_TESTS_HUB_MODEL_H

#include "folder.h"
#include "world.h"

extern "C" {
#include "base/base.h"
#include "hub_table.h"
}

namespace hub_models
{
using Floats = std::vector<float>;

// The same in hub_torch.py: a number in [-1/8, 1/8) by the tensor's name and the element.
inline float formula(const std::string &name, uint64_t index)
{
    uint32_t h = 2166136261u;
    for (unsigned char c : name)
        h = (h ^ c) * 16777619u;
    h = (h ^ (uint32_t)index) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    const float small = (float)(h >> 8) / 67108864.0f - 0.125f;
    return name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos
               ? 1.0f + small
               : small;
}

// Each architecture is in a case: of these texts of config.json, one names it.
inline void expect_each_architecture(const std::vector<std::string> &configs)
{
    for (int i = 0; hub_archs[i]; i++) {
        const std::string name = '"' + std::string(hub_archs[i]->name) + '"';
        bool found = false;
        for (const std::string &config : configs)
            found = found || config.find(name) != std::string::npos;
        EXPECT_TRUE(found) << "no case of " << name;
    }
}

struct Tensor {
    std::string name;
    rf_shape shape;
};

inline void write_weights(const std::string &dir, const std::vector<Tensor> &tensors,
                          rf_dtype dtype, uint64_t shard_bytes, float bad = 0, float scale = 1)
{
    std::vector<rf_weight> weights;
    for (const Tensor &t : tensors)
        weights.push_back({t.name.c_str(), dtype, t.shape});
    rf_export_opts opts = {};
    opts.weights = weights.data();
    opts.count = (int)weights.size();
    opts.shard_bytes = shard_bytes;
    rf_export *file = nullptr;
    ASSERT_RF(rf_export_open(dir.c_str(), &opts, &file));
    for (const Tensor &t : tensors) {
        Floats values((size_t)rf_shape_count(t.shape));
        for (size_t i = 0; i < values.size(); i++)
            values[i] = formula(t.name, i) * (t.shape.ndim > 1 ? scale : 1);
        if (bad != 0)
            values[1] = bad;
        ASSERT_RF(rf_export_write(file, values.data(), values.size()));
    }
    ASSERT_RF(rf_export_close(file, true));
}

// A model, its blocks, and a folder with its weights by the formula.
struct Made {
    Folder folder;
    hub *h = nullptr;
    struct gpt2 *gpt2 = nullptr;
    struct llama *llama = nullptr;
    gpt2_config g = {};
    llama_config l = {};
    const rf_block *blocks = nullptr;
    int count = 0;

    // scale: for matrices.
    std::string make(const std::string &config, float scale = 1)
    {
        folder.write("config.json", config);
        if (hub_open(folder.path().c_str(), &h) < 0)
            return rf_last_error()->message;
        hub_set_gpt2(h, &g);
        hub_set_llama(h, &l);
        if (hub_is_gpt2(h) ? gpt2_create(&g, &gpt2) < 0 : llama_create(&l, &llama) < 0)
            return "this version does not compute it";
        blocks = gpt2 ? gpt2_blocks(gpt2, &count) : llama_blocks(llama, &count);
        hub_tensors list = {};
        if (hub_list(h, blocks, count, true, &list) < 0)
            return rf_last_error()->message;
        std::vector<Tensor> tensors;
        for (int i = 0; i < list.count; i++)
            tensors.push_back({list.list[i].name, hub_tensor_shape(&list.list[i])});
        hub_tensors_free(&list);
        write_weights(folder.path("weights"), tensors, RF_F32, 4096, 0, scale);
        return "";
    }
    ~Made()
    {
        hub_destroy(h);
        gpt2_destroy(gpt2);
        llama_destroy(llama);
    }
    // Calls use(source); the source's values are the weights.
    template <typename Use> void with_source(Use use) const
    {
        rf_weights *w = nullptr;
        hub_source *source = nullptr;
        ASSERT_RF(rf_weights_open(weights().c_str(), nullptr, &w));
        ASSERT_EQ(hub_source_create(h, w, blocks, count, &source), 0) << rf_last_error()->message;
        use(hub_source_of(source));
        hub_source_destroy(source);
        rf_weights_close(w);
    }
    std::string weights() const
    {
        return folder.path("weights");
    }
};
} // namespace hub_models

#endif
