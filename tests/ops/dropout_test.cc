/* SPDX-License-Identifier: MIT
 *
 * Dropout: its mask is Philox's words compared with a threshold, independent of type, alignment and
 * the offset at which a tensor is cut.
 */
#include "op_fixture.h"

extern "C" {
#include "base/base.h"
}

namespace
{
class Dropout : public TypedOpTest
{
  protected:
    /* The formula in the header, with the generator of base. */
    static Floats on_host(const Floats &x, double p, uint64_t seed, uint64_t site, uint64_t first)
    {
        Floats want;
        for (size_t i = 0; i < x.size(); i++) {
            uint32_t words[4];
            uint64_t at = first + i;
            rf_philox(seed, at / 4, site, words);
            bool dropped = words[at % 4] < p * 4294967296.0;
            want.push_back(dropped ? 0.0f : (float)(1 / (1 - p)) * x[i]);
        }
        return rounded(want);
    }
};
ALL_TYPES(Dropout);

TEST_P(Dropout, IsPhiloxByGlobalIndexAlsoInPlace)
{
    const uint64_t seed = 0x123456789abcdef0, site = 0xfedcba9876543210;
    for (int64_t n : {1, 4, 7, 256, 1031, 40000})
        for (uint64_t first :
             {UINT64_C(0), UINT64_C(5), UINT64_C(0xfffffffe), UINT64_C(0x7fffffffc)})
            for (float p : {0.0f, 0.1f, 0.5f, 0.99f}) {
                Floats x = rounded(normal(n));
                rf_random random = {seed, site, first, nullptr};
                Floats want = on_host(x, p, seed, site, first);
                rf_tensor t = in(rf_shape1(n), x), y = out(rf_shape1(n), (int)(n % 3));
                ASSERT_OK(rf_dropout(stream, y, t, p, &random));
                expect_same_bits(read(y), want, "dropout of " + std::to_string(n));
                ASSERT_OK(rf_dropout(stream, t, t, p, &random));
                expect_same_bits(read(t), want, "dropout in place");
            }
}

TEST_P(Dropout, AShardHasTheMaskOfItsPlace)
{
    const int64_t n = 1000;
    Floats x = rounded(normal(n));
    rf_random random = {7, 3, 100, nullptr};
    rf_tensor all = in(rf_shape1(n), x), whole = out(rf_shape1(n));
    ASSERT_OK(rf_dropout(stream, whole, all, 0.3f, &random));
    for (int64_t cut : {1, 2, 3, 4, 5, 6, 7, 500}) {
        rf_tensor parts = out(rf_shape1(n)), from, to;
        for (int64_t first : {(int64_t)0, cut}) {
            int64_t count = first ? n - cut : cut;
            ASSERT_OK(rf_tensor_rows(all, first, count, &from));
            ASSERT_OK(rf_tensor_rows(parts, first, count, &to));
            rf_random shard = {7, 3, 100 + (uint64_t)first, nullptr};
            ASSERT_OK(rf_dropout(stream, to, from, 0.3f, &shard));
        }
        expect_same_bits(read(parts), read(whole), "cut at " + std::to_string(cut));
    }
}

TEST_P(Dropout, ReadsTheSeedFromTheDevice)
{
    const int64_t n = 300;
    Floats x = rounded(normal(n));
    rf_tensor t = in(rf_shape1(n), x), y = out(rf_shape1(n)), seed = i32(rf_shape1(2), {-5, 17});
    rf_random random = {999, 1, 0, &seed};
    ASSERT_OK(rf_dropout(stream, y, t, 0.25f, &random));
    expect_same_bits(read(y), on_host(x, 0.25, (UINT64_C(17) << 32) | 0xfffffffb, 1, 0), "seed");
}

TEST_P(Dropout, KeepsTheShareItShould)
{
    const int64_t n = 100000;
    rf_random random = {1, 2, 0, nullptr};
    rf_tensor y = out(rf_shape1(n));
    ASSERT_OK(rf_dropout(stream, y, in(rf_shape1(n), Floats(n, 1)), 0.1f, &random));
    int64_t dropped = 0;
    for (float v : read(y))
        dropped += v == 0;
    /* The standard deviation is 95: six of them. */
    EXPECT_NEAR(dropped, 10000, 570);
}

TEST_P(Dropout, WrongOperandsAreNamed)
{
    rf_tensor a = out(rf_shape1(8)), b = out(rf_shape1(9)), one = blank_i32(1);
    rf_random random = {}, short_seed = {0, 0, 0, &one};
    EXPECT_FAILS(RF_EINVAL, "dropout: x", rf_dropout(stream, a, b, 0.5f, &random));
    EXPECT_FAILS(RF_EINVAL, "p is 1", rf_dropout(stream, a, a, 1, &random));
    EXPECT_FAILS(RF_EINVAL, "p is -0.5", rf_dropout(stream, a, a, -0.5f, &random));
    EXPECT_FAILS(RF_EINVAL, "p is nan", rf_dropout(stream, a, a, NAN, &random));
    EXPECT_FAILS(RF_EINVAL, "no random stream", rf_dropout(stream, a, a, 0.5f, nullptr));
    EXPECT_FAILS(RF_EINVAL, "device_seed is i32 (1)", rf_dropout(stream, a, a, 0.5f, &short_seed));
}
} // namespace
