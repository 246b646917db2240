/* SPDX-License-Identifier: MIT
 *
 * Tables of the fields of JSON objects; see fields.h. The objects are not trusted. Called by the
 * readers of tokenizers, and by users: src/models.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <ringforge/fields.h>

#include "base.h"

#define MOST 268435456.0 /* 2^28: far above every size, and products of two fit into 64 bits */

/* ---- values ---------------------------------------------------------------------------------- */

/* A value as JSON, shortened. */
static const char *value_text(const cJSON *item, char text[80])
{
    if (!item)
        snprintf(text, 80, "absent");
    else if (!cJSON_PrintPreallocated((cJSON *)item, text, 80, 0))
        snprintf(text, 80, "(a long value)");
    return text;
}

bool rf_field_is(const struct cJSON *item, const char *values)
{
    char text[80];
    const size_t bytes = strlen(value_text(item, text));
    for (const char *at = values; item && at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strcspn(at, " ") == bytes && strncmp(at, text, bytes) == 0)
            return true;
    return false;
}

int rf_fields_refuse(const struct rf_fields *f, const char *name, const struct cJSON *item,
                     const char *instead)
{
    char text[80];
    return rf_fail(RF_EINVAL, "%s: %s%.90s is %s; %s", f->file, f->within ? f->within : "", name,
                   value_text(item, text), instead);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool matches(const char *pattern, const char *name)
{
    const size_t all = strlen(pattern), bytes = strlen(name);
    if (pattern[0] == '*')
        return bytes >= all - 1 && strcmp(name + bytes - (all - 1), pattern + 1) == 0;
    if (all > 0 && pattern[all - 1] == '*')
        return strncmp(name, pattern, all - 1) == 0;
    return strcmp(name, pattern) == 0;
}

const struct rf_field *rf_fields_find(const struct rf_fields *f, const char *name)
{
    for (const struct rf_field *const *table = f->tables; *table; table++)
        for (const struct rf_field *row = *table; row->name; row++)
            if (matches(row->name, name))
                return row;
    return NULL;
}

static bool is_stored(const struct rf_field *row)
{
    return row->kind <= RF_FIELD_FLAG;
}

static void store(const struct rf_field *row, void *values, double value)
{
    void *at = (char *)values + row->at;
    if (row->kind == RF_FIELD_SIZE || row->kind == RF_FIELD_COUNT)
        *(int *)at = (int)value;
    else if (row->kind == RF_FIELD_FLAG)
        *(bool *)at = value != 0;
    else
        *(double *)at = value;
}

/* The error of a value that is neither absent nor null; NULL: it is in its range. */
static const char *range_fault(const struct rf_field *row, const cJSON *item)
{
    const double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    switch (row->kind) {
    case RF_FIELD_SIZE:
        return value >= 1 && value <= MOST && value == floor(value)
                   ? NULL
                   : "it has to be a whole number from 1 to 268435456";
    case RF_FIELD_COUNT:
        return value >= 0 && value <= MOST && value == floor(value)
                   ? NULL
                   : "it has to be a whole number from 0 to 268435456";
    case RF_FIELD_REAL:
        return value > 0 && value <= 1e30 ? NULL : "it has to be a positive number";
    case RF_FIELD_FRACTION:
        return value >= 0 && value <= 1 ? NULL : "it has to be a number from 0 to 1";
    default:
        return cJSON_IsBool(item) ? NULL : "it has to be true or false";
    }
}

static int read_stored(const struct rf_fields *f, const struct rf_field *row, const cJSON *item,
                       void *values)
{
    if (cJSON_IsNull(item)) {
        if (row->null == RF_FIELD_NEEDED)
            return rf_fields_refuse(f, item->string, item, "it needs a value");
        store(row, values, row->null);
        return 0;
    }
    const char *fault = range_fault(row, item);
    if (fault)
        return rf_fields_refuse(f, item->string, item, fault);
    store(row, values, row->kind == RF_FIELD_FLAG ? cJSON_IsTrue(item) : item->valuedouble);
    return 0;
}

/* ---- objects --------------------------------------------------------------------------------- */

static int read_field(const struct rf_fields *f, const cJSON *item, void *values)
{
    char text[300];
    const struct rf_field *row = rf_fields_find(f, item->string);
    if (!row && rf_field_is(item, f->unset))
        return 0;
    if (!row) {
        snprintf(text, sizeof(text), "this library does not know the field: %s", f->advice);
        return rf_fields_refuse(f, item->string, item, text);
    }
    if (is_stored(row))
        return read_stored(f, row, item, values);
    if (row->kind != RF_FIELD_ONLY || rf_field_is(item, row->text))
        return 0;
    snprintf(text, sizeof(text), "this library computes only %s", row->text);
    return rf_fields_refuse(f, item->string, item, text);
}

/* A later row of the same name, in another table, is not read. */
static void set_absent(const struct rf_fields *f, const cJSON *object, void *values)
{
    for (const struct rf_field *const *table = f->tables; *table; table++)
        for (const struct rf_field *row = *table; row->name; row++)
            if (is_stored(row) && row->absent != RF_FIELD_KEEP &&
                !cJSON_GetObjectItemCaseSensitive(object, row->name) &&
                rf_fields_find(f, row->name) == row)
                store(row, values, row->absent);
}

/* The first field that has to be present, and is not. */
static int check_present(const struct rf_fields *f, const cJSON *object)
{
    char text[300];
    for (const struct rf_field *const *table = f->tables; *table; table++)
        for (const struct rf_field *row = *table; row->name; row++) {
            if (row->kind != RF_FIELD_ONLY || row->absent != RF_FIELD_NEEDED ||
                cJSON_GetObjectItemCaseSensitive(object, row->name) ||
                rf_fields_find(f, row->name) != row)
                continue;
            snprintf(text, sizeof(text), "this library computes only %s", row->text);
            return rf_fields_refuse(f, row->name, NULL, text);
        }
    return 0;
}

/* A name with a star matches many fields, and the caller checks these. */
static int check_once(const struct rf_fields *f, const cJSON *object, const cJSON *item)
{
    const struct rf_field *row = rf_fields_find(f, item->string);
    if (!row || strcmp(row->name, item->string) != 0 ||
        cJSON_GetObjectItemCaseSensitive(object, item->string) == item)
        return 0;
    return rf_fail(RF_EINVAL, "%s: %s%.90s occurs twice; delete one of both", f->file,
                   f->within ? f->within : "", item->string);
}

/* Rows with RF_FIELD_KEEP are alternative names of a field, and replace its value. */
int rf_fields_read(const struct rf_fields *f, const struct cJSON *object, void *values)
{
    set_absent(f, object, values);
    RETURN_IF_ERROR(check_present(f, object));
    for (int others = 0; others < 2; others++)
        for (const cJSON *item = object->child; item; item = item->next) {
            const struct rf_field *row = rf_fields_find(f, item->string);
            if (others != (row && is_stored(row) && row->absent == RF_FIELD_KEEP))
                continue;
            RETURN_IF_ERROR(check_once(f, object, item));
            RETURN_IF_ERROR(read_field(f, item, values));
        }
    return 0;
}
