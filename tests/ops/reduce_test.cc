/* SPDX-License-Identifier: MIT
 *
 * Sums, the largest, and the test for finite values. The tree of sums is a part of the contract, so
 * results are compared bit by bit with the same tree on the host.
 */
#include "op_fixture.h"

#include <algorithm>
#include <limits>

namespace
{
class Reduce : public TypedOpTest
{
  protected:
    /* 16 running sums over the chunk, then joined pairwise. */
    static float chunk_sum(const float *x, size_t count, bool squares)
    {
        float part[16] = {};
        for (size_t i = 0; i < count; i++)
            part[i % 16] += squares ? x[i] * x[i] : x[i];
        float joined[4];
        for (int k = 0; k < 4; k++)
            joined[k] = (part[k] + part[4 + k]) + (part[8 + k] + part[12 + k]);
        return (joined[0] + joined[1]) + (joined[2] + joined[3]);
    }
    static float pairwise(Floats values)
    {
        while (values.size() > 1) {
            Floats next;
            for (size_t i = 0; i < values.size(); i += 2)
                next.push_back(i + 1 < values.size() ? values[i] + values[i + 1] : values[i]);
            values = next;
        }
        return values[0];
    }
    float sum_on_device(const Floats &x, int shift)
    {
        int64_t n = (int64_t)x.size();
        rf_tensor out = blank(rf_shape1(1));
        EXPECT_OK(rf_sum(stream, out, typed(rf_shape1(n), type(), x, shift),
                         blank(rf_shape1(rf_sum_scratch(n)))));
        return read(out)[0];
    }
    float squares_on_device(const Floats &flat, const std::vector<rf_norm_chunk> &chunks)
    {
        Ints table;
        for (rf_norm_chunk c : chunks) {
            table.push_back((int32_t)c.first);
            table.push_back((int32_t)c.count);
        }
        int64_t n = (int64_t)chunks.size();
        rf_tensor out = blank(rf_shape1(1));
        EXPECT_OK(rf_sum_squares(stream, out, typed(rf_shape1((int64_t)flat.size()), type(), flat),
                                 i32(rf_shape2(n, 2), table),
                                 blank(rf_shape1(rf_sum_squares_scratch(n)))));
        return read(out)[0];
    }
    static std::vector<rf_norm_chunk> table_for(size_t count)
    {
        std::vector<rf_norm_chunk> chunks;
        for (size_t i = 0; i < count; i += 1024)
            chunks.push_back({(uint32_t)i, (uint32_t)std::min<size_t>(1024, count - i)});
        return chunks;
    }
};

ALL_TYPES_AND_TEAMS(Reduce);

TEST_P(Reduce, SumIsExactForIntegersOfEverySize)
{
    for (int64_t n : {1, 2, 3, 15, 16, 17, 1023, 1024, 1025, 65537, 70001}) {
        Floats x = whole(n);
        double want = 0;
        for (float v : x)
            want += v;
        EXPECT_EQ(sum_on_device(x, n % 4), want) << n;
    }
}

TEST_P(Reduce, SumFollowsItsTree)
{
    for (size_t n : {5u, 1024u, 3000u, 70001u, 200003u}) {
        Floats x = rounded(normal(n)), chunks;
        for (size_t i = 0; i < n; i += 1024)
            chunks.push_back(chunk_sum(&x[i], std::min<size_t>(1024, n - i), false));
        EXPECT_EQ(sum_on_device(x, 0), pairwise(chunks)) << n;
    }
}

/* Sums of few chunks: f64 holds them. */
TEST_P(Reduce, SumSquaresAddsTheTreesOfItsChunksExactly)
{
    for (size_t n : {1u, 1000u, 5000u, 300001u}) {
        const Floats x = rounded(normal(n));
        double sum = 0;
        for (rf_norm_chunk c : table_for(n))
            sum += chunk_sum(&x[c.first], c.count, true);
        EXPECT_EQ(squares_on_device(x, table_for(n)), (float)sum) << n;
    }
}

TEST_P(Reduce, SumSquaresBeyondF32IsMinusTheSumOver2ToThe192)
{
    if (type() == RF_F16)
        return; /* no sum of its squares is too large */
    Floats one(20, 0x1p100f);
    EXPECT_EQ(squares_on_device(one, table_for(one.size())), -20 * 0x1p8f);
    Floats most = rounded(Floats(3000, 0x1.fep127f)); /* the largest bf16 */
    EXPECT_NEAR(squares_on_device(most, table_for(most.size())), -3000 * 0x1.fep-65 * 0x1.fep127,
                1e-6 * 3000 * 0x1p63);
    /* A large chunk among others, and chunks that are too large only in sum. */
    Floats mixed(5000, 1.0f);
    mixed[3333] = -0x1p70f;
    EXPECT_EQ(squares_on_device(mixed, table_for(mixed.size())), -0x1p-52f);
    for (size_t chunks : {5u, 70u, 200u}) {
        Floats x(1024 * chunks, 0x1p58f);
        EXPECT_EQ(squares_on_device(x, table_for(x.size())), -0x1p-66f * (float)chunks) << chunks;
    }
    for (float bad : {INFINITY, -INFINITY, NAN})
        for (size_t at : {0u, 2222u, 4999u}) {
            Floats x = mixed;
            x[at] = bad;
            EXPECT_FALSE(std::isfinite(squares_on_device(x, table_for(x.size())))) << bad << at;
        }
}

TEST_P(Reduce, SumSquaresDoesNotDependOnWhereChunksLie)
{
    Floats x = rounded(normal(5000)), moved(9000, 1e4f);
    auto chunks = table_for(x.size()), elsewhere = chunks;
    uint32_t at = 9000;
    for (size_t i = 0; i < chunks.size(); i++) { /* in reverse, with odd gaps */
        at -= chunks[i].count + 3 + 2 * (uint32_t)i;
        elsewhere[i].first = at;
        std::copy_n(&x[chunks[i].first], chunks[i].count, &moved[at]);
    }
    EXPECT_EQ(squares_on_device(x, chunks), squares_on_device(moved, elsewhere));
}

TEST_P(Reduce, SumSquaresOfRanksThatHaveSomeOfTheChunksIsThatOfOneToTheBit)
{
    for (size_t count : {700u, 5000u, 200000u}) {
        const Floats x = rounded(normal(count));
        const auto chunks = table_for(count);
        rf_tensor flat = typed(rf_shape1((int64_t)count), type(), x), out = blank(rf_shape1(1));
        Ints all(RF_EXACT_WORDS);
        for (int rank = 0; rank < 3; rank++) {
            Ints table;
            for (size_t i = 0; i < chunks.size(); i++)
                if ((int)i % 3 == rank) {
                    table.push_back((int32_t)chunks[i].first);
                    table.push_back((int32_t)chunks[i].count);
                }
            const int64_t own = (int64_t)table.size() / 2;
            rf_tensor sums = blank(rf_shape1(own)), exact = blank_i32(RF_EXACT_WORDS);
            ASSERT_OK(rf_square_chunks(stream, sums, flat, i32(rf_shape2(own, 2), table)));
            ASSERT_OK(rf_add_squares(stream, exact, sums, blank_i32(rf_add_squares_scratch(own))));
            ASSERT_OK(rf_stream_wait(stream));
            Ints words(RF_EXACT_WORDS);
            ASSERT_OK(rf_tensor_read(exact, words.data(), 4 * words.size()));
            for (size_t k = 0; k < words.size(); k++)
                all[k] += words[k];
        }
        ASSERT_OK(rf_round_squares(stream, out, i32(rf_shape1(RF_EXACT_WORDS), all)));
        EXPECT_EQ(read(out)[0], squares_on_device(x, chunks)) << count;
    }
}

TEST_P(Reduce, AChunkOutsideTheBufferIsNotANumberAndReadsNothing)
{
    EXPECT_TRUE(std::isnan(squares_on_device(Floats(100, 1.0f), {{0, 50}, {90, 11}})));
    EXPECT_TRUE(std::isnan(squares_on_device(Floats(100, 1.0f), {{0xfffffff0u, 50}})));
    EXPECT_EQ(squares_on_device(Floats(100, 1.0f), {{0, 50}, {100, 0}, {90, 10}}), 60.0f);
}

TEST_P(Reduce, InfinityAndNotANumberSurvive)
{
    Floats x(3000, 1.0f);
    x[2999] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(sum_on_device(x, 0)));
    x[5] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_on_device(x, 0)));
    EXPECT_TRUE(std::isnan(squares_on_device(x, table_for(x.size()))));
}

TEST_P(Reduce, MaxIsTheLargestWhereverItIs)
{
    for (int64_t n : {1, 2, 17, 1023, 1024, 1025, 70001})
        for (int64_t at : {(int64_t)0, n / 2, n - 1}) {
            Floats x = rounded(normal(n));
            for (float &v : x)
                v -= 100; /* padding must not win */
            x = rounded(x);
            x[at] = -50;
            rf_tensor out = blank(rf_shape1(1)), scratch = blank(rf_shape1(rf_sum_scratch(n)));
            ASSERT_OK(rf_max(stream, out, in(rf_shape1(n), x, (int)(n % 4)), scratch));
            EXPECT_EQ(read(out)[0], -50) << n << " at " << at;
            x[at] = NAN;
            ASSERT_OK(rf_max(stream, out, typed(rf_shape1(n), type(), x), scratch));
            EXPECT_TRUE(std::isnan(read(out)[0])) << n << " at " << at;
        }
}

TEST_P(Reduce, NonfiniteIsFoundWhereverItIs)
{
    const float inf = std::numeric_limits<float>::infinity();
    for (int64_t n : {1, 2, 17, 1023, 1024, 1025, 70001})
        for (int64_t at : {(int64_t)0, n / 2, n - 1})
            for (float bad : {inf, -inf, NAN, type() == RF_F16 ? 65504.0f : 3e38f}) {
                Floats x = rounded(normal(n));
                x[at] = rounded({bad})[0];
                rf_tensor out = blank(rf_shape1(1)), scratch = blank(rf_shape1(rf_sum_scratch(n)));
                ASSERT_OK(rf_any_nonfinite(stream, out,
                                           typed(rf_shape1(n), type(), x, (int)(n % 3)), scratch));
                EXPECT_EQ(read(out)[0], std::isfinite(bad) ? 0 : 1) << n << " at " << at;
            }
}

TEST_P(Reduce, OfNothingIsTheNeutralElement)
{
    rf_tensor x = out(rf_shape1(1)), result = blank(rf_shape1(1)), scratch = blank(rf_shape1(2));
    x.shape = rf_shape1(0);
    ASSERT_OK(rf_sum(stream, result, x, scratch));
    EXPECT_EQ(read(result)[0], 0);
    ASSERT_OK(rf_max(stream, result, x, scratch));
    EXPECT_EQ(read(result)[0], -HUGE_VALF);
    ASSERT_OK(rf_any_nonfinite(stream, result, x, scratch));
    EXPECT_EQ(read(result)[0], 0);
}

TEST_P(Reduce, TenRunsGiveTheSameBits)
{
    Floats x = rounded(normal(30011));
    float first = sum_on_device(x, 0);
    for (int run = 1; run < 10; run++)
        EXPECT_EQ(sum_on_device(x, 0), first);
}

TEST_P(Reduce, WrongOperandsAreNamed)
{
    rf_tensor x = blank(rf_shape1(3000)), one = blank(rf_shape1(1)), two = blank(rf_shape1(2)),
              three = blank(rf_shape1(3));
    rf_tensor scratch = blank(rf_shape1(rf_sum_scratch(3000))), table = blank_i32(6), pairs,
              some = blank_i32(7);
    ASSERT_OK(rf_tensor_reshape(table, rf_shape2(3, 2), &pairs));
    EXPECT_FAILS(RF_EINVAL, "sum: out is f32 (2)", rf_sum(stream, two, x, scratch));
    EXPECT_FAILS(RF_EINVAL, "max: out is f32 (2)", rf_max(stream, two, x, scratch));
    EXPECT_FAILS(RF_EINVAL, "any_nonfinite: x is i32", rf_any_nonfinite(stream, one, table, two));
    EXPECT_FAILS(RF_EINVAL, "sum: scratch is f32 (2)", rf_sum(stream, one, x, two));
    EXPECT_FAILS(RF_EINVAL, "scratch must not overlap x", rf_sum(stream, one, two, two));
    EXPECT_FAILS(RF_EINVAL, "expected rows of 2", rf_sum_squares(stream, one, x, some, scratch));
    EXPECT_FAILS(RF_EINVAL, "chunks is f32", rf_sum_squares(stream, one, x, x, scratch));
    EXPECT_FAILS(RF_EINVAL, "scratch is f32 (2), expected 93",
                 rf_sum_squares(stream, one, x, pairs, two));
    EXPECT_FAILS(RF_EINVAL, "square_chunks: sums is f32 (2), expected 3",
                 rf_square_chunks(stream, two, x, pairs));
    EXPECT_FAILS(RF_EINVAL, "expected rows of 2", rf_square_chunks(stream, scratch, x, some));
    EXPECT_FAILS(RF_EINVAL, "sums must not overlap flat",
                 rf_square_chunks(stream, three, three, pairs));
}
} // namespace
