/* SPDX-License-Identifier: MIT
 *
 * Causal attention, forward and backward.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"
extern "C" {
#include "ops/launch.h"
}

namespace
{
struct Case {
    int64_t B, T, H, D;
    int shift;
};
const Case cases[] = {
    {1, 1, 1, 4, 0},   {2, 3, 2, 8, 0},   {1, 17, 3, 16, 0}, {2, 64, 2, 32, 0}, {1, 67, 2, 64, 0},
    {1, 9, 1, 128, 0}, {1, 33, 1, 20, 0}, {2, 19, 2, 5, 0},  {2, 131, 1, 4, 0}, {1, 40, 2, 16, 1},
};
/* Scores are sums of up to 128 products of numbers near 1 and pass through exp: some 1e-6. */
const double TOLERANCE = 1e-5;

class Attention : public OpTest
{
  protected:
    struct Result {
        Floats out, lse, dqkv;
    };
    Result run(const Case &c, const Floats &qkv, const Floats &dout)
    {
        int64_t C = c.H * c.D;
        rf_tensor in = f32(rf_shape3(c.B, c.T, 3 * C), qkv, c.shift);
        rf_tensor out = blank(rf_shape3(c.B, c.T, C), c.shift),
                  lse = blank(rf_shape3(c.B, c.H, c.T));
        rf_tensor d = f32(rf_shape3(c.B, c.T, C), dout), delta = blank(rf_shape3(c.B, c.H, c.T));
        rf_tensor dqkv = blank(rf_shape3(c.B, c.T, 3 * C));
        EXPECT_OK(rf_attention(stream, out, lse, in, c.H));
        EXPECT_OK(rf_attention_backward(stream, dqkv, d, out, lse, in, c.H, delta));
        return {read(out), read(lse), read(dqkv)};
    }
    Floats random_qkv(const Case &c, float scale = 1)
    {
        return normal(c.B * c.T * 3 * c.H * c.D, scale);
    }
    Floats random_dout(const Case &c)
    {
        return normal(c.B * c.T * c.H * c.D);
    }
    static std::string name(const Case &c, const char *what)
    {
        return std::string(what) + " of B " + std::to_string(c.B) + " T " + std::to_string(c.T) +
               " H " + std::to_string(c.H) + " D " + std::to_string(c.D);
    }
    static reference::AttentionSize size(const Case &c)
    {
        return {c.B, c.T, c.H, c.D};
    }
};

TEST_F(Attention, ForwardAndBackwardMatchTheReference)
{
    for (const Case &c : cases) {
        Floats qkv = random_qkv(c), dout = random_dout(c);
        auto want = reference::attention(wide(qkv), size(c));
        Result got = run(c, qkv, dout);
        expect_near(got.out, want.out, TOLERANCE, name(c, "out"));
        expect_near(got.lse, want.lse, TOLERANCE, name(c, "lse"));
        expect_near(got.dqkv, reference::attention_backward(wide(dout), wide(qkv), size(c)),
                    TOLERANCE, name(c, "dqkv"));
    }
}

TEST_F(Attention, LargeScoresNeitherOverflowNorLosePrecision)
{
    /* Integer q and k and a scale of 1/4: scores of thousands are exact, so the result is held to
     * the same tolerance as ordinary ones. */
    const Case c = {1, 50, 2, 16, 0};
    Floats qkv = whole(c.B * c.T * 3 * c.H * c.D, 60), dout = random_dout(c);
    auto want = reference::attention(wide(qkv), size(c));
    Result got = run(c, qkv, dout);
    expect_near(got.out, want.out, TOLERANCE, "out");
    expect_near(got.lse, want.lse, TOLERANCE, "lse");
    /* exp(s - lse) carries the rounding of lse, up to 2.5e-4 at 4096 and above. */
    expect_near(got.dqkv, reference::attention_backward(wide(dout), wide(qkv), size(c)), 2e-2,
                "dqkv");
}

TEST_F(Attention, LaterTokensChangeNoBitOfEarlierRows)
{
    /* The longer sequence is also cut into workgroups in another way. */
    const Case longer = {1, 131, 2, 16, 0}, shorter = {1, 7, 2, 16, 0};
    Floats qkv = random_qkv(longer), dout = random_dout(longer);
    Floats head(qkv.begin(), qkv.begin() + shorter.T * 3 * 32);
    Floats dhead(dout.begin(), dout.begin() + shorter.T * 32);
    Floats out = run(longer, qkv, dout).out, out_head = run(shorter, head, dhead).out;
    out.resize(out_head.size());
    expect_same_bits(out, out_head, "out");
}

TEST_F(Attention, TenRunsGiveTheSameBits)
{
    const Case c = {2, 70, 2, 16, 0};
    Floats qkv = random_qkv(c), dout = random_dout(c);
    Result first = run(c, qkv, dout);
    for (int i = 1; i < 10; i++) {
        Result again = run(c, qkv, dout);
        expect_same_bits(again.out, first.out, "out");
        expect_same_bits(again.dqkv, first.dqkv, "dqkv");
    }
}

/* The kernels that GPUs run, launched as attention.c does, against what this device took. */
TEST_F(Attention, BuildsWithoutShufflesGiveTheSameBits)
{
    const Case c = {2, 19, 2, 8, 0};
    const uint32_t C = 16, T = (uint32_t)c.T, lanes = 16;
    Floats qkv = random_qkv(c), dout = random_dout(c);
    Result want = run(c, qkv, dout);
    struct {
        uint64_t out, lse, qkv;
        uint32_t T, channels, heads;
        float scale;
        uint32_t first; /* of views: not read by these builds */
    } push;
    struct {
        uint64_t dqkv, dout, out, lse, qkv, delta;
        uint32_t T, channels, heads;
        float scale;
        uint32_t first[4];
    } back;
    rf_tensor in = f32(rf_shape3(c.B, c.T, 3 * C), qkv), d = f32(rf_shape3(c.B, c.T, C), dout);
    for (const char *build : {"_v", "_s"}) {
        rf_tensor out = blank(d.shape), lse = blank(rf_shape3(c.B, c.H, c.T));
        rf_tensor dqkv = blank(in.shape), delta = blank(lse.shape);
        float scale = (float)(1 / std::sqrt(8.0));
        push = {rf_address_of(out), rf_address_of(lse), rf_address_of(in), T, C, 2, scale, 0};
        back = {rf_address_of(dqkv),
                rf_address_of(d),
                rf_address_of(out),
                rf_address_of(lse),
                rf_address_of(in),
                rf_address_of(delta),
                T,
                C,
                2,
                scale,
                {0}};
        for (std::string name :
             {"attention", "attention_backward_query", "attention_backward_key"}) {
            std::string shader = name + build;
            bool forward = name == "attention";
            rf_job job = {};
            job.op = "attention";
            job.shader = shader.c_str();
            job.push = forward ? (const void *)&push : &back;
            job.push_bytes = forward ? sizeof(push) : sizeof(back);
            for (rf_spec spec : {rf_spec{0, lanes}, rf_spec{1, 8}, rf_spec{2, 1}})
                job.specs[job.spec_count++] = spec;
            job.groups[0] = (T + lanes - 1) / lanes;
            job.groups[1] = (uint32_t)c.H;
            job.groups[2] = (uint32_t)c.B;
            ASSERT_OK(rf_job_run(stream, &job));
        }
        expect_same_bits(read(out), want.out, "out");
        expect_same_bits(read(lse), want.lse, "lse");
        expect_same_bits(read(dqkv), want.dqkv, "dqkv");
    }
}

TEST_F(Attention, WrongOperandsAreNamed)
{
    rf_tensor qkv = blank(rf_shape3(2, 3, 24)), out = blank(rf_shape3(2, 3, 8)), none = {};
    rf_tensor lse = blank(rf_shape3(2, 2, 3)), delta = blank(rf_shape3(2, 2, 3));
    rf_tensor dout = blank(rf_shape3(2, 3, 8)), dqkv = blank(rf_shape3(2, 3, 24));
    rf_tensor flat = blank(rf_shape2(6, 24)), long_head = blank(rf_shape3(1, 1, 3 * 132));
    EXPECT_FAILS(RF_EINVAL, "qkv is f32 (2, 3, 24)", rf_attention(stream, out, lse, qkv, 3));
    EXPECT_FAILS(RF_EINVAL, "qkv", rf_attention(stream, out, lse, qkv, 0));
    EXPECT_FAILS(RF_EINVAL, "(B, T, 3 C)", rf_attention(stream, out, lse, flat, 2));
    EXPECT_FAILS(RF_EINVAL, "lse is f32 (2, 2, 3), expected 6",
                 rf_attention(stream, out, lse, qkv, 1));
    EXPECT_FAILS(RF_ENOTSUP, "up to 128", rf_attention(stream, out, lse, long_head, 1));
    EXPECT_FAILS(RF_EINVAL, "out is f32 (2, 3, 24)", rf_attention(stream, dqkv, lse, qkv, 2));
    EXPECT_FAILS(RF_EINVAL, "dqkv must not overlap qkv",
                 rf_attention_backward(stream, qkv, dout, out, lse, qkv, 2, delta));
    EXPECT_FAILS(RF_EINVAL, "delta must not overlap lse",
                 rf_attention_backward(stream, dqkv, dout, out, lse, qkv, 2, lse));
    EXPECT_FAILS(RF_EINVAL, "dout has no buffer",
                 rf_attention_backward(stream, dqkv, none, out, lse, qkv, 2, delta));
}
} // namespace
