/* SPDX-License-Identifier: MIT
 *
 * The elements of packed weights, with the numbers that the programs compute which wrote them:
 * bitsandbytes (dequantize_4bit, int8_vectorwise_dequant), GPTQModel, AutoAWQ, and files of
 * FP8. See packed.h.
 */
#include <math.h>

#include "../base/base.h"
#include "../base/small_float.h"
#include "../coll/reduce.h"
#include "../ops/quantize.h"
#include "packed.h"

const float *rf_packed_levels(enum rf_packed_kind kind)
{
    static const float fp4[16] = {0,        1.F / 192, 2.F / 3,  1,          1.F / 3,  1.F / 2,
                                  1.F / 6,  1.F / 4,   -0.F,     -1.F / 192, -2.F / 3, -1,
                                  -1.F / 3, -1.F / 2,  -1.F / 6, -1.F / 4};
    return kind == RF_PACKED_FP4 ? fp4 : rf_nf4_levels;
}

/* ---- the parts in memory --------------------------------------------------------------------- */

void rf_packed_forget(struct rf_packed *p)
{
    for (int k = 0; k < RF_PACKED_PARTS; k++) {
        rf_free(p->data[k]);
        p->data[k] = NULL;
    }
}

static int load_part(struct rf_packed *p, int part, enum rf_dtype as)
{
    const struct rf_packed_tensor *t = &p->parts[part];
    const struct rf_file_tensor *tensor = rf_safetensors_tensor(t->file, t->index);
    const uint64_t count = (uint64_t)rf_shape_count(tensor->shape);
    /* The one type that is not the library's is E4M3. */
    const uint64_t size = tensor->dtype == RF_DTYPE_COUNT ? 1 : rf_dtype_bytes(tensor->dtype);
    const uint64_t bytes = count * size;
    const bool widen = as == RF_F32 && tensor->dtype != RF_F32;
    void *data = rf_alloc(bytes + 4), *wide = widen ? rf_alloc(4 * count + 4) : NULL;
    if (!data || (widen && !wide)) {
        rf_free(data);
        return rf_fail(RF_ENOMEM, "out of memory for the parts of %s", p->name);
    }
    p->data[part] = widen ? wide : data;
    int rc = rf_safetensors_read(t->file, t->index, 0, data, bytes);
    if (rc == 0 && widen)
        rf_widen(wide, data, count, tensor->dtype);
    if (widen)
        rf_free(data);
    return rc;
}

/* Each input's group is one of those that have scales. */
static int check_order(const struct rf_packed *p)
{
    const int32_t *order = p->data[RF_PACKED_ORDER];
    const int64_t groups = order ? (p->columns + p->block - 1) / p->block : 0;
    for (int64_t i = 0; order && i < p->columns; i++)
        if (order[i] < 0 || order[i] >= groups)
            return rf_fail(RF_ECORRUPT, "%s: its g_idx has the group %d of %lld", p->name, order[i],
                           (long long)groups);
    return 0;
}

static int load(struct rf_packed *p)
{
    const bool widens = p->layout->kind == RF_PACKED_GPTQ || p->layout->kind == RF_PACKED_AWQ ||
                        p->layout->kind == RF_PACKED_FP8;
    int rc = 0;
    if (p->data[RF_PACKED_CODES])
        return 0;
    for (int k = 0; rc == 0 && k < RF_PACKED_PARTS; k++)
        if (p->parts[k].file && k != RF_PACKED_STATE && k != RF_PACKED_LEVELS)
            rc = load_part(p, k, widens && k == RF_PACKED_SCALES ? RF_F32 : RF_DTYPE_COUNT);
    if (rc == 0)
        rc = check_order(p);
    if (rc < 0)
        rf_packed_forget(p);
    return rc;
}

/* ---- values ---------------------------------------------------------------------------------- */

static float scale_of(const struct rf_packed *p, uint64_t block)
{
    if (!p->nested_block)
        return ((const float *)p->data[RF_PACKED_SCALES])[block];
    const float level =
        ((const float *)
             p->data[RF_PACKED_NESTED_LEVELS])[((const uint8_t *)p->data[RF_PACKED_SCALES])[block]];
    const float part =
        level *
        ((const float *)p->data[RF_PACKED_NESTED_SCALES])[block / (uint64_t)p->nested_block];
    return part + p->offset;
}

static void four_bits(const struct rf_packed *p, uint64_t first, uint64_t count, float *out)
{
    const uint8_t *codes = p->data[RF_PACKED_CODES];
    const float *levels = rf_packed_levels(p->layout->kind);
    const uint64_t block = (uint64_t)p->block;
    for (uint64_t i = first, end = first + count; i < end;) {
        const float scale = scale_of(p, i / block);
        const uint64_t last = (i / block + 1) * block < end ? (i / block + 1) * block : end;
        for (; i < last; i++)
            *out++ = levels[codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * scale;
    }
}

/* The factor is 1 / 127, as bitsandbytes has it in f32. */
static void eight_bits(const struct rf_packed *p, uint64_t first, uint64_t count, float *out)
{
    static const float factor = 7.874015718698502e-3F;
    const int8_t *codes = p->data[RF_PACKED_CODES];
    const float *scales = p->data[RF_PACKED_SCALES];
    for (uint64_t i = first; i < first + count; i++) {
        const float product = (float)codes[i] * scales[i / (uint64_t)p->columns];
        *out++ = product * factor;
    }
}

/* Code minus zero is exact, so a value is rounded once, as in the type of the scales. */
static void groups(const struct rf_packed *p, uint64_t first, uint64_t count, float *out)
{
    static const int awq[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* the place of each column in a word */
    const bool gptq = p->layout->kind == RF_PACKED_GPTQ;
    const uint32_t *codes = p->data[RF_PACKED_CODES], *zeros = p->data[RF_PACKED_ZEROS];
    const int32_t *order = p->data[RF_PACKED_ORDER];
    const float *scales = p->data[RF_PACKED_SCALES];
    const uint64_t columns = (uint64_t)p->columns, rows = (uint64_t)p->rows;
    /* The program that reads such files adds to whole words, so a borrow is in the next zero. */
    const uint32_t one = p->layout->adds_one ? 0x11111111u : 0;
    for (uint64_t at = first; at < first + count; at++) {
        const uint64_t row = at / columns, column = at % columns;
        const uint64_t group = order ? (uint64_t)order[column] : column / (uint64_t)p->block;
        const int place = 4 * (gptq ? (int)(row % 8) : awq[row % 8]);
        const uint32_t word =
            gptq ? codes[column / 8 * rows + row] : codes[column * (rows / 8) + row / 8];
        const uint32_t code = word >> (gptq ? 4 * (column % 8) : (uint64_t)place) & 15;
        const uint32_t zero = (zeros[group * (rows / 8) + row / 8] + one) >> place & 15;
        *out++ = scales[group * rows + row] * (float)((int)code - (int)zero);
    }
}

static float fp8_scale(const struct rf_packed *p, uint64_t index)
{
    const float *scales = p->data[RF_PACKED_SCALES];
    const uint64_t columns = (uint64_t)p->columns, block = (uint64_t)p->block;
    const uint64_t row = index / columns, column = index % columns;
    if (!block)
        return scales[p->scales == 1 ? 0 : row];
    return scales[row / block * ((columns + block - 1) / block) + column / block];
}

static void fp8(const struct rf_packed *p, uint64_t first, uint64_t count, float *out)
{
    const uint8_t *codes = p->data[RF_PACKED_CODES];
    for (uint64_t i = first; i < first + count; i++)
        *out++ = rf_small_float_value(RF_E4M3, codes[i]) * fp8_scale(p, i);
}

static void round_to(enum rf_dtype dtype, uint64_t count, float *values)
{
    enum { PIECE = 1024 };
    uint16_t piece[PIECE];
    for (uint64_t at = 0; dtype != RF_F32 && at < count; at += PIECE) {
        const uint64_t n = count - at < PIECE ? count - at : PIECE;
        rf_narrow(piece, values + at, n, dtype);
        rf_widen(values + at, piece, n, dtype);
    }
}

int rf_packed_read(struct rf_packed *p, uint64_t first, uint64_t count, float *values)
{
    RETURN_IF_ERROR(load(p));
    switch (p->layout->kind) {
    case RF_PACKED_NF4:
    case RF_PACKED_FP4:
        four_bits(p, first, count, values);
        break;
    case RF_PACKED_INT8:
        eight_bits(p, first, count, values);
        break;
    case RF_PACKED_FP8:
        fp8(p, first, count, values);
        break;
    default:
        groups(p, first, count, values);
    }
    round_to(p->dtype, count, values);
    return 0;
}

/* ---- the bytes of quantised tensors ---------------------------------------------------------- */

/* Scales of blocks, rows or the whole, for each RF_QUANTIZE_BLOCK elements. */
static int quantized_fp8(struct rf_packed *p, const struct rf_quantized_layout *l, uint8_t *bytes)
{
    const uint64_t block = RF_QUANTIZE_BLOCK, count = (uint64_t)(p->rows * p->columns);
    if (p->layout->kind != RF_PACKED_FP8 || p->dtype != RF_F32 || p->columns % RF_QUANTIZE_BLOCK ||
        p->block % RF_QUANTIZE_BLOCK || l->bytes == 0)
        return 0;
    RETURN_IF_ERROR(load(p));
    const uint8_t *codes = p->data[RF_PACKED_CODES];
    for (uint64_t i = 0; i < count; i++)
        if ((codes[i] & 127) == 127 || (i % block == 0 && !isfinite(fp8_scale(p, i))))
            return 0; /* what is not finite is named when it is read */
    memset(bytes, 0, l->bytes);
    memcpy(bytes, codes, count);
    for (uint64_t i = 0; i < count; i += block) {
        const float scale = fp8_scale(p, i);
        memcpy(bytes + l->blocks + i / block * sizeof(scale), &scale, sizeof(scale));
    }
    return 1;
}

static bool has_our_levels(const struct rf_packed *p)
{
    const float *levels = p->data[RF_PACKED_NESTED_LEVELS];
    for (int i = 0; i < 256; i++)
        if (!(levels[i] == rf_dynamic_value((uint8_t)i)))
            return false;
    return true;
}

int rf_packed_quantized(struct rf_packed *p, enum rf_quantization kind, void *bytes)
{
    const int64_t count = p->rows * p->columns;
    const struct rf_quantized_layout l = rf_quantized_layout(kind, count);
    if (kind == RF_FP8)
        return quantized_fp8(p, &l, bytes);
    if (kind != RF_NF4 || p->layout->kind != RF_PACKED_NF4 || p->block != RF_QUANTIZE_BLOCK ||
        p->nested_block != RF_NF4_GROUP || count % 2 || l.bytes == 0)
        return 0;
    RETURN_IF_ERROR(load(p));
    if (!has_our_levels(p))
        return 0;
    const uint64_t blocks = ((uint64_t)count + RF_QUANTIZE_BLOCK - 1) / RF_QUANTIZE_BLOCK;
    const uint64_t nested = (blocks + RF_NF4_GROUP - 1) / RF_NF4_GROUP;
    for (uint64_t i = 0; i < nested; i++)
        if (!isfinite(((const float *)p->data[RF_PACKED_NESTED_SCALES])[i]))
            return rf_fail(RF_ECORRUPT, "%s: number %llu of its nested_absmax is not finite",
                           p->name, (unsigned long long)i);
    memset(bytes, 0, l.bytes);
    memcpy(bytes, p->data[RF_PACKED_CODES], (uint64_t)count / 2);
    memcpy((char *)bytes + l.blocks, p->data[RF_PACKED_SCALES], blocks);
    memcpy((char *)bytes + l.largest, p->data[RF_PACKED_NESTED_SCALES], nested * sizeof(float));
    memcpy((char *)bytes + l.offset, &p->offset, sizeof(p->offset));
    return 1;
}
