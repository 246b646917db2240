/* SPDX-License-Identifier: MIT
 *
 * Text generation by a GPT-2: a layer with a cache of its keys and values, and the embedding.
 */
#include <stdio.h>

#include "decode.h"
#include "gpt2_internal.h"
#include "vocabulary.h"

/* Parameters of a layer that are no linear maps; the biases of norms follow their weights. */
enum { GPT2_LN1 = 0, GPT2_LN2 = 6 };

/* One call of a layer. */
struct decode {
    const struct rf_decode *call;
    const struct gpt2_block *block;
    struct model_decode_attention attention;
    struct rf_tensor norm, mean, rstd, qkv, mixed, sums, middle, act; /* scratch */
};

static struct decode open_layer(const struct gpt2_block *b, const struct rf_decode *call)
{
    const struct gpt2_config *c = b->config;
    return (struct decode){.call = call,
                           .block = b,
                           .attention = {c->heads, c->heads, c->channels / c->heads, c->dtype}};
}

#define CUTS 8
static void cut(struct decode *d, const struct rf_decode_shape *shape, struct model_cut cuts[CUTS])
{
    const struct gpt2_config *g = d->block->config;
    const int64_t c = g->channels;
    const struct model_cut all[CUTS] = {
        {&d->norm, c, g->dtype},
        {&d->mean},
        {&d->rstd},
        {&d->qkv, 3 * c, g->dtype},
        {&d->mixed, c, g->dtype},
        {&d->sums, model_decode_columns(&d->attention, shape), RF_F32},
        {&d->middle, c, g->residual},
        {&d->act, 4 * c, g->dtype},
    };
    for (int i = 0; i < CUTS; i++)
        cuts[i] = all[i];
}

static int layer_sizes(const void *self, const struct rf_decode_shape *shape,
                       struct rf_decode_sizes *out)
{
    const struct gpt2_block *b = self;
    struct decode d = open_layer(b, NULL);
    const struct model_linear *const linears[] = {&b->qkv, &b->proj, &b->fc, &b->fc2};
    struct model_cut cuts[CUTS];
    cut(&d, shape, cuts);
    *out = (struct rf_decode_sizes){.cache = model_decode_cache_bytes(&d.attention, shape),
                                    .scratch = model_cut_bytes(shape->rows, cuts, CUTS) +
                                               model_decode_adapter_bytes(shape, linears, 4),
                                    .out = rf_shape2(shape->rows, b->config->channels),
                                    .dtype = b->config->residual};
    if (d.attention.size % 2 == 0)
        return 0;
    snprintf(out->fault, sizeof(out->fault),
             "heads of %lld channels cannot be cached; the number must be even",
             (long long)d.attention.size);
    return RF_ENOTSUP;
}

static int norm(const struct decode *d, struct rf_tensor x, int weight)
{
    const struct rf_tensor *p = d->call->params;
    return rf_layernorm(d->call->stream, d->norm, d->mean, d->rstd, x, p[weight], p[weight + 1],
                        GPT2_EPS);
}

static int layer_decode(const struct rf_decode *call, void *self, struct rf_tensor in,
                        struct rf_tensor out)
{
    const struct gpt2_block *b = self;
    const struct rf_tensor none = {0};
    struct decode d = open_layer(b, call);
    struct model_cut cuts[CUTS];
    cut(&d, &call->shape, cuts);
    RETURN_IF_FAILED(model_suballocate(call->scratch, call->shape.rows, cuts, CUTS));
    RETURN_IF_FAILED(norm(&d, in, GPT2_LN1));
    RETURN_IF_FAILED(model_decode_linear(call, &b->qkv, d.qkv, d.norm, none));
    RETURN_IF_FAILED(model_decode_attend(call, &d.attention, d.mixed, d.qkv, none, d.sums));
    RETURN_IF_FAILED(model_decode_linear(call, &b->proj, d.middle, d.mixed, in));
    RETURN_IF_FAILED(norm(&d, d.middle, GPT2_LN2));
    RETURN_IF_FAILED(model_decode_linear(call, &b->fc, d.act, d.norm, none));
    RETURN_IF_FAILED(rf_activate(call->stream, RF_ACT_GELU, d.act, d.act));
    return model_decode_linear(call, &b->fc2, out, d.act, d.middle);
}

const struct rf_decode_ops gpt2_layer_decode = {.sizes = layer_sizes, .decode = layer_decode};

/* ---- embedding ------------------------------------------------------------------------------- */

static struct model_embedding embedding_of(const struct gpt2_config *c)
{
    return (struct model_embedding){
        .vocab = c->vocab, .channels = c->channels, .dtype = c->residual, .positions = c->seq};
}

static int embed_sizes(const void *self, const struct rf_decode_shape *shape,
                       struct rf_decode_sizes *out)
{
    const struct gpt2_config *c = self;
    const struct model_embedding e = embedding_of(c);
    RETURN_IF_FAILED(model_decode_embed_sizes(&e, shape, out));
    if (shape->length <= c->seq)
        return 0;
    snprintf(out->fault, sizeof(out->fault),
             "sequences of %lld tokens are longer than the model's %d positions; use shorter ones",
             (long long)shape->length, c->seq);
    return RF_EINVAL;
}

static int embed(const struct rf_decode *call, void *self, struct rf_tensor in,
                 struct rf_tensor out)
{
    const struct model_embedding e = embedding_of(self);
    return model_decode_embed(call, &e, in, out);
}

const struct rf_decode_ops gpt2_embedding_decode = {.sizes = embed_sizes, .decode = embed};
