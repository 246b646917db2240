/* SPDX-License-Identifier: MIT
 *
 * The workers of `ringforge train --sync`, as shared by train_sync.c (their exchanges) and
 * train_sync_save.c (their checkpoints).
 */
#ifndef RF_TOOLS_TRAIN_SYNC_H
#define RF_TOOLS_TRAIN_SYNC_H

#include <ringforge/rounds.h>

#include "trainer.h"

struct train_sync {
    /* One of these, or the rounds, which have all the rest. */
    struct train_store *store;
    struct rf_client *client;
    struct rf_comm *world, *across; /* all ranks; those in the same place of other workers */
    struct rf_rounds_text rule;
    struct rf_rounds_params params;
    struct rf_rounds *rounds;
    int workers;     /* that are left */
    int size, place; /* ranks of a worker, and which of them this is */
    /* By their numbers at the start: the ranks of `world`, and the workers of `across`. */
    int *ids, *members;
    int lost; /* workers, of which nothing has been said yet */
    /* A save is in progress: on this worker; and the first worker, whose folder says which
     * checkpoint is the last one, does not yet know that those of all others are complete. */
    bool saving, awaits_others;
    int32_t saves; /* begun so far */
};

/* Whether there are other workers to exchange with. */
static inline struct train_sync *train_sync_rounds(const struct trainer *t)
{
    return t->sync && t->sync->across ? t->sync : NULL;
}

/* train_sync_save.c: locks the folder of this worker's checkpoints, in place of an earlier one.
 * Collective over the worker. */
int train_sync_reserve_own(struct trainer *t);

#endif
