/* SPDX-License-Identifier: MIT
 *
 * Running a call on device tensors: the location of its data, the tensors that need staging memory
 * (comm_staging.c), and the wait for the point before it.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../staging.h"
#include "../task.h"

#define AFTER_SLICE_NS 2000000ull

/* Waits in slices, so that a failure of the communicator ends the wait. */
int rf_comm_wait_after(struct rf_comm *comm, struct rf_point after)
{
    if (!after.timeline)
        return 0;
    for (;;) {
        int rc = rf_point_wait(after, AFTER_SLICE_NS);
        if (rc != RF_ETIMEOUT)
            return rc;
        if (rf_comm_has_events(comm))
            RETURN_IF_ERROR(rf_comm_events(comm));
    }
}

/* The device of the call's tensors: a rank that is not the root may have only one tensor. */
struct rf_device *rf_task_device(const struct rf_task *job)
{
    struct rf_buffer *buffer = job->out.buffer ? job->out.buffer : job->in.buffer;
    return buffer ? rf_buffer_device(buffer) : NULL;
}

static void *map_of(struct rf_tensor tensor)
{
    return tensor.buffer ? rf_tensor_map(tensor) : NULL;
}

void rf_task_prepare(const struct rf_comm *comm, struct rf_task *job)
{
    size_t in, out;
    rf_call_counts(comm, &job->call, &in, &out);
    job->plain = job->call;
    job->plain.in = map_of(job->in);
    job->plain.out = map_of(job->out);
    job->plain.desc.staged = (in > 0 && !job->plain.in ? RF_STAGED_IN : 0) |
                             (out > 0 && !job->plain.out ? RF_STAGED_OUT : 0);
}

int rf_task_stage(struct rf_comm *comm, struct rf_task *job)
{
    return rf_staging_begin(comm, rf_task_device(job), &job->plain, job->in, job->out);
}

int rf_task_run(struct rf_comm *comm, struct rf_task *job)
{
    RETURN_IF_ERROR(rf_comm_wait_after(comm, job->after));
    rf_task_prepare(comm, job);
    if (!job->plain.desc.staged)
        return rf_comm_run(comm, &job->plain);
    RETURN_IF_ERROR(rf_task_stage(comm, job));
    int rc = rf_comm_run(comm, &job->plain);
    if (rc < 0)
        rf_staging_abandon(job->plain.mover);
    return rc;
}
