/* SPDX-License-Identifier: MIT
 *
 * Command buffers of streams: created, and reused after their work has finished. Called by
 * stream.c, commands.c and record.c.
 */
#include "internal.h"

void rf_submission_destroy(struct rf_submission *submission)
{
    if (!submission)
        return;
    struct rf_device *device = submission->stream->device;
    rf_profile_release(submission);
    if (submission->pool)
        device->core->vk.DestroyCommandPool(device->core->handle, submission->pool, NULL);
    rf_free(submission->waits);
    rf_free(submission);
}

void rf_stream_reap(struct rf_stream *stream)
{
    while (stream->in_flight && rf_timeline_poll(stream->timeline, stream->in_flight->value)) {
        struct rf_submission *done = stream->in_flight;
        stream->in_flight = done->next;
        rf_profile_collect(done->replays ? done->replays : done);
        done->next = stream->free;
        stream->free = done;
    }
}

int rf_submission_create(struct rf_stream *stream, struct rf_submission **out)
{
    struct rf_device *device = stream->device;
    struct rf_submission *submission = rf_alloc(sizeof(*submission));
    if (!submission)
        return rf_fail(RF_ENOMEM, "no memory for a submission of stream %s", stream->name);
    submission->stream = stream;
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                    .queueFamilyIndex = device->caps.family};
    VkResult result =
        device->core->vk.CreateCommandPool(device->core->handle, &pool, NULL, &submission->pool);
    if (result == VK_SUCCESS) {
        VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = submission->pool,
                                            .commandBufferCount = 1};
        result = device->core->vk.AllocateCommandBuffers(device->core->handle, &info,
                                                         &submission->commands);
    }
    int rc = result == VK_SUCCESS ? rf_profile_prepare(submission)
                                  : rf_vk_fail(result, "making a command buffer");
    if (rc < 0) {
        rf_submission_destroy(submission);
        return rc;
    }
    *out = submission;
    return 0;
}

int rf_submission_reserve_waits(struct rf_stream *stream, struct rf_point **waits,
                                uint32_t *capacity, uint32_t wanted)
{
    if (*capacity >= wanted)
        return 0;
    struct rf_point *more = rf_realloc(*waits, wanted * sizeof(*more));
    if (!more)
        return rf_fail(RF_ENOMEM, "no memory for the waits of stream %s", stream->name);
    *waits = more;
    *capacity = wanted;
    return 0;
}

int rf_submission_take(struct rf_stream *stream, struct rf_submission **out)
{
    if (!stream->free)
        rf_stream_reap(stream);
    if (!stream->free) {
        RETURN_IF_ERROR(rf_submission_create(stream, out));
        int rc = rf_submission_reserve_waits(stream, &(*out)->waits, &(*out)->wait_capacity,
                                             stream->wait_capacity);
        if (rc < 0)
            rf_submission_give_back(stream, *out);
        return rc;
    }
    *out = stream->free;
    stream->free = (*out)->next;
    (*out)->next = NULL;
    (*out)->recorded = false;
    (*out)->replays = NULL;
    (*out)->regions.count = 0;
    (*out)->wait_count = 0;
    return 0;
}

void rf_submission_give_back(struct rf_stream *stream, struct rf_submission *submission)
{
    submission->next = stream->free;
    stream->free = submission;
}
