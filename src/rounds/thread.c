/* SPDX-License-Identifier: MIT
 *
 * The thread that makes exchanges beside the local steps of a worker, in the order in which they
 * began.
 */
#include "rounds.h"

static struct part *part_of(struct rf_rounds *r, int64_t number)
{
    struct part *part = r->parts;
    while (part->number != number)
        part++;
    return part;
}

static void *work(void *user)
{
    struct rf_rounds *r = user;
    pthread_mutex_lock(&r->lock);
    while (!r->ends) {
        if (r->error.status < 0 || r->committed == r->asked) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        struct part *part = part_of(r, r->committed);
        pthread_mutex_unlock(&r->lock);
        const int status = rf_rounds_exchange(r, part);
        pthread_mutex_lock(&r->lock);
        if (status < 0)
            r->error = *rf_last_error();
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int rf_rounds_thread_start(struct rf_rounds *r)
{
    if (r->rule.delay == 0)
        return RF_OK;
    r->ends = false;
    if (pthread_create(&r->thread, NULL, work, r) != 0)
        return rf_fail(RF_ENOMEM, "no thread for exchanges can be started");
    r->has_thread = true;
    return RF_OK;
}

void rf_rounds_thread_end(struct rf_rounds *r)
{
    if (!r->has_thread)
        return;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    r->has_thread = false;
}

void rf_rounds_ask(struct rf_rounds *r, int64_t number)
{
    pthread_mutex_lock(&r->lock);
    r->asked = number;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

int rf_rounds_wait(struct rf_rounds *r, int64_t number)
{
    pthread_mutex_lock(&r->lock);
    while (r->committed <= number && r->error.status == 0)
        pthread_cond_wait(&r->changed, &r->lock);
    const struct rf_error error = r->committed > number ? (struct rf_error){0} : r->error;
    pthread_mutex_unlock(&r->lock);
    return error.status < 0 ? rf_fail_error(&error) : RF_OK;
}
