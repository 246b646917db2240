/* SPDX-License-Identifier: MIT
 *
 * Asynchronous calls, the owner's side: a queue, and a thread (worker.c) that exists only while the
 * queue is not empty.
 */
#include <errno.h>

#include "../family.h"
#include "../worker.h"

static int collective_timeline(struct rf_async *async, struct rf_device *device,
                               struct rf_signal_timeline **out)
{
    for (int i = 0; i < RF_ASYNC_DEVICES; i++) {
        struct rf_signal_timeline *signal = &async->collective_timelines[i];
        if (!signal->device) {
            RETURN_IF_ERROR(rf_timeline_create(device, &signal->timeline));
            signal->device = device;
        }
        if (signal->device == device) {
            *out = signal;
            return 0;
        }
    }
    return rf_fail(RF_ENOTSUP, "a communicator can work with at most %d devices", RF_ASYNC_DEVICES);
}

/* A timeline whose queued points have all been signalled. */
static int p2p_timeline(struct rf_async *async, struct rf_device *device,
                        struct rf_signal_timeline **out)
{
    struct rf_signal_timeline *signal = async->p2p_timelines;
    while (signal && (signal->device != device ||
                      !rf_point_reached((struct rf_point){signal->timeline, signal->value})))
        signal = signal->next;
    if (!signal) {
        signal = rf_alloc(sizeof(*signal));
        if (!signal)
            return rf_fail(RF_ENOMEM, "no memory for a timeline");
        int rc = rf_timeline_create(device, &signal->timeline);
        if (rc < 0) {
            rf_free(signal);
            return rc;
        }
        signal->device = device;
        signal->next = async->p2p_timelines;
        async->p2p_timelines = signal;
    }
    *out = signal;
    return 0;
}

/* Called with the lock held. */
static int ensure_worker(struct rf_async *async)
{
    if (async->running)
        return 0;
    if (async->joinable)
        pthread_join(async->thread, NULL); /* it has left its loop and holds no lock */
    async->joinable = false;
    int error = pthread_create(&async->thread, NULL, rf_worker, async);
    if (error != 0)
        return rf_fail(RF_ENOMEM, "no thread for asynchronous calls: %s", strerror(error));
    async->running = async->joinable = true;
    return 0;
}

/* Called with the lock held. */
static int append(struct rf_async *async, struct rf_task *job)
{
    RETURN_IF_ERROR(ensure_worker(async));
    rf_task_append(&async->submitted, job);
    atomic_fetch_add_explicit(&async->outstanding, 1, memory_order_relaxed);
    if (!job->p2p_ops) {
        async->outstanding_collectives++;
        atomic_fetch_add_explicit(&async->unrecorded_count, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&async->submitted_count, 1, memory_order_release);
    return 0;
}

int rf_async_push(struct rf_comm *comm, const struct rf_task *job, struct rf_device *device,
                  struct rf_point *done)
{
    struct rf_async *async = comm->async;
    struct rf_task *copy = NULL;
    struct rf_signal_timeline *signal = NULL;
    RETURN_IF_ERROR(job->p2p_ops ? p2p_timeline(async, device, &signal)
                                 : collective_timeline(async, device, &signal));
    RETURN_IF_ERROR(rf_task_copy(comm, job, &copy));
    pthread_mutex_lock(&async->lock);
    copy->done = signal->timeline;
    copy->done_value = signal->value + 1;
    const struct rf_point point = {copy->done, copy->done_value};
    int rc = append(async, copy);
    if (rc == 0) {
        signal->value++;
        *done = point;
    }
    pthread_mutex_unlock(&async->lock);
    if (rc < 0)
        rf_task_free(copy);
    return rc;
}

/* Queues a task with a request, and frees the task on failure. The request then stays the caller's.
 */
static int push(struct rf_async *async, struct rf_task *task)
{
    pthread_mutex_lock(&async->lock);
    int rc = append(async, task);
    pthread_mutex_unlock(&async->lock);
    if (rc < 0)
        rf_task_free(task);
    return rc;
}

static int push_copy(struct rf_comm *comm, const struct rf_task *job, bool blocking,
                     struct rf_request **out)
{
    struct rf_request *request = NULL;
    struct rf_task *copy = NULL;
    RETURN_IF_ERROR(rf_task_copy(comm, job, &copy));
    int rc = rf_request_create(&request);
    if (rc < 0) {
        rf_task_free(copy);
        return rc;
    }
    copy->request = request;
    copy->blocking = blocking;
    rc = push(comm->async, copy);
    if (rc == 0) {
        *out = request;
        return 0;
    }
    rf_request_free(request); /* the worker's reference */
    rf_request_free(request);
    return rc;
}

int rf_async_push_request(struct rf_comm *comm, const struct rf_task *job,
                          struct rf_request **request)
{
    return push_copy(comm, job, false, request);
}

void rf_async_push_task(struct rf_comm *comm, struct rf_task *job)
{
    struct rf_request *request = job->request;
    int rc = push(comm->async, job);
    if (rc < 0)
        rf_request_end(request, rc);
}

int rf_async_run(struct rf_comm *comm, const struct rf_task *job)
{
    struct rf_async *async = comm->async;
    struct rf_request *request = NULL;
    RETURN_IF_ERROR(push_copy(comm, job, true, &request));
    int rc = rf_request_wait(request, 0);
    rf_request_free(request);
    if (job->p2p_ops)
        return rc;
    pthread_mutex_lock(&async->lock);
    while (async->outstanding_collectives > 0)
        rf_cond_wait(&async->changed, &async->lock, UINT64_MAX);
    pthread_mutex_unlock(&async->lock);
    return rc;
}

int rf_comm_wait(struct rf_comm *comm)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "wait: the communicator is NULL");
    return rf_comm_enter(comm);
}

int rf_comm_async_error(struct rf_comm *comm)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "async_error: the communicator is NULL");
    rf_family_enter(comm->membership.family);
    if (!rf_async_busy(comm->async)) {
        if (!comm->failure.failed && rf_comm_has_events(comm))
            RETURN_IF_ERROR(rf_comm_events(comm));
        return comm->failure.failed ? rf_fail_error(&comm->failure.error) : 0;
    }
    int status = rf_async_status(comm->async);
    return status < 0
               ? rf_fail(status, "an asynchronous call has failed (%s); rf_comm_wait says why",
                         rf_status_text(status))
               : 0;
}
