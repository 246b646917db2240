/* SPDX-License-Identifier: MIT
 *
 * Checks whether sorted pieces cover a file, and whether the file has their hashes. Both work by
 * group: columns of the same rows that several ranks wrote are interleaved, and are read together
 * in one pass. See pieces.h.
 */
#include "../base/base.h"
#include "pieces.h"

static uint64_t group_end(const struct rf_pieces *pieces, size_t first, size_t count)
{
    uint64_t end = 0;
    for (size_t i = first; i < first + count; i++) {
        const uint64_t last = rf_piece_end(&pieces->list[i]);
        end = last > end ? last : end;
    }
    return end;
}

size_t rf_pieces_group(const struct rf_pieces *pieces, size_t first)
{
    uint64_t end = rf_piece_end(&pieces->list[first]);
    size_t i = first + 1;
    for (; i < pieces->count && pieces->list[i].begin < end; i++) {
        const uint64_t last = rf_piece_end(&pieces->list[i]);
        end = last > end ? last : end;
    }
    return i - first;
}

/* ---- is every byte covered once? ------------------------------------------------------------- */

struct point {
    uint64_t at;
    int64_t sum;
};

static int by_place(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Let c(k) be how often the byte with index k is covered. Writes the points at which the function
 * c(k) - c(k - 1) - c(k - step) + c(k - step - 1) is not 0: four indices per piece, because the
 * points of its inner runs cancel. Different functions c have different points. */
static struct point *mark(struct point *out, const struct rf_piece *p, uint64_t step, int64_t sign)
{
    const uint64_t last = p->begin + p->runs * step;
    *out++ = (struct point){p->begin, sign};
    *out++ = (struct point){p->begin + p->run, -sign};
    *out++ = (struct point){last, -sign};
    *out++ = (struct point){last + p->run, sign};
    return out;
}

static bool all_zero(struct point *points, size_t count)
{
    qsort(points, count, sizeof(*points), by_place);
    for (size_t i = 0, next; i < count; i = next) {
        int64_t sum = 0;
        for (next = i; next < count && points[next].at == points[i].at; next++)
            sum += points[next].sum;
        if (sum != 0)
            return false;
    }
    return true;
}

/* Whether a group covers each byte between its begin and its end once. */
static int check_group(const struct rf_pieces *pieces, size_t first, size_t count, bool *covers)
{
    const struct rf_piece *list = pieces->list + first;
    uint64_t step = 0;
    for (size_t i = 0; i < count; i++)
        step = step ? step : list[i].step;
    *covers = step == 0 && count == 1;
    for (size_t i = 0; i < count; i++)
        if (step == 0 || (list[i].step != 0 && list[i].step != step))
            return 0; /* overlapping pieces have runs, all with the same step */
    struct point *points = rf_alloc(4 * (count + 1) * sizeof(*points)), *end = points;
    if (!points)
        return rf_fail(RF_ENOMEM, "checkpoint: out of host memory for %zu pieces", count);
    const uint64_t begin = list->begin;
    const struct rf_piece whole = {
        .begin = begin, .run = group_end(pieces, first, count) - begin, .runs = 1};
    end = mark(end, &whole, step, -1);
    for (size_t i = 0; i < count; i++)
        end = mark(end, &list[i], step, 1);
    *covers = all_zero(points, (size_t)(end - points));
    rf_free(points);
    return 0;
}

int rf_pieces_covered(const struct rf_pieces *pieces, uint64_t *out)
{
    uint64_t at = 0;
    bool covers = true;
    for (size_t i = 0, count; i < pieces->count; i += count) {
        count = rf_pieces_group(pieces, i);
        if (pieces->list[i].begin != at)
            break;
        RETURN_IF_ERROR(check_group(pieces, i, count, &covers));
        if (!covers)
            break;
        at = group_end(pieces, i, count);
    }
    *out = at;
    return 0;
}

/* ---- verifying ------------------------------------------------------------------------------- */

struct cursor { /* the next byte of a piece */
    const struct rf_piece *piece;
    uint64_t at, left, runs; /* bytes left in this run; this run and those after it */
    crypto_hash_sha256_state hash;
};

/* Only the first cursor of the heap has moved, and only forward. */
static void sift(struct cursor **heap, size_t count)
{
    for (size_t i = 0, child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1]->at < heap[child]->at)
            child++;
        if (heap[i]->at <= heap[child]->at)
            return;
        struct cursor *other = heap[i];
        heap[i] = heap[child];
        heap[child] = other;
    }
}

/* Hashes bytes [at, at + bytes) for the pieces that contain them. */
static void hash_part(struct cursor **heap, size_t *count, const uint8_t *data, uint64_t at,
                      uint64_t bytes)
{
    const uint64_t end = at + bytes;
    while (at<end && * count> 0 && heap[0]->at == at) {
        struct cursor *c = heap[0];
        const uint64_t n = c->left < end - at ? c->left : end - at;
        crypto_hash_sha256_update(&c->hash, data, n);
        data += n;
        at += n;
        c->at += n;
        c->left -= n;
        if (c->left > 0)
            continue;
        c->left = c->piece->run;
        c->at += c->piece->step - c->piece->run;
        if (--c->runs == 0)
            heap[0] = heap[--*count];
        sift(heap, *count);
    }
}

static int check_hashes(struct cursor *cursors, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        const struct rf_piece *piece = cursors[i].piece;
        uint8_t digest[RF_PIECE_HASH_BYTES];
        crypto_hash_sha256_final(&cursors[i].hash, digest);
        if (memcmp(digest, piece->hash, sizeof(digest)) != 0)
            return rf_fail(RF_ECORRUPT,
                           "%s is damaged: %sbytes %llu to %llu do not have the SHA-256 that they "
                           "were saved with",
                           path, piece->runs > 1 ? "columns in " : "",
                           (unsigned long long)piece->begin,
                           (unsigned long long)rf_piece_end(piece) - 1);
    }
    return 0;
}

/* Cursors of sorted pieces are in ascending order, which is a heap. */
static void start(const struct rf_piece *pieces, size_t count, struct cursor *cursors,
                  struct cursor **heap)
{
    for (size_t i = 0; i < count; i++) {
        cursors[i] = (struct cursor){.piece = &pieces[i],
                                     .at = pieces[i].begin,
                                     .left = pieces[i].run,
                                     .runs = pieces[i].runs};
        crypto_hash_sha256_init(&cursors[i].hash);
        heap[i] = &cursors[i];
    }
}

int rf_pieces_verify(const struct rf_pieces *pieces, size_t first, size_t count,
                     const struct rf_piece_reader *r)
{
    const uint64_t end = group_end(pieces, first, count);
    struct cursor *cursors = rf_alloc(count * sizeof(*cursors));
    struct cursor **heap = rf_alloc(count * sizeof(*heap));
    size_t left = count;
    int rc = cursors && heap ? 0 : rf_fail(RF_ENOMEM, "cannot read %s: out of memory", r->path);
    if (rc == 0)
        start(&pieces->list[first], count, cursors, heap);
    for (uint64_t at = pieces->list[first].begin, n; rc == 0 && at < end; at += n) {
        n = end - at < r->capacity ? end - at : r->capacity;
        rc = rf_read_at(r->fd, r->path, at, r->buffer, (size_t)n);
        if (rc == 0)
            hash_part(heap, &left, r->buffer, at, n);
    }
    if (rc == 0)
        rc = check_hashes(cursors, count, r->path);
    rf_free(cursors);
    rf_free(heap);
    return rc;
}
