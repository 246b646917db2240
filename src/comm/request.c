/* SPDX-License-Identifier: MIT
 *
 * Requests: how a caller learns that a collective which it has started on host memory has ended.
 * The worker of async.c ends them; they outlive the communicator.
 */
#include <errno.h>
#include <pthread.h>
#include <ringforge/ringforge.h>

#include "communicator.h"

struct rf_request {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders; /* the caller and the worker */
    bool ended;
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

void rf_request_end(struct rf_request *request, int status)
{
    pthread_mutex_lock(&request->lock);
    request->ended = true;
    request->status = status;
    if (status < 0)
        request->error = *rf_last_error();
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);
    release(request);
}

/* Locked, ended. */
static int answer(const struct rf_request *request)
{
    return request->status < 0 ? rf_fail_error(&request->error) : 0;
}

int rf_request_test(struct rf_request *request, bool *ended)
{
    if (!request || !ended)
        return rf_fail(RF_EINVAL, "test: the request or ended is NULL");
    pthread_mutex_lock(&request->lock);
    *ended = request->ended;
    int rc = *ended ? answer(request) : 0;
    pthread_mutex_unlock(&request->lock);
    return rc;
}

int rf_request_wait(struct rf_request *request, double timeout_s)
{
    if (!request)
        return rf_fail(RF_EINVAL, "wait: the request is NULL");
    if (!(timeout_s >= 0 && timeout_s < 1e9))
        return rf_fail(RF_EINVAL, "wait: the timeout is %g s; use 0 for none", timeout_s);
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    pthread_mutex_lock(&request->lock);
    while (!request->ended && rf_cond_wait(&request->changed, &request->lock, until_ns))
        ;
    int rc = request->ended ? answer(request)
                            : rf_fail(RF_ETIMEOUT, "wait: not ended after %g s", timeout_s);
    pthread_mutex_unlock(&request->lock);
    return rc;
}

void rf_request_free(struct rf_request *request)
{
    if (request)
        release(request);
}
