/* SPDX-License-Identifier: MIT
 *
 * Linear maps, attention and embedding of text generation; see decode.h.
 */
#include "decode.h"

#include <stdio.h>

#include "vocabulary.h"

int model_decode_linear(const struct rf_decode *call, const struct model_linear *linear,
                        struct rf_tensor out, struct rf_tensor in, struct rf_tensor residual)
{
    const struct rf_tensor none = {0};
    return rf_gemv(call->stream, out, in, call->params[linear->weight],
                   linear->bias ? call->params[linear->bias] : none, residual);
}

int model_decode_refuse(bool adapters, struct rf_decode_sizes *out)
{
    if (!adapters)
        return 0;
    snprintf(out->fault, sizeof(out->fault),
             "layers with adapters cannot generate text; merge the adapters into the weights");
    return RF_ENOTSUP;
}

/* ---- attention ------------------------------------------------------------------------------- */

static struct rf_shape cached(const struct model_decode_attention *a,
                              const struct rf_decode_shape *shape)
{
    return rf_shape4(shape->sequences, shape->length, a->keys, a->size);
}

uint64_t model_decode_cache_bytes(const struct model_decode_attention *a,
                                  const struct rf_decode_shape *shape)
{
    return 2 * rf_suballocate_bytes(cached(a, shape), a->dtype);
}

int64_t model_decode_columns(const struct model_decode_attention *a,
                             const struct rf_decode_shape *shape)
{
    return rf_attend_cache_scratch(1, a->heads, a->size, shape->length);
}

int model_decode_attend(const struct rf_decode *call, const struct model_decode_attention *a,
                        struct rf_tensor mixed, struct rf_tensor qkv, struct rf_tensor angles,
                        struct rf_tensor sums)
{
    struct rf_cache cache = {.sequence = call->sequence, .position = call->position};
    const struct rf_shape shape = cached(a, &call->shape);
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_suballocate(call->cache, &at, shape, a->dtype, &cache.keys));
    RETURN_IF_FAILED(rf_suballocate(call->cache, &at, shape, a->dtype, &cache.values));
    RETURN_IF_FAILED(rf_cache_append(call->stream, &cache, qkv, a->heads, angles));
    return rf_attend_cache(call->stream, mixed, qkv, &cache, a->heads, call->most, 0, sums);
}

/* ---- embedding ------------------------------------------------------------------------------- */

/* The table of positions is looked up like that of tokens, with positions instead of tokens. */
int model_decode_embed(const struct rf_decode *call, const struct model_embedding *e,
                       struct rf_tensor in, struct rf_tensor out)
{
    const struct rf_tensor none = {0};
    struct rf_tensor places;
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_embedding(call->stream, out, in, call->params[0], none, 1));
    if (!e->positions)
        return 0;
    RETURN_IF_FAILED(rf_suballocate(call->scratch, &at, out.shape, out.dtype, &places));
    RETURN_IF_FAILED(rf_embedding(call->stream, places, call->position, call->params[1], none, 1));
    return rf_add(call->stream, out, out, places);
}

int model_decode_embed_sizes(const struct model_embedding *e, const struct rf_decode_shape *shape,
                             struct rf_decode_sizes *out)
{
    const struct rf_shape rows = rf_shape2(shape->rows, e->channels);
    *out =
        (struct rf_decode_sizes){.scratch = e->positions ? rf_suballocate_bytes(rows, e->dtype) : 0,
                                 .out = rows,
                                 .dtype = e->dtype,
                                 .vocabulary = e->vocab};
    return 0;
}
