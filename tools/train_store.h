/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync server` and `hogwild`, as shared by train_store.c (steps) and
 * train_store_save.c (what the workers do together). A function that returns an int returns an exit
 * status, and has reported the failure.
 */
#ifndef RF_TOOLS_TRAIN_STORE_H
#define RF_TOOLS_TRAIN_STORE_H

#include "train_sync.h"

struct train_store {
    /* All ranks; all but the servers; the first ranks of the workers, and the servers, which have
     * the store; and on the first ranks those of the workers that are left. Of workers of one rank
     * trainers is NULL. */
    struct rf_comm *world, *trainers, *speakers, *workers;
    struct rf_store_opts opts;
    struct rf_store_keys *ranges; /* those of opts: undecayed, then terms */
    struct rf_run_group *group;   /* the ranks of this worker */
    bool opened;
    /* On the first rank of a worker: */
    struct rf_rounds_params params; /* of the whole model */
    int64_t term_values;            /* behind the parameters' in `gradient` */
    float *gradient, *values;
    struct rf_store *store;
    uint64_t pushed_bytes, wait_ns, group_bytes; /* so far */
    struct rf_store_state state;                 /* of the last checkpoint, on the first worker */
    /* On all: what a checkpoint keeps of this rank's parameters; of the first rank of several, and
     * of one rank it is that of `state`. */
    float *kept[RF_STATE_COUNT];
    bool resumed, ended; /* from it; this worker's steps have */
};

/* What the first rank of a worker tells the others. */
struct train_store_word {
    int32_t status, stop;
    int32_t number, lost, left; /* of the workers */
    float grad_norm;
    int64_t version, updates;
};
/* ---- train_store_group.c --------------------------------------------------------------------- */

/* Behind what the first rank has done for all, with the status that it returns: the others do their
 * part of it until then. */
int train_store_agree(struct trainer *t, struct train_store_word *word);

/* The ranks of this worker as one. Collective over them. */
int train_store_group(struct trainer *t);

/* The worker takes the store's parameters; what the first rank does of it. */
int train_store_pull(struct trainer *t);
int train_store_pull_first(struct trainer *t);

/* ---- train_store_save.c ---------------------------------------------------------------------- */

/* Waits until all workers are at this point of the training or beyond; with --elastic, all that are
 * left. Points ascend. */
#define TRAIN_STORE_END (INT64_MAX - 2)
int train_store_meet(struct trainer *t, int64_t point);

int train_store_prepare(struct trainer *t, char **settings);
int train_store_load(struct trainer *t);

#endif
