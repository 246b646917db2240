/* SPDX-License-Identifier: MIT
 *
 * adapter_config.json of PEFT; see adapter_file.h. The text is not trusted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_file.h"
#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

#define ALL_LINEAR "all-linear"

#define NAME "adapter_config.json"

/* Values of the file, before they are checked together. */
struct values {
    int rank;
    double alpha, dropout;
    bool rslora, fan_in_fan_out;
};
#define AT(field) offsetof(struct values, field)

static const char program[] = "says where the adapters and their base come from";
static const char start[] = "how values began, which the files of the adapters replace";
static const char names[] = "the names of the tensors say whose adapters they are";

/* A new field of PEFT that is unused has one of the values in rf_fields.unset. */
static const struct rf_field fields[] = {
    {"peft_type", RF_FIELD_READ},
    {"target_modules", RF_FIELD_READ},
    {"r", RF_FIELD_SIZE, NULL, AT(rank), 8, RF_FIELD_NEEDED},
    {"lora_alpha", RF_FIELD_REAL, NULL, AT(alpha), 8, RF_FIELD_NEEDED},
    {"lora_dropout", RF_FIELD_FRACTION, NULL, AT(dropout), 0, RF_FIELD_NEEDED},
    {"use_rslora", RF_FIELD_FLAG, NULL, AT(rslora), 0, 0},
    {"fan_in_fan_out", RF_FIELD_FLAG, NULL, AT(fan_in_fan_out), 0, 0},
    {"bias", RF_FIELD_ONLY, "\"none\""},
    /* Other values change the base, or the set of trained values. */
    {"init_lora_weights", RF_FIELD_ONLY, "true false null \"gaussian\" \"orthogonal\" \"eva\""},
    {"use_dora", RF_FIELD_ONLY, "false null"},
    {"use_qalora", RF_FIELD_ONLY, "false null"},
    {"lora_bias", RF_FIELD_ONLY, "false null"},
    {"rank_pattern", RF_FIELD_ONLY, "null {}"},
    {"alpha_pattern", RF_FIELD_ONLY, "null {}"},
    {"layers_to_transform", RF_FIELD_ONLY, "null []"},
    {"layers_pattern", RF_FIELD_ONLY, "null [] \"\""},
    {"modules_to_save", RF_FIELD_ONLY, "null []"},
    {"exclude_modules", RF_FIELD_ONLY, "null []"},
    {"target_parameters", RF_FIELD_ONLY, "null []"},
    {"trainable_token_indices", RF_FIELD_ONLY, "null [] {}"},
    {"alora_invocation_tokens", RF_FIELD_ONLY, "null []"},
    {"layer_replication", RF_FIELD_ONLY, "null []"},
    {"megatron_config", RF_FIELD_ONLY, "null {}"},
    {"arrow_config", RF_FIELD_ONLY, "null {}"},
    {"kasa_config", RF_FIELD_ONLY, "null"},
    {"velora_config", RF_FIELD_ONLY, "null"},
    {"monteclora_config", RF_FIELD_ONLY, "null"},
    {"use_bdlora", RF_FIELD_ONLY, "null false"},
    {"auto_mapping", RF_FIELD_IGNORED, program},
    {"base_model_name_or_path", RF_FIELD_IGNORED, program},
    {"revision", RF_FIELD_IGNORED, program},
    {"peft_version", RF_FIELD_IGNORED, program},
    {"inference_mode", RF_FIELD_IGNORED, "whether PEFT freezes the adapters when it loads them"},
    {"task_type", RF_FIELD_IGNORED, names},
    {"megatron_core", RF_FIELD_IGNORED, "of megatron_config"},
    {"qalora_group_size", RF_FIELD_IGNORED, "of use_qalora"},
    {"runtime_config", RF_FIELD_IGNORED, "changes how the same numbers are computed"},
    {"ensure_weight_tying", RF_FIELD_IGNORED,
     "of modules_to_save, and of adapters of tables of tokens"},
    {"eva_config", RF_FIELD_IGNORED, start},
    {"corda_config", RF_FIELD_IGNORED, start},
    {"loftq_config", RF_FIELD_IGNORED, start},
    {"lora_ga_config", RF_FIELD_IGNORED, start},
    {NULL}};
static const struct rf_field *const tables[] = {fields, NULL};

const struct rf_fields adapter_fields = {
    .file = NAME,
    .tables = tables,
    .unset = "null false {} []",
    .advice = "delete it if it does not change what the adapters compute"};

static int add_target(struct adapter_config *out, const char *text)
{
    const size_t used = strlen(out->targets), left = sizeof(out->targets) - used;
    if (strpbrk(text, ",*?[]!") || !*text)
        return rf_fail(RF_EINVAL,
                       NAME ": \"%.60s\" of target_modules is a regular "
                            "expression; this library takes names of modules",
                       text);
    if (strlen(text) + 2 > left)
        return rf_fail(RF_EINVAL, NAME ": target_modules has too many names");
    snprintf(out->targets + used, left, "%s%s", used ? "," : "", text);
    return 0;
}

static int read_targets(const cJSON *config, struct adapter_config *out)
{
    const cJSON *item = config_get(config, "target_modules");
    if (cJSON_IsString(item))
        return add_target(out, item->valuestring);
    if (!cJSON_IsArray(item) || !item->child)
        return rf_fail(RF_ECORRUPT, NAME " has no target_modules");
    for (const cJSON *name = item->child; name; name = name->next) {
        if (!cJSON_IsString(name))
            return rf_fail(RF_ECORRUPT, NAME ": target_modules has to be a list of names");
        if (strcmp(name->valuestring, ALL_LINEAR) == 0)
            return rf_fail(RF_EINVAL, NAME ": " ALL_LINEAR " is no name of a module, and "
                                           "target_modules is a list of names");
        RETURN_IF_FAILED(add_target(out, name->valuestring));
    }
    return 0;
}

static int parse(const cJSON *config, struct adapter_config *out)
{
    const cJSON *type = config_get(config, "peft_type");
    struct values values = {0};
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "LORA") != 0)
        return rf_fail(RF_EINVAL, NAME ": peft_type has to be LORA");
    RETURN_IF_FAILED(rf_fields_read(&adapter_fields, config, &values));
    RETURN_IF_FAILED(read_targets(config, out));
    out->fan_in_fan_out = values.fan_in_fan_out;
    out->adapter = (struct model_adapter){.rank = values.rank,
                                          .alpha = (float)values.alpha,
                                          .dropout = (float)values.dropout,
                                          .rslora = values.rslora,
                                          .targets = out->targets};
    if (model_adapter_check(&out->adapter) < 0)
        return rf_fail(RF_EINVAL, NAME ": %s", rf_last_error()->message);
    return out->adapter.alpha > 0 ? 0 : rf_fail(RF_EINVAL, NAME ": lora_alpha has to be positive");
}

int adapter_config_parse(const char *text, struct adapter_config *out)
{
    *out = (struct adapter_config){0};
    cJSON *config = config_parse(text);
    const int rc = config ? parse(config, out) : rf_fail(RF_ECORRUPT, NAME " is not a JSON object");
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

/* PEFT has no fnmatch patterns, so the matching modules are listed. */
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
