/* SPDX-License-Identifier: MIT
 *
 * The offset between device timestamps and the host clock, measured when a device is opened with
 * profile.
 */
#include <ringforge/ringforge.h>

#include "internal.h"

#define CALIBRATIONS 5

/* Pairs a timestamp with the time at which the host sees the end of its submission. The host always
 * sees it late, so the smallest difference of several tries is the best. */
static int calibrate(struct rf_device *device, struct rf_stream *stream)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < CALIBRATIONS; i++) {
        uint64_t ticks;
        struct rf_point done;
        rf_stream_push_label(stream, "calibrate");
        RETURN_IF_ERROR(rf_stream_record_nothing(stream));
        struct rf_regions *regions = &stream->recording->regions;
        rf_stream_pop_label(stream);
        RETURN_IF_ERROR(rf_stream_submit(stream, &done));
        RETURN_IF_ERROR(rf_point_wait(done, UINT64_MAX));
        uint64_t now = rf_now_ns();
        VkResult result = device->core->vk.GetQueryPoolResults(
            device->core->handle, regions->queries, 1, 1, sizeof(ticks), &ticks, sizeof(ticks),
            VK_QUERY_RESULT_64_BIT);
        if (result != VK_SUCCESS)
            return rf_vk_fail(result, "reading a timestamp");
        regions->count = 0; /* keeps it out of the trace */
        int64_t offset = (int64_t)(now - rf_profile_ns(device, ticks));
        best = offset < best ? offset : best;
    }
    device->timestamp_offset_ns = best;
    return 0;
}

int rf_profile_open(struct rf_device *device)
{
    struct rf_stream *stream = NULL;
    if (!rf_profile_times(device))
        return 0;
    RETURN_IF_ERROR(rf_stream_create(device, "calibrate", &stream));
    int rc = calibrate(device, stream);
    rf_stream_destroy(stream);
    return rc;
}
