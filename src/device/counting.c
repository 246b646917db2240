/* SPDX-License-Identifier: MIT
 *
 * Counting devices run nothing and count the work of commands. They have no driver: buffers are
 * addresses, kernels are names, and commands.c counts commands. Used by parallel/costs.c, and by
 * users who need the work of launches.
 */
#include "internal.h"

void rf_work_add(struct rf_work *sum, const struct rf_work *work, uint64_t times)
{
    sum->launches += times * work->launches;
    sum->unranged += times * work->unranged;
    sum->flops += times * work->flops;
    sum->repeated += times * work->repeated;
    sum->read += times * work->read;
    sum->written += times * work->written;
}

bool rf_device_counts(const struct rf_device *device)
{
    return device->counting;
}

int rf_counting_allocate(struct rf_buffer *buffer, enum rf_memory memory)
{
    struct rf_device *device = buffer->device;
    const uint64_t bytes =
        (buffer->bytes + RF_ADDRESS_ALIGNMENT - 1) / RF_ADDRESS_ALIGNMENT * RF_ADDRESS_ALIGNMENT;
    if (memory == RF_MEMORY_HOST) {
        buffer->map = rf_alloc(buffer->bytes);
        if (!buffer->map)
            return rf_fail(RF_ENOMEM, "no memory for a mapped buffer of %llu bytes",
                           (unsigned long long)buffer->bytes);
    }
    pthread_mutex_lock(&device->memory_lock);
    const bool fits = bytes <= UINT64_MAX - device->next_address;
    if (fits) {
        buffer->address = device->next_address;
        device->next_address += bytes;
    }
    pthread_mutex_unlock(&device->memory_lock);
    return fits ? 0
                : rf_fail(RF_ENOMEM,
                          "no addresses are left for a buffer of %llu bytes; open another counting "
                          "device",
                          (unsigned long long)buffer->bytes);
}

void rf_stream_count(struct rf_stream *stream, const struct rf_work *more)
{
    if (!stream || !more || !stream->device->counting)
        return;
    struct rf_device *device = stream->device;
    struct rf_work work = *more;
    if (stream->repeats)
        work.repeated = work.flops;
    pthread_mutex_lock(&device->memory_lock);
    rf_work_add(&device->counted, &work, 1);
    pthread_mutex_unlock(&device->memory_lock);
}

void rf_stream_repeats(struct rf_stream *stream, bool repeats)
{
    if (stream)
        stream->repeats = repeats;
}

void rf_counting_ranges(struct rf_stream *stream, const struct rf_range *ranges, uint32_t count)
{
    struct rf_work work = {.launches = 1, .unranged = count == 0};
    for (uint32_t i = 0; i < count; i++)
        *(ranges[i].write ? &work.written : &work.read) += ranges[i].bytes;
    rf_stream_count(stream, &work);
}

void rf_device_work(const struct rf_device *device, struct rf_work *out)
{
    struct rf_device *d = (struct rf_device *)device; /* only its lock is modified */
    pthread_mutex_lock(&d->memory_lock);
    *out = d->counted;
    pthread_mutex_unlock(&d->memory_lock);
}
