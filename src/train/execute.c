/* SPDX-License-Identifier: MIT
 *
 * Runs a list of a plan. The list decides everything: the instructions, their order and their
 * lanes. Compute is recorded on the run's stream and submitted in segments (segment.c). Collectives
 * run concurrently, each after the points that it waits for. Host instructions block.
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "../comm/health/failure_broadcast.h"
#include "../device/device.h"
#include "run.h"
#include "verbs.h"

/* The point for a position in a lane's list. */
static struct rf_point *point_of(struct rf_execution *p, int lane, int position)
{
    return &p->run->points[p->base[lane] + position];
}

/* Time that the host waits for a transfer after all submitted compute has finished counts as
 * exposed. */
static int wait_exposed(struct rf_execution *p, struct rf_point point)
{
    if (rf_point_reached(point))
        return rf_point_wait(point, UINT64_MAX); /* its status */
    RETURN_IF_ERROR(rf_stalls_wait(p));
    RETURN_IF_ERROR(rf_run_wait(p, p->computed));
    const uint64_t start = rf_now_ns();
    int rc = rf_run_wait(p, point);
    p->stats.exposed_comm_ns += rf_now_ns() - start;
    return rc;
}

/* The other waits of an instruction come first, so the rank has nothing else to do. */
static int wait_on_disk(struct rf_execution *p, struct rf_point point)
{
    const uint64_t start = rf_now_ns();
    RETURN_IF_ERROR(rf_run_wait(p, point));
    p->stats.exposed_disk_ns += rf_now_ns() - start;
    return rf_disk_status(p->run->disk);
}

/* Waits for the points of the instruction's waits and for the preceding work of its lane. If that
 * work belongs to the previous step, this step computes meanwhile: nothing is exposed, and the host
 * must not wait for all compute. */
static int wait_on_host(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_wait *waits = rf_plan_waits(p->run->plan, i);
    const int before = p->next[i->lane] - 1;
    for (int k = 0; k < i->waits; k++) {
        struct rf_point point = *point_of(p, waits[k].lane, waits[k].position);
        if (waits[k].lane == RF_LANE_DISK) {
            RETURN_IF_ERROR(wait_on_disk(p, point));
            continue;
        }
        RETURN_IF_ERROR(rf_lane_transfers(waits[k].lane) && !i->behind ? wait_exposed(p, point)
                                                                       : rf_run_wait(p, point));
    }
    if (before < 0)
        return 0;
    const struct rf_point point = *point_of(p, (int)i->lane, before);
    return i->behind ? rf_run_wait(p, point) : wait_exposed(p, point);
}

static int wait_on_stream(struct rf_execution *p, const struct rf_instruction *i)
{
    const struct rf_wait *waits = rf_plan_waits(p->run->plan, i);
    for (int k = 0; k < i->waits; k++) {
        struct rf_point point = *point_of(p, waits[k].lane, waits[k].position);
        if (rf_lane_transfers(waits[k].lane))
            rf_stalls_add(p, point);
        if (point.timeline)
            RETURN_IF_ERROR(rf_stream_after(p->run->stream, point));
    }
    return 0;
}

/* The name of a segment is that of its last instruction, which submits it. */
static int begin_segment(struct rf_execution *p, int first)
{
    struct rf_run *run = p->run;
    const struct rf_plan *plan = run->plan;
    const struct rf_list *list = &plan->lists[p->list];
    bool varies = false;
    int end = first;
    for (;; end++) {
        const struct rf_instruction *i = &list->instructions[end];
        if (i->lane != RF_LANE_COMPUTE)
            continue;
        varies |= i->block >= 0 && plan->blocks[i->block].varies;
        if (i->posts)
            break;
    }
    return rf_segment_begin(run, &run->segments[p->list][end], p->first, varies);
}

static int compute(struct rf_execution *p, int at, const char *text)
{
    struct rf_run *run = p->run;
    const struct rf_instruction *i = &run->plan->lists[p->list].instructions[at];
    if (!run->segment) {
        rf_stalls_poll(p);
        RETURN_IF_ERROR(wait_on_stream(p, i));
        RETURN_IF_ERROR(begin_segment(p, at));
    }
    if (run->mode != RF_SEGMENT_REPLAY) {
        rf_stream_push_label(run->stream, text);
        int rc = rf_verbs[i->verb].record(p, i);
        rf_stream_pop_label(run->stream);
        RETURN_IF_ERROR(rc);
    }
    if (!i->posts)
        return 0;
    RETURN_IF_ERROR(rf_segment_end(run, &p->computed));
    *point_of(p, RF_LANE_COMPUTE, p->next[RF_LANE_COMPUTE]) = p->computed;
    return 0;
}

/* Starts a transfer after the last of the points that it waits for, and after the preceding work of
 * its lane. The communicator keeps the order of calls, but each call begins at its own point. */
static int transfer(struct rf_execution *p, const struct rf_instruction *i, const char *text)
{
    const struct rf_wait *waits = rf_plan_waits(p->run->plan, i);
    struct rf_point *done = point_of(p, (int)i->lane, p->next[i->lane]);
    struct rf_point *after = &p->after[i->lane];
    for (int k = 0; k < i->waits; k++) {
        struct rf_point point = *point_of(p, waits[k].lane, waits[k].position);
        if (after->timeline != point.timeline)
            RETURN_IF_ERROR(rf_run_wait(p, *after));
        *after = point.timeline ? point : *after;
    }
    uint64_t start = 0;
    /* Messages are not waited for, because the peer may be sending one, too. */
    const bool wait =
        p->run->one_by_one && (rf_lane_collects((int)i->lane) || p->run->copies[i->lane]);
    if (wait) { /* for submitted work: a segment may be open, which this does not wait for */
        RETURN_IF_ERROR(rf_run_wait(p, p->computed));
        start = rf_now_ns();
    }
    p->transferring |= p->run->comms[i->lane] != NULL;
    rf_stream_push_label(p->run->copies[i->lane], text);
    int rc = rf_verbs[i->verb].start(p, i, *after, done);
    rf_stream_pop_label(p->run->copies[i->lane]);
    if (rc < 0 || !wait)
        return rc;
    if (p->run->copies[i->lane])
        return rf_stream_wait(p->run->copies[i->lane]);
    RETURN_IF_ERROR(rf_comm_wait(p->run->comms[i->lane]));
    p->stats.exposed_comm_ns += rf_now_ns() - start;
    return 0;
}

/* A failed transfer has completed, too. The communicator reports the failure in its next call. For
 * a group's communicator this may be after the update, so it is checked here. */
static int check_groups(const struct rf_run *run)
{
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
        if (run->comms[lane] && run->comms[lane] != run->comm)
            RETURN_IF_ERROR(rf_comm_async_error(run->comms[lane]));
    return 0;
}

static int on_host(struct rf_execution *p, const struct rf_instruction *i, const char *text)
{
    RETURN_IF_ERROR(wait_on_host(p, i));
    RETURN_IF_ERROR(check_groups(p->run));
    *point_of(p, (int)i->lane, p->next[i->lane]) = (struct rf_point){0};
    const uint64_t start = rf_now_ns();
    int rc = rf_verbs[i->verb].act(p, i);
    rf_trace_event(rf_lane_name(i->lane), text, start, rf_now_ns());
    return rc;
}

static int execute(struct rf_execution *p, int at, const char *text)
{
    const struct rf_instruction *i = &p->run->plan->lists[p->list].instructions[at];
    int rc = rf_verbs[i->verb].record  ? compute(p, at, text)
             : rf_verbs[i->verb].start ? transfer(p, i, text)
                                       : on_host(p, i, text);
    p->next[i->lane]++;
    return rc;
}

/* From here on, no transfer is in flight. */
static int finish_transfers(struct rf_execution *p)
{
    if (!p->transferring)
        return 0;
    const uint64_t start = rf_now_ns();
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
        if (p->run->comms[lane]) {
            if (p->next[lane] > 0)
                RETURN_IF_ERROR(rf_run_wait(p, *point_of(p, lane, p->next[lane] - 1)));
            RETURN_IF_ERROR(rf_comm_wait(p->run->comms[lane]));
        }
    p->stats.exposed_comm_ns += rf_now_ns() - start;
    return 0;
}

/* Ends a list. An error that is reported here no longer affects this rank's own part. The step
 * still fails, because other ranks may have abandoned it. */
static int finish(struct rf_execution *p)
{
    RETURN_IF_ERROR(rf_stalls_wait(p));
    RETURN_IF_ERROR(rf_stream_wait(p->run->stream));
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (p->run->copies[lane])
            RETURN_IF_ERROR(rf_stream_wait(p->run->copies[lane]));
    if (p->next[RF_LANE_DISK] > 0)
        RETURN_IF_ERROR(wait_on_disk(p, *point_of(p, RF_LANE_DISK, p->next[RF_LANE_DISK] - 1)));
    p->updated = true;
    rf_take_scalars(p);
    return finish_transfers(p);
}

int rf_run_execute(struct rf_execution *p)
{
    const struct rf_plan *plan = p->run->plan;
    const struct rf_list *list = &plan->lists[p->list];
    char text[96];
    rf_disk_begin(p->run->disk);
    for (int lane = 1; lane < RF_LANE_COUNT; lane++)
        p->base[lane] = p->base[lane - 1] + list->positions[lane - 1];
    for (int i = 0; i < list->count; i++) {
        const struct rf_instruction *instruction = &list->instructions[i];
        int rc = execute(p, i, rf_instruction_text(plan, instruction, text, sizeof(text)));
        /* A user's block may return a status without an error message. */
        if (rc < 0 && rf_last_error()->status != rc)
            return rf_fail(rc, "%s failed: %s", text, rf_status_text(rc));
        if (rc < 0)
            return rc;
    }
    return finish(p);
}

/* Reports a failure of one group to all ranks, with ranks numbered as in the job. Returns the
 * status of this thread's last error. */
static int report_to_all(struct rf_run *run, int status)
{
    const struct rf_error own = *rf_last_error();
    const bool before = run->gave_up;
    struct rf_comm *groups[RF_LANE_COUNT];
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        groups[lane] = run->comms[lane] == run->comm ? NULL : run->comms[lane];
    int rc = check_groups(run);
    run->gave_up = true;
    if (rc < 0)
        rc = before ? rf_comm_wait(run->comm)
                    : rf_comm_broadcast_failure(run->comm, groups, RF_LANE_COUNT);
    return rc < 0 ? rc : own.status == status ? rf_fail_error(&own) : status;
}

int rf_run_give_up(struct rf_run *run, int status)
{
    const bool together = run->comm && rf_comm_size(run->comm) > 1;
    if (together)
        status = report_to_all(run, status);
    const struct rf_error error = *rf_last_error();
    rf_segment_give_up(run);
    if (together) {
        /* Aborts the groups, so that other ranks do not wait for this one. */
        for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
            if (run->comms[lane])
                rf_comm_abort(run->comms[lane], error.message);
        for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
            if (run->comms[lane] && rf_comm_wait(run->comms[lane]) < 0)
                rf_log("train", 2, "transfers were abandoned after an error");
    }
    for (int lane = 0; lane < RF_LANE_COUNT; lane++)
        if (run->copies[lane] && rf_stream_wait(run->copies[lane]) < 0)
            rf_log("train", 2, "a stream of copies failed too");
    if (rf_stream_wait(run->stream) < 0)
        rf_log("train", 2, "the stream failed too");
    if (rf_disk_wait(run->disk) < 0)
        rf_log("train", 2, "copies from the disk or to it failed, or have failed before");
    return error.status == status ? rf_fail_error(&error) : status;
}
