/* SPDX-License-Identifier: MIT
 *
 * The inner loop of a matrix product in plain C, as in llm.c: sums of eight rows for each column of
 * the weights, so that a weight is read once for eight rows.
 */
#ifndef RF_BENCH_ROW_LOOP_H
#define RF_BENCH_ROW_LOOP_H

#include <stddef.h>

#define ROW_LOOP_ROWS 8

/* out (8, oc) = in (8, c) times weight (oc, c) transposed, plus bias (oc) or NULL. */
static inline __attribute__((always_inline)) void
row_loop(float *out, const float *in, const float *weight, const float *bias, int c, int oc)
{
    for (int o = 0; o < oc; o++) {
        const float *w = weight + (size_t)o * (size_t)c;
        float sum[ROW_LOOP_ROWS];
        for (int r = 0; r < ROW_LOOP_ROWS; r++)
            sum[r] = bias ? bias[o] : 0;
        for (int i = 0; i < c; i++) {
            const float x = w[i];
            for (int r = 0; r < ROW_LOOP_ROWS; r++)
                sum[r] += in[(size_t)r * (size_t)c + (size_t)i] * x;
        }
        for (int r = 0; r < ROW_LOOP_ROWS; r++)
            out[(size_t)r * (size_t)oc + (size_t)o] = sum[r];
    }
}

#endif
