/* SPDX-License-Identifier: MIT
 *
 * The memory of a layer: values kept from forward to backward, and between the halves of backward,
 * and scratch. Recomputed values (recompute.h) are written to scratch, and the same kernels
 * recompute them in the backward pass. A value that costs a product or an attention, and that both
 * halves of the backward pass need, is kept between them.
 */
#include "layer_call.h"

void layer_cut(struct layer_cuts *cuts, struct model_cut cut)
{
    cuts->cut[cuts->count++] = cut;
}

void layer_setup(struct layer *l, const struct layer_row *const *kinds, struct rf_ctx *ctx,
                 const struct layer_block *block, const struct rf_tensor_part *part, int64_t rows)
{
    const struct layer_config *g = block->config;
    *l = (struct layer){.m = {.channels = g->channels,
                              .dtype = g->dtype,
                              .residual = g->residual,
                              .recompute = g->recompute},
                        .rows = kinds,
                        .g = g,
                        .b = block,
                        .size = g->head_size};
    model_layer_init(&l->m, ctx, part, rows);
    const int ranks = l->m.part.ranks;
    l->heads = g->heads / ranks;
    l->keys = model_max(g->kv_heads / ranks, 1);
    l->m.key_columns = 2 * l->keys * l->size;
    l->m.copied = g->kv_heads < ranks ? 2 * g->kv_heads * l->size : 0;
    for (int k = 0; k < block->count; k++)
        if (g->ops[k].kind == LAYER_COLUMN_LINEAR && g->ops[k].columns[1] == LAYER_KEYS &&
            block->linear[k].bias)
            l->m.shared = l->m.copied;
    for (int k = 0; k < block->count; k++)
        if (layer_row_of(l, k)->shared)
            l->m.shared += layer_row_of(l, k)->shared(l, k);
}

/* Norms, and operands that are copies of the stream, are used one at a time. */
static void cut_norms(struct layer *l, struct layer_cuts *operands)
{
    const struct model_layer *m = &l->m;
    bool dropped = false, copied = false, post = false;
    for (int k = 0; k < l->b->count; k++) {
        const enum layer_kind kind = layer_kind_at(l, k);
        dropped = dropped || (kind == LAYER_NORM && layer_drops(l, k));
        post = post || (kind == LAYER_NORM && !layer_takes_stream(l, k));
        copied = copied || (kind == LAYER_IDENTITY && m->residual != m->dtype);
    }
    layer_cut(operands, (struct model_cut){&l->w.norm, m->channels, m->dtype,
                                           !(dropped || copied) || m->part.sequence});
    layer_cut(operands,
              (struct model_cut){&l->w.post, m->channels, m->residual, !post, model_row_parts(m)});
    layer_cut(operands,
              (struct model_cut){&l->w.mean, 0, RF_F32, !dropped || l->g->rms, model_row_parts(m)});
    layer_cut(operands, (struct model_cut){&l->w.rstd, 0, RF_F32, !dropped, model_row_parts(m)});
}

static void cut_regions(struct layer *l, struct layer_regions *r)
{
    r->saved.count = r->for_weight.count = 0;
    r->operands.count = r->attention.count = r->gradients.count = 0;
    cut_norms(l, &r->operands);
    for (int k = 0; k < 2; k++)
        layer_cut(&r->saved, (struct model_cut){&l->taken[k], l->m.channels, l->m.residual,
                                                !layer_is_pair(l), model_row_parts(&l->m)});
    for (int k = 0; k < l->b->count; k++) {
        const struct layer_row *row = layer_row_of(l, k);
        if (row->cut)
            row->cut(l, k, r);
    }
}

static int suballocate(struct rf_tensor region, int64_t rows, const struct layer_cuts *cuts)
{
    return model_suballocate(region, rows, cuts->cut, cuts->count);
}

/* The place of results that are not kept, in this half. */
static void place_dropped(struct layer *l, enum layer_half half, int op)
{
    struct layer_state *s = &l->op[op];
    if (layer_kind_at(l, op) == LAYER_ADD && op + 1 == l->b->count)
        s->out = l->out;
    if (!layer_drops(l, op))
        return;
    switch (layer_kind_at(l, op)) {
    case LAYER_NORM:
        s->out = l->w.norm;
        break;
    case LAYER_ATTEND:
        s->out = half == LAYER_FORWARD ? l->w.mixed : s->held;
        s->lse = l->w.lse;
        break;
    case LAYER_COLUMN_LINEAR: /* its gradient later overwrites it */
        s->out = half == LAYER_FORWARD ? l->w.wide : s->dout;
        break;
    case LAYER_ACT:
    case LAYER_GATE:
        s->out = half != LAYER_FORWARD && layer_repeats(l, op) ? s->held : l->w.act;
        break;
    default:
        break;
    }
}

int layer_open(struct layer *l, enum layer_half half)
{
    const struct rf_ctx *ctx = l->m.ctx;
    struct layer_regions r;
    cut_regions(l, &r);
    RETURN_IF_FAILED(suballocate(ctx->saved, ctx->rows, &r.saved));
    RETURN_IF_FAILED(suballocate(ctx->scratch, ctx->rows, &r.operands));
    RETURN_IF_FAILED(suballocate(ctx->scratch, ctx->rows, &r.attention));
    RETURN_IF_FAILED(suballocate(ctx->scratch, ctx->rows, &r.gradients));
    if (half != LAYER_FORWARD)
        RETURN_IF_FAILED(suballocate(ctx->saved_for_weight, ctx->rows, &r.for_weight));
    for (int k = 0; k < l->b->count; k++)
        place_dropped(l, half, k);
    return 0;
}

static uint64_t bytes_of(const struct layer *l, const struct layer_cuts *cuts)
{
    return model_cut_bytes(l->m.rows, cuts->cut, cuts->count);
}

void layer_fill_sizes(struct layer *l, struct rf_block_sizes *out)
{
    const struct model_layer *m = &l->m;
    const struct model_linear *linears[LAYER_MOST];
    struct layer_regions r;
    int64_t vectors = 0;
    int count = 0;
    cut_regions(l, &r);
    for (int k = 0; k < l->b->count; k++) {
        const struct layer_row *row = layer_row_of(l, k);
        if (row->scratch)
            vectors = model_max(vectors, row->scratch(l, k));
        if (l->b->linear[k].weight >= 0)
            linears[count++] = &l->b->linear[k];
    }
    const uint64_t scratch[] = {bytes_of(l, &r.operands), bytes_of(l, &r.attention),
                                bytes_of(l, &r.gradients), model_scratch_bytes(vectors)};
    *out = (struct rf_block_sizes){
        .saved = bytes_of(l, &r.saved),
        .saved_for_weight = bytes_of(l, &r.for_weight),
        .scratch = model_most(scratch, 4) + model_linear_own_bytes(m, linears, count),
        .out = rf_shape2(layer_is_pair(l) ? 2 * m->own_rows : m->own_rows, m->channels),
        .dtype = m->residual};
}
