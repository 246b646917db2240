/* SPDX-License-Identifier: MIT
 *
 * Asynchronous calls, the owner's side: a queue, and a thread (worker.c) that exists only while
 * there is something in it.
 */
#include <errno.h>

#include "worker.h"

int rf_async_create(struct rf_comm *comm, struct rf_async **out)
{
    struct rf_async *async = rf_alloc(sizeof(*async));
    if (!async)
        return rf_fail(RF_ENOMEM, "no memory for a communicator's queue");
    async->comm = comm;
    async->brought.end = &async->brought.first;
    async->waiting.end = &async->waiting.first;
    async->flights.end = &async->flights.first;
    async->held.end = &async->held.first;
    async->points.end = &async->points.first;
    pthread_mutex_init(&async->lock, NULL);
    rf_cond_init(&async->changed);
    *out = async;
    return 0;
}

void rf_async_destroy(struct rf_async *async)
{
    if (!async)
        return;
    if (async->joinable)
        pthread_join(async->thread, NULL);
    for (int i = 0; i < RF_ASYNC_DEVICES; i++)
        rf_timeline_destroy(async->timelines[i].timeline);
    while (async->own) {
        struct rf_done_row *row = async->own;
        async->own = row->next;
        rf_timeline_destroy(row->timeline);
        rf_free(row);
    }
    rf_request_free(async->failed);
    pthread_mutex_destroy(&async->lock);
    pthread_cond_destroy(&async->changed);
    rf_free(async);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

void rf_task_free(struct rf_task *job)
{
    if (!job)
        return;
    for (size_t i = 0; job->halves && i < job->half_count; i++)
        rf_free(job->halves[i].kept);
    rf_free(job->halves);
    rf_free(job->closed);
    rf_free(job->copies);
    rf_free(job);
}

/* Of `bytes` bytes, which begin at *at. */
static const void *copy_into(char **at, const void *from, size_t bytes)
{
    void *to = *at;
    memcpy(to, from, bytes);
    *at += (bytes + 7) / 8 * 8;
    return to;
}

int rf_task_copy(const struct rf_comm *comm, const struct rf_task *job, struct rf_task **out)
{
    const struct rf_call *call = &job->call;
    const size_t counts = (size_t)comm->size * sizeof(*call->counts);
    const size_t first = call->forest ? ((size_t)call->forest->ranks + 1) * sizeof(int) : 0;
    struct rf_task *copy = rf_alloc(sizeof(*copy));
    char *at = rf_alloc(2 * counts + first + 8);
    if (!copy || !at) {
        rf_free(copy);
        rf_free(at);
        return rf_fail(RF_ENOMEM, "no memory to queue a call");
    }
    *copy = *job;
    copy->next = NULL;
    copy->copies = at;
    if (job->halves) {
        copy->halves = rf_alloc(job->half_count * sizeof(*copy->halves));
        if (!copy->halves) {
            rf_task_free(copy);
            return rf_fail(RF_ENOMEM, "no memory to queue %zu messages", job->half_count);
        }
        memcpy(copy->halves, job->halves, job->half_count * sizeof(*copy->halves));
    }
    if (call->counts)
        copy->call.counts = copy_into(&at, call->counts, counts);
    if (call->recv_counts)
        copy->call.recv_counts = copy_into(&at, call->recv_counts, counts);
    if (call->forest) {
        copy->forest = *call->forest;
        copy->forest.first = copy_into(&at, call->forest->first, first);
        copy->call.forest = &copy->forest;
    }
    if (call->label) {
        snprintf(copy->label, sizeof(copy->label), "%s", call->label);
        copy->call.label = copy->label;
    }
    if (call->algorithm) {
        snprintf(copy->algorithm, sizeof(copy->algorithm), "%s", call->algorithm);
        copy->call.algorithm = copy->algorithm;
    }
    *out = copy;
    return 0;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static int row_of(struct rf_async *async, struct rf_device *device, struct rf_done_row **out)
{
    for (int i = 0; i < RF_ASYNC_DEVICES; i++) {
        struct rf_done_row *row = &async->timelines[i];
        if (!row->device) {
            RETURN_IF_ERROR(rf_timeline_create(device, &row->timeline));
            row->device = device;
        }
        if (row->device == device) {
            *out = row;
            return 0;
        }
    }
    return rf_fail(RF_ENOTSUP, "a communicator can work with at most %d devices", RF_ASYNC_DEVICES);
}

/* One on which all that was queued has been signalled. */
static int own_row(struct rf_async *async, struct rf_device *device, struct rf_done_row **out)
{
    struct rf_done_row *row = async->own;
    while (row && (row->device != device ||
                   !rf_point_reached((struct rf_point){row->timeline, row->value})))
        row = row->next;
    if (!row) {
        row = rf_alloc(sizeof(*row));
        if (!row)
            return rf_fail(RF_ENOMEM, "no memory for a point in time");
        int rc = rf_timeline_create(device, &row->timeline);
        if (rc < 0) {
            rf_free(row);
            return rc;
        }
        row->device = device;
        row->next = async->own;
        async->own = row;
    }
    *out = row;
    return 0;
}

/* Locked. */
static int ensure_worker(struct rf_async *async)
{
    if (async->running)
        return 0;
    if (async->joinable)
        pthread_join(async->thread, NULL); /* it has left its loop and holds nothing */
    async->joinable = false;
    int error = pthread_create(&async->thread, NULL, rf_worker, async);
    if (error != 0)
        return rf_fail(RF_ENOMEM, "no thread for asynchronous calls: %s", strerror(error));
    async->running = async->joinable = true;
    return 0;
}

/* Locked. */
static int append(struct rf_async *async, struct rf_task *job)
{
    RETURN_IF_ERROR(ensure_worker(async));
    rf_task_append(&async->brought, job);
    atomic_fetch_add_explicit(&async->outstanding, 1, memory_order_relaxed);
    if (!job->halves) {
        async->collectives++;
        atomic_fetch_add_explicit(&async->queued, 1, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&async->fresh, 1, memory_order_release);
    return 0;
}

int rf_async_push(struct rf_comm *comm, const struct rf_task *job, struct rf_device *device,
                  struct rf_point *done)
{
    struct rf_async *async = comm->async;
    struct rf_task *copy = NULL;
    struct rf_done_row *row = NULL;
    RETURN_IF_ERROR(job->halves ? own_row(async, device, &row) : row_of(async, device, &row));
    RETURN_IF_ERROR(rf_task_copy(comm, job, &copy));
    pthread_mutex_lock(&async->lock);
    copy->done = row->timeline;
    copy->done_value = row->value + 1;
    const struct rf_point point = {copy->done, copy->done_value};
    int rc = append(async, copy);
    if (rc == 0) {
        row->value++;
        *done = point;
    }
    pthread_mutex_unlock(&async->lock);
    if (rc < 0)
        rf_task_free(copy);
    return rc;
}

/* Takes the task, which has a request: that is left to the caller where nothing was queued. */
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
    rf_request_free(request); /* for the worker, which has not got it */
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
    if (job->halves)
        return rc;
    pthread_mutex_lock(&async->lock);
    while (async->collectives > 0)
        rf_cond_wait(&async->changed, &async->lock, UINT64_MAX);
    pthread_mutex_unlock(&async->lock);
    return rc;
}

uint64_t rf_async_queued(const struct rf_async *async)
{
    return (uint64_t)atomic_load_explicit(&async->queued, memory_order_relaxed);
}

int rf_async_status(const struct rf_async *async)
{
    return atomic_load_explicit(&async->status, memory_order_acquire);
}

bool rf_async_busy(const struct rf_async *async)
{
    return atomic_load_explicit(&async->outstanding, memory_order_acquire) > 0;
}

bool rf_async_untold(struct rf_async *async)
{
    bool untold = async->failed && !async->asked_failed && !rf_request_was_told(async->failed);
    async->asked_failed = true;
    return untold;
}

bool rf_async_drain(struct rf_async *async, double timeout_s)
{
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    pthread_mutex_lock(&async->lock);
    while (rf_async_busy(async) && rf_cond_wait(&async->changed, &async->lock, until_ns))
        ;
    bool empty = !rf_async_busy(async);
    pthread_mutex_unlock(&async->lock);
    return empty;
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
    rf_family_enter(comm);
    if (!rf_async_busy(comm->async)) {
        if (!comm->failed && rf_comm_has_news(comm))
            RETURN_IF_ERROR(rf_comm_events(comm));
        return comm->failed ? rf_fail_error(&comm->error) : 0;
    }
    int status = rf_async_status(comm->async);
    return status < 0
               ? rf_fail(status, "an asynchronous call has failed (%s); rf_comm_wait says why",
                         rf_status_text(status))
               : 0;
}
