/* SPDX-License-Identifier: MIT
 *
 * RF_CHECK_RANGES: whether launches keep to the ranges that they declare, from which barriers are
 * derived. Called by commands.c, which in this mode runs each command by itself. What is declared
 * as written may be read, too, and written in part; so a launch keeps to its ranges if it leaves
 * all bytes outside of those written as they were, and leaves the same bytes in those whatever
 * memory outside of its ranges holds. It is run as it is, then from the same memory with zeros
 * outside of its ranges (as indices they stay within buffers), then with NaNs. Memory that others
 * write meanwhile, as a collective does, is taken for the launch's doing.
 */
#include "check_ranges.h"

/* Of every second byte: a NaN as f32, f16 and bf16. */
static const uint8_t patterns[][2] = {{0, 0}, {0xc0, 0xff}};

/* ---- the device's memory --------------------------------------------------------------------- */

int rf_ranges_open(struct rf_device *device)
{
    long mode = 0;
    RETURN_IF_ERROR(rf_env_int("RF_CHECK_RANGES", 0, &mode));
    if (mode == 0)
        return 0;
    if (!device->info.host_visible)
        return rf_fail(RF_ENOTSUP,
                       "RF_CHECK_RANGES needs device memory that the host can map, and that of %s "
                       "is not; choose a CPU device or unset it",
                       device->info.name);
    struct rf_ranges *r = rf_alloc(sizeof(*r));
    if (!r)
        return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
    pthread_mutex_init(&r->lock, NULL);
    device->ranges = r;
    return 0;
}

void rf_ranges_close(struct rf_device *device)
{
    struct rf_ranges *r = device->ranges;
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    rf_free(r->images);
    rf_free(r->trials);
    rf_free(r);
    device->ranges = NULL;
}

bool rf_device_checks_ranges(const struct rf_device *device)
{
    return device->ranges != NULL;
}

static int add_image(struct rf_ranges *r, const struct rf_buffer *buffer)
{
    if (r->count == r->capacity) {
        const size_t capacity = r->capacity ? 2 * r->capacity : 16;
        void *moved = rf_realloc(r->images, capacity * sizeof(*r->images));
        if (!moved)
            return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
        r->images = moved;
        r->capacity = capacity;
    }
    uint8_t *copies = rf_alloc(3 * buffer->bytes);
    if (!copies)
        return rf_fail(RF_ENOMEM, "RF_CHECK_RANGES: no memory for three copies of %llu bytes",
                       (unsigned long long)buffer->bytes);
    r->images[r->count++] = (struct image){
        buffer, {copies, copies + buffer->bytes, copies + 2 * buffer->bytes, buffer->map}};
    return 0;
}

int rf_ranges_add_buffer(const struct rf_buffer *buffer)
{
    struct rf_ranges *r = buffer->device->ranges;
    if (!r)
        return 0;
    pthread_mutex_lock(&r->lock);
    int rc = add_image(r, buffer);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void rf_ranges_remove_buffer(const struct rf_buffer *buffer)
{
    struct rf_ranges *r = buffer->device->ranges;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count; i++)
        if (r->images[i].buffer == buffer) {
            rf_free(r->images[i].copy[BEFORE]);
            r->images[i] = r->images[--r->count];
            break;
        }
    pthread_mutex_unlock(&r->lock);
}

static void copy_all(struct rf_ranges *r, enum copy to, enum copy from)
{
    for (size_t i = 0; i < r->count; i++)
        memcpy(r->images[i].copy[to], r->images[i].copy[from], r->images[i].buffer->bytes);
}

/* ---- which bytes are declared ---------------------------------------------------------------- */

static int by_first(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static void cover(struct cover *c, const struct rf_range *ranges, uint32_t count, bool written)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].bytes > 0 && (ranges[i].write || !written))
            c->spans[n++] = (struct span){ranges[i].address, ranges[i].address + ranges[i].bytes};
    qsort(c->spans, n, sizeof(*c->spans), by_first);
    c->count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct span *last = c->count ? &c->spans[c->count - 1] : NULL;
        if (!last || c->spans[i].first > last->end)
            c->spans[c->count++] = c->spans[i];
        else if (c->spans[i].end > last->end)
            last->end = c->spans[i].end;
    }
}

int rf_ranges_declare(struct declared *d, const struct rf_range *ranges, uint32_t count)
{
    struct span *spans = rf_alloc(2 * (size_t)count * sizeof(*spans));
    if (!spans)
        return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
    *d = (struct declared){.touched.spans = spans, .written.spans = spans + count};
    cover(&d->touched, ranges, count, false);
    cover(&d->written, ranges, count, true);
    return 0;
}

void rf_ranges_undeclare(struct declared *d)
{
    rf_free(d->touched.spans);
}

/* The next piece of the buffer, from piece->end on, that the spans have, or leave out; its offsets.
 * False: there is none. */
static bool next_piece(const struct cover *c, bool inside, const struct rf_buffer *buffer,
                       struct span *piece)
{
    uint64_t at = buffer->address + piece->end, end = buffer->address + buffer->bytes;
    for (uint32_t i = 0; i <= c->count && at < end; i++) {
        /* Before each span there is a gap; the last one reaches the end of all. */
        const struct span gap = {i ? c->spans[i - 1].end : 0,
                                 i < c->count ? c->spans[i].first : UINT64_MAX};
        const struct span span = i < c->count ? c->spans[i] : (struct span){end, end};
        const struct span *s = inside ? &span : &gap;
        const uint64_t first = s->first > at ? s->first : at, last = s->end < end ? s->end : end;
        if (first < last) {
            *piece = (struct span){first - buffer->address, last - buffer->address};
            return true;
        }
    }
    return false;
}

/* Whether two copies differ inside or outside of the spans, and where first. */
static bool differ(const struct rf_ranges *r, const struct cover *c, bool inside, enum copy a,
                   enum copy b, struct finding *f)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct image *image = &r->images[i];
        const uint8_t *x = image->copy[a], *y = image->copy[b];
        struct span piece = {0, 0};
        while (next_piece(c, inside, image->buffer, &piece)) {
            if (memcmp(x + piece.first, y + piece.first, piece.end - piece.first) == 0)
                continue;
            f->image = image;
            for (f->offset = piece.first; x[f->offset] == y[f->offset];)
                f->offset++;
            return true;
        }
    }
    return false;
}

/* ---- one launch ------------------------------------------------------------------------------ */

static int run(struct rf_stream *stream, const struct rf_command *command)
{
    RETURN_IF_ERROR(rf_stream_record(stream, command));
    return rf_stream_wait(stream);
}

/* From what was before, with a pattern in those of the first `limit` bytes that are not declared.
 */
static int run_filled(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                      const uint8_t pattern[2], uint64_t limit)
{
    copy_all(r, FILLED, BEFORE);
    for (size_t i = 0; i < r->count; i++) {
        const struct image *image = &r->images[i];
        struct span piece = {0, 0};
        while (next_piece(&d->touched, false, image->buffer, &piece))
            for (uint64_t k = piece.first; k < piece.end && k < limit; k++)
                image->copy[FILLED][k] = pattern[k % 2];
        limit -= limit < image->buffer->bytes ? limit : image->buffer->bytes;
    }
    copy_all(r, NOW, FILLED);
    return run(a->stream, a->command);
}

int rf_ranges_judge(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                    struct finding *f)
{
    *f = (struct finding){.what = KEPT};
    if (differ(r, &d->written, false, BEFORE, AFTER, f)) {
        f->what = WROTE;
        return 0;
    }
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        RETURN_IF_ERROR(run_filled(r, a, d, patterns[i], UINT64_MAX));
        f->pattern = patterns[i];
        if (differ(r, &d->written, false, FILLED, NOW, f))
            f->what = WROTE;
        else if (differ(r, &d->written, true, AFTER, NOW, f))
            f->what = READ;
        if (f->what != KEPT)
            return 0;
    }
    return 0;
}

/* Of the bytes that were filled one whose pattern makes the difference. */
static int find_read(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                     struct finding *f)
{
    uint64_t same = 0, other = 0; /* filled up to there the result is the same, or another one */
    for (size_t i = 0; i < r->count; i++)
        other += r->images[i].buffer->bytes;
    while (other - same > 1) {
        const uint64_t limit = same + (other - same) / 2;
        RETURN_IF_ERROR(run_filled(r, a, d, f->pattern, limit));
        if (differ(r, &d->written, true, AFTER, NOW, f))
            other = limit;
        else
            same = limit;
    }
    f->image = r->images;
    for (f->offset = same; f->offset >= f->image->buffer->bytes; f->image++)
        f->offset -= f->image->buffer->bytes;
    return 0;
}

/* The range that is nearest to an address, in words. */
static void describe_nearest(const struct rf_command *c, uint64_t address, char *out, size_t size)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < c->range_count; i++) {
        const struct rf_range *range = &c->ranges[i];
        const bool above = address >= range->address;
        const uint64_t into = above ? address - range->address : range->address - address;
        const bool in = above && into < range->bytes;
        const uint64_t away = in ? 0 : above ? into - range->bytes + 1 : into;
        if (away >= best)
            continue;
        best = away;
        snprintf(out, size, "%u of %u (%llu bytes, %s), which %s %llu bytes %s", i, c->range_count,
                 (unsigned long long)range->bytes, range->write ? "written" : "read",
                 in      ? "begins"
                 : above ? "ends"
                         : "begins",
                 (unsigned long long)(in ? into : away), in || above ? "before" : "after");
    }
}

static int fail(const struct attempt *a, const struct finding *f)
{
    const struct rf_buffer *buffer = f->image->buffer;
    char nearest[128] = "";
    describe_nearest(a->command, buffer->address + f->offset, nearest, sizeof(nearest));
    return rf_fail(RF_EDEVICE,
                   "stream %s: %s %s byte %llu of a buffer of %llu bytes (%s), which none of its "
                   "%sranges has; declare it: the nearest is range %s it",
                   a->stream->name, a->command->name, f->what == WROTE ? "writes" : "reads",
                   (unsigned long long)f->offset, (unsigned long long)buffer->bytes,
                   rf_category_name(buffer->category), f->what == WROTE ? "written " : "", nearest);
}

static int check(struct rf_ranges *r, const struct attempt *a, const struct declared *d)
{
    struct finding found;
    copy_all(r, BEFORE, NOW);
    RETURN_IF_ERROR(run(a->stream, a->command));
    copy_all(r, AFTER, NOW);
    int rc = rf_ranges_judge(r, a, d, &found);
    if (rc == 0 && found.what == READ)
        rc = find_read(r, a, d, &found);
    if (rc == 0 && found.what != KEPT)
        rc = fail(a, &found);
    if (rc == 0 && r->tries)
        rc = rf_ranges_try(r, a, d);
    copy_all(r, NOW, AFTER);
    return rc;
}

int rf_ranges_run(struct rf_stream *stream, const struct rf_command *command)
{
    struct rf_ranges *r = stream->device->ranges;
    const struct attempt attempt = {stream, command};
    struct declared declared;
    /* What the stream waits for may need the device: not with the lock held. */
    RETURN_IF_ERROR(rf_stream_wait(stream));
    pthread_mutex_lock(&r->lock);
    int rc = 0;
    if (command->kernel && command->range_count > 0) {
        rc = rf_ranges_declare(&declared, command->ranges, command->range_count);
        if (rc == 0) {
            rc = check(r, &attempt, &declared);
            rf_ranges_undeclare(&declared);
        }
    } else { /* a copy or fill is what it says; a launch without ranges may touch everything */
        rc = run(stream, command);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}
