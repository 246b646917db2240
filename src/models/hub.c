/* SPDX-License-Identifier: MIT
 *
 * Descriptions of models: from config.json, from a config of this library, and back to config.json.
 * See hub.h.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

#define MAX_CONFIG ((size_t)4 << 20)

int hub_open(const char *dir, struct hub **out)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    if (!hub)
        return rf_fail(RF_ENOMEM, "out of memory");
    int rc = rf_weights_read_text(dir, "config.json", MAX_CONFIG, &hub->text);
    if (rc == 0)
        rc = hub_parse(hub->text, hub);
    if (rc == 0)
        rc = hub_settle_head(hub, dir);
    if (rc < 0)
        hub_destroy(hub);
    else
        *out = hub;
    return rc;
}

int hub_look_at(const char *dir, struct hub_look *out)
{
    char path[4096];
    struct stat about;
    *out = (struct hub_look){NULL};
    snprintf(path, sizeof(path), "%s/config.json", dir);
    if (stat(path, &about) != 0)
        return 0;
    int rc = rf_weights_read_text(dir, "config.json", MAX_CONFIG, &out->text);
    return rc < 0 ? rc : hub_find_arch(out->text, &out->arch, &out->packing);
}

struct hub_packing hub_packing_of(const struct hub *hub)
{
    return hub->packing;
}

static int describe(const struct hub_arch *arch, const struct hub_values *values, struct hub **out)
{
    struct hub *hub = arch ? calloc(1, sizeof(*hub)) : NULL;
    if (!hub)
        return arch ? rf_fail(RF_ENOMEM, "out of memory")
                    : rf_fail(RF_EINVAL, "no architecture of a hub has these parameters");
    *hub = (struct hub){.arch = arch, .values = *values, .dtype = RF_F32};
    *out = hub;
    return 0;
}

int hub_of_gpt2(const struct gpt2_config *c, struct hub **out)
{
    const struct hub_values values = {.layers = c->layers,
                                      .channels = c->channels,
                                      .heads = c->heads,
                                      .kv_heads = c->heads,
                                      .head_size = c->channels / c->heads,
                                      .hidden = 4 * c->channels,
                                      .vocab = c->vocab ? c->vocab : 257,
                                      .positions = c->seq,
                                      .eps = 1e-5,
                                      .tied = true};
    const char *name = c->architecture ? c->architecture : "GPT2LMHeadModel";
    return describe(hub_arch_named(name), &values, out);
}

int hub_of_llama(const struct llama_config *config, struct hub **out)
{
    const struct llama_config c = llama_with_defaults(config);
    const struct hub_values values = {.layers = c.layers,
                                      .channels = c.channels,
                                      .heads = c.heads,
                                      .kv_heads = c.kv_heads,
                                      .head_size = c.head_size,
                                      .hidden = c.hidden,
                                      .vocab = c.vocab,
                                      .positions = 1 << 17,
                                      .theta = (double)c.theta,
                                      .eps = (double)c.eps,
                                      .tied = c.tied,
                                      .rope_scaling = c.rope_scaling};
    const struct hub_arch *arch = hub_arch_named(c.architecture);
    const bool same = arch && arch->qkv_bias == c.qkv_bias && arch->qk_norm == c.qk_norm &&
                      arch->layer == c.layer;
    return describe(same ? arch : NULL, &values, out);
}

void hub_destroy(struct hub *hub)
{
    if (!hub)
        return;
    free(hub->text);
    free(hub);
}

const char *hub_architecture(const struct hub *hub)
{
    return hub->arch->name;
}

const struct hub_arch *hub_arch_of(const struct hub *hub)
{
    return hub->arch;
}

const struct hub_values *hub_values(const struct hub *hub)
{
    return &hub->values;
}

enum rf_dtype hub_dtype(const struct hub *hub)
{
    return hub->dtype;
}

bool hub_is_gpt2(const struct hub *hub)
{
    return hub->arch->gpt2;
}

void hub_set_gpt2(const struct hub *hub, struct gpt2_config *c)
{
    const struct hub_values *v = &hub->values;
    c->layers = v->layers;
    c->channels = v->channels;
    c->heads = v->heads;
    c->seq = v->positions;
    c->vocab = v->vocab;
    c->architecture = hub->arch->name;
}

void hub_set_llama(const struct hub *hub, struct llama_config *c)
{
    const struct hub_values *v = &hub->values;
    c->layers = v->layers;
    c->channels = v->channels;
    c->heads = v->heads;
    c->kv_heads = v->kv_heads;
    c->head_size = v->head_size == v->channels / v->heads ? 0 : v->head_size;
    c->hidden = v->hidden;
    c->vocab = v->vocab;
    c->theta = (float)v->theta;
    c->eps = (float)v->eps == 0 ? RF_ZERO : (float)v->eps;
    c->tied = v->tied;
    c->architecture = hub->arch->name;
    c->qkv_bias = hub->arch->qkv_bias;
    c->qk_norm = hub->arch->qk_norm;
    c->layer = hub->arch->layer;
    c->rope_scaling = v->rope_scaling;
}

int hub_check_seq(const struct hub *hub, int64_t seq)
{
    const struct hub_values *v = &hub->values;
    if (seq > v->positions)
        return rf_fail(RF_EINVAL,
                       "sequences of %lld tokens are longer than the model's %d positions "
                       "(config.json)",
                       (long long)seq, v->positions);
    if (v->window && seq > v->window)
        return rf_fail(RF_EINVAL,
                       "config.json: sliding_window is %d, which is shorter than sequences of "
                       "%lld tokens; this library computes only full attention",
                       v->window, (long long)seq);
    return 0;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const char *dtype_text(enum rf_dtype dtype)
{
    return dtype == RF_F16 ? "float16" : dtype == RF_BF16 ? "bfloat16" : "float32";
}

/* In Python's form of a float: with a point or an exponent, so that readers do not take it for an
 * int. */
static bool add_real(cJSON *object, const char *name, float value)
{
    char text[32];
    model_real_text(value, text);
    if (!strpbrk(text, ".e"))
        memcpy(text + strlen(text), ".0", 3);
    return cJSON_AddRawToObject(object, name, text) != NULL;
}

static bool add_rope(cJSON *root, const struct hub_values *v)
{
    cJSON *rope = cJSON_AddObjectToObject(root, "rope_parameters");
    const struct llama_rope_scaling *s = &v->rope_scaling;
    const bool scaled = s->factor != 0;
    bool ok = rope && cJSON_AddStringToObject(rope, "rope_type", scaled ? "llama3" : "default") &&
              add_real(rope, "rope_theta", (float)v->theta);
    if (ok && scaled)
        ok = add_real(rope, "factor", s->factor) &&
             add_real(rope, "low_freq_factor", s->low_freq) &&
             add_real(rope, "high_freq_factor", s->high_freq) &&
             cJSON_AddNumberToObject(rope, "original_max_position_embeddings", s->original);
    return ok;
}

/* 0 is written as null, which means the same, unless an absent field does. */
static bool add_size(cJSON *root, const struct rf_field *field, int value)
{
    if (value != 0 || field->kind == RF_FIELD_COUNT)
        return cJSON_AddNumberToObject(root, field->name, value) != NULL;
    return field->absent == 0 || cJSON_AddNullToObject(root, field->name) != NULL;
}

static bool add_field(cJSON *root, const struct rf_field *field, const struct hub_values *values)
{
    const void *at = (const char *)values + field->at;
    if (field->absent == RF_FIELD_KEEP || config_get(root, field->name))
        return true; /* another name of a field, or the row of another architecture */
    switch (field->kind) {
    case RF_FIELD_SIZE:
    case RF_FIELD_COUNT:
        return add_size(root, field, *(const int *)at);
    case RF_FIELD_REAL:
        return add_real(root, field->name, (float)*(const double *)at);
    case RF_FIELD_FLAG:
        return cJSON_AddBoolToObject(root, field->name, *(const bool *)at) != NULL;
    default:
        return true;
    }
}

static cJSON *make_config(const struct hub *hub)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *names = cJSON_AddArrayToObject(root, "architectures");
    bool ok = names && cJSON_AddItemToArray(names, cJSON_CreateString(hub->arch->name)) &&
              cJSON_AddStringToObject(root, "model_type", hub->arch->type);
    for (const struct rf_field *const *table = hub->arch->fields; *table; table++)
        for (const struct rf_field *field = *table; ok && field->name; field++)
            ok = add_field(root, field, &hub->values);
    if (ok && !hub->arch->gpt2)
        ok = add_rope(root, &hub->values);
    /* For a model of bytes (data.h): the last token ends a text. */
    if (ok && hub->values.vocab == 257)
        ok = cJSON_AddNumberToObject(root, "bos_token_id", 256) &&
             cJSON_AddNumberToObject(root, "eos_token_id", 256);
    if (ok)
        return root;
    cJSON_Delete(root);
    return NULL;
}

/* Replaces *text by a text in which a field has this value. */
static bool set_field(char **text, const char *name, const char *value)
{
    char *changed = *text ? config_with(*text, name, value) : NULL;
    free(*text);
    *text = changed;
    return changed != NULL;
}

static bool remove_field(char **text, const char *name)
{
    char *changed = config_without(*text, name);
    free(*text);
    *text = changed;
    return changed != NULL;
}

char *hub_unpacked_text(const char *text)
{
    return config_without(text, "quantization_config");
}

/* The folder's text with the changes of the export: the type, a head that is written beside the
 * table of tokens, and the class of a model that had none. */
static char *changed_text(const struct hub *hub, const char *dtype)
{
    char value[96], *text = strdup(hub->text);
    cJSON *config = config_parse(hub->text);
    const bool newer = config_get(config, "dtype") != NULL;
    const bool older = config_get(config, "torch_dtype") != NULL || !newer;
    const bool tied = cJSON_IsTrue(config_get(config, "tie_word_embeddings"));
    const cJSON *names = config_get(config, "architectures");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(names, 0));
    const bool base = name && strcmp(name, hub->arch->base) == 0;
    snprintf(value, sizeof(value), "\"%s\"", dtype);
    bool ok = text && config &&
              (!hub->packing.kind || remove_field(&text, "quantization_config")) &&
              (!newer || set_field(&text, "dtype", value)) &&
              (!older || set_field(&text, "torch_dtype", value)) &&
              (tied == hub->values.tied || hub->arch->gpt2 ||
               set_field(&text, "tie_word_embeddings", hub->values.tied ? "true" : "false"));
    snprintf(value, sizeof(value), "[\"%s\"]", hub->arch->name);
    ok = ok && (!base || set_field(&text, "architectures", value));
    cJSON_Delete(config);
    if (ok)
        return text;
    free(text);
    return NULL;
}

char *hub_config_text(const struct hub *hub, enum rf_dtype dtype)
{
    if (hub->text)
        return changed_text(hub, dtype_text(dtype));
    cJSON *root = make_config(hub);
    char *text = root && cJSON_AddStringToObject(root, "torch_dtype", dtype_text(dtype))
                     ? cJSON_Print(root)
                     : NULL;
    cJSON_Delete(root);
    return text;
}
