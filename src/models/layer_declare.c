/* SPDX-License-Identifier: MIT
 *
 * Declares the parameters of a layer by the list of its operations; see layer.h.
 */
#include <stdio.h>
#include <string.h>

#include "layer_call.h"

/* The inputs of a linear map: the columns of the previous result. */
static int64_t inputs_of(const struct layer_config *g, int op)
{
    for (int k = op - 1; k >= 0; k--)
        switch (g->ops[k].kind) {
        case LAYER_ATTEND:
            return layer_whole(g, k, LAYER_QUERIES);
        case LAYER_ACT:
        case LAYER_GATE:
            return layer_hidden(g, k);
        default:
            return g->channels;
        }
    return g->channels;
}

static struct lora_weight weight_of(const struct layer_config *g, int op)
{
    const struct layer_op *o = &g->ops[op];
    struct lora_weight out = {.name = o->name,
                              .in = inputs_of(g, op),
                              .activated = op > 0 && layer_fuses(&g->ops[op - 1])};
    while (out.parts < LORA_MODULES && o->columns[out.parts]) {
        out.rows[out.parts] = layer_whole(g, op, o->columns[out.parts]);
        out.parts++;
    }
    return out;
}

/* The division of the weight among tensor ranks. If there are fewer key heads than ranks, several
 * ranks have a copy of a head. */
static struct rf_split split_of(const struct layer_config *g, int op)
{
    const struct lora_weight w = weight_of(g, op);
    struct rf_split split = {.kind = RF_SPLIT_COLUMNS};
    if (g->ops[op].kind == LAYER_ROW_LINEAR)
        return split;
    split = (struct rf_split){.kind = RF_SPLIT_ROWS};
    if (w.parts > 1)
        split.segments = w.parts;
    if (g->ops[op].columns[0] != LAYER_QUERIES)
        return split;
    split.unit = (int)g->head_size;
    for (int k = 0; k < w.parts; k++)
        split.sizes[k] = w.rows[k];
    return split;
}

static void add_bias(struct layer_block *b, struct model_part *part, const char *prefix, int op)
{
    const struct layer_config *g = b->config;
    const struct rf_param_desc *weight = &part->params[b->linear[op].weight];
    const int bias =
        model_add_vector(part, g->dtype, prefix, g->ops[op].name, "bias", weight->shape.dim[0], 0);
    b->linear[op].bias = bias;
    if (weight->split.kind == RF_SPLIT_ROWS)
        part->params[bias].split = weight->split;
}

int64_t layer_largest(const struct layer_config *g)
{
    int64_t most = 0;
    for (int k = 0; g->ops[k].kind; k++)
        most = model_max(most, layer_outputs(g, k) * inputs_of(g, k));
    return most;
}

/* FNV-1a. */
static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static void add_linear(struct layer_block *b, struct model_part *part, const char *prefix, int op,
                       const struct layer_initial *initial)
{
    const struct layer_config *g = b->config;
    const struct lora_weight w = weight_of(g, op);
    const bool summed = g->ops[op].kind == LAYER_ROW_LINEAR;
    const struct rf_shape shape = rf_shape2(layer_outputs(g, op), w.in);
    char text[64];
    snprintf(text, sizeof(text), "%s.weight", w.name);
    struct rf_param_desc *param = model_add_param(part, g->dtype, prefix, text, shape,
                                                  summed ? initial->residual_std : initial->std, 0);
    param->flags |= RF_PARAM_OVERWRITE_GRAD;
    param->split = split_of(g, op);
    b->linear[op] = (struct model_linear){.weight = part->param_count - 1,
                                          .summed = summed,
                                          .recipe = initial->exact ? RF_RECIPE_NONE : g->recipe,
                                          .site = hash_of(param->name),
                                          .in = w.in,
                                          .out = shape.dim[0]};
    if (g->ops[op].bias == LAYER_BIAS)
        add_bias(b, part, prefix, op);
}

static void add_norm(struct layer_block *b, struct model_part *part, const char *prefix, int op)
{
    const struct layer_config *g = b->config;
    const char *name = g->ops[op].name;
    b->param[op] = model_add_vector(part, g->residual, prefix, name, "weight", g->channels, 1);
    if (!g->rms)
        model_add_vector(part, g->residual, prefix, name, "bias", g->channels, 0);
}

static bool is_linear(const struct layer_op *op)
{
    return op->kind == LAYER_COLUMN_LINEAR || op->kind == LAYER_ROW_LINEAR;
}

void layer_declare(struct layer_block *b, struct model_part *part,
                   const struct layer_config *config, const struct layer_initial *initial)
{
    const struct layer_op *ops = config->ops;
    const char *prefix = initial->prefix;
    *b = (struct layer_block){.config = config};
    snprintf(part->name, sizeof(part->name), "%s", initial->name);
    for (; ops[b->count].kind; b->count++) {
        b->linear[b->count].weight = -1;
        if (ops[b->count].kind == LAYER_NORM)
            add_norm(b, part, prefix, b->count);
        if (is_linear(&ops[b->count]))
            add_linear(b, part, prefix, b->count, initial);
    }
    for (int k = 0; k < b->count; k++)
        if (is_linear(&ops[k]) && ops[k].bias == LAYER_BIAS_LAST)
            add_bias(b, part, prefix, k);
    for (int k = 0; k < b->count; k++)
        if (layer_rows[ops[k].kind]->declare_last)
            layer_rows[ops[k].kind]->declare_last(b, part, prefix, k);
    for (int k = 0; initial->modules && k < b->count; k++) {
        const struct lora_weight w = weight_of(config, k);
        if (!is_linear(&ops[k]))
            continue;
        const struct lora_modules modules =
            initial->modules(initial->architecture, &w, initial->layer);
        lora_add(&b->linear[k].lora, part, config->adapter, &modules, config->dtype,
                 b->linear[k].weight, initial->layer);
        model_linear_quantize(&b->linear[k], part, &w, &modules, config->quantize);
    }
}

int layer_check_quantized(const struct layer_block *b, const struct rf_tensor_part *part)
{
    if (b->config->quantize && b->config->heads && b->config->kv_heads < part->ranks)
        return rf_fail(RF_EINVAL,
                       "%d tensor ranks would copy heads of keys of quantised weights; use a tp of "
                       "at most %lld",
                       part->ranks, (long long)b->config->kv_heads);
    for (int k = 0; k < b->count; k++)
        if (b->linear[k].quantized)
            RETURN_IF_FAILED(model_linear_check_part(&b->linear[k], part, b->config->ops[k].name,
                                                     inputs_of(b->config, k)));
    return 0;
}

int layer_modules(const struct layer_block *b, const struct model_part *part,
                  struct model_adapter_module *out, int capacity)
{
    int count = 0;
    for (int k = 0; k < b->count; k++)
        if (b->linear[k].weight >= 0)
            count += model_linear_modules(&b->linear[k], part, out ? out + count : NULL,
                                          capacity - count);
    return count;
}

static bool is_activation(const struct layer_op *op)
{
    return op->kind == LAYER_ACT || op->kind == LAYER_GATE;
}

int layer_text(const struct layer_op *ops, char *text, size_t bytes)
{
    static const char *const names[LAYER_KINDS] = {
        [LAYER_NORM] = "norm",   [LAYER_IDENTITY] = "identity", [LAYER_COLUMN_LINEAR] = "linear",
        [LAYER_HEADS] = "heads", [LAYER_ACT] = "act",           [LAYER_ROW_LINEAR] = "linear",
        [LAYER_GATE] = "gate",   [LAYER_ADD] = "add",           [LAYER_ATTEND] = "attend"};
    int n = 0;
    for (const struct layer_op *op = ops; op->kind && (size_t)n < bytes; op++)
        n += snprintf(text + n, bytes - (size_t)n, "%s%s%s%s%s%s", op == ops ? " layer=" : "-",
                      names[op->kind],
                      layer_rows[op->kind]->text ? layer_rows[op->kind]->text(op) : "",
                      op->bias ? ":bias" : "", is_activation(op) ? ":" : "",
                      is_activation(op) ? rf_activation_name(op->act) : "");
    return n;
}

/* ---- lists that can be computed -------------------------------------------------------------- */

#define KIND(kind) (1u << (kind))
static const struct {
    unsigned then; /* kinds that may follow */
    const char *fault;
} order[LAYER_KINDS] = {
    /* LAYER_END and LAYER_ADD: an operation whose input is the stream */
    [LAYER_END] = {KIND(LAYER_NORM) | KIND(LAYER_IDENTITY),
                   "a layer begins with a norm or an identity"},
    [LAYER_ADD] = {KIND(LAYER_NORM) | KIND(LAYER_IDENTITY) | KIND(LAYER_END),
                   "a sum with the stream is followed by a norm, an identity or the end"},
    [LAYER_NORM] = {KIND(LAYER_COLUMN_LINEAR) | KIND(LAYER_ADD),
                    "a norm is followed by a column linear or, after a row linear, by a sum"},
    [LAYER_IDENTITY] = {KIND(LAYER_COLUMN_LINEAR), "an identity is followed by a column linear"},
    [LAYER_COLUMN_LINEAR] = {KIND(LAYER_HEADS) | KIND(LAYER_ATTEND) | KIND(LAYER_ACT) |
                                 KIND(LAYER_GATE),
                             "a column linear is followed by heads, attention, an activation or a "
                             "gate"},
    [LAYER_HEADS] = {KIND(LAYER_ATTEND), "heads are followed by attention"},
    [LAYER_ATTEND] = {KIND(LAYER_ROW_LINEAR), "attention is followed by a row linear"},
    [LAYER_ACT] = {KIND(LAYER_ROW_LINEAR), "an activation is followed by a row linear"},
    [LAYER_GATE] = {KIND(LAYER_ROW_LINEAR), "a gate is followed by a row linear"},
    [LAYER_ROW_LINEAR] = {KIND(LAYER_NORM) | KIND(LAYER_ADD),
                          "a row linear is followed by a sum, or by a norm and a sum"},
};

static bool is_packed(const struct layer_op *op)
{
    return op->columns[0] == LAYER_QUERIES && op->columns[1] == LAYER_KEYS &&
           op->columns[2] == LAYER_KEYS;
}

/* The requirements of an operation on itself and its neighbours, besides their order. */
static const char *fault_of(const struct layer_op *op, enum layer_kind before)
{
    const enum layer_kind then = op[1].kind;
    const bool needs_name = op->columns[0] || op->kind == LAYER_NORM;
    if (needs_name && (!op->name || strlen(op->name) > 40))
        return "norms and linear maps have names, of at most 40 characters";
    if (op->kind == LAYER_NORM && (before == LAYER_ROW_LINEAR) != (then == LAYER_ADD))
        return "a pre-norm takes the stream, and a post-norm is added to it";
    if (layer_rows[op->kind]->fault && layer_rows[op->kind]->fault(op))
        return layer_rows[op->kind]->fault(op);
    if (is_activation(op) && (op->act == RF_ACT_NONE || !rf_activation_name(op->act)))
        return "an activation or a gate has an activation function";
    if (op->kind == LAYER_ROW_LINEAR && then == LAYER_NORM && op->bias)
        return "a row linear before a norm has no bias";
    if (op->kind == LAYER_ROW_LINEAR && op->columns[0] != LAYER_CHANNELS)
        return "a row linear has the columns LAYER_CHANNELS";
    if (op->kind != LAYER_COLUMN_LINEAR)
        return NULL;
    if (then == LAYER_GATE)
        return op->columns[0] == LAYER_HIDDEN && op->columns[1] == LAYER_HIDDEN && !op->columns[2]
                   ? NULL
                   : "a gate takes the columns {LAYER_HIDDEN, LAYER_HIDDEN}";
    if (then == LAYER_ACT)
        return op->columns[0] == LAYER_HIDDEN && !op->columns[1]
                   ? NULL
                   : "an activation takes the columns {LAYER_HIDDEN}";
    return is_packed(op) ? NULL : "heads and attention take the columns LAYER_PACKED";
}

static const char *fault_of_list(const struct layer_op *ops)
{
    enum layer_kind before = LAYER_END;
    int attends = 0;
    for (int k = 0; k < LAYER_MOST; k++) {
        const enum layer_kind kind = ops[k].kind;
        if ((unsigned)kind >= LAYER_KINDS || !(order[before].then & KIND(kind)))
            return order[before].fault;
        if (kind == LAYER_END)
            return NULL;
        const char *fault = k + 1 < LAYER_MOST ? fault_of(&ops[k], before) : NULL;
        attends += kind == LAYER_ATTEND;
        if (fault || attends > 1)
            return fault ? fault : "a layer has one attention at most";
        before = kind;
    }
    return "a layer has at most 15 operations, and ends with LAYER_END";
}

int layer_check(const struct layer_op *ops)
{
    const char *fault = fault_of_list(ops);
    return fault ? rf_fail(RF_EINVAL, "%s", fault) : 0;
}
