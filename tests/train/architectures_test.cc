// SPDX-License-Identifier: MIT
//
// The architectures of model hubs against their models in transformers, with the same weights and
// tokens: log-probabilities of the first batch, and losses of 20 steps of AdamW, which are kept in
// reference_transformers.txt.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "reference_setup.h"
#include "world.h"

namespace
{
const int BATCH = 4, SEQ = 16, STEPS = 20, PROBES = 6, VOCAB = 61;

// f32 against fp64: rounding of 20 steps of Adam on losses near 4.
const double TOLERANCE = 1e-4;

struct Case {
    const char *name;
    int layers, channels, heads, keys, hidden, size;
    double theta, eps;
    bool tied, scaled;
};
const Case cases[] = {
    {"gpt2-a", 2, 32, 4, 4, 128, 8, 0, 1e-5, true, false},
    {"gpt2-b", 1, 24, 3, 3, 96, 8, 0, 1e-5, true, false},
    {"llama-a", 2, 32, 4, 2, 48, 8, 10000, 1e-5, false, false},
    {"llama-b", 2, 32, 4, 1, 40, 12, 500000, 1e-6, true, true},
    {"mistral-a", 2, 32, 4, 2, 48, 8, 10000, 1e-5, false, false},
    {"mistral-b", 1, 32, 4, 4, 40, 12, 1000000, 1e-6, false, false},
    {"qwen2-a", 2, 32, 4, 2, 48, 8, 10000, 1e-6, true, false},
    {"qwen2-b", 1, 24, 6, 3, 40, 4, 1000000, 1e-6, false, false},
    {"qwen3-a", 2, 32, 4, 2, 48, 12, 1000000, 1e-6, true, false},
    {"qwen3-b", 1, 32, 2, 1, 40, 16, 10000, 1e-5, false, false},
};

bool is(const Case &c, const char *kind)
{
    return std::string(c.name).rfind(kind, 0) == 0;
}

Training training_of(const Case &c)
{
    Training t;
    t.policy.batch = BATCH;
    t.policy.seq = SEQ;
    t.policy.micro_batches = 1;
    t.policy.order = RF_ORDER_RING;
    t.policy.optimizer.beta1 = 0.9f;
    t.policy.optimizer.beta2 = 0.95f;
    t.policy.optimizer.eps = 1e-8f;
    t.policy.optimizer.weight_decay = 0.1f;
    t.policy.clip = 1;
    t.steps = 0;
    if (is(c, "gpt2")) {
        t.model = {c.layers, c.channels, c.heads, SEQ, VOCAB};
        return t;
    }
    t.llama = {c.layers, c.channels, c.heads, c.keys, c.hidden, VOCAB};
    t.llama.theta = (float)c.theta;
    t.llama.eps = (float)c.eps;
    t.llama.tied = c.tied;
    t.llama.head_size = c.size;
    t.llama.qkv_bias = is(c, "qwen2");
    t.llama.qk_norm = is(c, "qwen3");
    if (c.scaled)
        t.llama.rope_scaling = {8, 1, 4, 12};
    return t;
}

// Parameter number k in alphabetical order is filled from site k.
void set_weights(rf_run *run)
{
    std::map<std::string, rf_shape> shapes;
    for (int i = 0; i < run->plan->param_count; i++) {
        const rf_param_desc *desc = run->plan->params[i].desc;
        if (!desc->tied_to)
            shapes[desc->name] = desc->shape;
    }
    uint64_t site = 0;
    for (const auto &[name, shape] : shapes) {
        const float shift = shape.ndim == 1 && reference::ends_with(name, "weight") ? 1 : 0;
        std::vector<float> values((size_t)rf_shape_count(shape));
        for (size_t i = 0; i < values.size(); i++)
            values[i] = shift + rf_philox_normal(reference::seed, site, i) * 0.2f;
        ASSERT_RF(rf_run_write_param(run, name.c_str(), values.data(), values.size() * 4));
        site++;
    }
}

void batch(int step, std::vector<int32_t> &in, std::vector<int32_t> &out)
{
    in.clear();
    out.clear();
    for (int i = 0; i < BATCH * SEQ; i++) {
        const int64_t at = (int64_t)step * BATCH * SEQ + i;
        in.push_back(reference::text(at));
        out.push_back(reference::text(at + 1));
    }
}

// Log-probabilities, then losses, as in a line of the file.
std::vector<double> numbers_of(const Case &c)
{
    std::vector<double> seen;
    Training t = training_of(c);
    t.after = [&](rf_run *run, rf_comm *, int) {
        std::vector<int32_t> in, out;
        set_weights(run);
        batch(0, in, out);
        for (int k = 0; k < PROBES; k++) {
            std::vector<int32_t> one(in.size(), -1);
            double loss = 0;
            one[(size_t)(k % BATCH * SEQ + SEQ - 1 - 2 * k)] = (7 * k + 3) % VOCAB;
            ASSERT_RF(rf_run_evaluate(run, in.data(), one.data(), 1, &loss));
            seen.push_back(-loss);
        }
        for (int step = 0; step < STEPS; step++) {
            rf_step_stats stats = {};
            batch(step, in, out);
            ASSERT_RF(rf_run_step(run, in.data(), out.data(), 0.01f, &stats));
            seen.push_back(stats.loss);
        }
    };
    train(t, 1);
    return seen;
}
} // namespace

TEST(Architectures, LogProbabilitiesAndTwentyLossesAreThoseOfTransformers)
{
    std::ifstream file(RF_REFERENCE_FOLDER "/reference_transformers.txt");
    std::map<std::string, std::vector<double>> wanted;
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        for (double x; words >> x;)
            wanted[name].push_back(x);
    }
    for (const Case &c : cases) {
        const std::vector<double> seen = numbers_of(c), &want = wanted[c.name];
        ASSERT_EQ(want.size(), (size_t)(PROBES + STEPS)) << c.name;
        ASSERT_EQ(seen.size(), want.size()) << c.name;
        for (size_t i = 0; i < want.size(); i++)
            EXPECT_NEAR(seen[i], want[i], TOLERANCE) << c.name << ", number " << i;
    }
}
