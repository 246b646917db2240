/* SPDX-License-Identifier: MIT
 *
 * Judges one launch: runs it several times from the same memory, and finds bytes outside of the
 * declared ranges that it wrote or read. Called by check_ranges.c and try_ranges.c.
 */
#include "check_ranges.h"

/* Bytes at even and odd addresses: zeros, or NaNs as f32, f16 and bf16. */
static const uint8_t patterns[][2] = {{0, 0}, {0xc0, 0xff}};

void rf_ranges_copy_all(struct rf_ranges *r, enum copy to, enum copy from)
{
    for (size_t i = 0; i < r->count; i++)
        memcpy(r->images[i].copy[to], r->images[i].copy[from], r->images[i].buffer->bytes);
}

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

/* The next piece of the buffer, from piece->end on, inside or outside of the spans, as offsets.
 * False: none. */
static bool next_piece(const struct cover *c, bool inside, const struct rf_buffer *buffer,
                       struct span *piece)
{
    uint64_t at = buffer->address + piece->end, end = buffer->address + buffer->bytes;
    for (uint32_t i = 0; i <= c->count && at < end; i++) {
        /* There is a gap before each span; the last gap reaches the end. */
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

/* Whether two images differ inside or outside of the spans, and the first difference. */
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

int rf_ranges_run_command(struct rf_stream *stream, const struct rf_command *command)
{
    RETURN_IF_ERROR(rf_stream_record(stream, command));
    return rf_stream_wait(stream);
}

/* Runs from the state before, with a pattern in the undeclared bytes among the first `limit` bytes.
 */
static int run_filled(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                      const uint8_t pattern[2], uint64_t limit)
{
    rf_ranges_copy_all(r, FILLED, BEFORE);
    for (size_t i = 0; i < r->count; i++) {
        const struct image *image = &r->images[i];
        struct span piece = {0, 0};
        while (next_piece(&d->touched, false, image->buffer, &piece))
            for (uint64_t k = piece.first; k < piece.end && k < limit; k++)
                image->copy[FILLED][k] = pattern[k % 2];
        limit -= limit < image->buffer->bytes ? limit : image->buffer->bytes;
    }
    rf_ranges_copy_all(r, NOW, FILLED);
    return rf_ranges_run_command(a->stream, a->command);
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

int rf_ranges_find_read(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                        struct finding *f)
{
    uint64_t same = 0, other = 0; /* filled up to this byte, the result is the same, or differs */
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
