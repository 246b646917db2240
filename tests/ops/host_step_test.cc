/* SPDX-License-Identifier: MIT
 *
 * Updates in host memory: against fp64, and the same bits for any instruction set, cut and number
 * of threads.
 */
#include "host_step_fixture.h"

namespace
{

TEST_F(HostStep, EveryRuleFollowsTheReferenceForTwentySteps)
{
    for (const Rule &rule : all_rules())
        for (int64_t n : {1, 63, 64, 65, 1000}) {
            const rf_optimizer_opts &o = rule.opts;
            const Floats p = normal(n);
            Host host(o, p, alternating(n));
            Doubles want = wide(p);
            std::vector<reference::OptimizerState> states(n);
            for (int t = 1; t <= 20; t++) {
                const Floats g = normal(n, std::pow(10.0f, (float)(t % 4) - 2)); /* 1e-2 to 10 */
                host.scalars.inv_tokens = 0.5f;
                ASSERT_OK(host.step(g));
                for (int64_t i = 0; i < n; i++)
                    reference::optimizer_step(o, 1e-3f, t, i / 64 % 2 == 0, 0.5 * g[i], &want[i],
                                              &states[i]);
            }
            /* As for the kernel: each step rounds a parameter near 1 (6e-8); the spread of centered
             * RMSProp is a difference, which costs it some digits. */
            expect_near(host.param(), want, o.centered ? 1e-5 : 1e-6, rule.name);
            for (int k = 0; k < RF_STATE_COUNT; k++)
                if (host.part.state[k]) {
                    Doubles state;
                    for (const reference::OptimizerState &s : states)
                        state.push_back(s.of(k));
                    expect_near(host.state(k), state, o.centered && k == RF_STATE_M ? 1e-3 : 4e-6,
                                rule.name + ", state " + std::to_string(k));
                }
        }
}

TEST_F(HostStep, BitsDependNeitherOnInstructionsNorOnCutsNorOnThreads)
{
    const int64_t n = 1000;
    const Types all_types[] = {plain,
                               {RF_F32, RF_BF16, RF_BF16},
                               {RF_F32, RF_F16, RF_F16},
                               {RF_BF16, RF_F32, RF_F32},
                               {RF_F16, RF_F16, RF_F32}};
    for (const Rule &rule : all_rules())
        for (const Types &types : all_types) {
            rf_optimizer_opts o = rule.opts;
            o.stochastic_rounding = rule.opts.kind % 2 == 0;
            const Floats p = normal(n), g = normal(n), h = normal(n, 1e-2f);
            auto two_steps = [&](int shift, auto step) {
                Host host(o, p, alternating(n), types, shift);
                host.part.first = (uint64_t)1 << 33;
                for (const Floats *grad : {&g, &h}) {
                    host.give(*grad);
                    EXPECT_OK(rf_host_step_begin(&o, &host.scalars, 1));
                    step(host);
                }
                return host.contents();
            };
            auto by = [&](int path) {
                return [&o, path](Host &host) {
                    EXPECT_OK(rf_host_step_by((rf_host_path)path, &o, &host.part, &host.scalars));
                };
            };
            auto in_pieces = [&](Host &host) {
                const int64_t cuts[] = {0, 64, 256, 640, n};
                for (int k : {3, 0, 1, 2})
                    EXPECT_OK(rf_host_step(&o, &host.part, cuts[k], cuts[k + 1] - cuts[k],
                                           &host.scalars));
            };
            const Floats want = two_steps(0, by(RF_HOST_PLAIN));
            for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++)
                for (int shift : {0, 1, 3})
                    expect_same_bits(two_steps(shift, by(path)), want,
                                     rule.name + ", instructions " + std::to_string(path));
            expect_same_bits(two_steps(5, in_pieces), want, rule.name + ", in pieces");
            for (int threads : {1, 2, 7, RF_HOST_THREADS}) {
                auto on_threads = [&](Host &host) {
                    EXPECT_OK(rf_host_step_threads(&o, &host.part, &host.scalars, threads));
                };
                if (threads < 3 || rule.opts.kind == RF_ADAMW)
                    expect_same_bits(two_steps(1, on_threads), want,
                                     rule.name + ", threads " + std::to_string(threads));
            }
        }
}

/* Blocks of equal weight decay are processed together, which does not change their bits. */
TEST_F(HostStep, BitsDependNotOnHowManyBlocksInARowDecayAlike)
{
    const int64_t n = 64 * 40 + 17;
    Ints decay;
    for (int run : {1, 8, 9, 2, 16, 5}) /* 41 blocks */
        decay.insert(decay.end(), run, run % 2);
    for (const Rule &rule : all_rules())
        for (const Types &types : {plain, Types{RF_F32, RF_BF16, RF_F16}, {RF_F16, RF_F32, RF_F32}})
            for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++) {
                rf_optimizer_opts o = rule.opts;
                o.stochastic_rounding = rule.opts.kind % 2 == 0;
                o.weight_decay = 0.5f;
                const Floats p = normal(n), g = normal(n);
                Host whole(o, p, decay, types), blocks(o, p, decay, types);
                for (Host *host : {&whole, &blocks}) {
                    host->give(g);
                    EXPECT_OK(rf_host_step_begin(&o, &host->scalars, 1));
                }
                EXPECT_OK(rf_host_step_by((rf_host_path)path, &o, &whole.part, &whole.scalars));
                for (int64_t i = 0; i < n; i += 64)
                    EXPECT_OK(rf_host_step(&o, &blocks.part, i, std::min<int64_t>(64, n - i),
                                           &blocks.scalars));
                expect_same_bits(whole.contents(), blocks.contents(), rule.name);
            }
}

/* Corrections of 1 are skipped, for m after the first hundreds of updates and for v after the first
 * thousands: x / 1 is x. */
TEST_F(HostStep, AdamHasTheBitsOfTheFormulaBeforeAndAfterItsBiasCorrectionsAreOne)
{
    const int64_t n = 1000;
    for (rf_optimizer kind : {RF_ADAM, RF_ADAMW})
        for (uint32_t updates : {1u, 9u, 700u, 30000u}) {
            rf_optimizer_opts o = {};
            o.kind = kind;
            o.beta1 = 0.9f;
            o.beta2 = 0.999f;
            o.eps = 1e-8f;
            o.weight_decay = 0.1f;
            const Floats p = normal(n), g = normal(n);
            for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++) {
                Host host(o, p, Ints(16, 1));
                host.scalars.updates = updates - 1;
                host.give(g);
                ASSERT_OK(rf_host_step_begin(&o, &host.scalars, 1));
                ASSERT_OK(rf_host_step_by((rf_host_path)path, &o, &host.part, &host.scalars));
                const rf_step_scalars &s = host.scalars;
                ASSERT_EQ(s.bias1 == 1, updates >= 700);
                ASSERT_EQ(s.bias2 == 1, updates >= 30000);
                const Floats got = host.param();
                for (int64_t i = 0; i < n; i++) {
                    const bool decoupled = kind == RF_ADAMW;
                    const float grad = decoupled ? g[i] : g[i] + o.weight_decay * p[i];
                    const float m = (1 - o.beta1) * grad, v = (1 - o.beta2) * (grad * grad);
                    const float d = m / s.bias1 / (std::sqrt(v / s.bias2) + o.eps);
                    const float begin = decoupled ? p[i] - s.lr * o.weight_decay * p[i] : p[i];
                    ASSERT_EQ(got[i], begin - s.lr * d)
                        << "element " << i << " of update " << updates;
                }
            }
        }
}

/* A rank's part of a buffer begins at element `from`. */
TEST_F(HostStep, ShardsHaveTheBitsOfTheWhole)
{
    const int64_t n = 777;
    rf_optimizer_opts o = all_rules()[0].opts;
    o.stochastic_rounding = true;
    const Types types = {RF_F32, RF_F32, RF_BF16};
    const Floats p = normal(n), g = normal(n);
    const Ints decay = alternating(n);
    Host whole(o, p, decay, types);
    ASSERT_OK(whole.step(g));
    for (int64_t from : {0, 64, 512, 768}) {
        const int64_t end = std::min<int64_t>(n, from + 448);
        auto cut = [&](const Floats &all) { return Floats(&all[from], &all[0] + end); };
        Host shard(o, cut(p), Ints(decay.begin() + from / 64, decay.end()), types, 2);
        shard.part.first = (uint64_t)from;
        ASSERT_OK(shard.step(cut(g)));
        expect_same_bits(shard.param(), cut(whole.param()), "parameters");
        expect_same_bits(shard.copy(), cut(whole.copy()), "copy");
        expect_same_bits(shard.state(RF_STATE_V), cut(whole.state(RF_STATE_V)), "state");
    }
}

TEST_F(HostStep, SixteenBitsAreThoseOfTheOracle)
{
    /* Every f16 and bf16 as a gradient: SGD with lr -1 adds it to 0. */
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    std::vector<uint16_t> every(1 << 16);
    for (size_t i = 0; i < every.size(); i++)
        every[i] = (uint16_t)i;
    for (rf_dtype type : {RF_F16, RF_BF16}) {
        const bool bf16 = type == RF_BF16;
        const Floats values = oracle::from_half(every, bf16);
        for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++) {
            Host host(o, Floats(every.size()), Ints(every.size() / 64), {RF_F32, type, type});
            host.scalars.lr = -1;
            host.scalars.factor = 1;
            host.part.grad = every.data();
            ASSERT_OK(rf_host_step_by((rf_host_path)path, &o, &host.part, &host.scalars));
            const Floats got = host.param(), copy = host.copy();
            for (size_t i = 0; i < every.size(); i++) {
                ASSERT_EQ(std::isnan(got[i]), std::isnan(values[i])) << i;
                ASSERT_EQ(std::isnan(copy[i]), std::isnan(values[i])) << i;
                if (!std::isnan(values[i])) {
                    ASSERT_EQ(got[i], values[i]) << i;
                    ASSERT_EQ(copy[i], values[i]) << i;
                }
            }
            /* Numbers from subnormal ones to those that overflow. */
            Floats p = normal(1 << 14);
            for (size_t i = 0; i < p.size(); i++)
                p[i] = std::ldexp(p[i], (int)(i % 48) - 30);
            for (size_t i = 0; i + 1 < every.size() && i < p.size() / 2; i++) /* ties */
                p[i] = (float)(0.5 * ((double)values[2 * i] + values[2 * i + 1]));
            for (float &x : p)
                x = std::isnan(x) ? 1 : x;
            Host rounded(o, p, Ints(p.size() / 64), {RF_F32, RF_F32, type});
            rounded.scalars.factor = 1;
            const Floats zero(p.size());
            rounded.part.grad = zero.data();
            ASSERT_OK(rf_host_step_by((rf_host_path)path, &o, &rounded.part, &rounded.scalars));
            expect_same_bits(rounded.copy(), oracle::from_half(oracle::to_half(p, bf16), bf16),
                             "copy");
        }
    }
}

TEST_F(HostStep, AStepThatIsSkippedChangesNothingToTheBit)
{
    const int64_t n = 200;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    int turn = 0;
    for (const Rule &rule : all_rules())
        for (rf_dtype grad_type : float_types) {
            rf_optimizer_opts o = rule.opts;
            o.stochastic_rounding = true;
            Host host(o, normal(n), alternating(n), {RF_F32, grad_type, RF_BF16});
            host.scalars.clip = 1;
            ASSERT_OK(host.step(normal(n)));
            const Floats before = host.contents();
            Floats g = normal(n);
            g[(size_t)(turn * 37 % n)] = bad[turn % 3];
            turn++;
            host.give(g);
            const rf_host_flat flat = {host.part.grad, n, grad_type};
            const rf_norm_chunk chunk = {0, (uint32_t)n};
            float squares;
            ASSERT_OK(rf_host_squares(&squares, &flat, &chunk, 1));
            ASSERT_OK(host.step(g, rf_host_join_squares(&squares, 1)));
            EXPECT_OK(rf_host_step_threads(&o, &host.part, &host.scalars, 2));
            EXPECT_EQ(host.scalars.skipped, 1u);
            EXPECT_EQ(host.scalars.updates, 1u);
            expect_same_bits(host.contents(), before, rule.name);
            ASSERT_OK(host.step(normal(n)));
            EXPECT_EQ(host.scalars.skipped, 0u);
            EXPECT_EQ(host.scalars.updates, 2u);
            EXPECT_NE(host.contents(), before) << rule.name;
        }
}

TEST_F(HostStep, TheClipCoefficientAppliesAlsoToGradientsWhoseSquaresF32DoesNotHold)
{
    const int64_t n = 16;
    rf_optimizer_opts sgd = {};
    sgd.kind = RF_SGD;
    for (float size : {1.0f, 0x1p60f, 0x1p64f, 0x1p126f}) {
        Host host(sgd, Floats(n), {0});
        host.scalars.lr = 1;
        host.scalars.clip = 0.5f;
        const Floats g(n, size);
        const rf_host_flat flat = {g.data(), n, RF_F32};
        const rf_norm_chunk chunk = {0, (uint32_t)n};
        float squares;
        ASSERT_OK(rf_host_squares(&squares, &flat, &chunk, 1));
        ASSERT_OK(host.step(g, squares));
        for (float p : host.param()) /* each a 16th of the squares of the clip norm */
            EXPECT_NEAR(p, -0.125, 1e-6) << size;
    }
}

// Differences of numbers around the smallest normal one, on a device that flushes subnormal numbers
// to zero, and on one that keeps them.
TEST_F(HostStep, TakesSubnormalNumbersForNothingIfToldTo)
{
    const int64_t n = 1000;
    const float least = std::numeric_limits<float>::min();
    const auto flushed = [=](float x) { return std::fabs(x) < least ? 0.0f : x; };
    rf_optimizer_opts sgd = {};
    sgd.kind = RF_SGD;
    for (bool flush : {false, true})
        for (int path = 0; path <= rf_host_best_path() + 1; path++) {
            Floats p, g, want;
            for (int64_t i = 0; i < n; i++) {
                p.push_back(least / 8 * (float)(i % 31));
                g.push_back(least / 8 * (float)(i % 23));
                want.push_back(flush ? flushed(flushed(p.back()) - flushed(g.back()))
                                     : p.back() - g.back());
            }
            Host host(sgd, p, Ints((size_t)(n + 63) / 64));
            host.scalars.lr = 1;
            host.part.flush = flush;
            host.give(g);
            ASSERT_OK(rf_host_step_begin(&sgd, &host.scalars, 1));
            ASSERT_OK(path > rf_host_best_path()
                          ? rf_host_step_threads(&sgd, &host.part, &host.scalars, 3)
                          : rf_host_step_by((rf_host_path)path, &sgd, &host.part, &host.scalars));
            for (int64_t i = 0; i < n; i++)
                ASSERT_EQ(host.param()[(size_t)i], want[(size_t)i])
                    << "flush " << flush << ", path " << path << ", " << i;
            const Floats small(n, 0x1p-70f);
            const rf_host_flat flat = {small.data(), n, RF_F32, flush};
            const rf_norm_chunk chunk = {0, (uint32_t)n};
            float squares = -1;
            if (path > rf_host_best_path())
                continue;
            ASSERT_OK(rf_host_squares_by((rf_host_path)path, &squares, &flat, &chunk, 1));
            EXPECT_EQ(squares, flush ? 0 : 0x1p-140f * (float)n);
        }
}

TEST_F(HostStep, NoElementsAreNoWork)
{
    const rf_optimizer_opts o = all_rules()[0].opts;
    const rf_step_scalars s = {};
    const rf_host_part none = {};
    EXPECT_OK(rf_host_step(&o, &none, 0, 0, &s));
    EXPECT_OK(rf_host_step_threads(&o, &none, &s, 3));
    const Floats p = normal(100);
    Host host(o, p, alternating(100));
    host.give(normal(100));
    ASSERT_OK(rf_host_step_begin(&o, &host.scalars, 1));
    EXPECT_OK(rf_host_step(&o, &host.part, 64, 0, &host.scalars));
    EXPECT_OK(rf_host_step(&o, &host.part, 0, 0, &host.scalars));
    expect_same_bits(host.param(), p, "parameters");
}

TEST_F(HostStep, MisuseIsNamedAndWritesNothing)
{
    rf_optimizer_opts o = all_rules()[0].opts, unknown = o;
    unknown.kind = RF_OPTIMIZER_COUNT;
    const Floats p = normal(100);
    Host host(o, p, {0, 0}, {RF_F32, RF_F32, RF_BF16});
    host.give(normal(100));
    ASSERT_OK(rf_host_step_begin(&o, &host.scalars, 1));
    const rf_step_scalars &s = host.scalars;
    Floats slab(6 * 512); // apart from each other, so that shifted ones touch only one neighbour
    host.part.state[RF_STATE_M] = &slab[0];
    host.part.state[RF_STATE_V] = &slab[512];
    host.part.grad = &slab[1024];
    host.part.copy = &slab[1536];
    host.part.param = &slab[2048];
    std::copy(p.begin(), p.end(), &slab[2048]);
    EXPECT_FAILS(RF_EINVAL, "kind", rf_host_step(nullptr, &host.part, 0, 100, &s));
    EXPECT_FAILS(RF_EINVAL, "kind", rf_host_step(&unknown, &host.part, 0, 100, &s));
    EXPECT_FAILS(RF_EINVAL, "part", rf_host_step(&o, nullptr, 0, 100, &s));
    EXPECT_FAILS(RF_EINVAL, "scalars", rf_host_step(&o, &host.part, 0, 100, nullptr));
    EXPECT_FAILS(RF_EINVAL, "32 elements from 0 on", rf_host_step(&o, &host.part, 0, 32, &s));
    EXPECT_FAILS(RF_EINVAL, "multiples of 64", rf_host_step(&o, &host.part, 32, 68, &s));
    EXPECT_FAILS(RF_EINVAL, "not within a part of 100", rf_host_step(&o, &host.part, 64, 37, &s));
    EXPECT_FAILS(RF_EINVAL, "not within", rf_host_step(&o, &host.part, 0, INT64_MAX, &s));
    EXPECT_FAILS(RF_EINVAL, "not within", rf_host_step(&o, &host.part, -64, 64, &s));
    EXPECT_FAILS(RF_EINVAL, "0 threads", rf_host_step_threads(&o, &host.part, &s, 0));
    EXPECT_FAILS(RF_EINVAL, "use 1 to 256", rf_host_step_threads(&o, &host.part, &s, 257));
    auto refused = [&](const char *text, auto change) {
        rf_host_part part = host.part;
        change(part);
        EXPECT_FAILS(RF_EINVAL, text, rf_host_step(&o, &part, 0, part.count, &s));
    };
    refused("param is NULL", [](auto &part) { part.param = nullptr; });
    refused("grad is NULL", [](auto &part) { part.grad = nullptr; });
    refused("decay is NULL", [](auto &part) { part.decay = nullptr; });
    refused("state v is NULL; adamw needs it",
            [](auto &part) { part.state[RF_STATE_V] = nullptr; });
    refused("first is 32", [](auto &part) { part.first = 32; });
    refused("-1 elements", [](auto &part) { part.count = -1; });
    refused("grad f64", [](auto &part) { part.grad_type = RF_F64; });
    refused("param is i32", [](auto &part) { part.param_type = RF_I32; });
    refused("param must not overlap grad", [](auto &part) { part.grad = part.param; });
    refused("state m must not overlap state v",
            [](auto &part) { part.state[RF_STATE_V] = (float *)part.state[RF_STATE_M] + 99; });
    refused("param must not overlap copy",
            [](auto &part) { part.copy = (char *)part.param + 396; });
    refused("a copy is for f32 parameters", [](auto &part) { part.copy_type = RF_F32; });
    refused("a copy is for f32 parameters", [](auto &part) { part.param_type = RF_BF16; });
    expect_same_bits(Floats(&slab[2048], &slab[2148]), p, "parameters");
}

} // namespace
