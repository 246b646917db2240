/* SPDX-License-Identifier: MIT
 *
 * The results of a search: candidates and rejections in the order of finding, and their final
 * order.
 */
#include <stdlib.h>

#include "../../base/base.h"
#include "../plan/list.h"
#include "search.h"

int rf_search_add(struct rf_search *s, const struct rf_candidate *candidate)
{
    if (!rf_array_reserve((void **)&s->found, s->count, &s->capacity, sizeof(*s->found)))
        return rf_fail(RF_ENOMEM, "search: out of memory for %d candidates", s->count);
    s->found[s->count++] = *candidate;
    return 0;
}

int rf_search_reject(struct rf_search *s, const struct rf_rejection *rejection)
{
    if (!rf_array_reserve((void **)&s->rejections, s->rejection_count, &s->rejection_capacity,
                          sizeof(*s->rejections)))
        return rf_fail(RF_ENOMEM, "search: out of memory for %d rejections", s->rejection_count);
    s->rejections[s->rejection_count++] = *rejection;
    return 0;
}

bool rf_search_is_before(const struct rf_candidate *a, const struct rf_candidate *b)
{
    return a->step_s != b->step_s ? a->step_s < b->step_s : a->device_bytes < b->device_bytes;
}

static int compare(const void *a, const void *b)
{
    const struct rf_candidate *x = *(struct rf_candidate *const *)a;
    const struct rf_candidate *y = *(struct rf_candidate *const *)b;
    if (rf_search_is_before(x, y) || rf_search_is_before(y, x))
        return rf_search_is_before(x, y) ? -1 : 1;
    return (x > y) - (x < y); /* in the order in which they were found */
}

void rf_search_sort(struct rf_candidate **order, int count)
{
    if (count > 0)
        qsort(order, (size_t)count, sizeof(*order), compare);
}

struct rf_policy rf_search_policy(const struct rf_search_opts *opts, const struct rf_candidate *c)
{
    struct rf_policy policy = opts->policy;
    policy.zero = c->zero;
    policy.recompute = c->recompute;
    policy.offload = c->offload;
    policy.sequence_parallel = c->sequence_parallel;
    policy.pipeline = c->pipeline;
    policy.chunks = c->chunks;
    policy.micro_batches = c->micro_batches;
    policy.keep_gathered &= c->zero == 3; /* with other stages it would be refused */
    policy.no_prefetch &= c->zero == 3;
    return policy;
}
