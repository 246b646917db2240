/* SPDX-License-Identifier: MIT
 *
 * Maps the hub's tensors to the parameters of a model, by the rows of hub_table.c; and a source of
 * parameters that reads them. See hub.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_json.h"
#include "hub_names.h"
#include "parts.h"

/* ---- the list -------------------------------------------------------------------------------- */

/* Rows of part k: queries, keys and values; or equal parts. */
static int64_t part_rows(const struct hub_values *v, int64_t rows, int parts, int k)
{
    if (parts < HUB_PARTS)
        return rows / parts;
    return (int64_t)(k == 0 ? v->heads : v->kv_heads) * v->head_size;
}

static int add_param(const struct hub *hub, const struct rf_param_desc *param, const char *prefix,
                     struct hub_tensors *out)
{
    const struct hub_row *row = hub->arch->rows;
    int layer = 0;
    while (row->ours && !hub_matches(row->ours, "", param->name, &layer))
        row++;
    if (!row->ours)
        return rf_fail(RF_EINVAL, "a %s has no parameter %s", hub->arch->name, param->name);
    const int parts = hub_parts(row);
    const int64_t rows = param->shape.dim[0];
    int64_t first = 0;
    for (int k = 0; k < parts; k++) {
        struct hub_tensor *t = &out->list[out->count++];
        *t = (struct hub_tensor){.param = param,
                                 .first_row = first,
                                 .rows = part_rows(&hub->values, rows, parts, k),
                                 .columns = param->shape.ndim > 1 ? param->shape.dim[1] : 1,
                                 .transposed = row->transposed,
                                 .tied = row->tied};
        hub_name(row->theirs[k], prefix, layer, t->name, sizeof(t->name));
        first += t->rows;
    }
    if (first == rows)
        return 0;
    return rf_fail(RF_EINVAL, "parameter %s has %lld rows, those of a %s have %lld", param->name,
                   (long long)rows, hub->arch->name, (long long)first);
}

int hub_list(const struct hub *hub, const struct rf_block *blocks, int count, bool prefix,
             struct hub_tensors *out)
{
    struct hub_tensors list = {NULL, 0};
    int params = 0, rc = 0;
    for (int b = 0; b < count; b++)
        params += blocks[b].param_count;
    list.list = calloc((size_t)params * HUB_PARTS + 1, sizeof(*list.list));
    if (!list.list)
        return rf_fail(RF_ENOMEM, "out of memory");
    for (int b = 0; rc == 0 && b < count; b++)
        for (int k = 0; rc == 0 && k < blocks[b].param_count; k++)
            if (!blocks[b].params[k].tied_to)
                rc = add_param(hub, &blocks[b].params[k], prefix ? hub->arch->prefix : "", &list);
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
    int *index; /* for each tensor, in the weights */
    bool prefix;
    int last;         /* the tensor read last */
    float *turned;    /* a whole transposed tensor, in the parameter's layout; or NULL */
    int turned_index; /* which */
};

/* The tensor's index in the weights. A tied table may have only the head's name: writers omit one
 * of the two names. */
static int find(const struct hub_source *s, const struct hub_tensor *t)
{
    char theirs[96], ours[96];
    int index = rf_weights_find(s->weights, t->name);
    if (index < 0 && t->tied && s->hub->values.tied)
        index = rf_weights_find(s->weights, t->tied);
    if (index < 0)
        return rf_fail(RF_EINVAL, "the tensor %s is missing", t->name);
    const struct rf_weight *w = rf_weights_get(s->weights, index);
    const struct rf_shape wanted = hub_tensor_shape(t);
    if (!rf_shape_equal(w->shape, wanted))
        return rf_fail(RF_EINVAL, "the tensor %s is %s; config.json makes it %s", w->name,
                       rf_tensor_text((struct rf_tensor){.shape = w->shape, .dtype = w->dtype},
                                      theirs, sizeof(theirs)),
                       rf_tensor_text((struct rf_tensor){.shape = wanted, .dtype = w->dtype}, ours,
                                      sizeof(ours)));
    /* Reads nothing: only checks whether the type is supported. */
    const int rc = rf_weights_read(s->weights, index, 0, 0, NULL);
    return rc < 0 ? rc : index;
}

/* Whether two tensors have the same values. */
static int compare(struct rf_weights *weights, int first, int second, bool *same)
{
    enum { PIECE = 4096 };
    float a[PIECE], b[PIECE];
    const struct rf_shape shape = rf_weights_get(weights, first)->shape;
    const uint64_t all = (uint64_t)rf_shape_count(shape);
    *same = rf_shape_equal(shape, rf_weights_get(weights, second)->shape);
    for (uint64_t at = 0, n; *same && at < all; at += n) {
        n = all - at < PIECE ? all - at : PIECE;
        int rc = rf_weights_read(weights, first, at, n, a);
        if (rc == 0)
            rc = rf_weights_read(weights, second, at, n, b);
        if (rc < 0)
            return rc;
        for (uint64_t i = 0; *same && i < n; i++)
            *same = a[i] == b[i] || memcmp(&a[i], &b[i], sizeof(*a)) == 0;
    }
    return 0;
}

/* A tied head that is also in the files must have the same values. */
static int check_tied(const struct hub_source *s, int head)
{
    bool same = s->hub->head_settled;
    if (!same)
        RETURN_IF_FAILED(compare(s->weights, s->index[0], head, &same));
    return same ? 0
                : rf_fail(RF_EINVAL,
                          "the tensor %s differs from %s, and the head of a %s with "
                          "tie_word_embeddings is its table of tokens here",
                          rf_weights_get(s->weights, head)->name, s->tensors.list[0].name,
                          s->hub->arch->name);
}

static int check_superfluous(const struct hub_source *s, const bool *wanted)
{
    const char *prefix = s->prefix ? s->hub->arch->prefix : "";
    for (int i = 0; i < rf_weights_count(s->weights); i++) {
        const char *name = rf_weights_get(s->weights, i)->name;
        const char *const *ignored = s->hub->arch->ignored;
        int layer = 0;
        while (*ignored && !hub_matches(*ignored, prefix, name, &layer))
            ignored++;
        if (!wanted[i] && (!*ignored || layer >= s->hub->values.layers))
            return rf_fail(RF_EINVAL, "the tensor %s belongs to no parameter of this %s", name,
                           s->hub->arch->name);
        const char *tied = s->tensors.list[0].tied;
        if (!wanted[i] && tied && strcmp(name, tied) == 0)
            RETURN_IF_FAILED(check_tied(s, i));
    }
    return 0;
}

static int check(const struct hub_source *s)
{
    bool *wanted = calloc((size_t)rf_weights_count(s->weights) + 1, sizeof(*wanted));
    int rc = wanted ? 0 : rf_fail(RF_ENOMEM, "out of memory");
    for (int i = 0; rc >= 0 && i < s->tensors.count; i++) {
        rc = find(s, &s->tensors.list[i]);
        if (rc >= 0)
            wanted[rc] = true;
        s->index[i] = rc;
    }
    if (rc >= 0)
        rc = check_superfluous(s, wanted);
    free(wanted);
    return rc < 0 ? rc : 0;
}

/* Whether names have the architecture's prefix: no row has a tensor without it. */
static bool has_prefix(const struct hub *hub, const struct rf_weights *weights)
{
    char name[160];
    for (const struct hub_row *row = hub->arch->rows; row->ours; row++) {
        hub_name(row->theirs[0], "", 0, name, sizeof(name));
        if (row->theirs[0][0] == '@' && rf_weights_find(weights, name) >= 0)
            return false;
    }
    return true;
}

int hub_settle_head(struct hub *hub, const char *dir)
{
    const struct rf_weights_opts opts = hub_weights_opts(&hub->packing, true);
    const struct hub_row *table = &hub->arch->rows[0];
    struct rf_weights *weights = NULL;
    char name[160];
    bool same = true;
    int rc = 0;
    if (!hub->values.tied || hub->arch->gpt2 || rf_weights_open(dir, &opts, &weights) < 0)
        return 0; /* faults of the files are reported when they are needed */
    hub_name(table->theirs[0], has_prefix(hub, weights) ? hub->arch->prefix : "", 0, name,
             sizeof(name));
    const int tokens = rf_weights_find(weights, name), head = rf_weights_find(weights, table->tied);
    if (tokens >= 0 && head >= 0)
        rc = compare(weights, tokens, head, &same);
    hub->values.tied = same;
    hub->head_settled = rc == 0;
    rf_weights_close(weights);
    return rc;
}

int hub_source_create(const struct hub *hub, struct rf_weights *weights,
                      const struct rf_block *blocks, int count, struct hub_source **out)
{
    struct hub_source *s = calloc(1, sizeof(*s));
    if (!s)
        return rf_fail(RF_ENOMEM, "out of memory");
    s->hub = hub;
    s->weights = weights;
    s->turned_index = -1;
    s->prefix = has_prefix(hub, weights);
    int rc = hub_list(hub, blocks, count, s->prefix, &s->tensors);
    if (rc == 0) {
        s->index = calloc((size_t)s->tensors.count + 1, sizeof(*s->index));
        rc = s->index ? check(s) : rf_fail(RF_ENOMEM, "out of memory");
    }
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
    free(s->index);
    free(s->turned);
    free(s);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a whole transposed tensor into s->turned, some rows of the file at a time. */
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
    const int index = s->index[k];
    if (!t->transposed)
        return rf_weights_read(s->weights, index, first, count, out);
    RETURN_IF_FAILED(turn(s, k, index));
    memcpy(out, s->turned + first, count * sizeof(*out));
    return 0;
}

static int read_param(void *self, const char *name, uint64_t first, uint64_t count, void *values)
{
    struct hub_source *s = self;
    const int from = s->last; /* parameters are requested in order */
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

int hub_source_quantized(struct hub_source *s, const char *name, int64_t first, int64_t count,
                         enum rf_quantization kind, void *bytes)
{
    for (int k = 0; k < s->tensors.count; k++) {
        const struct hub_tensor *t = &s->tensors.list[k];
        if (strcmp(t->param->name, name) == 0 && t->first_row * t->columns == first &&
            t->rows * t->columns == count && !t->transposed)
            return rf_weights_quantized(s->weights, s->index[k], kind, bytes);
    }
    return 0;
}

struct rf_param_source hub_source_of(struct hub_source *source)
{
    return (struct rf_param_source){.self = source, .read = read_param};
}
