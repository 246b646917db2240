/* SPDX-License-Identifier: MIT
 *
 * The search for a mesh: its options, and its results in order. search_walk.c finds the candidates,
 * search_plan.c plans the best of them. Called by users.
 */
#include "search.h"

#include <stdlib.h>

#include "../../base/base.h"
#include "../plan/list.h"
#include "../predict/simulate.h"

enum { MOST_RANKS = 1 << 20 };

/* ---- results --------------------------------------------------------------------------------- */

/* Those with a time come first. */
static int compare_rejections(const void *a, const void *b)
{
    const struct rf_rejection *x = a, *y = b;
    const double p = x->candidate.step_s, q = y->candidate.step_s;
    if ((p > 0) != (q > 0))
        return p > 0 ? -1 : 1;
    return (p > q) - (p < q);
}

static int sort(struct rf_search *s)
{
    s->order = rf_alloc(((size_t)s->count + 1) * sizeof(*s->order));
    if (!s->order)
        return rf_fail(RF_ENOMEM, "search: out of memory for %d candidates", s->count);
    for (int k = 0; k < s->count; k++)
        s->order[k] = &s->found[k];
    rf_search_sort(s->order, s->count);
    return 0;
}

/* ---- options --------------------------------------------------------------------------------- */

static int check_mesh(const struct rf_search_opts *o)
{
    const int sizes[] = {o->mesh.dp, o->mesh.tp, o->mesh.pp, o->mesh.shard};
    int64_t product = 1;
    for (int k = 0; k < 4; k++) {
        if (sizes[k] < 0)
            return rf_fail(RF_EINVAL, "search: the sizes of a mesh must not be negative");
        product *= k < 3 && sizes[k] ? sizes[k] : 1;
    }
    if (o->mesh.cp > 1)
        return rf_fail(RF_ENOTSUP,
                       "search: cp=%d is not searched in this version; plan such a mesh directly",
                       o->mesh.cp);
    if (o->ranks % product)
        return rf_fail(RF_EINVAL,
                       "search: %d ranks cannot be divided into the %lld of the mesh; give axes "
                       "whose product divides the ranks",
                       o->ranks, (long long)product);
    if (o->mesh.shard > 1 && o->ranks % o->mesh.shard)
        return rf_fail(RF_EINVAL, "search: shard=%d does not divide the %d ranks", o->mesh.shard,
                       o->ranks);
    return 0;
}

static int check(const struct rf_search_model *models, int count, const struct rf_search_opts *o)
{
    const struct rf_sim_opts sim = {.rates = o->rates};
    const struct rf_policy *policy = &o->policy;
    if (o->ranks < 1 || o->ranks > MOST_RANKS)
        return rf_fail(RF_EINVAL, "search: %d ranks: use 1 to %d", o->ranks, MOST_RANKS);
    if (o->rates.host_ranks > 0 && o->ranks % o->rates.host_ranks)
        return rf_fail(RF_EINVAL, "search: %d ranks cannot be divided into hosts of %d", o->ranks,
                       o->rates.host_ranks);
    for (int k = 0; k < count; k++)
        if (!models[k].blocks || models[k].block_count < 1 || models[k].heads < 0 ||
            !(models[k].block_flops_per_s >= 0))
            return rf_fail(RF_EINVAL, "search: model %d has no blocks, or a negative number", k);
    if (policy->batch < 1 || policy->seq < 1 || policy->forward_only)
        return rf_fail(RF_EINVAL, "search: a policy with a batch, a sequence length and training "
                                  "is needed");
    if (!(o->open & RF_SEARCH_MICRO_BATCHES) &&
        (policy->micro_batches < 1 || policy->batch % policy->micro_batches))
        return rf_fail(RF_EINVAL,
                       "search: %lld micro-batches do not divide a batch of %lld; use a divisor, "
                       "or leave them open",
                       (long long)policy->micro_batches, (long long)policy->batch);
    if (policy->compress.form != RF_FORM_F32)
        return rf_fail(RF_ENOTSUP, "search: gradients in another form (compress) are not searched "
                                   "with in this version; leave them out, or plan one mesh");
    if (policy->invert)
        return rf_fail(RF_ENOTSUP, "search: inverted blocks (invert) are not searched with in this "
                                   "version; plan one mesh");
    if (policy->disk)
        return rf_fail(RF_ENOTSUP, "search: data on a disk is not searched with in this version; "
                                   "leave it out, or plan one mesh");
    RETURN_IF_ERROR(check_mesh(o));
    return rf_sim_check_opts(&sim);
}

/* Pairs of tensor ranks and stages. */
static int count_meshes(const struct rf_search_opts *o)
{
    int count = 0;
    for (int tp = 1; tp <= o->ranks; tp++) {
        if (o->ranks % tp || (o->mesh.tp && tp != o->mesh.tp))
            continue;
        for (int pp = 1; pp <= o->ranks / tp; pp++)
            count += o->ranks / tp % pp == 0;
    }
    return count;
}

static int fill(struct rf_search *s, const struct rf_search_model *models, int count,
                const struct rf_search_opts *opts)
{
    s->mesh_count = opts->progress ? count * count_meshes(opts) : 0;
    for (int k = 0; k < count; k++)
        RETURN_IF_ERROR(rf_search_walk(s, &models[k], k, opts));
    RETURN_IF_ERROR(sort(s));
    RETURN_IF_ERROR(rf_search_plan_best(s, models, opts));
    if (s->rejection_count > 0)
        qsort(s->rejections, (size_t)s->rejection_count, sizeof(*s->rejections),
              compare_rejections);
    return 0;
}

int rf_plan_search(const struct rf_search_model *models, int model_count,
                   const struct rf_search_opts *opts, struct rf_search **out)
{
    if (!models || model_count < 1 || !opts || !out)
        return rf_fail(RF_EINVAL, "search: models, options and a place for the result are needed");
    RETURN_IF_ERROR(check(models, model_count, opts));
    struct rf_search *s = rf_alloc(sizeof(*s));
    if (!s)
        return rf_fail(RF_ENOMEM, "search: out of memory");
    int rc = fill(s, models, model_count, opts);
    if (rc < 0)
        rf_search_destroy(s);
    else
        *out = s;
    return rc;
}

void rf_search_destroy(struct rf_search *s)
{
    if (!s)
        return;
    rf_free(s->found);
    rf_free(s->order);
    rf_free(s->rejections);
    rf_free(s);
}

/* ---- answers --------------------------------------------------------------------------------- */

int64_t rf_search_count(const struct rf_search *s)
{
    return s->count;
}

const struct rf_candidate *rf_search_get(const struct rf_search *s, int64_t place)
{
    return place >= 0 && place < s->count ? s->order[place] : NULL;
}

int64_t rf_search_judged(const struct rf_search *s)
{
    return s->judged;
}

const struct rf_rejection *rf_search_rejection(const struct rf_search *s, int64_t place)
{
    return place >= 0 && place < s->rejection_count ? &s->rejections[place] : NULL;
}

const struct rf_candidate *rf_search_nearest(const struct rf_search *s)
{
    return s->nearest.step_s > 0 ? &s->nearest : NULL;
}
