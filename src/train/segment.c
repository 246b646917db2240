/* SPDX-License-Identifier: MIT
 *
 * Segments: the commands of a step between two submissions. A segment is recorded in two steps. If
 * both recordings have the same commands with the same arguments, it is replayed from then on.
 * Values that differ between steps, like the learning rate, are read from memory. From time to time
 * a segment is recorded again, and must equal the replayed one. Called by the executor and by
 * evaluation.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../device/device.h"
#include "run.h"

int rf_segments_open(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    long check = 0;
    RETURN_IF_ERROR(rf_env_int("RF_CHECK_REPLAY", 0, &check));
    run->check_replay = check != 0;
    run->record_each_step |= rf_device_checks_ranges(run->device);
    int most = 0;
    for (int id = 0; id < RF_LIST_COUNT; id++) {
        const int count = plan->lists[id].count;
        most = count > most ? count : most;
        run->segments[id] = rf_alloc(((size_t)count + 1) * sizeof(**run->segments));
        if (!run->segments[id])
            return rf_fail(RF_ENOMEM, "run: out of host memory");
    }
    run->points = rf_alloc(((size_t)most + 1) * sizeof(*run->points));
    return run->points ? 0 : rf_fail(RF_ENOMEM, "run: out of host memory");
}

void rf_segments_close(struct rf_run *run)
{
    const struct rf_plan *plan = run->plan;
    for (int id = 0; id < RF_LIST_COUNT; id++) {
        for (int i = 0; run->segments[id] && i < plan->lists[id].count; i++)
            rf_recording_destroy(run->segments[id][i].recording);
        rf_free(run->segments[id]);
        run->segments[id] = NULL;
    }
    rf_free(run->points);
    run->points = NULL;
}

/* Whether the kept recording is known to equal a new one. */
static bool known(const struct rf_run *run, const struct rf_segment *s, int64_t micro_batch)
{
    return s->recording && (s->any_step || s->step == run->step) &&
           (s->any_micro_batch || s->micro_batch == micro_batch);
}

/* Checks in steps 16, 32, 64, ... */
static bool to_be_checked(const struct rf_run *run)
{
    return run->check_replay || (run->step >= 16 && (run->step & (run->step - 1)) == 0);
}

int rf_segment_begin(struct rf_run *run, struct rf_segment *segment, int64_t micro_batch,
                     bool varies)
{
    segment->varies |= varies;
    if (segment->recording && (segment->varies || !rf_recording_valid(segment->recording))) {
        rf_recording_destroy(segment->recording);
        *segment = (struct rf_segment){.varies = segment->varies};
    }
    run->segment_start_ns = rf_now_ns();
    if (run->record_each_step || segment->varies)
        run->mode = RF_SEGMENT_RECORD;
    else if (known(run, segment, micro_batch) && !to_be_checked(run))
        run->mode = RF_SEGMENT_REPLAY;
    else
        run->mode = RF_SEGMENT_KEEP;
    if (!segment->recording) {
        segment->step = run->step;
        segment->micro_batch = micro_batch;
    }
    run->segment = segment;
    run->segment_micro_batch = micro_batch;
    return run->mode == RF_SEGMENT_KEEP ? rf_record_begin(run->stream) : 0;
}

/* Compares with the recording that was kept before, and replaces it. */
static int keep(struct rf_run *run, struct rf_segment *s)
{
    const int64_t micro_batch = run->segment_micro_batch;
    struct rf_recording *recorded = NULL;
    char why[200];
    RETURN_IF_ERROR(rf_record_end(run->stream, &recorded));
    if (s->recording && rf_recording_same(s->recording, recorded, why, sizeof(why))) {
        s->any_step |= s->step != run->step;
        s->any_micro_batch |= s->micro_batch != micro_batch;
    } else if (s->recording) {
        if (known(run, s, micro_batch)) {
            rf_recording_destroy(recorded);
            return rf_fail(RF_EINVAL,
                           "a step would not be replayed as it is recorded now (%s): a block whose "
                           "launches differ from step to step must set varies",
                           why);
        }
        rf_log("train", 2, "a part of the step is recorded in every step: %s", why);
        s->varies = true;
    }
    rf_recording_destroy(s->recording);
    s->recording = recorded;
    return 0;
}

int rf_segment_end(struct rf_run *run, struct rf_point *done)
{
    struct rf_segment *segment = run->segment;
    const enum rf_segment_mode mode = run->mode;
    run->segment = NULL;
    run->mode = RF_SEGMENT_CLOSED;
    if (!segment)
        return rf_stream_submit(run->stream, done);
    if (mode == RF_SEGMENT_KEEP)
        RETURN_IF_ERROR(keep(run, segment));
    if (mode != RF_SEGMENT_RECORD)
        RETURN_IF_ERROR(rf_record_replay(run->stream, segment->recording));
    RETURN_IF_ERROR(rf_stream_submit(run->stream, done));
    if (mode == RF_SEGMENT_REPLAY)
        run->replayed++;
    else
        run->recorded++;
    run->record_ns += rf_now_ns() - run->segment_start_ns;
    return 0;
}

void rf_segment_give_up(struct rf_run *run)
{
    run->segment = NULL;
    run->mode = RF_SEGMENT_CLOSED;
    if (run->stream && rf_record_end(run->stream, NULL) < 0)
        rf_log("train", 2, "an open recording could not be ended");
}
