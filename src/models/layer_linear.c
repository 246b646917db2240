/* SPDX-License-Identifier: MIT
 *
 * Linear maps of a layer, and the activation between two of them; see layer_call.h. An activation
 * function of each element is part of the product before it if products compute it (layer_fuses).
 * Others, and gates, have a kernel of their own.
 */
#include "layer_call.h"

static const struct model_linear *linear_of(const struct layer *l, int op)
{
    return &l->b->linear[op];
}

static bool trains(const struct layer *l, int op)
{
    return model_linear_trains(&l->m, linear_of(l, op));
}

static int64_t bias_scratch(const struct layer *l, int op)
{
    const int64_t columns = layer_columns(l, op);
    const bool copies = l->m.copied && l->g->ops[op].columns[1] == LAYER_KEYS;
    return model_linear_scratch(&l->m, linear_of(l, op), columns) +
           (copies && linear_of(l, op)->bias ? columns : 0);
}

/* Whether the product computes the activation that follows it. */
static bool is_activated(const struct layer *l, int op)
{
    return op >= 0 && op + 1 < l->b->count && layer_fuses(&l->g->ops[op + 1]);
}

/* Whether the operation is a gate or an activation with a kernel of its own. */
static bool is_apart(const struct layer *l, int op)
{
    const enum layer_kind kind = layer_kind_at(l, op);
    return kind == LAYER_GATE || (kind == LAYER_ACT && !is_activated(l, op - 1));
}

/* ---- gradients of adapters that ranks add ---------------------------------------------------- */

static int64_t shared(const struct layer *l, int op)
{
    return lora_shared(&l->m, &linear_of(l, op)->lora);
}

static int take_shared(struct layer *l, int op)
{
    return lora_take_shared(&l->m, &linear_of(l, op)->lora,
                            layer_shared_of(l, op, l->m.ctx->exchanged));
}

static int grads(struct layer *l, int op, struct rf_tensor in)
{
    const struct rf_tensor none = {0};
    return model_linear_grads(&l->m, linear_of(l, op), l->op[op].dout, in,
                              shared(l, op) ? layer_shared_of(l, op, l->m.ctx->exchange) : none);
}

/* ---- outputs divided ------------------------------------------------------------------------- */

static int column_forward(struct layer *l, int op)
{
    const struct layer_state *s = &l->op[op];
    const struct rf_tensor in = layer_operand(l, op - 1);
    if (!is_activated(l, op))
        return model_linear_forward(&l->m, linear_of(l, op), s->out, in, NULL);
    const struct model_act act = {.kind = l->g->ops[op + 1].act, .pre = s->out};
    return model_linear_forward(&l->m, linear_of(l, op), l->op[op + 1].out, in, &act);
}

static int column_repeat(struct layer *l, int op)
{
    return MODEL_RECOMPUTED(l->m.ctx, column_forward(l, op));
}

/* The previous operation takes the sum over the ranks. */
static int column_back(struct layer *l, int op)
{
    if (!layer_needs_input(l, op))
        return 0;
    if (layer_joins_stream(l, op - 1))
        return model_linear_join_back(&l->m, linear_of(l, op), l->din, l->op[op].dout,
                                      layer_stream_grad(l, op - 1));
    return model_linear_sum_back(&l->m, linear_of(l, op), l->op[op - 1].dout, l->op[op].dout);
}

static int column_weight(struct layer *l, int op)
{
    const struct rf_tensor in = layer_operand(l, op - 1);
    if (l->m.copied && l->g->ops[op].columns[1] == LAYER_KEYS)
        return layer_split_linear(l, op, in);
    return grads(l, op, in);
}

static void cut_column(struct layer *l, int op, struct layer_regions *r)
{
    struct layer_state *s = &l->op[op];
    const int64_t columns = layer_columns(l, op);
    const enum rf_dtype t = l->m.dtype;
    layer_cut(&r->saved, (struct model_cut){&s->out, columns, t, layer_drops(l, op)});
    layer_cut(&r->for_weight, (struct model_cut){&s->dout, columns, t});
    if (is_apart(l, op + 1))
        layer_cut(&r->operands, (struct model_cut){&l->w.wide, columns, t, !layer_drops(l, op)});
}

const struct layer_row layer_column_linear_row = {.cut = cut_column,
                                                  .forward = {{column_forward}},
                                                  .repeat = {{column_repeat}},
                                                  .back = {{column_back, MODEL_SUM}},
                                                  .weight = {{column_weight}},
                                                  .trains = trains,
                                                  .scratch = bias_scratch,
                                                  .shared = shared,
                                                  .take_shared = take_shared};

/* ---- inputs divided -------------------------------------------------------------------------- */

static bool ends_branch(const struct layer *l, int op)
{
    return layer_kind_at(l, op + 1) == LAYER_ADD;
}

/* Whether the product adds its result to the stream. */
static bool is_added(const struct layer *l, int op)
{
    return ends_branch(l, op) && !layer_is_pair(l);
}

/* Without an addition to the stream, the sum over the ranks is a separate tensor. */
static int row_forward(struct layer *l, int op)
{
    const struct rf_tensor in = l->op[op - 1].out;
    if (is_added(l, op))
        return model_linear_sum(&l->m, linear_of(l, op), layer_stream_after(l, op), in,
                                layer_stream(l, op));
    return model_linear_part(&l->m, linear_of(l, op), l->op[op].out, in);
}

static int row_end(struct layer *l, int op)
{
    if (is_added(l, op))
        return model_linear_end(&l->m, linear_of(l, op), layer_stream_after(l, op),
                                layer_stream(l, op));
    return model_copy_sum(&l->m, l->op[op].out);
}

/* The gradient of the result: all rows, of the operand type. */
static int row_begin(struct layer *l, int op)
{
    const struct rf_tensor grad = ends_branch(l, op) ? layer_stream_grad(l, op) : l->w.post;
    if (l->m.part.sequence)
        return model_write_rows(&l->m, grad);
    return l->op[op].dout.buffer != grad.buffer || l->op[op].dout.offset != grad.offset
               ? rf_cast(l->m.ctx->stream, l->op[op].dout, grad)
               : 0;
}

static int row_take(struct layer *l, int op)
{
    return l->m.part.sequence ? rf_copy(l->m.ctx->stream, l->op[op].dout, l->m.ctx->exchanged) : 0;
}

/* Through an activation: to the gradient of its input. */
static int row_back(struct layer *l, int op)
{
    const struct model_linear *linear = linear_of(l, op);
    const struct rf_tensor dout = l->op[op].dout;
    if (is_activated(l, op - 2)) {
        const struct model_act act = {.kind = l->g->ops[op - 1].act, .pre = l->op[op - 2].out};
        return layer_needs(l, op - 2)
                   ? model_linear_back(&l->m, linear, l->op[op - 2].dout, dout, &act)
                   : 0;
    }
    if (!layer_needs_input(l, op))
        return 0;
    return model_linear_back(&l->m, linear, is_apart(l, op - 1) ? l->op[op - 1].dact : l->w.mixed,
                             dout, NULL);
}

static int row_weight(struct layer *l, int op)
{
    return grads(l, op, l->op[op - 1].out);
}

static void cut_row(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    const bool added = is_added(l, op), last = op + 2 == l->b->count;
    struct layer_state *s = &l->op[op];
    /* The layer's dout can be used directly if types and rows are the same. */
    if (added && last)
        s->dout = l->dout;
    layer_cut(&r->for_weight,
              (struct model_cut){&s->dout, m->channels, m->dtype,
                                 added && last && m->residual == m->dtype && !m->part.sequence});
    if (!added)
        layer_cut(&r->saved, (struct model_cut){&s->out, m->channels, m->residual,
                                                .parts = model_row_parts(m)});
}

const struct layer_row layer_row_linear_row = {.cut = cut_row,
                                               .forward = {{row_forward, MODEL_SUM}, {row_end}},
                                               .begin = {{row_begin, MODEL_ROWS}, {row_take}},
                                               .back = {{row_back}},
                                               .weight = {{row_weight}},
                                               .trains = trains,
                                               .scratch = bias_scratch,
                                               .shared = shared,
                                               .take_shared = take_shared};

/* ---- activations ----------------------------------------------------------------------------- */

static int gate(struct layer *l, int op)
{
    const struct rf_tensor none = {0};
    return rf_glu(l->m.ctx->stream, l->g->ops[op].act, l->op[op].out, l->op[op - 1].out, none);
}

static int gate_repeat(struct layer *l, int op)
{
    return MODEL_RECOMPUTED(l->m.ctx, gate(l, op));
}

static int gate_back(struct layer *l, int op)
{
    const struct rf_tensor none = {0};
    const struct rf_glu_grads grads = {.dout = l->op[op].dact, .dgate = l->op[op - 1].dout};
    if (!layer_needs_input(l, op))
        return 0;
    return rf_glu_backward(l->m.ctx->stream, l->g->ops[op].act, l->op[op - 1].out, none, &grads);
}

/* Provides the input for the gradients of the following weights: kept between both halves,
 * recomputed, or kept from forward. */
static bool is_missing(const struct layer *l, int op)
{
    return layer_drops(l, op) && !layer_repeats(l, op) &&
           model_linear_wants(&l->m, &l->b->linear[op + 1]);
}

static int gate_again(struct layer *l, int op)
{
    return is_missing(l, op) ? MODEL_RECOMPUTED(l->m.ctx, gate(l, op)) : 0;
}

static int activate(struct layer *l, int op)
{
    return rf_activate(l->m.ctx->stream, l->g->ops[op].act, l->op[op].out, l->op[op - 1].out);
}

static int act(struct layer *l, int op)
{
    return is_apart(l, op) ? activate(l, op) : 0;
}

static int act_repeat(struct layer *l, int op)
{
    return MODEL_RECOMPUTED(l->m.ctx, act(l, op));
}

static int act_back(struct layer *l, int op)
{
    if (!is_apart(l, op) || !layer_needs_input(l, op))
        return 0;
    return rf_activate_backward(l->m.ctx->stream, l->g->ops[op].act, l->op[op - 1].dout,
                                l->op[op].dact, l->op[op - 1].out);
}

static int act_again(struct layer *l, int op)
{
    return is_missing(l, op) ? MODEL_RECOMPUTED(l->m.ctx, activate(l, op)) : 0;
}

static void cut_activation(struct layer *l, int op, struct layer_regions *r)
{
    struct layer_state *s = &l->op[op];
    const int64_t columns = layer_columns(l, op);
    const enum rf_dtype t = l->m.dtype;
    const bool drops = layer_drops(l, op);
    layer_cut(&r->saved, (struct model_cut){&s->out, columns, t, drops});
    layer_cut(&r->for_weight, (struct model_cut){&s->held, columns, t, !layer_repeats(l, op)});
    layer_cut(&r->operands, (struct model_cut){&l->w.act, columns, t, !drops});
    if (is_apart(l, op))
        layer_cut(&r->gradients, (struct model_cut){&s->dact, columns, t});
}

const struct layer_row layer_act_row = {.cut = cut_activation,
                                        .forward = {{act}},
                                        .repeat = {{act_repeat}},
                                        .back = {{act_back}},
                                        .again = {{act_again}}};
const struct layer_row layer_gate_row = {.cut = cut_activation,
                                         .forward = {{gate}},
                                         .repeat = {{gate_repeat}},
                                         .back = {{gate_back}},
                                         .again = {{gate_again}}};
