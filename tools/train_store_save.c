/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server` and `hogwild`: where workers meet, and checkpoints. The first
 * worker's has the parameters of the store, and, as arrays beside them, the states of the servers'
 * optimizer. So it continues with any number of workers and servers.
 */
#include <math.h>
#include <string.h>

#include "train_store.h"

int train_store_pull(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    const struct rf_store_keys all = rf_store_range(0, s->params.count);
    if (rf_store_pull(s->store, &all, 0, s->values) < 0 ||
        s->params.write(s->params.user, 0, s->params.count, s->values) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* The first of those that are left prints and writes, which may be another one than before. */
static int take_over(struct trainer *t, int lost, int left)
{
    struct train_expected expected = {0};
    int status = TOOL_OK;
    if (t->number != 0)
        return TOOL_OK;
    if (!t->report) {
        train_expect(t->o, t->device, t->comm, t->plan, t->model.count, &expected);
        status = report_open(t->command, t->o, &expected, true, &t->report);
        if (status == TOOL_OK && t->o->save)
            status = train_sync_reserve_own(t);
    }
    if (status == TOOL_OK)
        report_workers(t->report, t->progress.step, lost, 0, left);
    return status;
}

/* Others may be at different points: each comes to all of its own. */
int train_store_meet(struct trainer *t, int64_t point)
{
    struct train_store *s = t->sync->store;
    int64_t slowest = -1;
    while (slowest < point) {
        struct rf_comm *left = NULL;
        const int were = rf_comm_size(s->workers);
        if (rf_all_reduce(s->workers, &point, &slowest, 1, RF_I64, RF_MIN, NULL) == 0)
            continue;
        slowest = -1;
        if (!t->o->elastic || !train_lost_a_rank() ||
            rf_comm_shrink(s->workers, INFINITY, NULL, &left) < 0)
            return trainer_failed(t);
        (void)rf_comm_close(s->workers); /* that a worker was lost is known */
        s->workers = left;
        t->number = rf_comm_rank(left);
        const int status = take_over(t, were - rf_comm_size(left), rf_comm_size(left));
        if (status != TOOL_OK)
            return status;
    }
    return TOOL_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* From now on checkpoints of the run have the states. */
static int keep(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    const struct rf_optimizer_opts *optimizer = &t->o->setup.policy.optimizer;
    struct rf_run_kept kept[RF_STATE_COUNT];
    int count = 0;
    if (!s->params.count && rf_run_rounds_params(t->run, &s->params) < 0)
        return trainer_failed(t);
    for (int k = 0; k < RF_STATE_COUNT && rf_store_has_servers(s->opts.rule); k++) {
        if (!rf_optimizer_has(optimizer, (enum rf_optimizer_state)k))
            continue;
        float **state = &s->state.states[k];
        if (!*state && !(*state = calloc((size_t)s->params.count, sizeof(float))))
            return tool_error(t->command, "out of memory for the states of %lld parameters",
                              (long long)s->params.count);
        kept[count++] =
            (struct rf_run_kept){rf_optimizer_state_name((enum rf_optimizer_state)k), *state};
    }
    return rf_run_keep(t->run, kept, count) < 0 ? trainer_failed(t) : TOOL_OK;
}

static int take_state(struct trainer *t, char **settings)
{
    struct train_store *s = t->sync->store;
    int status = train_store_pull(t);
    if (status == TOOL_OK)
        status = keep(t);
    if (status != TOOL_OK)
        return status;
    if (rf_store_has_servers(s->opts.rule) && rf_store_read_state(s->store, &s->state) < 0)
        return trainer_failed(t);
    char *options = train_settings_text(t->o, t->dataset, t->lr);
    const size_t bytes = options ? strlen(options) + 100 : 0;
    char *text = options ? malloc(bytes) : NULL;
    if (text)
        snprintf(text, bytes, "%s" TRAIN_SYNC_LINE "=store %lld %lld\n", options,
                 (long long)s->state.version, (long long)s->state.updates);
    free(options);
    *settings = text;
    return text ? TOOL_OK : tool_error(t->command, "out of memory");
}

/* Nobody pushes until the first worker has the state. The others save nothing. */
int train_store_prepare(struct trainer *t, char **settings)
{
    const bool ended = t->sync->store->ended;
    const int64_t point = ended ? TRAIN_STORE_END + 1 : 2 * t->progress.step;
    int status = train_store_meet(t, point);
    if (status == TOOL_OK && t->number == 0)
        status = take_state(t, settings);
    return status == TOOL_OK ? train_store_meet(t, point + 1) : status;
}

/* ---- loading --------------------------------------------------------------------------------- */

struct words {
    int64_t status, version, updates;
};

static void load_first(struct trainer *t, struct words *w)
{
    const char *line =
        t->o->settings ? strstr(t->o->settings, "\n" TRAIN_SYNC_LINE "=store ") : NULL;
    long long version, updates;
    w->status = TOOL_ERROR;
    if (!line || sscanf(line + strlen("\n" TRAIN_SYNC_LINE "=store "), "%lld %lld", &version,
                        &updates) != 2) {
        tool_error(t->command,
                   "%s is no checkpoint of a store: use --from DIR with its weights, as --export "
                   "writes them",
                   t->o->resume);
        return;
    }
    w->version = version;
    w->updates = updates;
    w->status = keep(t);
    if (w->status == TOOL_OK && rf_run_load(t->run, t->o->resume, &t->progress) < 0)
        w->status = trainer_failed(t);
}

/* The first worker's run is that of all. */
int train_store_load(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    struct words w = {TOOL_OK, 0, 0};
    struct rf_snapshot *snapshot = NULL;
    struct rf_progress progress = t->progress;
    if (t->number == 0)
        load_first(t, &w);
    if (rf_broadcast(s->workers, &w, sizeof(w), RF_U8, 0, NULL) < 0)
        return trainer_failed(t);
    if (w.status != TOOL_OK)
        return (int)w.status;
    s->state.version = w.version;
    s->state.updates = w.updates;
    s->resumed = true;
    int rc = t->number == 0 ? rf_run_snapshot(t->run, &t->progress, &snapshot) : 0;
    if (rc == 0)
        rc = rf_run_restore_from(t->run, s->workers, snapshot, &progress);
    rf_snapshot_destroy(snapshot);
    if (rc == 0 && t->number > 0)
        t->progress = progress;
    return rc < 0 ? trainer_failed(t) : TOOL_OK;
}
