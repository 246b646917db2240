/* SPDX-License-Identifier: MIT
 *
 * Requests: they tell a caller that an operation it has started has ended. The worker (task_end.c)
 * ends them. They outlive the communicator.
 */
#include <errno.h>
#include <pthread.h>
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"

/* A wait for any one of several requests. */
struct any_wait {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended; /* one of them has ended */
};

struct rf_request {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders;             /* number of users: the caller, the worker, and others by
                              * rf_request_hold */
    bool ended, reported;    /* reported: the caller knows its error */
    struct any_wait *waiter; /* NULL: no wait for any one of several */
    int status;
    struct rf_error error;
};

int rf_request_create(struct rf_request **out)
{
    struct rf_request *request = rf_alloc(sizeof(*request));
    if (!request)
        return rf_fail(RF_ENOMEM, "no memory for a request");
    pthread_mutex_init(&request->lock, NULL);
    rf_cond_init(&request->changed);
    request->holders = 2;
    *out = request;
    return 0;
}

void rf_request_hold(struct rf_request *request)
{
    pthread_mutex_lock(&request->lock);
    request->holders++;
    pthread_mutex_unlock(&request->lock);
}

bool rf_request_was_reported(struct rf_request *request)
{
    pthread_mutex_lock(&request->lock);
    bool reported = request->reported;
    pthread_mutex_unlock(&request->lock);
    return reported;
}

static void release(struct rf_request *request)
{
    pthread_mutex_lock(&request->lock);
    bool last = --request->holders == 0;
    pthread_mutex_unlock(&request->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&request->lock);
    pthread_cond_destroy(&request->changed);
    rf_free(request);
}

static void notify(struct any_wait *waiter)
{
    pthread_mutex_lock(&waiter->lock);
    waiter->ended = true;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

void rf_request_end(struct rf_request *request, int status)
{
    pthread_mutex_lock(&request->lock);
    request->ended = true;
    request->status = status;
    if (status < 0)
        request->error = *rf_last_error();
    pthread_cond_broadcast(&request->changed);
    if (request->waiter)
        notify(request->waiter);
    pthread_mutex_unlock(&request->lock);
    release(request);
}

/* The status of an ended request. Called with the lock held. */
static int report(struct rf_request *request)
{
    request->reported = true;
    return request->status < 0 ? rf_fail_error(&request->error) : 0;
}

int rf_request_test(struct rf_request *request, bool *ended)
{
    if (!request || !ended)
        return rf_fail(RF_EINVAL, "test: the request or ended is NULL");
    pthread_mutex_lock(&request->lock);
    *ended = request->ended;
    int rc = *ended ? report(request) : 0;
    pthread_mutex_unlock(&request->lock);
    return rc;
}

int rf_request_wait(struct rf_request *request, double timeout_s)
{
    if (!request)
        return rf_fail(RF_EINVAL, "wait: the request is NULL");
    RETURN_IF_ERROR(rf_check_seconds("wait", timeout_s));
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    pthread_mutex_lock(&request->lock);
    while (!request->ended && rf_cond_wait(&request->changed, &request->lock, until_ns))
        ;
    int rc = request->ended ? report(request)
                            : rf_fail(RF_ETIMEOUT, "wait: not ended after %g s", timeout_s);
    pthread_mutex_unlock(&request->lock);
    return rc;
}

/* ---- several --------------------------------------------------------------------------------- */

static int check_several(const char *name, struct rf_request *const *requests, size_t count,
                         double timeout_s)
{
    if (!requests && count > 0)
        return rf_fail(RF_EINVAL, "%s: the requests are NULL", name);
    return rf_check_seconds(name, timeout_s);
}

int rf_request_wait_all(struct rf_request *const *requests, size_t count, double timeout_s)
{
    RETURN_IF_ERROR(check_several("wait_all", requests, count, timeout_s));
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    struct rf_error first = {0};
    for (size_t i = 0; i < count; i++) {
        struct rf_request *request = requests[i];
        if (!request)
            continue;
        pthread_mutex_lock(&request->lock);
        while (!request->ended && rf_cond_wait(&request->changed, &request->lock, until_ns))
            ;
        const bool ended = request->ended;
        if (ended && request->status < 0 && first.status == 0)
            first = request->error;
        request->reported = request->reported || ended;
        pthread_mutex_unlock(&request->lock);
        if (!ended)
            return rf_fail(RF_ETIMEOUT, "wait_all: not all have ended after %g s", timeout_s);
    }
    return first.status < 0 ? rf_fail_error(&first) : 0;
}

/* The index of the first ended request; count: none. Those before it notify `waiter` from now on.
 */
static size_t find_ended(struct rf_request *const *requests, size_t count, struct any_wait *waiter)
{
    for (size_t i = 0; i < count; i++) {
        struct rf_request *request = requests[i];
        if (!request)
            continue;
        pthread_mutex_lock(&request->lock);
        const bool ended = request->ended;
        request->waiter = ended ? NULL : waiter;
        pthread_mutex_unlock(&request->lock);
        if (ended)
            return i;
    }
    return count;
}

static bool is_empty(struct rf_request *const *requests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (requests[i])
            return false;
    return true;
}

int rf_request_test_any(struct rf_request *const *requests, size_t count, size_t *index,
                        bool *ended)
{
    RETURN_IF_ERROR(check_several("test_any", requests, count, 0));
    if (!index || !ended)
        return rf_fail(RF_EINVAL, "test_any: index or ended is NULL");
    const size_t found = find_ended(requests, count, NULL);
    *ended = found < count || is_empty(requests, count);
    *index = found;
    return found < count ? rf_request_test(requests[found], ended) : 0;
}

int rf_request_wait_any(struct rf_request *const *requests, size_t count, double timeout_s,
                        size_t *index)
{
    RETURN_IF_ERROR(check_several("wait_any", requests, count, timeout_s));
    if (!index)
        return rf_fail(RF_EINVAL, "wait_any: index is NULL");
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    struct any_wait waiter = {.ended = false};
    pthread_mutex_init(&waiter.lock, NULL);
    rf_cond_init(&waiter.changed);
    size_t found = find_ended(requests, count, &waiter);
    if (found == count && !is_empty(requests, count)) {
        pthread_mutex_lock(&waiter.lock);
        while (!waiter.ended && rf_cond_wait(&waiter.changed, &waiter.lock, until_ns))
            ;
        pthread_mutex_unlock(&waiter.lock);
    }
    /* The waiter is on the stack: no request may notify it any longer. */
    for (size_t i = 0; i < count; i++)
        find_ended(&requests[i], 1, NULL);
    if (found == count)
        found = find_ended(requests, count, NULL);
    pthread_mutex_destroy(&waiter.lock);
    pthread_cond_destroy(&waiter.changed);
    *index = found;
    if (found < count)
        return rf_request_wait(requests[found], 0);
    return is_empty(requests, count)
               ? 0
               : rf_fail(RF_ETIMEOUT, "wait_any: none has ended after %g s", timeout_s);
}

void rf_request_free(struct rf_request *request)
{
    if (request)
        release(request);
}
