// SPDX-License-Identifier: MIT
//
// Weights and tokens of the 20-step comparison: the same as in reference_torch.py. Parameter number
// k in alphabetical order is filled from Philox site k; parameter names are those of
// ReferenceModel.
#ifndef RF_TESTS_TRAIN_REFERENCE_SETUP_H
#define RF_TESTS_TRAIN_REFERENCE_SETUP_H

#include <cstdint>
#include <string>
#include <vector>

extern "C" {
#include "base/base.h"
}
#include "train/reference_model.h"

namespace reference
{
const ReferenceConfig config = {2, 32, 4, 16, 61};
const ReferenceAdamW adamw = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0};
const int batch = 6, steps = 20;
const uint64_t seed = 11;

inline bool ends_with(const std::string &text, const std::string &end)
{
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

inline std::vector<float> weights(const std::string &name, size_t count, uint64_t site)
{
    bool norm = name.rfind("ln", 0) == 0 || name.find(".ln") != std::string::npos;
    bool weight = ends_with(name, "weight");
    std::vector<float> data(count, norm && weight ? 1.0f : 0.0f);
    if (!norm && weight)
        for (size_t i = 0; i < count; i++)
            data[i] = rf_philox_normal(seed, site, i) * 0.2f;
    return data;
}

inline int32_t text(int64_t i)
{
    return (int32_t)((17 * i + i * i / 5 + (int64_t)rf_philox_below(seed, 1000, (uint64_t)i, 4)) %
                     config.vocab);
}

inline void tokens(int step, std::vector<int32_t> &in, std::vector<int32_t> &out)
{
    in.clear();
    out.clear();
    for (int s = 0; s < batch; s++)
        for (int t = 0; t < config.seq; t++) {
            int64_t first = ((int64_t)step * batch + s) * config.seq;
            in.push_back(text(first + t));
            out.push_back(text(first + t + 1));
        }
}
} // namespace reference

#endif
