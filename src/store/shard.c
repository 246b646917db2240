/* SPDX-License-Identifier: MIT
 *
 * The state of a server: what pushes and pulls do to it, and what they wait for.
 */
#include "shard.h"

#include <ringforge/ringforge.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static int make_room(struct rf_store_shards *s)
{
    int arrays = 1;
    for (int k = 0; k < RF_STATE_COUNT; k++)
        arrays += rf_optimizer_has(&s->optimizer, (enum rf_optimizer_state)k);
    const int64_t grains = (s->count + 63) / 64;
    s->memory = rf_alloc((size_t)arrays * (size_t)s->count * sizeof(float));
    for (int d = 0; d < 2; d++)
        s->decay[d] = rf_alloc((size_t)grains * sizeof *s->decay[d]);
    s->seats = rf_alloc((size_t)s->workers * sizeof *s->seats);
    if (!s->memory || !s->decay[0] || !s->decay[1] || !s->seats)
        return rf_fail(RF_ENOMEM,
                       "server %d of a store: out of memory for %d arrays of %lld values",
                       s->server, arrays, (long long)s->count);
    float *next = s->memory + s->count;
    s->param = s->memory;
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(&s->optimizer, (enum rf_optimizer_state)k)) {
            s->state[k] = next;
            next += s->count;
        }
    for (int w = 0; w < s->workers; w++) {
        s->seats[w].live = true;
        /* One each, because a push may exchange it for its own array. */
        if (s->rule == RF_STORE_SYNC) {
            s->seats[w].stage = rf_alloc((size_t)s->width * sizeof(float));
            if (!s->seats[w].stage)
                return rf_fail(RF_ENOMEM,
                               "server %d of a store: out of memory for the gradients "
                               "of %d workers",
                               s->server, s->workers);
        }
    }
    for (int64_t k = 0; k < grains; k++)
        s->decay[1][k] = 1;
    s->stats.workers = s->workers;
    return RF_OK;
}

/* The parts of ranges that lie in the shard. */
static int take_undecayed(struct rf_store_shards *s, const struct rf_store_opts *opts)
{
    s->undecayed = rf_alloc((size_t)opts->undecayed_count * sizeof *s->undecayed + 1);
    if (!s->undecayed)
        return rf_fail(RF_ENOMEM, "out of memory for %d ranges", opts->undecayed_count);
    for (int k = 0; k < opts->undecayed_count; k++) {
        const int64_t first = opts->undecayed[k].first - s->first;
        const int64_t end = first + rf_store_values(opts->undecayed + k);
        const int64_t from = first > 0 ? first : 0, to = end < s->count ? end : s->count;
        if (from < to)
            s->undecayed[s->undecayed_count++] = (struct rf_store_piece){from, to - from};
    }
    return RF_OK;
}

static int take_terms(struct rf_store_shards *s, const struct rf_store_opts *opts)
{
    s->width = s->count;
    s->terms = rf_alloc((size_t)opts->term_count * sizeof *s->terms + 1);
    if (!s->terms)
        return rf_fail(RF_ENOMEM, "out of memory for %d ranges", opts->term_count);
    for (int k = 0; k < opts->term_count; k++) {
        struct rf_store_term *term = s->terms + s->term_count;
        if (!rf_store_term_of(opts, s->server, k, term))
            continue;
        term->from = s->width;
        s->width += term->count;
        s->term_count++;
    }
    return RF_OK;
}

int rf_store_shard_create(const struct rf_store *store, struct rf_store_shards **out)
{
    struct rf_store_shards *s = rf_alloc(sizeof *s);
    if (!s)
        return rf_fail(RF_ENOMEM, "out of memory for a server of a store");
    s->rule = store->opts.rule;
    s->optimizer = store->optimizer;
    s->stale = store->opts.stale;
    s->total = store->opts.count;
    s->folder = store->folder;
    s->server = store->rank - store->workers;
    s->servers = store->opts.servers;
    s->workers = store->workers;
    s->slot = -1;
    s->timeout_ns = rf_seconds_to_ns(store->opts.timeout_s);
    rf_store_shard(&store->opts, s->server, &s->first, &s->count);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->saving, NULL);
    rf_cond_init(&s->changed);
    int status = take_terms(s, &store->opts);
    if (status == RF_OK)
        status = make_room(s);
    if (status == RF_OK)
        status = take_undecayed(s, &store->opts);
    if (status < 0)
        rf_store_shard_destroy(s);
    else
        *out = s;
    return status;
}

void rf_store_shard_destroy(struct rf_store_shards *s)
{
    if (!s)
        return;
    for (int w = 0; s->seats && w < s->workers; w++)
        rf_free(s->seats[w].stage);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->saving);
    pthread_cond_destroy(&s->changed);
    rf_free(s->memory);
    rf_free(s->decay[0]);
    rf_free(s->decay[1]);
    rf_free(s->undecayed);
    rf_free(s->terms);
    rf_free(s->seats);
    rf_free(s);
}

void rf_store_shard_continue(struct rf_store_shards *s, int64_t version, uint32_t updates)
{
    s->stats.version = version;
    s->scalars.updates = updates;
    for (int w = 0; w < s->workers; w++)
        s->seats[w].pulled = version;
}

static void changed(struct rf_store_shards *s)
{
    s->changed_ns = rf_now_ns();
    pthread_cond_broadcast(&s->changed);
}

static void count_in(int64_t *histogram, int64_t *most, int64_t value)
{
    const int64_t last = RF_STORE_BUCKETS - 1;
    histogram[value < last ? value : last]++;
    *most = value > *most ? value : *most;
}

/* ---- other workers -----------------------------------------------------------------------------
 */

/* Pushes of this worker less those of the slowest one; *slowest: which one that is. */
static int64_t lag_of(const struct rf_store_shards *s, int worker, int *slowest)
{
    *slowest = worker;
    for (int w = 0; w < s->workers; w++)
        if (s->seats[w].live && s->seats[w].clock < s->seats[*slowest].clock)
            *slowest = w;
    return s->seats[worker].clock - s->seats[*slowest].clock;
}

/* Long enough for a silent worker to be lost first. */
static uint64_t patience_ns(const struct rf_store_shards *s)
{
    return rf_add_ns(s->timeout_ns, rf_add_ns(s->timeout_ns, 5000000000u));
}

static int fail_late(const struct rf_store_shards *s, int slowest)
{
    return rf_fail_rank(RF_ETIMEOUT, slowest,
                        "server %d of a store waited %g s for the pushes of other workers, of whom "
                        "worker %d has pushed least",
                        s->server, (double)patience_ns(s) * 1e-9, slowest);
}

/* ---- push ------------------------------------------------------------------------------------ */

static int check_rate(const struct rf_store_shards *s, const struct rf_store_request *r)
{
    for (int w = 0; w < s->workers; w++)
        if (s->seats[w].staged && s->seats[w].lr != r->lr)
            return rf_fail_rank(RF_EMISMATCH, r->worker,
                                "worker %d pushed with the rate %g, and worker %d with %g: with "
                                "the rule sync all have the same rate",
                                r->worker, (double)r->lr, w, (double)s->seats[w].lr);
    return RF_OK;
}

/* The gradient as one array, which is zero elsewhere. */
static void stage(struct rf_store_shards *s, struct rf_store_seat *seat,
                  const struct rf_store_request *r)
{
    const float *from = *r->values;
    int64_t given = 0;
    for (uint64_t k = 0; k < r->number; k++)
        given += rf_store_length(r->pieces[k]);
    if (given == s->width) {
        float *other = seat->stage;
        seat->stage = *r->values;
        *r->values = other;
        seat->dirty = true;
        return;
    }
    if (seat->dirty)
        memset(seat->stage, 0, (size_t)s->width * sizeof(float));
    for (uint64_t k = 0; k < r->number; k++) {
        const int64_t length = rf_store_length(r->pieces[k]);
        memcpy(seat->stage + rf_store_first(r->pieces[k]), from, (size_t)length * sizeof(float));
        from += length;
    }
    seat->dirty = true;
}

int rf_store_shard_settle(struct rf_store_shards *s, int worker)
{
    const uint64_t start = rf_now_ns();
    while (s->seats[worker].staged) {
        const uint64_t since = s->changed_ns > start ? s->changed_ns : start;
        int slowest;
        if (rf_cond_wait(&s->changed, &s->lock, rf_add_ns(since, patience_ns(s))))
            continue;
        lag_of(s, worker, &slowest);
        return fail_late(s, slowest);
    }
    return RF_OK;
}

static int push(struct rf_store_shards *s, const struct rf_store_request *r)
{
    struct rf_store_seat *seat = s->seats + r->worker;
    RETURN_IF_ERROR(rf_store_shard_settle(s, r->worker));
    count_in(s->stats.staleness, &s->stats.most_stale, s->stats.version - seat->pulled);
    if (s->rule != RF_STORE_SYNC) {
        seat->clock++;
        return rf_store_apply(s, r);
    }
    RETURN_IF_ERROR(check_rate(s, r));
    stage(s, seat, r);
    seat->lr = r->lr;
    seat->share = r->share;
    seat->staged = true;
    seat->clock++;
    return rf_store_fold(s);
}

int rf_store_shard_push(struct rf_store_shards *s, const struct rf_store_request *r)
{
    pthread_mutex_lock(&s->lock);
    const int status = push(s, r);
    s->stats.pushes += status == RF_OK;
    changed(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- pull ------------------------------------------------------------------------------------ */

static bool ready(const struct rf_store_shards *s, const struct rf_store_request *r)
{
    int slowest;
    return !s->seats[r->worker].staged && s->stats.version >= r->least &&
           (s->rule != RF_STORE_STALE || lag_of(s, r->worker, &slowest) <= s->stale);
}

/* Whether no push of another worker can bring what this one waits for. */
static int check_hope(const struct rf_store_shards *s, const struct rf_store_request *r)
{
    bool others = false;
    for (int w = 0; w < s->workers; w++)
        others = others || (w != r->worker && s->seats[w].live);
    if (s->stats.version >= r->least || s->seats[r->worker].staged ||
        (others && s->rule != RF_STORE_SYNC))
        return RF_OK;
    return rf_fail(RF_EINVAL,
                   "pull: server %d has version %lld, and version %lld needs another push, %s",
                   s->server, (long long)s->stats.version, (long long)r->least,
                   others ? "by this worker, too" : "but no other worker is left");
}

static int wait_for(struct rf_store_shards *s, const struct rf_store_request *r, uint64_t until_ns)
{
    while (!ready(s, r)) {
        int slowest;
        const uint64_t since = s->changed_ns > r->start_ns ? s->changed_ns : r->start_ns;
        RETURN_IF_ERROR(check_hope(s, r));
        if (rf_now_ns() > rf_add_ns(since, patience_ns(s))) {
            lag_of(s, r->worker, &slowest);
            return fail_late(s, slowest);
        }
        if (!rf_cond_wait(&s->changed, &s->lock, until_ns) && !ready(s, r))
            return RF_EAGAIN;
    }
    return RF_OK;
}

static void copy_out(struct rf_store_shards *s, const struct rf_store_request *r)
{
    int slowest;
    float *to = *r->values;
    for (uint64_t k = 0; k < r->number; k++) {
        const int64_t length = rf_store_length(r->pieces[k]);
        memcpy(to, s->param + rf_store_first(r->pieces[k]), (size_t)length * sizeof(float));
        to += length;
    }
    count_in(s->stats.lag, &s->stats.most_lag, lag_of(s, r->worker, &slowest));
    s->seats[r->worker].pulled = s->stats.version;
    s->stats.pulls++;
}

int rf_store_shard_pull(struct rf_store_shards *s, const struct rf_store_request *r,
                        uint64_t until_ns, struct rf_store_head *answer)
{
    pthread_mutex_lock(&s->lock);
    const int status = wait_for(s, r, until_ns);
    if (status == RF_OK) {
        copy_out(s, r);
        answer->version = s->stats.version;
        answer->status = s->note;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

int rf_store_shard_read_state(struct rf_store_shards *s, int worker, int state, float *values,
                              struct rf_store_head *answer)
{
    if (state >= RF_STATE_COUNT || !s->state[state])
        return rf_fail(RF_EINVAL, "the optimizer of the store, %s, has no state of number %d",
                       rf_optimizer_get_info(s->optimizer.kind)->name, state);
    pthread_mutex_lock(&s->lock);
    const int status = rf_store_shard_settle(s, worker);
    if (status == RF_OK)
        memcpy(values, s->state[state], (size_t)s->count * sizeof(float));
    answer->version = s->stats.version;
    answer->status = s->note;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Others may have waited for its push. */
static void stop_waiting_for(struct rf_store_shards *s, int worker)
{
    s->seats[worker].live = false;
    if (s->rule == RF_STORE_SYNC && rf_store_fold(s) < 0)
        rf_log("store", 0, "server %d: %s", s->server, rf_last_error()->message);
    changed(s);
}

void rf_store_shard_rest(struct rf_store_shards *s, int worker, int note)
{
    pthread_mutex_lock(&s->lock);
    s->note = note > s->note ? note : s->note;
    stop_waiting_for(s, worker);
    pthread_mutex_unlock(&s->lock);
}

void rf_store_shard_leave(struct rf_store_shards *s, int worker, bool lost)
{
    pthread_mutex_lock(&s->lock);
    s->stats.workers--;
    s->stats.lost += lost;
    stop_waiting_for(s, worker);
    pthread_mutex_unlock(&s->lock);
}

void rf_store_shard_count(struct rf_store_shards *s, uint64_t pushed, uint64_t pulled,
                          uint64_t other)
{
    pthread_mutex_lock(&s->lock);
    s->stats.pushed_bytes += pushed;
    s->stats.pulled_bytes += pulled;
    s->stats.other_bytes += other;
    pthread_mutex_unlock(&s->lock);
}

void rf_store_shard_report(struct rf_store_shards *s, struct rf_store_server_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->updates = s->scalars.updates;
    pthread_mutex_unlock(&s->lock);
}
