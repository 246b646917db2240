/* SPDX-License-Identifier: MIT
 *
 * The parameters that a rank of a run has, for rounds (ringforge/rounds.h): f32, one span of a
 * trained parameter after the other, which the ranks in the same place of other workers have alike.
 */
#include "../base/base.h"
#include "spans.h"
#include "stored.h"

struct worker {
    struct rf_run *run;
    struct rf_round_shape *shapes;
    int shape_count;
    struct rf_listing listing;
    struct rf_spans spans;
};

/* Calls `move` for each piece of the values [first, first + count). */
static int walk(const struct worker *w, int64_t first, int64_t count,
                int (*move)(const struct rf_span *span, uint64_t from, int64_t n, float *values,
                            const float *given),
                float *values, const float *given)
{
    const int64_t most = (int64_t)(w->run->files.piece_bytes / sizeof(float));
    int64_t at = 0;
    for (size_t k = 0; k < w->spans.count && count > 0; k++) {
        const struct rf_span *span = w->spans.list + k;
        const int64_t end = at + (int64_t)span->count;
        while (count > 0 && first < end) {
            int64_t n = end - first < count ? end - first : count;
            n = n < most ? n : most;
            RETURN_IF_ERROR(move(span, 4 * (uint64_t)(first - at), n, values, given));
            values += given ? 0 : n, given += given ? n : 0;
            first += n, count -= n;
        }
        at = end;
    }
    return 0;
}

static int read_piece(const struct rf_span *span, uint64_t from, int64_t n, float *values,
                      const float *given)
{
    return rf_span_read(span, from, 4 * (uint64_t)n, values);
}

/* rf_span_write overwrites what it is given: values is room for a piece. */
static int write_piece(const struct rf_span *span, uint64_t from, int64_t n, float *values,
                       const float *given)
{
    memcpy(values, given, 4 * (size_t)n);
    return rf_span_write(span, from, 4 * (uint64_t)n, values);
}

static int read_values(void *user, int64_t first, int64_t count, float *to)
{
    const struct worker *w = user;
    RETURN_IF_ERROR(rf_run_check_idle(w->run, "exchange parameters"));
    return walk(w, first, count, read_piece, to, NULL);
}

static int write_values(void *user, int64_t first, int64_t count, const float *from)
{
    const struct worker *w = user;
    RETURN_IF_ERROR(rf_run_check_idle(w->run, "exchange parameters"));
    float *piece = rf_alloc(w->run->files.piece_bytes);
    if (!piece)
        return rf_fail(RF_ENOMEM, "exchange: out of host memory for a piece of the parameters");
    const int status = walk(w, first, count, write_piece, piece, from);
    rf_free(piece);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(rf_run_refresh_copy(w->run));
    return rf_run_refresh_before(w->run, true);
}

/* What is not trained is the same on all workers. */
static void drop_frozen(struct worker *w)
{
    size_t kept = 0;
    for (size_t k = 0; k < w->spans.count; k++)
        if (rf_plan_trains(w->run->plan, w->listing.listed[w->spans.list[k].tensor].param))
            w->spans.list[kept++] = w->spans.list[k];
    w->spans.count = kept;
}

/* Part of a row, whole rows and part of another one of a parameter, along its first dimension. */
static void add_shapes(struct worker *w, const struct rf_span *span)
{
    const struct rf_shape part = rf_cut_shape(&span->cut);
    w->shape_count += rf_plan_rows_of((int64_t)span->first, (int64_t)span->count, &part,
                                      w->shapes + w->shape_count);
}

static int shape_of(void *user, int index, struct rf_round_shape *out)
{
    const struct worker *w = user;
    if (index >= w->shape_count)
        return RF_EINVAL;
    *out = w->shapes[index];
    return RF_OK;
}

static int find_shapes(struct worker *w)
{
    w->shapes = rf_alloc(3 * w->spans.count * sizeof *w->shapes + 1);
    if (!w->shapes)
        return rf_fail(RF_ENOMEM, "exchange: out of host memory");
    for (size_t k = 0; k < w->spans.count; k++)
        add_shapes(w, w->spans.list + k);
    return RF_OK;
}

int rf_run_rounds_params(struct rf_run *run, struct rf_rounds_params *out)
{
    if (!run || !out)
        return rf_fail(RF_EINVAL, "the parameters of a run need the run, and room");
    struct worker *w = rf_alloc(sizeof *w);
    if (!w)
        return rf_fail(RF_ENOMEM, "exchange: out of host memory");
    w->run = run;
    struct rf_rounds_params params = {0, read_values, write_values, w, shape_of};
    int status = rf_listing_open(run, RF_PART_MODEL, &w->listing);
    if (status == 0)
        status = rf_spans_to_load(run, RF_PART_MODEL, &w->listing, &w->spans);
    if (status == 0)
        drop_frozen(w);
    if (status == 0)
        status = find_shapes(w);
    if (status < 0) {
        rf_run_rounds_params_free(&params);
        return status;
    }
    params.count = (int64_t)(rf_spans_bytes(&w->spans) / sizeof(float));
    *out = params;
    return 0;
}

void rf_run_rounds_params_free(struct rf_rounds_params *params)
{
    struct worker *w = params->user;
    if (w) {
        rf_spans_free(&w->spans);
        rf_listing_close(&w->listing);
        rf_free(w->shapes);
        rf_free(w);
    }
    *params = (struct rf_rounds_params){0};
}
