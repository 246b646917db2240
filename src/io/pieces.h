/* SPDX-License-Identifier: MIT
 *
 * A file that several ranks write at once, each its own ranges, and the hashes of these ranges (the
 * pieces), by which every byte of the file is verified later. Used by checkpoint.c and train/.
 * Knows nothing of what is in the file.
 */
#ifndef RF_IO_PIECES_H
#define RF_IO_PIECES_H

#include "file.h"

#define RF_PIECE_HASH_BYTES crypto_hash_sha256_BYTES

struct rf_piece {
    uint64_t begin, end; /* bytes of the file */
    uint8_t hash[RF_PIECE_HASH_BYTES];
};
struct rf_pieces { /* zero: none */
    struct rf_piece *list;
    size_t count, room;
};
RF_MUST_CHECK int rf_pieces_add(struct rf_pieces *pieces, const struct rf_piece *more,
                                size_t count);
void rf_pieces_free(struct rf_pieces *pieces);
/* Sorts. RF_EINVAL: they do not cover [0, bytes) of `path`, each byte once. */
RF_MUST_CHECK int rf_pieces_check(struct rf_pieces *pieces, const char *path, uint64_t bytes);
/* The file of their hashes: for each piece, in order, where it ends (8 bytes, little-endian) and
 * its SHA-256. hex receives that file's SHA-256. */
RF_MUST_CHECK int rf_pieces_write(const struct rf_pieces *pieces, const char *path, char hex[65]);
/* Reads that file, of which `hex` is the SHA-256, for a file of `bytes` bytes; free *out.
 * RF_ECORRUPT names it. */
RF_MUST_CHECK int rf_pieces_read(const char *path, const char *hex, uint64_t bytes,
                                 struct rf_pieces *out);
/* Reads a piece of the open file `path` in parts of `room` bytes. RF_ECORRUPT: it is not what was
 * hashed. */
RF_MUST_CHECK int rf_piece_verify(const struct rf_piece *piece, int fd, const char *path,
                                  uint8_t *buffer, size_t room);

struct rf_shared_file {
    int fd; /* -1: not open */
    char path[4096];
    uint64_t bytes;
    struct rf_pieces pieces; /* what was put from here */
};
/* A new file of this size; what had its name is unlinked. Where the file system can reserve space,
 * a full disk is RF_EIO here. */
RF_MUST_CHECK int rf_shared_create(struct rf_shared_file *file, const char *path, uint64_t bytes);
/* The same file, on another rank, after it has been created. */
RF_MUST_CHECK int rf_shared_open(struct rf_shared_file *file, const char *path, uint64_t bytes);
/* Hashes and writes one piece. */
RF_MUST_CHECK int rf_shared_put(struct rf_shared_file *file, uint64_t at, const void *data,
                                size_t bytes);
RF_MUST_CHECK int rf_shared_sync(struct rf_shared_file *file); /* and closes; pieces stay */
void rf_shared_close(struct rf_shared_file *file); /* what is not open is allowed; frees */

#endif
