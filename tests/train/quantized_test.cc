// SPDX-License-Identifier: MIT
//
// Adapters of models with quantised weights: losses and gradients against those of the same weights
// in f32, quantised bytes that training does not change, the same bits on any number of ranks, and
// memory as planned.
#include <algorithm>
#include <cstring>

#include "adapted.h"
#include "folder.h"
#include "quantized.h"
#include "unpacked.h"

extern "C" {
#include "base/base.h"
}

namespace
{
const model_adapter adapter = {3, 4, 0, false, "all-linear"};

// The blocks of a training's model.
struct Model {
    gpt2 *g = nullptr;
    llama *l = nullptr;
    const rf_block *blocks = nullptr;
    int count = 0;
    Model(gpt2_config gpt2_of, llama_config llama_of)
    {
        if (llama_of.layers > 0) {
            EXPECT_EQ(llama_create(&llama_of, &l), 0);
            blocks = llama_blocks(l, &count);
        } else {
            EXPECT_EQ(gpt2_create(&gpt2_of, &g), 0);
            blocks = gpt2_blocks(g, &count);
        }
    }
    static Model plain(Training t)
    {
        t.model.adapter = t.llama.adapter = nullptr;
        t.model.quantize = t.llama.quantize = RF_QUANTIZE_NONE;
        return Model(t.model, t.llama);
    }
    Model(const Model &) = delete;
    ~Model()
    {
        gpt2_destroy(g);
        llama_destroy(l);
    }
};

bool has(const std::string &name, const char *part)
{
    return name.find(part) != std::string::npos;
}

// Values larger than the initial ones of a run, so that every part matters.
int read_values(void *, const char *name, uint64_t first, uint64_t count, void *out)
{
    const bool norm = has(name, "ln") || has(name, "norm");
    const float scale = has(name, "lora") ? 0.3f : 0.2f;
    uint64_t site = 0;
    for (const char *c = name; *c; c++)
        site = site * 31 + (uint8_t)*c;
    for (uint64_t i = 0; i < count; i++)
        ((float *)out)[i] =
            norm ? (float)has(name, "weight") : scale * rf_philox_normal(3, site, first + i);
    return 0;
}

// The values that kernels compute with, in f32: for each quantised weight, module by module.
struct Dequantized {
    Values weights;
    static int read(void *self, const char *name, uint64_t first, uint64_t count, void *out)
    {
        const Dequantized *d = (const Dequantized *)self;
        const auto found = d->weights.find(name);
        if (found == d->weights.end())
            return read_values(nullptr, name, first, count, out);
        std::copy_n(found->second.begin() + (ptrdiff_t)first, count, (float *)out);
        return 0;
    }
    void add(rf_quantization kind, const rf_param_desc &plain, const rf_block &block, int param)
    {
        std::vector<float> values((size_t)rf_shape_count(plain.shape));
        read_values(nullptr, plain.name, 0, values.size(), values.data());
        unpack(kind, block, param, values);
        weights[plain.name] = values;
    }
};

// Every rank has a source of its own.
void fill_quantized(const Training &t, rf_run *run)
{
    const Model model(t.model, t.llama), plain = Model::plain(t);
    quantized_source *source = nullptr;
    ASSERT_EQ(quantized_source_create(t.llama.layers ? t.llama.quantize : t.model.quantize,
                                      model.blocks, plain.blocks, plain.count,
                                      {nullptr, read_values}, &source),
              0);
    const rf_param_source of = quantized_source_of(source);
    EXPECT_RF(rf_run_fill(run, &of));
    quantized_source_destroy(source);
}

Dequantized dequantized(const Training &t, rf_quantization kind)
{
    const Model model(t.model, t.llama), plain = Model::plain(t);
    Dequantized d;
    for (int b = 0; b < plain.count; b++)
        for (int k = 0; k < plain.blocks[b].param_count; k++)
            if (model.blocks[b].params[k].dtype == RF_U8)
                d.add(kind, plain.blocks[b].params[k], model.blocks[b], k);
    EXPECT_EQ(d.weights.size(), 8u); // four in each of two layers
    return d;
}

void expect_equal_to_f32(bool is_llama, rf_quantization kind, unsigned recompute)
{
    const std::string where = std::string(is_llama ? "llama " : "gpt2 ") +
                              rf_quantization_name(kind) + ", recompute " +
                              std::to_string(recompute);
    Training t = adapted(is_llama, &adapter, kind);
    t.model.recompute = t.llama.recompute = recompute;
    t.steps = 1;
    t.lr = 0;
    t.policy.optimizer.kind = RF_SGD;
    Values grads[2];
    Training f32 = t;
    f32.model.quantize = f32.llama.quantize = RF_QUANTIZE_NONE;
    Dequantized values = dequantized(t, kind);
    t.before = [&](rf_run *run, rf_comm *, int) { fill_quantized(t, run); };
    t.after = [&](rf_run *run, rf_comm *, int) { grads[0] = read(run, true, false); };
    f32.before = [&](rf_run *run, rf_comm *, int) {
        const rf_param_source source = {&values, Dequantized::read};
        EXPECT_RF(rf_run_fill(run, &source));
    };
    f32.after = [&](rf_run *run, rf_comm *, int) { grads[1] = read(run, true, false); };
    const Seen quantized = train(t, 1)[0], whole = train(f32, 1)[0];
    expect_planned(quantized, where);
    EXPECT_LT(quantized.planned.params, whole.planned.params) << where;
    EXPECT_NEAR(quantized.loss[0], whole.loss[0], 1e-5 * whole.loss[0]) << where;
    ASSERT_EQ(grads[0].size(), 16u) << where; // A and B of each
    for (const auto &[name, v] : grads[1]) {
        const double norm = norm_of(v);
        ASSERT_GT(norm, 0) << where;
        for (size_t i = 0; i < v.size(); i++)
            ASSERT_NEAR(grads[0].at(name)[i], v[i], 1e-5 * norm) << where << name;
    }
}

TEST(Quantized, LossAndGradientsAreThoseOfTheSameWeightsInF32)
{
    for (rf_quantization kind : {RF_NF4, RF_INT8})
        for (bool is_llama : {false, true})
            expect_equal_to_f32(is_llama, kind, kind == RF_NF4 ? 0 : MODEL_RECOMPUTE_ALL);
    for (rf_quantization kind : {RF_FP8, RF_MXFP4, RF_NVFP4})
        expect_equal_to_f32(kind != RF_FP8, kind, 0);
}

TEST(Quantized, TrainingLeavesTheBytesAsTheyAre)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) {
        Training t = adapted(dtype == RF_BF16, &adapter, RF_NF4);
        t.model.dtype = t.llama.dtype = dtype;
        t.steps = 20;
        t.edit_batch = [](int, std::vector<int32_t> &tokens, std::vector<int32_t> &targets) {
            for (size_t i = 0; i < tokens.size(); i++) {
                tokens[i] = (int32_t)(i % 7);
                targets[i] = (int32_t)((i + 1) % 7);
            }
        };
        Values before, all;
        t.before = [&](rf_run *run, rf_comm *, int) {
            fill_quantized(t, run);
            before = read(run, false, true);
            all = read(run, false, false);
        };
        t.after = [&](rf_run *run, rf_comm *, int) {
            for (const auto &[name, v] : read(run, false, false)) {
                const bool same = memcmp(v.data(), all.at(name).data(), v.size() * 4) == 0;
                EXPECT_EQ(same, !has(name, "lora_")) << name;
                EXPECT_EQ(before.count(name) == 1, has(name, "blocks.") && has(name, ".weight") &&
                                                       !has(name, "lora_") && !has(name, "ln") &&
                                                       !has(name, "norm"))
                    << name;
            }
        };
        const Seen seen = train(t, 1)[0];
        expect_planned(seen, rf_dtype_name(dtype));
        EXPECT_LT(seen.loss.back(), seen.loss.front()) << rf_dtype_name(dtype);
        EXPECT_EQ(before.size(), 8u);
    }
}

// As bitsandbytes does with the tensors of a hub's checkpoint.
TEST(Quantized, ModulesOfAFusedWeightHaveTheBytesThatTheyHaveAlone)
{
    for (rf_quantization kind : {RF_NF4, RF_INT8}) {
        const Training t = adapted(true, &adapter, kind);
        const Model model(t.model, t.llama), plain = Model::plain(t);
        quantized_source *source = nullptr;
        ASSERT_EQ(quantized_source_create(kind, model.blocks, plain.blocks, plain.count,
                                          {nullptr, read_values}, &source),
                  0);
        const rf_param_source of = quantized_source_of(source);
        const int64_t columns = 24, rows[] = {24, 8, 8}; // 6 heads of queries, 2 of keys
        uint64_t at = 0;
        int64_t first = 0;
        for (int64_t n : rows) {
            std::vector<float> values((size_t)(n * columns));
            std::vector<uint32_t> alone(rf_quantized_bytes(kind, n * columns) / 4), all(alone);
            const char *name = "blocks.1.attention.qkv.weight";
            read_values(nullptr, name, (uint64_t)first, values.size(), values.data());
            EXPECT_RF(rf_quantize(kind, values.data(), n * columns, alone.data()));
            EXPECT_EQ(of.read(of.self, name, at, alone.size() * 4, all.data()), 0);
            EXPECT_EQ(all, alone) << rf_quantization_name(kind);
            at += alone.size() * 4;
            first += n * columns;
        }
        quantized_source_destroy(source);
    }
}

TEST(Quantized, ParametersAreTheSameBitsOnAnyRanks)
{
    for (bool is_llama : {false, true}) {
        Training t = adapted(is_llama, &adapter, is_llama ? RF_NF4 : RF_INT8);
        t.policy.clip = 1;
        t.model.dtype = t.llama.dtype = is_llama ? RF_BF16 : RF_F32;
        t.before = [&](rf_run *run, rf_comm *, int) { fill_quantized(t, run); };
        const std::string one = train(t, 1)[0].sha;
        for (const Sharding &s : all_shardings()) {
            if (s.order != RF_ORDER_TREE || (s.offload && s.zero % 3))
                continue;
            Training u = t;
            u.policy.zero = s.zero;
            u.policy.offload = s.offload;
            u.policy.recompute = s.zero % 2;
            for (const Seen &seen : train(u, 2)) {
                EXPECT_EQ(seen.sha, one) << s.text();
                expect_planned(seen, s.text());
            }
        }
        t.pp = 2;
        for (const Seen &seen : train(t, 2)) {
            EXPECT_EQ(seen.sha, one) << "pp=2";
            expect_planned(seen, "pp=2");
        }
    }
}

// Blocks of 64 in 1024, and so four groups of the second level, are whole in the part of each of
// four ranks.
Training divided(bool is_llama, rf_quantization kind)
{
    Training t = adapted(is_llama, &adapter, kind);
    t.model.layers = 1;
    t.llama.layers = is_llama;
    t.model.channels = 256;
    t.model.heads = 4;
    t.llama.channels = is_llama ? 256 : 0;
    t.llama.heads = 8;
    t.llama.kv_heads = 4;
    t.llama.hidden = 256;
    t.policy.batch = t.policy.micro_batches = 2;
    t.policy.seq = 8;
    t.policy.optimizer.kind = RF_SGD; // small differences stay small
    t.steps = 1;
    return t;
}

// The values are those of one rank, so the results differ by the order of sums alone; and with
// tensor_parts they do not.
TEST(Quantized, TensorRanksComputeWhatOneDoes)
{
    for (bool is_llama : {false, true})
        for (rf_quantization kind : {RF_NF4, RF_INT8, is_llama ? RF_NVFP4 : RF_MXFP4}) {
            Training t = divided(is_llama, kind);
            Values one, raw, got, bytes;
            t.before = [&](rf_run *run, rf_comm *, int) { fill_quantized(t, run); };
            t.after = [&](rf_run *run, rf_comm *, int rank) {
                const Values all = read(run, false), packed = read(run, false, true);
                if (rank == 0) {
                    got = all;
                    bytes = packed;
                }
            };
            const Seen alone = train(t, 1)[0];
            expect_planned(alone, "one rank");
            one = got;
            raw = bytes;
            for (int tp : {2, 4, -2}) { // -2: by sequence parallelism, too
                if (tp != 4 && kind != (is_llama ? RF_NF4 : RF_INT8))
                    continue;
                const std::string where = (is_llama ? "llama " : "gpt2 ") +
                                          std::string(rf_quantization_name(kind)) + ", tp " +
                                          std::to_string(tp);
                Training u = t;
                u.tp = std::abs(tp);
                u.policy.sequence_parallel = tp < 0;
                for (const Seen &seen : train(u, u.tp)) {
                    expect_planned(seen, where);
                    EXPECT_LT(seen.planned.params, alone.planned.params) << where;
                    for (size_t k = 0; k < alone.loss.size(); k++)
                        EXPECT_NEAR(seen.loss[k], alone.loss[k], 5e-6 * alone.loss[k]) << where;
                }
                for (const auto &[name, v] : raw)
                    EXPECT_EQ(memcmp(v.data(), bytes.at(name).data(), v.size() * 4), 0)
                        << where << name;
                for (const auto &[name, v] : one) {
                    if (raw.count(name))
                        continue;
                    const double most = 1e-5 * (norm_of(v) + 1);
                    const std::vector<float> &w = got.at(name);
                    for (size_t i = 0; i < v.size(); i++)
                        ASSERT_NEAR(v[i], w[i], most) << name << where;
                }
            }
        }
}

TEST(Quantized, TensorPartsHaveTheSameBitsOnAnyRanks)
{
    for (bool is_llama : {false, true}) {
        Training t = divided(is_llama, is_llama ? RF_NF4 : RF_INT8);
        t.policy.tensor_parts = 4;
        t.policy.clip = 1;
        t.llama.dtype = is_llama ? RF_BF16 : RF_F32;
        t.before = [&](rf_run *run, rf_comm *, int) { fill_quantized(t, run); };
        const Seen one = train(t, 1)[0];
        expect_planned(one, "one rank");
        /* And a checkpoint of any of them is that of the others. */
        Folder folder;
        Training saved = t, loaded = t;
        saved.tp = 4;
        saved.steps = loaded.steps = 0;
        saved.after = [&](rf_run *run, rf_comm *, int) { save_at(run, folder.path(), 0); };
        loaded.before = [&](rf_run *run, rf_comm *, int) {
            EXPECT_RF(rf_run_load(run, folder.path().c_str(), nullptr));
        };
        const std::string want = train(saved, 4)[0].sha;
        EXPECT_LE(folder.read("step-0/model.hashes").size(), 40u * 4 * 4 * 24);
        EXPECT_EQ(train(loaded, 1)[0].sha, want);
        loaded.tp = 2;
        EXPECT_EQ(train(loaded, 2)[0].sha, want);
        for (int tp : {2, 4})
            for (int zero : {0, 3}) {
                Training u = t;
                u.tp = tp;
                u.policy.zero = zero;
                for (const Seen &seen : train(u, zero ? 4 : tp)) {
                    EXPECT_EQ(seen.sha, one.sha) << is_llama << tp << zero;
                    EXPECT_EQ(seen.loss, one.loss);
                    expect_planned(seen, "tensor ranks");
                }
            }
    }
}

TEST(Quantized, WhatIsRefusedIsNamed)
{
    for (bool is_llama : {false, true}) {
        Training t = adapted(is_llama, &adapter, RF_NF4);
        t.policy.sequence_parallel = true;
        t.llama.hidden = is_llama ? 38 : 0;
        const Model model(t.model, t.llama);
        rf_plan *plan = nullptr;
        const rf_mesh mesh = {1, 2, 1, 0, 1};
        EXPECT_LT(rf_plan_build({model.blocks, model.count}, &mesh, &t.policy, 0, &plan), 0);
        EXPECT_TRUE(has(rf_last_error()->message, "blocks of 64 elements of the quantised"))
            << rf_last_error()->message;
        t.llama.quantize = (rf_quantization)7;
        if (is_llama) {
            llama *model = nullptr;
            EXPECT_EQ(llama_create(&t.llama, &model), RF_EINVAL);
            EXPECT_TRUE(has(rf_last_error()->message, "nf4"));
        }
    }
}

// As the source of a folder of weights would.
TEST(Quantized, TheSourceReportsErrors)
{
    const Training t = adapted(true, &adapter, RF_INT8);
    const Model model(t.model, t.llama), plain = Model::plain(t);
    const rf_param_source nan = {nullptr,
                                 [](void *, const char *, uint64_t, uint64_t count, void *out) {
                                     std::fill_n((float *)out, count, NAN);
                                     return 0;
                                 }};
    const rf_param_source failing = {
        nullptr, [](void *, const char *, uint64_t, uint64_t, void *) { return (int)RF_EIO; }};
    for (const auto &[values, status] : {std::pair{nan, RF_EINVAL}, std::pair{failing, RF_EIO}}) {
        quantized_source *source = nullptr;
        float out[4];
        ASSERT_EQ(quantized_source_create(RF_INT8, model.blocks, plain.blocks, plain.count,
                                          {values}, &source),
                  0);
        const rf_param_source of = quantized_source_of(source);
        EXPECT_EQ(of.read(of.self, "blocks.1.mlp.down.weight", 0, 16, out), (int)status);
        EXPECT_EQ(of.read(of.self, "blocks.1.mlp.down.weight", 0, 16, out), (int)status);
        quantized_source_destroy(source);
    }
}
} // namespace
