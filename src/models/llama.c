/* SPDX-License-Identifier: MIT
 *
 * Llama-style models, as data: their config, and the operations of a layer.
 */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>

#include "transformer.h"

#define TEXT 1536 /* bytes of a config's text, with a layer of LAYER_MOST operations */

struct llama {
    struct transformer t;
};

/* clang-format off */
/* By whether the projection to queries, keys and values has a bias, and by the norm of heads. */
#define LAYER(qkv_bias, heads_norm)                                                                \
    {{LAYER_NORM, "norm1"},                                                                        \
     {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED, .bias = qkv_bias},                       \
     {LAYER_HEADS, "attention", {heads_norm, heads_norm}},                                         \
     {LAYER_ATTEND},                                                                               \
     {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}},                                       \
     {LAYER_ADD},                                                                                  \
     {LAYER_NORM, "norm2"},                                                                        \
     {LAYER_COLUMN_LINEAR, "mlp.gate_up", {LAYER_HIDDEN, LAYER_HIDDEN}},                           \
     {LAYER_GATE, .act = RF_ACT_SILU},                                                             \
     {LAYER_ROW_LINEAR, "mlp.down", {LAYER_CHANNELS}},                                             \
     {LAYER_ADD},                                                                                  \
     {LAYER_END}}
static const struct layer_op layers[2][2][LAYER_MOST] = {
    {LAYER(LAYER_NO_BIAS, LAYER_NONE), LAYER(LAYER_NO_BIAS, LAYER_HEAD_SIZE)},
    {LAYER(LAYER_BIAS_LAST, LAYER_NONE), LAYER(LAYER_BIAS_LAST, LAYER_HEAD_SIZE)}};
/* clang-format on */

struct llama_config llama_with_defaults(const struct llama_config *config)
{
    struct llama_config c = *config;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.head_size = c.head_size ? c.head_size : c.channels / c.heads;
    c.hidden = c.hidden ? c.hidden : (c.channels * 8 / 3 + 31) / 32 * 32;
    c.vocab = c.vocab ? c.vocab : 257;
    c.theta = c.theta != 0 ? c.theta : 10000;
    c.eps = rf_option(c.eps, 1e-5f);
    c.architecture = c.architecture ? c.architecture : "LlamaForCausalLM";
    if (c.recompute & MODEL_RECOMPUTE_MLP)
        c.recompute |= MODEL_RECOMPUTE_GELU;
    return c;
}

static bool scaling_is_wrong(const struct llama_rope_scaling *s)
{
    return s->factor != 0 && (!(s->factor >= 1 && s->factor < 1e6f) || !(s->low_freq >= 1e-3f) ||
                              !(s->high_freq > s->low_freq) ||
                              !(s->high_freq - s->low_freq >= 0x1p-31f * (float)s->original) ||
                              !(s->high_freq <= (float)s->original));
}

/* What is wrong with the sizes; NULL: nothing. transformer.c checks the rest. */
static const char *fault_of(const struct llama_config *c)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->vocab < 0)
        return "layers, channels and heads must be at least 1";
    if (c->kv_heads < 0 || c->hidden < 0 || c->head_rows < 0 || c->head_size < 0)
        return "kv_heads, head_size, hidden and head_rows must be 0 (the default) or more";
    if (c->channels > 1 << 20 || c->layers > 1 << 16 || c->vocab > 1 << 24 || c->hidden > 1 << 24)
        return "channels, layers, hidden size or vocabulary are too large; use smaller sizes";
    if (c->head_size > 256 || c->heads > 1 << 20)
        return "heads are too large or too many; use up to 256 channels in a head";
    if (c->head_size == 0 && c->channels % c->heads != 0)
        return "heads must divide channels; for example 4 heads for 128 channels";
    if ((c->head_size ? c->head_size : c->channels / c->heads) % 2 != 0)
        return "channels of a head must be even, because the rotary embedding rotates pairs of "
               "channels";
    if (c->kv_heads && c->heads % c->kv_heads != 0)
        return "kv_heads must divide heads; for example 2 for 8 heads";
    if ((c->theta != 0 && !(c->theta >= 1)) || !(c->eps >= 0))
        return "theta must be at least 1, and eps must not be negative";
    if (scaling_is_wrong(&c->rope_scaling))
        return "the factor of rope_scaling must be 1 or more, and low_freq, high_freq and original "
               "must be in rising order from above 0; for example 8, 1, 4, 8192";
    return NULL;
}

/* A config without a feature has the same text as before the feature existed. */
static void say_config(char text[TEXT], const struct llama_config *c)
{
    char theta[24], eps[24], factor[24], low[24], high[24];
    int n = snprintf(
        text, TEXT,
        "model=llama layers=%d channels=%d heads=%d kv-heads=%d hidden=%d vocabulary=%d "
        "theta=%s eps=%s tied=%s",
        c->layers, c->channels, c->heads, c->kv_heads, c->hidden, c->vocab,
        model_real_text(c->theta, theta), model_real_text(c->eps, eps), c->tied ? "yes" : "no");
    const size_t left = TEXT;
    if (c->head_size * c->heads != c->channels)
        n += snprintf(text + n, left - (size_t)n, " head-size=%d", c->head_size);
    if (c->layer)
        n += layer_text(c->layer, text + n, left - (size_t)n);
    if (c->qkv_bias)
        n += snprintf(text + n, left - (size_t)n, " qkv-bias=yes");
    if (c->qk_norm)
        n += snprintf(text + n, left - (size_t)n, " qk-norm=yes");
    if (c->quantize)
        n +=
            snprintf(text + n, left - (size_t)n, " quantize=%s", rf_quantization_name(c->quantize));
    const struct llama_rope_scaling *s = &c->rope_scaling;
    if (s->factor != 0)
        snprintf(text + n, left - (size_t)n,
                 " rope-factor=%s rope-low=%s rope-high=%s rope-original=%d",
                 model_real_text(s->factor, factor), model_real_text(s->low_freq, low),
                 model_real_text(s->high_freq, high), s->original);
}

int llama_create(const struct llama_config *config, struct llama **out)
{
    const char *fault = config ? fault_of(config) : "a model needs a config";
    if (fault)
        return rf_fail(RF_EINVAL, "%s", fault);
    const struct llama_config c = llama_with_defaults(config);
    const struct llama_rope_scaling *s = &c.rope_scaling;
    const struct transformer_config t = {
        .layer = {.ops = c.layer ? c.layer : layers[c.qkv_bias][c.qk_norm],
                  .channels = c.channels,
                  .heads = c.heads,
                  .kv_heads = c.kv_heads,
                  .head_size = c.head_size,
                  .hidden = c.hidden,
                  .dtype = c.dtype,
                  .residual = c.residual,
                  .recompute = c.recompute,
                  .rms = true,
                  .eps = c.eps,
                  .rotates = true,
                  .rotary = {.theta = (double)c.theta,
                             .halves = true,
                             .scaling = {(double)s->factor, (double)s->low_freq,
                                         (double)s->high_freq, s->original}},
                  .adapter = c.adapter,
                  .quantize = c.quantize,
                  .reversible = c.reversible,
                  .recipe = c.recipe},
        .layers = c.layers,
        .vocab = c.vocab,
        .head_rows = c.head_rows,
        .tied = c.tied,
        .architecture = c.architecture,
        .tokens = "embedding",
        .norm = "norm"};
    char text[TEXT];
    RETURN_IF_FAILED(transformer_check(&t));
    say_config(text, &c);
    struct llama *llama = calloc(1, sizeof(*llama));
    if (!llama)
        return rf_fail(RF_ENOMEM, "out of memory for a model");
    const int rc = transformer_create(&llama->t, &t, text);
    if (rc < 0) {
        free(llama);
        return rc;
    }
    *out = llama;
    return 0;
}

int llama_adapter_modules(const struct llama *model, struct model_adapter_module *out, int capacity)
{
    return transformer_adapter_modules(&model->t, out, capacity);
}

int llama_freeze(struct llama *model, const char *pattern)
{
    return model_freeze(&model->t.model, pattern);
}

void llama_destroy(struct llama *model)
{
    if (!model)
        return;
    transformer_destroy(&model->t);
    free(model);
}

const struct rf_block *llama_blocks(const struct llama *model, int *count)
{
    *count = model->t.model.count;
    return model->t.model.blocks;
}
