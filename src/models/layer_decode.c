/* SPDX-License-Identifier: MIT
 *
 * Text generation by a layer: its list of operations with a key-value cache. The angles of the
 * rotary embedding are a table that all layers share.
 */
#include "layer_call.h"

static void open_layer(struct layer_decode *d, const struct layer_block *b,
                       const struct rf_decode *call)
{
    const struct layer_config *g = b->config;
    *d = (struct layer_decode){
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

#define MOST_CUTS (2 * LAYER_MOST + 6)
static int cut(struct layer_decode *d, const struct rf_decode_shape *shape,
               struct model_cut cuts[MOST_CUTS])
{
    const struct layer_config *g = d->g;
    bool post = g->reversible;
    for (int k = 0; k < d->b->count; k++)
        post = post || (g->ops[k].kind == LAYER_NORM && g->ops[k + 1].kind == LAYER_ADD);
    const struct model_cut all[] = {
        {&d->norm, g->channels, g->dtype},
        {&d->post, g->channels, g->residual, !post},
        {&d->mean, .absent = g->rms},
        {&d->rstd},
        {&d->sums, g->heads ? model_decode_columns(&d->attention, shape) : 0, RF_F32, !g->heads},
        {&d->middle, g->channels, g->residual},
    };
    int count = 0;
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        cuts[count++] = all[k];
    for (int k = 0; k < d->b->count; k++) {
        const enum layer_kind kind = g->ops[k].kind, then = g->ops[k + 1].kind;
        if (layer_rows[kind]->decode_cut)
            count += layer_rows[kind]->decode_cut(d, k, cuts + count);
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
    struct layer_decode d;
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
        .out = rf_shape2(shape->rows, g->reversible ? 2 * g->channels : g->channels),
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

static int norm(const struct layer_decode *d, int op, struct rf_tensor out, struct rf_tensor x)
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

/* Runs one operation. *value: the previous operation's result, then its own. *stream: the stream.
 */
static int run(const struct layer_decode *d, int op, struct rf_tensor *value,
               struct rf_tensor *stream)
{
    const struct layer_op *o = &d->g->ops[op];
    const struct rf_tensor none = {0}, in = *value;
    const bool ends = o[1].kind == LAYER_ADD, adds = ends && !d->g->reversible;
    const struct rf_tensor sum = op + 2 == d->b->count ? d->out : d->middle;
    *value = d->result[op];
    switch (o->kind) {
    case LAYER_NORM:
        *value = ends ? d->post : d->norm;
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
        *value = ends ? d->post : *value;
        RETURN_IF_FAILED(model_decode_linear(d->call, &d->b->linear[op], adds ? sum : *value, in,
                                             adds ? *stream : none));
        break;
    case LAYER_ATTEND:
        return model_decode_attend(d->call, &d->attention, *value, in, d->angles, d->sums);
    case LAYER_ACT:
        *value = in;
        return rf_activate(d->call->stream, o->act, in, in);
    case LAYER_GATE:
        return rf_glu(d->call->stream, o->act, *value, in, none);
    default: /* in place; LAYER_ADD is done by what is before it */
        *value = in;
        return layer_rows[o->kind]->decode ? layer_rows[o->kind]->decode(d, op, in) : 0;
    }
    if (adds)
        *value = *stream = sum;
    return 0;
}

/* Operations `first` to `end` - 1. */
static int run_all(const struct layer_decode *d, int first, int end, struct rf_tensor stream)
{
    struct rf_tensor value = stream;
    for (int k = first; k < end; k++)
        RETURN_IF_FAILED(run(d, k, &value, &stream));
    return 0;
}

/* The branches of a reversible layer, each up to its sum. */
static int run_pair(const struct layer_decode *d)
{
    for (int branch = 0, first = 0, end = 0; branch < 2; branch++, first = ++end) {
        while (d->g->ops[end].kind != LAYER_ADD)
            end++;
        RETURN_IF_FAILED(layer_pair_decode_take(d, branch, d->middle));
        RETURN_IF_FAILED(run_all(d, first, end, d->middle));
        RETURN_IF_FAILED(layer_pair_decode_add(d, branch, d->post));
    }
    return 0;
}

static int decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                  struct rf_tensor out)
{
    struct model_cut cuts[MOST_CUTS];
    struct layer_decode d;
    open_layer(&d, self, call);
    d.in = in;
    d.out = out;
    RETURN_IF_FAILED(
        model_suballocate(call->scratch, call->shape.rows, cuts, cut(&d, &call->shape, cuts)));
    RETURN_IF_FAILED(get_angles(call, d.g, &d.angles));
    return d.g->reversible ? run_pair(&d) : run_all(&d, 0, d.b->count, in);
}

const struct rf_decode_ops layer_decode_ops = {sizes, prepare, decode};
