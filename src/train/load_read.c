/* SPDX-License-Identifier: MIT
 *
 * Reads what has been verified into the memory of a run, piece by piece. See load.h.
 */
#include "../base/base.h"
#include "load.h"

static uint64_t piece_left(const struct rf_run *run, uint64_t count, uint64_t from)
{
    const uint64_t left = count * sizeof(float) - from, most = rf_run_piece_bytes(run);
    return left < most ? left : most;
}

/* Bytes [at, at + bytes) of a tensor of the listing into the buffer. */
static int read_piece(struct rf_load *load, int part, int tensor, uint64_t at, uint64_t bytes)
{
    struct rf_safetensors *file = load->checkpoint.parts[part].tensors;
    const char *name = load->listings[part].listed[tensor].name;
    const int index = rf_safetensors_find(file, name);
    if (index < 0)
        return rf_fail(RF_EINVAL, "the checkpoint %s has no %s", load->checkpoint.path, name);
    return rf_safetensors_read(file, index, at, load->buffer, bytes);
}

static int read_span(struct rf_run *run, struct rf_load *load, int part, const struct rf_span *span)
{
    uint64_t bytes;
    for (uint64_t from = 0; from < span->count * sizeof(float); from += bytes) {
        bytes = piece_left(run, span->count, from);
        RETURN_IF_ERROR(
            read_piece(load, part, span->tensor, span->first * sizeof(float) + from, bytes));
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

/* Both sides cut a span into the same pieces, and go on after a failure (*status), so that both
 * stay in step. What is returned is the communicator's. */
static int serve_span(struct rf_run *run, struct rf_load *load, int peer, int *status)
{
    struct rf_span_row row;
    uint64_t bytes;
    RETURN_IF_ERROR(rf_run_recv(run, &row, sizeof(row), peer, "load spans"));
    if (row.part < 0 || row.part >= RF_PART_COUNT || row.tensor < 0 ||
        row.tensor >= load->listings[row.part].count)
        *status = rf_fail_rank(RF_EINVAL, peer,
                               "load: rank %d asks for tensor %d, which is not in "
                               "the checkpoint",
                               peer, row.tensor);
    for (uint64_t from = 0; from < row.count * sizeof(float); from += bytes) {
        bytes = piece_left(run, row.count, from);
        if (*status == 0)
            *status =
                read_piece(load, row.part, row.tensor, row.first * sizeof(float) + from, bytes);
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
    const struct rf_span_row row = {part, span->tensor, span->first, span->count};
    uint64_t bytes;
    RETURN_IF_ERROR(rf_run_send(run, &row, sizeof(row), 0, "load spans"));
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
