/* SPDX-License-Identifier: MIT
 *
 * Strided copies and sums of heads.
 */
#include "op_fixture.h"

namespace
{
class CopyHeads : public TypedOpTest
{
};
ALL_TYPES(CopyHeads);

/* Whole numbers: copies and sums are exact. Sizes that are multiples of a quad and sizes that are
 * not; a tensor that begins at an odd element. */
TEST_P(CopyHeads, MovesOrAddsTheHeadsOfPackedRowsAndNothingElse)
{
    const int64_t B = 3, T = 5, H = 2, wide = 6, to_wide = 3;
    for (int64_t D : {1, 3, 4, 16, 300})
        for (int shift : {0, 1})
            for (bool adds : {false, true}) {
                Floats from = whole(B * T * wide * D), to = whole(B * T * to_wide * D);
                rf_tensor x = in(rf_shape3(B, T, wide * D), from, shift),
                          out = in(rf_shape3(B, T, to_wide * D), to);
                ASSERT_OK(rf_copy_heads(stream, rf_heads_in(out, D, 1, H), rf_heads_in(x, D, 3, H),
                                        adds));
                for (int64_t line = 0; line < B * T; line++)
                    for (int64_t i = 0; i < H * D; i++) {
                        float &at = to[(line * to_wide + 1) * D + i];
                        at = from[(line * wide + 3) * D + i] + (adds ? at : 0);
                    }
                expect_same_bits(read(out), to, "D " + std::to_string(D));
            }
}

/* The use in context parallelism: from parts of ranks, each with two chunks of every sequence, to
 * sequences. */
TEST_P(CopyHeads, StridesMayLeadFromRanksToSequences)
{
    const int64_t ranks = 3, B = 2, chunk = 4, C = 8, T = 2 * ranks * chunk;
    Floats from = whole(ranks * B * 2 * chunk * C), to(from.size());
    rf_tensor parts = in(rf_shape2(ranks * B * 2 * chunk, C), from), all = out(rf_shape3(B, T, C));
    rf_heads x = {parts, 0, B, chunk, ranks, C, 2 * chunk * C, C, B * 2 * chunk * C};
    rf_heads first = {all, 0, B, chunk, ranks, C, T * C, C, chunk * C}, second = first;
    ASSERT_OK(rf_copy_heads(stream, first, x, false));
    x.first = chunk * C;
    second.first = ranks * chunk * C;
    ASSERT_OK(rf_copy_heads(stream, second, x, false));
    for (int64_t rank = 0; rank < ranks; rank++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t half = 0; half < 2; half++)
                for (int64_t i = 0; i < chunk * C; i++)
                    to[(b * T + (half * ranks + rank) * chunk) * C + i] =
                        from[((rank * B + b) * 2 + half) * chunk * C + i];
    expect_same_bits(read(all), to, "sequences");
}

TEST_P(CopyHeads, WrongOperandsAreNamed)
{
    rf_tensor x = out(rf_shape3(2, 3, 24)), y = out(rf_shape3(2, 3, 24)), none = {};
    rf_heads from = rf_heads_in(x, 4, 0, 6), to = rf_heads_in(y, 4, 0, 6);
    EXPECT_FAILS(RF_EINVAL, "x has no buffer",
                 rf_copy_heads(stream, to, rf_heads_in(none, 4, 0, 6), false));
    EXPECT_FAILS(RF_EINVAL, "(2, 3, 5, 4)",
                 rf_copy_heads(stream, rf_heads_in(y, 4, 0, 5), from, false));
    EXPECT_FAILS(RF_EINVAL, "out must not overlap x",
                 rf_copy_heads(stream, rf_heads_in(x, 4, 0, 4), rf_heads_in(x, 4, 1, 4), false));
}
} // namespace
