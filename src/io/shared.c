/* SPDX-License-Identifier: MIT
 *
 * One file written by several ranks, each in its own ranges; see pieces.h.
 */
#define _GNU_SOURCE /* fallocate */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"
#include "pieces.h"

static int start(struct rf_shared_file *file, const char *path, uint64_t bytes)
{
    memset(file, 0, sizeof(*file));
    file->fd = -1;
    file->bytes = bytes;
    if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int)sizeof(file->path))
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", path);
    return 0;
}

/* Sets the file's size, and reserves the space if the file system supports it. */
static int give_size(int fd, uint64_t bytes)
{
    int failed;
    do
        failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed < 0 && errno == EINTR);
    if (failed < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
        failed = ftruncate(fd, (off_t)bytes);
    return failed;
}

int rf_shared_create(struct rf_shared_file *file, const char *path, uint64_t bytes)
{
    RETURN_IF_ERROR(start(file, path, bytes));
    unlink(path); /* left by an interrupted save, or by another program */
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file->fd < 0)
        return rf_fail(RF_EIO, "cannot create %s: %s", path, strerror(errno));
    if (give_size(file->fd, bytes) < 0)
        return rf_fail(RF_EIO, "cannot write %s: %s (%llu bytes)", path, strerror(errno),
                       (unsigned long long)bytes);
    return 0;
}

int rf_shared_open(struct rf_shared_file *file, const char *path, uint64_t bytes)
{
    struct stat about;
    RETURN_IF_ERROR(start(file, path, bytes));
    file->fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file->fd < 0)
        return rf_fail(RF_EIO, "cannot open %s, which rank 0 has created: %s", path,
                       strerror(errno));
    if (fstat(file->fd, &about) < 0 || !S_ISREG(about.st_mode) || (uint64_t)about.st_size != bytes)
        return rf_fail(RF_EIO, "%s is not the file of %llu bytes that rank 0 has created", path,
                       (unsigned long long)bytes);
    return 0;
}

static int write_range(const struct rf_shared_file *file, uint64_t at, const uint8_t *from,
                       uint64_t bytes)
{
    for (const uint64_t end = at + bytes; at < end;) {
        ssize_t n = pwrite(file->fd, from, (size_t)(end - at), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return rf_fail(RF_EIO, "cannot write %s: %s", file->path,
                           n < 0 ? strerror(errno) : "no space");
        at += (uint64_t)n;
        from += n;
    }
    return 0;
}

int rf_shared_put_runs(struct rf_shared_file *file, const struct rf_piece *where, const void *data,
                       size_t stride)
{
    crypto_hash_sha256_state hash;
    struct rf_piece piece = *where;
    if (!rf_piece_fits(&piece, file->bytes))
        return rf_fail(RF_EINVAL,
                       "%s has %llu bytes; %llu times %llu, %llu apart, do not fit at %llu",
                       file->path, (unsigned long long)file->bytes, (unsigned long long)piece.runs,
                       (unsigned long long)piece.run, (unsigned long long)piece.step,
                       (unsigned long long)piece.begin);
    crypto_hash_sha256_init(&hash);
    for (uint64_t i = 0; i < piece.runs; i++) {
        const uint8_t *from = (const uint8_t *)data + i * stride;
        crypto_hash_sha256_update(&hash, from, piece.run);
        RETURN_IF_ERROR(write_range(file, piece.begin + i * piece.step, from, piece.run));
    }
    crypto_hash_sha256_final(&hash, piece.hash);
    return rf_pieces_add(&file->pieces, &piece, 1);
}

int rf_shared_put(struct rf_shared_file *file, uint64_t at, const void *data, size_t bytes)
{
    const struct rf_piece where = {.begin = at, .run = bytes, .runs = 1};
    return bytes ? rf_shared_put_runs(file, &where, data, 0) : 0;
}

int rf_shared_sync(struct rf_shared_file *file)
{
    int fd = file->fd;
    if (fsync(fd) < 0)
        return rf_fail(RF_EIO, "cannot write %s: %s", file->path, strerror(errno));
    file->fd = -1;
    if (close(fd) < 0)
        return rf_fail(RF_EIO, "cannot write %s: %s", file->path, strerror(errno));
    return 0;
}

void rf_shared_close(struct rf_shared_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    rf_pieces_free(&file->pieces);
}
