/* SPDX-License-Identifier: MIT
 *
 * A file that several ranks write at once, each its own ranges, and the hashes of these ranges (the
 * pieces), by which every byte of the file is verified later. A piece is one range, or many of one
 * length at equal distances, as the columns of a matrix have that one rank writes. Used by
 * checkpoint.c and train/. Knows nothing of what is in the file.
 */
#ifndef RF_IO_PIECES_H
#define RF_IO_PIECES_H

#include "file.h"

#define RF_PIECE_HASH_BYTES crypto_hash_sha256_BYTES

struct rf_piece {
    uint64_t begin, run; /* `run` bytes of the file, from byte `begin` on, */
    uint64_t runs, step; /* `runs` times, `step` bytes from one to the next; once: 1 and 0 */
    uint8_t hash[RF_PIECE_HASH_BYTES]; /* of all of them, one after the other */
};
/* Where the last of its bytes ends. */
static inline uint64_t rf_piece_end(const struct rf_piece *piece)
{
    return piece->begin + (piece->runs - 1) * piece->step + piece->run;
}
struct rf_pieces { /* zero: none */
    struct rf_piece *list;
    size_t count, capacity;
};
RF_MUST_CHECK int rf_pieces_add(struct rf_pieces *pieces, const struct rf_piece *more,
                                size_t count);
void rf_pieces_free(struct rf_pieces *pieces);
/* Whether it is a piece of a file of `bytes` bytes, of at least one. */
bool rf_piece_fits(const struct rf_piece *piece, uint64_t bytes);
/* Sorts. RF_EINVAL: they do not cover [0, bytes) of `path`, each byte once. */
RF_MUST_CHECK int rf_pieces_check(struct rf_pieces *pieces, const char *path, uint64_t bytes);
/* The file of their hashes: for each piece, in order, begin, run, runs and step (8 bytes each,
 * little-endian) and its SHA-256. hex receives that file's SHA-256. */
RF_MUST_CHECK int rf_pieces_write(const struct rf_pieces *pieces, const char *path, char hex[65]);
/* Reads that file, of which `hex` is the SHA-256, for a file of `bytes` bytes; free *out. With
 * `ends` it is of format 3 of checkpoints: for each piece where it ends (8 bytes), and its SHA-256.
 * RF_ECORRUPT names it. */
RF_MUST_CHECK int rf_pieces_read(const char *path, const char *hex, uint64_t bytes, bool ends,
                                 struct rf_pieces *out);

/* ---- pieces_groups.c: sorted pieces that fit ------------------------------------------------- */

/* A group begins where no piece before it goes on: one piece, or pieces that lie between each
 * other. How many pieces the one has that begins with piece `first`. */
size_t rf_pieces_group(const struct rf_pieces *pieces, size_t first);
/* How many bytes from 0 on are covered, each once; at a fault: those before its group. Takes
 * n log n for n pieces, whatever their runs are. */
RF_MUST_CHECK int rf_pieces_covered(const struct rf_pieces *pieces, uint64_t *out);
struct rf_piece_reader { /* of an open file */
    int fd;
    const char *path;
    uint8_t *buffer; /* of `capacity` bytes */
    size_t capacity;
};
/* Reads the group of `count` pieces, once and from its begin to its end. RF_ECORRUPT: one is not
 * what was hashed. */
RF_MUST_CHECK int rf_pieces_verify(const struct rf_pieces *pieces, size_t first, size_t count,
                                   const struct rf_piece_reader *reader);

/* ---- shared.c -------------------------------------------------------------------------------- */

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
/* Hashes and writes one piece that is one range. */
RF_MUST_CHECK int rf_shared_put(struct rf_shared_file *file, uint64_t at, const void *data,
                                size_t bytes);
/* The same for any piece (its hash is not read); in `data` its runs begin every `stride` bytes. */
RF_MUST_CHECK int rf_shared_put_runs(struct rf_shared_file *file, const struct rf_piece *where,
                                     const void *data, size_t stride);
RF_MUST_CHECK int rf_shared_sync(struct rf_shared_file *file); /* and closes; pieces stay */
void rf_shared_close(struct rf_shared_file *file); /* what is not open is allowed; frees */

#endif
