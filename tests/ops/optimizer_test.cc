/* SPDX-License-Identifier: MIT
 *
 * The clip factor and the optimizers' updates.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
class Optimizer : public OpTest
{
  protected:
    struct Pair {
        float norm, factor;
    };
    rf_tensor scalars(const rf_step_scalars &s)
    {
        Floats data(8);
        static_assert(sizeof(s) == 32, "eight floats");
        std::memcpy(data.data(), &s, sizeof(s));
        return f32(rf_shape1(8), data);
    }
    static rf_step_scalars adam_scalars(float lr, int step)
    {
        rf_step_scalars s = {};
        s.lr = lr;
        s.inv_tokens = 1;
        s.step = (float)step;
        s.bias1 = (float)(1 - std::pow(0.9, step));
        s.bias2 = (float)(1 - std::pow(0.95, step));
        return s;
    }
    static rf_optimizer_opts adamw()
    {
        rf_optimizer_opts o = {};
        o.kind = RF_ADAMW;
        o.beta1 = 0.9f;
        o.beta2 = 0.95f;
        o.eps = 1e-8f;
        o.weight_decay = 0.1f;
        return o;
    }
    Pair clip(float sum_squares, float inv_tokens, float limit)
    {
        rf_step_scalars s = {};
        s.inv_tokens = inv_tokens;
        s.clip = limit;
        rf_tensor norm = blank(rf_shape1(2));
        EXPECT_OK(rf_clip_scale(stream, norm, f32(rf_shape1(1), {sum_squares}), scalars(s)));
        Floats got = read(norm);
        return {got[0], got[1]};
    }
};

TEST_F(Optimizer, ClipScaleGivesNormAndFactor)
{
    Pair none = clip(900, 0.25f, 0); /* norm 30 * 0.25 */
    EXPECT_EQ(none.norm, 7.5f);
    EXPECT_EQ(none.factor, 0.25f);
    Pair loose = clip(900, 0.25f, 8);
    EXPECT_EQ(loose.norm, 7.5f);
    EXPECT_EQ(loose.factor, 0.25f);
    Pair tight = clip(900, 0.25f, 1);
    EXPECT_EQ(tight.norm, 7.5f);
    EXPECT_NEAR(tight.factor, 0.25 / (7.5 + 1e-6), 1e-8);
    Pair zero = clip(0, 0.25f, 1);
    EXPECT_EQ(zero.norm, 0.0f);
    EXPECT_EQ(zero.factor, 0.25f);
    EXPECT_TRUE(std::isnan(clip(NAN, 1, 1).norm));
}

TEST_F(Optimizer, AdamWFollowsTheReferenceForTwentySteps)
{
    for (int64_t n : {1, 63, 64, 65, 1000, 1024}) {
        Floats p = normal(n);
        Doubles want = wide(p), m(n), v(n);
        Ints decay;
        for (int64_t i = 0; i < (n + 63) / 64; i++)
            decay.push_back(i % 2 == 0);
        rf_tensor tp = f32(rf_shape1(n), p), tm = f32(rf_shape1(n), Floats(n));
        rf_tensor tv = f32(rf_shape1(n), Floats(n)),
                  td = i32(rf_shape1((int64_t)decay.size()), decay);
        rf_optimizer_opts options = adamw();
        const float lr = 1e-3f, factor = 0.5f;
        rf_tensor norm = f32(rf_shape1(2), {123, factor});
        for (int step = 1; step <= 20; step++) {
            Floats g = normal(n, std::pow(10.0f, (float)(step % 5) - 3)); /* 1e-3 to 10 */
            for (int64_t i = 0; i < n; i++) {
                reference::Adam o = {lr, 0.9f, 0.95f, 1e-8f, decay[i / 64] ? 0.1f : 0.0};
                reference::adamw(&want[i], &m[i], &v[i], (double)g[i] * factor, step, o);
            }
            ASSERT_OK(rf_optimizer_step(stream, &options, tp, f32(rf_shape1(n), g), tm, tv, td,
                                        norm, scalars(adam_scalars(lr, step))));
        }
        /* Each step adds one rounding of a parameter near 1 (6e-8) and moves it by about 1e-3. */
        expect_near(read(tp), want, 1e-6, "parameters");
        expect_near(read(tm), m, 1e-6, "first moment");
        expect_near(read(tv), v, 2e-6, "second moment");
    }
}

TEST_F(Optimizer, SgdIsPlainDescentWithDecay)
{
    for (int64_t n : {1, 64, 77, 1024}) {
        Floats p = normal(n), g = normal(n);
        Doubles want;
        for (int64_t i = 0; i < n; i++)
            want.push_back(p[i] - 0.1 * 0.5 * p[i] - 0.1 * 2.0 * g[i]);
        rf_optimizer_opts options = {};
        options.kind = RF_SGD;
        options.weight_decay = 0.5f;
        rf_step_scalars s = {};
        s.lr = 0.1f;
        rf_tensor tp = f32(rf_shape1(n), p), none = {};
        ASSERT_OK(rf_optimizer_step(stream, &options, tp, f32(rf_shape1(n), g), none, none,
                                    i32(rf_shape1((n + 63) / 64), Ints((n + 63) / 64, 1)),
                                    f32(rf_shape1(2), {0, 2}), scalars(s)));
        expect_near(read(tp), want, 3e-7, "parameters");
    }
}

TEST_F(Optimizer, BitsDoNotDependOnWhereABufferIsCut)
{
    const int64_t n = 1024;
    Floats p = normal(n), g = normal(n), m = normal(n, 0.1f), v = normal(n, 0.1f);
    Ints decay = below(n / 64, 2);
    for (float &x : v)
        x = x * x;
    rf_optimizer_opts options = adamw();
    rf_tensor norm = f32(rf_shape1(2), {1, 0.37f}), s = scalars(adam_scalars(3e-4f, 7));
    auto step = [&](int64_t first, int64_t count, int shift) {
        auto part = [&](const Floats &x) {
            return f32(rf_shape1(count), Floats(x.begin() + first, x.begin() + first + count),
                       shift);
        };
        rf_tensor tp = part(p), tm = part(m), tv = part(v);
        Ints words(decay.begin() + first / 64, decay.begin() + (first + count + 63) / 64);
        EXPECT_OK(rf_optimizer_step(stream, &options, tp, part(g), tm, tv,
                                    i32(rf_shape1((int64_t)words.size()), words), norm, s));
        Floats all = read(tp), more = read(tm), last = read(tv);
        all.insert(all.end(), more.begin(), more.end());
        all.insert(all.end(), last.begin(), last.end());
        return all;
    };
    Floats whole_buffer = step(0, n, 0);
    struct Cut {
        int64_t first, count;
        int shift;
    };
    for (Cut c : {Cut{0, 64, 0}, Cut{64, 448, 1}, Cut{512, 449, 0}, Cut{960, 64, 3}}) {
        Floats got = step(c.first, c.count, c.shift), want;
        for (int part = 0; part < 3; part++)
            want.insert(want.end(), whole_buffer.begin() + part * n + c.first,
                        whole_buffer.begin() + part * n + c.first + c.count);
        expect_same_bits(got, want, "cut at " + std::to_string(c.first));
    }
}

TEST_F(Optimizer, WrongOperandsAreNamed)
{
    rf_tensor p = blank(rf_shape1(100)), g = blank(rf_shape1(100)), m = blank(rf_shape1(100));
    rf_tensor v = blank(rf_shape1(100)), decay = blank_i32(2), norm = blank(rf_shape1(2));
    rf_tensor s = blank(rf_shape1(8)), none = {}, one = blank(rf_shape1(1));
    rf_optimizer_opts o = adamw(), unknown = o;
    unknown.kind = RF_OPTIMIZER_COUNT;
    EXPECT_FAILS(RF_EINVAL, "kind", rf_optimizer_step(stream, nullptr, p, g, m, v, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "kind",
                 rf_optimizer_step(stream, &unknown, p, g, m, v, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "m has no buffer",
                 rf_optimizer_step(stream, &o, p, g, none, v, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "decay is i32 (3), expected 2",
                 rf_optimizer_step(stream, &o, p, g, m, v, blank_i32(3), norm, s));
    EXPECT_FAILS(RF_EINVAL, "grad is f32 (1), expected 100",
                 rf_optimizer_step(stream, &o, p, one, m, v, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "scalars",
                 rf_optimizer_step(stream, &o, p, g, m, v, decay, norm, norm));
    EXPECT_FAILS(RF_EINVAL, "param must not overlap grad",
                 rf_optimizer_step(stream, &o, p, p, m, v, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "m must not overlap v",
                 rf_optimizer_step(stream, &o, p, g, m, m, decay, norm, s));
    EXPECT_FAILS(RF_EINVAL, "clip_scale: sum_squares", rf_clip_scale(stream, norm, p, s));
    EXPECT_FAILS(RF_EINVAL, "clip_scale: scalars is f32 (1), expected 8",
                 rf_clip_scale(stream, norm, one, one));
}
} // namespace
