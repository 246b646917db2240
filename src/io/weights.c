/* SPDX-License-Identifier: MIT
 *
 * Reads folders of weights; see weights.h. The index maps tensors to files, and is compared with
 * the files' headers. Called by users; independent of models and ranks.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <ringforge/weights.h>

#include "../base/base.h"
#include "../coll/reduce.h"
#include "packed.h"

#define MAX_INDEX (64u << 20)
#define MAX_FILES 900 /* all stay open; a process commonly has 1024 descriptors */
#define MAX_NAME 512
#define NAME_BYTES 64

struct place { /* a tensor: sorted by file and name while opened, then by name */
    struct rf_weight weight;
    struct rf_packed *packed; /* a weight of several tensors; or NULL */
    const char *file_name;
    int file, index;
};

struct rf_weights {
    char dir[PATH_MAX];
    char index[NAME_BYTES],
        single[NAME_BYTES]; /* model.safetensors.index.json, model.safetensors */
    bool allow_nan;
    cJSON *root; /* of the index; owns names. NULL: a single file */
    struct rf_safetensors *files[MAX_FILES];
    int file_count;
    struct place *places;
    int count;
    struct rf_packed *loaded; /* the packed weight whose parts are in memory; or NULL */
};

/* ---- paths ----------------------------------------------------------------------------------- */

static bool is_printable(const char *text, size_t most)
{
    size_t n = 0;
    for (; text[n]; n++)
        if ((unsigned char)text[n] < 32 || text[n] == 127)
            return false;
    return n > 0 && n <= most;
}

static int join(const struct rf_weights *w, const char *name, char path[4096])
{
    RETURN_IF_ERROR(rf_join_path(path, w->dir, name));
    return rf_check_link(w->dir, path);
}

static bool exists(const char *dir, const char *name)
{
    char path[4096];
    const char *why;
    FILE *file = rf_join_path(path, dir, name) == 0 ? rf_open_input(path, &why) : NULL;
    if (file)
        fclose(file);
    return file || errno != ENOENT;
}

static bool is_file_name(const char *name)
{
    static const char suffix[] = ".safetensors";
    const size_t bytes = strlen(name);
    return is_printable(name, NAME_MAX) && name[0] != '.' && !strchr(name, '/') &&
           bytes > strlen(suffix) && strcmp(name + bytes - strlen(suffix), suffix) == 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

static int read_index(struct rf_weights *w)
{
    char path[4096], *text = NULL;
    size_t bytes = 0;
    RETURN_IF_ERROR(join(w, w->index, path));
    RETURN_IF_ERROR(rf_read_file(path, MAX_INDEX, &text, &bytes));
    const char *end = text;
    if (strlen(text) == bytes)
        w->root = cJSON_ParseWithLengthOpts(text, bytes + 1, &end, 1);
    rf_free(text);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(w->root, "weight_map");
    if (!cJSON_IsObject(map) || !map->child)
        return rf_fail(RF_ECORRUPT, "%s: there is no object \"weight_map\" in it", path);
    w->places = rf_alloc((size_t)cJSON_GetArraySize(map) * sizeof(*w->places));
    if (!w->places)
        return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", path);
    for (const cJSON *item = map->child; item; item = item->next) {
        if (!is_printable(item->string, MAX_NAME))
            return rf_fail(RF_ECORRUPT,
                           "%s: the name of a tensor is empty, longer than %d bytes, or has "
                           "control characters",
                           path, MAX_NAME);
        if (!cJSON_IsString(item) || !is_file_name(item->valuestring))
            return rf_fail(RF_ECORRUPT,
                           "%s: tensor %.100s is in \"%.100s\", which is not the name of a "
                           ".safetensors file in the same folder",
                           path, item->string, cJSON_IsString(item) ? item->valuestring : "?");
        w->places[w->count++] =
            (struct place){.weight.name = item->string, .file_name = item->valuestring};
    }
    return 0;
}

static int by_file(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int order = strcmp(x->file_name, y->file_name);
    return order ? order : strcmp(x->weight.name, y->weight.name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->weight.name, ((const struct place *)b)->weight.name);
}

/* ---- files ----------------------------------------------------------------------------------- */

static int open_file(struct rf_weights *w, const char *name)
{
    char path[4096];
    if (w->file_count == MAX_FILES)
        return rf_fail(RF_ENOTSUP, "%s: there are more than %d files of weights", w->dir,
                       MAX_FILES);
    RETURN_IF_ERROR(join(w, name, path));
    RETURN_IF_ERROR(rf_safetensors_open(path, true, &w->files[w->file_count]));
    w->file_count++;
    return 0;
}

static void take_place(struct rf_weights *w, int at, int index)
{
    struct place *place = &w->places[at];
    const struct rf_file_tensor *tensor = rf_safetensors_tensor(w->files[w->file_count - 1], index);
    place->weight = (struct rf_weight){tensor->name, tensor->dtype, tensor->shape};
    place->file = w->file_count - 1;
    place->index = index;
}

/* Places [from, to) of the index are in one file. Both are sorted by name. */
static int take_listed(struct rf_weights *w, int from, int to)
{
    const char *name = w->places[from].file_name;
    RETURN_IF_ERROR(open_file(w, name));
    const struct rf_safetensors *file = w->files[w->file_count - 1];
    for (int i = from; i < to; i++) {
        const int index = rf_safetensors_find(file, w->places[i].weight.name);
        if (index < 0)
            return rf_fail(RF_ECORRUPT, "%s/%s has no tensor %.100s, which the index lists", w->dir,
                           name, w->places[i].weight.name);
        if (i > from && index != w->places[i - 1].index + 1)
            return rf_fail(RF_ECORRUPT,
                           "%s/%s: tensor %.100s occurs twice, or one before it is in %s "
                           "and not in the index",
                           w->dir, w->index, w->places[i].weight.name, name);
        take_place(w, i, index);
    }
    if (w->places[from].index == 0 && to - from == rf_safetensors_count(file))
        return 0;
    const int absent = w->places[from].index == 0 ? to - from : 0;
    return rf_fail(RF_ECORRUPT, "%s/%s has a tensor %.100s, which is not in the index", w->dir,
                   name, rf_safetensors_tensor(file, absent)->name);
}

/* A single file beside an index may hold other weights, and readers differ in which they use. */
static int check_single(const struct rf_weights *w)
{
    if (!exists(w->dir, w->single))
        return 0;
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->places[i].file_name, w->single) != 0)
            return rf_fail(RF_EINVAL,
                           "%s has both %s and %s, which names other files, and only one of them "
                           "can be meant (transformers reads %s); remove the other",
                           w->dir, w->single, w->index, w->single);
    return 0;
}

static int open_listed(struct rf_weights *w)
{
    RETURN_IF_ERROR(read_index(w));
    RETURN_IF_ERROR(check_single(w));
    qsort(w->places, (size_t)w->count, sizeof(*w->places), by_file);
    for (int from = 0, to; from < w->count; from = to) {
        for (to = from + 1; to < w->count; to++)
            if (strcmp(w->places[to].file_name, w->places[from].file_name) != 0)
                break;
        RETURN_IF_ERROR(take_listed(w, from, to));
    }
    qsort(w->places, (size_t)w->count, sizeof(*w->places), by_name);
    for (int i = 1; i < w->count; i++)
        if (by_name(&w->places[i - 1], &w->places[i]) == 0)
            return rf_fail(RF_ECORRUPT, "%s/%s: tensor %.100s is in two files", w->dir, w->index,
                           w->places[i].weight.name);
    return 0;
}

static int open_single(struct rf_weights *w)
{
    RETURN_IF_ERROR(open_file(w, w->single));
    w->count = rf_safetensors_count(w->files[0]);
    w->places = rf_alloc((size_t)w->count * sizeof(*w->places));
    if (!w->places)
        return rf_fail(RF_ENOMEM, "cannot read %s/%s: out of memory", w->dir, w->single);
    for (int i = 0; i < w->count; i++) {
        take_place(w, i, i);
        if (!is_printable(w->places[i].weight.name, MAX_NAME))
            return rf_fail(RF_ECORRUPT,
                           "%s/%s: the name of a tensor is empty, longer than %d bytes, or "
                           "has control characters",
                           w->dir, w->single, MAX_NAME);
    }
    return 0;
}

/* ---- packed weights -------------------------------------------------------------------------- */

static bool find_tensor(void *self, const char *name, struct rf_packed_tensor *out)
{
    const struct rf_weights *w = self;
    const int index = rf_weights_find(w, name);
    if (index < 0)
        return false;
    const struct place *place = &w->places[index];
    *out = (struct rf_packed_tensor){w->files[place->file], place->index};
    return true;
}

/* `place` becomes the whole weight; `parts` has the places of its tensors. */
static void take_packed(struct rf_weights *w, struct place *place, struct rf_packed *packed,
                        bool *parts)
{
    for (int i = 0; i < w->count; i++)
        for (int k = 0; k < RF_PACKED_PARTS; k++)
            parts[i] = parts[i] || (packed->parts[k].file == w->files[w->places[i].file] &&
                                    packed->parts[k].index == w->places[i].index);
    *place = (struct place){
        .weight = {packed->name, packed->dtype, rf_shape2(packed->rows, packed->columns)},
        .packed = packed};
}

/* Replaces the tensors of each packed weight by the weight. */
static int join_packed(struct rf_weights *w, const struct rf_weights_opts *opts)
{
    const struct rf_packed_finder finder = {w, find_tensor};
    struct place *places = rf_alloc((size_t)w->count * sizeof(*places));
    bool *parts = rf_alloc((size_t)w->count * sizeof(*parts));
    int rc = places && parts ? 0 : rf_fail(RF_ENOMEM, "cannot read %s: out of memory", w->dir);
    int count = 0;
    for (int i = 0; rc == 0 && i < w->count; i++) {
        struct rf_packed *packed = NULL;
        rc = rf_packed_open(opts, w->places[i].weight.name, &finder, &packed);
        if (packed)
            take_packed(w, &places[count++], packed, parts);
    }
    for (int i = 0; rc == 0 && i < w->count; i++)
        if (!parts[i])
            places[count++] = w->places[i];
    rf_free(parts);
    if (places) {
        rf_free(w->places);
        w->places = places;
        w->count = count;
    }
    RETURN_IF_ERROR(rc);
    qsort(w->places, (size_t)w->count, sizeof(*w->places), by_name);
    for (int i = 1; i < w->count; i++)
        if (by_name(&w->places[i - 1], &w->places[i]) == 0)
            return rf_fail(RF_ECORRUPT, "%s: the weight %s is there twice, or twice packed", w->dir,
                           w->places[i].weight.name);
    return 0;
}

int rf_weights_open(const char *dir, const struct rf_weights_opts *opts, struct rf_weights **out)
{
    if (!dir || !out)
        return rf_fail(RF_EINVAL, "weights: a folder and a pointer for the result are needed");
    struct rf_weights *w = rf_alloc(sizeof(*w));
    if (!w)
        return rf_fail(RF_ENOMEM, "cannot read %s: out of memory", dir);
    int rc = 0;
    const char *name = opts && opts->name ? opts->name : "model";
    w->allow_nan = opts && opts->allow_nan;
    snprintf(w->index, sizeof(w->index), "%.32s.safetensors.index.json", name);
    snprintf(w->single, sizeof(w->single), "%.32s.safetensors", name);
    if (snprintf(w->dir, sizeof(w->dir), "%s", dir) >= (int)sizeof(w->dir))
        rc = rf_fail(RF_EINVAL, "the path %.60s... is too long", dir);
    else if (exists(dir, w->index))
        rc = open_listed(w);
    else if (exists(dir, w->single))
        rc = open_single(w);
    else
        rc = rf_fail(RF_EIO, "%s has neither %s nor %s", dir, w->single, w->index);
    if (rc == 0 && opts && opts->packing)
        rc = join_packed(w, opts);
    if (rc < 0)
        rf_weights_close(w);
    else
        *out = w;
    return rc;
}

void rf_weights_close(struct rf_weights *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->file_count; i++)
        rf_safetensors_close(w->files[i]);
    for (int i = 0; i < w->count; i++)
        rf_packed_close(w->places[i].packed);
    cJSON_Delete(w->root);
    rf_free(w->places);
    rf_free(w);
}

int rf_weights_count(const struct rf_weights *w)
{
    return w->count;
}

const struct rf_weight *rf_weights_get(const struct rf_weights *w, int index)
{
    return &w->places[index].weight;
}

int rf_weights_find(const struct rf_weights *w, const char *name)
{
    const struct place key = {.weight.name = name};
    const struct place *found = bsearch(&key, w->places, (size_t)w->count, sizeof(key), by_name);
    return found ? (int)(found - w->places) : -1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int check_finite(const struct rf_weights *w, const struct rf_weight *weight, uint64_t first,
                        uint64_t count, const float *values)
{
    for (uint64_t i = 0; !w->allow_nan && i < count; i++)
        if (!isfinite(values[i]))
            return rf_fail(RF_ECORRUPT,
                           "%s: element %llu of tensor %s is %g: these weights are damaged, or "
                           "training has diverged; allow it explicitly if it is intended",
                           w->dir, (unsigned long long)(first + i), weight->name,
                           (double)values[i]);
    return 0;
}

/* Parts of one weight at a time are in memory. */
static struct rf_packed *load_packed(struct rf_weights *w, const struct place *place)
{
    if (w->loaded && w->loaded != place->packed)
        rf_packed_forget(w->loaded);
    w->loaded = place->packed;
    return w->loaded;
}

int rf_weights_quantized(struct rf_weights *w, int index, enum rf_quantization kind, void *bytes)
{
    const struct place *place = &w->places[index];
    return place->packed ? rf_packed_quantized(load_packed(w, place), kind, bytes) : 0;
}

int rf_weights_read(struct rf_weights *w, int index, uint64_t first, uint64_t count, float *values)
{
    const struct place *place = &w->places[index];
    const struct rf_weight *weight = &place->weight;
    const uint64_t all = (uint64_t)rf_shape_count(weight->shape);
    const uint64_t size = rf_dtype_bytes(weight->dtype);
    if (weight->dtype != RF_F32 && weight->dtype != RF_F16 && weight->dtype != RF_BF16)
        return rf_fail(RF_ENOTSUP, "%s: tensor %s is of type %s; weights are F32, F16 or BF16",
                       w->dir, weight->name,
                       rf_safetensors_type(w->files[place->file], place->index));
    if (first > all || count > all - first)
        return rf_fail(RF_EINVAL, "%s: elements %llu to %llu are outside of tensor %s", w->dir,
                       (unsigned long long)first, (unsigned long long)(first + count),
                       weight->name);
    if (count == 0)
        return 0; /* values may be NULL */
    if (place->packed) {
        RETURN_IF_ERROR(rf_packed_read(load_packed(w, place), first, count, values));
        return check_finite(w, weight, first, count, values);
    }
    /* Reads 16-bit data into the second half and widens it from there: no element is overwritten
     * before it is read. */
    char *bytes = (char *)values + (sizeof(float) - size) * count;
    RETURN_IF_ERROR(rf_safetensors_read(w->files[place->file], place->index, first * size, bytes,
                                        count * size));
    if (size < sizeof(float)) {
        enum { PIECE = 1024 };
        uint16_t piece[PIECE];
        for (uint64_t at = 0; at < count; at += PIECE) {
            const uint64_t n = count - at < PIECE ? count - at : PIECE;
            memcpy(piece, bytes + at * size, n * size);
            rf_widen(values + at, piece, n, weight->dtype);
        }
    }
    return check_finite(w, weight, first, count, values);
}

int rf_weights_read_text(const char *dir, const char *name, size_t limit, char **text)
{
    char path[4096], *read = NULL;
    size_t bytes = 0;
    if (!dir || !name || strchr(name, '/'))
        return rf_fail(RF_EINVAL, "weights: a folder and the name of a file in it are needed");
    RETURN_IF_ERROR(rf_join_path(path, dir, name));
    RETURN_IF_ERROR(rf_check_link(dir, path));
    RETURN_IF_ERROR(rf_read_file(path, limit, &read, &bytes));
    if (strlen(read) != bytes) {
        rf_free(read);
        return rf_fail(RF_ECORRUPT, "%s contains zero bytes: it is not text", path);
    }
    *text = read;
    return 0;
}
