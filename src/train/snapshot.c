/* SPDX-License-Identifier: MIT
 *
 * Copies this rank's part of a run to host memory. This works even after the run's communicator has
 * failed. The snapshot is for a run of the remaining ranks (restore.c). Does not communicate.
 */
#include "snapshot.h"

#include <ringforge/ringforge.h>

#include "../base/base.h"

uint32_t rf_listings_hash(const struct rf_listing listings[RF_PART_COUNT])
{
    uint32_t hash = 0;
    for (int p = 0; p < RF_PART_COUNT; p++)
        for (int i = 0; i < listings[p].count; i++) {
            const struct rf_file_tensor *t = &listings[p].tensors[i];
            const int64_t count = rf_shape_count(t->shape);
            hash = rf_hash32(t->name, strlen(t->name) + 1, hash);
            hash = rf_hash32(&count, sizeof(count), hash);
            hash = rf_hash32(&listings[p].listed[i].parts, sizeof(int), hash);
        }
    return hash;
}

/* An interrupted update leaves parameters of two steps. If a rank has completed the update and
 * needs nothing from others for it, the rank has the parameters of the next step, even if other
 * ranks abandoned that step. */
static int take_state(struct rf_run *run, const struct rf_progress *progress,
                      struct rf_checkpoint_state *out)
{
    const struct rf_policy *policy = &run->plan->policy;
    const struct rf_step_scalars *scalars =
        policy->forward_only ? NULL : rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    if (!run->ahead)
        RETURN_IF_ERROR(rf_run_check_idle(run, "snapshot"));
    *out = (struct rf_checkpoint_state){.step = run->step + run->ahead,
                                        .samples = progress->samples,
                                        .updates = run->updates,
                                        .batch = policy->batch,
                                        .seq = policy->seq,
                                        .seed = run->seed};
    out->samples += run->ahead ? policy->batch : 0;
    if (scalars) {
        out->loss_scale = scalars->loss_scale;
        out->good_steps = scalars->good_steps;
    }
    return 0;
}

/* A row, and the place of its values. */
struct placed {
    struct rf_span_row row;
    uint64_t place;
};

/* Lists the contiguous rows of the spans in the whole tensors. rows NULL: only counts them. place:
 * the begin of the first span's values. */
static size_t list_rows(const struct rf_spans *spans, int part, uint64_t place, struct placed *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const struct rf_span *span = &spans->list[i];
        struct rf_span_run run;
        for (uint64_t from = 0; from < span->count * sizeof(float); from += run.bytes) {
            run = rf_span_run_at(span, from, UINT64_MAX);
            if (rows)
                rows[count] = (struct placed){
                    {part, span->tensor, run.at / sizeof(float), run.bytes / sizeof(float)},
                    place + from / sizeof(float)};
            count++;
        }
        place += span->count;
    }
    return count;
}

static int compare_rows(const void *a, const void *b)
{
    const struct rf_span_row *x = &((const struct placed *)a)->row;
    const struct rf_span_row *y = &((const struct placed *)b)->row;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Lists the rows of all spans in ascending order. */
static int take_rows(struct rf_snapshot *s, const struct rf_spans spans[RF_PART_COUNT])
{
    struct placed *placed = rf_alloc((s->count + 1) * sizeof(*placed)), *next = placed;
    uint64_t place = 0;
    if (!placed)
        return rf_fail(RF_ENOMEM, "snapshot: out of host memory for %zu rows", s->count);
    for (int p = 0; p < RF_PART_COUNT; p++) {
        next += list_rows(&spans[p], p, place, next);
        place += rf_spans_bytes(&spans[p]) / sizeof(float);
    }
    qsort(placed, s->count, sizeof(*placed), compare_rows);
    for (size_t k = 0; k < s->count; k++) {
        s->rows[k] = placed[k].row;
        s->places[k] = placed[k].place;
    }
    rf_free(placed);
    return 0;
}

static int take_spans(struct rf_snapshot *s, const struct rf_spans spans[RF_PART_COUNT])
{
    uint64_t bytes = 0, at = 0;
    for (int p = 0; p < RF_PART_COUNT; p++) {
        s->count += list_rows(&spans[p], p, 0, NULL);
        bytes += rf_spans_bytes(&spans[p]);
    }
    s->rows = rf_alloc((s->count + 1) * sizeof(*s->rows));
    s->places = rf_alloc((s->count + 1) * sizeof(*s->places));
    s->values = rf_alloc(bytes + sizeof(float));
    if (!s->rows || !s->places || !s->values)
        return rf_fail(RF_ENOMEM, "snapshot: out of host memory for %llu bytes",
                       (unsigned long long)bytes);
    RETURN_IF_ERROR(take_rows(s, spans));
    for (int p = 0; p < RF_PART_COUNT; p++) {
        for (size_t i = 0; i < spans[p].count; i++) {
            const struct rf_span *span = &spans[p].list[i];
            RETURN_IF_ERROR(rf_span_read(span, 0, span->count * sizeof(float), s->values + at));
            at += span->count;
        }
    }
    return 0;
}

int rf_run_snapshot(struct rf_run *run, const struct rf_progress *progress,
                    struct rf_snapshot **out)
{
    struct rf_listing listings[RF_PART_COUNT] = {{0}};
    struct rf_spans spans[RF_PART_COUNT] = {{0}};
    if (!run || !progress || !out)
        return rf_fail(RF_EINVAL,
                       "snapshot: a run, its progress and a pointer for the result are needed");
    if (run->compressed)
        return rf_fail(RF_ENOTSUP, "snapshot: what a rank has lost of gradients in another form "
                                   "(compress) is not in a snapshot; use checkpoints");
    if (run->disk)
        return rf_fail(RF_ENOTSUP, "snapshot: optimizer states are on a disk, as host memory is "
                                   "too small for them; use checkpoints");
    struct rf_snapshot *s = rf_alloc(sizeof(*s));
    if (!s)
        return rf_fail(RF_ENOMEM, "snapshot: out of host memory");
    int rc = take_state(run, progress, &s->state);
    for (int p = 0; rc == 0 && p < RF_PART_COUNT; p++) {
        const enum rf_checkpoint_part part = (enum rf_checkpoint_part)p;
        rc = rf_listing_open(run, part, &listings[p]);
        if (rc == 0)
            rc = rf_spans_to_load(run, part, &listings[p], &spans[p]);
    }
    if (rc == 0)
        rc = take_spans(s, spans);
    s->tensors = rf_listings_hash(listings);
    for (int p = 0; p < RF_PART_COUNT; p++) {
        rf_spans_free(&spans[p]);
        rf_listing_close(&listings[p]);
    }
    if (rc < 0)
        rf_snapshot_destroy(s);
    else
        *out = s;
    return rc;
}

void rf_snapshot_destroy(struct rf_snapshot *s)
{
    if (!s)
        return;
    rf_free(s->rows);
    rf_free(s->places);
    rf_free(s->values);
    rf_free(s);
}
