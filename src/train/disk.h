/* SPDX-License-Identifier: MIT
 *
 * The file in which a run has what its plan puts on a disk, and the thread that copies between it
 * and host memory: RF_LANE_DISK. Called by the executor, and by the files that read and write
 * checkpoints.
 *
 * The file has no name: it ends with the process. It goes through the page cache, a MiB at a time,
 * and its pages are dropped at once, so that it takes no host memory beyond the plan: reads by
 * posix_fadvise, writes when sync_file_range says that they have reached the disk. O_DIRECT would
 * need memory, places and sizes aligned to the disk's blocks, and was not faster.
 */
#ifndef RF_TRAIN_DISK_H
#define RF_TRAIN_DISK_H

#include <ringforge/train.h>
#include <sys/types.h>

struct rf_plan;
struct rf_disk;

/* Creates the file of a plan in `folder`, with all its bytes reserved and 0, and its thread. *out
 * is NULL if the plan has nothing on a disk. offsets: where each region begins that is there
 * (plan->region_count entries). */
RF_MUST_CHECK int rf_disk_open(const struct rf_plan *plan, struct rf_device *device,
                               const char *folder, uint64_t *offsets, struct rf_disk **out);
/* Waits for its thread. NULL is allowed. */
void rf_disk_close(struct rf_disk *disk);

/* Bytes of memory and their place in the file. */
struct rf_disk_range {
    void *memory;
    uint64_t at, bytes;
};

enum { RF_DISK_RANGES = 4 };

/* Appends a copy, of at most RF_DISK_RANGES, to those of the thread, which makes them in their
 * order. Waits for a place if there are too many. *done is reached at its end, also if it fails.
 * text: for the trace, copied. */
RF_MUST_CHECK int rf_disk_start(struct rf_disk *disk, bool writes,
                                const struct rf_disk_range *ranges, int count, const char *text,
                                struct rf_point *done);
/* The first error of copies since rf_disk_begin; later ones were not made. NULL: 0. */
RF_MUST_CHECK int rf_disk_status(struct rf_disk *disk);
/* Waits for all copies, and returns that status. NULL: 0. */
RF_MUST_CHECK int rf_disk_wait(struct rf_disk *disk);
/* Forgets an error. Between copies. NULL is allowed. */
void rf_disk_begin(struct rf_disk *disk);

/* Blocking, on the caller's thread; not beside copies of the same bytes. */
RF_MUST_CHECK int rf_disk_read(struct rf_disk *disk, uint64_t at, void *memory, uint64_t bytes);
RF_MUST_CHECK int rf_disk_write(struct rf_disk *disk, uint64_t at, const void *memory,
                                uint64_t bytes);

/* Of the file; copied by the thread since the file was opened; and the time of that. NULL: all 0.
 */
struct rf_disk_use {
    uint64_t bytes, moved, busy_ns;
};
struct rf_disk_use rf_disk_used(struct rf_disk *disk);

/* Tests: the system's calls, which they replace to fail. */
struct rf_disk_calls {
    ssize_t (*read)(int fd, void *to, size_t bytes, off_t at);
    ssize_t (*write)(int fd, const void *from, size_t bytes, off_t at);
};
struct rf_disk_calls *rf_disk_calls(struct rf_disk *disk);
int rf_disk_file(const struct rf_disk *disk); /* its descriptor */

#endif
