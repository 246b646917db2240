/* SPDX-License-Identifier: MIT
 *
 * Writes folders of weights; see weights.h. All files are written to DIR.tmp, which then takes the
 * place of DIR in one step. Called by users; independent of models and ranks.
 */
#define _GNU_SOURCE /* renameat2 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ringforge/weights.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"
#include "../coll/reduce.h"
#include "safetensors.h"

#define NAME_BYTES 96
#define DEFAULT_SHARD 5000000000ull
#define MOST_COPIED ((size_t)256 << 20)

struct rf_export {
    char dir[4000], tmp[4096];
    char name[33]; /* "model" */
    struct rf_file_tensor *tensors;
    int *shards; /* of each tensor */
    int count, shard_count;
    uint64_t bytes;
    /* the file being written */
    struct rf_out_file out;
    bool open;
    int next;      /* tensor */
    uint64_t done; /* elements of it */
};

/* ---- folders --------------------------------------------------------------------------------- */

static bool belongs(const char *name)
{
    static const char *const suffixes[] = {".safetensors", ".json", ".txt", ".model", ".jinja"};
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const size_t n = strlen(suffixes[i]);
        if (bytes > n && strcmp(name + bytes - n, suffixes[i]) == 0)
            return true;
    }
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int check_folder(const char *dir)
{
    struct stat about;
    int rc = 0;
    if (lstat(dir, &about) < 0)
        return errno == ENOENT ? 0 : rf_fail(RF_EIO, "export %s: %s", dir, strerror(errno));
    DIR *folder = S_ISDIR(about.st_mode) ? opendir(dir) : NULL;
    if (!folder)
        return rf_fail(RF_EINVAL, "export %s: it is not a folder that can be replaced", dir);
    for (struct dirent *item; rc == 0 && (item = readdir(folder)) != NULL;)
        if (!belongs(item->d_name))
            rc = rf_fail(RF_EINVAL,
                         "export %s: the folder contains %.100s, which is no file of a model, and "
                         "all of it would be replaced: name another folder",
                         dir, item->d_name);
    closedir(folder);
    return rc;
}

/* Removes a folder with the files of an export. Other files stay. */
static void remove_folder(const char *dir)
{
    char path[4400];
    DIR *folder = opendir(dir);
    for (struct dirent *item; folder && (item = readdir(folder)) != NULL;)
        if (item->d_name[0] != '.' && belongs(item->d_name) &&
            snprintf(path, sizeof(path), "%s/%s", dir, item->d_name) < (int)sizeof(path))
            unlink(path);
    if (folder)
        closedir(folder);
    rmdir(dir);
}

static int copy_dir_name(const char *dir, char out[4000])
{
    size_t bytes = dir ? strlen(dir) : 0;
    while (bytes > 1 && dir[bytes - 1] == '/')
        bytes--;
    if (bytes == 0 || bytes >= 3900 || strcmp(dir, "/") == 0)
        return rf_fail(RF_EINVAL, "export: \"%.60s\" is not the name of a folder", dir ? dir : "");
    memcpy(out, dir, bytes);
    out[bytes] = 0;
    return 0;
}

int rf_export_check(const char *dir)
{
    char name[4000];
    RETURN_IF_ERROR(copy_dir_name(dir, name));
    return check_folder(name);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct rf_file_tensor *tensor)
{
    return (uint64_t)rf_shape_count(tensor->shape) * rf_dtype_bytes(tensor->dtype);
}

static void shard_name(const struct rf_export *e, int shard, char name[NAME_BYTES])
{
    if (e->shard_count == 1)
        snprintf(name, NAME_BYTES, "%s.safetensors", e->name);
    else
        snprintf(name, NAME_BYTES, "%.32s-%05d-of-%05d.safetensors", e->name, shard + 1,
                 e->shard_count);
}

static int take_tensors(struct rf_export *e, const struct rf_export_opts *opts)
{
    snprintf(e->name, sizeof(e->name), "%s", opts->name ? opts->name : "model");
    const uint64_t most = opts->shard_bytes ? opts->shard_bytes : DEFAULT_SHARD;
    uint64_t used = 0;
    e->tensors = rf_alloc(((size_t)opts->count + 1) * sizeof(*e->tensors));
    e->shards = rf_alloc(((size_t)opts->count + 1) * sizeof(*e->shards));
    if (!e->tensors || !e->shards)
        return rf_fail(RF_ENOMEM, "export: out of host memory");
    for (int i = 0; i < opts->count; i++) {
        const struct rf_weight *w = &opts->weights[i];
        if (rf_shape_count(w->shape) < 0 ||
            (w->dtype != RF_F32 && w->dtype != RF_F16 && w->dtype != RF_BF16))
            return rf_fail(RF_EINVAL, "export: tensor %.100s is not of f32, f16 or bf16", w->name);
        e->tensors[i] = (struct rf_file_tensor){rf_strdup(w->name), w->dtype, w->shape};
        e->count++;
        if (!e->tensors[i].name)
            return rf_fail(RF_ENOMEM, "export: out of host memory");
        const uint64_t bytes = bytes_of(&e->tensors[i]);
        e->shard_count += i == 0 || used + bytes > most;
        used = i == 0 || used + bytes > most ? bytes : used + bytes;
        e->shards[i] = e->shard_count - 1;
        e->bytes += bytes;
    }
    return opts->count > 0 ? 0 : rf_fail(RF_EINVAL, "export: there are no tensors");
}

static void destroy(struct rf_export *e)
{
    rf_out_abandon(&e->out);
    for (int i = 0; i < e->count; i++)
        rf_free((void *)e->tensors[i].name);
    rf_free(e->tensors);
    rf_free(e->shards);
    rf_free(e);
}

int rf_export_open(const char *dir, const struct rf_export_opts *opts, struct rf_export **out)
{
    struct rf_export *e = rf_alloc(sizeof(*e));
    if (!e)
        return rf_fail(RF_ENOMEM, "export: out of host memory");
    e->out.fd = -1;
    int rc = copy_dir_name(dir, e->dir);
    if (rc == 0)
        rc = check_folder(e->dir);
    if (rc == 0)
        rc = take_tensors(e, opts);
    snprintf(e->tmp, sizeof(e->tmp), "%s.tmp", e->dir);
    if (rc == 0)
        rc = check_folder(e->tmp); /* left by an interrupted export */
    if (rc == 0) {
        remove_folder(e->tmp);
        if (mkdir(e->tmp, 0777) < 0)
            rc = rf_fail(RF_EIO, "cannot create the folder %s: %s", e->tmp, strerror(errno));
    }
    if (rc < 0)
        destroy(e);
    else
        *out = e;
    return rc;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int begin_shard(struct rf_export *e)
{
    const int shard = e->shards[e->next];
    int count = 0;
    while (e->next + count < e->count && e->shards[e->next + count] == shard)
        count++;
    const struct rf_file_note note = {"format", "pt"};
    const struct rf_file_content content = {
        .tensors = e->tensors + e->next, .tensor_count = count, .notes = &note, .note_count = 1};
    struct rf_safetensors_layout layout = {0};
    char name[NAME_BYTES], path[4096];
    shard_name(e, shard, name);
    RETURN_IF_ERROR(rf_join_path(path, e->tmp, name));
    RETURN_IF_ERROR(rf_safetensors_lay_out(&content, &layout));
    int rc = rf_out_open(&e->out, path);
    if (rc == 0)
        rc = rf_out_write(&e->out, layout.header, layout.header_bytes);
    rf_safetensors_layout_free(&layout);
    e->open = rc == 0;
    return rc;
}

static int end_tensor(struct rf_export *e)
{
    const bool last = e->next + 1 == e->count || e->shards[e->next + 1] != e->shards[e->next];
    e->next++;
    e->done = 0;
    if (!last)
        return 0;
    e->open = false;
    return rf_out_close(&e->out, NULL);
}

int rf_export_write(struct rf_export *e, float *values, uint64_t count)
{
    if (e->next == e->count)
        return rf_fail(RF_EINVAL, "export %s: all tensors are written already", e->dir);
    const struct rf_file_tensor *t = &e->tensors[e->next];
    const uint64_t all = (uint64_t)rf_shape_count(t->shape), size = rf_dtype_bytes(t->dtype);
    if (count > all - e->done)
        return rf_fail(RF_EINVAL, "export %s: tensor %s has %llu elements, not more", e->dir,
                       t->name, (unsigned long long)all);
    if (!e->open)
        RETURN_IF_ERROR(begin_shard(e));
    if (t->dtype != RF_F32) /* in place: an element is read before it is overwritten */
        rf_narrow(values, values, count, t->dtype);
    RETURN_IF_ERROR(rf_out_write(&e->out, values, count * size));
    e->done += count;
    return e->done == all ? end_tensor(e) : 0;
}

/* ---- other files ----------------------------------------------------------------------------- */

static int write_file(const struct rf_export *e, const char *name, const void *data, size_t bytes)
{
    struct rf_out_file out = {.fd = -1};
    char path[4096];
    if (strchr(name, '/') || !belongs(name))
        return rf_fail(RF_EINVAL, "export: %.100s is not the name of a file of a model", name);
    RETURN_IF_ERROR(rf_join_path(path, e->tmp, name));
    int rc = rf_out_open(&out, path);
    if (rc == 0)
        rc = rf_out_write(&out, data, bytes);
    if (rc == 0)
        rc = rf_out_close(&out, NULL);
    rf_out_abandon(&out);
    return rc;
}

int rf_export_text(struct rf_export *e, const char *name, const char *text)
{
    return write_file(e, name, text, strlen(text));
}

int rf_export_copy(struct rf_export *e, const char *from_dir, const char *name)
{
    char path[4096], *data = NULL;
    struct stat about;
    size_t bytes = 0;
    RETURN_IF_ERROR(rf_join_path(path, from_dir, name));
    if (stat(path, &about) < 0 && errno == ENOENT)
        return 0;
    RETURN_IF_ERROR(rf_check_link(from_dir, path));
    if (!e)
        return 0;
    RETURN_IF_ERROR(rf_read_file(path, MOST_COPIED, &data, &bytes));
    int rc = write_file(e, name, data, bytes);
    rf_free(data);
    return rc;
}

static int write_index(struct rf_export *e)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *notes = cJSON_AddObjectToObject(root, "metadata");
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    char name[NAME_BYTES];
    bool ok = notes && map && cJSON_AddNumberToObject(notes, "total_size", (double)e->bytes);
    for (int i = 0; ok && i < e->count; i++) {
        shard_name(e, e->shards[i], name);
        ok = cJSON_AddStringToObject(map, e->tensors[i].name, name) != NULL;
    }
    char *text = ok ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (!text)
        return rf_fail(RF_ENOMEM, "export: out of host memory");
    snprintf(name, sizeof(name), "%s.safetensors.index.json", e->name);
    int rc = rf_export_text(e, name, text);
    cJSON_free(text);
    return rc;
}

/* ---- the end --------------------------------------------------------------------------------- */

static int replace(const struct rf_export *e)
{
    /* Swaps both names at once; DIR.tmp is then the previous folder. */
    int renamed = renameat2(AT_FDCWD, e->tmp, AT_FDCWD, e->dir, RENAME_EXCHANGE);
    if (renamed == 0)
        remove_folder(e->tmp);
    else if (errno == ENOENT)
        renamed = rename(e->tmp, e->dir);
    else if (errno == EINVAL || errno == ENOSYS) { /* a file system that cannot exchange */
        remove_folder(e->dir);
        renamed = rename(e->tmp, e->dir);
    }
    if (renamed < 0)
        return rf_fail(RF_EIO, "cannot rename %s to %s: %s; the whole export is in the former",
                       e->tmp, e->dir, strerror(errno));
    return 0;
}

/* Everything that can fail while DIR is unchanged. */
static int complete(struct rf_export *e)
{
    if (e->next < e->count)
        return rf_fail(RF_EINVAL, "export %s: tensor %s was not written", e->dir,
                       e->tensors[e->next].name);
    if (e->shard_count > 1)
        RETURN_IF_ERROR(write_index(e));
    RETURN_IF_ERROR(rf_sync_folder(e->tmp));
    return check_folder(e->dir);
}

static int finish(struct rf_export *e)
{
    char parent[4096];
    RETURN_IF_ERROR(replace(e));
    snprintf(parent, sizeof(parent), "%s/..", e->dir);
    return rf_sync_folder(parent);
}

int rf_export_close(struct rf_export *e, bool whole)
{
    if (!e)
        return 0;
    int rc = whole ? complete(e) : 0;
    rf_out_abandon(&e->out);
    if (!whole || rc < 0)
        remove_folder(e->tmp);
    else
        rc = finish(e);
    destroy(e);
    return rc;
}
