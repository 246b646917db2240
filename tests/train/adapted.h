// SPDX-License-Identifier: MIT
//
// Shared by the tests of adapters and of quantised weights: small models with adapters, and the
// values of a run by name.
#ifndef RF_TESTS_TRAIN_ADAPTED_H
#define RF_TESTS_TRAIN_ADAPTED_H

#include <cmath>
#include <map>

#include "world.h"

extern "C" {
#include "parallel/plan/plan.h"
}

using Values = std::map<std::string, std::vector<float>>;

// Heads that share keys, an odd hidden size and vocabulary. Rows begin inside blocks of 64.
inline Training adapted(bool is_llama, const model_adapter *adapter,
                        rf_quantization kind = RF_QUANTIZE_NONE)
{
    Training t;
    t.model = {2, 24, 6, 16, 61};
    t.model.adapter = adapter;
    t.model.quantize = kind;
    if (is_llama) {
        t.llama.layers = 2;
        t.llama.channels = 24;
        t.llama.heads = 6;
        t.llama.kv_heads = 2;
        t.llama.hidden = 37;
        t.llama.vocab = 61;
        t.llama.adapter = adapter;
        t.llama.quantize = kind;
    }
    t.policy.batch = 4;
    t.policy.micro_batches = 4;
    return t;
}

// Parameters, or the gradients of trained ones. raw: quantised weights only.
inline Values read(rf_run *run, bool gradients, bool raw = false)
{
    Values values;
    const rf_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const rf_plan_param &p = plan->params[i];
        if (p.logical != i || (gradients && !rf_plan_trains(plan, i)) ||
            (raw && p.desc->dtype != RF_U8))
            continue;
        std::vector<float> v((size_t)rf_shape_count(p.cut.shape));
        EXPECT_RF(gradients ? rf_run_read_grad(run, p.desc->name, v.data(), v.size() * 4)
                            : rf_run_read_param(run, p.desc->name, v.data(), v.size() * 4));
        values[p.desc->name] = v;
    }
    return values;
}

inline double norm_of(const std::vector<float> &v)
{
    double sum = 0;
    for (float x : v)
        sum += (double)x * x;
    return std::sqrt(sum);
}

#endif
