/* SPDX-License-Identifier: MIT
 *
 * Attention and positions for layers whose sequences are split over ranks; see context.h.
 */
#include "context.h"

struct model_context model_context_of(const struct rf_ctx *ctx, int64_t heads, int64_t keys,
                                      int64_t size)
{
    return (struct model_context){.ctx = ctx,
                                  .batch = ctx->rows / ctx->seq,
                                  .chunk = ctx->seq / 2,
                                  .heads = heads,
                                  .keys = keys,
                                  .size = size};
}

void model_cut_sequences(const struct model_layer *m, struct model_sequences *s,
                         struct model_cut cuts[MODEL_SEQUENCE_CUTS])
{
    /* The unit of rows is this rank's own number of rows, so the gathered rows become columns. */
    const int64_t columns = m->context.ranks * m->key_columns;
    const bool alone = m->context.ranks <= 1;
    cuts[0] = (struct model_cut){&s->keys, columns, m->dtype, alone};
    cuts[1] = (struct model_cut){&s->grads, columns, m->dtype, alone};
    cuts[2] = (struct model_cut){&s->first, columns, m->dtype, alone};
}

struct rf_heads model_chunk_of(struct rf_heads heads, int half)
{
    heads.rows /= 2;
    heads.first += half * heads.rows * heads.row_stride;
    return heads;
}

int64_t model_chunk_first(const struct model_context *c, int half)
{
    return rf_context_first(&c->ctx->context, half, c->chunk);
}

static int64_t width(const struct model_context *c)
{
    return 2 * c->keys * c->size;
}

/* Chunks [first, first + count) of a tensor in sequence order. The chunks of a sequence are
 * adjacent. */
static struct rf_heads in_sequence(const struct model_context *c, struct rf_tensor t, int64_t first,
                                   int64_t count)
{
    const int64_t w = width(c), all = 2 * c->ctx->context.ranks * c->chunk;
    return (struct rf_heads){.tensor = t,
                             .first = first * c->chunk * w,
                             .batch = c->batch,
                             .rows = c->chunk,
                             .heads = count,
                             .size = w,
                             .batch_stride = all * w,
                             .row_stride = w,
                             .head_stride = c->chunk * w};
}

/* The same for an exchanged tensor: the first or the second chunks of `count` ranks. */
static struct rf_heads of_ranks(const struct model_context *c, struct rf_tensor t, int half,
                                int64_t rank, int64_t count)
{
    const int64_t w = width(c), own = 2 * c->chunk;
    return (struct rf_heads){.tensor = t,
                             .first = (rank * c->batch * own + half * c->chunk) * w,
                             .batch = c->batch,
                             .rows = c->chunk,
                             .heads = count,
                             .size = w,
                             .batch_stride = own * w,
                             .row_stride = w,
                             .head_stride = c->batch * own * w};
}

/* This rank's part of an exchanged tensor, viewed as the keys and values of its rows. */
static struct rf_heads own_part(const struct model_context *c, struct rf_tensor t)
{
    struct rf_heads own = of_ranks(c, t, 0, c->ctx->context.rank, 1);
    own.rows = 2 * c->chunk;
    own.heads = 2 * c->keys;
    own.size = own.head_stride = c->size;
    return own;
}

int model_write_keys(const struct model_context *c, struct rf_heads keys)
{
    return rf_copy_heads(c->ctx->stream, own_part(c, c->ctx->exchange), keys, false);
}

int model_read_key_grads(const struct model_context *c, struct rf_heads grads)
{
    return rf_copy_heads(c->ctx->stream, grads, own_part(c, c->ctx->exchanged), false);
}

/* The second chunks follow the first ones, in descending order of ranks. */
int model_order_keys(const struct model_context *c, const struct model_sequences *s)
{
    const int64_t ranks = c->ctx->context.ranks;
    const struct rf_tensor all = c->ctx->exchanged;
    RETURN_IF_FAILED(rf_copy_heads(c->ctx->stream, in_sequence(c, s->keys, 0, ranks),
                                   of_ranks(c, all, 0, 0, ranks), false));
    for (int64_t k = 0; k < ranks; k++)
        RETURN_IF_FAILED(rf_copy_heads(c->ctx->stream,
                                       in_sequence(c, s->keys, 2 * ranks - 1 - k, 1),
                                       of_ranks(c, all, 1, k, 1), false));
    return 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The keys or values, in sequence order, that a chunk of queries attends to: all up to its end. */
static struct rf_heads seen(const struct model_context *c, struct rf_tensor t, int half, bool value)
{
    struct rf_heads h = in_sequence(c, t, 0, 1);
    h.first = value ? c->keys * c->size : 0;
    h.rows = model_chunk_first(c, half) + c->chunk;
    h.heads = c->keys;
    h.size = h.head_stride = c->size;
    return h;
}

/* The (B,H,s) floats of one chunk. */
static int floats_of(const struct model_context *c, struct rf_tensor both, int half,
                     struct rf_tensor *out)
{
    const int64_t count = c->batch * c->heads * c->chunk;
    struct rf_tensor flat;
    RETURN_IF_FAILED(rf_tensor_reshape(both, rf_shape1(2 * count), &flat));
    RETURN_IF_FAILED(rf_tensor_rows(flat, half * count, count, &flat));
    return rf_tensor_reshape(flat, rf_shape3(c->batch, c->heads, c->chunk), out);
}

static int chunk_args(const struct model_context *c, const struct model_sequences *s,
                      const struct rf_attention_args *args, int half, struct rf_attention_args *out)
{
    *out = *args;
    out->q = model_chunk_of(args->q, half);
    out->out = model_chunk_of(args->out, half);
    out->k = seen(c, s->keys, half, false);
    out->v = seen(c, s->keys, half, true);
    return floats_of(c, args->lse, half, &out->lse);
}

int model_attend(const struct model_context *c, const struct model_sequences *s,
                 const struct rf_attention_args *args)
{
    for (int half = 0; half < 2; half++) {
        struct rf_attention_args own;
        RETURN_IF_FAILED(chunk_args(c, s, args, half, &own));
        RETURN_IF_FAILED(rf_attend(c->ctx->stream, &own));
    }
    return 0;
}

/* Adds the key gradients of both chunks of queries, for the ranks that own the keys. The second
 * chunk of queries does not attend to the second chunks of lower ranks, so their gradient is zero.
 * The first chunk of queries attends only to the first chunks of ranks up to this one. */
static int write_key_grads(const struct model_context *c, const struct model_sequences *s)
{
    const int64_t ranks = c->ctx->context.ranks, rank = c->ctx->context.rank;
    const struct rf_tensor all = c->ctx->exchange;
    struct rf_stream *stream = c->ctx->stream;
    if (rank > 0)
        RETURN_IF_FAILED(rf_fill(stream, all, 0));
    RETURN_IF_FAILED(rf_copy_heads(stream, of_ranks(c, all, 0, 0, ranks),
                                   in_sequence(c, s->grads, 0, ranks), false));
    for (int64_t k = rank; k < ranks; k++)
        RETURN_IF_FAILED(rf_copy_heads(stream, of_ranks(c, all, 1, k, 1),
                                       in_sequence(c, s->grads, 2 * ranks - 1 - k, 1), false));
    return rf_copy_heads(stream, of_ranks(c, all, 0, 0, rank + 1),
                         in_sequence(c, s->first, 0, rank + 1), true);
}

int model_attend_back(const struct model_context *c, const struct model_sequences *s,
                      const struct rf_attention_args *args, const struct rf_attention_grads *grads)
{
    for (int half = 0; half < 2; half++) {
        const struct rf_tensor to = half ? s->grads : s->first;
        struct rf_attention_args own;
        struct rf_attention_grads back = {.dout = model_chunk_of(grads->dout, half),
                                          .dq = model_chunk_of(grads->dq, half),
                                          .dk = seen(c, to, half, false),
                                          .dv = seen(c, to, half, true)};
        RETURN_IF_FAILED(chunk_args(c, s, args, half, &own));
        RETURN_IF_FAILED(floats_of(c, grads->delta, half, &back.delta));
        RETURN_IF_FAILED(rf_attend_backward(c->ctx->stream, &own, &back));
    }
    return write_key_grads(c, s);
}

/* ---- positions ------------------------------------------------------------------------------- */

static int position_rows(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own,
                         int half, struct rf_tensor rows[2])
{
    const int64_t chunk = ctx->seq / 2;
    RETURN_IF_FAILED(
        rf_tensor_rows(table, rf_context_first(&ctx->context, half, chunk), chunk, &rows[0]));
    return rf_tensor_rows(own, half * chunk, chunk, &rows[1]);
}

int model_own_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own)
{
    for (int half = 0; half < 2; half++) {
        struct rf_tensor rows[2];
        RETURN_IF_FAILED(position_rows(ctx, table, own, half, rows));
        RETURN_IF_FAILED(rf_copy(ctx->stream, rows[1], rows[0]));
    }
    return 0;
}

int model_add_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own)
{
    for (int half = 0; half < 2; half++) {
        struct rf_tensor rows[2];
        RETURN_IF_FAILED(position_rows(ctx, table, own, half, rows));
        RETURN_IF_FAILED(rf_add(ctx->stream, rows[0], rows[0], rows[1]));
    }
    return 0;
}
