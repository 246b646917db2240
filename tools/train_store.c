/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server` and `hogwild`: workers, each a mesh of ranks, push the gradients
 * of their steps to a store, and pull its parameters (ringforge/store.h). The first rank of a
 * worker does so for all of them. A worker's own step updates nothing: its rate is 0. The last
 * ranks are servers, which train nothing.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train_store.h"

/* The share of a step without a token: it adds nothing to the others' shares. */
#define NO_SHARE 1e-30

bool train_sync_serves(const struct trainer *t)
{
    return train_store_on(t->o) && t->rank >= t->o->workers * setup_ranks(&t->o->setup);
}

static int place(struct trainer *t)
{
    struct rf_comm *inner = NULL;
    const int size = setup_ranks(&t->o->setup), rank = t->rank;
    const bool serves = train_sync_serves(t), first = !serves && rank % size == 0;
    struct train_store *s = calloc(1, sizeof(*s));
    if (!s)
        return tool_error(t->command, "out of memory");
    t->sync->store = s;
    s->world = s->speakers = t->comm;
    if (rf_store_text_read(t->o->sync, &s->opts) < 0 ||
        rf_comm_split(s->world, serves ? -1 : rank / size, rank, &inner) < 0 ||
        rf_comm_split(s->world, serves ? -1 : 0, rank, &s->trainers) < 0 ||
        (size > 1 && (rf_comm_split(s->world, first ? 0 : -1, rank, &s->workers) < 0 ||
                      rf_comm_split(s->world, first || serves ? 0 : -1, rank, &s->speakers) < 0))) {
        (void)rf_comm_close(inner);
        return trainer_failed(t);
    }
    if (!inner)
        return TOOL_OK;
    t->worker = t->number = rank / size;
    if (size == 1) {
        s->workers = s->trainers;
        s->trainers = NULL;
    }
    rf_comm_set_track(s->workers ? s->workers : s->trainers, "store");
    trainer_be_in(t, inner);
    return TOOL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int take_ranges(struct trainer *t, struct train_store *s, int64_t sizes[3])
{
    sizes[0] = s->params.count;
    sizes[1] = setup_store_ranges(t->plan, rf_plan_trained_undecayed, NULL);
    sizes[2] = setup_store_ranges(t->plan, rf_plan_trained_use, NULL);
    s->ranges = calloc((size_t)(sizes[1] + sizes[2]) + 1, sizeof(*s->ranges));
    if (!s->ranges)
        return tool_error(t->command, "out of memory");
    setup_store_ranges(t->plan, rf_plan_trained_undecayed, s->ranges);
    setup_store_ranges(t->plan, rf_plan_trained_use, s->ranges + sizes[1]);
    return TOOL_OK;
}

/* What only a rank with a run knows: how many parameters there are, which are not decayed, and
 * which have further terms. */
static int share_sizes(struct trainer *t, struct train_store *s)
{
    int64_t sizes[3] = {0};
    int status = t->run ? take_ranges(t, s, sizes) : TOOL_OK;
    if (status != TOOL_OK)
        return status;
    if (rf_broadcast(s->speakers, sizes, 3, RF_I64, 0, NULL) < 0)
        return trainer_failed(t);
    const size_t all = (size_t)(sizes[1] + sizes[2]);
    if (!s->ranges)
        s->ranges = calloc(all + 1, sizeof(*s->ranges));
    if (!s->ranges)
        return tool_error(t->command, "out of memory");
    if (rf_broadcast(s->speakers, s->ranges, all * sizeof(*s->ranges), RF_U8, 0, NULL) < 0)
        return trainer_failed(t);
    s->opts.count = sizes[0];
    s->opts.undecayed_count = (int)sizes[1];
    s->opts.undecayed = s->ranges;
    s->opts.term_count = (int)sizes[2];
    s->opts.terms = s->ranges + sizes[1];
    return TOOL_OK;
}

static int open_store(struct trainer *t, struct train_store *s)
{
    const struct rf_optimizer_opts *optimizer = &t->o->setup.policy.optimizer;
    const int status = share_sizes(t, s);
    if (status != TOOL_OK)
        return status;
    if (rf_store_has_servers(s->opts.rule)) {
        s->opts.optimizer = optimizer;
        s->opts.state = s->resumed ? &s->state : NULL;
    } else {
        s->opts.undecayed = NULL;
        s->opts.undecayed_count = 0;
    }
    s->opts.initial = s->values;
    return rf_store_open(s->speakers, &s->opts, &s->store) < 0 ? trainer_failed(t) : TOOL_OK;
}

static int open_first(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    int64_t first, count;
    for (int k = 0; rf_plan_trained_use(t->plan, k, &first, &count) == 0; k++)
        s->term_values += count;
    s->gradient = malloc((size_t)(s->params.count + s->term_values) * sizeof(float));
    s->values = malloc((size_t)s->params.count * sizeof(float));
    if (!s->gradient || !s->values)
        return tool_error(t->command, "out of memory for the gradients of %lld parameters",
                          (long long)s->params.count);
    if (s->params.read(s->params.user, 0, s->params.count, s->values) < 0)
        return trainer_failed(t);
    return open_store(t, s);
}

static int open_worker(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    struct train_store_word word = {0};
    if (s->opened)
        return TOOL_OK;
    const int status = train_store_group(t);
    if (status != TOOL_OK)
        return status;
    word.status = t->rank == 0 ? open_first(t) : TOOL_OK;
    s->opened = true;
    return train_store_agree(t, &word);
}

/* The servers end once all workers have left the store. With --elastic nobody waits for a rank that
 * is lost. */
static int leave(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    rf_store_close(s->store);
    s->store = NULL;
    if (rf_barrier(s->world, NULL) == 0 || (t->o->elastic && train_lost_a_rank()))
        return TOOL_OK;
    return trainer_failed(t);
}

int train_sync_serve(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    int status = open_store(t, s);
    if (status == TOOL_OK && rf_store_serve(s->store, NULL) < 0)
        status = trainer_failed(t);
    rf_store_close(s->store);
    s->store = NULL;
    return status == TOOL_OK ? leave(t) : status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* --clip limits the norm of this worker's mean gradient. */
static double share_of(const struct trainer *t, const struct rf_step_stats *stats)
{
    const double tokens = stats->tokens > 0 ? (double)stats->tokens : NO_SHARE;
    const double clip = t->o->setup.clip, norm = (double)stats->grad_norm;
    return clip > 0 && norm + 1e-6 > clip ? tokens * (norm + 1e-6) / clip : tokens;
}

/* What is in the log is the norm of the whole gradient, after its terms have been pushed. */
static void add_terms(struct train_store *s, struct rf_step_stats *stats)
{
    const float *term = s->gradient + s->params.count;
    double squares = 0;
    for (int k = 0; k < s->opts.term_count; k++)
        for (int64_t i = 0; i < s->opts.terms[k].count; i++)
            s->gradient[s->opts.terms[k].first + i] += *term++;
    for (int64_t i = 0; i < s->params.count; i++)
        squares += (double)s->gradient[i] * (double)s->gradient[i];
    const double norm = stats->tokens > 0 ? sqrt(squares) / (double)stats->tokens : 0;
    stats->grad_norm = (float)fmin(norm, FLT_MAX);
}

static void count(struct train_store *s, struct rf_step_stats *stats, uint64_t from)
{
    struct rf_store_stats now = {0};
    (void)!rf_store_get_stats(s->store, &now);
    const uint64_t within = rf_run_group_sent_bytes(s->group);
    stats->sent_bytes += now.pushed_bytes - s->pushed_bytes + within - s->group_bytes;
    s->group_bytes = within;
    stats->exposed_comm_ns += now.wait_ns - s->wait_ns;
    stats->step_ns += rf_now_ns() - from;
    stats->stop = now.note > stats->stop ? now.note : stats->stop;
    s->pushed_bytes = now.pushed_bytes;
    s->wait_ns = now.wait_ns;
}

/* A request to end that a worker has had reaches the others as its note. */
static int step_first(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    struct train_store *s = t->sync->store;
    const struct rf_store_keys all = rf_store_range(0, s->params.count);
    const struct rf_store_update update = {.lr = lr == 0 ? RF_ZERO : (float)lr,
                                           .share = share_of(t, stats),
                                           .terms = s->term_values ? s->gradient + s->params.count
                                                                   : NULL};
    const uint64_t from = rf_now_ns();
    if (rf_run_group_grads(s->group, s->gradient) < 0 ||
        rf_store_push(s->store, &all, s->gradient, &update) < 0)
        return trainer_failed(t);
    if (s->term_values)
        add_terms(s, stats);
    const int status = train_store_pull_first(t);
    count(s, stats, from);
    return status;
}

static int step(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    struct train_store_word word = {0};
    if (t->rank == 0)
        word.status = step_first(t, lr, stats);
    word.stop = stats->stop;
    word.grad_norm = stats->grad_norm;
    const int status = train_store_agree(t, &word);
    stats->stop = word.stop;
    stats->grad_norm = word.grad_norm;
    return status;
}

static int end(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    if (t->rank == 0 && rf_store_finish(s->store, t->stop) < 0)
        return trainer_failed(t);
    s->ended = true;
    const int status = train_store_meet(t, TRAIN_STORE_END);
    return status == TOOL_OK ? train_store_pull(t) : status;
}

int train_sync_report(struct trainer *t, struct report_store *out)
{
    struct train_store *s = t->sync->store;
    struct rf_store_stats mine = {0};
    if (!s || t->rank > 0)
        return TOOL_OK;
    *out = (struct report_store){.rule = rf_store_rule_name(s->opts.rule),
                                 .servers = rf_store_has_servers(s->opts.rule)
                                                ? (s->opts.servers ? s->opts.servers : 1)
                                                : 0};
    snprintf(out->path, sizeof(out->path), "%s", rf_store_path(s->store));
    if (rf_store_get_stats(s->store, &mine) < 0)
        return trainer_failed(t);
    out->additions = mine.additions;
    out->lost = mine.lost;
    if (out->servers && rf_store_ask(s->store, 0, &out->server) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_others(struct trainer *t, const char *why)
{
    struct train_store *s = t->sync->store;
    if (!s)
        return;
    rf_run_release(t->run); /* another worker may take its folder over */
    rf_store_abort(s->store, why);
    if (s->workers)
        rf_comm_abort(s->workers, why);
    if (s->trainers)
        rf_comm_abort(s->trainers, why);
    rf_comm_abort(s->world, why);
}

static void shut(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    if (!s)
        return;
    rf_store_close(s->store);
    s->store = NULL;
    for (int k = 0; k < RF_STATE_COUNT; k++) {
        if (s->kept[k] != s->state.states[k])
            free(s->kept[k]);
        free(s->state.states[k]);
        s->kept[k] = NULL;
    }
    memset(&s->state, 0, sizeof(s->state));
    s->resumed = s->opened = false;
    rf_run_group_close(s->group);
    s->group = NULL;
    free(s->ranges);
    free(s->gradient);
    free(s->values);
    s->ranges = NULL;
    s->term_values = 0;
    s->gradient = s->values = NULL;
}

static void close_comms(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    if (s && s->workers)
        (void)rf_comm_close(s->workers); /* the communicator of all ranks says what was wrong */
    if (s && s->trainers)
        (void)rf_comm_close(s->trainers);
    if (s && s->speakers && s->speakers != s->world)
        (void)rf_comm_close(s->speakers);
    free(s);
}

const struct train_sync_kind train_sync_by_store = {.place = place,
                                                    .open = open_worker,
                                                    .shut = shut,
                                                    .step = step,
                                                    .end = end,
                                                    .prepare = train_store_prepare,
                                                    .load = train_store_load,
                                                    .leave = leave,
                                                    .abort = end_others,
                                                    .close = close_comms};
