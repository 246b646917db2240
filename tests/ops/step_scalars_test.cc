/* SPDX-License-Identifier: MIT
 *
 * A step's block of scalars: norm, factor, bias corrections, skipped steps and the loss scale.
 */
#include "optimizer_fixture.h"

#include <cfloat>
#include <limits>

namespace
{
class StepScalars : public OptimizerTest
{
  protected:
    rf_step_scalars begin(const rf_optimizer_opts &o, rf_step_scalars s, float sum_squares)
    {
        rf_tensor block = scalars(s);
        EXPECT_OK(rf_step_begin(stream, &o, block, f32(rf_shape1(1), {sum_squares})));
        return block_of(block);
    }
    rf_step_scalars clip(float sum_squares, float inv_tokens, float limit, float loss_scale = 0)
    {
        rf_step_scalars s = {};
        s.inv_tokens = inv_tokens;
        s.clip = limit;
        s.loss_scale = loss_scale;
        return begin(all_rules()[0].opts, s, sum_squares);
    }
};

TEST_F(StepScalars, BeginGivesNormAndFactor)
{
    rf_step_scalars none = clip(900, 0.25f, 0); /* norm 30 * 0.25 */
    EXPECT_EQ(none.norm, 7.5f);
    EXPECT_EQ(none.factor, 0.25f);
    EXPECT_EQ(none.updates, 1u);
    rf_step_scalars loose = clip(900, 0.25f, 8);
    EXPECT_EQ(loose.norm, 7.5f);
    EXPECT_EQ(loose.factor, 0.25f);
    rf_step_scalars tight = clip(900, 0.25f, 1);
    EXPECT_EQ(tight.norm, 7.5f);
    EXPECT_NEAR(tight.factor, 0.25 / (7.5 + 1e-6), 1e-8);
    rf_step_scalars zero = clip(0, 0.25f, 1);
    EXPECT_EQ(zero.norm, 0.0f);
    EXPECT_EQ(zero.factor, 0.25f);
}

/* The norm of 16 gradients of 2^126 is 2^128, too large for f32. */
TEST_F(StepScalars, LargeFiniteGradientsAreClippedAndNotSkipped)
{
    const int64_t n = 16;
    rf_optimizer_opts sgd = {};
    sgd.kind = RF_SGD;
    for (float size : {0x1p60f, 0x1p64f, 0x1p70f, 0x1p126f})
        for (float inv_tokens : {1.0f, 0x1p-12f}) {
            Floats g(n, size);
            g[3] = -size;
            Flat f = flat(sgd, Floats(n), {0}, {0, n, 0});
            set(f.scalars, 1, inv_tokens, 0.5f);
            rf_tensor tg = f32(rf_shape1(n), g), sum = blank(rf_shape1(1)),
                      chunks = i32(rf_shape2(1, 2), {0, (int)n}),
                      scratch = blank(rf_shape1(rf_sum_squares_scratch(1)));
            ASSERT_OK(rf_sum_squares(stream, sum, tg, chunks, scratch));
            ASSERT_OK(rf_step_begin(stream, &sgd, f.scalars, sum));
            f.part.grad = tg;
            ASSERT_OK(rf_optimizer_step(stream, &sgd, &f.part, f.scalars));
            const rf_step_scalars s = block_of(f.scalars);
            EXPECT_EQ(s.skipped, 0u);
            const double norm = std::min(4.0 * size * inv_tokens, (double)FLT_MAX);
            EXPECT_NEAR(s.norm, norm, 1e-6 * norm) << size;
            Floats p = contents(f);
            for (int64_t i = 0; i < n; i++) /* each a 16th of the squares of the clip norm */
                EXPECT_NEAR(p[i], i == 3 ? 0.125 : -0.125, 1e-6) << size << " * " << inv_tokens;
        }
}

TEST_F(StepScalars, LargeGradientsWithoutClippingKeepTheirSize)
{
    const rf_step_scalars s = clip(-0x1p-32f, 0x1p-10f, 0); /* the root of 2^160 */
    EXPECT_EQ(s.norm, 0x1p70f);
    EXPECT_EQ(s.factor * s.prescale, 0x1p-10f);
    EXPECT_EQ(s.skipped, 0u);
    EXPECT_EQ(clip(-0x1p-32f, NAN, 1).skipped, 1u);
    EXPECT_EQ(clip(-INFINITY, 1, 1).skipped, 1u);
    EXPECT_EQ(clip(-NAN, 1, 1).skipped, 1u);
}

TEST_F(StepScalars, ALossScaleIsTakenOutAgainExactlyWhenItIsAPowerOfTwo)
{
    const float inv_tokens = 1.0f / 3;
    const rf_step_scalars plain = clip(49, inv_tokens, 1);
    for (float scale : {1.0f, 2.0f, 0.125f, 1024.0f, 65536.0f, 16777216.0f}) {
        rf_step_scalars s = clip(49 * scale * scale, inv_tokens, 1, scale);
        EXPECT_EQ(s.norm, plain.norm) << scale;
        EXPECT_EQ(s.factor * scale, plain.factor) << scale;
        EXPECT_EQ(s.loss_scale, scale);
    }
    rf_step_scalars odd = clip(49 * 9, inv_tokens, 1, 3);
    EXPECT_NEAR(odd.norm, plain.norm, 1e-6);
    EXPECT_NEAR(odd.factor * 3, plain.factor, 1e-7);
}

TEST_F(StepScalars, BiasCorrectionsAreAccurateForAnyUpdate)
{
    for (float beta : {0.0f, 1e-3f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999f, 0.99999994f})
        for (uint32_t t : {1u, 2u, 3u, 10u, 1000u, 65535u, 1000000u, 4000000000u}) {
            rf_optimizer_opts o = {};
            o.kind = RF_ADAM;
            o.beta1 = beta;
            o.beta2 = 0.999f;
            rf_step_scalars s = {};
            s.updates = t - 1;
            rf_step_scalars got = begin(o, s, 1);
            double want = -std::expm1((double)t * std::log((double)beta));
            EXPECT_EQ(got.updates, t);
            /* Two roundings to f32, and 2^-64 for each of up to 63 products. */
            EXPECT_NEAR(got.bias1, want, 1.3e-7 * want + 1e-15) << beta << " to the " << t;
            o.no_bias_correction = true;
            EXPECT_EQ(begin(o, s, 1).bias1, 1.0f);
        }
}

TEST_F(StepScalars, AStepWithAGradientThatIsNotFiniteChangesNothingToTheBit)
{
    const int64_t n = 200;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    int turn = 0;
    for (const Rule &rule : all_rules())
        for (rf_dtype grad_type : float_types) {
            rf_optimizer_opts o = rule.opts;
            o.stochastic_rounding = true;
            Flat f = flat(o, normal(n), alternating(n), {0, n, 0}, RF_F32, RF_BF16);
            set(f.scalars, 0.01f, 1, 1);
            ASSERT_OK(step(o, f, f32(rf_shape1(n), normal(n))));
            const Floats before = contents(f);
            Floats g = normal(n);
            g[(size_t)(turn * 37 % n)] = bad[turn % 3];
            turn++;
            rf_tensor tg = typed(rf_shape1(n), grad_type, g), sum = blank(rf_shape1(1)),
                      chunks = i32(rf_shape2(1, 2), {0, (int)n}),
                      scratch = blank(rf_shape1(rf_sum_squares_scratch(1)));
            ASSERT_OK(rf_sum_squares(stream, sum, tg, chunks, scratch));
            ASSERT_OK(rf_step_begin(stream, &o, f.scalars, sum));
            f.part.grad = tg;
            ASSERT_OK(rf_optimizer_step(stream, &o, &f.part, f.scalars));
            EXPECT_EQ(block_of(f.scalars).skipped, 1u);
            EXPECT_EQ(block_of(f.scalars).updates, 1u);
            expect_same_bits(contents(f), before, rule.name);
            ASSERT_OK(step(o, f, f32(rf_shape1(n), normal(n))));
            EXPECT_EQ(block_of(f.scalars).skipped, 0u);
            EXPECT_EQ(block_of(f.scalars).updates, 2u);
            EXPECT_NE(contents(f), before) << rule.name;
        }
}

TEST_F(StepScalars, TheFirstUpdateAfterSkippedStepsIsTheFirst)
{
    /* Momentum begins with the gradient itself, and Adam's correction with t = 1. */
    for (const Rule &rule : all_rules()) {
        const Floats p = normal(64), g = normal(64);
        Flat one = flat(rule.opts, p, {1}, {0, 64, 0}), two = flat(rule.opts, p, {1}, {0, 64, 0});
        set(one.scalars, 0.01f);
        set(two.scalars, 0.01f);
        ASSERT_OK(step(rule.opts, one, f32(rf_shape1(64), Floats(64, NAN)), NAN));
        ASSERT_OK(step(rule.opts, one, f32(rf_shape1(64), g)));
        ASSERT_OK(step(rule.opts, two, f32(rf_shape1(64), g)));
        expect_same_bits(contents(one), contents(two), rule.name);
    }
}

/* torch.amp.GradScaler's rules: _amp_update_scale_. */
struct Scaler {
    float scale;
    uint32_t good;
    void update(bool skipped, float growth, float backoff, uint32_t interval)
    {
        if (skipped) {
            scale *= backoff;
            good = 0;
        } else if (++good == interval) {
            if (std::isfinite(scale * growth))
                scale *= growth;
            good = 0;
        }
    }
};

TEST_F(StepScalars, TheLossScaleMovesByTheRulesOfGradScaler)
{
    rf_optimizer_opts o = all_rules()[0].opts;
    for (float growth : {2.0f, 1.5f}) {
        rf_loss_scale_opts opts = {growth, 0.25f, 3};
        rf_step_scalars s = {};
        s.loss_scale = 65536;
        rf_tensor block = scalars(s);
        Scaler want = {65536, 0};
        for (int i = 0; i < 40; i++) {
            const bool bad = i % 7 == 2 || i % 11 == 5;
            ASSERT_OK(rf_step_begin(stream, &o, block, f32(rf_shape1(1), {bad ? INFINITY : 1})));
            ASSERT_OK(rf_loss_scale_update(stream, &opts, block));
            want.update(bad, growth, 0.25f, 3);
            EXPECT_EQ(block_of(block).loss_scale, want.scale) << i;
            EXPECT_EQ(block_of(block).good_steps, want.good) << i;
        }
    }
}

TEST_F(StepScalars, TheLossScaleStaysFiniteAndHasDefaults)
{
    rf_step_scalars s = {};
    s.loss_scale = 0x1p127f;
    s.good_steps = 1999;
    rf_tensor block = scalars(s);
    ASSERT_OK(rf_loss_scale_update(stream, nullptr, block));
    EXPECT_EQ(block_of(block).loss_scale, 0x1p127f);
    EXPECT_EQ(block_of(block).good_steps, 0u);
    s = {};
    s.good_steps = 1999;
    block = scalars(s);
    ASSERT_OK(rf_loss_scale_update(stream, nullptr, block));
    EXPECT_EQ(block_of(block).loss_scale, 2.0f);
    s.skipped = 1;
    block = scalars(s);
    ASSERT_OK(rf_loss_scale_update(stream, nullptr, block));
    EXPECT_EQ(block_of(block).loss_scale, 0.5f);
}

TEST_F(StepScalars, WrongOperandsAreNamed)
{
    rf_optimizer_opts o = all_rules()[0].opts, bad = o;
    bad.beta2 = 1;
    rf_tensor block = scalars({}), one = blank(rf_shape1(1)), two = blank(rf_shape1(2));
    EXPECT_FAILS(RF_EINVAL, "options", rf_step_begin(stream, nullptr, block, one));
    EXPECT_FAILS(RF_EINVAL, "beta2 1", rf_step_begin(stream, &bad, block, one));
    EXPECT_FAILS(RF_EINVAL, "step_begin: sum_squares is f32 (2)",
                 rf_step_begin(stream, &o, block, two));
    EXPECT_FAILS(RF_EINVAL, "step_begin: scalars is f32 (1), expected 16",
                 rf_step_begin(stream, &o, one, one));
    EXPECT_FAILS(RF_EINVAL, "loss_scale_update: scalars",
                 rf_loss_scale_update(stream, nullptr, one));
    rf_loss_scale_opts shrinking = {0.5f, 0.5f, 1}, growing = {2, 2, 1};
    EXPECT_FAILS(RF_EINVAL, "growth 0.5", rf_loss_scale_update(stream, &shrinking, block));
    EXPECT_FAILS(RF_EINVAL, "backoff 2", rf_loss_scale_update(stream, &growing, block));
}
} // namespace
