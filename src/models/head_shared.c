/* SPDX-License-Identifier: MIT
 *
 * The head, split over tensor ranks. Each rank has some rows of the table, and hence some columns
 * of the logits of all rows. The ranks exchange three floats of each row, and the gradient of the
 * norm's output. With sequence parallelism a rank applies the norm to its own rows, and gathers the
 * other ranks' rows.
 *
 * The chunked form computes logits twice: in forward for the losses, in backward_input for the
 * gradients.
 */
#include "head.h"
#include "vocabulary.h"

struct saved {
    struct model_head_norm own; /* mean, rstd: of this rank's rows; norm: of all rows */
    /* (n) each: see struct rf_cross_entropy_args. `most` is the maximum over all ranks after the
     * first exchange. `total` is lse after the second exchange. */
    struct rf_tensor most, total, wanted;
};

/* This rank's columns of some rows. */
static struct rf_cross_entropy_args columns_of(const struct rf_ctx *ctx, const struct model_head *h,
                                               struct rf_tensor logits, struct model_span rows)
{
    return (struct rf_cross_entropy_args){.logits = logits,
                                          .targets = model_rows_of(ctx->targets, rows),
                                          .first = model_table_rows(&ctx->tensor, h->vocab).first,
                                          .vocabulary = h->vocab};
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define OF_ROWS 4 /* the first cuts are of all rows, the others of this rank's rows */

static int cut_saved(const struct model_head *h, struct saved *s,
                     struct model_cut cuts[OF_ROWS + 2])
{
    int count = 0;
    cuts[count++] = (struct model_cut){&s->own.norm, h->channels, h->dtype};
    cuts[count++] = (struct model_cut){.tensor = &s->most};
    cuts[count++] = (struct model_cut){.tensor = &s->total};
    cuts[count++] = (struct model_cut){.tensor = &s->wanted};
    cuts[count++] = (struct model_cut){.tensor = &s->own.rstd};
    if (!h->rms)
        cuts[count++] = (struct model_cut){.tensor = &s->own.mean};
    return count;
}

static int get_saved(const struct rf_ctx *ctx, const struct model_head *h, struct saved *s)
{
    struct model_cut cuts[OF_ROWS + 2];
    const int count = cut_saved(h, s, cuts);
    struct rf_tensor rest = ctx->saved;
    *s = (struct saved){0};
    RETURN_IF_FAILED(model_suballocate(rest, ctx->rows, cuts, OF_ROWS));
    const uint64_t used = model_cut_bytes(ctx->rows, cuts, OF_ROWS);
    rest.offset += used;
    rest.shape = rf_shape1(rf_tensor_count(rest) - (int64_t)used);
    return model_suballocate(rest, model_own_rows(&ctx->tensor, ctx->rows).count, cuts + OF_ROWS,
                             count - OF_ROWS);
}

/* The place where backward_weight finds the gradient of the norm's output, for this rank's rows.
 * The chunked form has no other use for the block's output, and keeps it there. */
static int get_dnorm(const struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor dout,
                     struct rf_tensor *out)
{
    const int64_t own = model_own_rows(&ctx->tensor, ctx->rows).count;
    const struct model_cut cuts[] = {{out, h->channels, h->dtype}};
    if (!h->rows)
        return model_suballocate(ctx->saved_for_weight, own, MODEL_CUTS(cuts));
    *out = model_rows_of(dout, (struct model_span){0, own});
    return 0;
}

/* The number of rows whose logits exist at once. */
static int64_t chunk_rows(const struct model_head *h, int64_t rows, int64_t columns)
{
    const int64_t wanted = h->rows && h->rows < rows ? h->rows : rows;
    const int64_t most = INT32_MAX / columns; /* kernels use 32-bit indices */
    return h->rows && most < wanted ? model_max(most, 1) : wanted;
}

/* The logits of some rows: part of `all`, or, in the chunked form, in the scratch. */
static int get_logits(const struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor all,
                      struct model_span rows, struct rf_tensor *out)
{
    const int64_t columns = model_table_rows(&ctx->tensor, h->vocab).count;
    const struct model_cut cuts[] = {{out, columns, h->dtype}};
    if (h->rows)
        return model_suballocate(ctx->scratch, rows.count, MODEL_CUTS(cuts));
    *out = model_rows_of(all, rows);
    return 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

static int make_logits(const struct rf_ctx *ctx, const struct model_head *h, const struct saved *s,
                       struct rf_tensor logits, struct model_span rows)
{
    return model_matmul(ctx, logits, model_rows_of(s->own.norm, rows),
                        ctx->params[model_head_table(h)],
                        &(struct rf_matmul_opts){.transpose_b = true});
}

/* Computes the logits, and writes the maximum of each row for the exchange. */
static int compute_logits_and_maximum(struct rf_ctx *ctx, const struct model_head *h,
                                      const struct saved *s, struct rf_tensor out)
{
    const int64_t step = chunk_rows(h, ctx->rows, model_table_rows(&ctx->tensor, h->vocab).count);
    for (int64_t first = 0; first < ctx->rows; first += step) {
        const int64_t left = ctx->rows - first;
        const struct model_span rows = {first, left < step ? left : step};
        struct rf_tensor logits;
        RETURN_IF_FAILED(get_logits(ctx, h, out, rows, &logits));
        RETURN_IF_FAILED(make_logits(ctx, h, s, logits, rows));
        struct rf_cross_entropy_args args = columns_of(ctx, h, logits, rows);
        args.most = model_rows_of(s->most, rows);
        args.total = model_rows_of(s->total, rows);
        args.wanted = model_rows_of(s->wanted, rows);
        RETURN_IF_FAILED(rf_cross_entropy_part_rows(ctx->stream, &args));
    }
    return rf_copy(ctx->stream, ctx->exchange, s->most);
}

static int write_sums(struct rf_ctx *ctx, const struct saved *s)
{
    const struct rf_cross_entropy_args args = {.most = s->most,
                                               .total = s->total,
                                               .wanted = s->wanted,
                                               .greatest = ctx->exchanged,
                                               .sums = ctx->exchange};
    RETURN_IF_FAILED(rf_cross_entropy_part_sums(ctx->stream, &args));
    return rf_copy(ctx->stream, s->most, ctx->exchanged);
}

static int gradient(const struct rf_ctx *ctx, const struct model_head *h, const struct saved *s,
                    struct rf_tensor logits, struct model_span rows)
{
    struct rf_cross_entropy_args args = columns_of(ctx, h, logits, rows);
    args.lse = model_rows_of(s->total, rows);
    args.dlogits = logits;
    args.opts = model_head_loss(ctx);
    return rf_cross_entropy_part_gradient(ctx->stream, &args);
}

static int write_losses(struct rf_ctx *ctx, const struct model_head *h, const struct saved *s,
                        struct rf_tensor out)
{
    const struct rf_cross_entropy_args args = {.targets = ctx->targets,
                                               .losses = ctx->losses,
                                               .lse = s->total,
                                               .vocabulary = h->vocab,
                                               .greatest = s->most,
                                               .sums = ctx->exchanged};
    RETURN_IF_FAILED(rf_cross_entropy_part_losses(ctx->stream, &args));
    if (ctx->evaluate || h->rows)
        return 0;
    return gradient(ctx, h, s, out, (struct model_span){0, ctx->rows});
}

int model_head_shared_forward(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                              struct rf_tensor out)
{
    const bool sequence = ctx->tensor.sequence;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    if (ctx->phase == 0) {
        struct model_head_norm own = s.own;
        if (sequence)
            own.norm = model_rows_of(ctx->exchange, model_own_rows(&ctx->tensor, ctx->rows));
        RETURN_IF_FAILED(model_head_forward_norm(ctx, h, &own, in));
    }
    if (ctx->phase == 1 && sequence)
        RETURN_IF_FAILED(rf_copy(ctx->stream, s.own.norm, ctx->exchanged));
    switch (ctx->phase - (sequence ? 1 : 0)) {
    case 0:
        return compute_logits_and_maximum(ctx, h, &s, out);
    case 1:
        return write_sums(ctx, &s);
    case 2:
        return write_losses(ctx, h, &s, out);
    default:
        return 0;
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* For some rows: writes the gradient of the norm's output from this rank's columns for the
 * exchange, and adds to the gradient of the table. */
static int backward_chunk(struct rf_ctx *ctx, const struct model_head *h, const struct saved *s,
                          struct model_span rows)
{
    const int table = model_head_table(h);
    struct rf_tensor logits;
    RETURN_IF_FAILED(get_logits(ctx, h, (struct rf_tensor){0}, rows, &logits));
    RETURN_IF_FAILED(MODEL_RECOMPUTED(ctx, make_logits(ctx, h, s, logits, rows)));
    RETURN_IF_FAILED(gradient(ctx, h, s, logits, rows));
    if (model_wants(ctx, table))
        RETURN_IF_FAILED(
            model_matmul(ctx, ctx->grads[table], logits, model_rows_of(s->own.norm, rows),
                         &(struct rf_matmul_opts){.transpose_a = true, .accumulate = true}));
    return model_matmul(ctx, model_rows_of(ctx->exchange, rows), logits, ctx->params[table], NULL);
}

static int backward_logits(struct rf_ctx *ctx, const struct model_head *h, const struct saved *s,
                           struct rf_tensor dout)
{
    if (!h->rows)
        return model_matmul(ctx, ctx->exchange, dout, ctx->params[model_head_table(h)], NULL);
    const int64_t step = chunk_rows(h, ctx->rows, model_table_rows(&ctx->tensor, h->vocab).count);
    for (int64_t first = 0; first < ctx->rows; first += step) {
        const int64_t left = ctx->rows - first;
        RETURN_IF_FAILED(
            backward_chunk(ctx, h, s, (struct model_span){first, left < step ? left : step}));
    }
    return 0;
}

int model_head_shared_input(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                            struct rf_tensor dout, struct rf_tensor din)
{
    struct rf_tensor dnorm;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    if (ctx->phase == 0)
        return backward_logits(ctx, h, &s, dout);
    RETURN_IF_FAILED(get_dnorm(ctx, h, dout, &dnorm));
    RETURN_IF_FAILED(
        rf_copy(ctx->stream, dnorm,
                model_rows_of(ctx->exchanged, model_own_rows(&ctx->tensor, ctx->rows))));
    return model_head_norm_input(ctx, h, &s.own, din, dnorm, in);
}

int model_head_shared_weight(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor in,
                             struct rf_tensor dout)
{
    struct rf_tensor dnorm;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, h, dout, &dnorm));
    if (!h->rows)
        RETURN_IF_FAILED(model_head_table_grad(ctx, h, dout, s.own.norm));
    return model_head_norm_weight(ctx, h, &s.own, in, dnorm);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void add_exchanges(const struct model_head *h, bool sequence, int64_t rows,
                          struct rf_block_sizes *out)
{
    const struct rf_shape all = rf_shape2(rows, h->channels);
    struct rf_exchange *next = out->forward;
    if (sequence)
        *next++ = (struct rf_exchange){RF_EXCHANGE_GATHER, all, h->dtype};
    *next++ = (struct rf_exchange){RF_EXCHANGE_MAX, rf_shape1(rows), RF_F32};
    *next++ = (struct rf_exchange){RF_EXCHANGE_SUM, rf_shape2(2, rows), RF_F32};
    out->backward_input[0] =
        (struct rf_exchange){sequence ? RF_EXCHANGE_SCATTER : RF_EXCHANGE_SUM, all, h->dtype};
}

int model_head_shared_sizes(const struct model_head *h, const struct rf_tensor_part *part,
                            int64_t rows, struct rf_block_sizes *out)
{
    struct saved s;
    struct rf_tensor dnorm, logits;
    struct model_cut cuts[OF_ROWS + 2];
    RETURN_IF_FAILED(model_check_part(part, h->vocab, rows));
    const int count = cut_saved(h, &s, cuts);
    const int64_t own = model_own_rows(part, rows).count;
    const int64_t columns = model_table_rows(part, h->vocab).count;
    const struct model_cut saved_for_weight[] = {{&dnorm, h->channels, h->dtype}};
    const struct model_cut chunk[] = {{&logits, columns, h->dtype}};
    const uint64_t work[] = {
        model_scratch_bytes(rf_norm_scratch(own, h->channels)),
        h->rows ? model_cut_bytes(chunk_rows(h, rows, columns), MODEL_CUTS(chunk)) : 0};
    *out = (struct rf_block_sizes){
        .saved = model_cut_bytes(rows, cuts, OF_ROWS) +
                 model_cut_bytes(own, cuts + OF_ROWS, count - OF_ROWS),
        .saved_for_weight = h->rows ? 0 : model_cut_bytes(own, MODEL_CUTS(saved_for_weight)),
        .scratch = model_most(work, 2),
        .out = rf_shape2(rows, h->rows ? h->channels : columns),
        .dtype = h->dtype,
        .classes = h->vocab};
    add_exchanges(h, part->sequence, rows, out);
    return 0;
}
