/* SPDX-License-Identifier: MIT
 *
 * Updates by a server, by the same functions as offloaded states of training.
 */
#include "shard.h"

#include <math.h>

static int begin(struct rf_store_shards *s, float lr, double share)
{
    s->scalars.lr = lr;
    s->scalars.inv_tokens = (float)(1.0 / share);
    return rf_host_step_begin(&s->optimizer, &s->scalars, 0);
}

static int step_alike(struct rf_store_shards *s, int64_t first, int64_t count,
                      const float *gradient, bool decays)
{
    struct rf_host_part part = {
        .count = count, .param = s->param + first, .grad = gradient, .decay = s->decay[decays]};
    for (int k = 0; k < RF_STATE_COUNT; k++)
        part.state[k] = s->state[k] ? s->state[k] + first : NULL;
    return rf_host_step(&s->optimizer, &part, 0, count, &s->scalars);
}

/* In parts of which all or no parameters are decayed. */
static int step(struct rf_store_shards *s, int64_t first, int64_t count, const float *gradient)
{
    const int64_t begin = first, end = first + count;
    for (int k = 0; k < s->undecayed_count && first < end; k++) {
        const struct rf_store_piece *bare = s->undecayed + k;
        const int64_t bare_end = bare->first + bare->count;
        const int64_t from = bare->first < end ? bare->first : end;
        const int64_t to = bare_end < end ? bare_end : end;
        if (from > first) {
            RETURN_IF_ERROR(step_alike(s, first, from - first, gradient + first - begin, true));
            first = from;
        }
        if (to > first) {
            RETURN_IF_ERROR(step_alike(s, first, to - first, gradient + first - begin, false));
            first = to;
        }
    }
    return first < end ? step_alike(s, first, end - first, gradient + first - begin, true) : RF_OK;
}

int rf_store_apply(struct rf_store_shards *s, const struct rf_store_request *request)
{
    const float *gradient = *request->values;
    if (request->number > 0)
        RETURN_IF_ERROR(begin(s, request->lr, request->share));
    for (uint64_t k = 0; k < request->number; k++) {
        const int64_t length = rf_store_length(request->pieces[k]);
        RETURN_IF_ERROR(step(s, rf_store_first(request->pieces[k]), length, gradient));
        gradient += length;
    }
    s->stats.version++;
    return RF_OK;
}

/* ---- together -------------------------------------------------------------------------------- */

static void add(float *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

static bool all_finite(const float *values, int64_t count)
{
    bool all = true;
    for (int64_t i = 0; i < count; i++)
        all &= isfinite(values[i]) != 0;
    return all;
}

/* Pairwise by index: node (level, i) of tree_order.h is in the stage of its first worker. Those
 * without a gradient are not in the tree. */
static int sum(const struct rf_store_shards *s, struct rf_store_seat **staged)
{
    int count = 0;
    for (int w = 0; w < s->workers; w++)
        if (s->seats[w].staged)
            staged[count++] = s->seats + w;
    for (int distance = 1; distance < count; distance *= 2)
        for (int k = 0; k + distance < count; k += 2 * distance)
            add(staged[k]->stage, staged[k + distance]->stage, s->width);
    for (int k = 0; k < s->term_count; k++)
        add(staged[0]->stage + s->terms[k].first, staged[0]->stage + s->terms[k].from,
            s->terms[k].count);
    return count;
}

static int update(struct rf_store_shards *s)
{
    double share = 0;
    struct rf_store_seat **staged = rf_alloc((size_t)s->workers * sizeof(struct rf_store_seat *));
    if (!staged)
        return rf_fail(RF_ENOMEM, "out of memory for the gradients of %d workers", s->workers);
    const int count = sum(s, staged);
    for (int k = 0; k < count; k++) {
        share += staged[k]->share;
        staged[k]->staged = false;
    }
    int status = RF_OK;
    if (!all_finite(staged[0]->stage, s->count))
        s->stats.skipped++;
    else if ((status = begin(s, staged[0]->lr, share)) == RF_OK)
        status = step(s, 0, s->count, staged[0]->stage);
    s->stats.version += status == RF_OK;
    rf_free(staged);
    return status;
}

int rf_store_fold(struct rf_store_shards *s)
{
    bool any = false;
    for (int w = 0; w < s->workers; w++) {
        if (s->seats[w].live && !s->seats[w].staged)
            return RF_OK;
        any = any || s->seats[w].staged;
    }
    return any ? update(s) : RF_OK;
}
