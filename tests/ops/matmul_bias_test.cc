/* SPDX-License-Identifier: MIT
 *
 * rf_bias_grad against fp64 column sums.
 */
#include "op_fixture.h"

#include "support/oracle.h"

using BiasGrad = OpTest;

TEST_F(BiasGrad, AddsTheColumnSumsForEveryShape)
{
    const int64_t shapes[][2] = {{1, 1},   {2, 3},    {63, 4},    {64, 8},   {65, 33},  {127, 64},
                                 {128, 5}, {129, 96}, {1024, 40}, {4096, 4}, {4097, 7}, {4161, 36}};
    for (auto [rows, columns] : shapes)
        for (int shift : {0, 1}) {
            const Floats dout = oracle::exact(rows * columns, engine), before = whole(columns);
            rf_tensor dbias = f32(rf_shape1(columns), before, shift);
            rf_tensor scratch = blank(rf_shape1(rf_bias_grad_scratch(rows, columns)), shift);
            EXPECT_OK(
                rf_bias_grad(stream, dbias, f32(rf_shape2(rows, columns), dout, shift), scratch));
            Doubles want = oracle::column_sums(wide(dout), columns);
            for (int64_t i = 0; i < columns; i++)
                want[i] += before[i];
            /* Multiples of 1/128 below 2^17: exact. */
            expect_near(read(dbias), want, 0,
                        std::to_string(rows) + " x " + std::to_string(columns));
        }
}

/* Sums are exact in f32, and rounded once if dbias has 16 bits. */
TEST_F(BiasGrad, TakesAndGivesEveryType)
{
    const int64_t shapes[][2] = {{1, 1}, {2, 3}, {64, 8}, {65, 33}, {129, 96}, {4161, 36}};
    for (auto [x, y] :
         {std::pair{RF_F16, RF_F32}, {RF_F16, RF_F16}, {RF_BF16, RF_F32}, {RF_BF16, RF_BF16}})
        for (auto [rows, columns] : shapes)
            for (int shift = 0; shift < 8; shift++) {
                const Floats dout = oracle::exact(rows * columns, engine), before = whole(columns);
                rf_tensor dbias = typed(rf_shape1(columns), y, before, shift);
                rf_tensor scratch = blank(rf_shape1(rf_bias_grad_scratch(rows, columns)), 1);
                EXPECT_OK(rf_bias_grad(stream, dbias,
                                       typed(rf_shape2(rows, columns), x, dout, shift), scratch));
                Doubles sums = oracle::column_sums(wide(dout), columns);
                Floats want(columns);
                for (int64_t i = 0; i < columns; i++)
                    want[i] = (float)(sums[i] + before[i]);
                expect_near(read(dbias), wide(rounded_to(y, want)), 0,
                            std::to_string(rows) + " x " + std::to_string(columns));
            }
    EXPECT_FAILS(RF_EINVAL, "dbias is bf16 (8)",
                 rf_bias_grad(stream, typed_blank(rf_shape1(8), RF_BF16),
                              typed_blank(rf_shape2(2, 8), RF_F16), {}));
}

TEST_F(BiasGrad, AlignmentDoesNotChangeBits)
{
    const int64_t rows = 777, columns = 36;
    const Floats dout = normal(rows * columns);
    Floats sums[2];
    for (int shift : {0, 1}) {
        rf_tensor dbias = f32(rf_shape1(columns), Floats(columns, 0), shift);
        rf_tensor scratch = blank(rf_shape1(rf_bias_grad_scratch(rows, columns)), shift);
        EXPECT_OK(rf_bias_grad(stream, dbias, f32(rf_shape2(rows, columns), dout, shift), scratch));
        sums[shift] = read(dbias);
    }
    expect_same_bits(sums[0], sums[1], "shifted by one element");
    expect_near(sums[0], oracle::column_sums(wide(dout), columns), 1e-5, "sums of 777");
}

TEST_F(BiasGrad, NamesWhatDoesNotFit)
{
    rf_tensor dbias = blank(rf_shape1(8)), dout = blank(rf_shape2(100, 8));
    rf_tensor scratch = blank(rf_shape1(rf_bias_grad_scratch(100, 8)));
    EXPECT_FAILS(RF_EINVAL, "dout", rf_bias_grad(stream, dbias, blank(rf_shape2(100, 9)), scratch));
    EXPECT_FAILS(RF_EINVAL, "scratch has 3",
                 rf_bias_grad(stream, dbias, dout, blank(rf_shape1(3))));
    rf_tensor row;
    ASSERT_OK(rf_tensor_rows(dout, 0, 1, &row));
    EXPECT_FAILS(RF_EINVAL, "dbias must not overlap dout",
                 rf_bias_grad(stream, row, dout, scratch));
}
