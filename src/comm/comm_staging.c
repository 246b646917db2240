/* SPDX-License-Identifier: MIT
 *
 * Mapped memory through which tensors travel that the host cannot reach: one buffer for each
 * device, as large as the largest call so far, kept until the communicator is closed, and a stream
 * for the copies.
 */
#include "communicator.h"

struct rf_staging {
    struct rf_staging *next;
    struct rf_device *device;
    struct rf_buffer *buffer;
    struct rf_stream *stream;
};

static int staging_of(struct rf_comm *comm, struct rf_device *device, struct rf_staging **out)
{
    for (struct rf_staging *staging = comm->staging; staging; staging = staging->next)
        if (staging->device == device) {
            *out = staging;
            return 0;
        }
    struct rf_staging *staging = rf_alloc(sizeof(*staging));
    if (!staging)
        return rf_fail(RF_ENOMEM, "no memory for staging");
    int rc = rf_stream_create(device, "staging", &staging->stream);
    if (rc < 0) {
        rf_free(staging);
        return rc;
    }
    staging->device = device;
    staging->next = comm->staging;
    comm->staging = staging;
    *out = staging;
    return 0;
}

int rf_staging_get(struct rf_comm *comm, struct rf_device *device, uint64_t bytes,
                   struct rf_buffer **buffer, struct rf_stream **stream)
{
    struct rf_staging *staging = NULL;
    RETURN_IF_ERROR(staging_of(comm, device, &staging));
    if (!staging->buffer || rf_buffer_bytes(staging->buffer) < bytes) {
        /* The old one first: both at once might not fit, and would not be what was planned. */
        rf_buffer_destroy(staging->buffer);
        staging->buffer = NULL;
        RETURN_IF_ERROR(
            rf_buffer_create(device, bytes, RF_MEMORY_HOST, RF_CATEGORY_COMM, &staging->buffer));
    }
    *buffer = staging->buffer;
    *stream = staging->stream;
    return 0;
}

void rf_staging_destroy(struct rf_staging *staging)
{
    while (staging) {
        struct rf_staging *next = staging->next;
        rf_stream_destroy(staging->stream);
        rf_buffer_destroy(staging->buffer);
        rf_free(staging);
        staging = next;
    }
}
