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
    struct rf_comm *world, *workers; /* all ranks; all but the servers */
    struct rf_store_opts opts;
    struct rf_store_keys *ranges; /* those of opts: undecayed, then terms */
    int64_t term_values;          /* behind the parameters' in `gradient` */
    struct rf_rounds_params params;
    float *gradient, *values;
    struct rf_store *store;
    uint64_t pushed_bytes, wait_ns; /* so far */
    struct rf_store_state state;    /* of the last checkpoint, on the first worker */
    bool resumed, ended;            /* from it; this worker's steps have */
};

/* Takes the store's parameters. */
int train_store_pull(struct trainer *t);

/* Waits until all workers are at this point of the training or beyond; with --elastic, all that are
 * left. Points ascend. */
#define TRAIN_STORE_END (INT64_MAX - 2)
int train_store_meet(struct trainer *t, int64_t point);

int train_store_prepare(struct trainer *t, char **settings);
int train_store_load(struct trainer *t);

#endif
