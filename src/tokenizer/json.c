/* SPDX-License-Identifier: MIT
 *
 * Fields of a JSON object; see json.h.
 */
#include "json.h"

#include "../base/base.h"
#include "utf8.h"

enum { MAX_NESTING = 64 };

/* Finds what cJSON would accept: too deep nesting, and "\\u0000", which would end a text early. */
static const char *fault(const char *text, size_t bytes)
{
    int depth = 0;
    bool in_string = false;
    if (memchr(text, 0, bytes) || rf_utf8_valid(text, bytes) < bytes)
        return "is no UTF-8, or has a zero byte";
    for (size_t i = 0; i < bytes; i++) {
        if (in_string && text[i] == '\\') {
            if (strncmp(text + i, "\\u0000", 6) == 0)
                return "has the character \\u0000, which is not supported";
            i++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (text[i] == '{' || text[i] == '[')) {
            if (++depth > MAX_NESTING)
                return "is nested too deeply";
        } else if (!in_string && (text[i] == '}' || text[i] == ']')) {
            depth--;
        }
    }
    return NULL;
}

int rf_json_parse(const char *path, const char *text, size_t bytes, cJSON **out)
{
    const char *why = fault(text, bytes), *end = text;
    cJSON *json = why ? NULL : cJSON_ParseWithLengthOpts(text, bytes + 1, &end, 1);
    if (!json)
        return rf_fail(RF_ECORRUPT, "tokenizer: %s %s (at byte %zu)", path,
                       why ? why : "is not JSON", why ? 0 : (size_t)(end - text));
    *out = json;
    return 0;
}

void rf_json_name(char out[RF_FIELD], const char *parent, const char *name)
{
    snprintf(out, RF_FIELD, "%s%s%s", parent, name[0] == '[' || !parent[0] ? "" : ".", name);
}

static int wrong(const char *field, const char *name, const char *what)
{
    char full[RF_FIELD];
    rf_json_name(full, field, name);
    return rf_fail(RF_ECORRUPT, "tokenizer: %s: %s", full, what);
}

int rf_json_get(const cJSON *json, const char *field, const char *name, int type, const cJSON **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!item)
        return wrong(field, name, "is missing");
    if ((item->type & 0xff) != type)
        return wrong(field, name, "has another type than expected");
    *out = item;
    return 0;
}

int rf_json_text(const cJSON *json, const char *field, const char *name, const char **out)
{
    const cJSON *item = NULL;
    RETURN_IF_ERROR(rf_json_get(json, field, name, cJSON_String, &item));
    *out = item->valuestring;
    return 0;
}

int rf_json_bool(const cJSON *json, const char *field, const char *name, int absent, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!item || cJSON_IsNull(item)) {
        if (absent < 0)
            return wrong(field, name, "is missing");
        *out = absent == 1;
        return 0;
    }
    if (!cJSON_IsBool(item))
        return wrong(field, name, "is neither true nor false");
    *out = cJSON_IsTrue(item);
    return 0;
}

int rf_json_int(const cJSON *json, const char *field, const char *name, int most, int *out)
{
    const cJSON *item = NULL;
    RETURN_IF_ERROR(rf_json_get(json, field, name, cJSON_Number, &item));
    if (!(item->valuedouble >= 0 && item->valuedouble <= most) ||
        item->valuedouble != (double)(int)item->valuedouble)
        return wrong(field, name, "is no whole number in its range");
    *out = (int)item->valuedouble;
    return 0;
}

int rf_json_copy(const char *field, const char *text, char **out)
{
    *out = rf_strdup(text);
    return *out ? 0 : rf_fail(RF_ENOMEM, "tokenizer: %s: out of memory", field);
}
