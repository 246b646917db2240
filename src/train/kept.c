/* SPDX-License-Identifier: MIT
 *
 * Arrays beside the trained parameters, in host memory, which checkpoints keep with the states of
 * the optimizer: NAME.kept.LABEL for each parameter NAME. Used by save.c and load.c.
 */
#include <assert.h>

#include "../base/base.h"
#include "spans.h"

#define INFIX ".kept."

int rf_run_keep(struct rf_run *run, const struct rf_run_kept *arrays, int count)
{
    if (!run || count < 0 || (count > 0 && !arrays))
        return rf_fail(RF_EINVAL, "a run keeps 0 or more arrays");
    struct rf_run_kept *kept = rf_alloc((size_t)count * sizeof(*kept) + 1);
    if (!kept)
        return rf_fail(RF_ENOMEM, "out of memory for the list of %d arrays", count);
    memcpy(kept, arrays, (size_t)count * sizeof(*kept));
    rf_free(run->kept);
    run->kept = kept;
    run->kept_count = count;
    return 0;
}

/* ---- the tensors ----------------------------------------------------------------------------- */

/* The trained parameters, in the order of the model's file. */
static int trained(const struct rf_run *run, struct rf_listing *out)
{
    RETURN_IF_ERROR(rf_listing_open(run, RF_PART_MODEL, out));
    int kept = 0;
    for (int i = 0; i < out->count; i++)
        if (rf_plan_trains(run->plan, out->listed[i].param)) {
            out->listed[kept] = out->listed[i];
            out->tensors[kept++] = out->tensors[i];
        }
    out->count = kept;
    for (int i = 0; i < kept; i++)
        out->tensors[i].name = out->listed[i].name;
    return 0;
}

static int add_array(struct rf_listing *list, const struct rf_listing *params, const char *label)
{
    for (int i = 0; i < params->count; i++) {
        struct rf_listed *listed = &list->listed[list->count];
        *listed = params->listed[i];
        const int n = snprintf(listed->name, sizeof(listed->name), "%.191s" INFIX "%s",
                               params->listed[i].name, label);
        if (n >= (int)sizeof(listed->name))
            return rf_fail(RF_ENOTSUP, "checkpoint: the name %.60s... is too long",
                           params->listed[i].name);
        list->tensors[list->count] = params->tensors[i];
        list->tensors[list->count++].name = listed->name;
    }
    return 0;
}

int rf_kept_list(const struct rf_run *run, struct rf_listing *list)
{
    struct rf_listing params = {0};
    int rc = run->kept_count > 0 ? trained(run, &params) : 0;
    if (rc == 0)
        rc = rf_listing_grow(list, run->kept_count * params.count);
    for (int k = 0; rc == 0 && k < run->kept_count; k++)
        rc = add_array(list, &params, run->kept[k].label);
    rf_listing_close(&params);
    return rc;
}

/* ---- where they are ---------------------------------------------------------------------------
 */

/* The values of a span of a parameter lie in an array as those of all parameters lie in the spans
 * that a rank has of the model (worker.c), one after the other. */
static float *place_of(const struct rf_spans *whole, const struct rf_span *span, float *values)
{
    int64_t at = 0;
    for (size_t k = 0; k < whole->count; k++) {
        const struct rf_span *w = &whole->list[k];
        const uint64_t element = rf_dtype_bytes(w->stored.dtype);
        if (w->tensor == span->tensor && span->stored.offset >= w->stored.offset &&
            span->stored.offset < w->stored.offset + w->count * element)
            return values + at + (int64_t)((span->stored.offset - w->stored.offset) / element);
        at += (int64_t)w->count;
    }
    return NULL; /* not reached: what is saved is a part of what is loaded */
}

static int append(struct rf_spans *to, const struct rf_spans *more, const struct rf_spans *whole,
                  const struct rf_run_kept *kept, int first)
{
    struct rf_span *list = rf_realloc(to->list, (to->count + more->count + 1) * sizeof(*list));
    if (!list)
        return rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    to->list = list;
    to->capacity = to->count + more->count + 1;
    for (size_t k = 0; k < more->count; k++) {
        struct rf_span span = more->list[k];
        span.host = place_of(whole, &span, kept->values);
        span.tensor += first;
        assert(span.host);
        list[to->count++] = span;
    }
    return 0;
}

int rf_kept_spans(const struct rf_run *run, const struct rf_listing *list, bool saves,
                  struct rf_spans *out)
{
    struct rf_listing params = {0};
    struct rf_spans whole = {0}, saved = {0};
    if (run->kept_count == 0)
        return 0;
    int rc = trained(run, &params);
    if (rc == 0)
        rc = rf_spans_to_load(run, RF_PART_MODEL, &params, &whole);
    if (rc == 0 && saves)
        rc = rf_spans_to_save(run, RF_PART_MODEL, &params, &saved);
    const int before = list->count - run->kept_count * params.count;
    for (int k = 0; rc == 0 && k < run->kept_count; k++)
        rc = append(out, saves ? &saved : &whole, &whole, &run->kept[k], before + k * params.count);
    rf_spans_free(&whole);
    rf_spans_free(&saved);
    rf_listing_close(&params);
    return rc;
}

int rf_kept_count(const struct rf_listing *model, struct rf_safetensors *file)
{
    int count = 0;
    for (int i = 0; i < rf_safetensors_count(file); i++) {
        const char *name = rf_safetensors_tensor(file, i)->name;
        bool is_kept = false;
        for (int p = 0; p < model->count && !is_kept; p++) {
            const size_t length = strlen(model->listed[p].name);
            is_kept = strncmp(name, model->listed[p].name, length) == 0 &&
                      strncmp(name + length, INFIX, sizeof(INFIX) - 1) == 0;
        }
        count += is_kept;
    }
    return count;
}
