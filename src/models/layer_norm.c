/* SPDX-License-Identifier: MIT
 *
 * Norms of a layer, and operands that are the stream itself; see layer_call.h. Before a product a
 * norm takes the stream, and tensor ranks with sequence parallelism gather its rows. Behind a
 * product it takes the sum of the ranks, and its result is added to the stream.
 */
#include "layer_call.h"

static int apply(const struct layer *l, int op, struct rf_tensor out, struct rf_tensor x,
                 const struct rf_tensor stat[2])
{
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor *p = &l->m.ctx->params[l->b->param[op]];
    return l->g->rms ? rf_rmsnorm(stream, out, stat[1], x, p[0], l->g->eps)
                     : rf_layernorm(stream, out, stat[0], stat[1], x, p[0], p[1], l->g->eps);
}

static int apply_back(const struct layer *l, int op, struct rf_tensor din, struct rf_tensor dout,
                      struct rf_tensor x, bool adds)
{
    const struct layer_state *s = &l->op[op];
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor weight = l->m.ctx->params[l->b->param[op]];
    return l->g->rms
               ? rf_rmsnorm_backward_input(stream, din, dout, x, s->rstd, weight, adds)
               : rf_layernorm_backward_input(stream, din, dout, x, s->mean, s->rstd, weight, adds);
}

struct rf_tensor layer_operand(const struct layer *l, int op)
{
    return model_all_rows(&l->m, l->op[op].out);
}

static struct rf_tensor input_of(const struct layer *l, int op)
{
    return layer_takes_stream(l, op) ? layer_stream(l, op) : l->op[op - 1].out;
}

/* Whole rows are computed again, so the bits are the same; so are the statistics, which are written
 * to scratch then. */
static int pre_norm(const struct layer *l, int op, struct rf_tensor mean, struct rf_tensor rstd)
{
    const struct layer_state *s = &l->op[op];
    const struct rf_tensor stat[2] = {mean, rstd};
    struct rf_tensor out = s->out;
    if (layer_drops(l, op))
        RETURN_IF_FAILED(model_rows_place(&l->m, s->out, &out));
    RETURN_IF_FAILED(apply(l, op, out, input_of(l, op), stat));
    return layer_drops(l, op) ? 0 : model_write_rows(&l->m, s->out);
}

static int post_norm(const struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    const struct rf_tensor stat[2] = {s->mean, s->rstd};
    RETURN_IF_FAILED(apply(l, op, l->w.post, input_of(l, op), stat));
    return rf_add(l->m.ctx->stream, layer_stream_after(l, op), layer_stream(l, op), l->w.post);
}

static int norm(struct layer *l, int op)
{
    return layer_takes_stream(l, op) ? pre_norm(l, op, l->op[op].mean, l->op[op].rstd)
                                     : post_norm(l, op);
}

static int norm_again(struct layer *l, int op)
{
    if (!layer_drops(l, op))
        return model_write_rows(&l->m, l->op[op].out);
    return MODEL_RECOMPUTED(l->m.ctx, pre_norm(l, op, l->w.mean, l->w.rstd));
}

/* For the gradients of the product's weights. All ranks take part in an exchange. */
static int norm_for_weights(struct layer *l, int op)
{
    const bool needed = model_linear_wants(&l->m, &l->b->linear[op + 1]) || l->m.part.sequence;
    return needed ? norm_again(l, op) : 0;
}

/* A post-norm leaves the gradient of the product before it in w.post. */
static int norm_begin(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    if (layer_takes_stream(l, op))
        return 0;
    RETURN_IF_FAILED(rf_copy(l->m.ctx->stream, s->dout, layer_stream_grad(l, op)));
    return apply_back(l, op, l->w.post, s->dout, l->op[op - 1].out, false);
}

static int norm_back(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    if (!layer_takes_stream(l, op))
        return 0;
    RETURN_IF_FAILED(model_copy_sum(&l->m, s->dout));
    if (!layer_needs_input(l, op))
        return 0;
    RETURN_IF_FAILED(layer_begin_din(l, op));
    return apply_back(l, op, l->din, s->dout, layer_stream(l, op), true);
}

static bool trains(const struct layer *l, int op)
{
    const int weight = l->b->param[op];
    return model_wants(l->m.ctx, weight) || (!l->g->rms && model_wants(l->m.ctx, weight + 1));
}

static int64_t scratch(const struct layer *l, int op)
{
    (void)op;
    return rf_layernorm_scratch(l->m.own_rows, l->m.channels);
}

static int norm_grads(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    const struct rf_ctx *ctx = l->m.ctx;
    const int weight = l->b->param[op];
    const struct rf_tensor x = input_of(l, op);
    struct rf_tensor work;
    if (!trains(l, op))
        return 0;
    RETURN_IF_FAILED(model_scratch(ctx, scratch(l, op), &work));
    return l->g->rms ? rf_rmsnorm_backward_weight(ctx->stream, ctx->grads[weight], s->dout, x,
                                                  s->rstd, work)
                     : rf_layernorm_backward_weight(ctx->stream, ctx->grads[weight],
                                                    ctx->grads[weight + 1], s->dout, x, s->mean,
                                                    s->rstd, work);
}

static void cut_norm(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    struct layer_state *s = &l->op[op];
    const int own = model_row_parts(m);
    const bool absent = layer_drops(l, op) || !layer_takes_stream(l, op);
    layer_cut(&r->saved, (struct model_cut){&s->out, m->channels, m->dtype, absent, own});
    layer_cut(&r->saved, (struct model_cut){&s->mean, 0, RF_F32, l->g->rms, own});
    layer_cut(&r->saved, (struct model_cut){&s->rstd, .parts = own});
    layer_cut(&r->for_weight,
              (struct model_cut){&s->dout, m->channels,
                                 layer_takes_stream(l, op) ? m->dtype : m->residual, .parts = own});
}

const struct layer_row layer_norm_row = {.cut = cut_norm,
                                         .forward = {{norm, MODEL_ROWS}},
                                         .begin = {{norm_begin}},
                                         .repeat = {{norm_again, MODEL_ROWS}},
                                         .back = {{norm_back}},
                                         .again = {{norm_for_weights, MODEL_ROWS}},
                                         .weight = {{norm_grads}},
                                         .trains = trains,
                                         .scratch = scratch};

/* ---- the stream itself ----------------------------------------------------------------------- */

/* Its rows, of the operand type of products. */
static int identity(struct layer *l, int op)
{
    const struct rf_tensor stream = layer_stream(l, op);
    struct rf_tensor out;
    l->op[op].out = stream;
    if (!l->m.part.sequence && l->m.residual == l->m.dtype)
        return 0;
    l->op[op].out = l->w.norm;
    RETURN_IF_FAILED(model_rows_place(&l->m, l->w.norm, &out));
    return rf_cast(l->m.ctx->stream, out, stream);
}

static int identity_for_weights(struct layer *l, int op)
{
    const bool needed = model_linear_wants(&l->m, &l->b->linear[op + 1]) || l->m.part.sequence;
    return needed ? identity(l, op) : 0;
}

bool layer_joins_stream(const struct layer *l, int op)
{
    const struct model_linear *linear = &l->b->linear[op + 1];
    return layer_kind_at(l, op) == LAYER_IDENTITY && model_alone(&l->m) && l->m.dtype == RF_F32 &&
           !linear->lora.rank && linear->modules < 2;
}

static int identity_back(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    if (layer_joins_stream(l, op))
        return 0;
    RETURN_IF_FAILED(model_copy_sum(&l->m, s->dout));
    if (!layer_needs_input(l, op))
        return 0;
    return rf_add(l->m.ctx->stream, l->din, layer_stream_grad(l, op), s->dout);
}

static void cut_identity(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    layer_cut(&r->for_weight, (struct model_cut){&l->op[op].dout, m->channels, m->residual,
                                                 layer_joins_stream(l, op), model_row_parts(m)});
}

const struct layer_row layer_identity_row = {.cut = cut_identity,
                                             .forward = {{identity, MODEL_ROWS}},
                                             .repeat = {{identity, MODEL_ROWS}},
                                             .back = {{identity_back}},
                                             .again = {{identity_for_weights, MODEL_ROWS}}};

/* ---- sums ------------------------------------------------------------------------------------ */

/* What is before it adds to the stream. The last sum is the layer's output. */
static void cut_add(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    layer_cut(&r->saved, (struct model_cut){&l->op[op].out, m->channels, m->residual,
                                            op + 1 == l->b->count, model_row_parts(m)});
}

const struct layer_row layer_add_row = {.cut = cut_add};
