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
    struct rf_comm *world, *across; /* all ranks; those in the same place of other workers */
    struct rf_rounds_text rule;
    struct rf_rounds_params params;
    struct rf_rounds *rounds;
    int workers;
    /* A save is in progress: on this worker; and the first worker, whose folder says which
     * checkpoint is the last one, does not yet know that those of all others are complete. */
    bool saving, awaits_others;
};

#endif
