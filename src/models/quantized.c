/* SPDX-License-Identifier: MIT
 *
 * Quantises weights as they are read; see quantized.h.
 */
#include "quantized.h"

#include <stdlib.h>
#include <string.h>

#include "hub.h"
#include "layer_call.h"

#define PIECE ((int64_t)1 << 18) /* a multiple of RF_QUANTIZE_BLOCK */

struct quantized_source {
    enum rf_quantization kind;
    const struct rf_block *blocks, *plain;
    int count;
    struct quantized_values from;
    const struct rf_param_desc *kept; /* the parameter that `bytes` belongs to, or NULL */
    char *bytes;
};

int quantized_source_create(enum rf_quantization kind, const struct rf_block *blocks,
                            const struct rf_block *plain, int count, struct quantized_values from,
                            struct quantized_source **out)
{
    struct quantized_source *s = calloc(1, sizeof(*s));
    if (!s)
        return RF_ENOMEM;
    *s = (struct quantized_source){
        .kind = kind, .blocks = blocks, .plain = plain, .count = count, .from = from};
    *out = s;
    return 0;
}

void quantized_source_destroy(struct quantized_source *s)
{
    if (!s)
        return;
    free(s->bytes);
    free(s);
}

int quantized_modules(const struct rf_block *block, int param, int64_t rows[3])
{
    const struct layer_block *layer = block->self;
    if (block->params[param].dtype != RF_U8 ||
        (block->ops != &layer_block_ops && block->ops != &layer_pair_ops))
        return 0;
    for (int k = 0; k < layer->count; k++)
        if (layer->linear[k].weight == param && layer->linear[k].quantized) {
            memcpy(rows, layer->linear[k].module_rows, LORA_MODULES * sizeof(*rows));
            return layer->linear[k].modules;
        }
    return 0;
}

/* Rows of the tensors that are quantised separately. */
struct modules {
    int64_t rows[LORA_MODULES];
    int count;
};

/* Adapters follow the other parameters of a block, so these have the same index in both lists.
 */
static const struct rf_param_desc *find_quantized(const struct quantized_source *s,
                                                  const char *name, struct modules *out)
{
    for (int b = 0; b < s->count; b++)
        for (int k = 0; k < s->plain[b].param_count; k++)
            if (strcmp(s->plain[b].params[k].name, name) == 0) {
                out->count = quantized_modules(&s->blocks[b], k, out->rows);
                return out->count ? &s->plain[b].params[k] : NULL;
            }
    return NULL;
}

/* Elements [first, first + count) of the parameter. */
static int add_all(const struct quantized_source *s, const char *name, int64_t first, int64_t count,
                   struct rf_quantizer *quantizer)
{
    float *piece = malloc((size_t)PIECE * sizeof(*piece));
    int rc = piece ? 0 : RF_ENOMEM;
    const int64_t all = count * rf_quantizer_passes(s->kind);
    for (int64_t done = 0, n; rc == 0 && done < all; done += n) {
        const int64_t at = done % count;
        n = count - at < PIECE ? count - at : PIECE;
        rc = s->from.values.read(s->from.values.self, name, (uint64_t)(first + at), (uint64_t)n,
                                 piece);
        if (rc == 0)
            rc = rf_quantizer_add(quantizer, piece, n);
    }
    free(piece);
    return rc == 0 ? rf_quantizer_finish(quantizer) : rc;
}

/* One module of a weight: the bytes of the files if they have it in this form. */
static int quantize_module(const struct quantized_source *s, const char *name, int64_t first,
                           int64_t count, char *bytes)
{
    struct rf_quantizer *quantizer = NULL;
    int rc = s->from.packed
                 ? hub_source_quantized(s->from.packed, name, first, count, s->kind, bytes)
                 : 0;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (s->from.as_they_are)
        return rf_fail(RF_EINVAL,
                       "%s: the files do not have all of it in nf4 in blocks of 64 with nested "
                       "scales in blocks of 256, and config.json suggests that; use --quantize nf4 "
                       "to quantise it again, or --quantize none",
                       name);
    RETURN_IF_FAILED(rf_quantizer_create(s->kind, count, bytes, &quantizer));
    rc = add_all(s, name, first, count, quantizer);
    rf_quantizer_destroy(quantizer);
    return rc;
}

static int quantize(struct quantized_source *s, const struct rf_param_desc *param,
                    const struct modules *modules)
{
    const int64_t columns = rf_shape_count(param->shape) / param->shape.dim[0];
    uint64_t bytes = 0;
    int64_t first = 0;
    int rc = 0;
    free(s->bytes);
    s->kept = NULL;
    for (int k = 0; k < modules->count; k++)
        bytes += rf_quantized_bytes(s->kind, modules->rows[k] * columns);
    s->bytes = malloc(bytes);
    if (!s->bytes)
        return RF_ENOMEM;
    char *at = s->bytes;
    for (int k = 0; rc == 0 && k < modules->count; k++) {
        const int64_t count = modules->rows[k] * columns;
        rc = quantize_module(s, param->name, first, count, at);
        first += count;
        at += rf_quantized_bytes(s->kind, count);
    }
    if (rc == 0)
        s->kept = param;
    return rc;
}

static int read_param(void *self, const char *name, uint64_t first, uint64_t count, void *values)
{
    struct quantized_source *s = self;
    struct modules modules;
    const struct rf_param_desc *param = find_quantized(s, name, &modules);
    if (!param)
        return s->from.values.read(s->from.values.self, name, first, count, values);
    if (s->kept != param)
        RETURN_IF_FAILED(quantize(s, param, &modules));
    memcpy(values, s->bytes + first, count);
    return 0;
}

struct rf_param_source quantized_source_of(struct quantized_source *source)
{
    return (struct rf_param_source){.self = source, .read = read_param};
}
