/* SPDX-License-Identifier: MIT
 *
 * The state of a server in files: its range of the parameters and the states of its optimizer, as a
 * safetensors file. A server has two, and writes them in turn, so the one before the last is there,
 * too. A file appears under its name once all of it is on the disk.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "shard.h"

enum { NOTES = 9 };
static const char format[] = "ringforge store 1";

static int path_of(const struct rf_store_shards *s, int slot, const char *end, char out[4096])
{
    char name[80];
    snprintf(name, sizeof name, "server-%d-of-%d.%c%s", s->server + 1, s->servers, 'a' + slot, end);
    return rf_join_path(out, s->folder, name);
}

static int tensors_of(const struct rf_store_shards *s, struct rf_file_tensor *out, float **data)
{
    int count = 0;
    out[count] = (struct rf_file_tensor){"param", RF_F32, rf_shape1(s->count)};
    data[count++] = s->param;
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (s->state[k]) {
            out[count] = (struct rf_file_tensor){
                rf_optimizer_state_name((enum rf_optimizer_state)k), RF_F32, rf_shape1(s->count)};
            data[count++] = s->state[k];
        }
    return count;
}

/* What a file must agree with, and then what it tells. */
struct notes {
    char total[24], first[24], count[24], sum[24], version[24], updates[24];
    struct rf_file_note list[NOTES];
};

static void write_notes(const struct rf_store_shards *s, uint32_t sum, struct notes *n)
{
    snprintf(n->total, sizeof n->total, "%lld", (long long)s->total);
    snprintf(n->first, sizeof n->first, "%lld", (long long)s->first);
    snprintf(n->count, sizeof n->count, "%lld", (long long)s->count);
    snprintf(n->sum, sizeof n->sum, "%08x", sum);
    snprintf(n->version, sizeof n->version, "%lld", (long long)s->stats.version);
    snprintf(n->updates, sizeof n->updates, "%u", s->scalars.updates);
    const struct rf_file_note list[NOTES] = {
        {"format", format},
        {"optimizer", rf_optimizer_get_info(s->optimizer.kind)->name},
        {"rule", rf_store_rule_name(s->rule)},
        {"parameters", n->total},
        {"first", n->first},
        {"count", n->count},
        {"version", n->version},
        {"updates", n->updates},
        {"checksum", n->sum}};
    memcpy(n->list, list, sizeof list);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_file(const struct rf_safetensors_layout *layout, const void *data, uint64_t bytes,
                      const char *path)
{
    struct rf_out_file file;
    RETURN_IF_ERROR(rf_out_open(&file, path));
    int status = rf_out_write(&file, layout->header, layout->header_bytes);
    if (status == RF_OK)
        status = rf_out_write(&file, data, bytes);
    if (status == RF_OK)
        status = rf_out_close(&file, NULL);
    if (status < 0) {
        rf_out_abandon(&file);
        unlink(path);
    }
    return status;
}

static int write_slot(const struct rf_store_shards *s, int slot,
                      const struct rf_safetensors_layout *layout, const void *data, uint64_t bytes)
{
    char beside[4096], path[4096];
    RETURN_IF_ERROR(path_of(s, slot, ".new", beside));
    RETURN_IF_ERROR(path_of(s, slot, ".safetensors", path));
    RETURN_IF_ERROR(write_file(layout, data, bytes, beside));
    if (rename(beside, path) < 0)
        return rf_fail(RF_EIO, "cannot rename %s: %s", beside, strerror(errno));
    return rf_sync_folder(s->folder);
}

/* Under the lock: all that the file will have. */
static int take(struct rf_store_shards *s, int worker, float **out, uint64_t *bytes,
                struct rf_safetensors_layout *layout)
{
    struct rf_file_tensor tensors[1 + RF_STATE_COUNT];
    float *data[1 + RF_STATE_COUNT];
    struct notes notes;
    RETURN_IF_ERROR(rf_store_shard_settle(s, worker));
    const int count = tensors_of(s, tensors, data);
    const size_t each = (size_t)s->count * sizeof(float);
    float *copy = rf_alloc(each * (size_t)count);
    if (!copy)
        return rf_fail(RF_ENOMEM, "server %d: out of memory for a copy of its state", s->server);
    for (int k = 0; k < count; k++)
        memcpy(copy + (size_t)k * (size_t)s->count, data[k], each);
    *bytes = each * (uint64_t)count;
    write_notes(s, rf_checksum(copy, *bytes, 0), &notes);
    const int status = rf_safetensors_lay_out(
        &(struct rf_file_content){
            .tensors = tensors, .tensor_count = count, .notes = notes.list, .note_count = NOTES},
        layout);
    if (status < 0)
        rf_free(copy);
    else
        *out = copy;
    return status;
}

int rf_store_shard_save(struct rf_store_shards *s, int worker)
{
    struct rf_safetensors_layout layout = {0};
    float *copy = NULL;
    uint64_t bytes = 0;
    if (!s->folder)
        return rf_fail(RF_EINVAL, "save: the store was opened without a folder");
    pthread_mutex_lock(&s->saving);
    pthread_mutex_lock(&s->lock);
    int status = take(s, worker, &copy, &bytes, &layout);
    pthread_mutex_unlock(&s->lock);
    const int slot = s->slot < 0 ? 0 : 1 - s->slot;
    if (status == RF_OK)
        status = write_slot(s, slot, &layout, copy, bytes);
    if (status == RF_OK)
        s->slot = slot;
    pthread_mutex_unlock(&s->saving);
    rf_safetensors_layout_free(&layout);
    rf_free(copy);
    return status;
}

int rf_store_shard_prepare(struct rf_store_shards *s)
{
    char path[4096];
    struct stat about;
    if (mkdir(s->folder, 0777) < 0 && errno != EEXIST)
        return rf_fail(RF_EIO, "cannot make the folder %s: %s", s->folder, strerror(errno));
    for (int slot = 0; slot < 2; slot++) {
        RETURN_IF_ERROR(path_of(s, slot, ".safetensors", path));
        if (lstat(path, &about) == 0)
            return rf_fail(RF_EINVAL,
                           "%s is the state of another store, which saves would replace: restore "
                           "it, or use another folder",
                           path);
    }
    return RF_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int check_note(const struct rf_safetensors *file, const char *path,
                      const struct rf_file_note *mine)
{
    const char *theirs = rf_safetensors_note(file, mine->key);
    if (theirs && strcmp(theirs, mine->value) == 0)
        return RF_OK;
    return rf_fail(RF_EINVAL, "%s was saved with %s \"%.60s\", and this store has \"%s\"", path,
                   mine->key, theirs ? theirs : "", mine->value);
}

static int number_note(const struct rf_safetensors *file, const char *path, const char *key,
                       int base, uint64_t most, uint64_t *out)
{
    const char *text = rf_safetensors_note(file, key);
    char *end = NULL;
    errno = 0;
    const bool digits =
        text && strlen(text) > 0 && strspn(text, "0123456789abcdef") == strlen(text);
    *out = digits ? strtoull(text, &end, base) : 0;
    if (!digits || *end || errno || *out > most)
        return rf_fail(RF_ECORRUPT, "%s has \"%.30s\" as its %s", path, text ? text : "", key);
    return RF_OK;
}

/* Version, updates and checksum, after all that the store must share with the file. */
static int read_notes(const struct rf_store_shards *s, const struct rf_safetensors *file,
                      const char *path, uint64_t numbers[3])
{
    struct notes mine;
    write_notes(s, 0, &mine);
    for (int k = 0; k < 6; k++)
        RETURN_IF_ERROR(check_note(file, path, mine.list + k));
    RETURN_IF_ERROR(number_note(file, path, "version", 10, INT64_MAX / 2, numbers));
    RETURN_IF_ERROR(number_note(file, path, "updates", 10, UINT32_MAX, numbers + 1));
    return number_note(file, path, "checksum", 16, UINT32_MAX, numbers + 2);
}

static int read_tensors(struct rf_store_shards *s, struct rf_safetensors *file, const char *path,
                        float *to)
{
    struct rf_file_tensor tensors[1 + RF_STATE_COUNT];
    float *data[1 + RF_STATE_COUNT];
    const int count = tensors_of(s, tensors, data);
    if (rf_safetensors_count(file) != count)
        return rf_fail(RF_ECORRUPT, "%s has %d tensors, and its optimizer needs %d", path,
                       rf_safetensors_count(file), count);
    for (int k = 0; k < count; k++) {
        const int at = rf_safetensors_find(file, tensors[k].name);
        const struct rf_file_tensor *found = at < 0 ? NULL : rf_safetensors_tensor(file, at);
        if (!found || found->dtype != RF_F32 || found->shape.ndim != 1 ||
            found->shape.dim[0] != s->count)
            return rf_fail(RF_ECORRUPT, "%s has no tensor %s of %lld f32 values", path,
                           tensors[k].name, (long long)s->count);
        RETURN_IF_ERROR(rf_safetensors_read(file, at, 0, to + (int64_t)k * s->count,
                                            (uint64_t)s->count * sizeof(float)));
    }
    return count;
}

/* A file whose contents are sound, in memory that the caller frees. */
static int read_slot(struct rf_store_shards *s, int slot, uint64_t numbers[3], float **out)
{
    char path[4096];
    struct rf_safetensors *file = NULL;
    RETURN_IF_ERROR(path_of(s, slot, ".safetensors", path));
    RETURN_IF_ERROR(rf_safetensors_open(path, false, &file));
    float *values = rf_alloc((size_t)(1 + RF_STATE_COUNT) * (size_t)s->count * sizeof(float));
    int status = values ? read_notes(s, file, path, numbers)
                        : rf_fail(RF_ENOMEM, "out of memory for %s", path);
    if (status == RF_OK)
        status = read_tensors(s, file, path, values);
    if (status > 0 && rf_checksum(values, (size_t)status * (size_t)s->count * 4, 0) != numbers[2])
        status = rf_fail(RF_ECORRUPT, "%s is damaged: its checksum is another one", path);
    rf_safetensors_close(file);
    if (status < 0)
        rf_free(values);
    else
        *out = values;
    return status < 0 ? status : RF_OK;
}

void rf_store_shard_find(struct rf_store_shards *s, int64_t versions[2])
{
    for (int slot = 0; slot < 2; slot++) {
        uint64_t numbers[3];
        float *values = NULL;
        versions[slot] = -1;
        if (read_slot(s, slot, numbers, &values) == RF_OK)
            versions[slot] = (int64_t)numbers[0];
        rf_free(values);
    }
}

int rf_store_shard_restore(struct rf_store_shards *s, int64_t version)
{
    for (int slot = 0; slot < 2; slot++) {
        struct rf_file_tensor tensors[1 + RF_STATE_COUNT];
        float *data[1 + RF_STATE_COUNT], *values = NULL;
        uint64_t numbers[3];
        if (read_slot(s, slot, numbers, &values) < 0)
            continue;
        const bool found = (int64_t)numbers[0] == version;
        const int count = tensors_of(s, tensors, data);
        for (int k = 0; found && k < count; k++)
            memcpy(data[k], values + (int64_t)k * s->count, (size_t)s->count * sizeof(float));
        rf_free(values);
        if (!found)
            continue;
        rf_store_shard_continue(s, version, (uint32_t)numbers[1]);
        s->slot = slot;
        return RF_OK;
    }
    const struct rf_error why = *rf_last_error();
    return rf_fail(RF_EIO, "server %d has no sound state of version %lld in %s: %.300s", s->server,
                   (long long)version, s->folder, why.message);
}
