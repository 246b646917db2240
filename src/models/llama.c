/* SPDX-License-Identifier: MIT
 *
 * Makes a Llama-style model: its blocks and the declaration of every parameter. What the blocks
 * compute is in llama_embedding.c, llama_layer.c and head.c.
 */
#include "llama.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "llama_internal.h"

struct llama {
    struct rf_block *blocks;
    struct llama_part *parts;
    int count;
};

static struct llama_config with_defaults(const struct llama_config *config)
{
    struct llama_config c = *config;
    c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
    c.hidden = c.hidden ? c.hidden : (c.channels * 8 / 3 + 31) / 32 * 32;
    c.vocab = c.vocab ? c.vocab : 257;
    c.theta = c.theta != 0 ? c.theta : 10000;
    c.eps = c.eps != 0 ? c.eps : 1e-5f;
    return c;
}

const char *llama_config_fault(const struct llama_config *c)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->vocab < 0)
        return "layers, channels and heads must be at least 1";
    if (c->kv_heads < 0 || c->hidden < 0 || c->head_rows < 0)
        return "heads of keys, hidden size and rows of the head must be 0 (as usual) or more";
    if (c->channels > 1 << 20 || c->layers > 1 << 16 || c->vocab > 1 << 24 || c->hidden > 1 << 24)
        return "channels, layers, hidden size or vocabulary are too large";
    if (c->channels % c->heads != 0)
        return "heads must divide channels; for example 4 heads for 128 channels";
    if (c->channels / c->heads % 2 != 0)
        return "channels of a head must be even: they are turned in pairs";
    if (c->kv_heads && c->heads % c->kv_heads != 0)
        return "heads of keys and values must divide heads; for example 2 for 8 heads";
    if ((c->theta != 0 && !(c->theta >= 1)) || !(c->eps >= 0))
        return "theta must be at least 1, and eps must not be negative";
    if (c->dtype != RF_F32 && c->dtype != RF_F16 && c->dtype != RF_BF16)
        return "the type must be f32, f16 or bf16";
    return NULL;
}

static void add_param(struct llama_part *part, const char *prefix, const char *name,
                      struct rf_shape shape, float std)
{
    char *text = part->names[part->param_count];
    snprintf(text, sizeof(part->names[0]), "%s%s.weight", prefix, name);
    part->params[part->param_count++] =
        (struct rf_param_desc){.name = text,
                               .shape = shape,
                               .dtype = part->config.dtype,
                               .flags = shape.ndim > 1 ? RF_PARAM_DECAY : 0,
                               .init_std = std,
                               .init_value = shape.ndim > 1 ? 0 : 1};
}

static void make_embedding(struct llama_part *part)
{
    const struct llama_config *c = &part->config;
    snprintf(part->name, sizeof(part->name), "embedding");
    add_param(part, "", "embedding", rf_shape2(c->vocab, c->channels), 0.02f);
}

static void make_layer(struct llama_part *part, int layer)
{
    const struct llama_config *g = &part->config;
    const int64_t c = g->channels;
    /* As in a GPT-2: projections into the residual are smaller by the root of their number. */
    const float residual = 0.02f / sqrtf(2.0f * (float)g->layers);
    char prefix[32];
    snprintf(part->name, sizeof(part->name), "layer %d", layer);
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    add_param(part, prefix, "norm1", rf_shape1(c), 0);
    add_param(part, prefix, "attention.qkv", rf_shape2(llama_qkv_columns(g), c), 0.02f);
    add_param(part, prefix, "attention.proj", rf_shape2(c, c), residual);
    add_param(part, prefix, "norm2", rf_shape1(c), 0);
    add_param(part, prefix, "mlp.gate_up", rf_shape2(2 * (int64_t)g->hidden, c), 0.02f);
    add_param(part, prefix, "mlp.down", rf_shape2(c, g->hidden), residual);
    /* Queries, keys and values of grouped heads are segments of unequal sizes. */
    if (g->kv_heads == g->heads)
        part->params[1].split = (struct rf_split){RF_SPLIT_ROWS, 3};
    part->params[2].split = (struct rf_split){RF_SPLIT_COLUMNS, 1};
    part->params[4].split = (struct rf_split){RF_SPLIT_ROWS, 2};
    part->params[5].split = (struct rf_split){RF_SPLIT_COLUMNS, 1};
}

static void make_head(struct llama_part *part)
{
    const struct llama_config *c = &part->config;
    snprintf(part->name, sizeof(part->name), "head");
    add_param(part, "", "norm", rf_shape1(c->channels), 0);
    add_param(part, "", "head", rf_shape2(c->vocab, c->channels), 0.02f);
    if (c->tied)
        part->params[1].tied_to = "embedding.weight";
    part->head = (struct model_head){.channels = c->channels,
                                     .vocab = c->vocab,
                                     .rows = c->head_rows,
                                     .dtype = c->dtype,
                                     .rms = true,
                                     .eps = c->eps};
}

int llama_create(const struct llama_config *config, struct llama **out)
{
    if (!config || llama_config_fault(config))
        return RF_EINVAL;
    struct llama *model = calloc(1, sizeof(*model));
    if (!model)
        return RF_ENOMEM;
    model->count = config->layers + 2;
    model->blocks = calloc((size_t)model->count, sizeof(*model->blocks));
    model->parts = calloc((size_t)model->count, sizeof(*model->parts));
    if (!model->blocks || !model->parts) {
        llama_destroy(model);
        return RF_ENOMEM;
    }
    for (int i = 0; i < model->count; i++) {
        struct llama_part *part = &model->parts[i];
        const struct rf_block_ops *ops = &llama_layer_ops;
        void *self = part;
        part->config = with_defaults(config);
        if (i == 0) {
            make_embedding(part);
            ops = &llama_embedding_ops;
        } else if (i + 1 == model->count) {
            make_head(part);
            ops = model_head_ops(&part->head);
            self = &part->head;
        } else {
            make_layer(part, i - 1);
        }
        model->blocks[i] = (struct rf_block){.name = part->name,
                                             .ops = ops,
                                             .self = self,
                                             .params = part->params,
                                             .param_count = part->param_count,
                                             .scales_loss = i + 1 == model->count};
    }
    *out = model;
    return 0;
}

void llama_destroy(struct llama *model)
{
    if (!model)
        return;
    free(model->blocks);
    free(model->parts);
    free(model);
}

const struct rf_block *llama_blocks(const struct llama *model, int *count)
{
    *count = model->count;
    return model->blocks;
}
