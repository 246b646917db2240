/* SPDX-License-Identifier: MIT
 *
 * See config_json.h.
 */
#include "config_json.h"

#include <stdarg.h>
#include <stdio.h>

int config_fail(int status, char fault[MODEL_FAULT_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(fault, MODEL_FAULT_BYTES, format, args);
    va_end(args);
    return status;
}

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

const char *config_text(const cJSON *item, char text[80])
{
    if (!cJSON_PrintPreallocated((cJSON *)item, text, 80, 0))
        snprintf(text, 80, "(a long value)");
    return text;
}
