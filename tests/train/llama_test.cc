// SPDX-License-Identifier: MIT
//
// The Llama-style model: its loss against a plain model in fp64 written from the formulas, its
// gradients against that model's slopes, and the promises of every model: the same bits on any
// number of ranks, bytes as planned, 16-bit training near that in f32.
#include <cmath>
#include <map>

#include "world.h"

extern "C" {
#include "base/base.h"
}

namespace
{
using Doubles = std::vector<double>;

struct Shape {
    int64_t layers, channels, heads, kv, hidden, vocab, seq;
    double theta, eps;
    bool tied;
    int64_t head = 0; // channels of a head; 0: channels / heads
    bool bias = false, norms = false;
    llama_rope_scaling scaling = {};

    int64_t size() const
    {
        return head ? head : channels / heads;
    }
};

// From the papers, one token after another; parameters by name.
class Plain
{
  public:
    Plain(const Shape &s) : s(s)
    {
    }
    std::map<std::string, Doubles> params;

    // The sum of losses of all sequences.
    double loss(const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets) const
    {
        double total = 0;
        for (size_t first = 0; first < tokens.size(); first += (size_t)s.seq)
            total += sequence(&tokens[first], &targets[first]);
        return total;
    }

  private:
    const Doubles &get(const std::string &name) const
    {
        return params.at(name + ".weight");
    }
    // y = x W^T, W (rows, columns).
    static Doubles times(const Doubles &x, const Doubles &w)
    {
        const size_t columns = x.size(), rows = w.size() / columns;
        Doubles y(rows);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++)
                y[r] += w[r * columns + c] * x[c];
        return y;
    }
    Doubles norm(const Doubles &x, const Doubles &weight) const
    {
        double squares = 0;
        for (double v : x)
            squares += v * v;
        Doubles y(x.size());
        for (size_t i = 0; i < x.size(); i++)
            y[i] = x[i] / std::sqrt(squares / (double)x.size() + s.eps) * weight[i];
        return y;
    }
    // As in transformers' _compute_llama3_parameters.
    double scaled(double frequency) const
    {
        const llama_rope_scaling &c = s.scaling;
        const double original = c.original, wave = 2 * M_PI / frequency;
        if (c.factor == 0 || wave < original / c.high_freq)
            return frequency;
        if (wave > original / c.low_freq)
            return frequency / c.factor;
        const double smooth = (original / wave - c.low_freq) / (c.high_freq - c.low_freq);
        return (1 - smooth) * frequency / c.factor + smooth * frequency;
    }
    // One head of queries (h < heads) or keys.
    void norm_head(double *head, const std::string &prefix, int64_t h) const
    {
        const Doubles y =
            norm(Doubles(head, head + s.size()),
                 get(prefix + (h < s.heads ? "attention.q_norm" : "attention.k_norm")));
        std::copy(y.begin(), y.end(), head);
    }
    void turn(double *head, int64_t size, int64_t position) const
    {
        for (int64_t i = 0; i < size / 2; i++) {
            const double angle =
                (double)position * scaled(std::pow(s.theta, -2.0 * (double)i / (double)size));
            const double a = head[i], b = head[i + size / 2];
            head[i] = a * std::cos(angle) - b * std::sin(angle);
            head[i + size / 2] = a * std::sin(angle) + b * std::cos(angle);
        }
    }
    void attention(std::vector<Doubles> &x, const std::string &prefix) const
    {
        const int64_t size = s.size(), share = s.heads / s.kv;
        std::vector<Doubles> qkv;
        for (size_t t = 0; t < x.size(); t++) {
            qkv.push_back(times(norm(x[t], get(prefix + "norm1")), get(prefix + "attention.qkv")));
            if (s.bias) {
                const Doubles &bias = params.at(prefix + "attention.qkv.bias");
                for (size_t i = 0; i < bias.size(); i++)
                    qkv[t][i] += bias[i];
            }
            for (int64_t h = 0; h < s.heads + s.kv; h++) {
                double *head = &qkv[t][(size_t)(h * size)];
                if (s.norms)
                    norm_head(head, prefix, h);
                turn(head, size, (int64_t)t);
            }
        }
        for (size_t t = 0; t < x.size(); t++) {
            Doubles mixed((size_t)(s.heads * size));
            for (int64_t h = 0; h < s.heads; h++) {
                const double *q = &qkv[t][(size_t)(h * size)];
                Doubles weights;
                double sum = 0;
                for (size_t u = 0; u <= t; u++) {
                    const double *k = &qkv[u][(size_t)((s.heads + h / share) * size)];
                    double score = 0;
                    for (int64_t d = 0; d < size; d++)
                        score += q[d] * k[d];
                    weights.push_back(std::exp(score / std::sqrt((double)size)));
                    sum += weights.back();
                }
                for (size_t u = 0; u <= t; u++) {
                    const double *v = &qkv[u][(size_t)((s.heads + s.kv + h / share) * size)];
                    for (int64_t d = 0; d < size; d++)
                        mixed[(size_t)(h * size + d)] += weights[u] / sum * v[d];
                }
            }
            const Doubles out = times(mixed, get(prefix + "attention.proj"));
            for (size_t i = 0; i < out.size(); i++)
                x[t][i] += out[i];
        }
    }
    void unit(Doubles &x, const std::string &prefix) const
    {
        const Doubles gates = times(norm(x, get(prefix + "norm2")), get(prefix + "mlp.gate_up"));
        Doubles act((size_t)s.hidden);
        for (size_t i = 0; i < act.size(); i++)
            act[i] = gates[i] / (1 + std::exp(-gates[i])) * gates[i + act.size()];
        const Doubles out = times(act, get(prefix + "mlp.down"));
        for (size_t i = 0; i < out.size(); i++)
            x[i] += out[i];
    }
    double sequence(const int32_t *tokens, const int32_t *targets) const
    {
        std::vector<Doubles> x;
        for (int64_t t = 0; t < s.seq; t++) {
            auto row = get("embedding").begin() + tokens[t] * s.channels;
            x.emplace_back(row, row + s.channels);
        }
        for (int64_t layer = 0; layer < s.layers; layer++) {
            const std::string prefix = "blocks." + std::to_string(layer) + ".";
            attention(x, prefix);
            for (Doubles &row : x)
                unit(row, prefix);
        }
        double total = 0;
        for (int64_t t = 0; t < s.seq; t++) {
            if (targets[t] < 0)
                continue;
            const Doubles logits =
                times(norm(x[(size_t)t], get("norm")), get(s.tied ? "embedding" : "head"));
            double sum = 0;
            for (double v : logits)
                sum += std::exp(v);
            total += std::log(sum) - logits[(size_t)targets[t]];
        }
        return total;
    }

    const Shape s;
};

// Odd hidden size and vocabulary; heads that share keys, and heads that do not.
const Shape shapes[] = {{2, 32, 4, 2, 37, 61, 16, 10000, 1e-5, false},
                        {1, 24, 6, 1, 64, 61, 16, 500, 1e-6, true},
                        {1, 32, 2, 2, 96, 61, 16, 10000, 1e-5, false},
                        {2, 32, 4, 2, 37, 61, 16, 1e6, 1e-5, true, 12, true, true, {8, 1, 4, 12}}};

// All features of Llama, Qwen2 and Qwen3 together.
const Shape &every = shapes[3];

Training training_of(const Shape &s)
{
    Training t;
    t.llama.layers = (int)s.layers;
    t.llama.channels = (int)s.channels;
    t.llama.heads = (int)s.heads;
    t.llama.kv_heads = (int)s.kv;
    t.llama.hidden = (int)s.hidden;
    t.llama.vocab = (int)s.vocab;
    t.llama.theta = (float)s.theta;
    t.llama.eps = (float)s.eps;
    t.llama.tied = s.tied;
    t.llama.head_size = (int)s.head;
    t.llama.qkv_bias = s.bias;
    t.llama.qk_norm = s.norms;
    t.llama.rope_scaling = s.scaling;
    return t;
}

std::map<std::string, size_t> sizes_of(const Shape &s)
{
    std::map<std::string, size_t> sizes;
    const size_t c = (size_t)s.channels, f = (size_t)s.hidden, size = (size_t)s.size(),
                 qkv = size * (size_t)(s.heads + 2 * s.kv);
    sizes["embedding.weight"] = (size_t)s.vocab * c;
    sizes["norm.weight"] = c;
    if (!s.tied)
        sizes["head.weight"] = (size_t)s.vocab * c;
    for (int64_t layer = 0; layer < s.layers; layer++) {
        const std::string prefix = "blocks." + std::to_string(layer) + ".";
        sizes[prefix + "norm1.weight"] = sizes[prefix + "norm2.weight"] = c;
        sizes[prefix + "attention.qkv.weight"] = qkv * c;
        sizes[prefix + "attention.proj.weight"] = c * size * (size_t)s.heads;
        if (s.bias)
            sizes[prefix + "attention.qkv.bias"] = qkv;
        if (s.norms)
            sizes[prefix + "attention.q_norm.weight"] = sizes[prefix + "attention.k_norm.weight"] =
                size;
        sizes[prefix + "mlp.gate_up.weight"] = 2 * f * c;
        sizes[prefix + "mlp.down.weight"] = f * c;
    }
    return sizes;
}

// Larger than the initial values of a run, so that every part matters; the same in run and model.
void set_weights(const Shape &s, rf_run *run, Plain *plain)
{
    uint64_t site = 0;
    for (const auto &param : sizes_of(s)) {
        std::vector<float> values(param.second);
        for (size_t i = 0; i < values.size(); i++) {
            const double u = (double)rf_philox_below(3, 77 + site, i, 1 << 20) / (1 << 19) - 1;
            values[i] = (float)(param.first.find("norm") != std::string::npos ? 1 + u / 2 : u / 2);
        }
        site++;
        ASSERT_RF(rf_run_write_param(run, param.first.c_str(), values.data(), values.size() * 4));
        plain->params[param.first] = Doubles(values.begin(), values.end());
    }
}

} // namespace

TEST(Llama, LossAndGradientsAreThoseOfThePlainModel)
{
    for (const Shape &s : shapes) {
        Training t = training_of(s);
        t.policy.batch = 3;
        t.policy.micro_batches = 3;
        t.ignored = 0.1;
        t.steps = 0;
        t.after = [&](rf_run *run, rf_comm *, int) {
            Plain plain(s);
            std::vector<int32_t> tokens, targets;
            rf_step_stats stats = {};
            t.batch(0, tokens, targets);
            set_weights(s, run, &plain);
            ASSERT_RF(rf_run_step(run, tokens.data(), targets.data(), 0, &stats));
            const double loss = plain.loss(tokens, targets);
            EXPECT_NEAR(stats.loss, loss / (double)stats.tokens, 2e-6 * loss);
            for (const auto &param : sizes_of(s)) {
                std::vector<float> grad(param.second);
                ASSERT_RF(rf_run_read_grad(run, param.first.c_str(), grad.data(), grad.size() * 4));
                // Along a random direction that includes every element, and at three elements.
                // Central differences in fp64 with this step are accurate to about 1e-7.
                Doubles &w = plain.params[param.first];
                const Doubles middle = w;
                auto slope = [&](const Doubles &direction) {
                    double losses[2];
                    const double h = 1e-4;
                    for (int side = 0; side < 2; side++) {
                        for (size_t i = 0; i < w.size(); i++)
                            w[i] = middle[i] + (side ? h : -h) * direction[i];
                        losses[side] = plain.loss(tokens, targets);
                    }
                    w = middle;
                    return (losses[1] - losses[0]) / (2 * h);
                };
                Doubles direction(w.size());
                double along = 0, magnitude = 0;
                for (size_t i = 0; i < w.size(); i++) {
                    direction[i] = rf_philox_below(9, 5, i, 2) ? 1 : -1;
                    along += direction[i] * grad[i];
                    magnitude += (double)grad[i] * grad[i];
                }
                // Rounding of f32 in sums over tokens and channels.
                const double scale = std::sqrt(magnitude) + 0.1;
                EXPECT_NEAR(slope(direction), along, 1e-4 * scale) << param.first;
                for (int k = 0; k < 3; k++) {
                    const size_t at = rf_philox_below(9, 6 + (uint64_t)k, w.size(), w.size());
                    Doubles one(w.size());
                    one[at] = 1;
                    EXPECT_NEAR(slope(one), grad[at], 2e-5 * scale) << param.first << " " << at;
                }
            }
        };
        train(t, 1);
    }
}

TEST(Llama, ParametersAreTheSameBitsOnOneToThreeRanks)
{
    for (rf_dtype dtype : {RF_F32, RF_BF16}) { // on a residual stream in f32
        Training t = training_of(shapes[0]);
        t.llama.dtype = dtype;
        t.policy.clip = 1;
        t.ignored = 0.2;
        const std::string one = train(t, 1)[0].sha;
        for (int ranks : {2, 3})
            for (const Seen &seen : train(t, ranks))
                EXPECT_EQ(seen.sha, one) << rf_dtype_name(dtype) << " on " << ranks << " ranks";
    }
}

TEST(Llama, BytesAreAsPlannedAlsoInSixteenBitsAndInChunks)
{
    const rf_dtype types[][2] = {{RF_F32, RF_F32}, {RF_BF16, RF_F32}, {RF_BF16, RF_BF16}};
    for (auto &[dtype, residual] : types)
        for (int rows : {0, 5}) {
            Training t = training_of(rows ? shapes[1] : every);
            t.llama.dtype = dtype;
            t.llama.residual = residual;
            t.llama.head_rows = rows;
            t.steps = 1;
            const Seen seen = train(t, 1)[0];
            EXPECT_EQ(seen.planned.activations, seen.measured.activations);
            EXPECT_EQ(seen.planned.params, seen.measured.params);
            EXPECT_EQ(seen.planned.grads, seen.measured.grads);
            EXPECT_EQ(seen.planned.scratch, seen.measured.scratch);
        }
}

TEST(Llama, LossesInSixteenBitsFollowThoseOfF32)
{
    Training t = training_of(shapes[0]);
    t.steps = 6;
    const Seen f32 = train(t, 1)[0];
    EXPECT_LT(f32.loss.back(), f32.loss.front());
    for (rf_dtype dtype : {RF_BF16, RF_F16})
        for (rf_dtype residual : {RF_F32, dtype}) {
            t.llama.dtype = dtype;
            t.llama.residual = residual;
            const Seen seen = train(t, 1)[0];
            for (size_t i = 0; i < seen.loss.size(); i++)
                // Activations are rounded to 8 or 11 bits.
                EXPECT_NEAR(seen.loss[i], f32.loss[i], 0.01 * f32.loss[i])
                    << rf_dtype_name(dtype) << " on " << rf_dtype_name(residual);
        }
}

// Checkpoints of a model without the features stay loadable, and those of others are distinguished.
TEST(Llama, ItsConfigNamesTheFeaturesThatItHas)
{
    const auto text = [](const Shape &s) {
        llama *model = nullptr;
        int count = 0;
        const llama_config config = training_of(s).llama;
        EXPECT_EQ(llama_create(&config, &model), 0);
        const std::string out = llama_blocks(model, &count)[0].config;
        llama_destroy(model);
        return out;
    };
    const std::string plain = "model=llama layers=2 channels=32 heads=4 kv-heads=2 hidden=37 "
                              "vocabulary=61 theta=1e+04 eps=1e-05 tied=no";
    EXPECT_EQ(text(shapes[0]), plain);
    Shape same = shapes[0];
    same.head = 8;
    EXPECT_EQ(text(same), plain);
    same = every;
    same.tied = false;
    same.theta = 10000;
    EXPECT_EQ(text(same), plain + " head-size=12 qkv-bias=yes qk-norm=yes rope-factor=8 "
                                  "rope-low=1 rope-high=4 rope-original=12");
}

TEST(Llama, FaultsAreNamed)
{
    llama *model = nullptr;
    const llama_config good = {2, 32, 4};
    auto fault = [&](void (*change)(llama_config *)) {
        llama_config config = good;
        change(&config);
        EXPECT_EQ(llama_create(&config, &model), RF_EINVAL);
        return std::string(rf_last_error()->message);
    };
    EXPECT_EQ(llama_create(&good, &model), 0);
    llama_destroy(model);
    EXPECT_NE(fault([](llama_config *c) { c->heads = 5; }).find("divide channels"),
              std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->kv_heads = 3; }).find("kv_heads"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->heads = 32; }).find("even"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->head_size = 7; }).find("even"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) {
                  c->rope_scaling = {8, 4, 1, 64};
              }).find("rope_scaling"),
              std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->head_size = 258; }).find("256"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->theta = 0.5f; }).find("theta"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->dtype = RF_I32; }).find("type"), std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->residual = RF_F16; }).find("residual"),
              std::string::npos);
    EXPECT_NE(fault([](llama_config *c) { c->layers = 0; }).find("at least 1"), std::string::npos);
}
