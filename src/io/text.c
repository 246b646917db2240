/* SPDX-License-Identifier: MIT
 *
 * Text files as tokens, one for each byte, and samples drawn from them. See data.h. Called by
 * trainers; independent of models and ranks.
 */
#include <dirent.h>
#include <errno.h>
#include <ringforge/data.h>
#include <sys/stat.h>

#include "../base/base.h"
#include "file.h"

#define MAX_FILE ((size_t)1 << 40)
#define SAMPLE_SITE 0x64617461u /* separates these random numbers from those of parameters */

struct rf_dataset {
    uint16_t *tokens;
    int64_t count, train;
    int files;
};

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

static int append(struct rf_dataset *data, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_FILE, &text, &bytes));
    uint16_t *grown =
        rf_realloc(data->tokens, ((size_t)data->count + bytes + 1) * sizeof(*data->tokens));
    if (!grown) {
        rf_free(text);
        return rf_fail(RF_ENOMEM, "data %s: out of memory for %zu bytes", path, bytes);
    }
    data->tokens = grown;
    for (size_t i = 0; i < bytes; i++)
        data->tokens[data->count++] = (uint8_t)text[i];
    if (bytes > 0) {
        data->tokens[data->count++] = RF_END_OF_TEXT;
        data->files++;
    }
    rf_free(text);
    return 0;
}

int rf_dataset_open(const char *path, struct rf_dataset **out)
{
    struct paths paths = {0};
    if (!path || !out)
        return rf_fail(RF_EINVAL, "data: a path and a pointer for the result are needed");
    struct rf_dataset *data = rf_alloc(sizeof(*data));
    int rc = data ? find_files(&paths, path) : rf_fail(RF_ENOMEM, "data %s: out of memory", path);
    for (size_t i = 0; rc == 0 && i < paths.count; i++)
        rc = append(data, paths.list[i]);
    if (rc == 0 && data->count < 2)
        rc = rf_fail(RF_EINVAL, "data %s: the file is empty; there is nothing to train on", path);
    for (size_t i = 0; i < paths.count; i++)
        rf_free(paths.list[i]);
    rf_free(paths.list);
    if (rc < 0) {
        rf_dataset_close(data);
        return rc;
    }
    data->train = data->count - data->count / 10;
    *out = data;
    return 0;
}

void rf_dataset_close(struct rf_dataset *data)
{
    if (!data)
        return;
    rf_free(data->tokens);
    rf_free(data);
}

int64_t rf_dataset_train_tokens(const struct rf_dataset *data)
{
    return data->train;
}

int64_t rf_dataset_held_out_tokens(const struct rf_dataset *data)
{
    return data->count - data->train;
}

int rf_dataset_files(const struct rf_dataset *data)
{
    return data->files;
}

uint64_t rf_dataset_hash(const struct rf_dataset *data)
{
    enum { PIECE = 4096 };
    uint8_t bytes[2 * PIECE]; /* the same byte order on every machine */
    uint64_t hash = (uint64_t)data->count;
    for (int64_t first = 0; first < data->count; first += PIECE) {
        const int64_t left = data->count - first, n = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < n; i++) {
            bytes[2 * i] = (uint8_t)(data->tokens[first + i] & 0xff);
            bytes[2 * i + 1] = (uint8_t)(data->tokens[first + i] >> 8);
        }
        const uint32_t low = rf_hash32(bytes, (size_t)(2 * n), (uint32_t)hash);
        const uint32_t high = rf_hash32(bytes, (size_t)(2 * n), (uint32_t)(hash >> 32) ^ low);
        hash = (uint64_t)high << 32 | low;
    }
    return hash;
}

/* ---- samples --------------------------------------------------------------------------------- */

int rf_dataset_samples(const struct rf_dataset *data, uint64_t seed, int64_t first, int64_t count,
                       int64_t seq, int32_t *tokens, int32_t *targets)
{
    if (first < 0 || count < 1 || seq < 1)
        return rf_fail(RF_EINVAL, "data: first %lld, count %lld, sequence %lld: must be positive",
                       (long long)first, (long long)count, (long long)seq);
    if (data->train <= seq)
        return rf_fail(RF_EINVAL,
                       "data: %lld tokens to train on are too few for sequences of %lld and the "
                       "token after them; use more text or shorter sequences",
                       (long long)data->train, (long long)seq);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (int64_t)rf_philox_below(seed, SAMPLE_SITE, (uint64_t)first + (uint64_t)i,
                                              (uint64_t)(data->train - seq));
        for (int64_t t = 0; t < seq; t++) {
            tokens[i * seq + t] = data->tokens[at + t];
            targets[i * seq + t] = data->tokens[at + t + 1];
        }
    }
    return 0;
}

int64_t rf_dataset_held_out_sequences(const struct rf_dataset *data, int64_t seq)
{
    int64_t pairs = rf_dataset_held_out_tokens(data) - 1;
    return pairs > 0 && seq > 0 ? (pairs + seq - 1) / seq : 0;
}

int rf_dataset_held_out(const struct rf_dataset *data, int64_t first, int64_t batch, int64_t seq,
                        int32_t *tokens, int32_t *targets)
{
    if (first < 0 || batch < 1 || seq < 1)
        return rf_fail(RF_EINVAL, "data: first %lld, batch %lld, sequence %lld: must be positive",
                       (long long)first, (long long)batch, (long long)seq);
    for (int64_t i = 0; i < batch * seq; i++) {
        int64_t at = data->train + first * seq + i;
        bool there = at + 1 < data->count;
        tokens[i] = there ? data->tokens[at] : 0;
        targets[i] = there ? data->tokens[at + 1] : -1;
    }
    return 0;
}
