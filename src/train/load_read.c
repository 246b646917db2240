/* SPDX-License-Identifier: MIT
 *
 * Reads a verified checkpoint into the memory of a run, piece by piece. See load.h.
 */
#include "../base/base.h"
#include "load.h"

/* The least number of contiguous bytes for which a separate read is worthwhile. */
enum { LEAST_DIRECT = 1 << 14 };

static uint64_t piece_left(const struct rf_run *run, uint64_t count, uint64_t from)
{
    const uint64_t left = count * sizeof(float) - from, most = rf_run_piece_bytes(run);
    return left < most ? left : most;
}

/* Reads bytes [at, at + bytes) of a tensor of the listing. */
static int read_file(struct rf_load *load, int part, int tensor, uint64_t at, uint64_t bytes,
                     uint8_t *out)
{
    struct rf_safetensors *file = load->checkpoint.parts[part].tensors;
    const char *name = load->listings[part].listed[tensor].name;
    const int index = rf_safetensors_find(file, name);
    if (index < 0)
        return rf_fail(RF_EINVAL, "the checkpoint %s has no %s", load->checkpoint.path, name);
    return rf_safetensors_read(file, index, at, out, bytes);
}

/* The same by way of the window, which moves if the bytes are not in it. At most one piece. */
static int read_window(const struct rf_run *run, struct rf_load *load, int part, int tensor,
                       struct rf_span_run r, uint8_t *out)
{
    struct rf_load_window *w = &load->window;
    const bool same = w->count > 0 && w->part == part && w->tensor == tensor;
    if (!same || r.at < w->at || r.at + r.bytes > w->at + w->count) {
        const struct rf_shape shape = load->listings[part].tensors[tensor].shape;
        const uint64_t left = (uint64_t)rf_shape_count(shape) * sizeof(float) - r.at;
        const uint64_t most = rf_run_piece_bytes(run);
        if (!w->bytes)
            w->bytes = rf_alloc(most);
        if (!w->bytes)
            return rf_fail(RF_ENOMEM, "load: out of host memory");
        w->part = part;
        w->tensor = tensor;
        w->at = r.at;
        w->count = 0;
        RETURN_IF_ERROR(read_file(load, part, tensor, w->at, left < most ? left : most, w->bytes));
        w->count = left < most ? left : most;
    }
    memcpy(out, w->bytes + (r.at - w->at), r.bytes);
    return 0;
}

/* Reads bytes [from, from + bytes) of a span into the buffer. If few of them are contiguous in the
 * file, the bytes between them, which belong to other ranks, are read as well: one long read is
 * faster. */
static int read_piece(const struct rf_run *run, struct rf_load *load, int part,
                      const struct rf_span *span, uint64_t from, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        const struct rf_span_run r = rf_span_run_at(span, from + done, bytes - done);
        uint8_t *out = load->buffer + done;
        if (r.bytes == bytes || r.bytes >= LEAST_DIRECT)
            RETURN_IF_ERROR(read_file(load, part, span->tensor, r.at, r.bytes, out));
        else
            RETURN_IF_ERROR(read_window(run, load, part, span->tensor, r, out));
        done += r.bytes;
    }
    return 0;
}

static int read_span(struct rf_run *run, struct rf_load *load, int part, const struct rf_span *span)
{
    uint64_t bytes;
    for (uint64_t from = 0; from < span->count * sizeof(float); from += bytes) {
        bytes = piece_left(run, span->count, from);
        RETURN_IF_ERROR(read_piece(run, load, part, span, from, bytes));
        RETURN_IF_ERROR(rf_span_write(span, from, bytes, load->buffer));
    }
    return 0;
}

static int read_own(struct rf_run *run, struct rf_load *load)
{
    for (int part = 0; part < RF_PART_COUNT; part++)
        for (size_t i = 0; i < load->spans[part].count; i++)
            RETURN_IF_ERROR(read_span(run, load, part, &load->spans[part].list[i]));
    return 0;
}

/* ---- through rank 0 -------------------------------------------------------------------------- */

/* Both sides divide a span into the same pieces and continue after a failure (*status), so that
 * they stay in step. Returns the communicator's status. */
static int serve_span(struct rf_run *run, struct rf_load *load, int peer, int *status)
{
    struct rf_span_name name;
    struct rf_span span;
    uint64_t bytes;
    RETURN_IF_ERROR(rf_run_recv(run, &name, sizeof(name), peer, "load spans"));
    const bool known = name.part >= 0 && name.part < RF_PART_COUNT;
    const int rc =
        rf_span_of_name(run, &name, known ? &load->listings[name.part] : NULL, peer, &span);
    *status = *status < 0 ? *status : rc;
    for (uint64_t from = 0; from < span.count * sizeof(float); from += bytes) {
        bytes = piece_left(run, span.count, from);
        if (*status == 0)
            *status = read_piece(run, load, name.part, &span, from, bytes);
        RETURN_IF_ERROR(rf_run_send(run, load->buffer, bytes, peer, "load spans"));
    }
    return 0;
}

static int serve(struct rf_run *run, struct rf_load *load, int peer, int *status)
{
    uint64_t count = 0;
    RETURN_IF_ERROR(rf_run_recv(run, &count, sizeof(count), peer, "load spans"));
    for (uint64_t i = 0; i < count; i++)
        RETURN_IF_ERROR(serve_span(run, load, peer, status));
    return 0;
}

static int ask_span(struct rf_run *run, struct rf_load *load, int part, const struct rf_span *span,
                    int *status)
{
    const struct rf_span_name name = rf_span_to_name(span, part);
    uint64_t bytes;
    RETURN_IF_ERROR(rf_run_send(run, &name, sizeof(name), 0, "load spans"));
    for (uint64_t from = 0; from < span->count * sizeof(float); from += bytes) {
        bytes = piece_left(run, span->count, from);
        RETURN_IF_ERROR(rf_run_recv(run, load->buffer, bytes, 0, "load spans"));
        if (*status == 0)
            *status = rf_span_write(span, from, bytes, load->buffer);
    }
    return 0;
}

static int ask(struct rf_run *run, struct rf_load *load, int *status)
{
    uint64_t count = load->spans[RF_PART_MODEL].count + load->spans[RF_PART_OPTIMIZER].count;
    RETURN_IF_ERROR(rf_run_send(run, &count, sizeof(count), 0, "load spans"));
    for (int part = 0; part < RF_PART_COUNT; part++)
        for (size_t i = 0; i < load->spans[part].count; i++)
            RETURN_IF_ERROR(ask_span(run, load, part, &load->spans[part].list[i], status));
    return 0;
}

int rf_load_read(struct rf_run *run, struct rf_load *load)
{
    int status = load->sees ? read_own(run, load) : 0;
    struct rf_error error = *rf_last_error();
    for (int r = 1; r < rf_run_ranks(run); r++) {
        if (load->all_see[r])
            continue;
        const int before = status;
        if (run->plan->rank == 0)
            RETURN_IF_ERROR(serve(run, load, r, &status));
        else if (run->plan->rank == r)
            RETURN_IF_ERROR(ask(run, load, &status));
        if (before == 0)
            error = *rf_last_error();
    }
    return rf_run_agree_status(run, status < 0 ? rf_fail_error(&error) : 0, "load");
}
