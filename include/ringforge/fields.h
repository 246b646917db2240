/* SPDX-License-Identifier: MIT
 *
 * The fields of JSON objects that other programs write (config.json, tokenizer.json,
 * adapter_config.json), as tables. Each field has a row: it is read, it is restricted to some
 * values, or it does not change the result, with the reason. Every other field is refused by name,
 * because a skipped field may change the result of a model.
 */
#ifndef RINGFORGE_FIELDS_H
#define RINGFORGE_FIELDS_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

enum rf_field_kind {
    RF_FIELD_SIZE,     /* int: a whole number from 1 to 2^28 */
    RF_FIELD_COUNT,    /* int: the same, or 0 */
    RF_FIELD_REAL,     /* double: above 0, at most 1e30 */
    RF_FIELD_FRACTION, /* double: from 0 to 1 */
    RF_FIELD_FLAG,     /* bool */
    RF_FIELD_READ,     /* the caller reads and checks it */
    RF_FIELD_ONLY,     /* must have one of the values in `text` */
    RF_FIELD_IGNORED   /* does not change the result: `text` says why */
};

/* of rf_field.null: null is an error; of rf_field.absent of RF_FIELD_ONLY: so is its absence */
#define RF_FIELD_NEEDED (-1.0)
#define RF_FIELD_KEEP (-2.0) /* of rf_field.absent: the value stays as it is */

struct rf_field {
    const char *name; /* * at its beginning or end: any name that ends or begins with the rest */
    enum rf_field_kind kind;
    const char *text;    /* ONLY: JSON texts with spaces between them. IGNORED: a reason */
    size_t at;           /* for the first five kinds: offset of the value in the caller's struct */
    double absent, null; /* for the same kinds: the value if the field is absent, or null */
};

struct rf_fields {
    const char *file;   /* for messages: "config.json" */
    const char *within; /* for messages, in front of names: "rope_scaling."; NULL: nothing */
    /* Ends with NULL, and each table with a row without a name. The first row that matches a
     * field's name counts. */
    const struct rf_field *const *tables;
    const char *unset;  /* values of fields without a row that mean "not used": "null false" */
    const char *advice; /* what to do about a field without a row: "delete it if ..." */
};

/* The first row for a name; NULL: none. */
RF_EXPORT const struct rf_field *rf_fields_find(const struct rf_fields *fields, const char *name);

/* Reads the fields of an object into a struct, and checks the fields that are not read. The object
 * is not trusted. RF_EINVAL: a field has an invalid value, has no row, or occurs twice; the message
 * names the field and its value. Any thread. */
RF_API int rf_fields_read(const struct rf_fields *fields, const struct cJSON *object, void *values);

/* RF_EINVAL with the message "FILE: NAME is VALUE; INSTEAD". item NULL: the value is absent. For
 * the caller's own checks. */
RF_API int rf_fields_refuse(const struct rf_fields *fields, const char *name,
                            const struct cJSON *item, const char *instead);

/* Whether the item is one of the JSON texts in a list separated by spaces. */
RF_EXPORT bool rf_field_is(const struct cJSON *item, const char *values);

#ifdef __cplusplus
}
#endif
#endif
