/* SPDX-License-Identifier: MIT
 *
 * The workers of `ringforge train --sync`, as shared by the files train_sync_*.c, train_store.c and
 * train_client.c.
 */
#ifndef RF_TOOLS_TRAIN_SYNC_H
#define RF_TOOLS_TRAIN_SYNC_H

#include <ringforge/rounds.h>

#include "trainer.h"

/* What a rank does with a kind of --sync. A function that returns an int returns an exit status,
 * and has reported the failure. NULL: nothing is to be done. */
struct train_sync_kind {
    /* Divides the ranks. Collective over all of them. */
    int (*place)(struct trainer *t);
    /* Once the run has its parameters. Collective. shut: before the run is closed, or opened again;
     * also after an error. */
    int (*open)(struct trainer *t);
    void (*shut)(struct trainer *t);
    /* After each local step, of this rate: adds to its stats. */
    int (*step)(struct trainer *t, double lr, struct rf_step_stats *stats);
    /* After the last step: all workers have one model. Collective. */
    int (*end)(struct trainer *t);
    /* Before a save: what the checkpoint keeps of it, with the settings of the run, to be freed.
     * *settings NULL: this rank saves nothing. Collective. */
    int (*prepare)(struct trainer *t, char **settings);
    /* Loads the checkpoint of --resume. NULL: train_sync_save.c does. Collective over the workers.
     */
    int (*load)(struct trainer *t);
    /* Waits for the others, of whom some may be writing. */
    int (*leave)(struct trainer *t);
    /* Ends the others, which would wait for this rank. */
    void (*abort)(struct trainer *t, const char *why);
    void (*close)(struct trainer *t);
};

extern const struct train_sync_kind train_sync_by_rounds, train_sync_by_store,
    train_sync_by_coordinator;

struct train_store;

/* What newcomers must know of the others. */
struct train_sync_join {
    int64_t step, exchanges;   /* of the rounds */
    int32_t old, saves, parts; /* old: ranks that were there before */
};

struct train_sync {
    const struct train_sync_kind *kind;
    struct train_store *store;
    struct rf_run_group *group; /* the ranks of a client */
    struct rf_client *client;   /* on the first of them */
    struct rf_rounds_text rule; /* of rounds, and of a client */
    struct rf_rounds_params params;
    /* Rounds: */
    struct rf_comm *world, *across; /* all ranks; those in the same place of other workers */
    struct rf_rounds *rounds;
    int workers;     /* that are left */
    int size, place; /* ranks of a worker, and which of them this is */
    /* By their numbers at the start: the ranks of `world`, and the workers of `across`. */
    int *ids, *members;
    int lost;          /* workers, of which nothing has been said yet */
    int32_t newcomers; /* that wait, as all have heard in the last exchange */
    struct train_sync_join join;
    struct rf_comm *extra; /* of a join that is not complete; or NULL */
    /* A save is in progress: on this worker; and the first worker, whose folder says which
     * checkpoint is the last one, does not yet know that those of all others are complete. */
    bool saving, awaits_others;
    int32_t saves; /* begun so far */
    /* Losses so far, each of which ends the save in progress, and up to the last save that all
     * workers have completed; whether one was begun since the last of them. */
    int losses, settled;
    int64_t left_out; /* nobody saves behind steps up to this one, or takes newcomers in */
    bool begun;
};

/* Whether there are other workers to exchange with. */
static inline struct train_sync *train_sync_rounds(const struct trainer *t)
{
    return t->sync && t->sync->across ? t->sync : NULL;
}

/* ---- train_sync_join.c ----------------------------------------------------------------------- */

/* Before an exchange: how many ranks wait to join, on the first worker; 0 on others. Collective
 * over the worker. */
int train_sync_newcomers(struct trainer *t, int32_t *count);
/* A newcomer takes its place: t->comm is that of all ranks, and then the worker's own. */
int train_sync_join(struct trainer *t);

/* ---- train_sync_lost.c ----------------------------------------------------------------------- */

/* Takes another communicator of all ranks. */
void train_sync_take_world(struct trainer *t, struct rf_comm *world);
/* The workers that have all their ranks; these follow each other. ranks: receives the ranks of
 * them. Returns how many workers there are. */
int train_sync_whole(const struct train_sync *sync, int *workers, int *ranks);
/* The rounds continue with these workers. old: room for their old numbers. A status, or -1: a rank
 * was lost. */
int train_sync_move_rounds(struct trainer *t, const int *workers, int *old);

/* ---- train_sync_save.c ----------------------------------------------------------------------- */

int train_sync_prepare(struct trainer *t, char **settings);

/* ---- train_sync_folder.c --------------------------------------------------------------------- */

/* The folder of a worker's checkpoints in the job's. */
int train_sync_folder(const struct trainer *t, const char *dir, int worker,
                      char path[TOOL_PATH_BYTES]);
/* Locks the folder of this worker's checkpoints, in place of an earlier one. Collective over the
 * worker. */
int train_sync_reserve_own(struct trainer *t);
/* A worker was lost, and with it its part of the save in progress. */
void train_sync_save_drop(struct trainer *t);

#endif
