/* SPDX-License-Identifier: MIT
 *
 * Makes a GPT-2: its blocks and the declaration of every parameter. What the blocks compute is in
 * gpt2_embedding.c, gpt2_layer.c and head.c.
 */
#include "gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt2_internal.h"

struct gpt2 {
    struct rf_block *blocks;
    struct gpt2_part *parts;
    int count;
};

const char *gpt2_config_fault(const struct gpt2_config *c)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->seq < 1 || c->vocab < 0)
        return "layers, channels, heads and sequence length must be at least 1";
    if (c->head_rows < 0)
        return "rows of the head must be 0 (all) or more";
    if (c->channels % c->heads != 0)
        return "heads must divide channels; for example 4 heads for 128 channels";
    if (c->dtype != RF_F32 && c->dtype != RF_F16 && c->dtype != RF_BF16)
        return "the type must be f32, f16 or bf16";
    if (c->channels > 1 << 20 || c->layers > 1 << 16 || c->vocab > 1 << 24)
        return "channels, layers or vocabulary are too large";
    return NULL;
}

static void add_param(struct gpt2_part *part, const char *prefix, const char *name,
                      struct rf_shape shape, float std, float value)
{
    char *text = part->names[part->param_count];
    snprintf(text, sizeof(part->names[0]), "%s%s", prefix, name);
    part->params[part->param_count++] =
        (struct rf_param_desc){.name = text,
                               .shape = shape,
                               .dtype = part->config.dtype,
                               .flags = shape.ndim > 1 ? RF_PARAM_DECAY : 0,
                               .init_std = std,
                               .init_value = value};
}

static void add_norm(struct gpt2_part *part, const char *prefix, const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    add_param(part, prefix, text, rf_shape1(part->config.channels), 0, 1);
    snprintf(text, sizeof(text), "%s.bias", name);
    add_param(part, prefix, text, rf_shape1(part->config.channels), 0, 0);
}

static void add_linear(struct gpt2_part *part, const char *prefix, const char *name, int64_t out,
                       int64_t in, float std)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    add_param(part, prefix, text, rf_shape2(out, in), std, 0);
    snprintf(text, sizeof(text), "%s.bias", name);
    add_param(part, prefix, text, rf_shape1(out), 0, 0);
}

static void make_embedding(struct gpt2_part *part)
{
    const struct gpt2_config *c = &part->config;
    snprintf(part->name, sizeof(part->name), "embedding");
    add_param(part, "", "wte.weight", rf_shape2(c->vocab, c->channels), 0.02f, 0);
    add_param(part, "", "wpe.weight", rf_shape2(c->seq, c->channels), 0.02f, 0);
}

static void make_layer(struct gpt2_part *part, int layer)
{
    const int64_t c = part->config.channels;
    /* Radford et al. 2019: residual projections are smaller by the root of their number. */
    const float residual = 0.02f / sqrtf(2.0f * (float)part->config.layers);
    char prefix[32];
    snprintf(part->name, sizeof(part->name), "layer %d", layer);
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    add_norm(part, prefix, "ln1");
    add_linear(part, prefix, "attention.qkv", 3 * c, c, 0.02f);
    add_linear(part, prefix, "attention.proj", c, c, residual);
    add_norm(part, prefix, "ln2");
    add_linear(part, prefix, "mlp.fc", 4 * c, c, 0.02f);
    add_linear(part, prefix, "mlp.proj", c, 4 * c, residual);
    part->params[2].split = (struct rf_split){RF_SPLIT_ROWS, 3};
    part->params[3].split = (struct rf_split){RF_SPLIT_ROWS, 3};
    part->params[4].split = (struct rf_split){RF_SPLIT_COLUMNS, 1};
    part->params[8].split = part->params[9].split = (struct rf_split){RF_SPLIT_ROWS, 1};
    part->params[10].split = (struct rf_split){RF_SPLIT_COLUMNS, 1};
}

static void make_head(struct gpt2_part *part)
{
    snprintf(part->name, sizeof(part->name), "head");
    add_norm(part, "", "ln_f");
    add_param(part, "", "head.weight", rf_shape2(part->config.vocab, part->config.channels), 0.02f,
              0);
    part->params[2].tied_to = "wte.weight";
    part->head = (struct model_head){.channels = part->config.channels,
                                     .vocab = part->config.vocab,
                                     .rows = part->config.head_rows,
                                     .dtype = part->config.dtype,
                                     .eps = GPT2_EPS};
}

int gpt2_create(const struct gpt2_config *config, struct gpt2 **out)
{
    if (!config || gpt2_config_fault(config))
        return RF_EINVAL;
    struct gpt2 *model = calloc(1, sizeof(*model));
    if (!model)
        return RF_ENOMEM;
    model->count = config->layers + 2;
    model->blocks = calloc((size_t)model->count, sizeof(*model->blocks));
    model->parts = calloc((size_t)model->count, sizeof(*model->parts));
    if (!model->blocks || !model->parts) {
        gpt2_destroy(model);
        return RF_ENOMEM;
    }
    for (int i = 0; i < model->count; i++) {
        struct gpt2_part *part = &model->parts[i];
        const struct rf_block_ops *ops = &gpt2_layer_ops;
        void *self = part;
        part->config = *config;
        if (part->config.vocab == 0)
            part->config.vocab = 257;
        if (i == 0) {
            make_embedding(part);
            ops = &gpt2_embedding_ops;
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

void gpt2_destroy(struct gpt2 *model)
{
    if (!model)
        return;
    free(model->blocks);
    free(model->parts);
    free(model);
}

const struct rf_block *gpt2_blocks(const struct gpt2 *model, int *count)
{
    *count = model->count;
    return model->blocks;
}
