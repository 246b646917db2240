/* SPDX-License-Identifier: MIT
 *
 * Updates in host memory compared with those of the kernel.
 */
#include "host_step_fixture.h"

namespace
{

class HostStepAndKernel : public OptimizerTest
{
};

TEST_F(HostStepAndKernel, EveryRuleMovesAsTheKernelDoes)
{
    const int64_t n = 325;
    int turn = 0;
    for (const Rule &rule : all_rules()) {
        const rf_optimizer_opts &o = rule.opts;
        const Types types = turn++ % 2 ? plain : Types{RF_F32, RF_BF16, RF_F16};
        const Floats p = normal(n);
        Flat device = flat(o, p, alternating(n), {0, n, 0}, types.param, types.copy);
        Host host(o, p, alternating(n), types);
        for (int t = 0; t < 3; t++) {
            const Floats g = normal(n);
            set(device.scalars, 1e-3f, 0.5f, 20);
            host.scalars.inv_tokens = 0.5f;
            host.scalars.clip = 20;
            ASSERT_OK(step(o, device, typed(rf_shape1(n), types.grad, g), 4000));
            ASSERT_OK(host.step(g, 4000));
        }
        const bool divides =
            o.kind != RF_SGD && o.kind != RF_MOMENTUM && o.kind != RF_NESTEROV && o.kind != RF_LION;
        if (!divides) {
            expect_same_bits(host.contents(), contents(device), rule.name);
            continue;
        }
        /* A device's division has 2.5 ULP, and its root is made of one. */
        const double tolerance = o.centered ? 1e-5 : 1e-6;
        expect_near(host.param(), wide(read(device.part.param)), tolerance, rule.name);
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (host.part.state[k])
                expect_near(host.state(k), wide(read(device.part.state[k])),
                            o.centered && k == RF_STATE_M ? 1e-3 : tolerance,
                            rule.name + ", state " + std::to_string(k));
        if (host.part.copy)
            expect_same_bits(host.copy(), rounded_to(RF_F16, host.param()), rule.name + ", copy");
    }
}

TEST_F(HostStepAndKernel, StochasticRoundingIsTheKernelsToTheBit)
{
    /* From subnormal numbers of the type to infinity. With lr 0 the parameters stay. */
    const int64_t n = 64 * 40;
    Floats p = normal(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = std::ldexp(p[i], (int)(i % 40) - 28);
    p[5] = 65504;
    p[6] = -65535;
    p[7] = 65537;
    p[8] = 0;
    p[9] = -3.4e38f;
    rf_optimizer_opts o = {};
    o.kind = RF_SGD;
    o.stochastic_rounding = true;
    for (rf_dtype type : {RF_F16, RF_BF16})
        for (uint64_t first : {(uint64_t)0, (uint64_t)1 << 33}) {
            Flat device = flat(o, p, Ints(n / 64), {0, n, 0}, RF_F32, type);
            device.part.first = first;
            set(device.scalars, 0, 1, 0, seed);
            ASSERT_OK(step(o, device, f32(rf_shape1(n), Floats(n))));
            // And with a table of places, whose runs end within quads and blocks.
            const Ints table = place_table({{first + 66, 5},
                                            {first + 67, 1ull << 40},
                                            {first + 700, 64},
                                            {first + n, 1000001}},
                                           first, n);
            Flat placed = flat(o, p, Ints(n / 64), {0, n, 0}, RF_F32, type);
            placed.part.first = first;
            placed.part.places = i32(rf_shape1((int64_t)table.size()), table);
            set(placed.scalars, 0, 1, 0, seed);
            ASSERT_OK(step(o, placed, f32(rf_shape1(n), Floats(n))));
            const Floats wants[] = {read(device.part.copy), read(placed.part.copy)};
            EXPECT_NE(wants[0], wants[1]);
            for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++)
                for (int places = 0; places < 2; places++) {
                    Host host(o, p, Ints(n / 64), {RF_F32, RF_F32, type});
                    host.part.first = first;
                    host.part.places = places ? table.data() : nullptr;
                    host.scalars.lr = 0;
                    host.give(Floats(n));
                    ASSERT_OK(rf_host_step_begin(&o, &host.scalars, 1));
                    ASSERT_OK(rf_host_step_by((rf_host_path)path, &o, &host.part, &host.scalars));
                    expect_same_bits(host.copy(), wants[places], "copy");
                }
        }
}

/* A state in 8 or 16 bits on the device, as f32. */
Floats decoded(const rf_optimizer_opts &o, int k, rf_dtype type, const void *data, int64_t n)
{
    Floats values(n);
    const auto *half = (const uint16_t *)data;
    if (type == RF_BF16)
        return oracle::from_half(std::vector<uint16_t>(half, half + n), true);
    rf_codes codes;
    rf_codes_make(rf_optimizer_signed(&o, (rf_optimizer_state)k), &codes);
    for (int64_t i = 0; i < n; i += 256)
        rf_codes_read(&codes, (const char *)data + i / 256 * RF_STATE_BLOCK_BYTES,
                      (int)std::min<int64_t>(256, n - i), &values[i]);
    return values;
}

TEST_F(HostStepAndKernel, StatesOfFewerBitsAreThoseOfTheKernel)
{
    int turn = 0;
    for (const Rule &rule : all_rules())
        for (rf_dtype type : {RF_BF16, RF_U8})
            for (int64_t n : {4096 + 64, 4099}) {
                const rf_optimizer_opts &o = rule.opts;
                const bool other = o.eps_inside || o.no_bias_correction || o.kind == RF_NESTEROV;
                if (!rf_optimizer_can_store(&o, type) || other || (n % 2 && o.kind != RF_ADAMW))
                    continue;
                const Types types = turn++ % 2 ? plain : Types{RF_F32, RF_BF16, RF_F16};
                const Floats p = normal(n);
                const Ints decay(HostStepAndKernel::alternating(n));
                Flat device = flat(o, p, decay, {0, n, 0}, types.param, types.copy);
                Host host(o, p, decay, types);
                const uint64_t bytes = type == RF_U8 ? rf_code_bytes(n) : 2 * n;
                std::vector<unsigned char> states[RF_STATE_COUNT];
                host.part.state_type = type;
                for (int k = 0; k < RF_STATE_COUNT; k++)
                    if (host.part.state[k]) {
                        states[k].resize(bytes);
                        host.part.state[k] = states[k].data();
                        device.part.state[k] = words(rf_shape1(type == RF_U8 ? (int64_t)bytes : n),
                                                     type, states[k].data(), 0);
                    }
                for (int t = 0; t < 3; t++) {
                    Floats g = normal(n);
                    for (int64_t i = 0; i < n; i += 5)
                        g[i] = 0;
                    set(device.scalars, 1e-3f, 0.5f);
                    host.scalars.inv_tokens = 0.5f;
                    ASSERT_OK(step(o, device, typed(rf_shape1(n), types.grad, g)));
                    ASSERT_OK(host.step(g));
                }
                /* A division of 2.5 ULP leads to the next level now and then. */
                int64_t others = 0;
                ASSERT_OK(rf_stream_wait(stream));
                for (int k = 0; k < RF_STATE_COUNT; k++) {
                    if (!host.part.state[k])
                        continue;
                    std::vector<unsigned char> got(bytes);
                    ASSERT_OK(rf_tensor_read(device.part.state[k], got.data(), bytes));
                    const Floats a = decoded(o, k, type, got.data(), n);
                    const Floats b = decoded(o, k, type, states[k].data(), n);
                    for (int64_t i = 0; i < n; i++) {
                        others += a[i] != b[i];
                        EXPECT_EQ(a[i] == 0, b[i] == 0) << rule.name << " " << i;
                    }
                }
                EXPECT_LE(others, n / 500) << rule.name << " " << rf_dtype_name(type);
                if (others == 0)
                    expect_near(host.param(), wide(read(device.part.param)), 1e-6, rule.name);
            }
}

} // namespace
