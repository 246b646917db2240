/* SPDX-License-Identifier: MIT
 *
 * Accesses memory that the host cannot map through two halves of a mapped staging buffer: the
 * device copies one half while the host copies the other. Called by buffer.c.
 */
#include "internal.h"

static void free_half(struct rf_buffer *half)
{
    if (!half)
        return;
    rf_ranges_remove_buffer(half);
    rf_buffer_free(half);
}

static int make_half(struct rf_device *device, struct rf_buffer **out)
{
    struct rf_buffer *half = NULL;
    RETURN_IF_ERROR(
        rf_buffer_make(device, RF_STAGING_BYTES, RF_MEMORY_HOST, RF_CATEGORY_OTHER, &half));
    int rc = rf_ranges_add_buffer(half);
    if (rc < 0) {
        free_half(half);
        return rc;
    }
    *out = half;
    return 0;
}

static int staging_ready(struct rf_device *device)
{
    struct rf_device_staging *staging = &device->staging;
    if (!staging->stream)
        RETURN_IF_ERROR(rf_stream_create(device, "staging", &staging->stream));
    for (int i = 0; i < 2; i++) {
        if (!staging->half[i])
            RETURN_IF_ERROR(make_half(device, &staging->half[i]));
    }
    return 0;
}

void rf_staging_fini(struct rf_device *device)
{
    rf_stream_destroy(device->staging.stream);
    free_half(device->staging.half[0]);
    free_half(device->staging.half[1]);
    memset(device->staging.half, 0, sizeof(device->staging.half));
    device->staging.stream = NULL;
}

static uint64_t piece(uint64_t bytes, uint64_t at)
{
    return bytes - at < RF_STAGING_BYTES ? bytes - at : RF_STAGING_BYTES;
}

static int write_locked(struct rf_buffer *buffer, uint64_t offset, const uint8_t *src,
                        uint64_t bytes)
{
    struct rf_device_staging *staging = &buffer->device->staging;
    struct rf_point busy[2] = {{NULL, 0}, {NULL, 0}};
    RETURN_IF_ERROR(staging_ready(buffer->device));
    for (uint64_t at = 0, half = 0; at < bytes; at += RF_STAGING_BYTES, half ^= 1) {
        uint64_t n = piece(bytes, at);
        RETURN_IF_ERROR(rf_point_wait(busy[half], UINT64_MAX));
        memcpy(staging->half[half]->map, src + at, n);
        RETURN_IF_ERROR(rf_stream_copy(staging->stream,
                                       (struct rf_buffer_place){buffer, offset + at},
                                       (struct rf_buffer_place){staging->half[half], 0}, n));
        RETURN_IF_ERROR(rf_stream_submit(staging->stream, &busy[half]));
    }
    return rf_stream_wait(staging->stream);
}

static int read_locked(struct rf_buffer *buffer, uint64_t offset, uint8_t *dst, uint64_t bytes)
{
    struct rf_device_staging *staging = &buffer->device->staging;
    struct rf_point ready[2];
    uint64_t pieces = (bytes + RF_STAGING_BYTES - 1) / RF_STAGING_BYTES;
    RETURN_IF_ERROR(staging_ready(buffer->device));
    /* The device copies piece i while the host copies piece i - 1. */
    for (uint64_t i = 0; i <= pieces; i++) {
        uint64_t at = i * RF_STAGING_BYTES, taken = at - RF_STAGING_BYTES, half = i & 1;
        if (i < pieces) {
            RETURN_IF_ERROR(
                rf_stream_copy(staging->stream, (struct rf_buffer_place){staging->half[half], 0},
                               (struct rf_buffer_place){buffer, offset + at}, piece(bytes, at)));
            RETURN_IF_ERROR(rf_stream_submit(staging->stream, &ready[half]));
        }
        if (i > 0) {
            RETURN_IF_ERROR(rf_point_wait(ready[half ^ 1], UINT64_MAX));
            memcpy(dst + taken, staging->half[half ^ 1]->map, piece(bytes, taken));
        }
    }
    return 0;
}

static int zero_locked(struct rf_buffer *buffer)
{
    struct rf_device_staging *staging = &buffer->device->staging;
    uint64_t words = buffer->bytes / 4 * 4, rest = buffer->bytes - words;
    const uint8_t zeros[4] = {0};
    RETURN_IF_ERROR(staging_ready(buffer->device));
    if (words)
        RETURN_IF_ERROR(rf_stream_fill(staging->stream, buffer, 0, words, 0));
    RETURN_IF_ERROR(rf_stream_wait(staging->stream));
    return rest ? write_locked(buffer, words, zeros, rest) : 0;
}

int rf_staging_write(struct rf_buffer *buffer, uint64_t offset, const void *src, uint64_t bytes)
{
    if (buffer->device->counting)
        return 0;
    pthread_mutex_lock(&buffer->device->staging.lock);
    int rc = write_locked(buffer, offset, src, bytes);
    pthread_mutex_unlock(&buffer->device->staging.lock);
    return rc;
}

int rf_staging_read(struct rf_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes)
{
    if (buffer->device->counting)
        return rf_fail(RF_ENOTSUP,
                       "reading %llu bytes of a buffer without content: its device only counts; "
                       "open another device to compute",
                       (unsigned long long)bytes);
    pthread_mutex_lock(&buffer->device->staging.lock);
    int rc = read_locked(buffer, offset, dst, bytes);
    pthread_mutex_unlock(&buffer->device->staging.lock);
    return rc;
}

int rf_staging_zero(struct rf_buffer *buffer)
{
    if (buffer->device->counting)
        return 0;
    pthread_mutex_lock(&buffer->device->staging.lock);
    int rc = zero_locked(buffer);
    pthread_mutex_unlock(&buffer->device->staging.lock);
    return rc;
}
