/* SPDX-License-Identifier: MIT
 *
 * Restores the snapshots of several ranks of a run (snapshot.c) into another run, on any mesh. All
 * ranks know the data of each, and go through all tensors in the same order. An element that every
 * rank has comes from its own memory. The lowest rank that has any other element sends it to all.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "snapshot.h"

struct header {  /* of one rank */
    int64_t has; /* number of rows; -1: no snapshot */
    struct rf_checkpoint_state state;
};

struct restore {
    struct rf_run *run;
    const struct rf_snapshot *mine; /* NULL: none */
    int ranks, rank;
    struct rf_listing listings[RF_PART_COUNT];
    struct rf_spans spans[RF_PART_COUNT];
    struct header *headers;   /* of each rank */
    struct rf_span_row *rows; /* `most` of each rank */
    int64_t most;
    int64_t *next; /* of each rank: its current row */
    size_t needed; /* of this rank's current span */
    int needed_part;
    float *buffer; /* one piece */
    /* Segments whose elements go through the buffer together, and the number of these elements by
     * owner, from -1 on. */
    struct waiting *waiting;
    size_t waiting_count;
    uint64_t *elements, all_elements;
    const struct rf_checkpoint_state *state; /* of the step to restore */
    int status;                              /* of this rank's own memory */
    struct rf_error error;
};

/* Elements [first, first + count) of a tensor, and the rank that sends them; -1: every rank has
 * them. */
struct segment {
    int part, tensor, owner;
    uint64_t first, count;
};

struct waiting {
    struct segment segment;
    const float *values; /* in this rank's snapshot; NULL: in another rank's */
    uint64_t place;      /* position in the buffer */
};
enum { MOST_WAITING = 8192 };

/* ---- the data of each rank ----------------------------------------------------------------------
 */

static int compare_spans(const void *a, const void *b)
{
    const struct rf_span *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Divides spans so that the elements of each one are contiguous in the whole tensor. The result is
 * ascending: the parts of a rank that has several follow each other before. */
static int cut_runs(struct rf_spans *spans)
{
    struct rf_spans runs = {0};
    struct rf_span_run run;
    for (size_t i = 0; i < spans->count; i++)
        for (uint64_t at = 0; at < spans->list[i].count * sizeof(float); at += run.bytes) {
            run = rf_span_run_at(&spans->list[i], at, UINT64_MAX);
            runs.capacity++;
        }
    runs.list = rf_alloc((runs.capacity + 1) * sizeof(*runs.list));
    if (!runs.list)
        return rf_fail(RF_ENOMEM, "restore: out of host memory");
    for (size_t i = 0; i < spans->count; i++)
        for (uint64_t at = 0; at < spans->list[i].count * sizeof(float); at += run.bytes) {
            struct rf_span span = spans->list[i];
            run = rf_span_run_at(&span, at, UINT64_MAX);
            span.first = run.at / sizeof(float);
            span.count = run.bytes / sizeof(float);
            span.cut = (struct rf_param_cut){.shape = span.cut.shape, .ranks = 1};
            span.stored.offset += at / sizeof(float) * rf_dtype_bytes(span.stored.dtype);
            span.stored.shape = rf_shape1((int64_t)span.count);
            runs.list[runs.count++] = span;
        }
    rf_spans_free(spans);
    qsort(runs.list, runs.count, sizeof(*runs.list), compare_spans);
    *spans = runs;
    return 0;
}

static int prepare(struct restore *r)
{
    const size_t ranks = (size_t)r->ranks;
    for (int p = 0; p < RF_PART_COUNT; p++) {
        const enum rf_checkpoint_part part = (enum rf_checkpoint_part)p;
        RETURN_IF_ERROR(rf_listing_open(r->run, part, &r->listings[p]));
        RETURN_IF_ERROR(rf_spans_to_load(r->run, part, &r->listings[p], &r->spans[p]));
        RETURN_IF_ERROR(cut_runs(&r->spans[p]));
    }
    if (r->mine && r->mine->tensors != rf_listings_hash(r->listings))
        return rf_fail(RF_EINVAL, "restore: the snapshot is of another model or optimizer; build "
                                  "the plan of the same blocks and policy");
    r->headers = rf_alloc(ranks * sizeof(*r->headers));
    r->next = rf_alloc(ranks * sizeof(*r->next));
    r->buffer = rf_alloc(r->run->files.piece_bytes);
    r->waiting = rf_alloc(MOST_WAITING * sizeof(*r->waiting));
    r->elements = rf_alloc((ranks + 1) * sizeof(*r->elements));
    if (!r->headers || !r->next || !r->buffer || !r->waiting || !r->elements)
        return rf_fail(RF_ENOMEM, "restore: out of host memory");
    return 0;
}

static int make_rows(struct restore *r, struct rf_span_row **mine)
{
    r->most = 1;
    for (int k = 0; k < r->ranks; k++)
        r->most = r->headers[k].has > r->most ? r->headers[k].has : r->most;
    r->rows = rf_alloc((size_t)r->ranks * (size_t)r->most * sizeof(*r->rows));
    *mine = rf_alloc((size_t)r->most * sizeof(**mine));
    if (!r->rows || !*mine)
        return rf_fail(RF_ENOMEM, "restore: out of host memory");
    if (r->mine)
        memcpy(*mine, r->mine->rows, r->mine->count * sizeof(**mine));
    return 0;
}

static int share_rows(struct restore *r)
{
    struct header mine = {.has = -1};
    struct rf_span_row *rows = NULL;
    if (r->mine)
        mine = (struct header){(int64_t)r->mine->count, r->mine->state};
    RETURN_IF_ERROR(rf_run_all_gather(r->run, &mine, r->headers, sizeof(mine), "restore"));
    int rc = rf_run_agree_status(r->run, make_rows(r, &rows), "restore");
    if (rc == 0)
        rc = rf_run_all_gather(r->run, rows, r->rows, (size_t)r->most * sizeof(*rows),
                               "restore rows");
    rf_free(rows);
    return rc;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static const struct rf_span_row *row_at(const struct restore *r, int rank)
{
    return r->next[rank] < r->headers[rank].has ? &r->rows[rank * r->most + r->next[rank]] : NULL;
}

static bool is_before(const struct rf_span_row *row, const struct segment *s)
{
    if (row->part != s->part)
        return row->part < s->part;
    if (row->tensor != s->tensor)
        return row->tensor < s->tensor;
    return row->first + row->count <= s->first;
}

/* The row of a rank that has the segment's first element at the step to restore, or NULL. */
static const struct rf_span_row *row_of(struct restore *r, int rank, const struct segment *s)
{
    const struct rf_span_row *row;
    if (r->headers[rank].has < 0 || r->headers[rank].state.step != r->state->step)
        return NULL;
    while ((row = row_at(r, rank)) != NULL && is_before(row, s))
        r->next[rank]++;
    return row && row->part == s->part && row->tensor == s->tensor && row->first <= s->first ? row
                                                                                             : NULL;
}

/* Sets the segment from s->first on to as many elements as one rank has, at most s->count. Returns
 * false if no rank has the first one. */
static bool find(struct restore *r, struct segment *s)
{
    uint64_t count = s->count;
    bool all = true;
    s->owner = -1;
    for (int k = 0; k < r->ranks; k++) {
        const struct rf_span_row *row = row_of(r, k, s);
        const uint64_t has = row ? row->first + row->count - s->first : 0;
        if (row && s->owner < 0) {
            s->owner = k;
            count = has < count ? has : count;
        }
        all &= has >= count;
    }
    s->count = count;
    const bool found = s->owner >= 0;
    if (all && found)
        s->owner = -1;
    return found;
}

static int walk(struct restore *r, struct segment *missing,
                int (*visit)(struct restore *, const struct segment *))
{
    memset(r->next, 0, (size_t)r->ranks * sizeof(*r->next));
    for (int p = 0; p < RF_PART_COUNT; p++) {
        for (int t = 0; t < r->listings[p].count; t++) {
            const struct rf_file_tensor *tensor = &r->listings[p].tensors[t];
            const uint64_t bytes =
                (uint64_t)rf_shape_count(tensor->shape) * rf_dtype_bytes(tensor->dtype);
            const uint64_t count = bytes / sizeof(float);
            for (uint64_t at = 0; at < count;) {
                struct segment s = {.part = p, .tensor = t, .first = at, .count = count - at};
                if (!find(r, &s)) {
                    *missing = s;
                    return 0;
                }
                if (visit)
                    RETURN_IF_ERROR(visit(r, &s));
                at += s.count;
            }
        }
    }
    missing->part = -1;
    return 0;
}

/* Chooses the newest step for which every element is on some rank. */
static int choose(struct restore *r)
{
    struct segment missing = {.part = -1}, first = {.part = -1};
    int64_t below = INT64_MAX;
    for (int64_t newest = -1;; below = newest) {
        const struct header *best = NULL;
        for (int k = 0; k < r->ranks; k++)
            if (r->headers[k].has >= 0 && r->headers[k].state.step < below &&
                (!best || r->headers[k].state.step > best->state.step))
                best = &r->headers[k];
        if (!best)
            break;
        r->state = &best->state;
        newest = best->state.step;
        RETURN_IF_ERROR(walk(r, &missing, NULL));
        if (missing.part < 0)
            return 0;
        first = first.part < 0 ? missing : first;
    }
    if (first.part < 0)
        return rf_fail(RF_ECORRUPT, "restore: no rank has a snapshot; load a checkpoint");
    return rf_fail(RF_ECORRUPT,
                   "restore: no remaining rank has element %llu of %s, of which there was no copy; "
                   "load a checkpoint",
                   (unsigned long long)first.first,
                   r->listings[first.part].listed[first.tensor].name);
}

/* ---- writing the run ------------------------------------------------------------------------- */

/* Writes this rank's elements of a segment to its run. */
static int put(struct restore *r, const struct segment *s, const float *values)
{
    const struct rf_spans *spans = &r->spans[s->part];
    if (r->needed_part != s->part)
        r->needed = 0;
    r->needed_part = s->part;
    while (r->needed < spans->count &&
           (spans->list[r->needed].tensor < s->tensor ||
            (spans->list[r->needed].tensor == s->tensor &&
             spans->list[r->needed].first + spans->list[r->needed].count <= s->first)))
        r->needed++;
    for (size_t k = r->needed; k < spans->count && spans->list[k].tensor == s->tensor; k++) {
        const struct rf_span *span = &spans->list[k];
        struct rf_plan_span part = {span->first, span->count};
        if (!rf_plan_clip(&part, s->first, s->count))
            break;
        float *copy = rf_alloc(part.count * sizeof(*copy)); /* rf_span_write overwrites it */
        if (!copy)
            return rf_fail(RF_ENOMEM, "restore: out of host memory");
        memcpy(copy, values + (part.first - s->first), part.count * sizeof(*copy));
        const int rc = rf_span_write(span, (part.first - span->first) * sizeof(float),
                                     part.count * sizeof(float), copy);
        rf_free(copy);
        RETURN_IF_ERROR(rc);
    }
    return 0;
}

/* Sends the waiting segments: one message per owner. Fails only if the communicator fails, because
 * all ranks go through all segments. */
static int flush(struct restore *r)
{
    uint64_t at = 0;
    for (int owner = -1; owner < r->ranks; owner++) {
        const uint64_t count = r->elements[owner + 1];
        for (size_t i = 0; count > 0 && i < r->waiting_count; i++) {
            struct waiting *w = &r->waiting[i];
            if (w->segment.owner != owner)
                continue;
            w->place = at;
            if (w->values)
                memcpy(r->buffer + at, w->values, w->segment.count * sizeof(float));
            at += w->segment.count;
        }
        if (owner >= 0 && count > 0)
            RETURN_IF_ERROR(rf_run_broadcast(r->run, r->buffer + at - count, count * sizeof(float),
                                             owner, "restore values"));
        r->elements[owner + 1] = 0;
    }
    for (size_t i = 0; r->status == 0 && i < r->waiting_count; i++)
        r->status = put(r, &r->waiting[i].segment, r->buffer + r->waiting[i].place);
    if (r->status < 0 && r->error.status == 0)
        r->error = *rf_last_error();
    r->waiting_count = 0;
    r->all_elements = 0;
    return 0;
}

static int move(struct restore *r, const struct segment *s)
{
    const uint64_t most = r->run->files.piece_bytes / sizeof(float);
    const bool own = s->owner < 0 || s->owner == r->rank;
    const float *from = NULL;
    uint64_t n;
    if (own)
        from = r->mine->values + r->mine->places[r->next[r->rank]] +
               (s->first - row_at(r, r->rank)->first);
    for (uint64_t at = 0; at < s->count; at += n) {
        if (r->all_elements == most || r->waiting_count == MOST_WAITING)
            RETURN_IF_ERROR(flush(r));
        const uint64_t capacity = most - r->all_elements;
        n = s->count - at < capacity ? s->count - at : capacity;
        struct waiting *w = &r->waiting[r->waiting_count++];
        *w = (struct waiting){.segment = *s, .values = own ? from + at : NULL};
        w->segment.first += at;
        w->segment.count = n;
        r->elements[s->owner + 1] += n;
        r->all_elements += n;
    }
    return 0;
}

static int put_all(struct restore *r)
{
    struct segment missing;
    RETURN_IF_ERROR(walk(r, &missing, move));
    RETURN_IF_ERROR(flush(r));
    int rc = r->status < 0 ? rf_fail_error(&r->error) : rf_run_apply_state(r->run, r->state);
    return rf_run_agree_status(r->run, rc, "restore");
}

/* ---- the call -------------------------------------------------------------------------------- */

static void close_restore(struct restore *r)
{
    for (int p = 0; p < RF_PART_COUNT; p++) {
        rf_spans_free(&r->spans[p]);
        rf_listing_close(&r->listings[p]);
    }
    rf_free(r->headers);
    rf_free(r->rows);
    rf_free(r->next);
    rf_free(r->buffer);
    rf_free(r->waiting);
    rf_free(r->elements);
}

static int restore(struct rf_run *run, const struct rf_snapshot *snapshot,
                   struct rf_progress *progress)
{
    struct restore r = {.run = run,
                        .mine = snapshot,
                        .ranks = rf_run_ranks(run),
                        .rank = run->comm ? rf_comm_rank(run->comm) : 0};
    int rc = rf_run_agree_status(run, prepare(&r), "restore");
    if (rc == 0)
        rc = share_rows(&r);
    if (rc == 0)
        rc = choose(&r);
    if (rc == 0) {
        rc = put_all(&r);
        if (rc < 0)
            rf_run_mark_inconsistent(run, "restore");
        else
            run->inconsistent.status = 0;
    }
    if (rc == 0 && progress)
        *progress = (struct rf_progress){.step = r.state->step,
                                         .seed = r.state->seed,
                                         .samples = r.state->samples,
                                         .batch = r.state->batch,
                                         .seq = r.state->seq};
    const struct rf_error error = *rf_last_error();
    close_restore(&r);
    return rc < 0 ? rf_fail_error(&error) : 0;
}

int rf_run_restore(struct rf_run *run, const struct rf_snapshot *snapshot,
                   struct rf_progress *progress)
{
    return rf_run_restore_from(run, NULL, snapshot, progress);
}

int rf_run_restore_from(struct rf_run *run, struct rf_comm *comm,
                        const struct rf_snapshot *snapshot, struct rf_progress *progress)
{
    if (!run)
        return rf_fail(RF_EINVAL, "restore: a run is needed");
    RETURN_IF_ERROR(rf_run_begin_call(run, "restore"));
    struct rf_comm *own = run->comm;
    const uint64_t planned_sent = run->planned_sent;
    run->comm = comm ? comm : own;
    const int rc = restore(run, snapshot, progress);
    run->comm = own;
    if (comm)
        run->planned_sent = planned_sent;
    return rc;
}
