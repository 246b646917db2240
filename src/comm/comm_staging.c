/* SPDX-License-Identifier: MIT
 *
 * Mapped memory through which tensors travel that the host cannot reach, and the copies between the
 * two: for each device a buffer of a few slots (coll/windows.c lays them out), as large as the
 * largest call so far has needed, kept until the communicator is closed; and a stream for each
 * direction, so that fetching and storing do not wait for each other.
 */
#include "communicator.h"

struct rf_staging {
    struct rf_mover mover; /* first */
    struct rf_staging *next;
    struct rf_comm *comm;
    struct rf_device *device;
    struct rf_buffer *buffer;
    void *handle;                    /* its registration with the network */
    struct rf_stream *streams[2];    /* fetch, store */
    struct rf_timeline *timeline[2]; /* theirs */
    struct rf_tensor tensors[2];     /* in and out of the call in hand */
};

static int start(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                 uint32_t count, uint64_t *ticket)
{
    struct rf_staging *staging = (struct rf_staging *)mover;
    const struct rf_tensor *tensor = &staging->tensors[out];
    struct rf_stream *stream = staging->streams[store];
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_move *move = &moves[i];
        const uint64_t at = tensor->offset + move->tensor;
        staging->comm->staged_bytes += move->bytes;
        RETURN_IF_ERROR(store ? rf_stream_copy(stream, tensor->buffer, at, staging->buffer,
                                               move->slot, move->bytes)
                              : rf_stream_copy(stream, staging->buffer, move->slot, tensor->buffer,
                                               at, move->bytes));
    }
    struct rf_point point;
    RETURN_IF_ERROR(rf_stream_submit(stream, &point));
    staging->timeline[store] = point.timeline;
    *ticket = point.value;
    return 0;
}

static int ended(struct rf_mover *mover, bool store, uint64_t ticket)
{
    const struct rf_staging *staging = (const struct rf_staging *)mover;
    const struct rf_point point = {staging->timeline[store], ticket};
    if (!rf_point_reached(point))
        return 0;
    RETURN_IF_ERROR(rf_point_wait(point, 0)); /* a failed device has reached every point */
    return 1;
}

static void drop_buffer(struct rf_staging *staging)
{
    struct rf_transport *wire = staging->comm->wire;
    if (staging->handle)
        wire->ops->deregister_memory(wire, staging->handle);
    rf_buffer_destroy(staging->buffer);
    staging->handle = NULL;
    staging->buffer = NULL;
}

static void destroy(struct rf_staging *staging)
{
    rf_stream_destroy(staging->streams[0]);
    rf_stream_destroy(staging->streams[1]);
    drop_buffer(staging);
    rf_free(staging);
}

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
    staging->mover = (struct rf_mover){.start = start, .ended = ended};
    staging->comm = comm;
    staging->device = device;
    int rc = rf_stream_create(device, "fetch", &staging->streams[0]);
    if (rc == 0)
        rc = rf_stream_create(device, "store", &staging->streams[1]);
    if (rc < 0) {
        destroy(staging);
        return rc;
    }
    staging->next = comm->staging;
    comm->staging = staging;
    *out = staging;
    return 0;
}

static int grow(struct rf_staging *staging, uint64_t bytes)
{
    if (staging->buffer && rf_buffer_bytes(staging->buffer) >= bytes)
        return 0;
    /* The old one first: both at once might not fit, and would not be what was planned. */
    struct rf_transport *wire = staging->comm->wire;
    drop_buffer(staging);
    RETURN_IF_ERROR(rf_buffer_create(staging->device, bytes, RF_MEMORY_HOST, RF_CATEGORY_COMM,
                                     &staging->buffer));
    if (!wire->ops->register_memory)
        return 0;
    int rc =
        wire->ops->register_memory(wire, rf_buffer_map(staging->buffer), bytes, &staging->handle);
    if (rc < 0)
        drop_buffer(staging);
    return rc;
}

int rf_staging_begin(struct rf_comm *comm, struct rf_device *device, struct rf_call *call,
                     struct rf_tensor in, struct rf_tensor out)
{
    struct rf_staging *staging = NULL;
    uint64_t bytes = 0;
    const struct rf_coll_desc desc = rf_call_desc(comm, call);
    RETURN_IF_ERROR(rf_sched_staging_bytes(&desc, call->algorithm, &bytes));
    RETURN_IF_ERROR(staging_of(comm, device, &staging));
    if (bytes > 0)
        RETURN_IF_ERROR(grow(staging, bytes));
    staging->tensors[0] = in;
    staging->tensors[1] = out;
    call->mover = &staging->mover;
    if (call->staged & RF_STAGED_IN && bytes > 0)
        call->in = rf_buffer_map(staging->buffer);
    if (call->staged & RF_STAGED_OUT && bytes > 0)
        call->out = rf_buffer_map(staging->buffer);
    return 0;
}

void rf_staging_abandon(struct rf_mover *mover)
{
    struct rf_staging *staging = (struct rf_staging *)mover;
    /* What has been started still uses the tensors; it waits for no network. */
    struct rf_error error = *rf_last_error();
    for (int i = 0; i < 2; i++)
        if (rf_stream_wait(staging->streams[i]) < 0)
            rf_log("comm", 2, "staging: %s", rf_last_error()->message);
    rf_fail_error(&error);
}

void rf_staging_destroy(struct rf_staging *staging)
{
    while (staging) {
        struct rf_staging *next = staging->next;
        destroy(staging);
        staging = next;
    }
}
