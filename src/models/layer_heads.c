/* SPDX-License-Identifier: MIT
 *
 * Norms and rotation of queries and keys, within the packed queries, keys and values: all that a
 * layer does for them, and for the norms' parameters. See layer_call.h.
 */
#include <stdio.h>

#include "layer_call.h"

/* layer_state.own, of the queries and of the keys: before their norm (n,hD) (n,kD), the norm's
 * statistic (n,h) (n,k), and the gradient of its result. */
enum { X, RSTD, DOUT };

/* Whether queries and keys have norms: the list has the sizes of their weights. */
static bool has_norms(const struct layer *l, int op)
{
    return l->g->ops[op].columns[0] != LAYER_NONE;
}

/* The size of a norm's row: a head, or all heads of a token. */
static int64_t normed_size(const struct layer *l, int op, int which)
{
    const bool each = l->g->ops[op].columns[which] == LAYER_HEAD_SIZE;
    return each ? l->size : (which ? l->keys : l->heads) * l->size;
}

static int normed_rows(const struct layer *l, int op, struct rf_tensor t, int which,
                       struct rf_tensor *out)
{
    const int64_t size = normed_size(l, op, which);
    return rf_tensor_reshape(t, rf_shape2(rf_tensor_count(t) / size, size), out);
}

/* ---- queries and keys ------------------------------------------------------------------------ */

/* out = the heads x of this rank's rows, rotated, or rotated back. out may be x. */
static int rotate(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back)
{
    const struct model_context c = layer_context(l);
    const bool whole = l->m.context.ranks <= 1;
    for (int half = 0; half < (whole ? 1 : 2); half++) {
        struct rf_rotary_opts rotary = l->g->rotary;
        rotary.position = whole ? 0 : model_chunk_first(&c, half);
        const struct rf_heads from = whole ? x : model_chunk_of(x, half),
                              to = whole ? out : model_chunk_of(out, half);
        RETURN_IF_FAILED(back ? rf_rotary_backward(l->m.ctx->stream, to, from, &rotary)
                              : rf_rotary(l->m.ctx->stream, to, from, &rotary));
    }
    return 0;
}

static int turn(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back)
{
    return l->g->rotates ? rotate(l, out, x, back) : rf_copy_heads(l->m.ctx->stream, out, x, false);
}

/* The queries (0) or keys (1), and their norm. */
struct normed {
    int64_t first, heads; /* in the packed tensor */
    struct rf_tensor weight, rstd, kept, x,
        dout;              /* kept: (n,hD); x and dout: as rows of the norm */
    struct rf_tensor free; /* of the same size, in the unused memory of attention's result */
    struct rf_tensor free_rows;
    struct rf_heads packed, kept_heads, dout_heads, free_heads;
};

/* packed: the queries, keys and values, or their gradient. */
static int open_normed(const struct layer *l, int op, int which, struct rf_tensor packed,
                       struct rf_tensor mixed, struct normed *n)
{
    const struct rf_tensor *s = l->op[op].own[which];
    *n = (struct normed){.first = which ? l->heads : 0,
                         .heads = which ? l->keys : l->heads,
                         .weight = l->m.ctx->params[l->b->param[op] + which],
                         .rstd = s[RSTD],
                         .kept = s[X],
                         .free = mixed};
    n->free.shape = rf_shape2(l->m.rows, n->heads * l->size);
    RETURN_IF_FAILED(layer_heads_of(l, packed, n->first, n->heads, &n->packed));
    RETURN_IF_FAILED(layer_heads_of(l, s[X], 0, n->heads, &n->kept_heads));
    RETURN_IF_FAILED(layer_heads_of(l, n->free, 0, n->heads, &n->free_heads));
    RETURN_IF_FAILED(normed_rows(l, op, n->free, which, &n->free_rows));
    RETURN_IF_FAILED(normed_rows(l, op, s[X], which, &n->x));
    if (!s[DOUT].buffer)
        return 0; /* forward */
    RETURN_IF_FAILED(layer_heads_of(l, s[DOUT], 0, n->heads, &n->dout_heads));
    return normed_rows(l, op, s[DOUT], which, &n->dout);
}

static int place(struct layer *l, int op)
{
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor packed = l->op[op - 1].out;
    struct rf_heads both; /* queries and keys are adjacent */
    for (int which = 0; has_norms(l, op) && which < 2; which++) {
        struct normed n;
        RETURN_IF_FAILED(open_normed(l, op, which, packed, l->op[op + 1].out, &n));
        RETURN_IF_FAILED(rf_copy_heads(stream, n.kept_heads, n.packed, false));
        RETURN_IF_FAILED(rf_norm(stream, &(struct rf_norm_args){.rms = true,
                                                                .eps = l->g->eps,
                                                                .x = n.x,
                                                                .gamma = n.weight,
                                                                .out = n.free_rows,
                                                                .rstd = n.rstd}));
        RETURN_IF_FAILED(turn(l, n.packed, n.free_heads, false));
    }
    if (has_norms(l, op) || !l->g->rotates)
        return 0;
    RETURN_IF_FAILED(layer_heads_of(l, packed, 0, l->heads + l->keys, &both));
    return rotate(l, both, both, false);
}

static int place_back(struct layer *l, int op)
{
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor packed = l->op[op - 1].dout;
    struct rf_heads both;
    if (!layer_needs(l, op))
        return 0;
    for (int which = 0; has_norms(l, op) && which < 2; which++) {
        struct normed n;
        RETURN_IF_FAILED(open_normed(l, op, which, packed, l->w.mixed, &n));
        RETURN_IF_FAILED(turn(l, n.dout_heads, n.packed, true));
        RETURN_IF_FAILED(rf_norm_backward_input(stream, &(struct rf_norm_args){.rms = true,
                                                                               .x = n.x,
                                                                               .gamma = n.weight,
                                                                               .rstd = n.rstd,
                                                                               .dout = n.dout,
                                                                               .dx = n.free_rows}));
        RETURN_IF_FAILED(rf_copy_heads(stream, n.packed, n.free_heads, false));
    }
    if (has_norms(l, op) || !l->g->rotates)
        return 0;
    RETURN_IF_FAILED(layer_heads_of(l, packed, 0, l->heads + l->keys, &both));
    return rotate(l, both, both, true);
}

/* ---- the norms' parameters ------------------------------------------------------------------- */

static void declare(struct layer_block *b, struct model_part *part, const char *prefix, int op)
{
    static const char *const names[] = {"q_norm", "k_norm"};
    const struct layer_config *g = b->config;
    const struct layer_op *o = &g->ops[op];
    char name[64];
    for (int which = 0; o->columns[0] && which < 2; which++) {
        snprintf(name, sizeof(name), "%s.%s", o->name, names[which]);
        const int param = model_add_vector(part, g->dtype, prefix, name, "weight",
                                           layer_whole(g, op, o->columns[which]), 1);
        b->param[op] = which ? b->param[op] : param;
    }
}

static int check_part(const struct layer_config *g, int op, const struct rf_tensor_part *part)
{
    const enum layer_columns size = g->ops[op].columns[0];
    return size && size != LAYER_HEAD_SIZE && part->ranks > 1
               ? rf_fail(
                     RF_EINVAL,
                     "norms of all heads together cannot be divided among tensor ranks; use tp=1")
               : 0;
}

static const char *fault(const struct layer_op *op)
{
    const enum layer_columns q = op->columns[0], k = op->columns[1];
    const bool fits =
        q == LAYER_QUERIES ? k == LAYER_KEYS : q == k && (q == LAYER_NONE || q == LAYER_HEAD_SIZE);
    return fits && !op->columns[2]
               ? NULL
               : "norms of heads have the columns {LAYER_HEAD_SIZE, LAYER_HEAD_SIZE} or "
                 "{LAYER_QUERIES, LAYER_KEYS}";
}

static const char *text(const struct layer_op *op)
{
    return !op->columns[0] ? "" : op->columns[0] == LAYER_HEAD_SIZE ? ":norm" : ":norms";
}

/* Each rank computes gradients by its own heads, which the ranks add. With sequence parallelism
 * they are added once a step, as those of all parameters that are not split. */
static int64_t shared(const struct layer *l, int op)
{
    return has_norms(l, op) && !model_alone(&l->m) && !l->m.part.sequence ? 2 * l->size : 0;
}

static struct rf_tensor grad_of(const struct layer *l, int op, int which)
{
    return shared(l, op) ? model_elements(layer_shared_of(l, op, l->m.ctx->exchange),
                                          which * l->size, l->size)
                         : l->m.ctx->grads[l->b->param[op] + which];
}

static int take_shared(struct layer *l, int op)
{
    const struct rf_tensor sums = layer_shared_of(l, op, l->m.ctx->exchanged);
    for (int which = 0; which < 2; which++) {
        const struct rf_tensor grads = l->m.ctx->grads[l->b->param[op] + which];
        if (grads.buffer)
            RETURN_IF_FAILED(rf_add(l->m.ctx->stream, grads, grads,
                                    model_elements(sums, which * l->size, l->size)));
    }
    return 0;
}

static bool trains(const struct layer *l, int op)
{
    return has_norms(l, op) &&
           (model_wants(l->m.ctx, l->b->param[op]) || model_wants(l->m.ctx, l->b->param[op] + 1));
}

static int head_norm_grads(struct layer *l, int op)
{
    const struct rf_ctx *ctx = l->m.ctx;
    for (int which = 0; has_norms(l, op) && which < 2; which++) {
        const struct rf_tensor *s = l->op[op].own[which];
        struct rf_norm_args norm = {.rms = true, .rstd = s[RSTD], .dgamma = grad_of(l, op, which)};
        if (!model_wants(ctx, l->b->param[op] + which))
            continue;
        RETURN_IF_FAILED(normed_rows(l, op, s[DOUT], which, &norm.dout));
        RETURN_IF_FAILED(normed_rows(l, op, s[X], which, &norm.x));
        const int64_t *dim = norm.x.shape.dim;
        RETURN_IF_FAILED(model_scratch(ctx, rf_norm_scratch(dim[0], dim[1]), &norm.scratch));
        RETURN_IF_FAILED(rf_norm_backward_weight(ctx->stream, &norm));
    }
    return 0;
}

static int64_t head_scratch(const struct layer *l, int op)
{
    const int64_t size = normed_size(l, op, 0);
    return has_norms(l, op) ? rf_norm_scratch(l->m.rows * l->heads * l->size / size, size) : 0;
}

static void cut_heads(struct layer *l, int op, struct layer_regions *r)
{
    const enum rf_dtype t = l->m.dtype;
    for (int which = 0; which < 2; which++) {
        struct rf_tensor *s = l->op[op].own[which];
        const int64_t heads = which ? l->keys : l->heads;
        const bool plain = !has_norms(l, op);
        layer_cut(&r->saved, (struct model_cut){&s[X], heads * l->size, t, plain});
        layer_cut(&r->saved,
                  (struct model_cut){&s[RSTD], heads * l->size / normed_size(l, op, which), RF_F32,
                                     plain});
        layer_cut(&r->for_weight, (struct model_cut){&s[DOUT], heads * l->size, t, plain});
    }
}

/* ---- text generation ------------------------------------------------------------------------- */

static int decode_cut(struct layer_decode *d, int op, struct model_cut *cuts)
{
    const struct layer_config *g = d->g;
    if (!g->ops[op].columns[0])
        return 0;
    cuts[0] = (struct model_cut){&d->work[op][0], g->heads * g->head_size, g->dtype};
    cuts[1] = (struct model_cut){&d->work[op][1], g->heads};
    return 2;
}

static struct rf_tensor shaped(struct rf_tensor t, struct rf_shape shape)
{
    t.shape = shape;
    return t;
}

/* Norm of `count` heads of qkv, by way of the memory of the attention's result. Rotation belongs to
 * the cache. */
static int decode_norm(const struct layer_decode *d, int op, struct rf_tensor qkv, int which)
{
    const int64_t n = d->call->shape.rows, size = d->attention.size,
                  count = which ? d->attention.keys : d->attention.heads;
    const bool each = d->g->ops[op].columns[which] == LAYER_HEAD_SIZE;
    const struct rf_shape packed = rf_shape2(n, count * size),
                          rows = each ? rf_shape2(n * count, size) : packed;
    const struct rf_heads in = rf_heads_in(qkv, size, which ? d->attention.heads : 0, count);
    const struct rf_tensor before = shaped(d->work[op][0], packed),
                           after = shaped(d->result[op + 1], packed);
    RETURN_IF_FAILED(
        rf_copy_heads(d->call->stream, rf_heads_in(before, size, 0, count), in, false));
    const struct rf_norm_args norm = {.rms = true,
                                      .eps = d->g->eps,
                                      .x = shaped(before, rows),
                                      .gamma = d->call->params[d->b->param[op] + which],
                                      .out = shaped(after, rows),
                                      .rstd = shaped(d->work[op][1], rf_shape1(rows.dim[0]))};
    RETURN_IF_FAILED(rf_norm(d->call->stream, &norm));
    return rf_copy_heads(d->call->stream, in, rf_heads_in(after, size, 0, count), false);
}

static int decode(const struct layer_decode *d, int op, struct rf_tensor qkv)
{
    for (int which = 0; d->g->ops[op].columns[0] && which < 2; which++)
        RETURN_IF_FAILED(decode_norm(d, op, qkv, which));
    return 0;
}

const struct layer_row layer_heads_row = {.cut = cut_heads,
                                          .forward = {{place}},
                                          .back = {{place_back}},
                                          .weight = {{head_norm_grads}},
                                          .trains = trains,
                                          .scratch = head_scratch,
                                          .declare_last = declare,
                                          .check_part = check_part,
                                          .fault = fault,
                                          .text = text,
                                          .shared = shared,
                                          .take_shared = take_shared,
                                          .late = true,
                                          .decode_cut = decode_cut,
                                          .decode = decode};
