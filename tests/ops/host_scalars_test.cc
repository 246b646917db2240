/* SPDX-License-Identifier: MIT
 *
 * A step's block of scalars and sums of squares in host memory, compared with the kernels.
 */
#include "optimizer_fixture.h"

#include <algorithm>

#include <ringforge/host_step.h>

extern "C" {
#include "optim/host.h"
}

namespace
{
class HostScalars : public OptimizerTest
{
  protected:
    /* Relative: a root, two divisions and some roundings. */
    static void expect_close(float got, float want, const std::string &what)
    {
        EXPECT_NEAR(got, want, 1e-6 * std::fabs((double)want)) << what;
    }
    static std::vector<rf_norm_chunk> table_for(size_t count)
    {
        std::vector<rf_norm_chunk> chunks;
        for (size_t i = 0; i < count; i += 1024)
            chunks.push_back({(uint32_t)i, (uint32_t)std::min<size_t>(1024, count - i)});
        return chunks;
    }
    float on_device(rf_dtype type, const Floats &flat, const std::vector<rf_norm_chunk> &chunks)
    {
        Ints table;
        for (rf_norm_chunk c : chunks) {
            table.push_back((int32_t)c.first);
            table.push_back((int32_t)c.count);
        }
        const int64_t n = (int64_t)chunks.size();
        rf_tensor out = blank(rf_shape1(1));
        EXPECT_OK(rf_sum_squares(stream, out, typed(rf_shape1((int64_t)flat.size()), type, flat),
                                 i32(rf_shape2(n, 2), table),
                                 blank(rf_shape1(rf_sum_squares_scratch(n)))));
        return read(out)[0];
    }
    static float on_host(int path, rf_dtype type, const Floats &flat,
                         const std::vector<rf_norm_chunk> &chunks)
    {
        const auto half = oracle::to_half(flat, type == RF_BF16);
        const rf_host_flat data = {type == RF_F32 ? (const void *)flat.data() : half.data(),
                                   (int64_t)flat.size(), type};
        Floats squares(chunks.size());
        EXPECT_OK(rf_host_squares_by((rf_host_path)path, squares.data(), &data, chunks.data(),
                                     (int64_t)chunks.size()));
        return rf_host_join_squares(squares.data(), (int64_t)squares.size());
    }
    static void expect_same_number(float got, float want, const std::string &what)
    {
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << what << ": " << got << " and " << want;
    }
};

TEST_F(HostScalars, BeginIsTheDevices)
{
    int turn = 0;
    for (const Rule &rule : all_rules())
        for (float sum :
             {0.0f, 1e-30f, 900.0f, 3e38f, -0x1p-52f, -0x1p60f, -INFINITY, INFINITY, NAN})
            for (float clip : {0.0f, 0.5f, 1e9f}) {
                static const float scales[] = {0, 1, 3, 65536};
                static const uint32_t counts[] = {0, 1, 999, 65534, 4000000000u, UINT32_MAX};
                rf_step_scalars s = {};
                s.inv_tokens = turn % 2 ? 1.0f / 3 : 1;
                s.clip = clip;
                s.loss_scale = scales[turn % 4];
                s.updates = counts[turn % 6];
                turn++;
                rf_tensor block = scalars(s);
                ASSERT_OK(rf_step_begin(stream, &rule.opts, block, f32(rf_shape1(1), {sum})));
                ASSERT_OK(rf_host_step_begin(&rule.opts, &s, sum));
                const rf_step_scalars want = block_of(block);
                const std::string what =
                    rule.name + ", sum " + std::to_string(sum) + ", clip " + std::to_string(clip);
                EXPECT_EQ(s.skipped, want.skipped) << what;
                EXPECT_EQ(s.updates, want.updates) << what;
                EXPECT_EQ(s.bias1, want.bias1) << what;
                EXPECT_EQ(s.bias2, want.bias2) << what;
                EXPECT_EQ(s.prescale, want.prescale) << what;
                EXPECT_EQ(s.good_steps, want.good_steps) << what;
                EXPECT_EQ(s.loss_scale, want.loss_scale) << what;
                if (!want.skipped) {
                    expect_close(s.norm, want.norm, what + ", norm");
                    expect_close(s.factor, want.factor, what + ", factor");
                }
            }
}

TEST_F(HostScalars, TheLossScaleMovesAsTheDevicesDoes)
{
    const rf_optimizer_opts o = all_rules()[0].opts;
    for (float growth : {2.0f, 1.5f}) {
        const rf_loss_scale_opts opts = {growth, 0.25f, 3};
        rf_step_scalars s = {};
        s.loss_scale = 0x1p120f; /* grows to infinity, but must not become it */
        rf_tensor block = scalars(s);
        for (int i = 0; i < 60; i++) {
            const float sum = i % 17 == 2 || i % 19 == 5 ? INFINITY : 1;
            ASSERT_OK(rf_step_begin(stream, &o, block, f32(rf_shape1(1), {sum})));
            ASSERT_OK(rf_loss_scale_update(stream, &opts, block));
            ASSERT_OK(rf_host_step_begin(&o, &s, sum));
            ASSERT_OK(rf_host_loss_scale_update(&opts, &s));
            EXPECT_EQ(s.loss_scale, block_of(block).loss_scale) << i;
            EXPECT_EQ(s.good_steps, block_of(block).good_steps) << i;
        }
    }
    rf_step_scalars s = {};
    s.good_steps = 1999;
    ASSERT_OK(rf_host_loss_scale_update(nullptr, &s));
    EXPECT_EQ(s.loss_scale, 2.0f);
    EXPECT_EQ(s.good_steps, 0u);
}

TEST_F(HostScalars, SumsOfSquaresAreTheDevicesToTheBit)
{
    for (rf_dtype type : float_types)
        for (size_t n : {1u, 15u, 1000u, 1025u, 5000u, 70001u}) {
            const Floats x = rounded_to(type, normal(n));
            const float want = on_device(type, x, table_for(n));
            for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++)
                EXPECT_EQ(on_host(path, type, x, table_for(n)), want)
                    << n << " of " << rf_dtype_name(type) << ", instructions " << path;
        }
}

TEST_F(HostScalars, SumsOfSquaresThatF32DoesNotHoldAreTheDevices)
{
    Floats mixed(5000, 1.0f);
    mixed[3333] = -0x1p70f;
    std::vector<Floats> all = {Floats(20, 0x1p100f), Floats(3000, 0x1.fep127f), mixed};
    for (size_t chunks : {5u, 70u, 200u}) /* too large only in sum */
        all.push_back(Floats(1024 * chunks, 0x1p58f));
    for (float bad : {INFINITY, -INFINITY, NAN}) {
        all.push_back(mixed);
        all.back()[2222] = bad;
    }
    for (const Floats &x : all)
        for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++) {
            const float want = on_device(RF_F32, x, table_for(x.size()));
            const float got = on_host(path, RF_F32, x, table_for(x.size()));
            if (std::isfinite(want))
                EXPECT_EQ(got, want) << x.size();
            else
                EXPECT_FALSE(std::isfinite(got)) << x.size();
        }
}

TEST_F(HostScalars, ChunksLieAnywhereAndOneOutsideIsNotANumber)
{
    const Floats x = normal(5000);
    Floats moved(9000, 1e4f);
    auto chunks = table_for(x.size()), elsewhere = chunks;
    uint32_t at = 9000;
    for (size_t i = 0; i < chunks.size(); i++) { /* in reverse, with odd gaps */
        at -= chunks[i].count + 3 + 2 * (uint32_t)i;
        elsewhere[i].first = at;
        std::copy_n(&x[chunks[i].first], chunks[i].count, &moved[at]);
    }
    for (int path = RF_HOST_PLAIN; path <= rf_host_best_path(); path++) {
        EXPECT_EQ(on_host(path, RF_F32, x, chunks), on_host(path, RF_F32, moved, elsewhere));
        EXPECT_TRUE(std::isnan(on_host(path, RF_F32, Floats(100, 1.0f), {{0, 50}, {90, 11}})));
        EXPECT_TRUE(std::isnan(on_host(path, RF_F32, Floats(100, 1.0f), {{UINT32_MAX, 1024}})));
        EXPECT_EQ(on_host(path, RF_F32, Floats(100, 1.0f), {{0, 0}, {90, 10}}), 10);
    }
    EXPECT_EQ(rf_host_join_squares(nullptr, 0), 0);
}

TEST_F(HostScalars, MisuseIsNamed)
{
    rf_optimizer_opts o = all_rules()[0].opts, bad = o;
    bad.beta2 = 1;
    rf_step_scalars s = {};
    EXPECT_FAILS(RF_EINVAL, "options", rf_host_step_begin(nullptr, &s, 1));
    EXPECT_FAILS(RF_EINVAL, "block of scalars", rf_host_step_begin(&o, nullptr, 1));
    EXPECT_FAILS(RF_EINVAL, "beta2 1", rf_host_step_begin(&bad, &s, 1));
    const rf_loss_scale_opts shrinking = {0.5f, 0.5f, 1}, growing = {2, 2, 1};
    EXPECT_FAILS(RF_EINVAL, "growth 0.5", rf_host_loss_scale_update(&shrinking, &s));
    EXPECT_FAILS(RF_EINVAL, "backoff 2", rf_host_loss_scale_update(&growing, &s));
    EXPECT_FAILS(RF_EINVAL, "block of scalars", rf_host_loss_scale_update(nullptr, nullptr));
    float out = 0;
    const float x = 1;
    const rf_norm_chunk chunk = {0, 1};
    const rf_host_flat good = {&x, 1, RF_F32}, nothing = {nullptr, 1, RF_F32},
                       f64 = {&x, 1, RF_F64};
    EXPECT_FAILS(RF_EINVAL, "out", rf_host_squares(nullptr, &good, &chunk, 1));
    EXPECT_FAILS(RF_EINVAL, "table of chunks", rf_host_squares(&out, &good, nullptr, 1));
    EXPECT_FAILS(RF_EINVAL, "flat buffer", rf_host_squares(&out, nullptr, &chunk, 1));
    EXPECT_FAILS(RF_EINVAL, "no data", rf_host_squares(&out, &nothing, &chunk, 1));
    EXPECT_FAILS(RF_EINVAL, "flat is f64", rf_host_squares(&out, &f64, &chunk, 1));
    EXPECT_OK(rf_host_squares(nullptr, &good, nullptr, 0));
    EXPECT_EQ(s.updates, 0u);
}
} // namespace
