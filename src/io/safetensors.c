/* SPDX-License-Identifier: MIT
 *
 * Reads safetensors files without trusting them: every value is checked against the file's size
 * before it is used, and before memory is allocated for it. Called by checkpoint.c.
 */
#include "safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "../base/base.h"
#include "safetensors_names.h"

#define MAX_HEADER (64u << 20)
#define MAX_WHOLE 9007199254740992.0 /* 2^53: a double is not exact beyond it */

struct entry {
    struct rf_file_tensor tensor;
    const char *type; /* as the file names it */
    uint64_t begin, end;
};

struct rf_safetensors {
    FILE *file;
    char path[4096];
    bool any_type;
    uint64_t data_at, data_bytes;
    cJSON *root;           /* owns the names */
    struct entry *entries; /* sorted by name */
    int count;
};

static const char *const dtype_names[RF_DTYPE_COUNT] = {
    [RF_F32] = "F32", [RF_F64] = "F64", [RF_F16] = "F16", [RF_BF16] = "BF16",
    [RF_I32] = "I32", [RF_I64] = "I64", [RF_U8] = "U8",   [RF_I8] = "I8",
};

const char *rf_safetensors_dtype_name(enum rf_dtype dtype)
{
    return dtype_names[dtype];
}

enum rf_dtype rf_safetensors_dtype_of(const char *name)
{
    int i = 0;
    while (i < RF_DTYPE_COUNT && strcmp(dtype_names[i], name) != 0)
        i++;
    return (enum rf_dtype)i;
}

static bool whole_number(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > MAX_WHOLE)
        return false;
    *out = (uint64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

static int read_header(struct rf_safetensors *st)
{
    uint8_t prefix[8];
    uint64_t length = 0, size;
    if (fseeko(st->file, 0, SEEK_END) < 0)
        return rf_fail(RF_EIO, "cannot read %s: %s", st->path, strerror(errno));
    size = (uint64_t)ftello(st->file);
    rewind(st->file);
    if (size < 10 || fread(prefix, 1, 8, st->file) != 8)
        return rf_fail(RF_ECORRUPT, "%s is too short for a safetensors file", st->path);
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)prefix[i] << (8 * i);
    if (length < 2 || length > MAX_HEADER || length > size - 8)
        return rf_fail(RF_ECORRUPT, "%s: its header claims %llu bytes; the file has %llu", st->path,
                       (unsigned long long)length, (unsigned long long)size);
    st->data_at = 8 + length;
    st->data_bytes = size - 8 - length;
    char *text = rf_alloc(length + 1);
    if (!text)
        return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", st->path);
    const char *end = text;
    bool whole = fread(text, 1, length, st->file) == length;
    if (whole && text[0] == '{' && strlen(text) == length)
        st->root = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1);
    bool parsed = st->root && cJSON_IsObject(st->root);
    rf_free(text);
    if (!whole)
        return rf_fail(RF_EIO, "cannot read %s", st->path);
    return parsed ? 0 : rf_fail(RF_ECORRUPT, "%s: its header is not a JSON object", st->path);
}

static int check_notes(const struct rf_safetensors *st, const cJSON *notes)
{
    if (!cJSON_IsObject(notes))
        return rf_fail(RF_ECORRUPT, "%s: __metadata__ is not an object", st->path);
    for (const cJSON *note = notes->child; note; note = note->next)
        if (!cJSON_IsString(note))
            return rf_fail(RF_ECORRUPT, "%s: metadata %.60s is not a string", st->path,
                           note->string);
    return 0;
}

static int take_shape(const struct rf_safetensors *st, const cJSON *item, struct entry *entry)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    uint64_t dim = 0;
    if (!cJSON_IsArray(shape))
        return rf_fail(RF_ECORRUPT, "%s: tensor %.100s has no shape", st->path, item->string);
    for (const cJSON *d = shape->child; d; d = d->next) {
        if (entry->tensor.shape.ndim == RF_MAX_DIMS)
            return rf_fail(RF_ENOTSUP, "%s: tensor %.100s has more than %d dimensions", st->path,
                           item->string, RF_MAX_DIMS);
        if (!whole_number(d, &dim))
            return rf_fail(RF_ECORRUPT,
                           "%s: tensor %.100s has a dimension that is not a whole number", st->path,
                           item->string);
        entry->tensor.shape.dim[entry->tensor.shape.ndim++] = (int64_t)dim;
    }
    return 0;
}

static int take_entry(const struct rf_safetensors *st, const cJSON *item, struct entry *entry)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    *entry = (struct entry){.tensor.name = item->string};
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3 || !cJSON_IsString(dtype))
        return rf_fail(RF_ECORRUPT, "%s: tensor %.100s is not {dtype, shape, data_offsets}",
                       st->path, item->string);
    entry->type = dtype->valuestring;
    entry->tensor.dtype = rf_safetensors_dtype_of(dtype->valuestring);
    if (entry->tensor.dtype == RF_DTYPE_COUNT && !st->any_type)
        return rf_fail(RF_ENOTSUP, "%s: tensor %.100s has the unknown type %.20s", st->path,
                       item->string, dtype->valuestring);
    RETURN_IF_ERROR(take_shape(st, item, entry));
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole_number(offsets->child, &entry->begin) ||
        !whole_number(offsets->child->next, &entry->end) || entry->begin > entry->end ||
        entry->end > st->data_bytes)
        return rf_fail(RF_ECORRUPT, "%s: tensor %.100s is outside the file", st->path,
                       item->string);
    int64_t count = rf_shape_count(entry->tensor.shape);
    uint64_t size = rf_dtype_bytes(entry->tensor.dtype), bytes = entry->end - entry->begin;
    if (count < 0 || (size > 0 && (bytes % size != 0 || bytes / size != (uint64_t)count)))
        return rf_fail(RF_ECORRUPT,
                       "%s: tensor %.100s has %llu bytes, which does not match its shape", st->path,
                       item->string, (unsigned long long)bytes);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor.name, ((const struct entry *)b)->tensor.name);
}

static int check_places(struct rf_safetensors *st)
{
    uint64_t at = 0;
    qsort(st->entries, (size_t)st->count, sizeof(*st->entries), by_place);
    for (int i = 0; i < st->count; i++) {
        if (st->entries[i].begin != at)
            return rf_fail(RF_ECORRUPT, "%s: tensor %.100s %s", st->path,
                           st->entries[i].tensor.name,
                           st->entries[i].begin < at ? "overlaps another" : "begins after a hole");
        at = st->entries[i].end;
    }
    if (at != st->data_bytes)
        return rf_fail(RF_ECORRUPT, "%s: its tensors have %llu bytes, the file holds %llu",
                       st->path, (unsigned long long)at, (unsigned long long)st->data_bytes);
    qsort(st->entries, (size_t)st->count, sizeof(*st->entries), by_name);
    for (int i = 1; i < st->count; i++)
        if (by_name(&st->entries[i - 1], &st->entries[i]) == 0)
            return rf_fail(RF_ECORRUPT, "%s: tensor %.100s occurs twice", st->path,
                           st->entries[i].tensor.name);
    return 0;
}

static int take_entries(struct rf_safetensors *st)
{
    int items = cJSON_GetArraySize(st->root), notes = 0;
    st->entries = rf_alloc((size_t)(items > 0 ? items : 1) * sizeof(*st->entries));
    if (!st->entries)
        return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", st->path);
    for (const cJSON *item = st->root->child; item; item = item->next) {
        if (strcmp(item->string, "__metadata__") == 0) {
            if (notes++ > 0)
                return rf_fail(RF_ECORRUPT, "%s: __metadata__ occurs twice", st->path);
            RETURN_IF_ERROR(check_notes(st, item));
            continue;
        }
        RETURN_IF_ERROR(take_entry(st, item, &st->entries[st->count]));
        st->count++;
    }
    return check_places(st);
}

int rf_safetensors_open(const char *path, bool any_type, struct rf_safetensors **out)
{
    struct rf_safetensors *st = rf_alloc(sizeof(*st));
    int rc = 0;
    if (!st)
        return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", path);
    snprintf(st->path, sizeof(st->path), "%s", path);
    st->any_type = any_type;
    const char *why;
    st->file = rf_open_input(path, &why);
    if (!st->file) {
        rc = rf_fail(RF_EIO, "cannot open %s: %s", path, why);
        goto fail;
    }
    rc = read_header(st);
    if (rc == 0)
        rc = take_entries(st);
    if (rc < 0)
        goto fail;
    *out = st;
    return 0;

fail:
    rf_safetensors_close(st);
    return rc;
}

void rf_safetensors_close(struct rf_safetensors *st)
{
    if (!st)
        return;
    if (st->file)
        fclose(st->file);
    cJSON_Delete(st->root);
    rf_free(st->entries);
    rf_free(st);
}

int rf_safetensors_count(const struct rf_safetensors *st)
{
    return st->count;
}

const struct rf_file_tensor *rf_safetensors_tensor(const struct rf_safetensors *st, int index)
{
    return &st->entries[index].tensor;
}

const char *rf_safetensors_type(const struct rf_safetensors *st, int index)
{
    return st->entries[index].type;
}

int rf_safetensors_find(const struct rf_safetensors *st, const char *name)
{
    const struct entry key = {.tensor.name = name};
    const struct entry *found = bsearch(&key, st->entries, (size_t)st->count, sizeof(key), by_name);
    return found ? (int)(found - st->entries) : -1;
}

const char *rf_safetensors_note(const struct rf_safetensors *st, const char *key)
{
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(st->root, "__metadata__");
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(notes, key));
}

int rf_safetensors_read(struct rf_safetensors *st, int index, uint64_t first, void *dst,
                        uint64_t bytes)
{
    const struct entry *entry = &st->entries[index];
    const uint64_t have = entry->end - entry->begin;
    if (first > have || bytes > have - first)
        return rf_fail(RF_EINVAL,
                       "%s: tensor %s has %llu bytes; %llu bytes from %llu on are outside it",
                       st->path, entry->tensor.name, (unsigned long long)have,
                       (unsigned long long)bytes, (unsigned long long)first);
    return rf_read_at(fileno(st->file), st->path, st->data_at + entry->begin + first, dst, bytes);
}

int rf_safetensors_fd(const struct rf_safetensors *st)
{
    return fileno(st->file);
}

uint64_t rf_safetensors_bytes(const struct rf_safetensors *st)
{
    return st->data_at + st->data_bytes;
}
