/* SPDX-License-Identifier: MIT
 *
 * One training at a time saves into a folder. Called by train/ on rank 0. Reading needs no lock:
 * checkpoints appear whole.
 */
#ifndef RF_IO_LOCK_H
#define RF_IO_LOCK_H

#include "file.h"

struct rf_folder_lock { /* zero: nothing is held */
    bool held;
    int fd;
};
/* Makes the folder if need be. RF_EBUSY names the process that holds it, which may be this one. A
 * file system that has no locks is locked with a warning in the log. */
RF_MUST_CHECK int rf_folder_lock(const char *dir, struct rf_folder_lock *lock);
/* Whether `lock` is of this folder, whatever its path is spelled like. */
bool rf_folder_locked(const char *dir, const struct rf_folder_lock *lock);
void rf_folder_unlock(struct rf_folder_lock *lock); /* what is not held is allowed */

#endif
