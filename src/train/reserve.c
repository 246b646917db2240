/* SPDX-License-Identifier: MIT
 *
 * Takes a folder for the checkpoints of one run, so that no other run saves there. Rank 0 alone
 * holds the lock, and all hear what it met.
 */
#include "../base/base.h"
#include "run.h"

int rf_run_reserve(struct rf_run *run, const char *dir)
{
    if (!run || !dir)
        return rf_fail(RF_EINVAL, "reserve: a run and a folder are needed");
    int rc = 0;
    if (run->plan->rank == 0) {
        rf_folder_unlock(&run->lock);
        rc = rf_folder_lock(dir, &run->lock);
    }
    return rf_run_broadcast_status(run, rc, "reserve");
}
