/* SPDX-License-Identifier: MIT
 *
 * Reads a verified checkpoint into the memory of a run, piece by piece. See load.h.
 */
#include "../base/base.h"
#include "states.h"

static uint64_t piece_left(const struct rf_run *run, uint64_t count, uint64_t from)
{
    const uint64_t left = count * sizeof(float) - from, most = run->files.piece_bytes;
    return left < most ? left : most;
}

/* Reads bytes [at, at + bytes) of a tensor of the listing; self is the load. */
static int read_file(void *self, int part, int tensor, uint64_t at, uint64_t bytes, void *out)
{
    struct rf_load *load = self;
    struct rf_safetensors *file = load->checkpoint.parts[part].tensors;
    const char *name = load->listings[part].listed[tensor].name;
    if (part == RF_PART_OPTIMIZER && rf_states_are(&load->listings[part].listed[tensor]))
        return rf_states_read(load, tensor, at, bytes, out);
    const int index = rf_safetensors_find(file, name);
    if (index < 0)
        return rf_fail(RF_EINVAL, "the checkpoint %s has no %s", load->checkpoint.path, name);
    return rf_safetensors_read(file, index, at, out, bytes);
}

/* Reads bytes [from, from + bytes) of a span into the buffer. */
static int read_piece(const struct rf_run *run, struct rf_load *load, int part,
                      const struct rf_span *span, uint64_t from, uint64_t bytes)
{
    return rf_span_reader_read(run, &load->reader, part, span, from, bytes, load->buffer);
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
    load->reader.self = load;
    load->reader.read = read_file;
    load->reader.listings = load->listings;
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
