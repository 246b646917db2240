/* SPDX-License-Identifier: MIT
 *
 * Linear maps and attention of text generation; see decode.h.
 */
#include "decode.h"

/* ---- linear maps ----------------------------------------------------------------------------- */

/* Tensors of an adapter, the last ones of the scratch: low (n,r) of T, part (n, rows of a segment)
 * of the output's type, at most f32. */
static uint64_t low_bytes(const struct lora *lora, int64_t rows)
{
    return rf_suballocate_bytes(rf_shape2(rows, lora->rank), RF_F32);
}

static uint64_t adapter_bytes(const struct lora *lora, int64_t rows)
{
    int64_t most = 0;
    for (int k = 0; k < lora->count; k++)
        most = model_max(most, lora->segment[k].rows);
    return lora->rank ? low_bytes(lora, rows) + rf_suballocate_bytes(rf_shape2(rows, most), RF_F32)
                      : 0;
}

/* Bytes for the columns of one of several quantised modules, at the end of the scratch. */
static uint64_t modules_bytes(const struct model_linear *linear, int64_t n)
{
    uint64_t most = 0;
    for (int k = 0; linear->modules > 1 && k < linear->modules; k++) {
        const uint64_t bytes =
            rf_suballocate_bytes(rf_shape2(n, linear->module_rows[k]), RF_F32) + 256;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t model_decode_adapter_bytes(const struct rf_decode_shape *shape,
                                    const struct model_linear *const *linears, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        const uint64_t bytes = adapter_bytes(&linears[i]->lora, shape->rows),
                       modules = modules_bytes(linears[i], shape->rows);
        most = bytes > most ? bytes : most;
        most = modules > most ? modules : most;
    }
    return most;
}

/* Rows [first, first + count) of a matrix. */
static struct rf_tensor rows_of(struct rf_tensor t, int64_t first, int64_t count)
{
    t.offset += (uint64_t)(first * t.shape.dim[1]) * rf_dtype_bytes(t.dtype);
    t.shape.dim[0] = count;
    return t;
}

/* out = part, or out += part, in the columns [first, first + those of part). */
static int put_columns(struct rf_stream *stream, struct rf_tensor out, int64_t first,
                       struct rf_tensor part, bool adds)
{
    struct rf_heads columns = rf_heads_in(out, part.shape.dim[1], 0, 1);
    columns.first = first;
    return rf_copy_heads(stream, columns, rf_heads_in(part, part.shape.dim[1], 0, 1), adds);
}

/* out (n,N) += scale in A' B'. Each product and each sum treats rows independently. */
static int add_adapter(const struct rf_decode *call, const struct lora *lora, struct rf_tensor out,
                       struct rf_tensor in)
{
    const struct rf_tensor a = call->params[lora->a], b = call->params[lora->b];
    const int64_t n = call->shape.rows;
    const uint64_t end = (uint64_t)rf_tensor_count(call->scratch);
    const uint64_t begin = (end - adapter_bytes(lora, n)) / 256 * 256;
    for (int64_t k = 0, b_first = 0; k < lora->count; b_first += lora->segment[k++].rows) {
        const int64_t rows = lora->segment[k].rows;
        struct rf_tensor low, part;
        uint64_t at = begin;
        RETURN_IF_FAILED(
            rf_suballocate(call->scratch, &at, rf_shape2(n, lora->rank), in.dtype, &low));
        at = begin + low_bytes(lora, n);
        RETURN_IF_FAILED(rf_suballocate(call->scratch, &at, rf_shape2(n, rows), out.dtype, &part));
        RETURN_IF_FAILED(
            rf_gemv(call->stream, low, in, rows_of(a, k * lora->rank, lora->rank), NULL));
        RETURN_IF_FAILED(rf_scale(call->stream, low, low, lora->scale));
        RETURN_IF_FAILED(rf_gemv(call->stream, part, low, rows_of(b, b_first, rows), NULL));
        RETURN_IF_FAILED(put_columns(call->stream, out, lora->segment[k].first, part, true));
    }
    return 0;
}

/* Module by module, as in model_linear_forward. */
static int quantized_modules(const struct rf_decode *call, const struct model_linear *linear,
                             struct rf_tensor out, struct rf_tensor in)
{
    const int64_t n = call->shape.rows;
    const uint64_t end = (uint64_t)rf_tensor_count(call->scratch);
    const struct rf_tensor_part alone = {.ranks = 1};
    struct rf_gemv_opts opts = {.w_quantized = linear->quantized};
    for (int k = 0; k < linear->modules; k++) {
        const struct model_piece x =
            model_linear_piece(linear, k, call->params[linear->weight], in.shape.dim[1], &alone);
        uint64_t at = (end - modules_bytes(linear, n)) / 256 * 256;
        struct rf_tensor part, bias;
        RETURN_IF_FAILED(
            rf_suballocate(call->scratch, &at, rf_shape2(n, x.rows), out.dtype, &part));
        if (linear->bias) {
            bias = model_elements(call->params[linear->bias], x.first, x.rows);
            opts.bias = &bias;
        }
        RETURN_IF_FAILED(rf_gemv(call->stream, part, in, x.weight, &opts));
        RETURN_IF_FAILED(put_columns(call->stream, out, x.first, part, false));
    }
    return 0;
}

int model_decode_linear(const struct rf_decode *call, const struct model_linear *linear,
                        struct rf_tensor out, struct rf_tensor in, struct rf_tensor residual)
{
    const struct rf_gemv_opts opts = {.w_quantized = linear->quantized,
                                      .bias = linear->bias ? &call->params[linear->bias] : NULL,
                                      .residual = &residual};
    if (linear->modules > 1)
        RETURN_IF_FAILED(quantized_modules(call, linear, out, in));
    else
        RETURN_IF_FAILED(rf_gemv(call->stream, out, in, call->params[linear->weight], &opts));
    return linear->lora.rank ? add_adapter(call, &linear->lora, out, in) : 0;
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
    const struct rf_attend_cache_args args = {
        .q = qkv, .out = mixed, .scratch = sums, .heads = a->heads, .most = call->most};
    return rf_attend_cache(call->stream, &cache, &args);
}
