/* SPDX-License-Identifier: MIT
 *
 * Updates in host memory with states in 8 and in 16 bits, against the algorithm of 8-bit optimizers
 * written out for one element, and the levels of its maps against their definition.
 */
#include "host_step_fixture.h"

namespace
{

/* Level i of a map from -1 or 0 to 1: 7 decades, whose middles of equal parts double in number. */
double level_of(bool has_signs, int i)
{
    if (has_signs && i < 127)
        return -level_of(true, 254 - i);
    int number = has_signs ? i - 127 : i, parts = has_signs ? 1 : 2;
    for (int decade = 0; decade < 7 && number > 0; decade++, parts *= 2) {
        if (number <= parts)
            return std::pow(10.0, decade - 6) * (0.1 + 0.9 * (number - 0.5) / parts);
        number -= parts;
    }
    return number; /* 0, or 1 after the last decade */
}

std::unique_ptr<rf_codes> codes_of(bool has_signs)
{
    auto codes = std::make_unique<rf_codes>();
    rf_codes_make(has_signs, codes.get());
    return codes;
}

/* The number of borders below x, one by one. */
int nearest(const rf_codes &codes, float x)
{
    int code = 0;
    while (code < 255 && x > (codes.levels[code] + codes.levels[code + 1]) / 2)
        code++;
    return code;
}

TEST(StateCodes, LevelsAreThoseOfTheDynamicMap)
{
    for (bool has_signs : {false, true}) {
        const auto codes = codes_of(has_signs);
        EXPECT_EQ(codes->levels[has_signs ? 127 : 0], 0);
        EXPECT_EQ(codes->levels[255], 1);
        for (int i = 0; i < 256; i++) {
            const double want = level_of(has_signs, i);
            EXPECT_NEAR(codes->levels[i], want, 4e-7 * std::abs(want)) << i;
            EXPECT_TRUE(i == 0 || codes->levels[i] > codes->levels[i - 1]) << i;
        }
    }
}

TEST(StateCodes, AreThoseOfTheNearestLevelAndOfTheLowerOfTwo)
{
    for (bool has_signs : {false, true}) {
        const auto codes = codes_of(has_signs);
        for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++)
            for (int i = 0; i < 255; i++) {
                const float border = (codes->levels[i] + codes->levels[i + 1]) / 2;
                Floats block(256, 0);
                block[255] = 1;
                block[0] = border;
                block[1] = std::nextafter(border, 2.0f);
                block[2] = codes->levels[i];
                block[3] = has_signs ? -1 : 1;
                unsigned char bytes[RF_STATE_BLOCK_BYTES];
                rf_code_loops[path].write(codes.get(), block.data(), bytes);
                EXPECT_EQ(bytes[0], i);
                EXPECT_EQ(bytes[1], i + 1);
                EXPECT_EQ(bytes[2], i);
                EXPECT_EQ(bytes[3], has_signs ? 0 : 255);
                EXPECT_EQ(bytes[4], has_signs ? 127 : 0) << "0 stays 0";
            }
    }
}

/* A block with numbers that no level is near is not read beyond its tables. */
TEST(StateCodes, OfNumbersThatAreNotFiniteAreWithinTheMap)
{
    const float infinity = std::numeric_limits<float>::infinity();
    for (bool has_signs : {false, true}) {
        const auto codes = codes_of(has_signs);
        for (float x : {std::nanf(""), infinity, -infinity, 1e-45f, 3e38f}) {
            Floats block(256, x);
            unsigned char bytes[RF_STATE_BLOCK_BYTES];
            block[7] = 1;
            rf_codes_write(codes.get(), block.data(), 256, bytes);
            rf_codes_read(codes.get(), bytes, 256, block.data());
        }
    }
    /* Zero bytes, and blocks of 0. */
    const auto codes = codes_of(true);
    unsigned char bytes[RF_STATE_BLOCK_BYTES] = {0};
    Floats block(256, 1);
    rf_codes_read(codes.get(), bytes, 256, block.data());
    EXPECT_EQ(block, Floats(256, 0));
    rf_codes_write(codes.get(), block.data(), 256, bytes);
    rf_codes_read(codes.get(), bytes, 256, block.data());
    EXPECT_EQ(block, Floats(256, 0));
}

class HostStates : public HostStep
{
};

using States = std::vector<std::vector<unsigned char>>;

/* A step of the algorithm: states are decoded, one update in f32, and each state is encoded. */
void step_by_hand(const rf_optimizer_opts &o, Host &f32, States &coded, const Floats &g)
{
    const int64_t n = f32.part.count;
    for (int back = 0; back < 2; back++) {
        for (int k = 0; k < RF_STATE_COUNT; k++) {
            if (!f32.part.state[k])
                continue;
            const auto codes = codes_of(rf_optimizer_signed(&o, (rf_optimizer_state)k));
            float *values = (float *)f32.part.state[k];
            for (int64_t b = 0; b * 256 < n; b++) {
                unsigned char *block = coded[k].data() + b * RF_STATE_BLOCK_BYTES;
                const int64_t end = std::min<int64_t>(n, b * 256 + 256);
                float largest = 0;
                for (int64_t i = b * 256; back && i < end; i++)
                    largest = std::max(largest, std::abs(values[i]));
                const float inverse = 1 / std::max(largest, 0x1p-126f);
                if (!back)
                    std::memcpy(&largest, block + 256, 4);
                for (int64_t i = b * 256; i < b * 256 + 256; i++)
                    if (!back && i < end)
                        values[i] = codes->levels[block[i % 256]] * largest;
                    else if (back)
                        block[i % 256] =
                            (unsigned char)nearest(*codes, i < end ? values[i] * inverse : 0.0f);
                if (back)
                    std::memcpy(block + 256, &largest, 4);
            }
        }
        if (!back) {
            ASSERT_OK(f32.step(g));
        }
    }
}

TEST_F(HostStates, StatesOfEightBitsAreThoseOfTheAlgorithmAfterTwentySteps)
{
    int tensors = 0;
    for (const Rule &rule : all_rules())
        for (int64_t n : {1, 255, 256, 257, 1000, 4096, 5000, 999}) {
            const rf_optimizer_opts &o = rule.opts;
            if (!rf_optimizer_can_store(&o, RF_U8))
                continue;
            const int path = tensors++ % (rf_host_best_path() + 1);
            const Floats p = normal(n);
            Host f32(o, p, alternating(n)), host(o, p, alternating(n));
            States want(RF_STATE_COUNT, std::vector<unsigned char>(rf_code_bytes(n))), got = want;
            host.part.state_type = RF_U8;
            for (int k = 0; k < RF_STATE_COUNT; k++)
                host.part.state[k] = host.part.state[k] ? got[k].data() : nullptr;
            for (int t = 1; t <= 20; t++) {
                Floats g = normal(n, std::pow(10.0f, (float)(t % 4) - 2));
                for (int64_t i = 0; i < n; i += 7)
                    g[i] = 0; /* such a state of 0 stays 0 */
                host.give(g);
                ASSERT_OK(rf_host_step_begin(&o, &host.scalars, 1));
                ASSERT_OK(rf_host_step_by((rf_host_path)path, &o, &host.part, &host.scalars));
                step_by_hand(o, f32, want, g);
                ASSERT_EQ(got, want) << rule.name << ", step " << t << ", " << n << " elements";
                expect_same_bits(host.param(), f32.param(), rule.name);
            }
        }
    EXPECT_GE(tensors, 80);
}

TEST_F(HostStates, StatesOfEightBitsDependNeitherOnCutsNorOnThreads)
{
    const int64_t n = 5000;
    rf_optimizer_opts o = all_rules()[0].opts;
    const Floats p = normal(n), g = normal(n);
    auto run = [&](auto step) {
        Host host(o, p, alternating(n));
        States states(2, std::vector<unsigned char>(rf_code_bytes(n)));
        host.part.state_type = RF_U8;
        host.part.state[0] = states[0].data();
        host.part.state[1] = states[1].data();
        host.give(g);
        for (int t = 0; t < 2; t++) {
            EXPECT_OK(rf_host_step_begin(&o, &host.scalars, 1));
            step(host);
        }
        return std::pair(states, host.param());
    };
    const auto want = run([&](Host &h) { EXPECT_OK(rf_host_step(&o, &h.part, 0, n, &h.scalars)); });
    EXPECT_EQ(want, run([&](Host &h) {
                  EXPECT_OK(rf_host_step(&o, &h.part, 512, n - 512, &h.scalars));
                  EXPECT_OK(rf_host_step(&o, &h.part, 0, 512, &h.scalars));
              }));
    EXPECT_EQ(want,
              run([&](Host &h) { EXPECT_OK(rf_host_step_threads(&o, &h.part, &h.scalars, 3)); }));
    Host host(o, p, alternating(n));
    host.part.state_type = RF_U8;
    host.give(g);
    EXPECT_FAILS(RF_EINVAL, "multiples of 256",
                 rf_host_step(&o, &host.part, 64, 256, &host.scalars));
    o.kind = RF_SGD;
    EXPECT_FAILS(RF_ENOTSUP, "sgd with these options has no states in u8",
                 rf_host_step(&o, &host.part, 0, n, &host.scalars));
    o.kind = RF_RMSPROP;
    o.centered = true;
    EXPECT_FAILS(RF_ENOTSUP, "rmsprop with these options has no states in u8",
                 rf_host_step(&o, &host.part, 0, n, &host.scalars));
}

/* Each state is rounded once a step, to nearest even. */
TEST_F(HostStates, StatesOfSixteenBitsAreRoundedToNearestEven)
{
    const int64_t n = 325;
    for (const Rule &rule : all_rules()) {
        const rf_optimizer_opts &o = rule.opts;
        if (!rf_optimizer_can_store(&o, RF_BF16))
            continue;
        const Floats p = normal(n);
        Host f32(o, p, alternating(n)), host(o, p, alternating(n));
        Array half[RF_STATE_COUNT];
        host.part.state_type = RF_BF16;
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (host.part.state[k]) {
                half[k] = Array(Floats(n), RF_BF16, 1);
                host.part.state[k] = half[k].data();
            }
        for (int t = 1; t <= 20; t++) {
            const Floats g = normal(n);
            ASSERT_OK(host.step(g));
            ASSERT_OK(f32.step(g));
            for (int k = 0; k < RF_STATE_COUNT; k++) {
                if (!f32.part.state[k])
                    continue;
                const Floats rounded = oracle::from_half(oracle::to_half(f32.state(k), true), true);
                std::memcpy(f32.part.state[k], rounded.data(), 4 * n);
                expect_same_bits(half[k].values(), rounded, rule.name);
                half[k].expect_nothing_written_beside();
            }
        }
        expect_same_bits(host.param(), f32.param(), rule.name);
    }
}

} // namespace
