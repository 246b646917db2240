/* SPDX-License-Identifier: MIT
 *
 * rf_trace_write: gathers the trace events of all ranks and writes them as the JSON that Chrome's
 * tracing page and Perfetto read. A rank is a process there, a track is a thread. Clocks of
 * different hosts are not adjusted to each other.
 */
#include <errno.h>
#include <inttypes.h>
#include <ringforge/ringforge.h>

#include "../communicator.h"

enum { MAX_TRACKS = 64, TRACE_TAG = 1023 };

struct items {
    struct rf_trace_item *item;
    size_t count;
};

/* ---- gathering ------------------------------------------------------------------------------- */

/* Ranks that are threads of one process share one store: each uses its own events, and rank 0 also
 * those without a rank. */
static bool is_mine(const struct rf_trace_item *item, const struct rf_comm *comm)
{
    return item->rank == rf_comm_job_rank(comm, comm->rank) ||
           (item->rank < 0 && (!comm->links.transport->one_process || comm->rank == 0));
}

static int local_items(const struct rf_comm *comm, struct items *out)
{
    size_t capacity = rf_trace_items(NULL, 0);
    struct rf_trace_item *item = rf_alloc((capacity + 1) * sizeof(*item));
    if (!item)
        return rf_fail(RF_ENOMEM, "no memory for %zu trace events", capacity);
    size_t stored = rf_trace_items(item, capacity), kept = 0;
    if (stored > capacity)
        stored = capacity;
    for (size_t i = 0; i < stored; i++)
        if (!comm || is_mine(&item[i], comm)) {
            item[kept] = item[i];
            if (comm)
                item[kept].rank = comm->rank;
            kept++;
        }
    *out = (struct items){item, kept};
    return 0;
}

/* On rank 0 `items` grows to hold all ranks' events. */
static int gather(struct rf_comm *comm, struct items *items)
{
    int64_t mine = (int64_t)items->count;
    int64_t *counts = rf_alloc((size_t)comm->size * sizeof(*counts));
    if (!counts)
        return rf_fail(RF_ENOMEM, "no memory to gather the trace");
    size_t total = 0;
    int rc = rf_all_gather(comm, &mine, counts, 1, RF_I64, NULL);
    for (int rank = 0; rc == 0 && rank < comm->size; rank++)
        total += (size_t)counts[rank];
    if (rc == 0 && comm->rank == 0) {
        struct rf_trace_item *all = rf_realloc(items->item, (total + 1) * sizeof(*all));
        if (!all)
            rc = rf_fail(RF_ENOMEM, "no memory for %zu trace events", total);
        else
            items->item = all;
    }
    for (int rank = 1; rc == 0 && rank < comm->size; rank++) {
        size_t bytes = (size_t)counts[rank] * sizeof(*items->item);
        if (comm->rank == rank)
            rc = rf_send(comm, items->item, bytes, RF_U8, 0, TRACE_TAG, NULL);
        if (comm->rank != 0)
            continue;
        rc = rf_recv(comm, items->item + items->count, bytes, RF_U8, rank, TRACE_TAG, NULL);
        items->count += (size_t)counts[rank];
    }
    rf_free(counts);
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(file, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(file, "\\u%04x", *p);
        else
            fputc(*p, file);
    }
    fputc('"', file);
}

/* Tracks are numbered in the order in which they appear; the last number takes the surplus. */
static int track_of(const char *(*tracks)[MAX_TRACKS], int *count, const char *name)
{
    for (int i = 0; i < *count; i++)
        if (strcmp((*tracks)[i], name) == 0)
            return i;
    if (*count == MAX_TRACKS)
        return MAX_TRACKS - 1;
    (*tracks)[*count] = name;
    return (*count)++;
}

static void write_names(FILE *file, const char *const *tracks, int track_count, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        fprintf(file,
                "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank "
                "%d\"}},\n",
                rank, rank);
        for (int track = 0; track < track_count; track++) {
            fprintf(
                file,
                "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":",
                rank, track);
            write_text(file, tracks[track]);
            fprintf(file, "}},\n");
        }
    }
}

static void write_events(FILE *file, const struct items *items, int ranks)
{
    const char *tracks[MAX_TRACKS];
    int track_count = 0;
    uint64_t origin = UINT64_MAX;
    for (size_t i = 0; i < items->count; i++) {
        track_of(&tracks, &track_count, items->item[i].track);
        if (items->item[i].start_ns < origin)
            origin = items->item[i].start_ns;
    }
    fprintf(file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    write_names(file, tracks, track_count, ranks);
    for (size_t i = 0; i < items->count; i++) {
        const struct rf_trace_item *item = &items->item[i];
        uint64_t start = item->start_ns - origin, length = item->end_ns - item->start_ns;
        fprintf(file, "{\"ph\":\"X\",\"name\":");
        write_text(file, item->name);
        fprintf(file, ",\"cat\":");
        write_text(file, item->track);
        fprintf(file, ",\"pid\":%d,\"tid\":%d,\"ts\":%" PRIu64 ".%03u,\"dur\":%" PRIu64 ".%03u},\n",
                item->rank < 0 ? 0 : item->rank, track_of(&tracks, &track_count, item->track),
                start / 1000, (unsigned)(start % 1000), length / 1000, (unsigned)(length % 1000));
    }
    /* Ends the list without a comma. */
    fprintf(file, "{\"ph\":\"M\",\"name\":\"trace_end\",\"pid\":0,\"args\":{}}\n]}\n");
}

static int write_file(const char *path, const struct items *items, int ranks)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!path)
        return rf_fail(RF_EINVAL, "trace: the path is NULL");
    if (!file)
        return rf_fail(RF_EIO, "trace %s cannot be written: %s", path, strerror(errno));
    write_events(file, items, ranks);
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad)
        return rf_fail(RF_EIO, "trace %s cannot be written: %s", path, strerror(errno));
    return 0;
}

int rf_trace_write(const char *path, struct rf_comm *comm)
{
    struct items items = {0};
    int rc = local_items(comm, &items);
    if (rc == 0 && comm && comm->size > 1)
        rc = gather(comm, &items);
    if (rc == 0 && (!comm || comm->rank == 0))
        rc = write_file(path, &items, comm ? comm->size : 1);
    rf_free(items.item);
    return rc;
}
