/* SPDX-License-Identifier: MIT
 *
 * Recordings: command buffers that are kept, and submitted any number of times without being
 * recorded again. recording.c has their content.
 */
#include "recording.h"

int rf_record_begin(struct rf_stream *stream)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "rf_record_begin without a stream");
    if (stream->keeping)
        return rf_fail(RF_EINVAL,
                       "stream %s is being recorded already; call rf_record_end before another "
                       "rf_record_begin",
                       stream->name);
    if (stream->device->ranges)
        return rf_fail(RF_ENOTSUP,
                       "stream %s: with RF_CHECK_RANGES nothing can be recorded and replayed; "
                       "launch it each time",
                       stream->name);
    if (stream->device->counting)
        return rf_fail(RF_ENOTSUP,
                       "stream %s: a counting device keeps no commands; launch them each time",
                       stream->name);
    if (stream->recording) /* its waits belong to the next replay */
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    struct rf_recording *r = rf_alloc(sizeof(*r));
    if (!r)
        return rf_fail(RF_ENOMEM, "no memory for a recording");
    r->stream = stream;
    int rc = rf_submission_create(stream, &r->kept);
    if (rc < 0) {
        rf_free(r);
        return rc;
    }
    stream->keeping = r;
    return 0;
}

int rf_record_end(struct rf_stream *stream, struct rf_recording **out)
{
    if (!stream || !stream->keeping) {
        if (!out)
            return 0; /* nothing to discard */
        return rf_fail(RF_EINVAL, "rf_record_end without rf_record_begin");
    }
    struct rf_recording *r = stream->keeping;
    struct rf_device *device = stream->device;
    int rc = 0;
    if (!out) {
        rf_stream_give_up(stream);
        return 0;
    }
    r->empty = stream->recording == NULL;
    if (stream->recording)
        rc = rf_stream_end(stream);
    stream->keeping = NULL;
    if (rc < 0) {
        rf_recording_free(r);
        return rc;
    }
    rf_recording_join_spans(&r->spans);
    pthread_mutex_lock(&device->memory_lock);
    r->up = device->recordings;
    device->recordings = r;
    pthread_mutex_unlock(&device->memory_lock);
    *out = r;
    return 0;
}

bool rf_recording_valid(const struct rf_recording *recording)
{
    return recording && atomic_load(&recording->stale) == RF_RECORDING_VALID;
}

int rf_record_replay(struct rf_stream *stream, struct rf_recording *r)
{
    if (!stream || !r || r->stream != stream)
        return rf_fail(RF_EINVAL, "rf_record_replay needs a recording and the stream it was "
                                  "recorded on");
    if (!rf_recording_valid(r))
        return rf_fail(
            RF_EINVAL, "stream %s: a %s that the recording uses has been destroyed; record again",
            stream->name, atomic_load(&r->stale) == RF_RECORDING_NO_KERNEL ? "kernel" : "buffer");
    if (stream->recording || stream->keeping)
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    if (r->empty)
        return 0;
    /* With profile it may block, because timestamps are read before the next run overwrites them.
     */
    if (r->kept->regions.queries && r->last)
        RETURN_IF_ERROR(rf_stream_wait(stream));
    RETURN_IF_ERROR(rf_stream_send_again(stream, r->kept));
    r->last = stream->value;
    return 0;
}

void rf_recording_destroy(struct rf_recording *r)
{
    if (!r)
        return;
    if (r->last)
        rf_stream_finish(r->stream, r->last);
    rf_recording_free(r);
}

bool rf_recording_same(const struct rf_recording *a, const struct rf_recording *b, char *why,
                       size_t size)
{
    const struct rf_recording_mark *x = a->marks.items, *y = b->marks.items;
    size_t least = a->marks.count < b->marks.count ? a->marks.count : b->marks.count;
    for (size_t i = 0; i < least; i++)
        if (x[i].hash != y[i].hash) {
            snprintf(why, size, "command %zu was %s and is now %s, or its arguments differ", i,
                     x[i].name, y[i].name);
            return false;
        }
    snprintf(why, size, "there were %zu commands, and now there are %zu", a->marks.count,
             b->marks.count);
    return a->marks.count == b->marks.count;
}
