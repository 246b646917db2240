/* SPDX-License-Identifier: MIT
 *
 * Streams: recording launches, copies and fills into command buffers, with a barrier where two
 * conflict; waiting for points; recycling command buffers. Handing over is submit.c's.
 */
#include "internal.h"

#define BARRIER_STAGES (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)
#define BARRIER_WRITES (VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT)
#define BARRIER_ALL (BARRIER_WRITES | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT)

void rf_submission_destroy(struct rf_submission *submission)
{
    if (!submission)
        return;
    struct rf_device *device = submission->stream->device;
    rf_profile_release(submission);
    if (submission->pool)
        device->vk.DestroyCommandPool(device->handle, submission->pool, NULL);
    rf_free(submission->waits);
    rf_free(submission);
}

static void destroy_list(struct rf_submission *list)
{
    while (list) {
        struct rf_submission *next = list->next;
        rf_submission_destroy(list);
        list = next;
    }
}

int rf_stream_create(struct rf_device *device, const char *name, struct rf_stream **out)
{
    if (!device || !out)
        return rf_fail(RF_EINVAL, "rf_stream_create needs a device and a place for its result");
    RETURN_IF_ERROR(rf_device_check(device));
    struct rf_stream *stream = rf_alloc(sizeof(*stream));
    if (!stream)
        return rf_fail(RF_ENOMEM, "no memory for a stream");
    stream->device = device;
    snprintf(stream->name, sizeof(stream->name), "%s", name ? name : "stream");
    stream->queue = device->queues[atomic_fetch_add(&device->next_queue, 1) % device->queue_count];
    int rc = rf_timeline_acquire(device, &stream->timeline);
    if (rc == 0 && device->opts.check_barriers)
        rc = rf_check_create(&stream->check);
    if (rc < 0) {
        rf_stream_destroy(stream);
        return rc;
    }
    stream->value = stream->timeline->submitted;
    *out = stream;
    return 0;
}

void rf_stream_destroy(struct rf_stream *stream)
{
    if (!stream)
        return;
    struct rf_device *device = stream->device;
    if (rf_record_end(stream, NULL) < 0)
        rf_log("device", 2, "stream %s: an open recording could not be ended", stream->name);
    /* Twice: the first may fail because of what was recorded last, which is then gone. */
    if (stream->timeline && rf_stream_wait(stream) < 0 && rf_stream_wait(stream) < 0) {
        /* A failed device: nothing more is submitted, but what runs must not lose its memory. */
        pthread_mutex_lock(&device->lock);
        device->vk.DeviceWaitIdle(device->handle);
        pthread_mutex_unlock(&device->lock);
    }
    rf_submission_destroy(stream->recording);
    destroy_list(stream->in_flight);
    destroy_list(stream->free);
    rf_timeline_release(stream->timeline);
    rf_check_destroy(stream->check);
    rf_free(stream->waits);
    rf_free(stream);
}

struct rf_device *rf_stream_device(const struct rf_stream *stream)
{
    return stream->device;
}

/* ---- command buffers ------------------------------------------------------------------------- */

static void reap(struct rf_stream *stream)
{
    while (stream->in_flight && rf_timeline_poll(stream->timeline, stream->in_flight->value)) {
        struct rf_submission *done = stream->in_flight;
        stream->in_flight = done->next;
        rf_profile_collect(done->replays ? rf_recording_submission(done->replays) : done);
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
    VkResult result = device->vk.CreateCommandPool(device->handle, &pool, NULL, &submission->pool);
    if (result == VK_SUCCESS) {
        VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                            .commandPool = submission->pool,
                                            .commandBufferCount = 1};
        result = device->vk.AllocateCommandBuffers(device->handle, &info, &submission->commands);
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

static int take_submission(struct rf_stream *stream, struct rf_submission **out)
{
    if (!stream->free)
        reap(stream);
    if (!stream->free)
        return rf_submission_create(stream, out);
    *out = stream->free;
    stream->free = (*out)->next;
    (*out)->next = NULL;
    (*out)->recorded = false;
    (*out)->replays = NULL;
    (*out)->regions.count = 0;
    (*out)->wait_count = 0;
    return 0;
}

static void give_back(struct rf_stream *stream, struct rf_submission *submission)
{
    submission->next = stream->free;
    stream->free = submission;
}

static void record_barrier(struct rf_stream *stream, VkCommandBuffer commands)
{
    VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = BARRIER_WRITES,
                               .dstAccessMask = BARRIER_ALL};
    stream->device->vk.CmdPipelineBarrier(commands, BARRIER_STAGES, BARRIER_STAGES, 0, 1, &barrier,
                                          0, NULL, 0, NULL);
    if (stream->check)
        rf_check_barrier(stream->check);
}

static void forget_track(struct rf_track *track)
{
    track->count = 0;
    track->everything = track->viewed = track->written = false;
}

/* There is a command buffer to record into. */
static int begin(struct rf_stream *stream)
{
    if (stream->recording)
        return 0;
    RETURN_IF_ERROR(rf_device_check(stream->device));
    struct rf_submission *submission = NULL;
    if (stream->keeping)
        submission = rf_recording_submission(stream->keeping);
    else
        RETURN_IF_ERROR(take_submission(stream, &submission));
    const struct rf_vk_functions *vk = &stream->device->vk;
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = stream->keeping
                                                  ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                                                  : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult result = vk->ResetCommandPool(stream->device->handle, submission->pool, 0);
    if (result == VK_SUCCESS)
        result = vk->BeginCommandBuffer(submission->commands, &info);
    if (result != VK_SUCCESS) {
        if (!stream->keeping)
            give_back(stream, submission);
        return rf_vk_fail(result, "beginning a command buffer");
    }
    stream->recorded++;
    submission->recorded = true;
    stream->recording = submission;
    stream->bound = VK_NULL_HANDLE;
    forget_track(&stream->track);
    /* What this stream submitted before may still run; it is not tracked across submissions. */
    record_barrier(stream, submission->commands);
    rf_profile_begin(submission);
    return 0;
}

int rf_stream_record_nothing(struct rf_stream *stream)
{
    return begin(stream);
}

/* What validation knows a command by: a launch with addresses only by none of these. */
enum { VIEWS = 1, WRITES = 2 /* copies, fills, storage buffers */ };

/* A view covers more of its buffer than the launch reads, and validation goes by the view: so
 * writes that it sees are kept apart from launches with views, whatever the ranges say. */
static bool must_part(const struct rf_track *track, unsigned seen)
{
    return ((seen & VIEWS) && track->written) || ((seen & WRITES) && track->viewed);
}

/* Notes what the next command touches, with a barrier before it where it conflicts. */
static int touch(struct rf_stream *stream, unsigned seen, const struct rf_command *c)
{
    const struct rf_range *ranges = c->ranges;
    const uint32_t count = c->range_count;
    if (must_part(&stream->track, seen) || rf_track_conflicts(&stream->track, ranges, count)) {
        if (stream->skip_barrier == 0 || --stream->skip_barrier > 0)
            record_barrier(stream, stream->recording->commands);
        stream->barriers++;
        forget_track(&stream->track);
    }
    rf_track_add(&stream->track, ranges, count);
    stream->track.viewed |= (seen & VIEWS) != 0;
    stream->track.written |= (seen & WRITES) != 0;
    if (stream->keeping)
        RETURN_IF_ERROR(rf_recording_note(stream->keeping, c));
    return stream->check ? rf_check_command(stream->check, c->name, ranges, count) : 0;
}

/* ---- recording ------------------------------------------------------------------------------- */

static int check_groups(const struct rf_stream *stream, const struct rf_kernel *kernel,
                        const uint32_t groups[3])
{
    const uint32_t *most = stream->device->info.max_workgroup_count;
    if (groups[0] <= most[0] && groups[1] <= most[1] && groups[2] <= most[2])
        return 0;
    return rf_fail(RF_EINVAL, "%s: %u x %u x %u workgroups are more than %s allows (%u x %u x %u)",
                   kernel->name, groups[0], groups[1], groups[2], stream->device->info.name,
                   most[0], most[1], most[2]);
}

int rf_launch(struct rf_stream *stream, struct rf_kernel *kernel, const void *push,
              uint32_t push_bytes, const uint32_t groups[3], const struct rf_range *ranges,
              uint32_t range_count)
{
    return rf_launch_views(stream, kernel, push, push_bytes, groups, ranges, range_count, NULL, 0);
}

int rf_launch_views(struct rf_stream *stream, struct rf_kernel *kernel, const void *push,
                    uint32_t push_bytes, const uint32_t groups[3], const struct rf_range *ranges,
                    uint32_t range_count, const struct rf_view *views, uint32_t view_count)
{
    if (!stream || !kernel || !groups || (push_bytes && !push) || (range_count && !ranges))
        return rf_fail(RF_EINVAL, "rf_launch needs a stream, a kernel, groups, and what it counts");
    if (push_bytes != kernel->push_bytes)
        return rf_fail(RF_EINVAL, "%s: it was made for %u bytes of push constants, not %u",
                       kernel->name, kernel->push_bytes, push_bytes);
    if (kernel->device != stream->device)
        return rf_fail(RF_EINVAL, "%s: the kernel and stream %s are of different devices",
                       kernel->name, stream->name);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return 0;
    RETURN_IF_ERROR(check_groups(stream, kernel, groups));
    RETURN_IF_ERROR(begin(stream));
    const unsigned seen = (kernel->views ? VIEWS : 0) |
                          (view_count > 0 && views[view_count - 1].components == 0 ? WRITES : 0);
    const struct rf_command command = {.name = kernel->name,
                                       .kernel = kernel,
                                       .push = push,
                                       .push_bytes = push_bytes,
                                       .groups = {groups[0], groups[1], groups[2]},
                                       .ranges = ranges,
                                       .range_count = range_count,
                                       .views = views,
                                       .view_count = view_count};
    RETURN_IF_ERROR(touch(stream, seen, &command));
    const struct rf_vk_functions *vk = &stream->device->vk;
    VkCommandBuffer commands = stream->recording->commands;
    if (stream->bound != kernel->pipeline) {
        vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
        stream->bound = kernel->pipeline;
    }
    if (kernel->views)
        RETURN_IF_ERROR(rf_views_bind(stream->device, commands, kernel, views, view_count));
    if (push_bytes)
        vk->CmdPushConstants(commands, kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes,
                             push);
    if (stream->device->opts.profile_launches)
        rf_stream_push_label(stream, kernel->name);
    vk->CmdDispatch(commands, groups[0], groups[1], groups[2]);
    if (stream->device->opts.profile_launches)
        rf_stream_pop_label(stream);
    return 0;
}

static bool inside(const struct rf_buffer *buffer, uint64_t offset, uint64_t bytes)
{
    return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

int rf_stream_copy(struct rf_stream *stream, struct rf_buffer *dst, uint64_t dst_offset,
                   struct rf_buffer *src, uint64_t src_offset, uint64_t bytes)
{
    if (!stream || !dst || !src)
        return rf_fail(RF_EINVAL, "rf_stream_copy needs a stream and two buffers");
    if (dst->device != stream->device || src->device != stream->device)
        return rf_fail(RF_EINVAL, "copy: the buffers and stream %s are of different devices",
                       stream->name);
    if (!inside(dst, dst_offset, bytes) || !inside(src, src_offset, bytes))
        return rf_fail(RF_EINVAL,
                       "copy of %llu bytes from %llu (of %llu) to %llu (of %llu) leaves a buffer",
                       (unsigned long long)bytes, (unsigned long long)src_offset,
                       (unsigned long long)src->bytes, (unsigned long long)dst_offset,
                       (unsigned long long)dst->bytes);
    if (dst == src && dst_offset < src_offset + bytes && src_offset < dst_offset + bytes)
        return rf_fail(RF_EINVAL, "copy within a buffer: source and destination overlap");
    if (bytes == 0)
        return 0;
    RETURN_IF_ERROR(begin(stream));
    const struct rf_range ranges[2] = {{src->address + src_offset, bytes, false},
                                       {dst->address + dst_offset, bytes, true}};
    const struct rf_command command = {.name = "copy", .ranges = ranges, .range_count = 2};
    RETURN_IF_ERROR(touch(stream, WRITES, &command));
    VkBufferCopy region = {src->shift + src_offset, dst->shift + dst_offset, bytes};
    stream->device->vk.CmdCopyBuffer(stream->recording->commands, src->handle, dst->handle, 1,
                                     &region);
    return 0;
}

int rf_stream_fill(struct rf_stream *stream, struct rf_buffer *dst, uint64_t offset, uint64_t bytes,
                   uint32_t word)
{
    if (!stream || !dst || dst->device != stream->device)
        return rf_fail(RF_EINVAL, "rf_stream_fill needs a stream and a buffer of one device");
    if (!inside(dst, offset, bytes) || offset % 4 || bytes % 4)
        return rf_fail(
            RF_EINVAL, "fill of %llu bytes at %llu: both must be multiples of 4, within %llu",
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)dst->bytes);
    if (bytes == 0)
        return 0;
    RETURN_IF_ERROR(begin(stream));
    const struct rf_range range = {dst->address + offset, bytes, true};
    const struct rf_command command = {
        .name = "fill", .ranges = &range, .range_count = 1, .word = word};
    RETURN_IF_ERROR(touch(stream, WRITES, &command));
    if (stream->device->opts.profile_launches)
        rf_stream_push_label(stream, "fill");
    stream->device->vk.CmdFillBuffer(stream->recording->commands, dst->handle, dst->shift + offset,
                                     bytes, word);
    if (stream->device->opts.profile_launches)
        rf_stream_pop_label(stream);
    return 0;
}

/* ---- submitting and waiting ------------------------------------------------------------------ */

static int add_wait(struct rf_stream *stream, struct rf_point point)
{
    for (uint32_t i = 0; i < stream->wait_count; i++) {
        struct rf_point *wait = &stream->waits[i];
        if (wait->timeline == point.timeline) {
            wait->value = wait->value > point.value ? wait->value : point.value;
            return 0;
        }
    }
    if (stream->wait_count == stream->wait_capacity) {
        uint32_t capacity = stream->wait_capacity ? 2 * stream->wait_capacity : 4;
        struct rf_point *waits = rf_realloc(stream->waits, capacity * sizeof(*waits));
        if (!waits)
            return rf_fail(RF_ENOMEM, "no memory for what stream %s waits for", stream->name);
        stream->waits = waits;
        stream->wait_capacity = capacity;
    }
    stream->waits[stream->wait_count++] = point;
    return 0;
}

static int check_not_keeping(const struct rf_stream *stream)
{
    if (!stream->keeping)
        return 0;
    return rf_fail(RF_EINVAL,
                   "stream %s is between rf_record_begin and rf_record_end: there it neither "
                   "submits nor waits",
                   stream->name);
}

int rf_stream_after(struct rf_stream *stream, struct rf_point point)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "rf_stream_after without a stream");
    RETURN_IF_ERROR(check_not_keeping(stream));
    if (stream->recording)
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    if (!point.timeline || point.timeline == stream->timeline ||
        rf_timeline_poll(point.timeline, point.value))
        return 0;
    return add_wait(stream, point);
}

static int end(struct rf_stream *stream, struct rf_submission *submission)
{
    const struct rf_vk_functions *vk = &stream->device->vk;
    /* The host may read mapped memory once the point is reached. */
    VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .srcAccessMask = BARRIER_WRITES,
                               .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT};
    rf_profile_end(submission);
    vk->CmdPipelineBarrier(submission->commands, BARRIER_STAGES, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                           &barrier, 0, NULL, 0, NULL);
    VkResult result = vk->EndCommandBuffer(submission->commands);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "recording a command buffer");
    return stream->check ? rf_check_verify(stream->check, stream->name, &stream->conflicts) : 0;
}

int rf_stream_end(struct rf_stream *stream)
{
    struct rf_submission *submission = stream->recording;
    stream->recording = NULL;
    return end(stream, submission);
}

/* With what the stream waits for, as its next value. */
static int send(struct rf_stream *stream, struct rf_submission *submission)
{
    struct rf_point *waits = submission->waits;
    uint32_t capacity = submission->wait_capacity;
    submission->waits = stream->waits;
    submission->wait_count = stream->wait_count;
    submission->wait_capacity = stream->wait_capacity;
    stream->waits = waits;
    stream->wait_capacity = capacity;
    stream->wait_count = 0;
    submission->next = NULL;
    if (stream->in_flight)
        stream->in_flight_tail->next = submission;
    else
        stream->in_flight = submission;
    stream->in_flight_tail = submission;
    submission->value = ++stream->value;
    return rf_submit(submission);
}

int rf_stream_send_again(struct rf_stream *stream, struct rf_recording *recording)
{
    struct rf_submission *submission = NULL;
    RETURN_IF_ERROR(rf_device_check(stream->device));
    RETURN_IF_ERROR(take_submission(stream, &submission));
    submission->recorded = true;
    submission->replays = recording;
    return send(stream, submission);
}

int rf_stream_submit(struct rf_stream *stream, struct rf_point *done)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "rf_stream_submit without a stream");
    RETURN_IF_ERROR(check_not_keeping(stream));
    struct rf_submission *submission = stream->recording;
    if (submission) {
        int rc = rf_stream_end(stream);
        if (rc < 0) { /* nothing of it has run, nor will */
            give_back(stream, submission);
            return rc;
        }
    } else if (stream->wait_count > 0) {
        RETURN_IF_ERROR(rf_device_check(stream->device));
        RETURN_IF_ERROR(take_submission(stream, &submission));
    }
    if (submission)
        RETURN_IF_ERROR(send(stream, submission));
    else
        RETURN_IF_ERROR(rf_device_check(stream->device));
    if (done)
        *done = (struct rf_point){stream->timeline, stream->value};
    return 0;
}

int rf_stream_wait(struct rf_stream *stream)
{
    struct rf_point done;
    RETURN_IF_ERROR(rf_stream_submit(stream, &done));
    RETURN_IF_ERROR(rf_point_wait(done, UINT64_MAX));
    reap(stream);
    return 0;
}

void rf_stream_finish(struct rf_stream *stream, uint64_t value)
{
    struct rf_device *device = stream->device;
    if (rf_point_wait((struct rf_point){stream->timeline, value}, UINT64_MAX) < 0) {
        pthread_mutex_lock(&device->lock);
        device->vk.DeviceWaitIdle(device->handle);
        pthread_mutex_unlock(&device->lock);
    }
    reap(stream);
}

/* ---- hooks of the tests ---------------------------------------------------------------------- */

void rf_stream_skip_barrier(struct rf_stream *stream, uint64_t nth)
{
    stream->skip_barrier = nth;
}

uint64_t rf_stream_barriers(const struct rf_stream *stream)
{
    return stream->barriers;
}

uint64_t rf_stream_conflicts(const struct rf_stream *stream)
{
    return stream->conflicts;
}

uint64_t rf_stream_recorded(const struct rf_stream *stream)
{
    return stream->recorded;
}
