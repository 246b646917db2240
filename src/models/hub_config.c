/* SPDX-License-Identifier: MIT
 *
 * Reads config.json by the tables of hub_table.c and hub_fields.c. Called by hub.c. The text is not
 * trusted.
 */
#include <stdio.h>
#include <string.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

#define FILE_NAME "config.json"
#define UNKNOWN "delete it if it does not change what the model computes"

/* Writes the sentence about a field. */
static int refuse(const char *name, const cJSON *item, const char *instead)
{
    const struct rf_fields none = {.file = FILE_NAME};
    return rf_fields_refuse(&none, name, item, instead);
}

static bool is_set(const cJSON *item)
{
    return item && !cJSON_IsNull(item);
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* A length beside the object overrides the one in it. */
static int read_llama3(const struct rf_fields *fields, const struct hub_rope *rope,
                       struct hub_values *values)
{
    static const char needed[] = "the rotary scaling llama3 needs a positive number";
    struct llama_rope_scaling *out = &values->rope_scaling;
    if (rope->factor == 0)
        return rf_fields_refuse(fields, "factor", NULL, needed);
    if (rope->low_freq == 0)
        return rf_fields_refuse(fields, "low_freq_factor", NULL, needed);
    if (rope->high_freq == 0)
        return rf_fields_refuse(fields, "high_freq_factor", NULL, needed);
    out->factor = (float)rope->factor;
    out->low_freq = (float)rope->low_freq;
    out->high_freq = (float)rope->high_freq;
    out->original = values->rope_original ? values->rope_original
                    : rope->original      ? rope->original
                                          : values->positions;
    return 0;
}

/* transformers 5 writes rope_parameters, with rope_theta in it; earlier versions wrote rope_scaling
 * and rope_theta. If both objects exist, it reads rope_scaling, unless that is empty. */
static const char *rope_name(const cJSON *config)
{
    const cJSON *old = config_get(config, "rope_scaling");
    const bool is_old = is_set(old) && !(cJSON_IsObject(old) && !old->child);
    return is_old ? "rope_scaling" : "rope_parameters";
}

/* If only the object that transformers does not read has rope_theta, transformers uses 10000. */
static int check_theta(const cJSON *config, const char *name, const cJSON *rope)
{
    const cJSON *other = config_get(config, "rope_parameters");
    if (rope == other || config_get(rope, "rope_theta") || config_get(config, "rope_theta") ||
        !config_get(other, "rope_theta"))
        return 0;
    return refuse(name, rope,
                  "it replaces rope_parameters, and has no rope_theta as that has; put rope_theta "
                  "into it, or delete one of both");
}

static int read_rope(const cJSON *config, struct hub_values *values)
{
    char within[32];
    const char *name = rope_name(config);
    const cJSON *rope = config_get(config, name);
    struct hub_rope read = {.theta = values->theta};
    if (!is_set(rope))
        return 0;
    if (!cJSON_IsObject(rope))
        return refuse(name, rope, "it has to be an object");
    const cJSON *type = config_get(rope, "rope_type");
    type = type ? type : config_get(rope, "type");
    const bool llama3 = type && rf_field_is(type, "\"llama3\"");
    snprintf(within, sizeof(within), "%s.", name);
    const struct rf_field *const tables[] = {
        hub_rope_fields, llama3 ? hub_llama3_rope_fields : hub_plain_rope_fields, NULL};
    const struct rf_fields fields = {FILE_NAME, within, tables, "null", UNKNOWN};
    if (type && !llama3 && !rf_field_is(type, "\"default\""))
        return rf_fields_refuse(&fields, "rope_type", type,
                                "this library computes only \"default\" and \"llama3\"");
    RETURN_IF_FAILED(check_theta(config, name, rope));
    RETURN_IF_FAILED(rf_fields_read(&fields, rope, &read));
    values->theta = read.theta;
    return llama3 ? read_llama3(&fields, &read, values) : 0;
}

/* ---- sliding attention ----------------------------------------------------------------------- */

/* *slides: whether the type of any layer has a window. */
static int read_layer_types(const cJSON *types, int layers, bool *slides)
{
    *slides = false;
    if (!cJSON_IsArray(types))
        return refuse("layer_types", types, "it has to be a list");
    if (cJSON_GetArraySize(types) != layers)
        return refuse("layer_types", types,
                      "it needs one type for each layer of num_hidden_layers");
    for (const cJSON *type = types->child; type; type = type->next) {
        if (!rf_field_is(type, "\"full_attention\" \"sliding_attention\""))
            return refuse("layer_types", type, "this library computes only full attention");
        *slides = *slides || rf_field_is(type, "\"sliding_attention\"");
    }
    return 0;
}

/* values->window becomes 0 if no layer has it. transformers uses the layers' types for windows only
 * in architectures with a switch for it. */
static int read_window(const cJSON *config, const struct hub_arch *arch, struct hub_values *values)
{
    const cJSON *types = config_get(config, "layer_types");
    bool used =
        arch->always_window || (values->uses_window && values->window_from < values->layers);
    bool slides = false;
    if (is_set(types)) {
        RETURN_IF_FAILED(read_layer_types(types, values->layers, &slides));
        if (slides && (!values->window || !(arch->always_window || values->uses_window)))
            return refuse("layer_types", types,
                          "it has layers with a window, and sliding_window or use_sliding_window "
                          "says that there is none");
        used = slides || arch->always_window;
    }
    values->window = used ? values->window : 0;
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* `dtype` is the name since transformers 4.56; it has precedence if both are present. */
static int read_dtype(const cJSON *config, enum rf_dtype *out)
{
    const char *name = is_set(config_get(config, "dtype")) ? "dtype" : "torch_dtype";
    const cJSON *item = config_get(config, name);
    *out = RF_F32;
    if (!is_set(item) || rf_field_is(item, "\"float32\""))
        return 0;
    *out = RF_F16;
    if (rf_field_is(item, "\"float16\""))
        return 0;
    *out = RF_BF16;
    if (rf_field_is(item, "\"bfloat16\""))
        return 0;
    return refuse(name, item, "weights are float32, float16 or bfloat16");
}

/* With model_type "llama" and architectures ["MistralForCausalLM"] one of the two is wrong. */
static int check_type(const struct hub_arch *arch, const cJSON *config)
{
    char text[160];
    const cJSON *type = config_get(config, "model_type");
    if (!is_set(type) || (cJSON_IsString(type) && strcmp(type->valuestring, arch->type) == 0))
        return 0;
    snprintf(text, sizeof(text),
             "architectures is %s, whose model_type is \"%s\"; correct the one that is wrong",
             arch->name, arch->type);
    return refuse("model_type", type, text);
}

/* *out is NULL if the table lacks the architecture. */
static int find_arch(const cJSON *config, const struct hub_arch **out)
{
    const cJSON *names = config_get(config, "architectures");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(names, 0));
    const char *type = cJSON_GetStringValue(config_get(config, "model_type"));
    const bool named = is_set(names) && !(cJSON_IsArray(names) && !names->child);
    *out = NULL;
    for (int i = 0; hub_archs[i] && !*out; i++) {
        const struct hub_arch *arch = hub_archs[i];
        if (named ? name && (strcmp(name, arch->name) == 0 || strcmp(name, arch->base) == 0)
                  : type && strcmp(type, arch->type) == 0)
            *out = arch;
    }
    return *out ? check_type(*out, config) : 0;
}

static int refuse_arch(const cJSON *config)
{
    char text[300] = "there are ";
    const cJSON *names = config_get(config, "architectures"),
                *type = config_get(config, "model_type");
    for (int i = 0; hub_archs[i]; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? ", " : "",
                 hub_archs[i]->name);
    return is_set(names) || !type ? refuse("architectures", names, text)
                                  : refuse("model_type", type, text);
}

static int check_values(const cJSON *config, const struct hub_arch *arch, struct hub_values *v)
{
    v->kv_heads = v->kv_heads ? v->kv_heads : v->heads;
    v->head_size = v->head_size ? v->head_size : v->channels / v->heads;
    v->hidden = v->hidden ? v->hidden : 4 * v->channels;
    if (!arch->gpt2)
        return 0;
    if (!v->tied)
        return refuse("tie_word_embeddings", config_get(config, "tie_word_embeddings"),
                      "the head of a GPT-2 is its table of tokens here");
    if (v->hidden != 4 * v->channels)
        return refuse("n_inner", config_get(config, "n_inner"),
                      "this library computes only 4 * n_embd");
    if ((float)v->eps != 1e-5f)
        return refuse("layer_norm_epsilon", config_get(config, "layer_norm_epsilon"),
                      "this library computes only 1e-5");
    return 0;
}

static int parse(const cJSON *config, struct hub *hub)
{
    RETURN_IF_FAILED(find_arch(config, &hub->arch));
    if (!hub->arch)
        return refuse_arch(config);
    const struct rf_fields fields = {FILE_NAME, NULL, hub->arch->fields, "null", UNKNOWN};
    RETURN_IF_FAILED(rf_fields_read(&fields, config, &hub->values));
    if (!hub->arch->gpt2) {
        RETURN_IF_FAILED(read_rope(config, &hub->values));
        RETURN_IF_FAILED(read_window(config, hub->arch, &hub->values));
    }
    RETURN_IF_FAILED(check_values(config, hub->arch, &hub->values));
    RETURN_IF_FAILED(hub_read_packing(hub->arch, config, &hub->packing));
    return read_dtype(config, &hub->dtype);
}

/* *out: NULL on failure. */
static int open_config(const char *text, cJSON **out)
{
    *out = config_parse(text);
    return *out ? 0 : rf_fail(RF_ECORRUPT, FILE_NAME " is not a JSON object");
}

int hub_find_arch(const char *text, const struct hub_arch **out, struct hub_packing *packing)
{
    cJSON *config;
    RETURN_IF_FAILED(open_config(text, &config));
    int rc = find_arch(config, out);
    if (rc == 0)
        rc = hub_read_packing(*out, config, packing);
    cJSON_Delete(config);
    return rc;
}

int hub_parse(const char *text, struct hub *hub)
{
    cJSON *config;
    RETURN_IF_FAILED(open_config(text, &config));
    const int rc = parse(config, hub);
    cJSON_Delete(config);
    return rc;
}
