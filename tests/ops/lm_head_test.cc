/* SPDX-License-Identifier: MIT
 *
 * The chunked head of a language model: the same result for every chunk size, up to the order of
 * dw's sums.
 */
#include "op_fixture.h"
#include "support/reference_ops.h"

namespace
{
struct Case {
    int64_t rows, C, V;
};
const Case cases[] = {{1, 1, 1}, {1, 4, 2}, {3, 5, 7}, {17, 16, 257}, {37, 24, 64}, {70, 33, 131}};

class LmHead : public TypedOpTest
{
  protected:
    void SetUp() override
    {
        TypedOpTest::SetUp();
        if (std::string("none") == matmul_path(device, type(), 3, 5, 7))
            GTEST_SKIP() << "no path of rf_matmul takes " << rf_dtype_name(type()) << " here";
    }
    struct Data {
        Floats x, w;
        Ints targets;
    };
    Data data(const Case &c)
    {
        Data d = {rounded(normal(c.rows * c.C)), rounded(normal(c.V * c.C, 0.3f)),
                  below(c.rows, (int32_t)c.V)};
        if (c.rows > 2)
            d.targets[1] = -1;
        return d;
    }
    rf_tensor scratch_for(int64_t chunk, int64_t V)
    {
        int64_t bytes = rf_lm_head_scratch(chunk, V, type());
        std::vector<unsigned char> fill(bytes, 0x7f); /* NaNs */
        return words(rf_shape1(bytes), RF_U8, fill.data(), 0);
    }
    struct Result {
        Floats losses, dx, dw;
    };
    Result run(const Case &c, const Data &d, const Floats &before, int64_t chunk,
               rf_dtype grad = RF_F32, bool in_place = false)
    {
        rf_shape rows = rf_shape2(c.rows, c.C), table = rf_shape2(c.V, c.C);
        rf_tensor x = in(rows, d.x), dx = in_place ? x : out(rows);
        rf_tensor losses = blank(rf_shape1(c.rows)), dw = typed(table, grad, before);
        EXPECT_OK(rf_lm_head(stream, {.x = x,
                                      .w = in(table, d.w),
                                      .targets = i32(rf_shape1(c.rows), d.targets),
                                      .losses = losses,
                                      .dx = dx,
                                      .dw = dw,
                                      .scratch = scratch_for(chunk, c.V)}));
        return {read(losses), read(dx), read(dw)};
    }
};
ALL_TYPES(LmHead);

TEST_P(LmHead, MatchesTheReferenceForEveryChunk)
{
    /* In 16 bits logits are rounded, so probabilities are off by that times themselves; then
     * they are rounded, and summed over columns or rows. */
    const double near = type() == RF_F32 ? 2e-5 : 10 * step_of(type());
    for (const Case &c : cases)
        for (int64_t chunk : {(int64_t)1, (int64_t)7, c.rows, 3 * c.rows}) {
            Data d = data(c);
            Floats before = whole(c.V * c.C);
            auto want = reference::lm_head(wide(d.x), wide(d.w), d.targets, c.V, c.C);
            for (size_t i = 0; i < before.size(); i++)
                want.dw[i] += before[i];
            std::string name = std::to_string(c.rows) + " rows by " + std::to_string(chunk);
            Result got = run(c, d, before, chunk);
            expect_near(got.losses, want.losses, near, name + ", losses");
            expect_near(got.dx, want.dx, near, name + ", dx");
            expect_near(got.dw, want.dw, near, name + ", dw");
            Result in_place = run(c, d, before, chunk, RF_F32, true);
            expect_same_bits(in_place.dx, got.dx, name + ", dx in place");
            expect_same_bits(in_place.dw, got.dw, name + ", dw when dx is in place");
            Result narrow = run(c, d, before, c.rows, type());
            /* Relative to whole numbers up to 8, and the addend. */
            expect_near(narrow.dw, want.dw, near + step_of(type()), name + ", dw of the type");
        }
}

TEST_P(LmHead, WhatIsNotWantedIsNotComputed)
{
    const Case c = {17, 16, 257};
    Data d = data(c);
    Result all = run(c, d, Floats(c.V * c.C), 5);
    rf_shape rows = rf_shape2(c.rows, c.C), table = rf_shape2(c.V, c.C);
    rf_tensor x = in(rows, d.x), w = in(table, d.w), targets = i32(rf_shape1(c.rows), d.targets);
    rf_tensor losses = blank(rf_shape1(c.rows)), dx = out(rows), dw = f32(table, Floats(c.V * c.C));
    rf_lm_head_args args = {
        .x = x, .w = w, .targets = targets, .losses = losses, .scratch = scratch_for(5, c.V)};
    ASSERT_OK(rf_lm_head(stream, args));
    expect_same_bits(read(losses), all.losses, "losses");
    args.dx = dx;
    ASSERT_OK(rf_lm_head(stream, args));
    expect_same_bits(read(dx), all.dx, "dx");
    args.dx = {};
    args.dw = dw;
    ASSERT_OK(rf_lm_head(stream, args));
    expect_same_bits(read(dw), all.dw, "dw");
}

TEST_P(LmHead, TenRunsGiveTheSameBits)
{
    const Case c = {37, 24, 64};
    Data d = data(c);
    Floats before = normal(c.V * c.C);
    Result first = run(c, d, before, 10);
    for (int i = 1; i < 10; i++) {
        Result again = run(c, d, before, 10);
        expect_same_bits(again.losses, first.losses, "losses");
        expect_same_bits(again.dx, first.dx, "dx");
        expect_same_bits(again.dw, first.dw, "dw");
    }
}

TEST_P(LmHead, WrongOperandsAreNamed)
{
    rf_tensor x = out(rf_shape2(3, 4)), dx = out(rf_shape2(3, 4)), w = out(rf_shape2(5, 4));
    rf_tensor dw = blank(rf_shape2(5, 4)), losses = blank(rf_shape1(3)), targets = blank_i32(3);
    rf_tensor scratch = scratch_for(1, 5), small = scratch;
    small.shape = rf_shape1(scratch.shape.dim[0] - 1);
    using A = rf_lm_head_args;
    const A good = {.x = x,
                    .w = w,
                    .targets = targets,
                    .losses = losses,
                    .dx = dx,
                    .dw = dw,
                    .scratch = scratch};
    EXPECT_FAILS(RF_EINVAL, "one row needs", rf_lm_head(stream, with(good, &A::scratch, small)));
    EXPECT_FAILS(RF_EINVAL, "lm_head: dx", rf_lm_head(stream, with(good, &A::dx, w)));
    EXPECT_FAILS(RF_EINVAL, "lm_head: dw", rf_lm_head(stream, with(good, &A::dw, losses)));
    EXPECT_FAILS(RF_EINVAL, "lm_head: x", rf_lm_head(stream, with(good, &A::x, w)));
    EXPECT_FAILS(RF_EINVAL, "expected u8", rf_lm_head(stream, with(good, &A::scratch, dx)));
}
} // namespace
