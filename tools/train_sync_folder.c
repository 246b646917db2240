/* SPDX-License-Identifier: MIT
 *
 * The folders of checkpoints of `ringforge train --sync`: whose they are, and what becomes of a
 * save in progress when a worker is lost.
 */
#include <sys/stat.h>

#include "train_sync.h"

int train_sync_folder(const struct trainer *t, const char *dir, int worker,
                      char path[TOOL_PATH_BYTES])
{
    const int n = worker == 0 ? snprintf(path, TOOL_PATH_BYTES, "%s", dir)
                              : snprintf(path, TOOL_PATH_BYTES, "%s/worker-%d", dir, worker);
    return n < TOOL_PATH_BYTES ? TOOL_OK
                               : tool_error(t->command, "the path %.60s... is too long", dir);
}

int train_sync_reserve_own(struct trainer *t)
{
    char path[TOOL_PATH_BYTES];
    const int status = train_sync_folder(t, t->o->save, t->number, path);
    if (status != TOOL_OK)
        return status;
    if (t->number > 0)
        (void)mkdir(t->o->save, 0755); /* on a host without the first worker; the next call tells */
    return rf_run_reserve(t->run, path) < 0 ? trainer_failed(t) : TOOL_OK;
}

int train_sync_reserve(struct trainer *t)
{
    const bool alone = t->number == 0 || t->newcomer; /* nobody else is at this point */
    const int status = alone ? train_sync_reserve_own(t) : TOOL_OK;
    if (t->newcomer)
        return status;
    if (status != TOOL_OK || !train_sync_rounds(t))
        return status;
    if (rf_barrier(t->sync->world, NULL) < 0)
        return trainer_failed(t);
    return t->number > 0 ? train_sync_reserve_own(t) : TOOL_OK;
}

void train_sync_save_drop(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    rf_run_save_abandon(t->run);
    sync->saving = sync->awaits_others = sync->begun = false;
    sync->losses++;
}
