/* SPDX-License-Identifier: MIT
 *
 * Recordings: command buffers that are kept, and handed to the device as often as wanted without
 * being recorded again. A recording remembers what it was made of: a mark for every command, so
 * that two recordings can be compared, and the addresses and kernels that it needs, so that it is
 * not replayed once one of them is gone.
 */
#include "internal.h"

struct mark {
    uint32_t hash;
    char name[RF_NAME_BYTES];
};

struct span {
    uint64_t first, last; /* inclusive */
};

struct list {
    void *items;
    size_t count, capacity;
};

enum stale { VALID = 0, NO_BUFFER, NO_KERNEL };

struct rf_recording {
    struct rf_stream *stream;
    struct rf_submission *kept; /* its commands; never recycled */
    bool empty;
    uint64_t last;           /* the stream's value of the last replay; 0 = none yet */
    struct list marks;       /* struct mark */
    struct list spans;       /* struct span; after the end sorted and apart */
    struct list kernels;     /* const struct rf_kernel *, each once */
    atomic_int stale;        /* enum stale */
    struct rf_recording *up; /* in device->recordings; guarded by device->memory_lock */
};

/* ---- what a recording is made of ------------------------------------------------------------- */

static int append(struct list *list, const void *item, size_t bytes)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 32;
        void *moved = rf_realloc(list->items, capacity * bytes);
        if (!moved)
            return rf_fail(RF_ENOMEM, "no memory for a recording");
        list->items = moved;
        list->capacity = capacity;
    }
    memcpy((uint8_t *)list->items + list->count++ * bytes, item, bytes);
    return 0;
}

static int add_span(struct rf_recording *r, uint64_t address, uint64_t bytes)
{
    struct span span = {address, address + (bytes - 1)};
    return bytes ? append(&r->spans, &span, sizeof(span)) : 0;
}

/* A launch that declares no ranges: whatever in its push constants may be an address is one. */
static int add_guesses(struct rf_recording *r, const struct rf_command *c)
{
    for (uint32_t at = 0; at + 8 <= c->push_bytes; at += 4) {
        uint64_t address;
        memcpy(&address, (const uint8_t *)c->push + at, sizeof(address));
        RETURN_IF_ERROR(add_span(r, address, address ? 1 : 0));
    }
    return 0;
}

static int add_kernel(struct rf_recording *r, const struct rf_kernel *kernel)
{
    const struct rf_kernel **known = r->kernels.items;
    for (size_t i = 0; i < r->kernels.count; i++)
        if (known[i] == kernel)
            return 0;
    return kernel ? append(&r->kernels, &kernel, sizeof(kernel)) : 0;
}

static uint32_t hash_command(const struct rf_command *c)
{
    const uint64_t head[] = {(uintptr_t)c->kernel, c->groups[0],  c->groups[1], c->groups[2],
                             c->range_count,       c->view_count, c->word};
    uint32_t h = rf_hash32(head, sizeof(head), c->push_bytes);
    if (c->push_bytes)
        h = rf_hash32(c->push, c->push_bytes, h);
    for (uint32_t i = 0; i < c->range_count; i++) {
        const struct rf_range *range = &c->ranges[i];
        const uint64_t words[] = {range->address, range->bytes, range->write};
        h = rf_hash32(words, sizeof(words), h);
    }
    for (uint32_t i = 0; i < c->view_count; i++) {
        const struct rf_view *view = &c->views[i];
        const uint64_t words[] = {view->buffer->address, view->offset, view->bytes,
                                  view->components};
        h = rf_hash32(words, sizeof(words), h);
    }
    return h;
}

int rf_recording_note(struct rf_recording *r, const struct rf_command *c)
{
    struct mark mark = {.hash = hash_command(c)};
    snprintf(mark.name, sizeof(mark.name), "%s", c->name);
    RETURN_IF_ERROR(append(&r->marks, &mark, sizeof(mark)));
    RETURN_IF_ERROR(add_kernel(r, c->kernel));
    for (uint32_t i = 0; i < c->range_count; i++)
        RETURN_IF_ERROR(add_span(r, c->ranges[i].address, c->ranges[i].bytes));
    return c->range_count ? 0 : add_guesses(r, c);
}

static int by_first(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorted, and those that overlap made one: few are left, since tensors share buffers. */
static void join_spans(struct list *list)
{
    struct span *spans = list->items;
    size_t kept = 0;
    if (list->count == 0)
        return;
    qsort(spans, list->count, sizeof(*spans), by_first);
    for (size_t i = 1; i < list->count; i++) {
        if (spans[i].first <= spans[kept].last)
            spans[kept].last = spans[i].last > spans[kept].last ? spans[i].last : spans[kept].last;
        else
            spans[++kept] = spans[i];
    }
    list->count = kept + 1;
}

/* ---- making, replaying, ending --------------------------------------------------------------- */

static void free_recording(struct rf_recording *r)
{
    struct rf_device *device = r->stream->device;
    pthread_mutex_lock(&device->memory_lock);
    for (struct rf_recording **link = &device->recordings; *link; link = &(*link)->up)
        if (*link == r) {
            *link = r->up;
            break;
        }
    pthread_mutex_unlock(&device->memory_lock);
    rf_submission_destroy(r->kept);
    rf_free(r->marks.items);
    rf_free(r->spans.items);
    rf_free(r->kernels.items);
    rf_free(r);
}

int rf_record_begin(struct rf_stream *stream)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "rf_record_begin without a stream");
    if (stream->keeping)
        return rf_fail(RF_EINVAL,
                       "stream %s is being recorded already; rf_record_end comes before another "
                       "rf_record_begin",
                       stream->name);
    if (stream->device->ranges)
        return rf_fail(RF_ENOTSUP,
                       "stream %s: with RF_CHECK_RANGES nothing is recorded to be replayed; launch "
                       "it each time",
                       stream->name);
    if (stream->device->counting)
        return rf_fail(RF_ENOTSUP,
                       "stream %s: a device that counts keeps no commands; launch them each time",
                       stream->name);
    if (stream->recording) /* what it waits for is for what is replayed next */
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    struct rf_recording *r = rf_alloc(sizeof(*r));
    if (!r)
        return rf_fail(RF_ENOMEM, "no memory for a recording");
    r->stream = stream;
    int rc = rf_submission_create(stream, &r->kept);
    if (rc < 0) {
        rf_free(r);
        return rc;
    }
    stream->keeping = r;
    return 0;
}

struct rf_submission *rf_recording_submission(const struct rf_recording *recording)
{
    return recording->kept;
}

int rf_record_end(struct rf_stream *stream, struct rf_recording **out)
{
    if (!stream || !stream->keeping) {
        if (!out)
            return 0; /* nothing to give up */
        return rf_fail(RF_EINVAL, "rf_record_end without rf_record_begin");
    }
    struct rf_recording *r = stream->keeping;
    struct rf_device *device = stream->device;
    int rc = 0;
    r->empty = stream->recording == NULL;
    if (stream->recording)
        rc = rf_stream_end(stream);
    stream->keeping = NULL;
    if (rc < 0 || !out) {
        free_recording(r);
        return out ? rc : 0;
    }
    join_spans(&r->spans);
    pthread_mutex_lock(&device->memory_lock);
    r->up = device->recordings;
    device->recordings = r;
    pthread_mutex_unlock(&device->memory_lock);
    *out = r;
    return 0;
}

bool rf_recording_valid(const struct rf_recording *recording)
{
    return recording && atomic_load(&recording->stale) == VALID;
}

int rf_record_replay(struct rf_stream *stream, struct rf_recording *r)
{
    if (!stream || !r || r->stream != stream)
        return rf_fail(RF_EINVAL, "rf_record_replay needs a recording and the stream it was "
                                  "recorded on");
    if (!rf_recording_valid(r))
        return rf_fail(RF_EINVAL,
                       "stream %s: a %s that the recording uses has been destroyed; record again",
                       stream->name, atomic_load(&r->stale) == NO_KERNEL ? "kernel" : "buffer");
    if (stream->recording || stream->keeping)
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    if (r->empty)
        return 0;
    /* With profile it may block: timestamps are read before the next run overwrites them. */
    if (r->kept->regions.queries && r->last)
        RETURN_IF_ERROR(rf_stream_wait(stream));
    RETURN_IF_ERROR(rf_stream_send_again(stream, r));
    r->last = stream->value;
    return 0;
}

void rf_recording_destroy(struct rf_recording *r)
{
    if (!r)
        return;
    if (r->last)
        rf_stream_finish(r->stream, r->last);
    free_recording(r);
}

bool rf_recording_same(const struct rf_recording *a, const struct rf_recording *b, char *why,
                       size_t size)
{
    const struct mark *x = a->marks.items, *y = b->marks.items;
    size_t least = a->marks.count < b->marks.count ? a->marks.count : b->marks.count;
    for (size_t i = 0; i < least; i++)
        if (x[i].hash != y[i].hash) {
            snprintf(why, size, "command %zu was %s and is %s now, or its arguments differ", i,
                     x[i].name, y[i].name);
            return false;
        }
    snprintf(why, size, "there were %zu commands and are %zu now", a->marks.count, b->marks.count);
    return a->marks.count == b->marks.count;
}

/* ---- what is gone ---------------------------------------------------------------------------- */

static bool uses_span(const struct rf_recording *r, uint64_t first, uint64_t last)
{
    const struct span *spans = r->spans.items;
    for (size_t i = 0; i < r->spans.count && spans[i].first <= last; i++)
        if (spans[i].last >= first)
            return true;
    return false;
}

void rf_recordings_lose_buffer(struct rf_device *device, const struct rf_buffer *buffer)
{
    if (!buffer->address) /* half-built */
        return;
    pthread_mutex_lock(&device->memory_lock);
    for (struct rf_recording *r = device->recordings; r; r = r->up)
        if (uses_span(r, buffer->address, buffer->address + (buffer->bytes - 1)))
            atomic_store(&r->stale, NO_BUFFER);
    pthread_mutex_unlock(&device->memory_lock);
}

void rf_recordings_lose_kernel(struct rf_device *device, const struct rf_kernel *kernel)
{
    pthread_mutex_lock(&device->memory_lock);
    for (struct rf_recording *r = device->recordings; r; r = r->up) {
        const struct rf_kernel **kernels = r->kernels.items;
        for (size_t i = 0; i < r->kernels.count; i++)
            if (kernels[i] == kernel)
                atomic_store(&r->stale, NO_KERNEL);
    }
    pthread_mutex_unlock(&device->memory_lock);
}
