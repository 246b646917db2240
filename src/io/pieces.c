/* SPDX-License-Identifier: MIT
 *
 * Lists of hashed pieces, and their files; see pieces.h.
 */
#include "pieces.h"

#include <errno.h>
#include <unistd.h>

#include "../base/base.h"

#define ROW_BYTES (8 + RF_PIECE_HASH_BYTES)
#define MAX_BYTES ((size_t)1 << 40)

int rf_pieces_add(struct rf_pieces *pieces, const struct rf_piece *more, size_t count)
{
    if (pieces->room - pieces->count < count) {
        size_t room = 2 * pieces->room > pieces->count + count ? 2 * pieces->room
                                                               : pieces->count + count + 16;
        struct rf_piece *grown = rf_realloc(pieces->list, room * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "checkpoint: out of host memory for %zu hashes", room);
        pieces->list = grown;
        pieces->room = room;
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

int rf_pieces_check(struct rf_pieces *pieces, const char *path, uint64_t bytes)
{
    uint64_t at = 0;
    if (pieces->count > 0)
        qsort(pieces->list, pieces->count, sizeof(*pieces->list), by_place);
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->list[i].begin != at)
            break;
        at = pieces->list[i].end;
        if (at == bytes && i + 1 == pieces->count)
            return 0;
    }
    return rf_fail(RF_EINVAL,
                   "%s: from byte %llu of %llu on the ranks have not written every byte once; each "
                   "element must belong to one rank",
                   path, (unsigned long long)at, (unsigned long long)bytes);
}

/* ---- the file of hashes ---------------------------------------------------------------------- */

int rf_pieces_write(const struct rf_pieces *pieces, const char *path, char hex[65])
{
    struct rf_out_file file = {.fd = -1};
    int rc = rf_out_open(&file, path);
    for (size_t i = 0; rc == 0 && i < pieces->count; i++) {
        uint8_t row[ROW_BYTES];
        for (int k = 0; k < 8; k++)
            row[k] = (uint8_t)(pieces->list[i].end >> (8 * k));
        memcpy(row + 8, pieces->list[i].hash, RF_PIECE_HASH_BYTES);
        rc = rf_out_write(&file, row, sizeof(row));
    }
    if (rc == 0)
        rc = rf_out_close(&file, hex);
    rf_out_abandon(&file);
    return rc;
}

static int take_rows(const char *path, const uint8_t *rows, size_t count, uint64_t bytes,
                     struct rf_pieces *out)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *row = rows + i * ROW_BYTES;
        struct rf_piece piece = {.begin = at};
        for (int k = 0; k < 8; k++)
            piece.end |= (uint64_t)row[k] << (8 * k);
        memcpy(piece.hash, row + 8, RF_PIECE_HASH_BYTES);
        if (piece.end <= at || piece.end > bytes)
            return rf_fail(RF_ECORRUPT, "%s: its piece %zu ends at byte %llu of %llu", path, i,
                           (unsigned long long)piece.end, (unsigned long long)bytes);
        at = piece.end;
        RETURN_IF_ERROR(rf_pieces_add(out, &piece, 1));
    }
    if (at != bytes)
        return rf_fail(RF_ECORRUPT, "%s has hashes of %llu bytes; the file has %llu", path,
                       (unsigned long long)at, (unsigned long long)bytes);
    return 0;
}

int rf_pieces_read(const char *path, const char *hex, uint64_t bytes, struct rf_pieces *out)
{
    struct rf_pieces pieces = {0};
    uint8_t digest[crypto_hash_sha256_BYTES];
    char found[65], *text = NULL;
    size_t size = 0;
    RETURN_IF_ERROR(rf_read_file(path, MAX_BYTES, &text, &size));
    crypto_hash_sha256(digest, (const uint8_t *)text, size);
    sodium_bin2hex(found, sizeof(found), digest, sizeof(digest));
    int rc = 0;
    if (strcmp(found, hex) != 0 || size % ROW_BYTES != 0)
        rc = rf_fail(RF_ECORRUPT, "%s is damaged: its SHA-256 is not the one in state.json", path);
    if (rc == 0)
        rc = take_rows(path, (const uint8_t *)text, size / ROW_BYTES, bytes, &pieces);
    rf_free(text);
    if (rc < 0)
        rf_pieces_free(&pieces);
    else
        *out = pieces;
    return rc;
}

int rf_piece_verify(const struct rf_piece *piece, int fd, const char *path, uint8_t *buffer,
                    size_t room)
{
    crypto_hash_sha256_state hash;
    uint8_t digest[RF_PIECE_HASH_BYTES];
    crypto_hash_sha256_init(&hash);
    for (uint64_t at = piece->begin; at < piece->end;) {
        const uint64_t left = piece->end - at;
        const size_t n = left < room ? (size_t)left : room;
        RETURN_IF_ERROR(rf_read_at(fd, path, at, buffer, n));
        crypto_hash_sha256_update(&hash, buffer, n);
        at += n;
    }
    crypto_hash_sha256_final(&hash, digest);
    if (memcmp(digest, piece->hash, sizeof(digest)) != 0)
        return rf_fail(RF_ECORRUPT,
                       "%s is damaged: bytes %llu to %llu do not have the SHA-256 they were saved "
                       "with",
                       path, (unsigned long long)piece->begin, (unsigned long long)piece->end - 1);
    return 0;
}
