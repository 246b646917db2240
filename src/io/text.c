/* SPDX-License-Identifier: MIT
 *
 * Text files as tokens, one for each byte or those of a tokenizer. See data.h. Called by trainers;
 * independent of models and ranks. Samples of them are drawn in samples.c.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "file.h"
#include "lines.h"

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

/* ---- data sets ------------------------------------------------------------------------------- */

/* found: in a folder, not named by the caller. */
static int append_file(struct rf_gather *g, const char *path, bool found)
{
    char *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_FILE, &text, &bytes));
    const enum rf_file_kind kind = rf_file_kind(path, text, bytes, found);
    const int rc = bytes == 0             ? 0
                   : kind == RF_FILE_TEXT ? rf_gather_text(g, path, text, bytes)
                                          : rf_lines_read(g, path, kind, text, bytes);
    g->data->files += bytes > 0;
    rf_free(text);
    return rc;
}

/* Checks the files together. */
static int check_all(const struct rf_gather *g, const char *path)
{
    const struct rf_dataset *data = g->data;
    if ((data->documents || data->left_out) && g->texts)
        return rf_fail(
            RF_EINVAL,
            "data %s: has texts and also documents with \"prompt\" or \"messages\"; train "
            "on one kind",
            path);
    if (g->opts->chat && !g->chats)
        return rf_fail(
            RF_EINVAL,
            "data %s: has no \"messages\", so there is nothing that the chat form %s could "
            "write; leave it out",
            path, g->opts->chat);
    if (data->left_out && !data->documents)
        return rf_fail(
            RF_EINVAL,
            "data %s: what is to be learned of all %lld documents lies behind the end of "
            "a row of %lld tokens; use longer rows (--seq)",
            path, (long long)data->left_out,
            (long long)(g->opts->pack ? g->opts->pack : g->opts->seq));
    if (data->count < 2)
        return rf_fail(RF_EINVAL, "data %s: the file is empty; there is nothing to train on", path);
    return 0;
}

static int read_texts(struct rf_dataset *data, const char *path, const struct rf_data_opts *opts)
{
    struct paths paths = {0};
    struct rf_gather g = {.data = data, .opts = opts, .end = RF_END_OF_TEXT};
    data->width = 2;
    data->padding = RF_END_OF_TEXT;
    if (opts->tokenizer) {
        const int32_t end = rf_tokenizer_role(opts->tokenizer, RF_TOKEN_END);
        if (end < 0)
            return rf_fail(RF_EINVAL, "data %s: the tokenizer has no token for the end of a text",
                           path);
        g.end = (uint32_t)end;
        data->padding = end;
        data->width = rf_tokenizer_vocabulary(opts->tokenizer) <= 65536 ? 2 : 4;
    }
    /* An unknown form is an error whatever the data are. */
    int rc = opts->chat ? rf_line_open(&g.line, opts) : 0;
    if (rc == 0)
        rc = find_files(&paths, path);
    const bool found = paths.count != 1 || strcmp(paths.list[0], path) != 0;
    for (size_t i = 0; rc == 0 && i < paths.count; i++)
        rc = append_file(&g, paths.list[i], found);
    if (rc == 0)
        rc = check_all(&g, path);
    if (rc == 0 && g.line.chat)
        rc = rf_dataset_name_chat(data, rf_chat_name(g.line.chat));
    for (size_t i = 0; i < paths.count; i++)
        rf_free(paths.list[i]);
    rf_free(paths.list);
    rf_gather_free(&g);
    return rc;
}

int rf_dataset_open_as(const char *path, const struct rf_data_opts *opts, struct rf_dataset **out)
{
    const struct rf_data_opts none = {0};
    opts = opts ? opts : &none;
    if (!path || !out)
        return rf_fail(RF_EINVAL, "data: a path and a pointer for the result are needed");
    if (opts->pack < 0 || opts->seq < 0)
        return rf_fail(RF_EINVAL, "data: rows of %lld tokens",
                       (long long)(opts->pack < 0 ? opts->pack : opts->seq));
    if (opts->chat && !opts->tokenizer)
        return rf_fail(RF_EINVAL, "data: a chat form needs a tokenizer");
    if (opts->raw_bytes != 0 && opts->raw_bytes != 2 && opts->raw_bytes != 4)
        return rf_fail(RF_EINVAL, "data: tokens of %d bytes; 2 and 4 are possible",
                       opts->raw_bytes);
    struct rf_dataset *data = rf_alloc(sizeof(*data));
    if (!data)
        return rf_fail(RF_ENOMEM, "data %s: out of memory", path);
    int rc = rf_token_file_map(data, path, opts->raw_bytes);
    const bool mapped = rc == 1;
    if (mapped && opts->chat)
        rc = rf_fail(RF_EINVAL,
                     "data %s: is a file of tokens, in which the chat form %s has nothing "
                     "to write; leave it out",
                     path, opts->chat);
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
