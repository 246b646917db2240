/* SPDX-License-Identifier: MIT
 *
 * The calls on a store: what all kinds check, before the kind does it.
 */
#include <math.h>

#include "comm/communicator.h"
#include "store.h"

static uint32_t hash_of(const struct rf_store_keys *ranges, int count)
{
    uint32_t hash = 0;
    for (int k = 0; k < count; k++) {
        const int64_t range[2] = {ranges[k].first, rf_store_values(ranges + k)};
        hash = rf_hash32(range, sizeof range, hash);
    }
    return hash;
}

/* Every number that all ranks must share. */
static int compare(struct rf_comm *comm, const struct rf_store *store)
{
    const struct rf_store_opts *o = &store->opts;
    const struct rf_optimizer_opts *p = &store->optimizer;
    const uint32_t bare = hash_of(o->undecayed, o->undecayed_count);
    const uint32_t terms = hash_of(o->terms, o->term_count);
    char text[1024];
    snprintf(text, sizeof text,
             "store: rule=%s\nstore: parameters=%lld\nstore: servers=%d\nstore: stale=%lld\nstore: "
             "optimizer=%s\t%a %a %a %a %a %a %a %a %d%d%d %08x\nstore: terms=%08x\nstore: "
             "folder=%s\nstore: restore=%d\n"
             "store: timeout=%g s\n",
             rf_store_rule_name(o->rule), (long long)o->count, o->servers, (long long)o->stale,
             rf_optimizer_get_info(p->kind)->name, (double)p->beta1, (double)p->beta2,
             (double)p->eps, (double)p->weight_decay, (double)p->momentum, (double)p->dampening,
             (double)p->extra[0], (double)p->extra[1], p->eps_inside, p->no_bias_correction,
             p->centered, bare, terms, o->folder ? "given" : "none", o->restore, o->timeout_s);
    return rf_comm_check_terms(comm, text);
}

/* Ranks of a communicator may have timeouts of their own: the shortest one, so that a server tells
 * a worker that waits in time that it is there. */
static int agree_on_timeout(struct rf_comm *comm, double *out)
{
    *out = comm->settings.timeout_s;
    return rf_all_reduce(comm, out, out, 1, RF_F64, RF_MIN, NULL);
}

static int take_terms(struct rf_store *store)
{
    const size_t bytes = (size_t)store->opts.term_count * sizeof *store->terms;
    store->terms = rf_alloc(bytes + 1);
    if (!store->terms)
        return rf_fail(RF_ENOMEM, "out of memory for a store");
    if (bytes)
        memcpy(store->terms, store->opts.terms, bytes);
    store->opts.terms = store->terms;
    return RF_OK;
}

static int open_store(struct rf_store *store, struct rf_comm *comm)
{
    static const struct rf_optimizer_opts sgd = {.kind = RF_SGD};
    const struct rf_store_opts *o = &store->opts;
    const bool serves = rf_store_has_servers(o->rule);
    store->optimizer = o->optimizer ? *o->optimizer : sgd;
    store->kind = serves               ? &rf_store_on_servers
                  : comm->layout.hosts ? &rf_store_across_hosts
                                       : &rf_store_in_memory;
    store->rank = rf_comm_rank(comm);
    store->ranks = rf_comm_size(comm);
    store->opts.servers = !serves ? 0 : o->servers ? o->servers : 1;
    store->workers = store->ranks - store->opts.servers;
    RETURN_IF_ERROR(compare(comm, store));
    if (store->kind != &rf_store_in_memory && !(o->timeout_s > 0))
        RETURN_IF_ERROR(agree_on_timeout(comm, &store->opts.timeout_s));
    if (o->folder && !(store->folder = rf_strdup(o->folder)))
        return rf_fail(RF_ENOMEM, "out of memory for a store");
    RETURN_IF_ERROR(take_terms(store));
    return store->kind->open(store, comm);
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
    const int status = open_store(store, comm);
    store->opts.initial = NULL;
    store->opts.optimizer = NULL;
    store->opts.undecayed = NULL;
    store->opts.state = NULL;
    if (status < 0)
        rf_store_close(store);
    else
        *out = store;
    return status;
}

int rf_store_server(const struct rf_store *store)
{
    return store->rank >= store->workers ? store->rank - store->workers : -1;
}

void rf_store_close(struct rf_store *store)
{
    if (!store)
        return;
    store->kind->close(store);
    rf_free(store->folder);
    rf_free(store->terms);
    rf_free(store);
}

void rf_store_abort(struct rf_store *store, const char *why)
{
    if (store && store->kind->give_up)
        store->kind->give_up(store, why ? why : "no reason given");
}

const char *rf_store_path(const struct rf_store *store)
{
    return store->kind->path(store);
}

static int check_terms(const struct rf_store *store, const float *terms)
{
    int64_t values = 0;
    for (int k = 0; k < store->opts.term_count; k++)
        values += rf_store_values(store->terms + k);
    if (terms && !store->opts.term_count)
        return rf_fail(RF_EINVAL, "push: terms, and the store was opened without ranges of them");
    return terms ? rf_store_check_finite("push", terms, values) : RF_OK;
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
    RETURN_IF_ERROR(check_terms(store, given.terms));
    RETURN_IF_ERROR(store->kind->push(store, keys, gradient, &given));
    store->stats.pushes++;
    return RF_OK;
}

int rf_store_pull(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                  float *values)
{
    if (!store || (!values && keys && keys->count > 0))
        return rf_fail(RF_EINVAL, "pull: a store and room for the values are needed");
    RETURN_IF_ERROR(rf_store_check_keys("pull", keys, store->opts.count));
    if (least < 0)
        return rf_fail(RF_EINVAL, "pull: version %lld; versions are counted from 0",
                       (long long)least);
    RETURN_IF_ERROR(store->kind->pull(store, keys, least, values));
    store->stats.pulls++;
    return RF_OK;
}

int rf_store_finish(struct rf_store *store, int note)
{
    if (!store || note < 0)
        return rf_fail(RF_EINVAL, "finish: a store, and a note of 0 or more are needed");
    return store->kind->finish(store, note);
}

int rf_store_get_stats(struct rf_store *store, struct rf_store_stats *out)
{
    if (!store || !out)
        return rf_fail(RF_EINVAL, "the statistics of a store need the store, and room");
    return store->kind->get_stats(store, out);
}
