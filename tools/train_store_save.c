/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server` and `hogwild`: where workers meet, and checkpoints. The first
 * worker's has the parameters of the store, and, as arrays beside them, the states of the servers'
 * optimizer. So it continues with any number of workers and servers.
 */
#include <math.h>
#include <string.h>

#include "train_store.h"

/* ---- meeting --------------------------------------------------------------------------------- */

/* The first of those that are left prints and writes, which may be another one than before. */
static int take_over(struct trainer *t, int number, int lost, int left)
{
    struct train_expected expected = {0};
    const bool first = t->number != 0 && number == 0;
    int status = TOOL_OK;
    t->number = number;
    if (first && t->rank == 0) {
        train_expect(t->o, t->device, t->comm, t->plan, t->model.count, &expected);
        status = report_open(t->command, t->o, &expected, true, &t->report);
    }
    if (status == TOOL_OK && first && t->o->save)
        status = train_sync_reserve_own(t);
    if (status == TOOL_OK && number == 0 && t->rank == 0)
        report_workers(t->report, t->progress.step, lost, 0, left);
    return status;
}

/* Others may be at different points: each comes to all of its own. */
static int meet_others(struct trainer *t, int64_t point, struct train_store_word *word)
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
        word->number = rf_comm_rank(left);
        word->left = rf_comm_size(left);
        word->lost += were - word->left;
    }
    return TOOL_OK;
}

int train_store_meet(struct trainer *t, int64_t point)
{
    struct train_store_word word = {.number = t->number};
    if (t->rank == 0)
        word.status = meet_others(t, point, &word);
    const int status = train_store_agree(t, &word);
    return status == TOOL_OK && word.lost ? take_over(t, word.number, word.lost, word.left)
                                          : status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Room for a state of the whole model, on the first rank, and of what this rank has of it. */
static int make_room(struct trainer *t, int k)
{
    struct train_store *s = t->sync->store;
    float **state = &s->state.states[k], **kept = &s->kept[k];
    if (t->rank == 0 && !*state)
        *state = calloc((size_t)s->params.count + 1, sizeof(float));
    if (t->ranks == 1)
        *kept = *state;
    else if (!*kept)
        *kept = calloc((size_t)rf_plan_trained_count(t->plan) + 1, sizeof(float));
    return *kept && (t->rank > 0 || *state)
               ? TOOL_OK
               : tool_error(t->command, "out of memory for the states of %lld parameters",
                            (long long)s->params.count);
}

static bool has_state(const struct trainer *t, int k)
{
    return rf_store_has_servers(t->sync->store->opts.rule) &&
           rf_optimizer_has(&t->o->setup.policy.optimizer, (enum rf_optimizer_state)k);
}

/* From now on checkpoints of the run have the states. */
static int keep(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    struct rf_run_kept kept[RF_STATE_COUNT];
    int count = 0, status = train_store_group(t);
    for (int k = 0; k < RF_STATE_COUNT && status == TOOL_OK; k++) {
        if (!has_state(t, k))
            continue;
        status = make_room(t, k);
        kept[count++] =
            (struct rf_run_kept){rf_optimizer_state_name((enum rf_optimizer_state)k), s->kept[k]};
    }
    if (status != TOOL_OK)
        return status;
    return rf_run_keep(t->run, kept, count) < 0 ? trainer_failed(t) : TOOL_OK;
}

/* The first rank's states of the whole model, to or from those that each rank keeps. */
static int move_states(struct trainer *t, bool collects)
{
    struct train_store *s = t->sync->store;
    for (int k = 0; k < RF_STATE_COUNT; k++) {
        if (!has_state(t, k))
            continue;
        float *all = s->state.states[k], *mine = s->kept[k];
        if ((collects ? rf_run_group_collect(s->group, mine, all)
                      : rf_run_group_deal(s->group, all, mine)) < 0)
            return trainer_failed(t);
    }
    return TOOL_OK;
}

static int read_state(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    struct train_store_word word = {0};
    if (t->rank == 0 && rf_store_has_servers(s->opts.rule) &&
        rf_store_read_state(s->store, &s->state) < 0)
        word.status = trainer_failed(t);
    word.version = s->state.version;
    word.updates = s->state.updates;
    const int status = train_store_agree(t, &word);
    s->state.version = word.version;
    s->state.updates = word.updates;
    return status == TOOL_OK ? move_states(t, false) : status;
}

static int take_state(struct trainer *t, char **settings)
{
    struct train_store *s = t->sync->store;
    int status = train_store_pull(t);
    if (status == TOOL_OK)
        status = keep(t);
    if (status == TOOL_OK)
        status = read_state(t);
    if (status != TOOL_OK)
        return status;
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
    if (w->status == TOOL_OK)
        w->status = move_states(t, true);
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
    struct rf_comm *all = s->trainers ? s->trainers : s->workers;
    if (rf_broadcast(all, &w, sizeof(w), RF_U8, 0, NULL) < 0)
        return trainer_failed(t);
    if (w.status != TOOL_OK)
        return (int)w.status;
    s->state.version = w.version;
    s->state.updates = w.updates;
    s->resumed = true;
    int rc = t->number == 0 ? rf_run_snapshot(t->run, &t->progress, &snapshot) : 0;
    if (rc == 0)
        rc = rf_run_restore_from(t->run, all, snapshot, &progress);
    rf_snapshot_destroy(snapshot);
    if (rc == 0 && t->number > 0)
        t->progress = progress;
    return rc < 0 ? trainer_failed(t) : TOOL_OK;
}
