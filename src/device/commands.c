/* SPDX-License-Identifier: MIT
 *
 * Records launches, copies and fills into a stream's command buffer, with a barrier between
 * conflicting commands.
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
    stream->device->core->vk.CmdPipelineBarrier(commands, BARRIER_STAGES, BARRIER_STAGES, 0, 1,
                                                &barrier, 0, NULL, 0, NULL);
    if (stream->check)
        rf_check_barrier(stream->check);
}

static void forget_track(struct rf_track *track)
{
    track->count = 0;
    track->everything = track->viewed = track->written = false;
}

/* Makes sure that there is a command buffer to record into. */
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
    const struct rf_vk_functions *vk = &stream->device->core->vk;
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = stream->keeping
                                                  ? VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                                                  : VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    VkResult result = vk->ResetCommandPool(stream->device->core->handle, submission->pool, 0);
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
    /* Earlier submissions of this stream may still run. Ranges are not tracked across submissions.
     */
    record_barrier(stream, submission->commands);
    rf_profile_begin(submission);
    return 0;
}

int rf_stream_record_nothing(struct rf_stream *stream)
{
    return begin(stream);
}

/* How the validation layer sees accesses of a command. It sees none by address. */
enum { VIEWS = 1, WRITES = 2 /* copies, fills, storage buffers */ };

/* A view covers more of its buffer than the launch reads, and validation uses the whole view. So a
 * barrier separates writes that the layer sees from launches with views, whatever their ranges are.
 */
static bool must_part(const struct rf_track *track, unsigned seen)
{
    return ((seen & VIEWS) && track->written) || ((seen & WRITES) && track->viewed);
}

/* Records the ranges of the next command, and a barrier before it if it conflicts. */
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
    const struct rf_vk_functions *vk = &stream->device->core->vk;
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
    stream->device->core->vk.CmdFillBuffer(stream->recording->commands, c->dst->handle,
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
        stream->device->core->vk.CmdCopyBuffer(stream->recording->commands, c->src->handle,
                                               c->dst->handle, 1, &c->region);
    else
        record_fill(stream, c);
    return 0;
}

static int end(struct rf_stream *stream, struct rf_submission *submission)
{
    const struct rf_vk_functions *vk = &stream->device->core->vk;
    /* The host may read mapped memory after the point is reached. */
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
