/* SPDX-License-Identifier: MIT
 *
 * Buffers: zeroed memory with a device address. staging.c reads and writes memory that is not
 * mapped.
 */
#include "internal.h"

void rf_buffer_destroy(struct rf_buffer *buffer)
{
    if (!buffer)
        return;
    rf_recordings_lose_buffer(buffer->device, buffer);
    rf_ranges_remove_buffer(buffer);
    rf_buffer_free(buffer);
}

int rf_buffer_create(struct rf_device *device, uint64_t bytes, enum rf_memory memory,
                     enum rf_category category, struct rf_buffer **out)
{
    struct rf_buffer *buffer = NULL;
    if (!device || !out)
        return rf_fail(RF_EINVAL, "rf_buffer_create needs a device and a place for its result");
    RETURN_IF_ERROR(rf_buffer_make(device, bytes, memory, category, &buffer));
    int rc = buffer->map ? 0 : rf_staging_zero(buffer);
    if (rc == 0)
        rc = rf_ranges_add_buffer(buffer);
    if (rc < 0) {
        rf_buffer_destroy(buffer);
        return rc;
    }
    *out = buffer;
    return 0;
}

static int check_span(const struct rf_buffer *buffer, uint64_t offset, uint64_t bytes,
                      const char *what)
{
    if (!buffer)
        return rf_fail(RF_EINVAL, "%s without a buffer", what);
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return rf_fail(RF_EINVAL, "%s %llu bytes at %llu of a buffer of %llu bytes", what,
                       (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)buffer->bytes);
    return 0;
}

int rf_buffer_write(struct rf_buffer *buffer, uint64_t offset, const void *src, uint64_t bytes)
{
    RETURN_IF_ERROR(check_span(buffer, offset, bytes, "writing"));
    if (bytes == 0)
        return 0;
    if (!buffer->map)
        return rf_staging_write(buffer, offset, src, bytes);
    memcpy(buffer->map + offset, src, bytes);
    return 0;
}

int rf_buffer_read(const struct rf_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes)
{
    RETURN_IF_ERROR(check_span(buffer, offset, bytes, "reading"));
    if (bytes == 0)
        return 0;
    if (!buffer->map)
        return rf_staging_read((struct rf_buffer *)buffer, offset, dst, bytes);
    memcpy(dst, buffer->map + offset, bytes);
    return 0;
}
