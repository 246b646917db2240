/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the optimizers: every rule with its options, a flat buffer with its state
 * on the device, and a step's block of scalars.
 */
#pragma once

#include "op_fixture.h"

#include "support/reference_optimizer.h"

struct Rule {
    std::string name;
    rf_optimizer_opts opts;
};

/* Every rule, and every option that changes its formula. */
inline std::vector<Rule> all_rules()
{
    std::vector<Rule> rules;
    for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++) {
        const rf_optimizer_info *info = rf_optimizer_get_info((rf_optimizer)kind);
        rf_optimizer_opts o = {};
        o.kind = (rf_optimizer)kind;
        o.beta1 = info->beta1;
        o.beta2 = info->beta2 != 0 ? 0.95f : 0;
        o.eps = info->eps != 0 ? 1e-6f : 0;
        o.momentum = info->momentum;
        o.weight_decay = 0.1f;
        std::copy(info->extra, info->extra + RF_OPTIMIZER_EXTRA, o.extra);
        rules.push_back({info->name, o});
        if (o.eps != 0) {
            rules.push_back({std::string(info->name) + " eps inside", o});
            rules.back().opts.eps_inside = true;
        }
    }
    auto add = [&](const char *name, int kind, auto change) {
        for (const Rule &rule : std::vector<Rule>(rules))
            if (rule.opts.kind == kind && !rule.opts.eps_inside) {
                rules.push_back({name, rule.opts});
                change(rules.back().opts);
                return;
            }
    };
    add("momentum with dampening", RF_MOMENTUM, [](auto &o) { o.dampening = 0.25f; });
    add("rmsprop centered", RF_RMSPROP, [](auto &o) { o.centered = true; });
    add("rmsprop with momentum", RF_RMSPROP, [](auto &o) { o.momentum = 0.8f; });
    add("rmsprop centered with momentum", RF_RMSPROP, [](auto &o) {
        o.centered = true;
        o.momentum = 0.8f;
    });
    add("adam without bias correction", RF_ADAM, [](auto &o) { o.no_bias_correction = true; });
    return rules;
}

class OptimizerTest : public OpTest
{
  protected:
    rf_tensor scalars(const rf_step_scalars &s)
    {
        Floats data(RF_SCALAR_WORDS);
        static_assert(sizeof(s) == RF_SCALAR_WORDS * 4, "a block of words");
        std::memcpy(data.data(), &s, sizeof(s));
        return f32(rf_shape1(RF_SCALAR_WORDS), data);
    }
    static rf_step_scalars block_of(rf_tensor block)
    {
        rf_step_scalars s;
        Floats data = read(block);
        std::memcpy(&s, data.data(), sizeof(s));
        return s;
    }
    /* The host's part for the next step. */
    static void set(rf_tensor block, float lr, float inv_tokens = 1, float clip = 0,
                    uint64_t seed = 0)
    {
        rf_step_scalars s = block_of(block);
        s.lr = lr;
        s.inv_tokens = inv_tokens;
        s.clip = clip;
        s.seed[0] = (uint32_t)seed;
        s.seed[1] = (uint32_t)(seed >> 32);
        EXPECT_OK(rf_tensor_write(block, &s, sizeof(s)));
    }

    /* Parameters and states of one buffer. */
    struct Flat {
        rf_optimizer_part part = {};
        rf_tensor scalars = {};
    };
    struct Place { /* elements [first, first + count) of a buffer; memory `shift` elements in */
        int64_t first, count;
        int shift;
    };
    Flat flat(const rf_optimizer_opts &o, const Floats &p, const Ints &decay, Place at,
              rf_dtype type = RF_F32, rf_dtype copy = RF_F32)
    {
        Flat f;
        const rf_shape shape = rf_shape1(at.count);
        f.part.param = typed(shape, type, cut(p, at), at.shift);
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (rf_optimizer_has(&o, (rf_optimizer_state)k))
                f.part.state[k] = f32(shape, Floats(at.count), at.shift);
        if (copy != RF_F32)
            f.part.copy = typed_blank(shape, copy, at.shift);
        Ints words(decay.begin() + at.first / 64, decay.begin() + (at.first + at.count + 63) / 64);
        f.part.decay = i32(rf_shape1((int64_t)words.size()), words);
        f.part.first = (uint64_t)at.first;
        f.scalars = scalars({});
        return f;
    }
    static Floats cut(const Floats &data, Place at)
    {
        return Floats(data.begin() + at.first, data.begin() + at.first + at.count);
    }
    /* One step with these gradients; `sum_squares` only has to be finite. */
    int step(const rf_optimizer_opts &o, Flat &f, rf_tensor grad, float sum_squares = 1)
    {
        int rc = rf_step_begin(stream, &o, f.scalars, f32(rf_shape1(1), {sum_squares}));
        f.part.grad = grad;
        return rc < 0 ? rc : rf_optimizer_step(stream, &o, &f.part, f.scalars);
    }
    /* Everything that a step may change, concatenated. */
    static Floats contents(const Flat &f)
    {
        Floats all;
        for (rf_tensor t : {f.part.param, f.part.state[0], f.part.state[1], f.part.state[2],
                            f.part.state[3], f.part.copy})
            if (t.buffer)
                for (float x : read(t))
                    all.push_back(x);
        return all;
    }
    static Ints alternating(int64_t n)
    {
        Ints decay;
        for (int64_t i = 0; i < (n + 63) / 64; i++)
            decay.push_back(i % 2 == 0);
        return decay;
    }
};
