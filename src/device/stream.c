/* SPDX-License-Identifier: MIT
 *
 * Streams: creating and destroying them, waiting for points, submitting. commands.c records,
 * submit.c submits to the queue.
 */
#include "internal.h"

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
        return rf_fail(RF_EINVAL, "rf_stream_create needs a device and a pointer for its result");
    RETURN_IF_ERROR(rf_device_check(device));
    struct rf_stream *stream = rf_alloc(sizeof(*stream));
    if (!stream)
        return rf_fail(RF_ENOMEM, "no memory for a stream");
    stream->device = device;
    snprintf(stream->name, sizeof(stream->name), "%s", name ? name : "stream");
    stream->queue =
        device->core
            ->queues[atomic_fetch_add(&device->core->next_queue, 1) % device->core->queue_count];
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

void rf_stream_give_up(struct rf_stream *stream)
{
    struct rf_recording *recording = stream->keeping;
    if (!recording)
        return;
    if (stream->recording && rf_stream_end(stream) < 0)
        rf_log("device", 2, "stream %s: an open recording could not be ended", stream->name);
    stream->keeping = NULL;
    rf_recording_free(recording);
}

void rf_stream_destroy(struct rf_stream *stream)
{
    if (!stream)
        return;
    struct rf_device *device = stream->device;
    rf_stream_give_up(stream);
    /* Two attempts: the first may fail because of the last recorded command, which is then
     * discarded. */
    if (stream->timeline && rf_stream_wait(stream) < 0 && rf_stream_wait(stream) < 0) {
        /* Nothing more is submitted on a failed device, but running work must not lose its memory.
         */
        pthread_mutex_lock(&device->lock);
        rf_core_wait_idle(device->core);
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
                   "stream %s is between rf_record_begin and rf_record_end, where it can neither "
                   "submit nor wait",
                   stream->name);
}

int rf_stream_after(struct rf_stream *stream, struct rf_point point)
{
    if (!stream)
        return rf_fail(RF_EINVAL, "rf_stream_after without a stream");
    RETURN_IF_ERROR(check_not_keeping(stream));
    if (stream->recording)
        RETURN_IF_ERROR(rf_stream_submit(stream, NULL));
    if (!point.timeline || point.timeline == stream->timeline || stream->device->counting ||
        rf_timeline_poll(point.timeline, point.value))
        return 0;
    return add_wait(stream, point);
}

/* Submits it with the stream's waits and its next value. */
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

int rf_stream_send_again(struct rf_stream *stream, const struct rf_submission *kept)
{
    struct rf_submission *submission = NULL;
    RETURN_IF_ERROR(rf_device_check(stream->device));
    RETURN_IF_ERROR(rf_submission_take(stream, &submission));
    submission->recorded = true;
    submission->replays = kept;
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
        if (rc < 0) { /* none of it has run, or will run */
            rf_submission_give_back(stream, submission);
            return rc;
        }
    } else if (stream->wait_count > 0) {
        RETURN_IF_ERROR(rf_device_check(stream->device));
        RETURN_IF_ERROR(rf_submission_take(stream, &submission));
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
    rf_stream_reap(stream);
    return 0;
}

void rf_stream_finish(struct rf_stream *stream, uint64_t value)
{
    struct rf_device *device = stream->device;
    if (rf_point_wait((struct rf_point){stream->timeline, value}, UINT64_MAX) < 0) {
        pthread_mutex_lock(&device->lock);
        rf_core_wait_idle(device->core);
        pthread_mutex_unlock(&device->lock);
    }
    rf_stream_reap(stream);
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

int rf_stream_reserve(struct rf_stream *stream, int submissions, uint32_t waits)
{
    if (!stream || submissions < 0)
        return rf_fail(RF_EINVAL, "rf_stream_reserve needs a stream and a number of submissions");
    if (stream->device->counting)
        return 0;
    RETURN_IF_ERROR(rf_stream_wait(stream)); /* then all submissions are free */
    RETURN_IF_ERROR(
        rf_submission_reserve_waits(stream, &stream->waits, &stream->wait_capacity, waits));
    int made = 0;
    for (struct rf_submission *s = stream->free; s; s = s->next, made++)
        RETURN_IF_ERROR(rf_submission_reserve_waits(stream, &s->waits, &s->wait_capacity, waits));
    for (; made < submissions; made++) {
        struct rf_submission *fresh = NULL;
        RETURN_IF_ERROR(rf_submission_create(stream, &fresh));
        rf_submission_give_back(stream, fresh);
        RETURN_IF_ERROR(
            rf_submission_reserve_waits(stream, &fresh->waits, &fresh->wait_capacity, waits));
    }
    return 0;
}
