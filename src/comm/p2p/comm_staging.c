/* SPDX-License-Identifier: MIT
 *
 * Staging memory: mapped memory for tensors that the host cannot reach, and the copies between the
 * two. Each device has a buffer of the size of the largest call so far, which is kept until the
 * communicator is closed. It has a stream for each direction, so that fetching and storing do not
 * wait for each other. Sends and receives, many of which run at once, use separate slots for the
 * pieces of messages.
 */
#include "../communicator.h"
#include "../staging.h"

struct rf_slot {
    struct rf_staging_area *area;
    struct rf_buffer *buffer; /* NULL: not needed so far */
    void *handle;             /* its registration with the network */
    uint64_t ticket;          /* of the last copy */
    bool store, taken;
};

struct rf_staging_area {
    struct rf_mover mover; /* first */
    struct rf_staging_area *next;
    struct rf_comm *comm;
    struct rf_device *device;
    struct rf_buffer *buffer;
    void *handle;                      /* its registration with the network */
    struct rf_stream *streams[2];      /* fetch, store */
    struct rf_timeline *timeline[2];   /* theirs */
    struct rf_tensor tensors[2];       /* in and out of the current call */
    struct rf_slot slots[2][RF_SLOTS]; /* for sends, for receives */
};

static int start(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                 uint32_t count, uint64_t *ticket)
{
    struct rf_staging_area *area = (struct rf_staging_area *)mover;
    const struct rf_tensor *tensor = &area->tensors[out];
    struct rf_stream *stream = area->streams[store];
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_move *move = &moves[i];
        const uint64_t at = tensor->offset + move->tensor;
        area->comm->staging.copied_bytes += move->bytes;
        RETURN_IF_ERROR(
            store ? rf_stream_copy(stream, (struct rf_buffer_place){tensor->buffer, at},
                                   (struct rf_buffer_place){area->buffer, move->slot}, move->bytes)
                  : rf_stream_copy(stream, (struct rf_buffer_place){area->buffer, move->slot},
                                   (struct rf_buffer_place){tensor->buffer, at}, move->bytes));
    }
    struct rf_point point;
    RETURN_IF_ERROR(rf_stream_submit(stream, &point));
    area->timeline[store] = point.timeline;
    *ticket = point.value;
    return 0;
}

static int has_reached(const struct rf_staging_area *area, bool store, uint64_t ticket)
{
    const struct rf_point point = {area->timeline[store], ticket};
    if (!rf_point_reached(point))
        return 0;
    RETURN_IF_ERROR(rf_point_wait(point, 0)); /* a failed device has reached every point */
    return 1;
}

static int ended(struct rf_mover *mover, bool store, uint64_t ticket)
{
    return has_reached((const struct rf_staging_area *)mover, store, ticket);
}

static void drop_buffer(const struct rf_staging_area *area, struct rf_buffer **buffer,
                        void **handle)
{
    struct rf_transport *transport = area->comm->links.transport;
    if (*handle)
        transport->ops->deregister_memory(transport, *handle);
    rf_buffer_destroy(*buffer);
    *handle = NULL;
    *buffer = NULL;
}

static void destroy(struct rf_staging_area *area)
{
    rf_stream_destroy(area->streams[0]);
    rf_stream_destroy(area->streams[1]);
    drop_buffer(area, &area->buffer, &area->handle);
    for (int i = 0; i < 2 * RF_SLOTS; i++) {
        struct rf_slot *slot = &area->slots[i / RF_SLOTS][i % RF_SLOTS];
        drop_buffer(area, &slot->buffer, &slot->handle);
    }
    rf_free(area);
}

static int area_of(struct rf_comm *comm, struct rf_device *device, struct rf_staging_area **out)
{
    for (struct rf_staging_area *area = comm->staging.devices; area; area = area->next)
        if (area->device == device) {
            *out = area;
            return 0;
        }
    struct rf_staging_area *area = rf_alloc(sizeof(*area));
    if (!area)
        return rf_fail(RF_ENOMEM, "no memory for staging");
    area->mover = (struct rf_mover){.start = start, .ended = ended};
    area->comm = comm;
    area->device = device;
    for (int i = 0; i < 2 * RF_SLOTS; i++)
        area->slots[i / RF_SLOTS][i % RF_SLOTS] =
            (struct rf_slot){.area = area, .store = i >= RF_SLOTS};
    int rc = rf_stream_create(device, "fetch", &area->streams[0]);
    if (rc == 0)
        rc = rf_stream_create(device, "store", &area->streams[1]);
    if (rc < 0) {
        destroy(area);
        return rc;
    }
    area->next = comm->staging.devices;
    comm->staging.devices = area;
    *out = area;
    return 0;
}

static int grow(const struct rf_staging_area *area, uint64_t bytes, struct rf_buffer **buffer,
                void **handle)
{
    if (*buffer && rf_buffer_bytes(*buffer) >= bytes)
        return 0;
    /* The old one is freed first: both at once would exceed the planned memory. */
    struct rf_transport *transport = area->comm->links.transport;
    drop_buffer(area, buffer, handle);
    RETURN_IF_ERROR(
        rf_buffer_create(area->device, bytes, RF_MEMORY_HOST, RF_CATEGORY_COMM, buffer));
    if (!transport->ops->register_memory)
        return 0;
    int rc = transport->ops->register_memory(transport, rf_buffer_map(*buffer), bytes, handle);
    if (rc < 0)
        drop_buffer(area, buffer, handle);
    return rc;
}

int rf_staging_begin(struct rf_comm *comm, struct rf_device *device, struct rf_call *call,
                     struct rf_tensor in, struct rf_tensor out)
{
    struct rf_staging_area *area = NULL;
    uint64_t bytes = 0;
    const struct rf_coll_desc desc = rf_call_desc(comm, call);
    RETURN_IF_ERROR(rf_sched_staging_bytes(&desc, call->algorithm, &bytes));
    RETURN_IF_ERROR(area_of(comm, device, &area));
    if (bytes > 0)
        RETURN_IF_ERROR(grow(area, bytes, &area->buffer, &area->handle));
    area->tensors[0] = in;
    area->tensors[1] = out;
    call->mover = &area->mover;
    if (call->desc.staged & RF_STAGED_IN && bytes > 0)
        call->in = rf_buffer_map(area->buffer);
    if (call->desc.staged & RF_STAGED_OUT && bytes > 0)
        call->out = rf_buffer_map(area->buffer);
    return 0;
}

static void wait_for_copies(struct rf_staging_area *area)
{
    /* Started copies still use the tensors, and do not wait for the network. */
    struct rf_error error = *rf_last_error();
    for (int i = 0; i < 2; i++)
        if (rf_stream_wait(area->streams[i]) < 0)
            rf_log("comm", 2, "staging: %s", rf_last_error()->message);
    rf_fail_error(&error);
}

void rf_staging_abandon(struct rf_mover *mover)
{
    wait_for_copies((struct rf_staging_area *)mover);
}

void rf_staging_abandon_all(struct rf_comm *comm)
{
    for (struct rf_staging_area *area = comm->staging.devices; area; area = area->next)
        wait_for_copies(area);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static uint64_t capacity_of(const struct rf_slot *slot)
{
    return slot->buffer ? rf_buffer_bytes(slot->buffer) : 0;
}

/* The best free slot: the smallest that holds `bytes`, else the largest. */
static struct rf_slot *choose(struct rf_slot *slots, size_t bytes)
{
    struct rf_slot *best = NULL;
    for (struct rf_slot *slot = slots; slot < slots + RF_SLOTS; slot++) {
        const uint64_t capacity = capacity_of(slot), best_capacity = best ? capacity_of(best) : 0;
        if (slot->taken)
            continue;
        if (!best || (best_capacity < bytes ? capacity > best_capacity
                                            : capacity >= bytes && capacity < best_capacity))
            best = slot;
    }
    return best;
}

int rf_slot_take(struct rf_comm *comm, const struct rf_buffer *remote, bool store, size_t bytes,
                 struct rf_slot **out)
{
    struct rf_staging_area *area = NULL;
    RETURN_IF_ERROR(area_of(comm, rf_buffer_device(remote), &area));
    struct rf_slot *slot = choose(area->slots[store], bytes);
    if (!slot)
        return RF_EAGAIN;
    RETURN_IF_ERROR(grow(area, bytes, &slot->buffer, &slot->handle));
    slot->taken = true;
    *out = slot;
    return 0;
}

void rf_slot_give(struct rf_slot *slot)
{
    if (slot)
        slot->taken = false;
}

void *rf_slot_map(const struct rf_slot *slot)
{
    return rf_buffer_map(slot->buffer);
}

int rf_slot_copy(struct rf_slot *slot, struct rf_buffer *remote, uint64_t at, size_t bytes)
{
    struct rf_staging_area *area = slot->area;
    struct rf_stream *stream = area->streams[slot->store];
    struct rf_point point;
    RETURN_IF_ERROR(slot->store ? rf_stream_copy(stream, (struct rf_buffer_place){remote, at},
                                                 (struct rf_buffer_place){slot->buffer, 0}, bytes)
                                : rf_stream_copy(stream, (struct rf_buffer_place){slot->buffer, 0},
                                                 (struct rf_buffer_place){remote, at}, bytes));
    RETURN_IF_ERROR(rf_stream_submit(stream, &point));
    area->comm->staging.copied_bytes += bytes;
    area->timeline[slot->store] = point.timeline;
    slot->ticket = point.value;
    return 0;
}

int rf_slot_ended(const struct rf_slot *slot)
{
    return has_reached(slot->area, slot->store, slot->ticket);
}

int rf_slot_wait(const struct rf_slot *slot)
{
    const struct rf_point point = {slot->area->timeline[slot->store], slot->ticket};
    return rf_point_wait(point, UINT64_MAX);
}

void rf_staging_destroy(struct rf_comm_staging *staging)
{
    while (staging->devices) {
        struct rf_staging_area *area = staging->devices;
        staging->devices = area->next;
        destroy(area);
    }
}
