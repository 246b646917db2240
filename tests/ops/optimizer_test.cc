/* SPDX-License-Identifier: MIT
 *
 * The optimizers' updates in f32, against fp64 and PyTorch, for every cut of a buffer.
 */
#include "optimizer_fixture.h"

#include <fstream>
#include <map>
#include <sstream>

namespace
{
using Optimizer = OptimizerTest;

struct Expected {
    Doubles p;
    std::vector<reference::OptimizerState> states;
};

void move(const rf_optimizer_opts &o, double lr, int t, const Ints &decay, const Floats &g,
          double factor, Expected *e)
{
    for (size_t i = 0; i < g.size(); i++)
        reference::optimizer_step(o, lr, t, decay[i / 64] != 0, g[i] * factor, &e->p[i],
                                  &e->states[i]);
}

TEST_F(Optimizer, EveryRuleFollowsTheReferenceForTwentySteps)
{
    for (const Rule &rule : all_rules())
        for (int64_t n : {1, 63, 64, 65, 1000, 1024}) {
            const rf_optimizer_opts &o = rule.opts;
            const Floats p = normal(n);
            const Ints decay = alternating(n);
            Flat f = flat(o, p, decay, {0, n, 0});
            Expected e = {wide(p), std::vector<reference::OptimizerState>(n)};
            for (int t = 1; t <= 20; t++) {
                Floats g = normal(n, std::pow(10.0f, (float)(t % 4) - 2)); /* 1e-2 to 10 */
                set(f.scalars, 1e-3f, 0.5f);
                ASSERT_OK(step(o, f, f32(rf_shape1(n), g)));
                move(o, 1e-3f, t, decay, g, 0.5, &e);
            }
            /* Each step rounds a parameter near 1 (6e-8) and moves it by 1e-3 to 1e-2; with eps
             * small beside the root no division is near 0. The spread of centered RMSProp is a
             * difference, which costs it some digits. */
            const double tolerance = o.centered ? 1e-5 : 1e-6;
            expect_near(read(f.part.param), e.p, tolerance, rule.name);
            for (int k = 0; k < RF_STATE_COUNT; k++)
                if (f.part.state[k].buffer) {
                    Doubles state;
                    for (const reference::OptimizerState &s : e.states)
                        state.push_back(s.of(k));
                    expect_near(
                        read(f.part.state[k]), state, o.centered && k == RF_STATE_M ? 1e-3 : 4e-6,
                        rule.name + ", state " + rf_optimizer_state_name((rf_optimizer_state)k));
                }
        }
}

/* optimizer_torch.py */
float torch_gradient(int step, int i)
{
    return ((float)((7 * i + 13 * step) % 11 - 5) + (float)(i % 2) / 4) / 8;
}

rf_optimizer_opts torch_options(const std::string &name)
{
    rf_optimizer_opts o = {};
    o.kind = (rf_optimizer)rf_optimizer_find(name.substr(0, name.find('-')).c_str());
    const bool adam = o.kind == RF_ADAM || o.kind == RF_ADAMW;
    const bool more = name.find("-centered-momentum") != std::string::npos;
    o.beta1 = adam ? 0.875f : 0;
    o.beta2 = adam || o.kind == RF_RMSPROP ? 0.9375f : 0;
    o.eps = 0x1p-20f;
    o.weight_decay = 0.125f;
    o.momentum = o.kind == RF_MOMENTUM || o.kind == RF_NESTEROV || more ? 0.75f : 0;
    o.dampening = o.kind == RF_MOMENTUM ? 0.25f : 0;
    o.centered = more;
    return o;
}

TEST_F(Optimizer, ParametersAfterTwentyStepsAreThoseOfPyTorch)
{
    std::ifstream file(RF_OPS_FOLDER "/optimizer_torch.txt");
    std::string line, name;
    int rows = 0;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        Doubles want(5);
        if (line[0] == '#' || !(words >> name))
            continue;
        for (double &x : want)
            words >> x;
        ASSERT_TRUE(words) << line;
        rows++;
        const rf_optimizer_opts o = torch_options(name);
        Flat f = flat(o, {-0.5f, -0.25f, 0, 0.25f, 0.5f}, {1}, {0, 5, 0});
        Doubles oracle = {-0.5, -0.25, 0, 0.25, 0.5};
        std::vector<reference::OptimizerState> states(5);
        for (int t = 0; t < 20; t++) {
            Floats g;
            for (int i = 0; i < 5; i++) {
                g.push_back(torch_gradient(t, i));
                reference::optimizer_step(o, 0.0625, t + 1, true, g[i], &oracle[i], &states[i]);
            }
            set(f.scalars, 0.0625f);
            ASSERT_OK(step(o, f, f32(rf_shape1(5), g)));
        }
        for (int i = 0; i < 5; i++)
            EXPECT_NEAR(oracle[i], want[i], 1e-12) << name;
        /* Steps of up to 0.4 for centered RMSProp, whose spread is small at first. */
        expect_near(read(f.part.param), want, o.centered ? 1e-5 : 1e-6, name);
    }
    EXPECT_EQ(rows, 8);
}

TEST_F(Optimizer, BitsDoNotDependOnWhereABufferIsCutOrLies)
{
    const int64_t n = 1024;
    const Floats p = normal(n), g = normal(n);
    const Ints decay = below(n / 64, 2);
    for (const Rule &rule : all_rules()) {
        const rf_optimizer_opts &o = rule.opts;
        auto two_steps = [&](Place at) {
            Flat f = flat(o, p, decay, at);
            for (int t = 0; t < 2; t++) {
                set(f.scalars, 3e-4f, 0.37f);
                EXPECT_OK(step(o, f, f32(rf_shape1(at.count), cut(g, at), at.shift)));
            }
            return contents(f);
        };
        const Floats whole = two_steps({0, n, 0});
        for (int shift = 0; shift < 8; shift++)
            for (Place at : {Place{0, 64, shift}, Place{64, 448, shift}, Place{512, 449, shift}}) {
                Floats want;
                for (size_t k = 0; k < whole.size(); k += n)
                    want.insert(want.end(), whole.begin() + k + at.first,
                                whole.begin() + k + at.first + at.count);
                expect_same_bits(two_steps(at), want,
                                 rule.name + " cut at " + std::to_string(at.first) + ", shift " +
                                     std::to_string(shift));
            }
        for (int again = 0; again < 10; again++)
            expect_same_bits(two_steps({0, n, 0}), whole, rule.name + " again");
    }
}

TEST_F(Optimizer, HasTheStatesThatItsRuleNeeds)
{
    std::map<std::string, int> bytes;
    for (const Rule &rule : all_rules()) {
        for (int k = 0; k < RF_STATE_COUNT; k++)
            bytes[rule.name] += rf_optimizer_has(&rule.opts, (rf_optimizer_state)k) ? 4 : 0;
    }
    EXPECT_EQ(bytes["sgd"], 0);
    EXPECT_EQ(bytes["momentum"], 4);
    EXPECT_EQ(bytes["nesterov"], 4);
    EXPECT_EQ(bytes["adagrad"], 4);
    EXPECT_EQ(bytes["rmsprop"], 4);
    EXPECT_EQ(bytes["rmsprop centered"], 8);
    EXPECT_EQ(bytes["rmsprop with momentum"], 8);
    EXPECT_EQ(bytes["rmsprop centered with momentum"], 12);
    EXPECT_EQ(bytes["adam"], 8);
    EXPECT_EQ(bytes["adamw"], 8);
    EXPECT_EQ(bytes["lion"], 4);
    for (int kind = 0; kind < RF_OPTIMIZER_COUNT; kind++)
        EXPECT_EQ(rf_optimizer_find(rf_optimizer_get_info((rf_optimizer)kind)->name), kind);
    EXPECT_EQ(rf_optimizer_find("adamax"), -1);
    EXPECT_EQ(rf_optimizer_get_info(RF_OPTIMIZER_COUNT), nullptr);
}

TEST_F(Optimizer, WrongOperandsAreNamed)
{
    rf_optimizer_opts o = all_rules()[0].opts, unknown = o;
    unknown.kind = RF_OPTIMIZER_COUNT;
    Flat good = flat(o, Floats(100), {0, 0}, {0, 100, 0});
    good.part.grad = blank(rf_shape1(100));
    auto refused = [&](const char *text, auto change) {
        Flat f = good;
        change(f);
        EXPECT_FAILS(RF_EINVAL, text, rf_optimizer_step(stream, &o, &f.part, f.scalars));
    };
    const rf_tensor one = blank(rf_shape1(1));
    EXPECT_FAILS(RF_EINVAL, "kind", rf_optimizer_step(stream, nullptr, &good.part, good.scalars));
    EXPECT_FAILS(RF_EINVAL, "kind", rf_optimizer_step(stream, &unknown, &good.part, good.scalars));
    EXPECT_FAILS(RF_EINVAL, "part", rf_optimizer_step(stream, &o, nullptr, good.scalars));
    refused("param has no buffer", [](Flat &f) { f.part.param = {}; });
    refused("param is i32", [&](Flat &f) { f.part.param = blank_i32(100); });
    refused("state m has no buffer", [](Flat &f) { f.part.state[RF_STATE_M] = {}; });
    refused("state v is f16 (100), expected f32",
            [&](Flat &f) { f.part.state[RF_STATE_V] = typed_blank(rf_shape1(100), RF_F16); });
    refused("decay is i32 (3), expected 2", [&](Flat &f) { f.part.decay = blank_i32(3); });
    refused("grad is f32 (1), expected 100", [&](Flat &f) { f.part.grad = one; });
    refused("scalars is f32 (1), expected 16", [&](Flat &f) { f.scalars = one; });
    refused("first is 32", [](Flat &f) { f.part.first = 32; });
    refused("param must not overlap grad", [](Flat &f) { f.part.grad = f.part.param; });
    refused("state m must not overlap state v",
            [](Flat &f) { f.part.state[RF_STATE_V] = f.part.state[RF_STATE_M]; });
    refused("a copy is for f32 parameters", [&](Flat &f) { f.part.copy = blank(rf_shape1(100)); });
    refused("a copy is for f32 parameters", [&](Flat &f) {
        f.part.param = typed_blank(rf_shape1(100), RF_BF16);
        f.part.copy = typed_blank(rf_shape1(100), RF_F16);
    });
    refused("copy is bf16 (99), expected 100",
            [&](Flat &f) { f.part.copy = typed_blank(rf_shape1(99), RF_BF16); });
}
} // namespace
