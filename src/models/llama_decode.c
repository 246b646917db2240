/* SPDX-License-Identifier: MIT
 *
 * Text generation by a Llama-style model: a layer with a cache of its keys and values, and the
 * embedding. The angles of the rotary embedding are a table that all layers share.
 */
#include "decode.h"
#include "llama_internal.h"
#include "vocabulary.h"

/* Parameters of a layer that are no linear maps. */
enum { LLAMA_NORM1 = 0, LLAMA_NORM2 = 3 };

/* One call of a layer. */
struct decode {
    const struct rf_decode *call;
    const struct llama_block *block;
    struct model_decode_attention attention;
    struct rf_tensor norm, rstd, qkv, mixed, sums, middle, gates, act; /* scratch */
    struct rf_tensor heads, head_rstd; /* queries or keys before their norm; of each head */
    struct rf_tensor angles;
};

static struct decode open_layer(const struct llama_block *b, const struct rf_decode *call)
{
    const struct llama_config *c = b->config;
    return (struct decode){
        .call = call, .block = b, .attention = {c->heads, c->kv_heads, c->head_size, c->dtype}};
}

#define CUTS 10
static void cut(struct decode *d, const struct rf_decode_shape *shape, struct model_cut cuts[CUTS])
{
    const struct llama_config *c = d->block->config;
    const struct model_cut all[CUTS] = {
        {&d->norm, c->channels, c->dtype},
        {&d->rstd},
        {&d->qkv, llama_qkv_columns(c), c->dtype},
        {&d->mixed, (int64_t)c->heads * c->head_size, c->dtype},
        {&d->sums, model_decode_columns(&d->attention, shape), RF_F32},
        {&d->middle, c->channels, c->residual},
        {&d->gates, 2 * (int64_t)c->hidden, c->dtype},
        {&d->act, c->hidden, c->dtype},
        {&d->heads, (int64_t)c->heads * c->head_size, c->dtype, !c->qk_norm},
        {&d->head_rstd, c->heads, RF_F32, !c->qk_norm},
    };
    for (int i = 0; i < CUTS; i++)
        cuts[i] = all[i];
}

static struct rf_shape angles_shape(const struct llama_config *c,
                                    const struct rf_decode_shape *shape)
{
    return rf_shape2(shape->length, c->head_size);
}

static int layer_sizes(const void *self, const struct rf_decode_shape *shape,
                       struct rf_decode_sizes *out)
{
    const struct llama_block *b = self;
    const struct llama_config *c = b->config;
    struct decode d = open_layer(b, NULL);
    const struct model_linear *const linears[] = {&b->qkv, &b->proj, &b->gate_up, &b->down};
    struct model_cut cuts[CUTS];
    cut(&d, shape, cuts);
    *out = (struct rf_decode_sizes){.cache = model_decode_cache_bytes(&d.attention, shape),
                                    .table = rf_suballocate_bytes(angles_shape(c, shape), RF_F32),
                                    .scratch = model_cut_bytes(shape->rows, cuts, CUTS) +
                                               model_decode_adapter_bytes(shape, linears, 4),
                                    .out = rf_shape2(shape->rows, c->channels),
                                    .dtype = c->residual};
    return 0;
}

static int get_angles(const struct rf_decode *call, const struct llama_config *c,
                      struct rf_tensor *out)
{
    uint64_t at = 0;
    return rf_suballocate(call->table, &at, angles_shape(c, &call->shape), RF_F32, out);
}

static int prepare(const struct rf_decode *call, void *self)
{
    const struct llama_block *b = self;
    const struct llama_rope_scaling *s = &b->config->rope_scaling;
    const struct rf_rotary_opts rotary = {
        .theta = (double)b->config->theta,
        .scaling = {(double)s->factor, (double)s->low_freq, (double)s->high_freq, s->original}};
    struct rf_tensor angles;
    RETURN_IF_FAILED(get_angles(call, b->config, &angles));
    return rf_rotary_angles(call->stream, angles, &rotary);
}

static int norm(const struct decode *d, struct rf_tensor x, int weight)
{
    return rf_rmsnorm(d->call->stream, d->norm, d->rstd, x, d->call->params[weight],
                      d->block->config->eps);
}

static struct rf_tensor shaped(struct rf_tensor t, struct rf_shape shape)
{
    t.shape = shape;
    return t;
}

/* Norm of `count` heads of qkv, by way of the memory of the attention's result. */
static int norm_heads(const struct decode *d, int weight, int64_t first, int64_t count)
{
    const int64_t n = d->call->shape.rows, size = d->attention.size;
    const struct rf_shape packed = rf_shape2(n, count * size), rows = rf_shape2(n * count, size);
    const struct rf_heads in = rf_heads_in(d->qkv, size, first, count);
    const struct rf_tensor before = shaped(d->heads, packed), after = shaped(d->mixed, packed);
    if (weight == 0)
        return 0;
    RETURN_IF_FAILED(
        rf_copy_heads(d->call->stream, rf_heads_in(before, size, 0, count), in, false));
    RETURN_IF_FAILED(rf_rmsnorm(d->call->stream, shaped(after, rows),
                                shaped(d->head_rstd, rf_shape1(n * count)), shaped(before, rows),
                                d->call->params[weight], d->block->config->eps));
    return rf_copy_heads(d->call->stream, in, rf_heads_in(after, size, 0, count), false);
}

static int attention(const struct decode *d, struct rf_tensor in)
{
    const struct rf_tensor none = {0};
    RETURN_IF_FAILED(norm(d, in, LLAMA_NORM1));
    RETURN_IF_FAILED(model_decode_linear(d->call, &d->block->qkv, d->qkv, d->norm, none));
    RETURN_IF_FAILED(norm_heads(d, d->block->q_norm, 0, d->attention.heads));
    RETURN_IF_FAILED(norm_heads(d, d->block->k_norm, d->attention.heads, d->attention.keys));
    RETURN_IF_FAILED(
        model_decode_attend(d->call, &d->attention, d->mixed, d->qkv, d->angles, d->sums));
    return model_decode_linear(d->call, &d->block->proj, d->middle, d->mixed, in);
}

static int unit(const struct decode *d, struct rf_tensor out)
{
    const struct rf_tensor none = {0};
    RETURN_IF_FAILED(norm(d, d->middle, LLAMA_NORM2));
    RETURN_IF_FAILED(model_decode_linear(d->call, &d->block->gate_up, d->gates, d->norm, none));
    RETURN_IF_FAILED(rf_glu(d->call->stream, RF_ACT_SILU, d->act, d->gates, none));
    return model_decode_linear(d->call, &d->block->down, out, d->act, d->middle);
}

static int layer_decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                        struct rf_tensor out)
{
    struct decode d = open_layer(self, call);
    struct model_cut cuts[CUTS];
    cut(&d, &call->shape, cuts);
    RETURN_IF_FAILED(model_suballocate(call->scratch, call->shape.rows, cuts, CUTS));
    RETURN_IF_FAILED(get_angles(call, d.block->config, &d.angles));
    RETURN_IF_FAILED(attention(&d, in));
    return unit(&d, out);
}

const struct rf_decode_ops llama_layer_decode = {layer_sizes, prepare, layer_decode};

/* ---- embedding ------------------------------------------------------------------------------- */

static struct model_embedding embedding_of(const struct llama_config *c)
{
    return (struct model_embedding){
        .vocab = c->vocab, .channels = c->channels, .dtype = c->residual};
}

static int embed_sizes(const void *self, const struct rf_decode_shape *shape,
                       struct rf_decode_sizes *out)
{
    const struct model_embedding e = embedding_of(self);
    return model_decode_embed_sizes(&e, shape, out);
}

static int embed(const struct rf_decode *call, void *self, struct rf_tensor in,
                 struct rf_tensor out)
{
    const struct model_embedding e = embedding_of(self);
    return model_decode_embed(call, &e, in, out);
}

const struct rf_decode_ops llama_embedding_decode = {.sizes = embed_sizes, .decode = embed};
