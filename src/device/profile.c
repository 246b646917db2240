/* SPDX-License-Identifier: MIT
 *
 * Labels: recorded into command buffers for debuggers (VK_EXT_debug_utils). If the device was
 * opened with profile, each labelled region is also timed and becomes an event of the trace, on a
 * track with the stream's name. A label that is open across submissions gives one region in each.
 */
#include <ringforge/ringforge.h>

#include "internal.h"

#define UNTIMED UINT32_MAX

bool rf_profile_times(const struct rf_device *device)
{
    return device->opts.profile && device->info.timestamp_period_ns > 0;
}

int rf_profile_prepare(struct rf_submission *submission)
{
    struct rf_device *device = submission->stream->device;
    struct rf_regions *regions = &submission->regions;
    if (!rf_profile_times(device))
        return 0;
    VkQueryPoolCreateInfo create = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                    .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                    .queryCount = 2 * RF_REGION_CAPACITY};
    VkResult result =
        device->core->vk.CreateQueryPool(device->core->handle, &create, NULL, &regions->queries);
    if (result != VK_SUCCESS)
        return rf_vk_fail(result, "making timestamp queries");
    regions->list = rf_alloc(RF_REGION_CAPACITY * sizeof(*regions->list));
    return regions->list ? 0 : rf_fail(RF_ENOMEM, "no memory for timed regions");
}

void rf_profile_release(struct rf_submission *submission)
{
    struct rf_device *device = submission->stream->device;
    if (submission->regions.queries)
        device->core->vk.DestroyQueryPool(device->core->handle, submission->regions.queries, NULL);
    rf_free(submission->regions.list);
}

static void open_region(struct rf_submission *submission, uint32_t depth, const char *name)
{
    struct rf_device *device = submission->stream->device;
    struct rf_regions *regions = &submission->regions;
    VkDebugUtilsLabelEXT label = {.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
                                  .pLabelName = name};
    if (device->core->vk.CmdBeginDebugUtilsLabelEXT)
        device->core->vk.CmdBeginDebugUtilsLabelEXT(submission->commands, &label);
    regions->open[depth] = UNTIMED;
    if (!regions->queries)
        return;
    if (regions->count == RF_REGION_CAPACITY) {
        rf_log("device", 3, "stream %s: region %s is not timed: more than %d in a submission",
               submission->stream->name, name, RF_REGION_CAPACITY);
        return;
    }
    uint32_t region = regions->count++;
    regions->open[depth] = region;
    snprintf(regions->list[region].name, RF_NAME_BYTES, "%s", name);
    regions->list[region].closed = false;
    /* Written when the earlier commands have finished, not when this command is reached, so that
     * regions do not overlap earlier ones. */
    device->core->vk.CmdWriteTimestamp(submission->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                       regions->queries, 2 * region);
}

static void close_region(struct rf_submission *submission, uint32_t depth)
{
    struct rf_device *device = submission->stream->device;
    struct rf_regions *regions = &submission->regions;
    uint32_t region = regions->open[depth];
    if (regions->queries && region != UNTIMED) {
        device->core->vk.CmdWriteTimestamp(submission->commands,
                                           VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, regions->queries,
                                           2 * region + 1);
        regions->list[region].closed = true;
    }
    if (device->core->vk.CmdEndDebugUtilsLabelEXT)
        device->core->vk.CmdEndDebugUtilsLabelEXT(submission->commands);
}

void rf_profile_begin(struct rf_submission *submission)
{
    struct rf_stream *stream = submission->stream;
    submission->regions.count = 0;
    if (submission->regions.queries)
        stream->device->core->vk.CmdResetQueryPool(
            submission->commands, submission->regions.queries, 0, 2 * RF_REGION_CAPACITY);
    for (uint32_t i = 0; i < stream->label_depth && i < RF_LABEL_DEPTH; i++)
        open_region(submission, i, stream->labels[i]);
}

void rf_profile_end(struct rf_submission *submission)
{
    struct rf_stream *stream = submission->stream;
    uint32_t depth = stream->label_depth < RF_LABEL_DEPTH ? stream->label_depth : RF_LABEL_DEPTH;
    while (depth > 0)
        close_region(submission, --depth);
}

/* Labels nested deeper than RF_LABEL_DEPTH are counted, so that begin and end match, but not shown.
 */
void rf_stream_push_label(struct rf_stream *stream, const char *label)
{
    if (!stream)
        return;
    uint32_t depth = stream->label_depth++;
    if (depth >= RF_LABEL_DEPTH)
        return;
    snprintf(stream->labels[depth], RF_NAME_BYTES, "%s", label ? label : "?");
    if (stream->recording)
        open_region(stream->recording, depth, stream->labels[depth]);
}

void rf_stream_pop_label(struct rf_stream *stream)
{
    if (!stream || stream->label_depth == 0)
        return;
    uint32_t depth = --stream->label_depth;
    if (depth < RF_LABEL_DEPTH && stream->recording)
        close_region(stream->recording, depth);
}

uint64_t rf_profile_ns(const struct rf_device *device, uint64_t ticks)
{
    if (device->caps.timestamp_bits < 64)
        ticks &= ((uint64_t)1 << device->caps.timestamp_bits) - 1;
    return (uint64_t)((double)ticks * (double)device->info.timestamp_period_ns);
}

void rf_profile_collect(const struct rf_submission *submission)
{
    struct rf_device *device = submission->stream->device;
    const struct rf_regions *regions = &submission->regions;
    uint64_t ticks[2];
    if (!regions->queries || !rf_trace_enabled())
        return;
    for (uint32_t i = 0; i < regions->count; i++) {
        if (!regions->list[i].closed ||
            device->core->vk.GetQueryPoolResults(device->core->handle, regions->queries, 2 * i, 2,
                                                 sizeof(ticks), ticks, sizeof(ticks[0]),
                                                 VK_QUERY_RESULT_64_BIT) != VK_SUCCESS)
            continue;
        uint64_t start = rf_profile_ns(device, ticks[0]) + (uint64_t)device->timestamp_offset_ns;
        uint64_t end = rf_profile_ns(device, ticks[1]) + (uint64_t)device->timestamp_offset_ns;
        rf_trace_event(submission->stream->name, regions->list[i].name, start,
                       end > start ? end : start);
    }
}
