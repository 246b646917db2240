/* SPDX-License-Identifier: MIT
 *
 * Recording launches, copies and fills into a stream's command buffer, with a barrier where two
 * conflict.
 */
#include "internal.h"

#define BARRIER_STAGES (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)
#define BARRIER_WRITES (VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT)
#define BARRIER_ALL (BARRIER_WRITES | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT)

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
        RETURN_IF_ERROR(rf_submission_take(stream, &submission));
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
            rf_submission_give_back(stream, submission);
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

static int record_launch(struct rf_stream *stream, const struct rf_command *c)
{
    const struct rf_vk_functions *vk = &stream->device->vk;
    const struct rf_kernel *kernel = c->kernel;
    VkCommandBuffer commands = stream->recording->commands;
    if (stream->bound != kernel->pipeline) {
        vk->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->pipeline);
        stream->bound = kernel->pipeline;
    }
    if (kernel->views)
        RETURN_IF_ERROR(rf_views_bind(stream->device, commands, kernel, c->views, c->view_count));
    if (c->push_bytes)
        vk->CmdPushConstants(commands, kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                             c->push_bytes, c->push);
    if (stream->device->opts.profile_launches)
        rf_stream_push_label(stream, kernel->name);
    vk->CmdDispatch(commands, c->groups[0], c->groups[1], c->groups[2]);
    if (stream->device->opts.profile_launches)
        rf_stream_pop_label(stream);
    return 0;
}

static void record_fill(struct rf_stream *stream, const struct rf_command *c)
{
    if (stream->device->opts.profile_launches)
        rf_stream_push_label(stream, c->name);
    stream->device->vk.CmdFillBuffer(stream->recording->commands, c->dst->handle,
                                     c->region.dstOffset, c->region.size, c->word);
    if (stream->device->opts.profile_launches)
        rf_stream_pop_label(stream);
}

int rf_stream_record(struct rf_stream *stream, const struct rf_command *c)
{
    const bool views = c->kernel && c->kernel->views;
    const bool writes =
        !c->kernel || (c->view_count > 0 && c->views[c->view_count - 1].components == 0);
    RETURN_IF_ERROR(begin(stream));
    RETURN_IF_ERROR(touch(stream, (views ? VIEWS : 0) | (writes ? WRITES : 0), c));
    if (c->kernel)
        return record_launch(stream, c);
    if (c->src)
        stream->device->vk.CmdCopyBuffer(stream->recording->commands, c->src->handle,
                                         c->dst->handle, 1, &c->region);
    else
        record_fill(stream, c);
    return 0;
}

static int issue(struct rf_stream *stream, const struct rf_command *command)
{
    if (stream->device->counting) {
        if (!command->kernel) /* who launches a kernel knows more than its ranges */
            rf_counting_ranges(stream, command->ranges, command->range_count);
        return 0;
    }
    return stream->device->ranges ? rf_ranges_run(stream, command)
                                  : rf_stream_record(stream, command);
}

/* ---- launches, copies, fills ----------------------------------------------------------------- */

/* Whether the stream may use what is of this device. */
static bool is_for(const struct rf_stream *stream, const struct rf_device *device)
{
    return device == stream->device || stream->device->counting;
}

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
    RETURN_IF_ERROR(
        rf_launch_views(stream, kernel, push, push_bytes, groups, ranges, range_count, NULL, 0));
    if (stream->device->counting && groups[0] && groups[1] && groups[2])
        rf_counting_ranges(stream, ranges, range_count);
    return 0;
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
    if (!is_for(stream, kernel->device))
        return rf_fail(RF_EINVAL, "%s: the kernel and stream %s are of different devices",
                       kernel->name, stream->name);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return 0;
    RETURN_IF_ERROR(check_groups(stream, kernel, groups));
    const struct rf_command command = {.name = kernel->name,
                                       .kernel = kernel,
                                       .push = push,
                                       .push_bytes = push_bytes,
                                       .groups = {groups[0], groups[1], groups[2]},
                                       .ranges = ranges,
                                       .range_count = range_count,
                                       .views = views,
                                       .view_count = view_count};
    return issue(stream, &command);
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
    if (!is_for(stream, dst->device) || !is_for(stream, src->device))
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
    const struct rf_range ranges[2] = {{src->address + src_offset, bytes, false},
                                       {dst->address + dst_offset, bytes, true}};
    const struct rf_command command = {
        .name = "copy",
        .src = src,
        .dst = dst,
        .region = {src->shift + src_offset, dst->shift + dst_offset, bytes},
        .ranges = ranges,
        .range_count = 2};
    return issue(stream, &command);
}

int rf_stream_fill(struct rf_stream *stream, struct rf_buffer *dst, uint64_t offset, uint64_t bytes,
                   uint32_t word)
{
    if (!stream || !dst || !is_for(stream, dst->device))
        return rf_fail(RF_EINVAL, "rf_stream_fill needs a stream and a buffer of one device");
    if (!inside(dst, offset, bytes) || offset % 4 || bytes % 4)
        return rf_fail(
            RF_EINVAL, "fill of %llu bytes at %llu: both must be multiples of 4, within %llu",
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)dst->bytes);
    if (bytes == 0)
        return 0;
    const struct rf_range range = {dst->address + offset, bytes, true};
    const struct rf_command command = {.name = "fill",
                                       .dst = dst,
                                       .region = {.dstOffset = dst->shift + offset, .size = bytes},
                                       .word = word,
                                       .ranges = &range,
                                       .range_count = 1};
    return issue(stream, &command);
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
