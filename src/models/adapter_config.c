/* SPDX-License-Identifier: MIT
 *
 * adapter_config.json of PEFT; see adapter_file.h. The text is not trusted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_file.h"
#include "config_json.h"

#define ALL_LINEAR "all-linear"

/* Fields that do not change what the adapter computes. */
static const char *const ignored[] = {"auto_mapping",
                                      "base_model_name_or_path",
                                      "inference_mode",
                                      "megatron_core",
                                      "peft_version",
                                      "qalora_group_size",
                                      "revision",
                                      "task_type",
                                      "runtime_config",
                                      "eva_config",
                                      "corda_config",
                                      "loftq_config",
                                      "ensure_weight_tying",
                                      NULL};
/* Fields that this library reads. */
static const char *const known[] = {
    "peft_type",      "r",          "lora_alpha",     "lora_dropout",
    "target_modules", "use_rslora", "fan_in_fan_out", NULL};

static bool is_in(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* null, false, {}, [], or the value that means "not used". */
static bool is_unused(const cJSON *item)
{
    if (cJSON_IsNull(item) || cJSON_IsFalse(item))
        return true;
    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        return item->child == NULL;
    if (strcmp(item->string, "bias") == 0)
        return cJSON_IsString(item) && strcmp(item->valuestring, "none") == 0;
    /* How values began; those that change the base as well are strings. */
    return strcmp(item->string, "init_lora_weights") == 0 &&
           (cJSON_IsTrue(item) ||
            (cJSON_IsString(item) && strcmp(item->valuestring, "gaussian") == 0));
}

static int check_others(const cJSON *config, char fault[ADAPTER_FAULT_BYTES])
{
    char text[80];
    for (const cJSON *item = config->child; item; item = item->next) {
        if (!item->string || is_in(ignored, item->string) || is_in(known, item->string) ||
            is_unused(item))
            continue;
        return config_fail(RF_EINVAL, fault,
                           "adapter_config.json: %.60s is %s; this library has no such adapters",
                           item->string, config_text(item, text));
    }
    return 0;
}

static int read_flag(const cJSON *config, const char *name, bool *out,
                     char fault[ADAPTER_FAULT_BYTES])
{
    const cJSON *item = config_get(config, name);
    if (item && !cJSON_IsNull(item) && !cJSON_IsBool(item))
        return config_fail(RF_ECORRUPT, fault, "adapter_config.json: %s has to be true or false",
                           name);
    *out = item && cJSON_IsTrue(item);
    return 0;
}

static int read_real(const cJSON *config, const char *name, double absent, double *out,
                     char fault[ADAPTER_FAULT_BYTES])
{
    const cJSON *item = config_get(config, name);
    *out = cJSON_IsNumber(item) ? item->valuedouble : absent;
    if ((item && !cJSON_IsNumber(item)) || !isfinite(*out) || fabs(*out) > 1e6)
        return config_fail(RF_ECORRUPT, fault,
                           "adapter_config.json: %s has to be a number up to 1e6", name);
    return 0;
}

static int add_target(struct adapter_config *out, const char *text, char fault[ADAPTER_FAULT_BYTES])
{
    const size_t used = strlen(out->targets), left = sizeof(out->targets) - used;
    if (strpbrk(text, ",*?[]!") || !*text)
        return config_fail(RF_EINVAL, fault,
                           "adapter_config.json: \"%.60s\" of target_modules is a regular "
                           "expression; this library takes names of modules",
                           text);
    if (strlen(text) + 2 > left)
        return config_fail(RF_EINVAL, fault,
                           "adapter_config.json: target_modules has too many names");
    snprintf(out->targets + used, left, "%s%s", used ? "," : "", text);
    return 0;
}

static int read_targets(const cJSON *config, struct adapter_config *out,
                        char fault[ADAPTER_FAULT_BYTES])
{
    const cJSON *item = config_get(config, "target_modules");
    if (cJSON_IsString(item))
        return add_target(out, item->valuestring, fault);
    if (!cJSON_IsArray(item) || !item->child)
        return config_fail(RF_ECORRUPT, fault, "adapter_config.json has no target_modules");
    for (const cJSON *name = item->child; name; name = name->next) {
        if (!cJSON_IsString(name))
            return config_fail(RF_ECORRUPT, fault,
                               "adapter_config.json: target_modules has to be a list of names");
        if (strcmp(name->valuestring, ALL_LINEAR) == 0)
            return config_fail(RF_EINVAL, fault,
                               "adapter_config.json: " ALL_LINEAR " is no name of a module, and "
                               "target_modules is a list of names");
        const int rc = add_target(out, name->valuestring, fault);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int parse(const cJSON *config, struct adapter_config *out, char fault[ADAPTER_FAULT_BYTES])
{
    const cJSON *type = config_get(config, "peft_type");
    double rank = 0, alpha = 0, dropout = 0;
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "LORA") != 0)
        return config_fail(RF_EINVAL, fault, "adapter_config.json: peft_type has to be LORA");
    int rc = check_others(config, fault);
    if (rc == 0)
        rc = read_real(config, "r", 8, &rank, fault);
    if (rc == 0)
        rc = read_real(config, "lora_alpha", 8, &alpha, fault);
    if (rc == 0)
        rc = read_real(config, "lora_dropout", 0, &dropout, fault);
    if (rc == 0)
        rc = read_flag(config, "use_rslora", &out->adapter.rslora, fault);
    if (rc == 0)
        rc = read_flag(config, "fan_in_fan_out", &out->fan_in_fan_out, fault);
    if (rc == 0)
        rc = read_targets(config, out, fault);
    if (rc < 0)
        return rc;
    out->adapter.rank = rank >= 1 && rank <= 1024 && rank == floor(rank) ? (int)rank : 0;
    out->adapter.alpha = (float)alpha;
    out->adapter.dropout = (float)dropout;
    out->adapter.targets = out->targets;
    const char *wrong = model_adapter_fault(&out->adapter);
    if (!wrong && !(out->adapter.alpha > 0))
        wrong = "lora_alpha has to be positive";
    return wrong ? config_fail(RF_EINVAL, fault, "adapter_config.json: %s", wrong) : 0;
}

int adapter_config_parse(const char *text, struct adapter_config *out,
                         char fault[ADAPTER_FAULT_BYTES])
{
    *out = (struct adapter_config){0};
    cJSON *config = config_parse(text);
    const int rc =
        config ? parse(config, out, fault)
               : config_fail(RF_ECORRUPT, fault, "adapter_config.json is not a JSON object");
    cJSON_Delete(config);
    return rc;
}

static bool add_target_name(cJSON *list, const char *name)
{
    cJSON *item = cJSON_CreateString(name);
    return item && cJSON_AddItemToArray(list, item);
}

static bool are_names(const char *targets)
{
    for (const char *at = targets, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if ((size_t)(end - at) == strlen(ALL_LINEAR) &&
            strncmp(at, ALL_LINEAR, strlen(ALL_LINEAR)) == 0)
            return false;
    }
    return !strpbrk(targets, "*?[!");
}

/* PEFT has no patterns of fnmatch, so the modules that they match are listed. */
static bool add_targets(cJSON *config, const char *targets,
                        const struct model_adapter_module *modules, int count)
{
    if (strcmp(targets, ALL_LINEAR) == 0)
        return cJSON_AddStringToObject(config, "target_modules", targets) != NULL;
    cJSON *list = cJSON_AddArrayToObject(config, "target_modules");
    bool ok = list != NULL;
    if (!are_names(targets)) {
        for (int i = 0; ok && i < count; i++)
            ok = add_target_name(list, modules[i].name);
        return ok;
    }
    for (const char *at = targets, *end; ok && at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        char *name = strndup(at, (size_t)(end - at));
        ok = name && add_target_name(list, name);
        free(name);
    }
    return ok;
}

char *adapter_config_text(const struct model_adapter *a, bool fan_in_fan_out, const char *base,
                          const struct model_adapter_module *modules, int count)
{
    cJSON *c = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(c, "peft_type", "LORA") &&
              cJSON_AddStringToObject(c, "task_type", "CAUSAL_LM") &&
              (base ? cJSON_AddStringToObject(c, "base_model_name_or_path", base)
                    : cJSON_AddNullToObject(c, "base_model_name_or_path")) &&
              cJSON_AddBoolToObject(c, "inference_mode", true) &&
              cJSON_AddNumberToObject(c, "r", a->rank) &&
              cJSON_AddNumberToObject(c, "lora_alpha", a->alpha != 0 ? (double)a->alpha : 8) &&
              cJSON_AddNumberToObject(c, "lora_dropout", (double)a->dropout) &&
              cJSON_AddBoolToObject(c, "use_rslora", a->rslora) &&
              cJSON_AddBoolToObject(c, "fan_in_fan_out", fan_in_fan_out) &&
              cJSON_AddStringToObject(c, "bias", "none") &&
              add_targets(c, a->targets, modules, count);
    char *text = ok ? cJSON_Print(c) : NULL;
    char *out = text ? strdup(text) : NULL;
    cJSON_free(text);
    cJSON_Delete(c);
    return out;
}
