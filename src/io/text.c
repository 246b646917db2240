/* SPDX-License-Identifier: MIT
 *
 * Text files as tokens, one for each byte or those of a tokenizer. See data.h. Called by trainers;
 * independent of models and ranks. Samples of them are drawn in samples.c.
 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "../tokenizer/utf8.h"
#include "dataset.h"
#include "document.h"
#include "file.h"

#define MAX_FILE ((size_t)1 << 40)

/* ---- which files ----------------------------------------------------------------------------- */

struct paths {
    char **list;
    size_t count, capacity;
};

static int add_path(struct paths *paths, const char *path)
{
    if (paths->count == paths->capacity) {
        size_t capacity = paths->capacity ? 2 * paths->capacity : 64;
        char **grown = rf_realloc(paths->list, capacity * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
        paths->list = grown;
        paths->capacity = capacity;
    }
    paths->list[paths->count] = rf_strdup(path);
    if (!paths->list[paths->count])
        return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
    paths->count++;
    return 0;
}

static bool is_text(const char *path)
{
    char head[4096];
    const char *why;
    FILE *file = rf_open_input(path, &why);
    if (!file)
        return false;
    size_t n = fread(head, 1, sizeof(head), file);
    fclose(file);
    return n > 0 && !memchr(head, 0, n);
}

static int walk(struct paths *paths, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    int rc = 0;
    if (!dir)
        return rf_fail(RF_EIO, "data %s: %s", folder, strerror(errno));
    for (struct dirent *item; rc == 0 && (item = readdir(dir)) != NULL;) {
        char path[4096];
        struct stat about;
        if (item->d_name[0] == '.')
            continue;
        rc = rf_join_path(path, folder, item->d_name);
        if (rc < 0 || lstat(path, &about) < 0)
            continue;
        if (S_ISLNK(about.st_mode) && (stat(path, &about) < 0 || S_ISDIR(about.st_mode)))
            continue; /* a link to a folder could form a cycle */
        if (S_ISDIR(about.st_mode) && depth < 32)
            rc = walk(paths, path, depth + 1);
        else if (S_ISREG(about.st_mode) && is_text(path))
            rc = add_path(paths, path);
    }
    closedir(dir);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int find_files(struct paths *paths, const char *path)
{
    struct stat about;
    if (stat(path, &about) < 0)
        return rf_fail(RF_EIO, "data %s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return add_path(paths, path);
    RETURN_IF_ERROR(walk(paths, path, 0));
    if (paths->count == 0)
        return rf_fail(RF_EINVAL, "data %s: there is no text file in this folder", path);
    qsort(paths->list, paths->count, sizeof(*paths->list), by_text);
    return 0;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Room for `more` tokens. */
static int reserve(struct rf_dataset *data, const char *path, size_t more)
{
    if ((uint64_t)data->capacity - (uint64_t)data->count >= more)
        return 0;
    const size_t wanted = (size_t)data->count + (size_t)data->count / 2 + more;
    void *grown = rf_realloc(data->tokens, wanted * (size_t)data->width);
    if (!grown)
        return rf_fail(RF_ENOMEM, "data %s: out of memory for %zu tokens", path, wanted);
    data->tokens = grown;
    data->capacity = (int64_t)wanted;
    return 0;
}

static void put(struct rf_dataset *data, uint32_t token)
{
    if (data->width == 2)
        ((uint16_t *)data->tokens)[data->count++] = (uint16_t)token;
    else
        ((uint32_t *)data->tokens)[data->count++] = token;
}

struct reader {
    struct rf_dataset *data;
    const struct rf_data_opts *opts;
    struct rf_token_list ids;
    int64_t bytes;
    uint32_t end; /* of text */
    bool texts;   /* some were read */
    struct rf_document document;
};

static void tell(struct reader *r, size_t bytes)
{
    r->bytes += (int64_t)bytes;
    if (r->opts->progress)
        r->opts->progress(r->opts->user, r->bytes, r->data->count);
}

/* One text, and the end of it. */
static int append_text(struct reader *r, const char *path, const char *text, size_t bytes)
{
    const struct rf_encode_opts with = {.add_special = true};
    r->texts = true;
    if (!r->opts->tokenizer) {
        RETURN_IF_ERROR(reserve(r->data, path, bytes + 1));
        for (size_t i = 0; i < bytes; i++)
            put(r->data, (uint8_t)text[i]);
    } else {
        r->ids.count = 0;
        RETURN_IF_ERROR(rf_tokenizer_encode(r->opts->tokenizer, text, bytes, &with, &r->ids));
        if (r->ids.count > 0 && (uint32_t)r->ids.ids[r->ids.count - 1] == r->end)
            r->ids.count--;
        RETURN_IF_ERROR(reserve(r->data, path, r->ids.count + 1));
        for (size_t i = 0; i < r->ids.count; i++)
            put(r->data, (uint32_t)r->ids.ids[i]);
    }
    put(r->data, r->end);
    tell(r, bytes);
    return 0;
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

/* Room for the flags of the tokens that there is room for, and one more document. */
static int reserve_document(struct rf_dataset *data, const char *path, int64_t before)
{
    if (before != data->capacity) {
        uint8_t *grown = rf_realloc(data->learned, (size_t)data->capacity);
        if (!grown)
            return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
        data->learned = grown;
    }
    if (data->documents + 2 > data->starts_capacity) {
        const int64_t wanted = 2 * data->starts_capacity + 64;
        int64_t *grown = rf_realloc(data->starts, (size_t)wanted * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
        data->starts = grown;
        data->starts_capacity = wanted;
    }
    return 0;
}

static int append_document(struct reader *r, const char *path, const char *where, const cJSON *json,
                           size_t bytes)
{
    struct rf_dataset *data = r->data;
    const struct rf_document *d = &r->document;
    const int64_t before = data->capacity;
    RETURN_IF_ERROR(rf_document_read(r->opts, (int32_t)r->end, where, json, &r->document));
    RETURN_IF_ERROR(reserve(data, path, d->ids.count));
    RETURN_IF_ERROR(reserve_document(data, path, before));
    memcpy(data->learned + data->count, d->learned, d->ids.count);
    data->starts[data->documents++] = data->count;
    for (size_t i = 0; i < d->ids.count; i++)
        put(data, (uint32_t)d->ids.ids[i]);
    data->starts[data->documents] = data->count;
    tell(r, bytes);
    return 0;
}

/* cJSON would end a text at the character U+0000: writes RF_ZERO_CHARACTER for it. */
static void keep_zeros(char *line, size_t *bytes)
{
    char *to = line;
    for (const char *from = line, *end = line + *bytes; from < end;) {
        const bool escape = *from == '\\' && end - from >= 2;
        if (end - from >= 6 && memcmp(from, "\\u0000", 6) == 0) {
            memcpy(to, RF_ZERO_CHARACTER, 2);
            to += 2;
            from += 6;
            continue;
        }
        *to++ = *from++;
        if (escape) /* what is escaped may be a backslash */
            *to++ = *from++;
    }
    *bytes = (size_t)(to - line);
}

static int append_line(struct reader *r, const char *path, const char *where, char *line,
                       size_t bytes)
{
    const bool valid = rf_utf8_valid(line, bytes) == bytes;
    size_t left = bytes, length = 0;
    int rc = 0;
    if (memchr(line, 0, bytes))
        return rf_fail(RF_ECORRUPT, "%s has a zero byte; JSON has \\u0000 for it", where);
    if (valid)
        keep_zeros(line, &left);
    cJSON *json = cJSON_ParseWithLength(line, left);
    cJSON *text = cJSON_GetObjectItemCaseSensitive(json, "text");
    if (!cJSON_IsObject(json))
        rc = rf_fail(RF_ECORRUPT, "%s is no JSON object", where);
    else if (!rf_document_is(json) && !cJSON_IsString(text))
        rc = rf_fail(RF_ECORRUPT,
                     "%s has no \"text\", no \"prompt\" and \"completion\", and no \"messages\"",
                     where);
    else if (!valid)
        rc = rf_fail(RF_ECORRUPT, "%s is not UTF-8", where);
    else if (rf_document_is(json))
        rc = append_document(r, path, where, json, bytes);
    else if (rf_document_bytes(text, &length))
        rc = append_text(r, path, text->valuestring, length);
    cJSON_Delete(json);
    return rc;
}

/* A file with a JSON object on each line. */
static int append_lines(struct reader *r, const char *path, char *text, size_t bytes)
{
    char *const end = text + bytes;
    int rc = 0;
    for (long long line = 1; rc == 0 && text < end; line++) {
        char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        if (strspn(text, " \t\r") < (size_t)(stop - text)) {
            char where[4096 + 64];
            snprintf(where, sizeof(where), "data %s: line %lld", path, line);
            rc = append_line(r, path, where, text, (size_t)(stop - text));
        }
        text = stop + 1;
    }
    return rc;
}

static int append_file(struct reader *r, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    const size_t length = strlen(path);
    const bool lines = r->opts->tokenizer && length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_FILE, &text, &bytes));
    const int rc = bytes == 0 ? 0
                   : lines    ? append_lines(r, path, text, bytes)
                              : append_text(r, path, text, bytes);
    r->data->files += bytes > 0;
    rf_free(text);
    return rc;
}

static int read_texts(struct rf_dataset *data, const char *path, const struct rf_data_opts *opts)
{
    struct paths paths = {0};
    struct reader r = {.data = data, .opts = opts, .end = RF_END_OF_TEXT};
    data->width = 2;
    data->padding = RF_END_OF_TEXT;
    if (opts->tokenizer) {
        const int32_t end = rf_tokenizer_role(opts->tokenizer, RF_TOKEN_END);
        if (end < 0)
            return rf_fail(RF_EINVAL, "data %s: the tokenizer has no token for the end of a text",
                           path);
        r.end = (uint32_t)end;
        data->padding = end;
        data->width = rf_tokenizer_vocabulary(opts->tokenizer) <= 65536 ? 2 : 4;
    }
    int rc = find_files(&paths, path);
    for (size_t i = 0; rc == 0 && i < paths.count; i++)
        rc = append_file(&r, paths.list[i]);
    if (rc == 0 && data->documents && r.texts)
        rc = rf_fail(RF_EINVAL,
                     "data %s: has texts and also documents with \"prompt\" or \"messages\"; train "
                     "on one kind",
                     path);
    if (rc == 0 && data->count < 2)
        rc = rf_fail(RF_EINVAL, "data %s: the file is empty; there is nothing to train on", path);
    for (size_t i = 0; i < paths.count; i++)
        rf_free(paths.list[i]);
    rf_free(paths.list);
    rf_token_list_free(&r.ids);
    rf_document_free(&r.document);
    return rc;
}

int rf_dataset_open_as(const char *path, const struct rf_data_opts *opts, struct rf_dataset **out)
{
    const struct rf_data_opts none = {0};
    opts = opts ? opts : &none;
    if (!path || !out)
        return rf_fail(RF_EINVAL, "data: a path and a pointer for the result are needed");
    if (opts->pack < 0)
        return rf_fail(RF_EINVAL, "data: rows of %lld tokens", (long long)opts->pack);
    if (opts->raw_bytes != 0 && opts->raw_bytes != 2 && opts->raw_bytes != 4)
        return rf_fail(RF_EINVAL, "data: tokens of %d bytes; 2 and 4 are possible",
                       opts->raw_bytes);
    struct rf_dataset *data = rf_alloc(sizeof(*data));
    if (!data)
        return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
    int rc = rf_token_file_map(data, path, opts->raw_bytes);
    const bool mapped = rc == 1;
    if (rc == 0)
        rc = read_texts(data, path, opts);
    if (rc < 0) {
        rf_dataset_close(data);
        return rc;
    }
    data->train = data->count - data->count / 10;
    if (data->documents) {
        rc = rf_rows_make(data, opts->pack);
    } else if (opts->pack) {
        rc = rf_fail(RF_EINVAL, "data %s: packing is for documents with \"prompt\" or \"messages\"",
                     path);
    }
    if (rc < 0) {
        rf_dataset_close(data);
        return rc;
    }
    data->vocabulary =
        mapped || opts->tokenizer ? rf_dataset_highest(data) + 1 : RF_BYTE_VOCABULARY;
    *out = data;
    return 0;
}

int rf_dataset_open(const char *path, struct rf_dataset **out)
{
    return rf_dataset_open_as(path, NULL, out);
}
