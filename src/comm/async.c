/* SPDX-License-Identifier: MIT
 *
 * Asynchronous calls: a queue, and a thread that exists only while there is something in it. Jobs
 * run one after the other in the order of the calls; each signals its point in time when it has
 * ended, also after an error, so nothing that waits hangs.
 */
#include <errno.h>
#include <pthread.h>
#include <ringforge/ringforge.h>
#include <time.h>

#include "communicator.h"

enum { MAX_DEVICES = 16 };

struct rf_async {
    struct rf_comm *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rf_task *first, **end;
    atomic_int outstanding; /* queued and running; changed under lock */
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
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&async->changed, &attr);
    pthread_condattr_destroy(&attr);
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

/* Its caller has gone on long ago, so every error fails the communicator, and the next call says
 * so. */
static void run(struct rf_comm *comm, struct rf_task *job)
{
    if (comm->failed)
        return;
    int rc = rf_task_run(comm, job);
    if (rc < 0 && !comm->failed) {
        struct rf_error error = *rf_last_error();
        char text[128];
        struct rf_contract mine;
        rf_contract_fill(&mine, &job->call);
        mine.sequence = comm->sequence;
        rf_comm_fail_text(comm, rc, error.rank, &mine, "asynchronous %s on rank %d: %.150s",
                          rf_contract_text(&mine, text, 80), comm->rank, error.message);
    }
    if (rc < 0)
        comm->unreported = true;
}

static void free_job(struct rf_task *job)
{
    if (job->call.forest)
        rf_free((void *)(uintptr_t)job->forest.first);
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

        run(async->comm, job);
        if (rf_timeline_signal(job->done, job->done_value) < 0)
            rf_log("comm", 0, "a finished call could not be signalled: %s",
                   rf_last_error()->message);
        free_job(job);

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

static int copy_job(const struct rf_task *job, struct rf_task **out)
{
    struct rf_task *copy = rf_alloc(sizeof(*copy));
    if (!copy)
        return rf_fail(RF_ENOMEM, "no memory to queue a call");
    *copy = *job;
    copy->next = NULL;
    if (job->call.label) {
        snprintf(copy->label, sizeof(copy->label), "%s", job->call.label);
        copy->call.label = copy->label;
    }
    if (job->call.forest) {
        size_t bytes = ((size_t)job->call.forest->ranks + 1) * sizeof(int);
        int *first = rf_alloc(bytes);
        if (!first) {
            rf_free(copy);
            return rf_fail(RF_ENOMEM, "no memory to queue a call");
        }
        memcpy(first, job->call.forest->first, bytes);
        copy->forest = *job->call.forest;
        copy->forest.first = first;
        copy->call.forest = &copy->forest;
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

int rf_async_push(struct rf_comm *comm, const struct rf_task *job, struct rf_device *device,
                  struct rf_point *done)
{
    struct rf_async *async = comm->async;
    struct rf_task *copy = NULL;
    int row = 0;
    RETURN_IF_ERROR(timeline_of(async, device, &row));
    RETURN_IF_ERROR(copy_job(job, &copy));
    pthread_mutex_lock(&async->lock);
    int rc = ensure_worker(async);
    if (rc == 0) {
        copy->done = async->timelines[row].timeline;
        copy->done_value = ++async->timelines[row].value;
        *async->end = copy;
        async->end = &copy->next;
        atomic_fetch_add_explicit(&async->outstanding, 1, memory_order_relaxed);
        *done = (struct rf_point){copy->done, copy->done_value};
    }
    pthread_mutex_unlock(&async->lock);
    if (rc < 0)
        free_job(copy);
    return rc;
}

bool rf_async_busy(const struct rf_async *async)
{
    return atomic_load_explicit(&async->outstanding, memory_order_acquire) > 0;
}

bool rf_async_drain(struct rf_async *async, double timeout_s)
{
    uint64_t end_ns = rf_now_ns() + (uint64_t)(timeout_s * 1e9);
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u),
                           .tv_nsec = (long)(end_ns % 1000000000u)};
    pthread_mutex_lock(&async->lock);
    bool late = false;
    while (!late && rf_async_busy(async)) {
        if (timeout_s > 0)
            late = pthread_cond_timedwait(&async->changed, &async->lock, &end) == ETIMEDOUT;
        else
            pthread_cond_wait(&async->changed, &async->lock);
    }
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
