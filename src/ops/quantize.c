/* SPDX-License-Identifier: MIT
 *
 * Quantises on the host, block by block: levels and largest magnitudes. quantize_codes.c computes
 * values over all blocks of a tensor. The kernels that read the result are those of rf_matmul.
 */
#include "quantize.h"

#include "../base/base.h"

#include <float.h>
#include <math.h>

enum { BLOCK = RF_QUANTIZE_BLOCK };

struct rf_quantizer {
    enum rf_quantization kind;
    struct rf_quantized_layout layout;
    uint8_t *bytes;
    int64_t count, done;
    float *absmax; /* RF_NF4: of each block */
    bool measures; /* RF_NVFP4: the first pass */
    float largest, scale;
};

const char *rf_quantization_name(enum rf_quantization kind)
{
    static const char *const names[] = {"none", "nf4", "int8", "fp8", "mxfp4", "nvfp4"};
    return (unsigned)kind < RF_QUANTIZATION_COUNT ? names[kind] : NULL;
}

static uint64_t blocks_of(uint64_t count, uint64_t block)
{
    return (count + block - 1) / block;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 3) / 4 * 4;
}

struct rf_quantized_layout rf_quantized_layout(enum rf_quantization kind, int64_t count)
{
    struct rf_quantized_layout l = {0};
    if (count < 1 || count > INT64_MAX / 8 || (int)kind <= 0 || kind >= RF_QUANTIZATION_COUNT)
        return l;
    const uint64_t n = (uint64_t)count, blocks = blocks_of(n, BLOCK);
    if (kind == RF_INT8 || kind == RF_FP8) {
        l.blocks = padded(n);
        l.bytes = l.blocks + 4 * blocks;
        return l;
    }
    if (kind != RF_NF4) {
        l.blocks = padded(blocks_of(n, 2));
        l.offset = l.blocks + padded(blocks_of(n, (uint64_t)rf_small_block(kind)));
        l.bytes = l.offset + (kind == RF_NVFP4 ? 4 : 0);
        return l;
    }
    l.blocks = padded(blocks_of(n, 2));
    l.largest = l.blocks + padded(blocks);
    l.offset = l.largest + 4 * blocks_of(blocks, RF_NF4_GROUP);
    l.bytes = l.offset + 4;
    return l;
}

uint64_t rf_quantized_bytes(enum rf_quantization kind, int64_t count)
{
    return rf_quantized_layout(kind, count).bytes;
}

bool rf_numbers_are_whole(enum rf_quantization kind)
{
    return kind != RF_INT8 && kind != RF_FP8;
}

struct rf_quantized_sizes rf_quantized_sizes(enum rf_quantization kind, int64_t count,
                                             int64_t whole)
{
    const struct rf_quantized_layout part = rf_quantized_layout(kind, count);
    const struct rf_quantized_layout all =
        rf_quantized_layout(kind, rf_numbers_are_whole(kind) ? whole : count);
    if (!part.bytes || !all.bytes)
        return (struct rf_quantized_sizes){0};
    return (struct rf_quantized_sizes){part.blocks, all.bytes - all.blocks};
}

/* ---- one block ------------------------------------------------------------------------------- */

/* The largest magnitude; above FLT_MAX if any value is NaN or infinite: magnitudes have the order
 * of their bits. Values past `count` are zeros. */
static float largest_of(const float values[BLOCK])
{
    int32_t bits[BLOCK], most = 0;
    float largest;
    memcpy(bits, values, sizeof(bits));
    for (int i = 0; i < BLOCK; i++) {
        const int32_t magnitude = bits[i] & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    memcpy(&largest, &most, sizeof(largest));
    return largest;
}

/* The level of x is the number of midpoints between levels that are below it. */
static void nf4_levels(const float values[BLOCK], float factor, uint8_t levels[BLOCK])
{
    int32_t level[BLOCK] = {0};
    float x[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        x[i] = values[i] * factor;
        x[i] = x[i] > 1 ? 1 : x[i];
        x[i] = x[i] < -1 ? -1 : x[i];
    }
    for (int l = 0; l < 15; l++) {
        const float middle = (rf_nf4_levels[l] + rf_nf4_levels[l + 1]) / 2;
        for (int i = 0; i < BLOCK; i++)
            level[i] += x[i] > middle;
    }
    for (int i = 0; i < BLOCK; i++)
        levels[i] = (uint8_t)level[i];
}

/* bitsandbytes multiplies whole blocks by the reciprocal, and divides the rest of a tensor. */
static void nf4_block(const float values[BLOCK], int count, float *absmax, uint8_t *bytes)
{
    static const float least = 1e-38F;
    uint8_t levels[BLOCK];
    float divided[BLOCK] = {0};
    const float divisor = *absmax > least ? *absmax : least;
    if (count < BLOCK) {
        *absmax = divisor;
        for (int i = 0; i < count; i++)
            divided[i] = values[i] / divisor;
    }
    nf4_levels(count < BLOCK ? divided : values, count < BLOCK ? 1 : 1 / divisor, levels);
    for (int i = 0; i < (count + 1) / 2; i++)
        bytes[i] = (uint8_t)(levels[2 * i] << 4 | levels[2 * i + 1]);
}

static void int8_block(const float values[BLOCK], int count, float absmax, float *scale,
                       int8_t *bytes)
{
    static const float rounder = 12582912; /* 1.5 * 2^23: adding it rounds to an integer */
    *scale = absmax / 127;
    const double factor = absmax > 0 ? 127 / (double)absmax : 0;
    for (int i = 0; i < count; i++)
        bytes[i] = (int8_t)(((float)(values[i] * factor) + rounder) - rounder);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int fail_value(const float *values, int count, int64_t first)
{
    int i = 0;
    while (i < count - 1 && isfinite(values[i]))
        i++;
    return rf_fail(RF_EINVAL, "quantize: element %lld is %g; weights have to be finite",
                   (long long)(first + i), (double)values[i]);
}

static int add_block(struct rf_quantizer *q, const float *values, int count)
{
    float whole[BLOCK] = {0};
    const int64_t block = q->done / BLOCK;
    if (count < BLOCK)
        values = memcpy(whole, values, (size_t)count * sizeof(float));
    float largest = largest_of(values);
    if (!isfinite(largest))
        return fail_value(values, count, q->done);
    if (q->measures) {
        q->largest = largest > q->largest ? largest : q->largest;
        q->done += count;
        return 0;
    }
    if (q->kind == RF_NF4) {
        nf4_block(values, count, &largest, q->bytes + q->done / 2);
        q->absmax[block] = largest;
    } else if (q->kind == RF_INT8) {
        int8_block(values, count, largest, (float *)(void *)(q->bytes + q->layout.blocks) + block,
                   (int8_t *)q->bytes + q->done);
    } else {
        rf_small_write(q->kind, values, count, q->done, q->scale, q->bytes, &q->layout);
    }
    q->done += count;
    return 0;
}

int rf_quantizer_passes(enum rf_quantization kind)
{
    return kind == RF_NVFP4 ? 2 : 1;
}

int rf_quantizer_create(enum rf_quantization kind, int64_t count, void *bytes,
                        struct rf_quantizer **out)
{
    const struct rf_quantized_layout layout = rf_quantized_layout(kind, count);
    if (layout.bytes == 0 || !bytes || (uintptr_t)bytes % 4 || !out)
        return rf_fail(RF_EINVAL,
                       "quantize: needs a kind, a count from 1 (here %lld) and memory "
                       "that is aligned to 4 bytes",
                       (long long)count);
    const size_t blocks = kind == RF_NF4 ? (size_t)blocks_of((uint64_t)count, BLOCK) : 0;
    struct rf_quantizer *q = rf_alloc(sizeof(*q));
    float *absmax = q && blocks ? rf_alloc(blocks * sizeof(float)) : NULL;
    if (!q || (blocks && !absmax)) {
        rf_free(q);
        return rf_fail(RF_ENOMEM, "quantize: no memory for the blocks of %lld elements",
                       (long long)count);
    }
    *q = (struct rf_quantizer){.kind = kind,
                               .layout = layout,
                               .bytes = bytes,
                               .count = count,
                               .absmax = absmax,
                               .measures = kind == RF_NVFP4};
    memset(bytes, 0, (size_t)layout.bytes); /* so that the padding is always the same */
    *out = q;
    return 0;
}

int rf_quantizer_add(struct rf_quantizer *q, const float *values, int64_t count)
{
    if (!q || !values || count < 0 || count > q->count - q->done ||
        (count % BLOCK && count != q->count - q->done))
        return rf_fail(RF_EINVAL,
                       "quantize: a piece has %lld values; give a multiple of %d, or the rest "
                       "of the tensor",
                       (long long)count, BLOCK);
    for (int64_t i = 0; i < count; i += BLOCK)
        RETURN_IF_ERROR(add_block(q, values + i, count - i < BLOCK ? (int)(count - i) : BLOCK));
    if (q->measures && q->done == q->count) {
        q->scale = q->largest / (6 * 448);
        q->scale = q->scale < FLT_MIN ? FLT_MIN : q->scale;
        q->measures = false;
        q->done = 0;
    }
    return 0;
}

int rf_quantizer_finish(struct rf_quantizer *q)
{
    if (!q || q->measures || q->done != q->count)
        return rf_fail(RF_EINVAL, "quantize: %lld of %lld values were given",
                       (long long)(q ? q->done : 0), (long long)(q ? q->count : 0));
    if (q->kind == RF_NF4)
        rf_nf4_compress(q->absmax, (int64_t)blocks_of((uint64_t)q->count, BLOCK),
                        q->bytes + q->layout.blocks,
                        (float *)(void *)(q->bytes + q->layout.largest),
                        (float *)(void *)(q->bytes + q->layout.offset));
    if (q->kind == RF_NVFP4)
        memcpy(q->bytes + q->layout.offset, &q->scale, sizeof(q->scale));
    return 0;
}

void rf_quantizer_destroy(struct rf_quantizer *q)
{
    if (!q)
        return;
    rf_free(q->absmax);
    rf_free(q);
}

int rf_quantize(enum rf_quantization kind, const float *values, int64_t count, void *bytes)
{
    struct rf_quantizer *q;
    RETURN_IF_ERROR(rf_quantizer_create(kind, count, bytes, &q));
    int status = 0;
    for (int pass = 0; status >= 0 && pass < rf_quantizer_passes(kind); pass++)
        status = rf_quantizer_add(q, values, count);
    if (status >= 0)
        status = rf_quantizer_finish(q);
    rf_quantizer_destroy(q);
    return status;
}

/* ---- back ------------------------------------------------------------------------------------ */

static float f32_at(const uint8_t *bytes, uint64_t index)
{
    float x;
    memcpy(&x, bytes + 4 * index, sizeof(x));
    return x;
}

static float nf4_value(const uint8_t *bytes, const struct rf_quantized_layout *l, uint64_t i)
{
    const uint64_t block = i / BLOCK;
    const float largest = f32_at(bytes + l->largest, block / RF_NF4_GROUP);
    const float absmax =
        rf_dynamic_value(bytes[l->blocks + block]) * largest + f32_at(bytes + l->offset, 0);
    return rf_nf4_levels[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15] * absmax;
}

int rf_dequantize(struct rf_quantized tensor, int64_t first, int64_t count, float *values)
{
    const struct rf_quantized_layout l = rf_quantized_layout(tensor.kind, tensor.count);
    if (l.bytes == 0 || !tensor.bytes || !values || first < 0 || count < 0 ||
        first > tensor.count - count)
        return rf_fail(
            RF_EINVAL,
            "dequantize: elements %lld to %lld of %lld are not there, or the kind is none",
            (long long)first, (long long)(first + count), (long long)tensor.count);
    const uint8_t *from = tensor.bytes;
    for (int64_t k = 0; k < count; k++) {
        const uint64_t i = (uint64_t)(first + k);
        values[k] = tensor.kind == RF_NF4 ? nf4_value(from, &l, i)
                    : tensor.kind == RF_INT8
                        ? (float)(int8_t)from[i] * f32_at(from + l.blocks, i / BLOCK)
                        : rf_small_read(tensor.kind, i, from, &l);
    }
    return 0;
}
