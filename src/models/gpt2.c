/* SPDX-License-Identifier: MIT
 *
 * Creates a GPT-2: its blocks and the declarations of its parameters. gpt2_embedding.c,
 * gpt2_layer.c and head.c have the computation of the blocks.
 */
#include "gpt2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt2_internal.h"
#include "hub_modules.h"

struct gpt2 {
    struct gpt2_config config; /* the defaults are filled in */
    struct model_head head;
    struct model_blocks model;
    struct gpt2_block *layers;
};

const char *gpt2_config_fault(const struct gpt2_config *c)
{
    if (c->layers < 1 || c->channels < 1 || c->heads < 1 || c->seq < 1 || c->vocab < 0)
        return "layers, channels, heads and sequence length must be at least 1";
    if (c->head_rows < 0)
        return "head_rows must be 0 (all rows at once) or more";
    if (c->channels % c->heads != 0)
        return "heads must divide channels; for example 4 heads for 128 channels";
    if (c->channels > 1 << 20 || c->layers > 1 << 16 || c->vocab > 1 << 24)
        return "channels, layers or vocabulary are too large; use smaller sizes";
    const char *fault = model_adapter_fault(c->adapter);
    if (fault)
        return fault;
    if (c->architecture && !hub_arch_named(c->architecture))
        return "architecture is the name of no architecture; for example GPT2LMHeadModel";
    fault = model_quantize_fault(c->quantize, 4.0 * c->channels * c->channels);
    if (fault)
        return fault;
    fault = model_type_fault(c->dtype, c->residual);
    return fault ? fault : model_recompute_fault(c->recompute);
}

static void add_norm(struct model_part *part, const struct gpt2_config *c, const char *prefix,
                     const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    model_add_param(part, c->residual, prefix, text, rf_shape1(c->channels), 0, 1);
    snprintf(text, sizeof(text), "%s.bias", name);
    model_add_param(part, c->residual, prefix, text, rf_shape1(c->channels), 0, 0);
}

static void add_linear(struct model_part *part, enum rf_dtype dtype, const char *prefix,
                       const char *name, int64_t out, int64_t in, float std)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    model_add_param(part, dtype, prefix, text, rf_shape2(out, in), std, 0)->flags |=
        RF_PARAM_OVERWRITE_GRAD;
    snprintf(text, sizeof(text), "%s.bias", name);
    model_add_param(part, dtype, prefix, text, rf_shape1(out), 0, 0);
}

static void make_embedding(struct model_part *part, const struct gpt2_config *c)
{
    const struct rf_shape words = rf_shape2(c->vocab, c->channels);
    snprintf(part->name, sizeof(part->name), "embedding");
    model_add_param(part, c->residual, "", "wte.weight", words, 0.02f, 0)->split.kind =
        RF_SPLIT_ROWS;
    model_add_param(part, c->residual, "", "wpe.weight", rf_shape2(c->seq, c->channels), 0.02f, 0);
}

static void make_layer(struct model_part *part, struct gpt2_block *block,
                       const struct gpt2_config *config, int layer)
{
    const int64_t c = config->channels;
    /* Radford et al. 2019: residual projections are scaled by 1 / sqrt(their number). */
    const float residual = 0.02f / sqrtf(2.0f * (float)config->layers);
    const enum rf_dtype type = config->dtype;
    char prefix[32];
    snprintf(part->name, sizeof(part->name), "layer %d", layer);
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    add_norm(part, config, prefix, "ln1");
    add_linear(part, type, prefix, "attention.qkv", 3 * c, c, 0.02f);
    add_linear(part, type, prefix, "attention.proj", c, c, residual);
    add_norm(part, config, prefix, "ln2");
    add_linear(part, type, prefix, "mlp.fc", 4 * c, c, 0.02f);
    add_linear(part, type, prefix, "mlp.proj", c, 4 * c, residual);
    const struct rf_split heads = {
        .kind = RF_SPLIT_ROWS, .segments = 3, .unit = config->channels / config->heads};
    part->params[2].split = part->params[3].split = heads;
    part->params[4].split = (struct rf_split){.kind = RF_SPLIT_COLUMNS};
    part->params[8].split = part->params[9].split = (struct rf_split){.kind = RF_SPLIT_ROWS};
    part->params[10].split = (struct rf_split){.kind = RF_SPLIT_COLUMNS};
    *block = (struct gpt2_block){.config = config,
                                 .qkv = {.weight = 2, .bias = 3},
                                 .proj = {.weight = 4, .bias = 5, .summed = true},
                                 .fc = {.weight = 8, .bias = 9},
                                 .fc2 = {.weight = 10, .bias = 11, .summed = true}};
}

static void add_adapters(struct model_part *part, struct gpt2_block *b, int layer)
{
    const struct gpt2_config *g = b->config;
    const int64_t c = g->channels;
    const struct {
        struct model_linear *linear;
        struct hub_weight weight;
    } all[] = {{&b->qkv, {"attention.qkv", c, {3 * c}, 1}},
               {&b->proj, {"attention.proj", c, {c}, 1}},
               {&b->fc, {"mlp.fc", c, {4 * c}, 1}},
               {&b->fc2, {"mlp.proj", 4 * c, {c}, 1, true}}};
    const struct hub_arch *arch = hub_arch_named(g->architecture);
    for (int k = 0; k < 4; k++) {
        const struct lora_modules modules = hub_modules(arch, &all[k].weight, layer);
        lora_add(&all[k].linear->lora, part, g->adapter, &modules, g->dtype, all[k].linear->weight,
                 layer);
        model_linear_quantize(all[k].linear, part, &modules, g->quantize);
    }
}

static void say_config(struct model_blocks *model, const struct gpt2_config *c)
{
    char eps[24];
    int n = snprintf(model->config, sizeof(model->config),
                     "model=gpt2 layers=%d channels=%d heads=%d positions=%d vocabulary=%d eps=%s",
                     c->layers, c->channels, c->heads, c->seq, c->vocab,
                     model_real_text(GPT2_EPS, eps));
    if (c->quantize)
        snprintf(model->config + n, sizeof(model->config) - (size_t)n, " quantize=%s",
                 rf_quantization_name(c->quantize));
}

static void make_head(struct model_part *part, const struct gpt2_config *c)
{
    const struct rf_shape words = rf_shape2(c->vocab, c->channels);
    snprintf(part->name, sizeof(part->name), "head");
    add_norm(part, c, "", "ln_f");
    struct rf_param_desc *table =
        model_add_param(part, c->dtype, "", "head.weight", words, 0.02f, 0);
    table->tied_to = "wte.weight";
    table->split.kind = RF_SPLIT_ROWS;
    if (c->head_rows == 0)
        table->flags |= RF_PARAM_OVERWRITE_GRAD;
}

/* Adds the parts that must be recomputed together with the parts asked for. */
static unsigned whole_recompute(const struct gpt2_config *c)
{
    unsigned parts = c->recompute;
    if ((parts & MODEL_RECOMPUTE_GELU) && c->dtype != RF_F32)
        parts |= MODEL_RECOMPUTE_MLP;
    return parts & MODEL_RECOMPUTE_MLP ? parts | MODEL_RECOMPUTE_GELU : parts;
}

int gpt2_create(const struct gpt2_config *config, struct gpt2 **out)
{
    if (!config || gpt2_config_fault(config))
        return RF_EINVAL;
    struct gpt2 *gpt2 = calloc(1, sizeof(*gpt2));
    if (!gpt2)
        return RF_ENOMEM;
    struct gpt2_config *c = &gpt2->config;
    const int last = config->layers + 1;
    *c = *config;
    c->vocab = c->vocab ? c->vocab : 257;
    c->recompute = whole_recompute(c);
    c->architecture = c->architecture ? c->architecture : "GPT2LMHeadModel";
    gpt2->head = (struct model_head){.channels = c->channels,
                                     .vocab = c->vocab,
                                     .rows = c->head_rows,
                                     .dtype = c->dtype,
                                     .eps = GPT2_EPS};
    int rc = model_blocks_create(&gpt2->model, last + 1);
    gpt2->layers = calloc((size_t)c->layers, sizeof(*gpt2->layers));
    if (rc < 0 || !gpt2->layers) {
        gpt2_destroy(gpt2);
        return RF_ENOMEM;
    }
    say_config(&gpt2->model, c);
    make_embedding(&gpt2->model.parts[0], c);
    model_set_block(&gpt2->model, 0, &gpt2_embedding_ops, c);
    for (int i = 1; i < last; i++) {
        make_layer(&gpt2->model.parts[i], &gpt2->layers[i - 1], c, i - 1);
        add_adapters(&gpt2->model.parts[i], &gpt2->layers[i - 1], i - 1);
        model_set_block(&gpt2->model, i, &gpt2_layer_ops, &gpt2->layers[i - 1]);
    }
    make_head(&gpt2->model.parts[last], c);
    model_set_block(&gpt2->model, last, model_head_ops(&gpt2->head), &gpt2->head);
    rc = lora_finish(&gpt2->model, c->adapter);
    if (rc < 0) {
        gpt2_destroy(gpt2);
        return rc;
    }
    *out = gpt2;
    return 0;
}

int gpt2_adapter_modules(const struct gpt2 *model, struct model_adapter_module *out, int capacity)
{
    int count = 0;
    for (int i = 0; i < model->config.layers; i++) {
        const struct gpt2_block *b = &model->layers[i];
        const struct model_linear *const linears[] = {&b->qkv, &b->proj, &b->fc, &b->fc2};
        for (int k = 0; k < 4; k++)
            count += model_linear_modules(linears[k], &model->model.parts[i + 1],
                                          out ? out + count : NULL, capacity - count);
    }
    return count;
}

int gpt2_freeze(struct gpt2 *model, const char *pattern)
{
    return model_freeze(&model->model, pattern);
}

void gpt2_destroy(struct gpt2 *model)
{
    if (!model)
        return;
    model_blocks_destroy(&model->model);
    free(model->layers);
    free(model);
}

const struct rf_block *gpt2_blocks(const struct gpt2 *model, int *count)
{
    *count = model->model.count;
    return model->model.blocks;
}
