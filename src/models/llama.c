/* SPDX-License-Identifier: MIT
 *
 * Creates a Llama-style model: its blocks and the declarations of its parameters.
 * llama_embedding.c, llama_layer.c and head.c have the computation of the blocks.
 */
#include "llama.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hub_modules.h"
#include "llama_internal.h"

struct llama {
    struct llama_config config; /* the defaults are filled in */
    struct model_head head;
    struct model_blocks model;
    struct llama_block *layers;
};

static struct llama_config with_defaults(const struct llama_config *config)
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

/* Of the largest weight of a layer. */
static double most_elements(const struct llama_config *c)
{
    const double rows[] = {(double)c->head_size * (c->heads + 2.0 * c->kv_heads), 2.0 * c->hidden};
    return c->channels * (rows[0] > rows[1] ? rows[0] : rows[1]);
}

const char *llama_config_fault(const struct llama_config *c)
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
    const char *fault = model_adapter_fault(c->adapter);
    if (fault)
        return fault;
    const struct llama_config all = with_defaults(c);
    if (!hub_arch_named(all.architecture))
        return "architecture is the name of no architecture; for example LlamaForCausalLM";
    fault = model_quantize_fault(c->quantize, most_elements(&all));
    if (fault)
        return fault;
    fault = model_type_fault(c->dtype, c->residual);
    return fault ? fault : model_recompute_fault(c->recompute);
}

static struct rf_param_desc *add_matrix(struct model_part *part, const struct llama_config *c,
                                        const char *prefix, const char *name, int64_t rows,
                                        int64_t columns, float std)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    return model_add_param(part, c->dtype, prefix, text, rf_shape2(rows, columns), std, 0);
}

static void add_projection(struct model_part *part, const struct llama_config *c,
                           const char *prefix, const char *name, int64_t rows, int64_t columns,
                           float std)
{
    add_matrix(part, c, prefix, name, rows, columns, std)->flags |= RF_PARAM_OVERWRITE_GRAD;
}

static void add_norm(struct model_part *part, const struct llama_config *c, const char *prefix,
                     const char *name)
{
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", name);
    model_add_param(part, c->residual, prefix, text, rf_shape1(c->channels), 0, 1);
}

static void make_embedding(struct model_part *part, const struct llama_config *c)
{
    snprintf(part->name, sizeof(part->name), "embedding");
    struct rf_param_desc *table =
        add_matrix(part, c, "", "embedding", c->vocab, c->channels, 0.02f);
    table->dtype = c->residual;
    table->split.kind = RF_SPLIT_ROWS;
}

/* Those that not every architecture has come after the others. */
static void add_vectors(struct model_part *part, struct llama_block *block,
                        const struct llama_config *c, const char *prefix)
{
    const struct rf_shape rows = rf_shape1(llama_qkv_columns(c)), head = rf_shape1(c->head_size);
    if (c->qkv_bias) {
        block->qkv.bias = part->param_count;
        model_add_param(part, c->dtype, prefix, "attention.qkv.bias", rows, 0, 0)->split =
            part->params[block->qkv.weight].split;
    }
    if (c->qk_norm) {
        block->q_norm = part->param_count;
        model_add_param(part, c->dtype, prefix, "attention.q_norm.weight", head, 0, 1);
        block->k_norm = part->param_count;
        model_add_param(part, c->dtype, prefix, "attention.k_norm.weight", head, 0, 1);
    }
}

static void make_layer(struct model_part *part, struct llama_block *block,
                       const struct llama_config *g, int layer)
{
    const int64_t c = g->channels, size = g->head_size, queries = g->heads * size,
                  keys = g->kv_heads * size;
    /* As in GPT-2, residual projections are scaled by 1 / sqrt(their number). */
    const float residual = 0.02f / sqrtf(2.0f * (float)g->layers);
    char prefix[32];
    snprintf(part->name, sizeof(part->name), "layer %d", layer);
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    add_norm(part, g, prefix, "norm1");
    add_projection(part, g, prefix, "attention.qkv", llama_qkv_columns(g), c, 0.02f);
    add_projection(part, g, prefix, "attention.proj", c, queries, residual);
    add_norm(part, g, prefix, "norm2");
    add_projection(part, g, prefix, "mlp.gate_up", 2 * (int64_t)g->hidden, c, 0.02f);
    add_projection(part, g, prefix, "mlp.down", c, g->hidden, residual);
    /* If there are fewer key heads than tensor ranks, several ranks have a copy of a head. */
    part->params[1].split = (struct rf_split){
        .kind = RF_SPLIT_ROWS, .segments = 3, .unit = (int)size, .sizes = {queries, keys, keys}};
    part->params[2].split = (struct rf_split){.kind = RF_SPLIT_COLUMNS};
    part->params[4].split = (struct rf_split){.kind = RF_SPLIT_ROWS, .segments = 2};
    part->params[5].split = (struct rf_split){.kind = RF_SPLIT_COLUMNS};
    *block = (struct llama_block){.config = g,
                                  .qkv = {.weight = 1},
                                  .proj = {.weight = 2, .summed = true},
                                  .gate_up = {.weight = 4},
                                  .down = {.weight = 5, .summed = true}};
    add_vectors(part, block, g, prefix);
}

static void add_adapters(struct model_part *part, struct llama_block *b, int layer)
{
    const struct llama_config *g = b->config;
    const int64_t c = g->channels, size = g->head_size, queries = g->heads * size,
                  keys = g->kv_heads * size, hidden = g->hidden;
    const struct {
        struct model_linear *linear;
        struct hub_weight weight;
    } all[] = {{&b->qkv, {"attention.qkv", c, {queries, keys, keys}, 3}},
               {&b->proj, {"attention.proj", queries, {c}, 1}},
               {&b->gate_up, {"mlp.gate_up", c, {hidden, hidden}, 2}},
               {&b->down, {"mlp.down", hidden, {c}, 1}}};
    const struct hub_arch *arch = hub_arch_named(g->architecture);
    for (int k = 0; k < 4; k++) {
        const struct lora_modules modules = hub_modules(arch, &all[k].weight, layer);
        lora_add(&all[k].linear->lora, part, g->adapter, &modules, g->dtype, all[k].linear->weight,
                 layer);
        model_linear_quantize(all[k].linear, part, &modules, g->quantize);
    }
}

/* A config without a feature has the text that it had before the feature existed. */
static void say_config(struct model_blocks *model, const struct llama_config *c)
{
    char theta[24], eps[24], factor[24], low[24], high[24];
    int n = snprintf(
        model->config, sizeof(model->config),
        "model=llama layers=%d channels=%d heads=%d kv-heads=%d hidden=%d vocabulary=%d "
        "theta=%s eps=%s tied=%s",
        c->layers, c->channels, c->heads, c->kv_heads, c->hidden, c->vocab,
        model_real_text(c->theta, theta), model_real_text(c->eps, eps), c->tied ? "yes" : "no");
    const size_t left = sizeof(model->config);
    if (c->head_size * c->heads != c->channels)
        n += snprintf(model->config + n, left - (size_t)n, " head-size=%d", c->head_size);
    if (c->qkv_bias)
        n += snprintf(model->config + n, left - (size_t)n, " qkv-bias=yes");
    if (c->qk_norm)
        n += snprintf(model->config + n, left - (size_t)n, " qk-norm=yes");
    if (c->quantize)
        n += snprintf(model->config + n, left - (size_t)n, " quantize=%s",
                      rf_quantization_name(c->quantize));
    const struct llama_rope_scaling *s = &c->rope_scaling;
    if (s->factor != 0)
        snprintf(model->config + n, left - (size_t)n,
                 " rope-factor=%s rope-low=%s rope-high=%s rope-original=%d",
                 model_real_text(s->factor, factor), model_real_text(s->low_freq, low),
                 model_real_text(s->high_freq, high), s->original);
}

static void make_head(struct model_part *part, const struct llama_config *c)
{
    snprintf(part->name, sizeof(part->name), "head");
    add_norm(part, c, "", "norm");
    struct rf_param_desc *table = add_matrix(part, c, "", "head", c->vocab, c->channels, 0.02f);
    table->split.kind = RF_SPLIT_ROWS;
    if (c->tied)
        table->tied_to = "embedding.weight";
    if (c->head_rows == 0)
        table->flags |= RF_PARAM_OVERWRITE_GRAD;
}

int llama_create(const struct llama_config *config, struct llama **out)
{
    if (!config || llama_config_fault(config))
        return RF_EINVAL;
    struct llama *llama = calloc(1, sizeof(*llama));
    if (!llama)
        return RF_ENOMEM;
    struct llama_config *c = &llama->config;
    const int last = config->layers + 1;
    *c = with_defaults(config);
    llama->head = (struct model_head){.channels = c->channels,
                                      .vocab = c->vocab,
                                      .rows = c->head_rows,
                                      .dtype = c->dtype,
                                      .rms = true,
                                      .eps = c->eps};
    int rc = model_blocks_create(&llama->model, last + 1);
    llama->layers = calloc((size_t)c->layers, sizeof(*llama->layers));
    if (rc < 0 || !llama->layers) {
        llama_destroy(llama);
        return RF_ENOMEM;
    }
    say_config(&llama->model, c);
    make_embedding(&llama->model.parts[0], c);
    model_set_block(&llama->model, 0, &llama_embedding_ops, c);
    for (int i = 1; i < last; i++) {
        make_layer(&llama->model.parts[i], &llama->layers[i - 1], c, i - 1);
        add_adapters(&llama->model.parts[i], &llama->layers[i - 1], i - 1);
        model_set_block(&llama->model, i, &llama_layer_ops, &llama->layers[i - 1]);
    }
    make_head(&llama->model.parts[last], c);
    model_set_block(&llama->model, last, model_head_ops(&llama->head), &llama->head);
    rc = lora_finish(&llama->model, c->adapter);
    if (rc < 0) {
        llama_destroy(llama);
        return rc;
    }
    *out = llama;
    return 0;
}

int llama_adapter_modules(const struct llama *model, struct model_adapter_module *out, int capacity)
{
    int count = 0;
    for (int i = 0; i < model->config.layers; i++) {
        const struct llama_block *b = &model->layers[i];
        const struct model_linear *const linears[] = {&b->qkv, &b->proj, &b->gate_up, &b->down};
        for (int k = 0; k < 4; k++)
            count += model_linear_modules(linears[k], &model->model.parts[i + 1],
                                          out ? out + count : NULL, capacity - count);
    }
    return count;
}

int llama_freeze(struct llama *model, const char *pattern)
{
    return model_freeze(&model->model, pattern);
}

void llama_destroy(struct llama *model)
{
    if (!model)
        return;
    model_blocks_destroy(&model->model);
    free(model->layers);
    free(model);
}

const struct rf_block *llama_blocks(const struct llama *model, int *count)
{
    *count = model->model.count;
    return model->model.blocks;
}
