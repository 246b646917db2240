/* SPDX-License-Identifier: MIT
 *
 * Attention in rows that hold several documents (rf_attention_args.starts), on every path that this
 * device supports, in every type.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
using Lengths = std::vector<int64_t>;

struct Case {
    int64_t B, H, K, D;
    Lengths documents; /* of the first row; the others have them in reverse order */

    int64_t T() const
    {
        int64_t sum = 0;
        for (int64_t length : documents)
            sum += length;
        return sum;
    }
};
/* Ends of documents at the edges of blocks (8 rows on CPU drivers, 32 or 64 in tiles), and beside
 * them; documents of one token. */
const Case cases[] = {
    {1, 4, 2, 64, {8, 8, 1, 23, 24, 1, 2}},
    {2, 2, 1, 64, {64, 1, 63, 3}},
    {1, 2, 1, 64, {1}},
    {2, 2, 1, 64, {1, 1, 1}},
    {1, 4, 2, 64, {63, 66, 8}},
    {2, 2, 1, 5, {7, 12, 1, 20}},
};
/* Each combination of type, head size and query heads per key head is compiled separately, which
 * takes CPU drivers seconds: 16-bit types have two cases. */
const size_t CASES_OF_16_BITS = 2;
/* One for each other class of head sizes. */
const Case heads[] = {
    {1, 2, 1, 33, {9, 1, 12}}, {1, 2, 2, 80, {5, 17}},     {1, 4, 2, 128, {16, 3, 1}},
    {1, 2, 1, 256, {6, 5}},    {1, 2, 1, 16, {32, 1, 34}},
};
/* As in attention_test.cc. */
const double TOLERANCE = 1e-5;

class PackedAttention : public TypedOpTest
{
  protected:
    struct Inputs {
        Floats q, k, v, dout;
        Ints starts;
    };
    struct Result {
        Floats out, lse, dq, dk, dv;
    };
    static Ints starts_of(const Case &c)
    {
        Ints starts;
        for (int64_t b = 0; b < c.B; b++) {
            Lengths row = c.documents;
            if (b > 0)
                std::reverse(row.begin(), row.end());
            int32_t first = 0;
            for (int64_t length : row) {
                starts.insert(starts.end(), (size_t)length, first);
                first += (int32_t)length;
            }
        }
        return starts;
    }
    Inputs random_inputs(const Case &c)
    {
        size_t queries = c.B * c.T() * c.H * c.D, keys = c.B * c.T() * c.K * c.D;
        return {rounded(normal(queries)), rounded(normal(keys)), rounded(normal(keys)),
                rounded(normal(queries)), starts_of(c)};
    }
    rf_attention_args args_of(const Case &c, const Inputs &data, const char *path)
    {
        const rf_shape queries = rf_shape3(c.B, c.T(), c.H * c.D);
        const rf_shape keys = rf_shape3(c.B, c.T(), c.K * c.D);
        rf_attention_args args = {};
        args.q = rf_heads_in(in(queries, data.q), c.D, 0, c.H);
        args.k = rf_heads_in(in(keys, data.k), c.D, 0, c.K);
        args.v = rf_heads_in(in(keys, data.v), c.D, 0, c.K);
        args.out = rf_heads_in(out(queries), c.D, 0, c.H);
        args.lse = blank(rf_shape3(c.B, c.H, c.T()));
        if (!data.starts.empty())
            args.starts = i32(rf_shape2(c.B, c.T()), data.starts);
        args.path = path;
        return args;
    }
    Result run(const Case &c, const Inputs &data, const char *path)
    {
        const rf_attention_args args = args_of(c, data, path);
        rf_attention_grads grads = {};
        grads.dout = rf_heads_in(in(args.out.tensor.shape, data.dout), c.D, 0, c.H);
        grads.dq = rf_heads_in(out(args.q.tensor.shape), c.D, 0, c.H);
        grads.dk = rf_heads_in(out(args.k.tensor.shape), c.D, 0, c.K);
        grads.dv = rf_heads_in(out(args.k.tensor.shape), c.D, 0, c.K);
        grads.delta = blank(args.lse.shape);
        EXPECT_OK(rf_attend(stream, &args));
        EXPECT_OK(rf_attend_backward(stream, &args, &grads));
        return {read(args.out.tensor), read(args.lse), read(grads.dq.tensor), read(grads.dk.tensor),
                read(grads.dv.tensor)};
    }
    static std::string name(const Case &c, const char *what, const char *path)
    {
        return std::string(what) + " on path " + (path ? path : "chosen") + " of T " +
               std::to_string(c.T()) + " H " + std::to_string(c.H) + " K " + std::to_string(c.K) +
               " D " + std::to_string(c.D);
    }
    void expect_right(const Case &c, const char *path, double units = 0)
    {
        const Inputs data = random_inputs(c);
        const Result got = run(c, data, path);
        const reference::AttentionSize size = {c.B, c.T(), c.H, c.D,        c.T(),
                                               c.K, false, 0,   data.starts};
        const Doubles q = wide(data.q), k = wide(data.k), v = wide(data.v);
        const auto want = reference::attend(q, k, v, size);
        const auto grad = reference::attend_backward(wide(data.dout), wide(got.out), q, k, v, size);
        const double least = tolerance(TOLERANCE);
        expect_near(got.out, want.out, std::max(least, 2 * units), name(c, "out", path));
        expect_near(got.lse, want.lse, TOLERANCE, name(c, "lse", path));
        expect_near(got.dq, grad.dq, std::max(least, 8 * units), name(c, "dq", path));
        expect_near(got.dk, grad.dk, std::max(least, 8 * units), name(c, "dk", path));
        expect_near(got.dv, grad.dv, std::max(least, 8 * units), name(c, "dv", path));
    }
    static void expect_same(const Result &got, const Result &want, const std::string &what)
    {
        expect_same_bits(got.out, want.out, what + " out");
        expect_same_bits(got.lse, want.lse, what + " lse");
        expect_same_bits(got.dq, want.dq, what + " dq");
        expect_same_bits(got.dk, want.dk, what + " dk");
        expect_same_bits(got.dv, want.dv, what + " dv");
    }
    bool can_run(const Case &c, const char *path)
    {
        const rf_attention_args args = args_of(c, random_inputs(c), path);
        return rf_attend(stream, &args) == 0;
    }
};
ALL_TYPES(PackedAttention);
class PackedAttentionOfF32 : public PackedAttention
{
};
INSTANTIATE_TEST_SUITE_P(Type, PackedAttentionOfF32, ::testing::Values(RF_F32),
                         [](const auto &) { return "f32"; });
const char *const paths[] = {"rows", "tiled"};

TEST_P(PackedAttention, ForwardAndBackwardMatchTheReference)
{
    const size_t count = type() == RF_F32 ? std::size(cases) : CASES_OF_16_BITS;
    for (size_t k = 0; k < count; k++)
        for (const char *path : paths)
            expect_right(cases[k], path);
}

TEST_P(PackedAttentionOfF32, OtherSizesOfHeadsMatchTheReference)
{
    for (const Case &c : heads)
        expect_right(c, nullptr);
}

/* Weights are rounded to the type, as in attention_test.cc. */
TEST_P(PackedAttention, OnMatrixUnitsMatchesTheReference)
{
    if (!can_run(cases[0], "units"))
        GTEST_SKIP() << rf_last_error()->message;
    for (const Case &c : {cases[0], cases[1], heads[4]})
        expect_right(c, "units", step_of(type()));
}

TEST_P(PackedAttentionOfF32, ARowOfOneDocumentHasTheBitsOfOneWithoutStarts)
{
    const Case c = {2, 2, 1, 64, {67}};
    const Inputs data = random_inputs(c);
    Inputs without = data;
    without.starts.clear();
    for (const char *path : paths)
        expect_same(run(c, data, path), run(c, without, path), path);
}

/* Other values in the first document do not change a bit of the second, and vice versa. The
 * documents end within a block. */
TEST_P(PackedAttentionOfF32, ADocumentChangesNoBitOfAnother)
{
    const Case c = {1, 2, 1, 64, {29, 38}};
    const Inputs data = random_inputs(c), other = random_inputs(c);
    for (const char *path : paths) {
        const Result want = run(c, data, path);
        for (bool second : {false, true}) {
            const int64_t first = second ? 29 : 0, end = second ? 67 : 29;
            auto mix = [&](Floats into, const Floats &from) {
                const int64_t row = (int64_t)into.size() / c.T();
                std::copy(from.begin() + first * row, from.begin() + end * row,
                          into.begin() + first * row);
                return into;
            };
            Result got = run(c,
                             {mix(data.q, other.q), mix(data.k, other.k), mix(data.v, other.v),
                              mix(data.dout, other.dout), data.starts},
                             path);
            got = {mix(got.out, want.out), want.lse, mix(got.dq, want.dq), mix(got.dk, want.dk),
                   mix(got.dv, want.dv)};
            expect_same(got, want, path);
        }
    }
}

/* Starts after their query, negative ones and decreasing ones: nothing hangs, every query still
 * sees a key, and a launch touches only its own ranges (tests/ops/ranges_test.cc). */
TEST_P(PackedAttentionOfF32, AnyStartsGiveFiniteNumbers)
{
    const Case c = {2, 2, 1, 64, {67}};
    Inputs data = random_inputs(c);
    const int32_t values[] = {INT32_MAX, -1, INT32_MIN, 66, 67, 0, 1 << 30, 5};
    for (size_t i = 0; i < data.starts.size(); i++)
        data.starts[i] = values[i * 7 % 8];
    for (const char *path : paths) {
        const Result got = run(c, data, path);
        for (const Floats *all : {&got.out, &got.lse})
            for (float x : *all)
                ASSERT_TRUE(std::isfinite(x)) << path;
    }
}

TEST_P(PackedAttentionOfF32, WrongStartsAreRefused)
{
    const Case c = {1, 1, 1, 64, {3, 4}};
    const Inputs data = random_inputs(c);
    rf_attention_args args = args_of(c, data, nullptr);
    args.full = true;
    EXPECT_FAILS(RF_EINVAL, "starts of documents need causal attention", rf_attend(stream, &args));
    args.full = false;
    args.q.rows = args.out.rows = 5;
    args.lse = blank(rf_shape3(1, 1, 5));
    EXPECT_FAILS(RF_EINVAL, "as many queries as keys", rf_attend(stream, &args));
    args = args_of(c, data, nullptr);
    args.starts = i32(rf_shape1(6), Ints(6, 0));
    EXPECT_FAILS(RF_EINVAL, "starts", rf_attend(stream, &args));
    args.starts = args.lse;
    EXPECT_FAILS(RF_EINVAL, "starts", rf_attend(stream, &args));
}
} // namespace
