// SPDX-License-Identifier: MIT
//
// The arithmetic on host memory against a scalar reference, bit for bit: every type and reduction,
// odd lengths, odd addresses, in place, NaN, infinities, overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

extern "C" {
#include "base/base.h"
#include "coll/reduce.h"
}

namespace
{

const enum rf_redop redops[] = {RF_SUM, RF_AVG, RF_MIN, RF_MAX, RF_PROD};

template <class T> T combine(T a, T b, enum rf_redop redop)
{
    if (a != a || b != b)
        return a != a ? a : b;
    if (redop == RF_MIN)
        return a < b ? a : b;
    if (redop == RF_MAX)
        return a > b ? a : b;
    if constexpr (std::is_integral_v<T>) {
        uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
        return static_cast<T>(redop == RF_PROD ? x * y : x + y);
    } else {
        return redop == RF_PROD ? a * b : a + b;
    }
}

template <class T> T random_value(std::mt19937_64 &random)
{
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(random());
    } else {
        switch (random() % 16) {
        case 0:
            return std::numeric_limits<T>::quiet_NaN();
        case 1:
            return std::numeric_limits<T>::infinity();
        case 2:
            return -std::numeric_limits<T>::infinity();
        case 3:
            return std::numeric_limits<T>::denorm_min();
        case 4:
            return static_cast<T>(-0.0);
        default:
            return static_cast<T>(std::normal_distribution<double>(0, 1e3)(random));
        }
    }
}

template <class T> bool same(T a, T b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T> void check_type(enum rf_dtype dtype)
{
    std::mt19937_64 random(dtype + 1);
    for (enum rf_redop redop : redops) {
        for (size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 31, 33, 63, 64, 65, 127, 1000, 4099}) {
            for (size_t shift : {size_t(0), size_t(1), sizeof(T)}) {
                for (int alias = 0; alias < 3; alias++) { // dst apart, dst is a, dst is b
                    std::vector<T> a(count), b(count);
                    for (size_t i = 0; i < count; i++) {
                        a[i] = random_value<T>(random);
                        b[i] = random_value<T>(random);
                    }
                    std::vector<char> left(count * sizeof(T) + 64, 0x11), right = left, out = left;
                    if (count > 0) {
                        memcpy(left.data() + shift, a.data(), count * sizeof(T));
                        memcpy(right.data() + 3, b.data(), count * sizeof(T));
                    }
                    char *dst = alias == 1   ? left.data() + shift
                                : alias == 2 ? right.data() + 3
                                             : out.data() + 5;
                    rf_combine(dst, left.data() + shift, right.data() + 3, count, dtype, redop);
                    for (size_t i = 0; i < count; i++) {
                        T got, wanted = combine(a[i], b[i], redop);
                        memcpy(&got, dst + i * sizeof(T), sizeof(T));
                        ASSERT_TRUE(same(got, wanted))
                            << rf_dtype_name(dtype) << " " << rf_redop_name(redop) << " element "
                            << i << " of " << count << ": " << +a[i] << ", " << +b[i] << " gave "
                            << +got;
                    }
                    ASSERT_EQ(dst[count * sizeof(T)], 0x11) << "wrote behind its end";
                    ASSERT_EQ(*(dst - 1 < out.data() || alias ? "\x11" : dst - 1), 0x11);
                }
            }
        }
    }
}

TEST(Reduce, EqualsTheScalarReferenceForEveryTypeLengthAndPlace)
{
    check_type<float>(RF_F32);
    check_type<double>(RF_F64);
    check_type<int32_t>(RF_I32);
    check_type<int64_t>(RF_I64);
    check_type<uint8_t>(RF_U8);
    check_type<int8_t>(RF_I8);
}

TEST(Reduce, MinAndMaxPropagateNanFromEitherSide)
{
    float nan = NAN, one = 1, out;
    for (enum rf_redop redop : {RF_MIN, RF_MAX}) {
        rf_combine(&out, &nan, &one, 1, RF_F32, redop);
        EXPECT_TRUE(std::isnan(out));
        rf_combine(&out, &one, &nan, 1, RF_F32, redop);
        EXPECT_TRUE(std::isnan(out));
    }
}

TEST(Reduce, IntegersWrap)
{
    int32_t most = INT32_MAX, one = 1, out;
    rf_combine(&out, &most, &one, 1, RF_I32, RF_SUM);
    EXPECT_EQ(out, INT32_MIN);
    rf_combine(&out, &most, &most, 1, RF_I32, RF_PROD);
    EXPECT_EQ(out, 1);
    uint8_t high = 250, ten = 10, low;
    rf_combine(&low, &high, &ten, 1, RF_U8, RF_SUM);
    EXPECT_EQ(low, 4);
}

// ---- 16-bit types -----------------------------------------------------------------------------

double half_value(uint16_t bits, enum rf_dtype dtype)
{
    int exponent_bits = dtype == RF_F16 ? 5 : 8, mantissa_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

TEST(Half, EveryValueWidensExactlyAndComesBack)
{
    for (enum rf_dtype dtype : {RF_F16, RF_BF16}) {
        std::vector<uint16_t> all(65536), back(65536);
        std::vector<float> wide(65536);
        for (size_t i = 0; i < all.size(); i++)
            all[i] = static_cast<uint16_t>(i);
        for (size_t piece : {size_t(65536), size_t(7)}) { // in bulk, and by the scalar tail
            for (size_t i = 0; i < all.size(); i += piece) {
                size_t n = std::min(piece, all.size() - i);
                rf_widen(&wide[i], &all[i], n, dtype);
                rf_narrow(&back[i], &wide[i], n, dtype);
            }
            for (size_t i = 0; i < all.size(); i++) {
                double value = half_value(all[i], dtype);
                if (std::isnan(value)) {
                    ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(half_value(back[i], dtype))) << i;
                } else {
                    ASSERT_EQ(static_cast<double>(wide[i]), value) << i;
                    ASSERT_EQ(back[i], all[i]);
                }
            }
        }
    }
}

// Between two neighbours: the nearer; in the middle: the even one; beyond the largest: infinity.
TEST(Half, NarrowingRoundsToNearestEven)
{
    for (enum rf_dtype dtype : {RF_F16, RF_BF16}) {
        uint16_t infinity = dtype == RF_F16 ? 0x7c00 : 0x7f80;
        for (size_t width : {size_t(1), size_t(8)}) { // scalar and vector
            for (uint16_t bits = 0; bits < infinity; bits++) {
                uint16_t above = static_cast<uint16_t>(bits + 1);
                double low = half_value(bits, dtype);
                double high = above == infinity ? 2 * low - half_value(bits - 1, dtype)
                                                : half_value(above, dtype);
                float middle = static_cast<float>((low + high) / 2);
                if ((low + high) / 2 > std::numeric_limits<float>::max())
                    continue;
                float inputs[3] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
                uint16_t wanted[3] = {bits, bits % 2 ? above : bits, above};
                for (int i = 0; i < 3; i++) {
                    std::vector<float> wide(width, -inputs[i]);
                    std::vector<uint16_t> out(width);
                    rf_narrow(out.data(), wide.data(), width, dtype);
                    ASSERT_EQ(out[width - 1], wanted[i] | 0x8000) << inputs[i];
                }
            }
        }
    }
}

std::vector<uint16_t> narrow(const std::vector<float> &wide, enum rf_dtype dtype)
{
    std::vector<uint16_t> out(wide.size());
    rf_narrow(out.data(), wide.data(), wide.size(), dtype);
    return out;
}

TEST(Fold, RoundsSixteenBitTypesOnce)
{
    // 256 + 0.5 + 0.5: in bf16 every partial sum would be rounded back to 256.
    std::vector<float> big(3000, 256.0f), small(3000, 0.75f);
    for (bool tree : {false, true}) {
        for (int divisor : {1, 4}) {
            auto a = narrow(big, RF_BF16), b = narrow(small, RF_BF16);
            struct rf_fold_part parts[4] = {
                {a.data(), 0}, {b.data(), 0}, {b.data(), 0}, {b.data(), 0}};
            struct rf_fold fold = {parts, 4, RF_BF16, RF_SUM, tree, divisor};
            std::vector<uint16_t> out(3000);
            rf_fold(out.data(), &fold, out.size());
            auto wanted = narrow({258.25f / static_cast<float>(divisor)}, RF_BF16)[0];
            for (uint16_t x : out)
                ASSERT_EQ(x, wanted);
        }
    }
}

TEST(Fold, InPlaceOverAnyPartIsRightInBothOrders)
{
    const size_t count = 1500;
    for (bool tree : {false, true}) {
        for (uint32_t parts = 1; parts <= 9; parts++) {
            for (uint32_t target = 0; target < parts; target++) {
                std::vector<std::vector<float>> data(parts, std::vector<float>(count));
                std::vector<struct rf_fold_part> list;
                for (uint32_t p = 0; p < parts; p++) {
                    for (size_t i = 0; i < count; i++)
                        data[p][i] = static_cast<float>((p + 1) * (i % 100));
                    list.push_back({data[p].data(), 0});
                }
                struct rf_fold fold = {list.data(), parts, RF_F32, RF_SUM, tree, 1};
                rf_fold(data[target].data(), &fold, count);
                for (size_t i = 0; i < count; i++)
                    ASSERT_EQ(data[target][i],
                              static_cast<float>(parts * (parts + 1) / 2 * (i % 100)));
            }
        }
    }
}

TEST(Fold, IntoSeveralPlacesIsTheSameWithinAndPastTheCaches)
{
    const std::vector<std::vector<size_t>> shifts = {{0, 0, 0}, {24, 24, 24}, {6, 8, 63}};
    for (rf_dtype dtype : {RF_F32, RF_F64, RF_BF16, RF_I8}) {
        for (size_t count : {1, 9, 128, 1000, 5003}) {
            const size_t bytes = count * rf_dtype_bytes(dtype);
            std::vector<std::vector<unsigned char>> in(3);
            struct rf_fold_part parts[3];
            for (size_t p = 0; p < 3; p++) {
                for (size_t i = 0; i < bytes; i++)
                    in[p].push_back(static_cast<unsigned char>((i * 7 + p * 13) % 63));
                parts[p] = {in[p].data(), 0};
            }
            struct rf_fold fold = {parts, 3, dtype, RF_SUM, false, 3};
            std::vector<unsigned char> wanted(bytes);
            rf_fold(wanted.data(), &fold, count);
            for (const std::vector<size_t> &shift : shifts)
                for (bool past_caches : {false, true}) {
                    std::vector<std::vector<unsigned char>> room(3);
                    unsigned char *places[3];
                    for (size_t p = 0; p < 3; p++) {
                        room[p].assign(bytes + 130, 0x11);
                        size_t at = (64 - reinterpret_cast<uintptr_t>(room[p].data()) % 64) % 64;
                        places[p] = room[p].data() + at + shift[p];
                    }
                    rf_fold_to_all(places, 3, &fold, count, past_caches);
                    for (unsigned char *place : places) {
                        ASSERT_EQ(memcmp(place, wanted.data(), bytes), 0)
                            << rf_dtype_name(dtype) << " " << count << " " << past_caches;
                        ASSERT_EQ(place[bytes], 0x11) << "wrote behind its end";
                    }
                }
        }
    }
}

// ---- subnormal numbers --------------------------------------------------------------------------

// A device that flushes subnormal numbers to zero: flushed(x) is the operand it adds for x.
template <class T> T flushed(T x)
{
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T(0), x) : x;
}

template <class T> T fold_of(std::vector<T> x, bool tree, bool flush)
{
    const auto add = [&](T a, T b) { return flush ? flushed<T>(flushed(a) + flushed(b)) : a + b; };
    if (!tree)
        return add(add(add(x[0], x[1]), x[2]), x[3]);
    return add(add(x[0], x[1]), add(x[2], x[3]));
}

// Around the smallest normal number, so that operands, partial sums, sums and averages are
// subnormal.
template <class T> T near_smallest(std::mt19937_64 &random)
{
    const T unit = std::numeric_limits<T>::min() / 4;
    return unit * static_cast<T>(static_cast<int>(random() % 31) - 15);
}

template <class T> void check_subnormals(enum rf_dtype dtype)
{
    std::mt19937_64 random(7);
    const size_t count = 1003;
    for (bool tree : {false, true})
        for (int divisor : {1, 4})
            for (bool flush : {false, true}) {
                std::vector<std::vector<T>> x(4, std::vector<T>(count));
                std::vector<T> out(count);
                int differ = 0;
                for (std::vector<T> &row : x)
                    for (T &each : row)
                        each = near_smallest<T>(random);
                struct rf_fold_part parts[4] = {
                    {x[0].data(), 0}, {x[1].data(), 0}, {x[2].data(), 0}, {x[3].data(), 0}};
                struct rf_fold fold = {parts, 4, dtype, RF_SUM, tree, divisor};
                const uint64_t before = rf_flush_begin(flush);
                rf_fold(out.data(), &fold, count);
                rf_flush_end(flush, before);
                for (size_t i = 0; i < count; i++) {
                    const std::vector<T> each = {x[0][i], x[1][i], x[2][i], x[3][i]};
                    T wanted = fold_of(each, tree, flush);
                    if (divisor > 1)
                        wanted = flush ? flushed<T>(wanted / 4) : wanted / 4;
                    ASSERT_TRUE(same(out[i], wanted))
                        << rf_dtype_name(dtype) << " tree " << tree << " divisor " << divisor
                        << " flush " << flush << " at " << i << ": " << out[i] << ", not "
                        << wanted;
                    differ += !same(fold_of(each, tree, true), fold_of(each, tree, false));
                }
                EXPECT_GT(differ, 100) << "the numbers must tell the two apart";
            }
}

TEST(Subnormals, AreNothingInFoldsThatFlushAndKeptInOthers)
{
    ASSERT_TRUE(rf_can_flush());
    check_subnormals<float>(RF_F32);
    check_subnormals<double>(RF_F64);
}

// bf16 has the exponents of f32. f16 is added in f32, in which its subnormal numbers are normal.
TEST(Subnormals, OfSixteenBitTypesAreThoseOfF32)
{
    std::mt19937_64 random(8);
    for (enum rf_dtype dtype : {RF_BF16, RF_F16})
        for (bool flush : {false, true})
            for (size_t count : {size_t(5), size_t(1000)}) {
                std::vector<std::vector<uint16_t>> x(2, std::vector<uint16_t>(count));
                std::vector<uint16_t> out(count);
                for (std::vector<uint16_t> &row : x)
                    for (uint16_t &each : row) // up to twice the smallest normal number
                        each = static_cast<uint16_t>(random() % (dtype == RF_F16 ? 0x800 : 0x100) |
                                                     (random() & 1) << 15);
                struct rf_fold_part parts[2] = {{x[0].data(), 0}, {x[1].data(), 0}};
                struct rf_fold fold = {parts, 2, dtype, RF_SUM, true, 1};
                const uint64_t before = rf_flush_begin(flush);
                rf_fold(out.data(), &fold, count);
                rf_flush_end(flush, before);
                for (size_t i = 0; i < count; i++) {
                    const auto a = static_cast<float>(half_value(x[0][i], dtype));
                    const auto b = static_cast<float>(half_value(x[1][i], dtype));
                    const float sum = flush ? flushed(flushed(a) + flushed(b)) : a + b;
                    ASSERT_EQ(out[i], narrow({sum}, dtype)[0])
                        << rf_dtype_name(dtype) << " flush " << flush << ": " << a << " + " << b;
                }
            }
}

TEST(Subnormals, AreAsBeforeAfterwards)
{
    volatile float small = 1e-40f, half = 0.5f;
    const uint64_t outer = rf_flush_begin(true), inner = rf_flush_begin(true);
    EXPECT_EQ(small * half * 2.0f, 0);
    rf_flush_end(true, inner);
    EXPECT_EQ(small * half * 2.0f, 0);
    rf_flush_end(true, outer);
    EXPECT_NE(small * half * 2.0f, 0);
    rf_flush_end(false, rf_flush_begin(false));
    EXPECT_NE(small * half * 2.0f, 0);
}

} // namespace
