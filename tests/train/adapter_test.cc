// SPDX-License-Identifier: MIT
//
// Low-rank adapters: losses and gradients compared with those of the merged weights, the bits of
// the base at the first step, the same bits on any number of ranks, and bytes as planned.
#include <set>

#include "adapted.h"

extern "C" {
#include "base/base.h"
}

namespace
{
model_adapter lora(int rank, const char *targets, float dropout = 0)
{
    return {rank, 4, dropout, false, targets};
}

std::vector<model_adapter_module> modules_of(const Training &t)
{
    std::vector<model_adapter_module> list(64);
    gpt2 *g = nullptr;
    llama *l = nullptr;
    int count = 0;
    if (t.llama.layers > 0) {
        EXPECT_EQ(llama_create(&t.llama, &l), 0);
        count = llama_adapter_modules(l, list.data(), 64);
    } else {
        EXPECT_EQ(gpt2_create(&t.model, &g), 0);
        count = gpt2_adapter_modules(g, list.data(), 64);
    }
    list.resize((size_t)count);
    static std::set<std::string> kept; // names outlive the model
    for (model_adapter_module &m : list)
        for (const char **name : {&m.weight, &m.a, &m.b})
            *name = kept.insert(*name).first->c_str();
    llama_destroy(l);
    gpt2_destroy(g);
    return list;
}

void write(rf_run *run, const Values &values)
{
    for (const auto &[name, v] : values)
        ASSERT_RF(rf_run_write_param(run, name.c_str(), v.data(), v.size() * 4));
}

void fill(std::vector<float> &values, uint64_t site, float scale)
{
    for (size_t i = 0; i < values.size(); i++)
        values[i] = scale * rf_philox_normal(3, site, i);
}

// Larger than the initial values of a run, so that every part matters.
Values fill_all(rf_run *run)
{
    Values values = read(run, false);
    uint64_t site = 0;
    for (auto &[name, v] : values)
        if (name.find("norm") == std::string::npos && name.find("ln") == std::string::npos)
            fill(v, site++, name.find("lora") == std::string::npos ? 0.2f : 0.3f);
    write(run, values);
    return values;
}

// One step that changes no parameter. Parameters are `from`, if it has any.
double step_of(Training t, Values *from, Values *gradients)
{
    t.steps = 1;
    t.lr = 0;
    t.policy.optimizer.kind = RF_SGD;
    t.before = [&](rf_run *run, rf_comm *, int) {
        if (from->empty())
            *from = fill_all(run);
        else
            write(run, *from);
    };
    t.after = [&](rf_run *run, rf_comm *, int) { *gradients = read(run, true); };
    const Seen seen = train(t, 1)[0];
    expect_planned(seen, "one step");
    return seen.loss[0];
}

Values merged(const Values &all, const std::vector<model_adapter_module> &modules, float scale)
{
    Values base;
    for (const auto &[name, v] : all)
        if (name.find("lora_") == std::string::npos)
            base[name] = v;
    for (const model_adapter_module &m : modules)
        model_adapter_merge(&base.at(m.weight)[(size_t)(m.weight_first * m.in)],
                            &all.at(m.a)[(size_t)(m.a_first * m.in)],
                            &all.at(m.b)[(size_t)(m.b_first * m.rank)], m.rows, m.in, m.rank,
                            scale);
    return base;
}

// With G the gradient of W + scale B A: dA = scale B' G and dB = scale G A'.
void expect_gradients(const model_adapter_module &m, const Values &all, const Values &got,
                      const std::vector<float> &g, float scale, const std::string &where)
{
    const float *a = &all.at(m.a)[(size_t)(m.a_first * m.in)];
    const float *b = &all.at(m.b)[(size_t)(m.b_first * m.rank)];
    const float *da = &got.at(m.a)[(size_t)(m.a_first * m.in)];
    const float *db = &got.at(m.b)[(size_t)(m.b_first * m.rank)];
    const float *dw = &g[(size_t)(m.weight_first * m.in)];
    const double near_a = 2e-5 * norm_of(got.at(m.a)) + 1e-6,
                 near_b = 2e-5 * norm_of(got.at(m.b)) + 1e-6; // rounding of f32 in sums
    for (int64_t k = 0; k < m.rank; k++) {
        for (int64_t j = 0; j < m.in; j++) {
            double sum = 0;
            for (int64_t i = 0; i < m.rows; i++)
                sum += (double)b[i * m.rank + k] * dw[i * m.in + j];
            ASSERT_NEAR(da[k * m.in + j], scale * sum, near_a) << where << " A of " << m.name;
        }
        for (int64_t i = 0; i < m.rows; i++) {
            double sum = 0;
            for (int64_t j = 0; j < m.in; j++)
                sum += (double)dw[i * m.in + j] * a[k * m.in + j];
            ASSERT_NEAR(db[i * m.rank + k], scale * sum, near_b) << where << " B of " << m.name;
        }
    }
}

void expect_merged(bool is_llama, const model_adapter &adapter, unsigned recompute)
{
    const std::string where = std::string(is_llama ? "llama " : "gpt2 ") + adapter.targets +
                              ", rank " + std::to_string(adapter.rank) + ", recompute " +
                              std::to_string(recompute);
    const float scale = model_adapter_scale(&adapter);
    Training t = adapted(is_llama, &adapter);
    t.model.recompute = t.llama.recompute = recompute;
    const std::vector<model_adapter_module> modules = modules_of(t);
    Values all, got, whole;
    const double loss = step_of(t, &all, &got);
    size_t trained = 0, wanted = 0;
    for (const auto &[name, v] : got)
        trained += v.size();
    for (const model_adapter_module &m : modules)
        wanted += (size_t)(m.rank * (m.in + m.rows));
    EXPECT_EQ(trained, wanted) << where;
    Values base = merged(all, modules, scale);
    EXPECT_NEAR(step_of(adapted(is_llama, nullptr), &base, &whole), loss, 2e-5 * loss) << where;
    for (const model_adapter_module &m : modules)
        expect_gradients(m, all, got, whole.at(m.weight), scale, where);
}

TEST(Adapter, LossAndGradientsAreThoseOfTheMergedWeights)
{
    for (unsigned recompute : {0u, (unsigned)MODEL_RECOMPUTE_ALL})
        for (bool is_llama : {false, true})
            expect_merged(is_llama, lora(3, "all-linear"), recompute);
    for (int rank : {1, 8, 17})
        expect_merged(true, lora(rank, "q_proj,v_proj,up_proj"), 0);
    expect_merged(true, lora(2, "k_proj,down_proj,gate_proj"), 0);
    expect_merged(true, lora(2, "*.layers.1.self_attn.*"), 0);
    expect_merged(false, lora(17, "c_attn,mlp.c_proj"), 0);
    model_adapter stable = lora(4, "layers.0.self_attn.o_proj");
    stable.rslora = true;
    EXPECT_EQ(model_adapter_scale(&stable), 2);
    expect_merged(true, stable, 0);
}

TEST(Adapter, TheFirstLossHasTheBitsOfTheBase)
{
    const model_adapter adapter = lora(5, "all-linear", 0.3f);
    for (bool is_llama : {false, true})
        for (rf_dtype dtype : {RF_F32, RF_BF16}) {
            if (!is_llama && dtype != RF_F32)
                continue; // GELU gets a rounded sum
            Values base, none;
            Training t = adapted(is_llama, nullptr);
            t.model.dtype = t.llama.dtype = dtype;
            const double loss = step_of(t, &base, &none);
            t.model.adapter = t.llama.adapter = &adapter;
            EXPECT_EQ(step_of(t, &base, &none), loss) << is_llama << " " << rf_dtype_name(dtype);
        }
}

TEST(Adapter, ParametersAreTheSameBitsOnAnyRanks)
{
    const model_adapter adapter = lora(3, "all-linear", 0.25f);
    for (bool is_llama : {false, true}) {
        Training t = adapted(is_llama, &adapter);
        t.policy.order = RF_ORDER_TREE;
        t.policy.clip = 1;
        t.model.dtype = t.llama.dtype = is_llama ? RF_BF16 : RF_F32;
        const std::string one = train(t, 1)[0].sha;
        for (int ranks : {2, 4})
            for (const Sharding &s : all_shardings()) {
                if (s.order != RF_ORDER_TREE || (ranks == 4 && (s.offload || s.zero == 1)))
                    continue;
                Training u = t;
                u.policy.zero = s.zero;
                u.policy.offload = s.offload;
                u.policy.recompute = ranks == 2 && s.zero % 2;
                for (const Seen &seen : train(u, ranks)) {
                    EXPECT_EQ(seen.sha, one) << s.text() << " on " << ranks;
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

// An element has the same mask in every micro-batch.
TEST(Adapter, DropoutDoesNotDependOnMicroBatches)
{
    const model_adapter adapter = lora(3, "all-linear", 0.5f);
    Training t = adapted(true, &adapter);
    Values all, four, two;
    const double loss = step_of(t, &all, &four);
    t.policy.micro_batches = 2;
    EXPECT_NEAR(step_of(t, &all, &two), loss, 1e-6 * loss);
    for (const auto &[name, v] : four)
        for (size_t i = 0; i < v.size(); i++)
            ASSERT_NEAR(v[i], two.at(name)[i], 1e-5 * norm_of(v)) << name;
    const model_adapter plain = lora(3, "all-linear");
    t.llama.adapter = &plain;
    EXPECT_NE(step_of(t, &all, &two), loss);
    t.llama.adapter = &adapter;
    double evaluated[2] = {};
    for (int k = 0; k < 2; k++) { // without dropout
        t.llama.adapter = k ? &adapter : &plain;
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            std::vector<int32_t> tokens, targets;
            t.batch(0, tokens, targets);
            write(run, all);
            ASSERT_RF(rf_run_evaluate(run, tokens.data(), targets.data(), 2, &evaluated[k]));
        };
        train(t, 1);
    }
    EXPECT_EQ(evaluated[0], evaluated[1]);
}

TEST(Adapter, TensorAndContextRanksAreCloseToOne)
{
    const model_adapter adapter = lora(3, "all-linear");
    for (bool is_llama : {false, true})
        for (int way = 0; way < 3; way++) { // sequence-parallel, tensor and context ranks
            const int cp = way == 2 ? 2 : 1;
            Training t = adapted(is_llama, &adapter);
            t.llama.hidden = 38;
            t.policy.optimizer.kind = RF_SGD; // small differences stay small
            Values all;
            t.before = [&](rf_run *run, rf_comm *, int) {
                if (all.empty())
                    all = fill_all(run);
                else
                    write(run, all);
            };
            Values one, two;
            t.after = [&](rf_run *run, rf_comm *, int) { one = read(run, false); };
            train(t, 1);
            t.cp = cp;
            t.tp = 3 - cp;
            t.policy.sequence_parallel = way == 0;
            t.after = [&](rf_run *run, rf_comm *, int rank) {
                const Values mine = read(run, false);
                if (rank == 0)
                    two = mine;
            };
            for (const Seen &seen : train(t, 2))
                expect_planned(seen, "two ranks");
            for (const auto &[name, v] : one) {
                const double most = 1e-5 * (norm_of(v) + 1);
                for (size_t i = 0; i < v.size(); i++)
                    ASSERT_NEAR(v[i], two.at(name)[i], most) << name << way;
            }
        }
}

TEST(Adapter, WhatIsRefusedIsNamed)
{
    auto fault = [](model_adapter a) {
        return std::string(model_adapter_check(&a) < 0 ? rf_last_error()->message : "");
    };
    EXPECT_EQ(fault(lora(8, "q_proj")), "");
    EXPECT_NE(fault(lora(0, "q_proj")).find("rank"), std::string::npos);
    EXPECT_NE(fault(lora(8, "")).find("targets"), std::string::npos);
    EXPECT_NE(fault(lora(8, "q proj")).find("letters"), std::string::npos);
    EXPECT_NE(fault(lora(8, "q_proj", 1)).find("dropout"), std::string::npos);
    EXPECT_NE(fault({8, -1, 0, false, "q_proj"}).find("alpha"), std::string::npos);
    const model_adapter none = lora(8, "c_attn");
    llama *model = nullptr;
    const llama_config config = adapted(true, &none).llama;
    EXPECT_EQ(llama_create(&config, &model), RF_EINVAL);
    const model_adapter adapter = lora(8, "all-linear");
    Training t = adapted(true, &adapter);
    t.llama.hidden = 38;
    t.llama.kv_heads = 1;
    rf_plan *plan = nullptr;
    rf_mesh mesh = {1, 2, 1, 0, 1};
    int count = 0;
    ASSERT_EQ(llama_create(&t.llama, &model), 0);
    const rf_block *blocks = llama_blocks(model, &count);
    EXPECT_LT(rf_plan_build({blocks, count}, &mesh, &t.policy, 0, &plan), 0);
    EXPECT_NE(std::string(rf_last_error()->message).find("heads of keys as tensor ranks"),
              std::string::npos)
        << rf_last_error()->message;
    llama_destroy(model);
}
} // namespace
