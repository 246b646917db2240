/* SPDX-License-Identifier: MIT
 *
 * Reads config.json by the tables of hub_table.c. Called by hub.c. The text is not trusted.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

static int refuse(const char *name, const cJSON *item, const char *instead,
                  char fault[HUB_FAULT_BYTES])
{
    char text[80];
    return config_fail(RF_EINVAL, fault, "config.json: %s is %s; %s", name, config_text(item, text),
                       instead);
}

static int read_size(const char *name, const cJSON *item, int *out, char fault[HUB_FAULT_BYTES])
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 1) || value > 1 << 28 || value != floor(value))
        return refuse(name, item, "it has to be a whole number from 1 to 268435456", fault);
    *out = (int)value;
    return 0;
}

static int read_real(const char *name, const cJSON *item, double *out, char fault[HUB_FAULT_BYTES])
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value > 0) || value > 1e30)
        return refuse(name, item, "it has to be a positive number", fault);
    *out = value;
    return 0;
}

/* Whether a JSON text is in a list that is separated by spaces. */
static bool is_one_of(const cJSON *item, const char *only)
{
    char text[80];
    const size_t bytes = strlen(config_text(item, text));
    for (const char *at = only; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strcspn(at, " ") == bytes && strncmp(at, text, bytes) == 0)
            return true;
    return false;
}

static int read_only(const struct hub_field *field, const cJSON *item, char fault[HUB_FAULT_BYTES])
{
    char text[160];
    if (!item || cJSON_IsNull(item) || is_one_of(item, field->only))
        return 0;
    snprintf(text, sizeof(text), "this library computes only %s", field->only);
    return refuse(field->name, item, text, fault);
}

static int read_field(const struct hub_field *field, const cJSON *config, struct hub_values *values,
                      char fault[HUB_FAULT_BYTES])
{
    const cJSON *item = config_get(config, field->name);
    void *to = (char *)values + field->at;
    if (field->kind == HUB_ONLY)
        return read_only(field, item, fault);
    const bool absent = !item || cJSON_IsNull(item);
    const double otherwise = item ? field->null : field->absent;
    if (item && cJSON_IsNull(item) && field->null == HUB_REFUSED)
        return refuse(field->name, item, "it needs a value", fault);
    if (field->kind == HUB_SIZE && !absent)
        return read_size(field->name, item, to, fault);
    if (field->kind == HUB_REAL && !absent)
        return read_real(field->name, item, to, fault);
    if (field->kind == HUB_FLAG && !absent && !cJSON_IsBool(item))
        return refuse(field->name, item, "it has to be true or false", fault);
    if (field->kind == HUB_SIZE)
        *(int *)to = (int)otherwise;
    else if (field->kind == HUB_REAL)
        *(double *)to = otherwise;
    else
        *(bool *)to = absent ? otherwise != 0 : cJSON_IsTrue(item) != 0;
    return 0;
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

static int read_llama3(const cJSON *rope, struct llama_rope_scaling *out,
                       char fault[HUB_FAULT_BYTES])
{
    double factor = 0, low = 0, high = 0;
    RETURN_IF_FAILED(read_real("rope_scaling.factor", config_get(rope, "factor"), &factor, fault));
    RETURN_IF_FAILED(read_real("rope_scaling.low_freq_factor", config_get(rope, "low_freq_factor"),
                               &low, fault));
    RETURN_IF_FAILED(read_real("rope_scaling.high_freq_factor",
                               config_get(rope, "high_freq_factor"), &high, fault));
    RETURN_IF_FAILED(read_size("rope_scaling.original_max_position_embeddings",
                               config_get(rope, "original_max_position_embeddings"), &out->original,
                               fault));
    out->factor = (float)factor;
    out->low_freq = (float)low;
    out->high_freq = (float)high;
    return 0;
}

/* transformers 5 writes rope_parameters, with rope_theta in it; before it were rope_scaling and
 * rope_theta. */
static int read_rope(const cJSON *config, struct hub_values *values, char fault[HUB_FAULT_BYTES])
{
    static const struct hub_field partial = {"partial_rotary_factor", HUB_ONLY, .only = "null 1"};
    const cJSON *rope = config_get(config, "rope_parameters"), *theta = NULL, *type;
    const char *name = rope && !cJSON_IsNull(rope) ? "rope_parameters" : "rope_scaling";
    rope = config_get(config, name);
    values->theta = 10000;
    theta = rope ? config_get(rope, "rope_theta") : NULL;
    theta = theta ? theta : config_get(config, "rope_theta");
    if (theta)
        RETURN_IF_FAILED(read_real("rope_theta", theta, &values->theta, fault));
    if (!rope || cJSON_IsNull(rope))
        return 0;
    if (!cJSON_IsObject(rope))
        return refuse(name, rope, "it has to be an object", fault);
    RETURN_IF_FAILED(read_only(&partial, config_get(rope, partial.name), fault));
    type = config_get(rope, "rope_type") ? config_get(rope, "rope_type") : config_get(rope, "type");
    if (!type || is_one_of(type, "\"default\""))
        return 0;
    if (is_one_of(type, "\"llama3\""))
        return read_llama3(rope, &values->rope_scaling, fault);
    return refuse("rope_type", type, "this library computes only \"default\" and \"llama3\"",
                  fault);
}

/* ---- sliding attention ----------------------------------------------------------------------- */

/* values->window becomes 0 if no layer has it. */
static int read_window(const cJSON *config, const struct hub_arch *arch, struct hub_values *values,
                       char fault[HUB_FAULT_BYTES])
{
    const cJSON *types = config_get(config, "layer_types");
    bool used =
        arch->always_window || (values->uses_window && values->window_from < values->layers);
    if (types && !cJSON_IsNull(types)) {
        used = false;
        if (!cJSON_IsArray(types))
            return refuse("layer_types", types, "it has to be a list", fault);
        for (const cJSON *type = types->child; type; type = type->next) {
            if (!is_one_of(type, "\"full_attention\" \"sliding_attention\""))
                return refuse("layer_types", type, "this library computes only full attention",
                              fault);
            used = used || is_one_of(type, "\"sliding_attention\"");
        }
        used = used && (arch->always_window || values->uses_window);
    }
    values->window = used ? values->window : 0;
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int read_dtype(const cJSON *config, enum rf_dtype *out, char fault[HUB_FAULT_BYTES])
{
    const cJSON *item = config_get(config, "dtype") ? config_get(config, "dtype")
                                                    : config_get(config, "torch_dtype");
    *out = RF_F32;
    if (!item || cJSON_IsNull(item) || is_one_of(item, "\"float32\""))
        return 0;
    *out = RF_F16;
    if (is_one_of(item, "\"float16\""))
        return 0;
    *out = RF_BF16;
    if (is_one_of(item, "\"bfloat16\""))
        return 0;
    return refuse("dtype", item, "weights are float32, float16 or bfloat16", fault);
}

static const struct hub_arch *find_arch(const cJSON *config)
{
    const cJSON *named = cJSON_GetArrayItem(config_get(config, "architectures"), 0);
    const char *name = cJSON_GetStringValue(named);
    const char *type = cJSON_GetStringValue(config_get(config, "model_type"));
    for (int i = 0; hub_archs[i]; i++)
        if (name ? strcmp(name, hub_archs[i]->name) == 0
                 : type && strcmp(type, hub_archs[i]->type) == 0)
            return hub_archs[i];
    return NULL;
}

static int refuse_arch(const cJSON *config, char fault[HUB_FAULT_BYTES])
{
    char text[80], names[256] = "";
    const cJSON *item = config_get(config, "architectures");
    for (int i = 0; hub_archs[i]; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i ? ", " : "",
                 hub_archs[i]->name);
    return config_fail(RF_EINVAL, fault, "config.json: architectures is %s; there are %s",
                       item ? config_text(item, text) : "absent", names);
}

static int check_values(const struct hub_arch *arch, struct hub_values *v,
                        char fault[HUB_FAULT_BYTES])
{
    v->kv_heads = v->kv_heads ? v->kv_heads : v->heads;
    v->head_size = v->head_size ? v->head_size : v->channels / v->heads;
    v->hidden = v->hidden ? v->hidden : 4 * v->channels;
    if (!arch->gpt2)
        return 0;
    if (!v->tied)
        return config_fail(RF_EINVAL, fault,
                           "config.json: tie_word_embeddings is false; the head of a GPT-2 is its "
                           "table of tokens here");
    if (v->hidden != 4 * v->channels)
        return config_fail(RF_EINVAL, fault,
                           "config.json: n_inner is %d; this library computes only 4 * n_embd",
                           v->hidden);
    if ((float)v->eps != 1e-5f)
        return config_fail(RF_EINVAL, fault,
                           "config.json: layer_norm_epsilon is %g; this library computes only 1e-5",
                           v->eps);
    return 0;
}

static int parse(const cJSON *config, struct hub *hub, char fault[HUB_FAULT_BYTES])
{
    hub->arch = find_arch(config);
    if (!hub->arch)
        return refuse_arch(config, fault);
    for (const struct hub_field *field = hub->arch->fields; field->name; field++)
        RETURN_IF_FAILED(read_field(field, config, &hub->values, fault));
    if (!hub->arch->gpt2) {
        RETURN_IF_FAILED(read_rope(config, &hub->values, fault));
        RETURN_IF_FAILED(read_window(config, hub->arch, &hub->values, fault));
    }
    RETURN_IF_FAILED(check_values(hub->arch, &hub->values, fault));
    return read_dtype(config, &hub->dtype, fault);
}

int hub_parse(const char *text, struct hub *hub, char fault[HUB_FAULT_BYTES])
{
    cJSON *config = config_parse(text);
    const int rc = config ? parse(config, hub, fault)
                          : config_fail(RF_ECORRUPT, fault, "config.json is not a JSON object");
    cJSON_Delete(config);
    return rc;
}
