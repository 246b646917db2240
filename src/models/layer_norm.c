/* SPDX-License-Identifier: MIT
 *
 * Norms of a layer, and operands that are the stream itself; see layer_call.h. Before a product a
 * norm's input is the stream, and tensor ranks with sequence parallelism gather its rows. After a
 * product its input is the sum over the ranks, and its result is added to the stream.
 */
#include "layer_call.h"

static int apply(const struct layer *l, int op, struct rf_tensor out, struct rf_tensor x,
                 const struct rf_tensor stat[2])
{
    const struct rf_tensor *p = &l->m.ctx->params[l->b->param[op]];
    struct rf_norm_args norm = {
        .rms = l->g->rms, .eps = l->g->eps, .x = x, .gamma = p[0], .out = out, .rstd = stat[1]};
    if (!norm.rms) {
        norm.beta = p[1];
        norm.mean = stat[0];
    }
    return rf_norm(l->m.ctx->stream, &norm);
}

/* What both halves of the backward pass read. */
static struct rf_norm_args norm_back_of(const struct layer *l, int op, struct rf_tensor dout,
                                        struct rf_tensor x)
{
    const struct layer_state *s = &l->op[op];
    const struct rf_tensor none = {0};
    return (struct rf_norm_args){.rms = l->g->rms,
                                 .x = x,
                                 .mean = l->g->rms ? none : s->mean,
                                 .rstd = s->rstd,
                                 .dout = dout};
}

static int apply_back(const struct layer *l, int op, struct rf_tensor din, struct rf_tensor dout,
                      struct rf_tensor x, bool adds)
{
    struct rf_norm_args norm = norm_back_of(l, op, dout, x);
    norm.gamma = l->m.ctx->params[l->b->param[op]];
    norm.dx = din;
    norm.accumulate_dx = adds;
    return rf_norm_backward_input(l->m.ctx->stream, &norm);
}

struct rf_tensor layer_operand(const struct layer *l, int op)
{
    return model_all_rows(&l->m, l->op[op].out);
}

static struct rf_tensor input_of(const struct layer *l, int op)
{
    return layer_takes_stream(l, op) ? layer_stream(l, op) : l->op[op - 1].out;
}

/* Whole rows are recomputed, so the bits are the same; so are the statistics, which are then
 * written to scratch. */
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
    if (layer_is_pair(l))
        return 0;
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
    return apply_back(l, op, layer_din(l, op), s->dout, layer_stream(l, op), true);
}

static bool trains(const struct layer *l, int op)
{
    const int weight = l->b->param[op];
    return model_wants(l->m.ctx, weight) || (!l->g->rms && model_wants(l->m.ctx, weight + 1));
}

static int64_t scratch(const struct layer *l, int op)
{
    (void)op;
    return rf_norm_scratch(l->m.own_rows, l->m.channels);
}

static int norm_grads(struct layer *l, int op)
{
    const struct rf_ctx *ctx = l->m.ctx;
    const struct rf_tensor *grads = &ctx->grads[l->b->param[op]];
    struct rf_norm_args norm = norm_back_of(l, op, l->op[op].dout, input_of(l, op));
    if (!trains(l, op))
        return 0;
    norm.dgamma = grads[0];
    if (!norm.rms)
        norm.dbeta = grads[1];
    RETURN_IF_FAILED(model_scratch(ctx, scratch(l, op), &norm.scratch));
    return rf_norm_backward_weight(ctx->stream, &norm);
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

/* Its rows, in the operand type of products. */
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
    return layer_kind_at(l, op) == LAYER_IDENTITY && model_alone(&l->m) && !layer_is_pair(l) &&
           l->m.dtype == RF_F32 && !linear->lora.rank && linear->modules < 2;
}

static int identity_back(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    if (layer_joins_stream(l, op))
        return 0;
    RETURN_IF_FAILED(model_copy_sum(&l->m, s->dout));
    if (!layer_needs_input(l, op))
        return 0;
    if (!layer_is_pair(l))
        return rf_add(l->m.ctx->stream, l->din, layer_stream_grad(l, op), s->dout);
    RETURN_IF_FAILED(layer_pair_begin(l, op));
    return rf_add(l->m.ctx->stream, layer_din(l, op), layer_din(l, op), s->dout);
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

/* The previous operation adds to the stream. The last sum is the layer's output. */
static void cut_add(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    layer_cut(&r->saved,
              (struct model_cut){&l->op[op].out, m->channels, m->residual,
                                 op + 1 == l->b->count || layer_is_pair(l), model_row_parts(m)});
}

static int add(struct layer *l, int op)
{
    return layer_is_pair(l) ? layer_pair_add(l, op) : 0;
}

const struct layer_row layer_add_row = {.cut = cut_add, .forward = {{add}}};
