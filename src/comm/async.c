/* SPDX-License-Identifier: MIT
 *
 * Asynchronous calls: a queue, and a thread that exists only while there is something in it. Jobs
 * run one after the other in the order of the calls; each signals its point in time when it has
 * ended, also after an error, so nothing that waits hangs.
 */
#include <errno.h>
#include <pthread.h>
#include <ringforge/ringforge.h>

#include "communicator.h"

enum { MAX_DEVICES = 16 };

struct rf_async {
    struct rf_comm *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rf_task *first, **end;
    atomic_int outstanding; /* queued and running; changed under lock */
    atomic_int status;      /* of the first job that failed */
    bool running, joinable;
    pthread_t thread;
    struct {
        struct rf_device *device;
        struct rf_timeline *timeline;
        uint64_t value; /* of the last job queued */
    } timelines[MAX_DEVICES];
};

int rf_async_create(struct rf_comm *comm, struct rf_async **out)
{
    struct rf_async *async = rf_alloc(sizeof(*async));
    if (!async)
        return rf_fail(RF_ENOMEM, "no memory for a communicator's queue");
    async->comm = comm;
    async->end = &async->first;
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
    for (int i = 0; i < MAX_DEVICES; i++)
        rf_timeline_destroy(async->timelines[i].timeline);
    pthread_mutex_destroy(&async->lock);
    pthread_cond_destroy(&async->changed);
    rf_free(async);
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* Its caller has gone on long ago, so every error fails the communicator; the request says so, or,
 * where there is none, the next call. */
static int run(struct rf_comm *comm, struct rf_task *job)
{
    if (comm->failed) {
        struct rf_error error = comm->error;
        error.status = RF_EABORT;
        return rf_fail_error(&error);
    }
    int rc = job->request ? rf_comm_run(comm, &job->call) : rf_task_run(comm, job);
    if (rc < 0 && !comm->failed) {
        struct rf_error error = *rf_last_error();
        char text[128];
        struct rf_contract mine;
        rf_contract_fill(&mine, &job->call);
        mine.sequence = comm->sequence;
        rf_comm_fail_text(comm, rc, error.rank, &mine, "asynchronous %s on rank %d: %.150s",
                          rf_contract_text(&mine, text, 80), comm->rank, error.message);
    }
    if (rc < 0) {
        comm->unreported = comm->unreported || !job->request;
        atomic_store_explicit(&comm->async->status, rc, memory_order_release);
    }
    return rc;
}

static void end(struct rf_task *job, int rc)
{
    if (job->request)
        rf_request_end(job->request, rc);
    else if (rf_timeline_signal(job->done, job->done_value) < 0)
        rf_log("comm", 0, "a finished call could not be signalled: %s", rf_last_error()->message);
}

void rf_task_free(struct rf_task *job)
{
    if (!job)
        return;
    rf_free(job->copies);
    rf_free(job);
}

static void *worker(void *argument)
{
    struct rf_async *async = argument;
    rf_set_thread_rank(async->comm->rank);
    pthread_mutex_lock(&async->lock);
    while (async->first) {
        struct rf_task *job = async->first;
        async->first = job->next;
        if (!async->first)
            async->end = &async->first;
        pthread_mutex_unlock(&async->lock);

        end(job, run(async->comm, job));
        rf_task_free(job);

        pthread_mutex_lock(&async->lock);
        atomic_fetch_sub_explicit(&async->outstanding, 1, memory_order_release);
        pthread_cond_broadcast(&async->changed);
    }
    async->running = false;
    pthread_mutex_unlock(&async->lock);
    return NULL;
}

/* ---- the owner ------------------------------------------------------------------------------- */

/* A row of the table of timelines. */
static int timeline_of(struct rf_async *async, struct rf_device *device, int *row)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        if (!async->timelines[i].device) {
            RETURN_IF_ERROR(rf_timeline_create(device, &async->timelines[i].timeline));
            async->timelines[i].device = device;
        }
        if (async->timelines[i].device == device) {
            *row = i;
            return 0;
        }
    }
    return rf_fail(RF_ENOTSUP, "a communicator can work with at most %d devices", MAX_DEVICES);
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

/* Locked. */
static int ensure_worker(struct rf_async *async)
{
    if (async->running)
        return 0;
    if (async->joinable)
        pthread_join(async->thread, NULL); /* it has left its loop and holds nothing */
    async->joinable = false;
    int error = pthread_create(&async->thread, NULL, worker, async);
    if (error != 0)
        return rf_fail(RF_ENOMEM, "no thread for asynchronous calls: %s", strerror(error));
    async->running = async->joinable = true;
    return 0;
}

/* Locked. */
static int append(struct rf_async *async, struct rf_task *job)
{
    RETURN_IF_ERROR(ensure_worker(async));
    *async->end = job;
    async->end = &job->next;
    atomic_fetch_add_explicit(&async->outstanding, 1, memory_order_relaxed);
    return 0;
}

int rf_async_push(struct rf_comm *comm, const struct rf_task *job, struct rf_device *device,
                  struct rf_point *done)
{
    struct rf_async *async = comm->async;
    struct rf_task *copy = NULL;
    int row = 0;
    RETURN_IF_ERROR(timeline_of(async, device, &row));
    RETURN_IF_ERROR(rf_task_copy(comm, job, &copy));
    pthread_mutex_lock(&async->lock);
    copy->done = async->timelines[row].timeline;
    copy->done_value = async->timelines[row].value + 1;
    const struct rf_point point = {copy->done, copy->done_value};
    int rc = append(async, copy);
    if (rc == 0) {
        async->timelines[row].value++;
        *done = point;
    }
    pthread_mutex_unlock(&async->lock);
    if (rc < 0)
        rf_task_free(copy);
    return rc;
}

int rf_async_push_host(struct rf_comm *comm, const struct rf_call *call, struct rf_request **out)
{
    struct rf_async *async = comm->async;
    const struct rf_task job = {.call = *call};
    struct rf_request *request = NULL;
    struct rf_task *copy = NULL;
    RETURN_IF_ERROR(rf_task_copy(comm, &job, &copy));
    int rc = rf_request_create(&request);
    if (rc == 0) {
        copy->request = request;
        pthread_mutex_lock(&async->lock);
        rc = append(async, copy);
        pthread_mutex_unlock(&async->lock);
    }
    if (rc == 0) {
        *out = request;
        return 0;
    }
    if (request) {
        rf_request_free(request); /* for the worker, which has not got it */
        rf_request_free(request);
    }
    rf_task_free(copy);
    return rc;
}

int rf_async_status(const struct rf_async *async)
{
    return atomic_load_explicit(&async->status, memory_order_acquire);
}

bool rf_async_busy(const struct rf_async *async)
{
    return atomic_load_explicit(&async->outstanding, memory_order_acquire) > 0;
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
