/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --sync`: the ranks are workers, each with a mesh of its own, which exchange
 * parameters now and then (train_sync_rounds.c), or pull them from a store (train_store.c), or are
 * clients of a coordinator (train_client.c). The first worker alone prints and writes files.
 */
#include "train_sync.h"

int train_sync_place(struct trainer *t)
{
    if (!train_sync_on(t->o))
        return TOOL_OK;
    t->sync = calloc(1, sizeof(*t->sync));
    if (!t->sync)
        return tool_error(t->command, "out of memory");
    t->sync->kind = train_store_on(t->o) ? &train_sync_by_store
                    : t->o->coordinator  ? &train_sync_by_coordinator
                                         : &train_sync_by_rounds;
    return t->sync->kind->place(t);
}

int train_sync_open(struct trainer *t)
{
    return t->sync ? t->sync->kind->open(t) : TOOL_OK;
}

void train_sync_shut(struct trainer *t)
{
    if (!t->sync)
        return;
    t->sync->kind->shut(t);
    rf_run_rounds_params_free(&t->sync->params);
}

int train_sync_step(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    return t->sync->kind->step(t, lr, stats);
}

int train_sync_end(struct trainer *t)
{
    return t->sync->kind->end ? t->sync->kind->end(t) : TOOL_OK;
}

int train_sync_leave(struct trainer *t)
{
    return t->sync->kind->leave(t);
}

void train_sync_abort(struct trainer *t, const char *why)
{
    if (t->sync->kind->abort)
        t->sync->kind->abort(t, why);
}

/* Before the run is closed, whose parameters the rounds read. */
void train_sync_close(struct trainer *t)
{
    if (!t->sync)
        return;
    train_sync_shut(t);
    if (t->sync->kind->close)
        t->sync->kind->close(t);
    rf_rounds_text_free(&t->sync->rule);
    free(t->sync);
    t->sync = NULL;
}
