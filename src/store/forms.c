/* SPDX-License-Identifier: MIT
 *
 * Parameters in windows whose provider has atomic operations. RF_STORE_HOGWILD: f32 values, to
 * which ranks add, and which they read, by atomic operations. RF_STORE_RACY: cells of 8 bytes as in
 * shared memory, a value with the number of additions in it, which are read and written at once.
 */
#include "across.h"

struct cell {
    float value;
    uint32_t additions;
};

/* What a part has of the room: the parts of a call follow one another. */
static void *next_room(const struct rf_store *store, int64_t *used, int64_t count, size_t each)
{
    unsigned char *at = (unsigned char *)store->across->room + (size_t)*used * each;
    *used += count;
    return at;
}

static int start(struct rf_store *store, enum rf_window_op op, const struct rf_store_part *part,
                 size_t each, void *local)
{
    struct rf_store_across *a = store->across;
    const bool bytes = op == RF_WINDOW_PUT || op == RF_WINDOW_GET;
    const size_t count = (size_t)part->count;
    if (part->rank != store->rank)
        *(op == RF_WINDOW_LOAD_F32 || op == RF_WINDOW_LOAD_U64 ? &store->stats.pulled_bytes
                                                               : &store->stats.pushed_bytes) +=
            count * each;
    return rf_window_start(a->window, op, part->rank, a->head + each * (uint64_t)part->first, local,
                           bytes ? count * each : count);
}

/* ---- atomic ---------------------------------------------------------------------------------- */

static uint64_t floats(int ranks, int64_t count)
{
    (void)ranks;
    return sizeof(float) * (uint64_t)count;
}

static uint64_t room_of_floats(int ranks)
{
    return floats(ranks, RF_STORE_PART_VALUES);
}

static int fill_floats(struct rf_store *store, const struct rf_store_part *parts, int count,
                       struct rf_store_job *job)
{
    int64_t used = 0;
    for (int k = 0; k < count; k++) {
        float *values = next_room(store, &used, parts[k].count, sizeof *values);
        memcpy(values, job->from + parts[k].at, sizeof *values * (size_t)parts[k].count);
        RETURN_IF_ERROR(start(store, RF_WINDOW_PUT, parts + k, sizeof *values, values));
    }
    return rf_window_flush(store->across->window);
}

static int add(struct rf_store *store, const struct rf_store_part *parts, int count,
               struct rf_store_job *job)
{
    int64_t used = 0;
    for (int k = 0; k < count; k++) {
        float *changes = next_room(store, &used, parts[k].count, sizeof *changes);
        for (int64_t i = 0; i < parts[k].count; i++)
            changes[i] = rf_store_change(job, job->from[parts[k].at + i]);
        RETURN_IF_ERROR(start(store, RF_WINDOW_ADD_F32, parts + k, sizeof *changes, changes));
    }
    return rf_window_flush(store->across->window);
}

static int load(struct rf_store *store, const struct rf_store_part *parts, int count,
                struct rf_store_job *job)
{
    for (int k = 0; k < count; k++)
        RETURN_IF_ERROR(
            start(store, RF_WINDOW_LOAD_F32, parts + k, sizeof(float), job->to + parts[k].at));
    return rf_window_flush(store->across->window);
}

/* Bytes of the parts that lie on other ranks. */
static uint64_t others(const struct rf_store *store, const struct rf_store_part *parts, int count,
                       size_t each)
{
    uint64_t bytes = 0;
    for (int k = 0; k < count; k++)
        bytes += parts[k].rank == store->rank ? 0 : each * (uint64_t)parts[k].count;
    return bytes;
}

static int plan_floats(struct rf_store *store, const struct rf_store_part *parts, int count,
                       struct rf_store_job *job)
{
    job->written += others(store, parts, count, sizeof(float));
    job->read += others(store, parts, count, sizeof(float));
    return RF_OK;
}

const struct rf_store_form rf_store_atomic = {.path = "atomic one-sided additions",
                                              .needs = {RF_WINDOW_ADD_F32, RF_WINDOW_LOAD_F32},
                                              .memory = floats,
                                              .room = room_of_floats,
                                              .fill = fill_floats,
                                              .push = add,
                                              .pull = load,
                                              .plan = plan_floats};

/* ---- racing ---------------------------------------------------------------------------------- */

static uint64_t cells(int ranks, int64_t count)
{
    (void)ranks;
    return sizeof(struct cell) * (uint64_t)count;
}

static uint64_t room_of_cells(int ranks)
{
    return cells(ranks, RF_STORE_PART_VALUES);
}

static int fill_cells(struct rf_store *store, const struct rf_store_part *parts, int count,
                      struct rf_store_job *job)
{
    int64_t used = 0;
    for (int k = 0; k < count; k++) {
        struct cell *mine = next_room(store, &used, parts[k].count, sizeof *mine);
        for (int64_t i = 0; i < parts[k].count; i++)
            mine[i] = (struct cell){.value = job->from[parts[k].at + i]};
        RETURN_IF_ERROR(start(store, RF_WINDOW_PUT, parts + k, sizeof *mine, mine));
    }
    return rf_window_flush(store->across->window);
}

/* Copies the cells of all parts to the room. */
static int read_cells(struct rf_store *store, const struct rf_store_part *parts, int count)
{
    int64_t used = 0;
    for (int k = 0; k < count; k++) {
        struct cell *mine = next_room(store, &used, parts[k].count, sizeof *mine);
        RETURN_IF_ERROR(start(store, RF_WINDOW_LOAD_U64, parts + k, sizeof *mine, mine));
    }
    return rf_window_flush(store->across->window);
}

/* Between the reading and the writing others may write. */
static int change_cells(struct rf_store *store, const struct rf_store_part *parts, int count,
                        struct rf_store_job *job)
{
    int64_t used = 0;
    RETURN_IF_ERROR(read_cells(store, parts, count));
    for (int k = 0; k < count; k++) {
        struct cell *mine = next_room(store, &used, parts[k].count, sizeof *mine);
        for (int64_t i = 0; i < parts[k].count; i++) {
            mine[i].value += rf_store_change(job, job->from[parts[k].at + i]);
            mine[i].additions++;
        }
        RETURN_IF_ERROR(start(store, RF_WINDOW_STORE_U64, parts + k, sizeof *mine, mine));
    }
    return rf_window_flush(store->across->window);
}

static int copy_cells(struct rf_store *store, const struct rf_store_part *parts, int count,
                      struct rf_store_job *job)
{
    int64_t used = 0;
    RETURN_IF_ERROR(read_cells(store, parts, count));
    for (int k = 0; k < count; k++) {
        const struct cell *mine = next_room(store, &used, parts[k].count, sizeof *mine);
        for (int64_t i = 0; i < parts[k].count; i++)
            job->to[parts[k].at + i] = mine[i].value;
    }
    return RF_OK;
}

static int count_cells(struct rf_store *store, const struct rf_store_part *parts, int count,
                       struct rf_store_job *job)
{
    const struct cell *all = store->across->room;
    int64_t values = 0;
    RETURN_IF_ERROR(read_cells(store, parts, count));
    for (int k = 0; k < count; k++)
        values += parts[k].count;
    for (int64_t i = 0; i < values; i++)
        job->kept += all[i].additions;
    return RF_OK;
}

static int plan_cells(struct rf_store *store, const struct rf_store_part *parts, int count,
                      struct rf_store_job *job)
{
    job->written += others(store, parts, count, sizeof(struct cell));
    job->read += 2 * others(store, parts, count, sizeof(struct cell));
    return RF_OK;
}

const struct rf_store_form rf_store_racing = {.path = "one-sided reads and writes that race",
                                              .needs = {RF_WINDOW_LOAD_U64, RF_WINDOW_STORE_U64},
                                              .memory = cells,
                                              .room = room_of_cells,
                                              .fill = fill_cells,
                                              .push = change_cells,
                                              .pull = copy_cells,
                                              .count = count_cells,
                                              .plan = plan_cells};
