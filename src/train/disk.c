/* SPDX-License-Identifier: MIT
 *
 * A run's file on a disk; see disk.h.
 */
#define _GNU_SOURCE /* mkostemp, sync_file_range */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <ringforge/ringforge.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../base/base.h"
#include "../parallel/plan/plan.h"

enum { SLICE = 1 << 20, PAGE = 4096, MOST_COPIES = 16, TEXT_BYTES = 48 };

struct copy {
    bool writes;
    int count;
    struct rf_disk_range ranges[RF_DISK_RANGES];
    char text[TEXT_BYTES];
};

struct rf_disk {
    int fd;
    uint64_t bytes;
    char folder[256]; /* for messages */
    struct rf_disk_calls calls;
    struct rf_timeline *timeline; /* the number of copies that have ended */
    pthread_t thread;
    bool has_thread;
    int rank; /* of the thread that opened it: traces and the log name it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct copy copies[MOST_COPIES]; /* in turn */
    uint64_t begun, ended;           /* copies */
    bool closing;
    struct rf_error error; /* status < 0: of the first copy that failed */
    uint64_t moved, busy_ns;
};

/* ---- the file -------------------------------------------------------------------------------- */

static int failed(const struct rf_disk *disk, const char *what, uint64_t at, int error)
{
    return rf_fail(RF_EIO,
                   "the file of optimizer states on the disk of %s cannot be %s at byte %llu of "
                   "%llu: %s; repair the disk or name another folder, and continue from a "
                   "checkpoint",
                   disk->folder, what, (unsigned long long)at, (unsigned long long)disk->bytes,
                   strerror(error));
}

/* Whether the file still has its size. Otherwise a write would fill what is missing with zeros,
 * which later reads would take for states. */
static int check_size(const struct rf_disk *disk)
{
    struct stat st;
    if (fstat(disk->fd, &st) < 0)
        return failed(disk, "read", 0, errno);
    return (uint64_t)st.st_size >= disk->bytes
               ? 0
               : rf_fail(RF_EIO,
                         "the file of optimizer states on the disk of %s ends at byte %llu of "
                         "%llu: something has cut it; continue from a checkpoint",
                         disk->folder, (unsigned long long)st.st_size,
                         (unsigned long long)disk->bytes);
}

/* The first byte from `at` on of the slice after that of `at`. */
static uint64_t slice_end(uint64_t at, uint64_t end)
{
    const uint64_t next = at / SLICE * SLICE + SLICE;
    return next < end ? next : end;
}

/* Takes whole pages that have these bytes from the page cache, unless they are still to be written.
 * Its status does not matter: it is about memory. */
static void drop(const struct rf_disk *disk, uint64_t at, uint64_t end)
{
    const uint64_t first = at / PAGE * PAGE, last = (end + PAGE - 1) / PAGE * PAGE;
    (void)!posix_fadvise(disk->fd, (off_t)first, (off_t)(last - first), POSIX_FADV_DONTNEED);
}

static int read_slice(const struct rf_disk *disk, uint8_t *to, uint64_t at, uint64_t end)
{
    for (uint64_t from = at; from < end;) {
        const ssize_t n = disk->calls.read(disk->fd, to + (from - at), end - from, (off_t)from);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            const int error = n < 0 ? errno : EIO;
            RETURN_IF_ERROR(check_size(disk));
            return failed(disk, "read", from, error);
        }
        from += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int rf_disk_read(struct rf_disk *disk, uint64_t at, void *memory, uint64_t bytes)
{
    const uint64_t last = at + bytes;
    for (uint64_t from = at, end; from < last; from = end) {
        end = slice_end(from, last);
        if (end < last) /* the disk reads the next slice meanwhile */
            (void)!posix_fadvise(disk->fd, (off_t)end, (off_t)(slice_end(end, last) - end),
                                 POSIX_FADV_WILLNEED);
        RETURN_IF_ERROR(read_slice(disk, (uint8_t *)memory + (from - at), from, end));
        drop(disk, from, end);
    }
    return 0;
}

static int write_slice(const struct rf_disk *disk, const uint8_t *data, uint64_t at, uint64_t end)
{
    for (uint64_t from = at; from < end;) {
        const ssize_t n = disk->calls.write(disk->fd, data + (from - at), end - from, (off_t)from);
        if (n == 0 || (n < 0 && errno != EINTR))
            return failed(disk, "written", from, n < 0 ? errno : EIO);
        from += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

/* Starts the transfer of a slice to the disk, or also waits for it. */
static int flush(const struct rf_disk *disk, uint64_t at, uint64_t end, bool waits)
{
    const unsigned flags =
        waits ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
              : SYNC_FILE_RANGE_WRITE;
    if (sync_file_range(disk->fd, (off_t)at, (off_t)(end - at), flags) < 0)
        return failed(disk, "written", at, errno);
    if (waits)
        drop(disk, at, end);
    return 0;
}

int rf_disk_write(struct rf_disk *disk, uint64_t at, const void *memory, uint64_t bytes)
{
    const uint64_t last = at + bytes;
    uint64_t before = at;
    RETURN_IF_ERROR(check_size(disk));
    for (uint64_t from = at, end; from < last; from = end) {
        end = slice_end(from, last);
        RETURN_IF_ERROR(write_slice(disk, (const uint8_t *)memory + (from - at), from, end));
        RETURN_IF_ERROR(flush(disk, from, end, false));
        if (from > before)
            RETURN_IF_ERROR(flush(disk, before, from, true));
        before = from;
    }
    return before < last ? flush(disk, before, last, true) : 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int make(struct rf_disk *disk, const struct copy *copy)
{
    for (int k = 0; k < copy->count; k++) {
        const struct rf_disk_range *r = &copy->ranges[k];
        RETURN_IF_ERROR(copy->writes ? rf_disk_write(disk, r->at, r->memory, r->bytes)
                                     : rf_disk_read(disk, r->at, r->memory, r->bytes));
    }
    return 0;
}

static void note(struct rf_disk *disk, const struct copy *copy, int status, uint64_t start)
{
    const uint64_t now = rf_now_ns();
    if (status < 0)
        disk->error = *rf_last_error();
    disk->busy_ns += now - start;
    for (int k = 0; k < copy->count; k++)
        disk->moved += copy->ranges[k].bytes;
    rf_trace_event(rf_lane_name(RF_LANE_DISK), copy->text, start, now);
}

static void *run_copies(void *user)
{
    struct rf_disk *disk = user;
    rf_set_thread_rank(disk->rank);
    pthread_mutex_lock(&disk->lock);
    for (;;) {
        while (disk->ended == disk->begun && !disk->closing)
            pthread_cond_wait(&disk->changed, &disk->lock);
        if (disk->ended == disk->begun)
            break;
        const struct copy copy = disk->copies[disk->ended % MOST_COPIES];
        const bool makes = disk->error.status == 0;
        const uint64_t start = rf_now_ns();
        pthread_mutex_unlock(&disk->lock);
        const int status = makes ? make(disk, &copy) : 0;
        pthread_mutex_lock(&disk->lock);
        if (makes)
            note(disk, &copy, status, start);
        disk->ended++;
        pthread_cond_broadcast(&disk->changed);
        if (rf_timeline_signal(disk->timeline, disk->ended) < 0)
            rf_log("train", 0, "the disk's lane: %s", rf_last_error()->message);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

int rf_disk_start(struct rf_disk *disk, bool writes, const struct rf_disk_range *ranges, int count,
                  const char *text, struct rf_point *done)
{
    pthread_mutex_lock(&disk->lock);
    while (disk->begun - disk->ended == MOST_COPIES)
        pthread_cond_wait(&disk->changed, &disk->lock);
    struct copy *copy = &disk->copies[disk->begun % MOST_COPIES];
    *copy = (struct copy){.writes = writes, .count = count};
    memcpy(copy->ranges, ranges, (size_t)count * sizeof(*ranges));
    snprintf(copy->text, sizeof(copy->text), "%s", text);
    *done = (struct rf_point){disk->timeline, ++disk->begun};
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
    return 0;
}

static int status_of(const struct rf_disk *disk)
{
    return disk->error.status < 0 ? rf_fail_error(&disk->error) : 0;
}

int rf_disk_status(struct rf_disk *disk)
{
    if (!disk)
        return 0;
    pthread_mutex_lock(&disk->lock);
    const int status = status_of(disk);
    pthread_mutex_unlock(&disk->lock);
    return status;
}

int rf_disk_wait(struct rf_disk *disk)
{
    if (!disk)
        return 0;
    pthread_mutex_lock(&disk->lock);
    while (disk->ended != disk->begun)
        pthread_cond_wait(&disk->changed, &disk->lock);
    const int status = status_of(disk);
    pthread_mutex_unlock(&disk->lock);
    return status;
}

void rf_disk_begin(struct rf_disk *disk)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->error = (struct rf_error){0};
    pthread_mutex_unlock(&disk->lock);
}

struct rf_disk_use rf_disk_used(struct rf_disk *disk)
{
    struct rf_disk_use use = {0};
    struct stat st;
    if (!disk)
        return use;
    pthread_mutex_lock(&disk->lock);
    use.moved = disk->moved;
    use.busy_ns = disk->busy_ns;
    pthread_mutex_unlock(&disk->lock);
    if (fstat(disk->fd, &st) == 0)
        use.bytes = (uint64_t)st.st_size;
    return use;
}

struct rf_disk_calls *rf_disk_calls(struct rf_disk *disk)
{
    return &disk->calls;
}

int rf_disk_file(const struct rf_disk *disk)
{
    return disk->fd;
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint64_t place_regions(const struct rf_plan *plan, uint64_t *offsets)
{
    uint64_t bytes = 0;
    for (int i = 0; i < plan->region_count; i++) {
        offsets[i] = bytes;
        bytes += plan->regions[i].memory == RF_MEMORY_DISK ? plan->regions[i].bytes : 0;
    }
    return bytes;
}

/* A file system in memory takes what the plan says is on a disk from the host's memory. */
static void warn_of_memory(const struct rf_disk *disk)
{
    struct statfs fs;
    if (fstatfs(disk->fd, &fs) == 0 &&
        ((uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC))
        rf_log("train", 0,
               "%s is a file system in host memory: optimizer states there take host memory "
               "beyond the plan; name a folder on a disk",
               disk->folder);
}

static int create(struct rf_disk *disk, const char *folder)
{
    char name[4096];
    if ((size_t)snprintf(name, sizeof(name), "%s/ringforge-states-XXXXXX", folder) >= sizeof(name))
        return rf_fail(RF_EINVAL, "the folder's name %.60s... is too long", folder);
    disk->fd = mkostemp(name, O_CLOEXEC);
    if (disk->fd < 0)
        return rf_fail(RF_EIO,
                       "cannot create a file for optimizer states in %s: %s; name a folder that "
                       "can be written",
                       folder, strerror(errno));
    (void)!unlink(name);
    warn_of_memory(disk);
    const int error = posix_fallocate(disk->fd, 0, (off_t)disk->bytes);
    if (error)
        return rf_fail(RF_EIO,
                       "cannot reserve the %llu bytes of this rank's optimizer states on the disk "
                       "of %s: %s; free some, name another folder, or use states in fewer bits",
                       (unsigned long long)disk->bytes, folder, strerror(error));
    (void)!posix_fadvise(disk->fd, 0, 0, POSIX_FADV_RANDOM); /* reads ahead by itself */
    return 0;
}

/* Signals are for the program's threads. */
static int start_thread(struct rf_disk *disk)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    disk->has_thread = pthread_create(&disk->thread, NULL, run_copies, disk) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return disk->has_thread ? 0 : rf_fail(RF_ENOMEM, "run: cannot start the thread of the disk");
}

int rf_disk_open(const struct rf_plan *plan, struct rf_device *device, const char *folder,
                 uint64_t *offsets, struct rf_disk **out)
{
    const uint64_t bytes = place_regions(plan, offsets);
    *out = NULL;
    if (bytes == 0)
        return 0;
    if (!folder)
        return rf_fail(RF_EINVAL,
                       "the plan has %llu bytes of optimizer states on a disk: name a "
                       "folder there (rf_run_opts.disk)",
                       (unsigned long long)bytes);
    struct rf_disk *disk = rf_alloc(sizeof(*disk));
    if (!disk)
        return rf_fail(RF_ENOMEM, "run: out of host memory");
    disk->fd = -1;
    disk->rank = rf_thread_rank();
    disk->bytes = bytes;
    disk->calls = (struct rf_disk_calls){pread, pwrite};
    snprintf(disk->folder, sizeof(disk->folder), "%s", folder);
    pthread_mutex_init(&disk->lock, NULL);
    rf_cond_init(&disk->changed);
    int rc = create(disk, folder);
    if (rc == 0)
        rc = rf_timeline_create(device, &disk->timeline);
    if (rc == 0)
        rc = start_thread(disk);
    if (rc < 0)
        rf_disk_close(disk);
    else
        *out = disk;
    return rc;
}

void rf_disk_close(struct rf_disk *disk)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->closing = true;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
    if (disk->has_thread)
        pthread_join(disk->thread, NULL);
    rf_timeline_destroy(disk->timeline);
    if (disk->fd >= 0)
        close(disk->fd);
    pthread_cond_destroy(&disk->changed);
    pthread_mutex_destroy(&disk->lock);
    rf_free(disk);
}
