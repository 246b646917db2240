/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync ... --accept` and `--join`: processes become workers of a running job,
 * behind an exchange. They get the mean of the workers' parameters and of what the rounds keep, the
 * optimizer's states of the first worker, and the parts of the data that nobody has.
 */
#include <string.h>

#include "train_sync.h"

enum { PIECE = 1 << 16 }; /* values that are averaged at once */

/* ---- who waits ------------------------------------------------------------------------------- */

/* How many of those that wait make whole workers. No more than there are ranks: whatever becomes of
 * the newcomers, those with the state are no minority. */
static int count_newcomers(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    const int all = rf_comm_size(sync->world);
    char text[160];
    int waiting = t->join_listener ? rf_join_listener_waiting(t->join_listener) : 0;
    if (waiting > 0 && waiting < sync->size) {
        snprintf(text, sizeof(text), "its workers have %d ranks each, and %d %s: waiting for more",
                 sync->size, waiting, waiting == 1 ? "waits" : "wait");
        rf_join_listener_set_status(t->join_listener, text);
    }
    waiting = waiting < all ? waiting : all;
    return waiting - waiting % sync->size;
}

int train_sync_newcomers(struct trainer *t, int32_t *count)
{
    *count = 0;
    if (!t->o->accept || t->number != 0)
        return TOOL_OK;
    if (t->rank == 0)
        *count = count_newcomers(t);
    return t->sync->size > 1 && rf_run_share(t->run, count, sizeof(*count)) < 0 ? trainer_failed(t)
                                                                                : TOOL_OK;
}

/* ---- the larger communicator ----------------------------------------------------------------- */

static bool is_taken(const int *ids, int count, int id)
{
    int k = 0;
    while (k < count && ids[k] != id)
        k++;
    return k < count;
}

/* Newcomers follow the ranks of the job, and take the lowest numbers of workers that are free. */
static void number_newcomers(const struct train_sync *sync, int old, int all, int *ids)
{
    int worker = 0;
    memcpy(ids, sync->ids, (size_t)old * sizeof(int));
    for (int first = old; first < all; first += sync->size) {
        while (is_taken(ids, first, worker * sync->size))
            worker++;
        for (int k = 0; k < sync->size; k++)
            ids[first + k] = worker * sync->size + k;
    }
}

/* Collective over the larger communicator, which t->comm is: settings, numbers, and places. */
static int share_places(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    const int all = t->ranks;
    int *ids = calloc((size_t)all, sizeof(int)), *members = calloc((size_t)all, sizeof(int));
    if (!ids || !members ||
        rf_broadcast(t->comm, &sync->join, sizeof(sync->join), RF_U8, 0, NULL) < 0) {
        free(ids);
        free(members);
        return -1;
    }
    if (t->rank == 0)
        number_newcomers(sync, sync->join.old, all, ids);
    for (int k = 0; k < sync->workers && !t->newcomer; k++)
        members[k] = sync->members[k];
    free(sync->ids);
    free(sync->members);
    sync->ids = ids;
    sync->members = members;
    return rf_broadcast(t->comm, ids, (size_t)all, RF_I32, 0, NULL);
}

/* The data is divided among one more, if a newcomer has taken no place that was free. */
static int take_places(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    const int all = rf_comm_size(sync->world);
    int *workers = calloc(2 * (size_t)all, sizeof(int));
    if (!workers)
        return -1;
    sync->workers = train_sync_whole(sync, workers, workers + all);
    for (int k = 0; k < sync->workers; k++) {
        t->parts = workers[k] >= t->parts ? workers[k] + 1 : t->parts;
        t->number = workers[k] == t->worker ? k : t->number;
    }
    free(workers);
    return 0;
}

/* ---- the state ------------------------------------------------------------------------------- */

/* The mean over the `old` workers of comm; newcomers take it. */
static int share_mean(const struct trainer *t, struct rf_comm *comm, int old, float *values,
                      int64_t count, double *room)
{
    for (int64_t first = 0, n; first < count; first += n) {
        n = count - first < PIECE ? count - first : PIECE;
        for (int64_t i = 0; i < n; i++)
            room[i] = t->newcomer ? 0 : (double)values[first + i];
        if (rf_all_reduce(comm, room, room, (size_t)n, RF_F64, RF_SUM, NULL) < 0)
            return -1;
        for (int64_t i = 0; i < n && t->newcomer; i++)
            values[first + i] = (float)(room[i] / old);
    }
    return 0;
}

/* What was lost on the way, each worker sends itself. */
static int share_arrays(struct trainer *t, struct rf_comm *comm, int old, double *room)
{
    struct train_sync *sync = t->sync;
    const struct rf_rounds_params *params = &sync->params;
    struct rf_rounds_array array;
    float *values = calloc((size_t)params->count + 1, sizeof(*values));
    int rc = values ? params->read(params->user, 0, params->count, values) : -1;
    if (rc == 0)
        rc = share_mean(t, comm, old, values, params->count, room);
    if (rc == 0 && t->newcomer)
        rc = params->write(params->user, 0, params->count, values);
    free(values);
    for (int k = 0; rc == 0 && rf_rounds_get_array(sync->rounds, k, &array) == RF_OK; k++)
        if (!array.is_sum && strcmp(array.name, "feedback") != 0)
            rc = share_mean(t, comm, old, array.values, array.count, room);
    return rc;
}

/* The optimizer's states of the first worker. */
static int share_states(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    struct rf_snapshot *snapshot = NULL;
    struct rf_progress progress = t->progress;
    const bool takes_part = t->number == 0 || t->newcomer;
    if (rf_comm_split(sync->world, takes_part ? 0 : -1, 0, &sync->extra) < 0)
        return -1;
    int rc = t->number == 0 ? rf_run_snapshot(t->run, &progress, &snapshot) : 0;
    if (rc == 0 && takes_part)
        rc = rf_run_restore_from(t->run, sync->extra, snapshot, &progress);
    if (rc == 0 && t->newcomer)
        t->progress = progress;
    rf_snapshot_destroy(snapshot);
    return rc;
}

/* After an error, which is still to be read, the communicators stay open. */
static void close_extra(struct train_sync *sync)
{
    if (sync->extra)
        (void)rf_comm_close(sync->extra);
    sync->extra = NULL;
}

static int move_rounds(struct trainer *t)
{
    const int all = rf_comm_size(t->sync->world);
    int *workers = calloc(2 * (size_t)all, sizeof(int));
    if (!workers)
        return -1;
    (void)train_sync_whole(t->sync, workers, workers + all);
    const int status = train_sync_move_rounds(t, workers, workers + all);
    free(workers);
    return status == TOOL_OK ? 0 : -1;
}

/* Collective over all ranks, once the newcomers have opened their runs and rounds. */
static int share_state(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    double *room = calloc(PIECE, sizeof(*room));
    int rc = room ? share_states(t) : -1;
    if (rc == 0) {
        close_extra(sync);
        rc = rf_comm_split(sync->world, sync->place, t->number, &sync->extra);
    }
    if (rc == 0)
        rc = share_arrays(t, sync->extra, sync->join.old / sync->size, room);
    free(room);
    if (rc == 0)
        close_extra(sync);
    if (rc == 0 && t->newcomer)
        rc = rf_rounds_set_counters(sync->rounds, sync->join.step, sync->join.exchanges);
    return rc == 0 ? move_rounds(t) : rc;
}

/* ---- the job --------------------------------------------------------------------------------- */

static int call_newcomers(struct trainer *t, struct rf_comm **larger)
{
    struct train_sync *sync = t->sync;
    int32_t count = t->number == 0 && t->rank == 0 ? count_newcomers(t) : 0;
    if (rf_rounds_settle(sync->rounds) < 0 ||
        rf_broadcast(sync->world, &count, 1, RF_I32, 0, NULL) < 0)
        return -1;
    const int rc = count ? train_grow(t->o, sync->world, t->join_listener, count, larger) : 0;
    if (rc != RF_EAGAIN)
        return rc;
    if (t->number == 0 && t->rank == 0)
        tool_error(t->command, "%s; the job continues without newcomers", rf_last_error()->message);
    return 0;
}

static int take_in(struct trainer *t, struct rf_comm *larger)
{
    struct train_sync *sync = t->sync;
    struct train_job_state state;
    struct rf_comm *own = t->comm, *none = NULL;
    sync->join = (struct train_sync_join){
        .old = rf_comm_size(sync->world), .saves = sync->saves, .parts = t->parts};
    rf_rounds_get_counters(sync->rounds, &sync->join.step, &sync->join.exchanges);
    trainer_be_in(t, larger);
    int rc = trainer_share_job_state(t, &state) == TOOL_OK ? share_places(t) : -1;
    trainer_be_in(t, own);
    train_sync_take_world(t, larger);
    if (rc < 0 || rf_comm_split(larger, -1, 0, &none) < 0 ||
        rf_comm_split(larger, -1, 0, &none) < 0 || take_places(t) < 0)
        return -1;
    return share_state(t);
}

static int grow(struct trainer *t)
{
    struct rf_comm *larger = NULL;
    const int were = t->sync->workers;
    const int rc = call_newcomers(t, &larger);
    if (rc < 0 || !larger)
        return rc;
    if (take_in(t, larger) < 0)
        return -1;
    if (t->number == 0 && t->rank == 0)
        report_workers(t->report, t->progress.step, 0, t->sync->workers - were, t->sync->workers);
    return 0;
}

int train_sync_grow(struct trainer *t)
{
    const bool heard = t->sync->newcomers > 0;
    t->sync->newcomers = 0;
    if (!heard || t->progress.step <= t->sync->left_out)
        return TOOL_OK;
    return train_sync_survive(t, grow(t));
}

/* ---- newcomers ------------------------------------------------------------------------------- */

static int take_place(struct trainer *t, struct rf_comm **own)
{
    struct train_sync *sync = t->sync;
    if (share_places(t) < 0)
        return -1;
    t->worker = sync->ids[t->rank] / sync->size;
    t->parts = sync->join.parts;
    sync->place = sync->ids[t->rank] % sync->size;
    sync->saves = sync->join.saves;
    sync->members[0] = t->worker;
    if (rf_comm_split(sync->world, t->worker, t->rank, own) < 0 ||
        rf_comm_split(sync->world, t->rank, 0, &sync->across) < 0 || take_places(t) < 0)
        return -1;
    return rf_rounds_text_read(t->o->sync, 1, &sync->rule);
}

int train_sync_join(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    struct rf_comm *own = NULL;
    sync->world = t->comm;
    sync->size = setup_ranks(&t->o->setup);
    if (take_place(t, &own) < 0) {
        const int status = trainer_failed(t);
        if (own)
            (void)rf_comm_close(own);
        sync->world = NULL; /* t->comm is closed with the trainer */
        return status;
    }
    trainer_be_in(t, own);
    return TOOL_OK;
}

int train_sync_arrive(struct trainer *t)
{
    return share_state(t) < 0 ? trainer_failed(t) : TOOL_OK;
}
