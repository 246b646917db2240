/* SPDX-License-Identifier: MIT
 *
 * safetensors files. An input that begins with '{' is a header up to its first newline and the
 * tensors' bytes after it, and gets the right length in front; any other is a whole file.
 */
#define _GNU_SOURCE /* memfd_create */
#include <sys/mman.h>

#include "fuzz.h"
#include "io/safetensors.h"

static void read_all(struct rf_safetensors *file, size_t size)
{
    const char *key = rf_safetensors_note(file, "format");
    REQUIRE(!key || strlen(key) <= size);
    for (int i = 0; i < rf_safetensors_count(file); i++) {
        const struct rf_file_tensor *tensor = rf_safetensors_tensor(file, i);
        const int64_t count = rf_shape_count(tensor->shape);
        const uint64_t bytes = (uint64_t)count * rf_dtype_bytes(tensor->dtype);
        REQUIRE(count >= 0 && bytes <= size); /* it lies within the file */
        REQUIRE(rf_safetensors_find(file, tensor->name) == i);
        void *data = malloc(bytes + 1);
        REQUIRE(rf_safetensors_read(file, i, 0, data, bytes) == 0);
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    uint8_t prefix[8] = {0};
    size_t front = 0;
    struct rf_safetensors *file = NULL;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0);
    if (size > 0 && data[0] == '{') {
        const uint8_t *line = memchr(data, '\n', size);
        const size_t length = line ? (size_t)(line - data) : size;
        for (int i = 0; i < 8; i++)
            prefix[i] = (uint8_t)((uint64_t)length >> (8 * i));
        REQUIRE(pwrite(fd, prefix, 8, 0) == 8);
        REQUIRE(pwrite(fd, data, length, 8) == (ssize_t)length);
        front = 8 + length;
        data += length + (line != NULL);
        size -= length + (line != NULL);
    }
    REQUIRE(pwrite(fd, data, size, (off_t)front) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (rf_safetensors_open(path, size % 2 == 0, &file) == 0)
        read_all(file, front + size);
    rf_safetensors_close(file);
    return 0;
}
