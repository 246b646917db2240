/* SPDX-License-Identifier: MIT
 *
 * Lists of hashed pieces, and their files; see pieces.h.
 */
#include "pieces.h"

#include <errno.h>
#include <unistd.h>

#include "../base/base.h"

/* Numbers in a row of the hash file, before the hash: in format 4 of checkpoints, and in format 3.
 */
enum { NUMBERS = 4, NUMBERS_3 = 1 };
#define MAX_BYTES ((size_t)1 << 40)

int rf_pieces_add(struct rf_pieces *pieces, const struct rf_piece *more, size_t count)
{
    if (pieces->capacity - pieces->count < count) {
        size_t capacity = 2 * pieces->capacity > pieces->count + count ? 2 * pieces->capacity
                                                                       : pieces->count + count + 16;
        struct rf_piece *grown = rf_realloc(pieces->list, capacity * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "checkpoint: out of host memory for %zu hashes", capacity);
        pieces->list = grown;
        pieces->capacity = capacity;
    }
    if (count > 0)
        memcpy(pieces->list + pieces->count, more, count * sizeof(*more));
    pieces->count += count;
    return 0;
}

void rf_pieces_free(struct rf_pieces *pieces)
{
    rf_free(pieces->list);
    *pieces = (struct rf_pieces){0};
}

static int by_place(const void *a, const void *b)
{
    const struct rf_piece *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

bool rf_piece_fits(const struct rf_piece *p, uint64_t bytes)
{
    if (p->run == 0 || p->runs == 0 || (p->runs == 1) != (p->step == 0))
        return false;
    if (bytes > INT64_MAX || p->begin > bytes || p->run > bytes - p->begin)
        return false;
    return p->runs == 1 || p->runs - 1 <= (bytes - p->begin - p->run) / p->step;
}

int rf_pieces_check(struct rf_pieces *pieces, const char *path, uint64_t bytes)
{
    uint64_t at = 0;
    bool fit = true;
    if (pieces->count > 0)
        qsort(pieces->list, pieces->count, sizeof(*pieces->list), by_place);
    for (size_t i = 0; i < pieces->count; i++)
        fit = fit && rf_piece_fits(&pieces->list[i], bytes);
    if (fit)
        RETURN_IF_ERROR(rf_pieces_covered(pieces, &at));
    if (at == bytes)
        return 0;
    return rf_fail(RF_EINVAL,
                   "%s: from byte %llu of %llu on the ranks have not written every byte once; each "
                   "element must belong to one rank",
                   path, (unsigned long long)at, (unsigned long long)bytes);
}

/* ---- the file of hashes ---------------------------------------------------------------------- */

static void put_number(uint8_t *out, uint64_t number)
{
    for (int k = 0; k < 8; k++)
        out[k] = (uint8_t)(number >> (8 * k));
}

static uint64_t get_number(const uint8_t *from)
{
    uint64_t number = 0;
    for (int k = 0; k < 8; k++)
        number |= (uint64_t)from[k] << (8 * k);
    return number;
}

int rf_pieces_write(const struct rf_pieces *pieces, const char *path, char hex[65])
{
    struct rf_out_file file = {.fd = -1};
    int rc = rf_out_open(&file, path);
    for (size_t i = 0; rc == 0 && i < pieces->count; i++) {
        const struct rf_piece *piece = &pieces->list[i];
        uint8_t row[8 * NUMBERS + RF_PIECE_HASH_BYTES];
        put_number(row, piece->begin);
        put_number(row + 8, piece->run);
        put_number(row + 16, piece->runs);
        put_number(row + 24, piece->step);
        memcpy(row + 8 * NUMBERS, piece->hash, RF_PIECE_HASH_BYTES);
        rc = rf_out_write(&file, row, sizeof(row));
    }
    if (rc == 0)
        rc = rf_out_close(&file, hex);
    rf_out_abandon(&file);
    return rc;
}

/* The piece of a row. With ends only, it begins at byte `at`, the end of the previous piece. */
static struct rf_piece piece_of(const uint8_t *row, bool ends, uint64_t at)
{
    struct rf_piece piece = {.begin = at, .run = get_number(row) - at, .runs = 1};
    if (!ends)
        piece = (struct rf_piece){.begin = get_number(row),
                                  .run = get_number(row + 8),
                                  .runs = get_number(row + 16),
                                  .step = get_number(row + 24)};
    memcpy(piece.hash, row + 8 * (ends ? NUMBERS_3 : NUMBERS), RF_PIECE_HASH_BYTES);
    return piece;
}

static int take_rows(const char *path, const uint8_t *rows, size_t count, uint64_t bytes, bool ends,
                     struct rf_pieces *out)
{
    const size_t row_bytes = 8 * (ends ? NUMBERS_3 : NUMBERS) + RF_PIECE_HASH_BYTES;
    uint64_t at = 0;
    /* Adding them one by one would allocate up to twice as much. */
    out->list = rf_alloc(count * sizeof(*out->list));
    out->capacity = out->list ? count : 0;
    for (size_t i = 0; i < count; i++) {
        const struct rf_piece piece = piece_of(rows + i * row_bytes, ends, at);
        const bool behind = i == 0 || piece.begin > out->list[i - 1].begin;
        if (!behind || !rf_piece_fits(&piece, bytes))
            return rf_fail(RF_ECORRUPT,
                           "%s: its piece %zu, %llu times %llu bytes from byte %llu on, does not "
                           "follow the previous piece in a file of %llu bytes",
                           path, i, (unsigned long long)piece.runs, (unsigned long long)piece.run,
                           (unsigned long long)piece.begin, (unsigned long long)bytes);
        at = piece.begin + piece.run;
        RETURN_IF_ERROR(rf_pieces_add(out, &piece, 1));
    }
    RETURN_IF_ERROR(rf_pieces_covered(out, &at));
    if (at != bytes)
        return rf_fail(
            RF_ECORRUPT,
            "%s does not have one hash for each byte, from byte %llu on; the file has %llu", path,
            (unsigned long long)at, (unsigned long long)bytes);
    return 0;
}

int rf_pieces_read(const char *path, const char *hex, uint64_t bytes, bool ends,
                   struct rf_pieces *out)
{
    const size_t row_bytes = 8 * (ends ? NUMBERS_3 : NUMBERS) + RF_PIECE_HASH_BYTES;
    struct rf_pieces pieces = {0};
    uint8_t digest[crypto_hash_sha256_BYTES];
    char found[65], *text = NULL;
    size_t size = 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_BYTES, &text, &size));
    crypto_hash_sha256(digest, (const uint8_t *)text, size);
    sodium_bin2hex(found, sizeof(found), digest, sizeof(digest));
    int rc = 0;
    if (strcmp(found, hex) != 0 || size % row_bytes != 0)
        rc = rf_fail(RF_ECORRUPT, "%s is damaged: its SHA-256 is not the one in state.json", path);
    if (rc == 0)
        rc = take_rows(path, (const uint8_t *)text, size / row_bytes, bytes, ends, &pieces);
    rf_free(text);
    if (rc < 0)
        rf_pieces_free(&pieces);
    else
        *out = pieces;
    return rc;
}
