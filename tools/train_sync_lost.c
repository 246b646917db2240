/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync --elastic`: the workers that are left continue without those that are
 * lost. A worker that has lost one of its ranks ends as a whole. The others keep their parts of the
 * data.
 */
#include <string.h>

#include "train_sync.h"

/* Another worker was lost meanwhile: all begin again. */
enum { AGAIN = -1 };

static int failed(struct trainer *t)
{
    return train_lost_a_rank() ? AGAIN : trainer_failed(t);
}

void train_sync_take_world(struct trainer *t, struct rf_comm *world)
{
    struct train_sync *sync = t->sync;
    if (sync->world != t->first)
        (void)rf_comm_close(sync->world);
    sync->world = world;
}

/* old_ranks: of each, in the communicator before. */
static void take_left(struct trainer *t, struct rf_comm *world, const int *old_ranks)
{
    for (int k = 0; k < rf_comm_size(world); k++)
        t->sync->ids[k] = t->sync->ids[old_ranks[k]];
    train_sync_take_world(t, world);
}

int train_sync_whole(const struct train_sync *sync, int *workers, int *ranks)
{
    const int size = sync->size, all = rf_comm_size(sync->world);
    int count = 0;
    for (int first = 0, end; first < all; first = end) {
        const int worker = sync->ids[first] / size;
        for (end = first + 1; end < all && sync->ids[end] / size == worker; end++)
            ;
        if (end - first < size)
            continue;
        for (int k = 0; k < size; k++)
            ranks[count * size + k] = first + k;
        workers[count++] = worker;
    }
    return count;
}

static int find(const int *list, int count, int value)
{
    int k = 0;
    while (k < count && list[k] != value)
        k++;
    return k < count ? k : -1;
}

/* Ranks that still run, then those of whole workers. A worker that is not whole ends. */
static int meet(struct trainer *t, int *workers, int *ranks)
{
    struct train_sync *sync = t->sync;
    struct rf_comm *next = NULL;
    rf_comm_abort(sync->across, "a worker was lost; the others continue");
    rf_comm_abort(sync->world, "a worker was lost; the others continue");
    if (rf_comm_shrink(sync->world, 0, ranks, &next) < 0)
        return trainer_failed(t);
    take_left(t, next, ranks);
    const int whole = train_sync_whole(sync, workers, ranks);
    const int number = find(workers, whole, t->worker);
    if (number < 0)
        rf_run_release(t->run); /* another worker may take its folder over */
    if (rf_comm_split(sync->world, number < 0 ? -1 : 0, rf_comm_rank(sync->world), &next) < 0)
        return failed(t);
    if (number < 0)
        return tool_error(t->command, "this worker has lost a rank and ends; %d other%s", whole,
                          whole == 1 ? " continues" : "s continue");
    take_left(t, next, ranks);
    sync->lost += sync->workers - whole;
    sync->workers = whole;
    t->number = number;
    /* Some may have begun one more save, or have counted newcomers that the others have lost. Up to
     * the last step that one of them has made, all leave out what they would do together. */
    int64_t most[3] = {sync->saves, t->parts, t->progress.step};
    if (rf_all_reduce(sync->world, most, most, 3, RF_I64, RF_MAX, NULL) < 0)
        return failed(t);
    sync->saves = (int32_t)most[0];
    t->parts = (int)most[1];
    sync->left_out = most[2];
    return TOOL_OK;
}

int train_sync_move_rounds(struct trainer *t, const int *workers, int *old)
{
    struct train_sync *sync = t->sync;
    struct rf_comm *across = NULL, *before = sync->across;
    const int were = rf_comm_size(before);
    if (rf_comm_split(sync->world, sync->place, t->number, &across) < 0)
        return failed(t);
    for (int k = 0; k < sync->workers; k++)
        old[k] = find(sync->members, were, workers[k]);
    rf_comm_set_track(across, "rounds");
    const int status = rf_rounds_move(sync->rounds, across, old) < 0 ? failed(t) : TOOL_OK;
    memcpy(sync->members, workers, (size_t)sync->workers * sizeof(int));
    sync->across = across;
    (void)rf_comm_close(before);
    return status;
}

/* Folders move down with the numbers of their workers: one after the other, so that each is free
 * when it is taken. */
static int reserve_in_turn(struct trainer *t)
{
    for (int n = 0; n < t->sync->workers && t->o->save; n++) {
        if (rf_barrier(t->sync->world, NULL) < 0)
            return failed(t);
        const int status = n == t->number ? train_sync_reserve_own(t) : TOOL_OK;
        if (status != TOOL_OK)
            return status;
    }
    return TOOL_OK;
}

/* The first of the workers may be another one than before. */
static int tell(struct trainer *t)
{
    struct train_expected expected = {0};
    int status = TOOL_OK;
    if (t->rank != 0 || t->number != 0)
        return TOOL_OK;
    if (!t->report) {
        train_expect(t->o, t->device, t->comm, t->plan, t->model.count, &expected);
        status = report_open(t->command, t->o, &expected, true, &t->report);
    }
    if (status == TOOL_OK)
        report_workers(t->report, t->progress.step, t->sync->lost, 0, t->sync->workers);
    t->sync->lost = 0;
    if (status == TOOL_OK && t->o->accept && !t->join_listener) /* or nobody joins any more */
        (void)train_join_listener_open(t->command, t->o, t->sync->world, &t->join_listener);
    train_join_listener_set_status(t->join_listener, t->o);
    return status;
}

static int shrink_with(struct trainer *t, int *workers, int *ranks)
{
    int status = AGAIN;
    train_sync_save_drop(t);
    while (status == AGAIN) {
        status = meet(t, workers, ranks);
        if (status == TOOL_OK)
            status = reserve_in_turn(t);
        if (status == TOOL_OK) /* last: others reach the exchange only by further steps */
            status = train_sync_move_rounds(t, workers, ranks);
    }
    return status == TOOL_OK ? tell(t) : status;
}

static int shrink(struct trainer *t)
{
    const size_t ranks = (size_t)rf_comm_size(t->sync->world);
    int *room = calloc(2 * ranks, sizeof(int));
    if (!room)
        return tool_error(t->command, "out of memory");
    const int status = shrink_with(t, room, room + ranks);
    free(room);
    return status;
}

/* The ranks of a worker do as one of them: none would find the others in its next step. */
int train_sync_survive(struct trainer *t, int rc)
{
    if (!t->o->elastic || (rc < 0 && !train_lost_a_rank()))
        return rc < 0 ? trainer_failed(t) : TOOL_OK;
    int32_t lost = rc < 0 || rf_comm_async_error(t->sync->world) < 0;
    if (t->sync->size > 1 && rf_all_reduce(t->comm, &lost, &lost, 1, RF_I32, RF_MAX, NULL) < 0)
        return trainer_failed(t);
    return lost ? shrink(t) : TOOL_OK;
}
