/* SPDX-License-Identifier: MIT
 *
 * What leaves the program besides plain lines: JSON files, and numbers for people.
 */
#include <stdarg.h>
#include <string.h>

#include "tool.h"

static cJSON *json_value(char kind, va_list *values)
{
    const char *text;
    switch (kind) {
    case 's':
        text = va_arg(*values, const char *);
        return text ? cJSON_CreateString(text) : cJSON_CreateNull();
    case 'd':
        return cJSON_CreateNumber(va_arg(*values, int));
    case 'u':
        return cJSON_CreateNumber(va_arg(*values, unsigned));
    case 'h':
        return cJSON_CreateBool(va_arg(*values, int));
    default:
        return cJSON_CreateNumber(va_arg(*values, double)); /* prints as null if not finite */
    }
}

static cJSON *put_members(cJSON *object, const char *members, va_list *values)
{
    for (const char *at = members; *at; at += strcspn(at, " "), at += *at == ' ') {
        char name[64];
        const int bytes = (int)strcspn(at, "=");
        snprintf(name, sizeof(name), "%.*s", bytes, at);
        cJSON_AddItemToObject(object, name, json_value(at[bytes + 2], values));
    }
    return object;
}

void tool_json_put(cJSON *object, const char *members, ...)
{
    va_list values;
    va_start(values, members);
    put_members(object, members, &values);
    va_end(values);
}

cJSON *tool_json_new(const char *members, ...)
{
    va_list values;
    va_start(values, members);
    cJSON *object = put_members(cJSON_CreateObject(), members, &values);
    va_end(values);
    return object;
}

cJSON *tool_json_row(cJSON *list, const char *members, ...)
{
    va_list values;
    va_start(values, members);
    cJSON *object = put_members(cJSON_CreateObject(), members, &values);
    va_end(values);
    cJSON_AddItemToArray(list, object);
    return object;
}

int tool_json_write(const struct tool_command *command, const char *path, cJSON *json)
{
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    size_t bytes = text ? strlen(text) : 0;
    char *line = text ? realloc(text, bytes + 2) : NULL;
    if (!line) {
        cJSON_free(text);
        return tool_error(command, "out of memory while writing JSON");
    }
    memcpy(line + bytes, "\n", 2);
    int status = tool_file_write(command, path, line, bytes + 1);
    free(line);
    return status;
}

const char *tool_bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1023.95 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *tool_flops_text(double flops, char *text, size_t size)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    int unit = 0;
    while (flops >= 999.95 && unit < 6) {
        flops /= 1000;
        unit++;
    }
    snprintf(text, size, "%.1f %sFLOP", flops, units[unit]);
    return text;
}

const char *tool_seconds_text(double seconds, char *text, size_t size)
{
    long whole = (long)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, size, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    else if (whole >= 60)
        snprintf(text, size, "%ldm%02lds", whole / 60, whole % 60);
    else
        snprintf(text, size, "%lds", whole);
    return text;
}
