/* SPDX-License-Identifier: MIT
 *
 * Which of the hub's tensors the parameters of a model consist of, by the rows of hub_table.c; and
 * a source of parameters that reads them. See hub.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_json.h"
#include "hub_table.h"
#include "parts.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether a name is that of a pattern; *layer: the number at #. */
static bool matches(const char *pattern, const char *prefix, const char *name, int *layer)
{
    if (pattern[0] == '@') {
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            return false;
        name += strlen(prefix);
        pattern++;
    }
    const char *hash = strchr(pattern, '#');
    int used = 0;
    if (!hash)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(hash - pattern);
    return strncmp(pattern, name, before) == 0 && name[before] >= '0' && name[before] <= '9' &&
           sscanf(name + before, "%9d%n", layer, &used) == 1 &&
           strcmp(hash + 1, name + before + used) == 0;
}

static void make_name(const char *pattern, const char *prefix, int layer, char *out, size_t bytes)
{
    const char *hash = strchr(pattern, '#');
    const char *at = pattern + (pattern[0] == '@');
    const char *front = pattern[0] == '@' ? prefix : "";
    if (hash)
        snprintf(out, bytes, "%s%.*s%d%s", front, (int)(hash - at), at, layer, hash + 1);
    else
        snprintf(out, bytes, "%s%s", front, at);
}

/* ---- the list -------------------------------------------------------------------------------- */

static int parts_of(const struct hub_row *row)
{
    int parts = 0;
    while (parts < HUB_PARTS && row->theirs[parts])
        parts++;
    return parts;
}

/* Rows of part k: queries, keys and values; or equal parts. */
static int64_t part_rows(const struct hub_values *v, int64_t rows, int parts, int k)
{
    if (parts < HUB_PARTS)
        return rows / parts;
    return (int64_t)(k == 0 ? v->heads : v->kv_heads) * v->head_size;
}

static int add_param(const struct hub *hub, const struct rf_param_desc *param, const char *prefix,
                     struct hub_tensors *out, char fault[HUB_FAULT_BYTES])
{
    const struct hub_row *row = hub->arch->rows;
    int layer = 0;
    while (row->ours && !matches(row->ours, "", param->name, &layer))
        row++;
    if (!row->ours)
        return config_fail(RF_EINVAL, fault, "a %s has no parameter %s", hub->arch->name,
                           param->name);
    const int parts = parts_of(row);
    const int64_t rows = param->shape.dim[0];
    int64_t first = 0;
    for (int k = 0; k < parts; k++) {
        struct hub_tensor *t = &out->list[out->count++];
        *t = (struct hub_tensor){.param = param,
                                 .first_row = first,
                                 .rows = part_rows(&hub->values, rows, parts, k),
                                 .columns = param->shape.ndim > 1 ? param->shape.dim[1] : 1,
                                 .transposed = row->transposed};
        make_name(row->theirs[k], prefix, layer, t->name, sizeof(t->name));
        first += t->rows;
    }
    if (first == rows)
        return 0;
    return config_fail(RF_EINVAL, fault, "parameter %s has %lld rows, those of a %s have %lld",
                       param->name, (long long)rows, hub->arch->name, (long long)first);
}

int hub_list(const struct hub *hub, const struct rf_block *blocks, int count, bool prefix,
             struct hub_tensors *out, char fault[HUB_FAULT_BYTES])
{
    struct hub_tensors list = {NULL, 0};
    int params = 0, rc = 0;
    for (int b = 0; b < count; b++)
        params += blocks[b].param_count;
    list.list = calloc((size_t)params * HUB_PARTS + 1, sizeof(*list.list));
    if (!list.list)
        return config_fail(RF_ENOMEM, fault, "out of memory");
    for (int b = 0; rc == 0 && b < count; b++)
        for (int k = 0; rc == 0 && k < blocks[b].param_count; k++)
            if (!blocks[b].params[k].tied_to)
                rc = add_param(hub, &blocks[b].params[k], prefix ? hub->arch->prefix : "", &list,
                               fault);
    if (rc < 0)
        hub_tensors_free(&list);
    else
        *out = list;
    return rc;
}

void hub_tensors_free(struct hub_tensors *tensors)
{
    free(tensors->list);
    *tensors = (struct hub_tensors){NULL, 0};
}

struct rf_shape hub_tensor_shape(const struct hub_tensor *t)
{
    if (t->param->shape.ndim == 1)
        return rf_shape1(t->rows);
    return t->transposed ? rf_shape2(t->columns, t->rows) : rf_shape2(t->rows, t->columns);
}

void hub_take(const struct hub_tensor *t, const float *param, int64_t first, int64_t count,
              float *out)
{
    const float *from = param + t->first_row * t->columns;
    if (!t->transposed) {
        memcpy(out, from + first, (size_t)count * sizeof(*out));
        return;
    }
    int64_t c = first / t->rows, r = first % t->rows;
    for (int64_t i = 0; i < count; i++) {
        out[i] = from[r * t->columns + c];
        if (++r == t->rows) {
            r = 0;
            c++;
        }
    }
}

/* ---- the check ------------------------------------------------------------------------------- */

struct hub_source {
    const struct hub *hub;
    struct rf_weights *weights;
    struct hub_tensors tensors;
    bool prefix;
    int last;         /* tensor that was read last */
    float *turned;    /* a whole transposed tensor, as the parameter has it; or NULL */
    int turned_index; /* which */
};

/* The tensor's index in the weights. */
static int find(const struct hub_source *s, const struct hub_tensor *t, char fault[HUB_FAULT_BYTES])
{
    char theirs[96], ours[96];
    const int index = rf_weights_find(s->weights, t->name);
    if (index < 0)
        return config_fail(RF_EINVAL, fault, "the tensor %s is missing", t->name);
    const struct rf_weight *w = rf_weights_get(s->weights, index);
    const struct rf_shape wanted = hub_tensor_shape(t);
    if (!rf_shape_equal(w->shape, wanted))
        return config_fail(RF_EINVAL, fault, "the tensor %s is %s; config.json makes it %s",
                           t->name,
                           rf_tensor_text((struct rf_tensor){.shape = w->shape, .dtype = w->dtype},
                                          theirs, sizeof(theirs)),
                           rf_tensor_text((struct rf_tensor){.shape = wanted, .dtype = w->dtype},
                                          ours, sizeof(ours)));
    if (w->dtype != RF_F32 && w->dtype != RF_F16 && w->dtype != RF_BF16)
        return config_fail(RF_ENOTSUP, fault,
                           "the tensor %s is of type %s; weights are f32, f16 or "
                           "bf16",
                           t->name, rf_dtype_name(w->dtype));
    return index;
}

/* A head that is tied, and nevertheless in the files, must not say anything else. */
static int check_tied(const struct hub_source *s, int head, char fault[HUB_FAULT_BYTES])
{
    enum { PIECE = 4096 };
    float a[PIECE], b[PIECE];
    const int table = rf_weights_find(s->weights, s->tensors.list[0].name);
    const struct rf_shape shape = rf_weights_get(s->weights, table)->shape;
    const uint64_t all = (uint64_t)rf_shape_count(shape);
    bool same = rf_shape_equal(shape, rf_weights_get(s->weights, head)->shape);
    for (uint64_t at = 0, n; same && at < all; at += n) {
        n = all - at < PIECE ? all - at : PIECE;
        int rc = rf_weights_read(s->weights, table, at, n, a);
        if (rc == 0)
            rc = rf_weights_read(s->weights, head, at, n, b);
        if (rc < 0)
            return config_fail(rc, fault, "%s", rf_last_error()->message);
        same = memcmp(a, b, n * sizeof(*a)) == 0;
    }
    return same ? 0
                : config_fail(RF_EINVAL, fault,
                              "the tensor %s differs from %s, and config.json says that they are "
                              "tied (tie_word_embeddings)",
                              rf_weights_get(s->weights, head)->name, s->tensors.list[0].name);
}

static int check_superfluous(const struct hub_source *s, const bool *wanted,
                             char fault[HUB_FAULT_BYTES])
{
    const char *prefix = s->prefix ? s->hub->arch->prefix : "";
    for (int i = 0; i < rf_weights_count(s->weights); i++) {
        const char *name = rf_weights_get(s->weights, i)->name;
        const char *const *ignored = s->hub->arch->ignored;
        int layer = 0;
        while (*ignored && !matches(*ignored, prefix, name, &layer))
            ignored++;
        if (!wanted[i] && (!*ignored || layer >= s->hub->values.layers))
            return config_fail(RF_EINVAL, fault, "the tensor %s belongs to no parameter of this %s",
                               name, s->hub->arch->name);
        if (!wanted[i] && strcmp(name, "lm_head.weight") == 0)
            RETURN_IF_FAILED(check_tied(s, i, fault));
    }
    return 0;
}

static int check(const struct hub_source *s, char fault[HUB_FAULT_BYTES])
{
    bool *wanted = calloc((size_t)rf_weights_count(s->weights) + 1, sizeof(*wanted));
    int rc = wanted ? 0 : config_fail(RF_ENOMEM, fault, "out of memory");
    for (int i = 0; rc >= 0 && i < s->tensors.count; i++) {
        rc = find(s, &s->tensors.list[i], fault);
        if (rc >= 0)
            wanted[rc] = true;
    }
    if (rc >= 0)
        rc = check_superfluous(s, wanted, fault);
    free(wanted);
    return rc < 0 ? rc : 0;
}

/* Whether names have the architecture's prefix: those of the first parameter do. */
static bool has_prefix(const struct hub *hub, const struct rf_weights *weights)
{
    char name[160];
    make_name(hub->arch->rows[0].theirs[0], "", 0, name, sizeof(name));
    return rf_weights_find(weights, name) < 0;
}

int hub_source_create(const struct hub *hub, struct rf_weights *weights,
                      const struct rf_block *blocks, int count, struct hub_source **out,
                      char fault[HUB_FAULT_BYTES])
{
    struct hub_source *s = calloc(1, sizeof(*s));
    if (!s)
        return config_fail(RF_ENOMEM, fault, "out of memory");
    s->hub = hub;
    s->weights = weights;
    s->turned_index = -1;
    s->prefix = has_prefix(hub, weights);
    int rc = hub_list(hub, blocks, count, s->prefix, &s->tensors, fault);
    if (rc == 0)
        rc = check(s, fault);
    if (rc < 0)
        hub_source_destroy(s);
    else
        *out = s;
    return rc;
}

void hub_source_destroy(struct hub_source *s)
{
    if (!s)
        return;
    hub_tensors_free(&s->tensors);
    free(s->turned);
    free(s);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a whole tensor of columns by rows into s->turned, some rows of the file at a time. */
static int turn(struct hub_source *s, int k, int index)
{
    const struct hub_tensor *t = &s->tensors.list[k];
    if (s->turned_index == k)
        return 0;
    const int64_t at_once = t->rows < 1 << 18 ? (1 << 18) / t->rows : 1; /* 1 MiB */
    float *rows = malloc((size_t)(at_once * t->rows) * sizeof(*rows));
    free(s->turned);
    s->turned_index = -1;
    s->turned = malloc((size_t)(t->rows * t->columns) * sizeof(*s->turned));
    int rc = rows && s->turned ? 0 : RF_ENOMEM;
    for (int64_t c = 0, n; rc == 0 && c < t->columns; c += n) {
        n = t->columns - c < at_once ? t->columns - c : at_once;
        rc = rf_weights_read(s->weights, index, (uint64_t)(c * t->rows), (uint64_t)(n * t->rows),
                             rows);
        for (int64_t r = 0; rc == 0 && r < t->rows; r++)
            for (int64_t i = 0; i < n; i++)
                s->turned[r * t->columns + c + i] = rows[i * t->rows + r];
    }
    free(rows);
    s->turned_index = rc == 0 ? k : -1;
    return rc;
}

/* Elements [first, first + count) of tensor k, in the order of the parameter. */
static int read_tensor(struct hub_source *s, int k, uint64_t first, uint64_t count, float *out)
{
    const struct hub_tensor *t = &s->tensors.list[k];
    const int index = rf_weights_find(s->weights, t->name);
    if (!t->transposed)
        return rf_weights_read(s->weights, index, first, count, out);
    RETURN_IF_FAILED(turn(s, k, index));
    memcpy(out, s->turned + first, count * sizeof(*out));
    return 0;
}

static int read_param(void *self, const char *name, uint64_t first, uint64_t count, void *values)
{
    struct hub_source *s = self;
    const int from = s->last; /* parameters are asked for in their order */
    for (int i = 0; i < s->tensors.count; i++) {
        const int k = (from + i) % s->tensors.count;
        const struct hub_tensor *t = &s->tensors.list[k];
        if (strcmp(t->param->name, name) != 0)
            continue;
        const uint64_t begin = (uint64_t)(t->first_row * t->columns);
        const uint64_t end = begin + (uint64_t)(t->rows * t->columns);
        const uint64_t low = first > begin ? first : begin;
        const uint64_t high = first + count < end ? first + count : end;
        s->last = k;
        if (low < high)
            RETURN_IF_FAILED(
                read_tensor(s, k, low - begin, high - low, (float *)values + (low - first)));
    }
    return 0;
}

struct rf_param_source hub_source_of(struct hub_source *source)
{
    return (struct rf_param_source){.self = source, .read = read_param};
}
