/* SPDX-License-Identifier: MIT
 *
 * Ensures that only one run at a time saves into a folder. Called by train/ on rank 0. Reading
 * needs no lock, because checkpoints appear atomically.
 */
#ifndef RF_IO_LOCK_H
#define RF_IO_LOCK_H

#include "file.h"

struct rf_folder_lock { /* zero: not held */
    bool held;
    int fd;
};
/* Creates the folder if necessary. RF_EBUSY: the message names the process that holds the lock,
 * which may be this one. A process of this host that is ending is waited for, up to a minute.
 * Without support for locks, it succeeds and logs a warning. */
RF_MUST_CHECK int rf_folder_lock(const char *dir, struct rf_folder_lock *lock);
/* Whether `lock` is held on this folder, under any of its paths. */
bool rf_folder_locked(const char *dir, const struct rf_folder_lock *lock);
void rf_folder_unlock(struct rf_folder_lock *lock); /* an unheld lock is allowed */

#endif
