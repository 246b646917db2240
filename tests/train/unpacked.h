// SPDX-License-Identifier: MIT
//
// Replaces a quantised weight's values by those that kernels compute with.
#ifndef RF_TESTS_TRAIN_UNPACKED_H
#define RF_TESTS_TRAIN_UNPACKED_H

#include <gtest/gtest.h>

#include <vector>

#include <ringforge/block.h>
#include <ringforge/quantize.h>

#include "quantized.h"

// Parameter `param` of a block, module by module.
inline void unpack(rf_quantization kind, const rf_block &block, int param,
                   std::vector<float> &values)
{
    int64_t all = 0, rows[3];
    const int modules = quantized_modules(&block, param, rows);
    for (int k = 0; k < modules; k++)
        all += rows[k];
    const int64_t columns = (int64_t)values.size() / all;
    EXPECT_EQ(all * columns, (int64_t)values.size());
    float *at = values.data();
    for (int k = 0; k < modules; k++) {
        const int64_t count = rows[k] * columns;
        std::vector<uint32_t> bytes(rf_quantized_bytes(kind, count) / 4);
        EXPECT_EQ(rf_quantize(kind, at, count, bytes.data()), 0);
        EXPECT_EQ(rf_dequantize({kind, bytes.data(), count}, 0, count, at), 0);
        at += count;
    }
}

#endif
