/* SPDX-License-Identifier: MIT
 *
 * Writes and syncs new files, and reads whole files; see file.h.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"

#define BUFFER_BYTES (64u << 10)

int rf_join_path(char out[4096], const char *folder, const char *name)
{
    int n = snprintf(out, 4096, "%s/%s", folder, name);
    if (n < 0 || n >= 4096)
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", folder);
    return 0;
}

int rf_out_open(struct rf_out_file *file, const char *path)
{
    memset(file, 0, sizeof(*file));
    file->fd = -1;
    if (snprintf(file->path, sizeof(file->path), "%s", path) >= (int)sizeof(file->path))
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", path);
    crypto_hash_sha256_init(&file->hash);
    file->buffer = rf_alloc(BUFFER_BYTES);
    if (!file->buffer)
        return rf_fail(RF_ENOMEM, "cannot write %s: out of memory", path);
    unlink(path); /* left by an interrupted save, or by another program */
    file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file->fd < 0) {
        int error = errno;
        rf_out_abandon(file);
        return rf_fail(RF_EIO, "cannot create %s: %s", path, strerror(error));
    }
    return 0;
}

static int flush(struct rf_out_file *file)
{
    size_t at = 0;
    while (at < file->used) {
        ssize_t n = write(file->fd, file->buffer + at, file->used - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return rf_fail(RF_EIO, "cannot write %s: %s", file->path,
                           n < 0 ? strerror(errno) : "no space");
        at += (size_t)n;
    }
    crypto_hash_sha256_update(&file->hash, file->buffer, file->used);
    file->used = 0;
    return 0;
}

int rf_out_write(struct rf_out_file *file, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t n = BUFFER_BYTES - file->used;
        n = n < bytes ? n : bytes;
        memcpy(file->buffer + file->used, from, n);
        file->used += n;
        from += n;
        bytes -= n;
        if (file->used == BUFFER_BYTES)
            RETURN_IF_ERROR(flush(file));
    }
    return 0;
}

int rf_out_close(struct rf_out_file *file, char hex[65])
{
    unsigned char digest[crypto_hash_sha256_BYTES];
    RETURN_IF_ERROR(flush(file));
    if (fsync(file->fd) < 0)
        return rf_fail(RF_EIO, "cannot write %s: %s", file->path, strerror(errno));
    int fd = file->fd;
    file->fd = -1;
    rf_free(file->buffer);
    file->buffer = NULL;
    if (close(fd) < 0)
        return rf_fail(RF_EIO, "cannot write %s: %s", file->path, strerror(errno));
    crypto_hash_sha256_final(&file->hash, digest);
    if (hex)
        sodium_bin2hex(hex, 65, digest, sizeof(digest));
    return 0;
}

void rf_out_abandon(struct rf_out_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    rf_free(file->buffer);
    file->buffer = NULL;
}

int rf_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return rf_fail(RF_EIO, "cannot open the folder %s: %s", path, strerror(errno));
    /* Some file systems cannot sync a folder; they have nothing to sync. */
    int rc = fsync(fd) < 0 && errno != EINVAL
                 ? rf_fail(RF_EIO, "cannot sync the folder %s: %s", path, strerror(errno))
                 : 0;
    close(fd);
    return rc;
}

int rf_read_file(const char *path, size_t limit, char **text, size_t *bytes)
{
    struct stat about;
    const char *why;
    FILE *file = rf_open_input(path, &why);
    if (!file)
        return rf_fail(RF_EIO, "cannot open %s: %s", path, why);
    char *data = NULL;
    int rc = 0;
    if (fstat(fileno(file), &about) < 0) {
        rc = rf_fail(RF_EIO, "cannot read %s: %s", path, strerror(errno));
        goto fail;
    }
    if ((uint64_t)about.st_size > limit) {
        rc = rf_fail(RF_ECORRUPT, "%s has %lld bytes; at most %zu were expected", path,
                     (long long)about.st_size, limit);
        goto fail;
    }
    data = rf_alloc((size_t)about.st_size + 1);
    if (!data) {
        rc = rf_fail(RF_ENOMEM, "cannot read %s: out of memory", path);
        goto fail;
    }
    if (fread(data, 1, (size_t)about.st_size, file) != (size_t)about.st_size) {
        rc = rf_fail(RF_EIO, "cannot read %s: it became shorter, or the disk failed", path);
        goto fail;
    }
    fclose(file);
    *text = data;
    *bytes = (size_t)about.st_size;
    return 0;

fail:
    fclose(file);
    rf_free(data);
    return rc;
}

int rf_read_at(int fd, const char *path, uint64_t at, void *dst, size_t bytes)
{
    uint8_t *to = dst;
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return rf_fail(RF_EIO, "cannot read %s: %s", path,
                           n < 0 ? strerror(errno) : "it became shorter");
        to += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}
