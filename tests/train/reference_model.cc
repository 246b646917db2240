// SPDX-License-Identifier: MIT
//
// The fp64 reference: see reference_model.h. Textbook loops.
#include "train/reference_model.h"

#include <algorithm>
#include <cmath>

using Vector = std::vector<double>;

struct ReferenceModel::Layer {
    Vector x, ln1, mean1, rstd1, qkv, probs, att, x2, ln2, mean2, rstd2, fc, act;
};

static std::string name_of(int layer, const char *rest)
{
    return "blocks." + std::to_string(layer) + "." + rest;
}

ReferenceModel::ReferenceModel(ReferenceConfig config) : config_(config)
{
    size_t C = config.channels, V = config.vocab, T = config.seq;
    auto add = [&](const std::string &name, size_t count, bool decay) {
        sizes_[name] = count;
        decays_[name] = decay;
        params[name].assign(count, 0);
        grads[name].assign(count, 0);
        m_[name].assign(count, 0);
        v_[name].assign(count, 0);
    };
    add("wte.weight", V * C, true);
    add("wpe.weight", T * C, true);
    for (int i = 0; i < config.layers; i++) {
        add(name_of(i, "ln1.weight"), C, false);
        add(name_of(i, "ln1.bias"), C, false);
        add(name_of(i, "attention.qkv.weight"), 3 * C * C, true);
        add(name_of(i, "attention.qkv.bias"), 3 * C, false);
        add(name_of(i, "attention.proj.weight"), C * C, true);
        add(name_of(i, "attention.proj.bias"), C, false);
        add(name_of(i, "ln2.weight"), C, false);
        add(name_of(i, "ln2.bias"), C, false);
        add(name_of(i, "mlp.fc.weight"), 4 * C * C, true);
        add(name_of(i, "mlp.fc.bias"), 4 * C, false);
        add(name_of(i, "mlp.proj.weight"), 4 * C * C, true);
        add(name_of(i, "mlp.proj.bias"), C, false);
    }
    add("ln_f.weight", C, false);
    add("ln_f.bias", C, false);
}

// out (n, O) = x (n, I) w (O, I)^T + b
static void linear(const Vector &x, const Vector &w, const Vector *b, size_t n, size_t I, size_t O,
                   Vector &out)
{
    out.assign(n * O, 0);
    for (size_t r = 0; r < n; r++)
        for (size_t o = 0; o < O; o++) {
            double sum = b ? (*b)[o] : 0;
            for (size_t i = 0; i < I; i++)
                sum += x[r * I + i] * w[o * I + i];
            out[r * O + o] = sum;
        }
}

// dx =, dw +=, db +=
static void linear_backward(const Vector &dout, const Vector &x, const Vector &w, size_t n,
                            size_t I, size_t O, Vector &dx, Vector &dw, Vector *db)
{
    dx.assign(n * I, 0);
    for (size_t r = 0; r < n; r++)
        for (size_t o = 0; o < O; o++) {
            double d = dout[r * O + o];
            if (db)
                (*db)[o] += d;
            for (size_t i = 0; i < I; i++) {
                dx[r * I + i] += d * w[o * I + i];
                dw[o * I + i] += d * x[r * I + i];
            }
        }
}

static void layernorm(const Vector &x, const Vector &g, const Vector &b, size_t n, size_t C,
                      double eps, Vector &out, Vector &mean, Vector &rstd)
{
    out.assign(n * C, 0);
    mean.assign(n, 0);
    rstd.assign(n, 0);
    for (size_t r = 0; r < n; r++) {
        double sum = 0, var = 0;
        for (size_t c = 0; c < C; c++)
            sum += x[r * C + c];
        mean[r] = sum / (double)C;
        for (size_t c = 0; c < C; c++)
            var += (x[r * C + c] - mean[r]) * (x[r * C + c] - mean[r]);
        rstd[r] = 1 / std::sqrt(var / (double)C + eps);
        for (size_t c = 0; c < C; c++)
            out[r * C + c] = (x[r * C + c] - mean[r]) * rstd[r] * g[c] + b[c];
    }
}

// dx +=, dg +=, db +=
static void layernorm_backward(const Vector &dout, const Vector &x, const Vector &g,
                               const Vector &mean, const Vector &rstd, size_t n, size_t C,
                               Vector &dx, Vector &dg, Vector &db)
{
    for (size_t r = 0; r < n; r++) {
        double sum = 0, dot = 0;
        for (size_t c = 0; c < C; c++) {
            double norm = (x[r * C + c] - mean[r]) * rstd[r], d = dout[r * C + c];
            dg[c] += d * norm;
            db[c] += d;
            sum += d * g[c];
            dot += d * g[c] * norm;
        }
        for (size_t c = 0; c < C; c++) {
            double norm = (x[r * C + c] - mean[r]) * rstd[r];
            dx[r * C + c] +=
                rstd[r] * (dout[r * C + c] * g[c] - sum / (double)C - norm * dot / (double)C);
        }
    }
}

static const double gelu_k = std::sqrt(2 / M_PI);

static double gelu(double x)
{
    return 0.5 * x * (1 + std::tanh(gelu_k * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = std::tanh(gelu_k * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_k * (1 + 3 * 0.044715 * x * x);
}

void ReferenceModel::forward_layer(int layer, Layer &l, const Vector &x, Vector &out, int sequences)
{
    size_t C = config_.channels, T = config_.seq, H = config_.heads, D = C / H, n = sequences * T;
    auto p = [&](const char *rest) -> const Vector & { return params.at(name_of(layer, rest)); };
    double scale = 1 / std::sqrt((double)D);
    Vector y;
    l.x = x;
    layernorm(x, p("ln1.weight"), p("ln1.bias"), n, C, config_.eps, l.ln1, l.mean1, l.rstd1);
    linear(l.ln1, p("attention.qkv.weight"), &p("attention.qkv.bias"), n, C, 3 * C, l.qkv);
    l.probs.assign(sequences * H * T * T, 0);
    l.att.assign(n * C, 0);
    for (int s = 0; s < sequences; s++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < T; i++) {
                const double *q = &l.qkv[(s * T + i) * 3 * C + h * D];
                double *prob = &l.probs[((s * H + h) * T + i) * T], high = -1e300, sum = 0;
                for (size_t j = 0; j <= i; j++) {
                    const double *k = &l.qkv[(s * T + j) * 3 * C + C + h * D];
                    double dot = 0;
                    for (size_t d = 0; d < D; d++)
                        dot += q[d] * k[d];
                    prob[j] = dot * scale;
                    high = std::max(high, prob[j]);
                }
                for (size_t j = 0; j <= i; j++)
                    sum += prob[j] = std::exp(prob[j] - high);
                for (size_t j = 0; j <= i; j++) {
                    prob[j] /= sum;
                    const double *v = &l.qkv[(s * T + j) * 3 * C + 2 * C + h * D];
                    for (size_t d = 0; d < D; d++)
                        l.att[(s * T + i) * C + h * D + d] += prob[j] * v[d];
                }
            }
    linear(l.att, p("attention.proj.weight"), &p("attention.proj.bias"), n, C, C, y);
    l.x2 = x;
    for (size_t i = 0; i < n * C; i++)
        l.x2[i] += y[i];
    layernorm(l.x2, p("ln2.weight"), p("ln2.bias"), n, C, config_.eps, l.ln2, l.mean2, l.rstd2);
    linear(l.ln2, p("mlp.fc.weight"), &p("mlp.fc.bias"), n, C, 4 * C, l.fc);
    l.act.resize(l.fc.size());
    std::transform(l.fc.begin(), l.fc.end(), l.act.begin(), gelu);
    linear(l.act, p("mlp.proj.weight"), &p("mlp.proj.bias"), n, 4 * C, C, y);
    out = l.x2;
    for (size_t i = 0; i < n * C; i++)
        out[i] += y[i];
}

void ReferenceModel::backward_layer(int layer, Layer &l, const Vector &dout, Vector &dx,
                                    int sequences)
{
    size_t C = config_.channels, T = config_.seq, H = config_.heads, D = C / H, n = sequences * T;
    auto p = [&](const char *rest) -> const Vector & { return params.at(name_of(layer, rest)); };
    auto g = [&](const char *rest) -> Vector & { return grads.at(name_of(layer, rest)); };
    double scale = 1 / std::sqrt((double)D);
    Vector dact, dln2, datt, dln1, dqkv(n * 3 * C, 0), dx2 = dout;
    linear_backward(dout, l.act, p("mlp.proj.weight"), n, 4 * C, C, dact, g("mlp.proj.weight"),
                    &g("mlp.proj.bias"));
    for (size_t i = 0; i < dact.size(); i++)
        dact[i] *= gelu_slope(l.fc[i]);
    linear_backward(dact, l.ln2, p("mlp.fc.weight"), n, C, 4 * C, dln2, g("mlp.fc.weight"),
                    &g("mlp.fc.bias"));
    layernorm_backward(dln2, l.x2, p("ln2.weight"), l.mean2, l.rstd2, n, C, dx2, g("ln2.weight"),
                       g("ln2.bias"));
    linear_backward(dx2, l.att, p("attention.proj.weight"), n, C, C, datt,
                    g("attention.proj.weight"), &g("attention.proj.bias"));
    for (int s = 0; s < sequences; s++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < T; i++) {
                size_t qi = (s * T + i) * 3 * C + h * D;
                const double *prob = &l.probs[((s * H + h) * T + i) * T];
                const double *d = &datt[(s * T + i) * C + h * D];
                Vector dprob(i + 1, 0);
                double dot = 0;
                for (size_t j = 0; j <= i; j++) {
                    size_t vj = (s * T + j) * 3 * C + 2 * C + h * D;
                    for (size_t e = 0; e < D; e++) {
                        dprob[j] += d[e] * l.qkv[vj + e];
                        dqkv[vj + e] += prob[j] * d[e];
                    }
                    dot += prob[j] * dprob[j];
                }
                for (size_t j = 0; j <= i; j++) {
                    size_t kj = (s * T + j) * 3 * C + C + h * D;
                    double ds = prob[j] * (dprob[j] - dot) * scale;
                    for (size_t e = 0; e < D; e++) {
                        dqkv[qi + e] += ds * l.qkv[kj + e];
                        dqkv[kj + e] += ds * l.qkv[qi + e];
                    }
                }
            }
    linear_backward(dqkv, l.ln1, p("attention.qkv.weight"), n, C, 3 * C, dln1,
                    g("attention.qkv.weight"), &g("attention.qkv.bias"));
    dx = dx2;
    layernorm_backward(dln1, l.x, p("ln1.weight"), l.mean1, l.rstd1, n, C, dx, g("ln1.weight"),
                       g("ln1.bias"));
}

double ReferenceModel::loss(const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets,
                            int sequences, int64_t *tokens_counted)
{
    size_t C = config_.channels, T = config_.seq, V = config_.vocab, n = sequences * T;
    for (auto &grad : grads)
        std::fill(grad.second.begin(), grad.second.end(), 0.0);
    Vector &wte = params.at("wte.weight"), &wpe = params.at("wpe.weight");
    Vector x(n * C), lnf, mean, rstd, logits, dlnf, dx(n * C, 0);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < C; c++)
            x[i * C + c] = wte[tokens[i] * C + c] + wpe[(i % T) * C + c];
    std::vector<Layer> layers(config_.layers);
    for (int i = 0; i < config_.layers; i++) {
        Vector out;
        forward_layer(i, layers[i], x, out, sequences);
        x = out;
    }
    layernorm(x, params.at("ln_f.weight"), params.at("ln_f.bias"), n, C, config_.eps, lnf, mean,
              rstd);
    linear(lnf, wte, nullptr, n, C, V, logits);
    double total = 0;
    *tokens_counted = 0;
    for (size_t r = 0; r < n; r++) {
        double *row = &logits[r * V], high = *std::max_element(row, row + V), sum = 0;
        bool valid = targets[r] >= 0;
        for (size_t v = 0; v < V; v++)
            sum += std::exp(row[v] - high);
        if (valid) {
            total += high + std::log(sum) - row[targets[r]];
            ++*tokens_counted;
        }
        for (size_t v = 0; v < V; v++)
            row[v] = valid ? std::exp(row[v] - high) / sum - ((int32_t)v == targets[r]) : 0;
    }
    linear_backward(logits, lnf, wte, n, C, V, dlnf, grads.at("wte.weight"), nullptr);
    layernorm_backward(dlnf, x, params.at("ln_f.weight"), mean, rstd, n, C, dx,
                       grads.at("ln_f.weight"), grads.at("ln_f.bias"));
    for (int i = config_.layers - 1; i >= 0; i--) {
        Vector before;
        backward_layer(i, layers[i], dx, before, sequences);
        dx = before;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < C; c++) {
            grads.at("wte.weight")[tokens[i] * C + c] += dx[i * C + c];
            grads.at("wpe.weight")[(i % T) * C + c] += dx[i * C + c];
        }
    return total;
}

double ReferenceModel::step(const ReferenceAdamW &opts, int64_t tokens)
{
    double squares = 0;
    for (auto &grad : grads)
        for (double &g : grad.second) {
            g /= (double)tokens;
            squares += g * g;
        }
    double norm = std::sqrt(squares), factor = 1;
    if (opts.clip > 0)
        factor = std::min(1.0, opts.clip / (norm + 1e-6));
    steps_++;
    for (auto &grad : grads) {
        Vector &p = params.at(grad.first), &m = m_.at(grad.first), &v = v_.at(grad.first);
        for (size_t i = 0; i < p.size(); i++) {
            double g = grad.second[i] * factor;
            m[i] = opts.beta1 * m[i] + (1 - opts.beta1) * g;
            v[i] = opts.beta2 * v[i] + (1 - opts.beta2) * g * g;
            double mh = m[i] / (1 - std::pow(opts.beta1, (double)steps_));
            double vh = v[i] / (1 - std::pow(opts.beta2, (double)steps_));
            if (decays_.at(grad.first))
                p[i] -= opts.lr * opts.weight_decay * p[i];
            p[i] -= opts.lr * mh / (std::sqrt(vh) + opts.eps);
        }
    }
    return norm;
}
