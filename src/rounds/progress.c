/* SPDX-License-Identifier: MIT
 *
 * What the thread of rounds and that of the caller both read: how far exchanges are.
 */
#include "rounds.h"

void rf_rounds_set_progress(struct rf_rounds *r, int64_t complete, int64_t committed)
{
    pthread_mutex_lock(&r->lock);
    r->complete = complete;
    r->committed = committed;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void rf_rounds_number(struct rf_rounds *r, struct part *part, int64_t number)
{
    pthread_mutex_lock(&r->lock);
    part->number = number;
    pthread_mutex_unlock(&r->lock);
}
