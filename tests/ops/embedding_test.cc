/* SPDX-License-Identifier: MIT
 *
 * Embedding and its scatter-add. The order of additions is a part of the contract (row order), so
 * results are compared bit by bit with the same additions on the host.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
struct Case {
    int64_t V, C, T, batch;
    int shift;
};
const Case cases[] = {
    {1, 1, 1, 1, 0},    {2, 4, 3, 1, 0},    {5, 3, 2, 3, 0},     {257, 16, 31, 2, 0},
    {257, 16, 8, 5, 1}, {11, 64, 64, 4, 0}, {1009, 7, 13, 7, 0},
};

class Embedding : public TypedOpTest
{
  protected:
    struct Grads {
        Floats dwte, dwpe;
    };
    /* The additions of the contract, in f32. */
    static Grads on_host(const Floats &dwte, const Floats &dwpe, const Floats &dout,
                         const Ints &tokens, const Case &c)
    {
        Grads sums = {Floats(dwte.size()), Floats(dwpe.size())};
        for (size_t i = 0; i < tokens.size(); i++)
            for (int64_t k = 0; k < c.C; k++) {
                int64_t row = tokens[i] >= 0 && tokens[i] < c.V ? tokens[i] : 0;
                sums.dwte[row * c.C + k] += dout[i * c.C + k];
                if (!dwpe.empty())
                    sums.dwpe[(i % c.T) * c.C + k] += dout[i * c.C + k];
            }
        for (size_t i = 0; i < dwte.size(); i++)
            sums.dwte[i] += dwte[i];
        for (size_t i = 0; i < dwpe.size(); i++)
            sums.dwpe[i] += dwpe[i];
        return sums;
    }
    /* grad: the type in which gradients are stored. */
    Grads on_device(const Floats &dwte, const Floats &dwpe, const Floats &dout, const Ints &tokens,
                    const Case &c, rf_dtype grad = RF_F32)
    {
        int64_t n = c.T * c.batch;
        rf_tensor te = typed(rf_shape2(c.V, c.C), grad, dwte, c.shift);
        rf_tensor pe = dwpe.empty() ? rf_tensor{} : typed(rf_shape2(c.T, c.C), grad, dwpe, c.shift);
        EXPECT_OK(
            rf_embedding_backward(stream, {.T = c.T,
                                           .tokens = i32(rf_shape1(n), tokens),
                                           .dout = in(rf_shape2(n, c.C), dout),
                                           .dwte = te,
                                           .dwpe = pe,
                                           .scratch = blank_i32(rf_embedding_scratch(n, c.V))}));
        return {read(te), dwpe.empty() ? Floats() : read(pe)};
    }
};

ALL_TYPES(Embedding);

TEST_P(Embedding, EitherGradientAloneHasTheSameBits)
{
    for (const Case &c : cases) {
        const int64_t n = c.T * c.batch;
        const Ints tokens = below(n, (int32_t)c.V);
        const Floats wte = normal(c.V * c.C), wpe = normal(c.T * c.C),
                     dout = rounded(normal(n * c.C));
        const Grads both = on_device(wte, wpe, dout, tokens, c);
        rf_tensor position = f32(rf_shape2(c.T, c.C), wpe);
        EXPECT_EQ(on_device(wte, {}, dout, tokens, c).dwte, both.dwte);
        EXPECT_OK(rf_embedding_backward(stream, {.T = c.T,
                                                 .tokens = i32(rf_shape1(n), tokens),
                                                 .dout = in(rf_shape2(n, c.C), dout),
                                                 .dwpe = position}));
        EXPECT_EQ(read(position), both.dwpe);
    }
}

TEST_P(Embedding, AddsTokenAndPositionExactly)
{
    for (const Case &c : cases)
        for (bool positions : {true, false}) {
            int64_t n = c.T * c.batch;
            Ints tokens = below(n, (int32_t)c.V);
            tokens[n / 2] = n % 2 ? -3 : (int32_t)c.V; /* outside: row 0 */
            Floats wte = rounded(normal(c.V * c.C)), wpe = rounded(normal(c.T * c.C));
            Floats want(n * c.C);
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < c.C; k++) {
                    int64_t row = tokens[i] >= 0 && tokens[i] < c.V ? tokens[i] : 0;
                    want[i * c.C + k] = wte[row * c.C + k];
                    if (positions)
                        want[i * c.C + k] += wpe[(i % c.T) * c.C + k];
                }
            rf_tensor y = out(rf_shape3(c.batch, c.T, c.C), c.shift);
            rf_tensor pe = positions ? in(rf_shape2(c.T, c.C), wpe, c.shift) : rf_tensor{};
            ASSERT_OK(rf_embedding(stream, {.T = c.T,
                                            .tokens = i32(rf_shape1(n), tokens),
                                            .wte = in(rf_shape2(c.V, c.C), wte),
                                            .wpe = pe,
                                            .out = y}));
            expect_same_bits(read(y), rounded(want), "embedding");
        }
}

TEST_P(Embedding, BackwardMatchesTheReference)
{
    for (const Case &c : cases) {
        int64_t n = c.T * c.batch;
        Ints tokens = below(n, (int32_t)c.V);
        Floats dout = whole(n * c.C); /* sums are exact */
        auto want = reference::embedding_backward(wide(dout), tokens, c.V, c.C, c.T);
        Grads got = on_device(Floats(c.V * c.C), Floats(c.T * c.C), dout, tokens, c);
        expect_near(got.dwte, want.dwte, 0, "dwte");
        expect_near(got.dwpe, want.dwpe, 0, "dwpe");
    }
}

TEST_P(Embedding, BackwardAddsInRowOrderToWhatIsThere)
{
    for (const Case &c : cases) {
        int64_t n = c.T * c.batch;
        Ints tokens = below(n, (int32_t)c.V);
        tokens[n - 1] = -1;
        Floats dwte = normal(c.V * c.C), dwpe = normal(c.T * c.C), dout = rounded(normal(n * c.C));
        Grads want = on_host(dwte, dwpe, dout, tokens, c);
        Grads got = on_device(dwte, dwpe, dout, tokens, c);
        expect_same_bits(got.dwte, want.dwte, "dwte");
        expect_same_bits(got.dwpe, want.dwpe, "dwpe");
        got = on_device(dwte, {}, dout, tokens, c);
        expect_same_bits(got.dwte, want.dwte, "dwte without positions");
        if (type() == RF_F32)
            continue;
        dwte = rounded(dwte);
        dwpe = rounded(dwpe);
        want = on_host(dwte, dwpe, dout, tokens, c);
        got = on_device(dwte, dwpe, dout, tokens, c, type());
        expect_same_bits(got.dwte, rounded(want.dwte), "dwte in 16 bits");
        expect_same_bits(got.dwpe, rounded(want.dwpe), "dwpe in 16 bits");
    }
}

TEST_P(Embedding, BackwardHandlesALargeVocabularyAndManyRows)
{
    const Case c = {50257, 8, 1024, 8, 0};
    int64_t n = c.T * c.batch;
    Ints tokens = below(n, (int32_t)c.V);
    for (int64_t i = 0; i < n; i += 5)
        tokens[i] = 13; /* one token in five is the same: a long chain */
    Floats dwte = normal(c.V * c.C), dwpe = normal(c.T * c.C), dout = rounded(normal(n * c.C));
    Grads want = on_host(dwte, dwpe, dout, tokens, c);
    Grads got = on_device(dwte, dwpe, dout, tokens, c);
    expect_same_bits(got.dwte, want.dwte, "dwte");
    expect_same_bits(got.dwpe, want.dwpe, "dwpe");
}

TEST_P(Embedding, OfPartsOfTheTableAddUpToTheWhole)
{
    for (const Case &c : cases)
        for (int parts : {1, 2, 3, 4}) {
            if (c.V < parts)
                continue;
            const int64_t n = c.T * c.batch;
            Ints tokens = below(n, (int32_t)c.V);
            tokens[n / 2] = n % 2 ? -3 : (int32_t)c.V; /* outside: row 0 */
            const Floats wte = rounded(normal(c.V * c.C)), wpe = rounded(normal(c.T * c.C));
            const rf_tensor ids = i32(rf_shape1(n), tokens);
            const rf_tensor pe = in(rf_shape2(c.T, c.C), wpe), whole = out(rf_shape2(n, c.C));
            ASSERT_OK(rf_embedding(stream, {.T = c.T,
                                            .tokens = ids,
                                            .wte = in(rf_shape2(c.V, c.C), wte),
                                            .wpe = pe,
                                            .out = whole}));
            Floats sum(n * c.C);
            for (int k = 0; k < parts; k++) {
                const int64_t first = k * c.V / parts, end = (k + 1) * c.V / parts;
                const rf_tensor y = out(rf_shape2(n, c.C), c.shift);
                const Floats own(&wte[first * c.C], &wte[first * c.C] + (end - first) * c.C);
                ASSERT_OK(rf_embedding(stream, {.T = c.T,
                                                .tokens = ids,
                                                .wte = in(rf_shape2(end - first, c.C), own, k % 2),
                                                .wpe = k == 0 ? pe : rf_tensor{},
                                                .out = y,
                                                .first = first,
                                                .vocabulary = c.V}));
                const Floats more = read(y);
                for (size_t i = 0; i < sum.size(); i++)
                    sum[i] += more[i];
            }
            expect_same_bits(rounded(sum), read(whole), std::to_string(parts) + " parts");
        }
}

TEST_P(Embedding, BackwardOfPartsOfTheTableGivesEachItsRowsOfTheWhole)
{
    for (const Case &c : cases)
        for (int parts : {1, 2, 3, 4}) {
            if (c.V < parts)
                continue;
            const int64_t n = c.T * c.batch;
            Ints tokens = below(n, (int32_t)c.V);
            tokens[n - 1] = -1;
            const Floats dwte = normal(c.V * c.C), dwpe = normal(c.T * c.C),
                         dout = rounded(normal(n * c.C));
            const Grads want = on_host(dwte, dwpe, dout, tokens, c);
            for (int k = 0; k < parts; k++) {
                const int64_t first = k * c.V / parts, rows = (k + 1) * c.V / parts - first,
                              at = first * c.C;
                const Floats own(&dwte[at], &dwte[at] + rows * c.C);
                const rf_tensor te = f32(rf_shape2(rows, c.C), own, c.shift),
                                pe = f32(rf_shape2(c.T, c.C), dwpe, c.shift);
                ASSERT_OK(rf_embedding_backward(
                    stream, {.T = c.T,
                             .tokens = i32(rf_shape1(n), tokens),
                             .dout = in(rf_shape2(n, c.C), dout),
                             .dwte = te,
                             .dwpe = pe,
                             .scratch = blank_i32(rf_embedding_scratch(n, rows + 1)),
                             .first = first,
                             .vocabulary = c.V}));
                const std::string what = std::to_string(k) + " of " + std::to_string(parts);
                expect_same_bits(read(te), Floats(&want.dwte[at], &want.dwte[at] + rows * c.C),
                                 what);
                expect_same_bits(read(pe), want.dwpe, what);
            }
        }
}

/* Also if the rows begin within a sequence. */
TEST_P(Embedding, BackwardOfSomeRowsGivesPositionsTheirs)
{
    for (const Case &c : cases)
        for (int parts : {1, 2, 3}) {
            const int64_t n = c.T * c.batch;
            Floats dwpe = normal(c.T * c.C), got = dwpe, dout = rounded(normal(n * c.C));
            const Floats dwte(c.V * c.C);
            const Ints tokens = below(n, (int32_t)c.V);
            for (int k = 0; k < parts; k++) {
                const int64_t first = k * n / parts, rows = (k + 1) * n / parts - first;
                if (rows == 0)
                    continue;
                const rf_tensor pe = f32(rf_shape2(c.T, c.C), got);
                ASSERT_OK(rf_embedding_backward(
                    stream, {.T = c.T,
                             .tokens = i32(rf_shape1(n), tokens),
                             .dout = in(rf_shape2(n, c.C), dout),
                             .dwte = f32(rf_shape2(c.V, c.C), dwte),
                             .dwpe = pe,
                             .scratch = blank_i32(rf_embedding_scratch(n, c.V + 1)),
                             .vocabulary = c.V,
                             .first_row = first,
                             .rows = rows}));
                got = read(pe);
                Floats sum(c.T * c.C);
                for (int64_t i = first; i < first + rows; i++)
                    for (int64_t j = 0; j < c.C; j++)
                        sum[(i % c.T) * c.C + j] += dout[i * c.C + j];
                for (size_t i = 0; i < sum.size(); i++)
                    dwpe[i] += sum[i];
                expect_same_bits(got, dwpe, std::to_string(k) + " of " + std::to_string(parts));
            }
        }
}

/* Difficult inputs of the sort: a single token, no token twice, reverse order, tokens whose digits
 * overflow into the next, and numbers of rows near its block size. */
TEST_P(Embedding, BackwardSortsAnyTokens)
{
    for (int64_t n : {63, 64, 65, 4096, 5000})
        for (int kind = 0; kind < 4; kind++) {
            const Case c = {kind == 3 ? 100003 : 6000, 1, n, 1, 0};
            Ints tokens(n);
            for (int64_t i = 0; i < n; i++)
                tokens[i] = (int32_t)(kind == 0   ? 5
                                      : kind == 1 ? i
                                      : kind == 2 ? n - 1 - i
                                                  : (i * 511 + i / 3) % c.V);
            Floats dwte = normal(c.V), dout = rounded(normal(n));
            expect_same_bits(on_device(dwte, {}, dout, tokens, c).dwte,
                             on_host(dwte, {}, dout, tokens, c).dwte,
                             std::to_string(n) + " rows, kind " + std::to_string(kind));
        }
}

TEST_P(Embedding, TenRunsGiveTheSameBits)
{
    const Case c = {31, 7, 50, 3, 0};
    Ints tokens = below(150, 31);
    Floats dwte = normal(31 * 7), dwpe = normal(50 * 7), dout = rounded(normal(150 * 7));
    Grads first = on_device(dwte, dwpe, dout, tokens, c);
    for (int run = 1; run < 10; run++) {
        Grads again = on_device(dwte, dwpe, dout, tokens, c);
        expect_same_bits(again.dwte, first.dwte, "dwte");
        expect_same_bits(again.dwpe, first.dwpe, "dwpe");
    }
}

/* Positions of documents; some are outside of the table, and read its last row. */
TEST_P(Embedding, PositionsMayBeGiven)
{
    for (const Case &c : cases) {
        const int64_t n = c.T * c.batch;
        const Ints tokens = below(n, (int32_t)c.V);
        Ints places = below(n, (int32_t)c.T);
        places[n / 2] = n % 2 ? -1 : (int32_t)c.T;
        const Floats wte = rounded(normal(c.V * c.C)), wpe = rounded(normal(c.T * c.C));
        rf_embedding_args args = {.T = c.T,
                                  .tokens = i32(rf_shape1(n), tokens),
                                  .wte = in(rf_shape2(c.V, c.C), wte),
                                  .wpe = in(rf_shape2(c.T, c.C), wpe),
                                  .positions = i32(rf_shape1(n), places)};
        Floats want(n * c.C);
        for (int64_t i = 0; i < n; i++) {
            const int64_t place = places[i] < 0 || places[i] >= c.T ? c.T - 1 : places[i];
            for (int64_t k = 0; k < c.C; k++)
                want[i * c.C + k] = wte[tokens[i] * c.C + k] + wpe[place * c.C + k];
        }
        for (int64_t vocabulary : {(int64_t)0, c.V}) {
            args.vocabulary = vocabulary;
            args.out = out(rf_shape2(n, c.C), c.shift);
            ASSERT_OK(rf_embedding(stream, args));
            expect_same_bits(read(args.out), rounded(want), "positions");
        }
    }
}

TEST_P(Embedding, WrongOperandsAreNamed)
{
    rf_tensor out = blank(rf_shape2(6, 4)), tokens = blank_i32(6), wte = blank(rf_shape2(9, 4));
    rf_tensor wpe = blank(rf_shape2(3, 4)), scratch = blank_i32(rf_embedding_scratch(6, 9));
    rf_tensor narrow = blank(rf_shape2(9, 3));
    using A = rf_embedding_args;
    const A look = {.T = 3, .tokens = tokens, .wte = wte, .wpe = wpe, .out = out};
    const A back = {
        .T = 3, .tokens = tokens, .dout = out, .dwte = wte, .dwpe = wpe, .scratch = scratch};
    EXPECT_FAILS(RF_EINVAL, "multiple of T = 4", rf_embedding(stream, with(look, &A::T, 4)));
    EXPECT_FAILS(RF_EINVAL, "multiple of T = 0", rf_embedding(stream, with(look, &A::T, 0)));
    EXPECT_FAILS(RF_EINVAL, "wpe has 3 rows", rf_embedding(stream, with(look, &A::T, 6)));
    EXPECT_FAILS(RF_EINVAL, "wpe is f32 (3, 4)", rf_embedding(stream, with(look, &A::wte, narrow)));
    EXPECT_FAILS(RF_EINVAL, "wte has no buffer", rf_embedding(stream, with(look, &A::wte, {})));
    EXPECT_FAILS(RF_EINVAL, "tokens is f32", rf_embedding(stream, with(look, &A::tokens, out)));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap wte",
                 rf_embedding(stream, {.T = 3, .tokens = blank_i32(9), .wte = wte, .out = wte}));
    EXPECT_FAILS(RF_EINVAL, "scratch",
                 rf_embedding_backward(stream, with(back, &A::scratch, tokens)));
    EXPECT_FAILS(RF_EINVAL, "dout", rf_embedding_backward(stream, with(back, &A::dout, narrow)));
    EXPECT_FAILS(RF_EINVAL, "rows 3 to 11 are no part of a vocabulary of 11",
                 rf_embedding(stream, with(with(look, &A::first, 3), &A::vocabulary, 11)));
    EXPECT_FAILS(RF_EINVAL, "first_row 4 and rows 3 go beyond the 6 rows",
                 rf_embedding_backward(stream, with(with(back, &A::first_row, 4), &A::rows, 3)));
    EXPECT_FAILS(RF_EINVAL, "dwte must not overlap dwpe",
                 rf_embedding_backward(stream, with(back, &A::dwpe, wte)));
    EXPECT_FAILS(RF_EINVAL, "dwte has no buffer",
                 rf_embedding_backward(stream, {.T = 3, .tokens = tokens, .dout = out}));
}

TEST_P(Embedding, FieldsThatACallDoesNotUseAreRefused)
{
    using A = rf_embedding_args;
    const rf_tensor out = blank(rf_shape2(6, 4)), tokens = blank_i32(6),
                    wte = blank(rf_shape2(9, 4));
    const A look = {.T = 3, .tokens = tokens, .wte = wte, .out = out};
    const A back = {.T = 3, .tokens = tokens, .dout = out, .dwpe = wte};
    for (auto [name, field] : {std::pair("dout", &A::dout),
                               {"dwte", &A::dwte},
                               {"dwpe", &A::dwpe},
                               {"scratch", &A::scratch},
                               {"positions", &A::positions}}) /* without wpe */
        EXPECT_FAILS(RF_EINVAL, std::string(name) + " has no use",
                     rf_embedding(stream, with(look, field, tokens)));
    for (auto [name, field] : {std::pair("out", &A::out),
                               {"wte", &A::wte},
                               {"wpe", &A::wpe},
                               {"positions", &A::positions},
                               {"scratch", &A::scratch}}) /* without dwte */
        EXPECT_FAILS(RF_EINVAL, std::string(name) + " has no use",
                     rf_embedding_backward(stream, with(back, field, tokens)));
    EXPECT_FAILS(RF_EINVAL, "rows has no use", rf_embedding(stream, with(look, &A::rows, 2)));
    EXPECT_FAILS(RF_EINVAL, "first has no use", rf_embedding(stream, with(look, &A::first, 2)));
}
} // namespace
