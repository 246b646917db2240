/* SPDX-License-Identifier: MIT
 *
 * A file that several ranks write at once, each its own ranges, and the hashes of these ranges (the
 * pieces), by which every byte of the file is verified later. A piece is one range, or many ranges
 * of equal length at equal distances, such as the columns of a matrix that one rank writes. Used by
 * checkpoint.c and train/. Independent of the file's content.
 */
#ifndef RF_IO_PIECES_H
#define RF_IO_PIECES_H

#include "file.h"

#define RF_PIECE_HASH_BYTES crypto_hash_sha256_BYTES

struct rf_piece {
    uint64_t begin, run; /* `run` bytes of the file, from byte `begin` on, */
    uint64_t runs, step; /* `runs` times, `step` bytes from one to the next; once: 1 and 0 */
    uint8_t hash[RF_PIECE_HASH_BYTES]; /* of all runs, one after the other */
};
/* One past its last byte. */
static inline uint64_t rf_piece_end(const struct rf_piece *piece)
{
    return piece->begin + (piece->runs - 1) * piece->step + piece->run;
}
struct rf_pieces { /* zero: empty */
    struct rf_piece *list;
    size_t count, capacity;
};
RF_MUST_CHECK int rf_pieces_add(struct rf_pieces *pieces, const struct rf_piece *more,
                                size_t count);
void rf_pieces_free(struct rf_pieces *pieces);
/* Whether the piece is not empty and lies within a file of `bytes` bytes. */
bool rf_piece_fits(const struct rf_piece *piece, uint64_t bytes);
/* Sorts the pieces. RF_EINVAL if they do not cover [0, bytes) of `path`, each byte once. */
RF_MUST_CHECK int rf_pieces_check(struct rf_pieces *pieces, const char *path, uint64_t bytes);
/* Writes the hash file: for each piece, in order, begin, run, runs and step (8 bytes each,
 * little-endian) and its SHA-256. hex gets the SHA-256 of the hash file. */
RF_MUST_CHECK int rf_pieces_write(const struct rf_pieces *pieces, const char *path, char hex[65]);
/* Reads the hash file, whose SHA-256 is `hex`, of a file of `bytes` bytes; the caller frees *out.
 * ends: the hash file has format 3 of checkpoints, with the end (8 bytes) and the SHA-256 of each
 * piece. RF_ECORRUPT: the message names the file. */
RF_MUST_CHECK int rf_pieces_read(const char *path, const char *hex, uint64_t bytes, bool ends,
                                 struct rf_pieces *out);

/* ---- pieces_groups.c: sorted pieces that fit ------------------------------------------------- */

/* A group begins at a byte that no earlier piece spans. It is one piece, or several interleaved
 * ones. Returns the number of pieces in the group that begins with piece `first`. */
size_t rf_pieces_group(const struct rf_pieces *pieces, size_t first);
/* The length of the prefix that is covered exactly once; after an error, of the prefix before its
 * group. Takes n log n steps for n pieces, regardless of their runs. */
RF_MUST_CHECK int rf_pieces_covered(const struct rf_pieces *pieces, uint64_t *out);
struct rf_piece_reader { /* of an open file */
    int fd;
    const char *path;
    uint8_t *buffer; /* of `capacity` bytes */
    size_t capacity;
};
/* Reads the range of a group of `count` pieces once. RF_ECORRUPT if a hash is wrong. */
RF_MUST_CHECK int rf_pieces_verify(const struct rf_pieces *pieces, size_t first, size_t count,
                                   const struct rf_piece_reader *reader);

/* ---- shared.c -------------------------------------------------------------------------------- */

struct rf_shared_file {
    int fd; /* -1: not open */
    char path[4096];
    uint64_t bytes;
    struct rf_pieces pieces; /* the pieces written by this rank */
};
/* Creates a file of this size; an existing one of that name is unlinked. If the file system can
 * reserve space, a full disk is reported here as RF_EIO. */
RF_MUST_CHECK int rf_shared_create(struct rf_shared_file *file, const char *path, uint64_t bytes);
/* Opens that file on another rank, after it was created. */
RF_MUST_CHECK int rf_shared_open(struct rf_shared_file *file, const char *path, uint64_t bytes);
/* Hashes and writes a piece with a single range. */
RF_MUST_CHECK int rf_shared_put(struct rf_shared_file *file, uint64_t at, const void *data,
                                size_t bytes);
/* The same for any piece (its hash is ignored). In `data` its runs begin every `stride` bytes. */
RF_MUST_CHECK int rf_shared_put_runs(struct rf_shared_file *file, const struct rf_piece *where,
                                     const void *data, size_t stride);
RF_MUST_CHECK int rf_shared_sync(struct rf_shared_file *file); /* and closes; keeps the pieces */
void rf_shared_close(struct rf_shared_file *file); /* a closed file is allowed; frees the pieces */

#endif
