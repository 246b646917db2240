// SPDX-License-Identifier: MIT
//
// Training of adapters against PEFT: the losses of adapter_peft.py, which are kept in
// adapter_peft.txt, from the same weights and tokens.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "hub.h"
#include "reference_setup.h"
#include "world.h"

namespace
{
using Values = std::map<std::string, std::vector<float>>;

const int vocab = 61;

// A tensor of PEFT: rows of a parameter, or their transpose.
struct Tensor {
    std::string param;
    int64_t first_row, rows, columns;
    bool transposed;
};
using Tensors = std::map<std::string, Tensor>;

bool ends_with(const std::string &text, const std::string &end)
{
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void add_adapters(const std::vector<model_adapter_module> &modules, Tensors *tensors)
{
    Tensors renamed;
    for (const auto &[name, t] : *tensors) {
        const size_t dot = name.rfind('.');
        std::string now = name;
        for (const model_adapter_module &m : modules)
            if (name.substr(0, dot) == m.name)
                now = name.substr(0, dot) + ".base_layer" + name.substr(dot);
        renamed["base_model.model." + now] = t;
    }
    for (const model_adapter_module &m : modules) {
        const std::string name = std::string("base_model.model.") + m.name;
        renamed[name + ".lora_A.default.weight"] = {m.a, m.a_first, m.rank, m.in, false};
        renamed[name + ".lora_B.default.weight"] = {m.b, m.b_first, m.rows, m.rank, false};
    }
    *tensors = renamed;
}

Tensors tensors_of(const Training &t)
{
    const bool is_llama = t.llama.layers > 0;
    Training base = t;
    gpt2 *g[2] = {};
    llama *l[2] = {};
    hub *described = nullptr;
    hub_tensors list = {};
    int count = 0;
    base.model.adapter = base.llama.adapter = nullptr;
    std::vector<model_adapter_module> modules(64);
    const rf_block *blocks = nullptr;
    if (is_llama) {
        EXPECT_EQ(llama_create(&t.llama, &l[0]), 0);
        EXPECT_EQ(llama_create(&base.llama, &l[1]), 0);
        EXPECT_EQ(hub_of_llama(&base.llama, &described), 0);
        modules.resize((size_t)llama_adapter_modules(l[0], modules.data(), 64));
        blocks = llama_blocks(l[1], &count);
    } else {
        EXPECT_EQ(gpt2_create(&t.model, &g[0]), 0);
        EXPECT_EQ(gpt2_create(&base.model, &g[1]), 0);
        EXPECT_EQ(hub_of_gpt2(&base.model, &described), 0);
        modules.resize((size_t)gpt2_adapter_modules(g[0], modules.data(), 64));
        blocks = gpt2_blocks(g[1], &count);
    }
    Tensors tensors;
    EXPECT_EQ(hub_list(described, blocks, count, true, &list), 0) << rf_last_error()->message;
    for (int i = 0; i < list.count; i++) {
        const hub_tensor &h = list.list[i];
        tensors[h.name] = {h.param->name, h.first_row, h.rows, h.columns, h.transposed};
    }
    add_adapters(modules, &tensors);
    hub_tensors_free(&list);
    hub_destroy(described);
    for (int k = 0; k < 2; k++) {
        llama_destroy(l[k]);
        gpt2_destroy(g[k]);
    }
    return tensors;
}

float value_of(const std::string &name, uint64_t site, uint64_t i)
{
    const double x = rf_philox_normal(reference::seed, site, i);
    const bool norm =
        name.find("norm") != std::string::npos || name.find(".ln_") != std::string::npos;
    if (norm && ends_with(name, "weight"))
        return (float)(1 + 0.1 * x);
    return (float)((ends_with(name, "bias") ? 0.1 : 0.2) * x);
}

Values values_of(const Tensors &tensors)
{
    Values values;
    uint64_t site = 0;
    for (const auto &[name, t] : tensors) {
        std::vector<float> &v = values[t.param];
        v.resize(std::max(v.size(), (size_t)((t.first_row + t.rows) * t.columns)));
        for (int64_t r = 0; r < t.rows; r++)
            for (int64_t c = 0; c < t.columns; c++)
                v[(size_t)((t.first_row + r) * t.columns + c)] = value_of(
                    name, site, (uint64_t)(t.transposed ? c * t.rows + r : r * t.columns + c));
        site++;
    }
    return values;
}

std::vector<double> stored_losses(const std::string &model)
{
    std::vector<double> losses;
    std::ifstream file(RF_REFERENCE_FOLDER "/adapter_peft.txt");
    std::string line, name, step;
    double loss = 0;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        if (words >> name >> step >> loss && name == model && step != "trains")
            losses.push_back(loss);
    }
    return losses;
}

void expect_losses(Training t, const std::string &model)
{
    const std::vector<double> wanted = stored_losses(model);
    std::vector<double> got;
    ASSERT_EQ(wanted.size(), (size_t)reference::steps);
    const Values values = values_of(tensors_of(t));
    t.policy.batch = t.policy.micro_batches = reference::batch;
    t.policy.micro_batches = 2;
    t.policy.order = RF_ORDER_RING;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.optimizer.beta2 = 0.95f;
    t.policy.clip = 1;
    t.steps = 0;
    t.after = [&](rf_run *run, rf_comm *, int) {
        for (const auto &[name, v] : values)
            ASSERT_RF(rf_run_write_param(run, name.c_str(), v.data(), v.size() * 4));
        for (int step = 0; step < reference::steps; step++) {
            std::vector<int32_t> in, out;
            rf_step_stats stats = {};
            reference::tokens(step, in, out);
            ASSERT_RF(rf_run_step(run, in.data(), out.data(), 1e-2f, &stats));
            got.push_back(stats.loss);
        }
    };
    train(t, 1);
    ASSERT_EQ(got.size(), wanted.size());
    // f32 rounding of 20 steps of Adam against fp64.
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_NEAR(got[i], wanted[i], 1e-4) << model << " step " << i;
}

Training small_llama(const model_adapter *adapter)
{
    Training t;
    t.llama.layers = 2;
    t.llama.channels = 24;
    t.llama.heads = 6;
    t.llama.kv_heads = 2;
    t.llama.hidden = 37;
    t.llama.vocab = vocab;
    t.llama.adapter = adapter;
    return t;
}

TEST(AdapterPeft, LossesOfLlamaAreThoseOfPeft)
{
    const model_adapter adapter = {3, 4, 0, false, "q_proj,v_proj,o_proj,up_proj,down_proj"};
    expect_losses(small_llama(&adapter), "llama");
}

TEST(AdapterPeft, LossesOfQwen2WithItsFrozenBiasesAreThoseOfPeft)
{
    const model_adapter adapter = {4, 10, 0, false, "q_proj,k_proj,v_proj,gate_proj"};
    Training t = small_llama(&adapter);
    t.llama.qkv_bias = true;
    t.llama.architecture = "Qwen2ForCausalLM";
    expect_losses(t, "qwen2");
}

TEST(AdapterPeft, LossesOfGpt2AreThoseOfPeft)
{
    const model_adapter adapter = {5, 4, 0, true, "c_attn,c_proj,c_fc"};
    Training t;
    t.model = {2, 24, 6, 16, vocab};
    t.model.adapter = &adapter;
    expect_losses(t, "gpt2");
}

// With all biases, those of norms are trained, too.
TEST(AdapterPeft, LossesWithTrainedBiasesAreThoseOfPeft)
{
    const model_adapter all = {5, 4, 0, false, "c_attn", MODEL_ADAPTER_BIAS_ALL};
    const model_adapter own = {5, 4, 0, false, "c_attn", MODEL_ADAPTER_BIAS_ONLY};
    Training t;
    t.model = {2, 24, 6, 16, vocab};
    t.model.adapter = &all;
    expect_losses(t, "gpt2-all");
    t.model.adapter = &own;
    expect_losses(t, "gpt2-lora-only");
    const model_adapter qwen2 = {4, 10, 0, false, "q_proj,k_proj,v_proj", MODEL_ADAPTER_BIAS_ONLY};
    t = small_llama(&qwen2);
    t.llama.qkv_bias = true;
    t.llama.architecture = "Qwen2ForCausalLM";
    expect_losses(t, "qwen2-lora-only");
}

int64_t trained_by(const model_adapter &adapter)
{
    gpt2_config config = {2, 24, 6, 16, vocab};
    gpt2 *model = nullptr;
    int64_t sum = 0;
    int count = 0;
    config.adapter = &adapter;
    EXPECT_EQ(gpt2_create(&config, &model), 0);
    const rf_block *blocks = gpt2_blocks(model, &count);
    for (int b = 0; b < count; b++)
        for (int k = 0; k < blocks[b].param_count; k++)
            if (!(blocks[b].params[k].flags & RF_PARAM_FROZEN))
                sum += rf_shape_count(blocks[b].params[k].shape);
    gpt2_destroy(model);
    return sum;
}

TEST(AdapterPeft, AsManyNumbersAreTrainedAsByPeft)
{
    EXPECT_EQ(trained_by({5, 4, 0, false, "c_attn", MODEL_ADAPTER_BIAS_ALL}), 1512);
    EXPECT_EQ(trained_by({5, 4, 0, false, "c_attn", MODEL_ADAPTER_BIAS_ONLY}), 1104);
}

TEST(AdapterPeft, PartOfAFusedBiasIsNotTrained)
{
    const model_adapter adapter = {4, 10, 0, false, "q_proj,v_proj", MODEL_ADAPTER_BIAS_ONLY};
    llama_config config = small_llama(&adapter).llama;
    llama *model = nullptr;
    config.qkv_bias = true;
    EXPECT_EQ(llama_create(&config, &model), RF_EINVAL);
    config.qkv_bias = false;
    EXPECT_EQ(llama_create(&config, &model), 0);
    llama_destroy(model);
}
} // namespace
