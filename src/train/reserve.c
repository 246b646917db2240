/* SPDX-License-Identifier: MIT
 *
 * Reserves a folder for the checkpoints of one run, so that no other run saves there. Only rank 0
 * holds the lock, and all ranks get its status.
 */
#include "../base/base.h"
#include "run.h"

int rf_run_reserve(struct rf_run *run, const char *dir)
{
    if (!run || !dir)
        return rf_fail(RF_EINVAL, "reserve: a run and a folder are needed");
    RETURN_IF_ERROR(rf_run_save_wait(run)); /* it may use the folder that is released here */
    RETURN_IF_ERROR(rf_run_begin_call(run, "reserve"));
    int rc = 0;
    if (run->plan->rank == 0) {
        rf_folder_unlock(&run->lock);
        rc = rf_folder_lock(dir, &run->lock);
    }
    return rf_run_status_of(run, rc, 0, "reserve");
}

void rf_run_release(struct rf_run *run)
{
    if (!run)
        return;
    rf_run_save_abandon(run);
    rf_folder_unlock(&run->lock);
}
