/* SPDX-License-Identifier: MIT
 *
 * Files that are written once, hashed while written, and synced; reading of files. Used only by
 * io/. Every message names the file and the system's error.
 */
#ifndef RF_IO_FILE_H
#define RF_IO_FILE_H

#include <ringforge/types.h>
#include <sodium.h>

struct rf_out_file {
    int fd;
    char path[4096];
    uint8_t *buffer;
    size_t used;
    crypto_hash_sha256_state hash;
};

/* Creates a file; an existing one of that name is unlinked. */
RF_MUST_CHECK int rf_out_open(struct rf_out_file *file, const char *path);
RF_MUST_CHECK int rf_out_write(struct rf_out_file *file, const void *data, size_t bytes);
/* Flushes, syncs and closes. hex (may be NULL) gets the SHA-256 of all written bytes. */
RF_MUST_CHECK int rf_out_close(struct rf_out_file *file, char hex[65]);
void rf_out_abandon(struct rf_out_file *file); /* closes without an error; may be called twice */

RF_MUST_CHECK int rf_sync_folder(const char *path);
/* Reads a whole file of at most `limit` bytes, zero-terminated; freed with rf_free. */
RF_MUST_CHECK int rf_read_file(const char *path, size_t limit, char **text, size_t *bytes);
/* Reads exactly these bytes of an open file; `path` is for messages. Does not move the file
 * position. */
RF_MUST_CHECK int rf_read_at(int fd, const char *path, uint64_t at, void *dst, size_t bytes);
/* RF_EINVAL if the joined path does not fit in 4096 bytes. */
RF_MUST_CHECK int rf_join_path(char out[4096], const char *folder, const char *name);

/* Whether a path in `dir` resolves to a file that belongs to it. It may be a link to another file
 * of the folder, or, if the folder is in a cache of huggingface_hub, to the store of its model or
 * of the cache. RF_ECORRUPT: it resolves elsewhere. RF_EIO: no such file. */
RF_MUST_CHECK int rf_check_link(const char *dir, const char *path);

#endif
