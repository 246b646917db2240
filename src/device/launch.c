/* SPDX-License-Identifier: MIT
 *
 * Launches, copies and fills: checks them, then records them (commands.c), counts them
 * (counting.c), or runs them under the check of ranges (check_ranges.c).
 */
#include "internal.h"

static int issue(struct rf_stream *stream, const struct rf_command *command)
{
    if (stream->device->counting) {
        if (!command->kernel) /* launches of a kernel count more than ranges */
            rf_counting_ranges(stream, command->ranges, command->range_count);
        return 0;
    }
    return stream->device->ranges ? rf_ranges_run(stream, command)
                                  : rf_stream_record(stream, command);
}

/* Whether the stream can use objects of this device. */
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

int rf_launch(struct rf_stream *stream, struct rf_kernel *kernel, struct rf_dispatch d)
{
    RETURN_IF_ERROR(rf_launch_views(stream, kernel, d, NULL, 0));
    if (stream->device->counting && d.groups[0] && d.groups[1] && d.groups[2])
        rf_counting_ranges(stream, d.ranges, d.range_count);
    return 0;
}

int rf_launch_views(struct rf_stream *stream, struct rf_kernel *kernel, struct rf_dispatch d,
                    const struct rf_view *views, uint32_t view_count)
{
    const uint32_t *groups = d.groups;
    if (!stream || !kernel || !groups || (d.push_bytes && !d.push) || (d.range_count && !d.ranges))
        return rf_fail(
            RF_EINVAL,
            "rf_launch needs a stream, a kernel, groups, and data where a size is not 0");
    if (d.push_bytes != kernel->push_bytes)
        return rf_fail(RF_EINVAL, "%s: it was created for %u bytes of push constants, not %u",
                       kernel->name, kernel->push_bytes, d.push_bytes);
    const struct rf_device *device = stream->device;
    if (kernel->device ? !is_for(stream, kernel->device)
                       : kernel->core != device->core && !device->counting)
        return rf_fail(RF_EINVAL, "%s: the kernel and stream %s belong to different devices",
                       kernel->name, stream->name);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0)
        return 0;
    RETURN_IF_ERROR(check_groups(stream, kernel, groups));
    const struct rf_command command = {.name = kernel->name,
                                       .kernel = kernel,
                                       .push = d.push,
                                       .push_bytes = d.push_bytes,
                                       .groups = {groups[0], groups[1], groups[2]},
                                       .ranges = d.ranges,
                                       .range_count = d.range_count,
                                       .views = views,
                                       .view_count = view_count};
    return issue(stream, &command);
}

static bool inside(const struct rf_buffer *buffer, uint64_t offset, uint64_t bytes)
{
    return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

int rf_stream_copy(struct rf_stream *stream, struct rf_buffer_place to, struct rf_buffer_place from,
                   uint64_t bytes)
{
    struct rf_buffer *dst = to.buffer, *src = from.buffer;
    const uint64_t dst_offset = to.offset, src_offset = from.offset;
    if (!stream || !dst || !src)
        return rf_fail(RF_EINVAL, "rf_stream_copy needs a stream and two buffers");
    if (!is_for(stream, dst->device) || !is_for(stream, src->device))
        return rf_fail(RF_EINVAL, "copy: the buffers and stream %s belong to different devices",
                       stream->name);
    if (!inside(dst, dst_offset, bytes) || !inside(src, src_offset, bytes))
        return rf_fail(RF_EINVAL,
                       "copy of %llu bytes from %llu (of %llu) to %llu (of %llu) exceeds a buffer",
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
