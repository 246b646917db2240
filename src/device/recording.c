/* SPDX-License-Identifier: MIT
 *
 * The content of a recording: a digest of every command, to compare two recordings; and the
 * addresses and kernels that it needs, so that it is not replayed after one of them was destroyed.
 */
#include "recording.h"

static int append(struct rf_recording_list *list, const void *item, size_t bytes)
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
    struct rf_recording_span span = {address, address + (bytes - 1)};
    return bytes ? append(&r->spans, &span, sizeof(span)) : 0;
}

/* For a launch without declared ranges: every value in its push constants that may be an address
 * counts as one. */
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
    struct rf_recording_mark mark = {.hash = hash_command(c)};
    snprintf(mark.name, sizeof(mark.name), "%s", c->name);
    RETURN_IF_ERROR(append(&r->marks, &mark, sizeof(mark)));
    RETURN_IF_ERROR(add_kernel(r, c->kernel));
    for (uint32_t i = 0; i < c->range_count; i++)
        RETURN_IF_ERROR(add_span(r, c->ranges[i].address, c->ranges[i].bytes));
    return c->range_count ? 0 : add_guesses(r, c);
}

static int by_first(const void *a, const void *b)
{
    const struct rf_recording_span *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void rf_recording_join_spans(struct rf_recording_list *list)
{
    struct rf_recording_span *spans = list->items;
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

void rf_recording_free(struct rf_recording *r)
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

static bool uses_span(const struct rf_recording *r, uint64_t first, uint64_t last)
{
    const struct rf_recording_span *spans = r->spans.items;
    for (size_t i = 0; i < r->spans.count && spans[i].first <= last; i++)
        if (spans[i].last >= first)
            return true;
    return false;
}

struct rf_submission *rf_recording_submission(const struct rf_recording *recording)
{
    return recording->kept;
}

void rf_recordings_lose_buffer(struct rf_device *device, const struct rf_buffer *buffer)
{
    if (!buffer->address) /* not yet complete */
        return;
    pthread_mutex_lock(&device->memory_lock);
    for (struct rf_recording *r = device->recordings; r; r = r->up)
        if (uses_span(r, buffer->address, buffer->address + (buffer->bytes - 1)))
            atomic_store(&r->stale, RF_RECORDING_NO_BUFFER);
    pthread_mutex_unlock(&device->memory_lock);
}

void rf_recordings_lose_kernel(struct rf_device *device, const struct rf_kernel *kernel)
{
    pthread_mutex_lock(&device->memory_lock);
    for (struct rf_recording *r = device->recordings; r; r = r->up) {
        const struct rf_kernel **kernels = r->kernels.items;
        for (size_t i = 0; i < r->kernels.count; i++)
            if (kernels[i] == kernel)
                atomic_store(&r->stale, RF_RECORDING_NO_KERNEL);
    }
    pthread_mutex_unlock(&device->memory_lock);
}
