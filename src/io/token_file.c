/* SPDX-License-Identifier: MIT
 *
 * Token files in llm.c's formats; see data.h. They are little-endian, as are the machines that this
 * library supports.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/base.h"
#include "dataset.h"
#include "file.h"

enum {
    HEADER_BYTES = 1024,
    MAGIC_16 = 20240520,
    MAGIC_32 = 20240801,
    VERSION_16 = 1,
    VERSION_32 = 7
};

/* Sets the width, and *from, where the tokens begin. Returns 1; 0: not a token file. */
static int read_header(struct rf_dataset *data, const char *path, int fd, int64_t bytes, int raw,
                       int64_t *from)
{
    int32_t header[3] = {0};
    data->width = raw;
    *from = raw ? 0 : HEADER_BYTES;
    if (!raw) {
        if (bytes < (int64_t)sizeof(header))
            return 0;
        RETURN_IF_ERROR(rf_read_at(fd, path, 0, header, sizeof(header)));
        if (header[0] != MAGIC_16 && header[0] != MAGIC_32)
            return 0;
        data->width = header[0] == MAGIC_16 ? 2 : 4;
        if (header[1] != (data->width == 2 ? VERSION_16 : VERSION_32))
            return rf_fail(RF_ENOTSUP, "data %s: version %d of this format is not known", path,
                           header[1]);
        data->count = header[2];
        if (header[2] < 0 || bytes != HEADER_BYTES + (int64_t)header[2] * data->width)
            return rf_fail(RF_ECORRUPT, "data %s: its header says %d tokens; it has %lld bytes",
                           path, header[2], (long long)bytes);
        return 1;
    }
    if (bytes % raw != 0)
        return rf_fail(RF_ECORRUPT, "data %s: %lld bytes are no whole number of tokens of %d", path,
                       (long long)bytes, raw);
    data->count = bytes / raw;
    return 1;
}

static int map_file(struct rf_dataset *data, const char *path, int fd, int raw_bytes)
{
    struct stat about;
    int64_t from = 0;
    if (fstat(fd, &about) < 0)
        return rf_fail(RF_EIO, "data %s: %s", path, strerror(errno));
    const int found = read_header(data, path, fd, about.st_size, raw_bytes, &from);
    if (found <= 0) {
        data->count = 0;
        return found;
    }
    if (data->count < 2)
        return rf_fail(RF_EINVAL, "data %s: has fewer than two tokens", path);
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return rf_fail(RF_EIO, "data %s: cannot be mapped: %s", path, strerror(errno));
    data->map = map;
    data->map_bytes = (size_t)about.st_size;
    data->tokens = (char *)map + from;
    data->files = 1;
    if (rf_dataset_highest(data) > INT32_MAX - 1)
        return rf_fail(RF_ECORRUPT, "data %s: has a token beyond 2147483646", path);
    return 1;
}

int rf_token_file_map(struct rf_dataset *data, const char *path, int raw_bytes)
{
    struct stat about;
    const char *why;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode) && raw_bytes == 0)
        return 0;
    FILE *file = rf_open_input(path, &why);
    if (!file)
        return rf_fail(RF_EIO, "cannot open %s: %s", path, why);
    const int rc = map_file(data, path, fileno(file), raw_bytes);
    fclose(file);
    return rc;
}

int64_t rf_dataset_highest(const struct rf_dataset *data)
{
    uint32_t highest = 0;
    for (int64_t i = 0; i < data->count; i++) {
        const uint32_t token = (uint32_t)rf_dataset_token(data, i);
        highest = token > highest ? token : highest;
    }
    return highest;
}

void rf_dataset_close(struct rf_dataset *data)
{
    if (!data)
        return;
    if (data->map)
        munmap(data->map, data->map_bytes);
    else
        rf_free(data->tokens);
    rf_free(data->starts);
    rf_free(data->rows);
    rf_free(data->learned);
    rf_free(data->chat);
    rf_free(data);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_tokens(const struct rf_dataset *data, struct rf_out_file *file, bool raw)
{
    enum { PIECE = 4096 };
    const bool wide = data->vocabulary > 65536;
    uint16_t narrow[PIECE];
    int32_t header[HEADER_BYTES / 4] = {wide ? MAGIC_32 : MAGIC_16, wide ? VERSION_32 : VERSION_16,
                                        (int32_t)data->count};
    if (!raw)
        RETURN_IF_ERROR(rf_out_write(file, header, sizeof(header)));
    if (wide)
        return rf_out_write(file, data->tokens, (size_t)data->count * 4);
    for (int64_t first = 0; first < data->count; first += PIECE) {
        const int64_t left = data->count - first, n = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < n; i++)
            narrow[i] = (uint16_t)rf_dataset_token(data, first + i);
        RETURN_IF_ERROR(rf_out_write(file, narrow, (size_t)n * 2));
    }
    return 0;
}

int rf_dataset_write(const struct rf_dataset *data, const char *path, bool raw)
{
    struct rf_out_file file;
    char name[4096];
    if (!data || !path)
        return rf_fail(RF_EINVAL, "data: a data set and a path are needed");
    if (data->documents)
        return rf_fail(RF_ENOTSUP,
                       "data %s: a file of tokens cannot say which of them are learned; train on "
                       "the documents themselves",
                       path);
    if (!raw && data->count > INT32_MAX)
        return rf_fail(RF_EINVAL,
                       "data %s: %lld tokens are more than the header can count; write it "
                       "raw",
                       path, (long long)data->count);
    if (snprintf(name, sizeof(name), "%s.part", path) >= (int)sizeof(name))
        return rf_fail(RF_EINVAL, "the path %.60s... is longer than 4095 bytes", path);
    RETURN_IF_ERROR(rf_out_open(&file, name));
    int rc = write_tokens(data, &file, raw);
    if (rc == 0)
        rc = rf_out_close(&file, NULL);
    if (rc == 0 && rename(name, path) < 0)
        rc = rf_fail(RF_EIO, "cannot rename %s: %s", name, strerror(errno));
    if (rc < 0) {
        rf_out_abandon(&file);
        unlink(name);
    }
    return rc;
}
