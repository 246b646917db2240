/* SPDX-License-Identifier: MIT
 *
 * The calls on a store: what all kinds check, before the kind does it.
 */
#include "store.h"

#include <math.h>

static int compare(struct rf_comm *comm, const struct rf_store_opts *opts)
{
    char text[256];
    snprintf(text, sizeof text, "store: rule=%s\nstore: parameters=%lld\n",
             rf_store_rule_name(opts->rule), (long long)opts->count);
    return rf_comm_check_terms(comm, text);
}

int rf_store_open(struct rf_comm *comm, const struct rf_store_opts *opts, struct rf_store **out)
{
    if (!comm || !opts || !out)
        return rf_fail(RF_EINVAL, "a store needs a communicator, options, and room");
    RETURN_IF_ERROR(rf_store_check(opts, rf_comm_size(comm)));
    struct rf_store *store = rf_alloc(sizeof *store);
    if (!store)
        return rf_fail(RF_ENOMEM, "out of memory for a store");
    store->opts = *opts;
    store->kind = rf_store_find_rule(opts->rule)->kind;
    store->rank = rf_comm_rank(comm);
    store->ranks = rf_comm_size(comm);
    int status = compare(comm, opts);
    if (status == RF_OK)
        status = store->kind->open(store, comm);
    store->opts.initial = NULL;
    if (status < 0)
        rf_store_close(store);
    else
        *out = store;
    return status;
}

void rf_store_close(struct rf_store *store)
{
    if (!store)
        return;
    store->kind->close(store);
    rf_free(store);
}

int rf_store_push(struct rf_store *store, const struct rf_store_keys *keys, const float *gradient,
                  const struct rf_store_update *update)
{
    const struct rf_store_update given = update ? *update : (struct rf_store_update){0};
    if (!store || (!gradient && keys && keys->count > 0))
        return rf_fail(RF_EINVAL, "push: a store and a gradient are needed");
    RETURN_IF_ERROR(rf_store_check_keys("push", keys, store->opts.count));
    RETURN_IF_ERROR(rf_store_check_finite("push", gradient, rf_store_values(keys)));
    if (!isfinite(given.lr) || !(given.share >= 0) || !isfinite(given.share))
        return rf_fail(
            RF_EINVAL,
            "push: a rate of %g and a share of %g: both are numbers, the share 0 or more",
            (double)given.lr, given.share);
    RETURN_IF_ERROR(store->kind->push(store, keys, gradient, &given));
    store->stats.pushes++;
    return RF_OK;
}

int rf_store_pull(struct rf_store *store, const struct rf_store_keys *keys, float *values)
{
    if (!store || (!values && keys && keys->count > 0))
        return rf_fail(RF_EINVAL, "pull: a store and room for the values are needed");
    RETURN_IF_ERROR(rf_store_check_keys("pull", keys, store->opts.count));
    RETURN_IF_ERROR(store->kind->pull(store, keys, values));
    store->stats.pulls++;
    return RF_OK;
}

int rf_store_get_stats(struct rf_store *store, struct rf_store_stats *out)
{
    if (!store || !out)
        return rf_fail(RF_EINVAL, "the statistics of a store need the store, and room");
    return store->kind->get_stats(store, out);
}
