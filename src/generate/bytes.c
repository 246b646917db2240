/* SPDX-License-Identifier: MIT
 *
 * Computes the memory of a generator before anything is allocated.
 */
#include "generator.h"

#include "../base/base.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + RF_ARENA_ALIGNMENT - 1) / RF_ARENA_ALIGNMENT * RF_ARENA_ALIGNMENT;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The first parameter of a chain of tied ones. */
static const struct rf_param_desc *root_of(const struct rf_generator_layout *l, int count,
                                           const struct rf_param_desc *desc)
{
    for (int i = 0; desc->tied_to && i < count; i++)
        if (strcmp(l->params[i].desc->name, desc->tied_to) == 0) {
            desc = l->params[i].desc;
            i = -1;
        }
    return desc;
}

static int add_param(struct rf_generator_layout *l, int index, const struct rf_param_desc *desc)
{
    const int64_t elements = rf_shape_count(desc->shape);
    const char *root = root_of(l, index, desc)->name;
    int piece = l->piece_count;
    const bool raw = desc->dtype == RF_U8;
    if (!raw && desc->dtype != RF_F32 && desc->dtype != RF_F16 && desc->dtype != RF_BF16)
        return rf_fail(RF_ENOTSUP, "parameter %s is %s; text generation needs f32, f16, bf16 or u8",
                       desc->name, rf_dtype_name(desc->dtype));
    if (elements < 0 || (raw && (elements % 4 != 0 || desc->tied_to)))
        return rf_fail(RF_EINVAL,
                       "parameter %s has no valid shape; of u8 it must not be tied, and have a "
                       "multiple of 4 bytes",
                       desc->name);
    for (int i = 0; i < index; i++)
        if (strcmp(l->params[i].root, root) == 0 && l->params[i].desc->dtype == desc->dtype)
            piece = l->params[i].piece;
    l->params[index] = (struct rf_generator_param){desc, root, piece};
    if (piece == l->piece_count)
        l->param_bytes[l->piece_count++] =
            aligned((uint64_t)elements * rf_dtype_bytes(desc->dtype));
    return 0;
}

static int add_params(struct rf_generator_layout *l)
{
    int index = 0;
    for (int b = 0; b < l->count; b++)
        for (int k = 0; k < l->blocks[b].param_count; k++, index++)
            RETURN_IF_ERROR(add_param(l, index, &l->blocks[b].params[k]));
    return 0;
}

static int add_block(struct rf_generator_layout *l, int b)
{
    const struct rf_block *block = &l->blocks[b];
    struct rf_decode_sizes *s = &l->sizes[b];
    if (!block->ops->decode)
        return rf_fail(RF_ENOTSUP, "block %s cannot generate text: it has no decode functions",
                       block->name);
    const uint64_t errors = rf_fail_count();
    const int rc = block->ops->decode->sizes(block->self, &l->shape, s);
    if (rc < 0)
        return rf_fail(rc, "block %s: %s", block->name,
                       rf_fail_count() != errors ? rf_last_error()->message : rf_status_text(rc));
    const bool last = b + 1 == l->count;
    const uint64_t out = (uint64_t)rf_shape_count(s->out) * rf_dtype_bytes(s->dtype);
    l->cache_bytes[b] = aligned(s->cache);
    l->bytes[RF_PIECE_TABLE] = larger(l->bytes[RF_PIECE_TABLE], aligned(s->table));
    l->bytes[RF_PIECE_SCRATCH] = larger(l->bytes[RF_PIECE_SCRATCH], aligned(s->scratch));
    if (!last)
        l->bytes[RF_PIECE_X0] = larger(l->bytes[RF_PIECE_X0], aligned(out));
    else
        l->classes = s->out.ndim == 2 ? s->out.dim[1] : 0;
    return 0;
}

static int check_options(const struct rf_block *blocks, int count,
                         const struct rf_generator_opts *o)
{
    if (!blocks || count < 2 || !o)
        return rf_fail(RF_EINVAL, "generator: two blocks and options are needed");
    if (o->length < 1 || o->sequences < 0 || o->rows < 0 || o->length > INT32_MAX / 2 ||
        o->sequences > INT32_MAX / 2 || o->rows > INT32_MAX / 2)
        return rf_fail(RF_EINVAL,
                       "generator: length is %lld, sequences %lld and rows %lld; length must be at "
                       "least 1, and the others at least 0",
                       (long long)o->length, (long long)o->sequences, (long long)o->rows);
    return 0;
}

static int allocate(struct rf_generator_layout *l)
{
    const size_t params = (size_t)l->param_count + 1, blocks = (size_t)l->count;
    l->params = rf_alloc(params * sizeof(*l->params));
    l->param_bytes = rf_alloc(params * sizeof(*l->param_bytes));
    l->cache_bytes = rf_alloc(blocks * sizeof(*l->cache_bytes));
    l->sizes = rf_alloc(blocks * sizeof(*l->sizes));
    return l->params && l->param_bytes && l->cache_bytes && l->sizes
               ? 0
               : rf_fail(RF_ENOMEM, "generator: out of host memory");
}

static int fill(struct rf_generator_layout *l)
{
    RETURN_IF_ERROR(allocate(l));
    RETURN_IF_ERROR(add_params(l));
    for (int b = 0; b < l->count; b++)
        RETURN_IF_ERROR(add_block(l, b));
    if (l->classes < 1)
        return rf_fail(RF_ENOTSUP, "generator: the last block gives no logits");
    l->vocabulary = l->sizes[0].vocabulary;
    l->bytes[RF_PIECE_X1] = l->bytes[RF_PIECE_X0];
    l->bytes[RF_PIECE_ROWS] = aligned(3 * (uint64_t)l->shape.rows * sizeof(int32_t));
    l->bytes[RF_PIECE_LOGITS] =
        aligned((uint64_t)l->shape.sequences * (uint64_t)l->classes * sizeof(float));
    return 0;
}

int rf_generator_layout_make(struct rf_blocks all, const struct rf_generator_opts *opts,
                             struct rf_generator_layout *out)
{
    const struct rf_block *blocks = all.list;
    const int count = all.count;
    struct rf_generator_layout l = {.blocks = blocks, .count = count};
    RETURN_IF_ERROR(check_options(blocks, count, opts));
    l.shape.sequences = opts->sequences ? opts->sequences : 1;
    l.shape.length = opts->length;
    l.shape.rows = opts->rows ? opts->rows : 32;
    l.shape.rows = l.shape.rows > l.shape.sequences ? l.shape.rows : l.shape.sequences;
    for (int b = 0; b < count; b++)
        l.param_count += blocks[b].param_count;
    const int rc = fill(&l);
    if (rc < 0) {
        rf_generator_layout_destroy(&l);
        return rc;
    }
    *out = l;
    return 0;
}

void rf_generator_layout_destroy(struct rf_generator_layout *l)
{
    rf_free(l->params);
    rf_free(l->param_bytes);
    rf_free(l->cache_bytes);
    rf_free(l->sizes);
    *l = (struct rf_generator_layout){0};
}

int rf_generator_plan(struct rf_blocks blocks, const struct rf_generator_opts *opts,
                      struct rf_generator_bytes *out)
{
    struct rf_generator_layout l;
    RETURN_IF_ERROR(rf_generator_layout_make(blocks, opts, &l));
    struct rf_generator_bytes bytes = {
        .activations = l.bytes[RF_PIECE_X0] + l.bytes[RF_PIECE_X1],
        .host = l.bytes[RF_PIECE_ROWS] + l.bytes[RF_PIECE_LOGITS],
    };
    for (int i = 0; i < l.piece_count; i++)
        bytes.params += l.param_bytes[i];
    for (int b = 0; b < blocks.count; b++)
        bytes.cache += l.cache_bytes[b];
    bytes.scratch = bytes.host + l.bytes[RF_PIECE_TABLE] + l.bytes[RF_PIECE_SCRATCH];
    *out = bytes;
    rf_generator_layout_destroy(&l);
    return 0;
}
