/* SPDX-License-Identifier: MIT
 *
 * Text generation by a layer: its list of operations with a cache of keys and values. The angles of
 * the rotary embedding are a table that all layers share.
 */
#include "decode.h"
#include "layer.h"

/* One call. Results that are in use one at a time share memory: norms; sums with the stream. */
struct decode {
    const struct rf_decode *call;
    const struct layer_block *b;
    const struct layer_config *g;
    struct model_decode_attention attention;
    struct rf_tensor in, out; /* of the layer */
    struct rf_tensor norm, post, mean, rstd, sums, middle;
    struct rf_tensor heads, head_rstd; /* queries or keys before their norm; of each head */
    struct rf_tensor angles;
    struct rf_tensor result[LAYER_MOST]; /* of the operations */
};

static void open_layer(struct decode *d, const struct layer_block *b, const struct rf_decode *call)
{
    const struct layer_config *g = b->config;
    *d = (struct decode){
        .call = call, .b = b, .g = g, .attention = {g->heads, g->kv_heads, g->head_size, g->dtype}};
}

static int64_t columns_of(const struct layer_config *g, int op)
{
    switch (g->ops[op].kind) {
    case LAYER_ATTEND:
        return g->heads * g->head_size;
    case LAYER_GATE:
        return layer_hidden(g, op);
    default:
        return layer_outputs(g, op);
    }
}

#define MOST_CUTS (LAYER_MOST + 8)
static int cut(struct decode *d, const struct rf_decode_shape *shape,
               struct model_cut cuts[MOST_CUTS])
{
    const struct layer_config *g = d->g;
    bool post = false;
    for (int k = 0; k < d->b->count; k++)
        post = post || (g->ops[k].kind == LAYER_NORM && g->ops[k + 1].kind == LAYER_ADD);
    const struct model_cut all[] = {
        {&d->norm, g->channels, g->dtype},
        {&d->post, g->channels, g->residual, !post},
        {&d->mean, .absent = g->rms},
        {&d->rstd},
        {&d->sums, g->heads ? model_decode_columns(&d->attention, shape) : 0, RF_F32, !g->heads},
        {&d->middle, g->channels, g->residual},
        {&d->heads, g->heads * g->head_size, g->dtype, !g->head_norms},
        {&d->head_rstd, g->heads, RF_F32, !g->head_norms},
    };
    int count = 0;
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        cuts[count++] = all[k];
    for (int k = 0; k < d->b->count; k++) {
        const enum layer_kind kind = g->ops[k].kind, then = g->ops[k + 1].kind;
        const bool apart = kind == LAYER_ROW_LINEAR && then != LAYER_ADD;
        if (apart || kind == LAYER_COLUMN_LINEAR || kind == LAYER_ATTEND || kind == LAYER_GATE)
            cuts[count++] =
                (struct model_cut){&d->result[k], columns_of(g, k), apart ? g->residual : g->dtype};
    }
    return count;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static struct rf_shape angles_shape(const struct layer_config *g,
                                    const struct rf_decode_shape *shape)
{
    return rf_shape2(shape->length, g->head_size);
}

static int sizes(const void *self, const struct rf_decode_shape *shape, struct rf_decode_sizes *out)
{
    const struct layer_block *b = self;
    const struct layer_config *g = b->config;
    const struct model_linear *linears[LAYER_MOST];
    struct model_cut cuts[MOST_CUTS];
    struct decode d;
    int count = 0;
    open_layer(&d, b, NULL);
    for (int k = 0; k < b->count; k++)
        if (b->linear[k].weight >= 0)
            linears[count++] = &b->linear[k];
    *out = (struct rf_decode_sizes){
        .cache = g->heads ? model_decode_cache_bytes(&d.attention, shape) : 0,
        .table = g->rotates ? rf_suballocate_bytes(angles_shape(g, shape), RF_F32) : 0,
        .scratch = model_cut_bytes(shape->rows, cuts, cut(&d, shape, cuts)) +
                   model_decode_adapter_bytes(shape, linears, count),
        .out = rf_shape2(shape->rows, g->channels),
        .dtype = g->residual};
    return g->head_size % 2 == 0
               ? 0
               : rf_fail(RF_ENOTSUP,
                         "heads of %lld channels cannot be cached; the number must be even",
                         (long long)g->head_size);
}

static int get_angles(const struct rf_decode *call, const struct layer_config *g,
                      struct rf_tensor *out)
{
    uint64_t at = 0;
    if (!g->rotates)
        return 0;
    return rf_suballocate(call->table, &at, angles_shape(g, &call->shape), RF_F32, out);
}

static int prepare(const struct rf_decode *call, void *self)
{
    const struct layer_block *b = self;
    struct rf_rotary_opts rotary = b->config->rotary;
    struct rf_tensor angles;
    if (!b->config->rotates)
        return 0;
    rotary.halves = false;
    RETURN_IF_FAILED(get_angles(call, b->config, &angles));
    return rf_rotary_angles(call->stream, angles, &rotary);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int norm(const struct decode *d, int op, struct rf_tensor out, struct rf_tensor x)
{
    const struct rf_tensor *p = &d->call->params[d->b->param[op]];
    struct rf_norm_args norm = {
        .rms = d->g->rms, .eps = d->g->eps, .x = x, .gamma = p[0], .out = out, .rstd = d->rstd};
    if (!norm.rms) {
        norm.beta = p[1];
        norm.mean = d->mean;
    }
    return rf_norm(d->call->stream, &norm);
}

static struct rf_tensor shaped(struct rf_tensor t, struct rf_shape shape)
{
    t.shape = shape;
    return t;
}

/* Norm of `count` heads of qkv, by way of the memory of the attention's result. */
static int norm_heads(const struct decode *d, struct rf_tensor qkv, struct rf_tensor mixed,
                      int which)
{
    const int64_t n = d->call->shape.rows, size = d->attention.size,
                  count = which ? d->attention.keys : d->attention.heads;
    const bool each = d->g->head_norms == LAYER_HEAD_NORM;
    const struct rf_shape packed = rf_shape2(n, count * size),
                          rows = each ? rf_shape2(n * count, size) : packed;
    const struct rf_heads in = rf_heads_in(qkv, size, which ? d->attention.heads : 0, count);
    const struct rf_tensor before = shaped(d->heads, packed), after = shaped(mixed, packed);
    RETURN_IF_FAILED(
        rf_copy_heads(d->call->stream, rf_heads_in(before, size, 0, count), in, false));
    const struct rf_norm_args norm = {.rms = true,
                                      .eps = d->g->eps,
                                      .x = shaped(before, rows),
                                      .gamma = d->call->params[d->b->head_norm[which]],
                                      .out = shaped(after, rows),
                                      .rstd = shaped(d->head_rstd, rf_shape1(rows.dim[0]))};
    RETURN_IF_FAILED(rf_norm(d->call->stream, &norm));
    return rf_copy_heads(d->call->stream, in, rf_heads_in(after, size, 0, count), false);
}

/* One operation. *value: the result of the one before it, then its own. *stream: the stream. */
static int run(const struct decode *d, int op, struct rf_tensor *value, struct rf_tensor *stream)
{
    const struct layer_op *o = &d->g->ops[op];
    const struct rf_tensor none = {0}, in = *value;
    const bool adds = o[1].kind == LAYER_ADD;
    const struct rf_tensor sum = op + 2 == d->b->count ? d->out : d->middle;
    *value = d->result[op];
    switch (o->kind) {
    case LAYER_NORM:
        *value = adds ? d->post : d->norm;
        RETURN_IF_FAILED(norm(d, op, *value, in));
        if (adds)
            RETURN_IF_FAILED(rf_add(d->call->stream, sum, *stream, *value));
        break;
    case LAYER_IDENTITY:
        *value = d->norm;
        return rf_cast(d->call->stream, *value, in);
    case LAYER_COLUMN_LINEAR:
        return model_decode_linear(d->call, &d->b->linear[op], *value, in, none);
    case LAYER_ROW_LINEAR:
        RETURN_IF_FAILED(model_decode_linear(d->call, &d->b->linear[op], adds ? sum : *value, in,
                                             adds ? *stream : none));
        break;
    case LAYER_HEADS:
        *value = in;
        for (int which = 0; d->g->head_norms && which < 2; which++)
            RETURN_IF_FAILED(norm_heads(d, in, d->result[op + 1], which));
        return 0;
    case LAYER_ATTEND:
        return model_decode_attend(d->call, &d->attention, *value, in, d->angles, d->sums);
    case LAYER_ACT:
        *value = in;
        return rf_activate(d->call->stream, o->act, in, in);
    case LAYER_GATE:
        return rf_glu(d->call->stream, o->act, *value, in, none);
    default: /* LAYER_ADD: done by what is before it */
        *value = in;
        return 0;
    }
    if (adds)
        *value = *stream = sum;
    return 0;
}

static int decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                  struct rf_tensor out)
{
    struct rf_tensor value = in, stream = in;
    struct model_cut cuts[MOST_CUTS];
    struct decode d;
    open_layer(&d, self, call);
    d.in = in;
    d.out = out;
    RETURN_IF_FAILED(
        model_suballocate(call->scratch, call->shape.rows, cuts, cut(&d, &call->shape, cuts)));
    RETURN_IF_FAILED(get_angles(call, d.g, &d.angles));
    for (int k = 0; k < d.b->count; k++)
        RETURN_IF_FAILED(run(&d, k, &value, &stream));
    return 0;
}

const struct rf_decode_ops layer_decode_ops = {sizes, prepare, decode};
