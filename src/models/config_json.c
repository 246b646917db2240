/* SPDX-License-Identifier: MIT
 *
 * See config_json.h.
 */
#include "config_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cJSON *config_parse(const char *text)
{
    const char *end = text;
    cJSON *config = cJSON_ParseWithOpts(text, &end, 1);
    if (cJSON_IsObject(config))
        return config;
    cJSON_Delete(config);
    return NULL;
}

const cJSON *config_get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Returns the place after the string that begins at `at`. */
static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        at += at[0] == '\\' && at[1];
    return at + (*at == '"');
}

/* Returns the place after a value: the comma or bracket that ends it. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    while (*at && !(depth == 0 && strchr(",}]", *at))) {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    }
    return at;
}

/* The begin of the value of a field of the outermost object, and the comma or bracket after it;
 * NULL: no such field. */
static const char *find_value(const char *text, const char *name, const char **end)
{
    const size_t bytes = strlen(name);
    for (const char *at = skip_space(text) + 1; *at; at = *end + 1) {
        const char *key = skip_space(at), *behind;
        if (*key != '"')
            return NULL;
        behind = skip_string(key);
        const char *value = skip_space(skip_space(behind) + 1);
        *end = skip_value(value);
        if ((size_t)(behind - key) == bytes + 2 && strncmp(key + 1, name, bytes) == 0)
            return value;
        if (**end != ',')
            return NULL;
    }
    return NULL;
}

char *config_with(const char *text, const char *name, const char *value)
{
    const char *end, *at = find_value(text, name, &end);
    const size_t bytes = strlen(text) + strlen(name) + strlen(value) + 16;
    char *out = malloc(bytes);
    if (!out)
        return NULL;
    if (at) {
        while (end > at && strchr(" \t\r\n", end[-1]))
            end--;
        snprintf(out, bytes, "%.*s%s%s", (int)(at - text), text, value, end);
        return out;
    }
    end = skip_space(text) + 1;
    const char *comma = *skip_space(end) == '}' ? "" : ",";
    snprintf(out, bytes, "%.*s\n  \"%s\": %s%s%s", (int)(end - text), text, name, value, comma,
             end);
    return out;
}

char *config_without(const char *text, const char *name)
{
    const char *end, *at = find_value(text, name, &end);
    char *out = malloc(strlen(text) + 1);
    if (!out)
        return NULL;
    if (!at) {
        strcpy(out, text);
        return out;
    }
    while (*at != ':')
        at--;
    while (strncmp(at + 1, name, strlen(name)) != 0 || at[0] != '"')
        at--;
    if (*end == ',') /* behind the value, or else the one before the name */
        end++;
    else
        while (at > text && *at != ',' && *at != '{')
            at--;
    at += *at == '{';
    snprintf(out, strlen(text) + 1, "%.*s%s", (int)(at - text), text, end);
    return out;
}
