/* SPDX-License-Identifier: MIT
 *
 * The embedding of a model; see vocabulary.h. Each tensor rank looks up the tokens whose rows
 * it has. Only the first one adds the positions, so the sum over the ranks is rounded like the
 * result of a single rank.
 */
#include "context.h"
#include "decode.h"
#include "vocabulary.h"

struct model_span model_table_rows(const struct rf_tensor_part *part, int64_t vocab)
{
    const int64_t first = part->rank * vocab / part->ranks;
    return (struct model_span){first, (part->rank + 1) * vocab / part->ranks - first};
}

struct model_span model_own_rows(const struct rf_tensor_part *part, int64_t rows)
{
    const int64_t count = part->sequence ? rows / part->ranks : rows;
    return (struct model_span){part->sequence ? part->rank * count : 0, count};
}

struct rf_tensor model_rows_of(struct rf_tensor tensor, struct model_span rows)
{
    struct rf_shape *shape = &tensor.shape;
    uint64_t row = rf_dtype_bytes(tensor.dtype);
    for (int i = 1; i < shape->ndim; i++)
        row *= (uint64_t)shape->dim[i];
    tensor.offset += (uint64_t)rows.first * row;
    shape->dim[0] = rows.count;
    return tensor;
}

int model_check_part(const struct rf_tensor_part *part, int64_t vocab, int64_t rows)
{
    if (part->ranks > vocab)
        return rf_fail(
            RF_EINVAL,
            "%d tensor ranks are more than the %lld rows of the vocabulary; use fewer ranks",
            part->ranks, (long long)vocab);
    if (part->sequence && rows % part->ranks != 0)
        return rf_fail(RF_EINVAL,
                       "%d tensor ranks do not divide the %lld tokens of a micro-batch; change the "
                       "micro-batch size",
                       part->ranks, (long long)rows);
    return 0;
}

int model_embed_check(const struct model_embedding *e, int64_t seq)
{
    return e->positions && seq > e->positions
               ? rf_fail(RF_EINVAL,
                         "sequences of %lld tokens are longer than the model's %lld positions; use "
                         "shorter ones",
                         (long long)seq, (long long)e->positions)
               : 0;
}

static struct rf_tensor positions_of(const struct model_embedding *e,
                                     const struct rf_tensor *tensors)
{
    const struct rf_tensor none = {0};
    return e->positions ? tensors[1] : none;
}

static bool own_positions(const struct rf_ctx *ctx, const struct model_embedding *e)
{
    return e->positions && ctx->context.ranks > 1;
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor tokens, struct rf_tensor out)
{
    const struct model_embedding *e = self;
    const struct rf_tensor_part *part = &ctx->tensor;
    const struct rf_tensor none = {0};
    struct rf_tensor positions = positions_of(e, ctx->params);
    if (own_positions(ctx, e)) {
        const struct rf_shape own = rf_shape2(ctx->seq, e->channels);
        uint64_t at = 0;
        RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, own, positions.dtype, &positions));
        RETURN_IF_FAILED(model_own_positions(ctx, ctx->params[1], positions));
    }
    const bool shared = part->ranks > 1, adds = positions.buffer && part->rank == 0;
    if (shared && ctx->phase == 1)
        return rf_copy(ctx->stream, out,
                       model_rows_of(ctx->exchanged, model_own_rows(part, ctx->rows)));
    const struct rf_embedding_args args = {
        .T = ctx->seq,
        .tokens = tokens,
        .wte = ctx->params[0],
        .wpe = adds ? positions : none,
        .positions = adds ? ctx->positions : none,
        .out = shared ? ctx->exchange : out,
        .first = shared ? model_table_rows(part, e->vocab).first : 0,
        .vocabulary = shared || ctx->positions.buffer ? e->vocab : 0};
    return rf_embedding(ctx->stream, &args);
}

/* Positions of documents are looked up like tokens of the vocabulary. */
static int add_positions_of_documents(const struct rf_ctx *ctx, const struct model_embedding *e,
                                      struct rf_tensor dout, struct model_span own)
{
    const int64_t words = rf_embedding_scratch(own.count, e->positions);
    struct rf_embedding_args args = {.T = own.count,
                                     .tokens = model_rows_of(ctx->positions, own),
                                     .dout = model_rows_of(dout, own),
                                     .dwte = ctx->grads[1]};
    uint64_t at = 0; /* the sort by token is finished */
    RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, rf_shape1(words), RF_I32, &args.scratch));
    return rf_embedding_backward(ctx->stream, &args);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    return 0; /* tokens have no gradient */
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor tokens,
                           struct rf_tensor dout)
{
    const struct model_embedding *e = self;
    const struct rf_tensor_part *part = &ctx->tensor;
    const bool shared = part->ranks > 1;
    const struct model_span own = model_own_rows(part, ctx->rows);
    if (shared && part->sequence && ctx->phase == 0)
        return rf_copy(ctx->stream, model_rows_of(ctx->exchange, own), dout);
    if (shared && part->sequence)
        dout = ctx->exchanged;
    struct rf_embedding_args args = {
        .T = ctx->seq, .tokens = tokens, .dout = dout, .dwte = ctx->grads[0]};
    struct model_span rows = {0, e->vocab};
    if (shared) {
        rows = model_table_rows(part, e->vocab);
        args.first = rows.first;
        args.vocabulary = e->vocab;
        args.first_row = own.first;
        args.rows = own.count;
    }
    const int64_t words = rf_embedding_scratch(ctx->rows, rows.count + shared);
    struct rf_tensor scratch, positions = positions_of(e, ctx->grads);
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, rf_shape1(words), RF_I32, &scratch));
    const bool gathers = own_positions(ctx, e) && model_wants(ctx, 1);
    const bool packed = ctx->positions.buffer && positions.buffer;
    if (packed)
        positions = (struct rf_tensor){0};
    if (gathers) {
        const struct rf_shape own_rows = rf_shape2(ctx->seq, e->channels);
        RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, own_rows, RF_F32, &positions));
        RETURN_IF_FAILED(rf_fill(ctx->stream, positions, 0));
    }
    args.dwpe = positions;
    if (model_wants(ctx, 0))
        args.scratch = scratch;
    if (!packed || model_wants(ctx, 0))
        RETURN_IF_FAILED(rf_embedding_backward(ctx->stream, &args));
    if (packed)
        return add_positions_of_documents(ctx, e, dout, own);
    return gathers ? model_add_positions(ctx, ctx->grads[1], positions) : 0;
}

static int tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    const struct model_embedding *e = self;
    const bool shared = part && part->ranks > 1;
    int64_t table_rows = e->vocab, own = rows;
    RETURN_IF_FAILED(model_embed_check(e, seq));
    if (shared) {
        RETURN_IF_FAILED(model_check_part(part, e->vocab, rows));
        table_rows = model_table_rows(part, e->vocab).count;
        own = model_own_rows(part, rows).count;
    }
    int64_t words = rf_embedding_scratch(rows, table_rows + shared);
    if (e->positions) /* a sort by position */
        words = model_max(words, rf_embedding_scratch(rows, e->positions));
    *out = (struct rf_block_sizes){.scratch = rf_suballocate_bytes(rf_shape1(words), RF_I32),
                                   .out = rf_shape2(own, e->channels),
                                   .dtype = e->dtype,
                                   .vocabulary = e->vocab};
    if (!shared)
        return 0;
    const struct rf_shape all = rf_shape2(rows, e->channels);
    out->forward[0] =
        (struct rf_exchange){part->sequence ? RF_EXCHANGE_SCATTER : RF_EXCHANGE_SUM, all, e->dtype};
    if (part->sequence)
        out->backward_weight[0] = (struct rf_exchange){RF_EXCHANGE_GATHER, all, e->dtype};
    return 0;
}

/* part NULL: the block is not shared. */
static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    return tensor_sizes(self, NULL, rows, seq, out);
}

/* Additional scratch if sequences are split: the positions of the tokens of this rank. */
static int context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    const struct model_embedding *e = self;
    RETURN_IF_FAILED(tensor_sizes(self, NULL, rows, seq * part->ranks, out));
    if (e->positions)
        out->scratch += rf_suballocate_bytes(rf_shape2(seq, e->channels), RF_F32);
    return 0;
}

/* ---- text generation ------------------------------------------------------------------------- */

/* The table of positions is looked up like that of tokens, with positions in place of tokens. */
static int decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                  struct rf_tensor out)
{
    const struct model_embedding *e = self;
    struct rf_tensor places;
    uint64_t at = 0;
    const struct rf_embedding_args words = {
        .T = 1, .tokens = in, .wte = call->params[0], .out = out};
    RETURN_IF_FAILED(rf_embedding(call->stream, &words));
    if (!e->positions)
        return 0;
    RETURN_IF_FAILED(rf_suballocate(call->scratch, &at, out.shape, out.dtype, &places));
    const struct rf_embedding_args positions = {
        .T = 1, .tokens = call->position, .wte = call->params[1], .out = places};
    RETURN_IF_FAILED(rf_embedding(call->stream, &positions));
    return rf_add(call->stream, out, out, places);
}

static int decode_sizes(const void *self, const struct rf_decode_shape *shape,
                        struct rf_decode_sizes *out)
{
    const struct model_embedding *e = self;
    const struct rf_shape rows = rf_shape2(shape->rows, e->channels);
    *out =
        (struct rf_decode_sizes){.scratch = e->positions ? rf_suballocate_bytes(rows, e->dtype) : 0,
                                 .out = rows,
                                 .dtype = e->dtype,
                                 .vocabulary = e->vocab};
    return model_embed_check(e, shape->length);
}

static const struct rf_decode_ops decode_ops = {.sizes = decode_sizes, .decode = decode};

const struct rf_block_ops model_embedding_ops = {
    forward, backward_input, backward_weight, sizes, tensor_sizes, context_sizes, &decode_ops};
