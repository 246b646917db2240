/* SPDX-License-Identifier: MIT
 *
 * A GPT-2, as data: its config, and the operations of a layer.
 */
#include "gpt2.h"

#include <stdio.h>
#include <stdlib.h>

#include "transformer.h"

#define EPS 1e-5f
#define TEXT 512 /* bytes of a config's text */

struct gpt2 {
    struct transformer t;
};

static const struct layer_op layer_ops[] = {
    {LAYER_NORM, "ln1"},
    {LAYER_COLUMN_LINEAR, "attention.qkv", LAYER_PACKED, .bias = LAYER_BIAS},
    {LAYER_ATTEND},
    {LAYER_ROW_LINEAR, "attention.proj", {LAYER_CHANNELS}, .bias = LAYER_BIAS},
    {LAYER_ADD},
    {LAYER_NORM, "ln2"},
    {LAYER_COLUMN_LINEAR, "mlp.fc", {LAYER_HIDDEN}, .bias = LAYER_BIAS},
    {LAYER_ACT, .act = RF_ACT_GELU},
    {LAYER_ROW_LINEAR, "mlp.proj", {LAYER_CHANNELS}, .bias = LAYER_BIAS},
    {LAYER_ADD},
    {LAYER_END}};

/* What is wrong with the sizes; NULL: nothing. transformer.c checks the rest. */
static const char *fault_of(const struct gpt2_config *c)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->seq < 1 || c->vocab < 0)
        return "layers, channels, heads and sequence length must be at least 1";
    if (c->head_rows < 0)
        return "head_rows must be 0 (all rows at once) or more";
    if (c->channels % c->heads != 0)
        return "heads must divide channels; for example 4 heads for 128 channels";
    if (c->channels > 1 << 20 || c->layers > 1 << 16 || c->vocab > 1 << 24)
        return "channels, layers or vocabulary are too large; use smaller sizes";
    return NULL;
}

static void say_config(char text[TEXT], const struct gpt2_config *c)
{
    char eps[24];
    int n = snprintf(text, TEXT,
                     "model=gpt2 layers=%d channels=%d heads=%d positions=%d vocabulary=%d eps=%s",
                     c->layers, c->channels, c->heads, c->seq, c->vocab, model_real_text(EPS, eps));
    if (c->quantize)
        snprintf(text + n, TEXT - (size_t)n, " quantize=%s", rf_quantization_name(c->quantize));
}

/* Adds the parts that must be recomputed together with the requested parts. */
static unsigned whole_recompute(const struct gpt2_config *c)
{
    unsigned parts = c->recompute;
    if ((parts & MODEL_RECOMPUTE_GELU) && c->dtype != RF_F32)
        parts |= MODEL_RECOMPUTE_MLP;
    return parts & MODEL_RECOMPUTE_MLP ? parts | MODEL_RECOMPUTE_GELU : parts;
}

int gpt2_create(const struct gpt2_config *config, struct gpt2 **out)
{
    const char *fault = config ? fault_of(config) : "a model needs a config";
    if (fault)
        return rf_fail(RF_EINVAL, "%s", fault);
    struct gpt2_config c = *config;
    c.vocab = c.vocab ? c.vocab : 257;
    const struct transformer_config t = {.layer = {.ops = layer_ops,
                                                   .channels = c.channels,
                                                   .heads = c.heads,
                                                   .kv_heads = c.heads,
                                                   .head_size = c.channels / c.heads,
                                                   .hidden = 4 * (int64_t)c.channels,
                                                   .dtype = c.dtype,
                                                   .residual = c.residual,
                                                   .recompute = whole_recompute(&c),
                                                   .eps = EPS,
                                                   .adapter = c.adapter,
                                                   .quantize = c.quantize,
                                                   .reversible = c.reversible,
                                                   .recipe = c.recipe},
                                         .layers = c.layers,
                                         .vocab = c.vocab,
                                         .head_rows = c.head_rows,
                                         .positions = c.seq,
                                         .tied = true,
                                         .architecture =
                                             c.architecture ? c.architecture : "GPT2LMHeadModel",
                                         .tokens = "wte",
                                         .places = "wpe",
                                         .norm = "ln_f"};
    char text[TEXT];
    RETURN_IF_FAILED(transformer_check(&t));
    say_config(text, &c);
    struct gpt2 *gpt2 = calloc(1, sizeof(*gpt2));
    if (!gpt2)
        return rf_fail(RF_ENOMEM, "out of memory for a model");
    const int rc = transformer_create(&gpt2->t, &t, text);
    if (rc < 0) {
        free(gpt2);
        return rc;
    }
    *out = gpt2;
    return 0;
}

int gpt2_adapter_modules(const struct gpt2 *model, struct model_adapter_module *out, int capacity)
{
    return transformer_adapter_modules(&model->t, out, capacity);
}

int gpt2_freeze(struct gpt2 *model, const char *pattern)
{
    return model_freeze(&model->t.model, pattern);
}

void gpt2_destroy(struct gpt2 *model)
{
    if (!model)
        return;
    transformer_destroy(&model->t);
    free(model);
}

const struct rf_block *gpt2_blocks(const struct gpt2 *model, int *count)
{
    *count = model->t.model.count;
    return model->t.model.blocks;
}
