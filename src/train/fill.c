/* SPDX-License-Identifier: MIT
 *
 * Fills the parameters of a new run from a caller's source, piece by piece. Each rank requests the
 * data that it stores, as determined by spans.c. load.c reads checkpoints.
 */
#include "../base/base.h"
#include "spans.h"

struct fill {
    const struct rf_param_source *source;
    struct rf_listing listing;
    struct rf_spans spans;
    struct rf_span_reader reader;
    uint8_t *buffer; /* one piece */
};

static int read_source(void *self, int part, int tensor, uint64_t at, uint64_t bytes, void *out)
{
    const struct fill *fill = self;
    (void)part;
    const bool raw = fill->listing.tensors[tensor].dtype == RF_U8;
    const uint64_t element = raw ? 1 : sizeof(float);
    const char *name = fill->listing.listed[tensor].name;
    const int rc = fill->source->read(fill->source->self, name, at / element, bytes / element, out);
    struct rf_error error = *rf_last_error();
    if (rc >= 0 || error.status != rc) /* a source need not have set the error */
        return rc;
    char message[sizeof(error.message)];
    memcpy(message, error.message, sizeof(message));
    snprintf(error.message, sizeof(error.message), "parameter %.100s: %.600s", name, message);
    return rf_fail_error(&error);
}

static int prepare(struct rf_run *run, struct fill *fill)
{
    if (run->step > 0)
        return rf_fail(RF_EINVAL, "fill: the run has made %lld steps already; fill a new one",
                       (long long)run->step);
    if (!run->half_filled)
        RETURN_IF_ERROR(rf_run_check_idle(run, "fill"));
    RETURN_IF_ERROR(rf_listing_open(run, RF_PART_MODEL, &fill->listing));
    RETURN_IF_ERROR(rf_spans_to_load(run, RF_PART_MODEL, &fill->listing, &fill->spans));
    fill->reader =
        (struct rf_span_reader){.self = fill, .read = read_source, .listings = &fill->listing};
    fill->buffer = rf_alloc(run->files.piece_bytes);
    return fill->buffer ? 0 : rf_fail(RF_ENOMEM, "fill: out of host memory");
}

static int fill_span(struct rf_run *run, struct fill *fill, const struct rf_span *span)
{
    const uint64_t all = span->count * sizeof(float), most = run->files.piece_bytes;
    for (uint64_t from = 0, bytes; from < all; from += bytes) {
        bytes = all - from < most ? all - from : most;
        RETURN_IF_ERROR(rf_span_reader_read(run, &fill->reader, RF_PART_MODEL, span, from, bytes,
                                            fill->buffer));
        RETURN_IF_ERROR(rf_span_write(span, from, bytes, fill->buffer));
    }
    return 0;
}

static int fill_all(struct rf_run *run, struct fill *fill)
{
    for (size_t i = 0; i < fill->spans.count; i++)
        RETURN_IF_ERROR(fill_span(run, fill, &fill->spans.list[i]));
    RETURN_IF_ERROR(rf_run_refresh_copy(run));
    return rf_run_refresh_before(run, true);
}

int rf_run_fill(struct rf_run *run, const struct rf_param_source *source)
{
    struct fill fill = {.source = source};
    if (!run || !source || !source->read)
        return rf_fail(RF_EINVAL, "fill: a run and a source are needed");
    RETURN_IF_ERROR(rf_run_begin_call(run, "fill"));
    int rc = rf_run_agree_status(run, prepare(run, &fill), "fill");
    if (rc == 0) {
        rc = rf_run_agree_status(run, fill_all(run, &fill), "fill");
        if (rc < 0)
            rf_run_mark_inconsistent(run, "fill");
        else if (run->half_filled)
            run->inconsistent.status = 0;
        run->half_filled = rc < 0;
    }
    const struct rf_error error = *rf_last_error();
    rf_listing_close(&fill.listing);
    rf_spans_free(&fill.spans);
    rf_span_reader_free(&fill.reader);
    rf_free(fill.buffer);
    return rc < 0 ? rf_fail_error(&error) : 0;
}
