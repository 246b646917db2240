/* SPDX-License-Identifier: MIT
 *
 * Adapters of a model: the modules that have one, and their parameters; see adapter.h and lora.h.
 */
#include "adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lora.h"

#define MOST_RANK 1024
#define MOST_TOLD 120 /* bytes of targets in the config of checkpoints */

int model_adapter_check(const struct model_adapter *adapter)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-*?[]!,";
    if (!adapter)
        return 0;
    if (adapter->rank < 1 || adapter->rank > MOST_RANK)
        return rf_fail(RF_EINVAL, "the rank of an adapter must be 1 to 1024");
    if (!(adapter->alpha >= 0) || !isfinite(adapter->alpha))
        return rf_fail(RF_EINVAL, "alpha of an adapter must be a positive number");
    if (!(adapter->dropout >= 0 && adapter->dropout < 1))
        return rf_fail(RF_EINVAL, "dropout of an adapter must be at least 0 and less than 1");
    if (!adapter->targets || !*adapter->targets)
        return rf_fail(RF_EINVAL,
                       "an adapter needs targets; for example q_proj,v_proj or all-linear");
    if (strlen(adapter->targets) > MODEL_MOST_TARGETS)
        return rf_fail(RF_EINVAL, "targets of an adapter are too long; use a pattern");
    if (strspn(adapter->targets, allowed) != strlen(adapter->targets))
        return rf_fail(
            RF_EINVAL,
            "targets of an adapter may have letters, digits and _.-*?[]! only, with commas "
            "between them");
    return 0;
}

float model_adapter_scale(const struct model_adapter *adapter)
{
    const double alpha = adapter->alpha != 0 ? (double)adapter->alpha : 8;
    return (float)(alpha / (adapter->rslora ? sqrt(adapter->rank) : adapter->rank));
}

/* ---- targets --------------------------------------------------------------------------------- */

static bool matches(const char *target, const char *module)
{
    const size_t length = strlen(module), ending = strlen(target);
    if (strcmp(target, "all-linear") == 0 || fnmatch(target, module, 0) == 0)
        return true;
    return ending < length && strcmp(module + length - ending, target) == 0 &&
           module[length - ending - 1] == '.';
}

/* Copies the target at `at`, and returns the begin of the next one; NULL: it was the last. */
static const char *take_target(const char *at, char target[128])
{
    const char *end = at + strcspn(at, ",");
    const size_t bytes = (size_t)(end - at);
    snprintf(target, 128, "%.*s", (int)(bytes < 127 ? bytes : 0), at);
    return *end ? end + 1 : NULL;
}

static bool targeted(const struct model_adapter *adapter, const char *module)
{
    char target[128];
    for (const char *at = adapter->targets; at;) {
        at = take_target(at, target);
        if (target[0] && matches(target, module))
            return true;
    }
    return false;
}

const char *model_adapter_unmatched(const struct model_adapter *adapter,
                                    const struct model_adapter_module *modules, int count,
                                    const char *from, char target[128])
{
    for (const char *at = from ? from : adapter->targets; at;) {
        at = take_target(at, target);
        int i = 0;
        while (i < count && !matches(target, modules[i].name))
            i++;
        if (i == count)
            return at ? at : "";
    }
    return NULL;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void find_segments(struct lora *lora, const struct model_adapter *adapter,
                          const struct lora_modules *modules)
{
    lora->out = 0;
    for (int k = 0; k < modules->count; k++) {
        const char *name = modules->module[k].name;
        const int64_t rows = modules->module[k].rows, first = lora->out;
        lora->out += rows;
        if (!targeted(adapter, name))
            continue;
        memcpy(lora->segment[lora->count].module, name, LORA_NAME);
        lora->segment[lora->count].first = first;
        lora->segment[lora->count++].rows = rows;
    }
}

/* A is divided like the columns of the weight, B like its rows. */
static void split(const struct lora *lora, int modules, const struct rf_split *weight,
                  struct rf_param_desc *a, struct rf_param_desc *b)
{
    if (weight->kind == RF_SPLIT_COLUMNS)
        a->split.kind = RF_SPLIT_COLUMNS;
    if (weight->kind != RF_SPLIT_ROWS)
        return;
    b->split = *weight;
    if (lora->count == modules)
        return;
    b->split.segments = lora->count;
    memset(b->split.sizes, 0, sizeof(b->split.sizes));
    for (int k = 0; k < lora->count; k++)
        b->split.sizes[k] = lora->segment[k].rows;
}

void lora_add(struct lora *out, struct model_part *part, const struct model_adapter *adapter,
              const struct lora_modules *modules, enum rf_dtype dtype, int weight, int layer)
{
    char prefix[32], name[64];
    int64_t rows = 0;
    *out = (struct lora){0};
    if (!adapter)
        return;
    find_segments(out, adapter, modules);
    if (out->count == 0)
        return;
    out->rank = adapter->rank;
    out->in = modules->in;
    out->scale = model_adapter_scale(adapter);
    out->dropout = adapter->dropout;
    out->activated = modules->activated;
    out->site = (uint32_t)(layer * MODEL_MAX_PARAMS + weight);
    out->summed = part->params[weight].split.kind == RF_SPLIT_COLUMNS;
    for (int k = 0; k < out->count; k++)
        rows += out->segment[k].rows;
    snprintf(prefix, sizeof(prefix), "blocks.%d.", layer);
    out->a = part->param_count;
    snprintf(name, sizeof(name), "%s.lora_A.weight", modules->name);
    /* The variance of PEFT's uniform numbers (kaiming, a = sqrt 5): 1 / (3 K). */
    struct rf_param_desc *a = model_add_param(part, dtype, prefix, name,
                                              rf_shape2((int64_t)out->count * out->rank, out->in),
                                              (float)(1 / sqrt(3.0 * (double)out->in)), 0);
    out->b = part->param_count;
    snprintf(name, sizeof(name), "%s.lora_B.weight", modules->name);
    struct rf_param_desc *b =
        model_add_param(part, dtype, prefix, name, rf_shape2(rows, out->rank), 0, 0);
    a->flags |= RF_PARAM_OVERWRITE_GRAD;
    b->flags |= RF_PARAM_OVERWRITE_GRAD;
    split(out, modules->count, &part->params[weight].split, a, b);
}

int lora_list(const struct lora *lora, const struct model_part *part, int weight,
              struct model_adapter_module out[LORA_MODULES])
{
    int64_t b_first = 0;
    for (int k = 0; k < lora->count; k++) {
        out[k] = (struct model_adapter_module){.weight = part->params[weight].name,
                                               .a = part->params[lora->a].name,
                                               .b = part->params[lora->b].name,
                                               .in = lora->in,
                                               .rows = lora->segment[k].rows,
                                               .weight_first = lora->segment[k].first,
                                               .a_first = (int64_t)k * lora->rank,
                                               .b_first = b_first,
                                               .rank = lora->rank};
        snprintf(out[k].name, sizeof(out[k].name), "%s", lora->segment[k].module);
        b_first += lora->segment[k].rows;
    }
    return lora->count;
}

/* Long lists by a hash (FNV-1a). */
static void tell_targets(const char *targets, char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = targets; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    if (strlen(targets) <= MOST_TOLD)
        snprintf(text, bytes, "%s", targets);
    else
        snprintf(text, bytes, "hash-%016llx", (unsigned long long)hash);
}

static void say_config(struct model_blocks *model, const struct model_adapter *adapter)
{
    const size_t used = strlen(model->config), left = sizeof(model->config) - used;
    char scale[24], dropout[24], targets[MOST_TOLD + 8];
    tell_targets(adapter->targets, targets, sizeof(targets));
    snprintf(model->config + used, left, " lora-scale=%s lora-dropout=%s lora-targets=%s",
             model_real_text(model_adapter_scale(adapter), scale),
             model_real_text(adapter->dropout, dropout), targets);
}

/* Trains the biases of weights with an adapter. RF_EINVAL: a bias also belongs to modules without
 * one, and a parameter is trained as a whole. */
static int train_own_biases(struct model_blocks *model, const struct model_part *part)
{
    static const char ending[] = ".lora_B.weight";
    const size_t bytes = sizeof(ending) - 1;
    char name[128];
    for (int k = 0; k < part->param_count; k++) {
        const struct rf_param_desc *b = &part->params[k];
        const size_t length = strlen(b->name);
        if (length < bytes || strcmp(b->name + length - bytes, ending) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s.bias", (int)(length - bytes), b->name);
        for (int i = 0; i < part->param_count; i++)
            if (strcmp(part->params[i].name, name) == 0 &&
                part->params[i].shape.dim[0] != b->shape.dim[0])
                return rf_fail(RF_EINVAL,
                               "bias=lora_only: %s belongs to modules without an "
                               "adapter, too; target all of its modules, or use bias=all",
                               name);
        snprintf(name, sizeof(name), "!%.*s.bias", (int)(length - bytes), b->name);
        model_freeze(model, name);
    }
    return 0;
}

static int train_biases(struct model_blocks *model, enum model_adapter_bias bias)
{
    if (bias == MODEL_ADAPTER_BIAS_ALL)
        model_freeze(model, "!*.bias");
    for (int i = 0; bias == MODEL_ADAPTER_BIAS_ONLY && i < model->count; i++)
        RETURN_IF_FAILED(train_own_biases(model, &model->parts[i]));
    return 0;
}

int lora_finish(struct model_blocks *model, const struct model_adapter *adapter)
{
    if (!adapter)
        return 0;
    model_freeze(model, "*");
    if (model_freeze(model, "!*.lora_[AB].weight") == 0)
        return rf_fail(RF_EINVAL,
                       "no module matches the targets of adapters, %.200s; use such as "
                       "q_proj, down_proj, c_attn, or all-linear",
                       adapter->targets);
    RETURN_IF_FAILED(train_biases(model, adapter->bias));
    say_config(model, adapter);
    /* Each step has its own masks. */
    for (int i = 0; i < model->count; i++)
        model->blocks[i].varies = adapter->dropout > 0;
    return 0;
}

int lora_check_part(const struct model_adapter *adapter, bool copies)
{
    return adapter && copies
               ? rf_fail(RF_EINVAL, "adapters need at least as many heads of keys as tensor ranks")
               : 0;
}

/* ---- merging --------------------------------------------------------------------------------- */

void model_adapter_merge(float *weight, const float *a, const float *b, int64_t rows, int64_t in,
                         int rank, float scale)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < in; j++) {
            double sum = 0;
            for (int k = 0; k < rank; k++)
                sum += (double)b[i * rank + k] * (double)a[k * in + j];
            weight[i * in + j] = (float)((double)weight[i * in + j] + (double)scale * sum);
        }
}
