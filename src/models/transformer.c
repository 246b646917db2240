/* SPDX-License-Identifier: MIT
 *
 * Creates a transformer; see transformer.h. embedding.c, layer.c and head.c have the computation of
 * its blocks.
 */
#include "transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hub_modules.h"

#define STD 0.02f

static struct rf_param_desc *add_table(struct model_part *part, enum rf_dtype dtype,
                                       const char *name, int64_t rows, int64_t channels)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    return model_add_param(part, dtype, "", text, rf_shape2(rows, channels), STD, 0);
}

static void make_embedding(struct transformer *t)
{
    const struct transformer_config *c = &t->config;
    const struct layer_config *g = &c->layer;
    struct model_part *part = &t->model.parts[0];
    t->embedding = (struct model_embedding){.vocab = c->vocab,
                                            .channels = g->channels,
                                            .dtype = g->residual,
                                            .positions = c->positions};
    snprintf(part->name, sizeof(part->name), "embedding");
    add_table(part, g->residual, c->tokens, c->vocab, g->channels)->split.kind = RF_SPLIT_ROWS;
    if (c->positions)
        add_table(part, g->residual, c->places, c->positions, g->channels);
    model_set_block(&t->model, 0, &model_embedding_ops, &t->embedding);
}

/* The block of the first layer. */
static int first_layer(const struct transformer_config *c)
{
    return c->layer.reversible ? 2 : 1;
}

static int count_blocks(const struct transformer_config *c)
{
    return c->layers + 2 * first_layer(c);
}

static void make_layer(struct transformer *t, int layer)
{
    const struct transformer_config *c = &t->config;
    /* Radford et al. 2019: residual projections are scaled by 1 / sqrt(their number). */
    char name[32], prefix[32];
    const struct layer_initial initial = {
        .std = STD,
        .residual_std = STD / sqrtf(2.0f * (float)c->layers),
        .name = name,
        .prefix = prefix,
        .layer = layer,
        .exact = layer >= c->layers - rf_recipe_kept_layers(c->layer.recipe, c->layers),
        .architecture = hub_arch_named(c->architecture),
        .modules = hub_modules};
    snprintf(name, sizeof(name), "layer %d", layer);
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    const int block = first_layer(c) + layer;
    layer_declare(&t->layers[layer], &t->model.parts[block], &c->layer, &initial);
    model_set_block(&t->model, block, c->layer.reversible ? &layer_pair_ops : &layer_block_ops,
                    &t->layers[layer]);
    if (c->layer.recipe)
        t->model.blocks[block].rounding = rf_recipe_name(c->layer.recipe);
}

/* The blocks before and after reversible layers. */
static void make_pair(struct transformer *t)
{
    const struct transformer_config *c = &t->config;
    const int split = 1, join = first_layer(c) + c->layers;
    snprintf(t->model.parts[split].name, sizeof(t->model.parts[0].name), "split");
    snprintf(t->model.parts[join].name, sizeof(t->model.parts[0].name), "join");
    model_set_block(&t->model, split, &layer_split_ops, &t->config.layer);
    model_set_block(&t->model, join, &layer_join_ops, &t->config.layer);
}

static void make_head(struct transformer *t)
{
    const struct transformer_config *c = &t->config;
    const struct layer_config *g = &c->layer;
    const int last = count_blocks(c) - 1;
    struct model_part *part = &t->model.parts[last];
    t->head = (struct model_head){.channels = g->channels,
                                  .vocab = c->vocab,
                                  .rows = c->head_rows,
                                  .dtype = g->dtype,
                                  .rms = g->rms,
                                  .eps = g->eps};
    snprintf(part->name, sizeof(part->name), "head");
    model_add_vector(part, g->residual, "", c->norm, "weight", g->channels, 1);
    if (!g->rms)
        model_add_vector(part, g->residual, "", c->norm, "bias", g->channels, 0);
    struct rf_param_desc *table = add_table(part, g->dtype, "head", c->vocab, g->channels);
    table->split.kind = RF_SPLIT_ROWS;
    if (c->tied)
        table->tied_to = t->model.parts[0].params[0].name;
    if (c->head_rows == 0)
        table->flags |= RF_PARAM_OVERWRITE_GRAD;
    model_set_block(&t->model, last, model_head_ops(&t->head), &t->head);
}

int transformer_check(const struct transformer_config *c)
{
    const struct layer_config *g = &c->layer;
    RETURN_IF_FAILED(layer_check(g->ops));
    if (g->reversible)
        RETURN_IF_FAILED(layer_pair_check(g));
    RETURN_IF_FAILED(model_adapter_check(g->adapter));
    RETURN_IF_FAILED(model_quantize_check(g->quantize, layer_largest(g)));
    RETURN_IF_FAILED(model_check_types(g->dtype, g->residual));
    RETURN_IF_FAILED(model_recipe_check(g->recipe));
    if (g->recipe && (g->adapter || g->quantize))
        return rf_fail(RF_EINVAL,
                       "products of %s are for weights that are trained, without adapters and not "
                       "quantised; leave out one of the two",
                       rf_recipe_name(g->recipe));
    if (!hub_arch_named(c->architecture))
        return rf_fail(RF_EINVAL, "there is no architecture %.100s; for example LlamaForCausalLM",
                       c->architecture);
    return g->recompute & ~(unsigned)MODEL_RECOMPUTE_ALL
               ? rf_fail(RF_EINVAL,
                         "recompute has an unknown bit; use only bits of enum model_recompute_part")
               : 0;
}

int transformer_create(struct transformer *t, const struct transformer_config *config,
                       const char *text)
{
    t->config = *config;
    int rc = model_blocks_create(&t->model, count_blocks(config));
    t->layers = calloc((size_t)config->layers, sizeof(*t->layers));
    if (rc == 0 && !t->layers)
        rc = rf_fail(RF_ENOMEM, "out of memory for a model of %d layers", config->layers);
    if (rc == 0) {
        snprintf(t->model.config, sizeof(t->model.config), "%s%s", text,
                 layer_pair_text(config->layer.reversible));
        make_embedding(t);
        for (int i = 0; i < config->layers; i++)
            make_layer(t, i);
        if (config->layer.reversible)
            make_pair(t);
        make_head(t);
        rc = lora_finish(&t->model, config->layer.adapter);
    }
    if (rc < 0)
        transformer_destroy(t);
    return rc;
}

void transformer_destroy(struct transformer *t)
{
    model_blocks_destroy(&t->model);
    free(t->layers);
    t->layers = NULL;
}

int transformer_adapter_modules(const struct transformer *t, struct model_adapter_module *out,
                                int capacity)
{
    int count = 0;
    for (int i = 0; i < t->config.layers; i++)
        count += layer_modules(&t->layers[i], &t->model.parts[first_layer(&t->config) + i],
                               out ? out + count : NULL, capacity - count);
    return count;
}
