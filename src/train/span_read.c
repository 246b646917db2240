/* SPDX-License-Identifier: MIT
 *
 * Reads the elements of a span from a source of whole tensors: files, or a caller's source. If few
 * of them are contiguous there, the bytes between them, which belong to other ranks, are read as
 * well: one long read is faster. Called by load_read.c and fill.c.
 */
#include "../base/base.h"
#include "spans.h"

/* The minimum number of contiguous bytes for which a separate read is worthwhile. */
enum { LEAST_DIRECT = 1 << 14 };

/* Reads through the window, which moves if the bytes are not in it. At most one piece. */
static int read_window(const struct rf_run *run, struct rf_span_reader *reader, int part,
                       int tensor, struct rf_span_run r, uint8_t *out)
{
    struct rf_span_window *w = &reader->window;
    const bool same = w->count > 0 && w->part == part && w->tensor == tensor;
    if (!same || r.at < w->at || r.at + r.bytes > w->at + w->count) {
        const struct rf_file_tensor *whole = &reader->listings[part].tensors[tensor];
        const uint64_t left =
            (uint64_t)rf_shape_count(whole->shape) * rf_dtype_bytes(whole->dtype) - r.at;
        const uint64_t most = run->files.piece_bytes;
        if (!w->bytes)
            w->bytes = rf_alloc(most);
        if (!w->bytes)
            return rf_fail(RF_ENOMEM, "load: out of host memory");
        w->part = part;
        w->tensor = tensor;
        w->at = r.at;
        w->count = 0;
        RETURN_IF_ERROR(
            reader->read(reader->self, part, tensor, w->at, left < most ? left : most, w->bytes));
        w->count = left < most ? left : most;
    }
    memcpy(out, w->bytes + (r.at - w->at), r.bytes);
    return 0;
}

int rf_span_reader_read(const struct rf_run *run, struct rf_span_reader *reader, int part,
                        const struct rf_span *span, uint64_t from, uint64_t bytes, uint8_t *out)
{
    for (uint64_t done = 0; done < bytes;) {
        const struct rf_span_run r = rf_span_run_at(span, from + done, bytes - done);
        if (r.bytes == bytes || r.bytes >= LEAST_DIRECT)
            RETURN_IF_ERROR(
                reader->read(reader->self, part, span->tensor, r.at, r.bytes, out + done));
        else
            RETURN_IF_ERROR(read_window(run, reader, part, span->tensor, r, out + done));
        done += r.bytes;
    }
    return 0;
}

void rf_span_reader_free(struct rf_span_reader *reader)
{
    rf_free(reader->window.bytes);
    reader->window.bytes = NULL;
}
