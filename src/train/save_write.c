/* SPDX-License-Identifier: MIT
 *
 * Writes one rank's spans of a checkpoint in pieces, from the device or from a snapshot, to the
 * shared files or by way of rank 0. See save.h.
 */
#include <signal.h>

#include "../base/base.h"
#include "save.h"

void rf_save_note(struct rf_save *save, int status)
{
    if (status < 0 && save->status == 0) {
        save->status = status;
        save->error = *rf_last_error();
    }
}

/* ---- spans as pieces ------------------------------------------------------------------------- */

struct piece {
    const struct rf_span *span;
    uint64_t from, bytes; /* of the span */
    const uint8_t *data;  /* NULL: not read, after a failure */
};

static uint64_t piece_left(const struct rf_save *save, const struct rf_span *span, uint64_t from)
{
    return rf_span_piece(span, from, save->run->files.piece_bytes);
}

/* Reads the next piece. *snapshot: its position in the snapshot, if there is one. */
static int read_piece(struct rf_save *save, const struct rf_span *span, uint64_t from,
                      uint64_t bytes, const uint8_t **data)
{
    if (save->snapshot) {
        *data = save->snapshot + atomic_load(&save->written);
        return 0;
    }
    *data = save->buffer;
    return rf_span_read(span, from, bytes, save->buffer);
}

int rf_save_snapshot(struct rf_save *save)
{
    uint64_t at = 0;
    uint8_t *memory = rf_alloc(save->bytes);
    int rc = memory ? 0
                    : rf_fail(RF_ENOMEM,
                              "save: out of host memory for a snapshot of %llu bytes; save without "
                              "one (rf_run_save)",
                              (unsigned long long)save->bytes);
    for (int p = 0; rc == 0 && p < RF_PART_COUNT; p++)
        for (size_t i = 0; rc == 0 && i < save->parts[p].spans.count; i++) {
            const struct rf_span *span = &save->parts[p].spans.list[i];
            rc = rf_span_read(span, 0, span->count * sizeof(float), memory + at);
            at += span->count * sizeof(float);
        }
    if (rc < 0)
        rf_free(memory);
    else
        save->snapshot = memory;
    return rc;
}

/* ---- into the files -------------------------------------------------------------------------- */

static struct rf_cut_lines lines_at(const struct rf_span *span, uint64_t from)
{
    return rf_cut_lines_at(&span->cut, span->first + from / sizeof(float));
}

/* Writes `rows` rows of a part that has some columns of a tensor, from byte `from` of the span on.
 * Each segment of columns is one strided write, because its rows are at equal distances in the
 * file. */
static int write_rows(struct rf_save_part *part, const struct rf_span *span, uint64_t from,
                      uint64_t rows, const uint8_t *data)
{
    const struct rf_cut_lines lines = lines_at(span, from);
    const uint64_t line = lines.length * sizeof(float);
    for (uint64_t at = 0; at < line;) {
        const struct rf_span_run run = rf_span_run_at(span, from + at, line - at);
        const struct rf_piece where = {.begin = part->layout.begin[span->tensor] + run.at,
                                       .run = run.bytes,
                                       .runs = rows,
                                       .step = lines.step * sizeof(float)};
        RETURN_IF_ERROR(rf_shared_put_runs(&part->file, &where, data + at, line));
        at += run.bytes;
    }
    return 0;
}

/* Writes bytes [from, from + bytes) of a span. Contiguous bytes are written at once, and whole rows
 * together. */
static int write_piece(struct rf_save_part *part, const struct rf_span *span, uint64_t from,
                       uint64_t bytes, const uint8_t *data)
{
    for (uint64_t done = 0; done < bytes;) {
        const struct rf_cut_lines lines = lines_at(span, from + done);
        const uint64_t line = lines.length * sizeof(float);
        const uint64_t at_line = span->first + (from + done) / sizeof(float) - lines.begin;
        const bool begins = line && at_line % lines.length == 0;
        const uint64_t rows = begins ? (bytes - done) / line : 0;
        if (rows > 1) {
            RETURN_IF_ERROR(write_rows(part, span, from + done, rows, data + done));
            done += rows * line;
            continue;
        }
        const struct rf_span_run run = rf_span_run_at(span, from + done, bytes - done);
        const uint64_t at = part->layout.begin[span->tensor] + run.at;
        RETURN_IF_ERROR(rf_shared_put(&part->file, at, data + done, run.bytes));
        done += run.bytes;
    }
    return 0;
}

static int write_span(struct rf_save *save, struct rf_save_part *part, const struct rf_span *span)
{
    uint64_t bytes;
    for (uint64_t from = 0; from < span->count * sizeof(float); from += bytes) {
        const uint8_t *data = NULL;
        bytes = piece_left(save, span, from);
        if (atomic_load(&save->give_up))
            return rf_fail(RF_EABORT, "save: abandoned, because the run was closed");
        RETURN_IF_ERROR(read_piece(save, span, from, bytes, &data));
        RETURN_IF_ERROR(write_piece(part, span, from, bytes, data));
        atomic_fetch_add(&save->written, bytes);
        rf_checkpoint_stage(&save->run->files.saves, "piece written");
    }
    return 0;
}

static int write_all(struct rf_save *save)
{
    static const char *const stages[] = {"model written", "optimizer written"};
    for (int p = 0; p < RF_PART_COUNT; p++) {
        struct rf_save_part *part = &save->parts[p];
        for (size_t i = 0; i < part->spans.count; i++)
            RETURN_IF_ERROR(write_span(save, part, &part->spans.list[i]));
        RETURN_IF_ERROR(rf_shared_sync(&part->file));
        rf_checkpoint_stage(&save->run->files.saves, stages[p]);
    }
    return 0;
}

static void *work(void *argument)
{
    struct rf_save *save = argument;
    rf_save_note(save, write_all(save));
    atomic_store(&save->ended, true);
    return NULL;
}

void rf_save_write(struct rf_save *save)
{
    sigset_t all, before;
    if (!save->sees || save->status < 0) {
        atomic_store(&save->ended, true);
        return;
    }
    if (save->snapshot) {
        /* Signals are handled by the caller's threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        save->threaded = pthread_create(&save->thread, NULL, work, save) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!save->threaded)
        work(save);
}

void rf_save_join(struct rf_save *save)
{
    if (save->threaded)
        pthread_join(save->thread, NULL);
    save->threaded = false;
}

/* ---- through rank 0 -------------------------------------------------------------------------- */

/* Both sides divide a span into the same pieces. A piece that cannot be read or written is
 * transferred all the same, so that both sides stay in step. */
int rf_save_send(struct rf_run *run, struct rf_save *save)
{
    uint64_t count =
        save->parts[RF_PART_MODEL].spans.count + save->parts[RF_PART_OPTIMIZER].spans.count;
    RETURN_IF_ERROR(rf_run_send(run, &count, sizeof(count), 0, "save spans"));
    for (int p = 0; p < RF_PART_COUNT; p++)
        for (size_t i = 0; i < save->parts[p].spans.count; i++) {
            const struct rf_span *span = &save->parts[p].spans.list[i];
            const struct rf_span_name name = rf_span_to_name(span, p);
            uint64_t bytes;
            RETURN_IF_ERROR(rf_run_send(run, &name, sizeof(name), 0, "save spans"));
            for (uint64_t from = 0; from < span->count * sizeof(float); from += bytes) {
                bytes = piece_left(save, span, from);
                rf_save_note(save, rf_span_read(span, from, bytes, save->buffer));
                RETURN_IF_ERROR(rf_run_send(run, save->buffer, bytes, 0, "save spans"));
            }
        }
    return 0;
}

static int receive_span(struct rf_run *run, struct rf_save *save, int peer)
{
    struct rf_span_name name;
    struct rf_span span;
    uint64_t bytes;
    RETURN_IF_ERROR(rf_run_recv(run, &name, sizeof(name), peer, "save spans"));
    struct rf_save_part *part =
        name.part >= 0 && name.part < RF_PART_COUNT ? &save->parts[name.part] : NULL;
    rf_save_note(save, rf_span_of_name(run, &name, part ? &part->listing : NULL, peer, &span));
    for (uint64_t from = 0; from < span.count * sizeof(float); from += bytes) {
        bytes = piece_left(save, &span, from);
        RETURN_IF_ERROR(rf_run_recv(run, save->buffer, bytes, peer, "save spans"));
        if (save->status == 0)
            rf_save_note(save, write_piece(part, &span, from, bytes, save->buffer));
    }
    return 0;
}

int rf_save_receive(struct rf_run *run, struct rf_save *save, int peer)
{
    uint64_t count = 0;
    RETURN_IF_ERROR(rf_run_recv(run, &count, sizeof(count), peer, "save spans"));
    for (uint64_t i = 0; i < count; i++)
        RETURN_IF_ERROR(receive_span(run, save, peer));
    return 0;
}

/* ---- the list of pieces ---------------------------------------------------------------------- */

enum { PIECES_AT_ONCE = 128 };

static int send_pieces(struct rf_run *run, const struct rf_pieces *pieces)
{
    uint64_t count = pieces->count;
    RETURN_IF_ERROR(rf_run_send(run, &count, sizeof(count), 0, "save pieces"));
    for (size_t i = 0; i < pieces->count; i += PIECES_AT_ONCE) {
        const size_t left = pieces->count - i, n = left < PIECES_AT_ONCE ? left : PIECES_AT_ONCE;
        RETURN_IF_ERROR(
            rf_run_send(run, pieces->list + i, n * sizeof(*pieces->list), 0, "save pieces"));
    }
    return 0;
}

static int receive_pieces(struct rf_run *run, struct rf_save *save, int peer,
                          struct rf_pieces *pieces)
{
    struct rf_piece some[PIECES_AT_ONCE];
    uint64_t count = 0;
    RETURN_IF_ERROR(rf_run_recv(run, &count, sizeof(count), peer, "save pieces"));
    for (uint64_t i = 0; i < count; i += PIECES_AT_ONCE) {
        const uint64_t left = count - i, n = left < PIECES_AT_ONCE ? left : PIECES_AT_ONCE;
        RETURN_IF_ERROR(rf_run_recv(run, some, n * sizeof(*some), peer, "save pieces"));
        if (save->status == 0)
            rf_save_note(save, rf_pieces_add(pieces, some, n));
    }
    return 0;
}

int rf_save_gather_pieces(struct rf_run *run, struct rf_save *save)
{
    for (int p = 0; p < RF_PART_COUNT; p++) {
        struct rf_pieces *pieces = &save->parts[p].file.pieces;
        if (run->plan->rank != 0)
            RETURN_IF_ERROR(send_pieces(run, pieces));
        for (int peer = 1; run->plan->rank == 0 && peer < rf_run_ranks(run); peer++)
            RETURN_IF_ERROR(receive_pieces(run, save, peer, pieces));
    }
    return 0;
}
