/* SPDX-License-Identifier: MIT
 *
 * Weights in 4 or 8 bits, for models whose weights are not trained (Dettmers et al. 2023, QLoRA). A
 * quantised tensor is a row of bytes: RF_U8, rf_quantized_bytes() of them. rf_matmul multiplies by
 * it (rf_matmul_opts.b_quantized). Functions here run on the host, do not block, and may be called
 * by several threads with different objects.
 *
 * n elements are divided into blocks of 64 in memory order, whatever the shape: a row may begin
 * inside a block. B = ceil(n / 64). The sections follow each other, each padded to 4 bytes:
 *
 *   RF_NF4   ceil(n / 2)       two levels a byte, the first in the high bits (of a last odd one: 7)
 *            B                 codes of the blocks' largest magnitudes, less the offset (8-bit
 *                              dynamic map of bitsandbytes)
 *            4 ceil(B / 256)   f32: largest magnitude of each 256 of those
 *            4                 f32: the offset, the mean of the blocks' largest magnitudes
 *            4.127 bits an element of a large tensor. Element = level * (code * largest + offset).
 *            Levels, codes and numbers are those of bitsandbytes (quantize_4bit with nf4, blocks of
 *            64 and compressed statistics) on a CPU with one thread.
 *   RF_INT8  n                 int8: round(127 x / largest), ties to even
 *            4 B               f32: largest / 127
 *            8.5 bits an element. Element = int8 * scale.
 *   RF_FP8   n                 E4M3: x / scale, to the nearest, ties to the even code
 *            4 B               f32: largest / 448
 *            8.5 bits an element. Element = E4M3 * scale.
 *   RF_MXFP4 ceil(n / 2)       E2M1, two a byte, the first in the low bits: x / scale, as above
 *            ceil(n / 32)      E8M0, of 32 elements each: 2^floor(log2 largest) / 4, at least
 * 2^-126 4.25 bits an element. Element = E2M1 * scale (OCP Microscaling Formats 1.0). RF_NVFP4
 * ceil(n / 2)       E2M1, as above ceil(n / 16)      E4M3, of 16 elements each: largest / 6 /
 * tensor's scale, nearest 4                 f32: the tensor's scale, largest / (6 * 448) 4.5 bits
 * an element. Element = E2M1 * (E4M3 * tensor's scale).
 *
 * E4M3, E2M1 and E8M0 are the OCP formats; NaN is no code here. Codes of E2M1 and E4M3 saturate.
 */
#ifndef RINGFORGE_QUANTIZE_H
#define RINGFORGE_QUANTIZE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rf_quantization {
    RF_QUANTIZE_NONE = 0,
    RF_NF4,
    RF_INT8,
    RF_FP8,
    RF_MXFP4,
    RF_NVFP4,
    RF_QUANTIZATION_COUNT
};

#define RF_QUANTIZE_BLOCK 64 /* elements of a block */

/* "none", "nf4", "int8", "fp8", ...; NULL for other numbers. */
RF_EXPORT const char *rf_quantization_name(enum rf_quantization kind);

/* Bytes of `count` elements (see above), a multiple of 4; 0 if kind or count is out of range. */
RF_EXPORT uint64_t rf_quantized_bytes(enum rf_quantization kind, int64_t count);

/* The offsets of the sections of `count` elements, in bytes. */
struct rf_quantized_layout {
    uint64_t blocks;  /* RF_NF4: the codes of magnitudes; others: the scales */
    uint64_t largest; /* RF_NF4 only */
    uint64_t offset;  /* RF_NF4; RF_NVFP4: the tensor's scale */
    uint64_t bytes;
};
RF_EXPORT struct rf_quantized_layout rf_quantized_layout(enum rf_quantization kind, int64_t count);

/* Some rows of a quantised matrix, or some columns of all rows, as a tensor rank has them: their
 * elements row after row, as in the whole, and behind them the numbers of blocks. Rows begin and
 * end at whole blocks of 64 of the matrix; parts of rows, too. The numbers are those of the whole
 * matrix; RF_INT8 and RF_FP8: those of the part's blocks. */
struct rf_quantized_part {
    int64_t rows, columns;           /* of the whole matrix; 0: no part */
    int64_t first_row, first_column; /* of the part */
    uint64_t numbers;                /* bytes from the first element to the numbers */
};

/* Bytes of the elements and of the numbers of a part with `count` elements; `whole`: the elements
 * of the whole matrix. Both are 0 if kind or counts are out of range. */
struct rf_quantized_sizes {
    uint64_t elements, numbers;
};
RF_EXPORT struct rf_quantized_sizes rf_quantized_sizes(enum rf_quantization kind, int64_t count,
                                                       int64_t whole);

/* Writes `count` elements to `bytes`, of rf_quantized_bytes(), aligned to 4. RF_EINVAL: a value is
 * NaN or infinite; the message has its index. */
RF_API int rf_quantize(enum rf_quantization kind, const float *values, int64_t count, void *bytes);

/* The same in pieces, so that the values need not all be in memory. It keeps an f32 for each block.
 */
struct rf_quantizer;

/* How often all values have to be given: 2 for RF_NVFP4, which finds the largest first; else 1. */
RF_EXPORT int rf_quantizer_passes(enum rf_quantization kind);

/* For `count` elements in all. Free it with rf_quantizer_destroy. RF_ENOMEM. */
RF_API int rf_quantizer_create(enum rf_quantization kind, int64_t count, void *bytes,
                               struct rf_quantizer **out);

/* Adds the next `count` values: a multiple of 64, except for the last call. RF_EINVAL as in
 * rf_quantize. */
RF_API int rf_quantizer_add(struct rf_quantizer *quantizer, const float *values, int64_t count);

/* Call after the last value: writes the sections computed from all blocks. RF_EINVAL: values are
 * missing. */
RF_API int rf_quantizer_finish(struct rf_quantizer *quantizer);

RF_EXPORT void rf_quantizer_destroy(struct rf_quantizer *quantizer);

/* A quantised tensor of `count` elements. */
struct rf_quantized {
    enum rf_quantization kind;
    const void *bytes;
    int64_t count;
};

/* Elements [first, first + count): the values that kernels compute with, in f32. */
RF_API int rf_dequantize(struct rf_quantized tensor, int64_t first, int64_t count, float *values);

#ifdef __cplusplus
}
#endif

#endif
