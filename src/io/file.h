/* SPDX-License-Identifier: MIT
 *
 * Files that are written once, hashed on the way, and synced; and files read back. Used by the
 * other files of io/ only. Every message names the file and the system's reason.
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

/* A new file; what had its name is unlinked. */
RF_MUST_CHECK int rf_out_open(struct rf_out_file *file, const char *path);
RF_MUST_CHECK int rf_out_write(struct rf_out_file *file, const void *data, size_t bytes);
/* Flushes, syncs, closes; hex (may be NULL) receives the SHA-256 of all that was written. */
RF_MUST_CHECK int rf_out_close(struct rf_out_file *file, char hex[65]);
void rf_out_abandon(struct rf_out_file *file); /* closes without a word; twice is allowed */

RF_MUST_CHECK int rf_sync_folder(const char *path);
/* The whole of a file of at most `limit` bytes, zero-terminated; free with rf_free. */
RF_MUST_CHECK int rf_read_file(const char *path, size_t limit, char **text, size_t *bytes);
/* Exactly these bytes of an open file; `path` is for messages. Moves no position. */
RF_MUST_CHECK int rf_read_at(int fd, const char *path, uint64_t at, void *dst, size_t bytes);
/* RF_EINVAL when the joined path does not fit in 4096 bytes. */
RF_MUST_CHECK int rf_join_path(char out[4096], const char *folder, const char *name);

#endif
